/*
 * Channels to a Pod's agent: by the API server's exec, which leads to the right Pod, or to the
 * address that the Pod has, which may be another Pod's by the time that somebody answers there.
 */

#include "drivers/gke/setup.h"
#include "util/fail.h"
#include "util/memory.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

#define DIAL_MS 5000u /* a network policy that says no answers nothing */

/* An address of the internet. */
union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static sandbox_status no_instance(const struct sbx_record *record, sandbox_error *error);
static sandbox_status unreachable(const struct sbx_record *record, const char *address,
                                  const char *why, sandbox_error *error);

/*
 * The Pod is looked at first, for another one may bear its name now. Should it be replaced in
 * between, its agent is one that was never opened, and refuses what the session says.
 */
sandbox_status sbx_gke_connect(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, struct sbx_channel *channel,
                               sandbox_error *error)
{
    static const char *const argv[] = {SBX_GKE_AGENT, "relay", "@sandbox-agent", NULL};
    struct sbx_gke *driver = state;
    struct sbx_gke_incarnation recorded;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    sandbox_status status = sbx_gke_recorded_pod(driver, record, &recorded, wait, &pod, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_exec_options options = {
        .space = driver->space, .pod = recorded.pod, .container = SBX_GKE_CONTAINER, .argv = argv};
    status = sbx_kubernetes_exec(driver->cluster, &options, wait, channel, error);
    return status == SANDBOX_NOT_FOUND ? no_instance(record, error) : status;
}

bool sbx_gke_is_direct(void *state)
{
    return ((const struct sbx_gke *)state)->direct;
}

sandbox_status sbx_gke_connect_direct(void *state, const struct sbx_record *record,
                                      const struct sbx_wait *wait, struct sbx_channel *channel,
                                      sandbox_error *error)
{
    struct sbx_gke *driver = state;
    struct sbx_gke_incarnation recorded;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    sandbox_status status = sbx_gke_recorded_pod(driver, record, &recorded, wait, &pod, error);
    if (status != SANDBOX_OK)
        return status;
    union address address = {.any.sa_family = AF_UNSPEC};
    const char *text = sbx_gke_pod_address(pod);
    if (inet_pton(AF_INET, text, &address.v4.sin_addr) == 1)
        address.any.sa_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &address.v6.sin6_addr) == 1)
        address.any.sa_family = AF_INET6;
    else
        return unreachable(record, "an address", "its Pod has none yet", error);
    address.v4.sin_port = htons(SBX_GKE_PORT); /* at the same place in both */
    sandbox_error own = {0};
    struct sbx_wait soon = sbx_wait_within(wait, DIAL_MS);
    status = sbx_channel_connect_tcp(channel, &address.any, &soon, &own);
    if (status == SANDBOX_UNAVAILABLE ||
        (status == SANDBOX_TIMED_OUT && sbx_wait_check(wait, NULL) == SANDBOX_OK))
        return unreachable(record, text, status == SANDBOX_TIMED_OUT ? "no answer" : own.message,
                           error);
    if (status != SANDBOX_OK && error != NULL)
        *error = own;
    return status;
}

/* The first of IPv4, else the first. */
const char *sbx_gke_pod_address(const cJSON *pod)
{
    const cJSON *entry;
    struct in_addr v4;
    const char *first = sbx_gke_text(pod, "status", "podIP", NULL);
    cJSON_ArrayForEach(entry, sbx_gke_at(pod, "status", "podIPs", NULL))
    {
        const char *address = sbx_json_text(entry, "ip");
        if (inet_pton(AF_INET, address, &v4) == 1)
            return address;
        if (*first == '\0')
            first = address;
    }
    return first;
}

sandbox_status sbx_gke_recorded_pod(struct sbx_gke *driver, const struct sbx_record *record,
                                    struct sbx_gke_incarnation *recorded,
                                    const struct sbx_wait *wait, cJSON **pod, sandbox_error *error)
{
    sandbox_status status = SANDBOX_NOT_FOUND;
    if (sbx_gke_incarnation_read(record->incarnation, recorded))
        status = sbx_kubernetes_get(driver->cluster, &sbx_gke_pods, driver->space, recorded->pod,
                                    wait, pod, error);
    if (status != SANDBOX_OK && status != SANDBOX_NOT_FOUND)
        return status;
    bool runs = status == SANDBOX_OK && sbx_gke_pod_is_recorded(*pod, recorded) &&
                sbx_gke_pod_restarts(*pod) == recorded->restarts && !sbx_gke_pod_has_ended(*pod) &&
                sbx_gke_at(*pod, "metadata", "deletionTimestamp", NULL) == NULL;
    return runs ? SANDBOX_OK : no_instance(record, error);
}

static sandbox_status no_instance(const struct sbx_record *record, sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "no-instance",
                        "the recorded instance of '%s' does not run", record->name);
}

static sandbox_status unreachable(const struct sbx_record *record, const char *address,
                                  const char *why, sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "pod-unreachable",
                        "cannot reach '%s' at %s, port %d: %s; channel=pod works inside the "
                        "cluster, with a pool made with it (sandbox manifests): else leave it out",
                        record->name, address, SBX_GKE_PORT, why);
}
