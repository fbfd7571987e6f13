/* What to run: checked, and put into a request. */

#include "process_parts.h"
#include "util/fail.h"
#include "util/memory.h"

#define TERMINAL_SIDE_MAX 4096
#define BUFFER_MAX (64u << 20)
#define WORD_MAX 255

static sandbox_status check_program(const sandbox_process_options *options, sandbox_error *error);
static sandbox_status check_place(const sandbox_process_options *options, sandbox_error *error);
static sandbox_status check_terminal(const sandbox_process_options *options, sandbox_error *error);
static sandbox_status check_choices(const sandbox_process_options *options, sandbox_error *error);
static bool is_plain_word(const char *text, const char *also);
static bool list_strings(const char *const *strings, ProtobufCBinaryData **list, size_t *count);

sandbox_status sbx_process_options_check(const sandbox_process_options *options,
                                         sandbox_error *error)
{
    sandbox_status status = check_program(options, error);
    if (status == SANDBOX_OK)
        status = check_place(options, error);
    if (status == SANDBOX_OK)
        status = check_terminal(options, error);
    if (status == SANDBOX_OK)
        status = check_choices(options, error);
    return status;
}

sandbox_status sbx_process_request(const sandbox_process_options *options,
                                   const sandbox_process *process, struct sbx_start_parts *parts,
                                   Sandbox__V1__StartRequest *request, sandbox_error *error)
{
    sandbox__v1__start_request__init(request);
    sandbox__v1__terminal__init(&parts->terminal);
    if (!list_strings(options->argv, &parts->argv, &request->n_argv) ||
        !list_strings(options->env, &parts->env, &request->n_environment))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    request->argv = parts->argv;
    request->environment = parts->env;
    request->id = sbx_binary(process->id_bytes, SBX_ID_BYTES);
    if (options->command != NULL)
        request->command = sbx_binary(options->command, strlen(options->command));
    if (options->directory != NULL)
        request->directory = sbx_binary(options->directory, strlen(options->directory));
    union {
        const char *given;
        char *wanted;
    } user = {.given = options->user == NULL ? "" : options->user};
    request->user = user.wanted;
    request->login_shell = options->login_shell;
    request->role = (Sandbox__V1__Role)options->role;
    request->when_full = (Sandbox__V1__WhenFull)options->when_full;
    request->input = options->input == SANDBOX_INPUT_PIPE || options->terminal;
    request->deadline_ms = options->deadline_ms;
    request->buffer_bytes = options->buffer_bytes;
    if (options->terminal) {
        const char *type = options->terminal_type;
        type = type == NULL ? "xterm-256color" : type;
        parts->terminal.rows = options->rows == 0 ? 24 : options->rows;
        parts->terminal.columns = options->columns == 0 ? 80 : options->columns;
        parts->terminal.type = sbx_binary(type, strlen(type));
        request->terminal = &parts->terminal;
    }
    return SANDBOX_OK;
}

static sandbox_status check_program(const sandbox_process_options *options, sandbox_error *error)
{
    if (options->command == NULL && options->argv == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "nothing to run: give either command or argv");
    if (options->command != NULL && options->argv != NULL)
        return sbx_fail(error, SANDBOX_INVALID, "both command and argv are given: give only one");
    if (options->command != NULL && options->command[0] == '\0')
        return sbx_fail(error, SANDBOX_INVALID, "the command is empty");
    if (options->argv != NULL && (options->argv[0] == NULL || options->argv[0][0] == '\0'))
        return sbx_fail(error, SANDBOX_INVALID,
                        "argv names no program: its first string must not be empty");
    if (options->login_shell && options->command == NULL)
        return sbx_fail(error, SANDBOX_INVALID,
                        "login_shell goes with command; argv is run without a shell");
    return SANDBOX_OK;
}

