/*
 * Functions of the user's that the library calls back on the thread that called it: whether
 * anybody works in a workspace, and how far a copy has come. What they raise is raised again where
 * the call returns.
 */

#include "native.h"

static sandbox_status ask(sandbox_workspace *workspace, const sandbox_call *call, void *user_data,
                          bool *active, char who[200], sandbox_error *error);
static bool read_answer(PyObject *answer, bool *active, char who[200]);
static bool set_check(PyObject *given, struct native_arena *arena, sandbox_check *check);
static void tell_progress(const sandbox_copy_progress *progress, void *user_data);

#define WHO_SIZE 200u
#define CHECKS_MAX 64

extern const struct native_shape shape_sandbox_opencode, shape_sandbox_copy_progress;

static native_wrap_workspace wrap_workspace;
static native_unwrap unwrap;

void native_callbacks_begin(native_wrap_workspace wrapper, native_unwrap unwrapper)
{
    wrap_workspace = wrapper;
    unwrap = unwrapper;
}

bool native_checks(PyObject *given, struct native_arena *arena, const sandbox_check **checks,
                   size_t *count)
{
    PyObject *items = PySequence_Tuple(given);
    if (items == NULL)
        return false;
    Py_ssize_t size = PyTuple_GET_SIZE(items);
    sandbox_check *made = NULL;
    if (size > CHECKS_MAX)
        PyErr_SetString(PyExc_OverflowError, "'checks' holds too many");
    else
        made = native_arena_take(arena, (size_t)(size + 1) * sizeof *made);
    bool good = made != NULL;
    for (Py_ssize_t n = 0; good && n < size; n++)
        good = set_check(PyTuple_GET_ITEM(items, n), arena, &made[n]);
    Py_DECREF(items);
    *checks = made;
    *count = (size_t)size;
    return good;
}

/* A function, or the options of the built-in check as a dict. The caller keeps them alive. */
static bool set_check(PyObject *given, struct native_arena *arena, sandbox_check *check)
{
    if (PyDict_Check(given)) {
        void *used;
        sandbox_opencode *options = native_arena_take(arena, sizeof *options);
        *check = (sandbox_check){sandbox_check_opencode, options};
        return options != NULL &&
               native_options(given, &shape_sandbox_opencode, options, &used, arena);
    }
    if (!PyCallable_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a check must be a function or an Opencode");
        return false;
    }
    *check = (sandbox_check){ask, given};
    return true;
}

static sandbox_status ask(sandbox_workspace *workspace, const sandbox_call *call, void *user_data,
                          bool *active, char who[200], sandbox_error *error)
{
    PyGILState_STATE state = PyGILState_Ensure();
    /* The handle is the library's and ends with the question, whoever has kept the object. */
    PyObject *object = wrap_workspace(workspace);
    PyObject *answer = object == NULL ? NULL : PyObject_CallOneArg(user_data, object);
    if (object != NULL)
        unwrap(object);
    Py_XDECREF(object);
    bool good = answer != NULL && read_answer(answer, active, who);
    Py_XDECREF(answer);
    if (!good)
        native_keep_raised();
    PyGILState_Release(state);
    if (good)
        return SANDBOX_OK;
    if (error != NULL) {
        *error = (sandbox_error){.status = SANDBOX_FAILED, .reason = "check-raised"};
        snprintf(error->message, sizeof error->message, "a check raised an exception");
    }
    return SANDBOX_FAILED;
}

/* None, a bool, or a sentence that says who. */
static bool read_answer(PyObject *answer, bool *active, char who[200])
{
    if (!PyUnicode_Check(answer)) {
        int truth = PyObject_IsTrue(answer);
        *active = truth > 0;
        return truth >= 0;
    }
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(answer, &size);
    if (text == NULL)
        return false;
    size_t kept = (size_t)size < WHO_SIZE ? (size_t)size : WHO_SIZE - 1;
    while (kept > 0 && kept < (size_t)size && ((unsigned char)text[kept] & 0xC0) == 0x80)
        kept--; /* not in the middle of a character */
    memcpy(who, text, kept);
    who[kept] = '\0';
    *active = size > 0;
    return true;
}

bool native_progress(PyObject *given, void **function, void **user_data)
{
    if (!PyCallable_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "'progress' must be a function");
        return false;
    }
    void (*teller)(const sandbox_copy_progress *, void *) = tell_progress;
    memcpy(function, &teller, sizeof teller);
    *user_data = given;
    return true;
}

static void tell_progress(const sandbox_copy_progress *progress, void *user_data)
{
    if (native_has_raised())
        return; /* the copy is about to end */
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *object = native_object(&shape_sandbox_copy_progress, progress);
    PyObject *answer = object == NULL ? NULL : PyObject_CallOneArg(user_data, object);
    if (answer == NULL)
        native_keep_raised();
    Py_XDECREF(answer);
    Py_XDECREF(object);
    PyGILState_Release(state);
}
