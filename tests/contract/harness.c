/* Where contract and scenario tests run: see harness.h. */

#include "harness.h"
#include "core/driver.h"
#include "harness_cluster.h"
#include "transport/channel.h"
#include "util/bytes.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/wait.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATIENCE_MS 20000

static char uri[512];
static char directory[64];
static char *socket_path; /* that the double is told things by, or NULL */
static enum { LOCAL, MEMORY, CLUSTER } kind;
static pid_t owner; /* a forked test must not tear down what all of them use */

static bool settle_uri(const char *given)
{
    snprintf(directory, sizeof directory, "/tmp/sbx-test-XXXXXX");
    if (mkdtemp(directory) == NULL || chmod(directory, 0711) < 0)
        return false;
    const char *rest = strchr(given, ':');
    if (rest == NULL)
        return false;
    rest++;
    bool own = *rest != '/' && strncmp(given, "gke:", 4) != 0;
    int scheme = (int)(rest - given);
    snprintf(uri, sizeof uri, "%.*s%s%s%s", scheme, given, own ? directory : "",
             own ? (given[0] == 'm' ? "/socket" : "/state") : "", rest);
    /* The tests run with Debian's runsc and with a newer one. */
    const char *runsc = getenv("SANDBOX_RUNSC");
    size_t used = strlen(uri);
    if (strncmp(uri, "gvisor:", 7) == 0 && runsc != NULL && *runsc != '\0')
        snprintf(uri + used, sizeof uri - used, "%crunsc=%s", strchr(uri, '?') == NULL ? '?' : '&',
                 runsc);
    if (strncmp(uri, "memory:", 7) == 0) {
        kind = MEMORY;
        socket_path = sbx_copy(uri + 7);
        if (socket_path != NULL)
            socket_path[strcspn(socket_path, "?")] = '\0';
    }
    return true;
}

/*
 * The gVisor driver's base takes seconds to make and is the same for all: tests that run one after
 * the other hand it on in the directory SANDBOX_TEST_BASE. Whoever finds none there makes one.
 */
static void hand_on_base(bool back)
{
    const char *shared = getenv("SANDBOX_TEST_BASE");
    if (shared == NULL || *shared == '\0' || strncmp(uri, "gvisor:", 7) != 0)
        return;
    SBX_ON_EXIT(sbx_free_text) char *ours = sbx_format("%s/state/base", directory);
    SBX_ON_EXIT(sbx_free_text) char *theirs = sbx_format("%s/base", shared);
    if (ours != NULL && theirs != NULL)
        (void)rename(back ? ours : theirs, back ? theirs : ours);
}

/* A cluster of our own, unless the URI names one: then it is the caller's, and so is its
 * KUBECONFIG. */
static bool begin_cluster(void)
{
    kind = CLUSTER;
    if (strcmp(uri, "gke:") != 0)
        return true;
    snprintf(uri, sizeof uri, HARNESS_CLUSTER_URI);
    socket_path = sbx_format("%s/admin.sock", directory);
    return socket_path != NULL && harness_cluster_start(directory);
}

bool harness_begin(void)
{
    const char *given = getenv("SANDBOX_TEST_URI");
    owner = getpid();
    if (!settle_uri(given == NULL || *given == '\0' ? "memory:" : given)) {
        fprintf(stderr, "SANDBOX_TEST_URI is no URI, or no directory could be made in /tmp\n");
        return false;
    }
    if (strncmp(uri, "gke:", 4) == 0 && !begin_cluster()) {
        harness_end();
        return false;
    }
    const char *rest = NULL;
    const struct sbx_driver *driver = sbx_driver_of(uri, &rest);
    void *state = NULL;
    sandbox_error error = {0};
    struct sbx_wait wait = sbx_wait_alone(PATIENCE_MS);
    if (driver == NULL)
        snprintf(error.message, sizeof error.message, "there is no such driver");
    if (driver != NULL && driver->open(rest, &wait, &state, &error) == SANDBOX_OK) {
        driver->close(state);
        hand_on_base(false);
        return true;
    }
    fprintf(stderr, "not run on '%s': %s\n", uri, error.message);
    harness_end();
    return false;
}

void harness_end(void)
{
    if (getpid() != owner)
        return;
    if (kind == CLUSTER)
        harness_cluster_end();
    if (kind == MEMORY && socket_path != NULL) {
        cJSON_Delete(harness_ask("{\"do\":\"stop\"}"));
        SBX_ON_EXIT(sbx_free_text) char *lock_path = sbx_format("%s.lock", socket_path);
        SBX_ON_EXIT(sbx_close_fd) int lock = -1;
        struct sbx_wait wait = sbx_wait_alone(PATIENCE_MS);
        /* The platform holds it until it has ended. */
        if (lock_path != NULL)
            (void)sbx_file_lock(AT_FDCWD, lock_path, true, &wait, &lock, NULL);
    }
    hand_on_base(true);
    if (directory[0] != '\0')
        (void)sbx_tree_remove(AT_FDCWD, directory, NULL);
    sbx_free_text(&socket_path);
}

