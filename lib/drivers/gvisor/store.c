/*
 * Records and secrets, as files of the state directory.
 *
 * A record's file begins with a line that names its version, drawn anew for every record that
 * is made, so that a later record of the same name is never taken for an earlier one.
 */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/random.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUCKETS   8192
#define CACHE_MAX (64u << 20)
/* A file changed this shortly before it was read may change again without showing it. */
#define SETTLED_MS 100
#define LOCK_MS    30000
#define KEYS_MAX   100000

/* One record as it was read; the table and every reader hold a count. */
struct cached {
    struct cached *next;
    unsigned holders;
    uint64_t seen; /* by which listing last */
    ino_t inode;
    int64_t modified_ns;
    off_t file_size;
    char name[SBX_NAME_MAX + 1];
    char version[SBX_VERSION_TEXT];
    size_t size;
    char text[];
};

struct sbx_gvisor_cache {
    struct cached *buckets[BUCKETS];
    size_t bytes;
    uint64_t listings;
};

static sandbox_status read_record(struct sbx_gvisor *driver, const char *name, char **text,
                                  size_t *size, char version[SBX_VERSION_TEXT],
                                  sandbox_error *error);
static sandbox_status lock_record(struct sbx_gvisor *driver, const char *name,
                                  const struct sbx_wait *wait, int *lock, sandbox_error *error);
static void remove_lock(struct sbx_gvisor *driver, const char *name);
static bool next_version(const char *before, char version[SBX_VERSION_TEXT]);
static sandbox_status write_record(struct sbx_gvisor *driver, const char *name, const char *text,
                                   size_t size, const char *version, sandbox_error *error);
static sandbox_status list_entry(struct sbx_gvisor *driver, int records, const char *file,
                                 uint64_t listing, struct cached **out, sandbox_error *error);
static struct cached *find_cached(struct sbx_gvisor *driver, const char *name,
                                  const struct stat *facts, uint64_t listing);
static struct cached *read_cached(struct sbx_gvisor *driver, const char *name,
                                  const struct stat *facts, uint64_t listing, sandbox_error *error);
static void drop_cached(struct sbx_gvisor *driver, struct cached *entry);
static void forget_unseen(struct sbx_gvisor *driver, uint64_t listing);
static sandbox_status newest_key(struct sbx_gvisor *driver, uint32_t *key_id, sandbox_error *error);

sandbox_status sbx_gvisor_record_load(void *state, const char *name, const struct sbx_wait *wait,
                                      char **text, size_t *size, char version[SBX_VERSION_TEXT],
                                      sandbox_error *error)
{
    return read_record(state, name, text, size, version, error);
}

sandbox_status sbx_gvisor_record_store(void *state, const char *name, const char *text, size_t size,
                                       const char *expected, char version[SBX_VERSION_TEXT],
                                       const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    if (size > SBX_RECORD_MAX)
        return sbx_fail(error, SANDBOX_LIMIT,
                        "the record of '%s' would have %zu bytes; at most "
                        "%u are allowed: give it fewer labels",
                        name, size, SBX_RECORD_MAX);
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    sandbox_status status = lock_record(driver, name, wait, &lock, error);
    if (status != SANDBOX_OK)
        return status;

    SBX_ON_EXIT(sbx_free_text) char *stored = NULL;
    size_t stored_size = 0;
    char current[SBX_VERSION_TEXT] = "", fresh[SBX_VERSION_TEXT];
    status = read_record(driver, name, &stored, &stored_size, current, error);
    if (status == SANDBOX_NOT_FOUND && *expected != '\0') {
        remove_lock(driver, name);
        return sbx_fail_for(error, SANDBOX_CONFLICT, "record-changed",
                            "the record of '%s' was removed by somebody else", name);
    }
    if (status != SANDBOX_OK && status != SANDBOX_NOT_FOUND)
        return status;
    if (status == SANDBOX_OK && *expected == '\0')
        return sbx_fail_for(error, SANDBOX_EXISTS, "name-taken",
                            "there is a workspace '%s' already", name);
    if (strcmp(current, expected) != 0)
        return sbx_fail_for(error, SANDBOX_CONFLICT, "record-changed",
                            "the record of '%s' was changed by somebody else", name);
    if (!next_version(current, fresh))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    status = write_record(driver, name, text, size, fresh, error);
    if (status == SANDBOX_OK)
        snprintf(version, SBX_VERSION_TEXT, "%s", fresh);
    return status;
}

