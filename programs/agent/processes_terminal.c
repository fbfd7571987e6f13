/*
 * Terminals: which job has one, and what gVisor's leave out. No gVisor tells an outsider which
 * group has the terminal, nor the programs of a new size; the 2022 sentry does not make signals
 * of typed control characters either. The agent does it for them.
 */

#include "processes.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

static pid_t foreground_group(const struct agent_process *process);
static bool is_old_sentry(void);
static pid_t newest_group(const struct agent_process *process);
static int signal_of(const struct termios *settings, uint8_t character);

/* Where nobody knows which job has the terminal, any job counts: rather busy than cut off. */
bool agent_terminal_has_job(const struct agent_process *process)
{
    pid_t group = foreground_group(process);
    return (group > 0 ? group : newest_group(process)) != process->pid;
}

/* 0: the runtime does not tell. */
static pid_t foreground_group(const struct agent_process *process)
{
    pid_t group = 0;
    if (process->input == NULL || ioctl(agent_watch_fd(process->input), TIOCGPGRP, &group) != 0 ||
        group < 0)
        return 0;
    return group;
}

/* Of the terminal's session: the job that was started last, or the shell where there is none. */
static pid_t newest_group(const struct agent_process *process)
{
    struct agent_seen *seen;
    size_t count;
    pid_t group = process->pid;
    if (!agent_tree_look(&seen, &count))
        return group;
    for (size_t at = 0; at < count; at++) {
        if (agent_seen_lives(&seen[at]) && seen[at].session == process->pid &&
            seen[at].group > group)
            group = seen[at].group;
    }
    free(seen);
    return group;
}

/* Whoever does not care for this signal ignores it. */
void agent_terminal_resized(const struct agent_process *process)
{
    struct agent_seen *seen;
    size_t count;
    if (foreground_group(process) > 0 || !agent_tree_look(&seen, &count))
        return;
    for (size_t at = 0; at < count; at++) {
        if (seen[at].session == process->pid && agent_seen_lives(&seen[at]))
            kill(seen[at].pid, SIGWINCH);
    }
    free(seen);
}

size_t agent_terminal_typed(const struct agent_process *process, const uint8_t *data, size_t size)
{
    struct termios settings;
    if (!is_old_sentry() || tcgetattr(agent_watch_fd(process->input), &settings) != 0 ||
        (settings.c_lflag & ISIG) == 0)
        return size;
    for (size_t at = 0; at < size; at++) {
        int number = signal_of(&settings, data[at]);
        if (number == 0)
            continue;
        if (at == 0)
            kill(-newest_group(process), number);
        return at;
    }
    return size;
}

static int signal_of(const struct termios *settings, uint8_t character)
{
    static const struct {
        size_t place;
        int number;
    } signals[] = {{VINTR, SIGINT}, {VQUIT, SIGQUIT}, {VSUSP, SIGTSTP}};
    for (size_t at = 0; at < sizeof signals / sizeof *signals; at++) {
        if (character != 0 && settings->c_cc[signals[at].place] == character)
            return signals[at].number;
    }
    return 0;
}

/* Known by its refusal of a harmless flag, which later ones and Linux take. */
static bool is_old_sentry(void)
{
    static int answer = -1;
    if (answer < 0) {
        struct statx facts;
        answer = statx(AT_FDCWD, "/", AT_NO_AUTOMOUNT, STATX_TYPE, &facts) != 0 && errno == EINVAL;
    }
    return answer == 1;
}
