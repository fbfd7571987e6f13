/* What the files of exec share. */
#ifndef SBX_CLOUD_KUBERNETES_EXEC_H
#define SBX_CLOUD_KUBERNETES_EXEC_H

#include "cloud/kubernetes_parts.h"
#include "cloud/websocket.h"

/* ---- what comes on the channels of one connection (kubernetes_exec_end.c) ---- */

#define SBX_EXEC_ERRORS 4096
#define SBX_EXEC_STATUS (64u << 10)

struct sbx_exec_reader {
    void (*output)(void *user_data, const uint8_t *data, size_t size);
    void *user_data;
    uint8_t channel;         /* of the message that is being read */
    struct sbx_bytes status; /* with that limit */
    bool status_is_cut;
    size_t errors_size;
    char errors[SBX_EXEC_ERRORS]; /* the last of stderr */
};

/* A part of a message, as sbx_websocket_sink has them. */
void sbx_exec_read(struct sbx_exec_reader *reader, const uint8_t *data, size_t size, bool begins);
/* Something of the server's word on the end is here. */
bool sbx_exec_has_status(const struct sbx_exec_reader *reader);
/* `why` the connection ended, where the server said nothing of the command's end. */
void sbx_exec_settle(const struct sbx_exec_reader *reader, const char *why,
                     struct sbx_exec_end *out);

/* ---- one exec on the I/O thread (kubernetes_exec_carry.c) ---- */

struct sbx_exec;

/* NULL: no memory. */
struct sbx_exec *sbx_exec_new(const struct sbx_kubernetes *cluster, struct sbx_loop *loop,
                              const struct sbx_exec_options *options);
/* Before it is carried; accepts NULL. */
void sbx_exec_free(struct sbx_exec *exec);
/* Where the handshake puts what it has made. */
struct sbx_kubernetes_access *sbx_exec_access(struct sbx_exec *exec);
struct sbx_websocket **sbx_exec_socket(struct sbx_exec *exec);
/* From here it lives by itself, until it has told its end. `far` is its end of the channel. */
void sbx_exec_carry(struct sbx_exec *exec, int far);

#endif
