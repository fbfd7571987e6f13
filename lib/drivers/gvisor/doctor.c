/* What `sandbox doctor` says of this host: what is missing, what is limited, and the remedy. */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/place.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#define DISK_LOW_MIB       1024
#define DISK_SNAPSHOTS_MIB 8192
#define MEMORY_LOW_MIB     1024

static void look_at_root(struct sbx_findings_sink *sink);
static void look_at_runsc(const struct sbx_gvisor_settings *settings, const struct sbx_wait *wait,
                          struct sbx_findings_sink *sink);
static void look_at_kernel(struct sbx_findings_sink *sink);
static void look_at_state(const char *state, struct sbx_findings_sink *sink);
static void look_at_place(const char *state, struct sbx_findings_sink *sink);
static void look_at_disk(const char *path, const struct statvfs *facts,
                         struct sbx_findings_sink *sink);
static void look_at_base(const char *path, struct sbx_findings_sink *sink);
static void look_at_memory(struct sbx_findings_sink *sink);
static void look_at_limits(struct sbx_findings_sink *sink);
static void look_at_programs(const struct sbx_gvisor_settings *settings,
                             struct sbx_findings_sink *sink);

sandbox_status sbx_gvisor_examine(const char *rest, const struct sbx_wait *wait,
                                  struct sbx_findings_sink *sink, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_gvisor_settings_clear) struct sbx_gvisor_settings settings = {0};
    sandbox_status status = sbx_gvisor_settings_read(rest, &settings, error);
    if (status != SANDBOX_OK)
        return status;
    look_at_root(sink);
    look_at_runsc(&settings, wait, sink);
    look_at_kernel(sink);
    look_at_state(settings.state, sink);
    look_at_place(settings.state, sink);
    look_at_memory(sink);
    look_at_limits(sink);
    look_at_programs(&settings, sink);
    return sbx_wait_check(wait, error);
}

static void look_at_root(struct sbx_findings_sink *sink)
{
    if (geteuid() == 0) {
        sbx_found(sink, SANDBOX_SEVERITY_GOOD, "root", "", "running as root");
        return;
    }
    sbx_found(sink, SANDBOX_SEVERITY_PROBLEM, "root", "run it as root, for example with sudo",
              "not root (user %u): the driver makes mounts and control groups, keeps its state "
              "root's alone, and runsc restores no snapshot of a rootless sandbox",
              (unsigned)geteuid());
}

static void look_at_version(const struct sbx_gvisor_runsc *runsc, const char *path,
                            struct sbx_findings_sink *sink)
{
    sbx_found(sink, SANDBOX_SEVERITY_GOOD, "runsc", "", "%s, version %s", path, runsc->version);
    if (runsc->needs_shim)
        sbx_found(
            sink, SANDBOX_SEVERITY_NOTE, "runsc", "install a newer gVisor release",
            "this version refuses what ls and stat ask of the kernel; a preloaded library mends "
            "that for dynamically linked programs, others may fail");
    if (!runsc->has_systrap)
        sbx_found(sink, SANDBOX_SEVERITY_NOTE, "runsc", "install a newer gVisor release",
                  "this version has no systrap platform: system calls are several times slower");
    if (runsc->needs_shim)
        sbx_found(
            sink, SANDBOX_SEVERITY_NOTE, "snapshots", "install a newer gVisor release",
            "this version cannot keep a TCP socket in an epoll set: dynamically linked servers "
            "are taken out of theirs while they are suspended; with others only the files can be "
            "kept");
    else
        sbx_found(sink, SANDBOX_SEVERITY_GOOD, "snapshots", "",
                  "running processes can be kept, servers too");
}

static void look_at_runsc(const struct sbx_gvisor_settings *settings, const struct sbx_wait *wait,
                          struct sbx_findings_sink *sink)
{
    SBX_ON_EXIT(sbx_free_text) char *path = NULL;
    struct sbx_gvisor_runsc runsc = {0};
    sandbox_error detail = {0};
    sandbox_status status = sbx_gvisor_runsc_find(settings->runsc, &path, &detail);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_runsc_learn(path, wait, &runsc, &detail);
    if (status != SANDBOX_OK) {
        sbx_found(sink, SANDBOX_SEVERITY_PROBLEM, "runsc",
                  "apt-get install runsc, or give the path of one with runsc=PATH", "%s",
                  detail.message);
        return;
    }
    look_at_version(&runsc, path, sink);

