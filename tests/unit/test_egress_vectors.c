/* The acceptance table, as far as pure functions can show it. */

#include "egress/client_hello.h"
#include "egress_place.h"

#include <stdlib.h>
#include <strings.h>

#define VECTORS     195
#define OWN_ADDRESS "34.1.2.3"

/* What only a running program can show of them; the suite of the program has all. */
static const char *const of_program[] = {
    "http-chunk-size-overflow", "http-chunk-size-0x",      "http-chunk-ext-lf",
    "identity-unknown-source",  "identity-reused-address",
};

static cJSON *table;
static struct sbx_egress_policy *plain_policy, *credential_policy;
static const char *name; /* of the vector that runs */

static void load_table(void)
{
    const char *folder = getenv("SANDBOX_TEST_DATA");
    char path[512];
    snprintf(path, sizeof path, "%s/egress-vectors.json", folder == NULL ? "" : folder);
    FILE *file = fopen(path, "re");
    ck_assert_msg(file != NULL, "no %s", path);
    static char text[1 << 20];
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    /* cJSON ends a text at NUL: that one byte is carried as a code point that is no byte. */
    for (char *at = text; (at = strstr(at, "\\u0000")) != NULL; at++)
        memcpy(at, "\\u0100", 6);
    table = cJSON_ParseWithLength(text, size);
    ck_assert_ptr_nonnull(table);
    plain_policy = egress_policy(TABLE_POLICY, NULL);
    credential_policy = egress_policy(TABLE_POLICY, TABLE_RULES);
}

static void drop_table(void)
{
    cJSON_Delete(table);
    sbx_egress_policy_drop(plain_policy);
    sbx_egress_policy_drop(credential_policy);
}

/* Code points are octets. */
static size_t octets(const char *text, char *out)
{
    size_t size = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        unsigned point = *at;
        if (*at >= 0x80) {
            point = (*at & 31U) << 6 | (at[1] & 63U);
            at++;
        }
        out[size++] = (char)(point == 0x100 ? 0 : point);
    }
    return size;
}

static const cJSON *get(const cJSON *object, const char *member)
{
    return cJSON_GetObjectItemCaseSensitive(object, member);
}

/* Whether a text, or a list of them, or of numbers, has it. */
static bool says(const cJSON *item, const char *word)
{
    if (cJSON_IsArray(item)) {
        for (const cJSON *one = item->child; one != NULL; one = one->next)
            if (says(one, word))
                return true;
        return false;
    }
    char number[16];
    snprintf(number, sizeof number, "%d", item == NULL ? 0 : item->valueint);
    return item != NULL && strcmp(cJSON_IsString(item) ? item->valuestring : number, word) == 0;
}

static void check_refused(const struct egress_result *result, const cJSON *expected)
{
    char status[16];
    snprintf(status, sizeof status, "%d", result->refusal.status);
    ck_assert_msg(!result->allowed, "%s passes", name);
    ck_assert_msg(get(expected, "status") == NULL || says(get(expected, "status"), status),
                  "%s: status %s (%s)", name, status, result->refusal.text);
    ck_assert_msg(result->refusal.reason != NULL && result->refusal.text[0] != '\0', "%s", name);
    ck_assert_msg(strstr(result->refusal.text, REAL_SECRET) == NULL, "%s", name);
}

static void check_sent(const struct egress_result *result, const cJSON *expected)
{
    const char *sent = (const char *)sbx_bytes_data(&result->sent);
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, get(expected, "upstream_contains")) ck_assert_msg(
        strstr(sent, item->valuestring) != NULL, "%s lacks %s: %s", name, item->valuestring, sent);
    cJSON_ArrayForEach(item, get(expected, "upstream_must_not_contain"))
        ck_assert_msg(strcasestr(sent, item->valuestring) == NULL, "%s has %s: %s", name,
                      item->valuestring, sent);
    const char *upstream = sbx_json_text(expected, "upstream");
    const char *rest = strstr(upstream, "...");
    size_t size = rest == NULL ? strlen(upstream) : (size_t)(rest - upstream);
    ck_assert_msg(strncmp(sent, upstream, size) == 0, "%s: %s", name, sent);
    char target[300];
    snprintf(target, sizeof target, "%s:%u", result->request.host.name,
             (unsigned)result->request.port);
    if (get(expected, "connect_to") != NULL)
        ck_assert_str_eq(target, sbx_json_text(expected, "connect_to"));
    if (get(expected, "canonical") != NULL)
        ck_assert_str_eq(result->request.host.name, sbx_json_text(expected, "canonical"));
    if (get(expected, "upstream_tls_host") != NULL)
        ck_assert_str_eq(result->request.host.name, sbx_json_text(expected, "upstream_tls_host"));
}

