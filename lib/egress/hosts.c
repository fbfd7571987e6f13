/*
 * A set of patterns of hosts: one hash table, of the names with their bytes taken from the end, so
 * that one pass over a name gives the hash of every ending of it.
 */

#include "egress/host.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 16
#define HASH_START  UINT64_C(0xcbf29ce484222325)
#define HASH_PRIME  UINT64_C(0x100000001b3)

/* "*.example.net" stands as ".example.net": a name never begins with a dot. */
struct slot {
    uint64_t hash;
    const char *pattern; /* into `patterns`; NULL: free */
};

struct sbx_egress_hosts {
    char **patterns;
    size_t count, room;
    struct slot *slots;
    size_t slot_count; /* a power of two, at least twice the count */
};

static const char *settle(const char *text, size_t size, char *out);
static bool grow(struct sbx_egress_hosts *hosts);
static void put(struct slot *slots, size_t slot_count, struct slot slot);
static bool look_up(const struct sbx_egress_hosts *hosts, uint64_t hash, const char *ending,
                    size_t size);
static const char *ending_of(const char *pattern);
static uint64_t hash_of(const char *ending);
static uint64_t hash_more(uint64_t hash, char c);

struct sbx_egress_hosts *sbx_egress_hosts_new(void)
{
    struct sbx_egress_hosts *hosts = calloc(1, sizeof *hosts);
    if (hosts == NULL)
        return NULL;
    hosts->slots = calloc(FIRST_SLOTS, sizeof hosts->slots[0]);
    hosts->slot_count = FIRST_SLOTS;
    if (hosts->slots == NULL) {
        free(hosts);
        return NULL;
    }
    return hosts;
}

void sbx_egress_hosts_free(struct sbx_egress_hosts *hosts)
{
    if (hosts == NULL)
        return;
    for (size_t i = 0; i < hosts->count; i++)
        free(hosts->patterns[i]);
    free(hosts->patterns);
    free(hosts->slots);
    free(hosts);
}

enum sbx_egress_hosts_added sbx_egress_hosts_add(struct sbx_egress_hosts *hosts, const char *text,
                                                 size_t size, const char **fault)
{
    char pattern[SBX_EGRESS_NAME_MAX + 3];
    *fault = settle(text, size, pattern);
    if (*fault != NULL)
        return SBX_EGRESS_HOSTS_BAD;

    const char *ending = ending_of(pattern);
    uint64_t hash = hash_of(ending);
    if (look_up(hosts, hash, ending, strlen(ending)))
        return SBX_EGRESS_HOSTS_ADDED;
    if (hosts->count >= SBX_EGRESS_HOSTS_MAX)
        return SBX_EGRESS_HOSTS_FULL;
    if (!grow(hosts))
        return SBX_EGRESS_HOSTS_NO_MEMORY;
    char *copy = strdup(pattern);
    if (copy == NULL)
        return SBX_EGRESS_HOSTS_NO_MEMORY;
    hosts->patterns[hosts->count++] = copy;
    put(hosts->slots, hosts->slot_count, (struct slot){hash, copy});
    return SBX_EGRESS_HOSTS_ADDED;
}

bool sbx_egress_hosts_has(const struct sbx_egress_hosts *hosts, const struct sbx_egress_host *host)
{
    if (host->is_literal || hosts->count == 0)
        return false;
    uint64_t hash = HASH_START;
    for (size_t i = host->size; i > 0; i--) {
        hash = hash_more(hash, host->name[i - 1]);
        if (host->name[i - 1] == '.' &&
            look_up(hosts, hash, host->name + i - 1, host->size - i + 1))
            return true;
    }
    return look_up(hosts, hash, host->name, host->size);
}

size_t sbx_egress_hosts_count(const struct sbx_egress_hosts *hosts)
{
    return hosts->count;
}

const char *sbx_egress_hosts_at(const struct sbx_egress_hosts *hosts, size_t index)
{
    return hosts->patterns[index];
}

static const char *settle(const char *text, size_t size, char *out)
{
    bool is_wild = size >= 2 && text[0] == '*' && text[1] == '.';
    if (size == 1 && text[0] == '*')
        return "every host is named by the mode \"allow-all\", not by a pattern";
    if (memchr(text + (is_wild ? 1 : 0), '*', size - (is_wild ? 1 : 0)) != NULL)
        return "a star stands for whole labels at the front only, as in \"*.example.net\"";

    struct sbx_egress_host host;
    const char *fault =
        sbx_egress_host_read(text + (is_wild ? 2 : 0), size - (is_wild ? 2 : 0), &host);
    if (fault != NULL)
        return fault;
    if (host.is_literal)
        return "addresses cannot be allowed, only names";
    if (is_wild && memchr(host.name, '.', host.size) == NULL)
        return "a star over a whole top-level domain is too wide";
    if (is_wild && host.size + 2U > SBX_EGRESS_NAME_MAX)
        return "no name below it would be short enough";
    memcpy(out, "*.", 2);
    memcpy(out + (is_wild ? 2 : 0), host.name, host.size + 1U);
    return NULL;
}

static bool grow(struct sbx_egress_hosts *hosts)
{
    if (hosts->count == hosts->room) {
        size_t room = hosts->room == 0 ? FIRST_SLOTS / 2 : hosts->room * 2;
        char **patterns = realloc(hosts->patterns, room * sizeof *patterns);
        if (patterns == NULL)
            return false;
        hosts->patterns = patterns;
        hosts->room = room;
    }
    if ((hosts->count + 1) * 2 <= hosts->slot_count)
        return true;
    size_t slot_count = hosts->slot_count * 2;
    struct slot *slots = calloc(slot_count, sizeof *slots);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < hosts->slot_count; i++)
        if (hosts->slots[i].pattern != NULL)
            put(slots, slot_count, hosts->slots[i]);
    free(hosts->slots);
    hosts->slots = slots;
    hosts->slot_count = slot_count;
    return true;
}

static void put(struct slot *slots, size_t slot_count, struct slot slot)
{
    size_t at = slot.hash & (slot_count - 1);
    while (slots[at].pattern != NULL)
        at = (at + 1) & (slot_count - 1);
    slots[at] = slot;
}

static bool look_up(const struct sbx_egress_hosts *hosts, uint64_t hash, const char *ending,
                    size_t size)
{
    size_t mask = hosts->slot_count - 1;
    for (size_t at = hash & mask; hosts->slots[at].pattern != NULL; at = (at + 1) & mask) {
        const char *found = ending_of(hosts->slots[at].pattern);
        if (hosts->slots[at].hash == hash && strlen(found) == size &&
            memcmp(found, ending, size) == 0)
            return true;
    }
    return false;
}

static const char *ending_of(const char *pattern)
{
    return pattern[0] == '*' ? pattern + 1 : pattern;
}

static uint64_t hash_of(const char *ending)
{
    uint64_t hash = HASH_START;
    for (size_t i = strlen(ending); i > 0; i--)
        hash = hash_more(hash, ending[i - 1]);
    return hash;
}

static uint64_t hash_more(uint64_t hash, char c)
{
    return (hash ^ (uint8_t)c) * HASH_PRIME;
}
