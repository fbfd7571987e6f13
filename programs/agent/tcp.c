/* The agent's TCP address and those who have not proven themselves yet: see tcp.h. */

#include "tcp.h"
#include "connection.h"
#include "guard_state.h"
#include "loop.h"
#include "util/memory.h"
#include "util/proof.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GREETINGS_MAX 16u
#define GREETING_MS   5000u
#define KEEP_ALIVE_S  60u

/* A connection before its client has proven that it knows the token. */
struct agent_greeting {
    struct agent_connection *connection;
    struct agent_timer *deadline;
    struct sbx_proof proof;
    uint8_t address[SBX_PROOF_ADDRESS];
    uint8_t bytes[SBX_PROOF_HELLO];
    size_t have, wanted;
    bool answered;
    struct agent_greeting *next;
};

static union agent_tcp_address place; /* of the family AF_UNSPEC: none was given */
static uv_tcp_t *listener;
static uint8_t key[SBX_DIGEST_BYTES];
static bool has_key;
static struct agent_greeting *greetings;
static unsigned greeting_count;

static void cut_all(void);
static void on_connection(uv_stream_t *stream, int status);
static bool greet(struct agent_connection *connection);
static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room);
static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *room);
static bool answer(struct agent_greeting *greeting);
static bool welcome(struct agent_greeting *greeting);
static void on_deadline(void *user_data);
static void refuse(struct agent_greeting *greeting);
static void end_greeting(struct agent_greeting *greeting);
static void on_closed(uv_handle_t *handle);

bool agent_tcp_configure(const char *text)
{
    return agent_tcp_address_read(text, &place);
}

bool agent_tcp_address_read(const char *text, union agent_tcp_address *out)
{
    union agent_tcp_address read = {.any.sa_family = AF_UNSPEC};
    char address[INET6_ADDRSTRLEN] = "", end = '\0';
    unsigned port = 0;
    const char *colon = strrchr(text, ':');
    bool is_v6 = text[0] == '[';
    const char *begin = text + is_v6, *stop = colon == NULL ? text : colon - is_v6;
    if (stop <= begin || (size_t)(stop - begin) >= sizeof address || (is_v6 && *stop != ']') ||
        sscanf(colon + 1, "%5u%c", &port, &end) != 1 || port == 0 || port > UINT16_MAX)
        return false;
    memcpy(address, begin, (size_t)(stop - begin));
    if ((is_v6 ? uv_ip6_addr(address, (int)port, &read.v6)
               : uv_ip4_addr(address, (int)port, &read.v4)) != 0)
        return false;
    *out = read;
    return true;
}

unsigned agent_tcp_port(void)
{
    /* At the same place in both. */
    return listener == NULL ? 0 : ntohs(place.v4.sin_port);
}

void agent_tcp_open(const uint8_t new_key[SBX_DIGEST_BYTES])
{
    if (place.any.sa_family == AF_UNSPEC)
        return;
    if (has_key && !sbx_equal_secret(key, new_key, sizeof key))
        cut_all();
    memcpy(key, new_key, sizeof key);
    has_key = true;
    agent_tcp_open_again();
}

static int listen_on(uv_tcp_t *socket)
{
    int problem = uv_tcp_init(agent_loop(), socket);
    if (problem != 0)
        return problem;
    problem = uv_tcp_bind(socket, &place.any, 0);
    /* Every address, on a machine without IPv6. */
    bool is_any = place.any.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&place.v6.sin6_addr);
    if (problem == UV_EAFNOSUPPORT && is_any) {
        struct sockaddr_in all = {.sin_family = AF_INET, .sin_port = place.v6.sin6_port};
        problem = uv_tcp_bind(socket, (const struct sockaddr *)&all, 0);
    }
    return problem == 0 ? uv_listen((uv_stream_t *)socket, GREETINGS_MAX, on_connection) : problem;
}

void agent_tcp_open_again(void)
{
    if (!has_key || listener != NULL)
        return;
    uv_tcp_t *fresh = calloc(1, sizeof *fresh);
    int problem = fresh == NULL ? UV_ENOMEM : listen_on(fresh);
    if (problem == 0) {
        listener = fresh;
        return;
    }
    fprintf(stderr, "sandbox-agent: cannot listen on TCP port %u: %s\n", ntohs(place.v4.sin_port),
            uv_strerror(problem));
    if (fresh != NULL)
        uv_close((uv_handle_t *)fresh, on_closed);
}

