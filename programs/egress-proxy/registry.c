/* The workspaces that may go out: see registry.h. */

#include "registry.h"
#include "connection.h"
#include "exchange.h"
#include "journal.h"
#include "listener.h"
#include "proxy.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/random.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BUCKETS 1024u

static struct {
    struct workspace *by_id[BUCKETS], *by_source[BUCKETS];
    unsigned count;
    uint8_t digest_key[SBX_EGRESS_DIGEST_KEY];
} registry;

static struct workspace **bucket_of_id(const char *id);
static struct workspace **bucket_of_source(const union address *source);
static unsigned hash(const void *data, size_t size);
static struct workspace *make(const struct registration *registration, sandbox_error *error);
static void release(struct workspace *workspace);

bool registry_open(void)
{
    return sbx_random(registry.digest_key, sizeof registry.digest_key);
}

void registry_close(void)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        while (registry.by_id[i] != NULL)
            registry_forget(registry.by_id[i]);
}

struct sbx_egress_policy *registry_new_policy(void)
{
    return sbx_egress_policy_new(registry.digest_key);
}

bool registry_id_is_good(const char *id)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t size = strlen(id);
    return size >= 1 && size <= WORKSPACE_ID_MAX && strspn(id, letters) == size;
}

sandbox_status registry_put(const struct registration *registration, struct workspace **out,
                            bool *replaced, sandbox_error *error)
{
    struct workspace *same_id = registry_find(registration->id);
    struct workspace *same_source = registry_find_source(&registration->source);
    *replaced = same_id != NULL;
    if (registry.count >= WORKSPACES_MAX && same_id == NULL && same_source == NULL) {
        sbx_egress_policy_drop(registration->policy);
        return sbx_fail(error, SANDBOX_LIMIT, "more than %d workspaces", WORKSPACES_MAX);
    }
    struct workspace *workspace = make(registration, error);
    if (workspace == NULL)
        return SANDBOX_NO_MEMORY;
    /* A socket of the same path has to go before the new one can be made. */
    bool is_local = registration->source.any.sa_family == AF_UNIX;
    if (is_local) {
        sandbox_status status =
            listener_replace(workspace, same_source == NULL ? NULL : same_source->listener, error);
        if (status != SANDBOX_OK) {
            release(workspace);
            return status;
        }
        if (same_source != NULL)
            same_source->listener = NULL;
    }
    if (same_id != NULL)
        registry_forget(same_id);
    if (same_source != NULL && same_source != same_id)
        registry_forget(same_source);
    struct workspace **id = bucket_of_id(workspace->id);
    struct workspace **source = bucket_of_source(&workspace->source);
    workspace->next_by_id = *id;
    workspace->next_by_source = *source;
    *id = *source = workspace;
    registry.count++;
    journal_event("registered", "workspace", workspace->id);
    proxy_idle_changed();
    *out = workspace;
    return SANDBOX_OK;
}

static struct workspace *make(const struct registration *registration, sandbox_error *error)
{
    struct workspace *workspace = calloc(1, sizeof *workspace);
    if (workspace == NULL) {
        sbx_egress_policy_drop(registration->policy);
        (void)sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace");
        return NULL;
    }
    (void)mlock(workspace->key, sizeof workspace->key);
    memcpy(workspace->key, registration->key, sizeof workspace->key);
    snprintf(workspace->id, sizeof workspace->id, "%s", registration->id);
    workspace->source = registration->source;
    workspace->policy = registration->policy;
    workspace->connections_max = registration->connections_max;
    workspace->rate = registration->rate;
    return workspace;
}

void registry_forget(struct workspace *workspace)
{
    struct workspace **place = bucket_of_id(workspace->id);
    while (*place != workspace)
        place = &(*place)->next_by_id;
    *place = workspace->next_by_id;
    place = bucket_of_source(&workspace->source);
    while (*place != workspace)
        place = &(*place)->next_by_source;
    *place = workspace->next_by_source;
    registry.count--;
    journal_event("forgotten", "workspace", workspace->id);
    release(workspace);
    proxy_idle_changed();
}

static void release(struct workspace *workspace)
{
    listener_free(workspace->listener);
    while (workspace->connections != NULL)
        connection_end(workspace->connections);
    exchanges_free(workspace->exchanges);
    sbx_egress_policy_drop(workspace->policy);
    ring_free(&workspace->ring);
    sbx_wipe(workspace->key, sizeof workspace->key);
    free(workspace);
}

struct workspace *registry_find(const char *id)
{
    struct workspace *workspace = *bucket_of_id(id);
    while (workspace != NULL && strcmp(workspace->id, id) != 0)
        workspace = workspace->next_by_id;
    return workspace;
}

struct workspace *registry_find_source(const union address *source)
{
    struct workspace *workspace = *bucket_of_source(source);
    while (workspace != NULL && !address_same(&workspace->source, source))
        workspace = workspace->next_by_source;
    return workspace;
}

unsigned registry_count(void)
{
    return registry.count;
}

void registry_each(void (*function)(struct workspace *workspace, void *user_data), void *user_data)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct workspace *one = registry.by_id[i]; one != NULL; one = one->next_by_id)
            function(one, user_data);
}

static struct workspace **bucket_of_id(const char *id)
{
    return &registry.by_id[hash(id, strlen(id)) % BUCKETS];
}

static struct workspace **bucket_of_source(const union address *source)
{
    unsigned value;
    if (source->any.sa_family == AF_INET)
        value = hash(&source->v4.sin_addr, sizeof source->v4.sin_addr);
    else if (source->any.sa_family == AF_INET6)
        value = hash(&source->v6.sin6_addr, sizeof source->v6.sin6_addr);
    else
        value = hash(source->local.sun_path, strlen(source->local.sun_path));
    return &registry.by_source[value % BUCKETS];
}

/* FNV-1a. Ids and sources are the administrator's, who has no reason to make them collide. */
static unsigned hash(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    uint32_t value = 2166136261u;
    for (size_t i = 0; i < size; i++)
        value = (value ^ bytes[i]) * 16777619u;
    return value;
}

bool allowance_take(struct allowance *allowance, unsigned rate, unsigned most)
{
    uint64_t now = uv_now(&proxy.loop), full = (uint64_t)most * 1000;
    /* Full at first, and again long before the sum can overflow. */
    uint64_t passed = allowance->at_ms == 0 || now - allowance->at_ms > 3600000
                          ? 3600000
                          : now - allowance->at_ms;
    allowance->thousandths += passed * rate;
    allowance->at_ms = now == 0 ? 1 : now;
    if (allowance->thousandths > full)
        allowance->thousandths = full;
    if (allowance->thousandths < 1000)
        return false;
    allowance->thousandths -= 1000;
    return true;
}
