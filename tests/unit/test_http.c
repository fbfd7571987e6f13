/* HTTP on one thread: answers, streams, TLS, proxies, and transfers that end when nobody waits. */

#include "kubernetes_place.h"
#include "util/clock.h"
#include <pthread.h>
#include <sandbox/version.h>
#include <stdatomic.h>
#include <time.h>

static struct sbx_http_answer answer;

static const char *url_of(unsigned port, const char *path)
{
    static char url[256];
    snprintf(url, sizeof url, "%s://127.0.0.1:%u%s",
             port == ports[0] || port == ports[4] ? "http" : "https", port, path);
    return url;
}

static char *read_text(const char *name)
{
    char path[128];
    uint8_t *text = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ck_assert_int_eq(sbx_file_read(AT_FDCWD, path, 1 << 16, &text, &size, NULL), SANDBOX_OK);
    return (char *)text; /* a zero byte follows */
}

/* A GET of /x on that port. */
static sandbox_status get(unsigned port, const struct sbx_http_peer *peer, bool *sent)
{
    struct sbx_http_peer plain = {.proxy = ""};
    struct sbx_wait wait = soon();
    struct sbx_http_request request = {
        .peer = peer == NULL ? &plain : peer, .method = "GET", .url = url_of(port, "/x")};
    return sbx_http_do(control, &request, &wait, &answer, sent, &error);
}

static bool body_is(const char *text)
{
    size_t size = sbx_bytes_size(&answer.body);
    bool is = size == strlen(text) &&
              (size == 0 || memcmp(sbx_bytes_data(&answer.body), text, size) == 0);
    sbx_http_answer_free(&answer);
    return is;
}

START_TEST(an_answer_comes_whole_whatever_its_status)
{
    script("[{'path':'/x','answers':[{'code':200,'text':'good'},"
           "{'code':503,'text':'later','headers':{'Retry-After':'7'}},"
           "{'code':302,'text':'away','headers':{'Location':'/y','Set-Cookie':'a=b'}},"
           "{'code':200,'text':''}]}]");
    bool sent = false;
    ck_assert_int_eq(get(ports[0], NULL, &sent), SANDBOX_OK);
    ck_assert_int_eq(answer.status, 200);
    ck_assert_str_eq(answer.content_type, "text/plain");
    ck_assert_int_eq(answer.retry_after_ms, -1);
    ck_assert(sent && body_is("good"));
    ck_assert_int_eq(get(ports[0], NULL, NULL), SANDBOX_OK);
    ck_assert(answer.status == 503 && answer.retry_after_ms == 7000 && body_is("later"));
    /* Nothing is followed, and nothing is remembered. */
    ck_assert_int_eq(get(ports[0], NULL, NULL), SANDBOX_OK);
    ck_assert(answer.status == 302 && body_is("away"));
    ck_assert_int_eq(get(ports[0], NULL, NULL), SANDBOX_OK);
    ck_assert(answer.status == 200 && body_is(""));
    ck_assert_str_eq(request_field(3, "headers/cookie"), "");
    ck_assert_uint_eq(count_requests("/y", ""), 0);
    ck_assert_str_eq(request_field(0, "headers/user-agent"), "libsandbox/" SANDBOX_VERSION);
}
END_TEST

START_TEST(a_date_says_too_when_to_come_again)
{
    time_t later = time(NULL) + 20;
    struct tm fields;
    char date[64];
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&later, &fields));
    script("[{'path':'/x','answers':[{'code':429,'headers':{'Retry-After':'%s'}},"
           "{'code':429,'headers':{'Retry-After':'Thu, 01 Jan 1970 00:00:10 GMT'}},"
           "{'code':429,'headers':{'Retry-After':'soon'}},"
           "{'code':429,'headers':{'Retry-After':'99999999999999999999'}}]}]",
           date);
    ck_assert_int_eq(get(ports[0], NULL, NULL), SANDBOX_OK);
    ck_assert(answer.retry_after_ms > 10000 && answer.retry_after_ms <= 21000 && body_is("{}"));
    ck_assert_int_eq(get(ports[0], NULL, NULL), SANDBOX_OK);
    ck_assert(answer.retry_after_ms == 0 && body_is("{}"));
    ck_assert_int_eq(get(ports[0], NULL, NULL), SANDBOX_OK);
    ck_assert(answer.retry_after_ms == -1 && body_is("{}"));
    ck_assert_int_eq(get(ports[0], NULL, NULL), SANDBOX_OK);
    ck_assert(answer.retry_after_ms == 86400000 && body_is("{}"));
}
END_TEST

