/* When something has waited long enough: see deadline.h. */

#include "deadline.h"
#include <stddef.h>

static struct {
    uv_timer_t timer;
    struct deadline *first[DEADLINE_KINDS], *last[DEADLINE_KINDS];
    int64_t fires_at_ms; /* 0: the timer does not run */
} deadlines;

static void put_in(struct deadline *deadline);
static void arm(int64_t at_ms);
static void fire(uv_timer_t *timer);

bool deadlines_open(uv_loop_t *loop)
{
    return uv_timer_init(loop, &deadlines.timer) == 0;
}

void deadlines_close(void)
{
    uv_close((uv_handle_t *)&deadlines.timer, NULL);
}

void deadline_set(struct deadline *deadline, enum deadline_kind kind, uint64_t in_ms,
                  void (*passed)(struct deadline *deadline))
{
    deadline_clear(deadline);
    deadline->kind = (uint8_t)kind;
    deadline->passed = passed;
    deadline->at_ms = (int64_t)(uv_now(deadlines.timer.loop) + in_ms);
    deadline->set = true;
    put_in(deadline);
    arm(deadline->at_ms);
}

void deadline_clear(struct deadline *deadline)
{
    if (!deadline->set)
        return;
    if (deadline->before != NULL)
        deadline->before->after = deadline->after;
    else
        deadlines.first[deadline->kind] = deadline->after;
    if (deadline->after != NULL)
        deadline->after->before = deadline->before;
    else
        deadlines.last[deadline->kind] = deadline->before;
    deadline->before = deadline->after = NULL;
    deadline->set = false;
}

/* From the end: almost always it belongs there. */
static void put_in(struct deadline *deadline)
{
    struct deadline *before = deadlines.last[deadline->kind];
    while (before != NULL && before->at_ms > deadline->at_ms)
        before = before->before;
    deadline->before = before;
    deadline->after = before == NULL ? deadlines.first[deadline->kind] : before->after;
    if (deadline->before != NULL)
        deadline->before->after = deadline;
    else
        deadlines.first[deadline->kind] = deadline;
    if (deadline->after != NULL)
        deadline->after->before = deadline;
    else
        deadlines.last[deadline->kind] = deadline;
}

/* It fires too early where the earliest has been set anew since, and is then armed again. */
static void arm(int64_t at_ms)
{
    if (deadlines.fires_at_ms != 0 && deadlines.fires_at_ms <= at_ms)
        return;
    deadlines.fires_at_ms = at_ms;
    int64_t now = (int64_t)uv_now(deadlines.timer.loop);
    uv_timer_start(&deadlines.timer, fire, at_ms > now ? (uint64_t)(at_ms - now) : 0, 0);
}

static void fire(uv_timer_t *timer)
{
    int64_t now = (int64_t)uv_now(timer->loop);
    deadlines.fires_at_ms = 0;
    for (int kind = 0; kind < DEADLINE_KINDS; kind++) {
        struct deadline *first;
        while ((first = deadlines.first[kind]) != NULL && first->at_ms <= now) {
            deadline_clear(first);
            first->passed(first);
        }
    }
    for (int kind = 0; kind < DEADLINE_KINDS; kind++)
        if (deadlines.first[kind] != NULL)
            arm(deadlines.first[kind]->at_ms);
}