static sandbox_status check_place(const sandbox_process_options *options, sandbox_error *error)
{
    uint8_t id[SBX_ID_BYTES];
    if (options->id != NULL && !sbx_id_parse(options->id, id))
        return sbx_fail(error, SANDBOX_INVALID, "the process id must be 32 hexadecimal digits");
    if (options->directory != NULL && options->directory[0] == '\0')
        return sbx_fail(error, SANDBOX_INVALID,
                        "the directory is empty: leave it NULL for /workspace");
    if (options->user != NULL && !is_plain_word(options->user, "_.-:$"))
        return sbx_fail(error, SANDBOX_INVALID,
                        "the user must be a user name or UID:GID, or NULL for the workspace's own");
    for (size_t index = 0; options->env != NULL && options->env[index] != NULL; index++) {
        const char *sign = strchr(options->env[index], '=');
        if (sign == NULL || sign == options->env[index])
            return sbx_fail(error, SANDBOX_INVALID,
                            "entry %zu of env is not of the form NAME=value", index);
    }
    return SANDBOX_OK;
}

static sandbox_status check_terminal(const sandbox_process_options *options, sandbox_error *error)
{
    bool shaped = options->rows != 0 || options->columns != 0 || options->terminal_type != NULL;
    if (!options->terminal && shaped)
        return sbx_fail(error, SANDBOX_INVALID,
                        "rows, columns and terminal_type go with terminal, which is not set");
    if (options->rows > TERMINAL_SIDE_MAX || options->columns > TERMINAL_SIDE_MAX)
        return sbx_fail(error, SANDBOX_INVALID,
                        "a terminal has 1 to %d rows and columns, not %u by %u", TERMINAL_SIDE_MAX,
                        options->rows, options->columns);
    if (options->terminal_type != NULL && !is_plain_word(options->terminal_type, "_.-+"))
        return sbx_fail(error, SANDBOX_INVALID,
                        "the terminal type must be a name like 'xterm-256color'");
    return SANDBOX_OK;
}

static sandbox_status check_choices(const sandbox_process_options *options, sandbox_error *error)
{
    if (options->role != SANDBOX_ROLE_TASK && options->role != SANDBOX_ROLE_SERVICE)
        return sbx_fail(error, SANDBOX_INVALID, "there is no role %d", (int)options->role);
    if (options->when_full != SANDBOX_WHEN_FULL_BLOCK &&
        options->when_full != SANDBOX_WHEN_FULL_DROP_OLDEST)
        return sbx_fail(error, SANDBOX_INVALID, "there is no when_full %d",
                        (int)options->when_full);
    if (options->input != SANDBOX_INPUT_NONE && options->input != SANDBOX_INPUT_PIPE)
        return sbx_fail(error, SANDBOX_INVALID, "there is no input %d", (int)options->input);
    if (options->buffer_bytes > BUFFER_MAX)
        return sbx_fail(error, SANDBOX_INVALID,
                        "the output buffer can have at most %u bytes, not %u", BUFFER_MAX,
                        options->buffer_bytes);
    return SANDBOX_OK;
}

/* Letters, digits and what `also` allows. No slash, no space, no byte outside ASCII. */
static bool is_plain_word(const char *text, const char *also)
{
    size_t size = strlen(text);
    if (size == 0 || size > WORD_MAX || text[0] == '-')
        return false;
    for (size_t at = 0; at < size; at++) {
        char letter = text[at];
        bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                     (letter >= '0' && letter <= '9') || strchr(also, letter) != NULL;
        if (!plain)
            return false;
    }
    return true;
}

static bool list_strings(const char *const *strings, ProtobufCBinaryData **list, size_t *count)
{
    *count = sbx_count_strings(strings);
    *list = NULL;
    if (*count == 0)
        return true;
    *list = calloc(*count, sizeof **list);
    for (size_t index = 0; *list != NULL && index < *count; index++)
        (*list)[index] = sbx_binary(strings[index], strlen(strings[index]));
    return *list != NULL;
}
