/*
 * The way out of Pods: an egress proxy in the cluster, which the Pods' agents connect to and which
 * knows a workspace by its Pod's address and by a key of this run. Where it is stands in the URI or
 * in SANDBOX_PROXY_URL and SANDBOX_PROXY_ADMIN_URL; the token of its admin API in
 * SANDBOX_PROXY_TOKEN, or in the file that SANDBOX_PROXY_TOKEN_FILE names.
 */

#include "cloud/egress_admin.h"
#include "drivers/gke/gke.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#define HTTP      "http://"
#define TOKEN_MAX 512u

/* Where the proxy is asked. The token is a copy. */
struct place {
    struct sbx_http *http;
    struct sbx_egress_admin admin;
    char *token;
};

static bool ends_with_port(const char *colon);
static sandbox_status take_variable(const char *name, bool admin, char **setting,
                                    sandbox_error *error);
static bool copy_variable(const char *name, char **out);
static sandbox_status find_place(struct sbx_gke *driver, struct place *out, sandbox_error *error);
static void leave(struct place *place);
static sandbox_status read_token(const struct sbx_gke *driver, char **out, sandbox_error *error);
static sandbox_status put(const struct place *place, const struct sbx_record *record,
                          const char *address, const cJSON *registration, bool keep,
                          const char *key, const struct sbx_wait *wait, sandbox_error *error);
static const char *address_towards(const struct sbx_gke *driver, const cJSON *pod);

/* ---- settings ---- */

bool sbx_gke_proxy_url_is_good(const char *url, bool admin)
{
    char address[INET6_ADDRSTRLEN];
    uint8_t bytes[16];
    if (strncmp(url, HTTP, sizeof HTTP - 1) != 0)
        return false;
    const char *host = url + sizeof HTTP - 1, *colon = strrchr(host, ':');
    bool is_v6 = *host == '[';
    const char *begin = host + is_v6, *stop = colon == NULL ? begin : colon - is_v6;
    if (stop <= begin || !ends_with_port(colon) || (is_v6 && *stop != ']'))
        return false;
    size_t size = (size_t)(stop - begin);
    if (admin && !is_v6)
        return size < 254 && strspn(begin, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                           "0123456789.-") == size;
    if (size >= sizeof address)
        return false;
    memcpy(address, begin, size);
    address[size] = '\0';
    return inet_pton(is_v6 ? AF_INET6 : AF_INET, address, bytes) == 1;
}

static bool ends_with_port(const char *colon)
{
    char *end;
    size_t digits = strspn(colon + 1, "0123456789");
    unsigned long port = strtoul(colon + 1, &end, 10);
    return digits > 0 && digits < 6 && colon[1 + digits] == '\0' && port > 0 && port < 65536;
}

sandbox_status sbx_gke_egress_settle(struct sbx_gke *driver, sandbox_error *error)
{
    struct sbx_gke_proxy *proxy = &driver->proxy;
    sandbox_status status = take_variable("SANDBOX_PROXY_URL", false, &proxy->egress, error);
    if (status == SANDBOX_OK)
        status = take_variable("SANDBOX_PROXY_ADMIN_URL", true, &proxy->admin, error);
    if (status == SANDBOX_OK && (!copy_variable("SANDBOX_PROXY_TOKEN", &proxy->token) ||
                                 !copy_variable("SANDBOX_PROXY_TOKEN_FILE", &proxy->token_file)))
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client");
    return status;
}

static sandbox_status take_variable(const char *name, bool admin, char **setting,
                                    sandbox_error *error)
{
    if (*setting != NULL)
        return SANDBOX_OK;
    if (!copy_variable(name, setting))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client");
    /* What is wrong is not shown: somebody may have put a secret there. */
    if (*setting != NULL && !sbx_gke_proxy_url_is_good(*setting, admin))
        return sbx_fail(error, SANDBOX_INVALID, "%s is not http://%s:PORT", name,
                        admin ? "HOST" : "ADDRESS");
    return SANDBOX_OK;
}

/* One that is empty is none. */
static bool copy_variable(const char *name, char **out)
{
    const char *value = getenv(name);
    if (value == NULL || *value == '\0')
        return true;
    *out = sbx_copy(value);
    return *out != NULL;
}

bool sbx_gke_egress_is_set(const struct sbx_gke *driver)
{
    const struct sbx_gke_proxy *proxy = &driver->proxy;
    return proxy->egress != NULL && proxy->admin != NULL &&
           (proxy->token != NULL || proxy->token_file != NULL);
}

/* ---- the proxy ---- */

sandbox_status sbx_gke_egress_open(void *state, const struct sbx_record *record,
                                   const cJSON *registration, bool keep,
                                   const struct sbx_wait *wait, struct sbx_egress_way *way,
                                   sandbox_error *error)
{
    struct sbx_gke *driver = state;
    struct sbx_gke_incarnation recorded;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    SBX_ON_EXIT(leave) struct place place = {0};
    *way = (struct sbx_egress_way){.address = ""};
    sandbox_status status = find_place(driver, &place, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_recorded_pod(driver, record, &recorded, wait, &pod, error);
    if (status != SANDBOX_OK)
        return status;
    const char *address = address_towards(driver, pod);
    if (*address == '\0')
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "no-address",
                            "the Pod of '%s' has no address that it could reach the egress proxy "
                            "from",
                            record->name);
    if (!sbx_egress_admin_key(way->key))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    snprintf(way->address, sizeof way->address, "%s", driver->proxy.egress + sizeof HTTP - 1);
    status = put(&place, record, address, registration, keep, way->key, wait, error);
    if (status != SANDBOX_OK)
        sbx_wipe(way, sizeof *way);
    return status;
}

