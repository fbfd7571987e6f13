/* What `sandbox doctor` finds of a cluster: its version, what it serves, what we may do there. */

#include "drivers/gke/setup.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"
#include <stdarg.h>
#include <stdio.h>

#define FIRST_MS  15000u
#define AGENTS    "agents.x-k8s.io"
#define CLAIMS    "extensions.agents.x-k8s.io"
#define SNAPSHOTS "podsnapshot.gke.io"
#define MANIFESTS "apply what 'sandbox manifests gke' prints"

/* "v1.36.4-gke.1247000" */
struct version {
    unsigned major, minor, patch, build;
};

static const struct version with_snapshots = {1, 35, 3, 1234000};
static const struct version with_v1beta1 = {1, 36, 3, 1767000};

static bool open_cluster(const struct sbx_gke_look *look);
static void look_at_cluster(const struct sbx_gke_look *look);
static void look_at_version(const struct sbx_gke_look *look, const char *text);
static bool look_at_agents(const struct sbx_gke_look *look);
static void look_at_mode(const struct sbx_gke_look *look);
static void look_at_snapshots(const struct sbx_gke_look *look);
static void look_at_rights(const struct sbx_gke_look *look);

sandbox_status sbx_gke_examine(const char *rest, const struct sbx_wait *wait,
                               struct sbx_findings_sink *sink, sandbox_error *error)
{
    struct sbx_gke driver = {0};
    sandbox_status status = sbx_gke_settings_read(rest, &driver, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_gke_look look = {&driver, wait, sink};
    if (open_cluster(&look))
        look_at_cluster(&look);
    sbx_kubernetes_close(driver.cluster);
    sbx_gke_settings_clear(&driver);
    return sbx_wait_check(wait, error);
}

void sbx_gke_found(const struct sbx_gke_look *look, sandbox_severity severity, const char *subject,
                   const char *remedy, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    look->sink->add(look->sink, severity, subject, text, remedy);
}

sandbox_status sbx_gke_look_at(const struct sbx_gke_look *look, const char *path, const char *what,
                               cJSON **out)
{
    sandbox_error error = {0};
    *out = NULL;
    sandbox_status status =
        sbx_kubernetes_read(look->driver->cluster, path, look->wait, out, &error);
    if (status != SANDBOX_OK && status != SANDBOX_NOT_FOUND)
        sbx_gke_found(look, SANDBOX_SEVERITY_NOTE, what, "look with more rights", "not known: %s",
                      error.message);
    return status;
}

static bool open_cluster(const struct sbx_gke_look *look)
{
    struct sbx_gke *driver = look->driver;
    struct sbx_kubernetes_options options = {.context = driver->context,
                                             .in_cluster = *driver->context == '\0'};
    sandbox_error error = {0};
    SBX_ON_EXIT(sbx_json_free) cJSON *version = NULL;
    /* One that does not answer is a finding, so the wait for it ends before the caller's does. */
    uint32_t left = sbx_wait_left_ms(look->wait);
    struct sbx_wait first =
        sbx_wait_within(look->wait, left == SANDBOX_FOREVER ? FIRST_MS : left / 2);
    sandbox_status status = sbx_kubernetes_open(&options, &driver->cluster, &error);
    if (status == SANDBOX_OK)
        status = sbx_kubernetes_read(driver->cluster, "/version", &first, &version, &error);
    if (status != SANDBOX_OK) {
        sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "cluster",
                      "name a context of your kubeconfig in the URI, sign in, and see that its "
                      "server answers",
                      "%s", error.message);
        return false;
    }
    if (*driver->space == '\0') {
        free(driver->space);
        driver->space = sbx_copy(sbx_kubernetes_namespace(driver->cluster));
    }
    driver->title =
        sbx_format("gke://%s/%s", driver->context, driver->space == NULL ? "" : driver->space);
    if (driver->space == NULL || driver->title == NULL)
        return false;
    look_at_version(look, sbx_json_text(version, "gitVersion"));
    return true;
}

