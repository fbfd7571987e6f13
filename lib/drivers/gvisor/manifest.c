/* The manifest of a snapshot: what it is and what every byte of it must be. */

#include "drivers/gvisor/snapshot.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/json.h"
#include "util/memory.h"
#include "util/random.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define FORMAT         1
#define MANIFEST_MAX   (64u << 20) /* 8 TiB of image */
#define SIZE_MAX_BYTES (UINT64_C(1) << 52)

static cJSON *encode(const struct sbx_gvisor_manifest *manifest);
static bool encode_parts(cJSON *json, const struct sbx_gvisor_manifest *manifest);
static bool decode(const cJSON *json, struct sbx_gvisor_manifest *out);
static bool decode_texts(const cJSON *json, struct sbx_gvisor_manifest *out);
static bool decode_part(const cJSON *json, struct sbx_gvisor_part *out);
static bool path_is_good(const char *path);

sandbox_status sbx_gvisor_manifest_write(int directory, const char *name,
                                         const struct sbx_gvisor_manifest *manifest,
                                         char digest[SBX_HASH_TEXT], sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *json = encode(manifest);
    SBX_ON_EXIT(sbx_free_text) char *text = json == NULL ? NULL : cJSON_PrintUnformatted(json);
    if (text == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a manifest");
    size_t size = strlen(text);
    if (size > MANIFEST_MAX)
        return sbx_fail(error, SANDBOX_LIMIT, "the snapshot is too large for its manifest");
    uint8_t hash[SBX_DIGEST_BYTES];
    sbx_sha256(text, size, hash);
    sbx_hex_print(hash, sizeof hash, digest);
    return sbx_gvisor_file(directory, name, text, size, 0600, error);
}

sandbox_status sbx_gvisor_manifest_read(int directory, const char *name,
                                        struct sbx_gvisor_manifest *out, char digest[SBX_HASH_TEXT],
                                        sandbox_error *error)
{
    uint8_t *data = NULL, hash[SBX_DIGEST_BYTES];
    size_t size = 0;
    sandbox_status status = sbx_file_read(directory, name, MANIFEST_MAX, &data, &size, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_free_text) char *text = (char *)data;
    sbx_sha256(text, size, hash);
    sbx_hex_print(hash, sizeof hash, digest);
    SBX_ON_EXIT(sbx_json_free) cJSON *json = NULL;
    SBX_ON_EXIT(sbx_gvisor_manifest_clear) struct sbx_gvisor_manifest manifest = {0};
    if (sbx_json_parse(text, size, MANIFEST_MAX, &json, NULL) != SANDBOX_OK ||
        !decode(json, &manifest))
        return sbx_fail_for(error, SANDBOX_FAILED, "snapshot-damaged",
                            "the snapshot's '%s' is damaged", name);
    *out = manifest;
    manifest = (struct sbx_gvisor_manifest){0};
    return SANDBOX_OK;
}

void sbx_gvisor_manifest_clear(struct sbx_gvisor_manifest *manifest)
{
    for (size_t n = 0; n < manifest->part_count; n++)
        free(manifest->parts[n].chunks);
    free(manifest->features);
    *manifest = (struct sbx_gvisor_manifest){0};
}

uint64_t sbx_gvisor_manifest_bytes(const struct sbx_gvisor_manifest *manifest)
{
    uint64_t bytes = manifest->tree_bytes;
    for (size_t n = 0; n < manifest->part_count; n++)
        bytes += manifest->parts[n].size;
    return bytes;
}

/* The texts of a manifest: where each is, and how much room it has. */
struct field {
    const char *name;
    char *text;
    size_t room;
};
#define FIELDS 12

static void list_fields(struct sbx_gvisor_manifest *manifest, struct field fields[FIELDS])
{
    const struct field all[FIELDS] = {
        {"workspace", manifest->workspace, sizeof manifest->workspace},
        {"snapshot", manifest->snapshot, sizeof manifest->snapshot},
        {"run", manifest->run, sizeof manifest->run},
        {"seal_hash", manifest->seal_hash, sizeof manifest->seal_hash},
        {"base", manifest->pins.base, sizeof manifest->pins.base},
        {"tools", manifest->pins.tools, sizeof manifest->pins.tools},
        {"runtime", manifest->pins.runtime, sizeof manifest->pins.runtime},
        {"contents", manifest->contents, sizeof manifest->contents},
        {"version", manifest->version, sizeof manifest->version},
        {"platform", manifest->platform, sizeof manifest->platform},
        {"flags", manifest->flags, sizeof manifest->flags},
        {"spec", manifest->spec, sizeof manifest->spec},
    };
    memcpy(fields, all, sizeof all);
}

static cJSON *encode(const struct sbx_gvisor_manifest *manifest)
{
    struct sbx_gvisor_manifest shown = *manifest;
    struct field fields[FIELDS];
    list_fields(&shown, fields);
    SBX_ON_EXIT(sbx_json_free) cJSON *json = cJSON_CreateObject();
    bool good =
        json != NULL && sbx_json_set_integer(json, "format", FORMAT) &&
        sbx_json_set_text(json, "kind",
                          manifest->kind == SANDBOX_KEEP_MEMORY ? "memory" : "files") &&
        sbx_json_set_integer(json, "epoch", manifest->epoch) &&
        sbx_json_set_integer(json, "created_ms", manifest->created_ms) &&
        sbx_json_set_text(json, "features", manifest->features == NULL ? "" : manifest->features);
    for (size_t n = 0; good && n < FIELDS; n++)
        good = sbx_json_set_text(json, fields[n].name, fields[n].text);
    cJSON *tree = good ? cJSON_AddObjectToObject(json, "tree") : NULL;
    good = tree != NULL && sbx_json_set_text(tree, "digest", manifest->tree) &&
           sbx_json_set_integer(tree, "entries", (int64_t)manifest->tree_entries) &&
           sbx_json_set_integer(tree, "bytes", (int64_t)manifest->tree_bytes) &&
           encode_parts(json, manifest);
    return good ? sbx_take(json) : NULL;
}

static bool encode_parts(cJSON *json, const struct sbx_gvisor_manifest *manifest)
{
    cJSON *parts = cJSON_AddArrayToObject(json, "parts");
    for (size_t n = 0; parts != NULL && n < manifest->part_count; n++) {
        const struct sbx_gvisor_part *part = &manifest->parts[n];
        cJSON *item = cJSON_CreateObject();
        if (item == NULL || !cJSON_AddItemToArray(parts, item)) {
            cJSON_Delete(item);
            return false;
        }
        cJSON *chunks = cJSON_AddArrayToObject(item, "chunks");
        if (chunks == NULL || !sbx_json_set_text(item, "path", part->path) ||
            !sbx_json_set_integer(item, "size", (int64_t)part->size))
            return false;
        for (size_t chunk = 0; chunk < part->chunk_count; chunk++) {
            char text[2 * SBX_DIGEST_BYTES + 1];
            sbx_hex_print(part->chunks[chunk], SBX_DIGEST_BYTES, text);
            cJSON *digest = cJSON_CreateString(text);
            if (digest == NULL || !cJSON_AddItemToArray(chunks, digest)) {
                cJSON_Delete(digest);
                return false;
            }
        }
    }
    return parts != NULL;
}

static bool read_size(const cJSON *object, const char *name, uint64_t *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    int64_t number = sbx_json_number(item);
    *out = (uint64_t)number;
    return cJSON_IsNumber(item) && number >= 0 && (uint64_t)number <= SIZE_MAX_BYTES &&
           item->valuedouble == (double)number;
}

static bool decode(const cJSON *json, struct sbx_gvisor_manifest *out)
{
    const char *kind = sbx_json_text(json, "kind");
    const cJSON *tree = cJSON_GetObjectItemCaseSensitive(json, "tree");
    const cJSON *parts = cJSON_GetObjectItemCaseSensitive(json, "parts"), *part = NULL;
    uint64_t format = 0, epoch = 0, created = 0;
    uint8_t digest[SBX_DIGEST_BYTES];
    if (cJSON_GetArraySize(json) != FIELDS + 7 || !cJSON_IsObject(tree) ||
        cJSON_GetArraySize(tree) != 3 || !cJSON_IsArray(parts) ||
        cJSON_GetArraySize(parts) > SBX_GVISOR_PARTS_MAX)
        return false;
    if (!read_size(json, "format", &format) || format != FORMAT ||
        !read_size(json, "epoch", &epoch) || epoch > UINT32_MAX ||
        !read_size(json, "created_ms", &created) ||
        !read_size(tree, "entries", &out->tree_entries) ||
        !read_size(tree, "bytes", &out->tree_bytes))
        return false;
    snprintf(out->tree, sizeof out->tree, "%s", sbx_json_text(tree, "digest"));
    if ((strcmp(kind, "memory") != 0 && strcmp(kind, "files") != 0) || !decode_texts(json, out) ||
        (out->tree[0] != '\0' && !sbx_hex_parse(out->tree, digest, sizeof digest)))
        return false;
    out->kind = kind[0] == 'm' ? SANDBOX_KEEP_MEMORY : SANDBOX_KEEP_FILES;
    out->epoch = (uint32_t)epoch;
    out->created_ms = (int64_t)created;
    cJSON_ArrayForEach(part, parts)
    {
        if (!decode_part(part, &out->parts[out->part_count++]))
            return false;
    }
    return true;
}

static bool decode_texts(const cJSON *json, struct sbx_gvisor_manifest *out)
{
    struct field fields[FIELDS];
    list_fields(out, fields);
    for (size_t n = 0; n < FIELDS; n++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, fields[n].name);
        if (!cJSON_IsString(item) || strlen(item->valuestring) >= fields[n].room)
            return false;
        snprintf(fields[n].text, fields[n].room, "%s", item->valuestring);
    }
    const cJSON *features = cJSON_GetObjectItemCaseSensitive(json, "features");
    if (!cJSON_IsString(features))
        return false;
    out->features = sbx_copy(features->valuestring);
    return out->features != NULL;
}

