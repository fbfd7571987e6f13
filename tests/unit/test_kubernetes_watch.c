/* Waiting for objects: one watch for many, and nothing missed however it breaks. */

#include "cloud/kubernetes_feed.h"
#include "kubernetes_place.h"
#include <malloc.h>
#include <stdatomic.h>

#define THINGS "/apis/example.com/v1/namespaces/lab/things"
#define OBJECT(name, version, phase)                                                               \
    "{'kind':'Thing','metadata':{'name':'" name "','resourceVersion':'" version                    \
    "'},'status':{'phase':'" phase "'}}"
#define EVENT(type, name, version, phase)                                                          \
    "{'type':'" type "','object':" OBJECT(name, version, phase) "}"
#define BOOKMARK(version)                                                                          \
    "{'type':'BOOKMARK','object':{'metadata':{'resourceVersion':'" version "'}}}"
#define EXPIRED                                                                                    \
    "{'type':'ERROR','object':{'kind':'Status','code':410,'reason':'Expired',"                     \
    "'message':'too old resource version: 5 (9)'}}"
#define STREAM(items, after) "{'stream':[" items "],'after':'" after "'}"
#define LIST(version, items)                                                                       \
    "{'json':{'metadata':{'resourceVersion':'" version "'},'items':[" items "]}}"
#define WATCH(answers) "{'path':'" THINGS "','query':'watch=true','answers':[" answers "]}"
#define FIND(name, answers)                                                                        \
    "{'path':'" THINGS "','query':'metadata.name=" name "','answers':[" answers "]}"

struct asked {
    char states[512];  /* "version/phase " of each state that was asked about; "- " for none */
    const char *phase; /* done at that one; NULL: when it is gone */
};

static bool is_at(void *user_data, const cJSON *object)
{
    struct asked *asked = user_data;
    size_t used = strlen(asked->states);
    if (object == NULL) {
        snprintf(asked->states + used, sizeof asked->states - used, "- ");
        return asked->phase == NULL;
    }
    const char *phase = sbx_json_text(cJSON_GetObjectItem(object, "status"), "phase");
    snprintf(asked->states + used, sizeof asked->states - used, "%s/%s ",
             sbx_json_text(cJSON_GetObjectItem(object, "metadata"), "resourceVersion"), phase);
    return asked->phase != NULL && strcmp(asked->phase, phase) == 0;
}

static struct asked asked;
static cJSON *result;

static void forget(void)
{
    cJSON_Delete(result);
    result = NULL;
    tear_down();
}

static cJSON *known_at(const char *name, const char *version)
{
    cJSON *known = cJSON_CreateObject();
    cJSON *metadata = cJSON_AddObjectToObject(known, "metadata");
    ck_assert(sbx_json_set_text(metadata, "name", name) &&
              sbx_json_set_text(metadata, "resourceVersion", version) &&
              sbx_json_set_text(cJSON_AddObjectToObject(known, "status"), "phase", "begun"));
    return known;
}

/* Waits until 'one' is at that phase, or gone; `version` NULL: nothing is known of it. */
static sandbox_status await_within(const char *version, const char *phase, uint32_t ms)
{
    struct sbx_wait wait = sbx_wait_alone(ms);
    cJSON *known = version == NULL ? NULL : known_at("one", version);
    memset(&error, 0, sizeof error);
    memset(&asked, 0, sizeof asked);
    asked.phase = phase;
    cJSON_Delete(result);
    result = NULL;
    sandbox_status status = sbx_kubernetes_await(cluster, &things, "lab", "one", known, is_at,
                                                 &asked, &wait, &result, &error);
    cJSON_Delete(known);
    return status;
}

static sandbox_status await_one(const char *version, const char *phase)
{
    return await_within(version, phase, WAIT_MS);
}

static const char *result_version(void)
{
    return sbx_json_text(cJSON_GetObjectItem(result, "metadata"), "resourceVersion");
}

START_TEST(what_is_done_already_asks_nobody)
{
    script("[]");
    ck_assert_int_eq(await_one("5", "begun"), SANDBOX_OK);
    ck_assert_str_eq(result_version(), "5");
    ck_assert_uint_eq(count_requests("/", ""), 0);
}
END_TEST

