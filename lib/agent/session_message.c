/* Messages on their way: their memory, their queues. */

#include "agent/session_parts.h"
#include "util/wire.h"
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

size_t sbx_message_last_field(const struct sbx_message *packed, unsigned field,
                              struct sbx_lent *lent)
{
    struct sbx_wire_bytes found;
    size_t kept = sbx_wire_last_field(packed->bytes, packed->size, field, LEND_MIN, &found);
    *lent = (struct sbx_lent){found.data, found.size, NULL};
    return kept;
}