static const char *request_text(const cJSON *input, char *room)
{
    const char *template = sbx_json_text(input, "bytes_template");
    const char *mark = strchr(template, '<');
    if (mark == NULL)
        return sbx_json_text(input, "bytes");
    char *at = room + (mark - template);
    memcpy(room, template, (size_t)(mark - template));
    if (strncmp(mark, "<A*70000>", 9) == 0) {
        memset(at, 'A', 70000);
        at += 70000;
    } else {
        for (int i = 0; i < 1000; i++)
            at += snprintf(at, 16, "X-%d: 1\r\n", i);
    }
    const char *rest = strchr(mark, '>') + 1;
    memcpy(at, rest, strlen(rest) + 1);
    return room;
}

static void run_request(const cJSON *input, const cJSON *expected,
                        const struct sbx_egress_policy *policy)
{
    static char room[100000], bytes[100000];
    size_t size = octets(request_text(input, room), bytes);
    struct sbx_egress_policy *other = NULL;
    if (get(expected, "when") != NULL)
        other = egress_policy(TABLE_POLICY, "[{\"match\": {\"host\": \"api.example.com\", \"path\":"
                                            " {\"starts_with\": \"/v1/public/\"}},"
                                            " \"set\": {\"x-api-key\": \"" REAL_SECRET "\"}}]");
    struct egress_result result = egress_ask(other == NULL ? policy : other, bytes, size);
    const cJSON *verdict = get(expected, "verdict");
    bool may_pass = says(verdict, "allow") || says(verdict, "sanitize");
    bool may_fail = says(verdict, "reject") || says(verdict, "deny") || says(verdict, "policy");
    if (result.allowed)
        ck_assert_msg(may_pass, "%s passes", name);
    else if (may_fail)
        check_refused(&result, expected);
    else
        ck_abort_msg("%s: %d %s", name, result.refusal.status, result.refusal.text);
    if (result.allowed)
        check_sent(&result, expected);
    if (strcmp(name, "route-websocket") == 0)
        ck_assert_int_eq(result.refusal.status, 501);
    sbx_bytes_free(&result.sent);
    sbx_egress_policy_drop(other);
}

static enum sbx_egress_hello_verdict feed(const cJSON *input, const uint8_t *bytes, size_t size,
                                          struct sbx_egress_refusal *refusal)
{
    struct sbx_egress_host host;
    uint16_t port = 0;
    const char *connect = sbx_json_text(input, "connect");
    ck_assert_ptr_null(sbx_egress_authority_read(connect, strlen(connect), 0, &host, &port));
    struct sbx_egress_hello *hello = sbx_egress_hello_new(&host, SBX_EGRESS_ECH_DENY);
    enum sbx_egress_hello_verdict verdict = SBX_EGRESS_HELLO_MORE;
    const cJSON *segments = get(input, "tcp_segments");
    const cJSON *segment = cJSON_IsArray(segments) ? segments->child : NULL;
    for (size_t at = 0; at < size && verdict == SBX_EGRESS_HELLO_MORE;) {
        size_t piece = segment != NULL ? (size_t)segment->valueint : segments != NULL ? 1 : size;
        piece = piece > size - at ? size - at : piece;
        verdict = sbx_egress_hello_feed(hello, bytes + at, piece, refusal);
        at += piece;
        segment = segment == NULL ? NULL : segment->next;
    }
    if (verdict == SBX_EGRESS_HELLO_GOOD) {
        size_t kept = 0;
        const uint8_t *data = sbx_egress_hello_data(hello, &kept);
        ck_assert_uint_eq(kept, size);
        ck_assert_mem_eq(data, bytes, size);
        ck_assert_uint_eq(sbx_egress_hello_used(hello), size);
    }
    sbx_egress_hello_free(hello);
    return verdict;
}

static void run_hello(const cJSON *input, const cJSON *expected)
{
    static uint8_t bytes[1 << 16];
    const char *hex = sbx_json_text(input, "hex");
    size_t size = strlen(hex) / 2;
    for (size_t i = 0; i < size; i++)
        ck_assert_int_eq(sscanf(hex + 2 * i, "%2hhx", &bytes[i]), 1);
    ck_assert_uint_eq(size, (size_t)sbx_json_integer(input, "length"));
    struct sbx_egress_refusal refusal = {0};
    enum sbx_egress_hello_verdict verdict = feed(input, bytes, size, &refusal);
    if (says(get(expected, "verdict"), "allow"))
        ck_assert_msg(verdict == SBX_EGRESS_HELLO_GOOD, "%s: %s", name, refusal.text);
    else /* what waits for more is closed by the program's clock */
        ck_assert_msg(verdict == SBX_EGRESS_HELLO_REFUSED || verdict == SBX_EGRESS_HELLO_MORE,
                      "%s passes", name);
}