START_TEST(a_watch_begins_where_the_known_state_was)
{
    script("[" WATCH(
        STREAM(EVENT("MODIFIED", "other", "6", "done") "," EVENT(
                   "MODIFIED", "one", "7", "half") "," EVENT("MODIFIED", "one", "8", "done"),
               "hang")) "]");
    ck_assert_int_eq(await_one("5", "done"), SANDBOX_OK);
    ck_assert_str_eq(result_version(), "8");
    ck_assert_str_eq(asked.states, "5/begun 7/half 8/done ");
    ck_assert_uint_eq(count_requests(THINGS, ""), 1);
    ck_assert_uint_eq(count_requests(THINGS, "allowWatchBookmarks=true&timeoutSeconds=60"
                                             "&resourceVersion=5"),
                      1);
}
END_TEST

START_TEST(what_is_not_known_is_fetched_first)
{
    script("[" WATCH(STREAM("{'until':'go'}," EVENT("MODIFIED", "one", "12", "done"),
                            "hang")) "," FIND("one",
                                              LIST("11", OBJECT("one", "4", "begun")) "," LIST(
                                                  "20", OBJECT("one", "19", "done"))) "]");
    open_gate("go");
    ck_assert_int_eq(await_one(NULL, "done"), SANDBOX_OK);
    ck_assert_str_eq(asked.states, "4/begun 12/done ");
    ck_assert_uint_eq(count_requests(THINGS, "watch=true"), 1);
    ck_assert_uint_eq(count_requests(THINGS, "resourceVersion=11"), 1);
    /* The same watch goes on; a state that is done already needs none. */
    ck_assert_int_eq(await_one(NULL, "done"), SANDBOX_OK);
    ck_assert_str_eq(asked.states, "19/done ");
    ck_assert_str_eq(sbx_json_text(result, "apiVersion"), "example.com/v1");
    ck_assert_uint_eq(count_requests(THINGS, "watch=true"), 1);
}
END_TEST

START_TEST(what_is_gone_is_seen_by_list_and_by_event)
{
    script("[" WATCH(STREAM(EVENT("DELETED", "one", "9", "begun"), "hang")) "," FIND(
        "one", LIST("30", "")) "]");
    ck_assert_int_eq(await_one("5", NULL), SANDBOX_OK);
    ck_assert_ptr_null(result);
    ck_assert_str_eq(asked.states, "5/begun - ");
    ck_assert_int_eq(await_one(NULL, NULL), SANDBOX_OK);
    ck_assert_str_eq(asked.states, "- ");
}
END_TEST

START_TEST(what_is_not_there_yet_is_waited_for)
{
    script("[" WATCH(
        STREAM(EVENT("ADDED", "one", "31", "begun") "," EVENT("MODIFIED", "one", "32", "done"),
               "hang")) "," FIND("one", LIST("30", "")) "]");
    ck_assert_int_eq(await_one(NULL, "done"), SANDBOX_OK);
    ck_assert_str_eq(asked.states, "- 31/begun 32/done ");
}
END_TEST

START_TEST(older_states_than_the_known_one_are_passed_over)
{
    script("[" WATCH(
        STREAM(EVENT("ADDED", "one", "9", "done") "," EVENT(
                   "DELETED", "one", "10", "done") "," EVENT("MODIFIED", "one", "100", "done"),
               "hang")) "," FIND("one", LIST("98", OBJECT("one", "99", "begun"))) "]");
    ck_assert_int_eq(await_one("99", "done"), SANDBOX_OK);
    ck_assert_str_eq(asked.states, "99/begun 100/done ");
}
END_TEST

START_TEST(versions_that_are_no_numbers_let_every_event_in)
{
    script("[" WATCH(
        STREAM(EVENT("MODIFIED", "one", "xyz", "half") "," EVENT("MODIFIED", "one", "abc", "done"),
               "hang")) "," FIND("one", LIST("list", OBJECT("one", "known", "begun"))) "]");
    ck_assert_int_eq(await_one("known", "done"), SANDBOX_OK);
    ck_assert_str_eq(asked.states, "known/begun xyz/half abc/done ");
}
END_TEST

