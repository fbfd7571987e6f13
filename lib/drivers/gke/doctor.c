/* What `sandbox doctor` finds of a cluster: its version, what it serves, what we may do there. */

#include "drivers/gke/doctor.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"
#include <stdio.h>

#define FIRST_MS  15000u
#define AGENTS    "agents.x-k8s.io"
#define CLAIMS    "extensions.agents.x-k8s.io"
#define SNAPSHOTS "podsnapshot.gke.io"
#define MANIFESTS "apply what 'sandbox manifests gke' prints"

#define CLUSTER "/version" /* what is asked first */

/* "v1.36.4-gke.1247000" */
struct version {
    unsigned major, minor, patch, build;
};

static const struct version with_snapshots = {1, 35, 3, 1234000};
static const struct version with_v1beta1 = {1, 36, 3, 1767000};

enum served { SERVED, OLDER, ABSENT, NOT_KNOWN };

static sandbox_status open_cluster(struct sbx_gke *driver, struct sbx_gke_view *view,
                                   sandbox_error *error);
static void look_at_all(const struct sbx_gke_look *look);
static bool look_at_answer(const struct sbx_gke_look *look);
static void look_at_cluster(const struct sbx_gke_look *look);
static void look_at_version(const struct sbx_gke_look *look, const char *text);
static bool look_at_agents(const struct sbx_gke_look *look);
static void look_at_mode(const struct sbx_gke_look *look);
static void look_at_snapshots(const struct sbx_gke_look *look);
static void look_at_rights(const struct sbx_gke_look *look);

sandbox_status sbx_gke_examine(const char *rest, const struct sbx_wait *wait,
                               struct sbx_findings_sink *sink, sandbox_error *error)
{
    return sbx_gke_describe(rest, wait, sink, NULL, error);
}

sandbox_status sbx_gke_describe(const char *rest, const struct sbx_wait *wait,
                                struct sbx_findings_sink *sink, char **text, sandbox_error *error)
{
    struct sbx_gke driver = {0};
    SBX_ON_EXIT(sbx_gke_view_clear) struct sbx_gke_view view = {0};
    sandbox_status status = sbx_gke_settings_read(rest, &driver, error);
    if (status != SANDBOX_OK)
        return status;
    status = open_cluster(&driver, &view, error);
    if (status == SANDBOX_OK) {
        const struct sbx_gke_look look = {&driver, &view, wait, sink};
        look_at_all(&look);
        status = sbx_wait_check(wait, error);
    }
    if (status == SANDBOX_OK && text != NULL)
        status = sbx_gke_description_print(&driver, &view, text, error);
    sbx_kubernetes_close(driver.cluster);
    sbx_gke_settings_clear(&driver);
    return status;
}

sandbox_status sbx_gke_judge_description(const char *rest, const char *title, const void *text,
                                         size_t size, struct sbx_findings_sink *sink,
                                         sandbox_error *error)
{
    const struct sbx_wait wait = sbx_wait_alone(FIRST_MS);
    struct sbx_gke driver = {0};
    SBX_ON_EXIT(sbx_gke_view_clear) struct sbx_gke_view view = {0};
    sandbox_status status = sbx_gke_settings_read(rest, &driver, error);
    if (status == SANDBOX_OK && !sbx_gke_view_begin(&view, NULL))
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a description");
    if (status == SANDBOX_OK)
        status = sbx_gke_description_read(title, text, size, &driver, &view, error);
    if (status == SANDBOX_OK) {
        const struct sbx_gke_look look = {&driver, &view, &wait, sink};
        look_at_all(&look);
    }
    sbx_gke_settings_clear(&driver);
    return status;
}

void sbx_gke_not_known(const struct sbx_gke_look *look, const char *what,
                       const sandbox_error *error)
{
    sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, what,
              strcmp(error->reason, "not-described") != 0
                  ? "look with more rights"
                  : "look at the cluster itself, with more rights",
              "not known: %s", error->message);
}

bool sbx_gke_is_missing(sandbox_status status)
{
    return status == SANDBOX_NOT_FOUND || status == SANDBOX_UNSUPPORTED;
}

