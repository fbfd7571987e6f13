/* Numbers, checksums and pax records of tar headers. */

#include "util/tar_fields.h"

#include <stdio.h>
#include <string.h>

static bool take_record(struct sbx_tar_extras *extras, const char *key, size_t key_size,
                        const char *value, size_t value_size);
static const char *known_name(const char *key, size_t key_size);

bool sbx_tar_number(const uint8_t *field, size_t size, int64_t *number)
{
    if ((field[0] & 0x80) != 0) {
        bool negative = (field[0] & 0x40) != 0;
        uint64_t value = negative ? UINT64_MAX : 0;
        for (size_t i = 0; i < size; i++) {
            uint8_t byte = i > 0 ? field[i] : (uint8_t)(field[i] | (negative ? 0x80 : 0));
            if (i == 0 && !negative)
                byte &= 0x3f;
            if ((value >> 55) != (negative ? 0x1ffu : 0))
                return false;
            value = value << 8 | byte;
        }
        *number = (int64_t)value;
        return ((int64_t)value < 0) == negative;
    }
    size_t i = 0;
    uint64_t value = 0;
    while (i < size && field[i] == ' ')
        i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
        value = value * 8 + (uint64_t)(field[i] - '0'); /* 12 digits are 36 bits */
    for (; i < size; i++)
        if (field[i] != ' ' && field[i] != 0)
            return false;
    *number = (int64_t)value;
    return true;
}

bool sbx_tar_checksum_is_right(const uint8_t *block)
{
    int64_t stored;
    if (!sbx_tar_number(block + TAR_CHECKSUM, TAR_CHECKSUM_SIZE, &stored))
        return false;
    int64_t sum = 0, signed_sum = 0; /* some old programs add signed bytes */
    for (int i = 0; i < SBX_TAR_BLOCK; i++) {
        bool own = i >= TAR_CHECKSUM && i < TAR_CHECKSUM + TAR_CHECKSUM_SIZE;
        sum += own ? ' ' : block[i];
        signed_sum += own ? ' ' : (int8_t)block[i];
    }
    return stored == sum || stored == signed_sum;
}

bool sbx_tar_name(char *name, const void *data, size_t size)
{
    if (size >= SBX_TAR_PATH_MAX || memchr(data, 0, size) != NULL)
        return false;
    memcpy(name, data, size);
    name[size] = 0;
    return true;
}

/* Each record is "LENGTH KEY=VALUE\n", its own length counted. */
bool sbx_tar_records(struct sbx_tar_extras *extras, const char *at, size_t left, char *problem,
                     size_t problem_size)
{
    while (left > 0) {
        size_t size = 0, digits = 0;
        while (digits < left && digits < 8 && at[digits] >= '0' && at[digits] <= '9')
            size = size * 10 + (size_t)(at[digits++] - '0');
        if (digits == 0 || digits >= left || at[digits] != ' ' || size > left ||
            size < digits + 3 || at[size - 1] != '\n') {
            snprintf(problem, problem_size, "a pax header has a broken record");
            return false;
        }
        const char *key = at + digits + 1;
        const char *equals = memchr(key, '=', size - digits - 2);
        if (equals == NULL) {
            snprintf(problem, problem_size, "a pax header has a record without a value");
            return false;
        }
        size_t key_size = (size_t)(equals - key);
        size_t value_size = size - digits - key_size - 3;
        if (!take_record(extras, key, key_size, equals + 1, value_size)) {
            snprintf(problem, problem_size, "a pax header has a value that cannot be used: %s",
                     known_name(key, key_size));
            return false;
        }
        at += size;
        left -= size;
    }
    return true;
}

static bool decimal(const char *text, size_t size, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9' || i > 17)
            return false;
        *number = *number * 10 + (uint64_t)(text[i] - '0');
    }
    return size > 0;
}

/* Seconds with an optional fraction, rounded down. */
static bool read_time(const char *text, size_t size, int64_t *seconds)
{
    bool negative = size > 0 && text[0] == '-';
    if (negative) {
        text++;
        size--;
    }
    const char *point = memchr(text, '.', size);
    size_t whole = point == NULL ? size : (size_t)(point - text);
    uint64_t number = 0;
    if (!decimal(text, whole, &number))
        return false;
    bool fraction = false;
    for (size_t i = whole + 1; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        fraction = fraction || text[i] != '0';
    }
    *seconds = negative ? -(int64_t)number - (fraction ? 1 : 0) : (int64_t)number;
    return true;
}

static bool key_is(const char *key, size_t key_size, const char *name)
{
    return key_size == strlen(name) && memcmp(key, name, key_size) == 0;
}

static bool take_record(struct sbx_tar_extras *extras, const char *key, size_t key_size,
                        const char *value, size_t value_size)
{
    if (key_is(key, key_size, "path"))
        return extras->has_path = sbx_tar_name(extras->path, value, value_size);
    if (key_is(key, key_size, "linkpath"))
        return extras->has_target = sbx_tar_name(extras->target, value, value_size);
    if (key_is(key, key_size, "size"))
        return extras->has_size = decimal(value, value_size, &extras->size);
    if (key_is(key, key_size, "mtime"))
        return extras->has_modified = read_time(value, value_size, &extras->modified_s);
    if (key_is(key, key_size, "GNU.sparse.name"))
        return extras->has_sparse_name = sbx_tar_name(extras->sparse_name, value, value_size);
    if (key_is(key, key_size, "GNU.sparse.realsize"))
        return extras->has_real_size = decimal(value, value_size, &extras->real_size);
    if (key_is(key, key_size, "GNU.sparse.major"))
        return extras->has_sparse_major = decimal(value, value_size, &extras->sparse_major);
    if (key_is(key, key_size, "GNU.sparse.minor"))
        return extras->has_sparse_minor = decimal(value, value_size, &extras->sparse_minor);
    /* The older sparse forms keep their map here; without it the content would be misread. */
    return !key_is(key, key_size, "GNU.sparse.map") &&
           !key_is(key, key_size, "GNU.sparse.numblocks");
}

/* For a message: a stranger's key is not printed as it is. */
static const char *known_name(const char *key, size_t key_size)
{
    static const char *const names[] = {"path", "linkpath", "size", "mtime", "GNU.sparse.name",
                                        "GNU.sparse.realsize", "GNU.sparse.major",
                                        "GNU.sparse.minor"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (key_is(key, key_size, names[i]))
            return names[i];
    return "a sparse map that is not in the GNU 1.0 form";
}
