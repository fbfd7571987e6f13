/*
 * sandbox-egress-proxy: the only way out of workspaces. One thread, one loop; everything it knows
 * of workspaces is in memory only.
 */

#include "admin.h"
#include "connection.h"
#include "detach.h"
#include "exchange.h"
#include "journal.h"
#include "listener.h"
#include "lookup.h"
#include "metrics.h"
#include "own.h"
#include "pipes.h"
#include "proxy.h"
#include "registry.h"
#include "settings.h"
#include "version.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define DRAIN_MS       2000
#define DRAIN_LOOK_MS  50
#define IDLE_EXIT_CODE 100

struct proxy proxy;

static uv_signal_t signals[3];
static uv_timer_t ending, idling;
static int exit_code;
static uint64_t drained_by_ms;

static void harden(void);
static bool raise_limit(__rlimit_resource_t resource);
static bool open_all(void);
static void signalled(uv_signal_t *handle, int number);
static void idle_for_long(uv_timer_t *timer);
static void look_whether_drained(uv_timer_t *timer);
static void close_all(void);

int main(int argc, char **argv)
{
    int code = settings_read(argc, argv);
    if (code >= 0)
        return code;
    if (!detach_begin())
        return 1;
    harden();
    bool opened = uv_loop_init(&proxy.loop) == 0 && open_all();
    if (opened) {
        journal_event("started", "version", PROXY_VERSION);
        proxy_idle_changed();
        detach_done();
    } else {
        exit_code = 1;
        close_all();
    }
    uv_run(&proxy.loop, UV_RUN_DEFAULT);
    uv_loop_close(&proxy.loop);
    own_close();
    settings_forget();
    return exit_code;
}

/* Secrets are to be in no core file, in no swap, and readable by no other process of the user's. */
static void harden(void)
{
    static const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    signal(SIGPIPE, SIG_IGN);
    raise_limit(RLIMIT_NOFILE);
    /* Pages are locked as they are touched: it costs nothing. Where it is not allowed, each secret
       is locked by itself. */
    if (raise_limit(RLIMIT_MEMLOCK))
        (void)mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}

/* As far as it may go. Whether that is all there is. */
static bool raise_limit(__rlimit_resource_t resource)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) < 0)
        return false;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(resource, &limit);
    return limit.rlim_max == RLIM_INFINITY;
}

static bool open_all(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    uv_timer_init(&proxy.loop, &ending);
    uv_timer_init(&proxy.loop, &idling);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uv_signal_init(&proxy.loop, &signals[i]);
        uv_signal_start(&signals[i], signalled, numbers[i]);
    }
    if (!deadlines_open(&proxy.loop) || !registry_open() || !own_open()) {
        fputs("sandbox-egress-proxy: no memory\n", stderr);
        return false;
    }
    return journal_open() && admin_open() && listeners_open();
}

static void signalled(uv_signal_t *handle, int number)
{
    if (number == SIGHUP)
        journal_reopen();
    else if (proxy.ending)
        close_all(); /* asked twice: at once */
    else
        proxy_end(0);
}

void proxy_idle_changed(void)
{
    bool needed = registry_count() > 0 || metrics.connections > 0;
    if (settings.idle_exit_ms == 0 || proxy.ending)
        return;
    if (needed)
        uv_timer_stop(&idling);
    else if (!uv_is_active((uv_handle_t *)&idling))
        uv_timer_start(&idling, idle_for_long, settings.idle_exit_ms, 0);
}

static void idle_for_long(uv_timer_t *timer)
{
    proxy_end(IDLE_EXIT_CODE);
}

void proxy_end(int code)
{
    exit_code = code;
    proxy.ending = true;
    uv_timer_stop(&idling);
    listeners_close();
    drained_by_ms = uv_now(&proxy.loop) + DRAIN_MS;
    uv_timer_start(&ending, look_whether_drained, 0, DRAIN_LOOK_MS);
}

static void look_whether_drained(uv_timer_t *timer)
{
    if (metrics.connections == 0 || uv_now(timer->loop) >= drained_by_ms)
        close_all();
}

static void close_all(void)
{
    static bool closed;
    if (closed)
        return;
    closed = proxy.ending = true;
    journal_event("ended", "code",
                  exit_code == IDLE_EXIT_CODE ? "100"
                  : exit_code == 0            ? "0"
                                              : "1");
    admin_close();
    listeners_close();
    registry_close();
    connections_close();
    lookups_close();
    exchanges_close();
    pipes_close();
    deadlines_close();
    uv_close((uv_handle_t *)&ending, NULL);
    uv_close((uv_handle_t *)&idling, NULL);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        uv_close((uv_handle_t *)&signals[i], NULL);
    journal_close();
}
