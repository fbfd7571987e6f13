/*
 * A record as the platform's store gives it: whoever can write there may hand us anything. What
 * is taken must come back the same from its own encoding.
 */

#include "core/record.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct sbx_record *first, const struct sbx_record *second);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sbx_record record = {0};
    sandbox_error error;
    if (sbx_record_decode((const char *)data, size, &record, &error) != SANDBOX_OK)
        return 0;

    char *text = NULL;
    if (sbx_record_encode(&record, &text, &error) == SANDBOX_OK) {
        struct sbx_record again = {0};
        if (sbx_record_decode(text, strlen(text), &again, &error) != SANDBOX_OK)
            abort();
        check_same(&record, &again);
        sbx_record_clear(&again);
        free(text);
    }
    sbx_record_clear(&record);
    return 0;
}

/* JSON is printed with 15 digits: enough for thirty thousand years. */
static bool is_same_time(int64_t first, int64_t second)
{
    const int64_t exact = 999999999999999;
    return first == second || first > exact || first < -exact;
}

static void check_same(const struct sbx_record *first, const struct sbx_record *second)
{
    if (strcmp(first->id, second->id) != 0 || strcmp(first->name, second->name) != 0 ||
        strcmp(first->driver, second->driver) != 0 || first->state != second->state ||
        first->epoch != second->epoch || strcmp(first->run, second->run) != 0 ||
        strcmp(first->incarnation, second->incarnation) != 0 ||
        strcmp(first->user, second->user) != 0 || first->key_id != second->key_id ||
        !is_same_time(first->created_ms, second->created_ms) ||
        !is_same_time(first->expires_ms, second->expires_ms))
        abort();
    /* Without a kind there is no operation, whatever else stands there. */
    const struct sbx_operation *was = &first->operation, *is = &second->operation;
    if (strcmp(was->kind, is->kind) != 0)
        abort();
    if (was->kind[0] != '\0' &&
        (strcmp(was->id, is->id) != 0 || strcmp(was->owner, is->owner) != 0 ||
         strcmp(was->step, is->step) != 0 || was->lease_ms != is->lease_ms))
        abort();
}
