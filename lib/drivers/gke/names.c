/* Names: of our objects, of incarnations, and the hash that Sandboxes are labelled with. */

#include "drivers/gke/gke.h"
#include "util/memory.h"
#include <stdio.h>
#include <time.h>

static bool take_part(const char **text, char *out, size_t room);

void sbx_gke_record_name(const char *workspace, char out[SBX_GKE_NAME])
{
    snprintf(out, SBX_GKE_NAME, "sandbox-record-%s", workspace);
}

void sbx_gke_claim_name(const struct sbx_record *record, char out[SBX_GKE_NAME])
{
    snprintf(out, SBX_GKE_NAME, "sandbox-%s", record->id);
}

void sbx_gke_trigger_name(const struct sbx_record *record, const char *snapshot_id,
                          char out[SBX_GKE_NAME])
{
    snprintf(out, SBX_GKE_NAME, "sandbox-%.12s-%s", record->id, snapshot_id);
}

bool sbx_gke_incarnation_read(const char *text, struct sbx_gke_incarnation *out)
{
    struct sbx_gke_incarnation parts = {0};
    if (!take_part(&text, parts.sandbox, sizeof parts.sandbox) ||
        !take_part(&text, parts.pod, sizeof parts.pod) ||
        !take_part(&text, parts.uid, sizeof parts.uid))
        return false;
    char *end = NULL;
    if (*text != '\0') {
        unsigned long restarts = strtoul(text, &end, 10);
        if (*text < '1' || *text > '9' || *end != '\0' || restarts > UINT32_MAX)
            return false;
        parts.restarts = (uint32_t)restarts;
    }
    *out = parts;
    return true;
}

/* Up to the next '/' or the end, and past it. */
static bool take_part(const char **text, char *out, size_t room)
{
    size_t size = strcspn(*text, "/");
    if (size == 0 || size >= room)
        return false;
    memcpy(out, *text, size);
    out[size] = '\0';
    *text += size + ((*text)[size] == '/');
    return true;
}

bool sbx_gke_incarnation_print(const char *sandbox, const char *pod, const char *uid,
                               char out[SBX_INCARNATION_TEXT])
{
    int size = snprintf(out, SBX_INCARNATION_TEXT, "%s/%s/%s", sandbox, pod, uid);
    return *sandbox != '\0' && *pod != '\0' && *uid != '\0' && size > 0 &&
           size < SBX_INCARNATION_TEXT;
}

bool sbx_gke_incarnation_of(const cJSON *sandbox, const cJSON *pod, char out[SBX_INCARNATION_TEXT])
{
    uint32_t restarts = sbx_gke_pod_restarts(pod);
    if (!sbx_gke_incarnation_print(sbx_gke_text(sandbox, "metadata", "name", NULL),
                                   sbx_gke_text(pod, "metadata", "name", NULL), sbx_gke_uid(pod),
                                   out))
        return false;
    size_t used = strlen(out), room = SBX_INCARNATION_TEXT - used;
    int size = restarts == 0 ? 0 : snprintf(out + used, room, "/%u", restarts);
    return size >= 0 && (size_t)size < room;
}

void sbx_gke_name_hash(const char *sandbox, char out[9])
{
    uint32_t hash = 2166136261u;
    for (const char *at = sandbox; *at != '\0'; at++)
        hash = (hash ^ (uint8_t)*at) * 16777619u;
    snprintf(out, 9, "%08x", hash);
}

void sbx_gke_time(int64_t ms, char out[32])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts = {0};
    (void)gmtime_r(&seconds, &parts);
    if (strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        out[0] = '\0';
}
