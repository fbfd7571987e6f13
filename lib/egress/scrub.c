/* Takes real values out of an answer, wherever its pieces are cut. */

#include "egress/scrub_parts.h"
#include "util/fail.h"
#include "util/locked.h"
#include "util/memory.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST_FORM 3 /* of a byte: percent-encoded */

/* What is to be looked for, before there is room for it. */
struct sizes {
    size_t needles;
    size_t texts;   /* bytes */
    size_t longest; /* bytes of the longest needle, at most */
};

/* What is found at a place. */
struct found {
    const struct egress_needle *whole; /* the longest that is there, or NULL */
    bool may_begin;                    /* a longer one could go on behind the end */
};

static bool is_of(const struct sbx_egress_rule *rule, const struct sbx_egress_host *host);
static void count(const struct sbx_egress_rule *rule, struct sizes *sizes);
static sandbox_status room_for(struct sbx_egress_scrub **out, const struct sizes *sizes,
                               sandbox_error *error);
static bool scan(const struct sbx_egress_scrub *scrub, const uint8_t *data, size_t size,
                 size_t *begun, struct sbx_bytes *out);
static struct found find(const struct sbx_egress_scrub *scrub, const uint8_t *data, size_t size);
static bool has_bit(const uint8_t *bits, unsigned number);

sandbox_status sbx_egress_scrub_new(const struct sbx_egress_policy *policy,
                                    const struct sbx_egress_host *host,
                                    struct sbx_egress_scrub **out, sandbox_error *error)
{
    struct sizes sizes = {.needles = 0};
    for (size_t i = 0; i < sbx_egress_policy_rule_count(policy); i++) {
        const struct sbx_egress_rule *rule = sbx_egress_policy_rule_at(policy, i);
        if (is_of(rule, host))
            count(rule, &sizes);
    }
    struct sbx_egress_scrub *scrub = NULL;
    if (sizes.needles > 0) {
        sandbox_status status = room_for(&scrub, &sizes, error);
        if (status != SANDBOX_OK)
            return status;
    }
    for (size_t i = 0; i < sbx_egress_policy_rule_count(policy); i++) {
        const struct sbx_egress_rule *rule = sbx_egress_policy_rule_at(policy, i);
        if (is_of(rule, host) && !sbx_egress_forms_add(scrub, rule)) {
            sbx_egress_scrub_free(scrub);
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a scrubber");
        }
    }
    *out = scrub;
    return SANDBOX_OK;
}

void sbx_egress_scrub_free(struct sbx_egress_scrub *scrub)
{
    sbx_locked_free(scrub);
}

bool sbx_egress_scrub_feed(struct sbx_egress_scrub *scrub, const void *data, size_t size,
                           struct sbx_bytes *out)
{
    const uint8_t *from = data;
    uint8_t *joined = NULL;
    size_t total = scrub->held_size + size;
    if (scrub->held_size > 0) {
        joined = malloc(total);
        if (joined == NULL)
            return false;
        memcpy(joined, scrub->held, scrub->held_size);
        if (size > 0)
            memcpy(joined + scrub->held_size, data, size);
        from = joined;
    }
    size_t begun = 0;
    bool done = scan(scrub, from, total, &begun, out);
    /* Fewer bytes than the longest value has: more would have been found whole. */
    scrub->held_size = begun;
    if (begun > 0)
        memcpy(scrub->held, from + total - begun, begun);
    if (joined != NULL)
        sbx_wipe(joined, total);
    free(joined);
    return done;
}

bool sbx_egress_scrub_end(struct sbx_egress_scrub *scrub, struct sbx_bytes *out)
{
    size_t size = scrub->held_size;
    scrub->held_size = 0;
    bool done = size == 0 || sbx_egress_scrub_text(scrub, scrub->held, size, out);
    sbx_wipe(scrub->held, size);
    return done;
}