/* However the place is lost, the object is fetched anew and the watch begins there. */
START_TEST(a_place_that_is_too_old_is_found_anew)
{
    static const char *const losses[] = {
        "{'code':410,'json':{'kind':'Status','code':410,'reason':'Expired'}}",
        "{'code':410,'text':'gone'}",
        "{'code':400,'json':{'kind':'Status','code':400,'reason':'BadRequest'}}",
        "{'code':504,'json':{'kind':'Status','code':504,'reason':'Timeout','details':"
        "{'causes':[{'reason':'ResourceVersionTooLarge'}]}}}",
        STREAM(EXPIRED, "hang"),
        STREAM(EXPIRED, "end"),
        STREAM(EVENT("MODIFIED", "one", "6", "half") "," EXPIRED, "hang"),
        STREAM("'this is no JSON\\n'", "hang"),
        STREAM("{'type':'MODIFIED','object':{}}", "hang"),
        STREAM("{'type':'MODIFIED'}", "hang"),
        STREAM("[1]", "hang"),
        STREAM(EVENT("RENAMED", "one", "6", "done"), "hang"),
    };
    /* Once it is done when fetched, once by an event after that. */
    script(
        "[" WATCH("%s,{'do':'hang'}") "," FIND("one", LIST("50", OBJECT("one", "49", "done"))) "]",
        losses[_i]);
    ck_assert_int_eq(await_one("5", "done"), SANDBOX_OK);
    ck_assert_str_eq(result_version(), "49");
    sbx_kubernetes_close(cluster);
    open_cluster("plain");
    script("[" WATCH("%s," STREAM(EVENT("MODIFIED", "one", "51", "done"), "hang")) "," FIND(
               "one", LIST("50", OBJECT("one", "5", "begun"))) "]",
           losses[_i]);
    ck_assert_int_eq(await_one("5", "done"), SANDBOX_OK);
    ck_assert_str_eq(result_version(), "51");
    ck_assert_uint_eq(count_requests(THINGS, "resourceVersion=50"), 1);
    ck_assert_uint_eq(count_requests(THINGS, "metadata.name"), 1);
}
END_TEST

/* However a stream ends, the next one goes on where it was, and nothing is fetched. */
START_TEST(a_watch_that_breaks_goes_on_where_it_was)
{
    static const char *const ends[] = {
        STREAM(EVENT("MODIFIED", "one", "6", "half"), "end"),
        STREAM(EVENT("MODIFIED", "one", "6", "half"), "cut"),
        STREAM(EVENT("MODIFIED", "one", "6", "half"), "reset"),
        STREAM(EVENT("MODIFIED", "other", "3", "half") "," BOOKMARK("6"), "end"),
        STREAM(BOOKMARK("6") ",'{\\'type\\':\\'MODIFIED\\',\\'object\\':{\\'metada'", "end"),
        STREAM(BOOKMARK("6") ",'{\\'type\\':\\'MODI'", "cut"),
        STREAM(BOOKMARK("6") ",{'type':'ERROR','object':{'code':500,'reason':'InternalError'}}",
               "hang"),
    };
    script("[" WATCH("%s,{'code':503,'text':'x'},{'do':'reset'},"
                     "{'code':429,'headers':{'Retry-After':'0'}}," STREAM(
                         EVENT("MODIFIED", "one", "7", "done"), "hang")) "]",
           ends[_i]);
    ck_assert_int_eq(await_one("5", "done"), SANDBOX_OK);
    ck_assert_str_eq(result_version(), "7");
    ck_assert_uint_eq(count_requests(THINGS, "resourceVersion=5"), 1);
    ck_assert_uint_eq(count_requests(THINGS, "resourceVersion=6"), 4);
    ck_assert_uint_eq(count_requests(THINGS, "metadata.name"), 0);
}
END_TEST

START_TEST(a_watch_that_went_silent_is_begun_again)
{
    cluster->pace.watch_seconds = 1;
    cluster->pace.slack_seconds = 0;
    script("[" WATCH("{'do':'hang'}," STREAM(EVENT("MODIFIED", "one", "7", "done"), "hang")) "]");
    ck_assert_int_eq(await_one("5", "done"), SANDBOX_OK);
    ck_assert_uint_ge(count_requests(THINGS, "timeoutSeconds=1&resourceVersion=5"), 2);
}
END_TEST