START_TEST(bodies_and_headers_go_out_as_they_are)
{
    script("[{'path':'/x','answers':[{'text':'taken'}]}]");
    const char *const headers[] = {"Content-Type: application/json", "X-Secret: word", NULL};
    char *body = malloc(3u << 20);
    memset(body, 'b', 3u << 20);
    struct sbx_http_peer peer = {.proxy = ""};
    struct sbx_wait wait = soon();
    struct sbx_http_request request = {.peer = &peer,
                                       .method = "PATCH",
                                       .url = url_of(ports[0], "/x"),
                                       .headers = headers,
                                       .body = body,
                                       .body_size = 3u << 20};
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, NULL, &error), SANDBOX_OK);
    ck_assert(body_is("taken"));
    free(body);
    ck_assert_str_eq(request_field(0, "method"), "PATCH");
    ck_assert_str_eq(request_field(0, "headers/content-length"), "3145728");
    ck_assert_str_eq(request_field(0, "headers/content-type"), "application/json");
    ck_assert_str_eq(request_field(0, "headers/x-secret"), "word");
    ck_assert_str_eq(request_field(0, "headers/expect"), "");
}
END_TEST

START_TEST(an_answer_beyond_its_limit_is_not_taken)
{
    script("[{'path':'/x','answers':[{'text':'0123456789'}]}]");
    struct sbx_http_peer peer = {.proxy = ""};
    struct sbx_wait wait = soon();
    struct sbx_http_request request = {
        .peer = &peer, .method = "GET", .url = url_of(ports[0], "/x"), .answer_max = 9};
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, NULL, &error), SANDBOX_LIMIT);
    ck_assert_str_eq(error.reason, "answer-too-large");
    sbx_http_answer_free(&answer);
    request.answer_max = 10;
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, NULL, &error), SANDBOX_OK);
    ck_assert(body_is("0123456789"));
}
END_TEST

START_TEST(nobody_there_means_that_nothing_was_sent)
{
    bool sent = true;
    struct sbx_http_peer peer = {.proxy = ""};
    struct sbx_wait wait = soon();
    /* Port 1 is nobody's. */
    struct sbx_http_request request = {
        .peer = &peer, .method = "GET", .url = "http://127.0.0.1:1/x"};
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, &sent, &error),
                     SANDBOX_UNAVAILABLE);
    ck_assert(!sent);
    sbx_http_answer_free(&answer);
    request.url = "no url at all";
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, &sent, &error),
                     SANDBOX_INVALID);
    ck_assert_str_eq(error.reason, "bad-url");
    request.url = "ftp://127.0.0.1/x";
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, &sent, &error),
                     SANDBOX_INVALID);
}
END_TEST

START_TEST(a_lost_answer_is_told_and_the_request_not_repeated)
{
    script("[{'path':'/x','answers':[{'text':'warm'},{'do':'reset'},{'text':'never'}]}]");
    bool sent = false;
    ck_assert_int_eq(get(ports[0], NULL, NULL), SANDBOX_OK);
    ck_assert(body_is("warm"));
    /* On a connection from the pool, where libcurl would send it again. */
    ck_assert_int_eq(get(ports[0], NULL, &sent), SANDBOX_UNAVAILABLE);
    ck_assert(sent);
    sbx_http_answer_free(&answer);
    ck_assert_uint_eq(count_requests("/x", ""), 2);
}
END_TEST

START_TEST(half_an_answer_is_none)
{
    script("[{'path':'/x','answers':[{'do':'cut','text':'0123456789'}]}]");
    bool sent = false;
    ck_assert_int_eq(get(ports[0], NULL, &sent), SANDBOX_UNAVAILABLE);
    ck_assert(sent);
    sbx_http_answer_free(&answer);
}
END_TEST

