/* What the verbs share that make snapshots: their options, and how what was made is shown. */
#ifndef CLI_SUSPENDING_H
#define CLI_SUSPENDING_H

#include "cli.h"

/* clang-format off */

/* The table's lines for settings of `type` with the text `keep` and the words `checks`. */
#define CLI_KEEP_OPTION(type)                                                                     \
    {0, "keep", "WHAT", "memory, files, or best (the default): memory if it can be", CLI_TEXT,    \
     offsetof(type, keep)}
#define CLI_CHECK_OPTION(type)                                                                    \
    {0, "check", "opencode:PORT", "ask this server inside too whether it is busy", CLI_LIST,      \
     offsetof(type, checks)}

/* clang-format on */

/* Checks as the library takes them, and what they hang on. */
struct cli_checks {
    size_t count;
    sandbox_check *check;
    sandbox_opencode *opencode;
};

/* The text is NULL where the option was not given. False: told. */
bool cli_keep_settle(const struct cli *cli, const char *text, sandbox_keep *out);
/* False: told. Free it after the last use, in any case. */
bool cli_checks_settle(const struct cli *cli, const struct cli_words *given,
                       struct cli_checks *out);
void cli_checks_free(struct cli_checks *checks);

/* "memory", "files". */
const char *cli_keep_name(sandbox_keep keep);
/* To standard output; `done` says in a word what was done. */
void cli_suspend_print(const struct cli *cli, const char *name, const char *done,
                       const sandbox_suspend_result *result);

#endif