/* A configuration that is of no use is a finding, as a cluster is that does not answer. */
static sandbox_status open_cluster(struct sbx_gke *driver, struct sbx_gke_view *view,
                                   sandbox_error *error)
{
    struct sbx_kubernetes_options options = {.context = driver->context,
                                             .in_cluster = *driver->context == '\0'};
    sandbox_error why = {0};
    sandbox_status status = sbx_kubernetes_open(&options, &driver->cluster, &why);
    if (!sbx_gke_view_begin(view, driver->cluster))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to look at a cluster");
    if (status != SANDBOX_OK) {
        status = sbx_gke_view_failed(view, CLUSTER, &why, error);
        return status == SANDBOX_NO_MEMORY ? status : SANDBOX_OK;
    }
    if (*driver->space == '\0') {
        free(driver->space);
        driver->space = sbx_copy(sbx_kubernetes_namespace(driver->cluster));
    }
    return driver->space != NULL
               ? SANDBOX_OK
               : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to look at a cluster");
}

static void look_at_all(const struct sbx_gke_look *look)
{
    if (look_at_answer(look))
        look_at_cluster(look);
}

/* Whether there is more to be seen. */
static bool look_at_answer(const struct sbx_gke_look *look)
{
    const cJSON *version = NULL;
    sandbox_error error = {0};
    /* One that does not answer is a finding, so the wait for it ends before the caller's does. */
    uint32_t left = sbx_wait_left_ms(look->wait);
    struct sbx_wait first =
        sbx_wait_within(look->wait, left == SANDBOX_FOREVER ? FIRST_MS : left / 2);
    sandbox_status status = sbx_gke_view_read(look->view, CLUSTER, &first, &version, &error);
    if (status == SANDBOX_OK) {
        look_at_version(look, sbx_json_text(version, "gitVersion"));
        return true;
    }
    if (look->view->is_partial) {
        sbx_gke_not_known(look, "version", &error);
        return true;
    }
    sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "cluster",
              "name a context of your kubeconfig in the URI, sign in, and see that its "
              "server answers",
              "%s", error.message);
    return false;
}

static void look_at_cluster(const struct sbx_gke_look *look)
{
    const cJSON *template = NULL, *runtime = NULL;
    sandbox_error error = {0};
    sandbox_status status = sbx_gke_view_get(look->view, &sbx_gke_runtimes, NULL, "gvisor",
                                             look->wait, &runtime, &error);
    if (status == SANDBOX_OK)
        sbx_found(look->sink, SANDBOX_SEVERITY_GOOD, "runtime", "",
                  "the runtime class gvisor is there");
    else if (sbx_gke_is_missing(status))
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "runtime",
                  "add a node pool with GKE Sandbox (gcloud container node-pools create "
                  "--sandbox type=gvisor), or use Autopilot",
                  "there is no runtime class gvisor: nothing would isolate workspaces");
    else
        sbx_gke_not_known(look, "runtime", &error);
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
        sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "version", "use a GKE cluster to suspend",
                  "Kubernetes %s, which is not GKE's: Pod snapshots are only there", text);
        return;
    }
    if (compare(&is, &with_snapshots) < 0)
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "version",
                  "upgrade the control plane and the nodes to 1.35.3-gke.1234000 or later",
                  "GKE %s has no Pod snapshots yet, so nothing can be suspended", text);
    else
        sbx_found(look->sink, SANDBOX_SEVERITY_GOOD, "version", "", "GKE %s", text);
    if (compare(&is, &with_v1beta1) < 0)
        sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "version",
                  "upgrade to 1.36.3-gke.1767000 or later, or install the open-source "
                  "controller by hand",
                  "GKE's own Agent Sandbox add-on serves v1beta1 only from 1.36.3-gke.1767000 on");
}

/* Whether the group has that version; OLDER: it has another one. */
static enum served served(const struct sbx_gke_look *look, const char *group, const char *version,
                          const char *subject)
{
    char path[128];
    const cJSON *found = NULL;
    sandbox_error error = {0};
    snprintf(path, sizeof path, "/apis/%s/%s", group, version);
    sandbox_status status = sbx_gke_view_read(look->view, path, look->wait, &found, &error);
    if (status == SANDBOX_OK)
        return SERVED;
    snprintf(path, sizeof path, "/apis/%s", group);
    if (sbx_gke_is_missing(status))
        status = sbx_gke_view_read(look->view, path, look->wait, &found, &error);
    if (status != SANDBOX_OK && !sbx_gke_is_missing(status)) {
        sbx_gke_not_known(look, subject, &error);
        return NOT_KNOWN;
    }
    return status == SANDBOX_OK ? OLDER : ABSENT;
}