START_TEST(a_transfer_ends_with_its_callers_wait)
{
    script("[{'path':'/x','answers':[{'do':'hang'}]}]");
    struct sbx_http_peer peer = {.proxy = ""};
    struct sbx_wait wait = sbx_wait_alone(50);
    struct sbx_http_request request = {
        .peer = &peer, .method = "GET", .url = url_of(ports[0], "/x")};
    bool sent = false;
    sandbox_status status = sbx_http_do(control, &request, &wait, &answer, &sent, &error);
    ck_assert_int_eq(status, SANDBOX_TIMED_OUT);
    sbx_http_answer_free(&answer);
    if (sent)
        wait_for_gone(1);
    /* A wait that is over already sends nothing. */
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, &sent, &error),
                     SANDBOX_TIMED_OUT);
    ck_assert(!sent);
}
END_TEST

static void *trigger_when_it_came(void *cancel)
{
    wait_for_requests(1, "/x", "");
    sandbox_cancel_trigger(cancel);
    return NULL;
}

START_TEST(a_cancel_ends_a_stuck_transfer)
{
    script("[{'path':'/x','answers':[{'do':'hang'}]}]");
    sandbox_cancel *cancel = NULL;
    ck_assert_int_eq(sandbox_cancel_create(&cancel, NULL), SANDBOX_OK);
    struct sbx_http_peer peer = {.proxy = ""};
    struct sbx_wait wait = soon();
    wait.cancel = cancel;
    struct sbx_http_request request = {
        .peer = &peer, .method = "GET", .url = url_of(ports[0], "/x")};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, trigger_when_it_came, cancel), 0);
    bool sent = false;
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, &sent, &error),
                     SANDBOX_CANCELLED);
    ck_assert(sent);
    pthread_join(thread, NULL);
    wait_for_gone(1);
    sbx_http_answer_free(&answer);
    sandbox_cancel_free(cancel);
}
END_TEST

struct pieces {
    size_t bytes, most;
};

static bool take_pieces(void *user_data, const void *data, size_t size)
{
    struct pieces *pieces = user_data;
    pieces->bytes += size;
    return pieces->bytes < pieces->most;
}

START_TEST(a_stream_goes_to_its_taker_until_he_has_enough)
{
    script("[{'path':'/x','answers':[{'stream':['one','two'],'after':'hang'},"
           "{'code':410,'text':'gone'},{'stream':['one','two'],'after':'end'},"
           "{'stream':['one'],'after':'cut'}]}]");
    struct pieces pieces = {.most = 6};
    struct sbx_http_peer peer = {.proxy = ""};
    struct sbx_wait wait = soon();
    struct sbx_http_request request = {.peer = &peer,
                                       .method = "GET",
                                       .url = url_of(ports[0], "/x"),
                                       .piece = take_pieces,
                                       .user_data = &pieces};
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, NULL, &error), SANDBOX_OK);
    ck_assert(pieces.bytes == 6 && body_is(""));
    /* What is no success is no stream. */
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, NULL, &error), SANDBOX_OK);
    ck_assert(answer.status == 410 && pieces.bytes == 6 && body_is("gone"));
    pieces = (struct pieces){.most = 1000};
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, NULL, &error), SANDBOX_OK);
    ck_assert(pieces.bytes == 6 && body_is(""));
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, NULL, &error),
                     SANDBOX_UNAVAILABLE);
    sbx_http_answer_free(&answer);
}
END_TEST

struct ending {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    unsigned count;
    sandbox_status status;
};

static void note_end(void *user_data, sandbox_status status, struct sbx_http_answer *got,
                     const sandbox_error *why)
{
    struct ending *ending = user_data;
    pthread_mutex_lock(&ending->mutex);
    ending->count++;
    ending->status = status;
    pthread_cond_signal(&ending->ended);
    pthread_mutex_unlock(&ending->mutex);
}

