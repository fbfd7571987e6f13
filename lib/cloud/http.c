/* HTTP: the I/O thread, whose transfers those are, and how they end. */

#include "cloud/http_parts.h"
#include "util/clock.h"
#include "util/fail.h"
#include "util/memory.h"
#include <signal.h>
#include <unistd.h>

/* Whatever comes up wakes the thread; this is only what libcurl wants to be given. */
#define LONGEST_SLEEP_MS 3600000

struct sbx_http {
    CURLM *multi;
    pthread_t thread;
    pid_t process; /* a forked child has the memory, not the thread */
    pthread_mutex_t mutex;
    struct sbx_http_transfer *first_posted, **last_posted;
    bool stopping;
    struct sbx_http_transfer *first; /* I/O thread: those that go on */
};

/* Of a caller that waits. */
struct call {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool has_ended;
    sandbox_status status;
    struct sbx_http_answer *answer;
    sandbox_error *error;
};

static sandbox_status start_thread(struct sbx_http *http, sandbox_error *error);
static void *work(void *argument);
static void post(struct sbx_http_transfer *transfer, bool cancel);
static bool take_posted(struct sbx_http *http);
static void add(struct sbx_http_transfer *transfer);
static void finish_done(struct sbx_http *http);
static void finish_all(struct sbx_http *http);
static int finish_silent(struct sbx_http *http);
static void finish(struct sbx_http_transfer *transfer, sandbox_status status,
                   const sandbox_error *error);
static sandbox_status judge(struct sbx_http_transfer *transfer, CURLcode code,
                            sandbox_error *error);
static sandbox_status wait_for_end(struct sbx_http_transfer *transfer, struct call *call,
                                   const struct sbx_wait *wait, sandbox_error *error);
static void end_call(void *user_data, sandbox_status status, struct sbx_http_answer *answer,
                     const sandbox_error *error);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_ready;

static void begin_curl(void)
{
    is_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

sandbox_status sbx_http_start(struct sbx_http **out, sandbox_error *error)
{
    pthread_once(&once, begin_curl);
    struct sbx_http *http = is_ready ? calloc(1, sizeof *http) : NULL;
    if (http != NULL)
        http->multi = curl_multi_init();
    if (http == NULL || http->multi == NULL) {
        free(http);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an HTTP client");
    }
    http->process = getpid();
    http->last_posted = &http->first_posted;
    pthread_mutex_init(&http->mutex, NULL);
    sandbox_status status = start_thread(http, error);
    if (status == SANDBOX_OK) {
        *out = http;
        return status;
    }
    pthread_mutex_destroy(&http->mutex);
    curl_multi_cleanup(http->multi);
    free(http);
    return status;
}

void sbx_http_stop(struct sbx_http *http)
{
    if (http == NULL || http->process != getpid())
        return;
    pthread_mutex_lock(&http->mutex);
    http->stopping = true;
    pthread_mutex_unlock(&http->mutex);
    curl_multi_wakeup(http->multi);
    pthread_join(http->thread, NULL);
    curl_multi_cleanup(http->multi);
    pthread_mutex_destroy(&http->mutex);
    free(http);
}

sandbox_status sbx_http_do(struct sbx_http *http, const struct sbx_http_request *request,
                           const struct sbx_wait *wait, struct sbx_http_answer *answer, bool *sent,
                           sandbox_error *error)
{
    bool unused = false;
    *answer = (struct sbx_http_answer){.retry_after_ms = -1};
    sent = sent == NULL ? &unused : sent;
    *sent = false;
    sandbox_status status = sbx_wait_check(wait, error);
    struct sbx_http_transfer *transfer = NULL;
    if (status == SANDBOX_OK)
        status = sbx_http_transfer_new(request, false, &transfer, error);
    if (status != SANDBOX_OK)
        return status;

    struct call call = {.answer = answer, .error = error};
    pthread_mutex_init(&call.mutex, NULL);
    if (sbx_condition_init(&call.ended) != 0) {
        pthread_mutex_destroy(&call.mutex);
        sbx_http_transfer_free(transfer);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    }
    transfer->http = http;
    transfer->sent_out = sent;
    transfer->ends = (struct sbx_http_ends){end_call, &call};
    status = wait_for_end(transfer, &call, wait, error);
    pthread_cond_destroy(&call.ended);
    pthread_mutex_destroy(&call.mutex);
    return status;
}

sandbox_status sbx_http_begin(struct sbx_http *http, const struct sbx_http_request *request,
                              uint32_t seconds_silent, const struct sbx_http_ends *ends,
                              struct sbx_http_transfer **out, sandbox_error *error)
{
    struct sbx_http_transfer *transfer = NULL;
    sandbox_status status = sbx_http_transfer_new(request, true, &transfer, error);
    if (status != SANDBOX_OK)
        return status;
    transfer->http = http;
    transfer->silent_ms = 1000 * (int64_t)seconds_silent;
    transfer->ends = *ends;
    *out = transfer;
    post(transfer, false);
    return SANDBOX_OK;
}

void sbx_http_cancel(struct sbx_http_transfer *transfer)
{
    post(transfer, true);
}

/* All signals stay with the host's threads, SIGPIPE among them. */
static sandbox_status start_thread(struct sbx_http *http, sandbox_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&http->thread, NULL, work, http);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0)
        return sbx_fail_errno(error, failure, "cannot start the HTTP client's thread");
    return SANDBOX_OK;
}

