/* Figures about the workspace, from /proc. */

#include "stats.h"
#include "call.h"
#include "guard.h"
#include "guard.pb-c.h"
#include "init.h"
#include "listener.h"
#include "processes.h"
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

static uint64_t cpu_of(int who)
{
    struct rusage usage;
    if (getrusage(who, &usage) != 0)
        return 0;
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

/* In a container everything counts, on a host what the agent started. */
static void add_processes(Sandbox__V1__StatsReply *reply)
{
    struct agent_seen *seen;
    size_t count;
    if (!agent_tree_look(&seen, &count))
        return;
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t tick_hertz = (uint64_t)sysconf(_SC_CLK_TCK);
    for (size_t at = 0; at < count; at++) {
        bool self = seen[at].pid == getpid();
        if (self)
            reply->agent_memory_bytes = seen[at].resident_pages * page_bytes;
        if (!self && !seen[at].ours && !agent_init_is_first())
            continue;
        reply->memory_bytes += seen[at].resident_pages * page_bytes;
        reply->zombies += !agent_seen_lives(&seen[at]);
        reply->processes += agent_seen_lives(&seen[at]);
        if (!self)
            reply->cpu_ms += seen[at].cpu_ticks * 1000 / tick_hertz;
    }
    free(seen);
}

void agent_stats(struct agent_call *call, const ProtobufCMessage *message)
{
    Sandbox__V1__StatsReply reply = SANDBOX__V1__STATS_REPLY__INIT;
    agent_init_reap();
    add_processes(&reply);
    struct statvfs disk;
    if (statvfs(agent_identity()->directory, &disk) == 0) {
        reply.disk_used_bytes = (uint64_t)(disk.f_blocks - disk.f_bfree) * disk.f_frsize;
        reply.disk_free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    }
    struct agent_process_activity active;
    agent_process_activity(&active);
    reply.uptime_ms = agent_uptime_ms();
    /* What has ended and was reaped is in the second figure. */
    reply.cpu_ms += cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN);
    reply.connections = agent_server_connection_count();
    reply.idle_ms = agent_activity_idle_ms();
    reply.active_tasks = active.tasks;
    agent_call_answer(call, &reply.base);
}
