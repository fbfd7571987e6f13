/* Start: from a request to a running process. */

#include "egress.h"
#include "guard.h"
#include "init.h"
#include "processes.h"
#include "util/memory.h"
#include "util/random.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define COUNT_EXACT_BELOW 1024u
#define COUNT_SERVES_MS   1000u
#define WORDS_BYTES_MAX   (1u << 20)
#define ARGUMENTS_MAX     32768u
#define BUFFER_DEFAULT    (1u << 20)
#define BUFFER_MIN        4096u
#define BUFFER_MAX        (64u << 20)
#define PIPE_BYTES        (1 << 20)
#define COMMAND_SHOWN_MAX 4096u
#define TERMINAL_SIDE_MAX 4096u
#define BASE_ENTRIES      8u
#define DEFAULT_PATH      "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DEFAULT_TERMINAL  "xterm-256color"

/* Pointers and the bytes they point at, in one block. */
struct words {
    char **list;
    size_t count;
    char *free_bytes;
};

/* The ends of pipes that the child gets, and ours. */
struct ends {
    int child_input, child_output, child_errors;
    int input, output, errors;
};
#define NO_ENDS                                                                                    \
    {                                                                                              \
        -1, -1, -1, -1, -1, -1                                                                     \
    }

static bool is_valid(struct agent_call *call, const Sandbox__V1__StartRequest *request);
static bool has_room(struct agent_call *call);
static uint32_t count_running(uint32_t limit);
static bool find_user(struct agent_call *call, const char *user, struct agent_identity *out);
static bool make_arguments(struct agent_call *call, const Sandbox__V1__StartRequest *request,
                           struct words *out);
static bool make_environment(struct agent_call *call, const Sandbox__V1__StartRequest *request,
                             const struct agent_identity *identity, struct words *out);
static bool add_egress(struct agent_call *call, struct words *words);
static char *make_directory(const Sandbox__V1__StartRequest *request);
static struct agent_process *make_process(const Sandbox__V1__StartRequest *request,
                                          const struct agent_identity *identity);
static bool open_ends(struct agent_call *call, const Sandbox__V1__StartRequest *request,
                      const struct agent_identity *identity, struct ends *ends);
static bool watch_ends(struct agent_process *process, struct ends *ends, uint32_t buffer_bytes);
static bool run(struct agent_call *call, struct agent_process *process,
                const struct agent_identity *identity, struct agent_spawn *spawn,
                struct ends *ends);
static void fail_spawn(struct agent_call *call, const struct agent_spawn *spawn);
static void reply_with(struct agent_call *call, const struct agent_process *process, bool existed);

static void free_words(struct words *words)
{
    if (words->list != NULL)
        free(words->list - 1);
    words->list = NULL;
}

static void close_ends(struct ends *ends)
{
    sbx_close_fd(&ends->child_input);
    sbx_close_fd(&ends->child_output);
    sbx_close_fd(&ends->child_errors);
    sbx_close_fd(&ends->input);
    sbx_close_fd(&ends->output);
    sbx_close_fd(&ends->errors);
}

void agent_process_start(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__StartRequest *request = (const Sandbox__V1__StartRequest *)message;
    if (!is_valid(call, request))
        return;
    struct agent_process *known = agent_process_find(request->id);
    if (known != NULL) {
        reply_with(call, known, true);
        return;
    }
    struct agent_identity identity;
    SBX_ON_EXIT(free_words) struct words arguments = {NULL, 0, NULL};
    SBX_ON_EXIT(free_words) struct words environment = {NULL, 0, NULL};
    SBX_ON_EXIT(close_ends) struct ends ends = NO_ENDS;
    if (!has_room(call) || !find_user(call, request->user, &identity) ||
        !make_arguments(call, request, &arguments) ||
        !make_environment(call, request, &identity, &environment) ||
        !open_ends(call, request, &identity, &ends))
        return;
    SBX_ON_EXIT(sbx_free_text) char *directory = make_directory(request);
    struct agent_process *process = make_process(request, &identity);
    if (directory == NULL || process == NULL ||
        !watch_ends(process, &ends,
                    request->buffer_bytes == 0 ? BUFFER_DEFAULT : request->buffer_bytes)) {
        agent_process_free(process);
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for the process");
        return;
    }
    struct agent_spawn spawn = {.argv = arguments.list,
                                .environment = environment.list,
                                .directory = directory,
                                .terminal = process->terminal};
    if (!run(call, process, &identity, &spawn, &ends)) {
        agent_process_free(process);
        return;
    }
    agent_process_add(process, request->deadline_ms);
    reply_with(call, process, false);
}

