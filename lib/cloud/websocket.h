/*
 * A WebSocket as a client (RFC 6455): the handshake over a connection of libcurl's, and frames by
 * wslay. Binary messages only. Nothing here waits but the opening; afterwards whoever watches the
 * descriptor calls sbx_websocket_move() whenever it is ready.
 */
#ifndef SBX_CLOUD_WEBSOCKET_H
#define SBX_CLOUD_WEBSOCKET_H

#include "cloud/http.h"

#define SBX_WEBSOCKET_MESSAGE (128u << 10) /* the most that one message of ours holds */

/* Whoever takes what the server sends; called from within sbx_websocket_move(). */
struct sbx_websocket_sink {
    /* A part of a binary message; `begins`: its first. Never empty. */
    void (*data)(void *user_data, const uint8_t *data, size_t size, bool begins);
    /* False stops reading. After a true at most 4 KiB come before the next question. */
    bool (*has_room)(void *user_data);
    void *user_data;
};

/* ---- frames, without a connection (websocket_frames.c) ---- */

struct sbx_frames;

struct sbx_frames *sbx_frames_new(const struct sbx_websocket_sink *sink); /* NULL: no memory */
void sbx_frames_free(struct sbx_frames *frames);                          /* accepts NULL */
/* Bytes of the server. How many of them were taken: fewer where the sink has no room, or at the
 * end. */
size_t sbx_frames_take(struct sbx_frames *frames, const uint8_t *data, size_t size);
/* It would take some: the sink has room, and what we have to answer is not too much. */
bool sbx_frames_can_take(struct sbx_frames *frames);
/* The server has said its last, or broken the protocol: nothing is taken any more. */
bool sbx_frames_are_over(const struct sbx_frames *frames);
/* Why: one line. */
void sbx_frames_reason(const struct sbx_frames *frames, char text[160]);
/* How many bytes a message may have now; 0: send first. */
size_t sbx_frames_room(const struct sbx_frames *frames);
/* One whole message of at most that size. False: no random bytes for its mask. */
bool sbx_frames_put(struct sbx_frames *frames, const uint8_t *data, size_t size);
void sbx_frames_ping(struct sbx_frames *frames);
void sbx_frames_close(struct sbx_frames *frames);
/* What is to be sent. It stays where it is until it was; more is added behind it. */
const uint8_t *sbx_frames_output(const struct sbx_frames *frames, size_t *size);
void sbx_frames_sent(struct sbx_frames *frames, size_t size);

/* ---- the server's answer to the handshake (websocket_answer.c) ---- */

struct sbx_upgrade {
    long status;
    bool to_websocket; /* of a 101 */
    char accept[64], protocol[64];
    size_t size;                   /* of the head: behind that of a 101 come frames */
    struct sbx_http_answer answer; /* where it is no 101 */
};

enum sbx_upgrade_state { SBX_UPGRADE_UNFINISHED, SBX_UPGRADE_WHOLE, SBX_UPGRADE_BROKEN };

/* `ended`: no more bytes will come. Of WHOLE: sbx_http_answer_free(&out->answer). */
enum sbx_upgrade_state sbx_upgrade_read(const uint8_t *data, size_t size, bool ended,
                                        struct sbx_upgrade *out);

/* ---- the connection (websocket.c) ---- */

struct sbx_websocket;

struct sbx_websocket_request {
    const struct sbx_http_peer *peer; /* must outlive the WebSocket */
    const char *url;                  /* http:// or https:// */
    const char *const *headers;       /* NULL-terminated, or NULL; may hold secrets */
    const char *protocols;            /* offered, the best first: "a, b" */
    struct sbx_http_sessions *sessions;
};

/*
 * SANDBOX_OK with `*out` NULL: the server answered with something else, see `refused`
 * (sbx_http_answer_free()). SANDBOX_UNAVAILABLE: no answer; `*sent` says whether the server may
 * have seen the request.
 */
sandbox_status sbx_websocket_open(const struct sbx_websocket_request *request,
                                  const struct sbx_wait *wait, struct sbx_websocket **out,
                                  struct sbx_http_answer *refused, bool *sent,
                                  sandbox_error *error);
/* Which of the offered ones the server took. */
const char *sbx_websocket_protocol(const struct sbx_websocket *socket);
int sbx_websocket_descriptor(const struct sbx_websocket *socket);
/* Once, before the first move. */
sandbox_status sbx_websocket_begin(struct sbx_websocket *socket,
                                   const struct sbx_websocket_sink *sink, sandbox_error *error);
struct sbx_frames *sbx_websocket_frames(struct sbx_websocket *socket);

enum sbx_websocket_state {
    SBX_WEBSOCKET_QUIET, /* nothing more can be done now */
    SBX_WEBSOCKET_BUSY,  /* there is more to do at once */
    SBX_WEBSOCKET_OVER,  /* nothing comes any more: sbx_websocket_reason() */
};

/* Receives and sends what can be done without waiting; `heard`: something came. */
enum sbx_websocket_state sbx_websocket_move(struct sbx_websocket *socket, bool *heard);
/* What of poll() to move for: no POLLIN while the sink has no room; move again once it has. */
short sbx_websocket_events(const struct sbx_websocket *socket);
void sbx_websocket_reason(const struct sbx_websocket *socket, char text[160]);
/* Ends the connection; the descriptor must not be watched any more. Accepts NULL. */
void sbx_websocket_free(struct sbx_websocket *socket);

#endif
