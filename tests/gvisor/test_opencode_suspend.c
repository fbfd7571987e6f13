/*
 * The real opencode as what runs in a workspace that is suspended: left alone while it works, and
 * the same sessions, files and changes when it comes back. Runs where SANDBOX_TEST_OPENCODE names
 * the program (tools/opencode gets it); the model that its agent asks is a double.
 */

#include "scene.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROJECT "/workspace/project"
#define PORT "4096"
#define MODEL_PORT "18080"

static sandbox_process *model, *server;

static const char config[] =
    "{\"model\":\"fake/fake-1\",\"small_model\":\"fake/fake-1\",\"autoupdate\":false,"
    "\"share\":\"disabled\",\"enabled_providers\":[\"fake\"],\"provider\":{\"fake\":{"
    "\"npm\":\"@ai-sdk/openai-compatible\",\"name\":\"Fake\",\"options\":{\"baseURL\":"
    "\"http://127.0.0.1:" MODEL_PORT "/v1\",\"apiKey\":\"none\"},\"models\":{\"fake-1\":{"
    "\"name\":\"Fake 1\",\"tool_call\":true,\"limit\":{\"context\":32000,\"output\":4096}}}}}}";

static void read_until(sandbox_process *process, const char *words)
{
    while (strstr(scene_read_line(process), words) == NULL)
        ;
}

static void start_servers(void)
{
    model = scene_start("exec python3 model.py " MODEL_PORT);
    read_until(model, "ready");
    server = scene_start("export OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_AUTOUPDATE=1; "
                         "exec bin/opencode serve --port " PORT " --hostname 127.0.0.1 2>&1");
    read_until(server, "listening on");
}

static void upload(const char *from, const char *to)
{
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = SANDBOX_FOREVER};
    good(sandbox_file_upload(workspace, from, to, NULL, &call, NULL, &error));
}

/* A project under version control, with a change that is not committed. */
static void set_up(void)
{
    char path[512];
    const char *const checks[] = {"opencode:" PORT, NULL};
    const char *doubles = getenv("SANDBOX_TEST_DOUBLES");
    sandbox_client_options place = {SANDBOX_CLIENT_OPTIONS, .uri = harness_uri()};
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "coder",
                                         .checks = checks};
    good(sandbox_client_open(&place, NULL, &client, &error));
    good(sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    scene_open("coder");
    snprintf(path, sizeof path, "%s/model_double.py", doubles == NULL ? "tests/doubles" : doubles);
    upload(path, "model.py");
    upload(getenv("SANDBOX_TEST_OPENCODE"), "bin/opencode");
    scene_put("opencode.json", config);
    scene_run("mkdir -p ~/.config/opencode project && mv opencode.json ~/.config/opencode && "
              "cd project && git init -q && echo first >notes && git add notes && "
              "git -c user.name=a -c user.email=a@b commit -qm one && echo second >>notes");
    start_servers();
}

static void tear_down(void)
{
    sandbox_process_free(server);
    sandbox_process_free(model);
    scene_close();
}

/* One request, by a program inside: it is no traffic through a port. */
static const char *request(const char *method, const char *path, const char *body)
{
    char command[2048];
    snprintf(command, sizeof command,
             "exec curl --silent --show-error --fail --max-time 300 --noproxy '*' --request %s "
             "--header 'content-type: application/json' --data '%s' 'http://127.0.0.1:" PORT "%s'",
             method, body, path);
    return scene_run(command);
}

static const char *get(const char *path)
{
    char command[1024];
    snprintf(command, sizeof command,
             "exec curl --silent --show-error --fail --max-time 300 --noproxy '*' "
             "'http://127.0.0.1:" PORT "%s'", path);
    return scene_run(command);
}

/* As often as need be: the test's own time is the limit. */
static void await(const char *path, const char *words)
{
    while (strstr(get(path), words) == NULL)
        ;
}

static void require_has(const char *text, const char *words)
{
    ck_assert_msg(strstr(text, words) != NULL, "no '%s' in %s", words, text);
}

/* The id with that prefix that an answer gives. */
static void find_id(const char *answer, const char *prefix, char id[64])
{
    const char *begin = strstr(answer, prefix);
    ck_assert_msg(begin != NULL && sscanf(begin, "%63[^\"]", id) == 1, "%s", answer);
}

/* ---- the two engines ---- */

struct engine {
    const char *busy; /* where a turn that is under way is said */
    void (*make)(char id[64]);
    const char *messages; /* of a session: printf() */
    const char *prompt, *body;
};