static bool decode_part(const cJSON *json, struct sbx_gvisor_part *out)
{
    const char *path = sbx_json_text(json, "path");
    const cJSON *chunks = cJSON_GetObjectItemCaseSensitive(json, "chunks"), *chunk = NULL;
    if (cJSON_GetArraySize(json) != 3 || !path_is_good(path) || !cJSON_IsArray(chunks) ||
        !read_size(json, "size", &out->size))
        return false;
    snprintf(out->path, sizeof out->path, "%s", path);
    size_t count = (size_t)((out->size + SBX_GVISOR_CHUNK - 1) / SBX_GVISOR_CHUNK);
    if (cJSON_GetArraySize(chunks) < 0 || (size_t)cJSON_GetArraySize(chunks) != count)
        return false;
    out->chunks = calloc(count == 0 ? 1 : count, sizeof *out->chunks);
    if (out->chunks == NULL)
        return false;
    cJSON_ArrayForEach(chunk, chunks)
    {
        if (!cJSON_IsString(chunk) ||
            !sbx_hex_parse(chunk->valuestring, out->chunks[out->chunk_count++], SBX_DIGEST_BYTES))
            return false;
    }
    return true;
}

/* A name, or one in image/: nothing that leads elsewhere. */
static bool path_is_good(const char *path)
{
    const char *name = strncmp(path, "image/", 6) == 0 ? path + 6 : path;
    return *name != '\0' && *name != '.' && strchr(name, '/') == NULL &&
           strlen(path) < SBX_GVISOR_PART_PATH;
}
