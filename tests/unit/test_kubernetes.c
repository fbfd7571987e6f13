/* Requests to a cluster: how they are written, what answers mean, and what is tried again. */

#include "kubernetes_place.h"
#include "util/clock.h"
#include <pthread.h>

#define THINGS "/apis/example.com/v1/namespaces/lab/things"
#define STATUS(code, reason, rest)                                                                 \
    "{'code':" #code ",'json':{'kind':'Status','status':'Failure','code':" #code                   \
    ",'reason':'" reason "','message':'words of the server'" rest "}}"
#define GOOD "{'json':{'kind':'Thing','metadata':{'name':'one','resourceVersion':'7'}}}"

static cJSON *object;

/* Quotes are written as ' here. */
static cJSON *parse(const char *quoted)
{
    char text[512];
    snprintf(text, sizeof text, "%s", quoted);
    for (char *at = text; *at != '\0'; at++)
        *at = *at == '\'' ? '"' : *at;
    cJSON *json = cJSON_Parse(text);
    ck_assert_ptr_nonnull(json);
    return json;
}

static void forget(void)
{
    cJSON_Delete(object);
    object = NULL;
    tear_down();
}

static sandbox_status get_one(void)
{
    struct sbx_wait wait = soon();
    cJSON_Delete(object);
    object = NULL;
    memset(&error, 0, sizeof error);
    return sbx_kubernetes_get(cluster, &things, "lab", "one", &wait, &object, &error);
}

static sandbox_status create(const char *metadata)
{
    struct sbx_wait wait = soon();
    char text[256];
    snprintf(text, sizeof text, "{'kind':'Thing','metadata':{%s}}", metadata);
    cJSON *made = parse(text);
    cJSON_Delete(object);
    object = NULL;
    memset(&error, 0, sizeof error);
    sandbox_status status =
        sbx_kubernetes_create(cluster, &things, "lab", made, &wait, &object, &error);
    cJSON_Delete(made);
    return status;
}

static sandbox_status patch(const char *metadata)
{
    struct sbx_wait wait = soon();
    char text[256];
    snprintf(text, sizeof text, "{'metadata':{%s}}", metadata);
    cJSON *change = parse(text);
    memset(&error, 0, sizeof error);
    sandbox_status status =
        sbx_kubernetes_patch(cluster, &things, "lab", "one", "", change, &wait, NULL, &error);
    cJSON_Delete(change);
    return status;
}

static sandbox_status delete_one(const char *uid, const char *version, const char *propagation)
{
    struct sbx_wait wait = soon();
    struct sbx_delete_options options = {uid, version, propagation};
    memset(&error, 0, sizeof error);
    return sbx_kubernetes_delete(cluster, &things, "lab", "one", &options, &wait, &error);
}

START_TEST(a_request_says_who_asks_and_for_what)
{
    script("[{'path':'" THINGS "/one','answers':[" GOOD "]}]");
    ck_assert_int_eq(get_one(), SANDBOX_OK);
    ck_assert_str_eq(sbx_json_text(object, "kind"), "Thing");
    ck_assert_str_eq(request_field(0, "headers/authorization"), "Bearer secret-token");
    ck_assert_str_eq(request_field(0, "headers/accept"), "application/json");
    ck_assert_str_eq(sbx_kubernetes_namespace(cluster), "lab");
}
END_TEST

