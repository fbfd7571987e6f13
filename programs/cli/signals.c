/*
 * Signals of the command line itself. Handlers write a byte into a pipe; one thread reads it and
 * acts. Handlers, not a mask: children that the library starts would inherit a mask.
 */

#include "signals.h"

#include "cli.h"
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define FORWARD_MS 5000

static void handle(int signal_number);
static void handle_broken_pipe(int signal_number);
static void install(int signal_number, void (*handler)(int));
static void *watch(void *unused);
static void act(int signal_number);
static void asked_to_end(int signal_number);
static void forward(int signal_number);
static void end_command(int signal_number);
static void tell_size(void);
static int newer_signal(void *user_data);

static int pipe_ends[2] = {-1, -1};
static int ended_event = -1;
static sandbox_cancel *command_cancel;
static sandbox_cancel *spare_cancel; /* once the first one is spent */
static atomic_int ending_signals;    /* counted in the handler, so that a slow forward is left */
static atomic_int received;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sandbox_process *followed; /* under `lock` */
static bool forwarded;            /* under `lock`: `followed` had its signal */
static atomic_bool forgiven;

bool cli_signals_start(void)
{
    sandbox_error error = {0};
    pthread_t thread;
    ended_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ended_event < 0 || pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        cli_complain("no descriptors left: %s", strerror(errno));
        return false;
    }
    if (sandbox_cancel_create(&command_cancel, &error) != SANDBOX_OK ||
        sandbox_cancel_create(&spare_cancel, &error) != SANDBOX_OK) {
        cli_complain("%s", error.message);
        return false;
    }
    int failure = pthread_create(&thread, NULL, watch, NULL);
    if (failure != 0) {
        cli_complain("cannot start a thread: %s", strerror(failure));
        return false;
    }
    pthread_detach(thread);
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        install(caught[i], handle);
    install(SIGPIPE, handle_broken_pipe);
    return true;
}

sandbox_cancel *cli_signals_cancel(void)
{
    return atomic_load(&forgiven) ? spare_cancel : command_cancel;
}

int cli_signals_descriptor(void)
{
    return ended_event;
}

int cli_signals_received(void)
{
    return atomic_load(&received);
}

void cli_signals_follow(sandbox_process *process)
{
    pthread_mutex_lock(&lock);
    followed = process;
    forwarded = false;
    pthread_mutex_unlock(&lock);
    if (process == NULL || !cli_terminal_is_raw())
        return;
    install(SIGTSTP, handle);
    install(SIGCONT, handle);
}

void cli_signals_forgive(void)
{
    atomic_store(&forgiven, true);
    atomic_store(&ending_signals, 0);
}

static void handle(int signal_number)
{
    int kept = errno;
    if (signal_number != SIGWINCH && signal_number != SIGTSTP && signal_number != SIGCONT)
        atomic_fetch_add(&ending_signals, 1);
    unsigned char byte = (unsigned char)signal_number;
    ssize_t ignored = write(pipe_ends[1], &byte, 1);
    (void)ignored;
    errno = kept;
}

/* Nothing, so that writing answers EPIPE; ignoring it would be inherited by every child. */
static void handle_broken_pipe(int signal_number)
{
}

/* What was ignored when we were started (nohup, a job in the background) stays ignored. */
static void install(int signal_number, void (*handler)(int))
{
    struct sigaction before, action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler == SIG_IGN &&
        signal_number != SIGPIPE)
        return;
    sigaction(signal_number, &action, NULL);
}

static void *watch(void *unused)
{
    /* The reading end waits; only the handler's end must not. */
    fcntl(pipe_ends[0], F_SETFL, fcntl(pipe_ends[0], F_GETFL) & ~O_NONBLOCK);
    for (;;) {
        unsigned char byte;
        ssize_t got = read(pipe_ends[0], &byte, 1);
        if (got == 1)
            act(byte);
        else if (got == 0 || errno != EINTR)
            return NULL;
    }
}

static void act(int signal_number)
{
    switch (signal_number) {
    case SIGWINCH:
        tell_size();
        break;
    case SIGTSTP:
        if (cli_terminal_is_raw())
            cli_terminal_restore();
        kill(getpid(), SIGSTOP);
        break;
    case SIGCONT:
        pthread_mutex_lock(&lock);
        if (followed != NULL && !forwarded)
            cli_terminal_raw();
        pthread_mutex_unlock(&lock);
        tell_size();
        break;
    default:
        asked_to_end(signal_number);
    }
}

static void asked_to_end(int signal_number)
{
    int count = atomic_load(&ending_signals);
    if (atomic_load(&forgiven) || count > 2) {
        cli_terminal_restore();
        _exit(CLI_SIGNALLED + signal_number);
    }
    pthread_mutex_lock(&lock);
    bool forwards = followed != NULL && !forwarded && count == 1;
    if (forwards)
        forward(signal_number);
    pthread_mutex_unlock(&lock);
    if (!forwards)
        end_command(signal_number);
}

/*
 * A terminal's keys come as bytes; a signal to us means that the terminal or its owner goes away.
 * Under the lock, so that the handle stays; a newer signal ends the wait.
 */
static void forward(int signal_number)
{
    forwarded = true;
    bool raw = cli_terminal_is_raw();
    int count = atomic_load(&ending_signals);
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = FORWARD_MS, .interrupted = newer_signal,
                         .user_data = &count};
    sandbox_error error = {0};
    sandbox_status status =
        sandbox_process_signal(followed, raw ? SIGHUP : signal_number, &call, &error);
    if (status != SANDBOX_OK || raw)
        end_command(signal_number);
    if (status != SANDBOX_OK)
        cli_complain("the signal did not reach the process: %s", error.message);
}

static void end_command(int signal_number)
{
    atomic_store(&received, signal_number);
    sandbox_cancel_trigger(command_cancel);
    uint64_t one = 1;
    ssize_t ignored = write(ended_event, &one, sizeof one);
    (void)ignored;
}

static void tell_size(void)
{
    unsigned rows, columns;
    pthread_mutex_lock(&lock);
    if (followed != NULL && cli_terminal_is_raw() && cli_terminal_size(&rows, &columns)) {
        int count = atomic_load(&ending_signals);
        sandbox_call call = {SANDBOX_CALL, .timeout_ms = FORWARD_MS, .interrupted = newer_signal,
                             .user_data = &count};
        sandbox_error error;
        sandbox_status ignored =
            sandbox_process_resize(followed, (uint16_t)columns, (uint16_t)rows, &call, &error);
        (void)ignored; /* the process has ended, or the next event says what is wrong */
    }
    pthread_mutex_unlock(&lock);
}

static int newer_signal(void *user_data)
{
    return atomic_load(&ending_signals) > *(const int *)user_data;
}
