/* What the child does before it becomes runsc, and what has to be ready for it. */

#include "drivers/gvisor/root.h"
#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The kernel reads at most a page of mount data, its end included. */
#define DATA_MAX 4095

static sandbox_status open_group(const char *group, int *out, sandbox_error *error);
static sandbox_status plan_binds(const struct sbx_gvisor_bundle *bundle,
                                 struct sbx_gvisor_root *out, sandbox_error *error);

sandbox_status sbx_gvisor_root_plan(struct sbx_gvisor *driver, const char *id,
                                    const struct sbx_gvisor_start *start,
                                    struct sbx_gvisor_root *out, sandbox_error *error)
{
    sandbox_status status = open_group(start->memory_group, &out->groups[0], error);
    if (status == SANDBOX_OK)
        status = open_group(start->cpu_group, &out->groups[1], error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_free_text) char *place = sbx_gvisor_path(driver, "workspaces/%s", id);
    if (place == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    out->place = sbx_format("%s/bundle/rootfs", place);
    out->layers = sbx_format("lowerdir=%s/layer:%s", place, start->bundle.lower);
    if (out->place == NULL || out->layers == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    if (strlen(out->layers) > DATA_MAX)
        return sbx_fail(error, SANDBOX_LIMIT,
                        "the paths of the state directory and the image are too long together");
    return plan_binds(&start->bundle, out, error);
}

static sandbox_status open_group(const char *group, int *out, sandbox_error *error)
{
    if (*group == '\0')
        return SANDBOX_OK;
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_format("%s/cgroup.procs", group);
    if (path == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    *out = open(path, O_WRONLY | O_CLOEXEC);
    return *out >= 0 ? SANDBOX_OK
                     : sbx_fail_errno(error, errno, "cannot use the control group '%s'", group);
}

/* What is bound into the base: /usr, and what older systems have beside. */
static sandbox_status plan_binds(const struct sbx_gvisor_bundle *bundle,
                                 struct sbx_gvisor_root *out, sandbox_error *error)
{
    for (size_t n = 0; bundle->userland != NULL && sbx_gvisor_base_programs[n] != NULL; n++) {
        const char *name = sbx_gvisor_base_programs[n];
        SBX_ON_EXIT(sbx_free_text) char *path = sbx_format("%s/%s", bundle->lower, name);
        struct stat facts;
        if (path == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
        if (lstat(path, &facts) < 0 || !S_ISDIR(facts.st_mode))
            continue;
        if (out->bind_count == SBX_GVISOR_BINDS)
            return sbx_fail(error, SANDBOX_LIMIT, "too many directories of programs");
        size_t index = out->bind_count++;
        out->binds[index].from = sbx_format("%s/%s", bundle->userland, name);
        out->binds[index].to = sbx_format("%s/%s", out->place, name);
        if (out->binds[index].from == NULL || out->binds[index].to == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    }
    return SANDBOX_OK;
}

static int fail(struct sbx_gvisor_root *root, const char *what, const char *subject)
{
    root->number = errno == 0 ? EIO : errno;
    root->failed = what;
    root->subject = subject;
    return root->number;
}

/* What the source forbids stays forbidden. */
static bool make_read_only(const char *path)
{
    struct statvfs facts;
    if (statvfs(path, &facts) < 0)
        return false;
    unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY;
    flags |= facts.f_flag & ST_NOSUID ? MS_NOSUID : 0;
    flags |= facts.f_flag & ST_NODEV ? MS_NODEV : 0;
    flags |= facts.f_flag & ST_NOEXEC ? MS_NOEXEC : 0;
    return mount(NULL, path, NULL, flags, NULL) == 0;
}

int sbx_gvisor_root_enter(void *data)
{
    struct sbx_gvisor_root *root = data;
    for (size_t n = 0; n < sizeof root->groups / sizeof root->groups[0]; n++) {
        if (root->groups[n] >= 0 && write(root->groups[n], "0", 1) != 1)
            return fail(root, "join its control group", "");
    }
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return fail(root, "have mounts of its own", "");
    if (mount("overlay", root->place, "overlay", MS_RDONLY, root->layers) < 0)
        return fail(root, "mount its root file system on ", root->place);
    for (size_t n = 0; n < root->bind_count; n++) {
        const char *to = root->binds[n].to;
        if (mount(root->binds[n].from, to, NULL, MS_BIND | MS_REC, NULL) < 0 || !make_read_only(to))
            return fail(root, "bind its programs to ", to);
    }
    return 0;
}

sandbox_status sbx_gvisor_root_explain(const struct sbx_gvisor_root *root, sandbox_error *error)
{
    char words[128];
    return sbx_fail_for(error, SANDBOX_FAILED, "no-start", "runsc was not started: cannot %s%s: %s",
                        root->failed, root->subject, strerror_r(root->number, words, sizeof words));
}

void sbx_gvisor_root_clear(struct sbx_gvisor_root *root)
{
    sbx_close_fd(&root->groups[0]);
    sbx_close_fd(&root->groups[1]);
    free(root->place);
    free(root->layers);
    for (size_t n = 0; n < root->bind_count; n++) {
        free(root->binds[n].from);
        free(root->binds[n].to);
    }
}