START_TEST(writes_are_strict_and_signed)
{
    script("[{'path':'" THINGS "','answers':[" GOOD "]},"
           "{'path':'" THINGS "/one','answers':[" GOOD "]},"
           "{'path':'" THINGS "/one/status','answers':[" GOOD "]}]");
    struct sbx_wait wait = soon();
    ck_assert_int_eq(create("'name':'one'"), SANDBOX_OK);
    ck_assert_int_eq(patch("'labels':{'a':null}"), SANDBOX_OK);
    cJSON *whole = parse("{'metadata':{'name':'one','resourceVersion':'6'}}");
    ck_assert_int_eq(
        sbx_kubernetes_replace(cluster, &things, "lab", "one", whole, &wait, NULL, &error),
        SANDBOX_OK);
    ck_assert_int_eq(
        sbx_kubernetes_apply(cluster, &things, "lab", whole, true, &wait, NULL, &error),
        SANDBOX_OK);
    ck_assert_int_eq(
        sbx_kubernetes_patch(cluster, &things, "lab", "one", "status", whole, &wait, NULL, &error),
        SANDBOX_OK);
    cJSON_Delete(whole);
    ck_assert_int_eq(delete_one("u-1", "6", "Foreground"), SANDBOX_OK);

    static const char *const methods[] = {"POST", "PATCH", "PUT", "PATCH", "PATCH", "DELETE"};
    static const char *const types[] = {"application/json",
                                        "application/merge-patch+json",
                                        "application/json",
                                        "application/apply-patch+yaml",
                                        "application/merge-patch+json",
                                        "application/json"};
    for (unsigned each = 0; each < 6; each++) {
        ck_assert_str_eq(request_field(each, "method"), methods[each]);
        ck_assert_str_eq(request_field(each, "headers/content-type"), types[each]);
        ck_assert_ptr_nonnull(strstr(request_field(each, "query"), "fieldManager=libsandbox"));
        ck_assert(each == 5 ||
                  strstr(request_field(each, "query"), "fieldValidation=Strict") != NULL);
    }
    ck_assert_ptr_nonnull(strstr(request_field(3, "query"), "force=true"));
    ck_assert_str_eq(request_field(1, "body"), "{\"metadata\":{\"labels\":{\"a\":null}}}");
    ck_assert_str_eq(
        request_field(5, "body"),
        "{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\",\"propagationPolicy\":"
        "\"Foreground\",\"preconditions\":{\"uid\":\"u-1\",\"resourceVersion\":\"6\"}}");
}
END_TEST

START_TEST(names_are_escaped_and_none_is_no_name)
{
    struct sbx_wait wait = soon();
    script("[{'path':'/api/v1/nodes/a%%20b%%2F..','answers':[" GOOD "]}]");
    ck_assert_int_eq(
        sbx_kubernetes_get(cluster, &nodes, "ignored", "a b/..", &wait, &object, &error),
        SANDBOX_OK);
    /* Without a name it would be all of them. */
    ck_assert_int_eq(sbx_kubernetes_delete(cluster, &things, "lab", "", NULL, &wait, &error),
                     SANDBOX_INVALID);
    ck_assert_int_eq(sbx_kubernetes_delete(cluster, &things, "", "one", NULL, &wait, &error),
                     SANDBOX_INVALID);
    ck_assert_int_eq(create("'labels':{}"), SANDBOX_INVALID);
    ck_assert_uint_eq(count_requests("/", ""), 1);
}
END_TEST

static const struct {
    const char *answer;
    sandbox_status status;
    const char *reason;
} meanings[] = {
    {STATUS(404, "NotFound", ",'details':{'name':'one'}"), SANDBOX_NOT_FOUND, "no-such-object"},
    {STATUS(404, "NotFound", ",'details':{}"), SANDBOX_UNSUPPORTED, "no-such-kind"},
    {"{'code':404,'text':'404 page not found'}", SANDBOX_UNSUPPORTED, "no-such-kind"},
    {STATUS(409, "AlreadyExists", ""), SANDBOX_EXISTS, "object-exists"},
    {STATUS(409, "Conflict", ""), SANDBOX_CONFLICT, "object-changed"},
    {STATUS(403, "Forbidden", ""), SANDBOX_DENIED, "kubernetes-denied"},
    {STATUS(403, "Forbidden", ",'x':1},'y':{'z':0"), SANDBOX_DENIED, "kubernetes-denied"},
    {"{'code':403,'json':{'kind':'Status','message':'exceeded quota: q, used: 4'}}", SANDBOX_LIMIT,
     "kubernetes-quota"},
    {STATUS(400, "BadRequest", ""), SANDBOX_INVALID, "kubernetes-refused"},
    {STATUS(422, "Invalid", ""), SANDBOX_INVALID, "kubernetes-refused"},
    {STATUS(500, "InternalError", ""), SANDBOX_UNAVAILABLE, "kubernetes-unavailable"},
    {"{'code':502,'text':'a page of a proxy'}", SANDBOX_UNAVAILABLE, "kubernetes-unavailable"},
    {STATUS(429, "TooManyRequests", ""), SANDBOX_UNAVAILABLE, "kubernetes-unavailable"},
    {"{'code':302,'text':'elsewhere'}", SANDBOX_FAILED, "malformed-answer"},
    {"{'code':200,'text':'no JSON'}", SANDBOX_FAILED, "malformed-answer"},
    {"{'code':200,'text':'[]'}", SANDBOX_FAILED, "malformed-answer"},
    {"{'code':200,'text':''}", SANDBOX_FAILED, "malformed-answer"},
};