static void begin_transfer(struct ending *ending, uint32_t seconds_silent,
                           struct sbx_http_transfer **out)
{
    *ending = (struct ending){.mutex = PTHREAD_MUTEX_INITIALIZER};
    ck_assert_int_eq(sbx_condition_init(&ending->ended), 0);
    /* Everything that was given is forgotten while it goes on. */
    char url[256], header[] = "X-Secret: word", proxy[] = "";
    snprintf(url, sizeof url, "%s", url_of(ports[0], "/x"));
    const char *headers[] = {header, NULL};
    struct sbx_http_peer peer = {.proxy = proxy};
    struct sbx_http_request request = {
        .peer = &peer, .method = "GET", .url = url, .headers = headers};
    struct sbx_http_ends ends = {note_end, ending};
    ck_assert_int_eq(sbx_http_begin(control, &request, seconds_silent, &ends, out, &error),
                     SANDBOX_OK);
    memset(url, 'u', sizeof url - 1);
    memset(header, 'h', sizeof header - 1);
}

static void wait_for_end(struct ending *ending)
{
    struct sbx_wait wait = soon();
    pthread_mutex_lock(&ending->mutex);
    while (ending->count == 0)
        ck_assert_int_eq(sbx_wait_condition(&wait, &ending->ended, &ending->mutex, NULL),
                         SANDBOX_OK);
    pthread_mutex_unlock(&ending->mutex);
}

START_TEST(a_transfer_that_goes_on_by_itself_ends_once)
{
    script("[{'path':'/x','answers':[{'do':'hang'}]}]");
    struct ending ending;
    struct sbx_http_transfer *transfer;
    begin_transfer(&ending, 0, &transfer);
    wait_for_requests(1, "/x", "");
    sbx_http_cancel(transfer);
    wait_for_end(&ending);
    ck_assert_int_eq(ending.status, SANDBOX_CANCELLED);
    ck_assert_str_eq(request_field(0, "headers/x-secret"), "word");

    begin_transfer(&ending, 1, &transfer); /* silent for a second */
    wait_for_end(&ending);
    ck_assert_int_eq(ending.status, SANDBOX_UNAVAILABLE);
    script("[{'path':'/x','answers':[{'text':'good'}]}]");
    begin_transfer(&ending, 10, &transfer);
    wait_for_end(&ending);
    ck_assert_int_eq(ending.status, SANDBOX_OK);
    ck_assert_uint_eq(ending.count, 1);
}
END_TEST

START_TEST(the_end_of_the_client_ends_what_goes_on)
{
    script("[{'path':'/x','answers':[{'do':'hang'}]}]");
    struct sbx_http *http = control, *other = NULL;
    ck_assert_int_eq(sbx_http_start(&other, NULL), SANDBOX_OK);
    struct ending endings[3];
    control = other;
    for (unsigned each = 0; each < 3; each++) {
        struct sbx_http_transfer *transfer;
        begin_transfer(&endings[each], 0, &transfer);
    }
    control = http;
    sbx_http_stop(other);
    for (unsigned each = 0; each < 3; each++) {
        ck_assert_uint_eq(endings[each].count, 1);
        ck_assert_int_eq(endings[each].status, SANDBOX_CANCELLED);
    }
}
END_TEST

START_TEST(a_server_must_be_known_by_the_ca_that_was_given)
{
    script("[{'path':'/x','answers':[{'text':'good'}]}]");
    char *ca = read_text("ca.pem"), *other = read_text("other.pem");
    bool sent = true;
    struct sbx_http_peer peer = {.ca = ca, .proxy = ""};
    ck_assert_int_eq(get(ports[1], &peer, NULL), SANDBOX_OK);
    ck_assert(body_is("good"));
    peer.ca = other;
    ck_assert_int_eq(get(ports[1], &peer, &sent), SANDBOX_DENIED);
    ck_assert_str_eq(error.reason, "tls-untrusted");
    ck_assert(!sent);
    peer.ca = NULL; /* the system's know it not */
    ck_assert_int_eq(get(ports[1], &peer, &sent), SANDBOX_DENIED);
    peer.insecure = true;
    ck_assert_int_eq(get(ports[1], &peer, NULL), SANDBOX_OK);
    ck_assert(body_is("good"));
    peer = (struct sbx_http_peer){.ca = "no certificate", .proxy = ""};
    ck_assert_int_ne(get(ports[1], &peer, &sent), SANDBOX_OK);
    ck_assert(!sent);
    free(ca);
    free(other);
}
END_TEST