START_TEST(what_the_server_does_not_allow_is_told)
{
    script("[" WATCH(
        "{'code':403,'json':{'kind':'Status','code':403,'message':'not you'}},"
        "{'code':404,'text':'404 page not found'}") "," FIND("one", "{'code':403,'json':{'kind':'"
                                                                    "Status','code':403,'message':'"
                                                                    "not you'}}") "]");
    ck_assert_int_eq(await_one("5", "done"), SANDBOX_DENIED);
    ck_assert_ptr_nonnull(strstr(error.message, "watch things: not you"));
    ck_assert_int_eq(await_one(NULL, "done"), SANDBOX_DENIED);
    ck_assert_int_eq(await_one("5", "done"), SANDBOX_UNSUPPORTED);
    ck_assert_str_eq(error.reason, "no-such-kind");
}
END_TEST

START_TEST(a_wait_ends_when_its_time_does_and_leaves_nothing)
{
    script("[" WATCH(STREAM(EVENT("MODIFIED", "one", "6", "half"), "hang")) "]");
    ck_assert_int_eq(await_within("5", "done", 200), SANDBOX_TIMED_OUT);
    ck_assert_ptr_null(result);
    sandbox_cancel *cancel = NULL;
    ck_assert_int_eq(sandbox_cancel_create(&cancel, NULL), SANDBOX_OK);
    sandbox_cancel_trigger(cancel);
    struct sbx_wait wait = soon();
    wait.cancel = cancel;
    cJSON *known = known_at("one", "5");
    ck_assert_int_eq(sbx_kubernetes_await(cluster, &things, "lab", "one", known, is_at, &asked,
                                          &wait, NULL, &error),
                     SANDBOX_CANCELLED);
    cJSON_Delete(known);
    sandbox_cancel_free(cancel);
}
END_TEST

START_TEST(a_watch_that_nobody_needs_ends_after_a_while)
{
    script("[" WATCH(STREAM(EVENT("MODIFIED", "one", "6", "done"), "hang")) "]");
    cluster->pace.linger_ms = 20;
    ck_assert_int_eq(await_one("5", "done"), SANDBOX_OK);
    wait_for_gone(1);
    /* It is begun again for one who comes later. */
    ck_assert_int_eq(await_one("5", "done"), SANDBOX_OK);
    ck_assert_uint_eq(count_requests(THINGS, "watch=true"), 2);
}
END_TEST

START_TEST(who_knows_less_than_the_watch_has_seen_asks_anew)
{
    script("[" WATCH(
        STREAM(EVENT("MODIFIED", "two", "60", "done") "," EVENT("MODIFIED", "one", "61", "done"),
               "hang")) "," FIND("one", LIST("70", OBJECT("one", "61", "done"))) "]");
    ck_assert_int_eq(await_one("50", "done"), SANDBOX_OK);
    ck_assert_uint_eq(count_requests(THINGS, "metadata.name"), 0);
    ck_assert_int_eq(await_one("55", "done"), SANDBOX_OK);
    ck_assert_str_eq(asked.states, "55/begun 61/done ");
    ck_assert_uint_eq(count_requests(THINGS, "metadata.name"), 1);
    ck_assert_uint_eq(count_requests(THINGS, "watch=true"), 1);
}
END_TEST

START_TEST(who_missed_nothing_asks_nobody)
{
    script("[" WATCH(
        STREAM(EVENT("MODIFIED", "one", "61", "done") "," EVENT("MODIFIED", "two", "71", "done"),
               "hang")) "," FIND("two", LIST("71", OBJECT("two", "71", "done"))) "]");
    ck_assert_int_eq(await_one("50", "done"), SANDBOX_OK);
    /* The watch is ahead of the first one's state after this, which nobody changed. */
    struct asked two = {.phase = "done"};
    struct sbx_wait wait = soon();
    cJSON *known = known_at("two", "50");
    ck_assert_int_eq(sbx_kubernetes_await(cluster, &things, "lab", "two", known, is_at, &two, &wait,
                                          NULL, &error),
                     SANDBOX_OK);
    cJSON_Delete(known);
    ck_assert_int_eq(await_within("61", "more", 50), SANDBOX_TIMED_OUT);
    ck_assert_uint_eq(count_requests(THINGS, "metadata.name=one"), 0);
}
END_TEST

