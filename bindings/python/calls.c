/*
 * Calls that wait: their deadline, Ctrl-C, cancelling, the end of the interpreter, and what is
 * raised when they are back.
 */

#include "native.h"
#include <pthread.h>
#include <unistd.h>

static int look_for_signals(void *user_data);
static bool take_pair(sandbox_call *call, PyObject *given);
static bool take_timeout(sandbox_call *call, PyObject *timeout);
static void raise_error(sandbox_status status, const sandbox_error *error);

static native_cancel_of cancel_of_object;
static PyObject *error_classes;
static sandbox_cancel *end_of_interpreter;

/* All that are under way, kept by the interpreter's lock. */
static struct native_call under_way = {.next = &under_way, .before = &under_way};

/* A call that a callback makes ends with the one that it is called from. */
static _Thread_local struct native_call *innermost;

/* What a callback or a signal handler raised on this thread while the library was at work. */
static _Thread_local PyObject *raised_type, *raised_value, *raised_trace;

/* In the child of a fork the other threads and their calls are gone. */
static void forget_all(void)
{
    under_way.next = under_way.before = &under_way;
    innermost = NULL;
}

bool native_calls_begin(native_cancel_of cancel_of)
{
    sandbox_error error;
    cancel_of_object = cancel_of;
    if (end_of_interpreter != NULL)
        return true;
    if (sandbox_cancel_create(&end_of_interpreter, &error) != SANDBOX_OK ||
        pthread_atfork(NULL, NULL, forget_all) != 0) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

bool native_call_begin(struct native_call *call, PyObject *given)
{
    call->call = (sandbox_call){SANDBOX_CALL, .interrupted = look_for_signals, .user_data = call};
    bool good = PyTuple_Check(given) ? take_pair(&call->call, given)
                                     : take_timeout(&call->call, given);
    if (!good)
        return false;
    /* Python runs handlers of signals on the main thread alone. */
    call->on_main_thread = gettid() == getpid();
    if (call->call.cancel == NULL && innermost != NULL)
        call->call.cancel = innermost->call.cancel;
    if (call->call.cancel == NULL && !call->on_main_thread)
        call->call.cancel = end_of_interpreter;
    call->outer = innermost;
    innermost = call;
    call->next = &under_way;
    call->before = under_way.before;
    call->before->next = call;
    call->next->before = call;
    call->listed = true;
    return true;
}

void native_call_end(struct native_call *call)
{
    if (!call->listed)
        return;
    call->before->next = call->next;
    call->next->before = call->before;
    call->listed = false;
    innermost = call->outer;
}

static bool take_pair(sandbox_call *call, PyObject *given)
{
    PyObject *timeout, *cancel;
    if (!PyArg_ParseTuple(given, "OO", &timeout, &cancel))
        return false;
    if (cancel != Py_None && !cancel_of_object(cancel, &call->cancel))
        return false;
    return take_timeout(call, timeout);
}

static bool take_timeout(sandbox_call *call, PyObject *timeout)
{
    if (timeout == Py_None)
        return true;
    uint64_t ms;
    if (!native_milliseconds(timeout, "timeout", UINT32_MAX, &ms))
        return false;
    /* To the library 0 is its default, which may be for ever; to Python it is: look and return. */
    call->timeout_ms = ms == 0 ? 1 : (uint32_t)ms;
    return true;
}

/* Called by the library on the thread of the call, without the interpreter's lock. */
static int look_for_signals(void *user_data)
{
    const struct native_call *call = user_data;
    if (raised_type != NULL)
        return 1;
    if (!call->on_main_thread)
        return 0;
    PyGILState_STATE state = PyGILState_Ensure();
    bool raised = PyErr_CheckSignals() != 0;
    if (raised)
        native_keep_raised();
    PyGILState_Release(state);
    return raised;
}

void native_calls_stop(void)
{
    sandbox_cancel_trigger(end_of_interpreter);
    for (struct native_call *call = under_way.next; call != &under_way; call = call->next)
        sandbox_cancel_trigger(call->call.cancel);
}

bool native_has_raised(void)
{
    return raised_type != NULL;
}

/* The first one counts; one that comes while it is on its way up is told of and dropped. */
void native_keep_raised(void)
{
    if (raised_type != NULL)
        PyErr_WriteUnraisable(NULL);
    else
        PyErr_Fetch(&raised_type, &raised_value, &raised_trace);
}

bool native_succeeded(sandbox_status status, const sandbox_error *error)
{
    if (raised_type != NULL) {
        PyErr_Restore(raised_type, raised_value, raised_trace);
        raised_type = raised_value = raised_trace = NULL;
        return false;
    }
    if (status != SANDBOX_OK && PyErr_Occurred() == NULL)
        raise_error(status, error);
    return PyErr_Occurred() == NULL;
}

bool native_set_errors(PyObject *classes)
{
    if (!PyDict_Check(classes)) {
        PyErr_SetString(PyExc_TypeError, "the classes must be a dict");
        return false;
    }
    Py_XSETREF(error_classes, Py_NewRef(classes));
    return true;
}

static void raise_error(sandbox_status status, const sandbox_error *error)
{
    PyObject *code = PyLong_FromLong(status), *other = PyLong_FromLong(0), *class = NULL;
    if (code != NULL && other != NULL && error_classes != NULL) {
        class = PyDict_GetItemWithError(error_classes, code);
        if (class == NULL && PyErr_Occurred() == NULL)
            class = PyDict_GetItemWithError(error_classes, other);
    }
    PyObject *exception = NULL;
    if (class != NULL) {
        PyObject *message = PyUnicode_DecodeUTF8(error->message, (Py_ssize_t)strlen(error->message),
                                                 "replace");
        if (message != NULL)
            exception = PyObject_CallFunction(class, "NOsiiss", message, code, error->reason,
                                              error->http_status, error->system_error,
                                              error->driver, error->process_id);
    }
    if (exception != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    else if (PyErr_Occurred() == NULL)
        PyErr_SetString(PyExc_RuntimeError, error->message);
    Py_XDECREF(exception);
    Py_XDECREF(code);
    Py_XDECREF(other);
}
