/*
 * The engine of the Node.js binding: what its files share with each other and with the tables that
 * generate.py writes. A call is described by a table row; the engine reads its arguments, runs it
 * on a thread of the pool and settles its promise.
 */
#ifndef SBX_NODE_ENGINE_H
#define SBX_NODE_ENGINE_H

#define NAPI_VERSION 8
#include <node_api.h>
#include <pthread.h>
#include <sandbox/sandbox.h>
#include <stdatomic.h>

/* --- Tables: what generate.py writes -------------------------------------------------------- */

struct word {
    int number;
    const char *text;
};

/* An enum: its words in JavaScript. */
struct words {
    const struct word *list;
    size_t count;
};

enum field_kind {
    FIELD_BOOL,
    FIELD_U16,
    FIELD_U32,
    FIELD_WAIT, /* u32 of milliseconds: Infinity is SANDBOX_FOREVER */
    FIELD_U64,
    FIELD_SIZE,
    FIELD_I32,
    FIELD_I64,
    FIELD_WORD,     /* an enum */
    FIELD_TEXT,     /* const char * */
    FIELD_CHARS,    /* char[n], out only */
    FIELD_TEXTS,    /* const char *const *, NULL-terminated: an array */
    FIELD_PAIRS,    /* the same, "NAME=value": an object */
    FIELD_BYTES,    /* a pointer, and a size_t at `other` */
    FIELD_CHECKS,   /* sandbox_check *, and their count at `other` */
    FIELD_PROGRESS, /* the function, and its user_data at `other` */
    FIELD_OPTIONS,  /* a pointer to another options struct */
};

struct shape;

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset;
    size_t other;
    const struct words *words;
    const struct shape *shape; /* OPTIONS: what it points at */
};

/* A struct of the library: its fields that JavaScript sees. */
struct shape {
    const char *name;
    size_t size;
    const struct field *fields;
    size_t count;
    bool has_size; /* it begins with `size` */
};

struct handle_kind {
    const char *name;
    void (*free)(void *thing);
};

/* A list, or a thing of its own that is shown as an object: then it has no `count`. */
struct owned_kind {
    size_t (*count)(const void *owned);
    const void *(*at)(const void *owned, size_t index);
    void (*free)(void *owned);
    const struct shape *shape;
};

struct call;

enum parameter_kind {
    PARAMETER_TEXT,
    PARAMETER_TEXT_OR_NOTHING,
    PARAMETER_NUMBER, /* up to `most` */
    PARAMETER_BYTES,
    PARAMETER_FIELD,   /* goes into the options' field `name` */
    PARAMETER_COMMAND, /* a string or an array: the options' `command` or `argv` */
};

struct parameter {
    enum parameter_kind kind;
    const char *name;
    uint64_t most;
};

enum outcome {
    OUTCOME_NOTHING,
    OUTCOME_HANDLE,   /* `produces`: handle_kind */
    OUTCOME_LIST,     /* `produces`: owned_kind */
    OUTCOME_FIRST,    /* the same, of which the first is shown */
    OUTCOME_STRUCT,   /* `produces`: shape */
    OUTCOME_COUNT,    /* a size_t */
    OUTCOME_BYTES,    /* ours, with sandbox_bytes_free() */
    OUTCOME_BORROWED, /* the handle's, until its next call */
};

#define SHAPES_MAX 2
#define PARAMETERS_MAX 3
#define HELD_MAX 16

/* One function that can wait. JavaScript calls it as (self, token, options, parameters…). */
struct entry {
    const char *name;
    sandbox_status (*run)(struct call *call);
    const struct handle_kind *self; /* or NULL */
    enum outcome outcome;
    const void *produces;
    const struct shape *shapes[SHAPES_MAX];
    const char *ignored; /* options that the glue takes: " encoding " */
    struct parameter parameters[PARAMETERS_MAX];
    size_t parameter_count;
};

struct value {
    bool is_text, is_truth;
    const char *text;
    int64_t number;
};

