/*
 * What the library tells and asks while it works: how far a copy is, whether somebody works in a
 * workspace, and its log. It never enters JavaScript from a thread of its own: it leaves a message.
 */

#include "engine.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECKS_MAX 8
#define LOG_QUEUE_MAX 1024
#define PATH_SIZE 512

struct progress {
    struct message message;
    struct instance *instance;
    napi_ref function;
    bool is_sent; /* and `latest` not yet delivered; under the mutex */
    sandbox_copy_progress latest;
    char path[PATH_SIZE];
};

/* A function of the caller's that a suspend asks. Lives as long as the call. */
struct asker {
    struct call *call;
    napi_ref function;
};

/* One question. The thread that asks and JavaScript each hold it. */
struct question {
    struct message message, late;
    struct question *next; /* of the same call */
    struct call *call;
    napi_ref function;
    sandbox_workspace *workspace;
    struct handle *lent; /* by which JavaScript looks into the workspace */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    size_t references;
    bool is_ended; /* no answer is wanted any more; the instance's thread only */
    bool is_returned;
    sandbox_status status;
    bool is_active;
    char who[200];
    char message_text[200];
};

struct line {
    struct message message;
    struct instance *instance;
    sandbox_log_level level;
    char text[];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The one hook of this process, under the mutex. */
static struct instance *log_instance;
static napi_ref log_function;
static size_t log_waiting;

static void tell_progress(const sandbox_copy_progress *progress, void *user_data);
static void deliver_progress(napi_env env, struct message *message);
static bool read_check(struct reading *reading, napi_value value, sandbox_check *check);
static sandbox_status ask(sandbox_workspace *workspace, const sandbox_call *call, void *user_data,
                          bool *active, char who[200], sandbox_error *error);
static bool wait_for_answer(struct question *question, const sandbox_call *call);
static void deliver_question(napi_env env, struct message *message);
static void deliver_late(napi_env env, struct message *message);
static void end_question(struct question *question);
static void return_question(void *owner);
static void forget_question(struct question *question);
static void keep_question(struct question *question);
static void drop_question(struct question *question);
static void finalize_question(napi_env env, void *data, void *hint);
static void take_line(sandbox_log_level level, const char *text, void *user_data);
static void deliver_line(napi_env env, struct message *message);
static void set_number(napi_env env, napi_value object, const char *name, double number);

bool sbx_node_read_progress(struct reading *reading, const struct field *field, char *base,
                            napi_value value)
{
    napi_valuetype type;
    napi_ref held;
    if (napi_typeof(reading->env, value, &type) != napi_ok || type != napi_function)
        return sbx_node_complain(reading, "'%s' must be a function", field->name);
    if (!sbx_node_hold_value(reading, value, &held))
        return false;
    struct progress *progress = calloc(1, sizeof *progress);
    if (progress == NULL)
        return sbx_node_complain(reading, "no memory for the arguments");
    progress->message.deliver = deliver_progress;
    progress->instance = reading->call->instance;
    progress->function = held;
    reading->call->progress = progress;
    *(void (**)(const sandbox_copy_progress *, void *))(void *)(base + field->offset) =
        tell_progress;
    *(void **)(void *)(base + field->other) = progress;
    return true;
}

/* On the calling thread. Only the newest is kept. */
static void tell_progress(const sandbox_copy_progress *told, void *user_data)
{
    struct progress *progress = user_data;
    pthread_mutex_lock(&mutex);
    progress->latest = *told;
    snprintf(progress->path, sizeof progress->path, "%s", told->path == NULL ? "" : told->path);
    if (!progress->is_sent)
        progress->is_sent = sbx_node_send(progress->instance, &progress->message);
    pthread_mutex_unlock(&mutex);
}

static void deliver_progress(napi_env env, struct message *message)
{
    struct progress *progress =
        (struct progress *)((char *)message - offsetof(struct progress, message));
    char path[PATH_SIZE];
    pthread_mutex_lock(&mutex);
    sandbox_copy_progress latest = progress->latest;
    memcpy(path, progress->path, sizeof path);
    progress->is_sent = false;
    pthread_mutex_unlock(&mutex);
    napi_value function, object, text, nothing;
    if (env == NULL || napi_get_reference_value(env, progress->function, &function) != napi_ok ||
        napi_create_object(env, &object) != napi_ok ||
        napi_create_string_utf8(env, path, NAPI_AUTO_LENGTH, &text) != napi_ok ||
        napi_get_undefined(env, &nothing) != napi_ok)
        return;
    set_number(env, object, "bytes", (double)latest.bytes);
    set_number(env, object, "bytesTotal", (double)latest.bytes_total);
    set_number(env, object, "entries", (double)latest.entries);
    napi_set_named_property(env, object, "path", text);
    napi_call_function(env, nothing, function, 1, &object, NULL);
}

void sbx_node_progress_end(napi_env env, struct progress *progress)
{
    (void)env;
    free(progress);
}

/* --- Checks ------------------------------------------------------------------------------- */

bool sbx_node_read_checks(struct reading *reading, const struct field *field, char *base,
                          napi_value value)
{
    bool is_array = false;
    uint32_t count = 0;
    if (napi_is_array(reading->env, value, &is_array) != napi_ok || !is_array ||
        napi_get_array_length(reading->env, value, &count) != napi_ok || count > CHECKS_MAX)
        return sbx_node_complain(reading, "'%s' must be an array of at most %d", field->name,
                                 CHECKS_MAX);
    sandbox_check *checks = sbx_node_memory(reading->call, (count + 1) * sizeof *checks);
    if (checks == NULL)
        return sbx_node_complain(reading, "no memory for the arguments");
    for (uint32_t each = 0; each < count; each++) {
        napi_value element;
        if (napi_get_element(reading->env, value, each, &element) != napi_ok ||
            !read_check(reading, element, &checks[each]))
            return false;
    }
    *(const sandbox_check **)(void *)(base + field->offset) = checks;
    *(size_t *)(void *)(base + field->other) = count;
    return true;
}

/* A function of the glue, (workspace, question), or {opencode: {port, user, password}}. */
static bool read_check(struct reading *reading, napi_value value, sandbox_check *check)
{
    napi_env env = reading->env;
    napi_valuetype type;
    napi_value options;
    bool is_there = false;
    if (napi_typeof(env, value, &type) == napi_ok && type == napi_function) {
        struct asker *asker = sbx_node_memory(reading->call, sizeof *asker);
        if (asker == NULL)
            return sbx_node_complain(reading, "no memory for the arguments");
        asker->call = reading->call;
        *check = (sandbox_check){ask, asker};
        return sbx_node_hold_value(reading, value, &asker->function);
    }
    if (type != napi_object ||
        napi_has_named_property(env, value, "opencode", &is_there) != napi_ok || !is_there ||
        napi_get_named_property(env, value, "opencode", &options) != napi_ok ||
        napi_typeof(env, options, &type) != napi_ok || type != napi_object)
        return sbx_node_complain(reading, "a check must be a function or {opencode: {…}}");
    char *opencode = sbx_node_memory(reading->call, sbx_node_opencode_shape.size);
    if (opencode == NULL)
        return sbx_node_complain(reading, "no memory for the arguments");
    *(size_t *)(void *)opencode = sbx_node_opencode_shape.size;
    *check = (sandbox_check){sandbox_check_opencode, opencode};
    return sbx_node_read_shape(reading, "a check", &sbx_node_opencode_shape, opencode, options);
}

/* On the thread of the suspend: it waits until JavaScript has answered and let the handle go. */
static sandbox_status ask(sandbox_workspace *workspace, const sandbox_call *call, void *user_data,
                          bool *active, char who[200], sandbox_error *error)
{
    struct asker *asker = user_data;
    struct question *question = calloc(1, sizeof *question);
    sandbox_status status = SANDBOX_NO_MEMORY;
    const char *text = "no memory for a question";
    if (question != NULL) {
        *question = (struct question){.message.deliver = deliver_question,
                                      .late.deliver = deliver_late, .call = asker->call,
                                      .function = asker->function, .workspace = workspace,
                                      .mutex = PTHREAD_MUTEX_INITIALIZER,
                                      .changed = PTHREAD_COND_INITIALIZER, .references = 1,
                                      .status = SANDBOX_CANCELLED,
                                      .message_text = "cancelled by the caller"};
        if (wait_for_answer(question, call)) {
            status = question->status;
            *active = question->is_active;
            snprintf(who, 200, "%s", question->who);
        } else
            status = SANDBOX_CANCELLED;
        text = question->message_text;
    }
    if (status != SANDBOX_OK && error != NULL) {
        *error = (sandbox_error){.status = status};
        snprintf(error->message, sizeof error->message, "%s", text);
    }
    if (question != NULL)
        drop_question(question);
    return status;
}

/* False: the program has ended. */
static bool wait_for_answer(struct question *question, const sandbox_call *call)
{
    struct instance *instance = question->call->instance;
    uint32_t timeout_ms = call == NULL ? 0 : call->timeout_ms;
    bool is_bounded = timeout_ms != 0 && timeout_ms != SANDBOX_FOREVER, is_late = false;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (!sbx_node_send(instance, &question->message))
        return false;
    pthread_mutex_lock(&question->mutex);
    while (!question->is_returned) {
        if (!is_bounded || is_late)
            pthread_cond_wait(&question->changed, &question->mutex);
        else if (pthread_cond_clockwait(&question->changed, &question->mutex, CLOCK_MONOTONIC,
                                        &until) == ETIMEDOUT &&
                 !question->is_returned) {
            is_late = true;
            pthread_mutex_unlock(&question->mutex);
            keep_question(question);
            if (!sbx_node_send(instance, &question->late))
                drop_question(question);
            pthread_mutex_lock(&question->mutex);
        }
    }
    pthread_mutex_unlock(&question->mutex);
    return true;
}

static void deliver_question(napi_env env, struct message *message)
{
    struct question *question =
        (struct question *)((char *)message - offsetof(struct question, message));
    napi_value function, nothing, given[2] = {NULL};
    if (env != NULL && !question->call->is_cancelled)
        given[0] = sbx_node_handle_lend(env, &sbx_node_workspace_kind, question->workspace,
                                        return_question, question, &question->lent);
    if (given[0] == NULL) {
        return_question(question);
        return;
    }
    question->next = question->call->questions;
    question->call->questions = question;
    keep_question(question);
    bool is_held =
        napi_create_external(env, question, finalize_question, NULL, &given[1]) == napi_ok;
    if (!is_held)
        drop_question(question);
    if (!is_held || napi_get_reference_value(env, question->function, &function) != napi_ok ||
        napi_get_undefined(env, &nothing) != napi_ok ||
        napi_call_function(env, nothing, function, 2, given, NULL) != napi_ok)
        end_question(question);
}

/* (question, active, who, complaint): a complaint ends the suspend. */
napi_value sbx_node_answer(napi_env env, napi_callback_info info)
{
    size_t count = 4;
    napi_value given[4];
    void *data = NULL;
    if (napi_get_cb_info(env, info, &count, given, NULL, NULL) != napi_ok ||
        napi_get_value_external(env, given[0], &data) != napi_ok)
        return NULL;
    struct question *question = data;
    if (question->is_ended)
        return NULL;
    char complaint[sizeof question->message_text] = "";
    napi_get_value_bool(env, given[1], &question->is_active);
    napi_get_value_string_utf8(env, given[2], question->who, sizeof question->who, NULL);
    napi_get_value_string_utf8(env, given[3], complaint, sizeof complaint, NULL);
    question->status = complaint[0] == '\0' ? SANDBOX_OK : SANDBOX_FAILED;
    memcpy(question->message_text, complaint, sizeof complaint);
    end_question(question);
    return NULL;
}

void sbx_node_questions_end(struct call *call)
{
    while (call->questions != NULL)
        end_question(call->questions);
}

/* The handle is taken back: what is under way on it ends first. */
static void end_question(struct question *question)
{
    forget_question(question);
    question->is_ended = true;
    struct handle *lent = question->lent;
    sbx_node_cancel_on(lent);
    if (!lent->is_closed) {
        lent->is_closed = true;
        sbx_node_handle_drop(lent);
    }
}

static void deliver_late(napi_env env, struct message *message)
{
    (void)env;
    struct question *question =
        (struct question *)((char *)message - offsetof(struct question, late));
    if (!question->is_ended && question->lent != NULL) {
        question->status = SANDBOX_TIMED_OUT;
        snprintf(question->message_text, sizeof question->message_text,
                 "a check did not answer within the call's deadline");
        end_question(question);
    }
    drop_question(question);
}

/* Nobody looks into the workspace any more. */
static void return_question(void *owner)
{
    struct question *question = owner;
    if (!question->is_ended && question->lent != NULL) { /* the garbage collector took both */
        forget_question(question);
        question->status = SANDBOX_FAILED;
        snprintf(question->message_text, sizeof question->message_text,
                 "a check can give no answer any more: nothing holds its promise");
    }
    question->is_ended = true;
    pthread_mutex_lock(&question->mutex);
    question->is_returned = true;
    pthread_cond_signal(&question->changed);
    pthread_mutex_unlock(&question->mutex);
}

static void forget_question(struct question *question)
{
    struct question **place = &question->call->questions;
    while (*place != NULL && *place != question)
        place = &(*place)->next;
    if (*place != NULL)
        *place = question->next;
}

static void keep_question(struct question *question)
{
    pthread_mutex_lock(&mutex);
    question->references++;
    pthread_mutex_unlock(&mutex);
}

static void drop_question(struct question *question)
{
    pthread_mutex_lock(&mutex);
    bool is_last = --question->references == 0;
    pthread_mutex_unlock(&mutex);
    if (is_last)
        free(question);
}

static void finalize_question(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)hint;
    drop_question(data);
}

