/* Where workspaces connect to: see listener.h. */

#include "listener.h"
#include "connection.h"
#include "deadline.h"
#include "journal.h"
#include "proxy.h"
#include "settings.h"
#include "util/fail.h"
#include "util/memory.h"
#include "watch.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG      4096
#define ACCEPTS_MAX  64 /* in one turn, so that open connections have theirs */
#define BREATHING_MS 100

struct listener {
    struct watch watch;
    struct deadline pause; /* when there are no descriptors left */
    struct workspace *workspace;
    char *path;
};

static struct listener *shared[LISTENERS_MAX];

static struct listener *start(int fd, struct workspace *workspace);
static bool clear_path(const union address *address);
static void someone_comes(struct watch *watch, int events, bool failed);
static void take(struct listener *listener, int fd, const union address *from);
static void go_on(struct deadline *deadline);
static void gone(struct watch *watch);

bool listeners_open(void)
{
    for (size_t i = 0; i < settings.listen_count; i++) {
        int fd = listen_on(&settings.listen[i]);
        shared[i] = fd < 0 ? NULL : start(fd, NULL);
        if (shared[i] == NULL) {
            char text[ADDRESS_TEXT];
            address_print(&settings.listen[i], text);
            fprintf(stderr, "sandbox-egress-proxy: --listen '%s': %s\n", text, strerror(errno));
            return false;
        }
    }
    return true;
}

void listeners_close(void)
{
    for (size_t i = 0; i < LISTENERS_MAX; i++)
        listener_free(sbx_take(shared[i]));
}

sandbox_status listener_replace(struct workspace *workspace, struct listener *former,
                                sandbox_error *error)
{
    const union address *address = &workspace->source;
    char *path = sbx_copy(address->local.sun_path);
    if (path == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a listener");
    /* The path stays; only who answers behind it changes. */
    if (former != NULL) {
        free(path);
        former->workspace = workspace;
        workspace->listener = former;
        return SANDBOX_OK;
    }
    int fd = listen_on(address);
    if (fd < 0) {
        free(path);
        return errno == EADDRINUSE
                   ? sbx_fail_for(error, SANDBOX_EXISTS, "in-use",
                                  "the socket's path is in use by somebody else")
                   : sbx_fail(error, SANDBOX_INVALID, "'source': cannot listen on the socket: %s",
                              strerror(errno));
    }
    workspace->listener = start(fd, workspace);
    if (workspace->listener == NULL) {
        unlink(path);
        free(path);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a listener");
    }
    workspace->listener->path = path;
    return SANDBOX_OK;
}

int listen_on(const union address *address)
{
    int one = 1, family = address->any.sa_family;
    if (family == AF_UNIX && !clear_path(address))
        return -1;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (family != AF_UNIX)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    mode_t before = umask(0177);
    bool worked = bind(fd, &address->any, address_size(address)) == 0 && listen(fd, BACKLOG) == 0;
    int error = errno;
    umask(before);
    if (!worked) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* A socket that nobody answers on was left by a proxy that was killed. Anything else is not ours.
 */
static bool clear_path(const union address *address)
{
    struct stat found;
    if (lstat(address->local.sun_path, &found) < 0)
        return errno == ENOENT;
    errno = EADDRINUSE;
    if (!S_ISSOCK(found.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool dead =
        fd >= 0 && connect(fd, &address->any, address_size(address)) < 0 && errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    if (!dead)
        errno = EADDRINUSE;
    return dead && unlink(address->local.sun_path) == 0;
}

static struct listener *start(int fd, struct workspace *workspace)
{
    struct listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL) {
        close(fd);
        return NULL;
    }
    listener->workspace = workspace;
    if (!watch_open(&listener->watch, fd, someone_comes)) {
        free(listener);
        return NULL;
    }
    watch_want(&listener->watch, UV_READABLE);
    return listener;
}

static void someone_comes(struct watch *watch, int events, bool failed)
{
    struct listener *listener = (struct listener *)watch;
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        union address from = {.any = {0}};
        socklen_t size = sizeof from;
        int fd = accept4(watch->fd, &from.any, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            take(listener, fd, &from);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            journal_event("no-descriptors", "error", strerror(errno));
            watch_want(watch, 0);
            deadline_set(&listener->pause, DEADLINE_LINGER, BREATHING_MS, go_on);
        }
        if (errno != ECONNABORTED && errno != EINTR)
            return;
    }
}

static void take(struct listener *listener, int fd, const union address *from)
{
    int one = 1;
    struct workspace *workspace = listener->workspace;
    if (workspace == NULL) {
        union address source = *from;
        address_unmap(&source);
        workspace = registry_find_source(&source);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    }
    connection_begin(fd, workspace);
}

static void go_on(struct deadline *deadline)
{
    struct listener *listener =
        (struct listener *)((char *)deadline - offsetof(struct listener, pause));
    watch_want(&listener->watch, UV_READABLE);
}

void listener_free(struct listener *listener)
{
    if (listener == NULL)
        return;
    if (listener->path != NULL)
        unlink(listener->path);
    free(sbx_take(listener->path));
    deadline_clear(&listener->pause);
    watch_close(&listener->watch, gone);
}

static void gone(struct watch *watch)
{
    free((struct listener *)watch);
}
