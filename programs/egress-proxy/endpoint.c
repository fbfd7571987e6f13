/* An address to listen on or to connect to: see endpoint.h. */

#include "endpoint.h"
#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static bool parse_port(const char *text, unsigned *port);

socklen_t address_size(const union address *address)
{
    if (address->any.sa_family == AF_INET)
        return sizeof address->v4;
    if (address->any.sa_family == AF_INET6)
        return sizeof address->v6;
    return sizeof address->local;
}

bool address_parse(const char *text, union address *out)
{
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, text, &out->v4.sin_addr) == 1) {
        out->any.sa_family = AF_INET;
        return true;
    }
    out->any.sa_family = AF_INET6;
    return inet_pton(AF_INET6, text, &out->v6.sin6_addr) == 1;
}

bool address_parse_port(const char *text, union address *out)
{
    char host[INET6_ADDRSTRLEN];
    unsigned port = 0;
    const char *colon = strrchr(text, ':');
    if (colon == NULL || !parse_port(colon + 1, &port))
        return false;
    bool in_brackets = text[0] == '[';
    const char *begin = text + in_brackets, *end = colon - in_brackets;
    if (end <= begin || (size_t)(end - begin) >= sizeof host || (in_brackets && *end != ']'))
        return false;
    snprintf(host, sizeof host, "%.*s", (int)(end - begin), begin);
    if (!address_parse(host, out) || (out->any.sa_family == AF_INET6) != in_brackets)
        return false;
    address_set_port(out, port);
    return true;
}

static bool parse_port(const char *text, unsigned *port)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits] != '\0')
        return false;
    for (*port = 0; *text != '\0'; text++)
        *port = *port * 10 + (unsigned)(*text - '0');
    return *port > 0 && *port < 65536;
}

bool address_parse_path(const char *path, union address *out)
{
    memset(out, 0, sizeof *out);
    out->any.sa_family = AF_UNIX;
    int size = snprintf(out->local.sun_path, sizeof out->local.sun_path, "%s", path);
    return path[0] == '/' && size > 1 && (size_t)size < sizeof out->local.sun_path;
}

void address_set_port(union address *address, unsigned port)
{
    if (address->any.sa_family == AF_INET)
        address->v4.sin_port = htons((uint16_t)port);
    else
        address->v6.sin6_port = htons((uint16_t)port);
}

bool address_same(const union address *a, const union address *b)
{
    if (a->any.sa_family != b->any.sa_family)
        return false;
    if (a->any.sa_family == AF_INET)
        return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
    if (a->any.sa_family == AF_UNIX)
        return strcmp(a->local.sun_path, b->local.sun_path) == 0;
    return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof a->v6.sin6_addr) == 0;
}

void address_unmap(union address *address)
{
    if (address->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&address->v6.sin6_addr))
        return;
    struct sockaddr_in plain = {.sin_family = AF_INET, .sin_port = address->v6.sin6_port};
    memcpy(&plain.sin_addr, address->v6.sin6_addr.s6_addr + 12, sizeof plain.sin_addr);
    address->v4 = plain;
}

void address_print(const union address *address, char text[ADDRESS_TEXT])
{
    const void *bytes = address->any.sa_family == AF_INET ? (const void *)&address->v4.sin_addr
                                                          : (const void *)&address->v6.sin6_addr;
    if (inet_ntop(address->any.sa_family, bytes, text, ADDRESS_TEXT) == NULL)
        text[0] = '\0';
}
