/* Names of hosts, read in one way wherever they come from. */

#include "egress/host.h"

#include <string.h>

static const char *read_literal(const char *text, size_t size, struct sbx_egress_host *out);
static const char *read_label(const char *text, size_t size);
static bool is_number(const char *label, size_t size);
static bool is_digit(char c);
static bool is_hex(char c);
static const char *read_port(const char *text, size_t size, uint16_t *port);
static bool ends_with(const struct sbx_egress_host *host, const char *ending);

/* What RFC 6761 and its kin set apart, and what clouds and offices call their own. */
static const char *const local_endings[] = {
    ".localhost", ".local", ".internal", ".intranet",  ".private",
    ".corp",      ".home",  ".lan",      ".home.arpa", ".localdomain",
};

const char *sbx_egress_host_read(const char *text, size_t size, struct sbx_egress_host *out)
{
    if (size > 0 && text[0] == '[')
        return read_literal(text, size, out);
    bool has_dot = size > 0 && text[size - 1] == '.';
    size -= has_dot;
    if (size == 0)
        return "the host is empty";
    if (size > SBX_EGRESS_NAME_MAX)
        return "the host is longer than a name may be";

    struct sbx_egress_host host = {.size = (uint8_t)size};
    size_t label = 0;
    for (size_t i = 0; i <= size; i++) {
        char c = i < size ? text[i] : '.';
        if (c == '.') {
            const char *fault = read_label(text + label, i - label);
            if (fault != NULL)
                return fault;
            if (i < size)
                label = i + 1;
        }
        if (i < size)
            host.name[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    /* The last label of a name is never a number; what looks so is an address in some spelling. */
    if (is_number(host.name + label, size - label)) {
        if (!sbx_egress_address_parse(host.name, &host.address) || has_dot)
            return "the host is an address in an unusual spelling";
        host.is_literal = true;
    }
    *out = host;
    return NULL;
}

const char *sbx_egress_authority_read(const char *text, size_t size, uint16_t default_port,
                                      struct sbx_egress_host *out, uint16_t *port)
{
    size_t host_size = 0;
    if (size > 0 && text[0] == '[') {
        const char *end = memchr(text, ']', size);
        if (end == NULL)
            return "the host's bracket does not end";
        host_size = (size_t)(end - text) + 1;
    } else {
        const char *colon = size == 0 ? NULL : memchr(text, ':', size);
        host_size = colon == NULL ? size : (size_t)(colon - text);
    }

    uint16_t read = default_port;
    const char *fault = NULL;
    if (host_size < size) {
        if (text[host_size] != ':')
            return "something stands behind the host";
        fault = read_port(text + host_size + 1, size - host_size - 1, &read);
    } else if (default_port == 0) {
        fault = "the port is missing";
    }
    if (fault == NULL)
        fault = sbx_egress_host_read(text, host_size, out);
    if (fault == NULL)
        *port = read;
    return fault;
}

bool sbx_egress_host_equal(const struct sbx_egress_host *one, const struct sbx_egress_host *other)
{
    return one->size == other->size && one->is_literal == other->is_literal &&
           memcmp(one->name, other->name, one->size) == 0;
}

bool sbx_egress_host_is_local(const struct sbx_egress_host *host)
{
    if (memchr(host->name, '.', host->size) == NULL)
        return true;
    for (size_t i = 0; i < sizeof local_endings / sizeof local_endings[0]; i++)
        if (ends_with(host, local_endings[i]))
            return true;
    return false;
}

/* "[…]" holds an IPv6 address and nothing else: no name, no IPv4, no zone. */
static const char *read_literal(const char *text, size_t size, struct sbx_egress_host *out)
{
    char inside[SBX_EGRESS_ADDRESS_TEXT];
    if (size < 4 || size - 2 >= sizeof inside || text[size - 1] != ']')
        return "the host in brackets is no IPv6 address";
    memcpy(inside, text + 1, size - 2);
    inside[size - 2] = '\0';

    struct sbx_egress_host host = {.is_literal = true};
    if (strlen(inside) != size - 2 || !sbx_egress_address_parse(inside, &host.address) ||
        host.address.size != 16)
        return "the host in brackets is no IPv6 address";
    sbx_egress_address_print(&host.address, host.name);
    host.size = (uint8_t)strlen(host.name);
    *out = host;
    return NULL;
}

static const char *read_label(const char *text, size_t size)
{
    if (size == 0)
        return "the host has an empty label";
    if (size > 63)
        return "the host has a label of more than 63 bytes";
    if (text[0] == '-' || text[size - 1] == '-')
        return "a label of the host begins or ends with '-'";
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (!is_digit(c) && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '-' &&
            c != '_')
            return "the host has a byte that no name has";
    }
    return NULL;
}

/* As inet_aton() has it: decimal, octal, or hexadecimal ("0x" alone is zero). */
static bool is_number(const char *label, size_t size)
{
    size_t i = 0;
    if (size >= 2 && label[0] == '0' && label[1] == 'x') {
        for (i = 2; i < size && is_hex(label[i]); i++)
            continue;
        return i == size;
    }
    while (i < size && is_digit(label[i]))
        i++;
    return i == size;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f');
}

static const char *read_port(const char *text, size_t size, uint16_t *port)
{
    unsigned number = 0;
    if (size == 0 || size > 5 || text[0] == '0')
        return "the port is no number from 1 to 65535";
    for (size_t i = 0; i < size; i++) {
        if (!is_digit(text[i]))
            return "the port is no number from 1 to 65535";
        number = number * 10 + (unsigned)(text[i] - '0');
    }
    if (number > UINT16_MAX)
        return "the port is no number from 1 to 65535";
    *port = (uint16_t)number;
    return NULL;
}

static bool ends_with(const struct sbx_egress_host *host, const char *ending)
{
    size_t size = strlen(ending);
    return host->size > size && memcmp(host->name + host->size - size, ending, size) == 0;
}
