/*
 * The head of a request, read strictly: where readers of HTTP differ (bare CR or LF, folded lines,
 * blanks before a colon, two lengths, lengths with signs) it is refused and not repaired.
 *
 * Pure functions. What is read points into the bytes that were given.
 */
#ifndef SBX_EGRESS_HEAD_H
#define SBX_EGRESS_HEAD_H

#include "egress/refusal.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SBX_EGRESS_HEAD_MAX   (32 * 1024) /* bytes, with the empty line */
#define SBX_EGRESS_FIELDS_MAX 200

/* A piece of the head: no NUL behind it. */
struct sbx_egress_text {
    const char *data;
    size_t size;
};

struct sbx_egress_field {
    struct sbx_egress_text name;  /* a token */
    struct sbx_egress_text value; /* without blanks around it; no control bytes but tabs */
};

enum sbx_egress_body { SBX_EGRESS_BODY_NONE, SBX_EGRESS_BODY_LENGTH, SBX_EGRESS_BODY_CHUNKED };

struct sbx_egress_head {
    struct sbx_egress_text method; /* upper case */
    struct sbx_egress_text target; /* visible ASCII, no '#' */
    unsigned minor;                /* of HTTP/1.MINOR: 0 or 1 */
    struct sbx_egress_field fields[SBX_EGRESS_FIELDS_MAX];
    size_t field_count;
    struct sbx_egress_text host; /* the Host field; `data` is NULL where there is none (HTTP/1.0) */
    enum sbx_egress_body body;
    uint64_t body_size; /* of SBX_EGRESS_BODY_LENGTH, not 0 */
    bool keeps_alive;   /* the client would send another request on this connection */
    bool expects_continue;
};

enum sbx_egress_head_state {
    SBX_EGRESS_HEAD_MORE,
    SBX_EGRESS_HEAD_WHOLE,
    SBX_EGRESS_HEAD_BAD, /* no head can come of it */
};

/*
 * Looks for the end of a head in what has come so far. Call it again with more of the same bytes;
 * nothing is looked at twice.
 *
 * @param looked   how far it has looked: 0 at first, kept by the caller. Once it is WHOLE, the size
 *                 of the head; what stands behind it is the body, or the tunnel's
 * @param refusal  written for BAD
 */
enum sbx_egress_head_state sbx_egress_head_scan(const char *data, size_t size, size_t *looked,
                                                struct sbx_egress_refusal *refusal);

/*
 * Reads a whole head.
 *
 * @param size  as sbx_egress_head_scan() found it; with less or more, it is refused
 * @return false: refused
 */
bool sbx_egress_head_parse(const char *data, size_t size, struct sbx_egress_head *out,
                           struct sbx_egress_refusal *refusal);

/* Compares without regard to case. */
bool sbx_egress_text_is(struct sbx_egress_text text, const char *word);

#endif
