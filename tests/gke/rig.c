/* What the tests of the GKE driver over the cluster double share: see rig.h. */

#include "rig.h"
#include <stdio.h>
#include <stdlib.h>

void rig_begin(int argc, char **argv)
{
    setenv("SANDBOX_TEST_URI", "gke:", 0);
    scenario_begin_anywhere(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
}

unsigned rig_count(unsigned usual)
{
    const char *given = getenv("SANDBOX_TEST_COUNT");
    unsigned long count = given == NULL ? 0 : strtoul(given, NULL, 10);
    return count == 0 ? usual : (unsigned)count;
}

cJSON *rig_objects(const char *resource, const char *name)
{
    cJSON *answer = name == NULL
                        ? harness_ask("{\"do\":\"objects\",\"resource\":\"%s\"}", resource)
                        : harness_ask("{\"do\":\"objects\",\"resource\":\"%s\",\"name\":\"%s\"}",
                                      resource, name);
    cJSON *objects = cJSON_DetachItemFromObjectCaseSensitive(answer, "objects");
    cJSON_Delete(answer);
    require(objects != NULL, "the double does not tell its %s", resource);
    return objects;
}

unsigned rig_object_count(const char *resource)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *objects = rig_objects(resource, NULL);
    return (unsigned)cJSON_GetArraySize(objects);
}

unsigned rig_instances(void)
{
    return scenario_count_instances();
}

static const char *text(const cJSON *object, const char *first, const char *second,
                        const char *third)
{
    const cJSON *at = cJSON_GetObjectItemCaseSensitive(object, first);
    if (third != NULL)
        at = cJSON_GetObjectItemCaseSensitive(at, second);
    return sbx_json_text(at, third != NULL ? third : second);
}

const char *rig_claim(sandbox_workspace *workspace)
{
    static char name[256];
    snprintf(name, sizeof name, "sandbox-%s", sandbox_workspace_id(workspace));
    return name;
}

const char *rig_sandbox(sandbox_workspace *workspace)
{
    static char name[256];
    SBX_ON_EXIT(sbx_json_free) cJSON *claims = rig_objects("sandboxclaims", rig_claim(workspace));
    snprintf(name, sizeof name, "%s",
             text(cJSON_GetArrayItem(claims, 0), "status", "sandbox", "name"));
    return name;
}

const char *rig_pin(sandbox_workspace *workspace)
{
    static char name[256];
    SBX_ON_EXIT(sbx_json_free) cJSON *claims = rig_objects("sandboxclaims", rig_claim(workspace));
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(claims, 0), "spec");
    snprintf(name, sizeof name, "%s",
             text(spec, "additionalPodMetadata", "annotations", "podsnapshot.gke.io/ps-name"));
    return name;
}

/* The id of the one that a resume goes back to. */
static void recovery_point(sandbox_workspace *workspace, char id[64])
{
    sandbox_snapshot_list *list = NULL;
    sandbox_error error;
    require(sandbox_snapshot_list_all(workspace, NULL, &list, &error) == SANDBOX_OK,
            "list snapshots: %s", error.message);
    id[0] = '\0';
    for (size_t n = 0; n < sandbox_snapshot_list_count(list); n++) {
        const sandbox_snapshot_info *info = sandbox_snapshot_list_at(list, n);
        if (info->is_recovery_point)
            snprintf(id, 64, "%s", info->id);
    }
    sandbox_snapshot_list_free(list);
}

const char *rig_pod_snapshot(sandbox_workspace *workspace)
{
    static char name[256];
    char prefix[128], id[64];
    recovery_point(workspace, id);
    snprintf(prefix, sizeof prefix, "sandbox-%.12s-%s", sandbox_workspace_id(workspace), id);
    SBX_ON_EXIT(sbx_json_free) cJSON *all = rig_objects("podsnapshots", NULL);
    const cJSON *one;
    name[0] = '\0';
    cJSON_ArrayForEach(one, all)
    {
        const char *by = text(one, "metadata", "labels", "gke-pod-snapshot-triggered-by");
        if (strncmp(by, prefix, strlen(prefix)) == 0)
            snprintf(name, sizeof name, "%s", text(one, "metadata", "name", NULL));
    }
    return name;
}

void rig_confirm_restore(sandbox_workspace *workspace)
{
    const char *pod = rig_sandbox(workspace);
    SBX_ON_EXIT(sbx_json_free) cJSON *pods = rig_objects("pods", pod);
    const cJSON *status = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(pods, 0), "status");
    cJSON *conditions =
        cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(status, "conditions"), true);
    cJSON *restored = cJSON_CreateObject();
    SBX_ON_EXIT(sbx_free_text)
    char *message = sbx_format("Successfully restored the pod from PodSnapshot " RIG_SPACE "/%s",
                               rig_pod_snapshot(workspace));
    require(sbx_json_set_text(restored, "type", "PodRestored") &&
                sbx_json_set_text(restored, "status", "True") &&
                sbx_json_set_text(restored, "reason", "RestoreSucceeded") &&
                sbx_json_set_text(restored, "message", message) &&
                cJSON_AddItemToArray(conditions, restored),
            "no memory");
    SBX_ON_EXIT(sbx_free_text) char *list = cJSON_PrintUnformatted(conditions);
    cJSON_Delete(conditions);
    harness_tell("{\"do\":\"edit\",\"resource\":\"pods\",\"namespace\":\"" RIG_SPACE
                 "\",\"name\":\"%s\",\"patch\":{\"status\":{\"conditions\":%s}}}",
                 pod, list);
}

int rig_requests(const char *what)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = harness_ask("{\"do\":\"state\"}");
    return (int)sbx_json_integer(cJSON_GetObjectItemCaseSensitive(answer, "requests"), what);
}
