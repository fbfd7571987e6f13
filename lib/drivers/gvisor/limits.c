/*
 * Limits by the host's control groups, v1 and v2 alike. runsc is told to leave them alone: the
 * driver makes a group for each workspace and starts runsc inside it, so that everything of the
 * sandbox counts.
 */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CONTROL   "/sys/fs/cgroup"
#define PERIOD_US 100000u

static void probe_unified(struct sbx_gvisor_limits *out);
static bool has_word(const char *text, const char *word);
static bool make_group(const char *group);
static bool has_file(const char *group, const char *name);
static bool write_file(const char *group, const char *name, const char *text);
static bool read_file(const char *group, const char *name, char *text, size_t size);
static void kill_members(const char *group);
static sandbox_status remove_group(const char *group, const struct sbx_wait *wait,
                                   sandbox_error *error);

void sbx_gvisor_limits_probe(struct sbx_gvisor_limits *out)
{
    *out = (struct sbx_gvisor_limits){0};
    struct statfs facts;
    out->unified = statfs(CONTROL, &facts) == 0 && facts.f_type == CGROUP2_SUPER_MAGIC;
    if (out->unified) {
        probe_unified(out);
        return;
    }
    snprintf(out->memory_group, sizeof out->memory_group, CONTROL "/memory/libsandbox");
    snprintf(out->cpu_group, sizeof out->cpu_group, CONTROL "/cpu/libsandbox");
    out->memory =
        make_group(out->memory_group) && has_file(out->memory_group, "memory.limit_in_bytes");
    out->cpu = make_group(out->cpu_group) && has_file(out->cpu_group, "cpu.cfs_quota_us");
}

static sandbox_status set_memory(const struct sbx_gvisor_limits *limits, const char *group,
                                 uint32_t mib, sandbox_error *error)
{
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%" PRIu64, (uint64_t)mib << 20);
    const char *limit = limits->unified ? "memory.max" : "memory.limit_in_bytes";
    if (!make_group(group) || !write_file(group, limit, bytes))
        return sbx_fail_errno(error, errno, "cannot limit memory in '%s'", group);
    /* Swap must not stretch the limit, and no sandbox goes on without one of its processes. */
    if (limits->unified) {
        (void)write_file(group, "memory.swap.max", "0");
        (void)write_file(group, "memory.oom.group", "1");
    } else {
        (void)write_file(group, "memory.memsw.limit_in_bytes", bytes);
    }
    return SANDBOX_OK;
}

static sandbox_status set_cpu(const struct sbx_gvisor_limits *limits, const char *group,
                              uint32_t millis, sandbox_error *error)
{
    uint64_t quota_us = (uint64_t)millis * PERIOD_US / 1000;
    if (quota_us < 1000)
        quota_us = 1000; /* the kernel takes no less: a hundredth of a processor */
    char text[64];
    bool set = make_group(group);
    if (limits->unified) {
        snprintf(text, sizeof text, "%" PRIu64 " %u", quota_us, PERIOD_US);
        set = set && write_file(group, "cpu.max", text);
    } else {
        snprintf(text, sizeof text, "%u", PERIOD_US);
        set = set && write_file(group, "cpu.cfs_period_us", text);
        snprintf(text, sizeof text, "%" PRIu64, quota_us);
        set = set && write_file(group, "cpu.cfs_quota_us", text);
    }
    return set ? SANDBOX_OK
               : sbx_fail_errno(error, errno, "cannot limit processor time in '%s'", group);
}

sandbox_status sbx_gvisor_limits_make(const struct sbx_gvisor_limits *limits,
                                      const struct sbx_record *record, char memory_group[320],
                                      char cpu_group[320], sandbox_error *error)
{
    memory_group[0] = cpu_group[0] = '\0';
    if (record->disk_mib != 0)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-disk-limit",
                            "the gvisor driver cannot enforce disk_mib; leave it out");
    if (record->cpu_millis != 0 && !limits->cpu)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-cpu-limit",
                            "cpu_millis cannot be enforced here: the host's cpu control group "
                            "cannot be written");
    if (record->memory_mib != 0 && record->memory_mib != SBX_GVISOR_DEFAULT_MEMORY_MIB &&
        !limits->memory)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-memory-limit",
                            "memory_mib cannot be enforced here: the host's memory control group "
                            "cannot be written");

    sandbox_status status = SANDBOX_OK;
    if (record->memory_mib != 0 && limits->memory) {
        snprintf(memory_group, 320, "%s/%s", limits->memory_group, record->id);
        status = set_memory(limits, memory_group, record->memory_mib, error);
    }
    if (status == SANDBOX_OK && record->cpu_millis != 0) {
        snprintf(cpu_group, 320, "%s/%s", limits->cpu_group, record->id);
        status = set_cpu(limits, cpu_group, record->cpu_millis, error);
    }
    return status;
}