static bool has_zero(ProtobufCBinaryData bytes)
{
    return bytes.len > 0 && memchr(bytes.data, '\0', bytes.len) != NULL;
}

static const char *problem_of(const Sandbox__V1__StartRequest *request)
{
    const Sandbox__V1__Terminal *terminal = request->terminal;
    if (request->id.len != AGENT_PROCESS_ID_BYTES)
        return "id must have 16 bytes";
    if ((request->n_argv > 0) == (request->command.len > 0))
        return "exactly one of argv and command must be given";
    if (request->n_argv > 0 && request->argv[0].len == 0)
        return "argv begins with an empty name";
    if (request->login_shell && request->command.len == 0)
        return "login_shell goes with command only";
    if (has_zero(request->command) || has_zero(request->directory))
        return "command and directory must not hold zero bytes";
    if (request->directory.len >= PATH_MAX)
        return "directory is longer than a path may be";
    if (terminal != NULL && (terminal->rows < 1 || terminal->rows > TERMINAL_SIDE_MAX ||
                             terminal->columns < 1 || terminal->columns > TERMINAL_SIDE_MAX))
        return "a terminal has 1 to 4096 rows and columns";
    if (request->buffer_bytes > BUFFER_MAX)
        return "buffer_bytes is over 64 MiB";
    if (request->buffer_bytes != 0 && request->buffer_bytes < BUFFER_MIN)
        return "buffer_bytes is under 4096";
    for (size_t at = 0; at < request->n_argv; at++) {
        if (has_zero(request->argv[at]))
            return "argv must not hold zero bytes";
    }
    for (size_t at = 0; at < request->n_environment; at++) {
        const ProtobufCBinaryData *entry = &request->environment[at];
        if (entry->len == 0 || !agent_environment_is_valid(entry->data, entry->len))
            return "an environment entry is not NAME=value without zero bytes";
    }
    return NULL;
}

static bool is_valid(struct agent_call *call, const Sandbox__V1__StartRequest *request)
{
    const char *problem = problem_of(request);
    if (problem != NULL)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "%s", problem);
    return problem == NULL;
}

static bool has_room(struct agent_call *call)
{
    if (agent_process_running_count() >= AGENT_RUNNING_MAX) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "too-many-processes",
                        "%u commands run already, which is the limit", AGENT_RUNNING_MAX);
        return false;
    }
    uint32_t limit = agent_guard_process_limit(), running = limit == 0 ? 0 : count_running(limit);
    if (limit > 0 && running >= limit)
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "process-limit",
                        "%u processes run already, the workspace's limit is %u", running, limit);
    return limit == 0 || running < limit;
}

/*
 * All processes of the workspace, before one more is started. Looking at each costs three system
 * calls, so far below a large limit the last count serves for a moment, with what was started
 * since; RLIMIT_NPROC stands behind it.
 */
static uint32_t count_running(uint32_t limit)
{
    static uint32_t counted;
    static uint64_t counted_ms;
    uint64_t now = uv_now(agent_loop());
    if (limit >= COUNT_EXACT_BELOW && counted_ms != 0 && now - counted_ms < COUNT_SERVES_MS &&
        counted < limit / 2)
        return counted++;
    struct agent_seen *seen;
    size_t count;
    if (!agent_tree_look(&seen, &count))
        return 0;
    counted = 0;
    counted_ms = now;
    for (size_t at = 0; at < count; at++)
        counted += agent_seen_lives(&seen[at]) && (seen[at].ours || agent_init_is_first());
    free(seen);
    return counted++;
}

static bool find_user(struct agent_call *call, const char *user, struct agent_identity *out)
{
    if (*user == '\0') {
        *out = *agent_identity();
        return true;
    }
    if (!agent_identity_find(user, out)) {
        agent_call_fail(call, AGENT_NOT_FOUND, "no-such-user",
                        "there is no user '%.64s', or the agent may not become it", user);
        return false;
    }
    return true;
}

/* Room for that many words of that many bytes in all; one free place comes before the first. */
static bool open_words(struct words *words, size_t count, size_t bytes)
{
    char **block = malloc((count + 2) * sizeof *block + bytes);
    if (block == NULL)
        return false;
    words->list = block + 1;
    words->list[0] = NULL;
    words->free_bytes = (char *)(block + count + 2);
    return true;
}

static char *add_word(struct words *words, const void *data, size_t size)
{
    char *word = words->free_bytes;
    if (size > 0)
        memcpy(word, data, size);
    word[size] = '\0';
    words->free_bytes += size + 1;
    words->list[words->count++] = word;
    words->list[words->count] = NULL;
    return word;
}