sandbox_status sbx_gvisor_record_remove(void *state, const char *name, const char *expected,
                                        const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    sandbox_status status = lock_record(driver, name, wait, &lock, error);
    if (status != SANDBOX_OK)
        return status;

    SBX_ON_EXIT(sbx_free_text) char *stored = NULL;
    size_t stored_size = 0;
    char current[SBX_VERSION_TEXT] = "", path[SBX_NAME_MAX + 32];
    status = read_record(driver, name, &stored, &stored_size, current, error);
    if (status == SANDBOX_NOT_FOUND) {
        remove_lock(driver, name);
        return SANDBOX_OK;
    }
    if (status != SANDBOX_OK)
        return status;
    if (strcmp(current, expected) != 0)
        return sbx_fail_for(error, SANDBOX_CONFLICT, "record-changed",
                            "the record of '%s' was changed by somebody else", name);
    snprintf(path, sizeof path, "records/%s.json", name);
    if (unlinkat(driver->directory, path, 0) < 0 && errno != ENOENT)
        return sbx_fail_errno(error, errno, "cannot remove the record of '%s'", name);
    status = sbx_directory_sync(driver->directory, "records", error);
    if (status == SANDBOX_OK)
        remove_lock(driver, name);
    return status;
}

sandbox_status sbx_gvisor_record_list(void *state, const struct sbx_wait *wait,
                                      bool (*visit)(void *user_data, const char *name,
                                                    const char *text, size_t size,
                                                    const char *version),
                                      void *user_data, sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    int fd = openat(driver->directory, "records", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *records = fd < 0 ? NULL : fdopendir(fd);
    if (records == NULL) {
        int number = errno;
        sbx_close_fd(&fd);
        return sbx_fail_errno(error, number, "cannot list the records");
    }
    pthread_mutex_lock(&driver->mutex);
    uint64_t listing = ++driver->cache->listings;
    pthread_mutex_unlock(&driver->mutex);

    sandbox_status status = SANDBOX_OK;
    bool going_on = true;
    struct dirent *file;
    for (unsigned n = 0; going_on && status == SANDBOX_OK && (file = readdir(records)) != NULL;
         n++) {
        struct cached *entry = NULL;
        if (n % 256 == 255)
            status = sbx_wait_check(wait, error);
        if (status == SANDBOX_OK)
            status = list_entry(driver, dirfd(records), file->d_name, listing, &entry, error);
        if (entry == NULL)
            continue;
        going_on = visit(user_data, entry->name, entry->text, entry->size, entry->version);
        drop_cached(driver, entry);
    }
    closedir(records);
    if (going_on && status == SANDBOX_OK)
        forget_unseen(driver, listing);
    return status;
}

sandbox_status sbx_gvisor_secret(void *state, uint32_t *key_id, uint8_t key[32],
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    uint32_t wanted = *key_id;
    sandbox_status status = wanted == 0 ? newest_key(driver, &wanted, error) : SANDBOX_OK;
    if (status != SANDBOX_OK)
        return status;

    char path[32];
    snprintf(path, sizeof path, "secrets/%" PRIu32, wanted);
    uint8_t *data = NULL;
    size_t size = 0;
    status = sbx_file_read(driver->directory, path, 64, &data, &size, error);
    if (status == SANDBOX_NOT_FOUND)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-key",
                            "the secret %" PRIu32 " is not among the state directory's any more",
                            wanted);
    if (status != SANDBOX_OK)
        return status;
    if (size == 32) {
        memcpy(key, data, 32);
        *key_id = wanted;
    }
    sbx_wipe(data, size);
    free(data);
    return size == 32
               ? SANDBOX_OK
               : sbx_fail(error, SANDBOX_FAILED, "the secret %" PRIu32 " is damaged", wanted);
}

struct sbx_gvisor_cache *sbx_gvisor_cache_new(void)
{
    return calloc(1, sizeof(struct sbx_gvisor_cache));
}

void sbx_gvisor_cache_free(struct sbx_gvisor_cache *cache)
{
    for (size_t n = 0; cache != NULL && n < BUCKETS; n++) {
        for (struct cached *entry = cache->buckets[n], *next; entry != NULL; entry = next) {
            next = entry->next;
            free(entry);
        }
    }
    free(cache);
}

