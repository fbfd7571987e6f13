/* What stands in a ClientHello: that it is exactly one, and names exactly the one host. */

#include "egress/client_hello_parts.h"

#include <string.h>

#define RANDOM_BYTES   32
#define SERVER_NAME    0x0000
#define ECH            0xfe0d
#define ECH_OUTER      0
#define OLD_ESNI       0xffce
#define EXTENSIONS_MAX 256 /* far more than any client has */

/* Bytes that are left to read. Once something is missing, it is bad and everything else is empty.
 */
struct reader {
    const uint8_t *at;
    size_t left;
    bool is_bad;
};

/* What the extensions have said. */
struct names {
    struct reader name;
    bool has_name, has_ech;
    uint16_t seen[EXTENSIONS_MAX];
    size_t seen_count;
};

static struct reader take(struct reader *from, size_t size);
static size_t number(struct reader *from, size_t bytes);
static struct reader vector(struct reader *from, size_t bytes);
static bool is_done(const struct reader *reader);
static const char *read_extensions(struct reader extensions, struct names *names,
                                   const char **reason);
static const char *read_extension(size_t type, struct reader content, struct names *names,
                                  const char **reason);
static const char *read_name(struct reader content, struct names *names);
static const char *judge_names(const struct names *names, const struct sbx_egress_host *host,
                               enum sbx_egress_ech ech, const char **reason);

const char *sbx_egress_hello_judge(const uint8_t *body, size_t size,
                                   const struct sbx_egress_host *host, enum sbx_egress_ech ech,
                                   const char **reason)
{
    struct reader all = {body, size, false};
    size_t version = number(&all, 2);
    take(&all, RANDOM_BYTES);
    struct reader session = vector(&all, 1);
    struct reader suites = vector(&all, 2);
    struct reader compressions = vector(&all, 1);

    *reason = SBX_EGRESS_BAD_HELLO;
    if (all.is_bad || version >> 8 != 3 || session.left > 32 || suites.left < 2 ||
        suites.left % 2 != 0 || compressions.left < 1)
        return "the ClientHello is malformed";
    struct names names = {.has_name = false};
    if (all.left > 0) {
        struct reader extensions = vector(&all, 2);
        if (all.is_bad || all.left > 0)
            return "the ClientHello is malformed";
        const char *fault = read_extensions(extensions, &names, reason);
        if (fault != NULL)
            return fault;
    }
    return judge_names(&names, host, ech, reason);
}

static struct reader take(struct reader *from, size_t size)
{
    struct reader taken = {from->at, size, false};
    if (from->is_bad || size > from->left) {
        *from = (struct reader){from->at, 0, true};
        return *from;
    }
    from->at += size;
    from->left -= size;
    return taken;
}

static size_t number(struct reader *from, size_t bytes)
{
    struct reader digits = take(from, bytes);
    size_t value = 0;
    for (size_t i = 0; i < digits.left; i++)
        value = value << 8 | digits.at[i];
    return value;
}

/* What has its length in front, in so many bytes. */
static struct reader vector(struct reader *from, size_t bytes)
{
    size_t size = number(from, bytes);
    return take(from, size);
}

static bool is_done(const struct reader *reader)
{
    return reader->left == 0 && !reader->is_bad;
}

static const char *read_extensions(struct reader extensions, struct names *names,
                                   const char **reason)
{
    while (extensions.left > 0) {
        size_t type = number(&extensions, 2);
        struct reader content = vector(&extensions, 2);
        if (extensions.is_bad)
            return "the ClientHello is malformed";
        for (size_t i = 0; i < names->seen_count; i++)
            if (names->seen[i] == type)
                return "an extension of the ClientHello is there twice";
        if (names->seen_count == EXTENSIONS_MAX)
            return "the ClientHello has too many extensions";
        names->seen[names->seen_count++] = (uint16_t)type;
        const char *fault = read_extension(type, content, names, reason);
        if (fault != NULL)
            return fault;
    }
    return extensions.is_bad ? "the ClientHello is malformed" : NULL;
}

static const char *read_extension(size_t type, struct reader content, struct names *names,
                                  const char **reason)
{
    if (type == SERVER_NAME)
        return read_name(content, names);
    if (type == OLD_ESNI) {
        *reason = SBX_EGRESS_ECH;
        return "the ClientHello hides its name";
    }
    if (type == ECH) {
        names->has_ech = true;
        if (content.left == 0 || content.at[0] != ECH_OUTER) {
            *reason = SBX_EGRESS_ECH;
            return "the ClientHello hides its name in an unknown way";
        }
    }
    return NULL;
}

/* Exactly one entry, a host_name: another kind in front may hide the name from other readers. */
static const char *read_name(struct reader content, struct names *names)
{
    struct reader list = vector(&content, 2);
    size_t kind = number(&list, 1);
    names->name = vector(&list, 2);
    names->has_name = true;
    if (!is_done(&content) || !is_done(&list) || kind != 0 || names->name.left == 0)
        return "the ClientHello's server name is malformed, or not exactly one";
    return NULL;
}

static const char *judge_names(const struct names *names, const struct sbx_egress_host *host,
                               enum sbx_egress_ech ech, const char **reason)
{
    if (names->has_ech && ech == SBX_EGRESS_ECH_DENY) {
        *reason = SBX_EGRESS_ECH;
        return "the ClientHello may hide its name (ECH), which the policy denies";
    }
    if (!names->has_name) {
        *reason = SBX_EGRESS_NO_SNI;
        return "the ClientHello names no host";
    }
    struct sbx_egress_host named;
    const char *text = (const char *)names->name.at;
    *reason = SBX_EGRESS_SNI_MISMATCH;
    if (text[names->name.left - 1] == '.' ||
        sbx_egress_host_read(text, names->name.left, &named) != NULL || named.is_literal)
        return "what the ClientHello names is no host";
    if (!sbx_egress_host_equal(&named, host))
        return "the ClientHello names another host than the tunnel's";
    return NULL;
}
