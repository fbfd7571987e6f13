/* Starting and ending the cluster double: see harness_cluster.h. */

#include "harness_cluster.h"
#include "harness.h"
#include "util/child.h"
#include "util/memory.h"
#include "util/place.h"
#include "util/wait.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 60000
/* The interpreter that has Debian's modules. */
#define PYTHON "/usr/bin/python3"

extern char **environ;

static struct sbx_child cluster = SBX_CHILD;
static int alive = -1; /* its standard input: it ends when this closes */

/* What it needs of the system; without these it is not run. */
static bool has_python(void)
{
    const char *const argv[] = {PYTHON, "-c", "import aiohttp, yaml, jsonschema", NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv,
                                        .env = (const char *const *)environ};
    struct sbx_wait wait = sbx_wait_alone(PATIENCE_MS);
    int code = -1;
    char *text = NULL;
    bool runs = sbx_child_run(&options, &wait, &code, &text, NULL) == SANDBOX_OK && code == 0;
    free(text);
    if (!runs)
        fprintf(stderr, "not run on a cluster: it needs python3 with aiohttp, yaml and jsonschema "
                        "(Debian: python3-aiohttp python3-yaml python3-jsonschema)\n");
    return runs;
}

static bool is_up_or_dead(void *data)
{
    siginfo_t ended = {0};
    return access(data, F_OK) == 0 ||
           (waitid(P_PID, (id_t)cluster.pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            ended.si_pid != 0);
}

bool harness_cluster_start(const char *directory)
{
    const char *doubles = getenv("SANDBOX_TEST_DOUBLES"),
               *pods = getenv("SANDBOX_TEST_CLUSTER_PODS");
    const char *runsc = getenv("SANDBOX_RUNSC");
    if (doubles == NULL || !has_python())
        return false;
    char *agent = NULL, *shim = NULL;
    int ends[2];
    SBX_ON_EXIT(sbx_free_text) char *program = sbx_format("%s/cluster/cluster.py", doubles);
    SBX_ON_EXIT(sbx_free_text) char *ready = sbx_format("%s/ready", directory);
    SBX_ON_EXIT(sbx_free_text) char *config = sbx_format("%s/kubeconfig", directory);
    if (sbx_place_find("sandbox-agent", &agent, NULL) != SANDBOX_OK ||
        sbx_place_find("sandbox-shim.so", &shim, NULL) != SANDBOX_OK || program == NULL ||
        ready == NULL || config == NULL || pipe2(ends, O_CLOEXEC) < 0) {
        fprintf(stderr, "not run on a cluster: the agent was not built\n");
        return false;
    }
    const char *const argv[] = {
        PYTHON,    program,   "--directory",
        directory, "--pods",  pods == NULL || *pods == '\0' ? "process" : pods,
        "--agent", agent,     "--shim",
        shim,      "--runsc", runsc == NULL || *runsc == '\0' ? "runsc" : runsc,
        NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv,
                                        .env = (const char *const *)environ};
    options.input = ends[0];
    options.errors = 2;
    sandbox_error error = {0};
    sandbox_status status = sbx_child_start(&cluster, &options, &error);
    close(ends[0]);
    alive = ends[1];
    free(agent);
    free(shim);
    if (status != SANDBOX_OK || !harness_await(is_up_or_dead, ready) || access(ready, F_OK) < 0) {
        /* What it needs is there, so this is a fault of it and no reason to skip. */
        fprintf(stderr, "the cluster double did not start: %s\n", error.message);
        harness_end();
        exit(1);
    }
    return setenv("KUBECONFIG", config, 1) == 0;
}

void harness_cluster_end(void)
{
    struct sbx_wait wait = sbx_wait_alone(PATIENCE_MS);
    int code = 0;
    sbx_close_fd(&alive);
    if (cluster.pid != 0)
        (void)sbx_child_wait(&cluster, &wait, &code, NULL);
    sbx_child_end(&cluster);
}

/* The one object of that name; free() the answer that holds it. */
static cJSON *look(const char *resource, const char *name)
{
    cJSON *answer =
        harness_ask("{\"do\":\"objects\",\"resource\":\"%s\",\"namespace\":\"workspaces\","
                    "\"name\":\"%s\"}",
                    resource, name);
    cJSON *object =
        cJSON_DetachItemFromArray(cJSON_GetObjectItemCaseSensitive(answer, "objects"), 0);
    cJSON_Delete(answer);
    return object;
}

static bool has_ended(void *data)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = look("pods", data);
    const char *phase = sbx_json_text(cJSON_GetObjectItemCaseSensitive(pod, "status"), "phase");
    return pod == NULL || strcmp(phase, "Failed") == 0 || strcmp(phase, "Succeeded") == 0;
}

void harness_cluster_kill(const char *id)
{
    SBX_ON_EXIT(sbx_free_text) char *claim_name = sbx_format("sandbox-%s", id);
    SBX_ON_EXIT(sbx_json_free) cJSON *claim = look("sandboxclaims", claim_name);
    const cJSON *status = cJSON_GetObjectItemCaseSensitive(claim, "status");
    SBX_ON_EXIT(sbx_free_text)
    char *pod =
        sbx_copy(sbx_json_text(cJSON_GetObjectItemCaseSensitive(status, "sandbox"), "name"));
    harness_tell("{\"do\":\"behave\",\"object\":\"%s\",\"how\":\"kill\"}", pod);
    if (!harness_await(has_ended, pod)) {
        fprintf(stderr, "the Pod of '%s' did not end\n", id);
        abort();
    }
}
