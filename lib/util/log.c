/* The log hook: the one global of the library. */

#include "util/log.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER;
static sandbox_log_function hook;
static void *hook_data;
static atomic_int hook_level = SANDBOX_LOG_OFF;

void sandbox_set_log(sandbox_log_level level, sandbox_log_function function, void *user_data)
{
    pthread_mutex_lock(&hook_lock);
    hook = function;
    hook_data = user_data;
    atomic_store(&hook_level, function == NULL ? SANDBOX_LOG_OFF : (int)level);
    pthread_mutex_unlock(&hook_lock);
}

void sbx_log(sandbox_log_level level, const char *format, ...)
{
    if ((int)level > atomic_load(&hook_level))
        return;
    pthread_mutex_lock(&hook_lock);
    sandbox_log_function function = hook;
    void *user_data = hook_data;
    pthread_mutex_unlock(&hook_lock);
    if (function == NULL)
        return;

    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *at = line; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = ' ';
    }
    function(level, line, user_data);
}