/* False: workspaces cannot be made, and there is no use in looking for what they are made of. */
static bool look_at_agents(const struct sbx_gke_look *look)
{
    static const char *const groups[] = {AGENTS, CLAIMS};
    unsigned good = 0, bad = 0;
    for (size_t n = 0; n < 2; n++) {
        enum served is = served(look, groups[n], "v1beta1", "sandboxes");
        good += is == SERVED;
        bad += is == OLDER || is == ABSENT;
        if (is == OLDER)
            sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "sandboxes",
                      "install an Agent Sandbox controller of 0.5 or later, or upgrade GKE to "
                      "1.36.3-gke.1767000 or later",
                      "%s is served, but not its v1beta1: the older one knows no operatingMode "
                      "and would drop it in silence",
                      groups[n]);
        else if (is == ABSENT)
            sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "sandboxes",
                      "gcloud beta container clusters update CLUSTER --enable-agent-sandbox, or "
                      "install the controller with its extensions by hand",
                      "%s is not served: Agent Sandbox is not installed", groups[n]);
    }
    if (good == 2)
        sbx_found(look->sink, SANDBOX_SEVERITY_GOOD, "sandboxes", "", "Agent Sandbox v1beta1");
    return bad == 0;
}

static bool take_first(void *user_data, const cJSON *object)
{
    *(const cJSON **)user_data = object;
    return false;
}

/* A schema that does not know the field drops it; every Sandbox that it knew it for shows it. */
static void look_at_mode(const struct sbx_gke_look *look)
{
    const struct sbx_gke_question question = {
        .resource = &sbx_gke_sandboxes, .space = look->driver->space, .only_first = true};
    const cJSON *sandbox = NULL;
    sandbox_status status =
        sbx_gke_view_list(look->view, &question, look->wait, take_first, &sandbox, NULL);
    if (status != SANDBOX_OK || sandbox == NULL)
        sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "suspending",
                  "look again once the pool has Sandboxes",
                  "whether operatingMode is kept cannot be seen: there is no Sandbox to look at");
    else if (*sbx_gke_text(sandbox, "spec", "operatingMode", NULL) != '\0')
        sbx_found(look->sink, SANDBOX_SEVERITY_GOOD, "suspending", "", "operatingMode is kept");
    else
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "suspending",
                  "install an Agent Sandbox controller of 0.5 or later with its own resource "
                  "definitions, or upgrade GKE",
                  "the cluster drops a Sandbox's operatingMode, so nothing can be suspended");
}

static void look_at_snapshots(const struct sbx_gke_look *look)
{
    enum served is = served(look, SNAPSHOTS, "v1", "snapshots");
    if (is == SERVED)
        sbx_found(look->sink, SANDBOX_SEVERITY_GOOD, "snapshots", "", "Pod snapshots v1");
    else if (is == OLDER)
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "snapshots",
                  "upgrade to 1.35.3-gke.1234000 or later",
                  "Pod snapshots are the preview's, without v1");
    else if (is == ABSENT)
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "snapshots",
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
            if (sbx_gke_view_may(look->view, right->verbs[n], resource, right->part, space,
                                 look->wait, &allowed, &error) != SANDBOX_OK) {
                sbx_gke_not_known(look, "rights", &error);
                return;
            }
            asked++;
            missing += !allowed;
            if (!allowed)
                sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "rights",
                          MANIFESTS ", with --service-account for who this is",
                          "may not %s %s%s%s%s%s%s", right->verbs[n], resource->plural,
                          *right->part == '\0' ? "" : "/", right->part,
                          *resource->group == '\0' ? "" : " of ", resource->group,
                          resource->cluster_scoped ? ", outside of namespaces" : "");
        }
    }
    if (missing == 0)
        sbx_found(look->sink, SANDBOX_SEVERITY_GOOD, "rights", "", "all %u that are needed", asked);
}
