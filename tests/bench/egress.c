/*
 * What tools/bench --part egress measures with: an origin, and a client that reaches it straight or
 * through a proxy. Every connection begins with a ClientHello, so that all ways carry the same.
 *
 *     egress origin ADDRESS PORT
 *     egress setup WAY THREADS COUNT    tunnels one after the other: rate, median and 99th µs
 *     egress trip WAY COUNT             one byte there and back in one tunnel: median µs
 *     egress down WAY SECONDS           one tunnel's bytes: MB/s
 *     egress hold WAY COUNT             opens idle tunnels, says "held", waits for its input's end
 *     egress http WAY THREADS SECONDS TARGET FIELD   requests on kept connections: rate, median µs
 *
 * WAY: ADDRESS PORT NAME KEY HELLO. NAME "-": that is the origin itself, else the host for CONNECT.
 * KEY "-": no first line. HELLO: the ClientHello's file.
 */

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256
#define BLOCK       (256u << 10)

static struct sockaddr_in place;
static char first_line[128], connect_head[512], hello[4096], request[1024];
static size_t hello_size;
static atomic_uint taken, failed;
static unsigned count;
static double *times, deadline;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool send_all(int fd, const void *data, size_t size)
{
    const char *next = data;
    while (size > 0) {
        ssize_t more = send(fd, next, size, MSG_NOSIGNAL);
        if (more <= 0)
            return false;
        next += more;
        size -= (size_t)more;
    }
    return true;
}

static bool take_all(int fd, void *data, size_t size)
{
    return recv(fd, data, size, MSG_WAITALL) == (ssize_t)size;
}

/* Ends with a reset, so that thousands of closed connections do not wait in the kernel. */
static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct linger at_once = {1, 0};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (connect(fd, (struct sockaddr *)&place, sizeof place) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Reads up to the empty line; what comes after it stays in the socket. */
static bool read_head(int fd, char *head, size_t room)
{
    size_t size = 0;
    while (size + 1 < room) {
        ssize_t more = recv(fd, head + size, room - 1 - size, MSG_PEEK);
        if (more <= 0)
            return false;
        head[size + (size_t)more] = 0;
        char *end = strstr(head, "\r\n\r\n");
        size_t wanted = end == NULL ? (size_t)more : (size_t)(end + 4 - head) - size;
        if (!take_all(fd, head + size, wanted))
            return false;
        size += wanted;
        head[size] = 0;
        if (end != NULL)
            return true;
    }
    return false;
}

/* A tunnel whose origin was told what to do; -1 if there is none. */
static int tunnel(char work)
{
    char head[4096], start[640];
    int fd = dial();
    if (fd < 0)
        return -1;
    bool good = true;
    if (connect_head[0] != 0) {
        int size = snprintf(start, sizeof start, "%s%s", first_line, connect_head);
        good = send_all(fd, start, (size_t)size) && read_head(fd, head, sizeof head) &&
               strncmp(head + 8, " 200", 4) == 0;
    }
    hello[hello_size] = work;
    if (good && send_all(fd, hello, hello_size + 1))
        return fd;
    close(fd);
    return -1;
}

static void *serve(void *given)
{
    static _Thread_local char memory[BLOCK];
    int fd = (int)(long)given;
    unsigned char head[5];
    if (!take_all(fd, head, 5) || !take_all(fd, memory, (size_t)(head[3] << 8 | head[4])) ||
        !take_all(fd, memory, 1)) {
        close(fd);
        return NULL;
    }
    ssize_t size;
    if (memory[0] == 'H')
        return NULL; /* held, by nobody */
    if (memory[0] == 'S')
        while (send_all(fd, memory, sizeof memory))
            continue;
    while ((size = recv(fd, memory, sizeof memory, 0)) > 0)
        send_all(fd, memory, (size_t)size);
    close(fd);
    return NULL;
}

static int origin(void)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&place, sizeof place) != 0 || listen(listener, 4096) != 0)
        return 1;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1u << 19);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        pthread_t thread;
        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (pthread_create(&thread, &attributes, serve, (void *)(long)fd) != 0)
            close(fd);
    }
}

static void *set_up(void *unused)
{
    for (unsigned mine; (mine = atomic_fetch_add(&taken, 1)) < count;) {
        double begin = now();
        char byte = 'z';
        int fd = tunnel('E');
        if (fd < 0 || !send_all(fd, &byte, 1) || !take_all(fd, &byte, 1))
            atomic_fetch_add(&failed, 1);
        times[mine] = now() - begin;
        if (fd >= 0)
            close(fd);
    }
    return unused;
}

static int compare(const void *one, const void *other)
{
    double first = *(const double *)one, second = *(const double *)other;
    return first < second ? -1 : first > second;
}

