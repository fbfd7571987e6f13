/* What a "gvisor:" URI says: [/STATE/DIRECTORY][?runsc=PATH&platform=NAME&agent=PATH&shim=PATH]. */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/uri.h"

static const char *const platforms[] = {"systrap", "ptrace", "kvm", NULL};

static sandbox_status read_parameters(const char *text, struct sbx_gvisor_settings *settings,
                                      sandbox_error *error);
static sandbox_status read_parameter(const char *text, size_t size,
                                     struct sbx_gvisor_settings *settings, sandbox_error *error);
static sandbox_status check(const struct sbx_gvisor_settings *settings, sandbox_error *error);

sandbox_status sbx_gvisor_settings_read(const char *rest, struct sbx_gvisor_settings *out,
                                        sandbox_error *error)
{
    SBX_ON_EXIT(sbx_gvisor_settings_clear) struct sbx_gvisor_settings settings = {0};
    size_t path_size = strcspn(rest, "?");
    sandbox_status status =
        path_size > 0
            ? sbx_uri_decode(rest, path_size, &settings.state, error)
            : sbx_uri_decode(SBX_GVISOR_STATE, strlen(SBX_GVISOR_STATE), &settings.state, error);
    if (status == SANDBOX_OK && rest[path_size] == '?')
        status = read_parameters(rest + path_size + 1, &settings, error);
    if (status == SANDBOX_OK && settings.runsc == NULL)
        status = sbx_uri_decode("runsc", strlen("runsc"), &settings.runsc, error);
    if (status == SANDBOX_OK)
        status = check(&settings, error);
    if (status != SANDBOX_OK)
        return status;
    *out = settings;
    settings = (struct sbx_gvisor_settings){0};
    return SANDBOX_OK;
}

void sbx_gvisor_settings_clear(struct sbx_gvisor_settings *settings)
{
    free(settings->state);
    free(settings->runsc);
    free(settings->platform);
    free(settings->agent);
    free(settings->shim);
    *settings = (struct sbx_gvisor_settings){0};
}

static sandbox_status read_parameters(const char *text, struct sbx_gvisor_settings *settings,
                                      sandbox_error *error)
{
    while (*text != '\0') {
        size_t size = strcspn(text, "&");
        sandbox_status status = read_parameter(text, size, settings, error);
        if (status != SANDBOX_OK)
            return status;
        text += size + (text[size] == '&');
    }
    return SANDBOX_OK;
}

static sandbox_status read_parameter(const char *text, size_t size,
                                     struct sbx_gvisor_settings *settings, sandbox_error *error)
{
    struct {
        const char *name;
        char **value;
    } const known[] = {
        {"runsc", &settings->runsc},
        {"platform", &settings->platform},
        {"agent", &settings->agent},
        {"shim", &settings->shim},
    };
    const char *equals = memchr(text, '=', size);
    size_t name_size = equals == NULL ? size : (size_t)(equals - text);
    for (size_t n = 0; n < sizeof known / sizeof known[0]; n++) {
        if (strlen(known[n].name) != name_size || memcmp(known[n].name, text, name_size) != 0)
            continue;
        if (*known[n].value != NULL)
            return sbx_fail(error, SANDBOX_INVALID, "the URI gives '%s' twice", known[n].name);
        if (equals == NULL || name_size + 1 == size)
            return sbx_fail(error, SANDBOX_INVALID, "the URI's '%s' has no value", known[n].name);
        return sbx_uri_decode(equals + 1, size - name_size - 1, known[n].value, error);
    }
    return sbx_fail(error, SANDBOX_INVALID,
                    "a gvisor: URI has no parameter '%.*s'; it takes runsc, platform, agent, shim",
                    (int)(name_size < 64 ? name_size : 64), text);
}

static sandbox_status check(const struct sbx_gvisor_settings *settings, sandbox_error *error)
{
    struct {
        const char *what, *path;
        bool name_will_do;
    } const paths[] = {
        {"state directory", settings->state, false},
        {"runsc", settings->runsc, true},
        {"agent", settings->agent, false},
        {"shim", settings->shim, false},
    };
    for (size_t n = 0; n < sizeof paths / sizeof paths[0]; n++) {
        const char *path = paths[n].path;
        if (path == NULL || path[0] == '/' || (paths[n].name_will_do && strchr(path, '/') == NULL))
            continue;
        return sbx_fail(error, SANDBOX_INVALID, "the URI's %s must be an absolute path, not '%s'",
                        paths[n].what, path);
    }
    /* Longer ones leave no room for what lies beneath. The overlay's list of layers has its own
     * marks, which a path must not hold. */
    if (strlen(settings->state) > 1024 || strpbrk(settings->state, ":,\\\n") != NULL)
        return sbx_fail(error, SANDBOX_INVALID,
                        "the URI's state directory must have at most 1,024 bytes and no ':', ',', "
                        "'\\' or line end");
    if (settings->platform == NULL)
        return SANDBOX_OK;
    for (size_t n = 0; platforms[n] != NULL; n++) {
        if (strcmp(platforms[n], settings->platform) == 0)
            return SANDBOX_OK;
    }
    return sbx_fail(error, SANDBOX_INVALID,
                    "gVisor has no platform '%s'; it is systrap, ptrace or kvm",
                    settings->platform);
}
