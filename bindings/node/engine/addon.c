/* The binding in one Node.js environment: its functions, its messages, and its end. */

#include "engine.h"
#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* A cancelled call ends within 100 ms; what does not is left to the end of the process. */
#define END_MS 10000

static bool add_functions(napi_env env, napi_value exports);
static bool add_function(napi_env env, napi_value exports, const char *name,
                         napi_callback function, const void *data);
static napi_value read_getter(napi_env env, napi_callback_info info);
static napi_value set_error_maker(napi_env env, napi_callback_info info);
static napi_value count_handles(napi_env env, napi_callback_info info);
static napi_value shut_down(napi_env env, napi_callback_info info);
static void ring(napi_env env, napi_value function, void *context, void *data);
static void append(struct instance *instance, struct message *message);
static void deliver_all(napi_env env, struct instance *instance);
static bool end_calls(struct instance *instance, uint32_t most_ms);
static void end(void *data);
static struct instance *new_instance(napi_env env);

/* The engine takes either for the other. */
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "only 64-bit machines");

/* Node.js looks for it by its name; its own headers define it without a declaration. */
NAPI_MODULE_EXPORT int32_t node_api_module_get_api_version_v1(void);

NAPI_MODULE_INIT()
{
    struct instance *instance = new_instance(env);
    if (instance == NULL || !add_functions(env, exports)) {
        napi_throw_error(env, NULL, "libsandbox could not be set up");
        return NULL;
    }
    return exports;
}

static struct instance *new_instance(napi_env env)
{
    napi_value name;
    struct instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL)
        return NULL;
    instance->env = env;
    instance->last = &instance->first;
    instance->references = 1;
    pthread_mutex_init(&instance->mutex, NULL);
    pthread_cond_init(&instance->idle, NULL);
    if (napi_create_string_utf8(env, "libsandbox", NAPI_AUTO_LENGTH, &name) == napi_ok &&
        napi_create_threadsafe_function(env, NULL, NULL, name, 0, 1, NULL, NULL, NULL, ring,
                                        &instance->bell) == napi_ok &&
        napi_unref_threadsafe_function(env, instance->bell) == napi_ok &&
        napi_set_instance_data(env, instance, NULL, NULL) == napi_ok &&
        napi_add_env_cleanup_hook(env, end, instance) == napi_ok)
        return instance;
    free(instance);
    return NULL;
}

static bool add_functions(napi_env env, napi_value exports)
{
    static const struct {
        const char *name;
        napi_callback function;
    } own[] = {
        {"close", sbx_node_handle_close},   {"newToken", sbx_node_token_new},
        {"trigger", sbx_node_token_trigger}, {"answer", sbx_node_answer},
        {"setLog", sbx_node_set_log},       {"setErrorMaker", set_error_maker},
        {"openHandles", count_handles},     {"shutDown", shut_down},
    };
    bool good = true;
    for (size_t each = 0; each < sizeof own / sizeof own[0]; each++)
        good = good && add_function(env, exports, own[each].name, own[each].function, NULL);
    for (size_t each = 0; each < sbx_node_entry_count; each++)
        good = good && add_function(env, exports, sbx_node_entries[each].name, sbx_node_begin,
                                    &sbx_node_entries[each]);
    for (size_t each = 0; each < sbx_node_getter_count; each++)
        good = good && add_function(env, exports, sbx_node_getters[each].name, read_getter,
                                    &sbx_node_getters[each]);
    return good;
}

static bool add_function(napi_env env, napi_value exports, const char *name,
                         napi_callback function, const void *data)
{
    napi_value value;
    return napi_create_function(env, name, NAPI_AUTO_LENGTH, function, (void *)(uintptr_t)data,
                                &value) == napi_ok &&
           napi_set_named_property(env, exports, name, value) == napi_ok;
}

/* (self, word?) */
static napi_value read_getter(napi_env env, napi_callback_info info)
{
    size_t count = 2;
    napi_value given[2], shown = NULL;
    void *data, *thing = NULL;
    char text[64] = "";
    int word = 0;
    if (napi_get_cb_info(env, info, &count, given, NULL, &data) != napi_ok)
        return NULL;
    const struct getter *getter = data;
    if (getter->self != NULL) {
        struct handle *handle = sbx_node_handle_of(env, given[0], getter->self);
        if (handle == NULL)
            return NULL;
        if (handle->is_closed) {
            napi_throw_error(env, NULL, "the handle was closed");
            return NULL;
        }
        thing = handle->thing;
    }
    if (getter->words != NULL &&
        (napi_get_value_string_utf8(env, given[1], text, sizeof text, NULL) != napi_ok ||
         !sbx_node_word_number(getter->words, text, &word))) {
        napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", "there is no such word");
        return NULL;
    }
    struct value value = {0};
    getter->read(thing, word, &value);
    if (value.is_text)
        napi_create_string_utf8(env, value.text, NAPI_AUTO_LENGTH, &shown);
    else if (value.is_truth)
        napi_get_boolean(env, value.number != 0, &shown);
    else
        napi_create_int64(env, value.number, &shown);
    return shown;
}

static napi_value set_error_maker(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value value;
    struct instance *instance = sbx_node_instance(env);
    if (napi_get_cb_info(env, info, &count, &value, NULL, NULL) == napi_ok &&
        instance->make_error == NULL)
        napi_create_reference(env, value, 1, &instance->make_error);
    return NULL;
}

