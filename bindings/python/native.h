/*
 * Between Python and the library, for the wrapper that SWIG writes: options from keywords, structs
 * to objects, durations, deadlines, interrupts, exceptions.
 *
 * Everything here is called with the interpreter's lock held, unless it says otherwise. What
 * returns a bool has set a Python exception where that is false.
 */
#ifndef SANDBOX_PYTHON_NATIVE_H
#define SANDBOX_PYTHON_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sandbox/sandbox.h>

/* What a field of a struct is, both ways. */
enum native_kind {
    NATIVE_BOOL,
    NATIVE_UNSIGNED,
    NATIVE_SIGNED,
    NATIVE_SPAN,     /* milliseconds of a duration: seconds in Python */
    NATIVE_MOMENT,   /* milliseconds of Unix time: seconds in Python, 0 is None */
    NATIVE_WORD,     /* an enum */
    NATIVE_TEXT,
    NATIVE_CHARS,    /* text inside the struct */
    NATIVE_TEXTS,    /* NULL-terminated array of text */
    NATIVE_PAIRS,    /* the same, "name=value": a dict */
    NATIVE_BYTES,    /* a pointer and, elsewhere, a size */
    NATIVE_EXIT,     /* a sandbox_process_exit */
    NATIVE_CHECKS,   /* an array of sandbox_check and its count */
    NATIVE_PROGRESS, /* a function and, after it, its user_data */
    NATIVE_OPTIONS,  /* a pointer to another options struct */
};

struct native_shape;

struct native_word {
    const char *word; /* NULL ends a table */
    int number;
};

struct native_field {
    const char *name; /* in Python; NULL ends a table */
    const char *comment;
    enum native_kind kind;
    size_t width, offset;
    size_t count_offset; /* BYTES and CHECKS: of the size or count */
    const struct native_word *words;
    const struct native_shape *shape; /* OPTIONS: what it points at */
};

struct native_shape {
    const char *name, *comment;
    const struct native_field *fields;
    size_t size;
    bool has_size; /* it begins with its own size */
};

/* Memory that options point to: freed, and since it may be secret wiped, after the call. */
struct native_arena {
    struct native_block *blocks;
    Py_buffer view;
    bool has_view;
};

/* One call of the library that is under way. */
struct native_call {
    sandbox_call call;
    struct native_call *next, *before;
    struct native_call *outer; /* the one in which this one is, on the same thread */
    bool listed;
    bool on_main_thread;
};

/* options.c. Options are a dict, or None for all defaults: then *used is NULL. */
bool native_options(PyObject *given, const struct native_shape *shape, void *options,
                    void **used, struct native_arena *arena);
void *native_arena_take(struct native_arena *arena, size_t size);
void native_arena_clear(struct native_arena *arena);
/* The name and message say which argument it was. */
bool native_text(PyObject *value, const char *name, struct native_arena *arena,
                 const char **text);

/* values.c */
bool native_milliseconds(PyObject *value, const char *name, uint64_t at_most, uint64_t *ms);
bool native_number(PyObject *value, const struct native_word *words, const char *name,
                   int *number);
PyObject *native_word_object(const struct native_word *words, int number);
PyObject *native_decode(const char *text);

/* results.c */
bool native_results_begin(PyObject *module);
PyObject *native_object(const struct native_shape *shape, const void *value);
bool native_ability(PyObject *value, sandbox_ability *ability);
bool native_log_level(PyObject *value, sandbox_log_level *level);

/* calls.c. A call is None, a duration, or a pair of a duration or None and a Cancel or None. */
typedef bool (*native_cancel_of)(PyObject *object, sandbox_cancel **cancel);
bool native_calls_begin(native_cancel_of cancel_of);
bool native_call_begin(struct native_call *call, PyObject *given);
void native_call_end(struct native_call *call);
/* Ends every call that is under way or will be, but on the main thread. */
void native_calls_stop(void);
/* Whether a status is a success; else, or if a callback or a signal raised, an exception is set. */
bool native_succeeded(sandbox_status status, const sandbox_error *error);
/* Whether something that was raised in a callback or by a signal waits to be raised again. */
bool native_has_raised(void);
/* Takes over the exception that is set, to raise it once the call is back. */
void native_keep_raised(void);
/* From code to class; the class for 0 is the one for codes that are not known. */
bool native_set_errors(PyObject *classes);

/* callbacks.c: functions of the user's, called by the library on the thread that called it. */
typedef PyObject *(*native_wrap_workspace)(sandbox_workspace *workspace);
typedef void (*native_unwrap)(PyObject *object);
void native_callbacks_begin(native_wrap_workspace wrap, native_unwrap unwrap);
bool native_checks(PyObject *given, struct native_arena *arena, const sandbox_check **checks,
                   size_t *count);
bool native_progress(PyObject *given, void **function, void **user_data);

/* log.c: lines wait in a queue of bounded length until a thread of Python's takes them. */
void native_log_set(sandbox_log_level level);
/* A (level, line, dropped) tuple, or None if there was none for that long. */
PyObject *native_log_take(unsigned wait_ms);

#endif
