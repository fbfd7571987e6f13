/*
 * The check for opencode, against the real server in a workspace, with a double of the model that
 * its agent asks. Runs where SANDBOX_TEST_OPENCODE names the program (tools/opencode gets it).
 */

#include "checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS 300000u /* gVisor over ptrace makes it slow */

static sandbox_client *client;
static sandbox_workspace *workspace;
static sandbox_process *model, *server;
static sandbox_opencode opencode;
static char answer[4096], who[200], project[256];

static const char config[] =
    "{\"model\":\"fake/fake-1\",\"small_model\":\"fake/fake-1\",\"autoupdate\":false,"
    "\"share\":\"disabled\",\"enabled_providers\":[\"fake\"],\"provider\":{\"fake\":{"
    "\"npm\":\"@ai-sdk/openai-compatible\",\"name\":\"Fake\",\"options\":{\"baseURL\":"
    "\"http://127.0.0.1:%hu/v1\",\"apiKey\":\"none\"},\"models\":{\"fake-1\":{\"name\":\"Fake 1\","
    "\"tool_call\":true,\"limit\":{\"context\":32000,\"output\":4096}}}}}}";

static const char *const settings[] = {"OPENCODE_DISABLE_MODELS_FETCH=1",
                                       "OPENCODE_DISABLE_AUTOUPDATE=1", NULL};

/* Starts a server and reads its output up to the number after `words`. */
static uint16_t start(const char *command, const char *words, sandbox_process **out)
{
    char said[8192] = "";
    size_t used = 0;
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command,
                                       .env = settings, .role = SANDBOX_ROLE_SERVICE,
                                       .when_full = SANDBOX_WHEN_FULL_DROP_OLDEST};
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = PATIENCE_MS};
    good(sandbox_process_start(workspace, &options, &call, out, &error));
    for (;;) {
        sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
        good(sandbox_process_next(*out, &call, &event, &error));
        ck_assert_msg(event.kind != SANDBOX_PROCESS_EXIT, "%s: it ended: %s", command, said);
        ck_assert_uint_lt(used + event.data_size, sizeof said);
        memcpy(said + used, event.data, event.data_size);
        used += event.data_size;
        said[used] = '\0';
        const char *number = strstr(said, words);
        if (number != NULL && strchr(number, '\n') != NULL)
            return (uint16_t)strtoul(number + strlen(words), NULL, 10);
    }
}

/* Runs a command that must succeed, and keeps what it says. */
static void run(const char *command)
{
    sandbox_process_result *result = NULL;
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = PATIENCE_MS};
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    good(sandbox_process_run(workspace, &options, NULL, &call, &result, &error));
    ck_assert_msg(result->exit.code == 0, "%s: %s", command, (const char *)result->errors);
    snprintf(answer, sizeof answer, "%s", (const char *)result->output);
    sandbox_process_result_free(result);
}

static void upload(const char *folder, const char *name, const char *as)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", folder, name);
    good(sandbox_file_upload(workspace, path, as, NULL, NULL, NULL, &error));
}

static void set_up(void)
{
    char text[sizeof config + 8];
    const char *doubles = getenv("SANDBOX_TEST_DOUBLES");
    contract_open("real-opencode", NULL, &client, &workspace);
    upload(doubles == NULL ? "tests/doubles" : doubles, "/model_double.py", "model.py");
    upload(getenv("SANDBOX_TEST_OPENCODE"), "", "bin/opencode");
    uint16_t port = start("exec python3 model.py", "ready ", &model);
    int size = snprintf(text, sizeof text, config, port);
    good(sandbox_file_write(workspace, "config/opencode/opencode.json", text, (size_t)size, NULL,
                            NULL, &error));
    run("mkdir home project && cd project && pwd | tr -d '\\n'");
    ck_assert_uint_lt(strlen(answer), sizeof project);
    memcpy(project, answer, strlen(answer) + 1);
    opencode = (sandbox_opencode){SANDBOX_OPENCODE};
    opencode.port = start("HOME=$PWD/home XDG_CONFIG_HOME=$PWD/config exec bin/opencode serve "
                          "--port 0 --hostname 127.0.0.1", "listening on http://127.0.0.1:",
                          &server);
}

static void tear_down(void)
{
    sandbox_process_free(server);
    sandbox_process_free(model);
    contract_close(client, workspace);
}

