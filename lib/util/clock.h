/* Time, injected: whoever measures asks a clock, and tests bring their own. */
#ifndef SBX_UTIL_CLOCK_H
#define SBX_UTIL_CLOCK_H

#include <stdint.h>

struct sbx_clock {
    int64_t (*monotonic_ms)(void *user_data);
    int64_t (*wall_ms)(void *user_data); /* Unix time */
    void *user_data;
};

/* The system's. */
extern const struct sbx_clock sbx_system_clock;

static inline int64_t sbx_clock_monotonic(const struct sbx_clock *clock)
{
    return clock->monotonic_ms(clock->user_data);
}

static inline int64_t sbx_clock_wall(const struct sbx_clock *clock)
{
    return clock->wall_ms(clock->user_data);
}

#endif