static bool fail_large(struct agent_call *call)
{
    agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "arguments-too-large",
                    "arguments and environment are over 1 MiB, %u arguments or %d variables",
                    ARGUMENTS_MAX, AGENT_ENVIRONMENT_MAX);
    return false;
}

/* Looked for once: an image does not change its shell. */
static const char *shell(void)
{
    static const char *found;
    if (found == NULL)
        found = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
    return found;
}

static bool make_arguments(struct agent_call *call, const Sandbox__V1__StartRequest *request,
                           struct words *out)
{
    size_t bytes = request->command.len + 32;
    for (size_t at = 0; at < request->n_argv && bytes <= WORDS_BYTES_MAX; at++)
        bytes += request->argv[at].len + 1;
    if (bytes > WORDS_BYTES_MAX || request->n_argv > ARGUMENTS_MAX)
        return fail_large(call);
    if (!open_words(out, request->n_argv + 4, bytes)) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory", "the agent has no memory");
        return false;
    }
    for (size_t at = 0; at < request->n_argv; at++)
        add_word(out, request->argv[at].data, request->argv[at].len);
    if (request->n_argv > 0)
        return true;
    add_word(out, shell(), strlen(shell()));
    if (request->login_shell)
        add_word(out, "-l", 2);
    add_word(out, "-c", 2);
    add_word(out, request->command.data, request->command.len);
    return true;
}

/* A later entry takes the place of an earlier one of the same name. */
static void set_variable(struct words *words, const void *entry, size_t size)
{
    char *word = add_word(words, entry, size);
    size_t name_size = strcspn(word, "=") + 1;
    for (size_t at = 0; at + 1 < words->count; at++) {
        if (strncmp(words->list[at], word, name_size) != 0)
            continue;
        words->list[at] = word;
        words->list[--words->count] = NULL;
        return;
    }
}

static void set_pair(struct words *words, const char *name, const char *value)
{
    char entry[PATH_MAX + 64];
    snprintf(entry, sizeof entry, "%s=%s", name, value);
    set_variable(words, entry, strlen(entry));
}

/* What programs look up in their terminal database, and nothing that leads out of it. */
static const char *terminal_type(const Sandbox__V1__Terminal *terminal, char type[65])
{
    static const char fine[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+._";
    size_t size = terminal->type.len;
    if (size == 0 || size > 64 || terminal->type.data[0] == '.')
        return DEFAULT_TERMINAL;
    memcpy(type, terminal->type.data, size);
    type[size] = '\0';
    return strspn(type, fine) == size ? type : DEFAULT_TERMINAL;
}

static bool make_environment(struct agent_call *call, const Sandbox__V1__StartRequest *request,
                             const struct agent_identity *identity, struct words *out)
{
    size_t inherited_count, bytes = 4096 + sizeof identity->home + 2 * sizeof identity->user;
    char *const *inherited = agent_guard_environment(&inherited_count);
    for (size_t at = 0; at < inherited_count; at++)
        bytes += strlen(inherited[at]) + 1;
    size_t own = request->command.len;
    for (size_t at = 0; at < request->n_argv; at++)
        own += request->argv[at].len + 1;
    for (size_t at = 0; at < request->n_environment && own <= WORDS_BYTES_MAX; at++)
        own += request->environment[at].len + 1;
    if (own > WORDS_BYTES_MAX || request->n_environment > AGENT_ENVIRONMENT_MAX)
        return fail_large(call);
    if (!open_words(out, BASE_ENTRIES + 1 + inherited_count + request->n_environment,
                    bytes + own)) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory", "the agent has no memory");
        return false;
    }
    char type[65], id[SBX_ID_TEXT];
    set_pair(out, "PATH", DEFAULT_PATH);
    set_pair(out, "HOME", identity->home);
    set_pair(out, "USER", identity->user);
    set_pair(out, "LOGNAME", identity->user);
    set_pair(out, "SHELL", shell());
    set_pair(out, "LANG", "C.UTF-8");
    for (size_t at = 0; at < inherited_count; at++)
        set_variable(out, inherited[at], strlen(inherited[at]));
    if (request->terminal != NULL)
        set_pair(out, "TERM", terminal_type(request->terminal, type));
    for (size_t at = 0; at < request->n_environment; at++)
        set_variable(out, request->environment[at].data, request->environment[at].len);
    sbx_id_print(request->id.data, id);
    set_pair(out, AGENT_PROCESS_VARIABLE, id);
    return add_egress(call, out);
}

