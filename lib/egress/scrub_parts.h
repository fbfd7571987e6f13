/* What scrub.c and scrub_forms.c share: what is looked for. */
#ifndef SBX_EGRESS_SCRUB_PARTS_H
#define SBX_EGRESS_SCRUB_PARTS_H

#include "egress/scrub.h"

/* A value in one form, and what comes in its place. */
struct egress_needle {
    const uint8_t *data;
    size_t size;
    const char *replacement;
    size_t replacement_size;
};

struct sbx_egress_scrub {
    uint8_t pairs[65536 / 8]; /* the first two bytes of each needle, a bit for each pair */
    uint8_t firsts[256 / 8];  /* the first bytes */
    struct egress_needle *needles;
    size_t count;
    size_t longest;
    uint8_t *texts; /* of the needles and replacements */
    size_t used;
    uint8_t *held; /* the end of a piece that could begin a value; room for the longest */
    size_t held_size;
};

/*
 * What room the forms of a value take at most, in bytes and in needles.
 */
size_t sbx_egress_forms_room(size_t value_size);
#define SBX_EGRESS_FORMS_MAX 64

/* Adds all forms of the values that the rule sets. There is room. False: no memory. */
bool sbx_egress_forms_add(struct sbx_egress_scrub *scrub, const struct sbx_egress_rule *rule);

#endif
