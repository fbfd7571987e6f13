/* Owners of operations, by what /proc tells of them. */

#include "util/owner.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A process, and where its number counts: this boot, this PID namespace. */
struct owner {
    long pid;
    unsigned long long started;
    unsigned long long namespace;
    char boot[40];
};

static sandbox_status read_here(struct owner *out, sandbox_error *error);
static sandbox_status read_process(long pid, char *state, unsigned long long *started,
                                   sandbox_error *error);
static bool has_other_threads(long pid);

sandbox_status sbx_owner_name(char owner[128], sandbox_error *error)
{
    struct owner self = {0};
    char process_state;
    self.pid = (long)getpid();
    sandbox_status status = read_here(&self, error);
    if (status == SANDBOX_OK)
        status = read_process(self.pid, &process_state, &self.started, error);
    if (status == SANDBOX_NOT_FOUND)
        return sbx_fail(error, SANDBOX_UNSUPPORTED,
                        "/proc does not tell about this process; mount it");
    if (status != SANDBOX_OK)
        return status;
    snprintf(owner, 128, "%ld %llu %llu %s", self.pid, self.started, self.namespace, self.boot);
    return SANDBOX_OK;
}

bool sbx_owner_is_gone(const char *owner, enum sbx_owners owners)
{
    struct owner named = {0}, here = {0};
    if (sscanf(owner, "%ld %llu %llu %39s", &named.pid, &named.started, &named.namespace,
               named.boot) != 4 ||
        named.pid <= 0 || read_here(&here, NULL) != SANDBOX_OK)
        return false;
    if (strcmp(named.boot, here.boot) != 0)
        return owners == SBX_OWNER_HERE;
    if (named.namespace != here.namespace)
        return false;
    char process_state = 0;
    unsigned long long started = 0;
    /* Only a process that is surely not there is gone: not one that there is no memory to read. */
    sandbox_status status = read_process(named.pid, &process_state, &started, NULL);
    if (status != SANDBOX_OK)
        return status == SANDBOX_NOT_FOUND && access("/proc/self/stat", R_OK) == 0;
    if (started != named.started)
        return true;
    return (process_state == 'Z' || process_state == 'X') && !has_other_threads(named.pid);
}

static sandbox_status read_here(struct owner *out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    size_t size = 0;
    struct stat facts;
    sandbox_status status = sbx_file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 4096,
                                          (uint8_t **)&text, &size, error);
    if (status != SANDBOX_OK)
        return status;
    if (stat("/proc/self/ns/pid", &facts) < 0 || sscanf(text, "%39s", out->boot) != 1)
        return SANDBOX_NOT_FOUND;
    out->namespace = facts.st_ino;
    return SANDBOX_OK;
}

/* SANDBOX_NOT_FOUND: there is no such process. Anything else: it cannot be told. */
static sandbox_status read_process(long pid, char *state, unsigned long long *started,
                                   sandbox_error *error)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    size_t size = 0;
    sandbox_status status = sbx_file_read(AT_FDCWD, path, 4096, (uint8_t **)&text, &size, error);
    if (status != SANDBOX_OK)
        return status;
    /* The name may hold anything, a closing bracket too: the last one ends it. */
    const char *after = strrchr(text, ')');
    bool good = after != NULL &&
                sscanf(after + 1,
                       " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                       "%*d %llu",
                       state, started) == 2;
    return good ? SANDBOX_OK
                : sbx_fail(error, SANDBOX_FAILED, "'%s' is not what Linux writes there", path);
}

/* A process whose first thread has ended looks like a zombie while its others go on. */
static bool has_other_threads(long pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/task", pid);
    DIR *threads = opendir(path);
    size_t count = 0;
    for (struct dirent *entry; threads != NULL && (entry = readdir(threads)) != NULL;)
        count += entry->d_name[0] != '.';
    if (threads != NULL)
        closedir(threads);
    return count > 1;
}
