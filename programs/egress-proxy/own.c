/* Which addresses may be connected to: see own.h. */

#include "own.h"
#include "egress/address.h"
#include "proxy.h"
#include "settings.h"
#include <ifaddrs.h>
#include <string.h>

#define KNOWN_FOR_MS 5000

static struct sbx_egress_ranges *own, *permitted;
static uint64_t known_until_ms;

static void learn(void);

bool own_open(void)
{
    permitted = sbx_egress_ranges_new();
    for (size_t i = 0; permitted != NULL && i < settings.permit_count; i++)
        if (!sbx_egress_ranges_add(permitted, &settings.permits[i]))
            return false;
    learn();
    return permitted != NULL && own != NULL;
}

void own_close(void)
{
    sbx_egress_ranges_free(own);
    sbx_egress_ranges_free(permitted);
}

bool own_address_is_open(const union address *address)
{
    struct sbx_egress_address plain;
    if (uv_now(&proxy.loop) >= known_until_ms)
        learn();
    return sbx_egress_address_of(&address->any, &plain) &&
           sbx_egress_address_refused(&plain, own, permitted) == NULL;
}

/*
 * A machine may get an address while it runs. Loopback is left out: it is special anyhow, and the
 * operator may have opened it. Where the list cannot be had, the last one stays in force.
 */
static void learn(void)
{
    struct ifaddrs *all = NULL;
    struct sbx_egress_ranges *found = sbx_egress_ranges_new();
    bool whole = found != NULL && getifaddrs(&all) == 0;
    for (const struct ifaddrs *one = all; one != NULL && whole; one = one->ifa_next) {
        struct sbx_egress_range range;
        if (one->ifa_addr == NULL || !sbx_egress_address_of(one->ifa_addr, &range.first))
            continue;
        range.last = range.first;
        const char *kind = sbx_egress_address_kind(&range.first);
        if (kind == NULL || strcmp(kind, "loopback") != 0)
            whole = sbx_egress_ranges_add(found, &range);
    }
    freeifaddrs(all);
    known_until_ms = uv_now(&proxy.loop) + KNOWN_FOR_MS;
    if (!whole) {
        sbx_egress_ranges_free(found);
        return;
    }
    sbx_egress_ranges_free(own);
    own = found;
}