void agent_tcp_close(void)
{
    if (listener != NULL)
        uv_close((uv_handle_t *)sbx_take(listener), on_closed);
    cut_all();
}

static void cut_all(void)
{
    while (greetings != NULL)
        refuse(greetings);
    for (struct agent_connection *at = agent_connections(); at != NULL; at = at->next) {
        if (at->over_tcp)
            agent_connection_reset(at);
    }
}

void agent_tcp_forget_key(void)
{
    sbx_wipe(key, sizeof key);
    has_key = false;
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct agent_connection *connection = status < 0 ? NULL : agent_connection_new(true);
    if (connection == NULL)
        return;
    if (uv_accept(stream, &connection->peer.stream) != 0 || !greet(connection))
        agent_connection_reset(connection);
}

/* One that came too late is sent away: it may come again, whoever is at it has little time. */
static bool greet(struct agent_connection *connection)
{
    struct sockaddr_storage own;
    int size = sizeof own;
    struct agent_greeting *greeting =
        greeting_count < GREETINGS_MAX ? calloc(1, sizeof *greeting) : NULL;
    if (greeting == NULL)
        return false;
    greeting->connection = connection;
    greeting->wanted = SBX_PROOF_HELLO;
    greeting->next = greetings;
    greetings = connection->greeting = greeting;
    greeting_count++;
    uv_tcp_nodelay(&connection->peer.tcp, 1);
    uv_tcp_keepalive(&connection->peer.tcp, 1, KEEP_ALIVE_S);
    if (uv_tcp_getsockname(&connection->peer.tcp, (struct sockaddr *)&own, &size) == 0 &&
        sbx_proof_address((struct sockaddr *)&own, greeting->address) &&
        agent_timer_start(&greeting->deadline, GREETING_MS, on_deadline, greeting) &&
        uv_read_start(&connection->peer.stream, give_room, on_read) == 0)
        return true;
    end_greeting(greeting);
    return false;
}

/* Never more than the message that is awaited: what follows it is not ours. */
static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    struct agent_greeting *greeting = ((struct agent_connection *)handle->data)->greeting;
    *room = uv_buf_init((char *)greeting->bytes + greeting->have,
                        (unsigned)(greeting->wanted - greeting->have));
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *room)
{
    struct agent_greeting *greeting = ((struct agent_connection *)stream->data)->greeting;
    if (size < 0) {
        refuse(greeting);
        return;
    }
    greeting->have += (size_t)size;
    if (greeting->have < greeting->wanted)
        return;
    if (!(greeting->answered ? welcome(greeting) : answer(greeting)))
        refuse(greeting);
}

static bool answer(struct agent_greeting *greeting)
{
    uint8_t bytes[SBX_PROOF_ANSWER];
    if (!sbx_proof_answer(&greeting->proof, key, agent_guard.workspace_id, greeting->address,
                          greeting->bytes, bytes))
        return false;
    greeting->answered = true;
    greeting->have = 0;
    greeting->wanted = SBX_PROOF_FINISH;
    /* Nothing was written before it, so there is room for it. */
    uv_buf_t piece = uv_buf_init((char *)bytes, sizeof bytes);
    return uv_try_write(&greeting->connection->peer.stream, &piece, 1) == (int)sizeof bytes;
}

static bool welcome(struct agent_greeting *greeting)
{
    struct agent_connection *connection = greeting->connection;
    if (!sbx_proof_check(&greeting->proof, greeting->bytes) ||
        !sbx_proof_pass(&greeting->proof, connection->pass))
        return false;
    uv_read_stop(&connection->peer.stream);
    end_greeting(greeting);
    agent_connection_begin(connection);
    return true;
}

static void on_deadline(void *user_data)
{
    refuse(user_data);
}

/* Without a word, whatever was wrong. */
static void refuse(struct agent_greeting *greeting)
{
    struct agent_connection *connection = greeting->connection;
    end_greeting(greeting);
    agent_connection_reset(connection);
}

static void end_greeting(struct agent_greeting *greeting)
{
    struct agent_greeting **link = &greetings;
    while (*link != greeting)
        link = &(*link)->next;
    *link = greeting->next;
    greeting_count--;
    greeting->connection->greeting = NULL;
    agent_timer_stop(&greeting->deadline);
    sbx_wipe(greeting, sizeof *greeting);
    free(greeting);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle);
}
