/* What JavaScript gives: parameters and options, as the library wants them. */

#include "engine.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_SIZE 64
#define LIST_MAX 4096 /* entries of an array or object */
#define SAFE_MAX 9007199254740991.0

static bool read_timeout(struct reading *reading, napi_value value);
static bool read_option(struct reading *reading, const char *name, napi_value value);
static const struct field *find_field(const struct shape *shape, const char *name);
static char *options_of(struct reading *reading, size_t shape);
static bool read_number(struct reading *reading, const char *name, uint64_t most,
                        napi_value value, uint64_t *number);
static bool read_word(struct reading *reading, const struct field *field, napi_value value,
                      int *number);
static bool read_bytes(struct reading *reading, const char *name, napi_value value,
                       const void **data, size_t *data_size);
static bool hold_bytes(struct reading *reading, napi_value value, const void **data,
                       size_t *data_size, bool *is_bytes);
static bool read_pairs(struct reading *reading, const struct field *field, napi_value value,
                       const char *const **list);
static bool read_nested(struct reading *reading, const struct field *field, const void **place,
                        napi_value value);
static bool read_command(struct reading *reading, napi_value value);
static bool is_nothing(napi_env env, napi_value value);
static bool no_memory(struct reading *reading);

bool sbx_node_complain(struct reading *reading, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reading->complaint, sizeof reading->complaint, format, arguments);
    va_end(arguments);
    return false;
}

bool sbx_node_read_options(struct reading *reading, napi_value value)
{
    napi_valuetype type;
    napi_value names;
    uint32_t count = 0;
    if (is_nothing(reading->env, value))
        return true;
    if (napi_typeof(reading->env, value, &type) != napi_ok || type != napi_object ||
        napi_get_property_names(reading->env, value, &names) != napi_ok ||
        napi_get_array_length(reading->env, names, &count) != napi_ok)
        return sbx_node_complain(reading, "the options must be an object");
    for (uint32_t each = 0; each < count; each++) {
        napi_value key, given;
        char name[NAME_SIZE];
        if (napi_get_element(reading->env, names, each, &key) != napi_ok ||
            napi_get_value_string_utf8(reading->env, key, name, sizeof name, NULL) != napi_ok ||
            napi_get_property(reading->env, value, key, &given) != napi_ok)
            return sbx_node_complain(reading, "the options cannot be read");
        if (!is_nothing(reading->env, given) && !read_option(reading, name, given))
            return false;
    }
    return true;
}

static bool read_option(struct reading *reading, const char *name, napi_value value)
{
    const struct entry *entry = reading->call->entry;
    char padded[NAME_SIZE + 2];
    if (strcmp(name, "timeout") == 0)
        return read_timeout(reading, value);
    if (strcmp(name, "signal") == 0)
        return true; /* the glue has it */
    /* The last first: of two `input`s the bytes to run with go before the way to give them. */
    for (size_t shape = SHAPES_MAX; shape-- > 0;) {
        if (entry->shapes[shape] == NULL)
            continue;
        const struct field *field = find_field(entry->shapes[shape], name);
        if (field != NULL) {
            char *options = options_of(reading, shape);
            return options != NULL && sbx_node_read_field(reading, field, options, value);
        }
    }
    snprintf(padded, sizeof padded, " %s ", name);
    if (entry->ignored != NULL && strstr(entry->ignored, padded) != NULL)
        return true;
    return sbx_node_complain(reading, "there is no option '%.40s'", name);
}

static bool read_timeout(struct reading *reading, napi_value value)
{
    double ms;
    if (napi_get_value_double(reading->env, value, &ms) != napi_ok)
        return sbx_node_complain(reading, "'timeout' must be a number of milliseconds");
    if (isinf(ms) && ms > 0) {
        reading->call->call.timeout_ms = SANDBOX_FOREVER;
        return true;
    }
    reading->is_range = !(ms >= 0 && ms < (double)SANDBOX_FOREVER);
    if (reading->is_range)
        return sbx_node_complain(reading, "'timeout' must be from 0 to 4294967294, or Infinity");
    /* 0 is the library's word for its default; here it means what it says. */
    reading->call->call.timeout_ms = ms < 1 ? 1 : (uint32_t)ceil(ms);
    return true;
}

static const struct field *find_field(const struct shape *shape, const char *name)
{
    for (size_t each = 0; each < shape->count; each++)
        if (strcmp(shape->fields[each].name, name) == 0)
            return &shape->fields[each];
    return NULL;
}

static char *options_of(struct reading *reading, size_t shape)
{
    struct call *call = reading->call;
    if (call->options[shape] == NULL) {
        call->options[shape] = sbx_node_memory(call, call->entry->shapes[shape]->size);
        if (call->options[shape] == NULL)
            no_memory(reading);
        else
            *(size_t *)call->options[shape] = call->entry->shapes[shape]->size;
    }
    return call->options[shape];
}

