/* One request to the platform and its answer: a line of JSON each, over a connection of its own. */

#include "drivers/memory/memory.h"
#include "util/bytes.h"
#include "util/fail.h"
#include "util/memory.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#define LINE_MAX_BYTES (1u << 20)
#define PIECE_BYTES    65536u

static sandbox_status send_line(int fd, const char *text, size_t size, bool *sent,
                                const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status take_line(int fd, struct sbx_bytes *line, const struct sbx_wait *wait,
                                sandbox_error *error);
static sandbox_status read_answer(const struct sbx_bytes *line, cJSON **answer,
                                  sandbox_error *error);

cJSON *sbx_memory_request(const char *what)
{
    cJSON *request = cJSON_CreateObject();
    if (request != NULL && sbx_json_set_text(request, "do", what))
        return request;
    cJSON_Delete(request);
    return NULL;
}

static void free_line(char **line)
{
    if (*line != NULL)
        sbx_wipe(*line, strlen(*line));
    cJSON_free(*line);
}

static void free_secret(struct sbx_bytes *bytes)
{
    if (bytes->memory != NULL)
        sbx_wipe(bytes->memory, bytes->capacity);
    sbx_bytes_free(bytes);
}

sandbox_status sbx_memory_ask(const struct sbx_memory *driver, cJSON *request, bool once,
                              const struct sbx_wait *wait, cJSON **answer, sandbox_error *error)
{
    SBX_ON_EXIT(free_line)
    char *text = request == NULL ? NULL : cJSON_PrintUnformatted(request);
    cJSON_Delete(request);
    if (text == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    SBX_ON_EXIT(sbx_close_fd) int fd = -1;
    sandbox_status status = sbx_wait_check(wait, error);
    if (status == SANDBOX_OK)
        status = sbx_memory_connect(driver, wait, &fd, error);
    if (status != SANDBOX_OK)
        return status;

    bool sent = false;
    SBX_ON_EXIT(free_secret) struct sbx_bytes line = SBX_BYTES(LINE_MAX_BYTES);
    status = send_line(fd, text, strlen(text), &sent, wait, error);
    if (status == SANDBOX_OK)
        status = take_line(fd, &line, wait, error);
    if (status == SANDBOX_UNAVAILABLE && sent && once)
        return sbx_fail_for(error, SANDBOX_UNKNOWN, "answer-lost",
                            "the memory platform broke the connection before it answered");
    return status == SANDBOX_OK ? read_answer(&line, answer, error) : status;
}

/* The newline goes out with the rest: only then can the platform have begun. */
static sandbox_status send_line(int fd, const char *text, size_t size, bool *sent,
                                const struct sbx_wait *wait, sandbox_error *error)
{
    for (size_t at = 0; at <= size;) {
        const char *from = at < size ? text + at : "\n";
        size_t left = at < size ? size - at : 1;
        ssize_t written = send(fd, from, left, MSG_NOSIGNAL);
        if (written >= 0) {
            at += (size_t)written;
            *sent = at > size;
        } else if (errno == EAGAIN || errno == EINTR) {
            sandbox_status status = sbx_wait_descriptor(wait, fd, POLLOUT, error);
            if (status != SANDBOX_OK)
                return status;
        } else {
            return sbx_fail(error, SANDBOX_UNAVAILABLE, "the memory platform broke the connection");
        }
    }
    return SANDBOX_OK;
}

static sandbox_status take_line(int fd, struct sbx_bytes *line, const struct sbx_wait *wait,
                                sandbox_error *error)
{
    for (;;) {
        size_t left = line->limit - sbx_bytes_size(line);
        size_t wanted = left < PIECE_BYTES ? left : PIECE_BYTES;
        if (wanted == 0)
            return sbx_fail(error, SANDBOX_LIMIT, "the memory platform answered over 1 MiB");
        uint8_t *room = sbx_bytes_room(line, wanted);
        if (room == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an answer");
        ssize_t got = recv(fd, room, wanted, 0);
        if (got > 0) {
            bool complete = memchr(room, '\n', (size_t)got) != NULL;
            sbx_bytes_grow(line, (size_t)got);
            if (complete)
                return SANDBOX_OK;
        } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            sandbox_status status = sbx_wait_descriptor(wait, fd, POLLIN, error);
            if (status != SANDBOX_OK)
                return status;
        } else {
            return sbx_fail(error, SANDBOX_UNAVAILABLE, "the memory platform broke the connection");
        }
    }
}

static sandbox_status read_answer(const struct sbx_bytes *line, cJSON **answer,
                                  sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *json = NULL;
    sandbox_status status =
        sbx_json_parse(sbx_bytes_data(line), sbx_bytes_size(line), LINE_MAX_BYTES, &json, error);
    if (status != SANDBOX_OK)
        return status;
    if (sbx_json_flag(json, "ok")) {
        if (answer != NULL)
            *answer = sbx_take(json);
        return SANDBOX_OK;
    }
    int64_t told = sbx_json_integer(json, "status");
    if (told >= SANDBOX_OK || told < SANDBOX_NOT_RESTORED)
        told = SANDBOX_FAILED;
    return sbx_fail_for(error, (sandbox_status)told, sbx_json_text(json, "reason"), "%s",
                        sbx_json_text(json, "message"));
}