START_TEST(every_answer_has_its_meaning)
{
    script("[{'path':'" THINGS "/one','answers':[%s]}]", meanings[_i].answer);
    ck_assert_int_eq(get_one(), meanings[_i].status);
    ck_assert_str_eq(error.reason, meanings[_i].reason);
    ck_assert_ptr_null(object);
    ck_assert_ptr_null(strstr(error.message, "secret-token"));
    if (strstr(meanings[_i].answer, "words of the server") != NULL)
        ck_assert_ptr_nonnull(strstr(error.message, "words of the server"));
}
END_TEST

/* What is repeated until it is answered: {do, expected status, requests in all}. */
START_TEST(what_changes_nothing_twice_is_repeated)
{
    static const char *const troubles[] = {
        "{'do':'reset'}",
        "{'code':500,'text':'x'}",
        "{'code':503,'text':'x'}",
        "{'code':504,'text':'x'}",
        "{'code':429,'text':'x'}",
        "{'do':'cut','json':{'kind':'Thing'}}",
        "{'code':429,'headers':{'Retry-After':'0'}}",
        STATUS(500, "InternalError", ",'details':{'retryAfterSeconds':0}")};
    const char *trouble = troubles[_i];
    script("[{'method':'POST','path':'" THINGS "','answers':[%s," GOOD "]},"
           "{'method':'GET','path':'" THINGS "/one','answers':[%s,%s," GOOD "]},"
           "{'method':'PATCH','path':'" THINGS "/one','answers':[%s," GOOD ",%s," GOOD "]},"
           "{'method':'DELETE','path':'" THINGS "/one','answers':[%s," GOOD "]}]",
           trouble, trouble, trouble, trouble, trouble, trouble);
    ck_assert_int_eq(get_one(), SANDBOX_OK);
    ck_assert_int_eq(create("'name':'one'"), SANDBOX_OK);
    ck_assert_int_eq(patch("'resourceVersion':'3'"), SANDBOX_OK);
    ck_assert_int_eq(patch("'labels':{}"), SANDBOX_OK);
    ck_assert_int_eq(delete_one("u-1", NULL, NULL), SANDBOX_OK);
    ck_assert_uint_eq(count_requests(THINGS, ""), 3 + 2 + 4 + 2);
}
END_TEST

START_TEST(what_may_have_been_done_is_not_done_again)
{
    static const char *const troubles[] = {"{'do':'reset'}", "{'code':500,'text':'x'}",
                                           "{'code':504,'text':'x'}",
                                           "{'do':'cut','json':{'kind':'Thing'}}"};
    script("[{'path':'" THINGS "','answers':[%s]},{'path':'" THINGS "/one','answers':[%s]}]",
           troubles[_i], troubles[_i]);
    ck_assert_int_eq(create("'generateName':'one-'"), SANDBOX_UNKNOWN);
    ck_assert_str_eq(error.reason, "answer-lost");
    ck_assert_int_eq(delete_one(NULL, NULL, NULL), SANDBOX_UNKNOWN);
    ck_assert_str_eq(error.reason, "answer-lost");
    ck_assert_uint_eq(count_requests(THINGS, ""), 2);
}
END_TEST

START_TEST(what_was_surely_not_done_is_done_later)
{
    script("[{'path':'" THINGS "','answers':[{'code':429,'text':'x'},"
           "{'code':503,'headers':{'Retry-After':'0'}},"
           "{'code':409,'json':{'kind':'Status','reason':'Conflict'}}," GOOD "]}]");
    ck_assert_int_eq(create("'generateName':'one-'"), SANDBOX_OK);
    ck_assert_uint_eq(count_requests(THINGS, ""), 4);
}
END_TEST

START_TEST(a_name_that_an_earlier_try_took_is_taken)
{
    script("[{'path':'" THINGS
           "','answers':[{'do':'reset'}," STATUS(409, "AlreadyExists", "") "]}]");
    ck_assert_int_eq(create("'name':'one'"), SANDBOX_EXISTS);
}
END_TEST