static void run_threads(unsigned number, void *(*work)(void *))
{
    pthread_t threads[THREADS_MAX];
    for (unsigned i = 0; i < number; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (unsigned i = 0; i < number; i++)
        pthread_join(threads[i], NULL);
}

static void print_times(unsigned number, double seconds)
{
    qsort(times, number, sizeof *times, compare);
    printf("%.0f %.1f %.1f %u\n", number / seconds, times[number / 2] * 1e6,
           times[number * 99ul / 100] * 1e6, atomic_load(&failed));
}

static int trip(void)
{
    char byte = 'z';
    int fd = tunnel('E');
    if (fd < 0)
        return 1;
    for (unsigned i = 0; i < count; i++) {
        double begin = now();
        if (!send_all(fd, &byte, 1) || !take_all(fd, &byte, 1))
            return 1;
        times[i] = now() - begin;
    }
    print_times(count, 1);
    return 0;
}

static int down(double seconds)
{
    static char memory[BLOCK];
    int fd = tunnel('S');
    double begin = now(), bytes = 0;
    if (fd < 0)
        return 1;
    while (now() - begin < seconds) {
        ssize_t size = recv(fd, memory, sizeof memory, 0);
        if (size <= 0)
            return 1;
        bytes += (double)size;
    }
    printf("%.1f\n", bytes / (now() - begin) / 1e6);
    return 0;
}

static int hold(void)
{
    unsigned held = 0;
    for (unsigned i = 0; i < count; i++)
        held += tunnel('H') >= 0;
    printf("held %u\n", held);
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
    return 0;
}

/* One answer with a Content-Length or in chunks; nothing comes after it before the next request. */
static bool take_answer(int fd)
{
    char head[4096], body[4096];
    if (!read_head(fd, head, sizeof head) || strncmp(head + 8, " 200", 4) != 0)
        return false;
    for (char *line = strchr(head, '\n'); line != NULL; line = strchr(line + 1, '\n')) {
        if (strncasecmp(line + 1, "content-length:", 15) == 0) {
            unsigned long size = strtoul(line + 16, NULL, 10);
            return size <= sizeof body && take_all(fd, body, size);
        }
    }
    size_t size = 0;
    while (size < 5 || memcmp(body + size - 5, "0\r\n\r\n", 5) != 0) {
        ssize_t more = recv(fd, body + size, sizeof body - size, 0);
        if (more <= 0)
            return false;
        size += (size_t)more;
    }
    return true;
}

static void *ask(void *unused)
{
    int fd = dial();
    if (fd < 0 || !send_all(fd, first_line, strlen(first_line))) {
        atomic_fetch_add(&failed, 1);
        return unused;
    }
    while (now() < deadline) {
        double begin = now();
        if (!send_all(fd, request, strlen(request)) || !take_answer(fd)) {
            atomic_fetch_add(&failed, 1);
            break;
        }
        unsigned mine = atomic_fetch_add(&taken, 1);
        if (mine < count)
            times[mine] = now() - begin;
    }
    close(fd);
    return unused;
}

static bool read_way(char **words)
{
    place.sin_family = AF_INET;
    place.sin_port = htons((uint16_t)strtoul(words[1], NULL, 10));
    inet_pton(AF_INET, words[0], &place.sin_addr);
    if (strcmp(words[2], "-") != 0)
        snprintf(connect_head, sizeof connect_head,
                 "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", words[2], words[2]);
    if (strcmp(words[3], "-") != 0)
        snprintf(first_line, sizeof first_line, "SANDBOX-EGRESS/1 %s\r\n", words[3]);
    FILE *file = fopen(words[4], "rbe");
    if (file == NULL)
        return false;
    hello_size = fread(hello, 1, sizeof hello - 1, file);
    fclose(file);
    return hello_size > 0;
}

static int measure(const char *what, char **words, int words_count)
{
    unsigned long number = words_count > 0 ? strtoul(words[0], NULL, 10) : 0;
    unsigned threads = (unsigned)(number < THREADS_MAX ? number : THREADS_MAX);
    count = (unsigned)(words_count == 2 ? strtoul(words[1], NULL, 10) : number);
    if (strcmp(what, "http") == 0)
        count = 1u << 22;
    times = calloc(count + 1, sizeof *times);
    double begin = now();
    if (strcmp(what, "setup") == 0) {
        run_threads(threads, set_up);
        print_times(count, now() - begin);
        return 0;
    }
    if (strcmp(what, "trip") == 0)
        return trip();
    if (strcmp(what, "hold") == 0)
        return hold();
    if (strcmp(what, "down") == 0)
        return down(strtod(words[0], NULL));
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: bench\r\n%s\r\n\r\n", words[2],
             words[3]);
    deadline = begin + strtod(words[1], NULL);
    run_threads(threads, ask);
    print_times(atomic_load(&taken), now() - begin);
    return 0;
}

int main(int words_count, char **words)
{
    signal(SIGPIPE, SIG_IGN);
    if (words_count == 4 && strcmp(words[1], "origin") == 0) {
        place.sin_family = AF_INET;
        place.sin_port = htons((uint16_t)strtoul(words[3], NULL, 10));
        inet_pton(AF_INET, words[2], &place.sin_addr);
        return origin();
    }
    if (words_count < 8 || !read_way(words + 2))
        return 2;
    return measure(words[1], words + 7, words_count - 7);
}
