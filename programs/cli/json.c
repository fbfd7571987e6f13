/* Writes one JSON document to standard output. Bytes that are not UTF-8 become U+FFFD. */

#include "json.h"

#include "text.h"

#include <inttypes.h>
#include <stdio.h>

static void begin(struct cli_json *json, const char *key);
static void write_string(const char *text);

void cli_json_object(struct cli_json *json, const char *key)
{
    begin(json, key);
    fputc('{', stdout);
    json->depth++;
    json->follows = false;
}

void cli_json_array(struct cli_json *json, const char *key)
{
    begin(json, key);
    fputc('[', stdout);
    json->depth++;
    json->follows = false;
}

void cli_json_end(struct cli_json *json, char bracket)
{
    json->depth--;
    if (json->follows)
        fprintf(stdout, "\n%*s", (int)json->depth * 2, "");
    fputc(bracket, stdout);
    json->follows = true;
    if (json->depth == 0)
        fputc('\n', stdout);
}

void cli_json_text(struct cli_json *json, const char *key, const char *value)
{
    begin(json, key);
    if (value == NULL)
        fputs("null", stdout);
    else
        write_string(value);
}

void cli_json_number(struct cli_json *json, const char *key, int64_t value)
{
    begin(json, key);
    fprintf(stdout, "%" PRId64, value);
}

void cli_json_size(struct cli_json *json, const char *key, uint64_t value)
{
    begin(json, key);
    fprintf(stdout, "%" PRIu64, value);
}

void cli_json_bool(struct cli_json *json, const char *key, bool value)
{
    begin(json, key);
    fputs(value ? "true" : "false", stdout);
}

void cli_json_null(struct cli_json *json, const char *key)
{
    begin(json, key);
    fputs("null", stdout);
}

static void begin(struct cli_json *json, const char *key)
{
    if (json->follows)
        fputc(',', stdout);
    if (json->depth > 0)
        fprintf(stdout, "\n%*s", (int)json->depth * 2, "");
    json->follows = true;
    if (key == NULL)
        return;
    write_string(key);
    fputs(": ", stdout);
}

static void write_string(const char *text)
{
    fputc('"', stdout);
    while (*text != '\0') {
        size_t size = cli_text_character(text);
        if (size == 0)
            fputs("\\ufffd", stdout);
        else if (*text == '"' || *text == '\\')
            fprintf(stdout, "\\%c", *text);
        else if ((unsigned char)*text < 0x20 || *text == 0x7f)
            fprintf(stdout, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            fwrite(text, 1, size, stdout);
        text += size > 0 ? size : 1;
    }
    fputc('"', stdout);
}
