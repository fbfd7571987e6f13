/* Ports: what listens inside, and one connection to it. */

#include "agent/text.h"
#include "core/session.h"
#include "ports.pb-c.h"
#include "readiness.h"
#include "util/fail.h"
#include "util/memory.h"
#include <pthread.h>
#include <sandbox/ports.h>

#define CALL_MS 30000u
#define PIECE (256u << 10) /* of data in one message */
#define ADDRESS_MAX 64
#define PORTS_MAX 65535

struct entry {
    sandbox_port_info info;
    char address[ADDRESS_MAX];
};

struct sandbox_port_list {
    size_t count;
    struct entry entries[];
};

struct sandbox_connection {
    sandbox_workspace *workspace;
    struct sbx_stream *stream;
    struct sbx_readiness readiness;
    pthread_mutex_t mutex; /* guards all of these */
    pthread_cond_t turns_changed;
    bool reading;              /* somebody's turn: `current` and `at_end` belong to him */
    bool output_ended;
    Sandbox__V1__PortData *current; /* holds the bytes that were lent to the caller */
    bool at_end;
};

static sandbox_status make_list(const Sandbox__V1__PortListReply *reply, sandbox_port_list **out,
                                sandbox_error *error);
static sandbox_status new_connection(sandbox_workspace *workspace, sandbox_connection **out,
                                     sandbox_error *error);
static sandbox_status open_dial(sandbox_connection *connection, uint16_t port,
                                const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status dial_once(sandbox_connection *connection, uint16_t port,
                                const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status take_data(sandbox_connection *connection, const struct sbx_wait *wait,
                                const uint8_t **data, size_t *data_size, sandbox_error *error);
static sandbox_status take_message(sandbox_connection *connection, const struct sbx_wait *wait,
                                   sandbox_error *error);
static void drop_current(sandbox_connection *connection);
static sandbox_status check(sandbox_connection *connection, sandbox_error *error);
static bool ended(sandbox_connection *connection);
static sandbox_status send_piece(sandbox_connection *connection, const void *data, size_t size,
                                 bool end, const struct sbx_wait *wait, sandbox_error *error);

static void free_message(ProtobufCMessage **message)
{
    if (*message != NULL)
        protobuf_c_message_free_unpacked(*message, NULL);
}

static void free_connection(sandbox_connection **connection)
{
    sandbox_connection_free(*connection);
}

sandbox_status sandbox_port_list_all(sandbox_workspace *workspace, const sandbox_call *call,
                                     sandbox_port_list **out, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the list");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, CALL_MS, error);
    if (status != SANDBOX_OK)
        return status;
    Sandbox__V1__PortListRequest request = SANDBOX__V1__PORT_LIST_REQUEST__INIT;
    SBX_ON_EXIT(free_message) ProtobufCMessage *reply = NULL;
    status = sbx_workspace_call(workspace, "/sandbox.v1.Ports/List", &request.base, true,
                                &sandbox__v1__port_list_reply__descriptor, &wait, &reply, error);
    if (status != SANDBOX_OK)
        return status;
    return make_list((const Sandbox__V1__PortListReply *)(void *)reply, out, error);
}

size_t sandbox_port_list_count(const sandbox_port_list *list)
{
    return list == NULL ? 0 : list->count;
}

const sandbox_port_info *sandbox_port_list_at(const sandbox_port_list *list, size_t index)
{
    return list == NULL || index >= list->count ? NULL : &list->entries[index].info;
}

void sandbox_port_list_free(sandbox_port_list *list)
{
    free(list);
}

sandbox_status sandbox_port_dial(sandbox_workspace *workspace, uint16_t port,
                                 const sandbox_call *call, sandbox_connection **out,
                                 sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && port == 0)
        status = sbx_fail(error, SANDBOX_INVALID, "port 0 cannot be connected to");
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the connection");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, CALL_MS, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(free_connection) sandbox_connection *connection = NULL;
    status = new_connection(workspace, &connection, error);
    if (status == SANDBOX_OK)
        status = open_dial(connection, port, &wait, error);
    if (status == SANDBOX_OK)
        *out = sbx_take(connection);
    return status;
}

sandbox_status sandbox_connection_read(sandbox_connection *connection, const sandbox_call *call,
                                       const uint8_t **data, size_t *data_size,
                                       sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = check(connection, error);
    if (status == SANDBOX_OK && (data == NULL || data_size == NULL))
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the bytes");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SANDBOX_FOREVER, error);
    if (status != SANDBOX_OK)
        return status;

    pthread_mutex_lock(&connection->mutex);
    while (connection->reading && status == SANDBOX_OK)
        status = sbx_wait_condition(&wait, &connection->turns_changed, &connection->mutex, error);
    connection->reading = connection->reading || status == SANDBOX_OK;
    pthread_mutex_unlock(&connection->mutex);
    if (status != SANDBOX_OK)
        return status;
    status = take_data(connection, &wait, data, data_size, error);
    pthread_mutex_lock(&connection->mutex);
    connection->reading = false;
    pthread_cond_broadcast(&connection->turns_changed);
    pthread_mutex_unlock(&connection->mutex);
    return status;
}

sandbox_status sandbox_connection_write(sandbox_connection *connection, const void *data,
                                        size_t data_size, const sandbox_call *call,
                                        sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = check(connection, error);
    if (status == SANDBOX_OK && data == NULL && data_size > 0)
        status = sbx_fail(error, SANDBOX_INVALID, "no bytes to write are given");
    if (status == SANDBOX_OK && ended(connection))
        status = sbx_fail_for(error, SANDBOX_CLOSED, "output-ended",
                              "this side of the connection was ended before");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SANDBOX_FOREVER, error);
    const uint8_t *bytes = data;
    while (status == SANDBOX_OK && data_size > 0) {
        size_t piece = data_size < PIECE ? data_size : PIECE;
        status = send_piece(connection, bytes, piece, false, &wait, error);
        bytes += piece;
        data_size -= piece;
    }
    return status;
}

