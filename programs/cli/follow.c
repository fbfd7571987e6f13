/* Follows a process to its end: its output here, this side's input there, signals to it. */

#include "follow.h"

#include "signals.h"
#include "stream.h"
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define INPUT_BYTES (1 << 20) /* each piece waits for its answer: fewer, larger ones */
#define JOIN_MS     500
#define GRACE_MS    2000
#define KILL_MS     10000

/* Standard input on its way to the process, on a thread of its own. */
struct input {
    sandbox_process *process;
    sandbox_cancel *cancel;
    int stop; /* eventfd */
    atomic_bool stopped;
    bool started;
    pthread_t thread;
};

/* Not on the stack: a pump that hangs in read() outlives the wait for it. */
static struct input input = {.stop = -1};

static int take_events(struct cli *cli, sandbox_process *process, const struct cli_follow *how,
                       const char *name);
static enum cli_wrote pass_on(struct cli *cli, const struct cli_follow *how,
                              const sandbox_process_event *event);
static int end_without_reader(sandbox_process *process, int first_signal, int code);
static bool drain(sandbox_process *process, uint32_t ms);
static void kill_process(sandbox_process *process);
static int exit_code(const sandbox_process_exit *exit);
static void tell_lost(struct cli *cli, sandbox_process *process, const sandbox_error *error,
                      const char *name);
static bool start_input(sandbox_process *process);
static void stop_input(void);
static void *pump(void *unused);
static void deadline_in(uint32_t ms, struct timespec *deadline);

int cli_follow(struct cli *cli, sandbox_process *process, const struct cli_follow *how,
               const char *name)
{
    if (how->raw && !cli_terminal_raw())
        cli_note(cli, "the terminal stays as it is: %s", strerror(errno));
    if (how->signals)
        cli_signals_follow(process);
    if (how->input && !start_input(process))
        cli_complain("standard input is not forwarded: %s", strerror(errno));
    int code = take_events(cli, process, how, name);
    stop_input();
    cli_signals_follow(NULL);
    cli_terminal_restore();
    return code;
}

static int take_events(struct cli *cli, sandbox_process *process, const struct cli_follow *how,
                       const char *name)
{
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    for (;;) {
        sandbox_error error = {0};
        sandbox_call call = cli_call_within(cli, SANDBOX_FOREVER);
        sandbox_status status = sandbox_process_next(process, &call, &event, &error);
        if (status == SANDBOX_CANCELLED && cli_signals_received() != 0)
            return CLI_SIGNALLED + cli_signals_received();
        if (status == SANDBOX_TIMED_OUT && how->kill_on_timeout)
            kill_process(process);
        if (status != SANDBOX_OK) {
            cli_terminal_restore();
            int code = cli_fail(cli, &error, name);
            if (status != SANDBOX_TIMED_OUT || !how->kill_on_timeout)
                tell_lost(cli, process, &error, name);
            return code;
        }
        if (event.kind == SANDBOX_PROCESS_EXIT) {
            if (event.exit.timed_out)
                cli_note(cli, "the command was killed: its deadline passed");
            return exit_code(&event.exit);
        }
        switch (pass_on(cli, how, &event)) {
        case CLI_WROTE_ALL:
            break;
        case CLI_WROTE_STOPPED:
            return CLI_SIGNALLED + cli_signals_received();
        case CLI_WROTE_BROKEN:
            return how->signals ? end_without_reader(process, SIGPIPE, CLI_SIGNALLED + SIGPIPE)
                                : CLI_SIGNALLED + SIGPIPE;
        default:
            cli_complain("cannot write the output: %s", strerror(errno));
            return how->signals ? end_without_reader(process, SIGPIPE, CLI_OWN_FAILURE)
                                : CLI_FAILED;
        }
    }
}

static enum cli_wrote pass_on(struct cli *cli, const struct cli_follow *how,
                              const sandbox_process_event *event)
{
    bool is_error = event->kind == SANDBOX_PROCESS_STDERR;
    uint64_t first = is_error ? how->error_offset : how->output_offset;
    const uint8_t *data = event->data;
    size_t data_size = event->data_size;
    if (event->dropped > 0 && event->offset > first)
        cli_note(cli, "%llu bytes of %s are lost: nobody read them in time",
                 (unsigned long long)event->dropped, is_error ? "stderr" : "stdout");
    if (event->offset < first) {
        uint64_t before = first - event->offset;
        size_t skipped = before < data_size ? (size_t)before : data_size;
        data += skipped;
        data_size -= skipped;
    }
    enum cli_wrote wrote =
        cli_stream_write(is_error ? STDERR_FILENO : STDOUT_FILENO, data, data_size);
    /* Without a reader of its messages a command still does its work. */
    return is_error && wrote == CLI_WROTE_BROKEN ? CLI_WROTE_ALL : wrote;
}

