/* How failures are told: one line, a second one with the remedy, and an exit code. */

#include "cli.h"
#include "signals.h"
#include "terminal.h"
#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 1024

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
    char shown[LINE_BYTES + 2];
    cli_text_clean(line, shown, LINE_BYTES);
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
        cli_hint(cli, "its files are kept; go on over them: sandbox open %s --from live-files",
                 shown);
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
    const char *shown = name != NULL ? name : "NAME";
    const char *reason = error->reason;
    if (strcmp(reason, "no-such-workspace") == 0)
        cli_hint(cli, "sandbox list shows what there is; sandbox create %s makes one", shown);
    else if (strcmp(reason, "connection-refused") == 0)
        cli_hint(cli, "sandbox ports %s shows what listens", shown);
    else if (strcmp(reason, "no-such-process") == 0)
        cli_hint(cli, "sandbox ps %s shows what is known", shown);
    else if (strcmp(reason, "no-such-directory") == 0 && cli->verb->runs_command)
        cli_hint(cli, "-w must name a directory inside the workspace");
    else if (strcmp(reason, "no-runsc") == 0)
        cli_hint(cli, "install it: apt-get install runsc; sandbox doctor looks at the rest");
    else if (strcmp(reason, "needs-root") == 0)
        cli_hint(cli, "run it as root; sandbox doctor says what else is missing");
    else
        return false;
    return true;
}