bool sbx_egress_scrub_text(const struct sbx_egress_scrub *scrub, const void *data, size_t size,
                           struct sbx_bytes *out)
{
    return scan(scrub, data, size, NULL, out);
}

bool sbx_egress_scrub_finds(const struct sbx_egress_scrub *scrub, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (size_t at = 0; at + 1 < size; at++) {
        if (has_bit(scrub->pairs, EGRESS_PAIR(bytes + at)) &&
            find(scrub, bytes + at, size - at).whole != NULL)
            return true;
    }
    return false;
}

static bool is_of(const struct sbx_egress_rule *rule, const struct sbx_egress_host *host)
{
    return host == NULL || sbx_egress_host_equal(sbx_egress_rule_host(rule), host);
}

static void count(const struct sbx_egress_rule *rule, struct sizes *sizes)
{
    for (size_t i = 0; i < sbx_egress_rule_set_count(rule); i++) {
        struct sbx_egress_text value = sbx_egress_rule_set_at(rule, i).value;
        sizes->needles += sbx_egress_forms_texts(value) * EGRESS_FORMS;
        sizes->texts += sbx_egress_forms_room(value);
        if (sizes->longest < LONGEST_FORM * value.size)
            sizes->longest = LONGEST_FORM * value.size;
    }
}

/* All in one piece: itself, the needles, their texts, and what is held back. */
static sandbox_status room_for(struct sbx_egress_scrub **out, const struct sizes *sizes,
                               sandbox_error *error)
{
    size_t needles = sizes->needles * sizeof(struct egress_needle);
    struct sbx_egress_scrub *scrub =
        sbx_locked_new(sizeof *scrub + needles + sizes->texts + sizes->longest);
    if (scrub == NULL)
        return sbx_fail_for(error, SANDBOX_LIMIT, SBX_EGRESS_LIMIT,
                            "no more memory may be locked for credentials");
    scrub->needles = (struct egress_needle *)(scrub + 1);
    scrub->texts = (uint8_t *)scrub->needles + needles;
    scrub->held = scrub->texts + sizes->texts;
    *out = scrub;
    return SANDBOX_OK;
}

/*
 * @param begun  how many bytes at the end could begin a value, and are not written; NULL: the end
 *               is the end, and everything is
 */
static bool scan(const struct sbx_egress_scrub *scrub, const uint8_t *data, size_t size,
                 size_t *begun, struct sbx_bytes *out)
{
    size_t written = 0;
    size_t at = 0;
    while (at < size) {
        while (at + 1 < size && !has_bit(scrub->pairs, EGRESS_PAIR(data + at)))
            at++;
        if (at + 1 == size && !has_bit(scrub->firsts, data[at])) {
            at++;
            continue;
        }
        struct found found = find(scrub, data + at, size - at);
        if (found.may_begin && begun != NULL) {
            *begun = size - at;
            size = at;
            break;
        }
        if (found.whole == NULL) {
            at++;
            continue;
        }
        if (!sbx_bytes_append(out, data + written, at - written) ||
            !sbx_bytes_append(out, found.whole->replacement, found.whole->replacement_size))
            return false;
        at += found.whole->size;
        written = at;
    }
    return sbx_bytes_append(out, data + written, size - written);
}

static struct found find(const struct sbx_egress_scrub *scrub, const uint8_t *data, size_t size)
{
    struct found found = {NULL, false};
    for (size_t i = 0; i < scrub->count; i++) {
        const struct egress_needle *needle = &scrub->needles[i];
        size_t common = needle->size < size ? needle->size : size;
        if (needle->data[0] != data[0] || memcmp(needle->data, data, common) != 0)
            continue;
        if (common < needle->size)
            found.may_begin = true;
        else if (found.whole == NULL || needle->size > found.whole->size)
            found.whole = needle;
    }
    return found;
}

static bool has_bit(const uint8_t *bits, unsigned number)
{
    return (bits[number / 8] >> number % 8 & 1) != 0;
}
