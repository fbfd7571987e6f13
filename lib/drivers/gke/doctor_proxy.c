/*
 * What `sandbox doctor` finds of the egress proxy that a pool's Pods are let to: whether it is
 * there, alone, and ready. Its Secret is not read: a Pod that waits for it says so.
 */

#include "drivers/gke/doctor.h"
#include "util/json.h"
#include <stdio.h>
#include <string.h>

#define MANIFESTS "apply what 'sandbox manifests gke --egress-proxy' prints"
#define SELECTOR  SBX_GKE_PROXY_LABEL "=" SBX_GKE_PROXY
#define SUBJECT   "egress"

static const char *space_of_proxy(const cJSON *template);
static void judge(const struct sbx_gke_look *look, const char *space, const cJSON *deployment);
static void tell_why(const struct sbx_gke_look *look, const char *space);
static bool take_waiting(void *user_data, const cJSON *pod);

void sbx_gke_look_at_proxy(const struct sbx_gke_look *look, const cJSON *template)
{
    const cJSON *deployment = NULL;
    sandbox_error error = {0};
    const char *space = space_of_proxy(template);
    if (*space == '\0')
        return;
    sandbox_status status = sbx_gke_view_get(look->view, &sbx_gke_deployments, space, SBX_GKE_PROXY,
                                             look->wait, &deployment, &error);
    if (status == SANDBOX_OK)
        judge(look, space, deployment);
    else if (sbx_gke_is_missing(status))
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, SUBJECT, MANIFESTS,
                  "there is no egress proxy in '%.63s', which is all that workspaces may reach",
                  space);
    else
        sbx_gke_not_known(look, SUBJECT, &error);
}

/* As the template's own rules name it; "": they name none. */
static const char *space_of_proxy(const cJSON *template)
{
    const cJSON *rule = NULL, *peer = NULL;
    cJSON_ArrayForEach(rule, sbx_gke_at(template, "spec", "networkPolicy", "egress", NULL))
    {
        cJSON_ArrayForEach(peer, cJSON_GetObjectItemCaseSensitive(rule, "to"))
        {
            const char *pods =
                sbx_gke_text(peer, "podSelector", "matchLabels", SBX_GKE_PROXY_LABEL, NULL);
            if (strcmp(pods, SBX_GKE_PROXY) == 0)
                return sbx_gke_text(peer, "namespaceSelector", "matchLabels", SBX_GKE_SPACE_LABEL,
                                    NULL);
        }
    }
    return "";
}

static void judge(const struct sbx_gke_look *look, const char *space, const cJSON *deployment)
{
    const cJSON *spec = sbx_gke_at(deployment, "spec", NULL);
    bool is_alone = sbx_json_integer(spec, "replicas") <= 1 &&
                    strcmp(sbx_gke_text(spec, "strategy", "type", NULL), "Recreate") == 0;
    if (!is_alone)
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, SUBJECT, MANIFESTS,
                  "there may be two egress proxies at once, and neither knows who is registered "
                  "with the other");
    if (sbx_json_integer(sbx_gke_at(deployment, "status", NULL), "readyReplicas") == 0)
        tell_why(look, space);
    else if (is_alone)
        sbx_found(look->sink, SANDBOX_SEVERITY_GOOD, SUBJECT, "", "the egress proxy is ready");
}

struct waiting {
    char text[300];
    bool for_secret;
};

static void tell_why(const struct sbx_gke_look *look, const char *space)
{
    const struct sbx_gke_question question = {
        .resource = &sbx_gke_pods, .space = space, .selector = SELECTOR};
    struct waiting waiting = {.text = ""};
    char make[200];
    snprintf(make, sizeof make,
             "printf %%s \"$(openssl rand -hex 32)\" | kubectl create secret generic "
             "sandbox-egress-proxy --from-file=token=/dev/stdin -n %.63s",
             space);
    (void)sbx_gke_view_list(look->view, &question, look->wait, take_waiting, &waiting, NULL);
    sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, SUBJECT,
              waiting.for_secret ? make
                                 : "kubectl describe its Pods: they may lack an image or a node",
              "the egress proxy in '%.63s' is not ready%s%s", space,
              waiting.text[0] == '\0' ? "" : ": ", waiting.text);
}

/* The first that says what it waits for. */
static bool take_waiting(void *user_data, const cJSON *pod)
{
    struct waiting *waiting = user_data;
    const cJSON *container = NULL;
    cJSON_ArrayForEach(container, sbx_gke_at(pod, "status", "containerStatuses", NULL))
    {
        const char *reason = sbx_gke_text(container, "state", "waiting", "reason", NULL);
        const char *words = sbx_gke_text(container, "state", "waiting", "message", NULL);
        if (*reason == '\0')
            continue;
        snprintf(waiting->text, sizeof waiting->text, "%.60s%s%.200s", reason,
                 *words == '\0' ? "" : ", ", words);
        waiting->for_secret = strcmp(reason, "CreateContainerConfigError") == 0 &&
                              strcasestr(words, "secret") != NULL;
        return false;
    }
    return true;
}