bool sbx_node_read_parameter(struct reading *reading, size_t index, napi_value value)
{
    struct call *call = reading->call;
    const struct parameter *parameter = &call->entry->parameters[index];
    bool is_left_out = is_nothing(reading->env, value);
    const struct field *field;
    char *options;
    switch (parameter->kind) {
    case PARAMETER_TEXT_OR_NOTHING:
        if (is_left_out)
            return true;
        return sbx_node_read_text(reading, parameter->name, value, &call->text[index]);
    case PARAMETER_TEXT:
        return sbx_node_read_text(reading, parameter->name, value, &call->text[index]);
    case PARAMETER_NUMBER:
        return read_number(reading, parameter->name, parameter->most, value,
                           &call->number[index]);
    case PARAMETER_BYTES:
        return read_bytes(reading, parameter->name, value, &call->data, &call->data_size);
    case PARAMETER_COMMAND:
        return read_command(reading, value);
    case PARAMETER_FIELD:
        field = find_field(call->entry->shapes[0], parameter->name);
        if (is_left_out && parameter->most == 0)
            return true;
        options = options_of(reading, 0);
        return options != NULL && sbx_node_read_field(reading, field, options, value);
    }
    return false;
}

bool sbx_node_read_field(struct reading *reading, const struct field *field, char *base,
                         napi_value value)
{
    void *place = base + field->offset;
    uint64_t number = 0;
    double given;
    switch (field->kind) {
    case FIELD_BOOL:
        if (napi_get_value_bool(reading->env, value, place) == napi_ok)
            return true;
        return sbx_node_complain(reading, "'%s' must be true or false", field->name);
    case FIELD_U16:
        if (!read_number(reading, field->name, UINT16_MAX, value, &number))
            return false;
        *(uint16_t *)place = (uint16_t)number;
        return true;
    case FIELD_WAIT:
        if (napi_get_value_double(reading->env, value, &given) == napi_ok && isinf(given) &&
            given > 0)
            number = SANDBOX_FOREVER;
        else if (!read_number(reading, field->name, SANDBOX_FOREVER - 1, value, &number))
            return false;
        *(uint32_t *)place = (uint32_t)number;
        return true;
    case FIELD_U32:
        if (!read_number(reading, field->name, UINT32_MAX, value, &number))
            return false;
        *(uint32_t *)place = (uint32_t)number;
        return true;
    case FIELD_U64:
    case FIELD_SIZE:
        return read_number(reading, field->name, UINT64_MAX, value, place);
    case FIELD_WORD:
        return read_word(reading, field, value, place);
    case FIELD_TEXT:
        return sbx_node_read_text(reading, field->name, value, place);
    case FIELD_TEXTS:
        return sbx_node_read_list(reading, field, value, place);
    case FIELD_PAIRS:
        return read_pairs(reading, field, value, place);
    case FIELD_BYTES:
        return read_bytes(reading, field->name, value, place, (size_t *)(base + field->other));
    case FIELD_CHECKS:
        return sbx_node_read_checks(reading, field, base, value);
    case FIELD_PROGRESS:
        return sbx_node_read_progress(reading, field, base, value);
    case FIELD_OPTIONS:
        return read_nested(reading, field, (const void **)(void *)(base + field->offset), value);
    default:
        return sbx_node_complain(reading, "'%s' cannot be set", field->name);
    }
}

static bool read_nested(struct reading *reading, const struct field *field, const void **place,
                        napi_value value)
{
    napi_valuetype type;
    if (napi_typeof(reading->env, value, &type) != napi_ok || type != napi_object)
        return sbx_node_complain(reading, "'%s' must be an object", field->name);
    char *nested = sbx_node_memory(reading->call, field->shape->size);
    if (nested == NULL)
        return no_memory(reading);
    *(size_t *)(void *)nested = field->shape->size;
    *place = nested;
    return sbx_node_read_shape(reading, field->name, field->shape, nested, value);
}

bool sbx_node_read_shape(struct reading *reading, const char *what, const struct shape *shape,
                         char *base, napi_value value)
{
    napi_value names;
    uint32_t count = 0;
    if (napi_get_property_names(reading->env, value, &names) != napi_ok ||
        napi_get_array_length(reading->env, names, &count) != napi_ok)
        return sbx_node_complain(reading, "the options of %s must be an object", what);
    for (uint32_t each = 0; each < count; each++) {
        napi_value key, given;
        char name[NAME_SIZE];
        if (napi_get_element(reading->env, names, each, &key) != napi_ok ||
            napi_get_value_string_utf8(reading->env, key, name, sizeof name, NULL) != napi_ok ||
            napi_get_property(reading->env, value, key, &given) != napi_ok)
            return sbx_node_complain(reading, "the options of %s cannot be read", what);
        const struct field *field = find_field(shape, name);
        if (field == NULL)
            return sbx_node_complain(reading, "%s has no option '%.40s'", what, name);
        if (!is_nothing(reading->env, given) &&
            !sbx_node_read_field(reading, field, base, given))
            return false;
    }
    return true;
}

