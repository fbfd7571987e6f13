/*
 * What the verbs of the command `sandbox` share: the table of verbs and options, how failures are
 * told, and a few helpers. A verb's file holds its options, its help and its one function.
 *
 * The command uses the public API and nothing else of the library.
 */
#ifndef CLI_H
#define CLI_H

#include <sandbox/sandbox.h>
#include <stdio.h>

#define CLI_ON_EXIT(function)   __attribute__((cleanup(function)))
#define CLI_PRINTF(line, first) __attribute__((format(printf, line, first)))

/* Exit codes: part of the interface, told in `sandbox help` and the manual page. */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_NOT_FOUND = 3,
    CLI_EXISTS = 4,
    CLI_DENIED = 5,
    CLI_UNAVAILABLE = 6,
    CLI_INTERRUPTED = 7,
    CLI_LIMIT = 8,
    CLI_SUSPENDED = 9,
    CLI_NOT_RESTORED = 10,
    CLI_TIMED_OUT = 124,      /* exec and run: the deadline passed */
    CLI_OWN_FAILURE = 125,    /* exec and run: not the command, but we failed */
    CLI_NOT_EXECUTABLE = 126, /* exec and run */
    CLI_NO_PROGRAM = 127,     /* exec and run */
    CLI_SIGNALLED = 128,      /* plus the signal's number */
};

struct cli_verb;

/* One run of the command. Filled by main() and then only read. */
struct cli {
    const char *uri;     /* -u; NULL: the environment's, else the library's default */
    uint64_t timeout_ms; /* --timeout; 0: each call's own default */
    int64_t deadline_ms; /* on the monotonic clock, from --timeout */
    bool json, quiet, verbose, help, version;
    const struct cli_verb *verb;
    sandbox_client *client; /* once cli_client() opened it */
};

/* Words of the command line, NULL-terminated; the words themselves are argv's. */
struct cli_words {
    size_t count;
    const char **word;
};

/* What an option's value becomes in the verb's settings. */
enum cli_kind {
    CLI_FLAG,     /* bool */
    CLI_TEXT,     /* const char * */
    CLI_LIST,     /* struct cli_words, once for every time it is given */
    CLI_NUMBER,   /* uint32_t, at least 1 */
    CLI_OFFSET,   /* uint64_t */
    CLI_DURATION, /* uint64_t, milliseconds: 90s, 15m, 2h, 3d */
    CLI_SECONDS,  /* as CLI_DURATION, and a bare number is seconds */
    CLI_MILLIS,   /* uint32_t, thousandths: 1.5 is 1,500 */
};

struct cli_option {
    char letter;          /* 0: none */
    const char *name;     /* NULL ends the table */
    const char *argument; /* NULL for flags */
    const char *text;
    enum cli_kind kind;
    size_t offset; /* into the settings */
};

/* What a verb's words are, for the completion. */
enum cli_complete {
    CLI_COMPLETE_NOTHING,
    CLI_COMPLETE_WORKSPACE,  /* the first word */
    CLI_COMPLETE_WORKSPACES, /* every word */
    CLI_COMPLETE_PROCESS,    /* a workspace, then one of its processes */
    CLI_COMPLETE_SNAPSHOT,   /* a workspace, then its snapshots */
    CLI_COMPLETE_PATHS,      /* files here, and NAME: */
    CLI_COMPLETE_SHELLS,
};

struct cli_verb {
    const char *name;
    const char *usage;   /* what follows the options */
    const char *summary; /* one line */
    const char *text;    /* the rest of the help, or "" */
    const struct cli_option *options;
    size_t settings_size;
    size_t least, most; /* how many words; most 0 with least 0: none */
    int raw_after;      /* that many words on, the rest is a command: no options; -1: never */
    bool json;          /* knows --json */
    bool runs_command;  /* exit codes 124 to 127 */
    enum cli_complete complete;
    int (*run)(struct cli *cli, const void *settings, const struct cli_words *words);
};

#define CLI_MANY SIZE_MAX

/* The table, ended by a NULL. */
extern const struct cli_verb *const cli_verbs[];
extern const struct cli_option cli_global_options[];