static void *work(void *argument)
{
    struct sbx_http *http = argument;
    while (take_posted(http)) {
        int running = 0;
        curl_multi_perform(http->multi, &running);
        finish_done(http);
        curl_multi_poll(http->multi, NULL, 0, finish_silent(http), NULL);
    }
    finish_all(http);
    return NULL;
}

static void post(struct sbx_http_transfer *transfer, bool cancel)
{
    struct sbx_http *http = transfer->http;
    pthread_mutex_lock(&http->mutex);
    if (cancel)
        transfer->cancelled = true;
    if (!transfer->posted) {
        transfer->posted = true;
        transfer->next_posted = NULL;
        *http->last_posted = transfer;
        http->last_posted = &transfer->next_posted;
    }
    pthread_mutex_unlock(&http->mutex);
    curl_multi_wakeup(http->multi);
}

/* Starts and ends what was asked for since; false: nothing is to go on. */
static bool take_posted(struct sbx_http *http)
{
    for (;;) {
        pthread_mutex_lock(&http->mutex);
        struct sbx_http_transfer *transfer = http->first_posted;
        bool stopping = http->stopping, cancelled = false;
        if (transfer != NULL) {
            http->first_posted = transfer->next_posted;
            if (http->first_posted == NULL)
                http->last_posted = &http->first_posted;
            transfer->posted = false;
            cancelled = transfer->cancelled;
        }
        pthread_mutex_unlock(&http->mutex);
        if (transfer == NULL)
            return !stopping;

        sandbox_error error = {0};
        if (cancelled)
            finish(transfer, sbx_fail(&error, SANDBOX_CANCELLED, "the request was ended"), &error);
        else
            add(transfer);
    }
}

static void add(struct sbx_http_transfer *transfer)
{
    struct sbx_http *http = transfer->http;
    transfer->added = true;
    transfer->previous = NULL;
    transfer->next = http->first;
    if (http->first != NULL)
        http->first->previous = transfer;
    http->first = transfer;
    transfer->heard_at_ms = sbx_clock_monotonic(&sbx_system_clock);

    sandbox_error error = {0};
    if (curl_multi_add_handle(http->multi, transfer->easy) != CURLM_OK)
        finish(transfer, sbx_fail(&error, SANDBOX_NO_MEMORY, "no memory for a request"), &error);
}

static void finish_done(struct sbx_http *http)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(http->multi, &left)) != NULL) {
        CURLcode code = message->data.result;
        struct sbx_http_transfer *transfer = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer);
        sandbox_error error = {0};
        finish(transfer, judge(transfer, code, &error), &error);
    }
}

/* At the end of it all. */
static void finish_all(struct sbx_http *http)
{
    while (http->first != NULL) {
        sandbox_error error = {0};
        finish(http->first, sbx_fail(&error, SANDBOX_CANCELLED, "the HTTP client was stopped"),
               &error);
    }
}

/* Ends those that were silent for too long; returns until when the next one may be silent. */
static int finish_silent(struct sbx_http *http)
{
    int64_t now = sbx_clock_monotonic(&sbx_system_clock), sleep = LONGEST_SLEEP_MS;
    for (struct sbx_http_transfer *each = http->first, *next; each != NULL; each = next) {
        next = each->next;
        if (each->silent_ms == 0)
            continue;
        int64_t left = each->heard_at_ms + each->silent_ms - now;
        if (left > 0) {
            sleep = left < sleep ? left : sleep;
            continue;
        }
        sandbox_error error = {0};
        finish(each, sbx_fail(&error, SANDBOX_UNAVAILABLE, "the server went silent"), &error);
    }
    return (int)sleep;
}

