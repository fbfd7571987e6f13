/* Records through the driver: load, and change by compare-and-swap until it holds. */
#ifndef SBX_CORE_STORE_H
#define SBX_CORE_STORE_H

#include "core/client.h"

sandbox_status sbx_store_load(sandbox_client *client, const char *name,
                              const struct sbx_wait *wait, struct sbx_record *out,
                              sandbox_error *error);
/* A record that is not stored yet; SANDBOX_EXISTS if the name is taken. */
sandbox_status sbx_store_add(sandbox_client *client, struct sbx_record *record,
                             const struct sbx_wait *wait, sandbox_error *error);

/*
 * Load, let `change` look and alter, store; again if somebody else was faster. `change` answers
 * anything but SANDBOX_OK to leave the record alone. `out` (NULL allowed) is the stored record; one
 * that was loaded or stored before is tried first, as it was stored then: if it is no longer so,
 * the store fails and it is loaded after all.
 */
typedef sandbox_status (*sbx_change)(struct sbx_record *record, void *user_data,
                                     sandbox_error *error);
sandbox_status sbx_store_change(sandbox_client *client, const char *name,
                                const struct sbx_wait *wait, sbx_change change, void *user_data,
                                struct sbx_record *out, sandbox_error *error);
/* Removes it if `operation_id` still owns it. What is not there is success. */
sandbox_status sbx_store_remove(sandbox_client *client, const char *name,
                                const char *operation_id, const struct sbx_wait *wait,
                                sandbox_error *error);

#endif
