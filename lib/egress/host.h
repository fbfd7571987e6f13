/*
 * Names of hosts, read in one way wherever they come from: the authority of a CONNECT, an absolute
 * target, a credential route, the Host field, a ClientHello, the admin API. What is decided,
 * resolved, dialled and compared is this one result, never the text that it was read from.
 *
 * A name is lower case, without a trailing dot, of labels of letters, digits, '-' and '_'. What a
 * resolver might take for an address in another spelling ("127.1", "0x7f000001", "1.2.3.4.") is no
 * name, and nothing is decoded: "%2e" and non-ASCII are refused, names of other scripts come as
 * A-labels. An IPv4 address in four plain decimal numbers, and an IPv6 address in brackets, are
 * literals.
 *
 * Pure functions; a set may be asked by several threads as long as nobody adds to it.
 */
#ifndef SBX_EGRESS_HOST_H
#define SBX_EGRESS_HOST_H

#include "egress/address.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SBX_EGRESS_NAME_MAX 253 /* bytes of a name, as DNS has it */

/* A host: a name, or an address that was written as one. */
struct sbx_egress_host {
    char name[SBX_EGRESS_NAME_MAX + 1]; /* of a literal: its one spelling, IPv6 without brackets */
    uint8_t size;                       /* of `name` */
    bool is_literal;
    struct sbx_egress_address address; /* of a literal */
};

/*
 * Reads a host and nothing else: no port, no user.
 *
 * @param text  any bytes, also NUL
 * @return NULL, or what is wrong with it in a few words that repeat nothing of it; then `out` is
 *         not written
 */
const char *sbx_egress_host_read(const char *text, size_t size, struct sbx_egress_host *out);

/*
 * Reads HOST or HOST:PORT. A port is 1 to 65535 in its shortest spelling.
 *
 * @param default_port  what holds where no port is written; 0: there must be one
 * @return as sbx_egress_host_read()
 */
const char *sbx_egress_authority_read(const char *text, size_t size, uint16_t default_port,
                                      struct sbx_egress_host *out, uint16_t *port);

bool sbx_egress_host_equal(const struct sbx_egress_host *one, const struct sbx_egress_host *other);

/*
 * Whether a name belongs to a machine or a network rather than to the internet: one label only,
 * or below localhost, local, internal, home.arpa and the like. "Every host" never means these.
 */
bool sbx_egress_host_is_local(const struct sbx_egress_host *host);

/*
 * A set of patterns: names, and "*.example.net" for every name below example.net at any depth but
 * not itself. A look-up costs the same for one pattern as for ten thousand.
 */
struct sbx_egress_hosts;

#define SBX_EGRESS_HOSTS_MAX 10000 /* patterns of one set */

struct sbx_egress_hosts *sbx_egress_hosts_new(void);        /* NULL: no memory */
void sbx_egress_hosts_free(struct sbx_egress_hosts *hosts); /* NULL allowed */

enum sbx_egress_hosts_added {
    SBX_EGRESS_HOSTS_ADDED,
    SBX_EGRESS_HOSTS_BAD, /* the pattern: `*fault` says why */
    SBX_EGRESS_HOSTS_FULL,
    SBX_EGRESS_HOSTS_NO_MEMORY,
};

/*
 * Adds a pattern; one that is there already changes nothing. Refused are addresses, a star anywhere
 * but as the whole first label, "*" alone (a mode says that) and a star over a whole top-level
 * domain ("*.com").
 *
 * @param fault  written for SBX_EGRESS_HOSTS_BAD; static words
 */
enum sbx_egress_hosts_added sbx_egress_hosts_add(struct sbx_egress_hosts *hosts, const char *text,
                                                 size_t size, const char **fault);

/* A literal is never in a set. */
bool sbx_egress_hosts_has(const struct sbx_egress_hosts *hosts, const struct sbx_egress_host *host);

size_t sbx_egress_hosts_count(const struct sbx_egress_hosts *hosts);
/* A pattern as it was settled ("*.example.net"), in the order of adding. Borrowed. */
const char *sbx_egress_hosts_at(const struct sbx_egress_hosts *hosts, size_t index);

#endif
