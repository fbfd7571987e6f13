/* Options structs from keyword arguments. */

#include "native.h"

/* Nothing that the library takes has more. */
#define TEXTS_MAX 65536

struct native_block {
    struct native_block *next;
    size_t size;
    max_align_t content[];
};

static bool set_field(const struct native_field *field, PyObject *value, char *options,
                      struct native_arena *arena);
static bool set_nested(const struct native_field *field, PyObject *value, void *place,
                       struct native_arena *arena);
static bool set_number(const struct native_field *field, PyObject *value, void *place);
static bool set_texts(const struct native_field *field, PyObject *value, void *place,
                      struct native_arena *arena);
static PyObject *entries_of(const struct native_field *field, PyObject *value);
static PyObject *joined_pairs(const char *name, PyObject *pairs);
static bool set_bytes(const struct native_field *field, PyObject *value, char *options,
                      struct native_arena *arena);
static void store(void *place, size_t width, uint64_t number);

bool native_options(PyObject *given, const struct native_shape *shape, void *options,
                    void **used, struct native_arena *arena)
{
    memset(options, 0, shape->size);
    if (shape->has_size)
        memcpy(options, &shape->size, sizeof shape->size);
    *used = given == Py_None ? NULL : options;
    if (given == Py_None)
        return true;
    if (!PyDict_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "options must be a dict");
        return false;
    }
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(given, &at, &key, &value)) {
        if (value == Py_None)
            continue;
        const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : NULL;
        const struct native_field *field = shape->fields;
        while (name != NULL && field->name != NULL && strcmp(field->name, name) != 0)
            field++;
        if (name == NULL || field->name == NULL) {
            PyErr_Format(PyExc_TypeError, "there is no option %R", key);
            return false;
        }
        if (!set_field(field, value, options, arena))
            return false;
    }
    return true;
}

static bool set_field(const struct native_field *field, PyObject *value, char *options,
                      struct native_arena *arena)
{
    void *place = options + field->offset;
    uint64_t ms;
    int word, truth;
    switch (field->kind) {
    case NATIVE_BOOL:
        truth = PyObject_IsTrue(value);
        *(bool *)place = truth > 0;
        return truth >= 0;
    case NATIVE_UNSIGNED:
    case NATIVE_SIGNED:
        return set_number(field, value, place);
    case NATIVE_SPAN:
        if (!native_milliseconds(value, field->name,
                                 field->width == 4 ? UINT32_MAX : UINT64_MAX, &ms))
            return false;
        store(place, field->width, ms);
        return true;
    case NATIVE_WORD:
        if (!native_number(value, field->words, field->name, &word))
            return false;
        store(place, field->width, (uint64_t)word);
        return true;
    case NATIVE_TEXT:
        return native_text(value, field->name, arena, place);
    case NATIVE_TEXTS:
    case NATIVE_PAIRS:
        return set_texts(field, value, place, arena);
    case NATIVE_BYTES:
        return set_bytes(field, value, options, arena);
    case NATIVE_CHECKS:
        return native_checks(value, arena, place,
                             (size_t *)(void *)(options + field->count_offset));
    case NATIVE_OPTIONS:
        return set_nested(field, value, place, arena);
    case NATIVE_PROGRESS:
        return native_progress(value, place, (void **)place + 1);
    default:
        PyErr_Format(PyExc_TypeError, "'%s' cannot be given", field->name);
        return false;
    }
}

static bool set_nested(const struct native_field *field, PyObject *value, void *place,
                       struct native_arena *arena)
{
    void *nested = native_arena_take(arena, field->shape->size);
    return nested != NULL && native_options(value, field->shape, nested, place, arena);
}

static bool set_number(const struct native_field *field, PyObject *value, void *place)
{
    PyObject *number = PyNumber_Index(value);
    if (number == NULL)
        return false;
    uint64_t given = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (given == UINT64_MAX && PyErr_Occurred() != NULL) {
        PyErr_Format(PyExc_OverflowError, "'%s' is out of range", field->name);
        return false;
    }
    uint64_t most = field->width == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * field->width)) - 1;
    if (given > most) {
        PyErr_Format(PyExc_OverflowError, "'%s' must be at most %llu", field->name,
                     (unsigned long long)most);
        return false;
    }
    store(place, field->width, given);
    return true;
}

static void store(void *place, size_t width, uint64_t number)
{
    switch (width) {
    case 2:
        *(uint16_t *)place = (uint16_t)number;
        break;
    case 4:
        *(uint32_t *)place = (uint32_t)number;
        break;
    default:
        *(uint64_t *)place = number;
        break;
    }
}