START_TEST(a_conflict_is_final_only_where_a_version_was_given)
{
    script("[{'path':'" THINGS "/one','answers':[" STATUS(409, "Conflict", "") "," GOOD "," STATUS(
        409, "Conflict", "") "]}]");
    ck_assert_int_eq(patch("'labels':{}"), SANDBOX_OK);
    ck_assert_uint_eq(count_requests(THINGS, ""), 2);
    ck_assert_int_eq(patch("'resourceVersion':'3'"), SANDBOX_CONFLICT);
    ck_assert_uint_eq(count_requests(THINGS, ""), 3);
    /* A field of another manager stays his. */
    struct sbx_wait wait = soon();
    cJSON *applied = parse("{'metadata':{'name':'one'}}");
    ck_assert_int_eq(
        sbx_kubernetes_apply(cluster, &things, "lab", applied, false, &wait, NULL, &error),
        SANDBOX_CONFLICT);
    ck_assert_uint_eq(count_requests(THINGS, ""), 4);
    ck_assert_int_eq(delete_one("u-1", NULL, NULL), SANDBOX_CONFLICT);
    ck_assert_uint_eq(count_requests(THINGS, ""), 5);
    cJSON_Delete(applied);
}
END_TEST

START_TEST(a_server_that_stays_down_is_told_in_its_own_words)
{
    script("[{'path':'" THINGS "/one','answers':[" STATUS(503, "ServiceUnavailable", "") "]}]");
    ck_assert_int_eq(get_one(), SANDBOX_UNAVAILABLE);
    ck_assert_str_eq(error.reason, "kubernetes-unavailable");
    ck_assert_int_eq(error.http_status, 503);
    ck_assert_ptr_nonnull(strstr(error.message, "words of the server"));
    ck_assert_uint_eq(count_requests(THINGS, ""), cluster->pace.tries);
}
END_TEST

START_TEST(nobody_waits_longer_than_he_said)
{
    script("[{'path':'" THINGS "/one','answers':[{'code':429,'headers':{'Retry-After':'3600'}},"
           "{'do':'hang'}]}]");
    /* A pause beyond the wait is not begun. */
    struct sbx_wait wait = sbx_wait_alone(10000);
    ck_assert_int_eq(sbx_kubernetes_get(cluster, &things, "lab", "one", &wait, &object, &error),
                     SANDBOX_UNAVAILABLE);
    ck_assert_int_eq(error.http_status, 429);
    ck_assert_uint_gt(sbx_wait_left_ms(&wait), 5000);
    wait = sbx_wait_alone(200);
    ck_assert_int_eq(sbx_kubernetes_get(cluster, &things, "lab", "one", &wait, &object, &error),
                     SANDBOX_TIMED_OUT);
}
END_TEST

START_TEST(a_silent_server_is_asked_anew_on_another_connection)
{
    cluster->pace.read_ms = 200;
    script("[{'path':'" THINGS "/one','answers':[{'do':'hang'}," GOOD "]}]");
    ck_assert_int_eq(get_one(), SANDBOX_OK);
    ck_assert_uint_ge(count_requests(THINGS, ""), 2);
}
END_TEST

struct trigger {
    pthread_t thread;
    unsigned requests;
    sandbox_cancel *cancel;
};

static void *trigger_later(void *data)
{
    struct trigger *trigger = data;
    wait_for_requests(trigger->requests, THINGS, "");
    sandbox_cancel_trigger(trigger->cancel);
    return NULL;
}

/* A wait that is cancelled when so many requests have come. */
static struct sbx_wait wait_until_requests(struct trigger *trigger, unsigned requests)
{
    struct sbx_wait wait = soon();
    trigger->requests = requests;
    ck_assert_int_eq(sandbox_cancel_create(&trigger->cancel, NULL), SANDBOX_OK);
    ck_assert_int_eq(pthread_create(&trigger->thread, NULL, trigger_later, trigger), 0);
    wait.cancel = trigger->cancel;
    return wait;
}

static void end_trigger(struct trigger *trigger)
{
    pthread_join(trigger->thread, NULL);
    sandbox_cancel_free(trigger->cancel);
}

