/* What the verbs share that make snapshots: their options, and how what was made is shown. */

#include "suspending.h"

#include "json.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

static bool read_port(const char *text, uint16_t *port);
static void print_json(const char *name, const sandbox_suspend_result *result);

bool cli_keep_settle(const struct cli *cli, const char *text, sandbox_keep *out)
{
    *out = SANDBOX_KEEP_BEST;
    if (text == NULL || strcmp(text, "best") == 0)
        return true;
    *out = SANDBOX_KEEP_MEMORY;
    if (strcmp(text, "memory") == 0)
        return true;
    *out = SANDBOX_KEEP_FILES;
    if (strcmp(text, "files") == 0)
        return true;
    cli_usage(cli, "--keep: '%s' is none of memory, files and best", text);
    return false;
}

bool cli_checks_settle(const struct cli *cli, const struct cli_words *given, struct cli_checks *out)
{
    if (given->count == 0)
        return true;
    out->check = calloc(given->count, sizeof *out->check);
    out->opencode = calloc(given->count, sizeof *out->opencode);
    if (out->check == NULL || out->opencode == NULL) {
        cli_complain("no memory for the checks");
        return false;
    }
    for (size_t i = 0; i < given->count; i++) {
        sandbox_opencode *opencode = &out->opencode[i];
        /* From the environment, so that it appears in no argument list. */
        *opencode = (sandbox_opencode){SANDBOX_OPENCODE, .user = getenv("OPENCODE_SERVER_USERNAME"),
                                       .password = getenv("OPENCODE_SERVER_PASSWORD")};
        if (!read_port(given->word[i], &opencode->port)) {
            cli_usage(cli, "--check: '%s' is not opencode:PORT", given->word[i]);
            return false;
        }
        out->check[out->count++] = (sandbox_check){sandbox_check_opencode, opencode};
    }
    return true;
}

void cli_checks_free(struct cli_checks *checks)
{
    free(checks->check);
    free(checks->opencode);
    *checks = (struct cli_checks){0};
}

const char *cli_keep_name(sandbox_keep keep)
{
    return keep == SANDBOX_KEEP_MEMORY ? "memory" : "files";
}

void cli_suspend_print(const struct cli *cli, const char *name, const char *done,
                       const sandbox_suspend_result *result)
{
    char size[CLI_SHORT_BYTES], took[CLI_SHORT_BYTES];
    if (result->why_files[0] != '\0')
        cli_note(cli, "only files are kept: %s", result->why_files);
    if (cli->json) {
        print_json(name, result);
        return;
    }
    if (cli->quiet) {
        printf("%s\n", result->snapshot);
        return;
    }
    printf("%s %s: snapshot %.12s keeps %s (%s, %s)\n", name, done, result->snapshot,
           result->kept == SANDBOX_KEEP_MEMORY ? "files and processes" : "files only",
           cli_text_size(result->bytes, size), cli_text_took(result->took_ms, took));
}

static bool read_port(const char *text, uint16_t *port)
{
    static const char kind[] = "opencode:";
    uint64_t number = 0;
    if (strncmp(text, kind, sizeof kind - 1) != 0 ||
        !cli_number(text + sizeof kind - 1, UINT16_MAX, &number) || number == 0)
        return false;
    *port = (uint16_t)number;
    return true;
}

static void print_json(const char *name, const sandbox_suspend_result *result)
{
    struct cli_json json = {0};
    cli_json_object(&json, NULL);
    cli_json_text(&json, "name", name);
    cli_json_text(&json, "snapshot", result->snapshot);
    cli_json_text(&json, "kept", cli_keep_name(result->kept));
    cli_json_number(&json, "stopped", result->stopped);
    cli_json_number(&json, "parked", result->parked);
    cli_json_size(&json, "bytes", result->bytes);
    cli_json_number(&json, "took_ms", result->took_ms);
    cli_json_text(&json, "why_files", result->why_files);
    cli_json_end(&json, '}');
}