#define WAITERS    16
#define DONE(name) OBJECT(name, "80", "done")
#define FIND_ALL                                                                                   \
    "{'path':'" THINGS                                                                             \
    "','answers':[" LIST("90", DONE("w0") "," DONE("w1") "," DONE("w2") "," DONE("w3") "," DONE(   \
                                   "w4") "," DONE("w5") "," DONE("w6") "," DONE("w7")) "]}"

struct waiter {
    pthread_t thread;
    char name[16];
    struct asked asked;
    sandbox_status status;
};

static void *wait_for_it(void *data)
{
    struct waiter *waiter = data;
    struct sbx_wait wait = soon();
    cJSON *known = known_at(waiter->name, "5"), *out = NULL;
    waiter->asked.phase = "done";
    waiter->status = sbx_kubernetes_await(cluster, &things, "lab", waiter->name, known, is_at,
                                          &waiter->asked, &wait, &out, NULL);
    cJSON_Delete(known);
    cJSON_Delete(out);
    return NULL;
}

static void run_waiters(struct waiter *waiters, const char *gate)
{
    for (unsigned each = 0; each < WAITERS; each++) {
        memset(&waiters[each], 0, sizeof waiters[each]);
        /* Two for each object. */
        snprintf(waiters[each].name, sizeof waiters[each].name, "w%u", each / 2);
        ck_assert_int_eq(pthread_create(&waiters[each].thread, NULL, wait_for_it, &waiters[each]),
                         0);
    }
    wait_for_requests(1, THINGS, "watch=true");
    open_gate(gate);
    for (unsigned each = 0; each < WAITERS; each++)
        pthread_join(waiters[each].thread, NULL);
}

START_TEST(all_who_wait_share_one_watch)
{
    char stream[4096] = "{'until':'go'}";
    for (unsigned each = 0; each < WAITERS / 2; each++) {
        size_t used = strlen(stream);
        snprintf(stream + used, sizeof stream - used,
                 ",{'type':'MODIFIED','object':{'metadata':{'name':'w%u','resourceVersion':'%u'},"
                 "'status':{'phase':'done'}}}",
                 each, 10 + each);
    }
    /* One who comes late may find the watch ahead of what he knows, and asks. */
    script("[" WATCH("{'stream':[%s]}") "," FIND_ALL "]", stream);
    struct waiter waiters[WAITERS];
    run_waiters(waiters, "go");
    for (unsigned each = 0; each < WAITERS; each++)
        ck_assert_int_eq(waiters[each].status, SANDBOX_OK);
    ck_assert_uint_eq(count_requests(THINGS, "watch=true"), 1);
}
END_TEST

START_TEST(all_who_wait_are_told_of_a_loss)
{
    script("[" WATCH(STREAM("{'until':'go'}," EXPIRED, "hang") ",{'do':'hang'}") "," FIND_ALL "]");
    struct waiter waiters[WAITERS];
    run_waiters(waiters, "go");
    for (unsigned each = 0; each < WAITERS; each++)
        ck_assert_int_eq(waiters[each].status, SANDBOX_OK);
}
END_TEST

/* ---- the feed alone ---- */

static bool count_calls(void *user_data, const cJSON *object)
{
    ++*(unsigned *)user_data;
    return false;
}

static bool take_text(struct sbx_feed *feed, const char *quoted, size_t piece)
{
    char text[2048];
    snprintf(text, sizeof text, "%s", quoted);
    size_t size = strlen(text);
    for (char *at = text; *at != '\0'; at++)
        *at = *at == '\'' ? '"' : *at;
    bool going = true;
    for (size_t at = 0; at < size && going; at += piece)
        going = sbx_feed_take(feed, text + at, piece < size - at ? piece : size - at);
    return going;
}

/* A feed with one who waits for "one", who counts. */
struct alone {
    struct sbx_feed feed;
    struct sbx_interest interest;
    unsigned calls;
};

