/*
 * What an opencode server, and the kernel of its workspace, answer to the check that asks whether
 * anybody works (lib/check_opencode*.c, lib/guest_http.c). The input is their answers, one after
 * the other, separated by a byte 0x1e: each connection is answered by the next one and ended, each
 * file in /proc holds the next one, and so do lists. After the last nothing listens any more.
 *
 * The sandbox below it is left out: those functions stand here.
 */

#include "util/fail.h"
#include "util/wait.h"

#include <sandbox/activity.h>
#include <sandbox/files.h>
#include <sandbox/ports.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SEPARATOR   0x1e
#define PIECE       1000
#define ENTRIES_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sandbox_connection {
    const uint8_t *data;
    size_t size;
    int event_fd;
};
struct sandbox_file_list {
    size_t count;
    sandbox_file_info entries[ENTRIES_MAX];
    char names[ENTRIES_MAX][24];
};
struct sandbox_port_list {
    sandbox_port_info port;
};

/* What is left of the input. */
static const uint8_t *answers;
static size_t answers_size;

static void must(bool right)
{
    if (!right)
        abort();
}

/* False where there is no more. */
static bool next_answer(const uint8_t **data, size_t *size)
{
    if (answers_size == 0)
        return false;
    const uint8_t *end = memchr(answers, SEPARATOR, answers_size);
    *data = answers;
    *size = end == NULL ? answers_size : (size_t)(end - answers);
    size_t used = *size + (end != NULL);
    answers += used;
    answers_size -= used;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sandbox_opencode options = {SANDBOX_OPENCODE, .password = "correct horse"};
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 10000};
    sandbox_error error = {0};
    bool active = true;
    char who[200];
    static char workspace; /* nobody looks into it */
    answers = data;
    answers_size = size;
    memset(who, 'x', sizeof who);
    sandbox_status status = sandbox_check_opencode((sandbox_workspace *)(void *)&workspace, &call,
                                                   &options, &active, who, &error);
    if (status == SANDBOX_OK) {
        must(memchr(who, '\0', sizeof who) != NULL && active == (who[0] != '\0'));
        for (const char *at = who; *at != '\0'; at++)
            must((unsigned char)*at >= ' ' && *at != 127);
        return 0;
    }
    /* In doubt nothing was said. */
    must(active && who[0] == 'x' && status == error.status && error.message[0] != '\0');
    must(memchr(error.message, '\0', sizeof error.message) != NULL &&
         strchr(error.message, '\n') == NULL && strstr(error.message, "correct horse") == NULL);
    return 0;
}

/* ---- what stands in the place of a sandbox ---- */

sandbox_status __wrap_sbx_workspace_check(sandbox_workspace *workspace, sandbox_error *error)
{
    return SANDBOX_OK;
}

/* There is nothing to wait for. */
sandbox_status __wrap_sbx_wait_pause(const struct sbx_wait *wait, uint32_t pause_ms,
                                     sandbox_error *error)
{
    return SANDBOX_OK;
}

sandbox_status __wrap_sandbox_port_dial(sandbox_workspace *workspace, uint16_t port,
                                        const sandbox_call *call, sandbox_connection **out,
                                        sandbox_error *error)
{
    const uint8_t *data = NULL;
    size_t size = 0;
    if (!next_answer(&data, &size))
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "connection-refused", "nothing listens");
    sandbox_connection *connection = calloc(1, sizeof *connection);
    must(connection != NULL);
    *connection = (sandbox_connection){data, size, eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
    must(connection->event_fd >= 0);
    *out = connection;
    return SANDBOX_OK;
}

sandbox_status __wrap_sandbox_connection_read(sandbox_connection *connection,
                                              const sandbox_call *call, const uint8_t **data,
                                              size_t *data_size, sandbox_error *error)
{
    *data = connection->data;
    *data_size = connection->size < PIECE ? connection->size : PIECE;
    connection->data += *data_size;
    connection->size -= *data_size;
    return SANDBOX_OK;
}

sandbox_status __wrap_sandbox_connection_write(sandbox_connection *connection, const void *data,
                                               size_t data_size, const sandbox_call *call,
                                               sandbox_error *error)
{
    return SANDBOX_OK;
}

int __wrap_sandbox_connection_descriptor(sandbox_connection *connection)
{
    return connection == NULL ? -1 : connection->event_fd;
}

void __wrap_sandbox_connection_free(sandbox_connection *connection)
{
    if (connection != NULL)
        close(connection->event_fd);
    free(connection);
}

sandbox_status __wrap_sandbox_file_read(sandbox_workspace *workspace, const char *path,
                                        const sandbox_read_options *options,
                                        const sandbox_call *call, uint8_t **data,
                                        size_t *data_size, sandbox_error *error)
{
    const uint8_t *text = NULL;
    size_t size = 0;
    if (!next_answer(&text, &size))
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-file", "there is no such process");
    if (size > options->limit)
        return sbx_fail(error, SANDBOX_LIMIT, "too large");
    /* With a zero after it, as sandbox_file_read() promises. */
    *data = calloc(1, size + 1);
    must(*data != NULL);
    memcpy(*data, text, size);
    *data_size = size;
    return SANDBOX_OK;
}

void __wrap_sandbox_bytes_free(uint8_t *data)
{
    free(data);
}

/* A name in each line. */
sandbox_status __wrap_sandbox_file_list_directory(sandbox_workspace *workspace, const char *path,
                                                  const sandbox_call *call,
                                                  sandbox_file_list **out, sandbox_error *error)
{
    const uint8_t *text = NULL;
    size_t size = 0;
    if (!next_answer(&text, &size))
        return sbx_fail(error, SANDBOX_UNAVAILABLE, "no more answers");
    sandbox_file_list *list = calloc(1, sizeof *list);
    must(list != NULL);
    while (size > 0 && list->count < ENTRIES_MAX) {
        const uint8_t *end = memchr(text, '\n', size);
        size_t length = end == NULL ? size : (size_t)(end - text), used = length + (end != NULL);
        snprintf(list->names[list->count], sizeof list->names[0], "%.*s", (int)length,
                 (const char *)text);
        list->entries[list->count].name = list->names[list->count];
        list->count++;
        text += used;
        size -= used;
    }
    *out = list;
    return SANDBOX_OK;
}

size_t __wrap_sandbox_file_list_count(const sandbox_file_list *list)
{
    return list->count;
}

const sandbox_file_info *__wrap_sandbox_file_list_at(const sandbox_file_list *list, size_t index)
{
    return &list->entries[index];
}

void __wrap_sandbox_file_list_free(sandbox_file_list *list)
{
    free(list);
}

/* The server's own port, and who listens there. */
sandbox_status __wrap_sandbox_port_list_all(sandbox_workspace *workspace, const sandbox_call *call,
                                            sandbox_port_list **out, sandbox_error *error)
{
    const uint8_t *text = NULL;
    size_t size = 0;
    sandbox_port_list *list = calloc(1, sizeof *list);
    must(list != NULL);
    list->port.port = 4096;
    list->port.pid = next_answer(&text, &size) && size > 0 ? text[0] - '0' : 0;
    *out = list;
    return SANDBOX_OK;
}

size_t __wrap_sandbox_port_list_count(const sandbox_port_list *list)
{
    return list == NULL ? 0 : 1;
}

const sandbox_port_info *__wrap_sandbox_port_list_at(const sandbox_port_list *list, size_t index)
{
    return &list->port;
}

void __wrap_sandbox_port_list_free(sandbox_port_list *list)
{
    free(list);
}
