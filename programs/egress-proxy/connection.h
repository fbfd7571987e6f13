/*
 * A connection out of a workspace: its first line, then requests, each of which becomes a tunnel or
 * an exchange. Whatever is wrong is refused with one answer and closed.
 */
#ifndef EGRESS_CONNECTION_H
#define EGRESS_CONNECTION_H

#include "deadline.h"
#include "egress/request.h"
#include "registry.h"
#include "util/bytes.h"
#include "watch.h"
#include <stddef.h>

struct tunnel;
struct exchange;

enum connection_state {
    CONNECTION_PREFACE,
    CONNECTION_HEAD,
    CONNECTION_TUNNEL,
    CONNECTION_EXCHANGE,
    CONNECTION_LINGERS, /* refused: the answer is sent, and what still comes is thrown away */
};

struct connection {
    struct watch client;               /* first: see connection_of() */
    struct connection *before, *after; /* of the same workspace */
    struct workspace *workspace;       /* NULL: nobody's */
    struct deadline deadline;
    struct sbx_bytes input;
    size_t looked; /* how far for the end of a head */
    char *host;    /* of the request that is under way */
    uint16_t port;
    uint8_t state; /* enum connection_state */
    uint8_t kind;  /* enum request_kind */
    bool served;   /* a request already */
    bool ended;    /* the guest has said its last byte */
    struct tunnel *tunnel;
    struct exchange *exchange;
};

/* Takes the descriptor. A workspace of NULL is refused. */
void connection_begin(int fd, struct workspace *workspace);
/* Closes it, with its tunnel or exchange. The memory goes later. */
void connection_end(struct connection *connection);
/* Answers, counts, and closes once the guest has read it. */
void connection_refuse(struct connection *connection, const struct sbx_egress_refusal *refusal);
/* The same with the reason's own text; the request's host in it where one was read. */
void connection_refuse_for(struct connection *connection, enum reason reason, int status);
/* Counts and logs a refusal without answering. */
void connection_note(struct connection *connection, enum reason reason);
/* All is said: closes once the guest has read it. */
void connection_linger(struct connection *connection);
/* The exchange is over, and the guest may ask for more on this connection. */
void connection_go_on(struct connection *connection);

/* The refusals of those who are nobody's. Borrowed. */
const struct ring *connection_strangers(void);
void connections_close(void);

enum receipt {
    RECEIVED,
    RECEIVED_NOTHING, /* not now */
    RECEIVED_END,     /* or an error */
};
/* Reads up to `room` bytes to the end of the input. */
enum receipt connection_receive(struct connection *connection, size_t room);

static inline struct connection *connection_of(struct watch *watch)
{
    return (struct connection *)watch;
}

static inline struct connection *connection_of_deadline(struct deadline *deadline)
{
    return (struct connection *)((char *)deadline - offsetof(struct connection, deadline));
}

#endif