/* One function that answers at once. JavaScript calls it as (self, word?). */
struct getter {
    const char *name;
    const struct handle_kind *self;
    const struct words *words; /* of its argument, or NULL */
    void (*read)(const void *thing, int word, struct value *value);
};

extern const struct entry sbx_node_entries[];
extern const size_t sbx_node_entry_count;
extern const struct getter sbx_node_getters[];
extern const size_t sbx_node_getter_count;
extern const struct words sbx_node_log_words;
extern const struct handle_kind sbx_node_workspace_kind;
extern const struct shape sbx_node_opencode_shape;

/* --- The pool: threads of this process, whichever instance they work for --------------------- */

struct job {
    struct job *next;
    void (*run)(struct job *job);
};

/* Run it on a thread of the pool, some time; on this one only where no thread can be started. */
void sbx_node_pool_run(struct job *job);

/* --- An instance: the binding in one Node.js environment ------------------------------------- */

/* From any thread to the instance's own. */
struct message {
    struct message *next;
    /* `env` is NULL where JavaScript cannot be entered any more: then only clean up.
       An exception that it leaves pending is the program's to handle. */
    void (*deliver)(napi_env env, struct message *message);
};

struct instance {
    napi_env env;
    napi_threadsafe_function bell;
    napi_ref make_error;
    struct call *calls;     /* under way; its own thread only */
    struct handle *handles; /* alive; its own thread only */
    size_t outstanding;     /* reasons to keep the program alive; its own thread only */
    atomic_size_t open_handles;
    atomic_bool stopping;

    pthread_mutex_t mutex;
    pthread_cond_t idle;
    struct message *first, **last; /* to deliver */
    size_t working;                /* jobs that the pool has of it */
    bool ended;                    /* no bell any more */
    size_t references;             /* of externals and of the environment */
};

struct instance *sbx_node_instance(napi_env env);
/* Hand a message over. False where the environment has ended: the message stays the caller's. */
bool sbx_node_send(struct instance *instance, struct message *message);
/* Give the pool a job of this instance; the job ends with sbx_node_job_done(). */
void sbx_node_work(struct instance *instance, struct job *job);
/* The job's last act: hands the message over, after which the job must not be touched. */
void sbx_node_job_done(struct instance *instance, struct message *message);
/* What keeps the program alive. */
void sbx_node_hold(struct instance *instance);
void sbx_node_let_go(struct instance *instance);
void sbx_node_instance_keep(struct instance *instance);
void sbx_node_instance_drop(struct instance *instance);

/* --- Handles: things of the library that JavaScript holds ------------------------------------- */

struct handle {
    struct handle *next, **place; /* in the instance */
    struct instance *instance;
    const struct handle_kind *kind;
    void *thing;
    size_t references; /* JavaScript's one and one for each call; the instance's thread only */
    bool is_closed;    /* no new calls */
    bool is_gone;      /* the thing is freed */
    bool is_forgotten; /* by JavaScript */
    napi_deferred closing;         /* to resolve once it is freed, or NULL */
    void (*returned)(void *owner); /* of a lent one: instead of freeing it */
    void *owner;
    struct job job;
    struct message message;
};

/* A new handle as an External; frees `thing` where that fails. NULL: an exception is pending. */
napi_value sbx_node_handle_new(napi_env env, const struct handle_kind *kind, void *thing);
/* On a thing that stays its owner's, who is told when JavaScript has let it go. */
napi_value sbx_node_handle_lend(napi_env env, const struct handle_kind *kind, void *thing,
                                void (*returned)(void *owner), void *owner, struct handle **made);
/* The handle of a value; NULL: an exception is pending. */
struct handle *sbx_node_handle_of(napi_env env, napi_value value, const struct handle_kind *kind);
void sbx_node_handle_keep(struct handle *handle);
void sbx_node_handle_drop(struct handle *handle);
napi_value sbx_node_handle_close(napi_env env, napi_callback_info info);
/* Give all of them back; no call may be under way. */
void sbx_node_handles_free(struct instance *instance);

