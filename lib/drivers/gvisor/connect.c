/*
 * Channels to the agent: a relay inside, started by runsc exec, whose stdin and stdout are pipes
 * of ours. Every relay lives under a shared lock of its workspace that it inherits.
 */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIPE_BYTES (1 << 20)
#define LOG_MAX    (1 << 20)
#define RETRY_MS   10

static sandbox_status start_relay(struct sbx_gvisor *driver, const char *id, int lock, int input,
                                  int output, struct sbx_child *relay, sandbox_error *error);
static void trim_log(struct sbx_gvisor *driver, const char *id);
static sandbox_status hear(const struct sbx_channel *channel, const struct sbx_wait *wait,
                           bool *heard, sandbox_error *error);
static bool take_ready(struct sbx_gvisor *driver, const char *id, struct sbx_channel *channel);
static bool keep_ready(struct sbx_gvisor *driver, const char *id,
                       const struct sbx_channel *channel);

sandbox_status sbx_gvisor_connect(void *state, const struct sbx_record *record,
                                  const struct sbx_wait *wait, struct sbx_channel *channel,
                                  sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    if (!sbx_gvisor_is_running(driver, record->id, record->incarnation))
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "no-instance",
                            "the recorded instance of '%s' does not run", record->name);
    if (take_ready(driver, record->id, channel))
        return SANDBOX_OK;
    return sbx_gvisor_relay(driver, record->id, wait, channel, error);
}

/*
 * The agent's side of HTTP/2 speaks first, so that a readable channel proves it. Until its
 * socket is there a relay ends at once; the next one is the wait.
 */
