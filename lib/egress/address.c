/* Addresses: which of them a proxy must never connect to, and ranges of them. */

#include "egress/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct special {
    uint8_t prefix[16];
    uint8_t bits;
    const char *kind;
};

static bool has_prefix(const uint8_t *bytes, const uint8_t *prefix, unsigned bits);
static const char *special_of(const struct special *table, size_t count, const uint8_t *bytes);
static const char *read_bits(const char *text, unsigned most, unsigned *out);
static void fill(struct sbx_egress_address *address, unsigned bits, uint8_t with);
static int compare(const struct sbx_egress_address *one, const struct sbx_egress_address *other);
static bool step_joins(const struct sbx_egress_range *low, const struct sbx_egress_range *high);

/* The registries of special purpose addresses, and what they leave out. */
static const struct special special_ipv4[] = {
    {{0}, 8, "this-network"},
    {{10}, 8, "private"},
    {{100, 64}, 10, "carrier-grade NAT"},
    {{127}, 8, "loopback"},
    {{169, 254}, 16, "link-local"},
    {{172, 16}, 12, "private"},
    {{192, 0, 0}, 24, "protocol assignment"},
    {{192, 0, 2}, 24, "documentation"},
    {{192, 31, 196}, 24, "AS112"},
    {{192, 52, 193}, 24, "AMT"},
    {{192, 88, 99}, 24, "6to4 relay"},
    {{192, 168}, 16, "private"},
    {{192, 175, 48}, 24, "AS112"},
    {{198, 18}, 15, "benchmarking"},
    {{198, 51, 100}, 24, "documentation"},
    {{203, 0, 113}, 24, "documentation"},
    {{224}, 4, "multicast"},
    {{240}, 4, "reserved"},
    /* A cloud's own service at an address that looks public. */
    {{168, 63, 129, 16}, 32, "platform service"},
};

/* The first that fits names the kind; all of IPv6 but 2000::/3 is refused after them. */
static const struct special special_ipv6[] = {
    {{0}, 128, "this-network"},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128, "loopback"},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, "IPv4-mapped"},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, "IPv4-translated"},
    {{0}, 96, "IPv4-compatible"},
    {{0, 0x64, 0xff, 0x9b}, 96, "NAT64"},
    {{0, 0x64, 0xff, 0x9b, 0, 1}, 48, "NAT64"},
    {{0x01}, 64, "discard-only"},
    {{0x5f}, 16, "segment routing"},
    {{0xfc}, 7, "private"},
    {{0xfe, 0x80}, 10, "link-local"},
    {{0xfe, 0xc0}, 10, "site-local"},
    {{0xff}, 8, "multicast"},
    {{0x20, 0x01}, 32, "Teredo"},
    {{0x20, 0x01}, 23, "protocol assignment"},
    {{0x20, 0x01, 0x0d, 0xb8}, 32, "documentation"},
    {{0x20, 0x02}, 16, "6to4"},
    {{0x3f, 0xff}, 20, "documentation"},
    {{0x26, 0x20, 0, 0x4f, 0x80}, 48, "AS112"},
};

static const uint8_t global_unicast[16] = {0x20};
static const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
static const uint8_t nat64[16] = {0, 0x64, 0xff, 0x9b};

struct sbx_egress_ranges {
    struct sbx_egress_range *ranges; /* sorted, apart from each other: none touches the next */
    size_t count;
};

bool sbx_egress_address_parse(const char *text, struct sbx_egress_address *out)
{
    struct sbx_egress_address address = {.size = 4};
    if (inet_pton(AF_INET, text, address.bytes) != 1) {
        memset(address.bytes, 0, sizeof address.bytes);
        address.size = 16;
        if (inet_pton(AF_INET6, text, address.bytes) != 1)
            return false;
    }
    *out = address;
    return true;
}