START_TEST(a_create_whose_answer_nobody_waited_for_is_to_be_looked_for)
{
    script("[{'path':'" THINGS "','answers':[{'do':'hang'}]}]");
    struct trigger trigger;
    struct sbx_wait wait = wait_until_requests(&trigger, 1);
    cJSON *made = parse("{'metadata':{'generateName':'one-'}}");
    ck_assert_int_eq(sbx_kubernetes_create(cluster, &things, "lab", made, &wait, NULL, &error),
                     SANDBOX_CANCELLED);
    ck_assert_str_eq(error.reason, "answer-lost");
    cJSON_Delete(made);
    end_trigger(&trigger);
}
END_TEST

START_TEST(a_cancel_ends_a_pause_between_tries)
{
    script("[{'path':'" THINGS "/one','answers':[{'code':500,'text':'x'},"
           "{'code':429,'headers':{'Retry-After':'20'}}]}]");
    struct trigger trigger;
    struct sbx_wait wait = wait_until_requests(&trigger, 2);
    ck_assert_int_eq(sbx_kubernetes_get(cluster, &things, "lab", "one", &wait, &object, &error),
                     SANDBOX_CANCELLED);
    end_trigger(&trigger);
}
END_TEST

/* A user whose plugin gives another token each time it runs. */
static void open_with_plugin(void)
{
    char path[128], fields[256], user[512];
    static const char text[] = "#!/bin/sh\necho x >> \"$0.runs\"\nprintf "
                               "'{\"apiVersion\":\"client.authentication.k8s.io/v1\","
                               "\"kind\":\"ExecCredential\",\"status\":{\"token\":\"token-%s\"}}' "
                               "\"$(wc -l < \"$0.runs\")\"\n";
    snprintf(path, sizeof path, "%s/plugin", folder);
    ck_assert_int_eq(sbx_file_replace(AT_FDCWD, path, text, strlen(text), 0700, NULL), SANDBOX_OK);
    snprintf(path, sizeof path, "%s/plugin.runs", folder);
    unlink(path);
    snprintf(fields, sizeof fields, "server: 'http://127.0.0.1:%u', proxy-url: ''", ports[0]);
    snprintf(user, sizeof user,
             "exec: {apiVersion: client.authentication.k8s.io/v1, command: %s/plugin, "
             "interactiveMode: Never}",
             folder);
    write_kubeconfig("with-plugin", fields, user);
    sbx_kubernetes_close(cluster);
    open_cluster("with-plugin");
}

START_TEST(a_refused_credential_is_renewed_once)
{
    open_with_plugin();
    script("[{'path':'" THINGS "/one','answers':[" GOOD
           "," STATUS(401, "Unauthorized", "") "," GOOD "," STATUS(
               401, "Unauthorized", "") "]},"
                                        "{'path':'" THINGS
                                        "','answers':[" STATUS(401, "Unauthorized", "") "," GOOD
                                                                                        "]}]");
    ck_assert_int_eq(get_one(), SANDBOX_OK);
    ck_assert_int_eq(get_one(), SANDBOX_OK);
    ck_assert_str_eq(request_field(0, "headers/authorization"),
                     request_field(1, "headers/authorization"));
    char before[64];
    snprintf(before, sizeof before, "%s", request_field(1, "headers/authorization"));
    ck_assert_str_ne(request_field(2, "headers/authorization"), before);
    /* What was answered 401 was not done, a create neither. */
    ck_assert_int_eq(create("'generateName':'one-'"), SANDBOX_OK);
    ck_assert_int_eq(get_one(), SANDBOX_DENIED);
    ck_assert_str_eq(error.reason, "kubernetes-denied");
    ck_assert_uint_eq(count_requests(THINGS "/one", ""), 5);
}
END_TEST

struct visited {
    char names[256];
    unsigned count, most;
};

static bool note_visit(void *user_data, const cJSON *listed)
{
    struct visited *visited = user_data;
    const cJSON *metadata = cJSON_GetObjectItem(listed, "metadata");
    size_t used = strlen(visited->names);
    snprintf(visited->names + used, sizeof visited->names - used, "%s ",
             sbx_json_text(metadata, "name"));
    ck_assert_str_ne(sbx_json_text(listed, "kind"), "");
    ck_assert_str_ne(sbx_json_text(listed, "apiVersion"), "");
    return ++visited->count != visited->most;
}

#define ITEM(name) "{'metadata':{'namespace':'lab','name':'" name "'}}"
#define PAGE(continued, items)                                                                     \
    "{'json':{'kind':'ThingList','metadata':{'resourceVersion':'9','continue':'" continued         \
    "'},'items':[" items "]}}"

