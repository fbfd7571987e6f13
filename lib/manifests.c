/* What a platform needs before workspaces can be made there: collected from its driver. */

#include "core/driver.h"
#include "core/teller.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"

#define APPLY_MS 60000u

struct sandbox_manifests {
    size_t count;
    sandbox_manifest *manifest;
};

/* Where a driver's objects go. */
struct collector {
    struct sbx_manifests_sink sink; /* first, so that the sink is the collector */
    sandbox_manifests *manifests;
    bool out_of_memory;
};

static sandbox_status begin(const char *uri, const sandbox_manifests_options *given,
                            sandbox_manifests **out, const struct sbx_driver **driver,
                            const char **rest, sandbox_manifests_options *options,
                            struct collector *collector, sandbox_error *error);
static sandbox_status end(struct collector *collector, sandbox_status status,
                          sandbox_manifests **out, sandbox_error *error);
static void collect(struct sbx_manifests_sink *sink, const char *kind, const char *space,
                    const char *name, const char *text);

sandbox_status sandbox_manifests_render(const char *uri, const sandbox_manifests_options *given,
                                        sandbox_manifests **out, sandbox_error *error)
{
    const struct sbx_driver *driver = NULL;
    const char *rest = NULL;
    sandbox_manifests_options options;
    struct collector collector;
    sandbox_status status = begin(uri, given, out, &driver, &rest, &options, &collector, error);
    if (status != SANDBOX_OK)
        return status;
    status = driver->manifests(rest, &options, &collector.sink, error);
    sbx_teller_tell(driver, status, error);
    return end(&collector, status, out, error);
}

sandbox_status sandbox_manifests_apply(const char *uri, const sandbox_manifests_options *given,
                                       const sandbox_call *call, sandbox_manifests **out,
                                       sandbox_error *error)
{
    const struct sbx_driver *driver = NULL;
    const char *rest = NULL;
    sandbox_manifests_options options;
    struct collector collector;
    struct sbx_wait wait;
    sandbox_status status = sbx_wait_begin(&wait, call, APPLY_MS, error);
    if (status == SANDBOX_OK)
        status = begin(uri, given, out, &driver, &rest, &options, &collector, error);
    if (status != SANDBOX_OK)
        return status;
    status = driver->manifests_apply(rest, &options, &wait, &collector.sink, error);
    sbx_teller_tell(driver, status, error);
    return end(&collector, status, out, error);
}

size_t sandbox_manifests_count(const sandbox_manifests *manifests)
{
    return manifests == NULL ? 0 : manifests->count;
}

const sandbox_manifest *sandbox_manifests_at(const sandbox_manifests *manifests, size_t index)
{
    return index < sandbox_manifests_count(manifests) ? &manifests->manifest[index] : NULL;
}

void sandbox_manifests_free(sandbox_manifests *manifests)
{
    for (size_t n = 0; manifests != NULL && n < manifests->count; n++) {
        const sandbox_manifest *manifest = &manifests->manifest[n];
        const char *const texts[] = {manifest->kind, manifest->space, manifest->name,
                                     manifest->text};
        for (size_t text = 0; text < sizeof texts / sizeof texts[0]; text++)
            free((void *)(uintptr_t)texts[text]);
    }
    if (manifests != NULL)
        free(manifests->manifest);
    free(manifests);
}

static sandbox_status begin(const char *uri, const sandbox_manifests_options *given,
                            sandbox_manifests **out, const struct sbx_driver **driver,
                            const char **rest, sandbox_manifests_options *options,
                            struct collector *collector, sandbox_error *error)
{
    *collector = (struct collector){.sink = {collect}};
    if (out == NULL || uri == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no %s for the manifests",
                        uri == NULL ? "URI" : "place");
    sandbox_status status = sbx_options_adopt(options, sizeof *options, given, error);
    if (status != SANDBOX_OK)
        return status;
    *driver = sbx_driver_of(uri, rest);
    if (*driver == NULL)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "unknown-driver",
                            "there is no driver for '%.40s'", uri);
    if ((*driver)->manifests == NULL)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-manifests",
                            "'%s:' is no cluster: nothing has to be set up there", (*driver)->name);
    collector->manifests = calloc(1, sizeof *collector->manifests);
    return collector->manifests != NULL
               ? SANDBOX_OK
               : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for manifests");
}

static sandbox_status end(struct collector *collector, sandbox_status status,
                          sandbox_manifests **out, sandbox_error *error)
{
    if (status == SANDBOX_OK && collector->out_of_memory)
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for manifests");
    if (status == SANDBOX_OK)
        *out = collector->manifests;
    else
        sandbox_manifests_free(collector->manifests);
    return status;
}

static void collect(struct sbx_manifests_sink *sink, const char *kind, const char *space,
                    const char *name, const char *text)
{
    struct collector *collector = (struct collector *)sink;
    sandbox_manifests *manifests = collector->manifests;
    sandbox_manifest *larger =
        realloc(manifests->manifest, (manifests->count + 1) * sizeof *manifests->manifest);
    if (larger == NULL) {
        collector->out_of_memory = true;
        return;
    }
    manifests->manifest = larger;
    sandbox_manifest *added = &larger[manifests->count++];
    *added = (sandbox_manifest){.size = sizeof(sandbox_manifest),
                                .kind = sbx_copy(kind),
                                .name = sbx_copy(name),
                                .space = sbx_copy(space),
                                .text = sbx_copy(text)};
    if (added->kind == NULL || added->name == NULL || added->space == NULL || added->text == NULL)
        collector->out_of_memory = true;
}
