/* A few threads that share out pieces of work: see crew.h. */

#include "util/crew.h"
#include "util/wait.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

struct member {
    struct sbx_crew *crew;
    pthread_t thread;
    unsigned hand;
};

struct sbx_crew {
    pthread_mutex_t mutex;
    pthread_cond_t begun, finished;
    struct member members[SBX_CREW_MAX]; /* the first is the caller and has no thread */
    unsigned size;
    uint64_t round; /* guarded by the mutex, as what follows */
    unsigned busy;
    bool ending;
    sandbox_status status;
    sandbox_error error;
    /* Of this round; set before it begins. */
    sbx_crew_work *work;
    void *data;
    uint64_t count;
    atomic_uint_fast64_t next;
    atomic_bool stopped;
};

static unsigned count_processors(void);
static void start_members(struct sbx_crew *crew, unsigned wanted);
static void *serve(void *data);
static void share(struct sbx_crew *crew, unsigned hand, const struct sbx_wait *wait);
static void stop(struct sbx_crew *crew, sandbox_status status, const sandbox_error *error);

struct sbx_crew *sbx_crew_new(void)
{
    return sbx_crew_of(count_processors());
}

struct sbx_crew *sbx_crew_of(unsigned hands)
{
    struct sbx_crew *crew = calloc(1, sizeof *crew);
    if (crew == NULL)
        return NULL;
    pthread_mutex_init(&crew->mutex, NULL);
    pthread_cond_init(&crew->begun, NULL);
    pthread_cond_init(&crew->finished, NULL);
    crew->size = 1;
    start_members(crew, hands < SBX_CREW_MAX ? hands : SBX_CREW_MAX);
    return crew;
}

unsigned sbx_crew_size(const struct sbx_crew *crew)
{
    return crew->size;
}

sandbox_status sbx_crew_run(struct sbx_crew *crew, uint64_t count, sbx_crew_work *work, void *data,
                            const struct sbx_wait *wait, sandbox_error *error)
{
    pthread_mutex_lock(&crew->mutex);
    crew->status = SANDBOX_OK;
    crew->work = work;
    crew->data = data;
    crew->count = count;
    atomic_store(&crew->next, 0);
    atomic_store(&crew->stopped, false);
    if (count > 1) { /* one piece is sooner done than told to others */
        crew->busy = crew->size - 1;
        crew->round++;
        pthread_cond_broadcast(&crew->begun);
    }
    pthread_mutex_unlock(&crew->mutex);

    share(crew, 0, wait);

    pthread_mutex_lock(&crew->mutex);
    while (crew->busy > 0)
        pthread_cond_wait(&crew->finished, &crew->mutex);
    sandbox_status status = crew->status;
    if (status != SANDBOX_OK && error != NULL)
        *error = crew->error;
    pthread_mutex_unlock(&crew->mutex);
    return status;
}

void sbx_crew_free(struct sbx_crew *crew)
{
    if (crew == NULL)
        return;
    pthread_mutex_lock(&crew->mutex);
    crew->ending = true;
    pthread_cond_broadcast(&crew->begun);
    pthread_mutex_unlock(&crew->mutex);
    for (unsigned n = 1; n < crew->size; n++)
        pthread_join(crew->members[n].thread, NULL);
    pthread_cond_destroy(&crew->begun);
    pthread_cond_destroy(&crew->finished);
    pthread_mutex_destroy(&crew->mutex);
    free(crew);
}

void sbx_crew_end(struct sbx_crew **crew)
{
    sbx_crew_free(*crew);
    *crew = NULL;
}

static unsigned count_processors(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : count > SBX_CREW_MAX ? SBX_CREW_MAX : (unsigned)count;
}

static void start_members(struct sbx_crew *crew, unsigned wanted)
{
    /* The host's signals are for the host's threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (unsigned n = 1; n < wanted; n++) {
        struct member *member = &crew->members[n];
        *member = (struct member){.crew = crew, .hand = n};
        if (pthread_create(&member->thread, NULL, serve, member) != 0)
            break;
        crew->size = n + 1;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void *serve(void *data)
{
    struct member *member = data;
    struct sbx_crew *crew = member->crew;
    uint64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&crew->mutex);
        while (crew->round == seen && !crew->ending)
            pthread_cond_wait(&crew->begun, &crew->mutex);
        bool ending = crew->ending;
        seen = crew->round;
        pthread_mutex_unlock(&crew->mutex);
        if (ending)
            return NULL;
        share(crew, member->hand, NULL);
        pthread_mutex_lock(&crew->mutex);
        if (--crew->busy == 0)
            pthread_cond_signal(&crew->finished);
        pthread_mutex_unlock(&crew->mutex);
    }
}

/* Takes one piece after another until there is none or somebody stopped it. */
static void share(struct sbx_crew *crew, unsigned hand, const struct sbx_wait *wait)
{
    while (!atomic_load_explicit(&crew->stopped, memory_order_relaxed)) {
        uint64_t index = atomic_fetch_add(&crew->next, 1);
        if (index >= crew->count)
            return;
        sandbox_error error = {0};
        sandbox_status status = wait == NULL ? SANDBOX_OK : sbx_wait_check(wait, &error);
        if (status == SANDBOX_OK)
            status = crew->work(crew->data, hand, index, &error);
        if (status != SANDBOX_OK)
            stop(crew, status, &error);
    }
}

static void stop(struct sbx_crew *crew, sandbox_status status, const sandbox_error *error)
{
    pthread_mutex_lock(&crew->mutex);
    if (crew->status == SANDBOX_OK) {
        crew->status = status;
        crew->error = *error;
    }
    pthread_mutex_unlock(&crew->mutex);
    atomic_store(&crew->stopped, true);
}
