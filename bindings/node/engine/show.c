/* What the library gives, as JavaScript sees it. */

#include "engine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From here on JavaScript gets the library's memory itself; below it a copy is cheaper. */
#define SHARE_BYTES (64u << 10)

/* Memory of the library that buffers look into, until the last of them is forgotten. */
struct shared {
    size_t references;
    void (*free)(void *owned);
    void *owned;
};

static napi_value show_list(napi_env env, struct call *call);
static napi_value show_first(napi_env env, struct call *call);
static napi_value show_struct(napi_env env, const struct shape *shape, const char *base,
                              struct shared *shared);
static napi_value show_field(napi_env env, const struct field *field, const char *base,
                             struct shared *shared);
static void add_bytes_of_text(napi_env env, napi_value object, const struct field *field,
                              const char *text);
static napi_value show_text(napi_env env, const char *text);
static napi_value show_texts(napi_env env, const char *const *texts);
static napi_value show_pairs(napi_env env, const char *const *texts);
static napi_value show_word(napi_env env, const struct words *words, int number);
static napi_value show_word_text(napi_env env, const char *text);
static napi_value show_bytes(napi_env env, const void *data, size_t data_size,
                             struct shared *shared);
static napi_value show_owned_bytes(napi_env env, struct call *call);
static napi_value show_borrowed(napi_env env, const void *data, size_t data_size);
static struct shared *share(void (*free_owned)(void *), void *owned);
static void drop_shared(struct shared *shared);
static void finalize_shared(napi_env env, void *data, void *hint);
static bool is_utf8(const char *text);

napi_value sbx_node_show_outcome(napi_env env, struct call *call)
{
    napi_value value = NULL;
    void *out = call->out;
    switch (call->entry->outcome) {
    case OUTCOME_NOTHING:
        napi_get_undefined(env, &value);
        return value;
    case OUTCOME_HANDLE:
        call->out = NULL;
        return sbx_node_handle_new(env, call->entry->produces, out);
    case OUTCOME_LIST:
        return show_list(env, call);
    case OUTCOME_FIRST:
        return show_first(env, call);
    case OUTCOME_STRUCT:
        return show_struct(env, call->entry->produces, call->result, NULL);
    case OUTCOME_COUNT:
        napi_create_double(env, (double)call->count, &value);
        return value;
    case OUTCOME_BYTES:
        return show_owned_bytes(env, call);
    case OUTCOME_BORROWED:
        return show_borrowed(env, call->borrowed, call->out_size);
    }
    return NULL;
}

void sbx_node_discard_outcome(struct call *call)
{
    const struct entry *entry = call->entry;
    if (call->out == NULL)
        return;
    if (entry->outcome == OUTCOME_HANDLE)
        ((const struct handle_kind *)entry->produces)->free(call->out);
    else if (entry->outcome == OUTCOME_LIST || entry->outcome == OUTCOME_FIRST)
        ((const struct owned_kind *)entry->produces)->free(call->out);
    else if (entry->outcome == OUTCOME_BYTES)
        sandbox_bytes_free(call->out);
    call->out = NULL;
}

static napi_value show_list(napi_env env, struct call *call)
{
    const struct owned_kind *kind = call->entry->produces;
    size_t count = kind->count(call->out);
    napi_value array;
    if (napi_create_array_with_length(env, count, &array) != napi_ok)
        return NULL;
    for (size_t each = 0; each < count; each++) {
        napi_handle_scope scope;
        if (napi_open_handle_scope(env, &scope) != napi_ok)
            return NULL;
        napi_value element = show_struct(env, kind->shape, kind->at(call->out, each), NULL);
        bool good = element != NULL &&
                    napi_set_element(env, array, (uint32_t)each, element) == napi_ok;
        napi_close_handle_scope(env, scope);
        if (!good)
            return NULL;
    }
    return array;
}

/* Of a list its first; or the thing itself, whose memory the buffers in it go on using. */
static napi_value show_first(napi_env env, struct call *call)
{
    const struct owned_kind *kind = call->entry->produces;
    if (kind->count != NULL)
        return kind->count(call->out) == 0
                   ? NULL
                   : show_struct(env, kind->shape, kind->at(call->out, 0), NULL);
    struct shared *shared = share(kind->free, call->out);
    if (shared == NULL)
        return show_struct(env, kind->shape, call->out, NULL);
    napi_value object = show_struct(env, kind->shape, call->out, shared);
    call->out = NULL;
    drop_shared(shared);
    return object;
}

