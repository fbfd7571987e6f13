/* Clean-up by scope, and copies. */
#ifndef SBX_UTIL_MEMORY_H
#define SBX_UTIL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Runs `function(&variable)` when the variable goes out of scope. */
#define SBX_ON_EXIT(function) __attribute__((cleanup(function)))

/* Hands a pointer over: the variable is NULL afterwards. */
#define sbx_take(pointer)                        \
    __extension__({                              \
        __typeof__(pointer) taken_ = (pointer);  \
        (pointer) = NULL;                        \
        taken_;                                  \
    })

/* Hands a descriptor over: the variable is -1 afterwards. */
int sbx_take_fd(int *fd);

char *sbx_copy(const char *text);                       /* NULL on no memory, or for NULL */
void *sbx_copy_bytes(const void *data, size_t size);    /* one zero byte follows */
char *sbx_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sbx_wipe(void *data, size_t size);                 /* not optimized away */

/* A copied NULL-terminated vector in one block each; NULL stays NULL and is no failure. */
char **sbx_copy_strings(const char *const *strings, bool *failed);
size_t sbx_count_strings(const char *const *strings);
void sbx_free_strings(char **strings);

/* For SBX_ON_EXIT. All accept NULL or -1. */
void sbx_free_text(char **text);
void sbx_close_fd(int *fd);

/* Of texts that nobody may find in freed memory. All accept NULL and wipe. */
void sbx_secret_free(char *text);
void sbx_secret_free_text(char **text); /* for SBX_ON_EXIT */
void sbx_secret_free_strings(char **strings);

#endif
