/*
 * Removed files that are still held on to: a gVisor of 2022 ends the whole sandbox when it is
 * checkpointed while a process has one of the host's file systems open, mapped, or for its
 * directory or program. Nothing mends that; it can only be seen in time.
 */
#ifndef AGENT_LOST_H
#define AGENT_LOST_H

#include "park.h"

/*
 * Adds the processes that do, as of now: to be asked once all processes are stopped. False: no
 * memory, or no /proc.
 */
bool agent_lost_look(struct agent_park_report *report);

#endif
