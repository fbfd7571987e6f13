/* An address to listen on or to connect to: IP and port, or a Unix socket's path. */
#ifndef EGRESS_ENDPOINT_H
#define EGRESS_ENDPOINT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
};

socklen_t address_size(const union address *address);
/* One IP address in one of its usual spellings, no brackets, no zone; the port becomes 0. */
bool address_parse(const char *text, union address *out);
/* "ADDRESS:PORT", IPv6 in brackets; not port 0. */
bool address_parse_port(const char *text, union address *out);
bool address_parse_path(const char *path, union address *out); /* absolute, and not too long */
void address_set_port(union address *address, unsigned port);
/* The same host, or the same path; ports do not count. Both unmapped. */
bool address_same(const union address *a, const union address *b);
/* A mapped IPv4 address becomes a plain one. */
void address_unmap(union address *address);
/* Without the port. */
#define ADDRESS_TEXT INET6_ADDRSTRLEN
void address_print(const union address *address, char text[ADDRESS_TEXT]);

#endif