/* The first that may be dialled, or NULL. */
static const char *chosen(const cJSON *answers)
{
    struct sbx_egress_range range;
    struct sbx_egress_ranges *own = sbx_egress_ranges_new();
    const cJSON *answer = NULL;
    const char *found = NULL;
    ck_assert_ptr_null(sbx_egress_range_parse(OWN_ADDRESS, &range));
    ck_assert(sbx_egress_ranges_add(own, &range));
    cJSON_ArrayForEach(answer, answers)
    {
        struct sbx_egress_address address;
        const char *text = answer->valuestring[0] == '<' ? OWN_ADDRESS : answer->valuestring;
        ck_assert_msg(sbx_egress_address_parse(text, &address), "%s", text);
        const char *kind = sbx_egress_address_refused(&address, own, NULL);
        if (kind == NULL && found == NULL)
            found = answer->valuestring;
        else if (kind != NULL)
            ck_assert_msg(strstr(kind, text) == NULL, "%s tells %s", name, kind);
    }
    sbx_egress_ranges_free(own);
    return found;
}

static void run_resolve(const cJSON *input, const cJSON *expected)
{
    struct sbx_egress_policy *everything = egress_policy("{\"mode\": \"allow-all\"}", NULL);
    const struct sbx_egress_policy *const policies[] = {plain_policy, everything};
    for (size_t i = 0; i < 2; i++) {
        const char *request = sbx_json_text(input, "request");
        struct egress_result result = egress_ask(policies[i], request, strlen(request));
        const char *dialled = result.allowed ? chosen(get(input, "answers")) : NULL;
        if (says(get(expected, "verdict"), "allow")) {
            ck_assert_msg(dialled != NULL, "%s: %s", name, result.refusal.text);
            ck_assert_int_eq(
                strncmp(sbx_json_text(expected, "connect_to"), dialled, strlen(dialled)), 0);
            ck_assert_str_ne(dialled, sbx_json_text(expected, "never"));
        } else {
            ck_assert_msg(dialled == NULL, "%s would dial %s", name, dialled);
            if (!result.allowed)
                check_refused(&result, expected);
        }
        sbx_bytes_free(&result.sent);
    }
    sbx_egress_policy_drop(everything);
}

/* A policy or a transformation of the table in the admin API's shape. */
static cJSON *settle_transform(const cJSON *transform)
{
    cJSON *rule = cJSON_Duplicate(transform, 1);
    if (get(rule, "match") == NULL) {
        cJSON *match = cJSON_AddObjectToObject(rule, "match");
        cJSON_AddStringToObject(match, "host", "api.example.com");
    }
    cJSON *list = cJSON_CreateArray();
    cJSON_AddItemToArray(list, rule);
    return list;
}

static void run_admin(const cJSON *input, const cJSON *expected)
{
    struct sbx_egress_policy *changed = NULL;
    sandbox_error error = {0};
    cJSON *policy = NULL;
    cJSON *rules = NULL;
    if (get(input, "transform") != NULL)
        rules = settle_transform(get(input, "transform"));
    else if (get(input, "allow") != NULL)
        cJSON_AddItemToObject(policy = cJSON_CreateObject(), "allow",
                              cJSON_Duplicate(get(input, "allow"), 1));
    else
        policy = egress_json("{\"mode\": \"custom\", \"allow\": [\"ok.example.com\", \"*\"]}");
    const struct sbx_egress_change change = {policy, rules, NULL};
    sandbox_status status = sbx_egress_policy_change(plain_policy, &change, &changed, &error);
    if (says(get(expected, "verdict"), "reject")) {
        ck_assert_msg(status == SANDBOX_INVALID, "%s is taken", name);
        ck_assert_msg(error.message[0] != '\0', "%s", name);
        ck_assert_ptr_null(changed);
        struct sbx_egress_host host = egress_host("api.example.com");
        ck_assert(sbx_egress_policy_allows(plain_policy, &host));
    } else {
        ck_assert_msg(status == SANDBOX_OK, "%s: %s", name, error.message);
        struct sbx_egress_host host = egress_host("api.example.com");
        ck_assert(!sbx_egress_policy_allows(changed, &host));
        ck_assert(!sbx_egress_policy_allows_http(changed, &host));
    }
    sbx_egress_policy_drop(changed);
    cJSON_Delete(policy);
    cJSON_Delete(rules);
}

