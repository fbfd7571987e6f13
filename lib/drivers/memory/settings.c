/* What a "memory:" URI says, and the default place of the platform's socket. */

#include "drivers/memory/memory.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/uri.h"
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The platform puts its agents' sockets below SOCKET.state, so some room must be left. */
#define SOCKET_MAX (sizeof((struct sockaddr_un *)0)->sun_path - 32)

static char *default_socket(void);
static sandbox_status read_parameter(const char *text, size_t size, struct sbx_memory *settings,
                                     sandbox_error *error);

sandbox_status sbx_memory_settings_read(const char *rest, struct sbx_memory *out,
                                        sandbox_error *error)
{
    SBX_ON_EXIT(sbx_memory_settings_clear) struct sbx_memory settings = {0};
    size_t size = strcspn(rest, "?");
    settings.own_directory = size == 0;
    sandbox_status status = SANDBOX_OK;
    if (size > 0)
        status = sbx_uri_decode(rest, size, &settings.socket, error);
    else if ((settings.socket = default_socket()) == NULL)
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    for (const char *at = rest + size; status == SANDBOX_OK && *at != '\0';) {
        at++;
        size_t length = strcspn(at, "&");
        status = read_parameter(at, length, &settings, error);
        at += length;
    }
    if (status != SANDBOX_OK)
        return status;
    if (settings.socket[0] != '/' || strlen(settings.socket) > SOCKET_MAX)
        return sbx_fail(error, SANDBOX_INVALID,
                        "'%s' is no place for the memory platform's socket: give an absolute path "
                        "of at most %zu bytes, as in memory:/tmp/mine/socket",
                        settings.socket, SOCKET_MAX);
    if (settings.agent != NULL && settings.agent[0] != '/')
        return sbx_fail(error, SANDBOX_INVALID, "the agent's path '%s' must be absolute",
                        settings.agent);
    *out = settings;
    settings = (struct sbx_memory){0};
    return SANDBOX_OK;
}

void sbx_memory_settings_clear(struct sbx_memory *settings)
{
    free(settings->socket);
    free(settings->agent);
    *settings = (struct sbx_memory){0};
}

/* The session's own directory where there is a safe one, so that it ends with the session. */
static char *default_socket(void)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat facts;
    if (runtime != NULL && runtime[0] == '/' && strlen(runtime) < SOCKET_MAX - 32 &&
        stat(runtime, &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == geteuid() &&
        (facts.st_mode & 077) == 0)
        return sbx_format("%s/libsandbox-memory/socket", runtime);
    return sbx_format("/tmp/libsandbox-memory-%u/socket", (unsigned)geteuid());
}

static sandbox_status read_parameter(const char *text, size_t size, struct sbx_memory *settings,
                                     sandbox_error *error)
{
    static const char agent[] = "agent=";
    size_t name_size = sizeof agent - 1;
    if (size <= name_size || memcmp(text, agent, name_size) != 0)
        return sbx_fail(error, SANDBOX_INVALID,
                        "a memory: URI takes agent=PATH after the '?', not '%.*s'",
                        (int)(size < 64 ? size : 64), text);
    if (settings->agent != NULL)
        return sbx_fail(error, SANDBOX_INVALID, "the URI gives 'agent' twice");
    return sbx_uri_decode(text + name_size, size - name_size, &settings->agent, error);
}