/* --- The log ------------------------------------------------------------------------------ */

/* (level, function or undefined) */
napi_value sbx_node_set_log(napi_env env, napi_callback_info info)
{
    struct instance *instance = sbx_node_instance(env);
    size_t count = 2;
    napi_value given[2];
    napi_valuetype type;
    char text[16] = "";
    int level = SANDBOX_LOG_OFF;
    napi_ref function = NULL, former = NULL;
    if (napi_get_cb_info(env, info, &count, given, NULL, NULL) != napi_ok)
        return NULL;
    napi_get_value_string_utf8(env, given[0], text, sizeof text, NULL);
    if (!sbx_node_word_number(&sbx_node_log_words, text, &level)) {
        napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", "there is no such level of the log");
        return NULL;
    }
    if (napi_typeof(env, given[1], &type) != napi_ok ||
        (type == napi_function &&
         napi_create_reference(env, given[1], 1, &function) != napi_ok))
        return NULL;
    pthread_mutex_lock(&mutex);
    /* A reference of another environment is left to it: sbx_node_log_end(). */
    if (log_instance == instance)
        former = log_function;
    log_instance = function == NULL ? NULL : instance;
    log_function = function;
    pthread_mutex_unlock(&mutex);
    sandbox_set_log(function == NULL ? SANDBOX_LOG_OFF : (sandbox_log_level)level,
                    function == NULL ? NULL : take_line, NULL);
    if (former != NULL)
        napi_delete_reference(env, former);
    return NULL;
}

