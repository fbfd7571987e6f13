/*
 * Where a host is: its addresses, each judged. One look-up a request; what it gives is what is
 * connected to, so that no second answer can be another one.
 */
#ifndef EGRESS_LOOKUP_H
#define EGRESS_LOOKUP_H

#include "endpoint.h"
#include "reason.h"
#include <stddef.h>

#define LOOKUP_ADDRESSES 8

enum lookup_outcome {
    LOOKUP_PENDING,
    LOOKUP_FOUND,
    LOOKUP_PRIVATE, /* there are addresses, but none that may be connected to */
    LOOKUP_NOT_FOUND,
    LOOKUP_FAILED,
};

struct lookup {
    enum lookup_outcome outcome;
    unsigned port;
    size_t count;
    union address addresses[LOOKUP_ADDRESSES];
    void (*done)(struct lookup *lookup); /* only for one that was pending */
    void *owner;                         /* NULL: nobody waits for it any more */
};

/* A host's name, or an address that the policy allowed by itself. NULL: no memory. */
struct lookup *lookup_start(const char *host, unsigned port, void (*done)(struct lookup *lookup),
                            void *owner);
/* Accepts NULL, and one that is still pending. */
void lookup_free(struct lookup *lookup);

/* Whether a settled one has somewhere to go; otherwise why not. */
bool lookup_is_good(const struct lookup *lookup, enum reason *reason);

void lookups_close(void);

#endif