const char *harness_uri(void)
{
    return uri;
}

bool harness_is_memory(void)
{
    return kind == MEMORY;
}

bool harness_is_cluster(void)
{
    return kind == CLUSTER;
}

/* A snapshot of a Pod that is plain processes is those processes, stopped. */
bool harness_restores_again(void)
{
    const char *pods = getenv("SANDBOX_TEST_CLUSTER_PODS");
    return kind != CLUSTER || (pods != NULL && strcmp(pods, "gvisor") == 0);
}

const char *harness_user(void)
{
    return kind == CLUSTER ? "sandbox" : "root";
}

/* Reads one line; false if the connection ends before. */
static bool read_line(int fd, struct sbx_bytes *line, const struct sbx_wait *wait)
{
    for (;;) {
        uint8_t *room = sbx_bytes_room(line, 4096);
        if (room == NULL || sbx_wait_descriptor(wait, fd, POLLIN, NULL) != SANDBOX_OK)
            return false;
        ssize_t got = recv(fd, room, 4096, 0);
        if (got <= 0)
            return false;
        sbx_bytes_grow(line, (size_t)got);
        if (memchr(room, '\n', (size_t)got) != NULL)
            return true;
    }
}

static cJSON *ask(const char *text)
{
    struct sbx_wait wait = sbx_wait_alone(PATIENCE_MS);
    struct sbx_channel channel = SBX_CHANNEL;
    cJSON *answer = NULL;
    if (socket_path == NULL ||
        sbx_channel_connect_unix(&channel, socket_path, &wait, NULL) != SANDBOX_OK)
        return NULL;
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes line = SBX_BYTES(2u << 20);
    if (send(channel.write_fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text) &&
        send(channel.write_fd, "\n", 1, MSG_NOSIGNAL) == 1 &&
        read_line(channel.read_fd, &line, &wait))
        (void)sbx_json_parse(sbx_bytes_data(&line), sbx_bytes_size(&line), 2u << 20, &answer, NULL);
    sbx_channel_end(&channel);
    return answer;
}

cJSON *harness_ask(const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return ask(text);
}

void harness_tell(const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = ask(text);
    if (answer == NULL || !sbx_json_flag(answer, "ok")) {
        fprintf(stderr, "the double refused %s: %s\n", text,
                answer == NULL ? "no answer" : sbx_json_text(answer, "message"));
        abort();
    }
}

int harness_count(const char *what)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = harness_ask("{\"do\":\"state\"}");
    return answer == NULL ? -1 : (int)sbx_json_integer(answer, what);
}

int harness_calls(const char *operation)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = harness_ask("{\"do\":\"state\"}");
    const cJSON *calls = cJSON_GetObjectItemCaseSensitive(answer, "calls");
    return answer == NULL ? -1 : (int)sbx_json_integer(calls, operation);
}

/* Gone, or ended and waiting for whoever started it. */
static bool is_dead(void *data)
{
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)*(pid_t *)data);
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    size_t size = 0;
    if (sbx_file_read(AT_FDCWD, path, 4096, (uint8_t **)&text, &size, NULL) == SANDBOX_OK) {
        const char *after = strrchr(text, ')');
        state = after != NULL && after[1] == ' ' ? after[2] : '?';
    }
    return state == 'X' || state == 'Z';
}

void harness_kill_instance(const char *id, const char *incarnation)
{
    if (harness_is_memory()) {
        harness_tell("{\"do\":\"kill\",\"id\":\"%s\"}", id);
        return;
    }
    if (harness_is_cluster()) {
        harness_cluster_kill(id);
        return;
    }
    /* gvisor: boot id, pid and start time of the sandbox's process. */
    const char *colon = strchr(incarnation, ':');
    pid_t pid = colon == NULL ? 0 : (pid_t)strtol(colon + 1, NULL, 10);
    if (pid <= 1 || kill(pid, SIGKILL) < 0 || !harness_await(is_dead, &pid)) {
        fprintf(stderr, "no process could be killed by the incarnation '%s'\n", incarnation);
        abort();
    }
}

bool harness_await(bool (*is_true)(void *data), void *data)
{
    struct sbx_wait wait = sbx_wait_alone(PATIENCE_MS);
    while (!is_true(data)) {
        if (sbx_wait_pause(&wait, 5, NULL) != SANDBOX_OK)
            return is_true(data);
    }
    return true;
}