START_TEST(a_server_may_have_another_name_than_its_address)
{
    script("[{'path':'/x','answers':[{'text':'good'}]}]");
    char *ca = read_text("ca.pem");
    struct sbx_http_peer peer = {.ca = ca, .proxy = ""};
    ck_assert_int_eq(get(ports[2], &peer, NULL), SANDBOX_DENIED);
    peer.server_name = "cluster.example";
    ck_assert_int_eq(get(ports[2], &peer, NULL), SANDBOX_OK);
    ck_assert(body_is("good"));
    char host[32];
    snprintf(host, sizeof host, "127.0.0.1:%u", ports[2]);
    ck_assert_str_eq(request_field(0, "headers/host"), host);
    peer.server_name = "other.example";
    ck_assert_int_eq(get(ports[2], &peer, NULL), SANDBOX_DENIED);
    free(ca);
}
END_TEST

START_TEST(a_client_shows_its_certificate)
{
    script("[{'path':'/x','answers':[{'text':'good'}]}]");
    char *ca = read_text("ca.pem"), *certificate = read_text("client.pem"),
         *key = read_text("client.key");
    struct sbx_http_peer peer = {.ca = ca, .proxy = ""};
    ck_assert_int_ne(get(ports[3], &peer, NULL), SANDBOX_OK);
    sbx_http_answer_free(&answer);
    peer.certificate = certificate;
    peer.key = key;
    ck_assert_int_eq(get(ports[3], &peer, NULL), SANDBOX_OK);
    ck_assert(body_is("good"));
    peer.certificate = peer.key = "-----BEGIN hush-----";
    ck_assert_int_eq(get(ports[3], &peer, NULL), SANDBOX_INVALID);
    ck_assert_str_eq(error.reason, "tls-certificate");
    ck_assert_ptr_null(strstr(error.message, "hush"));
    free(ca);
    free(certificate);
    free(key);
}
END_TEST

START_TEST(a_proxy_is_used_where_one_is_named_and_sees_no_secret)
{
    script("[{'path':'/x','answers':[{'text':'good'}]}]");
    char *ca = read_text("ca.pem"), proxy[64];
    snprintf(proxy, sizeof proxy, "http://127.0.0.1:%u", ports[4]);
    struct sbx_http_peer peer = {.ca = ca, .proxy = proxy, .server_name = "cluster.example"};
    const char *const headers[] = {"Authorization: Bearer word", NULL};
    struct sbx_wait wait = soon();
    struct sbx_http_request request = {
        .peer = &peer, .method = "GET", .url = url_of(ports[2], "/x"), .headers = headers};
    setenv("NO_PROXY", "*", 1); /* of the environment's proxy, not of this one */
    ck_assert_int_eq(sbx_http_do(control, &request, &wait, &answer, NULL, &error), SANDBOX_OK);
    ck_assert(body_is("good"));
    ck_assert_str_eq(request_field(0, "method"), "CONNECT");
    ck_assert_str_eq(request_field(0, "headers/authorization"), "");
    ck_assert_str_eq(request_field(1, "via"), "named");
    ck_assert_str_eq(request_field(1, "headers/authorization"), "Bearer word");

    unsetenv("NO_PROXY");
    setenv("http_proxy", proxy, 1);
    peer = (struct sbx_http_peer){0};
    ck_assert_int_eq(get(ports[0], &peer, NULL), SANDBOX_OK);
    ck_assert(body_is("good"));
    ck_assert_str_eq(request_field(2, "via"), "proxy");
    ck_assert_int_eq(get(ports[0], NULL, NULL), SANDBOX_OK);
    ck_assert(body_is("good"));
    ck_assert_str_eq(request_field(3, "via"), "plain");
    free(ca);
}
END_TEST

