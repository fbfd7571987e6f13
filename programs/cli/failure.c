/* How failures are told: one line, a second one with the remedy, and an exit code. */

#include "cli.h"
#include "progress.h"
#include "signals.h"
#include "terminal.h"
#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 1024

/* What to do about a reason, with the workspace's name between the halves; or one half. */
struct remedy {
    const char *reason, *before, *after;
};

#define SMALLER_PROMISE "sandbox resume ", " --accept files starts anew over the snapshot's files"
#define OTHER_SNAPSHOT                                                                             \
    "sandbox snapshots ", " shows the others; resume takes one with --snapshot ID, or what is "    \
                          "there with --accept cold"

static const struct remedy remedies[] = {
    {"no-such-workspace", "sandbox list shows what there is; sandbox create ", " makes one"},
    {"connection-refused", "sandbox ports ", " shows what listens"},
    {"no-such-process", "sandbox ps ", " shows what is known"},
    {"no-such-snapshot", "sandbox snapshots ", " shows what there is"},
    {"recovery-point", "make a newer one first: sandbox checkpoint ", ""},
    {"too-many-snapshots", "sandbox snapshot-delete ", " ID makes room"},
    {"no-room", "sandbox snapshot-delete ", " ID makes room"},
    {"active", "wait until it is done, or suspend it all the same with --force", NULL},
    {"wanted", "somebody works in it: try again later, or without --interruptible", NULL},
    {"check-failed", "mend that server, or suspend it all the same with --force", NULL},
    {"check-denied", "suspend --check takes its password from OPENCODE_SERVER_PASSWORD", NULL},
    {"memory-cannot-be-kept", "sandbox suspend --keep files ", " keeps its files"},
    {"no-snapshots", "keep it running, or delete it", NULL},
    {"snapshot-damaged", OTHER_SNAPSHOT},
    {"snapshot-missing", OTHER_SNAPSHOT},
    {"only-files", SMALLER_PROMISE},
    {"base-changed", SMALLER_PROMISE},
    {"runtime-differs", SMALLER_PROMISE},
    {"pin-missing", SMALLER_PROMISE},
    {"memory-gone", SMALLER_PROMISE},
    {"no-runsc", "install it: apt-get install runsc; sandbox doctor looks at the rest", NULL},
    {"needs-root", "run it as root; sandbox doctor says what else is missing", NULL},
};

static void print_line(const char *start, const char *format, va_list values) CLI_PRINTF(2, 0);
static int exit_code(const struct cli *cli, const sandbox_error *error);
static int command_exit_code(const sandbox_error *error);
static void print_remedy(const struct cli *cli, const sandbox_error *error, const char *name);
static bool print_remedy_by_reason(const struct cli *cli, const sandbox_error *error,
                                   const char *name);

void cli_complain(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    print_line("sandbox: ", format, values);
    va_end(values);
}

void cli_hint(const struct cli *cli, const char *format, ...)
{
    if (cli->quiet)
        return;
    va_list values;
    va_start(values, format);
    print_line("hint: ", format, values);
    va_end(values);
}

void cli_note(const struct cli *cli, const char *format, ...)
{
    if (cli->quiet)
        return;
    va_list values;
    va_start(values, format);
    print_line("sandbox: ", format, values);
    va_end(values);
}

int cli_usage(const struct cli *cli, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    print_line("sandbox: ", format, values);
    va_end(values);
    if (cli->verb != NULL)
        cli_hint(cli, "sandbox %s%s%s; more: sandbox %s --help", cli->verb->name,
                 cli->verb->usage[0] ? " " : "", cli->verb->usage, cli->verb->name);
    else
        cli_hint(cli, "sandbox --help shows the verbs and options");
    return cli->verb != NULL && cli->verb->runs_command ? CLI_OWN_FAILURE : CLI_USAGE;
}

int cli_fail(const struct cli *cli, const sandbox_error *error, const char *name)
{
    int code = exit_code(cli, error);
    if (error->status == SANDBOX_CANCELLED && cli_signals_received() != 0) {
        cli_complain("stopped");
        return code;
    }
    cli_complain("%s",
                 error->message[0] != '\0' ? error->message : sandbox_status_name(error->status));
    print_remedy(cli, error, name);
    return code;
}

bool cli_flush(int *code)
{
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (written)
        return true;
    if (errno == EPIPE)
        *code = CLI_SIGNALLED + 13; /* as if SIGPIPE had ended us: a reader that left is no news */
    else {
        cli_complain("cannot write to standard output: %s", strerror(errno));
        *code = *code == CLI_OK ? CLI_FAILED : *code;
    }
    return false;
}

