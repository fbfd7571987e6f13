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

/* Two different pairs of bytes may share a bit: it only says where to look. */
#define EGRESS_PAIRS      8192
#define EGRESS_PAIR(data) (((unsigned)(data)[0] << 6 ^ (data)[1]) & (EGRESS_PAIRS - 1))

struct sbx_egress_scrub {
    uint8_t pairs[EGRESS_PAIRS / 8]; /* by the first two bytes of each needle */
    uint8_t firsts[256 / 8];         /* the first bytes */
    struct egress_needle *needles;
    size_t count;
    size_t longest;
    uint8_t *texts; /* of the needles and replacements */
    size_t used;
    uint8_t *held; /* the end of a piece that could begin a value; room for the longest */
    size_t held_size;
};

/* Needles that one text can make. */
#define EGRESS_FORMS 13

/* How many texts are looked for because of a value: itself, its token, what Basic carries. */
size_t sbx_egress_forms_texts(struct sbx_egress_text value);
/* What room all forms of a value take at most, in bytes. */
size_t sbx_egress_forms_room(struct sbx_egress_text value);

/* Adds all forms of the values that the rule sets. There is room. False: no memory. */
bool sbx_egress_forms_add(struct sbx_egress_scrub *scrub, const struct sbx_egress_rule *rule);

#endif
