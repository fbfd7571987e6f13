/*
 * The last bytes of an output stream, each under its offset since the stream's beginning. Memory
 * comes as it is needed, up to a limit.
 */
#ifndef AGENT_RING_H
#define AGENT_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct agent_ring {
    uint8_t *memory;
    size_t capacity, limit;
    uint64_t base;  /* offset of the oldest byte kept */
    uint64_t total; /* offset of the next byte to come */
};

/*
 * Where the next bytes may go, in at most two pieces: bytes from `floor` on are not overwritten.
 * Returns the number of pieces; 0: no room.
 */
int agent_ring_room(struct agent_ring *ring, uint64_t floor, struct iovec pieces[2]);
/* The same question without making room. */
bool agent_ring_has_room(const struct agent_ring *ring, uint64_t floor);
/* So many bytes were put there. */
void agent_ring_added(struct agent_ring *ring, size_t size);
/* The bytes from `offset` on that lie in one piece, at most `most`. */
size_t agent_ring_peek(const struct agent_ring *ring, uint64_t offset, size_t most,
                       const uint8_t **data);
/* Gives back memory that holds nothing, where no more is likely to come. */
void agent_ring_trim(struct agent_ring *ring);
/* Forgets the bytes; the offsets stay. */
void agent_ring_clear(struct agent_ring *ring);

#endif