/* curl quotes a proxy's URL that it cannot use. */
START_TEST(a_proxys_password_is_in_no_message)
{
    static const char *const proxies[] = {"http://me:hush@127.0.0.1:99999", "me:hush@127.0.0.1:x",
                                          "none://me:hush@127.0.0.1:1",
                                          "https://me:hush@127.0.0.1:1"};
    for (size_t each = 0; each < sizeof proxies / sizeof proxies[0]; each++) {
        struct sbx_http_peer peer = {.proxy = proxies[each]};
        ck_assert_int_ne(get(ports[0], &peer, NULL), SANDBOX_OK);
        ck_assert_msg(strstr(error.message, "hush") == NULL, "%s", error.message);
    }
}
END_TEST

#define CALLERS 24

static atomic_uint answered;

static void *call_some(void *unused)
{
    struct sbx_http_peer peer = {.proxy = ""};
    for (unsigned each = 0; each < 10; each++) {
        struct sbx_wait wait = soon();
        struct sbx_http_answer got;
        struct sbx_http_request request = {.peer = &peer, .method = "GET", .url = unused};
        if (sbx_http_do(control, &request, &wait, &got, NULL, NULL) == SANDBOX_OK &&
            got.status == 200 && sbx_bytes_size(&got.body) == 4)
            atomic_fetch_add(&answered, 1);
        sbx_http_answer_free(&got);
    }
    return NULL;
}

START_TEST(many_callers_share_one_thread_and_its_connections)
{
    script("[{'path':'/x','answers':[{'text':'good'}]}]");
    char url[256];
    snprintf(url, sizeof url, "%s", url_of(ports[0], "/x"));
    pthread_t threads[CALLERS];
    for (unsigned each = 0; each < CALLERS; each++)
        ck_assert_int_eq(pthread_create(&threads[each], NULL, call_some, url), 0);
    for (unsigned each = 0; each < CALLERS; each++)
        pthread_join(threads[each], NULL);
    ck_assert_uint_eq(atomic_load(&answered), CALLERS * 10);
    cJSON *log = tell("GET", "/_log", NULL);
    const cJSON *request;
    int seen[CALLERS * 10 + 1], connections = 0;
    cJSON_ArrayForEach(request, cJSON_GetObjectItem(log, "requests"))
    {
        int port = (int)sbx_json_integer(request, "port"), each = 0;
        while (each < connections && seen[each] != port)
            each++;
        if (each == connections)
            seen[connections++] = port;
    }
    cJSON_Delete(log);
    ck_assert_int_lt(connections, CALLERS * 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http");
    TCase *cases = tcase_create("cases");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, an_answer_comes_whole_whatever_its_status);
    tcase_add_test(cases, a_date_says_too_when_to_come_again);
    tcase_add_test(cases, bodies_and_headers_go_out_as_they_are);
    tcase_add_test(cases, an_answer_beyond_its_limit_is_not_taken);
    tcase_add_test(cases, nobody_there_means_that_nothing_was_sent);
    tcase_add_test(cases, a_lost_answer_is_told_and_the_request_not_repeated);
    tcase_add_test(cases, half_an_answer_is_none);
    tcase_add_test(cases, a_transfer_ends_with_its_callers_wait);
    tcase_add_test(cases, a_cancel_ends_a_stuck_transfer);
    tcase_add_test(cases, a_stream_goes_to_its_taker_until_he_has_enough);
    tcase_add_test(cases, a_transfer_that_goes_on_by_itself_ends_once);
    tcase_add_test(cases, the_end_of_the_client_ends_what_goes_on);
    tcase_add_test(cases, a_server_must_be_known_by_the_ca_that_was_given);
    tcase_add_test(cases, a_server_may_have_another_name_than_its_address);
    tcase_add_test(cases, a_client_shows_its_certificate);
    tcase_add_test(cases, a_proxy_is_used_where_one_is_named_and_sees_no_secret);
    tcase_add_test(cases, a_proxys_password_is_in_no_message);
    tcase_add_test(cases, many_callers_share_one_thread_and_its_connections);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
