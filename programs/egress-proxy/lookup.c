/* Where a host is, asked with c-ares on the loop: see lookup.h. */

#include "lookup.h"
#include "own.h"
#include "proxy.h"
#include "settings.h"
#include <ares.h>
#include <stdlib.h>
#include <string.h>

#define PENDING_MAX 1024
#define TRY_MS      2000
#define TRIES       3
#define TICK_MS     250

/* One of c-ares' sockets. It is c-ares that closes the descriptor. */
struct asking {
    uv_poll_t poll;
    int fd;
    struct asking *next;
};

static struct {
    ares_channel channel;
    uv_timer_t tick;
    struct asking *sockets;
    unsigned pending;
    bool is_open, closing;
} resolver;

static bool find_pin(struct lookup *lookup, const char *host);
static void add(struct lookup *lookup, const union address *address);
static bool open_resolver(void);
static void ask(struct lookup *lookup, const char *host);
static void answered(void *lookup, int status, int timeouts, struct ares_addrinfo *found);
static void settle(struct lookup *lookup, int status, const struct ares_addrinfo *found);
static void socket_changed(void *unused, ares_socket_t fd, int readable, int writable);
static void socket_ready(uv_poll_t *poll, int status, int events);
static void socket_gone(uv_handle_t *handle);
static void tick(uv_timer_t *timer);

struct lookup *lookup_start(const char *host, unsigned port, void (*done)(struct lookup *lookup),
                            void *owner)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return NULL;
    lookup->port = port;
    lookup->done = done;
    lookup->owner = owner;
    if (find_pin(lookup, host))
        return lookup;
    if (resolver.pending >= PENDING_MAX || !open_resolver())
        lookup->outcome = LOOKUP_FAILED;
    else
        ask(lookup, host);
    return lookup;
}

void lookup_free(struct lookup *lookup)
{
    if (lookup == NULL)
        return;
    if (lookup->outcome == LOOKUP_PENDING)
        lookup->owner = NULL;
    else
        free(lookup);
}

bool lookup_is_good(const struct lookup *lookup, enum reason *reason)
{
    if (lookup->outcome == LOOKUP_PRIVATE)
        *reason = REASON_PRIVATE_ADDRESS;
    else if (lookup->outcome == LOOKUP_NOT_FOUND)
        *reason = REASON_NAME_NOT_FOUND;
    else
        *reason = REASON_UPSTREAM_FAILED;
    return lookup->outcome == LOOKUP_FOUND;
}

void lookups_close(void)
{
    if (!resolver.is_open)
        return;
    resolver.closing = true;
    ares_destroy(resolver.channel);
    ares_library_cleanup();
    uv_close((uv_handle_t *)&resolver.tick, NULL);
    resolver.is_open = false;
}

/* An address as a host, or a name that the operator gave one. */
static bool find_pin(struct lookup *lookup, const char *host)
{
    union address address;
    bool known = address_parse(host, &address);
    for (size_t i = 0; i < settings.pin_count && !known; i++) {
        known = strcmp(settings.pins[i].host, host) == 0;
        if (known)
            address = settings.pins[i].address;
    }
    if (!known)
        return false;
    lookup->outcome = LOOKUP_PRIVATE;
    add(lookup, &address);
    return true;
}

static void add(struct lookup *lookup, const union address *address)
{
    if (lookup->count == LOOKUP_ADDRESSES || !own_address_is_open(address))
        return;
    lookup->addresses[lookup->count] = *address;
    address_set_port(&lookup->addresses[lookup->count++], lookup->port);
    lookup->outcome = LOOKUP_FOUND;
}

