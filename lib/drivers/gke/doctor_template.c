/* What `sandbox doctor` finds of a pool's template: whether its Pods isolate, and can be suspended.
 */

#include "drivers/gke/doctor.h"
#include <stdio.h>
#include <string.h>

#define MANIFESTS "make a new pool with what 'sandbox manifests gke' prints"

struct parts {
    const cJSON *spec, *pod, *container;
};

static const char *problem_of_isolation(const struct parts *parts);
static const char *problem_of_agent(const struct parts *parts);
static const char *problem_of_channel(const struct parts *parts, bool is_direct);
static const char *problem_of_snapshots(const struct parts *parts);
static bool has_toleration(const cJSON *pod);

void sbx_gke_look_at_template(const struct sbx_gke_look *look, const cJSON *template)
{
    struct parts parts = {.spec = sbx_gke_at(template, "spec", NULL),
                          .pod = sbx_gke_at(template, "spec", "podTemplate", "spec", NULL)};
    parts.container = sbx_gke_named(sbx_gke_at(parts.pod, "containers", NULL), SBX_GKE_CONTAINER);
    const char *const problems[] = {problem_of_isolation(&parts), problem_of_agent(&parts),
                                    problem_of_channel(&parts, look->driver->direct),
                                    problem_of_snapshots(&parts)};
    bool good = true;
    for (size_t n = 0; n < sizeof problems / sizeof problems[0]; n++) {
        if (problems[n] == NULL)
            continue;
        good = false;
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "template", MANIFESTS, "%s", problems[n]);
    }
    const char *image = sbx_gke_text(parts.container, "image", NULL);
    if (good)
        sbx_found(look->sink, SANDBOX_SEVERITY_GOOD, "template", "",
                  "isolated by gVisor, runs the agent, can be snapshotted");
    if (strstr(image, "@sha256:") == NULL && *image != '\0')
        sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "template",
                  "make a pool with --image NAME@sha256:…",
                  "the image '%.100s' is not pinned: another one under that tag makes snapshots "
                  "useless",
                  image);
    if (!has_toleration(parts.pod))
        sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "template", MANIFESTS,
                  "it does not tolerate sandbox.gke.io/runtime, which GKE's own add-on insists on");
    if (sbx_gke_at(parts.pod, "nodeSelector", "cloud.google.com/compute-class", NULL) == NULL &&
        sbx_gke_at(parts.pod, "nodeSelector", "cloud.google.com/machine-family", NULL) == NULL)
        sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "template", MANIFESTS,
                  "Pods are tied to no machine family: a snapshot is restored only on the one "
                  "that it was taken on");
}

static bool is_true(const cJSON *object, const char *first, const char *second)
{
    return cJSON_IsTrue(sbx_gke_at(object, first, second, NULL));
}

static bool is_false(const cJSON *object, const char *name)
{
    return cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(object, name));
}

static bool holds(const cJSON *list, const char *word)
{
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, list)
    {
        if (cJSON_IsString(item) && strcmp(item->valuestring, word) == 0)
            return true;
    }
    return false;
}

static bool has_toleration(const cJSON *pod)
{
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, sbx_gke_at(pod, "tolerations", NULL))
    {
        const char *key = sbx_gke_text(item, "key", NULL);
        if (*key == '\0' || strcmp(key, "sandbox.gke.io/runtime") == 0)
            return true;
    }
    return false;
}

/* The container's own word goes before the Pod's. */
static const cJSON *user_of(const struct parts *parts)
{
    const cJSON *own = sbx_gke_at(parts->container, "securityContext", "runAsUser", NULL);
    return own != NULL ? own : sbx_gke_at(parts->pod, "securityContext", "runAsUser", NULL);
}

