/* The print of a root file system, taken by a thread of its own: see snapshot.h. */

#include "drivers/gvisor/snapshot.h"
#include "util/fail.h"
#include <signal.h>
#include <stdio.h>

static void *work(void *data);

sandbox_status sbx_gvisor_side_start(struct sbx_gvisor_side *side, struct sbx_gvisor *driver,
                                     const struct sbx_gvisor_pins *pins, const char *image,
                                     const char *contents, const struct sbx_wait *wait,
                                     sandbox_error *error)
{
    *side = (struct sbx_gvisor_side){.driver = driver, .pins = pins, .image = image, .wait = *wait};
    snprintf(side->contents, sizeof side->contents, "%s", contents == NULL ? "" : contents);
    side->wait.interrupted = NULL; /* asked on the caller's thread alone */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    side->started = pthread_create(&side->thread, NULL, work, side) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return side->started ? SANDBOX_OK
                         : sbx_fail_for(error, SANDBOX_LIMIT, "no-thread",
                                        "the process can start no more threads");
}

sandbox_status sbx_gvisor_side_end(struct sbx_gvisor_side *side, sandbox_error *error)
{
    sbx_gvisor_side_join(side);
    if (side->status != SANDBOX_OK && error != NULL)
        *error = side->error;
    return side->status;
}

void sbx_gvisor_side_join(struct sbx_gvisor_side *side)
{
    if (side->started)
        pthread_join(side->thread, NULL);
    side->started = false;
}

static void *work(void *data)
{
    struct sbx_gvisor_side *side = data;
    if (side->contents[0] == '\0')
        side->status = sbx_gvisor_pins_print(side->driver, side->pins, side->image, &side->wait,
                                             side->contents, &side->error);
    else
        side->status = sbx_gvisor_pins_check(side->driver, side->pins, side->image, side->contents,
                                             &side->wait, &side->error);
    return NULL;
}
