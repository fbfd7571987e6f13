/* Reads the command line by the tables of options. */

#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Where reading stands. */
struct reader {
    struct cli *cli;
    char **next;
    void *settings;
    struct cli_words *words;
};

static bool read_long(struct reader *reader, const char *text);
static bool read_letters(struct reader *reader, const char *letters);
static const struct cli_option *find_option(const struct reader *reader, const char *name,
                                            size_t name_size, char letter, void **base);
static const struct cli_option *find_in(const struct cli_option *table, const char *name,
                                        size_t name_size, char letter);
static bool store(struct reader *reader, const struct cli_option *option, void *base,
                  const char *value);
static bool store_number(struct reader *reader, const struct cli_option *option, void *place,
                         const char *value);
static bool check_words(const struct cli *cli, const struct cli_words *words);

const struct cli_verb *cli_verb_find(const char *name)
{
    for (size_t i = 0; cli_verbs[i] != NULL; i++)
        if (strcmp(cli_verbs[i]->name, name) == 0)
            return cli_verbs[i];
    return NULL;
}

bool cli_parse_global(struct cli *cli, char ***arguments)
{
    struct reader reader = {cli, *arguments, NULL, NULL};
    while (*reader.next != NULL && (*reader.next)[0] == '-') {
        const char *text = *reader.next++;
        bool ok = text[1] == '-' ? read_long(&reader, text + 2) : read_letters(&reader, text + 1);
        if (!ok)
            return false;
    }
    *arguments = reader.next;
    return true;
}

bool cli_parse(struct cli *cli, char **arguments, void *settings, struct cli_words *words)
{
    struct reader reader = {cli, arguments, settings, words};
    int raw_after = cli->verb->raw_after;
    bool raw = false;
    while (*reader.next != NULL) {
        const char *text = *reader.next++;
        bool ok;
        if (!raw && strcmp(text, "--") == 0) {
            raw = true;
            continue;
        }
        if (!raw && text[0] == '-' && text[1] == '-')
            ok = read_long(&reader, text + 2);
        else if (!raw && text[0] == '-' && text[1] != '\0')
            ok = read_letters(&reader, text + 1);
        else {
            raw = raw || (raw_after >= 0 && words->count >= (size_t)raw_after);
            ok = cli_words_add(words, text);
        }
        if (!ok)
            return false;
    }
    return cli->help || check_words(cli, words);
}

bool cli_words_add(struct cli_words *words, const char *word)
{
    const char **grown = realloc(words->word, (words->count + 2) * sizeof *grown);
    if (grown == NULL) {
        cli_complain("no memory for the command line");
        return false;
    }
    words->word = grown;
    grown[words->count++] = word;
    grown[words->count] = NULL;
    return true;
}

void cli_words_free(struct cli_words *words)
{
    free(words->word);
    *words = (struct cli_words){0, NULL};
}

void cli_settings_free(const struct cli_verb *verb, void *settings)
{
    for (const struct cli_option *option = verb->options; option->name != NULL; option++)
        if (option->kind == CLI_LIST)
            cli_words_free((struct cli_words *)((char *)settings + option->offset));
    free(settings);
}

bool cli_number(const char *text, uint64_t most, uint64_t *out)
{
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || number > most)
        return false;
    *out = number;
    return true;
}

bool cli_duration(const char *text, bool bare_seconds, uint64_t *out_ms)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 3600 * 1000}, {"d", 86400 * 1000}};
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    const char *unit = *end == '\0' && (bare_seconds || number == 0) ? "s" : end;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(unit, units[i].unit) == 0 && number <= INT64_MAX / 2 / units[i].ms) {
            *out_ms = number * units[i].ms;
            return true;
        }
    return false;
}

static bool read_long(struct reader *reader, const char *text)
{
    size_t name_size = strcspn(text, "=");
    const char *value = text[name_size] == '=' ? text + name_size + 1 : NULL;
    void *base;
    const struct cli_option *option = find_option(reader, text, name_size, '\0', &base);
    if (option == NULL) {
        cli_usage(reader->cli, "no option --%.*s", (int)name_size, text);
        return false;
    }
    if (option->argument == NULL && value != NULL) {
        cli_usage(reader->cli, "option --%s takes no value", option->name);
        return false;
    }
    if (option->argument != NULL && value == NULL) {
        value = *reader->next;
        if (value == NULL) {
            cli_usage(reader->cli, "option --%s needs its %s", option->name, option->argument);
            return false;
        }
        reader->next++;
    }
    return store(reader, option, base, value);
}