/* More than there was room for, so all of it moves. */
static bool add_egress(struct agent_call *call, struct words *words)
{
    char **more = NULL;
    struct words larger = {NULL, 0, NULL};
    bool made = agent_egress_environment(words->list, &more);
    if (made && more == NULL)
        return true;
    size_t count = words->count + sbx_count_strings((const char *const *)more), bytes = 0;
    for (size_t at = 0; at < words->count; at++)
        bytes += strlen(words->list[at]) + 1;
    for (char **word = more; made && *word != NULL; word++)
        bytes += strlen(*word) + 1;
    if (made)
        made = open_words(&larger, count, bytes);
    for (size_t at = 0; made && at < words->count; at++)
        add_word(&larger, words->list[at], strlen(words->list[at]));
    for (char **word = more; made && *word != NULL; word++)
        set_variable(&larger, *word, strlen(*word));
    sbx_free_strings(more);
    if (!made) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory", "the agent has no memory");
        return false;
    }
    free_words(words);
    *words = larger;
    return true;
}

/* A relative one counts from the workspace's. */
static char *make_directory(const Sandbox__V1__StartRequest *request)
{
    const char *base = agent_identity()->directory;
    if (request->directory.len == 0)
        return sbx_copy(base);
    if (request->directory.data[0] == '/')
        return sbx_copy_bytes(request->directory.data, request->directory.len);
    return sbx_format("%s/%.*s", base, (int)request->directory.len, request->directory.data);
}

/* What List shows: the command, or the arguments with spaces between. */
static bool describe(struct agent_process *process, const Sandbox__V1__StartRequest *request)
{
    const ProtobufCBinaryData *pieces = request->n_argv > 0 ? request->argv : &request->command;
    size_t count = request->n_argv > 0 ? request->n_argv : 1, room = 0, used = 0;
    for (size_t at = 0; at < count && room < COMMAND_SHOWN_MAX; at++)
        room += pieces[at].len + 1;
    room = room < COMMAND_SHOWN_MAX ? room : COMMAND_SHOWN_MAX;
    process->command = malloc(room + 1);
    if (process->command == NULL)
        return false;
    for (size_t at = 0; at < count && used < room; at++) {
        if (at > 0)
            process->command[used++] = ' ';
        size_t size = pieces[at].len < room - used ? pieces[at].len : room - used;
        if (size > 0)
            memcpy(process->command + used, pieces[at].data, size);
        used += size;
    }
    process->command_size = used;
    return true;
}

static struct agent_process *make_process(const Sandbox__V1__StartRequest *request,
                                          const struct agent_identity *identity)
{
    struct agent_process *process = calloc(1, sizeof *process);
    if (process == NULL || !describe(process, request)) {
        free(process);
        return NULL;
    }
    memcpy(process->id, request->id.data, sizeof process->id);
    memcpy(process->user, identity->user, sizeof process->user);
    process->role = request->role;
    process->when_full = request->when_full;
    process->terminal = request->terminal != NULL;
    process->last_write = &process->writes;
    return process;
}

static bool open_terminal(const Sandbox__V1__Terminal *terminal,
                          const struct agent_identity *identity, struct ends *ends)
{
    int unlock = 0, number = 0;
    ends->output = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends->output < 0 || ioctl(ends->output, TIOCSPTLCK, &unlock) != 0 ||
        ioctl(ends->output, TIOCGPTN, &number) != 0)
        return false;
    char name[64];
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    ends->child_output = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    ends->child_input = fcntl(ends->child_output, F_DUPFD_CLOEXEC, 3);
    ends->child_errors = fcntl(ends->child_output, F_DUPFD_CLOEXEC, 3);
    ends->input = fcntl(ends->output, F_DUPFD_CLOEXEC, 3);
    struct winsize size = {.ws_row = (unsigned short)terminal->rows,
                           .ws_col = (unsigned short)terminal->columns};
    if (geteuid() == 0 && fchown(ends->child_output, identity->uid, identity->gid) == 0)
        fchmod(ends->child_output, 0620);
    return ends->child_input >= 0 && ends->child_errors >= 0 && ends->input >= 0 &&
           ioctl(ends->output, TIOCSWINSZ, &size) == 0;
}

static bool open_pipe(int *reads, int *writes, const int *child, uint32_t uid)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) != 0)
        return false;
    *reads = pair[0];
    *writes = pair[1];
    /* A command of another user could not open /dev/stdout otherwise. Old sentries refuse it. */
    static bool refused;
    if (!refused && uid != geteuid() && geteuid() == 0 && fchown(*child, uid, (gid_t)-1) != 0) {
        refused = errno == EPERM || errno == EINVAL || errno == EROFS || errno == ENOSYS;
        return refused;
    }
    return true;
}

