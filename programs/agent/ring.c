/* The last bytes of an output stream. */

#include "ring.h"
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 4096u

static bool grow(struct agent_ring *ring);

int agent_ring_room(struct agent_ring *ring, uint64_t floor, struct iovec pieces[2])
{
    uint64_t kept = ring->total - ring->base;
    if (kept == ring->capacity && ring->capacity < ring->limit && grow(ring))
        kept = ring->total - ring->base;
    if (floor > ring->total)
        floor = ring->total;
    if (floor < ring->base)
        floor = ring->base;
    /* Room that overwrites nothing comes first; taken bytes go only when memory is at its limit. */
    size_t room = ring->capacity - (size_t)kept;
    if (room == 0)
        room = ring->capacity - (size_t)(ring->total - floor);
    if (room == 0)
        return 0;
    size_t position = (size_t)(ring->total % ring->capacity);
    size_t first = ring->capacity - position < room ? ring->capacity - position : room;
    pieces[0] = (struct iovec){ring->memory + position, first};
    pieces[1] = (struct iovec){ring->memory, room - first};
    return room > first ? 2 : 1;
}

bool agent_ring_has_room(const struct agent_ring *ring, uint64_t floor)
{
    uint64_t kept = ring->total - ring->base;
    return kept < ring->capacity || ring->capacity < ring->limit || floor > ring->base;
}

void agent_ring_added(struct agent_ring *ring, size_t size)
{
    ring->total += size;
    if (ring->total - ring->base > ring->capacity)
        ring->base = ring->total - ring->capacity;
}

size_t agent_ring_peek(const struct agent_ring *ring, uint64_t offset, size_t most,
                       const uint8_t **data)
{
    if (offset < ring->base || offset >= ring->total)
        return 0;
    size_t position = (size_t)(offset % ring->capacity);
    size_t size = ring->capacity - position;
    if (size > ring->total - offset)
        size = (size_t)(ring->total - offset);
    *data = ring->memory + position;
    return size < most ? size : most;
}

void agent_ring_trim(struct agent_ring *ring)
{
    if (ring->base > 0 || ring->total == ring->capacity)
        return; /* it went round, or is full: nothing to give back */
    if (ring->total == 0) {
        agent_ring_clear(ring);
        return;
    }
    uint8_t *memory = realloc(ring->memory, (size_t)ring->total);
    if (memory == NULL)
        return;
    ring->memory = memory;
    ring->capacity = (size_t)ring->total;
}

void agent_ring_clear(struct agent_ring *ring)
{
    free(ring->memory);
    ring->memory = NULL;
    ring->capacity = 0;
    ring->base = ring->total;
}

/* Without memory for more, what there is has to do. */
static bool grow(struct agent_ring *ring)
{
    size_t capacity = ring->capacity == 0 ? FIRST_CAPACITY : ring->capacity * 4;
    if (capacity > ring->limit)
        capacity = ring->limit;
    uint8_t *memory = malloc(capacity);
    if (memory == NULL) {
        if (ring->capacity > 0)
            ring->limit = ring->capacity;
        return false;
    }
    for (uint64_t offset = ring->base; offset < ring->total;) {
        const uint8_t *data = NULL;
        size_t position = (size_t)(offset % capacity);
        size_t size = agent_ring_peek(ring, offset, capacity - position, &data);
        memcpy(memory + position, data, size);
        offset += size;
    }
    free(ring->memory);
    ring->memory = memory;
    ring->capacity = capacity;
    return true;
}