sandbox_status sandbox_connection_end_output(sandbox_connection *connection,
                                             const sandbox_call *call, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = check(connection, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, CALL_MS, error);
    if (status != SANDBOX_OK || ended(connection))
        return status;
    status = send_piece(connection, NULL, 0, true, &wait, error);
    pthread_mutex_lock(&connection->mutex);
    connection->output_ended = status == SANDBOX_OK;
    pthread_mutex_unlock(&connection->mutex);
    return status;
}

int sandbox_connection_descriptor(sandbox_connection *connection)
{
    if (check(connection, NULL) != SANDBOX_OK)
        return -1;
    pthread_mutex_lock(&connection->mutex);
    bool fresh = connection->readiness.descriptor < 0;
    if (sbx_readiness_make(&connection->readiness) && fresh)
        sbx_readiness_add(&connection->readiness, sbx_stream_descriptor(connection->stream));
    int fd = connection->readiness.descriptor;
    pthread_mutex_unlock(&connection->mutex);
    return fd;
}

void sandbox_connection_free(sandbox_connection *connection)
{
    if (connection == NULL)
        return;
    drop_current(connection);
    sbx_stream_free(connection->stream);
    sbx_readiness_free(&connection->readiness);
    pthread_cond_destroy(&connection->turns_changed);
    pthread_mutex_destroy(&connection->mutex);
    sbx_workspace_drop(connection->workspace);
    free(connection);
}