START_TEST(a_list_is_walked_page_by_page)
{
    struct visited visited = {0};
    struct sbx_wait wait = soon();
    script("[{'path':'" THINGS "','query':'continue=a/b','answers':[" PAGE(
        "", ITEM("c")) "]},"
                       "{'path':'" THINGS
                       "','answers':[" PAGE("a/b", ITEM("a") "," ITEM("b")) "]}]");
    ck_assert_int_eq(sbx_kubernetes_list(cluster, &things, "lab", "app=x,tier in (a,b)", &wait,
                                         note_visit, &visited, &error),
                     SANDBOX_OK);
    ck_assert_str_eq(visited.names, "a b c ");
    ck_assert_uint_eq(count_requests(THINGS, "limit=500&labelSelector=app=x,tier in (a,b)"), 2);
    visited = (struct visited){.most = 1};
    ck_assert_int_eq(
        sbx_kubernetes_list(cluster, &things, "lab", NULL, &wait, note_visit, &visited, &error),
        SANDBOX_OK);
    ck_assert_str_eq(visited.names, "a ");
}
END_TEST

START_TEST(a_list_that_grew_too_old_is_begun_again_without_what_was_visited)
{
    struct visited visited = {0};
    struct sbx_wait wait = soon();
    script("[{'path':'" THINGS
           "','query':'continue=2','answers':[" STATUS(410, "Expired", "") "," PAGE(
               "", ITEM("d")) "]},{'path':'" THINGS
                              "','answers':[" PAGE("2", ITEM("a") "," ITEM("b")) "," PAGE(
                                  "2", ITEM("a") "," ITEM("b") "," ITEM("c")) "]}]");
    ck_assert_int_eq(
        sbx_kubernetes_list(cluster, &things, "lab", NULL, &wait, note_visit, &visited, &error),
        SANDBOX_OK);
    ck_assert_str_eq(visited.names, "a b c d ");
    /* Not for ever. */
    script("[{'path':'" THINGS "','query':'continue=2','answers':[" STATUS(
        410, "Expired", "") "]},{'path':'" THINGS "','answers':[" PAGE("2", ITEM("a")) "]}]");
    ck_assert_int_eq(
        sbx_kubernetes_list(cluster, &things, "lab", NULL, &wait, note_visit, &visited, &error),
        SANDBOX_UNAVAILABLE);
}
END_TEST

START_TEST(no_list_is_no_empty_list)
{
    struct visited visited = {0};
    struct sbx_wait wait = soon();
    script("[{'path':'" THINGS "','answers':[{'json':{'kind':'Thing'}},"
           "{'json':{'metadata':{'resourceVersion':'4'},'items':null}}]}]");
    ck_assert_int_eq(
        sbx_kubernetes_list(cluster, &things, "lab", NULL, &wait, note_visit, &visited, &error),
        SANDBOX_FAILED);
    ck_assert_int_eq(
        sbx_kubernetes_list(cluster, &things, "lab", NULL, &wait, note_visit, &visited, &error),
        SANDBOX_OK);
    ck_assert_uint_eq(visited.count, 0);
}
END_TEST

START_TEST(events_come_in_the_order_of_their_times)
{
    struct visited visited = {0};
    struct sbx_wait wait = soon();
    script("[{'path':'/api/v1/namespaces/lab/events','answers':[{'json':{'metadata':{},'items':["
           "{'metadata':{'name':'last'},'lastTimestamp':'2026-01-01T00:00:03Z'},"
           "{'metadata':{'name':'first'},'eventTime':'2026-01-01T00:00:01.5Z'},"
           "{'metadata':{'name':'third','resourceVersion':'11'},"
           "'eventTime':'2026-01-01T00:00:02.1Z'},"
           "{'metadata':{'name':'second','resourceVersion':'9'},"
           "'lastTimestamp':'2026-01-01T00:00:02Z'}]}}]}]");
    ck_assert_int_eq(sbx_kubernetes_events(cluster, "lab", "Pod", "p", "u-1", &wait, note_visit,
                                           &visited, &error),
                     SANDBOX_OK);
    ck_assert_str_eq(visited.names, "first second third last ");
    ck_assert_uint_eq(count_requests("/api/v1/namespaces/lab/events",
                                     "fieldSelector=involvedObject.kind=Pod,"
                                     "involvedObject.name=p,involvedObject.uid=u-1"),
                      1);
}
END_TEST