static void look_at_cluster(const struct sbx_gke_look *look)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *template = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *runtime = NULL;
    sandbox_status status =
        sbx_gke_look_at(look, "/apis/node.k8s.io/v1/runtimeclasses/gvisor", "runtime", &runtime);
    if (status == SANDBOX_OK)
        sbx_gke_found(look, SANDBOX_SEVERITY_GOOD, "runtime", "",
                      "the runtime class gvisor is there");
    else if (status == SANDBOX_NOT_FOUND)
        sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "runtime",
                      "add a node pool with GKE Sandbox (gcloud container node-pools create "
                      "--sandbox type=gvisor), or use Autopilot",
                      "there is no runtime class gvisor: nothing would isolate workspaces");
    look_at_snapshots(look);
    look_at_rights(look);
    if (look_at_agents(look)) {
        look_at_mode(look);
        sbx_gke_look_at_pool(look, &template);
    }
    sbx_gke_look_at_nodes(look, template);
}

static int compare(const struct version *a, const struct version *b)
{
    const unsigned parts[4][2] = {
        {a->major, b->major}, {a->minor, b->minor}, {a->patch, b->patch}, {a->build, b->build}};
    for (size_t n = 0; n < 4; n++) {
        if (parts[n][0] != parts[n][1])
            return parts[n][0] < parts[n][1] ? -1 : 1;
    }
    return 0;
}

static void look_at_version(const struct sbx_gke_look *look, const char *text)
{
    struct version is = {0};
    if (sscanf(text, "v%u.%u.%u-gke.%u", &is.major, &is.minor, &is.patch, &is.build) != 4) {
        sbx_gke_found(look, SANDBOX_SEVERITY_NOTE, "version", "use a GKE cluster to suspend",
                      "Kubernetes %s, which is not GKE's: Pod snapshots are only there", text);
        return;
    }
    if (compare(&is, &with_snapshots) < 0)
        sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "version",
                      "upgrade the control plane and the nodes to 1.35.3-gke.1234000 or later",
                      "GKE %s has no Pod snapshots yet, so nothing can be suspended", text);
    else
        sbx_gke_found(look, SANDBOX_SEVERITY_GOOD, "version", "", "GKE %s", text);
    if (compare(&is, &with_v1beta1) < 0)
        sbx_gke_found(
            look, SANDBOX_SEVERITY_NOTE, "version",
            "upgrade to 1.36.3-gke.1767000 or later, or install the open-source "
            "controller by hand",
            "GKE's own Agent Sandbox add-on serves v1beta1 only from 1.36.3-gke.1767000 on");
}

/* Whether the group has that version; `older`: it has another one. */
static bool is_served(const struct sbx_gke_look *look, const char *group, const char *version,
                      bool *older)
{
    char path[128];
    SBX_ON_EXIT(sbx_json_free) cJSON *found = NULL;
    snprintf(path, sizeof path, "/apis/%s/%s", group, version);
    *older = false;
    if (sbx_kubernetes_read(look->driver->cluster, path, look->wait, &found, NULL) == SANDBOX_OK)
        return true;
    snprintf(path, sizeof path, "/apis/%s", group);
    *older =
        sbx_kubernetes_read(look->driver->cluster, path, look->wait, &found, NULL) == SANDBOX_OK;
    return false;
}

static bool look_at_agents(const struct sbx_gke_look *look)
{
    static const char *const groups[] = {AGENTS, CLAIMS};
    bool good = true;
    for (size_t n = 0; n < 2; n++) {
        bool older = false;
        if (is_served(look, groups[n], "v1beta1", &older))
            continue;
        good = false;
        if (older)
            sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "sandboxes",
                          "install an Agent Sandbox controller of 0.5 or later, or upgrade GKE to "
                          "1.36.3-gke.1767000 or later",
                          "%s is served, but not its v1beta1: the older one knows no operatingMode "
                          "and would drop it in silence",
                          groups[n]);
        else
            sbx_gke_found(
                look, SANDBOX_SEVERITY_PROBLEM, "sandboxes",
                "gcloud beta container clusters update CLUSTER --enable-agent-sandbox, or "
                "install the controller with its extensions by hand",
                "%s is not served: Agent Sandbox is not installed", groups[n]);
    }
    if (good)
        sbx_gke_found(look, SANDBOX_SEVERITY_GOOD, "sandboxes", "", "Agent Sandbox v1beta1");
    return good;
}

