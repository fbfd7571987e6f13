/* Errors: made here, passed on unchanged by everybody above. */

#include "util/fail.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(sandbox_error) == 512, "the size is part of the ABI");

static void write_error(sandbox_error *error, sandbox_status status, const char *reason,
                        const char *format, va_list arguments)
    __attribute__((format(printf, 4, 0)));
static void keep_one_line(char *text);

sandbox_status sbx_fail(sandbox_error *error, sandbox_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_error(error, status, "", format, arguments);
    va_end(arguments);
    return status;
}

sandbox_status sbx_fail_for(sandbox_error *error, sandbox_status status, const char *reason,
                            const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_error(error, status, reason, format, arguments);
    va_end(arguments);
    return status;
}

sandbox_status sbx_fail_errno(sandbox_error *error, int number, const char *format, ...)
{
    sandbox_status status = sbx_status_of_errno(number);
    if (error == NULL)
        return status;

    va_list arguments;
    va_start(arguments, format);
    write_error(error, status, "", format, arguments);
    va_end(arguments);
    error->system_error = number;

    size_t used = strlen(error->message);
    char words[128];
    const char *text = strerror_r(number, words, sizeof words);
    snprintf(error->message + used, sizeof error->message - used, ": %s", text);
    keep_one_line(error->message);
    return status;
}

sandbox_status sbx_status_of_errno(int number)
{
    switch (number) {
    case 0:
        return SANDBOX_OK;
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
    case ENXIO:
        return SANDBOX_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
        return SANDBOX_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return SANDBOX_DENIED;
    case ENOMEM:
        return SANDBOX_NO_MEMORY;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
    case EISDIR:
    case EXDEV:
        return SANDBOX_INVALID;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EFBIG:
    case E2BIG:
        return SANDBOX_LIMIT;
    case ENOSYS:
    case EOPNOTSUPP:
        return SANDBOX_UNSUPPORTED;
    case ETIMEDOUT:
        return SANDBOX_TIMED_OUT;
    case EAGAIN:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
        return SANDBOX_UNAVAILABLE;
    default:
        return SANDBOX_FAILED;
    }
}

static void write_error(sandbox_error *error, sandbox_status status, const char *reason,
                        const char *format, va_list arguments)
{
    if (error == NULL)
        return;
    *error = (sandbox_error){.status = status};
    snprintf(error->reason, sizeof error->reason, "%s", reason);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    keep_one_line(error->message);
}

/* How many bytes a character of UTF-8 has that begins so; 0: none does. */
static size_t character_size(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first < 0xe0)
        return 2;
    if (first >= 0xe0 && first < 0xf0)
        return 3;
    return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

/* Quoted names may hold anything; a message is one line for people and logs, and valid UTF-8. */
static void keep_one_line(char *text)
{
    size_t at = 0;
    while (text[at] != '\0') {
        unsigned char first = (unsigned char)text[at];
        size_t length = character_size(first);
        bool good = length > 0 && !(length == 1 && (first < 0x20 || first == 0x7f));
        for (size_t n = 1; good && n < length; n++)
            good = ((unsigned char)text[at + n] & 0xc0) == 0x80;
        if (!good) {
            text[at] = '?';
            length = 1;
        }
        at += length;
    }
}