/* Cancel tokens, for AbortSignal. */
struct token;
napi_value sbx_node_token_new(napi_env env, napi_callback_info info);
napi_value sbx_node_token_trigger(napi_env env, napi_callback_info info);
/* From now on the token ends the call; undefined is none. False: it is no token. */
bool sbx_node_token_bind(napi_env env, napi_value value, struct call *call);
void sbx_node_token_drop(struct token *token);

/* --- Calls ------------------------------------------------------------------------------------ */

struct block; /* memory that lives as long as its call */

/* What a copy tells while it goes on, and what a suspend asks before it begins. */
struct progress;
struct question;

struct call {
    struct call *next, **place; /* in the instance */
    struct instance *instance;
    const struct entry *entry;
    struct handle *self;
    struct token *token;
    napi_deferred deferred;
    struct block *memory;
    napi_ref held[HELD_MAX]; /* buffers that the library reads from, functions that it asks */
    size_t held_count;
    struct progress *progress;
    struct question *questions; /* that JavaScript is being asked; its own thread only */
    bool is_cancelled;          /* its own thread only */

    sandbox_call call;
    sandbox_cancel *cancel;
    void *options[SHAPES_MAX]; /* NULL where none were given */
    const char *text[PARAMETERS_MAX];
    uint64_t number[PARAMETERS_MAX];
    const void *data;
    size_t data_size;

    void *out; /* handle, list or bytes, until JavaScript has them */
    const uint8_t *borrowed;
    size_t out_size, count;
    void *result; /* of OUTCOME_STRUCT */
    sandbox_status status;
    sandbox_error error;
    struct job job;
    struct message message;
};

struct reading;

/* The function behind every entry. */
napi_value sbx_node_begin(napi_env env, napi_callback_info info);
void sbx_node_cancel_all(struct instance *instance);
void sbx_node_cancel_of(struct call *call);
/* Those that are under way on a handle. */
void sbx_node_cancel_on(struct handle *handle);
/* Keep a value until the call has ended. */
bool sbx_node_hold_value(struct reading *reading, napi_value value, napi_ref *held);
/* Memory that lives as long as the call, zeroed; NULL: none is left. */
void *sbx_node_memory(struct call *call, size_t size);

/* Arguments and options; a sentence that says what is wrong, or NULL. */
#define COMPLAINT_SIZE 200
struct reading {
    napi_env env;
    struct call *call;
    bool is_range; /* the number is of the right kind, and out of range */
    char complaint[COMPLAINT_SIZE];
};

bool sbx_node_complain(struct reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool sbx_node_read_options(struct reading *reading, napi_value value);
bool sbx_node_read_parameter(struct reading *reading, size_t index, napi_value value);
bool sbx_node_read_field(struct reading *reading, const struct field *field, char *base,
                         napi_value value);
bool sbx_node_read_text(struct reading *reading, const char *name, napi_value value,
                        const char **text);
bool sbx_node_read_list(struct reading *reading, const struct field *field, napi_value value,
                        const char *const **list);
/* `what` they are the options of, for complaints. */
bool sbx_node_read_shape(struct reading *reading, const char *what, const struct shape *shape,
                         char *base, napi_value value);
bool sbx_node_word_number(const struct words *words, const char *text, int *number);

/* Results. They may leave an exception pending, with NULL. */
napi_value sbx_node_show_outcome(napi_env env, struct call *call);
napi_value sbx_node_show_error(napi_env env, const sandbox_error *error);
/* Frees what JavaScript did not get. */
void sbx_node_discard_outcome(struct call *call);

/* What the library asks and tells while it works. */
bool sbx_node_read_checks(struct reading *reading, const struct field *field, char *base,
                          napi_value value);
bool sbx_node_read_progress(struct reading *reading, const struct field *field, char *base,
                            napi_value value);
napi_value sbx_node_answer(napi_env env, napi_callback_info info);
void sbx_node_progress_end(napi_env env, struct progress *progress);
/* The call was cancelled: its questions are not waited for any longer. */
void sbx_node_questions_end(struct call *call);
napi_value sbx_node_set_log(napi_env env, napi_callback_info info);
void sbx_node_log_end(struct instance *instance);

#endif
