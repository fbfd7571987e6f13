/* The request's body, from the guest's bytes to curl: see exchange_parts.h. */

#include "exchange_parts.h"
#include "metrics.h"
#include <string.h>
#include <sys/socket.h>

static void take_length(struct exchange *exchange, size_t room);
static bool take_chunks(struct exchange *exchange, size_t room);
static void say_continue(struct exchange *exchange);

bool exchange_take_body(struct exchange *exchange)
{
    size_t room = PIECE_BYTES - sbx_bytes_size(&exchange->upload);
    if (exchange->upload_whole || room == 0)
        return true;
    if (exchange->body == SBX_EGRESS_BODY_LENGTH)
        take_length(exchange, room);
    else if (!take_chunks(exchange, room))
        return false;
    return true;
}

static void take_length(struct exchange *exchange, size_t room)
{
    struct sbx_bytes *input = &exchange->connection->input;
    size_t piece = sbx_bytes_size(input) < room ? sbx_bytes_size(input) : room;
    if (piece > exchange->body_left)
        piece = (size_t)exchange->body_left;
    if (piece == 0 || !sbx_bytes_append(&exchange->upload, sbx_bytes_data(input), piece))
        return;
    sbx_bytes_skip(input, piece);
    exchange->body_left -= piece;
    exchange->upload_whole = exchange->body_left == 0;
}

static bool take_chunks(struct exchange *exchange, size_t room)
{
    struct sbx_bytes *input = &exchange->connection->input;
    if (sbx_bytes_size(input) == 0)
        return true;
    size_t read = chunks_read(&exchange->chunks, sbx_bytes_data(input), sbx_bytes_size(input), room,
                              &exchange->upload);
    sbx_bytes_skip(input, read);
    exchange->upload_whole = exchange->chunks.state == CHUNKS_DONE;
    return exchange->chunks.state != CHUNKS_BAD;
}

size_t exchange_give_body(char *to, size_t size, size_t count, void *user_data)
{
    struct exchange *exchange = user_data;
    struct sbx_bytes *upload = &exchange->upload;
    size_t piece = sbx_bytes_size(upload) < size * count ? sbx_bytes_size(upload) : size * count;
    if (piece == 0 && exchange->upload_whole)
        return 0;
    if (piece == 0) {
        say_continue(exchange);
        exchange->upload_waits = true;
        exchange_want(exchange);
        return CURL_READFUNC_PAUSE;
    }
    memcpy(to, sbx_bytes_data(upload), piece);
    sbx_bytes_skip(upload, piece);
    metrics.bytes_up += piece;
    exchange_alive(exchange);
    /* What was read but had no room. A fault in it shows when more is asked for. */
    if (!exchange_take_body(exchange))
        return CURL_READFUNC_ABORT;
    exchange_want(exchange);
    return piece;
}

/* Not before the server is there and proven, so that nothing large is sent for nothing. */
static void say_continue(struct exchange *exchange)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!exchange->wants_continue || exchange->head_sent)
        return;
    exchange->wants_continue = false;
    (void)send(exchange->connection->client.fd, go_on, sizeof go_on - 1, MSG_NOSIGNAL);
}
