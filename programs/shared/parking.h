/*
 * How the agent and the preloaded library agree on parking TCP sockets (see agent/park.h).
 *
 * The agent says what it wants by PARKING_SIGNAL with sigqueue(), the value being one of the two
 * below. It is a real-time signal: they are queued, so that the last one said is the one that
 * counts, and no C library uses this number for itself.
 *
 * A process answers by its memory map. Pages of the library's own data are made writable only
 * ("-w-p" in /proc/PID/maps), which nothing else does to them, and their number is the answer. What
 * shows none must never be sent the signal: it would die of it.
 */
#ifndef SHARED_PARKING_H
#define SHARED_PARKING_H

#define PARKING_LIBRARY    "sandbox-shim.so"
#define PARKING_SIGNAL     50
#define PARKING_PARK       0x7061726b
#define PARKING_UNPARK     0x6261636b
#define PARKING_PAGE_BYTES 4096 /* of every sentry; where pages are larger nobody can be parked */

/* How many pages. */
enum parking_answer {
    PARKING_ABLE = 1, /* it can be parked */
    PARKING_PARKED = 2,
    PARKING_REFUSES = 3 /* it was asked, and cannot do it now */
};

#endif