/* The body in the pieces of its chunks, or whole. */
static void scrub_body(struct sbx_egress_scrub *scrub, const char *head, const char *body,
                       struct sbx_bytes *out)
{
    if (strstr(head, "chunked") == NULL) {
        ck_assert(sbx_egress_scrub_feed(scrub, body, strlen(body), out));
    } else {
        for (char *end = NULL;; body = end + 2) {
            unsigned long size = strtoul(body, &end, 16);
            if (size == 0)
                break;
            ck_assert(sbx_egress_scrub_feed(scrub, end + 2, size, out));
            end += 2 + size;
        }
    }
    ck_assert(sbx_egress_scrub_end(scrub, out));
}

static void run_exchange(const cJSON *input, const cJSON *expected)
{
    const char *request = sbx_json_text(input, "request");
    struct egress_result result = egress_ask(credential_policy, request, strlen(request));
    ck_assert_msg(result.allowed, "%s: %s", name, result.refusal.text);
    const char *sent = (const char *)sbx_bytes_data(&result.sent);
    ck_assert_ptr_nonnull(strstr(sent, "x-api-key: " REAL_SECRET));
    ck_assert_ptr_nonnull(strstr(sent, "Accept-Encoding: identity"));
    ck_assert_ptr_null(strstr(sent, "gzip"));

    char answer[1000];
    snprintf(answer, sizeof answer, "%s", sbx_json_text(input, "response"));
    struct sbx_egress_scrub *scrub = NULL;
    struct sbx_bytes out = SBX_BYTES(1 << 16);
    ck_assert_int_eq(sbx_egress_scrub_new(credential_policy, &result.request.host, &scrub, NULL),
                     SANDBOX_OK);
    ck_assert_ptr_nonnull(scrub);
    char *body = strstr(answer, "\r\n\r\n");
    if (body != NULL && strstr(answer, "gzip") == NULL) {
        ck_assert(sbx_egress_scrub_text(scrub, answer, (size_t)(body - answer), &out));
        scrub_body(scrub, answer, body + 4, &out);
    }
    ck_assert(sbx_bytes_append(&out, "", 1));
    const char *got = (const char *)sbx_bytes_data(&out);
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, get(expected, "client_must_not_contain"))
        ck_assert_msg(strstr(got, item->valuestring) == NULL, "%s: %s", name, got);
    ck_assert_ptr_nonnull(strstr(got, sbx_json_text(expected, "replace_with")));
    sbx_egress_scrub_free(scrub);
    sbx_bytes_free(&out);
    sbx_bytes_free(&result.sent);
}

static bool is_of_program(void)
{
    for (size_t i = 0; i < sizeof of_program / sizeof of_program[0]; i++)
        if (strcmp(of_program[i], name) == 0)
            return true;
    return false;
}

START_TEST(every_vector_of_the_table_ends_as_it_must)
{
    size_t ran = 0;
    size_t left = 0;
    const cJSON *vector = NULL;
    cJSON_ArrayForEach(vector, get(table, "vectors"))
    {
        const cJSON *input = get(vector, "input");
        const cJSON *expected = get(vector, "expected");
        const char *kind = sbx_json_text(input, "kind");
        name = sbx_json_text(vector, "name");
        if (is_of_program()) {
            left++;
            continue;
        }
        ran++;
        if (strcmp(kind, "http_request") == 0)
            run_request(input, expected,
                        says(get(get(vector, "policy"), "ref"), "PC") ? credential_policy
                                                                      : plain_policy);
        else if (strcmp(kind, "clienthello") == 0)
            run_hello(input, expected);
        else if (strcmp(kind, "resolve") == 0)
            run_resolve(input, expected);
        else if (strcmp(kind, "admin_put") == 0)
            run_admin(input, expected);
        else if (strcmp(kind, "http_exchange") == 0)
            run_exchange(input, expected);
        else
            ck_abort_msg("%s is of no known kind", name);
    }
    ck_assert_uint_eq(left, sizeof of_program / sizeof of_program[0]);
    ck_assert_uint_eq(ran + left, VECTORS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("egress vectors");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, load_table, drop_table);
    tcase_add_test(all, every_vector_of_the_table_ends_as_it_must);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
