/* The options that say how a command is run, shared by exec and run. */
#ifndef CLI_COMMANDING_H
#define CLI_COMMANDING_H

#include "cli.h"

struct cli_commanding {
    bool input, terminal, login;
    struct cli_words env;
    const char *directory, *user, *line;
    uint64_t deadline_ms;
};

/* clang-format off */

/* The table's lines for settings of `type` that hold a struct cli_commanding `commanding`. */
#define CLI_COMMANDING_OPTIONS(type)                                                              \
    {'i', "stdin", NULL, "forward standard input; without it there is none", CLI_FLAG,            \
     offsetof(type, commanding.input)},                                                           \
    {'t', "terminal", NULL, "give it a terminal; forwards keys where this is one", CLI_FLAG,      \
     offsetof(type, commanding.terminal)},                                                        \
    {'e', "env", "NAME[=VALUE]", "for it; without a value: this program's", CLI_LIST,             \
     offsetof(type, commanding.env)},                                                             \
    {'w', "directory", "DIR", "where it runs; default: /workspace", CLI_TEXT,                     \
     offsetof(type, commanding.directory)},                                                       \
    {'c', "command", "LINE", "a line for the workspace's shell, instead of ARGV", CLI_TEXT,       \
     offsetof(type, commanding.line)},                                                            \
    {0, "login", NULL, "with -c: read the shell's profile files first", CLI_FLAG,                 \
     offsetof(type, commanding.login)},                                                           \
    {0, "user", "USER", "sandbox, root or UID:GID", CLI_TEXT,                                     \
     offsetof(type, commanding.user)},                                                            \
    {0, "deadline", "DURATION", "kill it and all it started after this", CLI_DURATION,            \
     offsetof(type, commanding.deadline_ms)}

/* clang-format on */

struct cli_command {
    sandbox_process_options options;
    bool raw; /* both ends are terminals */
    struct cli_words env, owned;
};

/*
 * `argv` is NULL-terminated, and empty where -c gives the line. False: told. Free it after the
 * last use of its options.
 */
bool cli_command_settle(const struct cli *cli, const struct cli_commanding *commanding,
                        const char *const *argv, struct cli_command *command);
void cli_command_free(struct cli_command *command);

#endif
