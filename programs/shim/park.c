/*
 * Takes TCP sockets out of epoll sets when the agent asks for it, and puts them back: the sentry of
 * 2022 ends the sandbox if it is checkpointed while there are any (see shared/parking.h).
 *
 * What the program tells epoll_ctl() about TCP sockets is remembered; while they are out, it is
 * remembered only. Nothing is done to a program before its first epoll_ctl(): it has no handler and
 * shows no mark. A program that speaks to the kernel itself, as Go's do, never shows one either,
 * and that is right, since we would know nothing of its sockets.
 *
 * The lock is held with all signals blocked, so that neither our handler nor one of the program's
 * can come upon it in its own thread. doc/decisions/0009-parking.md says what all this cannot do.
 */

#include "kernel.h"
#include "shared/parking.h"
#include "table.h"
#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define EXPORTED         __attribute__((visibility("default")))
#define LOCK_SECONDS_MAX 5

/* The C library's, under names that are not ours. */
extern int __sigaction(int number, const struct sigaction *action, struct sigaction *before);

/* What a program tells the kernel. */
struct request {
    int set, operation, fd;
    struct epoll_event *event;
    uint64_t inode; /* of an ADD of a TCP socket, else 0 */
};

/* Data that is in the file, so that the map names the library beside it. */
static char marks[PARKING_REFUSES * PARKING_PAGE_BYTES]
    __attribute__((aligned(PARKING_PAGE_BYTES))) = {1};
static bool watching; /* the handler is ours */
static long owner;    /* whose it is */
/* A forked child does not get this page. One that shares our memory (vfork) has it. */
static char unforked[PARKING_PAGE_BYTES] __attribute__((aligned(PARKING_PAGE_BYTES)));
static bool lost;     /* a set may hold what the table does not know */
static bool parked, refused;
static uint32_t lock_word; /* 0: free, 1: held, 2: held, and others wait */
static bool lock_is_broken;

static void watch(void);
static void unwatch(void);
static bool is_borrowed(void);
static void on_signal(int number, siginfo_t *information, void *context);
static void park(void);
static bool has_one_shot(void);
static void put_back(void);
static void show(void);
static uint64_t inode_of_socket(int fd);
static uint64_t inode_of_tcp(int fd);
static long create(int flags);
static long control(const struct request *request);
static long control_and_note(const struct request *request);
static long note_only(const struct request *request);
static struct table_entry *note(const struct request *request);
static bool lock(uint64_t *mask);
static void unlock(uint64_t mask);

static int answer(long result)
{
    if (result >= 0)
        return (int)result;
    errno = (int)-result;
    return -1;
}

EXPORTED int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
    struct request request = {set, operation, fd, event, 0};
    uint64_t mask;
    if (!__atomic_load_n(&watching, __ATOMIC_RELAXED))
        watch();
    if (operation == EPOLL_CTL_ADD)
        request.inode = inode_of_tcp(fd);
    if ((request.inode == 0 && !table_may_know(fd)) || !lock(&mask))
        return answer(control(&request));
    long result = parked ? note_only(&request) : control_and_note(&request);
    unlock(mask);
    return answer(result);
}

EXPORTED int epoll_create1(int flags)
{
    return answer(create(flags));
}

EXPORTED int epoll_create(int size)
{
    return answer(size > 0 ? create(0) : -EINVAL);
}

/*
 * A program may use the number for itself. Then it gets what it wants, and cannot be parked. Hidden
 * twice, since another thread may look at the handler between the two.
 */
EXPORTED int sigaction(int number, const struct sigaction *restrict action,
                       struct sigaction *restrict before)
{
    bool takes = number == PARKING_SIGNAL && action != NULL && !is_borrowed();
    if (takes)
        unwatch();
    int result = __sigaction(number, action, before);
    if (takes)
        unwatch();
    return result;
}

EXPORTED sighandler_t signal(int number, sighandler_t handler)
{
    bool takes = number == PARKING_SIGNAL && !is_borrowed();
    if (takes)
        unwatch();
    sighandler_t before = ssignal(number, handler);
    if (takes)
        unwatch();
    return before;
}

