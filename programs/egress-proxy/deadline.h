/*
 * When something has waited long enough. Most deadlines of a kind are set in the order in which
 * they end, so each kind is a list, and one timer serves all of them.
 */
#ifndef EGRESS_DEADLINE_H
#define EGRESS_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum deadline_kind {
    DEADLINE_HEAD,    /* the first line and a request's head */
    DEADLINE_HELLO,   /* the ClientHello, after the 200 */
    DEADLINE_CONNECT, /* to the server */
    DEADLINE_IDLE,    /* no byte either way */
    DEADLINE_LINGER,  /* a refusal on its way to the guest */
    DEADLINE_ADMIN,   /* of whoever administers */
    DEADLINE_KINDS,
};

/* Embedded in its owner, all zero before its first use. */
struct deadline {
    struct deadline *before, *after;
    void (*passed)(struct deadline *deadline);
    int64_t at_ms;
    uint8_t kind;
    bool set;
};

bool deadlines_open(uv_loop_t *loop);
void deadlines_close(void);

/* Sets it anew, from now on. */
void deadline_set(struct deadline *deadline, enum deadline_kind kind, uint64_t in_ms,
                  void (*passed)(struct deadline *deadline));
void deadline_clear(struct deadline *deadline);

#endif
