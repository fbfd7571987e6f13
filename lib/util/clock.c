/* The system's clocks. */

#include "util/clock.h"
#include <stddef.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t monotonic_ms(void *user_data)
{
    return read_clock(CLOCK_MONOTONIC);
}

static int64_t wall_ms(void *user_data)
{
    return read_clock(CLOCK_REALTIME);
}

const struct sbx_clock sbx_system_clock = {monotonic_ms, wall_ms, NULL};
