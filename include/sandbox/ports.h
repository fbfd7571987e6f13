/**
 * Ports: reach servers that listen inside a workspace.
 *
 * A workspace has no network of its own; bytes go through its agent to 127.0.0.1 inside. Any
 * thread may use the handles at any time; only freeing must come after the last use.
 */
#ifndef SANDBOX_PORTS_H
#define SANDBOX_PORTS_H

#include <sandbox/workspace.h>

SANDBOX_BEGIN_DECLARATIONS

/** A TCP port that something listens on. */
typedef struct sandbox_port_info {
    size_t size;
    uint16_t port;
    const char *address; /**< "127.0.0.1", "0.0.0.0", "::". Borrowed from the list. */
    int64_t pid;         /**< Who listens, or 0 if not known. */
} sandbox_port_info;

typedef struct sandbox_port_list sandbox_port_list;

SANDBOX_CHECKED sandbox_status sandbox_port_list_all(sandbox_workspace *workspace,
                                                     const sandbox_call *call,
                                                     sandbox_port_list **out,
                                                     sandbox_error *error);
SANDBOX_API size_t sandbox_port_list_count(const sandbox_port_list *list);
SANDBOX_API const sandbox_port_info *sandbox_port_list_at(const sandbox_port_list *list,
                                                          size_t index);
SANDBOX_API void sandbox_port_list_free(sandbox_port_list *list);

/** One connection to a port inside. */
typedef struct sandbox_connection sandbox_connection;

/**
 * Connect to 127.0.0.1:port inside.
 *
 * @param call  default deadline 30 s
 * @param out   free it with sandbox_connection_free()
 * @return SANDBOX_NOT_FOUND with reason "connection-refused" if nothing listens
 */
SANDBOX_CHECKED sandbox_status sandbox_port_dial(sandbox_workspace *workspace, uint16_t port,
                                                 const sandbox_call *call,
                                                 sandbox_connection **out, sandbox_error *error);
/**
 * Wait for bytes. A size of 0 is the end.
 *
 * @param data  borrowed until the next read on this connection
 * @param call  default: no deadline
 */
SANDBOX_CHECKED sandbox_status sandbox_connection_read(sandbox_connection *connection,
                                                       const sandbox_call *call,
                                                       const uint8_t **data, size_t *data_size,
                                                       sandbox_error *error);
/** Send bytes; waits while the other side does not read. */
SANDBOX_CHECKED sandbox_status sandbox_connection_write(sandbox_connection *connection,
                                                        const void *data, size_t data_size,
                                                        const sandbox_call *call,
                                                        sandbox_error *error);
/** No more will be sent; reading goes on. */
SANDBOX_CHECKED sandbox_status sandbox_connection_end_output(sandbox_connection *connection,
                                                             const sandbox_call *call,
                                                             sandbox_error *error);
/** Readable for poll() while sandbox_connection_read() would not wait. Never read from it. */
SANDBOX_API int sandbox_connection_descriptor(sandbox_connection *connection);
SANDBOX_API void sandbox_connection_free(sandbox_connection *connection);

/** A listener on this machine that leads into a workspace. */
typedef struct sandbox_forward sandbox_forward;

/** How to forward. */
typedef struct sandbox_forward_options {
    size_t size;
    uint16_t port;            /**< Inside; must be given. */
    uint16_t host_port;       /**< On this machine. 0: any free one. */
    /** Borrowed. Default: "127.0.0.1"; anything else is open to others. */
    const char *host_address;
    uint32_t max_connections; /**< At once. Default: 256. */
} sandbox_forward_options;

#define SANDBOX_FORWARD_OPTIONS .size = sizeof(sandbox_forward_options)

/**
 * Listen on this machine and carry every connection into the workspace, until freed. Works on
 * the client's own I/O thread: the caller need not wait for anything.
 */
SANDBOX_CHECKED sandbox_status sandbox_port_forward(sandbox_workspace *workspace,
                                                    const sandbox_forward_options *options,
                                                    const sandbox_call *call,
                                                    sandbox_forward **out, sandbox_error *error);
/** The port on this machine. */
SANDBOX_API uint16_t sandbox_forward_host_port(const sandbox_forward *forward);
/** Stop listening and cut every connection; when it returns, nothing reaches the guest. */
SANDBOX_API void sandbox_forward_free(sandbox_forward *forward);

SANDBOX_END_DECLARATIONS

#endif
