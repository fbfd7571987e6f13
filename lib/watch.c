/* Watches: the public functions. The queue is core's. */

#include "core/client.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"
#include <unistd.h>

struct sandbox_watch {
    sandbox_client *client;
    struct sbx_watch *queue;
};

sandbox_status sandbox_client_watch(sandbox_client *client, sandbox_watch **out,
                                    sandbox_error *error)
{
    sandbox_status status = sbx_client_check(client, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the watch");
    if (status != SANDBOX_OK)
        return status;
    sandbox_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a watch");
    status = sbx_watch_begin(&client->events, &watch->queue, error);
    if (status != SANDBOX_OK) {
        free(watch);
        return status;
    }
    watch->client = sbx_client_keep(client);
    *out = watch;
    return SANDBOX_OK;
}

sandbox_status sandbox_watch_next(sandbox_watch *watch, const sandbox_call *call,
                                  sandbox_event *out, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_event event;
    if (watch == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no watch given");
    sandbox_status status = sbx_client_check(watch->client, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the event");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SANDBOX_FOREVER, error);
    if (status == SANDBOX_OK)
        status = sbx_watch_take(watch->queue, &wait, &event, error);
    return status == SANDBOX_OK ? sbx_options_fill(out, &event, sizeof event, error) : status;
}

void sandbox_watch_free(sandbox_watch *watch)
{
    if (watch == NULL)
        return;
    /* In a forked child the lock may be held by nobody. */
    if (watch->client->pid == getpid())
        sbx_watch_end(watch->queue);
    sbx_client_drop(watch->client);
    free(watch);
}