/* With a title of its own, or the model is asked for one, at a time that nobody knows. */
static void make_first(char id[64])
{
    find_id(request("POST", "/session?directory=" PROJECT, "{\"title\":\"one\"}"), "ses_", id);
}

static void make_second(char id[64])
{
    char path[128];
    find_id(request("POST", "/api/session", "{\"location\":{\"directory\":\"" PROJECT "\"}}"),
            "ses_", id);
    snprintf(path, sizeof path, "/api/session/%s/model", id);
    request("POST", path, "{\"model\":{\"id\":\"fake-1\",\"providerID\":\"fake\"}}");
}

static const struct engine engines[] = {
    {"/session/status?directory=" PROJECT, make_first, "/session/%s/message?directory=" PROJECT,
     "/session/%s/prompt_async?directory=" PROJECT,
     "{\"parts\":[{\"type\":\"text\",\"text\":\"HOLD\"}]}"},
    {"/api/session/active", make_second, "/api/session/%s/message", "/api/session/%s/prompt",
     "{\"prompt\":{\"text\":\"HOLD\"}}"},
};

/* `format` with the id in it, in a static place. */
static const char *path_of(const char *format, const char *id)
{
    static char path[256];
    snprintf(path, sizeof path, "%.*s%s%s", (int)strcspn(format, "%"), format, id,
             strchr(format, '%') + 2);
    return path;
}

/* A turn in the first engine; returns when it has ended. What the model is told is the answer. */
static const char *take_turn(const char *id, const char *text)
{
    char body[512];
    snprintf(body, sizeof body, "{\"parts\":[{\"type\":\"text\",\"text\":\"%s\"}]}", text);
    return request("POST", path_of(engines[0].messages, id), body);
}

/* ---- work is not disturbed ---- */

static void require_busy(const char *id)
{
    bad(SANDBOX_BUSY, sandbox_workspace_suspend(workspace, NULL, NULL, NULL, &error));
    ck_assert_str_eq(error.reason, "active");
    ck_assert_msg(strstr(error.message, id) != NULL && strstr(error.message, PROJECT) != NULL,
                  "%s", error.message);
    ck_assert_int_eq(scene_state(), SANDBOX_STATE_RUNNING);
}

static sandbox_idle_result suspend_idle(void)
{
    sandbox_idle_options options = {SANDBOX_IDLE_OPTIONS, .idle_ms = 1,
                                    .keep = SANDBOX_KEEP_MEMORY};
    sandbox_idle_result result = {SANDBOX_IDLE_RESULT};
    good(sandbox_client_suspend_idle(client, &options, NULL, &result, &error));
    ck_assert_uint_eq(result.failed, 0);
    return result;
}

START_TEST(a_turn_is_left_alone_and_an_idle_server_is_suspended)
{
    for (size_t n = 0; n < sizeof engines / sizeof engines[0]; n++) {
        const struct engine *engine = &engines[n];
        char id[64];
        engine->make(id);
        request("POST", path_of(engine->prompt, id), engine->body);
        read_until(model, "held");
        require_busy(id);
        ck_assert_uint_eq(suspend_idle().suspended, 0);
        ck_assert_int_eq(scene_state(), SANDBOX_STATE_RUNNING);
        require_has(get(engine->busy), id);
        scene_put("go", "");
        await(path_of(engine->messages, id), "\"finish\":\"stop\"");
        require_has(get(path_of(engine->messages, id)), "pong and");
        scene_run("rm go");
    }
    /* A turn shows a little longer than its last word. */
    while (suspend_idle().suspended == 0)
        ck_assert_int_eq(scene_state(), SANDBOX_STATE_RUNNING);
    ck_assert_int_eq(scene_state(), SANDBOX_STATE_SUSPENDED);
    ck_assert_int_eq(scene_resume(NULL).kept, SANDBOX_KEEP_MEMORY);
    require_has(get("/session?directory=" PROJECT), "ses_");
}
END_TEST