/* Letters may share a dash: "-it"; a value follows its letter or is the next word. */
static bool read_letters(struct reader *reader, const char *letters)
{
    for (; *letters != '\0'; letters++) {
        void *base;
        const struct cli_option *option = find_option(reader, NULL, 0, *letters, &base);
        if (option == NULL) {
            cli_usage(reader->cli, "no option -%c", *letters);
            return false;
        }
        if (option->argument == NULL) {
            if (!store(reader, option, base, NULL))
                return false;
            continue;
        }
        const char *value = letters[1] != '\0' ? letters + 1 : *reader->next;
        if (value == NULL) {
            cli_usage(reader->cli, "option -%c needs its %s", *letters, option->argument);
            return false;
        }
        if (letters[1] == '\0')
            reader->next++;
        return store(reader, option, base, value);
    }
    return true;
}

static const struct cli_option *find_option(const struct reader *reader, const char *name,
                                            size_t name_size, char letter, void **base)
{
    const struct cli_verb *verb = reader->cli->verb;
    const struct cli_option *option = NULL;
    if (verb != NULL)
        option = find_in(verb->options, name, name_size, letter);
    *base = reader->settings;
    if (option != NULL)
        return option;
    *base = reader->cli;
    option = find_in(cli_global_options, name, name_size, letter);
    bool is_json = option != NULL && option->offset == offsetof(struct cli, json);
    return is_json && verb != NULL && !verb->json ? NULL : option;
}

static const struct cli_option *find_in(const struct cli_option *table, const char *name,
                                        size_t name_size, char letter)
{
    for (; table->name != NULL; table++) {
        if (name == NULL && table->letter == letter)
            return table;
        if (name != NULL && strlen(table->name) == name_size &&
            memcmp(table->name, name, name_size) == 0)
            return table;
    }
    return NULL;
}

static bool store(struct reader *reader, const struct cli_option *option, void *base,
                  const char *value)
{
    void *place = (char *)base + option->offset;
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)place = true;
        return true;
    case CLI_TEXT:
        *(const char **)place = value;
        return true;
    case CLI_LIST:
        return cli_words_add(place, value);
    default:
        return store_number(reader, option, place, value);
    }
}

static bool store_number(struct reader *reader, const struct cli_option *option, void *place,
                         const char *value)
{
    uint64_t number = 0;
    char *end = NULL;
    double thousandths = 0;
    switch (option->kind) {
    case CLI_NUMBER:
        if (!cli_number(value, UINT32_MAX, &number) || number == 0)
            break;
        *(uint32_t *)place = (uint32_t)number;
        return true;
    case CLI_OFFSET:
        if (!cli_number(value, UINT64_MAX, &number))
            break;
        *(uint64_t *)place = number;
        return true;
    case CLI_MILLIS:
        thousandths = strtod(value, &end) * 1000;
        if (end == value || *end != '\0' || !(thousandths >= 1 && thousandths <= 4e9))
            break;
        *(uint32_t *)place = (uint32_t)(thousandths + 0.5);
        return true;
    default:
        if (!cli_duration(value, option->kind == CLI_SECONDS, place) || *(uint64_t *)place == 0)
            break;
        return true;
    }
    bool is_time = option->kind == CLI_DURATION || option->kind == CLI_SECONDS;
    cli_usage(reader->cli, "--%s: '%s' is no %s%s", option->name, value,
              is_time ? "duration" : "number that fits here",
              is_time ? "; say it like 90s, 15m, 2h or 3d" : "");
    return false;
}

static bool check_words(const struct cli *cli, const struct cli_words *words)
{
    const struct cli_verb *verb = cli->verb;
    if (words->count < verb->least) {
        cli_usage(cli, "%s: something is missing", verb->name);
        return false;
    }
    if (words->count > verb->most) {
        cli_usage(cli, "%s: '%s' is too much", verb->name, words->word[verb->most]);
        return false;
    }
    return true;
}
