/*
 * The client's housekeeper: one thread that renews the leases of operations under way and closes
 * channels that nobody has used for a while. It starts with the client and sleeps while there is
 * nothing to look after.
 */
#ifndef SBX_CORE_JANITOR_H
#define SBX_CORE_JANITOR_H

#include "core/client.h"

#define SBX_LEASE_MS 15000u

/* One operation's lease; lives on the stack of the call that owns the operation. */
struct sbx_lease {
    char name[SBX_NAME_MAX + 1];
    char operation_id[SBX_ID_TEXT];
    int64_t renewed_ms; /* monotonic */
    bool renewing;      /* the janitor is storing it right now */
    struct sbx_lease *next;
};

sandbox_status sbx_janitor_start(sandbox_client *client, sandbox_error *error);
void sbx_janitor_stop(sandbox_client *client); /* accepts a client without one */
/* There is a new channel to look after. */
void sbx_janitor_notice(sandbox_client *client);

void sbx_lease_begin(sandbox_client *client, struct sbx_lease *lease, const char *name,
                     const char *operation_id);
/* When it returns, the janitor will not touch the record for this operation any more. */
void sbx_lease_end(sandbox_client *client, struct sbx_lease *lease);

#endif
