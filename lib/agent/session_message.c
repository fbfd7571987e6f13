/* Messages on their way: their memory, their queues, and a look into one without unpacking it. */

#include "agent/session_parts.h"
#include <stdlib.h>

#define LEND_MIN    (32u << 10)
#define SPARE_BYTES (272u << 10) /* the largest piece of data, and what goes before it */
#define SPARES_MAX  16u

struct sbx_message *sbx_message_new(struct sbx_session *session, uint32_t size)
{
    struct sbx_message *message = NULL;
    bool spare = size >= LEND_MIN && size <= SPARE_BYTES;
    if (spare) {
        pthread_mutex_lock(&session->mutex);
        message = session->spares;
        if (message != NULL) {
            session->spares = message->next;
            session->spare_count--;
        }
        pthread_mutex_unlock(&session->mutex);
    }
    if (message == NULL)
        message = malloc(sizeof *message + (spare ? SPARE_BYTES : size));
    if (message == NULL)
        return NULL;
    message->size = size;
    message->spare = spare;
    return message;
}

void sbx_message_free(struct sbx_session *session, struct sbx_message *message)
{
    if (message == NULL || !message->spare) {
        free(message);
        return;
    }
    pthread_mutex_lock(&session->mutex);
    sbx_message_free_held(session, message);
    pthread_mutex_unlock(&session->mutex);
}

void sbx_message_free_held(struct sbx_session *session, struct sbx_message *message)
{
    if (message == NULL || !message->spare || session->spare_count >= SPARES_MAX) {
        free(message);
        return;
    }
    message->next = session->spares;
    session->spares = message;
    session->spare_count++;
}

void sbx_queue_init(struct sbx_queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

void sbx_queue_add(struct sbx_queue *queue, struct sbx_message *message)
{
    message->next = NULL;
    *queue->last = message;
    queue->last = &message->next;
}

struct sbx_message *sbx_queue_take(struct sbx_queue *queue)
{
    struct sbx_message *message = queue->first;
    if (message != NULL) {
        queue->first = message->next;
        if (queue->first == NULL)
            queue->last = &queue->first;
    }
    return message;
}

void sbx_queue_clear(struct sbx_queue *queue)
{
    struct sbx_message *message;
    while ((message = sbx_queue_take(queue)) != NULL)
        free(message);
}

/* False where the bytes are no number. */
static bool read_varint(const uint8_t *bytes, size_t size, size_t *at, uint64_t *number)
{
    *number = 0;
    for (unsigned shift = 0; shift < 64 && *at < size; shift += 7) {
        uint8_t byte = bytes[(*at)++];
        *number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/*
 * Where the field begins, if it is the last one and large: the message is all before it. Anything
 * that is not understood is left to protobuf-c.
 */
size_t sbx_message_last_field(const struct sbx_message *packed, unsigned field,
                              struct sbx_lent *lent)
{
    for (size_t at = 0; at < packed->size;) {
        size_t begin = at;
        uint64_t tag, number;
        if (!read_varint(packed->bytes, packed->size, &at, &tag) || (tag & 7) % 2 != 0 ||
            !read_varint(packed->bytes, packed->size, &at, &number))
            break;
        if ((tag & 7) == 0)
            continue;
        if ((tag & 7) != 2 || number > packed->size - at)
            break;
        if (tag >> 3 == field && number == packed->size - at && number >= LEND_MIN) {
            *lent = (struct sbx_lent){packed->bytes + at, (size_t)number, NULL};
            return begin;
        }
        at += (size_t)number;
    }
    return packed->size;
}