/* At the first name: a proxy that has nobody to ask for needs no resolver. */
static bool open_resolver(void)
{
    if (resolver.is_open)
        return true;
    struct ares_options options = {
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
        .timeout = TRY_MS,
        .tries = TRIES,
        .sock_state_cb = socket_changed,
    };
    int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB;
    static char from_servers[] = "b";
    if (settings.resolvers != NULL) {
        options.lookups = from_servers; /* this machine's own list of hosts is not asked */
        mask |= ARES_OPT_LOOKUPS;
    }
    if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS)
        return false;
    if (ares_init_options(&resolver.channel, &options, mask) != ARES_SUCCESS) {
        ares_library_cleanup();
        return false;
    }
    if (settings.resolvers != NULL &&
        ares_set_servers_csv(resolver.channel, settings.resolvers) != ARES_SUCCESS) {
        ares_destroy(resolver.channel);
        ares_library_cleanup();
        return false;
    }
    uv_timer_init(&proxy.loop, &resolver.tick);
    resolver.is_open = true;
    return true;
}

static void ask(struct lookup *lookup, const char *host)
{
    static const struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC,
                                                     .ai_socktype = SOCK_STREAM};
    resolver.pending++;
    if (resolver.pending == 1)
        uv_timer_start(&resolver.tick, tick, TICK_MS, TICK_MS);
    /* What is answered at once is settled before the caller goes on: `done` is not called. */
    void (*done)(struct lookup *) = lookup->done;
    lookup->done = NULL;
    ares_getaddrinfo(resolver.channel, host, NULL, &hints, answered, lookup);
    lookup->done = done;
}

static void answered(void *user_data, int status, int timeouts, struct ares_addrinfo *found)
{
    struct lookup *lookup = user_data;
    resolver.pending--;
    if (resolver.pending == 0 && !resolver.closing)
        uv_timer_stop(&resolver.tick);
    settle(lookup, status, found);
    if (found != NULL)
        ares_freeaddrinfo(found);
    if (lookup->owner == NULL)
        free(lookup);
    else if (lookup->done != NULL)
        lookup->done(lookup);
}

static void settle(struct lookup *lookup, int status, const struct ares_addrinfo *found)
{
    if (status == ARES_ENOTFOUND || status == ARES_ENODATA || status == ARES_EBADNAME)
        lookup->outcome = LOOKUP_NOT_FOUND;
    else
        lookup->outcome = status == ARES_SUCCESS ? LOOKUP_NOT_FOUND : LOOKUP_FAILED;
    if (status != ARES_SUCCESS || found == NULL)
        return;
    for (const struct ares_addrinfo_node *node = found->nodes; node != NULL; node = node->ai_next) {
        union address address = {.any = {0}};
        if (node->ai_family != AF_INET && node->ai_family != AF_INET6)
            continue;
        memcpy(&address, node->ai_addr, node->ai_addrlen);
        if (lookup->outcome == LOOKUP_NOT_FOUND)
            lookup->outcome = LOOKUP_PRIVATE;
        add(lookup, &address);
    }
}

static void socket_changed(void *unused, ares_socket_t fd, int readable, int writable)
{
    struct asking **place = &resolver.sockets;
    while (*place != NULL && (*place)->fd != fd)
        place = &(*place)->next;
    struct asking *asking = *place;
    if (!readable && !writable) {
        if (asking == NULL)
            return;
        *place = asking->next;
        uv_close((uv_handle_t *)&asking->poll, socket_gone);
        return;
    }
    if (asking == NULL) {
        asking = calloc(1, sizeof *asking);
        if (asking == NULL || uv_poll_init(&proxy.loop, &asking->poll, fd) != 0) {
            free(asking);
            return; /* it times out */
        }
        asking->fd = fd;
        asking->poll.data = asking;
        asking->next = resolver.sockets;
        resolver.sockets = asking;
    }
    uv_poll_start(&asking->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0),
                  socket_ready);
}

static void socket_ready(uv_poll_t *poll, int status, int events)
{
    const struct asking *asking = poll->data;
    int fd = asking->fd;
    bool failed = status < 0;
    ares_process_fd(resolver.channel, failed || (events & UV_READABLE) ? fd : ARES_SOCKET_BAD,
                    failed || (events & UV_WRITABLE) ? fd : ARES_SOCKET_BAD);
}

static void socket_gone(uv_handle_t *handle)
{
    free(handle->data);
}

static void tick(uv_timer_t *timer)
{
    ares_process_fd(resolver.channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}