static napi_value show_struct(napi_env env, const struct shape *shape, const char *base,
                              struct shared *shared)
{
    napi_value object;
    if (base == NULL || napi_create_object(env, &object) != napi_ok)
        return NULL;
    for (size_t each = 0; each < shape->count; each++) {
        const struct field *field = &shape->fields[each];
        napi_value value = show_field(env, field, base, shared);
        if (value == NULL || napi_set_named_property(env, object, field->name, value) != napi_ok)
            return NULL;
        if (field->kind == FIELD_TEXT)
            add_bytes_of_text(env, object, field, *(const char *const *)(base + field->offset));
    }
    return object;
}

static napi_value show_field(napi_env env, const struct field *field, const char *base,
                             struct shared *shared)
{
    const void *place = base + field->offset;
    napi_value value = NULL;
    switch (field->kind) {
    case FIELD_BOOL:
        napi_get_boolean(env, *(const bool *)place, &value);
        return value;
    case FIELD_U16:
        napi_create_uint32(env, *(const uint16_t *)place, &value);
        return value;
    case FIELD_U32:
    case FIELD_WAIT:
        napi_create_uint32(env, *(const uint32_t *)place, &value);
        return value;
    case FIELD_U64:
    case FIELD_SIZE:
        napi_create_double(env, (double)*(const uint64_t *)place, &value);
        return value;
    case FIELD_I32:
        napi_create_int32(env, *(const int32_t *)place, &value);
        return value;
    case FIELD_I64:
        napi_create_int64(env, *(const int64_t *)place, &value);
        return value;
    case FIELD_WORD:
        return show_word(env, field->words, *(const int *)place);
    case FIELD_TEXT:
        return show_text(env, *(const char *const *)place);
    case FIELD_CHARS:
        return show_text(env, place);
    case FIELD_TEXTS:
        return show_texts(env, *(const char *const *const *)place);
    case FIELD_PAIRS:
        return show_pairs(env, *(const char *const *const *)place);
    case FIELD_BYTES:
        return shared == NULL
                   ? show_borrowed(env, *(const void *const *)place,
                                   *(const size_t *)(const void *)(base + field->other))
                   : show_bytes(env, *(const void *const *)place,
                                *(const size_t *)(const void *)(base + field->other), shared);
    default:
        return NULL;
    }
}

/* A name that is not UTF-8 cannot come back as a string; its bytes can. */
static void add_bytes_of_text(napi_env env, napi_value object, const struct field *field,
                              const char *text)
{
    char name[64];
    napi_value bytes;
    if (text == NULL || is_utf8(text))
        return;
    snprintf(name, sizeof name, "%sBytes", field->name);
    if (napi_create_buffer_copy(env, strlen(text), text, NULL, &bytes) == napi_ok)
        napi_set_named_property(env, object, name, bytes);
}

static napi_value show_text(napi_env env, const char *text)
{
    napi_value value = NULL;
    napi_create_string_utf8(env, text == NULL ? "" : text, NAPI_AUTO_LENGTH, &value);
    return value;
}

static napi_value show_texts(napi_env env, const char *const *texts)
{
    napi_value array;
    if (napi_create_array(env, &array) != napi_ok)
        return NULL;
    for (uint32_t each = 0; texts != NULL && texts[each] != NULL; each++) {
        napi_value text = show_text(env, texts[each]);
        if (text == NULL || napi_set_element(env, array, each, text) != napi_ok)
            return NULL;
    }
    return array;
}

static napi_value show_pairs(napi_env env, const char *const *texts)
{
    napi_value object, name;
    if (napi_create_object(env, &object) != napi_ok)
        return NULL;
    for (size_t each = 0; texts != NULL && texts[each] != NULL; each++) {
        size_t name_size = strcspn(texts[each], "=");
        const char *rest = texts[each] + name_size;
        napi_value text = show_text(env, *rest == '=' ? rest + 1 : rest);
        if (text == NULL ||
            napi_create_string_utf8(env, texts[each], name_size, &name) != napi_ok ||
            napi_set_property(env, object, name, text) != napi_ok)
            return NULL;
    }
    return object;
}