static void finish(struct sbx_http_transfer *transfer, sandbox_status status,
                   const sandbox_error *error)
{
    struct sbx_http *http = transfer->http;
    if (transfer->added) {
        curl_multi_remove_handle(http->multi, transfer->easy);
        if (transfer->previous != NULL)
            transfer->previous->next = transfer->next;
        else
            http->first = transfer->next;
        if (transfer->next != NULL)
            transfer->next->previous = transfer->previous;
    }
    if (transfer->sent_out != NULL)
        *transfer->sent_out = transfer->sent;
    transfer->ends.ended(transfer->ends.user_data, status, &transfer->answer, error);

    /* A cancel that came while it ended: it is in the queue, and will be no more. */
    pthread_mutex_lock(&http->mutex);
    struct sbx_http_transfer **place = &http->first_posted;
    while (transfer->posted && *place != transfer)
        place = &(*place)->next_posted;
    if (transfer->posted) {
        *place = transfer->next_posted;
        if (*place == NULL)
            http->last_posted = place;
    }
    pthread_mutex_unlock(&http->mutex);
    sbx_http_transfer_free(transfer);
}

static sandbox_status judge(struct sbx_http_transfer *transfer, CURLcode code, sandbox_error *error)
{
    const char *words = transfer->trouble[0] != '\0' ? transfer->trouble : curl_easy_strerror(code);
    curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &transfer->answer.status);
    if (code == CURLE_OK || transfer->cut)
        return SANDBOX_OK;
    if (transfer->too_large)
        return sbx_fail_for(error, SANDBOX_LIMIT, "answer-too-large",
                            "the server's answer is larger than the %zu bytes that are taken",
                            transfer->answer.body.limit);
    if (transfer->no_memory || code == CURLE_OUT_OF_MEMORY)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an answer");
    return sbx_http_fail(code, words, error);
}

sandbox_status sbx_http_fail(CURLcode code, const char *words, sandbox_error *error)
{
    /* curl quotes a proxy's URL that it cannot use, with the password in it. */
    if (strchr(words, '@') != NULL || strstr(words, "://") != NULL)
        words = curl_easy_strerror(code);
    switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return sbx_fail_for(error, SANDBOX_INVALID, "bad-url", "cannot use the URL: %s", words);
    case CURLE_PEER_FAILED_VERIFICATION:
        return sbx_fail_for(error, SANDBOX_DENIED, "tls-untrusted",
                            "the server is not who it should be: %s", words);
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
        return sbx_fail_for(error, SANDBOX_INVALID, "tls-certificate",
                            "cannot use a certificate, key or CA that was given: %s", words);
    default:
        return sbx_fail(error, SANDBOX_UNAVAILABLE, "no answer: %s", words);
    }
}

/* The transfer exists until the call has ended, and the call ends under its mutex. */
static sandbox_status wait_for_end(struct sbx_http_transfer *transfer, struct call *call,
                                   const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_error why = {0};
    sandbox_status waiting = SANDBOX_OK;
    post(transfer, false);
    pthread_mutex_lock(&call->mutex);
    while (!call->has_ended) {
        if (waiting != SANDBOX_OK) {
            pthread_cond_wait(&call->ended, &call->mutex);
            continue;
        }
        waiting = sbx_wait_condition(wait, &call->ended, &call->mutex, &why);
        if (waiting != SANDBOX_OK && !call->has_ended)
            sbx_http_cancel(transfer);
    }
    pthread_mutex_unlock(&call->mutex);
    if (call->status != SANDBOX_CANCELLED || waiting == SANDBOX_OK)
        return call->status;
    if (error != NULL)
        *error = why;
    return waiting;
}

static void end_call(void *user_data, sandbox_status status, struct sbx_http_answer *answer,
                     const sandbox_error *error)
{
    struct call *call = user_data;
    pthread_mutex_lock(&call->mutex);
    *call->answer = *answer;
    answer->body = (struct sbx_bytes){0}; /* handed over */
    call->status = status;
    if (call->error != NULL && status != SANDBOX_OK)
        *call->error = *error;
    call->has_ended = true;
    pthread_cond_signal(&call->ended);
    pthread_mutex_unlock(&call->mutex);
}
