/* Numbers, durations, words and text, from Python and to it. */

#include "native.h"
#include <math.h>

static PyObject *seconds_of(PyObject *value, const char *name);

/* A little less than a microsecond: what 0.07 * 1000 is over 70. */
#define ROUNDING 1e-6

bool native_milliseconds(PyObject *value, const char *name, uint64_t at_most, uint64_t *ms)
{
    PyObject *number = seconds_of(value, name);
    if (number == NULL)
        return false;
    double seconds = PyFloat_AsDouble(number);
    Py_DECREF(number);
    if (seconds == -1.0 && PyErr_Occurred() != NULL)
        return false;
    if (isnan(seconds) || seconds < 0) {
        PyErr_Format(PyExc_ValueError, "'%s' must not be negative", name);
        return false;
    }
    if (isinf(seconds)) {
        *ms = at_most == UINT32_MAX ? SANDBOX_FOREVER : UINT64_MAX;
    } else {
        double wanted = ceil(seconds * 1000 - ROUNDING);
        /* The largest stands for ever, which only infinity may ask for. */
        if (wanted >= (double)at_most) {
            PyErr_Format(PyExc_OverflowError, "'%s' is too long", name);
            return false;
        }
        *ms = (uint64_t)wanted;
    }
    if (*ms == UINT64_MAX && at_most != UINT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "'%s' must be finite", name);
        return false;
    }
    return true;
}

/* A timedelta is told by its method, since to import its type takes longer than all the rest. */
static PyObject *seconds_of(PyObject *value, const char *name)
{
    if (PyFloat_Check(value) || (PyLong_Check(value) && !PyBool_Check(value)))
        return Py_NewRef(value);
    PyObject *seconds = NULL;
    if (PyObject_HasAttrString(value, "total_seconds"))
        seconds = PyObject_CallMethod(value, "total_seconds", NULL);
    else
        PyErr_Format(PyExc_TypeError, "'%s' must be seconds or a timedelta, not %.100s", name,
                     Py_TYPE(value)->tp_name);
    return seconds;
}

bool native_number(PyObject *value, const struct native_word *words, const char *name,
                   int *number)
{
    const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : NULL;
    if (text == NULL) {
        if (PyErr_Occurred() == NULL)
            PyErr_Format(PyExc_TypeError, "'%s' must be a str, not %.100s", name,
                         Py_TYPE(value)->tp_name);
        return false;
    }
    for (const struct native_word *word = words; word->word != NULL; word++) {
        if (strcmp(word->word, text) == 0) {
            *number = word->number;
            return true;
        }
    }
    PyObject *allowed = PyUnicode_FromFormat("'%s'", words->word);
    for (const struct native_word *word = words + 1; allowed != NULL && word->word != NULL; word++)
        PyUnicode_AppendAndDel(&allowed, PyUnicode_FromFormat(", '%s'", word->word));
    if (allowed != NULL)
        PyErr_Format(PyExc_ValueError, "'%s' must be one of %U", name, allowed);
    Py_XDECREF(allowed);
    return false;
}

/* Numbers that a later library may add are told as they are. */
PyObject *native_word_object(const struct native_word *words, int number)
{
    for (const struct native_word *word = words; word->word != NULL; word++) {
        if (word->number == number)
            return PyUnicode_InternFromString(word->word);
    }
    return PyUnicode_FromFormat("%d", number);
}

/* Names of files and the like are bytes; those that are not UTF-8 survive there and back. */
PyObject *native_decode(const char *text)
{
    if (text == NULL)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
}