static bool read_number(struct reading *reading, const char *name, uint64_t most,
                        napi_value value, uint64_t *number)
{
    napi_valuetype type;
    double given = 0;
    bool is_whole = false;
    if (napi_typeof(reading->env, value, &type) != napi_ok)
        return sbx_node_complain(reading, "'%s' cannot be read", name);
    if (type == napi_bigint) {
        bool fits = napi_get_value_bigint_uint64(reading->env, value, number, &is_whole) == napi_ok;
        reading->is_range = !fits || !is_whole || *number > most;
    } else if (type == napi_number) {
        napi_get_value_double(reading->env, value, &given);
        reading->is_range = !(given >= 0 && given <= SAFE_MAX && given <= (double)most &&
                              given == floor(given));
        *number = reading->is_range ? 0 : (uint64_t)given;
    } else
        return sbx_node_complain(reading, "'%s' must be a number", name);
    if (!reading->is_range)
        return true;
    return sbx_node_complain(reading, "'%s' must be a whole number from 0 to %" PRIu64, name, most);
}

bool sbx_node_word_number(const struct words *words, const char *text, int *number)
{
    for (size_t each = 0; each < words->count; each++)
        if (strcmp(words->list[each].text, text) == 0) {
            *number = words->list[each].number;
            return true;
        }
    return false;
}

static bool read_word(struct reading *reading, const struct field *field, napi_value value,
                      int *number)
{
    char text[NAME_SIZE];
    if (napi_get_value_string_utf8(reading->env, value, text, sizeof text, NULL) == napi_ok &&
        sbx_node_word_number(field->words, text, number))
        return true;
    sbx_node_complain(reading, "'%s' must be one of", field->name);
    for (size_t each = 0; each < field->words->count; each++) {
        size_t used = strlen(reading->complaint);
        snprintf(reading->complaint + used, sizeof reading->complaint - used, "%s '%s'",
                 each == 0 ? "" : ",", field->words->list[each].text);
    }
    return false;
}

/* A string or bytes, with a zero after them; one inside would cut it short. */
bool sbx_node_read_text(struct reading *reading, const char *name, napi_value value,
                        const char **text)
{
    size_t size = 0;
    const void *bytes = NULL;
    bool is_bytes = false;
    char *copy = NULL;
    if (napi_get_value_string_utf8(reading->env, value, NULL, 0, &size) == napi_ok) {
        copy = sbx_node_memory(reading->call, size + 1);
        if (copy != NULL)
            napi_get_value_string_utf8(reading->env, value, copy, size + 1, &size);
    } else if (hold_bytes(reading, value, &bytes, &size, &is_bytes) && is_bytes) {
        copy = sbx_node_memory(reading->call, size + 1);
        if (copy != NULL && size > 0)
            memcpy(copy, bytes, size);
    } else
        return sbx_node_complain(reading, "'%s' must be a string or a Uint8Array", name);
    if (copy == NULL)
        return no_memory(reading);
    if (strlen(copy) != size)
        return sbx_node_complain(reading, "'%s' must not hold a zero", name);
    *text = copy;
    return true;
}

static bool read_bytes(struct reading *reading, const char *name, napi_value value,
                       const void **data, size_t *data_size)
{
    bool is_bytes = false;
    if (napi_get_value_string_utf8(reading->env, value, NULL, 0, data_size) == napi_ok) {
        char *copy = sbx_node_memory(reading->call, *data_size + 1);
        if (copy == NULL)
            return no_memory(reading);
        napi_get_value_string_utf8(reading->env, value, copy, *data_size + 1, data_size);
        *data = copy;
        return true;
    }
    if (!hold_bytes(reading, value, data, data_size, &is_bytes))
        return false;
    if (!is_bytes)
        return sbx_node_complain(reading, "'%s' must be bytes or a string", name);
    /* An empty buffer has no address, and that would be none given. */
    if (*data == NULL)
        *data = "";
    return sbx_node_hold_value(reading, value, NULL);
}