static sandbox_status read_record(struct sbx_gvisor *driver, const char *name, char **text,
                                  size_t *size, char version[SBX_VERSION_TEXT],
                                  sandbox_error *error)
{
    char path[SBX_NAME_MAX + 32];
    snprintf(path, sizeof path, "records/%s.json", name);
    uint8_t *data = NULL;
    size_t data_size = 0;
    sandbox_status status = sbx_file_read(
        driver->directory, path, SBX_RECORD_MAX + SBX_VERSION_TEXT, &data, &data_size, error);
    if (status == SANDBOX_NOT_FOUND)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-workspace",
                            "there is no workspace '%s'", name);
    if (status != SANDBOX_OK)
        return status;
    const uint8_t *end = memchr(data, '\n', data_size);
    size_t line = end == NULL ? 0 : (size_t)(end - data);
    if (line == 0 || line >= SBX_VERSION_TEXT) {
        free(data);
        return sbx_fail_for(error, SANDBOX_FAILED, "damaged-record",
                            "the record of '%s' is damaged: it does not begin with its version",
                            name);
    }
    memcpy(version, data, line);
    version[line] = '\0';
    *size = data_size - line - 1;
    memmove(data, end + 1, *size + 1);
    *text = (char *)data;
    return SANDBOX_OK;
}

static sandbox_status lock_record(struct sbx_gvisor *driver, const char *name,
                                  const struct sbx_wait *wait, int *lock, sandbox_error *error)
{
    char path[SBX_NAME_MAX + 32];
    snprintf(path, sizeof path, "locks/%s.lock", name);
    struct sbx_wait bounded = sbx_wait_within(wait, LOCK_MS);
    return sbx_file_lock(driver->directory, path, true, &bounded, lock, error);
}

/* With the lock held: whoever waits for it finds that the file is gone and makes another. */
static void remove_lock(struct sbx_gvisor *driver, const char *name)
{
    char path[SBX_NAME_MAX + 32];
    snprintf(path, sizeof path, "locks/%s.lock", name);
    unlinkat(driver->directory, path, 0);
}

/* "TAG.N": the tag is drawn when a record is made, the number grows with every change. */
static bool next_version(const char *before, char version[SBX_VERSION_TEXT])
{
    const char *dot = strchr(before, '.');
    if (dot != NULL) {
        snprintf(version, SBX_VERSION_TEXT, "%.*s.%llu",
                 (int)(dot - before < 33 ? dot - before : 33), before,
                 strtoull(dot + 1, NULL, 10) + 1);
        return true;
    }
    char tag[SBX_ID_TEXT];
    if (!sbx_id_fresh(tag))
        return false;
    snprintf(version, SBX_VERSION_TEXT, "%s.1", tag);
    return true;
}

