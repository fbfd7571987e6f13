/*
 * What a gVisor of 2022 can save no more, and nothing mends: it can only be seen in time.
 *
 * Files of the host's file systems that were removed and that somebody still has open, mapped, or
 * for its directory or program: a checkpoint ends the whole sandbox over one. And descriptors of
 * the host, which a `runsc exec` brings in and leaves to what it started even when it is dead: the
 * checkpoint says that all is well, and the image cannot be restored.
 */
#ifndef AGENT_LOST_H
#define AGENT_LOST_H

#include "park.h"

/*
 * Adds the processes that hold on to some, as of now: to be asked once all processes are stopped.
 * Our own relays do not count; they end with their channels. False: there is no /proc.
 */
bool agent_lost_look(struct agent_park_report *report);

#endif