/* In one write, so that lines of several programs on one terminal stay whole. */
static void print_line(const char *start, const char *format, va_list values)
{
    char line[LINE_BYTES];
    size_t used = (size_t)snprintf(line, sizeof line, "%s", start);
    if (vsnprintf(line + used, sizeof line - used, format, values) < 0)
        return;
    char shown[LINE_BYTES + CLI_CLEAR_BYTES + 2];
    const char *clear = cli_progress_clear();
    size_t cleared = strlen(clear);
    memcpy(shown, clear, cleared);
    cli_text_clean(line, shown + cleared, LINE_BYTES);
    const char *end = cli_terminal_is_raw() ? "\r\n" : "\n";
    size_t size = strlen(shown);
    memcpy(shown + size, end, strlen(end) + 1);
    ssize_t ignored = write(STDERR_FILENO, shown, size + strlen(end));
    (void)ignored;
}

static int exit_code(const struct cli *cli, const sandbox_error *error)
{
    if (error->status == SANDBOX_CANCELLED && cli_signals_received() != 0)
        return CLI_SIGNALLED + cli_signals_received();
    if (cli->verb != NULL && cli->verb->runs_command)
        return command_exit_code(error);
    switch (error->status) {
    case SANDBOX_OK:
        return CLI_OK;
    case SANDBOX_INVALID:
        return CLI_USAGE;
    case SANDBOX_NOT_FOUND:
    case SANDBOX_CLOSED:
        return CLI_NOT_FOUND;
    case SANDBOX_EXISTS:
        return CLI_EXISTS;
    case SANDBOX_DENIED:
        return CLI_DENIED;
    case SANDBOX_UNAVAILABLE:
    case SANDBOX_TIMED_OUT:
    case SANDBOX_BUSY:
        return CLI_UNAVAILABLE;
    case SANDBOX_INTERRUPTED:
        return CLI_INTERRUPTED;
    case SANDBOX_LIMIT:
        return CLI_LIMIT;
    case SANDBOX_SUSPENDED:
        return CLI_SUSPENDED;
    case SANDBOX_NOT_RESTORED:
        return CLI_NOT_RESTORED;
    default:
        return CLI_FAILED;
    }
}

static int command_exit_code(const sandbox_error *error)
{
    if (error->status == SANDBOX_NOT_FOUND && strcmp(error->reason, "no-such-program") == 0)
        return CLI_NO_PROGRAM;
    if (error->status == SANDBOX_DENIED && strcmp(error->reason, "not-executable") == 0)
        return CLI_NOT_EXECUTABLE;
    return error->status == SANDBOX_TIMED_OUT ? CLI_TIMED_OUT : CLI_OWN_FAILURE;
}

static void print_remedy(const struct cli *cli, const sandbox_error *error, const char *name)
{
    if (print_remedy_by_reason(cli, error, name))
        return;
    const char *shown = name != NULL ? name : "NAME";
    switch (error->status) {
    case SANDBOX_EXISTS:
        if (cli->verb == &cli_create || cli->verb == &cli_run)
            cli_hint(cli, "sandbox open %s uses the one there is; or take another name", shown);
        break;
    case SANDBOX_INTERRUPTED:
        if (strcmp(error->reason, "files-lost") == 0) {
            cli_hint(cli, "go on from its recovery point: sandbox open %s --from snapshot", shown);
            break;
        }
        cli_hint(cli,
                 "its files are kept; go on over them: sandbox open %s --from live-files; or "
                 "from its recovery point: --from snapshot",
                 shown);
        break;
    case SANDBOX_SUSPENDED:
        cli_hint(cli, "sandbox resume %s brings it back", shown);
        break;
    case SANDBOX_NOT_RESTORED:
        cli_hint(cli, "its snapshot is kept; sandbox resume %s tries again", shown);
        break;
    case SANDBOX_BUSY:
        cli_hint(cli, "another operation holds it; try again in a moment");
        break;
    case SANDBOX_TIMED_OUT:
        cli_hint(cli, "give it more time with --timeout SECONDS");
        break;
    case SANDBOX_UNKNOWN:
        cli_hint(cli, "it may have happened; look before you repeat it: sandbox %s %s%s%s",
                 error->process_id[0] != '\0' ? "attach" : "inspect", shown,
                 error->process_id[0] != '\0' ? " " : "", error->process_id);
        break;
    case SANDBOX_DENIED:
    case SANDBOX_UNAVAILABLE:
    case SANDBOX_UNSUPPORTED:
        if (cli->client == NULL)
            cli_hint(cli, "%ssandbox doctor says what is missing and how to mend it",
                     geteuid() != 0 ? "run it as root; " : "");
        break;
    default:
        break;
    }
}

static bool print_remedy_by_reason(const struct cli *cli, const sandbox_error *error,
                                   const char *name)
{
    for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++) {
        const struct remedy *remedy = &remedies[i];
        if (strcmp(error->reason, remedy->reason) != 0)
            continue;
        cli_hint(cli, "%s%s%s", remedy->before,
                 remedy->after == NULL ? ""
                 : name != NULL        ? name
                                       : "NAME",
                 remedy->after == NULL ? "" : remedy->after);
        return true;
    }
    if (strcmp(error->reason, "no-such-directory") != 0 || !cli->verb->runs_command)
        return false;
    cli_hint(cli, "-w must name a directory inside the workspace");
    return true;
}