/* From any thread. Lines that nobody takes in time are lost. */
static void take_line(sandbox_log_level level, const char *text, void *user_data)
{
    (void)user_data;
    size_t size = strlen(text) + 1;
    struct line *line = malloc(sizeof *line + size);
    if (line == NULL)
        return;
    *line = (struct line){.message.deliver = deliver_line, .level = level};
    memcpy(line->text, text, size);
    pthread_mutex_lock(&mutex);
    line->instance = log_instance;
    bool is_sent = log_instance != NULL && log_waiting < LOG_QUEUE_MAX &&
                   sbx_node_send(log_instance, &line->message);
    log_waiting += is_sent;
    pthread_mutex_unlock(&mutex);
    if (!is_sent)
        free(line);
}

static void deliver_line(napi_env env, struct message *message)
{
    struct line *line = (struct line *)((char *)message - offsetof(struct line, message));
    napi_value function = NULL, nothing, given[2];
    pthread_mutex_lock(&mutex);
    log_waiting--;
    napi_ref held = log_instance == line->instance ? log_function : NULL;
    pthread_mutex_unlock(&mutex);
    const char *level = "";
    for (size_t each = 0; each < sbx_node_log_words.count; each++)
        if (sbx_node_log_words.list[each].number == (int)line->level)
            level = sbx_node_log_words.list[each].text;
    if (env != NULL && held != NULL &&
        napi_get_reference_value(env, held, &function) == napi_ok && function != NULL &&
        napi_get_undefined(env, &nothing) == napi_ok &&
        napi_create_string_utf8(env, level, NAPI_AUTO_LENGTH, &given[0]) == napi_ok &&
        napi_create_string_utf8(env, line->text, NAPI_AUTO_LENGTH, &given[1]) == napi_ok)
        napi_call_function(env, nothing, function, 2, given, NULL);
    free(line);
}

void sbx_node_log_end(struct instance *instance)
{
    pthread_mutex_lock(&mutex);
    bool is_ours = log_instance == instance;
    if (is_ours) {
        log_instance = NULL;
        log_function = NULL;
    }
    pthread_mutex_unlock(&mutex);
    if (is_ours)
        sandbox_set_log(SANDBOX_LOG_OFF, NULL, NULL);
}

static void set_number(napi_env env, napi_value object, const char *name, double number)
{
    napi_value value;
    if (napi_create_double(env, number, &value) == napi_ok)
        napi_set_named_property(env, object, name, value);
}
