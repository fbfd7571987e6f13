/* Which calls and connections end because the gate is moved. */

#include "call.h"
#include "connection.h"
#include "listener.h"

enum verdict { STAYS, SUSPENDED, TAKEN_OVER };

static void cut(enum verdict (*judge)(const struct agent_call *call, uint32_t from,
                                      uint32_t before),
                uint32_t from, uint32_t before);

static bool is_work(const struct agent_call *call)
{
    return call->begun && !call->method->always_allowed;
}

static enum verdict judge_stale(const struct agent_call *call, uint32_t from, uint32_t before)
{
    return call->epoch >= from && call->epoch < before ? TAKEN_OVER : STAYS;
}

void agent_server_cut(uint32_t from, uint32_t before)
{
    cut(judge_stale, from, before);
}

/* One that would not end by itself. */
static enum verdict judge_lasting(const struct agent_call *call, uint32_t from, uint32_t before)
{
    return call->method->lasts && call->epoch < before ? SUSPENDED : STAYS;
}

void agent_server_suspend(uint32_t operation)
{
    cut(judge_lasting, 0, operation);
}

static enum verdict judge_any(const struct agent_call *call, uint32_t from, uint32_t before)
{
    return SUSPENDED;
}

void agent_server_end_work(void)
{
    cut(judge_any, 0, 0);
}

static void cut(enum verdict (*judge)(const struct agent_call *call, uint32_t from,
                                      uint32_t before),
                uint32_t from, uint32_t before)
{
    for (struct agent_connection *at = agent_connections(); at != NULL; at = at->next) {
        for (struct agent_call *call = at->calls; call != NULL; call = call->next) {
            enum verdict verdict = is_work(call) ? judge(call, from, before) : STAYS;
            if (verdict == STAYS)
                continue;
            call->cut = true;
            if (verdict == TAKEN_OVER)
                agent_call_fail(call, AGENT_ABORTED, "stale-epoch",
                                "the workspace was taken over: epoch %u is open now", before);
            else
                agent_call_fail(call, AGENT_UNAVAILABLE, "suspending",
                                "the workspace is being suspended");
        }
    }
}

/* Those that were answered count until the answer has left: it may say that something was done. */
uint32_t agent_server_in_progress(uint32_t operation)
{
    uint32_t count = 0;
    for (const struct agent_connection *at = agent_connections(); at != NULL; at = at->next) {
        for (const struct agent_call *call = at->calls; call != NULL; call = call->next)
            count +=
                is_work(call) && !call->method->background && !call->cut && call->epoch < operation;
    }
    return count;
}

/* GOAWAY: it ends once its last call has. */
static void say_goodbye(struct agent_connection *connection)
{
    if (connection->closing)
        return;
    nghttp2_session *session = connection->session;
    nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(session), NGHTTP2_NO_ERROR, NULL,
                          0);
    agent_connection_due(connection);
}

void agent_server_goodbye(const struct agent_call *call)
{
    if (call->connection != NULL)
        say_goodbye(call->connection);
}

void agent_server_goodbye_others(const struct agent_call *call)
{
    for (struct agent_connection *at = agent_connections(); at != NULL; at = at->next) {
        if (at != call->connection)
            say_goodbye(at);
    }
}

void agent_server_close_others(const struct agent_call *call)
{
    for (struct agent_connection *at = agent_connections(); at != NULL; at = at->next) {
        if (at != call->connection)
            agent_connection_close(at);
    }
}
