/*
 * What surrounds the programs in a base: directories, links, and an /etc that is made or copied
 * from a list of what programs need and everybody may read. Nothing else of the host.
 */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX  (16u << 20)
#define DEPTH_MAX 8

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct made_directory {
    const char *path;
    mode_t mode;
};

static const struct made_directory made_directories[] = {
    {"etc", 0755},       {"usr", 0755},     {"var", 0755},  {"var/tmp", 01777},  {"var/lib", 0755},
    {"var/cache", 0755}, {"var/log", 0755}, {"home", 0755}, {"root", 0700},      {"run", 0755},
    {"tmp", 01777},      {"opt", 0755},     {"mnt", 0755},  {"srv", 0755},       {"media", 0755},
    {"proc", 0555},      {"sys", 0555},     {"dev", 0755},  {"workspace", 0755},
};

/* /usr, and what is beside it: links into it, or directories of their own on older systems. */
const char *const sbx_gvisor_base_programs[] = {"usr",   "bin",   "sbin",   "lib",
                                                "lib32", "lib64", "libx32", NULL};

/* Of the host's /etc. A pattern is of one name; nothing here may hold a secret. */
const char *const sbx_gvisor_base_copied[] = {
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates",
    "ca-certificates.conf",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/tls/openssl.cnf",
    "pki/ca-trust/extracted",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "timezone",
    "mime.types",
    "terminfo",
    "protocols",
    "services",
    "os-release",
    "debian_version",
    "lsb-release",
    "shells",
    "inputrc",
    "magic",
    "magic.mime",
    "java-*",
    "python3*",
    "perl",
    "fonts",
    NULL,
};

static sandbox_status link_programs(int target, int root, sandbox_error *error);
static sandbox_status write_etc(int target, int root, sandbox_error *error);
static sandbox_status copy_named(int from, int to, const char *path, const char *place,
                                 sandbox_error *error);
static sandbox_status copy_entry(int from, int to, const char *name, const char *place,
                                 unsigned depth, sandbox_error *error);
static sandbox_status copy_file(int from, int to, const char *name, sandbox_error *error);
static sandbox_status copy_link(int from, int to, const char *name, const char *place,
                                sandbox_error *error);
static bool leads_inside(const char *place, const char *target);

sandbox_status sbx_gvisor_base_build(int target, int etc, int root, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    for (size_t n = 0; n < COUNT(made_directories) && status == SANDBOX_OK; n++)
        status =
            sbx_gvisor_directory(target, made_directories[n].path, made_directories[n].mode, error);
    if (status == SANDBOX_OK)
        status = link_programs(target, root, error);
    if (status == SANDBOX_OK && (symlinkat("/run", target, "var/run") < 0 ||
                                 symlinkat("/run/lock", target, "var/lock") < 0))
        status = sbx_fail_errno(error, errno, "cannot make links in the base");
    if (status == SANDBOX_OK)
        status = write_etc(target, root, error);

    SBX_ON_EXIT(sbx_close_fd)
    int made_etc = openat(target, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t n = 0; sbx_gvisor_base_copied[n] != NULL && status == SANDBOX_OK; n++)
        status = copy_named(etc, made_etc, sbx_gvisor_base_copied[n], "etc", error);
    return status;
}

/* Where the host's /bin is a directory of its own it is one here too. */
static sandbox_status link_programs(int target, int root, sandbox_error *error)
{
    for (size_t n = 1; sbx_gvisor_base_programs[n] != NULL; n++) {
        const char *name = sbx_gvisor_base_programs[n];
        char text[256];
        ssize_t size = readlinkat(root, name, text, sizeof text - 1);
        if (size < 0 && errno == ENOENT)
            continue;
        if (size < 0 && errno == EINVAL) {
            sandbox_status status = sbx_gvisor_directory(target, name, 0755, error);
            if (status != SANDBOX_OK)
                return status;
            continue;
        }
        text[size < 0 ? 0 : size] = '\0';
        if (strncmp(text, "usr/", 4) != 0 && strncmp(text, "/usr/", 5) != 0)
            continue;
        if (symlinkat(text, target, name) < 0)
            return sbx_fail_errno(error, errno, "cannot make the link '%s' in the base", name);
    }
    return SANDBOX_OK;
}

