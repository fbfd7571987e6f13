/* The last refusals of one workspace: see ring.h. */

#include "ring.h"
#include "util/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

const char *kind_word(enum request_kind kind)
{
    static const char *const words[KIND_COUNT] = {"none", "connect", "http", "route"};
    return words[kind];
}

void ring_add(struct ring *ring, const struct refusal *refusal)
{
    if (ring->entries == NULL)
        ring->entries = calloc(RING_SIZE, sizeof *ring->entries);
    if (ring->entries == NULL)
        return;
    ring->entries[ring->next] = *refusal;
    ring->next = (ring->next + 1) % RING_SIZE;
    ring->count += ring->count < RING_SIZE;
}

const struct refusal *ring_at(const struct ring *ring, unsigned index)
{
    return &ring->entries[(ring->next + RING_SIZE - ring->count + index) % RING_SIZE];
}

cJSON *refusal_json(const struct refusal *refusal, const char *workspace)
{
    char time[TIME_TEXT];
    time_print(refusal->at_ms, time);
    cJSON *object = cJSON_CreateObject();
    if (object == NULL || !sbx_json_set_text(object, "time", time) ||
        !sbx_json_set_text(object, "workspace", workspace) ||
        !sbx_json_set_text(object, "reason", reason_word(refusal->reason)) ||
        !sbx_json_set_text(object, "kind", kind_word(refusal->kind)) ||
        !sbx_json_set_text(object, "host", refusal->host) ||
        !sbx_json_set_integer(object, "port", refusal->port)) {
        cJSON_Delete(object);
        return NULL;
    }
    return object;
}

void ring_free(struct ring *ring)
{
    free(ring->entries);
    *ring = (struct ring){NULL, 0, 0};
}

void time_print(int64_t at_ms, char text[TIME_TEXT])
{
    time_t seconds = (time_t)(at_ms / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    char day[TIME_TEXT];
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text, TIME_TEXT, "%.19s.%03dZ", day, (int)(at_ms % 1000));
}