static void begin_alone(struct alone *alone, bool is_unseen)
{
    alone->calls = 0;
    alone->interest = (struct sbx_interest){
        .name = "one", .is_done = count_calls, .user_data = &alone->calls, .is_unseen = is_unseen};
    ck_assert_int_eq(sbx_condition_init(&alone->interest.woken), 0);
    sbx_feed_init(&alone->feed);
    sbx_feed_add(&alone->feed, &alone->interest);
    sbx_feed_begin(&alone->feed);
}

static void end_alone(struct alone *alone)
{
    sbx_feed_remove(&alone->feed, &alone->interest);
    ck_assert_uint_eq(alone->feed.count, 0);
    sbx_feed_clear(&alone->feed);
    pthread_cond_destroy(&alone->interest.woken);
}

START_TEST(lines_come_in_any_pieces)
{
    static struct alone alone;
    static const char text[] =
        EVENT("ADDED", "one", "7", "x") "\n\n" EVENT("MODIFIED", "two", "8", "x") "\n" EVENT(
            "MODIFIED", "one", "9", "x") "\n" BOOKMARK("10") "\n{'type':'MODIFIED','obj";
    for (size_t piece = 1; piece < 300; piece++) {
        begin_alone(&alone, false);
        ck_assert(take_text(&alone.feed, text, piece));
        ck_assert_uint_eq(alone.calls, 2);
        ck_assert_str_eq(alone.feed.version, "10");
        end_alone(&alone);
    }
}
END_TEST

/* A stream that lags tells of what was there before: who has not seen the present is not asked. */
START_TEST(who_has_not_seen_the_present_is_told_no_past)
{
    static struct alone alone;
    begin_alone(&alone, true);
    ck_assert(take_text(&alone.feed, EVENT("MODIFIED", "one", "7", "x") "\n", 1000));
    ck_assert_uint_eq(alone.calls, 0);
    ck_assert(alone.interest.has_passed);
    ck_assert_uint_eq(alone.interest.passed, 7);
    alone.interest.is_unseen = false; /* it was fetched */
    ck_assert(take_text(&alone.feed, EVENT("MODIFIED", "one", "8", "x") "\n", 1000));
    ck_assert_uint_eq(alone.calls, 1);
    end_alone(&alone);
}
END_TEST

START_TEST(a_line_without_end_is_not_kept_for_ever)
{
    struct sbx_feed *feed = malloc(sizeof *feed);
    static char piece[1u << 20];
    memset(piece, ' ', sizeof piece);
    sbx_feed_init(feed);
    sbx_feed_begin(feed);
    unsigned taken = 0;
    while (sbx_feed_take(feed, piece, sizeof piece) && taken < 100)
        taken++;
    ck_assert_uint_eq(taken, 8);
    ck_assert_int_eq(feed->how, SBX_FEED_LOST);
    sbx_feed_clear(feed);
    free(feed);
}
END_TEST

/* Whatever was forgotten since may have been missed. */
START_TEST(only_the_latest_changes_are_remembered)
{
    struct sbx_feed *feed = malloc(sizeof *feed);
    sbx_feed_init(feed);
    ck_assert(sbx_feed_missed(feed, "one", 5)); /* it has no place yet */
    sbx_feed_place(feed, "100");
    sbx_feed_begin(feed);
    ck_assert(take_text(feed, EVENT("MODIFIED", "one", "105", "x") "\n" BOOKMARK("110") "\n", 64));
    ck_assert(sbx_feed_missed(feed, "one", 99) && sbx_feed_missed(feed, "two", 99));
    ck_assert(sbx_feed_missed(feed, "one", 100) && sbx_feed_missed(feed, "one", 104));
    ck_assert(!sbx_feed_missed(feed, "one", 105) && !sbx_feed_missed(feed, "two", 100));
    ck_assert(sbx_feed_missed(feed, "one", 0));
    for (unsigned each = 0; each < SBX_FEED_RECENT; each++) {
        char line[256];
        snprintf(
            line, sizeof line,
            "{'type':'MODIFIED','object':{'metadata':{'name':'w%u','resourceVersion':'%u'}}}\n",
            each, 200 + each);
        ck_assert(take_text(feed, line, 256));
    }
    ck_assert(sbx_feed_missed(feed, "one", 104) && !sbx_feed_missed(feed, "one", 105));
    ck_assert(sbx_feed_missed(feed, "w9", 208) && !sbx_feed_missed(feed, "w9", 209));
    ck_assert(take_text(feed, EVENT("MODIFIED", "two", "xyz", "x") "\n", 64));
    ck_assert(sbx_feed_missed(feed, "w9", 209));
    sbx_feed_clear(feed);
    free(feed);
}
END_TEST