sandbox_status sbx_gvisor_limits_remove(const struct sbx_gvisor_limits *limits, const char *id,
                                        const struct sbx_wait *wait, sandbox_error *error)
{
    const char *const parents[] = {limits->memory_group, limits->cpu_group};
    for (size_t n = 0; n < 2; n++) {
        char group[320];
        if (parents[n][0] == '\0')
            continue;
        snprintf(group, sizeof group, "%s/%s", parents[n], id);
        sandbox_status status = remove_group(group, wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
    return SANDBOX_OK;
}

uint64_t sbx_gvisor_limits_killed(const struct sbx_gvisor_limits *limits, const char *id)
{
    char group[320], text[1024];
    snprintf(group, sizeof group, "%s/%s", limits->memory_group, id);
    if (!read_file(group, limits->unified ? "memory.events" : "memory.oom_control", text,
                   sizeof text))
        return 0;
    const char *at = strstr(text, "oom_kill ");
    return at == NULL ? 0 : strtoull(at + strlen("oom_kill "), NULL, 10);
}

static void probe_unified(struct sbx_gvisor_limits *out)
{
    static const char group[] = CONTROL "/libsandbox";
    char controllers[1024];
    if (!make_group(group))
        return;
    /* Whoever manages the host has mostly switched them on already. */
    (void)write_file(CONTROL, "cgroup.subtree_control", "+memory");
    (void)write_file(CONTROL, "cgroup.subtree_control", "+cpu");
    (void)write_file(group, "cgroup.subtree_control", "+memory");
    (void)write_file(group, "cgroup.subtree_control", "+cpu");
    if (!read_file(group, "cgroup.subtree_control", controllers, sizeof controllers))
        return;
    snprintf(out->memory_group, sizeof out->memory_group, "%s", group);
    snprintf(out->cpu_group, sizeof out->cpu_group, "%s", group);
    out->memory = has_word(controllers, "memory");
    out->cpu = has_word(controllers, "cpu");
}

/* "cpu" is not in "cpuset io". */
static bool has_word(const char *text, const char *word)
{
    while (*text != '\0') {
        size_t size = strcspn(text, " \n");
        if (size == strlen(word) && memcmp(text, word, size) == 0)
            return true;
        text += size + (text[size] != '\0');
    }
    return false;
}

static bool make_group(const char *group)
{
    return mkdir(group, 0755) == 0 || (errno == EEXIST && access(group, W_OK) == 0);
}

static bool has_file(const char *group, const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", group, name);
    return access(path, W_OK) == 0;
}

static bool write_file(const char *group, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", group, name);
    SBX_ON_EXIT(sbx_close_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    errno = sbx_write_all(fd, text, strlen(text));
    return errno == 0;
}

static bool read_file(const char *group, const char *name, char *text, size_t size)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", group, name);
    SBX_ON_EXIT(sbx_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);
    if (got < 0)
        return false;
    text[got] = '\0';
    return true;
}

/* The group is this workspace's alone: whoever is in it belongs to it, and is its leftover. */
static void kill_members(const char *group)
{
    char text[4096];
    if (!read_file(group, "cgroup.procs", text, sizeof text))
        return;
    for (char *at = text, *end; *at != '\0'; at = end) {
        long pid = strtol(at, &end, 10);
        if (end == at)
            return;
        if (pid > 1 && (pid_t)pid != getpid())
            kill((pid_t)pid, SIGKILL);
        while (*end == '\n')
            end++;
    }
}

static sandbox_status remove_group(const char *group, const struct sbx_wait *wait,
                                   sandbox_error *error)
{
    for (;;) {
        if (rmdir(group) == 0 || errno == ENOENT || errno == ENOTDIR)
            return SANDBOX_OK;
        if (errno != EBUSY)
            return sbx_fail_errno(error, errno, "cannot remove the control group '%s'", group);
        kill_members(group);
        /* A group is busy for a moment after its last process has ended; nothing tells when. */
        sandbox_status status = sbx_wait_pause(wait, 5, error);
        if (status != SANDBOX_OK)
            return status;
    }
}