extern const struct cli_verb cli_attach, cli_cat, cli_checkpoint, cli_completion, cli_cp,
    cli_create, cli_delete, cli_doctor, cli_egress, cli_exec, cli_help, cli_inspect, cli_kill,
    cli_list, cli_ls, cli_manifests, cli_open, cli_port_forward, cli_ports, cli_ps, cli_recover,
    cli_renew, cli_restore, cli_resume, cli_run, cli_snapshot_delete, cli_snapshots, cli_stats,
    cli_suspend, cli_suspend_idle, cli_sweep, cli_verify, cli_version;

/* main.c */

/* For verbs that work on many workspaces: the log says which one failed, and why. */
void cli_show_warnings(const struct cli *cli);

/* options.c */

const struct cli_verb *cli_verb_find(const char *name);
/*
 * Reads options and words after the verb into `settings` and `words`. False: told on stderr.
 */
bool cli_parse(struct cli *cli, char **arguments, void *settings, struct cli_words *words);
/* Reads the options before the verb; `arguments` then points at the verb. False: told. */
bool cli_parse_global(struct cli *cli, char ***arguments);
bool cli_words_add(struct cli_words *words, const char *word);
void cli_words_free(struct cli_words *words);
/* Gives back what the options of a verb hold. */
void cli_settings_free(const struct cli_verb *verb, void *settings);
/* "90s", "15m", "2h", "3d", "500ms"; a bare number only where `bare_seconds`. */
bool cli_duration(const char *text, bool bare_seconds, uint64_t *out_ms);
bool cli_number(const char *text, uint64_t most, uint64_t *out);

/* help.c */

void cli_print_overview(FILE *stream);
void cli_print_verb_help(FILE *stream, const struct cli_verb *verb);

/* failure.c */

/* One line on stderr: "sandbox: …". */
void cli_complain(const char *format, ...) CLI_PRINTF(1, 2);
/* A second line with the remedy. */
void cli_hint(const struct cli *cli, const char *format, ...) CLI_PRINTF(2, 3);
/* Something worth knowing that is no failure; nothing with -q. */
void cli_note(const struct cli *cli, const char *format, ...) CLI_PRINTF(2, 3);
/* Tells a wrong command line; the exit code for it. */
int cli_usage(const struct cli *cli, const char *format, ...) CLI_PRINTF(2, 3);
/* Tells a failure with its remedy. `name` is the workspace it is about, or NULL. The exit code. */
int cli_fail(const struct cli *cli, const sandbox_error *error, const char *name);
/* Ends standard output: false and told if not everything could be written. */
bool cli_flush(int *code);

/* connect.c */

/* A call with what is left of --timeout and the cancel handle that Ctrl-C triggers. */
sandbox_call cli_call(const struct cli *cli);
/* The same for calls whose default deadline is none or longer than `default_ms`. */
sandbox_call cli_call_within(const struct cli *cli, uint32_t default_ms);
sandbox_status cli_client(struct cli *cli, sandbox_client **out, sandbox_error *error);
/* A handle on the workspace of that name. */
sandbox_status cli_find(struct cli *cli, const char *name, sandbox_workspace **out,
                        sandbox_error *error);
/* A handle on the process with that id, or the one whose id begins so. */
sandbox_status cli_find_process(struct cli *cli, sandbox_workspace *workspace, const char *id,
                                sandbox_process **out, sandbox_error *error);
#define CLI_SNAPSHOT_BYTES 40
/* The whole id of the workspace's snapshot with that id, or the one whose id begins so. */
sandbox_status cli_find_snapshot(struct cli *cli, sandbox_workspace *workspace, const char *id,
                                 char out[CLI_SNAPSHOT_BYTES], sandbox_error *error);
int64_t cli_monotonic_ms(void);
int64_t cli_wall_ms(void);
/* "NAME=value" as given, or "NAME" with this program's value. False: told. */
bool cli_settle_env(const struct cli *cli, const struct cli_words *given, struct cli_words *out,
                    struct cli_words *owned);
void cli_owned_free(struct cli_words *owned);

void cli_workspace_free(sandbox_workspace **workspace);
void cli_process_free(sandbox_process **process);

/* A side of a copy: "NAME:PATH" or a path on this machine. */
struct cli_place {
    char name[64];    /* "" for this machine */
    const char *path; /* within the word; "" becomes "." */
};
struct cli_place cli_place_of(const char *word);

#endif