/* One request to the server, by a program inside, as a front end of the agent would make it. */
static void request(const char *method, const char *path, const char *body)
{
    char command[2048];
    snprintf(command, sizeof command,
             "exec curl --silent --show-error --fail --max-time 200 --noproxy '*' --request %s "
             "--header 'content-type: application/json' --data '%s' 'http://127.0.0.1:%u%s'",
             method, body, opencode.port, path);
    run(command);
}

/* The id with that prefix that the last answer gives. */
static void id_of_answer(const char *prefix, char id[64])
{
    const char *begin = strstr(answer, prefix);
    ck_assert_msg(begin != NULL && sscanf(begin, "%63[^\"]", id) == 1, "%s", answer);
}

static bool ask(void)
{
    bool active = false;
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = PATIENCE_MS};
    good(sandbox_check_opencode(workspace, &call, &opencode, &active, who, &error));
    return active;
}

/* A turn shows some time after it was asked for, and ends some time after its last word. */
static bool is_active(void *unused)
{
    return ask();
}

static bool is_idle(void *unused)
{
    return !ask();
}

static void see_turn(const char *id)
{
    ck_assert_msg(harness_await(is_active, NULL), "the turn was never seen");
    ck_assert_msg(strstr(who, id) != NULL, "%s", who);
    ck_assert(ask());
    good(sandbox_file_write(workspace, "go", "", 0, NULL, NULL, &error));
    ck_assert_msg(harness_await(is_idle, NULL), "the turn never ended: %s", who);
    good(sandbox_file_remove(workspace, "go", NULL, NULL, &error));
}

START_TEST(a_turn_is_seen_in_either_engine_and_idle_is_idle)
{
    char id[64], path[512], body[512];
    ck_assert_msg(!ask(), "%s", who);
    snprintf(path, sizeof path, "/session?directory=%s", project);
    request("POST", path, "{\"title\":\"one\"}");
    id_of_answer("ses_", id);
    ck_assert_msg(!ask(), "%s", who);
    snprintf(path, sizeof path, "/session/%s/prompt_async?directory=%s", id, project);
    request("POST", path, "{\"model\":{\"providerID\":\"fake\",\"modelID\":\"fake-1\"},"
                          "\"parts\":[{\"type\":\"text\",\"text\":\"HOLD\"}]}");
    see_turn(id);

    snprintf(body, sizeof body, "{\"location\":{\"directory\":\"%s\"}}", project);
    request("POST", "/api/session", body);
    id_of_answer("ses_", id);
    snprintf(path, sizeof path, "/api/session/%s/model", id);
    request("POST", path, "{\"model\":{\"id\":\"fake-1\",\"providerID\":\"fake\"}}");
    snprintf(path, sizeof path, "/api/session/%s/prompt", id);
    request("POST", path, "{\"prompt\":{\"text\":\"HOLD\"}}");
    see_turn(id);
}
END_TEST

/* `list`: where the terminals of one engine are; `place`: how it is told the directory. */
static void see_terminals(const char *list, const char *place)
{
    char id[64], path[512], one[512];
    snprintf(path, sizeof path, "%s?%s=%s", list, place, project);
    request("POST", path, "{\"command\":\"/bin/bash\",\"args\":[\"--norc\",\"--noprofile\"]}");
    ck_assert_msg(harness_await(is_idle, NULL), "a shell at its prompt is work: %s", who);
    request("POST", path, "{\"command\":\"/bin/bash\",\"args\":[\"--norc\",\"-ic\","
                          "\"tail -f /dev/null; true\"]}");
    id_of_answer("pty_", id);
    ck_assert_msg(harness_await(is_active, NULL), "the job was never seen");
    ck_assert_msg(strstr(who, id) != NULL && strstr(who, project) != NULL, "%s", who);
    snprintf(one, sizeof one, "%s/%s?%s=%s", list, id, place, project);
    request("DELETE", one, "");
    ck_assert_msg(harness_await(is_idle, NULL), "the job never ended: %s", who);
}

START_TEST(a_terminal_is_seen_while_a_job_runs_in_front)
{
    char path[512];
    snprintf(path, sizeof path, "/session?directory=%s", project);
    request("POST", path, "{\"title\":\"one\"}");
    see_terminals("/pty", "directory");
    see_terminals("/api/pty", "location%5Bdirectory%5D");
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("opencode");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 900);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_turn_is_seen_in_either_engine_and_idle_is_idle);
    tcase_add_test(all, a_terminal_is_seen_while_a_job_runs_in_front);
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
    return contract_main(make_suite);
}
