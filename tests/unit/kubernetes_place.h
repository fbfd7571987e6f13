/*
 * For tests of the Kubernetes client: starts tests/doubles/kubernetes_double.py once, tells it what
 * to answer, and asks it what came.
 */
#ifndef TESTS_UNIT_KUBERNETES_PLACE_H
#define TESTS_UNIT_KUBERNETES_PLACE_H

#include "cloud/kubernetes_parts.h"
#include "double.h"
#include "util/fail.h"
#include "util/json.h"
#include <check.h>
#include <stdarg.h>

#define WAIT_MS 30000

static char folder[] = "/tmp/sandbox-kubernetes.XXXXXX";
static unsigned ports[5]; /* without TLS, with, by its name, with the client's certificate, proxy */
static struct sbx_http *control;
static struct sbx_kubernetes *cluster;
static sandbox_error error;

static const struct sbx_resource things
    __attribute__((unused)) = {"example.com", "v1", "things", "Thing", false};
static const struct sbx_resource nodes __attribute__((unused)) = {"", "v1", "nodes", "Node", true};

static struct sbx_wait soon(void)
{
    return sbx_wait_alone(WAIT_MS);
}

/* A request to the double itself; its answer: cJSON_Delete(). */
static cJSON *tell(const char *method, const char *path, const char *body)
{
    char url[1024];
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", ports[0], path);
    struct sbx_http_peer peer = {.proxy = ""};
    struct sbx_http_request request = {.peer = &peer,
                                       .method = method,
                                       .url = url,
                                       .body = body,
                                       .body_size = body == NULL ? 0 : strlen(body)};
    struct sbx_http_answer answer;
    struct sbx_wait wait = soon();
    sandbox_error why = {0};
    sandbox_status status = sbx_http_do(control, &request, &wait, &answer, NULL, &why);
    ck_assert_msg(status == SANDBOX_OK && answer.status == 200, "%s %s: %ld %s", method, path,
                  answer.status, why.message);
    cJSON *json = cJSON_ParseWithLength((const char *)sbx_bytes_data(&answer.body),
                                        sbx_bytes_size(&answer.body));
    sbx_http_answer_free(&answer);
    return json;
}

/* Quotes are written as ' here. */
static void script(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void script(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    static char text[65536];
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ck_assert_int_lt(size, (int)sizeof text);
    for (char *at = text; *at != '\0'; at++)
        *at = *at == '\'' ? '"' : *at;
    cJSON_Delete(tell("POST", "/_script", text));
}

static inline void open_gate(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/_go/%s", name);
    cJSON_Delete(tell("GET", path, NULL));
}

static inline void wait_for_requests(unsigned count, const char *path, const char *query)
{
    char ask[512];
    snprintf(ask, sizeof ask, "/_wait?count=%u&path=%s&query=%s", count, path, query);
    cJSON_Delete(tell("GET", ask, NULL));
}

static inline void wait_for_gone(unsigned count)
{
    char ask[64];
    snprintf(ask, sizeof ask, "/_gone?count=%u", count);
    cJSON_Delete(tell("GET", ask, NULL));
}

/* How many requests came whose query has that in it. */
static inline unsigned count_requests(const char *path, const char *query)
{
    cJSON *log = tell("GET", "/_log", NULL);
    const cJSON *each;
    unsigned count = 0;
    cJSON_ArrayForEach(each, cJSON_GetObjectItem(log, "requests"))
    {
        if (strncmp(sbx_json_text(each, "path"), path, strlen(path)) == 0 &&
            strstr(sbx_json_text(each, "query"), query) != NULL)
            count++;
    }
    cJSON_Delete(log);
    return count;
}

/* One field of the numbered request (from 0), as text; "headers/NAME" for a header. */
static inline const char *request_field(unsigned number, const char *field)
{
    static char texts[4][4096];
    static unsigned next;
    char *text = texts[next++ % 4];
    cJSON *log = tell("GET", "/_log", NULL);
    const cJSON *request = cJSON_GetArrayItem(cJSON_GetObjectItem(log, "requests"), (int)number);
    const cJSON *from = request;
    if (strncmp(field, "headers/", 8) == 0) {
        from = cJSON_GetObjectItem(request, "headers");
        field += 8;
    }
    snprintf(text, sizeof texts[0], "%s", sbx_json_text(from, field));
    cJSON_Delete(log);
    return text;
}

static inline void write_kubeconfig(const char *name, const char *cluster_fields,
                                    const char *user_fields)
{
    char path[128], text[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(text, sizeof text,
             "apiVersion: v1\nkind: Config\ncurrent-context: double\n"
             "clusters: [{name: double, cluster: {%s}}]\n"
             "users: [{name: double, user: {%s}}]\n"
             "contexts: [{name: double, context: {cluster: double, user: double, "
             "namespace: lab}}]\n",
             cluster_fields, user_fields);
    ck_assert_int_eq(sbx_file_replace(AT_FDCWD, path, text, strlen(text), 0600, NULL), SANDBOX_OK);
}

static inline void open_cluster(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    struct sbx_kubernetes_options options = {.kubeconfig = path};
    sandbox_status status = sbx_kubernetes_open(&options, &cluster, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", status == SANDBOX_OK ? "" : error.message);
    /* Nobody waits for a test. */
    cluster->pace.first_pause_ms = 1;
    cluster->pace.longest_pause_ms = 8;
}

static void set_up(void)
{
    memset(&error, 0, sizeof error);
    ck_assert_int_eq(sbx_http_start(&control, NULL), SANDBOX_OK);
}

static inline void set_up_cluster(void)
{
    char fields[128];
    set_up();
    snprintf(fields, sizeof fields, "server: 'http://127.0.0.1:%u', proxy-url: ''", ports[0]);
    write_kubeconfig("plain", fields, "token: secret-token");
    open_cluster("plain");
}

static void tear_down(void)
{
    sbx_kubernetes_close(cluster);
    cluster = NULL;
    sbx_http_stop(control);
}

static inline int run_suite(Suite *suite)
{
    int failed = 1;
    char line[128];
    if (start_double("kubernetes_double.py", folder, line, sizeof line) &&
        sscanf(line, "ready %u %u %u %u %u", &ports[0], &ports[1], &ports[2], &ports[3],
               &ports[4]) == 5) {
        SRunner *runner = srunner_create(suite);
        srunner_run_all(runner, CK_NORMAL);
        failed = srunner_ntests_failed(runner);
        srunner_free(runner);
    } else {
        printf("the double did not start\n");
    }
    end_double(folder);
    return failed != 0;
}

#endif