static sandbox_status make_list(const Sandbox__V1__PortListReply *reply, sandbox_port_list **out,
                                sandbox_error *error)
{
    size_t count = reply->n_ports < PORTS_MAX ? reply->n_ports : PORTS_MAX;
    sandbox_port_list *list = calloc(1, sizeof *list + count * sizeof list->entries[0]);
    if (list == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list of ports");
    for (size_t index = 0; index < count; index++) {
        const Sandbox__V1__PortInfo *port = reply->ports[index];
        struct entry *entry = &list->entries[list->count];
        if (port->port == 0 || port->port > UINT16_MAX)
            continue;
        sbx_text_clean((const uint8_t *)port->address, strlen(port->address), entry->address,
                       ADDRESS_MAX);
        entry->info = (sandbox_port_info){.size = sizeof entry->info,
                                          .port = (uint16_t)port->port,
                                          .address = entry->address,
                                          .pid = port->pid};
        list->count++;
    }
    *out = list;
    return SANDBOX_OK;
}

static sandbox_status new_connection(sandbox_workspace *workspace, sandbox_connection **out,
                                     sandbox_error *error)
{
    sandbox_connection *connection = calloc(1, sizeof *connection);
    bool locked = connection != NULL && pthread_mutex_init(&connection->mutex, NULL) == 0;
    if (!locked || sbx_condition_init(&connection->turns_changed) != 0) {
        if (locked)
            pthread_mutex_destroy(&connection->mutex);
        free(connection);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a connection");
    }
    connection->readiness = (struct sbx_readiness)SBX_READINESS;
    connection->workspace = sbx_workspace_keep(workspace);
    *out = connection;
    return SANDBOX_OK;
}

/* Until the agent has looked at it. */
static sandbox_status open_dial(sandbox_connection *connection, uint16_t port,
                                const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    for (;;) {
        sandbox_status status = dial_once(connection, port, wait, error);
        if (status == SANDBOX_OK)
            return SANDBOX_OK;
        status = sbx_workspace_begin_again(connection->workspace, status, wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

static sandbox_status dial_once(sandbox_connection *connection, uint16_t port,
                                const struct sbx_wait *wait, sandbox_error *error)
{
    sbx_stream_free(sbx_take(connection->stream));
    sandbox_status status = sbx_workspace_stream(connection->workspace, "/sandbox.v1.Ports/Dial",
                                                 wait, &connection->stream, error);
    Sandbox__V1__PortData first = SANDBOX__V1__PORT_DATA__INIT;
    first.port = port;
    if (status == SANDBOX_OK)
        status = sbx_stream_send(connection->stream, &first.base, wait, error);
    SBX_ON_EXIT(free_message) ProtobufCMessage *answer = NULL;
    if (status == SANDBOX_OK)
        status = sbx_stream_next(connection->stream, &sandbox__v1__port_data__descriptor, wait,
                                 &answer, error);
    if (status == SANDBOX_CLOSED)
        status = sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                              "the agent ended the connection without saying that it stood");
    return status;
}

static sandbox_status take_data(sandbox_connection *connection, const struct sbx_wait *wait,
                                const uint8_t **data, size_t *data_size, sandbox_error *error)
{
    *data = NULL;
    *data_size = 0;
    while (*data_size == 0) {
        drop_current(connection);
        if (connection->at_end)
            return SANDBOX_OK;
        sandbox_status status = take_message(connection, wait, error);
        if (status != SANDBOX_OK)
            return status;
        if (connection->current != NULL) {
            *data = connection->current->data.data;
            *data_size = connection->current->data.len;
        }
    }
    return SANDBOX_OK;
}

/* Into `current`; notes the end, which is no failure. */
static sandbox_status take_message(sandbox_connection *connection, const struct sbx_wait *wait,
                                   sandbox_error *error)
{
    ProtobufCMessage *message = NULL;
    sandbox_error own = {0};
    sandbox_status status = sbx_stream_next(
        connection->stream, &sandbox__v1__port_data__descriptor, wait, &message, &own);
    if (status != SANDBOX_OK && status != SANDBOX_CLOSED) {
        if (error != NULL)
            *error = own;
        return status;
    }
    connection->current = (Sandbox__V1__PortData *)(void *)message;
    if (connection->current == NULL || connection->current->end) {
        pthread_mutex_lock(&connection->mutex);
        connection->at_end = true;
        sbx_readiness_set(&connection->readiness, true);
        pthread_mutex_unlock(&connection->mutex);
    }
    return SANDBOX_OK;
}

static void drop_current(sandbox_connection *connection)
{
    if (connection->current != NULL)
        protobuf_c_message_free_unpacked(&connection->current->base, NULL);
    connection->current = NULL;
}

static sandbox_status check(sandbox_connection *connection, sandbox_error *error)
{
    if (connection == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no connection given");
    return sbx_workspace_check(connection->workspace, error);
}

static bool ended(sandbox_connection *connection)
{
    pthread_mutex_lock(&connection->mutex);
    bool output_ended = connection->output_ended;
    pthread_mutex_unlock(&connection->mutex);
    return output_ended;
}

static sandbox_status send_piece(sandbox_connection *connection, const void *data, size_t size,
                                 bool end, const struct sbx_wait *wait, sandbox_error *error)
{
    union {
        const void *given;
        uint8_t *wanted; /* protobuf-c asks for it and only reads */
    } bytes = {.given = data};
    Sandbox__V1__PortData piece = SANDBOX__V1__PORT_DATA__INIT;
    piece.data = (ProtobufCBinaryData){size, bytes.wanted};
    piece.end = end;
    return sbx_stream_send(connection->stream, &piece.base, wait, error);
}