bool native_text(PyObject *value, const char *name, struct native_arena *arena,
                 const char **text)
{
    PyObject *plain = PyOS_FSPath(value); /* what a str and bytes are already */
    if (plain == NULL) {
        PyErr_Format(PyExc_TypeError, "'%s' must be str, bytes or a path, not %.100s", name,
                     Py_TYPE(value)->tp_name);
        return false;
    }
    PyObject *bytes = PyBytes_Check(plain)
                          ? Py_NewRef(plain)
                          : PyUnicode_AsEncodedString(plain, "utf-8", "surrogateescape");
    Py_DECREF(plain);
    if (bytes == NULL)
        return false;
    size_t size = (size_t)PyBytes_GET_SIZE(bytes);
    char *copy = native_arena_take(arena, size + 1);
    if (copy != NULL)
        memcpy(copy, PyBytes_AS_STRING(bytes), size + 1);
    Py_DECREF(bytes);
    if (copy != NULL && strlen(copy) != size) {
        PyErr_Format(PyExc_ValueError, "'%s' must not hold a zero byte", name);
        return false;
    }
    *text = copy;
    return copy != NULL;
}

static bool set_texts(const struct native_field *field, PyObject *value, void *place,
                      struct native_arena *arena)
{
    PyObject *entries = entries_of(field, value);
    if (entries == NULL)
        return false;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(entries);
    const char **texts = NULL;
    if (count > TEXTS_MAX)
        PyErr_Format(PyExc_OverflowError, "'%s' holds too many", field->name);
    else
        texts = native_arena_take(arena, ((size_t)count + 1) * sizeof *texts);
    bool good = texts != NULL;
    for (Py_ssize_t n = 0; good && n < count; n++)
        good = native_text(PySequence_Fast_GET_ITEM(entries, n), field->name, arena, &texts[n]);
    Py_DECREF(entries);
    *(const char *const **)place = texts;
    return good;
}

/* A list of text. A str by itself is refused: its letters would be taken for the entries. */
static PyObject *entries_of(const struct native_field *field, PyObject *value)
{
    if (PyUnicode_Check(value) || PyBytes_Check(value)) {
        PyErr_Format(PyExc_TypeError, "'%s' must be a list of str, not one", field->name);
        return NULL;
    }
    if (field->kind != NATIVE_PAIRS || !PyMapping_Check(value) ||
        !PyObject_HasAttrString(value, "items"))
        return PySequence_List(value);
    PyObject *pairs = PyMapping_Items(value);
    PyObject *joined = pairs == NULL ? NULL : joined_pairs(field->name, pairs);
    Py_XDECREF(pairs);
    return joined;
}

static PyObject *joined_pairs(const char *name, PyObject *pairs)
{
    PyObject *joined = PyList_New(0);
    for (Py_ssize_t n = 0; joined != NULL && n < PyList_GET_SIZE(pairs); n++) {
        PyObject *key = PyTuple_GET_ITEM(PyList_GET_ITEM(pairs, n), 0);
        PyObject *value = PyTuple_GET_ITEM(PyList_GET_ITEM(pairs, n), 1);
        PyObject *entry = NULL;
        if (!PyUnicode_Check(key) || !PyUnicode_Check(value))
            PyErr_Format(PyExc_TypeError, "'%s' must hold str only", name);
        else if (PyUnicode_GET_LENGTH(key) == 0 ||
                 PyUnicode_FindChar(key, '=', 0, PyUnicode_GET_LENGTH(key), 1) >= 0)
            PyErr_Format(PyExc_ValueError, "a name in '%s' is empty or holds '='", name);
        else
            entry = PyUnicode_FromFormat("%U=%U", key, value);
        if (entry == NULL || PyList_Append(joined, entry) != 0)
            Py_CLEAR(joined);
        Py_XDECREF(entry);
    }
    return joined;
}

/* Any buffer, not copied. */
static bool set_bytes(const struct native_field *field, PyObject *value, char *options,
                      struct native_arena *arena)
{
    if (arena->has_view || PyObject_GetBuffer(value, &arena->view, PyBUF_SIMPLE) != 0) {
        PyErr_Format(PyExc_TypeError, "'%s' must be bytes or another buffer", field->name);
        return false;
    }
    arena->has_view = true;
    *(const void **)(void *)(options + field->offset) = arena->view.buf;
    *(size_t *)(void *)(options + field->count_offset) = (size_t)arena->view.len;
    return true;
}

void *native_arena_take(struct native_arena *arena, size_t size)
{
    struct native_block *block = PyMem_Calloc(1, sizeof *block + size);
    if (block == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    block->next = arena->blocks;
    block->size = size;
    arena->blocks = block;
    return block->content;
}

void native_arena_clear(struct native_arena *arena)
{
    while (arena->blocks != NULL) {
        struct native_block *block = arena->blocks;
        arena->blocks = block->next;
        explicit_bzero(block->content, block->size);
        PyMem_Free(block);
    }
    if (arena->has_view)
        PyBuffer_Release(&arena->view);
    arena->has_view = false;
}