/* What a shell's pipeline does: SIGPIPE, and harder for those that do not mind it. */
static int end_without_reader(sandbox_process *process, int first_signal, int code)
{
    const int signals[] = {first_signal, SIGTERM, SIGKILL};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        sandbox_call call = {SANDBOX_CALL, .timeout_ms = KILL_MS, .cancel = cli_signals_cancel()};
        if (sandbox_process_signal(process, signals[i], &call, NULL) != SANDBOX_OK)
            break;
        if (drain(process, GRACE_MS))
            break;
    }
    return code;
}

/* True once it has ended, or cannot be asked. */
static bool drain(sandbox_process *process, uint32_t ms)
{
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    int64_t until = cli_monotonic_ms() + ms;
    for (int64_t left = ms; left > 0; left = until - cli_monotonic_ms()) {
        sandbox_call call = {SANDBOX_CALL, .timeout_ms = (uint32_t)left,
                             .cancel = cli_signals_cancel()};
        sandbox_status status = sandbox_process_next(process, &call, &event, NULL);
        if (status == SANDBOX_TIMED_OUT)
            return false;
        if (status != SANDBOX_OK || event.kind == SANDBOX_PROCESS_EXIT)
            return true;
    }
    return false;
}

static void kill_process(sandbox_process *process)
{
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = KILL_MS, .cancel = cli_signals_cancel()};
    sandbox_error error = {0};
    if (sandbox_process_signal(process, SIGKILL, &call, &error) != SANDBOX_OK)
        cli_complain("the command may still run: %s", error.message);
}

static int exit_code(const sandbox_process_exit *exit)
{
    if (exit->timed_out)
        return CLI_TIMED_OUT;
    return exit->signal != 0 ? CLI_SIGNALLED + exit->signal : exit->code & 0xff;
}

static void tell_lost(struct cli *cli, sandbox_process *process, const sandbox_error *error,
                      const char *name)
{
    bool may_run = error->status == SANDBOX_UNAVAILABLE || error->status == SANDBOX_UNKNOWN ||
                   error->status == SANDBOX_TIMED_OUT || error->status == SANDBOX_BUSY;
    if (may_run)
        cli_hint(cli, "the command may still run: sandbox attach %s %s", name,
                 sandbox_process_id(process));
}

static bool start_input(sandbox_process *process)
{
    input.process = process;
    input.stop = eventfd(0, EFD_CLOEXEC);
    if (input.stop < 0)
        return false;
    if (sandbox_cancel_create(&input.cancel, NULL) != SANDBOX_OK) {
        errno = ENOMEM;
        return false;
    }
    errno = pthread_create(&input.thread, NULL, pump, NULL);
    input.started = errno == 0;
    return input.started;
}

/*
 * A pump that waits for standard input must not hold up the end. It waits in poll(), which the
 * event ends; only where another program took the bytes meanwhile does it hang in read(), and is
 * left there: it touches nothing of ours afterwards.
 */
static void stop_input(void)
{
    if (input.started) {
        uint64_t one = 1;
        struct timespec deadline;
        atomic_store(&input.stopped, true);
        sandbox_cancel_trigger(input.cancel);
        ssize_t ignored = write(input.stop, &one, sizeof one);
        (void)ignored;
        deadline_in(JOIN_MS, &deadline);
        if (pthread_timedjoin_np(input.thread, NULL, &deadline) != 0)
            return;
    }
    sandbox_cancel_free(input.cancel);
    if (input.stop >= 0)
        close(input.stop);
}

static void *pump(void *unused)
{
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = SANDBOX_FOREVER, .cancel = input.cancel};
    static char data[INPUT_BYTES];
    /* While one piece is on its way the next gathers in the pipe, where standard input is one. */
    (void)fcntl(STDIN_FILENO, F_SETPIPE_SZ, INPUT_BYTES);
    for (;;) {
        ssize_t got = cli_stream_read(STDIN_FILENO, input.stop, data, sizeof data);
        if (atomic_load(&input.stopped) || (got < 0 && errno == ECANCELED))
            return NULL;
        /* A process that has ended or closed its input wants no more: no failure of ours. */
        sandbox_status status =
            got > 0 ? sandbox_process_write(input.process, data, (size_t)got, &call, NULL)
                    : sandbox_process_end_input(input.process, &call, NULL);
        if (got <= 0 || status != SANDBOX_OK)
            return NULL;
    }
}

static void deadline_in(uint32_t ms, struct timespec *deadline)
{
    clock_gettime(CLOCK_REALTIME, deadline);
    int64_t nanoseconds = deadline->tv_nsec + (int64_t)ms * 1000000;
    deadline->tv_sec += nanoseconds / 1000000000;
    deadline->tv_nsec = nanoseconds % 1000000000;
}