    const char *platform = settings->platform == NULL ? runsc.platform : settings->platform;
    bool kvm = access("/dev/kvm", R_OK | W_OK) == 0;
    if (strcmp(platform, "kvm") == 0 && !kvm)
        sbx_found(sink, SANDBOX_SEVERITY_PROBLEM, "platform", "choose platform=systrap or ptrace",
                  "the platform kvm was asked for, and /dev/kvm cannot be used");
    else if (strcmp(platform, "systrap") == 0 && !runsc.has_systrap)
        sbx_found(sink, SANDBOX_SEVERITY_PROBLEM, "platform",
                  "choose platform=ptrace or a newer runsc",
                  "the platform systrap was asked for, and this runsc has none");
    else
        sbx_found(sink, SANDBOX_SEVERITY_GOOD, "platform", "", "%s", platform);
    if (!kvm)
        sbx_found(sink, SANDBOX_SEVERITY_NOTE, "kvm", "",
                  "/dev/kvm cannot be used; it is not needed");
}

static bool has_line(const char *path, const char *word)
{
    FILE *file = fopen(path, "re");
    char line[256];
    bool found = false;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = strstr(line, word) != NULL;
    if (file != NULL)
        fclose(file);
    return found;
}

static void look_at_kernel(struct sbx_findings_sink *sink)
{
    struct utsname name;
    int major = 0, minor = 0;
    if (uname(&name) < 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2)
        return;
    /* 5.9 has close_range(), the newest thing that the driver asks for; pidfds came before. */
    bool new_enough = major > 5 || (major == 5 && minor >= 9);
    sbx_found(sink, new_enough ? SANDBOX_SEVERITY_GOOD : SANDBOX_SEVERITY_PROBLEM, "kernel",
              new_enough ? "" : "use Linux 5.9 or later", "Linux %s", name.release);
    if (!has_line("/proc/filesystems", "\toverlay\n") && access("/sys/module/overlay", F_OK) < 0)
        sbx_found(sink, SANDBOX_SEVERITY_NOTE, "overlay", "modprobe overlay",
                  "the kernel has not loaded its overlay file system, which workspaces start on");
    if (access("/proc/self/ns/user", F_OK) < 0)
        sbx_found(sink, SANDBOX_SEVERITY_NOTE, "namespaces", "",
                  "the kernel has no user namespaces; runsc isolates without them");
}

static void look_at_state(const char *state, struct sbx_findings_sink *sink)
{
    struct stat facts;
    if (stat(state, &facts) < 0) {
        if (errno == ENOENT)
            sbx_found(sink, SANDBOX_SEVERITY_GOOD, "state", "", "%s will be made", state);
        else
            sbx_found(sink, SANDBOX_SEVERITY_PROBLEM, "state",
                      "choose another directory in the URI", "%s cannot be looked at", state);
        return;
    }
    if (!S_ISDIR(facts.st_mode))
        sbx_found(sink, SANDBOX_SEVERITY_PROBLEM, "state", "choose another directory in the URI",
                  "%s is not a directory", state);
    else if (facts.st_uid != 0 || (facts.st_mode & 022) != 0)
        sbx_found(sink, SANDBOX_SEVERITY_PROBLEM, "state", "chown root and chmod 700 it",
                  "%s belongs to or can be written by others", state);
    else
        sbx_found(sink, SANDBOX_SEVERITY_GOOD, "state", "", "%s", state);
}

/* Where the directory is not made yet, the nearest one above it tells. */
static void look_at_place(const char *state, struct sbx_findings_sink *sink)
{
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_copy(state);
    struct statvfs facts;
    while (path != NULL && statvfs(path, &facts) < 0) {
        char *slash = strrchr(path, '/');
        if (slash == NULL || path[1] == '\0')
            return;
        slash[slash == path ? 1 : 0] = '\0';
    }
    if (path == NULL)
        return;
    if ((facts.f_flag & ST_NOEXEC) != 0)
        sbx_found(sink, SANDBOX_SEVERITY_PROBLEM, "state",
                  "remount it exec, or choose another directory in the URI",
                  "%s is mounted noexec, and the copy of runsc that workspaces run on lies there",
                  path);
    look_at_disk(path, &facts, sink);
    look_at_base(path, sink);
}