static const char *problem_of_isolation(const struct parts *parts)
{
    const cJSON *limits = sbx_gke_at(parts->container, "resources", "limits", NULL);
    const cJSON *dropped =
        sbx_gke_at(parts->container, "securityContext", "capabilities", "drop", NULL);
    if (strcmp(sbx_gke_text(parts->pod, "runtimeClassName", NULL), "gvisor") != 0)
        return "runtimeClassName is not gvisor: nothing isolates workspaces from the node's kernel";
    if (!is_true(parts->pod, "securityContext", "runAsNonRoot") &&
        !is_true(parts->container, "securityContext", "runAsNonRoot"))
        return "runAsNonRoot is not true";
    if (!cJSON_IsNumber(user_of(parts)) || user_of(parts)->valuedouble < 1)
        return "runAsUser is no number above 0: the kubelet cannot see that it is not root";
    if (!is_false(parts->pod, "automountServiceAccountToken"))
        return "automountServiceAccountToken is not false: workspaces hold a credential of the "
               "cluster";
    if (!holds(dropped, "ALL") || !cJSON_IsFalse(sbx_gke_at(parts->container, "securityContext",
                                                            "allowPrivilegeEscalation", NULL)))
        return "the container does not drop all capabilities and privilege escalation";
    if (sbx_gke_at(limits, "memory", NULL) == NULL || sbx_gke_at(limits, "cpu", NULL) == NULL)
        return "the container has no limits of cpu and memory";
    return NULL;
}

static const char *problem_of_agent(const struct parts *parts)
{
    const cJSON *command = sbx_gke_at(parts->container, "command", NULL);
    const char *program = cJSON_GetStringValue(cJSON_GetArrayItem(command, 0));
    const cJSON *mounts = sbx_gke_at(parts->container, "volumeMounts", NULL), *mount = NULL;
    bool is_writable = false;
    if (parts->container == NULL)
        return "it has no container '" SBX_GKE_CONTAINER "'";
    if (program == NULL || strcmp(program, SBX_GKE_AGENT) != 0 || !holds(command, "serve"))
        return "the container's command is not '" SBX_GKE_AGENT " serve …'";
    if (!holds(command, "--seal"))
        return "the agent is started without --seal, so it cannot prove what it holds";
    cJSON_ArrayForEach(mount, mounts)
    {
        bool is_agents = strcmp(sbx_gke_text(mount, "mountPath", NULL), "/sandbox/agent") == 0;
        is_writable = is_writable || (is_agents && !is_true(mount, "readOnly", NULL));
    }
    if (is_writable)
        return "/sandbox/agent can be written in the workspace, so the agent can be replaced";
    if (sbx_gke_at(parts->container, "readinessProbe", "exec", NULL) == NULL)
        return "no readiness probe asks the agent ('" SBX_GKE_AGENT " health')";
    return NULL;
}

static const char *problem_of_channel(const struct parts *parts, bool is_direct)
{
    if (is_direct && !holds(sbx_gke_at(parts->container, "command", NULL), "--tcp"))
        return "channel=pod is asked for, and the agent is started without --tcp: it has no "
               "address";
    return NULL;
}

static const char *problem_of_snapshots(const struct parts *parts)
{
    const cJSON *volume = NULL;
    if (sbx_gke_at(parts->container, "livenessProbe", NULL) != NULL)
        return "a liveness probe kills the Pod while it stands still for its snapshot";
    if (strcmp(sbx_gke_text(parts->pod, "restartPolicy", NULL), "Never") != 0)
        return "restartPolicy is not Never: a container that starts anew passes for the same Pod";
    if (cJSON_GetArraySize(sbx_gke_at(parts->spec, "volumeClaimTemplates", NULL)) > 0)
        return "it has volume claims: what changes on them after a snapshot makes it useless";
    cJSON_ArrayForEach(volume, sbx_gke_at(parts->pod, "volumes", NULL))
    {
        if (sbx_gke_at(volume, "emptyDir", NULL) == NULL)
            return "it has a volume that is no emptyDir: its files are not in a snapshot";
    }
    return NULL;
}
