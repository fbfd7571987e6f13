/* This side's terminal: its size, and the raw mode in which every key goes to the process. */

#include "terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static void crashed(int signal_number);

static struct termios cooked;
static atomic_bool is_raw;

bool cli_terminal_size(unsigned *rows, unsigned *columns)
{
    for (int fd = 0; fd <= 2; fd++) {
        struct winsize size;
        if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
            continue;
        *rows = size.ws_row < 4096 ? size.ws_row : 4096;
        *columns = size.ws_col < 4096 ? size.ws_col : 4096;
        return true;
    }
    return false;
}

bool cli_terminal_raw(void)
{
    static bool prepared;
    if (!prepared) {
        if (tcgetattr(STDIN_FILENO, &cooked) != 0)
            return false;
        atexit(cli_terminal_restore);
        struct sigaction action = {.sa_handler = crashed, .sa_flags = (int)SA_RESETHAND};
        static const int faults[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
        for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
            sigaction(faults[i], &action, NULL);
        prepared = true;
    }
    struct termios raw = cooked;
    cfmakeraw(&raw);
    atomic_store(&is_raw, true);
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0)
        return true;
    atomic_store(&is_raw, false);
    return false;
}

void cli_terminal_restore(void)
{
    if (atomic_load(&is_raw) && tcsetattr(STDIN_FILENO, TCSANOW, &cooked) == 0)
        atomic_store(&is_raw, false);
}

bool cli_terminal_is_raw(void)
{
    return atomic_load(&is_raw);
}

/* The signal stays pending with its own effect: the handler is gone when it comes again. */
static void crashed(int signal_number)
{
    int kept = errno;
    cli_terminal_restore();
    raise(signal_number);
    errno = kept;
}
