/* Instances: the real agent as a process of its own, started, watched, reached and killed. */

#include "places.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/wait.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define START_MS   15000 /* an agent that does not listen by then never will */
#define ATTEMPT_MS 2

static void name_incarnation(struct platform_place *place, uint64_t number);
static bool start_agent(struct platform_place *place, const char *program, sandbox_error *error);
static bool watch_agent(struct platform_place *place);
static void attempt(uv_timer_t *timer);
static void provisioned(struct platform_place *place);
static void agent_ended(uv_poll_t *poll, int status, int events);
static void end_watch(struct platform_agent *agent);

static uint64_t instance_counter; /* with pid and start time it makes an incarnation */

/* A fresh start finds no seal: the agent of a new instance is nobody's yet. */
static sandbox_status empty_seal(const struct platform_place *place, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *seals = sbx_format("%s/%s", platform.seals, place->id);
    if (seals == NULL)
        return sbx_fail(error, SANDBOX_UNAVAILABLE, "the platform has no memory");
    return sbx_tree_remove(AT_FDCWD, seals, error);
}

void platform_provision(struct platform_request *request)
{
    if (!platform_record_fence(request))
        return;
    struct platform_place *place = platform_place_take(request);
    if (place == NULL)
        return;
    if (place->state != INSTANCE_NONE || place->waiting != NULL || place->removers != NULL ||
        place->job != NULL) {
        platform_request_fail(request, SANDBOX_CONFLICT, "instance-exists",
                              "the workspace has an instance already");
        return;
    }
    sandbox_error error = {0};
    if (empty_seal(place, &error) != SANDBOX_OK)
        platform_request_fail(request, error.status, error.reason, "%s", error.message);
    else
        platform_instance_start(place, request, NULL);
}

void platform_instance_start(struct platform_place *place, struct platform_request *request,
                             struct platform_snapshot *memory)
{
    const char *agent = platform_request_text(request, "agent");
    sandbox_error error = {0};
    if (memory != NULL) {
        platform_thaw(place, memory);
        name_incarnation(place, ++instance_counter);
        place->state = INSTANCE_STARTING;
        if (request->strike.fault != PLATFORM_FAULT_SILENT)
            platform_agent_signal(&place->agent, SIGCONT);
        uv_timer_start(&place->agent.watch->attempt, attempt, 0, ATTEMPT_MS);
    } else if (!start_agent(place, *agent == '\0' ? platform.agent : agent, &error)) {
        platform_instance_clear(place);
        platform_request_fail(request, error.status, error.reason, "%s", error.message);
        return;
    }
    place->provision = request;
    place->give_up_ms = uv_now(&platform.loop) + START_MS;
}

static void name_incarnation(struct platform_place *place, uint64_t number)
{
    pid_t pid = place->agent.child.pid;
    snprintf(place->incarnation, sizeof place->incarnation, "memory-%" PRIu64 "-%ld-%" PRIu64,
             number, (long)pid, platform_start_time(pid));
}

/* The directory that the agent writes its seal into. */
static bool make_seal_directory(char *seal, sandbox_error *error)
{
    char *slash = strrchr(seal, '/');
    *slash = '\0';
    sandbox_status status = sbx_directory_make(AT_FDCWD, seal, 0700, error);
    *slash = '/';
    return status == SANDBOX_OK;
}

