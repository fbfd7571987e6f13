/* Shared by the files of the exchange only. */
#ifndef EGRESS_EXCHANGE_PARTS_H
#define EGRESS_EXCHANGE_PARTS_H

#include "chunks.h"
#include "curl_door.h"
#include "egress/scrub.h"
#include "exchange.h"
#include "lookup.h"

#define ANSWER_PIECE    (16u * 1024) /* one record of TLS */
#define PIECE_BYTES     (64u * 1024)
#define OUTPUT_MAX      (2u * 1024 * 1024) /* a piece of the answer, however much scrubbing adds */
#define OUTPUT_HIGH     (64u * 1024)       /* from here on the server has to wait */
#define ANSWER_HEAD_MAX (64u * 1024)

enum answer_frame {
    FRAME_NONE,   /* no body: HEAD, 204, 304 */
    FRAME_LENGTH, /* as the server said */
    FRAME_CHUNKED,
    FRAME_CLOSE, /* to a client of HTTP/1.0 */
};

struct exchange {
    struct connection *connection;
    struct exchanges *home;
    struct lookup *lookup;
    struct sbx_egress_host host;
    struct sbx_egress_policy *policy; /* the one it began under, kept */
    struct sbx_egress_scrub *scrub;   /* NULL: nothing to look for */
    struct sbx_egress_fields *made;   /* until the request begins */
    char *path, *method;
    bool is_http10, is_head;

    CURL *easy;
    struct curl_slist *fields, *pinned, *proxy_fields;
    bool added; /* to the home's handles */

    /* The request's body: the connection's input, decoded into `upload`. */
    enum sbx_egress_body body;
    struct chunks chunks;
    uint64_t body_left; /* of one with a length */
    struct sbx_bytes upload;
    bool upload_whole, upload_waits, wants_continue;

    /* The answer: `lines` until its head is whole, then `output`. */
    int status;
    char phrase[64]; /* as the server says it */
    struct sbx_bytes lines, trailers, output;
    enum answer_frame frame;
    bool head_sent, output_waits, output_fresh, complete, keeps_alive;
    enum reason failure; /* why an answer could not be passed on; REASON_COUNT: it could */
    bool guest_gone;
    struct exchange *next_fresh; /* of those that exchanges.c has to flush */
};

/* exchange_request.c: what curl is told. False: no memory. */
bool exchange_set_up(struct exchange *exchange);

/* exchange_body.c: from the guest's bytes to curl. */
bool exchange_take_body(struct exchange *exchange); /* false: it is malformed */
size_t exchange_give_body(char *to, size_t size, size_t count, void *user_data);

/* exchange_answer.c: from curl's bytes to the guest. */
size_t exchange_take_line(char *line, size_t size, size_t count, void *user_data);
size_t exchange_take_piece(char *piece, size_t size, size_t count, void *user_data);
bool exchange_finish_answer(struct exchange *exchange);
bool exchange_send(struct exchange *exchange); /* what fits; false: the guest is gone */

/* exchange.c */
void exchange_want(struct exchange *exchange);
void exchange_alive(struct exchange *exchange); /* bytes moved: the idle clock begins anew */
void exchange_done(struct exchange *exchange, CURLcode result);
/*
 * What curl has brought goes out once it has brought all that there is for now: fewer and larger
 * pieces. False: the guest is gone.
 */
bool exchange_flush(struct exchange *exchange);

/* exchanges.c: curl's handles of one workspace. */
struct exchanges *exchanges_of(struct workspace *workspace); /* NULL: no memory */
/*
 * What looks through answers of the host under the workspace's policy, used before or new; `*out`
 * is NULL where there is nothing to look for. False: no memory.
 */
bool exchanges_take_scrub(struct exchanges *exchanges, const struct exchange *exchange,
                          struct sbx_egress_scrub **out);
/* Only one whose answer came to its end. */
void exchanges_give_scrub(struct exchanges *exchanges, const struct exchange *exchange,
                          struct sbx_egress_scrub *scrub);
/* A handle for one request, used before or new; NULL: no memory. */
CURL *exchanges_take(struct exchanges *exchanges);
void exchanges_give(struct exchanges *exchanges, CURL *easy);
bool exchanges_add(struct exchanges *exchanges, struct exchange *exchange);
void exchanges_flush_later(struct exchanges *exchanges, struct exchange *exchange);
void exchanges_flush_not(struct exchanges *exchanges, struct exchange *exchange);
void exchanges_remove(struct exchanges *exchanges, struct exchange *exchange);

#endif