sandbox_status sbx_gke_egress_ask(void *state, const char *id, enum sbx_egress_question question,
                                  const cJSON *body, const struct sbx_wait *wait, cJSON **answer,
                                  sandbox_error *error)
{
    SBX_ON_EXIT(leave) struct place place = {0};
    sandbox_status status = find_place(state, &place, error);
    if (status != SANDBOX_OK || question == SBX_EGRESS_KNOWN)
        return status;
    return sbx_egress_admin_ask(place.http, &place.admin, id, question, body, wait, answer, error);
}

/* One that does not answer here may well run, and hold what it is to forget. */
sandbox_status sbx_gke_egress_forget(void *state, const char *id, const struct sbx_wait *wait,
                                     sandbox_error *error)
{
    SBX_ON_EXIT(leave) struct place place = {0};
    sandbox_status status = find_place(state, &place, error);
    if (status == SANDBOX_OK)
        status = sbx_egress_admin_hello(place.http, &place.admin, wait, error);
    if (status == SANDBOX_OK)
        status = sbx_egress_admin_forget(place.http, &place.admin, id, wait, error);
    return status;
}

static sandbox_status find_place(struct sbx_gke *driver, struct place *out, sandbox_error *error)
{
    if (!sbx_gke_egress_is_set(driver))
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-egress",
                            "no egress proxy is named: set SANDBOX_PROXY_URL=http://ADDRESS:3128, "
                            "SANDBOX_PROXY_ADMIN_URL=http://HOST:3129 and SANDBOX_PROXY_TOKEN "
                            "('sandbox manifests gke --egress-proxy' makes one)");
    sandbox_status status = read_token(driver, &out->token, error);
    if (status != SANDBOX_OK)
        return status;
    pthread_mutex_lock(&driver->lock);
    if (driver->http == NULL)
        status = sbx_http_start(&driver->http, error);
    out->http = driver->http;
    pthread_mutex_unlock(&driver->lock);
    out->admin = (struct sbx_egress_admin){.url = driver->proxy.admin, .token = out->token};
    return status;
}

static void leave(struct place *place)
{
    sbx_secret_free_text(&place->token);
}

/* The file anew each time: it may be a mounted Secret, which is replaced. */
static sandbox_status read_token(const struct sbx_gke *driver, char **out, sandbox_error *error)
{
    uint8_t *data = NULL;
    size_t size = 0;
    sandbox_error own = {0};
    if (driver->proxy.token != NULL) {
        *out = sbx_copy(driver->proxy.token);
    } else {
        if (sbx_file_read(AT_FDCWD, driver->proxy.token_file, TOKEN_MAX + 2, &data, &size, &own) !=
            SANDBOX_OK)
            return sbx_fail_for(error, SANDBOX_INVALID, "no-token",
                                "cannot read the egress proxy's token: %.200s", own.message);
        *out = sbx_copy_bytes(data, strcspn((const char *)data, "\r\n"));
        sbx_wipe(data, size);
        free(data);
    }
    if (*out == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a token");
    size_t length = strlen(*out);
    for (size_t at = 0; at < length; at++) {
        if ((*out)[at] <= ' ' || (*out)[at] > '~')
            length = 0;
    }
    return length > 0 && length <= TOKEN_MAX
               ? SANDBOX_OK
               : sbx_fail_for(error, SANDBOX_INVALID, "no-token",
                              "the egress proxy's token is not one word of at most %u signs",
                              TOKEN_MAX);
}

static sandbox_status put(const struct place *place, const struct sbx_record *record,
                          const char *address, const cJSON *registration, bool keep,
                          const char *key, const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *source = cJSON_CreateObject();
    if (source == NULL || !sbx_json_set_text(source, "address", address))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a registration");
    return sbx_egress_admin_put(place->http, &place->admin, record->id, source, key, registration,
                                keep, wait, error);
}

/* The proxy sees the Pod's address of the family that it is reached by. "": there is none. */
static const char *address_towards(const struct sbx_gke *driver, const cJSON *pod)
{
    bool wants_v6 = driver->proxy.egress[sizeof HTTP - 1] == '[';
    const cJSON *entry;
    cJSON_ArrayForEach(entry, sbx_gke_at(pod, "status", "podIPs", NULL))
    {
        const char *address = sbx_json_text(entry, "ip");
        if (*address != '\0' && (strchr(address, ':') != NULL) == wants_v6)
            return address;
    }
    const char *only = sbx_gke_text(pod, "status", "podIP", NULL);
    return (strchr(only, ':') != NULL) == wants_v6 ? only : "";
}