static sandbox_status write_etc(int target, int root, sandbox_error *error)
{
    const char *shell = faccessat(root, "bin/bash", X_OK, 0) == 0 ? "/bin/bash" : "/bin/sh";
    SBX_ON_EXIT(sbx_free_text)
    char *passwd = sbx_format("root:x:0:0:root:/root:%s\n"
                              "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
                              "sandbox:x:1000:1000:sandbox:/home/sandbox:%s\n"
                              "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
                              shell, shell);
    if (passwd == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for the base");
    const char *const files[][2] = {
        {"etc/passwd", passwd},
        {"etc/group", "root:x:0:\ndaemon:x:1:\ntty:x:5:\nusers:x:100:\nsandbox:x:1000:\n"
                      "nogroup:x:65534:\n"},
        {"etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"},
        {"etc/hostname", "sandbox\n"},
        {"etc/resolv.conf", "# A workspace has no network of its own.\n"},
        {"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"
                              "protocols: files\nservices: files\n"},
        {"etc/profile", "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
                        "umask 022\n"},
    };
    for (size_t n = 0; n < COUNT(files); n++) {
        sandbox_status status =
            sbx_gvisor_file(target, files[n][0], files[n][1], strlen(files[n][1]), 0644, error);
        if (status != SANDBOX_OK)
            return status;
    }
    return SANDBOX_OK;
}

static sandbox_status copy_matching(int from, int to, const char *pattern, const char *place,
                                    sandbox_error *error)
{
    int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        int number = errno;
        sbx_close_fd(&fd);
        return sbx_fail_errno(error, number, "cannot list '/%s'", place);
    }
    sandbox_status status = SANDBOX_OK;
    for (struct dirent *entry; status == SANDBOX_OK && (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] != '.' && fnmatch(pattern, entry->d_name, 0) == 0)
            status = copy_entry(from, to, entry->d_name, place, 0, error);
    }
    closedir(directory);
    return status;
}

/* Walks down to what is named, through real directories only. */
static sandbox_status copy_named(int from, int to, const char *path, const char *place,
                                 sandbox_error *error)
{
    const char *slash = strchr(path, '/');
    if (slash == NULL)
        return copy_matching(from, to, path, place, error);
    char name[64], deeper[SBX_GVISOR_PATH];
    snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
    snprintf(deeper, sizeof deeper, "%s/%s", place, name);
    SBX_ON_EXIT(sbx_close_fd)
    int below = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0)
        return SANDBOX_OK;
    sandbox_status status = sbx_gvisor_directory(to, name, 0755, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_close_fd)
    int made = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (made < 0)
        return sbx_fail_errno(error, errno, "cannot open '%s' in the base", deeper);
    return copy_named(below, made, slash + 1, deeper, error);
}

