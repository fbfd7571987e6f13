/*
 * Owners of operations: processes, told apart by what is not used again while their machine runs.
 * In doubt an owner lives.
 */
#ifndef SBX_UTIL_OWNER_H
#define SBX_UTIL_OWNER_H

#include <sandbox/error.h>

enum sbx_owners {
    SBX_OWNER_HERE,     /* all of this machine: one of another boot has ended with that boot */
    SBX_OWNER_ANYWHERE, /* of any machine: one of another boot may live on another one */
};

/* This process. */
sandbox_status sbx_owner_name(char owner[128], sandbox_error *error);
/* Whether that owner has surely ended. */
bool sbx_owner_is_gone(const char *owner, enum sbx_owners owners);

#endif
