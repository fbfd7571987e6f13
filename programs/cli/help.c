/* The help: an overview, and one page for each verb, from the tables. */

#include "cli.h"

#include <string.h>

static void print_options(FILE *stream, const struct cli_option *table, bool json);
static int print_help(struct cli *cli, const void *settings, const struct cli_words *words);

static const struct cli_option no_options[] = {{.name = NULL}};

const struct cli_verb cli_help = {
    .name = "help",
    .usage = "[VERB]",
    .summary = "show this, or the help of one verb",
    .text = "",
    .options = no_options,
    .settings_size = 1,
    .most = 1,
    .raw_after = -1,
    .run = print_help,
};

void cli_print_overview(FILE *stream)
{
    fputs("usage: sandbox [OPTIONS] VERB …\n\n"
          "Workspaces for AI agents: isolated places that run commands and keep files,\n"
          "are suspended, and come back proven to be the same.\n\n",
          stream);
    for (size_t i = 0; cli_verbs[i] != NULL; i++)
        fprintf(stream, "  %-16s %s\n", cli_verbs[i]->name, cli_verbs[i]->summary);
    fputs("\nOptions of every verb:\n", stream);
    print_options(stream, cli_global_options, true);
    fputs("\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 exists, 5 denied,\n"
          "6 unavailable, busy or timed out (try again), 7 workspace interrupted, 8 limit\n"
          "reached, 9 workspace suspended, 10 not restored, 128+N ended by signal N. exec and\n"
          "run pass on the command's own code; 124 its time ran out, 125 failure of sandbox\n"
          "itself, 126 not executable, 127 no such program.\n\n"
          "'sandbox VERB --help' tells more; so does sandbox(1).\n",
          stream);
}

void cli_print_verb_help(FILE *stream, const struct cli_verb *verb)
{
    fprintf(stream, "usage: sandbox %s%s%s\n\n%c%s.\n", verb->name, verb->usage[0] ? " " : "",
            verb->usage, verb->summary[0] - 'a' + 'A', verb->summary + 1);
    if (verb->text[0] != '\0')
        fprintf(stream, "\n%s\n", verb->text);
    if (verb->options->name != NULL) {
        fputs("\nOptions:\n", stream);
        print_options(stream, verb->options, true);
    }
    fputs("\nOptions of every verb:\n", stream);
    print_options(stream, cli_global_options, verb->json);
    if (verb->runs_command)
        fputs("\nExit codes: the command's own, 128+N if signal N ended it; 124 its time ran out,\n"
              "125 failure of sandbox itself, 126 not executable, 127 no such program.\n",
              stream);
    else
        fputs("\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 exists, 5 denied,\n"
              "6 unavailable, busy or timed out (try again), 7 workspace interrupted, 8 limit\n"
              "reached, 9 workspace suspended, 10 not restored, 128+N ended by signal N.\n",
              stream);
}

static void print_options(FILE *stream, const struct cli_option *table, bool json)
{
    for (; table->name != NULL; table++) {
        if (!json && strcmp(table->name, "json") == 0)
            continue;
        char left[64];
        const char *argument = table->argument;
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", table->letter ? '-' : ' ',
                 table->letter ? table->letter : ' ', table->letter ? "," : " ", table->name,
                 argument ? " " : "", argument ? argument : "");
        fprintf(stream, "  %-28s %s\n", left, table->text);
    }
}

static int print_help(struct cli *cli, const void *settings, const struct cli_words *words)
{
    if (words->count == 0) {
        cli_print_overview(stdout);
        return CLI_OK;
    }
    const struct cli_verb *verb = cli_verb_find(words->word[0]);
    if (verb == NULL)
        return cli_usage(cli, "no verb '%s'", words->word[0]);
    cli_print_verb_help(stdout, verb);
    return CLI_OK;
}
