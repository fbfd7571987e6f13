/*
 * Waiting for objects: one watch for each kind and namespace that somebody waits in, followed by a
 * thread of its own for as long as there is somebody, and a while longer.
 *
 * A watch has a place (a resourceVersion): whatever comes after it will be told. Those who wait
 * bring what they know; what is older than the place was maybe missed, and is fetched anew.
 */

#include "cloud/kubernetes_feed.h"
#include "util/clock.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/log.h"
#include "util/memory.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define WATCHES_MAX 256
#define ACCESS_MS   120000
#define STACK_BYTES (512u << 10)
/* A stream that lasted so long was no failure, though nothing came. */
#define LASTED_MS 2000

struct watch {
    struct sbx_kubernetes *cluster;
    struct sbx_resource resource;
    char *space;
    struct watch *next;

    pthread_mutex_t mutex;
    pthread_cond_t woken; /* the thread */
    struct sbx_feed feed;
    uint64_t placed; /* how often it was given a place */
    bool running, joinable, stopping;
    pthread_t thread;
    int64_t idle_since_ms;

    /* Of the stream that goes on. */
    struct sbx_http_transfer *transfer;
    sandbox_status status;
    long code;
    int64_t retry_after_ms, began_at_ms;
    sandbox_error why;

    /* Of those before it. */
    unsigned failures;
    uint64_t refused, credential;
};

struct sbx_kubernetes_watches {
    struct sbx_kubernetes *cluster;
    pid_t process; /* a forked child has the memory, not the threads */
    pthread_mutex_t mutex;
    struct watch *first;
    size_t count;
};

/* What one who waits brings. */
struct await {
    struct watch *watch;
    const char *space;
    const struct sbx_wait *wait;
    struct sbx_interest interest;
};

static sandbox_status find_watch(struct sbx_kubernetes_watches *watches,
                                 const struct sbx_resource *resource, const char *space,
                                 struct watch **out, sandbox_error *error);
static struct watch *new_watch(struct sbx_kubernetes *cluster, const struct sbx_resource *resource,
                               const char *space);
static void free_watch(struct watch *watch);
static sandbox_status join(struct await *await, const cJSON *known, sandbox_error *error);
static void leave(struct await *await);
static sandbox_status wait_until_done(struct await *await, sandbox_error *error);
static sandbox_status fetch(struct await *await, sandbox_error *error);
static void place(struct watch *watch, const char *version);
static sandbox_status start_thread(struct watch *watch, sandbox_error *error);
static void *follow(void *argument);
static bool wait_for_work(struct watch *watch);
static bool sleep_until(struct watch *watch, int64_t end_ms);
static void run_stream(struct watch *watch);
static sandbox_status begin_stream(struct watch *watch, sandbox_error *error);
static void follow_stream(struct watch *watch);
static void judge_stream(struct watch *watch);
static void lose_place(struct watch *watch, bool failed);
static bool take_piece(void *user_data, const void *data, size_t size);
static void end_stream(void *user_data, sandbox_status status, struct sbx_http_answer *answer,
                       const sandbox_error *error);

static int64_t now_ms(void)
{
    return sbx_clock_monotonic(&sbx_system_clock);
}

