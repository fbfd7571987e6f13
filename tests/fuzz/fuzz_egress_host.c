/*
 * Hosts, patterns, addresses and ranges, a line each: every line is added as a pattern and as a
 * range, the last one is looked up as a host and as an address, and a plain matcher has to agree.
 */

#include "egress/host.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LINES_MAX 64

struct line {
    const char *text;
    size_t size;
};

static size_t split(const char *text, size_t size, struct line *lines);
static void check_host(struct line line, struct sbx_egress_host *host);
static void check_hosts(const struct line *lines, size_t count);
static bool plain_match(const char *pattern, const char *host);
static void check_ranges(const struct line *lines, size_t count);
static bool plain_range(const char *text, const struct sbx_egress_address *address);
static void expect(bool right);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct line lines[LINES_MAX];
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    size_t count = split(text, size, lines);
    check_hosts(lines, count);
    check_ranges(lines, count);
    free(text);
    return 0;
}

/* Each ends with NUL afterwards, and may have others inside. */
static size_t split(const char *text, size_t size, struct line *lines)
{
    size_t count = 0;
    char *rest = (char *)(uintptr_t)text;
    while (count < LINES_MAX) {
        char *end = memchr(rest, '\n', size);
        lines[count++] = (struct line){rest, end == NULL ? size : (size_t)(end - rest)};
        if (end == NULL)
            break;
        *end = '\0';
        size -= (size_t)(end + 1 - rest);
        rest = end + 1;
    }
    return count;
}

static void check_host(struct line line, struct sbx_egress_host *host)
{
    struct sbx_egress_host again;
    char text[SBX_EGRESS_NAME_MAX + 3];
    uint16_t port = 0;
    if (sbx_egress_authority_read(line.text, line.size, 443, host, &port) == NULL)
        expect(port != 0);
    if (sbx_egress_host_read(line.text, line.size, host) != NULL) {
        *host = (struct sbx_egress_host){.size = 0};
        return;
    }
    bool is_ipv6 = host->is_literal && host->address.size == 16;
    expect(strlen(host->name) == host->size && host->size > 0);
    size_t size = 0;
    if (is_ipv6)
        text[size++] = '[';
    memcpy(text + size, host->name, host->size);
    size += host->size;
    if (is_ipv6)
        text[size++] = ']';
    expect(sbx_egress_host_read(text, size, &again) == NULL);
    expect(sbx_egress_host_equal(host, &again));
    for (size_t i = 0; i < host->size; i++)
        expect(host->name[i] > ' ' && host->name[i] <= '~' &&
               (host->name[i] < 'A' || host->name[i] > 'Z'));
}

static void check_hosts(const struct line *lines, size_t count)
{
    struct sbx_egress_host host;
    struct sbx_egress_hosts *hosts = sbx_egress_hosts_new();
    if (hosts == NULL)
        return;
    for (size_t i = 0; i < count; i++) {
        const char *fault = NULL;
        if (sbx_egress_hosts_add(hosts, lines[i].text, lines[i].size, &fault) ==
            SBX_EGRESS_HOSTS_BAD)
            expect(fault != NULL);
        check_host(lines[i], &host);
    }
    bool found = false;
    for (size_t i = 0; host.size > 0 && i < sbx_egress_hosts_count(hosts); i++)
        found |= !host.is_literal && plain_match(sbx_egress_hosts_at(hosts, i), host.name);
    expect(host.size == 0 || found == sbx_egress_hosts_has(hosts, &host));
    sbx_egress_hosts_free(hosts);
}

static bool plain_match(const char *pattern, const char *host)
{
    if (pattern[0] != '*')
        return strcmp(pattern, host) == 0;
    size_t ending = strlen(pattern + 1);
    return strlen(host) > ending && strcmp(host + strlen(host) - ending, pattern + 1) == 0;
}

static void check_ranges(const struct line *lines, size_t count)
{
    struct sbx_egress_address address;
    struct sbx_egress_ranges *ranges = sbx_egress_ranges_new();
    bool is_address = sbx_egress_address_parse(lines[count - 1].text, &address);
    bool found = false;
    for (size_t i = 0; ranges != NULL && i < count; i++) {
        struct sbx_egress_range range;
        if (sbx_egress_range_parse(lines[i].text, &range) != NULL)
            continue;
        expect(sbx_egress_ranges_add(ranges, &range));
        expect(sbx_egress_range_has(&range, &range.first) &&
               sbx_egress_range_has(&range, &range.last));
        if (!is_address)
            continue;
        bool has = plain_range(lines[i].text, &address);
        expect(has == sbx_egress_range_has(&range, &address));
        found |= has;
    }
    if (is_address && ranges != NULL) {
        expect(found == sbx_egress_ranges_has(ranges, &address));
        const char *kind = sbx_egress_address_kind(&address);
        expect(found || sbx_egress_address_refused(&address, NULL, ranges) == kind);
        expect(!found || sbx_egress_address_refused(&address, ranges, NULL) != NULL);
    }
    sbx_egress_ranges_free(ranges);
}

/* Bit by bit. */
static bool plain_range(const char *text, const struct sbx_egress_address *address)
{
    struct sbx_egress_address first;
    char plain[64] = "";
    const char *slash = strchr(text, '/');
    size_t size = slash == NULL ? strlen(text) : (size_t)(slash - text);
    expect(size < sizeof plain);
    memcpy(plain, text, size);
    expect(sbx_egress_address_parse(plain, &first));
    unsigned long bits = slash == NULL ? first.size * 8UL : strtoul(slash + 1, NULL, 10);
    if (first.size != address->size)
        return false;
    for (unsigned long i = 0; i < bits; i++)
        if ((first.bytes[i / 8] ^ address->bytes[i / 8]) >> (7 - i % 8) & 1)
            return false;
    return true;
}

static void expect(bool right)
{
    if (!right)
        abort();
}
