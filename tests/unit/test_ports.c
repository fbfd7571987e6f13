/*
 * Ports and forwards through the public API, with the real agent. The memory platform runs on
 * this machine, so the servers "inside" are threads of the test. The numbers like P125 are those
 * of the list of real-world faults.
 */

#include "work_place.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#define BULK (3 * MIB + 17)

/* A server that says `BULK` bytes after the client's end, echoing what came before it. */
struct server {
    int fd;
    uint16_t port;
    pthread_t thread;
    atomic_uint accepted;
    atomic_uint cut; /* connections that ended with an error */
};

static struct server server;

static uint8_t bulk_byte(size_t at)
{
    return (uint8_t)(at * 13 + at / 4099);
}

static int listen_anywhere(uint16_t *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    ck_assert(bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 64) == 0 &&
              getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static bool send_all(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

static void *serve_one(void *data)
{
    int fd = *(int *)data;
    free(data);
    uint8_t piece[65536];
    ssize_t size;
    while ((size = recv(fd, piece, sizeof piece, 0)) > 0) {
        if (!send_all(fd, piece, (size_t)size))
            size = -1;
        if (size < 0)
            break;
    }
    if (size < 0) {
        atomic_fetch_add(&server.cut, 1);
    } else {
        for (size_t at = 0; at < BULK && size == 0;) {
            size_t part = sizeof piece < BULK - at ? sizeof piece : BULK - at;
            for (size_t each = 0; each < part; each++)
                piece[each] = bulk_byte(at + each);
            size = send_all(fd, piece, part) ? 0 : -1;
            at += part;
        }
    }
    close(fd);
    return NULL;
}

static void *serve(void *data)
{
    for (;;) {
        int fd = accept4(server.fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return data;
        atomic_fetch_add(&server.accepted, 1);
        int *handed = malloc(sizeof *handed);
        *handed = fd;
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, serve_one, handed), 0);
        pthread_detach(thread);
    }
}

static void start_server(void)
{
    server.fd = listen_anywhere(&server.port);
    ck_assert_int_eq(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

static void stop_server(void)
{
    shutdown(server.fd, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.fd);
}

static uint16_t free_port(void)
{
    uint16_t port = 0;
    close(listen_anywhere(&port));
    return port;
}

static int connect_to(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {WAIT_MS / 1000, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static sandbox_forward *forward_to(uint16_t port, uint32_t max_connections)
{
    sandbox_forward_options options = {SANDBOX_FORWARD_OPTIONS, .port = port,
                                       .max_connections = max_connections};
    sandbox_forward *forward = NULL;
    good(sandbox_port_forward(workspace, &options, &soon, &forward, &error));
    ck_assert_uint_ne(sandbox_forward_host_port(forward), 0);
    return forward;
}

static bool echoes(int fd)
{
    uint8_t data[5] = {0};
    size_t got = 0;
    if (!send_all(fd, (const uint8_t *)"hello", 5))
        return false;
    while (got < 5) {
        ssize_t size = recv(fd, data + got, 5 - got, 0);
        if (size <= 0)
            return false;
        got += (size_t)size;
    }
    return memcmp(data, "hello", 5) == 0;
}

static void check_bulk(int fd)
{
    shutdown(fd, SHUT_WR);
    static uint8_t piece[65536];
    size_t total = 0;
    ssize_t size;
    bool right = true;
    while ((size = recv(fd, piece, sizeof piece, 0)) > 0) {
        for (size_t at = 0; at < (size_t)size; at++)
            right = right && piece[at] == bulk_byte(total + at);
        total += (size_t)size;
    }
    ck_assert_int_eq(size, 0);
    ck_assert(right);
    ck_assert_uint_eq(total, BULK);
}

/* ---- connections ---- */

START_TEST(what_listens_inside_is_listed)
{
    start_server();
    sandbox_port_list *list = NULL;
    good(sandbox_port_list_all(workspace, &soon, &list, &error));
    bool found = false;
    for (size_t index = 0; index < sandbox_port_list_count(list); index++) {
        const sandbox_port_info *info = sandbox_port_list_at(list, index);
        if (info->port == server.port)
            found = strcmp(info->address, "127.0.0.1") == 0;
    }
    ck_assert(found);
    ck_assert_ptr_null(sandbox_port_list_at(list, sandbox_port_list_count(list)));
    sandbox_port_list_free(list);
    stop_server();
}
END_TEST

START_TEST(a_connection_carries_both_ways_and_ends_each_alone_P125)
{
    start_server();
    sandbox_connection *connection = NULL;
    good(sandbox_port_dial(workspace, server.port, &soon, &connection, &error));
    int fd = sandbox_connection_descriptor(connection);
    ck_assert_int_ge(fd, 0);
    ck_assert(!is_readable(fd, 0));
    good(sandbox_connection_write(connection, "hello", 5, &soon, &error));
    ck_assert(is_readable(fd, WAIT_MS));
    const uint8_t *data = NULL;
    size_t size = 0;
    good(sandbox_connection_read(connection, &soon, &data, &size, &error));
    ck_assert_uint_eq(size, 5);
    ck_assert_mem_eq(data, "hello", 5);
    good(sandbox_connection_end_output(connection, &soon, &error));
    good(sandbox_connection_end_output(connection, &soon, &error));
    bad(SANDBOX_CLOSED, sandbox_connection_write(connection, "x", 1, &soon, &error));
    size_t total = 0;
    do {
        good(sandbox_connection_read(connection, &soon, &data, &size, &error));
        for (size_t at = 0; at < size; at++)
            ck_assert_uint_eq(data[at], bulk_byte(total + at));
        total += size;
    } while (size > 0);
    ck_assert_uint_eq(total, BULK);
    ck_assert(is_readable(fd, 0)); /* the end stays the end */
    good(sandbox_connection_read(connection, &soon, &data, &size, &error));
    ck_assert_uint_eq(size, 0);
    sandbox_connection_free(connection);
    stop_server();
}
END_TEST

START_TEST(a_port_that_nobody_listens_on_refuses)
{
    sandbox_connection *connection = NULL;
    bad(SANDBOX_NOT_FOUND,
        sandbox_port_dial(workspace, free_port(), &soon, &connection, &error));
    ck_assert_str_eq(error.reason, "connection-refused");
    bad(SANDBOX_INVALID, sandbox_port_dial(workspace, 0, &soon, &connection, &error));
    ck_assert_ptr_null(connection);
}
END_TEST

START_TEST(a_lost_connection_is_no_end)
{
    start_server();
    sandbox_connection *connection = NULL;
    good(sandbox_port_dial(workspace, server.port, &soon, &connection, &error));
    cut_connection();
    const uint8_t *data = NULL;
    size_t size = 0;
    bad(SANDBOX_UNAVAILABLE, sandbox_connection_read(connection, &soon, &data, &size, &error));
    sandbox_connection_free(connection);
    stop_server();
}
END_TEST

/* ---- forwards ---- */

START_TEST(a_forward_carries_both_ways_and_ends_each_alone_P125)
{
    start_server();
    sandbox_forward *forward = forward_to(server.port, 0);
    for (unsigned each = 0; each < 3; each++) {
        int fd = connect_to(sandbox_forward_host_port(forward));
        ck_assert(echoes(fd));
        check_bulk(fd);
        close(fd);
    }
    sandbox_forward_free(forward);
    stop_server();
}
END_TEST

static void *talk(void *data)
{
    int fd = connect_to(*(uint16_t *)data);
    bool right = echoes(fd);
    for (unsigned each = 0; each < 50 && right; each++)
        right = echoes(fd);
    shutdown(fd, SHUT_WR);
    size_t total = 0;
    uint8_t piece[8192];
    ssize_t size;
    while ((size = recv(fd, piece, sizeof piece, 0)) > 0)
        total += (size_t)size;
    close(fd);
    return right && total == BULK ? data : NULL;
}

START_TEST(many_connections_run_side_by_side)
{
    start_server();
    sandbox_forward *forward = forward_to(server.port, 0);
    uint16_t port = sandbox_forward_host_port(forward);
    pthread_t threads[24];
    for (unsigned each = 0; each < 24; each++)
        ck_assert_int_eq(pthread_create(&threads[each], NULL, talk, &port), 0);
    for (unsigned each = 0; each < 24; each++) {
        void *result = NULL;
        pthread_join(threads[each], &result);
        ck_assert_ptr_nonnull(result);
    }
    sandbox_forward_free(forward);
    stop_server();
}
END_TEST

START_TEST(bytes_wait_for_whoever_does_not_read)
{
    start_server();
    sandbox_forward *forward = forward_to(server.port, 0);
    int fd = connect_to(sandbox_forward_host_port(forward));
    /* Nobody reads the echo, so in the end nobody takes the bytes either. */
    static uint8_t piece[65536];
    size_t total = 0;
    struct pollfd watched = {fd, POLLOUT, 0};
    while (total < 256 * (size_t)MIB && poll(&watched, 1, 500) == 1) {
        ssize_t sent = send(fd, piece, sizeof piece, MSG_NOSIGNAL | MSG_DONTWAIT);
        ck_assert_int_gt(sent, 0);
        total += (size_t)sent;
    }
    ck_assert_uint_lt(total, 256 * (size_t)MIB);
    int other = connect_to(sandbox_forward_host_port(forward));
    ck_assert(echoes(other)); /* and it stops only itself */
    close(other);
    shutdown(fd, SHUT_WR);
    size_t echoed = 0;
    ssize_t size;
    while ((size = recv(fd, piece, sizeof piece, 0)) > 0)
        echoed += (size_t)size;
    ck_assert_uint_eq(echoed, total + BULK);
    close(fd);
    sandbox_forward_free(forward);
    stop_server();
}
END_TEST

START_TEST(a_refusal_inside_closes_the_connection_here)
{
    sandbox_forward *forward = forward_to(free_port(), 0);
    int fd = connect_to(sandbox_forward_host_port(forward));
    uint8_t byte;
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
    close(fd);
    sandbox_forward_free(forward);
}
END_TEST

START_TEST(freeing_a_forward_cuts_everything_P040)
{
    start_server();
    sandbox_forward *forward = forward_to(server.port, 0);
    uint16_t port = sandbox_forward_host_port(forward);
    int fds[10];
    for (unsigned each = 0; each < 10; each++) {
        fds[each] = connect_to(port);
        ck_assert(echoes(fds[each]));
    }
    sandbox_forward_free(forward);
    unsigned accepted = atomic_load(&server.accepted);
    for (unsigned each = 0; each < 10; each++) {
        uint8_t byte;
        (void)send(fds[each], "x", 1, MSG_NOSIGNAL);
        ck_assert_int_le(recv(fds[each], &byte, 1, 0), 0);
        close(fds[each]);
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_ne(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    ck_assert_uint_eq(atomic_load(&server.accepted), accepted);
    stop_server();
}
END_TEST

START_TEST(a_forward_goes_on_after_a_lost_session_P173)
{
    start_server();
    sandbox_forward *forward = forward_to(server.port, 0);
    int fd = connect_to(sandbox_forward_host_port(forward));
    ck_assert(echoes(fd));
    cut_connection();
    uint8_t byte;
    ck_assert_int_lt(recv(fd, &byte, 1, 0), 0); /* a reset, not an end */
    close(fd);
    fd = connect_to(sandbox_forward_host_port(forward));
    ck_assert(echoes(fd));
    close(fd);
    sandbox_forward_free(forward);
    stop_server();
}
END_TEST

START_TEST(more_connections_than_wanted_are_closed)
{
    start_server();
    sandbox_forward *forward = forward_to(server.port, 2);
    int first = connect_to(sandbox_forward_host_port(forward));
    int second = connect_to(sandbox_forward_host_port(forward));
    ck_assert(echoes(first) && echoes(second));
    int third = connect_to(sandbox_forward_host_port(forward));
    uint8_t byte;
    ck_assert_int_le(recv(third, &byte, 1, 0), 0);
    ck_assert(echoes(first));
    close(first);
    close(second);
    close(third);
    sandbox_forward_free(forward);
    stop_server();
}
END_TEST

START_TEST(a_forward_that_cannot_be_is_refused)
{
    sandbox_forward *forward = NULL;
    sandbox_forward_options options = {SANDBOX_FORWARD_OPTIONS};
    bad(SANDBOX_INVALID, sandbox_port_forward(workspace, &options, &soon, &forward, &error));
    options.port = 80;
    options.host_address = "example.com";
    bad(SANDBOX_INVALID, sandbox_port_forward(workspace, &options, &soon, &forward, &error));
    options.host_address = NULL;
    int fd = listen_anywhere(&options.host_port);
    bad(SANDBOX_EXISTS, sandbox_port_forward(workspace, &options, &soon, &forward, &error));
    ck_assert_str_eq(error.reason, "port-taken");
    close(fd);
    ck_assert_ptr_null(forward);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        what_listens_inside_is_listed,
        a_connection_carries_both_ways_and_ends_each_alone_P125,
        a_port_that_nobody_listens_on_refuses,
        a_lost_connection_is_no_end,
        a_forward_carries_both_ways_and_ends_each_alone_P125,
        many_connections_run_side_by_side,
        bytes_wait_for_whoever_does_not_read,
        a_refusal_inside_closes_the_connection_here,
        freeing_a_forward_cuts_everything_P040,
        a_forward_goes_on_after_a_lost_session_P173,
        more_connections_than_wanted_are_closed,
        a_forward_that_cannot_be_is_refused,
    };
    return run_at_work("ports", tests, sizeof tests / sizeof tests[0]);
}
