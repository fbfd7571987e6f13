/* A connection to a host: to the addresses that were judged, one after the other, and no other. */
#ifndef EGRESS_DIAL_H
#define EGRESS_DIAL_H

#include "deadline.h"
#include "lookup.h"
#include "watch.h"

enum dial_outcome {
    DIAL_CONNECTED,
    DIAL_FAILED,
    DIAL_TIMED_OUT,
};

/* Embedded in its owner. Once connected, `watch` is the owner's to use and to close. */
struct dial {
    struct watch watch;
    struct deadline deadline;
    struct lookup *lookup; /* owned */
    size_t next;
    int64_t until_ms;
    char *answer; /* of the upstream proxy, while it is being read */
    size_t answer_size;
    void (*done)(struct dial *dial, enum dial_outcome outcome);
};

/* Takes the look-up. `done` may come before this returns. */
void dial_start(struct dial *dial, struct lookup *lookup,
                void (*done)(struct dial *dial, enum dial_outcome outcome));
/* The owner goes: `closed` is called once nothing refers to it any more, perhaps at once. */
void dial_end(struct dial *dial, void (*closed)(struct watch *watch));

#endif