#define MANY 10000

START_TEST(ten_thousand_who_wait_keep_no_objects)
{
    static struct sbx_interest interests[MANY];
    static char names[MANY][16];
    unsigned calls = 0;
    struct sbx_feed *feed = malloc(sizeof *feed);
    sbx_feed_init(feed);
    sbx_feed_begin(feed);
    for (unsigned each = 0; each < MANY; each++) {
        snprintf(names[each], sizeof names[each], "w%u", each);
        interests[each] = (struct sbx_interest){
            .name = names[each], .is_done = count_calls, .user_data = &calls, .wants_object = true};
        ck_assert_int_eq(sbx_condition_init(&interests[each].woken), 0);
        sbx_feed_add(feed, &interests[each]);
    }
    size_t before = mallinfo2().uordblks;
    for (unsigned each = 0; each < 2 * MANY; each++) {
        /* The second half is about objects that nobody waits for. */
        char line[256];
        int size = snprintf(line, sizeof line,
                            "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"w%u\","
                            "\"resourceVersion\":\"%u\"},\"status\":{\"phase\":\"x\"}}}\n",
                            each, each + 1);
        ck_assert(sbx_feed_take(feed, line, (size_t)size));
    }
    ck_assert_uint_eq(calls, MANY);
    ck_assert_uint_le(mallinfo2().uordblks, before + 4096);
    for (unsigned each = 0; each < MANY; each++)
        sbx_feed_remove(feed, &interests[each]);
    ck_assert_uint_eq(feed->count, 0);
    sbx_feed_clear(feed);
    free(feed);
}
END_TEST

static void add_cases(TCase *cases)
{
    tcase_add_test(cases, what_is_done_already_asks_nobody);
    tcase_add_test(cases, a_watch_begins_where_the_known_state_was);
    tcase_add_test(cases, what_is_not_known_is_fetched_first);
    tcase_add_test(cases, what_is_gone_is_seen_by_list_and_by_event);
    tcase_add_test(cases, what_is_not_there_yet_is_waited_for);
    tcase_add_test(cases, older_states_than_the_known_one_are_passed_over);
    tcase_add_test(cases, versions_that_are_no_numbers_let_every_event_in);
    tcase_add_loop_test(cases, a_place_that_is_too_old_is_found_anew, 0, 12);
    tcase_add_loop_test(cases, a_watch_that_breaks_goes_on_where_it_was, 0, 7);
    tcase_add_test(cases, a_watch_that_went_silent_is_begun_again);
    tcase_add_test(cases, what_the_server_does_not_allow_is_told);
    tcase_add_test(cases, a_wait_ends_when_its_time_does_and_leaves_nothing);
    tcase_add_test(cases, a_watch_that_nobody_needs_ends_after_a_while);
    tcase_add_test(cases, who_knows_less_than_the_watch_has_seen_asks_anew);
    tcase_add_test(cases, who_missed_nothing_asks_nobody);
    tcase_add_test(cases, all_who_wait_share_one_watch);
    tcase_add_test(cases, all_who_wait_are_told_of_a_loss);
}

int main(void)
{
    Suite *suite = suite_create("kubernetes_watch");
    TCase *cases = tcase_create("cases");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up_cluster, forget);
    add_cases(cases);
    suite_add_tcase(suite, cases);
    TCase *feed = tcase_create("feed");
    tcase_set_timeout(feed, 60);
    tcase_add_test(feed, lines_come_in_any_pieces);
    tcase_add_test(feed, a_line_without_end_is_not_kept_for_ever);
    tcase_add_test(feed, who_has_not_seen_the_present_is_told_no_past);
    tcase_add_test(feed, only_the_latest_changes_are_remembered);
    tcase_add_test(feed, ten_thousand_who_wait_keep_no_objects);
    suite_add_tcase(suite, feed);
    return run_suite(suite);
}
