/* What a failed plugin said, fit for a message: one line, its end, nothing like a credential. */

#include "cloud/kubeconfig_parts.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A run of so many letters and digits is no word; a longer one may have slashes in it. */
#define RUN_MIN      20
#define LONG_RUN_MIN 40

#define SMALL  "abcdefghijklmnopqrstuvwxyz"
#define LARGE  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

static const char cut[] = "[cut]";
static const char blanks[] = " \t\r\n";
static const char letters[] = SMALL LARGE DIGITS "-_.~+%";
static const char base64_letters[] = SMALL LARGE DIGITS "+/";

/* The end of what was put in, as far as there is room. */
struct tail {
    char *text;
    size_t size, used;
    bool is_whole;
};

/* What the words before say of the next one. */
enum expected { NOTHING, SECRET_AFTER_SIGN, SECRET_IF_ODD, SECRET };

static size_t word_size(const char *text, bool *is_secret);
static bool has_any(const char *text, size_t size, const char *set);
static enum expected expect(const char *word, size_t size);
static enum expected expect_after(const char *sign, enum expected before);
static void put(struct tail *tail, const char *text, size_t size);
static void begin_at_word(struct tail *tail);

void sbx_plugin_words(const char *text, char *out, size_t size)
{
    struct tail tail = {.text = out, .size = size, .is_whole = true};
    enum expected next = NOTHING;
    *out = '\0';
    while (strchr(blanks, *text) != NULL && *text != '\0')
        text++;
    for (const char *at = text; *at != '\0';) {
        bool is_secret = false;
        size_t length = word_size(at, &is_secret);
        if (length == 0 && strchr(blanks, *at) != NULL) {
            at += strspn(at, blanks);
            put(&tail, *at == '\0' ? "" : " ", *at != '\0');
            continue;
        }
        if (length == 0) {
            next = expect_after(at, next);
            put(&tail, at++, 1);
            continue;
        }
        if (strncmp(at, "-----BEGIN", 10) == 0) { /* a key or a certificate: and nothing after it */
            put(&tail, cut, strlen(cut));
            break;
        }
        bool is_odd = has_any(at, length, DIGITS "-_.~+%");
        enum expected then = expect(at, length);
        is_secret = is_secret || (next == SECRET && then != SECRET) ||
                    (next == SECRET_IF_ODD && is_odd && then == NOTHING);
        put(&tail, is_secret ? cut : at, is_secret ? strlen(cut) : length);
        next = then;
        at += length;
    }
    begin_at_word(&tail);
}

/* Of the word that begins here; 0: none does. */
static size_t word_size(const char *text, bool *is_secret)
{
    size_t size = strspn(text, letters), whole = strspn(text, base64_letters);
    bool is_mixed =
        has_any(text, whole, SMALL) && has_any(text, whole, LARGE) && has_any(text, whole, DIGITS);
    if (whole >= LONG_RUN_MIN && whole > size && *text != '/' && is_mixed) {
        *is_secret = true;
        return whole;
    }
    bool has_both = has_any(text, size, DIGITS) && has_any(text, size, SMALL LARGE);
    *is_secret = size >= LONG_RUN_MIN || (size >= RUN_MIN && has_both);
    return size;
}

static bool has_any(const char *text, size_t size, const char *set)
{
    return strcspn(text, set) < size;
}

static bool ends_with(const char *word, size_t size, const char *end)
{
    size_t end_size = strlen(end);
    return size >= end_size && strncasecmp(word + size - end_size, end, end_size) == 0;
}

static enum expected expect(const char *word, size_t size)
{
    static const struct {
        const char *end;
        enum expected next;
    } known[] = {
        {"bearer", SECRET},
        {"password", SECRET_AFTER_SIGN},
        {"passwd", SECRET_AFTER_SIGN},
        {"secret", SECRET_AFTER_SIGN},
        {"token", SECRET_IF_ODD},
        {"key", SECRET_IF_ODD},
        {"authorization", SECRET_IF_ODD},
    };
    for (size_t n = 0; n < sizeof known / sizeof known[0]; n++) {
        if (ends_with(word, size, known[n].end))
            return known[n].next;
    }
    return NOTHING;
}

/*
 * "password=x", "secret: x" and "\"token\": \"x\"" lead on to what is named; "to retrieve a token:
 * it failed" speaks of one.
 */
static enum expected expect_after(const char *sign, enum expected before)
{
    if (before == NOTHING || strchr(":='\"", *sign) == NULL)
        return NOTHING;
    if (*sign == '\'' || *sign == '"')
        return before;
    const char *after = sign + 1 + strspn(sign + 1, blanks);
    bool is_led_to = *after == '\'' || *after == '"' || strchr(letters, sign[1]) != NULL;
    return before == SECRET_AFTER_SIGN || (is_led_to && sign[1] != '\0') ? SECRET : before;
}

/* What no longer fits is dropped at the beginning. */
static void put(struct tail *tail, const char *text, size_t size)
{
    size_t room = tail->size - 1;
    if (size > room) {
        text += size - room;
        size = room;
        tail->is_whole = false;
    }
    if (tail->used + size > room) {
        size_t dropped = tail->used + size - room;
        memmove(tail->text, tail->text + dropped, tail->used - dropped);
        tail->used -= dropped;
        tail->is_whole = false;
    }
    if (size > 0)
        memcpy(tail->text + tail->used, text, size);
    tail->used += size;
    tail->text[tail->used] = '\0';
}

/* Half a word says nothing. */
static void begin_at_word(struct tail *tail)
{
    const char *blank = tail->is_whole ? NULL : strchr(tail->text, ' ');
    if (blank != NULL && blank[1] != '\0')
        memmove(tail->text, blank + 1, strlen(blank));
}
