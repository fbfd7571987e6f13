/* Copies, and clean-up by scope. */

#include "util/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

int sbx_take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

char *sbx_copy(const char *text)
{
    return text == NULL ? NULL : sbx_copy_bytes(text, strlen(text));
}

void *sbx_copy_bytes(const void *data, size_t size)
{
    char *copy = malloc(size + 1);
    if (copy == NULL)
        return NULL;
    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = '\0';
    return copy;
}

char *sbx_format(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (size < 0)
        return NULL;
    char *text = malloc((size_t)size + 1);
    if (text == NULL)
        return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)size + 1, format, arguments);
    va_end(arguments);
    return text;
}

void sbx_wipe(void *data, size_t size)
{
    if (size > 0) /* what is empty may be NULL */
        explicit_bzero(data, size);
}

size_t sbx_count_strings(const char *const *strings)
{
    size_t count = 0;
    while (strings != NULL && strings[count] != NULL)
        count++;
    return count;
}

char **sbx_copy_strings(const char *const *strings, bool *failed)
{
    *failed = false;
    if (strings == NULL)
        return NULL;
    size_t count = sbx_count_strings(strings);
    char **copies = calloc(count + 1, sizeof *copies);
    for (size_t n = 0; copies != NULL && n < count; n++) {
        copies[n] = sbx_copy(strings[n]);
        if (copies[n] == NULL) {
            sbx_free_strings(copies);
            copies = NULL;
        }
    }
    *failed = copies == NULL;
    return copies;
}

void sbx_free_strings(char **strings)
{
    for (size_t n = 0; strings != NULL && strings[n] != NULL; n++)
        free(strings[n]);
    free(strings);
}

void sbx_free_text(char **text)
{
    free(*text);
    *text = NULL;
}

void sbx_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void sbx_secret_free(char *text)
{
    if (text != NULL)
        sbx_wipe(text, strlen(text));
    free(text);
}

void sbx_secret_free_text(char **text)
{
    sbx_secret_free(sbx_take(*text));
}

void sbx_secret_free_strings(char **strings)
{
    for (size_t n = 0; strings != NULL && strings[n] != NULL; n++)
        sbx_secret_free(strings[n]);
    free(strings);
}
