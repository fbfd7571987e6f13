/* The last refusals of one workspace, for those who ask why. Memory only when there is one. */
#ifndef EGRESS_RING_H
#define EGRESS_RING_H

#include "reason.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#define RING_SIZE 64

enum request_kind {
    KIND_NONE,
    KIND_CONNECT,
    KIND_HTTP,
    KIND_ROUTE,
    KIND_COUNT,
};

const char *kind_word(enum request_kind kind);

struct refusal {
    uint64_t number; /* of all refusals, in their order */
    int64_t at_ms;   /* Unix time */
    enum reason reason;
    enum request_kind kind;
    unsigned port; /* 0: not known */
    char host[254];
};

struct ring {
    struct refusal *entries;
    unsigned next, count;
};

void ring_add(struct ring *ring, const struct refusal *refusal);
/* The oldest is 0. Borrowed until the next one is added. */
const struct refusal *ring_at(const struct ring *ring, unsigned index);
cJSON *refusal_json(const struct refusal *refusal, const char *workspace);
void ring_free(struct ring *ring);

#define TIME_TEXT 32
void time_print(int64_t at_ms, char text[TIME_TEXT]);

#endif
