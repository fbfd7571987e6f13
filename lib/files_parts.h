/* What the file functions share. */
#ifndef SBX_FILES_PARTS_H
#define SBX_FILES_PARTS_H

#include "files.pb-c.h"
#include "core/session.h"
#include "util/wait.h"
#include <sandbox/files.h>

#define SBX_FILE_PIECE (256u << 10) /* of data in one message */
#define SBX_FILE_CALL_MS 30000u     /* one question, one answer */

static inline ProtobufCBinaryData sbx_file_binary(const void *data, size_t size)
{
    /* protobuf-c reads only, but its struct is not const. */
    return (ProtobufCBinaryData){size, (uint8_t *)(uintptr_t)data};
}

/* SANDBOX_INVALID unless it is a path that can be sent; `binary` borrows it. */
sandbox_status sbx_file_path(const char *path, ProtobufCBinaryData *binary, sandbox_error *error);

void sbx_file_free_message(ProtobufCMessage **message); /* for SBX_ON_EXIT */

/* Bytes from the agent as a string of our own. Fails where they hold a zero byte. */
sandbox_status sbx_file_text(const ProtobufCBinaryData *given, char **text, sandbox_error *error);

/*
 * A stream that was begun with one request, and its first message; begun anew where the channel
 * turned out to be dead. `first` is NULL where the call ended well at once.
 */
sandbox_status sbx_file_ask(sandbox_workspace *workspace, const char *method,
                            const ProtobufCMessage *request,
                            const ProtobufCMessageDescriptor *descriptor,
                            const struct sbx_wait *wait, struct sbx_stream **stream,
                            ProtobufCMessage **first, sandbox_error *error);

/* One user of a handle at a time, with no lock held while it waits for the agent. */
struct sbx_turn {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool taken;
};

bool sbx_turn_init(struct sbx_turn *turn);
void sbx_turn_destroy(struct sbx_turn *turn);
sandbox_status sbx_turn_take(struct sbx_turn *turn, const struct sbx_wait *wait,
                             sandbox_error *error);
void sbx_turn_leave(struct sbx_turn *turn);

/* A channel that broke once all was sent: whether it was done is not known. */
sandbox_status sbx_file_answer_lost(sandbox_status status, sandbox_error *error);

#endif
