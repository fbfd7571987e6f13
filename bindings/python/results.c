/* Structs that the library fills become objects with the same attributes, everything copied. */

#include "native.h"

static PyObject *field_object(const struct native_shape *shape, const struct native_field *field,
                              const char *value);
static PyObject *number_object(const struct native_field *field, const void *place);
static PyObject *texts_object(const char *const *texts, bool as_pairs);
static PyObject *moment_object(int64_t ms);
static bool has_ended(const struct native_shape *shape, const void *value);

#include "tables.h"

#define SHAPES (sizeof shapes / sizeof shapes[0])

static PyTypeObject *types[SHAPES];

bool native_results_begin(PyObject *module)
{
    for (size_t n = 0; shapes[n] != NULL; n++) {
        PyStructSequence_Field members[64] = {{NULL, NULL}};
        int count = 0;
        for (const struct native_field *field = shapes[n]->fields; field->name != NULL; field++)
            members[count++] = (PyStructSequence_Field){field->name, field->comment};
        PyStructSequence_Desc description = {shapes[n]->name, shapes[n]->comment, members, count};
        types[n] = PyStructSequence_NewType(&description);
        if (types[n] == NULL ||
            PyModule_AddObjectRef(module, strchr(shapes[n]->name, '.') + 1,
                                  (PyObject *)types[n]) != 0)
            return false;
    }
    PyObject *all = PyDict_New();
    for (size_t n = 0; all != NULL && vocabularies[n].name != NULL; n++) {
        PyObject *words = PyDict_New();
        for (const struct native_word *word = vocabularies[n].words;
             words != NULL && word->word != NULL; word++) {
            PyObject *number = PyLong_FromLong(word->number);
            if (number == NULL || PyDict_SetItemString(words, word->word, number) != 0)
                Py_CLEAR(words);
            Py_XDECREF(number);
        }
        if (words == NULL || PyDict_SetItemString(all, vocabularies[n].name, words) != 0)
            Py_CLEAR(all);
        Py_XDECREF(words);
    }
    bool added = all != NULL && PyModule_AddObjectRef(module, "words", all) == 0;
    Py_XDECREF(all);
    return added;
}

PyObject *native_object(const struct native_shape *shape, const void *value)
{
    size_t at = 0;
    while (shapes[at] != shape)
        at++;
    PyObject *object = PyStructSequence_New(types[at]);
    Py_ssize_t place = 0;
    for (const struct native_field *field = shape->fields; object != NULL && field->name != NULL;
         field++) {
        PyObject *item = field_object(shape, field, value);
        if (item == NULL)
            Py_CLEAR(object);
        else
            PyStructSequence_SetItem(object, place++, item);
    }
    return object;
}

static PyObject *field_object(const struct native_shape *shape, const struct native_field *field,
                              const char *value)
{
    const char *place = value + field->offset;
    switch (field->kind) {
    case NATIVE_BOOL:
        return PyBool_FromLong(*(const bool *)place);
    case NATIVE_UNSIGNED:
    case NATIVE_SIGNED:
    case NATIVE_SPAN:
        return number_object(field, place);
    case NATIVE_MOMENT:
        return moment_object(*(const int64_t *)(const void *)place);
    case NATIVE_WORD:
        return native_word_object(field->words, *(const int *)(const void *)place);
    case NATIVE_TEXT:
        return native_decode(*(const char *const *)(const void *)place);
    case NATIVE_CHARS:
        return native_decode(place);
    case NATIVE_TEXTS:
    case NATIVE_PAIRS:
        return texts_object(*(const char *const *const *)(const void *)place,
                            field->kind == NATIVE_PAIRS);
    case NATIVE_BYTES:
        return PyBytes_FromStringAndSize(
            *(const char *const *)(const void *)place,
            (Py_ssize_t) * (const size_t *)(const void *)(value + field->count_offset));
    case NATIVE_EXIT:
        if (!has_ended(shape, value))
            Py_RETURN_NONE;
        return native_object(&shape_sandbox_process_exit, place);
    default:
        Py_RETURN_NONE;
    }
}

static PyObject *number_object(const struct native_field *field, const void *place)
{
    bool is_signed = field->kind == NATIVE_SIGNED;
    int64_t small = 0;
    uint64_t large = 0;
    switch (field->width) {
    case 2:
        large = *(const uint16_t *)place;
        break;
    case 4:
        large = *(const uint32_t *)place;
        small = *(const int32_t *)place;
        break;
    default:
        large = *(const uint64_t *)place;
        small = *(const int64_t *)place;
        break;
    }
    if (is_signed)
        return PyLong_FromLongLong(small);
    if (field->kind == NATIVE_UNSIGNED)
        return PyLong_FromUnsignedLongLong(large);
    /* The one duration that may be negative is as wide as a moment. */
    return PyFloat_FromDouble((field->width == 8 ? (double)(int64_t)large : (double)large) / 1000);
}

static PyObject *moment_object(int64_t ms)
{
    if (ms == 0)
        Py_RETURN_NONE;
    return PyFloat_FromDouble((double)ms / 1000);
}

static PyObject *texts_object(const char *const *texts, bool as_pairs)
{
    PyObject *found = as_pairs ? PyDict_New() : PyList_New(0);
    for (; found != NULL && texts != NULL && *texts != NULL; texts++) {
        const char *equals = as_pairs ? strchr(*texts, '=') : NULL;
        PyObject *name = equals == NULL ? native_decode(*texts)
                                        : PyUnicode_DecodeUTF8(*texts, equals - *texts,
                                                               "surrogateescape");
        PyObject *value = as_pairs ? native_decode(equals == NULL ? "" : equals + 1) : NULL;
        if (name == NULL || (as_pairs && value == NULL) ||
            (as_pairs ? PyDict_SetItem(found, name, value) : PyList_Append(found, name)) != 0)
            Py_CLEAR(found);
        Py_XDECREF(name);
        Py_XDECREF(value);
    }
    return found;
}

/* Of a process that still runs nothing is said about its end. */
static bool has_ended(const struct native_shape *shape, const void *value)
{
    if (shape == &shape_sandbox_process_event)
        return ((const sandbox_process_event *)value)->kind == SANDBOX_PROCESS_EXIT;
    if (shape == &shape_sandbox_process_info)
        return !((const sandbox_process_info *)value)->running;
    return true;
}

bool native_ability(PyObject *value, sandbox_ability *ability)
{
    int number;
    if (!native_number(value, words_sandbox_ability, "ability", &number))
        return false;
    *ability = (sandbox_ability)number;
    return true;
}

bool native_log_level(PyObject *value, sandbox_log_level *level)
{
    int number;
    if (!native_number(value, words_sandbox_log_level, "level", &number))
        return false;
    *level = (sandbox_log_level)number;
    return true;
}