START_TEST(a_cluster_is_asked_what_it_is_and_allows)
{
    struct sbx_wait wait = soon();
    bool allowed = false;
    script("[{'path':'/version','answers':[{'json':{'gitVersion':'v1.34.1-gke.1'}}]},"
           "{'path':'/apis/none/v1','answers':[{'code':404,'text':'404 page not found'}]},"
           "{'path':'/apis/authorization.k8s.io/v1/selfsubjectaccessreviews','answers':["
           "{'do':'reset'},{'code':201,'json':{'status':{'allowed':true}}},"
           "{'code':201,'json':{'status':{}}}]}]");
    ck_assert_int_eq(sbx_kubernetes_read(cluster, "/version", &wait, &object, &error), SANDBOX_OK);
    ck_assert_str_eq(sbx_json_text(object, "gitVersion"), "v1.34.1-gke.1");
    ck_assert_int_eq(sbx_kubernetes_read(cluster, "/apis/none/v1", &wait, NULL, &error),
                     SANDBOX_NOT_FOUND);
    ck_assert_str_eq(error.reason, "no-such-object");
    ck_assert_int_eq(
        sbx_kubernetes_may(cluster, "create", &things, "exec", "lab", &wait, &allowed, &error),
        SANDBOX_OK);
    ck_assert(allowed);
    ck_assert_ptr_nonnull(strstr(request_field(3, "body"), "\"subresource\":\"exec\""));
    ck_assert_int_eq(
        sbx_kubernetes_may(cluster, "create", &things, "", "lab", &wait, &allowed, &error),
        SANDBOX_OK);
    ck_assert(!allowed);
}
END_TEST

START_TEST(a_cluster_that_is_not_there_is_told_soon)
{
    write_kubeconfig("nobody", "server: 'http://127.0.0.1:1', proxy-url: ''",
                     "token: secret-token");
    sbx_kubernetes_close(cluster);
    open_cluster("nobody");
    ck_assert_int_eq(get_one(), SANDBOX_UNAVAILABLE);
    ck_assert_str_eq(error.reason, "kubernetes-unavailable");
    ck_assert_int_eq(create("'generateName':'one-'"), SANDBOX_UNAVAILABLE);
}
END_TEST

static void add_cases(TCase *cases)
{
    tcase_add_test(cases, a_request_says_who_asks_and_for_what);
    tcase_add_test(cases, writes_are_strict_and_signed);
    tcase_add_test(cases, names_are_escaped_and_none_is_no_name);
    tcase_add_loop_test(cases, every_answer_has_its_meaning, 0,
                        sizeof meanings / sizeof meanings[0]);
    tcase_add_loop_test(cases, what_changes_nothing_twice_is_repeated, 0, 8);
    tcase_add_loop_test(cases, what_may_have_been_done_is_not_done_again, 0, 4);
    tcase_add_test(cases, what_was_surely_not_done_is_done_later);
    tcase_add_test(cases, a_name_that_an_earlier_try_took_is_taken);
    tcase_add_test(cases, a_conflict_is_final_only_where_a_version_was_given);
    tcase_add_test(cases, a_server_that_stays_down_is_told_in_its_own_words);
    tcase_add_test(cases, nobody_waits_longer_than_he_said);
    tcase_add_test(cases, a_silent_server_is_asked_anew_on_another_connection);
    tcase_add_test(cases, a_create_whose_answer_nobody_waited_for_is_to_be_looked_for);
    tcase_add_test(cases, a_cancel_ends_a_pause_between_tries);
    tcase_add_test(cases, a_refused_credential_is_renewed_once);
    tcase_add_test(cases, a_list_is_walked_page_by_page);
    tcase_add_test(cases, a_list_that_grew_too_old_is_begun_again_without_what_was_visited);
    tcase_add_test(cases, no_list_is_no_empty_list);
    tcase_add_test(cases, events_come_in_the_order_of_their_times);
    tcase_add_test(cases, a_cluster_is_asked_what_it_is_and_allows);
    tcase_add_test(cases, a_cluster_that_is_not_there_is_told_soon);
}

int main(void)
{
    Suite *suite = suite_create("kubernetes");
    TCase *cases = tcase_create("cases");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up_cluster, forget);
    add_cases(cases);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
