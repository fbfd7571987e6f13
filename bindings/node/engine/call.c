/* A call: read its arguments, run it on a thread of the pool, settle its promise. */

#include "engine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
    struct block *next;
    size_t size;
    max_align_t data[];
};

#define FIXED 3 /* self, token, options: then the parameters */

static struct call *new_call(napi_env env, const struct entry *entry);
static bool read_arguments(napi_env env, struct call *call, const napi_value *given, size_t count);
static void run_call(struct job *job);
static void settle(napi_env env, struct message *message);
static void settle_promise(napi_env env, struct call *call);
static void refuse(struct call *call, sandbox_status status, const char *message);
static void free_call(napi_env env, struct call *call);

napi_value sbx_node_begin(napi_env env, napi_callback_info info)
{
    napi_value given[FIXED + PARAMETERS_MAX], promise;
    size_t count = FIXED + PARAMETERS_MAX;
    void *data;
    if (napi_get_cb_info(env, info, &count, given, NULL, &data) != napi_ok)
        return NULL;
    struct call *call = new_call(env, data);
    if (call == NULL) {
        napi_throw_error(env, NULL, "no memory for a call");
        return NULL;
    }
    if (!read_arguments(env, call, given, count) ||
        napi_create_promise(env, &call->deferred, &promise) != napi_ok) {
        free_call(env, call);
        return NULL;
    }
    sbx_node_hold(call->instance);
    if (call->status == SANDBOX_OK && atomic_load(&call->instance->stopping))
        refuse(call, SANDBOX_CANCELLED, "the program ends");
    if (call->status == SANDBOX_OK)
        sbx_node_work(call->instance, &call->job);
    else
        settle_promise(env, call);
    return promise;
}

static struct call *new_call(napi_env env, const struct entry *entry)
{
    struct instance *instance = sbx_node_instance(env);
    struct call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    *call = (struct call){.instance = instance, .entry = entry, .call = {SANDBOX_CALL},
                          .job.run = run_call, .message.deliver = settle,
                          .next = instance->calls, .place = &instance->calls};
    if (call->next != NULL)
        call->next->place = &call->next;
    instance->calls = call;
    bool good = sandbox_cancel_create(&call->cancel, NULL) == SANDBOX_OK;
    call->call.cancel = call->cancel;
    if (good && entry->outcome == OUTCOME_STRUCT) {
        const struct shape *shape = entry->produces;
        call->result = sbx_node_memory(call, shape->size);
        good = call->result != NULL;
        if (good && shape->has_size)
            *(size_t *)call->result = shape->size;
    }
    if (good)
        return call;
    free_call(env, call);
    return NULL;
}

/* False: an exception is pending. */
static bool read_arguments(napi_env env, struct call *call, const napi_value *given, size_t count)
{
    const struct entry *entry = call->entry;
    struct reading reading = {.env = env, .call = call};
    bool good = count >= FIXED + entry->parameter_count;
    if (!good)
        sbx_node_complain(&reading, "an argument is missing");
    if (good && entry->self != NULL) {
        struct handle *self = sbx_node_handle_of(env, given[0], entry->self);
        if (self == NULL)
            return false;
        if (self->is_closed) {
            refuse(call, SANDBOX_CLOSED, "the handle was closed");
        } else {
            call->self = self;
            sbx_node_handle_keep(self);
        }
    }
    if (good)
        good = sbx_node_token_bind(env, given[1], call);
    for (size_t each = 0; good && each < entry->parameter_count; each++)
        good = sbx_node_read_parameter(&reading, each, given[FIXED + each]);
    if (good)
        good = sbx_node_read_options(&reading, given[2]);
    if (good)
        return true;
    bool is_pending = false;
    napi_is_exception_pending(env, &is_pending);
    if (is_pending) /* a getter of the caller's threw */
        return false;
    if (reading.is_range)
        napi_throw_range_error(env, "ERR_OUT_OF_RANGE", reading.complaint);
    else
        napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", reading.complaint);
    return false;
}

/* On a thread of the pool. */
static void run_call(struct job *job)
{
    struct call *call = (struct call *)((char *)job - offsetof(struct call, job));
    call->status = call->entry->run(call);
    if (call->status != SANDBOX_OK)
        call->error.status = call->status;
    sbx_node_job_done(call->instance, &call->message);
}

static void settle(napi_env env, struct message *message)
{
    settle_promise(env, (struct call *)((char *)message - offsetof(struct call, message)));
}

static void settle_promise(napi_env env, struct call *call)
{
    napi_value value = NULL, error;
    if (env != NULL) {
        if (call->status == SANDBOX_OK)
            value = sbx_node_show_outcome(env, call);
        if (value != NULL) {
            napi_resolve_deferred(env, call->deferred, value);
        } else {
            bool is_pending = false;
            napi_is_exception_pending(env, &is_pending);
            if (is_pending)
                napi_get_and_clear_last_exception(env, &error);
            else
                error = sbx_node_show_error(env, &call->error);
            if (error == NULL)
                napi_get_undefined(env, &error);
            napi_reject_deferred(env, call->deferred, error);
        }
    }
    struct instance *instance = call->instance;
    free_call(env, call);
    sbx_node_let_go(instance);
}

static void refuse(struct call *call, sandbox_status status, const char *message)
{
    call->status = status;
    call->error.status = status;
    snprintf(call->error.message, sizeof call->error.message, "%s", message);
}

static void free_call(napi_env env, struct call *call)
{
    sbx_node_discard_outcome(call);
    sbx_node_progress_end(env, call->progress);
    for (size_t each = 0; each < call->held_count; each++)
        if (env != NULL)
            napi_delete_reference(env, call->held[each]);
    *call->place = call->next;
    if (call->next != NULL)
        call->next->place = call->place;
    sbx_node_token_drop(call->token);
    if (call->self != NULL)
        sbx_node_handle_drop(call->self);
    sandbox_cancel_free(call->cancel);
    while (call->memory != NULL) {
        struct block *block = call->memory;
        call->memory = block->next;
        explicit_bzero(block->data, block->size); /* there may be secrets in the environment */
        free(block);
    }
    free(call);
}

void sbx_node_cancel_all(struct instance *instance)
{
    for (struct call *call = instance->calls; call != NULL; call = call->next)
        sbx_node_cancel_of(call);
}

void sbx_node_cancel_of(struct call *call)
{
    call->is_cancelled = true;
    sandbox_cancel_trigger(call->cancel);
    sbx_node_questions_end(call);
}

void sbx_node_cancel_on(struct handle *handle)
{
    for (struct call *call = handle->instance->calls; call != NULL; call = call->next)
        if (call->self == handle)
            sbx_node_cancel_of(call);
}

bool sbx_node_hold_value(struct reading *reading, napi_value value, napi_ref *held)
{
    struct call *call = reading->call;
    if (call->held_count == HELD_MAX)
        return sbx_node_complain(reading, "there are too many arguments to keep");
    if (napi_create_reference(reading->env, value, 1, &call->held[call->held_count]) != napi_ok)
        return sbx_node_complain(reading, "no memory for the arguments");
    if (held != NULL)
        *held = call->held[call->held_count];
    call->held_count++;
    return true;
}

void *sbx_node_memory(struct call *call, size_t size)
{
    struct block *block = calloc(1, sizeof *block + size);
    if (block == NULL)
        return NULL;
    block->next = call->memory;
    block->size = size;
    call->memory = block;
    return block->data;
}
