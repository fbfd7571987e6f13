/* Work of file calls on other threads, each thread as the workspace's user for that long. */

#include "files.h"

#include "guard.h"

#include "util/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned count, left;

static void run(uv_work_t *work);
static bool become(const struct agent_user *user);
static void become_oneself(const struct agent_user *user);
static void come_back(uv_work_t *work, int status);
static void dispose(struct agent_job *job);

void *agent_job_new(struct agent_call *call, const struct agent_job_kind *kind, size_t size)
{
    const struct agent_identity *identity = agent_identity();
    struct agent_job *job = calloc(1, size);
    if (job == NULL) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory", "the agent has no memory");
        return NULL;
    }
    count++;
    job->call = call;
    job->kind = kind;
    job->user.change = geteuid() == 0 && identity->uid != 0;
    job->user.uid = identity->uid;
    job->user.gid = identity->gid;
    job->user.group_count = identity->group_count;
    memcpy(job->user.groups, identity->groups, sizeof job->user.groups);
    memcpy(job->directory, identity->directory, sizeof job->directory);
    agent_call_keep(call);
    agent_call_set_data(call, job);
    return job;
}

void agent_job_start(struct agent_job *job)
{
    job->working = true;
    job->work.data = job;
    if (uv_queue_work(agent_loop(), &job->work, run, come_back) == 0)
        return;
    job->working = false;
    agent_call_fail(job->call, AGENT_RESOURCE_EXHAUSTED, "no-thread",
                    "the agent has no thread for the work");
}

void agent_job_gone(struct agent_call *call)
{
    struct agent_job *job = agent_call_data(call);
    if (job == NULL)
        return;
    agent_call_set_data(call, NULL);
    job->over = true;
    left++;
    atomic_store(&job->stop, true);
    if (!job->working)
        dispose(job);
}

unsigned agent_jobs_count(void)
{
    return count;
}

unsigned agent_jobs_left(void)
{
    return left;
}

/* The calling thread alone changes: the C library's functions would change all of them. */
static bool become(const struct agent_user *user)
{
    if (!user->change)
        return true;
    return syscall(SYS_setgroups, user->group_count, user->groups) == 0 &&
           syscall(SYS_setresgid, -1, user->gid, -1) == 0 &&
           syscall(SYS_setresuid, -1, user->uid, -1) == 0;
}

/* The saved user id stayed 0, and with it the capabilities come back. */
static void become_oneself(const struct agent_user *user)
{
    if (!user->change)
        return;
    syscall(SYS_setresuid, -1, 0, -1);
    syscall(SYS_setresgid, -1, 0, -1);
    syscall(SYS_setgroups, 0, NULL);
}

static void run(uv_work_t *work)
{
    struct agent_job *job = work->data;
    if (!become(&job->user))
        agent_job_fail_errno(job, errno, "the agent cannot act as the workspace's user");
    else if (job->leaving)
        job->kind->abandon(job);
    else
        job->kind->work(job);
    become_oneself(&job->user);
}

static void come_back(uv_work_t *work, int status)
{
    struct agent_job *job = work->data;
    job->working = false;
    if (job->over || job->leaving) {
        dispose(job);
        return;
    }
    if (agent_call_is_over(job->call))
        return; /* gone() will come */
    if (job->status != SANDBOX_OK)
        agent_job_tell_failure(job);
    else
        job->kind->done(job);
}

static void dispose(struct agent_job *job)
{
    if (!job->leaving && job->kind->abandon != NULL) {
        job->leaving = true;
        job->working = true;
        job->work.data = job;
        if (uv_queue_work(agent_loop(), &job->work, run, come_back) == 0)
            return;
    }
    if (job->kind->free != NULL)
        job->kind->free(job);
    agent_call_drop(job->call);
    free(job);
    count--;
    left--;
    agent_guard_call_over();
}

struct word {
    sandbox_status status;
    unsigned grpc;
    const char *reason;
};

void agent_job_tell_failure(struct agent_job *job)
{
    static const struct word words[] = {
        {SANDBOX_INVALID, AGENT_INVALID_ARGUMENT, "invalid"},
        {SANDBOX_NOT_FOUND, AGENT_NOT_FOUND, "no-such-file"},
        {SANDBOX_EXISTS, AGENT_ALREADY_EXISTS, "exists"},
        {SANDBOX_DENIED, AGENT_PERMISSION_DENIED, "denied"},
        {SANDBOX_LIMIT, AGENT_RESOURCE_EXHAUSTED, "limit"},
        {SANDBOX_NO_MEMORY, AGENT_RESOURCE_EXHAUSTED, "no-memory"},
        {SANDBOX_UNSUPPORTED, AGENT_UNIMPLEMENTED, "unsupported"},
        {SANDBOX_CONFLICT, AGENT_ABORTED, "conflict"},
    };
    sandbox_error *error = &job->error;
    size_t size = strlen(error->message);
    if (error->system_error != 0) {
        /* Both we and the call end the line with the system's words. */
        char words_of_system[128];
        snprintf(words_of_system, sizeof words_of_system, ": %s", strerror(error->system_error));
        size_t end = strlen(words_of_system);
        if (size > end && strcmp(error->message + size - end, words_of_system) == 0)
            error->message[size - end] = 0;
        agent_call_fail_errno(job->call, error->system_error, "%s", error->message);
        return;
    }
    struct word word = {job->status, AGENT_FAILED_PRECONDITION, "failed"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].status == job->status)
            word = words[i];
    agent_call_fail(job->call, word.grpc, error->reason[0] == 0 ? word.reason : error->reason,
                    "%s", error->message);
}

sandbox_status agent_job_fail(struct agent_job *job, sandbox_status status, const char *reason,
                              const char *format, ...)
{
    va_list arguments;
    job->status = status;
    job->error = (sandbox_error){.status = status};
    snprintf(job->error.reason, sizeof job->error.reason, "%s", reason);
    va_start(arguments, format);
    vsnprintf(job->error.message, sizeof job->error.message, format, arguments);
    va_end(arguments);
    return status;
}

sandbox_status agent_job_fail_errno(struct agent_job *job, int number, const char *format, ...)
{
    va_list arguments;
    job->status = SANDBOX_FAILED;
    job->error = (sandbox_error){.status = SANDBOX_FAILED, .system_error = number};
    va_start(arguments, format);
    vsnprintf(job->error.message, sizeof job->error.message, format, arguments);
    va_end(arguments);
    return job->status;
}
