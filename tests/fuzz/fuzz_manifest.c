/*
 * What a gVisor driver reads of its own state directory (lib/drivers/gvisor): a snapshot's
 * manifest, and the facts about a copy of runsc. Somebody may have written something else there.
 */

#include "drivers/gvisor/snapshot.h"
#include "util/json.h"
#include "util/memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARED_FOLDER "/dev/shm" /* no disk */
#define FACTS_MAX (256u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sbx_gvisor_manifest *manifest);
static void check_same(const struct sbx_gvisor_manifest *first,
                       const struct sbx_gvisor_manifest *second);
static void read_facts(const uint8_t *data, size_t size);

static char folder[] = SHARED_FOLDER "/sandbox-fuzz.XXXXXX";
static int directory = -1;

static void must(bool right)
{
    if (!right)
        abort();
}

static void remove_folder(void)
{
    unlinkat(directory, "manifest.json", 0);
    unlinkat(directory, "again.json", 0);
    close(directory);
    rmdir(folder);
}

static void start(void)
{
    must(mkdtemp(folder) != NULL);
    directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(directory >= 0);
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (directory < 0)
        start();
    int fd = openat(directory, "manifest.json", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
    read_facts(data, size);

    SBX_ON_EXIT(sbx_gvisor_manifest_clear) struct sbx_gvisor_manifest manifest = {0};
    SBX_ON_EXIT(sbx_gvisor_manifest_clear) struct sbx_gvisor_manifest again = {0};
    char digest[SBX_HASH_TEXT], written[SBX_HASH_TEXT], reread[SBX_HASH_TEXT];
    sandbox_error error = {0};
    sandbox_status status =
        sbx_gvisor_manifest_read(directory, "manifest.json", &manifest, digest, &error);
    if (status != SANDBOX_OK) {
        must(status == SANDBOX_FAILED && strcmp(error.reason, "snapshot-damaged") == 0);
        return 0;
    }
    check(&manifest);
    /* What is taken is what this version would have written: it comes back the same. */
    must(sbx_gvisor_manifest_write(directory, "again.json", &manifest, written, &error) ==
             SANDBOX_OK &&
         sbx_gvisor_manifest_read(directory, "again.json", &again, reread, &error) ==
             SANDBOX_OK &&
         strcmp(written, reread) == 0);
    check_same(&manifest, &again);
    return 0;
}

/* Nothing in it leads out of the snapshot, or to bytes that are in no digest. */
static void check(const struct sbx_gvisor_manifest *manifest)
{
    must(manifest->part_count <= SBX_GVISOR_PARTS_MAX && manifest->features != NULL);
    must(manifest->kind == SANDBOX_KEEP_MEMORY || manifest->kind == SANDBOX_KEEP_FILES);
    for (size_t n = 0; n < manifest->part_count; n++) {
        const struct sbx_gvisor_part *part = &manifest->parts[n];
        const char *name = strncmp(part->path, "image/", 6) == 0 ? part->path + 6 : part->path;
        must(*name != '\0' && *name != '.' && strchr(name, '/') == NULL);
        must(part->chunk_count == (part->size + SBX_GVISOR_CHUNK - 1) / SBX_GVISOR_CHUNK);
    }
    (void)sbx_gvisor_manifest_bytes(manifest);
    char missing[32];
    (void)sbx_gvisor_features_suffice(manifest->features, missing);
}

static void check_same(const struct sbx_gvisor_manifest *first,
                       const struct sbx_gvisor_manifest *second)
{
    must(strcmp(first->workspace, second->workspace) == 0 &&
         strcmp(first->snapshot, second->snapshot) == 0 && strcmp(first->run, second->run) == 0 &&
         strcmp(first->seal_hash, second->seal_hash) == 0 && first->kind == second->kind &&
         first->epoch == second->epoch && first->created_ms == second->created_ms &&
         strcmp(first->contents, second->contents) == 0 &&
         strcmp(first->spec, second->spec) == 0 && strcmp(first->tree, second->tree) == 0 &&
         strcmp(first->features, second->features) == 0 &&
         first->tree_entries == second->tree_entries && first->tree_bytes == second->tree_bytes &&
         first->part_count == second->part_count);
    for (size_t n = 0; n < first->part_count; n++) {
        const struct sbx_gvisor_part *was = &first->parts[n], *is = &second->parts[n];
        must(strcmp(was->path, is->path) == 0 && was->size == is->size &&
             was->chunk_count == is->chunk_count &&
             memcmp(was->chunks, is->chunks, was->chunk_count * sizeof *was->chunks) == 0);
    }
}

/* Of a copy of runsc: what it printed when it was made. */
static void read_facts(const uint8_t *data, size_t size)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *facts = NULL;
    struct sbx_gvisor_runsc runsc = {0};
    if (sbx_json_parse(data, size, FACTS_MAX, &facts, NULL) != SANDBOX_OK)
        return;
    sbx_gvisor_runsc_judge(sbx_json_text(facts, "version"), sbx_json_text(facts, "flags"), &runsc);
    must(memchr(runsc.version, '\0', sizeof runsc.version) != NULL && runsc.platform != NULL);
}
