/* A driver whose failures say which driver they are of. */
#ifndef SBX_CORE_TELLER_H
#define SBX_CORE_TELLER_H

#include "core/driver.h"

/*
 * Opens `driver`. On success `named` does the same as it, over `state`, and writes its name into
 * every error; both last until `named->close(state)`.
 */
sandbox_status sbx_teller_open(const struct sbx_driver *driver, const char *rest,
                               const struct sbx_wait *wait, const struct sbx_driver **named,
                               void **state, sandbox_error *error);

/* Writes the name into the error, where `status` is a failure; returns `status`. */
sandbox_status sbx_teller_tell(const struct sbx_driver *driver, sandbox_status status,
                               sandbox_error *error);

#endif