/* Where the bytes are: no copy. */
static bool hold_bytes(struct reading *reading, napi_value value, const void **data,
                       size_t *data_size, bool *is_bytes)
{
    napi_env env = reading->env;
    napi_typedarray_type type;
    void *found = NULL;
    bool is_view = false, is_buffer = false;
    if (napi_is_typedarray(env, value, &is_view) == napi_ok && is_view) {
        size_t elements;
        if (napi_get_typedarray_info(env, value, &type, &elements, &found, NULL, NULL) != napi_ok)
            return sbx_node_complain(reading, "the bytes cannot be read");
        *is_bytes = type == napi_uint8_array || type == napi_uint8_clamped_array ||
                    type == napi_int8_array;
        *data_size = elements;
    } else if (napi_is_arraybuffer(env, value, &is_buffer) == napi_ok && is_buffer) {
        *is_bytes = napi_get_arraybuffer_info(env, value, &found, data_size) == napi_ok;
    } else if (napi_is_dataview(env, value, &is_view) == napi_ok && is_view) {
        *is_bytes =
            napi_get_dataview_info(env, value, data_size, &found, NULL, NULL) == napi_ok;
    }
    *data = found;
    return true;
}

bool sbx_node_read_list(struct reading *reading, const struct field *field, napi_value value,
                        const char *const **list)
{
    bool is_array = false;
    uint32_t count = 0;
    if (napi_is_array(reading->env, value, &is_array) != napi_ok || !is_array ||
        napi_get_array_length(reading->env, value, &count) != napi_ok)
        return sbx_node_complain(reading, "'%s' must be an array of strings", field->name);
    if (count > LIST_MAX)
        return sbx_node_complain(reading, "'%s' has more than %d entries", field->name, LIST_MAX);
    const char **texts = sbx_node_memory(reading->call, (count + 1) * sizeof *texts);
    if (texts == NULL)
        return no_memory(reading);
    for (uint32_t each = 0; each < count; each++) {
        napi_value element;
        if (napi_get_element(reading->env, value, each, &element) != napi_ok ||
            !sbx_node_read_text(reading, field->name, element, &texts[each]))
            return false;
    }
    *list = texts;
    return true;
}

/* {NAME: 'value'}, or what the library takes: ['NAME=value']. */
static bool read_pairs(struct reading *reading, const struct field *field, napi_value value,
                       const char *const **list)
{
    napi_env env = reading->env;
    napi_value names, key, given;
    napi_valuetype type;
    uint32_t count = 0;
    bool is_array = false;
    if (napi_is_array(env, value, &is_array) == napi_ok && is_array)
        return sbx_node_read_list(reading, field, value, list);
    if (napi_typeof(env, value, &type) != napi_ok || type != napi_object ||
        napi_get_property_names(env, value, &names) != napi_ok ||
        napi_get_array_length(env, names, &count) != napi_ok || count > LIST_MAX)
        return sbx_node_complain(reading, "'%s' must be an object of strings", field->name);
    const char **texts = sbx_node_memory(reading->call, (count + 1) * sizeof *texts);
    if (texts == NULL)
        return no_memory(reading);
    for (uint32_t each = 0, used = 0; each < count; each++) {
        const char *name = "", *text = "";
        if (napi_get_element(env, names, each, &key) != napi_ok ||
            napi_get_property(env, value, key, &given) != napi_ok)
            return sbx_node_complain(reading, "'%s' cannot be read", field->name);
        if (is_nothing(env, given))
            continue;
        if (!sbx_node_read_text(reading, field->name, key, &name) ||
            !sbx_node_read_text(reading, field->name, given, &text))
            return false;
        /* The first '=' parts the two: one in the name would make another pair of it. */
        if (strchr(name, '=') != NULL)
            return sbx_node_complain(reading, "a name in '%s' must not hold '='", field->name);
        size_t size = strlen(name) + strlen(text) + 2;
        char *pair = sbx_node_memory(reading->call, size);
        if (pair == NULL)
            return no_memory(reading);
        snprintf(pair, size, "%s=%s", name, text);
        texts[used++] = pair;
    }
    *list = texts;
    return true;
}

static bool read_command(struct reading *reading, napi_value value)
{
    bool is_array = false;
    napi_is_array(reading->env, value, &is_array);
    const struct shape *shape = reading->call->entry->shapes[0];
    char *options = options_of(reading, 0);
    return options != NULL &&
           sbx_node_read_field(reading, find_field(shape, is_array ? "argv" : "command"), options,
                               value);
}

/* What is undefined or null is left out. */
static bool is_nothing(napi_env env, napi_value value)
{
    napi_valuetype type;
    return napi_typeof(env, value, &type) != napi_ok || type == napi_undefined || type == napi_null;
}

static bool no_memory(struct reading *reading)
{
    return sbx_node_complain(reading, "no memory for the arguments");
}
