/*
 * Parking: a gVisor of 2022 ends the whole sandbox when it is checkpointed while a TCP socket is in
 * an epoll set. The preloaded library (programs/shim) takes those sockets out when the agent asks
 * for it by a signal, and puts them back when asked again; see shared/parking.h for how a process
 * shows what it can and what it has done.
 *
 * At risk is a process that holds a TCP socket and an epoll set; /proc does not tell whether the
 * one is in the other. It is an obstacle if it does not show that it can be parked.
 *
 * All functions only read /proc, send signals and use plain memory: nothing that is held between
 * begin and undo suffers from a checkpoint and a restore. They share nothing with the loop, so any
 * thread may call them, but for one `struct agent_park` only one at a time.
 */
#ifndef AGENT_PARK_H
#define AGENT_PARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AGENT_PARK_OBSTACLES_MAX 16
#define AGENT_PARK_COMMAND_MAX   256
#define AGENT_PARK_WHAT_MAX      256

struct agent_park_obstacle {
    pid_t pid;
    char what[AGENT_PARK_WHAT_MAX]; /* it holds on to: see lost.h; "": TCP sockets */
    size_t command_size;
    uint8_t command[AGENT_PARK_COMMAND_MAX]; /* as in /proc/PID/cmdline, blanks between the words */
};

struct agent_park_report {
    uint32_t parked; /* processes whose sockets are out of their epoll sets */
    size_t obstacles_count;
    struct agent_park_obstacle obstacles[AGENT_PARK_OBSTACLES_MAX];
};

/* One more, with its command; NULL: there are as many as are told. */
struct agent_park_obstacle *agent_park_add_obstacle(struct agent_park_report *report, pid_t pid);

/* Whom we told; plain memory. */
struct agent_park;

/*
 * Parks every process at risk and waits until each shows it, for 5 seconds at most: a worker
 * thread's work. The processes must be running, not stopped. False: somebody is an obstacle (see
 * the report; none in it: no memory, or no /proc), and all others were told to put theirs back.
 */
bool agent_park_begin(struct agent_park **out, struct agent_park_report *report);

/*
 * Whether every process at risk is parked, as of now; takes milliseconds. To be asked again once
 * all processes are stopped: in between one may have been started.
 */
bool agent_park_holds(struct agent_park_report *report);

/*
 * Tells everybody to put them back; takes milliseconds. A stopped process does so as the first
 * thing when it goes on: call this before SIGCONT, and nobody sees a socket missing. `park` may be
 * NULL: whoever shows that it is parked is told.
 */
void agent_park_undo(const struct agent_park *park);

/*
 * After undo and SIGCONT, a worker thread's work: waits until nobody shows that it is parked, for
 * that long at most. Returns how many still do.
 */
uint32_t agent_park_settle(uint32_t at_most_ms);

void agent_park_free(struct agent_park *park);

#endif