static bool start_agent(struct platform_place *place, const char *program, sandbox_error *error)
{
    struct platform_agent *agent = &place->agent;
    uint64_t number = ++instance_counter;
    agent->socket = sbx_format("%s/%" PRIu64, platform.agents, number);
    agent->log = sbx_format("%s/%" PRIu64 ".log", platform.agents, number);
    SBX_ON_EXIT(sbx_free_text) char *seal = sbx_format("%s/%s/seal", platform.seals, place->id);
    if (agent->socket == NULL || agent->log == NULL || seal == NULL)
        return sbx_fail(error, SANDBOX_UNAVAILABLE, "the platform has no memory") == SANDBOX_OK;
    if (!make_seal_directory(seal, error))
        return false;
    SBX_ON_EXIT(sbx_close_fd)
    int log = open(agent->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    const char *const argv[] = {program,       "serve",       "--socket",
                                agent->socket, "--workspace", place->directory,
                                "--seal",      seal,          NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv, .own_session = true,
                                        .die_with_parent = true};
    options.errors = log;
    if (sbx_child_start(&agent->child, &options, error) != SANDBOX_OK)
        return false;
    place->state = INSTANCE_STARTING;
    name_incarnation(place, number);
    if (watch_agent(place))
        return true;
    sbx_child_end(&agent->child);
    place->state = INSTANCE_STOPPED;
    return sbx_fail(error, SANDBOX_UNAVAILABLE, "the platform cannot watch an agent") == SANDBOX_OK;
}

static bool watch_agent(struct platform_place *place)
{
    struct agent_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return false;
    watch->death.data = watch->attempt.data = watch;
    if (uv_poll_init(&platform.loop, &watch->death, place->agent.child.pidfd) != 0) {
        free(watch);
        return false;
    }
    watch->open = 2;
    watch->place = place;
    place->agent.watch = watch;
    uv_timer_init(&platform.loop, &watch->attempt);
    uv_poll_start(&watch->death, UV_READABLE, agent_ended);
    uv_timer_start(&watch->attempt, attempt, ATTEMPT_MS, ATTEMPT_MS);
    return true;
}

static bool is_listening(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    SBX_ON_EXIT(sbx_close_fd)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
}

static void attempt(uv_timer_t *timer)
{
    struct agent_watch *watch = timer->data;
    struct platform_place *place = watch->place;
    if (is_listening(place->agent.socket)) {
        uv_timer_stop(timer);
        place->state = INSTANCE_RUNNING;
        provisioned(place);
    } else if (uv_now(&platform.loop) > place->give_up_ms) {
        uv_timer_stop(timer);
        snprintf(place->detail, sizeof place->detail, "the agent did not listen in time");
        platform_instance_kill(place);
    }
}

static void provisioned(struct platform_place *place)
{
    struct platform_request *request = sbx_take(place->provision);
    bool restored = request->operation->run == platform_restore;
    if (request->strike.fault == PLATFORM_FAULT_HALF_MADE) {
        if (!restored)
            platform_instance_kill(place);
        platform_request_fail(request, SANDBOX_UNAVAILABLE, "scripted",
                              "the platform was told to leave a half made instance");
        return;
    }
    if (request->strike.fault == PLATFORM_FAULT_SILENT)
        platform_agent_signal(&place->agent, SIGSTOP);
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddStringToObject(answer, "incarnation", place->incarnation);
    if (restored) {
        platform_evidence_begin(place, &request->strike);
        platform_evidence_tell(place, answer);
    }
    platform_request_answer(request, answer);
}

bool platform_instance_has_agent(const struct platform_place *place)
{
    return place->state == INSTANCE_STARTING || place->state == INSTANCE_RUNNING ||
           place->state == INSTANCE_ENDING;
}

void platform_instance_kill(struct platform_place *place)
{
    if (!platform_instance_has_agent(place))
        return;
    place->state = INSTANCE_ENDING;
    uv_timer_stop(&place->agent.watch->attempt);
    platform_agent_signal(&place->agent, SIGKILL);
}

void platform_kill_agent(const char *id)
{
    struct platform_place *place = platform_place_find(id);
    if (place != NULL)
        platform_instance_kill(place);
}

/* What the agent said last, for whoever wonders why it ended. */
static void last_words(const char *path, char words[96])
{
    char text[256] = "";
    words[0] = '\0';
    SBX_ON_EXIT(sbx_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    off_t room = (off_t)sizeof text - 1;
    ssize_t size = end <= 0 ? 0 : pread(fd, text, (size_t)room, end > room ? end - room : 0);
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r'))
        text[--size] = '\0';
    const char *newline = strrchr(text, '\n');
    snprintf(words, 96, "%s", newline == NULL ? text : newline + 1);
}

int platform_agent_reap(struct platform_agent *agent)
{
    end_watch(agent);
    int code = 0;
    struct sbx_wait wait = sbx_wait_alone(START_MS);
    if (sbx_child_wait(&agent->child, &wait, &code, NULL) != SANDBOX_OK)
        sbx_child_end(&agent->child);
    return code;
}

static void agent_ended(uv_poll_t *poll, int status, int events)
{
    struct agent_watch *watch = poll->data;
    struct platform_place *place = watch->place;
    if (watch->snapshot != NULL) {
        platform_frozen_ended(place, watch->snapshot);
        return;
    }
    bool wanted = place->state == INSTANCE_ENDING;
    int code = platform_agent_reap(&place->agent);
    place->state = INSTANCE_STOPPED;
    if (place->detail[0] == '\0') {
        char words[96];
        last_words(place->agent.log, words);
        snprintf(place->detail, sizeof place->detail,
                 code > 128       ? "the agent was ended by signal %d"
                 : *words != '\0' ? "the agent ended with code %d: %s"
                                  : "the agent ended with code %d",
                 code > 128 ? code - 128 : code, words);
    }
    platform_orphans_sweep();
    struct platform_request *request = sbx_take(place->provision);
    if (request != NULL) {
        bool discarded = wanted && place->waiting != NULL;
        platform_request_fail(request, discarded ? SANDBOX_CONFLICT : SANDBOX_FAILED,
                              discarded ? "stale-epoch" : "agent-ended",
                              "the instance did not start: %s", place->detail);
        if (!discarded)
            platform_instance_clear(place);
    }
    platform_place_proceed(place);
    platform_look_idle();
}

static void watch_closed(uv_handle_t *handle)
{
    struct agent_watch *watch = handle->data;
    if (--watch->open == 0)
        free(watch);
}

static void end_watch(struct platform_agent *agent)
{
    struct agent_watch *watch = sbx_take(agent->watch);
    if (watch == NULL)
        return;
    uv_close((uv_handle_t *)&watch->death, watch_closed);
    uv_close((uv_handle_t *)&watch->attempt, watch_closed);
}

void platform_agent_unlink(struct platform_agent *agent)
{
    if (agent->socket != NULL)
        unlink(agent->socket);
    if (agent->log != NULL)
        unlink(agent->log);
    sbx_free_text(&agent->socket);
    sbx_free_text(&agent->log);
}

void platform_instance_clear(struct platform_place *place)
{
    if (platform_instance_has_agent(place))
        return;
    platform_agent_unlink(&place->agent);
    place->state = INSTANCE_NONE;
    place->freezing = false;
    place->evidence = (struct platform_evidence){0};
    place->incarnation[0] = place->detail[0] = '\0';
    place->memory_place[0] = place->memory_snapshot[0] = '\0';
}

void platform_inspect(struct platform_request *request)
{
    struct platform_place *place = platform_place_find(platform_request_text(request, "id"));
    const char *presence = "absent", *incarnation = "", *detail = "";
    if (place != NULL && place->state != INSTANCE_NONE) {
        incarnation = place->incarnation;
        detail = place->detail;
        bool recorded = strcmp(incarnation, platform_request_text(request, "incarnation")) == 0;
        bool runs = place->state == INSTANCE_STARTING || place->state == INSTANCE_RUNNING;
        presence = !runs ? "stopped" : recorded ? "running" : "other";
    }
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddStringToObject(answer, "presence", presence);
    cJSON_AddStringToObject(answer, "incarnation", incarnation);
    cJSON_AddStringToObject(answer, "detail", detail);
    platform_request_answer(request, answer);
}

void platform_connect(struct platform_request *request)
{
    struct platform_place *place = platform_place_find(platform_request_text(request, "id"));
    if (place == NULL || place->state != INSTANCE_RUNNING ||
        strcmp(place->incarnation, platform_request_text(request, "incarnation")) != 0) {
        platform_request_fail(request, SANDBOX_UNAVAILABLE, "instance-gone",
                              "the recorded instance does not run");
        return;
    }
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddStringToObject(answer, "socket", place->agent.socket);
    platform_request_answer(request, answer);
}

bool platform_is_agent(pid_t pid)
{
    for (struct platform_place *place = platform_places(); place != NULL; place = place->next) {
        if (place->agent.child.pid == pid)
            return true;
        for (struct platform_snapshot *at = place->snapshots; at != NULL; at = at->next) {
            if (at->frozen.child.pid == pid)
                return true;
        }
    }
    return false;
}

size_t platform_instance_count(void)
{
    size_t count = 0;
    for (struct platform_place *place = platform_places(); place != NULL; place = place->next)
        count += place->state != INSTANCE_NONE;
    return count;
}

void platform_instances_end(void)
{
    for (struct platform_place *place = platform_places(); place != NULL; place = place->next) {
        platform_instance_kill(place);
        platform_frozen_kill(place);
    }
}

bool platform_instances_ended(void)
{
    for (struct platform_place *place = platform_places(); place != NULL; place = place->next) {
        if (platform_instance_has_agent(place) || place->removers != NULL ||
            platform_has_frozen(place) || (place->job != NULL && place->job->working))
            return false;
    }
    return platform_orphans_sweep() == 0;
}