START_TEST(a_job_in_a_terminal_is_left_alone)
{
    static const char *const lists[] = {"/pty?directory=" PROJECT,
                                        "/api/pty?location%5Bdirectory%5D=" PROJECT};
    static const char shell[] = "{\"command\":\"/bin/bash\",\"args\":[\"--norc\",\"-ic\","
                                "\"echo >/workspace/begun; tail -f /dev/null; true\"]}";
    char id[64], one[256];
    make_first(id);
    for (size_t n = 0; n < sizeof lists / sizeof lists[0]; n++) {
        find_id(request("POST", lists[n], shell), "pty_", id);
        scene_run("until [ -e begun ] && pgrep -x tail; do :; done; rm begun");
        require_busy(id);
        size_t path = strcspn(lists[n], "?");
        snprintf(one, sizeof one, "%.*s/%s%s", (int)path, lists[n], id, lists[n] + path);
        request("DELETE", one, "");
    }
    while (suspend_idle().suspended == 0)
        ck_assert_int_eq(scene_state(), SANDBOX_STATE_RUNNING);
}
END_TEST

/* ---- what comes back is the same ---- */

enum { SESSIONS, MESSAGES, DIFF, FILES, LOOKS };

/* What somebody sees who looks at it, all of it in opencode's and git's own words. */
static void look(const char *id, char *seen[LOOKS])
{
    seen[SESSIONS] = strdup(get("/session?directory=" PROJECT));
    seen[MESSAGES] = strdup(get(path_of(engines[0].messages, id)));
    seen[DIFF] = strdup(get(path_of("/session/%s/diff?directory=" PROJECT, id)));
    seen[FILES] = strdup(scene_run("cd project && git diff && git status --porcelain && "
                                   "sha256sum notes more"));
}

static void free_looks(char *seen[LOOKS])
{
    for (size_t n = 0; n < LOOKS; n++)
        free(seen[n]);
}

/* The server writes some things a little after a turn has ended: what stays is what counts. */
static void look_until_still(const char *id, char *seen[LOOKS])
{
    bool still = false;
    look(id, seen);
    while (!still) {
        char *next[LOOKS];
        look(id, next);
        still = true;
        for (size_t n = 0; n < LOOKS; n++)
            still = still && strcmp(seen[n], next[n]) == 0;
        free_looks(seen);
        memcpy(seen, next, sizeof next);
    }
}

static void require_same(const char *id, char *before[LOOKS])
{
    char *after[LOOKS];
    look(id, after);
    for (size_t n = 0; n < LOOKS; n++)
        ck_assert_str_eq(before[n], after[n]);
    free_looks(after);
}

/* A028, A076, A079: the model is told what the restored file holds, and another change is made. */
static void work_on(const char *id, const char *round, char *before[LOOKS])
{
    char text[128];
    require_same(id, before);
    require_has(take_turn(id, "RUN cat notes"), "it says: first\\nsecond\\nby the agent");
    snprintf(text, sizeof text, "RUN echo %s >>more; cat more", round);
    require_has(take_turn(id, text), round);
    free_looks(before);
    look_until_still(id, before);
}

START_TEST(what_comes_back_has_the_same_sessions_files_and_changes)
{
    char id[64];
    char *before[LOOKS];
    make_first(id);
    take_turn(id, "RUN echo by the agent >>notes; echo new >more");
    await(path_of(engines[0].messages, id), "+by the agent");
    look_until_still(id, before);
    require_has(before[FILES], "+second\n+by the agent");
    for (int n = 0; n < 2; n++) { /* what was parked once is parked again */
        sandbox_suspend_result slept = scene_suspend(SANDBOX_KEEP_MEMORY);
        ck_assert_int_eq(slept.kept, SANDBOX_KEEP_MEMORY);
        ck_assert_int_eq(slept.parked > 0, scene_runsc_is_old());
        scene_resume(NULL);
        work_on(id, n == 0 ? "once" : "twice", before);
    }
    ck_assert_int_eq(scene_suspend(SANDBOX_KEEP_FILES).kept, SANDBOX_KEEP_FILES);
    scene_resume(NULL);
    sandbox_process_free(server);
    sandbox_process_free(model);
    start_servers();
    work_on(id, "thrice", before);
    scene_require_file("project/more", "new\nonce\ntwice\nthrice\n");
    free_looks(before);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("opencode, suspended");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 900);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_turn_is_left_alone_and_an_idle_server_is_suspended);
    tcase_add_test(all, a_job_in_a_terminal_is_left_alone);
    tcase_add_test(all, what_comes_back_has_the_same_sessions_files_and_changes);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    const char *program = getenv("SANDBOX_TEST_OPENCODE");
    if (program == NULL || *program == '\0') {
        fprintf(stderr, "not run: SANDBOX_TEST_OPENCODE names no opencode; tools/opencode gets "
                        "one\n");
        return HARNESS_SKIP;
    }
    return scene_main(make_suite);
}
