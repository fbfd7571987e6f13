/* What claims, Sandboxes and Pods say of themselves. */

#include "drivers/gke/gke.h"
#include <stdio.h>
#include <string.h>

static bool claim_is_hopeless(const cJSON *ready);
static bool sandbox_is_hopeless(const cJSON *sandbox, const cJSON *ready);
static bool pod_is_hopeless(const cJSON *pod);
static bool is_among(const char *text, const char *const *words);
static bool holds_one(const char *text, const char *const *parts);
static bool tell_container(const cJSON *container, char *out, size_t size);

const cJSON *sbx_gke_condition(const cJSON *object, const char *type)
{
    const cJSON *conditions = sbx_gke_at(object, "status", "conditions", NULL);
    const cJSON *condition;
    cJSON_ArrayForEach(condition, conditions)
    {
        if (strcmp(sbx_json_text(condition, "type"), type) == 0)
            return condition;
    }
    return NULL;
}

bool sbx_gke_condition_is(const cJSON *object, const char *type, const char *status)
{
    return strcmp(sbx_json_text(sbx_gke_condition(object, type), "status"), status) == 0;
}

const char *sbx_gke_annotation(const cJSON *object, const char *name)
{
    return sbx_gke_text(object, "metadata", "annotations", name, NULL);
}

const char *sbx_gke_uid(const cJSON *object)
{
    return sbx_gke_text(object, "metadata", "uid", NULL);
}

const char *sbx_gke_version(const cJSON *object)
{
    return sbx_gke_text(object, "metadata", "resourceVersion", NULL);
}

bool sbx_gke_condition_is_current(const cJSON *object, const char *type)
{
    const cJSON *condition = sbx_gke_condition(object, type);
    return condition != NULL &&
           sbx_json_integer(condition, "observedGeneration") >=
               sbx_json_number(sbx_gke_at(object, "metadata", "generation", NULL));
}

/* A Suspended condition that an old controller left behind says nothing beside a Ready one. */
bool sbx_gke_sandbox_is_ready(const cJSON *sandbox)
{
    return strcmp(sbx_gke_text(sandbox, "spec", "operatingMode", NULL), "Suspended") != 0 &&
           sbx_gke_at(sandbox, "metadata", "deletionTimestamp", NULL) == NULL &&
           sbx_gke_condition_is(sandbox, "Ready", "True") &&
           sbx_gke_condition_is_current(sandbox, "Ready");
}

bool sbx_gke_sandbox_is_suspended(const cJSON *sandbox)
{
    return strcmp(sbx_gke_text(sandbox, "spec", "operatingMode", NULL), "Suspended") == 0 &&
           sbx_gke_condition_is(sandbox, "Suspended", "True") &&
           sbx_gke_condition_is_current(sandbox, "Suspended");
}

bool sbx_gke_is_hopeless(const cJSON *object, char why[300])
{
    const char *kind = sbx_gke_text(object, "kind", NULL);
    const cJSON *ready = sbx_gke_condition(object, "Ready");
    why[0] = '\0';
    if (strcmp(kind, "Pod") == 0) {
        if (!pod_is_hopeless(object))
            return false;
        sbx_gke_pod_trouble(object, why, 300);
        return true;
    }
    bool hopeless = !sbx_gke_condition_is(object, "Ready", "True") &&
                    (strcmp(kind, "Sandbox") == 0 ? sandbox_is_hopeless(object, ready)
                                                  : claim_is_hopeless(ready));
    if (hopeless)
        snprintf(why, 300, "%s: %s", sbx_json_text(ready, "reason"),
                 sbx_json_text(ready, "message"));
    return hopeless;
}

/*
 * A claim's condition is mostly a copy of its Sandbox's, which may be an older one: only the
 * claim's own reasons count. Three lasting errors come under the name of the passing ones.
 */
static bool claim_is_hopeless(const cJSON *ready)
{
    static const char *const lasting[] = {"WarmPoolNotFound",
                                          "TemplateNotFound",
                                          "InvalidMetadata",
                                          "EnvVarsInjectionRejected",
                                          "VolumeClaimTemplatesError",
                                          "ClaimExpired",
                                          "SandboxExpired",
                                          NULL};
    static const char *const errors[] = {"metadata override conflict",
                                         "environment variable override is not allowed",
                                         "target container", NULL};
    const char *reason = sbx_json_text(ready, "reason");
    return is_among(reason, lasting) || (strcmp(reason, "ReconcilerError") == 0 &&
                                         holds_one(sbx_json_text(ready, "message"), errors));
}

static bool sandbox_is_hopeless(const cJSON *sandbox, const cJSON *ready)
{
    static const char *const lasting[] = {"SandboxExpired", "PodFailed", "PodSucceeded", NULL};
    static const char *const errors[] = {"ValidatingAdmissionPolicy", "exceeded quota",
                                         "is invalid", NULL};
    const char *reason = sbx_json_text(ready, "reason");
    return sbx_gke_condition_is_current(sandbox, "Ready") &&
           (is_among(reason, lasting) || (strcmp(reason, "ReconcilerError") == 0 &&
                                          holds_one(sbx_json_text(ready, "message"), errors)));
}