sandbox_status sbx_gvisor_await_agent(struct sbx_gvisor *driver, const char *id, pid_t sandbox,
                                      struct sbx_channel *early, const struct sbx_wait *wait,
                                      sandbox_error *error)
{
    for (;;) {
        struct sbx_channel channel = *early;
        bool heard = false, is_early = channel.read_fd >= 0;
        *early = (struct sbx_channel)SBX_CHANNEL;
        sandbox_status status =
            is_early ? SANDBOX_OK : sbx_gvisor_relay(driver, id, wait, &channel, error);
        if (status == SANDBOX_OK)
            status = hear(&channel, wait, &heard, error);
        if (!heard || !keep_ready(driver, id, &channel))
            sbx_channel_end(&channel);
        if (heard || status != SANDBOX_OK)
            return status;
        if (is_early)
            continue; /* it came before the agent was back */
        if (sbx_gvisor_started(sandbox) == 0)
            return sbx_fail_for(error, SANDBOX_FAILED, "no-start",
                                "the sandbox ended before its agent answered; does the agent "
                                "run there, and is memory_mib enough?");
        status = sbx_wait_pause(wait, RETRY_MS, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

void sbx_gvisor_ready_forget(struct sbx_gvisor *driver, const char *id)
{
    for (size_t n = 0; n < SBX_GVISOR_READY; n++) {
        struct sbx_channel channel = SBX_CHANNEL;
        struct sbx_gvisor_ready *ready = &driver->ready[n];
        pthread_mutex_lock(&driver->mutex);
        bool found = ready->id[0] != '\0' && (id == NULL || strcmp(ready->id, id) == 0);
        if (found) {
            channel = ready->channel;
            ready->id[0] = '\0';
        }
        pthread_mutex_unlock(&driver->mutex);
        if (found)
            sbx_channel_end(&channel);
    }
}

sandbox_status sbx_gvisor_relay(struct sbx_gvisor *driver, const char *id,
                                const struct sbx_wait *wait, struct sbx_channel *channel,
                                sandbox_error *error)
{
    char path[64];
    snprintf(path, sizeof path, "locks/%s.relay", id);
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    sandbox_status status = sbx_file_lock(driver->directory, path, false, wait, &lock, error);
    if (status != SANDBOX_OK)
        return status;

    /* Real pipes: over a socket pair a guest's blocking write would fail instead of waiting. */
    int up[2] = {-1, -1}, down[2] = {-1, -1};
    if (pipe2(up, O_CLOEXEC) < 0 || pipe2(down, O_CLOEXEC) < 0) {
        int number = errno;
        sbx_close_fd(&up[0]);
        sbx_close_fd(&up[1]);
        return sbx_fail_errno(error, number, "cannot make pipes to the agent");
    }
    SBX_ON_EXIT(sbx_close_fd) int their_input = up[0];
    SBX_ON_EXIT(sbx_close_fd) int our_output = up[1];
    SBX_ON_EXIT(sbx_close_fd) int our_input = down[0];
    SBX_ON_EXIT(sbx_close_fd) int their_output = down[1];
    /* Larger pipes carry more; where the host's limit forbids them, small ones carry all the same.
     */
    (void)fcntl(our_output, F_SETPIPE_SZ, PIPE_BYTES);
    (void)fcntl(our_input, F_SETPIPE_SZ, PIPE_BYTES);
    if (fcntl(our_output, F_SETFL, O_NONBLOCK) < 0 || fcntl(our_input, F_SETFL, O_NONBLOCK) < 0)
        return sbx_fail_errno(error, errno, "cannot make pipes to the agent");

    struct sbx_child relay = SBX_CHILD;
    status = start_relay(driver, id, lock, their_input, their_output, &relay, error);
    if (status != SANDBOX_OK)
        return status;
    *channel = (struct sbx_channel){.read_fd = sbx_take_fd(&our_input),
                                    .write_fd = sbx_take_fd(&our_output),
                                    .relay = relay,
                                    .lock_fd = sbx_take_fd(&lock)};
    return SANDBOX_OK;
}

static sandbox_status start_relay(struct sbx_gvisor *driver, const char *id, int lock, int input,
                                  int output, struct sbx_child *relay, sandbox_error *error)
{
    trim_log(driver, id);
    SBX_ON_EXIT(sbx_free_text) char *runsc = NULL;
    sandbox_status status = sbx_gvisor_runtime_of(driver, id, &runsc, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_free_text) char *root = sbx_format("--root=%s", driver->runsc_root);
    SBX_ON_EXIT(sbx_free_text)
    char *log = sbx_format("--log=%s/workspaces/%s/runsc.log", driver->settings.state, id);
    if (root == NULL || log == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a command line");
    const char *argv[] = {runsc,
                          root,
                          log,
                          "--log-format=json",
                          "exec",
                          "--user=0:0",
                          "--cwd=/",
                          id,
                          "/.sandbox/sandbox-agent",
                          "relay",
                          "/run/sandbox/agent.sock",
                          NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv, .inherit = &lock,
                                        .inherit_count = 1, .own_session = true};
    options.input = input;
    options.output = output;
    return sbx_child_start(relay, &options, error);
}

/* Every relay may add a line for years. */
static void trim_log(struct sbx_gvisor *driver, const char *id)
{
    char path[80];
    snprintf(path, sizeof path, "workspaces/%s/runsc.log", id);
    struct stat facts;
    if (fstatat(driver->directory, path, &facts, AT_SYMLINK_NOFOLLOW) < 0 ||
        facts.st_size <= LOG_MAX)
        return;
    SBX_ON_EXIT(sbx_close_fd)
    int fd = openat(driver->directory, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        (void)!ftruncate(fd, 0);
}

/* Until the agent speaks or the relay has ended. */
static sandbox_status hear(const struct sbx_channel *channel, const struct sbx_wait *wait,
                           bool *heard, sandbox_error *error)
{
    for (;;) {
        struct pollfd watched = {channel->read_fd, POLLIN, 0};
        int ready = poll(&watched, 1, sbx_wait_slice_ms(wait));
        if (ready < 0 && errno != EINTR)
            return sbx_fail_errno(error, errno, "cannot wait for the agent");
        if (ready > 0) {
            *heard = (watched.revents & POLLIN) != 0;
            return SANDBOX_OK;
        }
        sandbox_status status = sbx_wait_check(wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

/* Still open at its other end? */
static bool is_alive(const struct sbx_channel *channel)
{
    struct pollfd watched[2] = {{channel->read_fd, POLLIN, 0}, {channel->write_fd, POLLOUT, 0}};
    return poll(watched, 2, 0) > 0 && (watched[0].revents & POLLIN) != 0 &&
           (watched[0].revents & (POLLHUP | POLLERR)) == 0 &&
           (watched[1].revents & (POLLHUP | POLLERR)) == 0;
}

static bool take_ready(struct sbx_gvisor *driver, const char *id, struct sbx_channel *channel)
{
    for (size_t n = 0; n < SBX_GVISOR_READY; n++) {
        struct sbx_channel kept = SBX_CHANNEL;
        pthread_mutex_lock(&driver->mutex);
        bool found = strcmp(driver->ready[n].id, id) == 0;
        if (found) {
            kept = driver->ready[n].channel;
            driver->ready[n].id[0] = '\0';
        }
        pthread_mutex_unlock(&driver->mutex);
        if (found && is_alive(&kept)) {
            *channel = kept;
            return true;
        }
        if (found)
            sbx_channel_end(&kept);
    }
    return false;
}

static bool keep_ready(struct sbx_gvisor *driver, const char *id, const struct sbx_channel *channel)
{
    bool kept = false;
    pthread_mutex_lock(&driver->mutex);
    for (size_t n = 0; n < SBX_GVISOR_READY && !kept; n++) {
        struct sbx_gvisor_ready *ready = &driver->ready[n];
        if (ready->id[0] != '\0')
            continue;
        snprintf(ready->id, sizeof ready->id, "%s", id);
        ready->channel = *channel;
        kept = true;
    }
    pthread_mutex_unlock(&driver->mutex);
    return kept;
}
