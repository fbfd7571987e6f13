/* Expressions of rules: POSIX extended ones that can take neither long nor much memory. */

#include "egress/rules_regex.h"
#include "egress/rules.h"
#include "util/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_LIMIT 1000 /* of an expression that is written out; regcomp() takes 30 ms for it */

/* How large an expression is, written out: one for each sign, and groups as often as they repeat.
 */
struct measure {
    unsigned long
        sizes[SBX_EGRESS_REGEX_MAX + 1]; /* of the groups that are open, outermost first */
    size_t depth;
    unsigned long last; /* of what stands before, which a repetition repeats */
};

static const char *fault_of(const char *pattern);
static const char *step(struct measure *measure, const char **at);
static unsigned long most_of(const char *numbers);
static bool repeat(struct measure *measure, unsigned long times);
static void grow(struct measure *measure, unsigned long by);
static const char *skip_bracket(const char *at);

sandbox_status sbx_egress_regex_new(const char *pattern, const char *what, regex_t **out,
                                    sandbox_error *error)
{
    char whole[SBX_EGRESS_REGEX_MAX + sizeof "^()$"];
    const char *fault = fault_of(pattern);
    if (fault != NULL)
        return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST, "%s: the expression %s",
                            what, fault);
    snprintf(whole, sizeof whole, "^(%s)$", pattern);
    regex_t *regex = calloc(1, sizeof *regex);
    int result = regex == NULL ? REG_ESPACE : regcomp(regex, whole, REG_EXTENDED);
    if (result == 0) {
        *out = regex;
        return SANDBOX_OK;
    }
    free(regex);
    if (result == REG_ESPACE)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an expression");
    return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST,
                        "%s: the expression is no POSIX extended one", what);
}

void sbx_egress_regex_free(regex_t *regex)
{
    if (regex != NULL)
        regfree(regex);
    free(regex);
}

/*
 * The anchors only make it fast. What is found has to be the whole text all the same, so that no
 * expression talks its way out of them: the longest of the first matches is found, and if any is
 * the whole, it is.
 */
bool sbx_egress_regex_fits(const regex_t *regex, const char *text)
{
    regmatch_t found;
    return regexec(regex, text, 1, &found, 0) == 0 && found.rm_so == 0 &&
           (size_t)found.rm_eo == strlen(text);
}

static const char *fault_of(const char *pattern)
{
    struct measure measure = {.depth = 0};
    if (strlen(pattern) > SBX_EGRESS_REGEX_MAX)
        return "is longer than 256 bytes";
    for (const char *at = pattern; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ' || (unsigned char)*at > '~')
            return "has a byte that is no visible ASCII";
        const char *fault = step(&measure, &at);
        if (fault != NULL)
            return fault;
        if (measure.last > SIZE_LIMIT || measure.sizes[measure.depth] > SIZE_LIMIT)
            return "repeats too much";
    }
    return measure.depth == 0 ? NULL : "has a bracket that does not end";
}

static const char *step(struct measure *measure, const char **at)
{
    switch (**at) {
    case '\\':
        /* Letters, digits and some signs mean something to this library alone. */
        if (strchr("^.[]$()|*+?{}\\/-", *++*at) == NULL || **at == '\0')
            return "has a backslash before something else than a sign of expressions";
        grow(measure, 1);
        return NULL;
    case '[':
        *at = skip_bracket(*at);
        grow(measure, 1);
        return **at == ']' ? NULL : "has a bracket that does not end";
    case '(':
        grow(measure, 1);
        measure->sizes[++measure->depth] = 0;
        return NULL;
    case ')':
        /* The library takes one that closes nothing for a letter. */
        if (measure->depth == 0)
            return "has a bracket that closes nothing";
        measure->depth--;
        grow(measure, measure->sizes[measure->depth + 1]);
        return NULL;
    case '{':
        return repeat(measure, most_of(*at + 1)) ? NULL : "repeats too much";
    case '+':
        /* To the library "a+" is "aa*"; so "a++++" doubles four times. */
        return repeat(measure, 2) ? NULL : "repeats too much";
    case '*':
    case '?':
        measure->sizes[measure->depth]++;
        measure->last++;
        return NULL;
    default:
        grow(measure, 1);
        return NULL;
    }
}

/* Of "{2,5}" five, of "{2,}" three: what stands before is written so often. */
static unsigned long most_of(const char *numbers)
{
    unsigned long most = 1;
    while ((*numbers >= '0' && *numbers <= '9') || *numbers == ',') {
        char *end = NULL;
        unsigned long number = *numbers == ',' ? most + 1 : strtoul(numbers, &end, 10);
        most = number > most ? number : most;
        numbers = end == NULL ? numbers + 1 : end;
    }
    return most;
}

static bool repeat(struct measure *measure, unsigned long times)
{
    if (times > SIZE_LIMIT)
        return false;
    measure->sizes[measure->depth] += measure->last * (times - 1);
    measure->last *= times;
    return true;
}

static void grow(struct measure *measure, unsigned long by)
{
    measure->sizes[measure->depth] += by;
    measure->last = by;
}

/* The bracket that ends "[^]a[:digit:]]", or the end of the text. */
static const char *skip_bracket(const char *at)
{
    at++;
    at += *at == '^';
    at += *at == ']';
    while (*at != '\0' && *at != ']') {
        if (at[0] == '[' && at[1] != '\0' && strchr(":.=", at[1]) != NULL) {
            const char end[] = {at[1], ']', '\0'};
            const char *found = strstr(at + 2, end);
            if (found == NULL)
                return at + strlen(at);
            at = found + 2;
        } else {
            at++;
        }
    }
    return at;
}