/* A number that a later library added has no word here: it is shown as it is. */
static napi_value show_word(napi_env env, const struct words *words, int number)
{
    char text[16];
    for (size_t each = 0; each < words->count; each++)
        if (words->list[each].number == number)
            return show_word_text(env, words->list[each].text);
    snprintf(text, sizeof text, "%d", number);
    return show_text(env, text);
}

/* Of no signal there is no name: null. */
static napi_value show_word_text(napi_env env, const char *text)
{
    napi_value value = NULL;
    if (text != NULL)
        return show_text(env, text);
    napi_get_null(env, &value);
    return value;
}

static napi_value show_bytes(napi_env env, const void *data, size_t data_size,
                             struct shared *shared)
{
    napi_value value = NULL;
    if (data_size >= SHARE_BYTES) {
        shared->references++;
        /* The library's memory is never written to again, so casting its const away is sound. */
        if (napi_create_external_buffer(env, data_size, (void *)(uintptr_t)data, finalize_shared,
                                        shared, &value) == napi_ok)
            return value;
        shared->references--;
    }
    napi_create_buffer_copy(env, data_size, data_size == 0 ? "" : data, NULL, &value);
    return value;
}

static void free_bytes(void *owned)
{
    sandbox_bytes_free(owned);
}

static napi_value show_owned_bytes(napi_env env, struct call *call)
{
    struct shared *shared = share(free_bytes, call->out);
    if (shared == NULL) {
        napi_throw_error(env, NULL, "no memory for the content");
        return NULL;
    }
    napi_value value = show_bytes(env, call->out, call->out_size, shared);
    call->out = NULL;
    drop_shared(shared);
    return value;
}

/* A Uint8Array of its own: nothing else looks into its ArrayBuffer, so it may be transferred. */
static napi_value show_borrowed(napi_env env, const void *data, size_t data_size)
{
    napi_value buffer, value;
    void *place;
    if (napi_create_arraybuffer(env, data_size, &place, &buffer) != napi_ok)
        return NULL;
    if (data_size > 0)
        memcpy(place, data, data_size);
    if (napi_create_typedarray(env, napi_uint8_array, data_size, buffer, 0, &value) != napi_ok)
        return NULL;
    return value;
}

static struct shared *share(void (*free_owned)(void *), void *owned)
{
    struct shared *shared = malloc(sizeof *shared);
    if (shared != NULL)
        *shared = (struct shared){.references = 1, .free = free_owned, .owned = owned};
    return shared;
}

static void drop_shared(struct shared *shared)
{
    if (--shared->references > 0)
        return;
    shared->free(shared->owned);
    free(shared);
}

static void finalize_shared(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)data;
    drop_shared(hint);
}

/* (status, message, reason, driver, httpStatus, systemError, processId) of the glue. */
napi_value sbx_node_show_error(napi_env env, const sandbox_error *error)
{
    struct instance *instance = sbx_node_instance(env);
    napi_value make, nothing, made, given[7] = {NULL};
    if (napi_get_reference_value(env, instance->make_error, &make) != napi_ok ||
        napi_get_undefined(env, &nothing) != napi_ok)
        return NULL;
    napi_create_int32(env, error->status, &given[0]);
    given[1] = show_text(env, error->message);
    given[2] = show_text(env, error->reason);
    given[3] = show_text(env, error->driver);
    napi_create_int32(env, error->http_status, &given[4]);
    napi_create_int32(env, error->system_error, &given[5]);
    given[6] = show_text(env, error->process_id);
    if (napi_call_function(env, nothing, make, 7, given, &made) != napi_ok)
        return NULL;
    return made;
}

/* Without surrogates, overlong forms and what is beyond Unicode. */
static bool is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at != 0) {
        unsigned more = *at < 0x80 ? 0 : *at >= 0xF0 ? 3 : *at >= 0xE0 ? 2 : 1;
        if (*at >= 0x80 && (*at < 0xC2 || *at > 0xF4))
            return false;
        if ((*at == 0xE0 && at[1] < 0xA0) || (*at == 0xED && at[1] > 0x9F) ||
            (*at == 0xF0 && at[1] < 0x90) || (*at == 0xF4 && at[1] > 0x8F))
            return false;
        for (at++; more > 0; more--, at++)
            if ((*at & 0xC0) != 0x80)
                return false;
    }
    return true;
}
