/* Entropy, generation and hook of a workspace that was restored. */

#include "repair.h"
#include "guard.h"
#include "init.h"
#include "loop.h"
#include "processes.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENTROPY_MAX     512
#define HOOK            "/.sandbox/on-resume"
#define HOOK_MS         10000u
#define GENERATION_FILE "sandbox-generation"

static struct {
    pid_t pid;
    bool late;
    struct agent_timer *timer;
    void (*done)(int32_t code);
} hook;

static int write_generation(const char *path, uint32_t generation);
static int32_t start_hook(const struct agent_identity *identity, char *const *environment,
                          size_t environment_count, uint32_t generation, const char *path);
static void on_hook_late(void *user_data);

static void mix(const uint8_t *data, size_t size)
{
    SBX_ON_EXIT(sbx_close_fd) int fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, data, size) < 0)
        return; /* nothing else can be done with it */
}

/* Counted as entropy in a container or machine of its own; a host's is not ours to vouch for. */
int agent_repair_entropy(const uint8_t *data, size_t size)
{
    /* As the kernel has it: bits, bytes, and these. */
    uint32_t pool[2 + ENTROPY_MAX / sizeof(uint32_t)] = {(uint32_t)size * 8, (uint32_t)size};
    if (size == 0 || size > ENTROPY_MAX)
        return size == 0 ? 0 : EINVAL;
    mix(data, size);
    if (!agent_init_is_first())
        return 0;
    memcpy(pool + 2, data, size);
    SBX_ON_EXIT(sbx_close_fd) int fd = open("/dev/random", O_WRONLY | O_CLOEXEC);
    int number = fd < 0 || ioctl(fd, RNDADDENTROPY, pool) != 0 ? errno : 0;
    sbx_wipe(pool, sizeof pool);
    /* gVisor's has no pool that could repeat: each byte that it gives comes from its host. */
    return number == ENOTTY ? 0 : number;
}

/* A first process that is not root cannot write to /run. */
int agent_repair_generation(const char *seal_path, uint32_t generation)
{
    if (agent_init_is_first()) {
        int number = write_generation("/run/" GENERATION_FILE, generation);
        if (number != EACCES && number != EROFS && number != ENOENT)
            return number;
    }
    int parent = (int)(strrchr(seal_path, '/') - seal_path);
    SBX_ON_EXIT(sbx_free_text)
    char *path = sbx_format("%.*s/" GENERATION_FILE, parent, seal_path);
    return path == NULL ? ENOMEM : write_generation(path, generation);
}

static int write_generation(const char *path, uint32_t generation)
{
    SBX_ON_EXIT(sbx_free_text) char *fresh = sbx_format("%s.new", path);
    char text[16];
    if (fresh == NULL)
        return ENOMEM;
    int size = snprintf(text, sizeof text, "%u\n", generation);
    unlink(fresh);
    SBX_ON_EXIT(sbx_close_fd)
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno;
    bool good =
        write(fd, text, (size_t)size) == size && fchmod(fd, 0644) == 0 && rename(fresh, path) == 0;
    int number = good ? 0 : errno;
    if (!good)
        unlink(fresh);
    return number;
}

void agent_repair_hook(const struct agent_identity *identity, char *const *environment,
                       size_t environment_count, uint32_t generation, void (*done)(int32_t code))
{
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_format("%s" HOOK, identity->directory);
    int32_t code = path == NULL
                       ? AGENT_HOOK_NONE
                       : start_hook(identity, environment, environment_count, generation, path);
    if (hook.pid == 0) {
        done(code);
        return;
    }
    hook.done = done;
    hook.late = false;
    if (!agent_timer_start(&hook.timer, HOOK_MS, on_hook_late, NULL))
        on_hook_late(NULL);
}

/* Missing, or nothing that can be run: there is no hook. */
static bool is_program(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISREG(facts.st_mode) && (facts.st_mode & 0111) != 0;
}

static bool has_name(char *const *environment, size_t count, const char *entry)
{
    size_t size = strcspn(entry, "=") + 1;
    for (size_t at = 0; at < count; at++) {
        if (strncmp(environment[at], entry, size) == 0)
            return true;
    }
    return false;
}

static int32_t start_hook(const struct agent_identity *identity, char *const *environment,
                          size_t environment_count, uint32_t generation, const char *path)
{
    char number[64], home[sizeof identity->home + 8], user[sizeof identity->user + 8];
    char search[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char *usual[] = {search, home, user}, *words[] = {NULL, (char *)(uintptr_t)path, NULL};
    char **list = is_program(path) ? calloc(environment_count + 5, sizeof *list) : NULL;
    size_t used = 0;
    if (list == NULL)
        return AGENT_HOOK_NONE;
    snprintf(number, sizeof number, "SANDBOX_GENERATION=%u", generation);
    snprintf(home, sizeof home, "HOME=%s", identity->home);
    snprintf(user, sizeof user, "USER=%s", identity->user);
    /* Nobody else says what the number is; all else the workspace may. */
    list[used++] = number;
    for (size_t at = 0; at < environment_count; at++) {
        if (!has_name(list, 1, environment[at]))
            list[used++] = environment[at];
    }
    for (size_t at = 0; at < sizeof usual / sizeof *usual; at++) {
        if (!has_name(list, used, usual[at]))
            list[used++] = usual[at];
    }
    struct agent_spawn spawn = {.argv = words + 1,
                                .environment = list,
                                .directory = identity->directory,
                                .identity = identity,
                                .input = -1,
                                .output = 1,
                                .errors = 1,
                                .process_limit = agent_guard_process_limit(),
                                .file_limit = agent_guard_file_limit()};
    hook.pid = agent_spawn(&spawn);
    free(list);
    return 127; /* what a shell says of a program that cannot be run */
}

/* All of its group; what it has sent into a session of its own is the workspace's. */
static void on_hook_late(void *user_data)
{
    hook.late = true;
    kill(-hook.pid, SIGKILL);
    kill(hook.pid, SIGKILL);
}

bool agent_repair_reaped(pid_t pid, int status)
{
    if (hook.pid == 0 || pid != hook.pid)
        return false;
    hook.pid = 0;
    agent_timer_stop(&hook.timer);
    hook.done(hook.late             ? AGENT_HOOK_KILLED
              : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                    : WEXITSTATUS(status));
    return true;
}