/* What the kubelet tries again is left to it, but for a container that was made and cannot run. */
static bool pod_is_hopeless(const cJSON *pod)
{
    static const char *const waits[] = {"CrashLoopBackOff",
                                        "RunContainerError",
                                        "CreateContainerConfigError",
                                        "CreateContainerError",
                                        "InvalidImageName",
                                        "ErrImageNeverPull",
                                        NULL};
    static const char *const lists[] = {"initContainerStatuses", "containerStatuses"};
    if (sbx_gke_pod_has_ended(pod))
        return true;
    for (size_t n = 0; n < 2; n++) {
        const cJSON *container;
        cJSON_ArrayForEach(container, sbx_gke_at(pod, "status", lists[n], NULL))
        {
            if (is_among(sbx_gke_text(container, "state", "waiting", "reason", NULL), waits))
                return true;
        }
    }
    return false;
}

bool sbx_gke_pod_is_ready(const cJSON *pod)
{
    return strcmp(sbx_gke_text(pod, "status", "phase", NULL), "Running") == 0 &&
           sbx_gke_at(pod, "metadata", "deletionTimestamp", NULL) == NULL &&
           sbx_gke_condition_is(pod, "Ready", "True");
}

bool sbx_gke_pod_has_ended(const cJSON *pod)
{
    const char *phase = sbx_gke_text(pod, "status", "phase", NULL);
    return strcmp(phase, "Failed") == 0 || strcmp(phase, "Succeeded") == 0;
}

uint32_t sbx_gke_pod_restarts(const cJSON *pod)
{
    int64_t count = sbx_json_integer(
        sbx_gke_named(sbx_gke_at(pod, "status", "containerStatuses", NULL), SBX_GKE_CONTAINER),
        "restartCount");
    return count < 0 || count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;
}

void sbx_gke_pod_trouble(const cJSON *pod, char *out, size_t size)
{
    static const char *const lists[] = {"containerStatuses", "initContainerStatuses"};
    const char *reason = sbx_gke_text(pod, "status", "reason", NULL);
    out[0] = '\0';
    if (*reason != '\0') {
        const char *message = sbx_gke_text(pod, "status", "message", NULL);
        snprintf(out, size, "%s%s%s", reason, *message == '\0' ? "" : ": ", message);
        return;
    }
    for (size_t n = 0; n < 2; n++) {
        const cJSON *container;
        cJSON_ArrayForEach(container, sbx_gke_at(pod, "status", lists[n], NULL))
        {
            if (tell_container(container, out, size))
                return;
        }
    }
    const cJSON *scheduled = sbx_gke_condition(pod, "PodScheduled");
    if (strcmp(sbx_json_text(scheduled, "status"), "False") == 0)
        snprintf(out, size, "%s: %s", sbx_json_text(scheduled, "reason"),
                 sbx_json_text(scheduled, "message"));
}

static bool tell_container(const cJSON *container, char *out, size_t size)
{
    const cJSON *ended = sbx_gke_at(container, "state", "terminated", NULL);
    const cJSON *waiting = sbx_gke_at(container, "state", "waiting", NULL);
    const char *name = sbx_json_text(container, "name");
    const char *message = sbx_json_text(ended != NULL ? ended : waiting, "message");
    if (ended != NULL && sbx_json_integer(ended, "exitCode") != 0)
        snprintf(out, size, "container '%s' ended: %s, exit code %lld%s%s", name,
                 sbx_json_text(ended, "reason"), (long long)sbx_json_integer(ended, "exitCode"),
                 *message == '\0' ? "" : ": ", message);
    else if (*sbx_json_text(waiting, "reason") != '\0')
        snprintf(out, size, "container '%s' waits: %s%s%s", name, sbx_json_text(waiting, "reason"),
                 *message == '\0' ? "" : ": ", message);
    return out[0] != '\0';
}

const cJSON *sbx_gke_controller(const cJSON *object)
{
    const cJSON *owner;
    cJSON_ArrayForEach(owner, sbx_gke_at(object, "metadata", "ownerReferences", NULL))
    {
        if (sbx_json_flag(owner, "controller"))
            return owner;
    }
    return NULL;
}

bool sbx_gke_is_controlled_by(const cJSON *object, const char *uid)
{
    return *uid != '\0' && strcmp(sbx_json_text(sbx_gke_controller(object), "uid"), uid) == 0;
}

const char *sbx_gke_pod_name(const cJSON *sandbox)
{
    const char *name = sbx_gke_annotation(sandbox, "agents.x-k8s.io/pod-name");
    return *name != '\0' ? name : sbx_gke_text(sandbox, "metadata", "name", NULL);
}

static bool is_among(const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strcmp(text, *words) == 0)
            return true;
    }
    return false;
}

static bool holds_one(const char *text, const char *const *parts)
{
    for (; *parts != NULL; parts++) {
        if (strstr(text, *parts) != NULL)
            return true;
    }
    return false;
}
