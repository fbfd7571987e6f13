/*
 * Addresses: which of them a proxy must never connect to, and ranges of them.
 *
 * An address is judged as it is dialled. IPv4 is allowed but for the special ranges; IPv6 is
 * refused but for 2000::/3 without the special ranges inside it. An IPv6 address that carries an
 * IPv4 one (mapped, NAT64, 6to4, Teredo) is refused whatever it carries.
 *
 * Pure functions; a set of ranges may be asked by several threads as long as nobody adds to it.
 */
#ifndef SBX_EGRESS_ADDRESS_H
#define SBX_EGRESS_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sockaddr;

/* An address without a port. */
struct sbx_egress_address {
    uint8_t bytes[16]; /* in the order of the network; of IPv4 the first four, the others zero */
    uint8_t size;      /* 4 or 16 */
};

#define SBX_EGRESS_ADDRESS_TEXT 46 /* room for any of them as text, with the end */

/* IPv4 in four plain decimal numbers, or IPv6 without brackets and zone. */
bool sbx_egress_address_parse(const char *text, struct sbx_egress_address *out);
/* False: neither AF_INET nor AF_INET6. */
bool sbx_egress_address_of(const struct sockaddr *from, struct sbx_egress_address *out);
void sbx_egress_address_print(const struct sbx_egress_address *address,
                              char text[SBX_EGRESS_ADDRESS_TEXT]);

/* The kind of special address this is, as static words ("link-local"), or NULL: a public one. */
const char *sbx_egress_address_kind(const struct sbx_egress_address *address);

/* All addresses from `first` to `last`, both of one size and among them. */
struct sbx_egress_range {
    struct sbx_egress_address first, last;
};

/*
 * ADDRESS/BITS, or one ADDRESS.
 *
 * @return NULL, or what is wrong with it: static words
 */
const char *sbx_egress_range_parse(const char *text, struct sbx_egress_range *out);
bool sbx_egress_range_has(const struct sbx_egress_range *range,
                          const struct sbx_egress_address *address);

/* A set of ranges. A look-up takes the logarithm of their number. */
struct sbx_egress_ranges;

struct sbx_egress_ranges *sbx_egress_ranges_new(void);         /* NULL: no memory */
void sbx_egress_ranges_free(struct sbx_egress_ranges *ranges); /* NULL allowed */
bool sbx_egress_ranges_add(struct sbx_egress_ranges *ranges,   /* false: no memory */
                           const struct sbx_egress_range *range);
bool sbx_egress_ranges_has(const struct sbx_egress_ranges *ranges, /* NULL allowed: empty */
                           const struct sbx_egress_address *address);

/*
 * Whether an address may be connected to.
 *
 * @param own        never: the proxy's own addresses and what else the operator excludes; goes
 *                   before `permitted`. NULL: none
 * @param permitted  special ranges that the operator opens; a mapped address stays refused, and of
 *                   one under 64:ff9b::/96 the address it carries is judged too. NULL: none
 * @return NULL if it may, else the kind that it is, as static words ("loopback"), which a refusal
 *         may tell; the address itself it may not
 */
const char *sbx_egress_address_refused(const struct sbx_egress_address *address,
                                       const struct sbx_egress_ranges *own,
                                       const struct sbx_egress_ranges *permitted);

#endif