static bool take_first(void *user_data, const cJSON *object)
{
    cJSON **first = user_data;
    *first = cJSON_Duplicate(object, true);
    return false;
}

/* A schema that does not know the field drops it; every Sandbox that it knew it for shows it. */
static void look_at_mode(const struct sbx_gke_look *look)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    sandbox_status status =
        sbx_kubernetes_list(look->driver->cluster, &sbx_gke_sandboxes, look->driver->space, NULL,
                            look->wait, take_first, &sandbox, NULL);
    if (status != SANDBOX_OK || sandbox == NULL)
        sbx_gke_found(
            look, SANDBOX_SEVERITY_NOTE, "suspending", "look again once the pool has Sandboxes",
            "whether operatingMode is kept cannot be seen: there is no Sandbox to look at");
    else if (*sbx_gke_text(sandbox, "spec", "operatingMode", NULL) != '\0')
        sbx_gke_found(look, SANDBOX_SEVERITY_GOOD, "suspending", "", "operatingMode is kept");
    else
        sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "suspending",
                      "install an Agent Sandbox controller of 0.5 or later with its own resource "
                      "definitions, or upgrade GKE",
                      "the cluster drops a Sandbox's operatingMode, so nothing can be suspended");
}

static void look_at_snapshots(const struct sbx_gke_look *look)
{
    bool older = false;
    if (is_served(look, SNAPSHOTS, "v1", &older))
        sbx_gke_found(look, SANDBOX_SEVERITY_GOOD, "snapshots", "", "Pod snapshots v1");
    else if (older)
        sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "snapshots",
                      "upgrade to 1.35.3-gke.1234000 or later",
                      "Pod snapshots are the preview's, without v1");
    else
        sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "snapshots",
                      "gcloud container clusters update CLUSTER --enable-pod-snapshots (with "
                      "Workload Identity Federation; on Autopilot it is on)",
                      "Pod snapshots are not enabled, so nothing can be suspended");
}

/* Verb by verb, since a role is put together so. */
static void look_at_rights(const struct sbx_gke_look *look)
{
    unsigned asked = 0, missing = 0;
    for (const struct sbx_gke_right *right = sbx_gke_rights; right->resource != NULL; right++) {
        for (size_t n = 0; right->verbs[n] != NULL; n++) {
            const struct sbx_resource *resource = right->resource;
            const char *space = resource->cluster_scoped ? "" : look->driver->space;
            bool allowed = false;
            sandbox_error error = {0};
            if (sbx_kubernetes_may(look->driver->cluster, right->verbs[n], resource, right->part,
                                   space, look->wait, &allowed, &error) != SANDBOX_OK) {
                sbx_gke_found(look, SANDBOX_SEVERITY_NOTE, "rights", "look with more rights",
                              "not known: %s", error.message);
                return;
            }
            asked++;
            missing += !allowed;
            if (!allowed)
                sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "rights",
                              MANIFESTS ", with --service-account for who this is",
                              "may not %s %s%s%s%s%s%s", right->verbs[n], resource->plural,
                              *right->part == '\0' ? "" : "/", right->part,
                              *resource->group == '\0' ? "" : " of ", resource->group,
                              resource->cluster_scoped ? ", outside of namespaces" : "");
        }
    }
    if (missing == 0)
        sbx_gke_found(look, SANDBOX_SEVERITY_GOOD, "rights", "", "all %u that are needed", asked);
}