static void look_at_disk(const char *path, const struct statvfs *facts,
                         struct sbx_findings_sink *sink)
{
    uint64_t free_mib = (uint64_t)facts->f_bavail * facts->f_frsize >> 20;
    bool low = free_mib < DISK_LOW_MIB;
    sbx_found(sink, low ? SANDBOX_SEVERITY_PROBLEM : SANDBOX_SEVERITY_GOOD, "disk",
              low ? "free some space, or choose another state directory" : "",
              "%" PRIu64 " MiB free under %s", free_mib, path);
    if (!low && free_mib < DISK_SNAPSHOTS_MIB)
        sbx_found(
            sink, SANDBOX_SEVERITY_NOTE, "disk", "free some space, or keep fewer snapshots",
            "a snapshot takes as much room as the memory and files of its workspace; where that "
            "is not free, suspending is refused");
    sbx_found(sink, SANDBOX_SEVERITY_NOTE, "disk", "keep an eye on the free space",
              "disk_mib is not enforced by this driver");
}

static void look_at_base(const char *path, struct sbx_findings_sink *sink)
{
    SBX_ON_EXIT(sbx_close_fd) int state = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    SBX_ON_EXIT(sbx_close_fd) int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state < 0 || root < 0)
        return;
    if (sbx_gvisor_farm_is_possible(state, root, "/"))
        sbx_found(sink, SANDBOX_SEVERITY_GOOD, "base", "",
                  "programs of this host are linked: an upgrade leaves workspaces as they are");
    else
        sbx_found(
            sink, SANDBOX_SEVERITY_NOTE, "base",
            "put the state directory on the file system of /usr, not an overlay, or use images",
            "programs of this host cannot be linked from %s: workspaces see them as they are, and "
            "what was suspended before an upgrade of the host cannot be resumed after it",
            path);
}

static void look_at_memory(struct sbx_findings_sink *sink)
{
    struct sysinfo facts;
    if (sysinfo(&facts) < 0)
        return;
    uint64_t total_mib = (uint64_t)facts.totalram * facts.mem_unit >> 20;
    bool low = total_mib < MEMORY_LOW_MIB;
    sbx_found(sink, low ? SANDBOX_SEVERITY_NOTE : SANDBOX_SEVERITY_GOOD, "memory",
              low ? "give workspaces a small memory_mib" : "", "%" PRIu64 " MiB in all", total_mib);
}

static void look_at_limits(struct sbx_findings_sink *sink)
{
    if (geteuid() != 0)
        return; /* what root could do cannot be seen from here */
    struct sbx_gvisor_limits limits;
    sbx_gvisor_limits_probe(&limits);
    bool both = limits.memory && limits.cpu;
    sbx_found(sink, both ? SANDBOX_SEVERITY_GOOD : SANDBOX_SEVERITY_NOTE, "limits",
              both ? "" : "make the memory and cpu control groups writable here",
              "control groups v%d: memory_mib is %senforced, cpu_millis is %senforced",
              limits.unified ? 2 : 1, limits.memory ? "" : "not ", limits.cpu ? "" : "not ");
}

static void look_at_program(const char *configured, const char *name, sandbox_severity severity,
                            struct sbx_findings_sink *sink)
{
    SBX_ON_EXIT(sbx_free_text) char *found = NULL;
    if (configured == NULL)
        (void)sbx_place_find(name, &found, NULL);
    else if (access(configured, R_OK) == 0)
        found = sbx_copy(configured);
    if (found != NULL)
        sbx_found(sink, SANDBOX_SEVERITY_GOOD, "programs", "", "%s", found);
    else
        sbx_found(sink, severity, "programs", "install libsandbox's programs beside the library",
                  "'%s' is not there", configured == NULL ? name : configured);
}

static void look_at_programs(const struct sbx_gvisor_settings *settings,
                             struct sbx_findings_sink *sink)
{
    look_at_program(settings->agent, "sandbox-agent", SANDBOX_SEVERITY_PROBLEM, sink);
    look_at_program(settings->shim, "sandbox-shim.so", SANDBOX_SEVERITY_NOTE, sink);
    /* These only where a workspace is to reach out. */
    look_at_program(NULL, "sandbox-egress-proxy", SANDBOX_SEVERITY_NOTE, sink);
    look_at_program(NULL, "sandbox-egress-carrier", SANDBOX_SEVERITY_NOTE, sink);
}
