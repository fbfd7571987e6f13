/* Allocations that fail when they are told to. */
#ifndef TORTURE_ALLOCATIONS_H
#define TORTURE_ALLOCATIONS_H

#include <stdbool.h>

/* Count from zero and let the given one fail, and no other; 0: none. */
void allocations_arm(unsigned long failing);
/* From now on none fails. How many there were since they were armed. */
unsigned long allocations_disarm(void);
/* Whether the armed one was reached. */
bool allocations_failed(void);

#endif
