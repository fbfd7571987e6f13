/*
 * The workspaces that may go out, by id, by source address and by listening socket. In memory
 * only: whoever starts the proxy anew registers them again.
 */
#ifndef EGRESS_REGISTRY_H
#define EGRESS_REGISTRY_H

#include "egress/policy.h"
#include "endpoint.h"
#include "ring.h"

#define WORKSPACE_ID_MAX 128
#define WORKSPACES_MAX   10000
#define KEY_DIGITS       64

struct connection;
struct listener;
struct exchanges;

/* A bucket that fills up with time. */
struct allowance {
    uint64_t thousandths;
    uint64_t at_ms;
};

struct workspace {
    char id[WORKSPACE_ID_MAX + 1];
    char key[KEY_DIGITS]; /* locked and wiped */
    union address source;
    struct listener *listener; /* its own socket, or NULL */
    struct sbx_egress_policy *policy;
    unsigned connections_max, rate;
    struct connection *connections;
    unsigned connection_count;
    struct exchanges *exchanges; /* its TLS connections to servers; NULL: none yet */
    struct ring ring;
    uint64_t refused, suppressed;
    struct allowance opening, telling;
    struct workspace *next_by_id, *next_by_source;
};

bool registry_open(void);
void registry_close(void); /* forgets everybody */

/* A policy that allows nothing. */
struct sbx_egress_policy *registry_new_policy(void);

/* What a registration says; all of it is copied but the policy, which is taken. */
struct registration {
    const char *id;
    union address source;
    const char *key;
    struct sbx_egress_policy *policy;
    unsigned connections_max, rate;
};

bool registry_id_is_good(const char *id);
/*
 * Whoever had that id or source before is forgotten. The policy is taken in any case.
 *
 * @return SANDBOX_OK, SANDBOX_EXISTS (the socket's path is somebody else's), SANDBOX_LIMIT or
 *         SANDBOX_NO_MEMORY; then nothing has changed
 */
sandbox_status registry_put(const struct registration *registration, struct workspace **out,
                            bool *replaced, sandbox_error *error);
void registry_forget(struct workspace *workspace);

struct workspace *registry_find(const char *id);
struct workspace *registry_find_source(const union address *source);
unsigned registry_count(void);
/* Each of them, in no order. */
void registry_each(void (*function)(struct workspace *workspace, void *user_data), void *user_data);

/* Takes one from an allowance of `rate` a second that keeps at most `most`. */
bool allowance_take(struct allowance *allowance, unsigned rate, unsigned most);

#endif
