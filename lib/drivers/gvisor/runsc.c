/* Finding runsc, and finding out what this one can do: never by its name, always by asking it. */

#include "drivers/gvisor/gvisor.h"
#include "util/child.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>
#include <unistd.h>

#define ASK_MS 20000
/* From this version on coreutils were seen to work without the shim. */
#define STATX_MENDED 20260101
#define SYSTRAP_RIPE 20230501

static sandbox_status ask(const char *path, const char *known_as, const char *word,
                          const struct sbx_wait *wait, char **text, sandbox_error *error);
static uint32_t find_date(const char *text);

sandbox_status sbx_gvisor_runsc_find(const char *name, char **out, sandbox_error *error)
{
    const char *search = getenv("PATH");
    if (search == NULL || *search == '\0')
        search = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    if (strchr(name, '/') != NULL)
        search = "";
    for (const char *at = search;;) {
        size_t size = strcspn(at, ":");
        SBX_ON_EXIT(sbx_free_text)
        char *path = size == 0 ? sbx_copy(name) : sbx_format("%.*s/%s", (int)size, at, name);
        if (path == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
        char *real = path[0] == '/' && access(path, X_OK) == 0 ? realpath(path, NULL) : NULL;
        if (real != NULL) {
            *out = real;
            return SANDBOX_OK;
        }
        at += size;
        if (*at == '\0')
            return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-runsc",
                                "'%s' is not there or not executable; install gVisor "
                                "(apt-get install runsc) or give runsc=PATH in the URI",
                                name);
        at++;
    }
}

sandbox_status sbx_gvisor_runsc_learn(const char *path, const struct sbx_wait *wait,
                                      struct sbx_gvisor_runsc *out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *version = NULL;
    SBX_ON_EXIT(sbx_free_text) char *flags = NULL;
    sandbox_status status = sbx_gvisor_runsc_ask(path, path, wait, &version, &flags, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_gvisor_runsc_judge(version, flags, out);
    return out->has_overlay2 ? SANDBOX_OK : sbx_gvisor_runsc_too_old(path, error);
}

sandbox_status sbx_gvisor_runsc_ask(const char *path, const char *known_as,
                                    const struct sbx_wait *wait, char **version, char **flags,
                                    sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *first = NULL;
    sandbox_status status = ask(path, known_as, "--version", wait, &first, error);
    if (status == SANDBOX_OK)
        status = ask(path, known_as, "flags", wait, flags, error);
    if (status == SANDBOX_OK)
        *version = sbx_take(first);
    return status;
}

sandbox_status sbx_gvisor_runsc_too_old(const char *path, sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "runsc-too-old",
                        "'%s' has no --overlay2; install a gVisor of December 2022 or later", path);
}

void sbx_gvisor_runsc_judge(const char *version, const char *flags, struct sbx_gvisor_runsc *out)
{
    static const char mark[] = "runsc version ";
    *out = (struct sbx_gvisor_runsc){0};
    const char *at = strstr(version, mark);
    at = at == NULL ? version : at + strlen(mark);
    snprintf(out->version, sizeof out->version, "%.*s", (int)strcspn(at, "\r\n"), at);
    out->date = find_date(out->version);
    out->has_overlay2 = strstr(flags, "-overlay2 ") != NULL;
    out->has_systrap = strstr(flags, "systrap") != NULL;
    /* A build without a date (VERSION_MISSING) is judged by its flags alone. */
    bool systrap_is_ripe = out->date == 0 || out->date >= SYSTRAP_RIPE;
    out->platform = out->has_systrap && systrap_is_ripe ? "systrap" : "ptrace";
    out->needs_shim = out->date < STATX_MENDED;
}

static sandbox_status ask(const char *path, const char *known_as, const char *word,
                          const struct sbx_wait *wait, char **text, sandbox_error *error)
{
    const char *argv[] = {path, word, NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv, .die_with_parent = true};
    struct sbx_wait bounded = sbx_wait_within(wait, ASK_MS);
    int code = 0;
    sandbox_status status = sbx_child_run(&options, &bounded, &code, text, error);
    if (status != SANDBOX_OK)
        return status;
    /* `runsc flags` ends with a code of its own in some versions: its text is what counts. */
    if (code > 2)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-runsc",
                            "'%s %s' ended with code %d; is it really runsc?", known_as, word,
                            code);
    return SANDBOX_OK;
}

/* The first eight digits in a row that look like a day: "0.0~20221219.0", "release-20260224.0". */
static uint32_t find_date(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        size_t digits = strspn(at, "0123456789");
        if (digits == 0)
            continue;
        uint32_t number = digits == 8 ? (uint32_t)strtoul(at, NULL, 10) : 0;
        if (number >= 20180101 && number < 21000101)
            return number;
        at += digits - 1;
    }
    return 0;
}
