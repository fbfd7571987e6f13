/*
 * Things of the library that JavaScript holds, as Externals. A call keeps its handle, so that the
 * two may end in any order; giving back may wait a moment (a forward cuts its connections), so a
 * thread of the pool does it.
 */

#include "engine.h"
#include <stdlib.h>

struct token {
    struct call *call; /* under way, or NULL */
    size_t references;
    bool is_triggered;
};

static void finalize_handle(napi_env env, void *data, void *hint);
static void free_thing(struct job *job);
static void forget_handle(napi_env env, struct message *message);
static void throw_away(struct handle *handle);
static void finalize_token(napi_env env, void *data, void *hint);

napi_value sbx_node_handle_new(napi_env env, const struct handle_kind *kind, void *thing)
{
    struct handle *handle;
    napi_value value = sbx_node_handle_lend(env, kind, thing, NULL, NULL, &handle);
    if (value == NULL)
        kind->free(thing);
    return value;
}

napi_value sbx_node_handle_lend(napi_env env, const struct handle_kind *kind, void *thing,
                                void (*returned)(void *owner), void *owner, struct handle **made)
{
    struct instance *instance = sbx_node_instance(env);
    struct handle *handle = calloc(1, sizeof *handle);
    napi_value value = NULL;
    if (handle != NULL &&
        napi_create_external(env, handle, finalize_handle, NULL, &value) == napi_ok) {
        *handle = (struct handle){.instance = instance, .kind = kind, .thing = thing,
                                  .references = 1, .returned = returned, .owner = owner,
                                  .next = instance->handles, .place = &instance->handles};
        if (handle->next != NULL)
            handle->next->place = &handle->next;
        instance->handles = handle;
        sbx_node_instance_keep(instance);
        atomic_fetch_add(&instance->open_handles, 1);
        *made = handle;
        return value;
    }
    free(handle);
    napi_throw_error(env, NULL, "no memory for a handle");
    return NULL;
}

struct handle *sbx_node_handle_of(napi_env env, napi_value value, const struct handle_kind *kind)
{
    void *data = NULL;
    struct handle *handle = NULL;
    if (napi_get_value_external(env, value, &data) == napi_ok)
        handle = data;
    if (handle != NULL && (kind == NULL || handle->kind == kind))
        return handle;
    napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", "not a handle of the kind that is needed");
    return NULL;
}

void sbx_node_handle_keep(struct handle *handle)
{
    handle->references++;
}

void sbx_node_handle_drop(struct handle *handle)
{
    if (--handle->references > 0)
        return;
    handle->message.deliver = forget_handle;
    if (handle->returned != NULL) {
        handle->returned(handle->owner);
        forget_handle(NULL, &handle->message);
        return;
    }
    handle->job.run = free_thing;
    if (handle->closing != NULL)
        sbx_node_hold(handle->instance);
    sbx_node_work(handle->instance, &handle->job);
}

/* (handle): a promise for the moment when it is given back, or when only calls hold it. */
napi_value sbx_node_handle_close(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value value, promise, nothing;
    napi_deferred deferred;
    if (napi_get_cb_info(env, info, &count, &value, NULL, NULL) != napi_ok)
        return NULL;
    struct handle *handle = sbx_node_handle_of(env, value, NULL);
    if (handle == NULL || napi_create_promise(env, &deferred, &promise) != napi_ok)
        return NULL;
    if (!handle->is_closed && handle->references == 1 && handle->returned == NULL)
        handle->closing = deferred;
    else if (napi_get_undefined(env, &nothing) == napi_ok)
        napi_resolve_deferred(env, deferred, nothing);
    if (!handle->is_closed) {
        handle->is_closed = true;
        sbx_node_handle_drop(handle);
    }
    return promise;
}

void sbx_node_handles_free(struct instance *instance)
{
    for (struct handle *handle = instance->handles, *next; handle != NULL; handle = next) {
        next = handle->next;
        if (handle->is_gone)
            continue;
        handle->is_closed = true;
        handle->is_gone = true;
        if (handle->returned == NULL)
            handle->kind->free(handle->thing);
        atomic_fetch_sub(&instance->open_handles, 1);
    }
}

/* The struct is there until JavaScript has forgotten it and the thing is freed. */
static void finalize_handle(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)hint;
    struct handle *handle = data;
    handle->is_forgotten = true;
    if (handle->is_gone) {
        throw_away(handle);
    } else if (!handle->is_closed) {
        handle->is_closed = true;
        sbx_node_handle_drop(handle);
    }
}

/* On a thread of the pool. */
static void free_thing(struct job *job)
{
    struct handle *handle = (struct handle *)((char *)job - offsetof(struct handle, job));
    handle->kind->free(handle->thing);
    sbx_node_job_done(handle->instance, &handle->message);
}

static void forget_handle(napi_env env, struct message *message)
{
    struct handle *handle =
        (struct handle *)((char *)message - offsetof(struct handle, message));
    napi_value nothing;
    if (handle->closing != NULL) {
        if (env != NULL && napi_get_undefined(env, &nothing) == napi_ok)
            napi_resolve_deferred(env, handle->closing, nothing);
        sbx_node_let_go(handle->instance);
    }
    handle->is_gone = true;
    atomic_fetch_sub(&handle->instance->open_handles, 1);
    if (handle->is_forgotten)
        throw_away(handle);
}

static void throw_away(struct handle *handle)
{
    struct instance *instance = handle->instance;
    *handle->place = handle->next;
    if (handle->next != NULL)
        handle->next->place = handle->place;
    free(handle);
    sbx_node_instance_drop(instance);
}

/* (): an External by which JavaScript ends a call. */
napi_value sbx_node_token_new(napi_env env, napi_callback_info info)
{
    (void)info;
    napi_value value;
    struct token *token = calloc(1, sizeof *token);
    if (token != NULL) {
        token->references = 1;
        if (napi_create_external(env, token, finalize_token, NULL, &value) == napi_ok)
            return value;
    }
    free(token);
    napi_throw_error(env, NULL, "no memory for a token");
    return NULL;
}

/* (token) */
napi_value sbx_node_token_trigger(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value value;
    void *data = NULL;
    if (napi_get_cb_info(env, info, &count, &value, NULL, NULL) != napi_ok ||
        napi_get_value_external(env, value, &data) != napi_ok)
        return NULL;
    struct token *token = data;
    token->is_triggered = true;
    if (token->call != NULL)
        sbx_node_cancel_of(token->call);
    return NULL;
}

bool sbx_node_token_bind(napi_env env, napi_value value, struct call *call)
{
    void *data = NULL;
    napi_valuetype type;
    if (napi_typeof(env, value, &type) != napi_ok || type == napi_undefined)
        return true;
    if (napi_get_value_external(env, value, &data) != napi_ok)
        return false;
    call->token = data;
    call->token->call = call;
    call->token->references++;
    if (call->token->is_triggered)
        sbx_node_cancel_of(call);
    return true;
}

void sbx_node_token_drop(struct token *token)
{
    if (token == NULL)
        return;
    token->call = NULL;
    if (--token->references == 0)
        free(token);
}

static void finalize_token(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)hint;
    struct token *token = data;
    if (--token->references == 0)
        free(token);
}