sandbox_status sbx_kubernetes_watches_new(struct sbx_kubernetes *cluster,
                                          struct sbx_kubernetes_watches **out, sandbox_error *error)
{
    struct sbx_kubernetes_watches *watches = calloc(1, sizeof *watches);
    if (watches == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for watches");
    watches->cluster = cluster;
    watches->process = getpid();
    pthread_mutex_init(&watches->mutex, NULL);
    *out = watches;
    return SANDBOX_OK;
}

void sbx_kubernetes_watches_free(struct sbx_kubernetes_watches *watches)
{
    if (watches == NULL || watches->process != getpid())
        return;
    for (struct watch *each = watches->first, *next; each != NULL; each = next) {
        next = each->next;
        free_watch(each);
    }
    pthread_mutex_destroy(&watches->mutex);
    free(watches);
}

sandbox_status sbx_kubernetes_await(struct sbx_kubernetes *cluster,
                                    const struct sbx_resource *resource, const char *space,
                                    const char *name, const cJSON *known,
                                    bool (*is_done)(void *user_data, const cJSON *object),
                                    void *user_data, const struct sbx_wait *wait, cJSON **out,
                                    sandbox_error *error)
{
    if (name == NULL || name[0] == '\0' ||
        (!resource->cluster_scoped && (space == NULL || space[0] == '\0')))
        return sbx_fail(error, SANDBOX_INVALID, "cannot wait for one of the %s without its name",
                        resource->plural);
    struct await await = {
        .space = space,
        .wait = wait,
        .interest = {
            .name = name, .is_done = is_done, .user_data = user_data, .wants_object = out != NULL}};
    if (sbx_condition_init(&await.interest.woken) != 0)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to wait");
    sandbox_status status = SANDBOX_OK;
    if (known != NULL)
        sbx_feed_ask(&await.interest, known, 0);
    if (!await.interest.done) {
        status = find_watch(cluster->watches, resource, space, &await.watch, error);
        if (status == SANDBOX_OK)
            status = join(&await, known, error);
    }
    pthread_cond_destroy(&await.interest.woken);
    if (status == SANDBOX_OK && await.interest.no_memory)
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an object");
    if (status == SANDBOX_OK && out != NULL)
        *out = sbx_take(await.interest.object);
    cJSON_Delete(await.interest.object);
    return status;
}

/* There are as many as kinds and namespaces are used: they stay until the cluster is closed. */
static sandbox_status find_watch(struct sbx_kubernetes_watches *watches,
                                 const struct sbx_resource *resource, const char *space,
                                 struct watch **out, sandbox_error *error)
{
    space = resource->cluster_scoped ? "" : space;
    pthread_mutex_lock(&watches->mutex);
    struct watch *watch = watches->first;
    while (watch != NULL && (strcmp(watch->resource.plural, resource->plural) != 0 ||
                             strcmp(watch->resource.group, resource->group) != 0 ||
                             strcmp(watch->resource.version, resource->version) != 0 ||
                             strcmp(watch->space, space) != 0))
        watch = watch->next;
    bool is_full = watch == NULL && watches->count >= WATCHES_MAX;
    if (watch == NULL && !is_full) {
        watch = new_watch(watches->cluster, resource, space);
        if (watch != NULL) {
            watch->next = watches->first;
            watches->first = watch;
            watches->count++;
        }
    }
    pthread_mutex_unlock(&watches->mutex);
    *out = watch;
    if (is_full)
        return sbx_fail_for(error, SANDBOX_LIMIT, "too-many-watches",
                            "more than %d kinds and namespaces are watched by one client",
                            WATCHES_MAX);
    return watch != NULL ? SANDBOX_OK : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a watch");
}

static struct watch *new_watch(struct sbx_kubernetes *cluster, const struct sbx_resource *resource,
                               const char *space)
{
    struct watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return NULL;
    watch->space = sbx_copy(space);
    if (watch->space == NULL || sbx_condition_init(&watch->woken) != 0) {
        free(watch->space);
        free(watch);
        return NULL;
    }
    watch->cluster = cluster;
    watch->resource = *resource;
    pthread_mutex_init(&watch->mutex, NULL);
    sbx_feed_init(&watch->feed);
    return watch;
}

static void free_watch(struct watch *watch)
{
    pthread_mutex_lock(&watch->mutex);
    watch->stopping = true;
    pthread_cond_signal(&watch->woken);
    bool joinable = watch->joinable;
    pthread_mutex_unlock(&watch->mutex);
    if (joinable)
        pthread_join(watch->thread, NULL);
    sbx_feed_clear(&watch->feed);
    pthread_cond_destroy(&watch->woken);
    pthread_mutex_destroy(&watch->mutex);
    free(watch->space);
    free(watch);
}

static const char *version_of(const cJSON *object)
{
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(object, "metadata");
    const char *version = sbx_json_text(metadata, "resourceVersion");
    return strlen(version) < SBX_KUBERNETES_VERSION ? version : "";
}

static sandbox_status join(struct await *await, const cJSON *known, sandbox_error *error)
{
    struct watch *watch = await->watch;
    struct sbx_interest *interest = &await->interest;
    const char *version = version_of(known);
    uint64_t number = sbx_feed_number(version);
    pthread_mutex_lock(&watch->mutex);
    interest->version = number;
    interest->is_unseen = known == NULL;
    if (version[0] != '\0' && watch->feed.version[0] == '\0')
        place(watch, version);
    else
        interest->stale = sbx_feed_missed(&watch->feed, interest->name, number);
    sbx_feed_add(&watch->feed, interest);
    sandbox_status status = start_thread(watch, error);
    if (status == SANDBOX_OK)
        status = wait_until_done(await, error);
    leave(await);
    pthread_mutex_unlock(&watch->mutex);
    return status;
}

static void leave(struct await *await)
{
    struct watch *watch = await->watch;
    sbx_feed_remove(&watch->feed, &await->interest);
    if (watch->feed.count > 0)
        return;
    watch->idle_since_ms = now_ms();
    pthread_cond_signal(&watch->woken);
}

/* With the mutex held. What is done goes before whatever else happened meanwhile. */
static sandbox_status wait_until_done(struct await *await, sandbox_error *error)
{
    struct watch *watch = await->watch;
    struct sbx_interest *interest = &await->interest;
    sandbox_error why = {0};
    sandbox_status status = SANDBOX_OK;
    while (!interest->done && !interest->failed && status == SANDBOX_OK) {
        if (interest->stale)
            status = fetch(await, &why);
        else
            status = sbx_wait_condition(await->wait, &interest->woken, &watch->mutex, &why);
    }
    if (interest->done)
        return SANDBOX_OK;
    if (interest->failed && status == SANDBOX_OK) {
        why = watch->why;
        status = why.status;
    }
    if (error != NULL)
        *error = why;
    return status;
}

/* Also where it cannot be told. */
static bool is_before(uint64_t number, const char *version)
{
    uint64_t other = sbx_feed_number(version);
    return number == 0 || other == 0 || number < other;
}

/*
 * With the mutex held, but not while it fetches. What was fetched holds good together with the
 * watch if it is not from before the watch's place; the first one after a loss gives the place.
 */
static sandbox_status fetch(struct await *await, sandbox_error *error)
{
    struct watch *watch = await->watch;
    struct sbx_interest *interest = &await->interest;
    uint64_t placed = watch->feed.version[0] == '\0' ? 0 : watch->placed;
    SBX_ON_EXIT(sbx_json_free) cJSON *object = NULL;
    char version[SBX_KUBERNETES_VERSION];
    interest->stale = false;
    pthread_mutex_unlock(&watch->mutex);
    sandbox_status status =
        sbx_kubernetes_find(watch->cluster, &watch->resource, await->space, interest->name,
                            await->wait, &object, version, error);
    pthread_mutex_lock(&watch->mutex);
    if (status != SANDBOX_OK)
        return status;
    uint64_t number = sbx_feed_number(version);
    if (watch->feed.version[0] == '\0')
        place(watch, version);
    else if (placed != watch->placed)
        interest->stale = is_before(number, watch->feed.version);
    /* What the stream told meanwhile may be newer. */
    if (interest->has_passed && (number == 0 || interest->passed == 0 || interest->passed > number))
        interest->stale = true;
    interest->is_unseen = interest->has_passed = false;
    sbx_feed_ask(interest, object, object == NULL ? number : sbx_feed_number(version_of(object)));
    return status;
}

static void place(struct watch *watch, const char *version)
{
    sbx_feed_place(&watch->feed, version);
    watch->placed++;
    pthread_cond_signal(&watch->woken);
}

/* With the mutex held. Wakes it where it runs: there is somebody now. */
static sandbox_status start_thread(struct watch *watch, sandbox_error *error)
{
    pthread_cond_signal(&watch->woken);
    if (watch->running)
        return SANDBOX_OK;
    if (watch->joinable)
        pthread_join(watch->thread, NULL); /* it has left the mutex for the last time */
    watch->joinable = false;

    sigset_t all, before;
    pthread_attr_t attributes;
    int failure = pthread_attr_init(&attributes);
    if (failure == 0) {
        (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        failure = pthread_create(&watch->thread, &attributes, follow, watch);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
    }
    if (failure != 0)
        return sbx_fail_errno(error, failure, "cannot start a thread that watches");
    watch->running = watch->joinable = true;
    return SANDBOX_OK;
}

static void *follow(void *argument)
{
    struct watch *watch = argument;
    pthread_mutex_lock(&watch->mutex);
    while (wait_for_work(watch))
        run_stream(watch);
    watch->feed.version[0] = '\0';
    watch->failures = 0;
    watch->running = false;
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

/* False: nobody came for so long, or nobody will. */
static bool wait_for_work(struct watch *watch)
{
    while (!watch->stopping) {
        if (watch->feed.count == 0) {
            int64_t end = watch->idle_since_ms + watch->cluster->pace.linger_ms;
            if (now_ms() >= end)
                return false;
            sleep_until(watch, end);
        } else if (watch->feed.version[0] == '\0') {
            pthread_cond_wait(&watch->woken, &watch->mutex);
        } else {
            return true;
        }
    }
    return false;
}

/* Returns when woken too; false: the time is over. */
static bool sleep_until(struct watch *watch, int64_t end_ms)
{
    struct timespec until = {(time_t)(end_ms / 1000), (long)(end_ms % 1000) * 1000000};
    return pthread_cond_timedwait(&watch->woken, &watch->mutex, &until) == 0;
}

/* With the mutex held, as all that follows. */
static void run_stream(struct watch *watch)
{
    sandbox_error why = {0};
    watch->began_at_ms = now_ms();
    if (begin_stream(watch, &why) != SANDBOX_OK) {
        watch->why = why;
        lose_place(watch, true);
        return;
    }
    follow_stream(watch);
    if (!watch->stopping)
        judge_stream(watch);
}

/* While a plugin may be asked for a credential: as long as the client is not closed. */
static int is_stopping(void *user_data)
{
    struct watch *watch = user_data;
    pthread_mutex_lock(&watch->mutex);
    bool stopping = watch->stopping;
    pthread_mutex_unlock(&watch->mutex);
    return stopping ? 1 : 0;
}

static char *stream_url(struct watch *watch)
{
    const struct sbx_kubernetes_pace *pace = &watch->cluster->pace;
    struct sbx_bytes escaped = SBX_BYTES(4 * SBX_KUBERNETES_VERSION);
    SBX_ON_EXIT(sbx_free_text)
    char *place_url =
        sbx_kubernetes_url(watch->cluster, &watch->resource, watch->space, NULL, NULL);
    char *url = NULL;
    if (place_url != NULL && sbx_http_escape(&escaped, watch->feed.version))
        url = sbx_format("%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=%u"
                         "&resourceVersion=%.*s",
                         place_url, pace->watch_seconds, (int)sbx_bytes_size(&escaped),
                         (const char *)sbx_bytes_data(&escaped));
    sbx_bytes_free(&escaped);
    return url;
}

static sandbox_status begin_stream(struct watch *watch, sandbox_error *error)
{
    struct sbx_kubernetes *cluster = watch->cluster;
    SBX_ON_EXIT(sbx_kubernetes_access_end) struct sbx_kubernetes_access access = {0};
    struct sbx_wait wait = sbx_wait_alone(ACCESS_MS);
    wait.interrupted = is_stopping;
    wait.user_data = watch;
    pthread_mutex_unlock(&watch->mutex);
    sandbox_status status =
        sbx_kubeconfig_access(cluster->config, watch->refused, &wait, &access, error);
    pthread_mutex_lock(&watch->mutex);
    if (status != SANDBOX_OK)
        return status;
    watch->credential = access.number;

    SBX_ON_EXIT(sbx_free_text) char *url = stream_url(watch);
    SBX_ON_EXIT(sbx_kubernetes_headers_free)
    const char **headers = sbx_kubernetes_headers(&access, NULL);
    if (url == NULL || headers == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a watch");
    bool was_silent = watch->status == SANDBOX_UNAVAILABLE && watch->code == 0;
    struct sbx_http_request request = {.peer = &access.peer,
                                       .method = "GET",
                                       .url = url,
                                       .headers = headers,
                                       .answer_max = 1u << 20,
                                       .piece = take_piece,
                                       .user_data = watch,
                                       .on_fresh_connection = was_silent};
    struct sbx_http_ends ends = {end_stream, watch};
    sbx_feed_begin(&watch->feed);
    return sbx_http_begin(cluster->http, &request,
                          cluster->pace.watch_seconds + cluster->pace.slack_seconds, &ends,
                          &watch->transfer, error);
}

/* Until it has ended by itself, or nobody waits any more. */
static void follow_stream(struct watch *watch)
{
    bool cancelled = false;
    while (watch->transfer != NULL) {
        int64_t end = watch->idle_since_ms + watch->cluster->pace.linger_ms;
        bool idle = watch->feed.count == 0;
        if (!cancelled && (watch->stopping || (idle && now_ms() >= end))) {
            sbx_http_cancel(watch->transfer);
            cancelled = true;
        } else if (idle && !cancelled) {
            sleep_until(watch, end);
        } else {
            pthread_cond_wait(&watch->woken, &watch->mutex);
        }
    }
}

/* After a failure: a little later, or not at all where nobody waits. */
static void pause_stream(struct watch *watch)
{
    watch->failures++;
    int64_t end =
        now_ms() + sbx_kubernetes_pause_ms(watch->cluster, watch->failures, watch->retry_after_ms);
    while (!watch->stopping && watch->feed.count > 0 && now_ms() < end)
        sleep_until(watch, end);
}

static void judge_stream(struct watch *watch)
{
    bool lasted = watch->feed.heard || now_ms() - watch->began_at_ms >= LASTED_MS;
    bool is_refused = watch->code == 401 && watch->refused != watch->credential;
    if (watch->status == SANDBOX_CANCELLED)
        return; /* by us, since nobody waited any more */
    sbx_log(SANDBOX_LOG_DEBUG, "a watch of %s ended after %lld ms: %s", watch->resource.plural,
            (long long)(now_ms() - watch->began_at_ms), watch->why.message);
    if (watch->code != 401)
        watch->refused = 0;
    if (watch->feed.how == SBX_FEED_LOST) {
        lose_place(watch, false);
    } else if (is_refused) {
        watch->refused = watch->credential;
        return;
    } else if (watch->status != SANDBOX_OK && watch->status != SANDBOX_UNAVAILABLE) {
        lose_place(watch, true);
        return;
    }
    if (lasted && watch->feed.how == SBX_FEED_GOING && watch->status == SANDBOX_OK)
        watch->failures = 0;
    else
        pause_stream(watch);
}

/* All who wait fetch anew, or are told why it does not go on. */
static void lose_place(struct watch *watch, bool failed)
{
    watch->feed.version[0] = '\0';
    sbx_feed_wake_all(&watch->feed, failed);
}

/* I/O thread. */
static bool take_piece(void *user_data, const void *data, size_t size)
{
    struct watch *watch = user_data;
    pthread_mutex_lock(&watch->mutex);
    bool going = sbx_feed_take(&watch->feed, data, size);
    pthread_mutex_unlock(&watch->mutex);
    return going;
}

/*
 * I/O thread. A refusal of the version (410, 400, or one that the server has not come to) is a loss
 * of the place.
 */
static void end_stream(void *user_data, sandbox_status status, struct sbx_http_answer *answer,
                       const sandbox_error *error)
{
    struct watch *watch = user_data;
    struct sbx_kubernetes_status said = {.retry_after_ms = -1};
    SBX_ON_EXIT(sbx_free_text) char *doing = sbx_format("watch %s", watch->resource.plural);
    pthread_mutex_lock(&watch->mutex);
    watch->status = status;
    watch->code = status == SANDBOX_OK ? answer->status : 0;
    watch->why = *error;
    if (watch->code != 0 && watch->code / 100 != 2) {
        sbx_kubernetes_status_read(answer, &said);
        watch->status = sbx_kubernetes_fail(watch->cluster, answer, doing == NULL ? "watch" : doing,
                                            &watch->why);
        if (watch->code == 410 || watch->code == 400 || said.version_too_large)
            watch->feed.how = SBX_FEED_LOST;
    }
    watch->retry_after_ms = said.retry_after_ms;
    watch->transfer = NULL;
    pthread_cond_signal(&watch->woken);
    pthread_mutex_unlock(&watch->mutex);
}