static sandbox_status copy_directory(int from, int to, const char *name, const char *place,
                                     unsigned depth, sandbox_error *error)
{
    char deeper[SBX_GVISOR_PATH];
    int below = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = below < 0 ? NULL : fdopendir(below);
    if (directory == NULL) {
        sbx_close_fd(&below);
        return SANDBOX_OK; /* it vanished, or is not for reading */
    }
    sandbox_status status = SANDBOX_OK;
    if ((size_t)snprintf(deeper, sizeof deeper, "%s/%s", place, name) < sizeof deeper)
        status = sbx_gvisor_directory(to, name, 0755, error);
    SBX_ON_EXIT(sbx_close_fd)
    int made = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (struct dirent *entry;
         status == SANDBOX_OK && made >= 0 && (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = copy_entry(dirfd(directory), made, entry->d_name, deeper, depth + 1, error);
    }
    closedir(directory);
    return status;
}

/* What not everybody may read on the host is not for strangers: it is left out, not an error. */
static sandbox_status copy_entry(int from, int to, const char *name, const char *place,
                                 unsigned depth, sandbox_error *error)
{
    struct stat facts;
    if (fstatat(from, name, &facts, AT_SYMLINK_NOFOLLOW) < 0 || depth > DEPTH_MAX)
        return SANDBOX_OK;
    if (S_ISLNK(facts.st_mode))
        return copy_link(from, to, name, place, error);
    if (S_ISDIR(facts.st_mode) && (facts.st_mode & 05) == 05)
        return copy_directory(from, to, name, place, depth, error);
    if (S_ISREG(facts.st_mode) && (facts.st_mode & 04) != 0)
        return copy_file(from, to, name, error);
    return SANDBOX_OK;
}

static sandbox_status copy_file(int from, int to, const char *name, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd)
    int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat facts;
    if (source < 0 || fstat(source, &facts) < 0 || !S_ISREG(facts.st_mode) ||
        facts.st_size > FILE_MAX)
        return SANDBOX_OK;
    size_t size = (size_t)facts.st_size, used = 0;
    SBX_ON_EXIT(sbx_free_text) char *content = malloc(size + 1);
    if (content == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for the base");
    while (used < size) {
        ssize_t got = read(source, content + used, size - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    return sbx_gvisor_file(to, name, content, used, facts.st_mode & 0755, error);
}

static sandbox_status copy_link(int from, int to, const char *name, const char *place,
                                sandbox_error *error)
{
    char target[SBX_GVISOR_PATH];
    ssize_t size = readlinkat(from, name, target, sizeof target - 1);
    if (size < 0)
        return SANDBOX_OK;
    target[size] = '\0';
    if (!leads_inside(place, target))
        return SANDBOX_OK;
    if (symlinkat(target, to, name) < 0 && errno != EEXIST)
        return sbx_fail_errno(error, errno, "cannot make the link '%s' in the base", name);
    return SANDBOX_OK;
}

/* Folds "." and ".." of a path without a leading slash. False: it climbs out. */
static bool fold(const char *path, char out[SBX_GVISOR_PATH])
{
    size_t used = 0;
    out[0] = '\0';
    while (*path != '\0') {
        size_t size = strcspn(path, "/");
        if (size == 2 && path[0] == '.' && path[1] == '.') {
            while (used > 0 && out[--used] != '/')
                continue;
            out[used] = '\0';
        } else if (size > 0 && !(size == 1 && path[0] == '.')) {
            int more = snprintf(out + used, SBX_GVISOR_PATH - used, "%s%.*s", used > 0 ? "/" : "",
                                (int)size, path);
            if (more < 0 || (size_t)more >= SBX_GVISOR_PATH - used)
                return false;
            used += (size_t)more;
        }
        path += size + (path[size] == '/');
    }
    return true;
}

/* Whether a link in the directory `place` leads to the programs or to what is copied. */
static bool leads_inside(const char *place, const char *target)
{
    char joined[2 * SBX_GVISOR_PATH], path[SBX_GVISOR_PATH];
    snprintf(joined, sizeof joined, "%s/%s", target[0] == '/' ? "" : place, target);
    if (!fold(joined, path))
        return false;
    for (size_t n = 0; sbx_gvisor_base_programs[n] != NULL; n++) {
        size_t size = strlen(sbx_gvisor_base_programs[n]);
        if (strncmp(path, sbx_gvisor_base_programs[n], size) == 0 && path[size] == '/')
            return true;
    }
    const char *const *copied = sbx_gvisor_base_copied;
    for (size_t n = 0; copied[n] != NULL && strncmp(path, "etc/", 4) == 0; n++) {
        if (fnmatch(copied[n], path + 4, FNM_LEADING_DIR | FNM_PATHNAME) == 0)
            return true;
    }
    return false;
}