static sandbox_status write_record(struct sbx_gvisor *driver, const char *name, const char *text,
                                   size_t size, const char *version, sandbox_error *error)
{
    size_t line = strlen(version);
    SBX_ON_EXIT(sbx_free_text) char *content = malloc(line + 1 + size);
    if (content == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a record");
    memcpy(content, version, line);
    content[line] = '\n';
    memcpy(content + line + 1, text, size);
    char path[SBX_NAME_MAX + 32];
    snprintf(path, sizeof path, "records/%s.json", name);
    return sbx_file_replace(driver->directory, path, content, line + 1 + size, 0600, error);
}

/* What is no record, and what vanished meanwhile, is passed over: `out` stays NULL. */
static sandbox_status list_entry(struct sbx_gvisor *driver, int records, const char *file,
                                 uint64_t listing, struct cached **out, sandbox_error *error)
{
    static const char ending[] = ".json";
    char name[SBX_NAME_MAX + 1];
    size_t size = strlen(file), cut = strlen(ending);
    if (size <= cut || size - cut > SBX_NAME_MAX || strcmp(file + size - cut, ending) != 0)
        return SANDBOX_OK;
    memcpy(name, file, size - cut);
    name[size - cut] = '\0';
    struct stat facts;
    if (!sbx_name_is_valid(name) || fstatat(records, file, &facts, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(facts.st_mode))
        return SANDBOX_OK;
    *out = find_cached(driver, name, &facts, listing);
    if (*out != NULL)
        return SANDBOX_OK;
    sandbox_error detail = {0};
    *out = read_cached(driver, name, &facts, listing, &detail);
    if (*out != NULL || detail.status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK;
    if (error != NULL)
        *error = detail;
    return detail.status;
}

static size_t bucket_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash % BUCKETS;
}

static int64_t modified_ns(const struct stat *facts)
{
    return (int64_t)facts->st_mtim.tv_sec * 1000000000 + facts->st_mtim.tv_nsec;
}

/* With the mutex held. */
static void release(struct sbx_gvisor_cache *cache, struct cached *entry)
{
    if (--entry->holders == 0)
        free(entry);
}

/* With the mutex held: takes what `link` points to out of the table. */
static void unlink_cached(struct sbx_gvisor_cache *cache, struct cached **link)
{
    struct cached *entry = *link;
    *link = entry->next;
    cache->bytes -= sizeof *entry + entry->size;
    release(cache, entry);
}

static struct cached *find_cached(struct sbx_gvisor *driver, const char *name,
                                  const struct stat *facts, uint64_t listing)
{
    struct cached *found = NULL;
    pthread_mutex_lock(&driver->mutex);
    struct cached **link = &driver->cache->buckets[bucket_of(name)];
    while (*link != NULL && strcmp((*link)->name, name) != 0)
        link = &(*link)->next;
    if (*link != NULL) {
        if ((*link)->inode == facts->st_ino && (*link)->modified_ns == modified_ns(facts) &&
            (*link)->file_size == facts->st_size) {
            found = *link;
            found->seen = listing;
            found->holders++;
        } else {
            unlink_cached(driver->cache, link);
        }
    }
    pthread_mutex_unlock(&driver->mutex);
    return found;
}

/* Whether a file with these facts will show it when it changes once more. */
static bool is_settled(const struct stat *facts)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - modified_ns(facts);
    return age > (int64_t)SETTLED_MS * 1000000;
}

static struct cached *read_cached(struct sbx_gvisor *driver, const char *name,
                                  const struct stat *facts, uint64_t listing, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    size_t size = 0;
    char version[SBX_VERSION_TEXT];
    bool settled = is_settled(facts);
    if (read_record(driver, name, &text, &size, version, error) != SANDBOX_OK)
        return NULL;
    struct cached *entry = malloc(sizeof *entry + size + 1);
    if (entry == NULL) {
        sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a record");
        return NULL;
    }
    *entry = (struct cached){.holders = 1,
                             .seen = listing,
                             .inode = facts->st_ino,
                             .modified_ns = modified_ns(facts),
                             .file_size = facts->st_size,
                             .size = size};
    snprintf(entry->name, sizeof entry->name, "%s", name);
    snprintf(entry->version, sizeof entry->version, "%s", version);
    memcpy(entry->text, text, size + 1);

    pthread_mutex_lock(&driver->mutex);
    struct sbx_gvisor_cache *cache = driver->cache;
    size_t weight = sizeof *entry + size;
    if (settled && cache->bytes + weight <= CACHE_MAX) {
        struct cached **bucket = &cache->buckets[bucket_of(name)];
        entry->next = *bucket;
        *bucket = entry;
        cache->bytes += weight;
        entry->holders++;
    }
    pthread_mutex_unlock(&driver->mutex);
    return entry;
}

static void drop_cached(struct sbx_gvisor *driver, struct cached *entry)
{
    pthread_mutex_lock(&driver->mutex);
    release(driver->cache, entry);
    pthread_mutex_unlock(&driver->mutex);
}

static void forget_unseen(struct sbx_gvisor *driver, uint64_t listing)
{
    pthread_mutex_lock(&driver->mutex);
    for (size_t n = 0; n < BUCKETS; n++) {
        struct cached **link = &driver->cache->buckets[n];
        while (*link != NULL) {
            if ((*link)->seen < listing)
                unlink_cached(driver->cache, link);
            else
                link = &(*link)->next;
        }
    }
    pthread_mutex_unlock(&driver->mutex);
}

static sandbox_status highest_key(struct sbx_gvisor *driver, uint32_t *key_id, sandbox_error *error)
{
    int fd = openat(driver->directory, "secrets", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *secrets = fd < 0 ? NULL : fdopendir(fd);
    if (secrets == NULL) {
        int number = errno;
        sbx_close_fd(&fd);
        return sbx_fail_errno(error, number, "cannot list the secrets");
    }
    *key_id = 0;
    for (struct dirent *file; (file = readdir(secrets)) != NULL;) {
        char *end = NULL;
        unsigned long number = strtoul(file->d_name, &end, 10);
        if (*end == '\0' && end != file->d_name && number > *key_id && number <= KEYS_MAX)
            *key_id = (uint32_t)number;
    }
    closedir(secrets);
    return SANDBOX_OK;
}

/* Two actors may find none at the same time: one makes the first, both use it. */
static sandbox_status newest_key(struct sbx_gvisor *driver, uint32_t *key_id, sandbox_error *error)
{
    sandbox_status status = highest_key(driver, key_id, error);
    if (status != SANDBOX_OK || *key_id != 0)
        return status;
    uint8_t fresh[32];
    if (!sbx_random(fresh, sizeof fresh))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    status = sbx_file_create(driver->directory, "secrets/1", fresh, sizeof fresh, 0600, error);
    sbx_wipe(fresh, sizeof fresh);
    if (status != SANDBOX_OK && status != SANDBOX_EXISTS)
        return status;
    *key_id = 1;
    return SANDBOX_OK;
}