/* How many things of the library are held: for tests that look for leaks. */
static napi_value count_handles(napi_env env, napi_callback_info info)
{
    (void)info;
    napi_value value = NULL;
    napi_create_double(env, (double)atomic_load(&sbx_node_instance(env)->open_handles), &value);
    return value;
}

/* (ms): the program ends; what is under way is cancelled and waited for, so long at most. */
static napi_value shut_down(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value value;
    uint32_t ms = 0;
    if (napi_get_cb_info(env, info, &count, &value, NULL, NULL) == napi_ok)
        napi_get_value_uint32(env, value, &ms);
    struct instance *instance = sbx_node_instance(env);
    if (end_calls(instance, ms))
        sbx_node_handles_free(instance);
    return NULL;
}

struct instance *sbx_node_instance(napi_env env)
{
    void *data = NULL;
    napi_get_instance_data(env, &data);
    return data;
}

/* On the instance's own thread, whenever somebody has rung the bell. */
static void ring(napi_env env, napi_value function, void *context, void *data)
{
    (void)function;
    (void)context;
    (void)data;
    if (env != NULL)
        deliver_all(env, sbx_node_instance(env));
}

static void deliver_all(napi_env env, struct instance *instance)
{
    pthread_mutex_lock(&instance->mutex);
    struct message *message = instance->first;
    instance->first = NULL;
    instance->last = &instance->first;
    pthread_mutex_unlock(&instance->mutex);
    while (message != NULL) {
        struct message *next = message->next;
        napi_handle_scope scope;
        napi_value thrown;
        bool is_pending = false;
        if (env != NULL)
            napi_open_handle_scope(env, &scope);
        message->deliver(env, message);
        if (env != NULL) {
            napi_is_exception_pending(env, &is_pending);
            if (is_pending && napi_get_and_clear_last_exception(env, &thrown) == napi_ok)
                napi_fatal_exception(env, thrown);
            napi_close_handle_scope(env, scope);
        }
        message = next;
    }
}

bool sbx_node_send(struct instance *instance, struct message *message)
{
    pthread_mutex_lock(&instance->mutex);
    bool has_ended = instance->ended;
    if (!has_ended)
        append(instance, message);
    pthread_mutex_unlock(&instance->mutex);
    return !has_ended;
}

/* With the mutex held. One ring is enough for all that come before it is heard. */
static void append(struct instance *instance, struct message *message)
{
    bool was_empty = instance->first == NULL;
    message->next = NULL;
    *instance->last = message;
    instance->last = &message->next;
    if (was_empty)
        napi_call_threadsafe_function(instance->bell, NULL, napi_tsfn_nonblocking);
    pthread_cond_signal(&instance->idle);
}

void sbx_node_work(struct instance *instance, struct job *job)
{
    pthread_mutex_lock(&instance->mutex);
    instance->working++;
    pthread_mutex_unlock(&instance->mutex);
    sbx_node_pool_run(job);
}

void sbx_node_job_done(struct instance *instance, struct message *message)
{
    pthread_mutex_lock(&instance->mutex);
    instance->working--;
    if (!instance->ended)
        append(instance, message);
    pthread_mutex_unlock(&instance->mutex);
}

void sbx_node_hold(struct instance *instance)
{
    if (instance->outstanding++ == 0)
        napi_ref_threadsafe_function(instance->env, instance->bell);
}

void sbx_node_let_go(struct instance *instance)
{
    if (--instance->outstanding == 0)
        napi_unref_threadsafe_function(instance->env, instance->bell);
}

void sbx_node_instance_keep(struct instance *instance)
{
    instance->references++;
}

void sbx_node_instance_drop(struct instance *instance)
{
    if (--instance->references > 0)
        return;
    pthread_cond_destroy(&instance->idle);
    pthread_mutex_destroy(&instance->mutex);
    free(instance);
}

/* Cancel what is under way and wait for it. False: something has not ended in time. */
static bool end_calls(struct instance *instance, uint32_t most_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += most_ms / 1000;
    until.tv_nsec += (long)(most_ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    atomic_store(&instance->stopping, true);
    sbx_node_log_end(instance);
    sbx_node_cancel_all(instance);
    for (bool is_late = false;;) {
        deliver_all(NULL, instance);
        pthread_mutex_lock(&instance->mutex);
        while (instance->first == NULL && instance->working > 0 && !is_late)
            is_late = pthread_cond_clockwait(&instance->idle, &instance->mutex, CLOCK_MONOTONIC,
                                             &until) == ETIMEDOUT;
        bool has_ended = instance->first == NULL && instance->working == 0;
        pthread_mutex_unlock(&instance->mutex);
        if (has_ended || is_late)
            return has_ended;
    }
}

/* The environment goes: from here on nobody rings. */
static void end(void *data)
{
    struct instance *instance = data;
    bool has_ended = end_calls(instance, END_MS);
    pthread_mutex_lock(&instance->mutex);
    instance->ended = true;
    pthread_mutex_unlock(&instance->mutex);
    if (!has_ended)
        return; /* a thread still works with it: it is left to the end of the process */
    sbx_node_handles_free(instance);
    sbx_node_instance_drop(instance);
}
