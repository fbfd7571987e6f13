/* What fields of HTTP may look like, and which belong to one connection only. */

#include "egress/fields.h"

#include <string.h>
#include <strings.h>

static bool is_one_of(struct sbx_egress_text name, const char *const *words, size_t count);
static bool is_blank(char c);

static const char *const hop_by_hop[] = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "te",
    "proxy-authorization",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "expect",
    "content-length",
    "host",
    "proxy-authentication-info",
};

static const char *const reserved[] = {"accept-encoding", "range", "if-range", "trailers"};

bool sbx_egress_text_is(struct sbx_egress_text text, const char *word)
{
    return strlen(word) == text.size && strncasecmp(text.data, word, text.size) == 0;
}

bool sbx_egress_is_token(struct sbx_egress_text text)
{
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        if (c <= ' ' || c > '~' || strchr("\"(),/:;<=>?@[\\]{}", c) != NULL)
            return false;
    }
    return text.size > 0;
}

bool sbx_egress_is_method(struct sbx_egress_text text)
{
    for (size_t i = 0; i < text.size; i++)
        if ((text.data[i] < 'A' || text.data[i] > 'Z') && (text.data[i] != '-' || i == 0))
            return false;
    return text.size > 0 && text.size <= 24;
}

bool sbx_egress_is_value(struct sbx_egress_text text)
{
    if (text.size > 0 && (is_blank(text.data[0]) || is_blank(text.data[text.size - 1])))
        return false;
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

bool sbx_egress_is_hop_by_hop(struct sbx_egress_text name)
{
    return is_one_of(name, hop_by_hop, sizeof hop_by_hop / sizeof hop_by_hop[0]);
}

bool sbx_egress_is_reserved(struct sbx_egress_text name)
{
    return sbx_egress_is_hop_by_hop(name) ||
           is_one_of(name, reserved, sizeof reserved / sizeof reserved[0]) ||
           (name.size > 6 && strncasecmp(name.data, "proxy-", 6) == 0);
}

bool sbx_egress_list_has(struct sbx_egress_text list, struct sbx_egress_text word)
{
    size_t start = 0;
    for (size_t i = 0; i <= list.size; i++) {
        if (i < list.size && list.data[i] != ',')
            continue;
        size_t end = i;
        while (start < end && is_blank(list.data[start]))
            start++;
        while (end > start && is_blank(list.data[end - 1]))
            end--;
        if (end - start == word.size && end > start &&
            strncasecmp(list.data + start, word.data, word.size) == 0)
            return true;
        start = i + 1;
    }
    return false;
}

static bool is_one_of(struct sbx_egress_text name, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (sbx_egress_text_is(name, words[i]))
            return true;
    return false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}
