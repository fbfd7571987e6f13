/*
 * The library's log. Its lines come from any thread, also from ones that Python does not know, so
 * they are only put into a queue here; a thread of Python's takes them out.
 */

#include "native.h"
#include <pthread.h>
#include <time.h>

#define LINES 256
#define LINE_SIZE 512

struct line {
    sandbox_log_level level;
    char text[LINE_SIZE];
};

static void put(sandbox_log_level level, const char *text, void *user_data);
static bool take(unsigned wait_ms, struct line *taken, unsigned long long *lost);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled;
static struct line lines[LINES];
static size_t first, count;
static unsigned long long dropped;

static void before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&mutex);
}

static void begin(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&filled, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_atfork(before_fork, after_fork, after_fork);
}

void native_log_set(sandbox_log_level level)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    sandbox_set_log(level, level == SANDBOX_LOG_OFF ? NULL : put, NULL);
}

static void put(sandbox_log_level level, const char *text, void *user_data)
{
    pthread_mutex_lock(&mutex);
    if (count == LINES) {
        dropped++;
    } else {
        struct line *line = &lines[(first + count++) % LINES];
        line->level = level;
        snprintf(line->text, sizeof line->text, "%s", text);
    }
    pthread_cond_signal(&filled);
    pthread_mutex_unlock(&mutex);
}

PyObject *native_log_take(unsigned wait_ms)
{
    struct line taken;
    unsigned long long lost = 0;
    bool found;
    Py_BEGIN_ALLOW_THREADS
    found = take(wait_ms, &taken, &lost);
    Py_END_ALLOW_THREADS
    if (!found)
        Py_RETURN_NONE;
    return Py_BuildValue("(iNK)", (int)taken.level,
                         PyUnicode_DecodeUTF8(taken.text, (Py_ssize_t)strlen(taken.text),
                                              "replace"), lost);
}

/* Without the interpreter's lock. */
static bool take(unsigned wait_ms, struct line *taken, unsigned long long *lost)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += wait_ms / 1000;
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&mutex);
    while (count == 0 && pthread_cond_timedwait(&filled, &mutex, &until) == 0)
        continue;
    bool found = count > 0;
    if (found) {
        *taken = lines[first];
        first = (first + 1) % LINES;
        count--;
        *lost = dropped;
        dropped = 0;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}
