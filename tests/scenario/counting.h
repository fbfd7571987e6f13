/*
 * A layer over the driver table that counts calls and strikes at a chosen one: kills this process
 * or cancels the call, just before or just after the driver does its work. It is linked into
 * these tests alone (--wrap=sbx_driver_of); the library has no such hook.
 */
#ifndef TESTS_COUNTING_H
#define TESTS_COUNTING_H

#include <sandbox/call.h>

enum strike {
    STRIKE_NEVER = 0,
    STRIKE_KILL_BEFORE,
    STRIKE_KILL_AFTER,
    STRIKE_CANCEL_BEFORE,
    STRIKE_CANCEL_AFTER,
};

/* Starts the counting anew. `at`: the number of the call, from 1. */
void counting_begin(enum strike strike, unsigned at, sandbox_cancel *cancel);
/* Runs once, just before the driver is next asked whether an owner has ended. */
void counting_before_judging(void (*hook)(void));
/* How many calls there were since. */
unsigned counting_calls(void);

#endif
