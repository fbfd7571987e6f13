/* Client and workspace handles: what they hold, and in which order it goes. */

#include "core/client.h"
#include "core/janitor.h"
#include "core/session.h"
#include "util/fail.h"
#include "util/memory.h"
#include <signal.h>
#include <unistd.h>

static const struct sbx_driver *const drivers[] = {&sbx_driver_gvisor, &sbx_driver_gke,
                                                 &sbx_driver_memory};

static void *end_client(void *user_data);
static void link_workspace(sandbox_workspace *workspace);
static void unlink_workspace(sandbox_workspace *workspace);

const struct sbx_driver *sbx_driver_of(const char *uri, const char **rest)
{
    for (size_t n = 0; n < sizeof drivers / sizeof drivers[0]; n++) {
        size_t length = strlen(drivers[n]->name);
        if (strncmp(uri, drivers[n]->name, length) == 0 && uri[length] == ':') {
            *rest = uri + length + 1;
            return drivers[n];
        }
    }
    return NULL;
}

sandbox_status sbx_client_check(const sandbox_client *client, sandbox_error *error)
{
    if (client == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no client given");
    if (client->pid != getpid())
        return sbx_fail_for(error, SANDBOX_INVALID, "forked",
                            "the client was opened before fork(); open another one here");
    return SANDBOX_OK;
}

sandbox_client *sbx_client_keep(sandbox_client *client)
{
    atomic_fetch_add(&client->references, 1);
    return client;
}

void sbx_client_drop(sandbox_client *client)
{
    if (client == NULL || atomic_fetch_sub(&client->references, 1) != 1)
        return;
    /* In a forked child the threads do not exist and the locks may be held by nobody. */
    if (client->pid != getpid())
        return;
    if (client->loop == NULL || !sbx_loop_is_current(client->loop)) {
        end_client(client);
        return;
    }
    /* A thread cannot join itself: somebody else has to see the I/O thread off. */
    pthread_t helper;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    (void)pthread_create(&helper, &detached, end_client, client);
    pthread_attr_destroy(&detached);
}

static void *end_client(void *user_data)
{
    sandbox_client *client = user_data;
    sbx_janitor_stop(client);
    sbx_loop_stop(client->loop);
    if (client->driver != NULL && client->state != NULL)
        client->driver->close(client->state);
    sbx_list_cache_free(&client->listed);
    sbx_events_free(&client->events);
    pthread_mutex_destroy(&client->lock);
    free(client->uri);
    free(client);
    return NULL;
}

sandbox_status sbx_workspace_new(sandbox_client *client, const char *name, const char *id,
                                 sandbox_workspace **out, sandbox_error *error)
{
    sandbox_workspace *workspace = calloc(1, sizeof *workspace);
    if (workspace == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace");
    int failed = sbx_condition_init(&workspace->changed);
    if (failed != 0) {
        free(workspace);
        return sbx_fail_errno(error, failed, "no memory for a workspace");
    }
    pthread_mutex_init(&workspace->lock, NULL);
    atomic_init(&workspace->references, 1);
    atomic_init(&workspace->gone, false);
    memcpy(workspace->name, name, strlen(name) + 1);
    memcpy(workspace->id, id, SBX_ID_TEXT);
    workspace->client = sbx_client_keep(client);
    link_workspace(workspace);
    *out = workspace;
    return SANDBOX_OK;
}

sandbox_workspace *sbx_workspace_keep(sandbox_workspace *workspace)
{
    atomic_fetch_add(&workspace->references, 1);
    return workspace;
}

void sbx_workspace_drop(sandbox_workspace *workspace)
{
    if (workspace == NULL || atomic_fetch_sub(&workspace->references, 1) != 1)
        return;
    sandbox_client *client = workspace->client;
    if (client->pid == getpid()) {
        unlink_workspace(workspace);
        sbx_session_drop(workspace->session);
        pthread_cond_destroy(&workspace->changed);
        pthread_mutex_destroy(&workspace->lock);
    }
    free(workspace);
    sbx_client_drop(client);
}

static void link_workspace(sandbox_workspace *workspace)
{
    sandbox_client *client = workspace->client;
    pthread_mutex_lock(&client->lock);
    workspace->next = client->first;
    if (workspace->next != NULL)
        workspace->next->previous = workspace;
    client->first = workspace;
    pthread_mutex_unlock(&client->lock);
}

static void unlink_workspace(sandbox_workspace *workspace)
{
    sandbox_client *client = workspace->client;
    pthread_mutex_lock(&client->lock);
    if (workspace->previous != NULL)
        workspace->previous->next = workspace->next;
    else
        client->first = workspace->next;
    if (workspace->next != NULL)
        workspace->next->previous = workspace->previous;
    pthread_mutex_unlock(&client->lock);
}