bool sbx_egress_address_of(const struct sockaddr *from, struct sbx_egress_address *out)
{
    struct sbx_egress_address address = {.size = 4};
    if (from->sa_family == AF_INET) {
        struct sockaddr_in ipv4;
        memcpy(&ipv4, from, sizeof ipv4);
        memcpy(address.bytes, &ipv4.sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        struct sockaddr_in6 ipv6;
        memcpy(&ipv6, from, sizeof ipv6);
        memcpy(address.bytes, &ipv6.sin6_addr, 16);
        address.size = 16;
    } else {
        return false;
    }
    *out = address;
    return true;
}

void sbx_egress_address_print(const struct sbx_egress_address *address,
                              char text[SBX_EGRESS_ADDRESS_TEXT])
{
    int family = address->size == 4 ? AF_INET : AF_INET6;
    if (inet_ntop(family, address->bytes, text, SBX_EGRESS_ADDRESS_TEXT) == NULL)
        text[0] = '\0';
}

const char *sbx_egress_address_kind(const struct sbx_egress_address *address)
{
    if (address->size == 4)
        return special_of(special_ipv4, sizeof special_ipv4 / sizeof special_ipv4[0],
                          address->bytes);
    const char *kind =
        special_of(special_ipv6, sizeof special_ipv6 / sizeof special_ipv6[0], address->bytes);
    if (kind == NULL && !has_prefix(address->bytes, global_unicast, 3))
        kind = "outside of 2000::/3";
    return kind;
}

const char *sbx_egress_range_parse(const char *text, struct sbx_egress_range *out)
{
    char plain[SBX_EGRESS_ADDRESS_TEXT];
    size_t size = strcspn(text, "/");
    if (size >= sizeof plain)
        return "is no address";
    memcpy(plain, text, size);
    plain[size] = '\0';

    struct sbx_egress_range range;
    if (!sbx_egress_address_parse(plain, &range.first))
        return "is no address";
    unsigned bits = range.first.size * 8U;
    if (text[size] == '/') {
        const char *fault = read_bits(text + size + 1, bits, &bits);
        if (fault != NULL)
            return fault;
    }
    range.last = range.first;
    fill(&range.first, bits, 0);
    if (compare(&range.first, &range.last) != 0)
        return "has bits set behind its prefix";
    fill(&range.last, bits, 0xff);
    *out = range;
    return NULL;
}

bool sbx_egress_range_has(const struct sbx_egress_range *range,
                          const struct sbx_egress_address *address)
{
    return range->first.size == address->size && compare(&range->first, address) <= 0 &&
           compare(address, &range->last) <= 0;
}

struct sbx_egress_ranges *sbx_egress_ranges_new(void)
{
    return calloc(1, sizeof(struct sbx_egress_ranges));
}

void sbx_egress_ranges_free(struct sbx_egress_ranges *ranges)
{
    if (ranges == NULL)
        return;
    free(ranges->ranges);
    free(ranges);
}

/* Those that it overlaps or touches become one with it, so that a look-up needs to find only one.
 */
bool sbx_egress_ranges_add(struct sbx_egress_ranges *ranges, const struct sbx_egress_range *range)
{
    struct sbx_egress_range *grown =
        realloc(ranges->ranges, (ranges->count + 1) * sizeof ranges->ranges[0]);
    if (grown == NULL)
        return false;
    ranges->ranges = grown;

    struct sbx_egress_range joined = *range;
    size_t low = 0;
    while (low < ranges->count && compare(&grown[low].last, &joined.first) < 0 &&
           !step_joins(&grown[low], &joined))
        low++;
    size_t high = low;
    while (high < ranges->count &&
           (compare(&grown[high].first, &joined.last) <= 0 || step_joins(&joined, &grown[high]))) {
        if (compare(&grown[high].first, &joined.first) < 0)
            joined.first = grown[high].first;
        if (compare(&grown[high].last, &joined.last) > 0)
            joined.last = grown[high].last;
        high++;
    }
    memmove(grown + low + 1, grown + high, (ranges->count - high) * sizeof grown[0]);
    grown[low] = joined;
    ranges->count = ranges->count - (high - low) + 1;
    return true;
}

bool sbx_egress_ranges_has(const struct sbx_egress_ranges *ranges,
                           const struct sbx_egress_address *address)
{
    size_t low = 0;
    size_t high = ranges == NULL ? 0 : ranges->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(&ranges->ranges[middle].last, address) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return ranges != NULL && low < ranges->count &&
           sbx_egress_range_has(&ranges->ranges[low], address);
}

const char *sbx_egress_address_refused(const struct sbx_egress_address *address,
                                       const struct sbx_egress_ranges *own,
                                       const struct sbx_egress_ranges *permitted)
{
    bool is_ipv6 = address->size == 16;
    bool is_mapped = is_ipv6 && has_prefix(address->bytes, mapped, 96);
    if (sbx_egress_ranges_has(own, address))
        return "the proxy's own";

    const char *kind = sbx_egress_address_kind(address);
    if (kind == NULL)
        return NULL;
    /* The kernel takes a mapped address for the IPv4 one, which no rule of IPv6 speaks of. */
    if (is_mapped || !sbx_egress_ranges_has(permitted, address))
        return kind;
    if (is_ipv6 && has_prefix(address->bytes, nat64, 96)) {
        struct sbx_egress_address carried = {.size = 4};
        memcpy(carried.bytes, address->bytes + 12, 4);
        return sbx_egress_address_refused(&carried, own, permitted);
    }
    return NULL;
}

static bool has_prefix(const uint8_t *bytes, const uint8_t *prefix, unsigned bits)
{
    if (memcmp(bytes, prefix, bits / 8) != 0)
        return false;
    unsigned rest = bits % 8;
    return rest == 0 || (bytes[bits / 8] ^ prefix[bits / 8]) >> (8 - rest) == 0;
}

static const char *special_of(const struct special *table, size_t count, const uint8_t *bytes)
{
    for (size_t i = 0; i < count; i++)
        if (has_prefix(bytes, table[i].prefix, table[i].bits))
            return table[i].kind;
    return NULL;
}

static const char *read_bits(const char *text, unsigned most, unsigned *out)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 3 || text[digits] != '\0' || (text[0] == '0' && digits > 1))
        return "has no number of bits behind the slash";
    unsigned bits = 0;
    for (size_t i = 0; i < digits; i++)
        bits = bits * 10 + (unsigned)(text[i] - '0');
    if (bits > most)
        return "has more bits than its address";
    *out = bits;
    return NULL;
}

/* Everything behind the prefix, one way or the other. */
static void fill(struct sbx_egress_address *address, unsigned bits, uint8_t with)
{
    for (unsigned i = 0; i < address->size; i++) {
        unsigned kept = bits <= i * 8 ? 0 : bits - i * 8;
        unsigned mask = kept >= 8 ? 0 : 0xffu >> kept;
        address->bytes[i] = (uint8_t)((address->bytes[i] & ~mask) | (with & mask));
    }
}

/* All of IPv4 comes before all of IPv6. */
static int compare(const struct sbx_egress_address *one, const struct sbx_egress_address *other)
{
    if (one->size != other->size)
        return one->size < other->size ? -1 : 1;
    return memcmp(one->bytes, other->bytes, one->size);
}

/* Whether `high` begins right behind `low`'s end. */
static bool step_joins(const struct sbx_egress_range *low, const struct sbx_egress_range *high)
{
    struct sbx_egress_address next = low->last;
    if (next.size != high->first.size)
        return false;
    size_t i = next.size;
    while (i > 0 && ++next.bytes[i - 1] == 0)
        i--;
    /* Past the last of all addresses it is zero again, which is behind nothing. */
    return i > 0 && compare(&next, &high->first) == 0;
}
