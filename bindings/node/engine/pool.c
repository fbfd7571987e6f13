/*
 * Threads for calls that wait. Never libuv's four: those are the program's own, for its files and
 * name look-ups. They belong to the process, come as they are needed and go when they are not.
 */

#include "engine.h"
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX  1024
#define STACK_BYTES  (1u << 20)
#define IDLE_SECONDS 5
/*
 * A program that makes one short call after the other would wait for a thread to be woken each
 * time, which takes longer than the call. So one thread looks out for the next job that long.
 */
#define LOOKOUT_NS 50000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static struct job *first, **last = &first;
static size_t threads, idle;
static atomic_size_t waiting; /* changed with the mutex held */
static bool has_lookout;

static bool start_thread(void);
static void *work(void *argument);
static void look_out(void);
static struct job *take(void);

void sbx_node_pool_run(struct job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&mutex);
    *last = job;
    last = &job->next;
    waiting++;
    bool is_short = waiting > idle && threads < THREADS_MAX;
    threads += is_short;
    pthread_mutex_unlock(&mutex);
    if (!is_short) {
        pthread_cond_signal(&arrived);
        return;
    }
    if (start_thread())
        return;
    pthread_mutex_lock(&mutex);
    threads--;
    /* Others will get to it; where there is none, better slowly than never. */
    struct job *stranded = threads == 0 ? take() : NULL;
    pthread_mutex_unlock(&mutex);
    if (stranded != NULL)
        stranded->run(stranded);
}

/* With all signals blocked: they are the program's. */
static bool start_thread(void)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    bool started = pthread_create(&thread, &attributes, work, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static void *work(void *argument)
{
    (void)argument;
    pthread_setname_np(pthread_self(), "sandbox-call");
    pthread_mutex_lock(&mutex);
    for (;;) {
        struct job *job = take();
        if (job != NULL) {
            pthread_mutex_unlock(&mutex);
            job->run(job);
            pthread_mutex_lock(&mutex);
            continue;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += IDLE_SECONDS;
        idle++;
        if (!has_lookout)
            look_out();
        int failure = 0;
        if (first == NULL)
            failure = pthread_cond_clockwait(&arrived, &mutex, CLOCK_MONOTONIC, &until);
        idle--;
        if (failure != 0 && first == NULL)
            break;
    }
    threads--;
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* With the mutex held, but not meanwhile. On one processor there would be nobody to look out for.
 */
static void look_out(void)
{
    static atomic_long processors;
    if (processors == 0)
        processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (processors < 2)
        return;
    has_lookout = true;
    pthread_mutex_unlock(&mutex);
    int64_t end = now_ns() + LOOKOUT_NS;
    while (atomic_load(&waiting) == 0 && now_ns() < end)
        continue;
    pthread_mutex_lock(&mutex);
    has_lookout = false;
}

static struct job *take(void)
{
    struct job *job = first;
    if (job == NULL)
        return NULL;
    first = job->next;
    if (first == NULL)
        last = &first;
    waiting--;
    return job;
}