static bool open_ends(struct agent_call *call, const Sandbox__V1__StartRequest *request,
                      const struct agent_identity *identity, struct ends *ends)
{
    bool opened;
    if (request->terminal != NULL) {
        opened = open_terminal(request->terminal, identity, ends);
    } else {
        uint32_t uid = identity->uid;
        opened = open_pipe(&ends->output, &ends->child_output, &ends->child_output, uid) &&
                 open_pipe(&ends->errors, &ends->child_errors, &ends->child_errors, uid) &&
                 (!request->input ||
                  open_pipe(&ends->child_input, &ends->input, &ends->child_input, uid));
        /* More than the usual 64 KiB saves switches; a limit on all pipes may forbid it. */
        if (opened)
            fcntl(ends->output, F_SETPIPE_SZ, PIPE_BYTES);
        if (opened && request->input)
            fcntl(ends->input, F_SETPIPE_SZ, PIPE_BYTES);
    }
    if (!opened)
        agent_call_fail_errno(call, errno, "cannot make the command's %s",
                              request->terminal != NULL ? "terminal" : "pipes");
    return opened;
}

static bool watch_ends(struct agent_process *process, struct ends *ends, uint32_t buffer_bytes)
{
    if (!agent_output_open(process, 0, sbx_take_fd(&ends->output), buffer_bytes))
        return false;
    if (ends->errors >= 0 &&
        !agent_output_open(process, 1, sbx_take_fd(&ends->errors), buffer_bytes))
        return false;
    return ends->input < 0 || agent_input_open(process, sbx_take_fd(&ends->input));
}

static bool run(struct agent_call *call, struct agent_process *process,
                const struct agent_identity *identity, struct agent_spawn *spawn, struct ends *ends)
{
    spawn->identity = identity;
    spawn->input = ends->child_input;
    spawn->output = ends->child_output;
    spawn->errors = ends->child_errors;
    spawn->process_limit = agent_guard_process_limit();
    spawn->file_limit = agent_guard_file_limit();
    for (char **entry = spawn->environment; *entry != NULL; entry++) {
        if (strncmp(*entry, "PATH=", 5) == 0)
            spawn->path = *entry + 5;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    process->started_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    process->pid = agent_spawn(spawn);
    if (process->pid == 0)
        fail_spawn(call, spawn);
    return process->pid != 0;
}

static void fail_spawn(struct agent_call *call, const struct agent_spawn *spawn)
{
    int number = spawn->number;
    bool missing = number == ENOENT || number == ENOTDIR;
    if (number == EAGAIN)
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "process-limit",
                        "no more processes can be started here");
    else if (spawn->step == AGENT_SPAWN_DIRECTORY && missing)
        agent_call_fail(call, AGENT_NOT_FOUND, "no-such-directory",
                        "there is no directory '%.160s' to run in", spawn->directory);
    else if (spawn->step == AGENT_SPAWN_DIRECTORY)
        agent_call_fail_errno(call, number, "cannot run in '%.160s'", spawn->directory);
    else if (spawn->step == AGENT_SPAWN_PROGRAM && missing)
        agent_call_fail(call, AGENT_NOT_FOUND, "no-such-program",
                        "there is no program '%.120s', or what it needs to run is missing",
                        spawn->argv[0]);
    else if (spawn->step == AGENT_SPAWN_PROGRAM && (number == EACCES || number == EPERM))
        agent_call_fail(call, AGENT_PERMISSION_DENIED, "not-executable",
                        "'%.160s' may not be executed", spawn->argv[0]);
    else if (spawn->step == AGENT_SPAWN_PROGRAM && number == E2BIG)
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "arguments-too-large",
                        "arguments and environment are more than the system takes");
    else if (spawn->step == AGENT_SPAWN_USER)
        agent_call_fail_errno(call, number, "cannot become '%.64s'", spawn->identity->user);
    else
        agent_call_fail_errno(call, number, "cannot start '%.160s'", spawn->argv[0]);
}

static void reply_with(struct agent_call *call, const struct agent_process *process, bool existed)
{
    Sandbox__V1__StartReply reply = SANDBOX__V1__START_REPLY__INIT;
    reply.pid = process->pid;
    reply.started_ms = process->started_ms;
    reply.existed = existed;
    agent_call_answer(call, &reply.base);
}