/* At every epoll_ctl() while the handler is not ours. A default one kills: nobody wants that. */
static void watch(void)
{
    struct sigaction before,
        action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    uint64_t mask;
    if (__sigaction(PARKING_SIGNAL, NULL, &before) != 0)
        return;
    bool ours = (before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction == on_signal;
    if (!ours && (before.sa_handler != SIG_DFL || __sigaction(PARKING_SIGNAL, &action, NULL) != 0))
        return;
    if (!lock(&mask))
        return;
    owner = kernel_call(SYS_getpid, 0, 0, 0, 0, 0);
    kernel_call(SYS_madvise, kernel_address(unforked), sizeof unforked, MADV_DONTFORK, 0, 0);
    __atomic_store_n(&watching, true, __ATOMIC_RELAXED);
    show();
    unlock(mask);
}

static void unwatch(void)
{
    uint64_t mask;
    __atomic_store_n(&watching, false, __ATOMIC_RELAXED);
    if (!lock(&mask))
        return;
    put_back();
    unlock(mask);
}

/*
 * Whether who calls has our memory only until it becomes another program, and signal handlers of
 * its own. bun's children put all signals back before that; the parent's handler is still ours.
 */
static bool is_borrowed(void)
{
    uint64_t none = 0;
    return kernel_call(SYS_getpid, 0, 0, 0, 0, 0) != owner &&
           kernel_call(SYS_rt_sigprocmask, SIG_BLOCK, kernel_address(&none),
                       kernel_address(unforked), sizeof none, 0) == 0;
}

static void on_signal(int number, siginfo_t *information, void *context)
{
    uint64_t mask;
    if (information->si_code != SI_QUEUE || !lock(&mask))
        return;
    if (information->si_value.sival_int == PARKING_PARK)
        park();
    else if (information->si_value.sival_int == PARKING_UNPARK)
        put_back();
    unlock(mask);
}

static void park(void)
{
    if (parked)
        return;
    refused = lost || has_one_shot();
    for (struct table_entry *entry = refused ? NULL : table_next(NULL); entry != NULL;
         entry = table_next(entry)) {
        struct request request = {entry->set, EPOLL_CTL_DEL, entry->fd, &entry->event, 0};
        long result = control(&request);
        /* Not there: another process took it out of a set that both hold. It will put it back. */
        entry->away = result == 0;
        if (result < 0 && result != -ENOENT)
            table_remove(entry);
    }
    parked = !refused;
    show();
}

/*
 * Whether some socket is there for one event only. The set does not tell if it has come already,
 * and then putting it back would make it come again, perhaps to a second thread. Forgets sockets
 * that are no more.
 */
static bool has_one_shot(void)
{
    bool found = false;
    for (struct table_entry *entry = table_next(NULL); entry != NULL; entry = table_next(entry)) {
        if (inode_of_socket(entry->fd) != entry->inode)
            table_remove(entry);
        else if ((entry->event.events & EPOLLONESHOT) != 0)
            found = true;
    }
    return found;
}

static void put_back(void)
{
    for (struct table_entry *entry = parked ? table_next(NULL) : NULL; entry != NULL;
         entry = table_next(entry)) {
        if (!entry->away)
            continue;
        struct request request = {entry->set, EPOLL_CTL_ADD, entry->fd, &entry->event, 0};
        entry->away = false;
        long result = -EBADF;
        if (inode_of_socket(entry->fd) == entry->inode)
            result = control(&request);
        if (result < 0 && result != -EEXIST)
            table_remove(entry);
    }
    parked = refused = false;
    show();
}

/* As many pages as say how it is are writable only. */
static void show(void)
{
    long pages = parked && !lost ? PARKING_PARKED : PARKING_ABLE;
    if (refused || (parked && lost))
        pages = PARKING_REFUSES;
    if (!watching || (lost && pages == PARKING_ABLE))
        pages = 0;
    long shown = pages * PARKING_PAGE_BYTES, hidden = (long)sizeof marks - shown;
    if (shown > 0)
        kernel_call(SYS_mprotect, kernel_address(marks), shown, PROT_WRITE, 0, 0);
    if (hidden > 0)
        kernel_call(SYS_mprotect, kernel_address(marks + shown), hidden, PROT_READ | PROT_WRITE, 0,
                    0);
}

/* 0: no socket. */
static uint64_t inode_of_socket(int fd)
{
    struct stat found;
    if (kernel_call(SYS_fstat, fd, kernel_address(&found), 0, 0, 0) != 0 ||
        !S_ISSOCK(found.st_mode))
        return 0;
    return found.st_ino;
}

/* 0: no TCP socket. */
static uint64_t inode_of_tcp(int fd)
{
    uint64_t inode = inode_of_socket(fd);
    int protocol = 0;
    socklen_t size = sizeof protocol;
    if (inode == 0 || kernel_call(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL,
                                  kernel_address(&protocol), kernel_address(&size)) != 0)
        return 0;
    return protocol == IPPROTO_TCP ? inode : 0;
}

/* A new set's number was free: whatever the table knows of a set with this number is over. */
static long create(int flags)
{
    long set = kernel_call(SYS_epoll_create1, flags, 0, 0, 0, 0);
    uint64_t mask;
    if (set >= 0 && lock(&mask)) {
        table_remove_set((int)set);
        unlock(mask);
    }
    return set;
}

static long control(const struct request *request)
{
    return kernel_call(SYS_epoll_ctl, request->set, request->operation, request->fd,
                       kernel_address(request->event), 0);
}

static long control_and_note(const struct request *request)
{
    long result = control(request);
    struct table_entry *entry = table_find(request->set, request->fd);
    if (request->operation == EPOLL_CTL_DEL && entry != NULL)
        table_remove(entry);
    else if (result == 0 && request->operation == EPOLL_CTL_MOD && entry != NULL)
        entry->event = *request->event;
    else if (result == 0 && request->operation == EPOLL_CTL_ADD)
        note(request);
    return result;
}

/* While parked: the set stays without it, and the program hears what it would hear otherwise. */
static long note_only(const struct request *request)
{
    struct table_entry *entry = table_find(request->set, request->fd);
    if (entry != NULL && entry->inode != inode_of_socket(request->fd)) {
        table_remove(entry);
        entry = NULL;
    }
    bool away = entry != NULL && entry->away;
    if (!away && request->inode == 0)
        return control_and_note(request);
    if (request->event == NULL && request->operation != EPOLL_CTL_DEL)
        return -EFAULT;
    if (request->operation == EPOLL_CTL_DEL) {
        table_remove(entry);
        return 0;
    }
    if (request->operation == EPOLL_CTL_MOD) {
        entry->event = *request->event;
        return 0;
    }
    if (away)
        return -EEXIST;
    /* The kernel judges the two descriptors; that it does not know the pair is as it should be. */
    struct request probe = {request->set, EPOLL_CTL_DEL, request->fd, request->event, 0};
    long result = control(&probe);
    if (result < 0 && result != -ENOENT)
        return result;
    entry = note(request);
    if (entry == NULL)
        return control(request);
    entry->away = true;
    return 0;
}

/* After an ADD. NULL: nothing to remember, or no room. */
static struct table_entry *note(const struct request *request)
{
    table_remove_stale(request->fd, request->inode);
    if (request->inode == 0)
        return NULL;
    struct table_entry *entry = table_add(request->set, request->fd);
    if (entry == NULL) {
        lost = true;
        show();
        return NULL;
    }
    entry->inode = request->inode;
    entry->event = *request->event;
    return entry;
}

/*
 * False: whoever holds it holds it for ever, as in a child that was forked while another thread
 * held it. Such a process goes on without us.
 */
static bool lock(uint64_t *mask)
{
    static const struct timespec second = {.tv_sec = 1};
    uint64_t all = ~UINT64_C(0);
    uint32_t unheld = 0;
    *mask = 0;
    kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, kernel_address(&all), kernel_address(mask),
                sizeof all, 0);
    if (__atomic_compare_exchange_n(&lock_word, &unheld, 1, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
        return true;
    for (int seconds = 0; !lock_is_broken && seconds < LOCK_SECONDS_MAX;) {
        if (__atomic_exchange_n(&lock_word, 2, __ATOMIC_ACQUIRE) == 0)
            return true;
        if (kernel_call(SYS_futex, kernel_address(&lock_word), FUTEX_WAIT_PRIVATE, 2,
                        kernel_address(&second), 0) == -ETIMEDOUT)
            seconds++;
    }
    lock_is_broken = lost = true;
    show();
    kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, kernel_address(mask), 0, sizeof *mask, 0);
    return false;
}

static void unlock(uint64_t mask)
{
    if (__atomic_exchange_n(&lock_word, 0, __ATOMIC_RELEASE) == 2)
        kernel_call(SYS_futex, kernel_address(&lock_word), FUTEX_WAKE_PRIVATE, 1, 0, 0);
    kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, kernel_address(&mask), 0, sizeof mask, 0);
}
