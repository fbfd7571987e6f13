/* Clients: open, look, doctor. */

#include "core/client.h"
#include "core/janitor.h"
#include "core/lifecycle.h"
#include "core/teller.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/options.h"
#include <fcntl.h>
#include <unistd.h>

#define DEFAULT_URI     "gvisor:"
#define DESCRIBED_URI   "gke:"
#define DESCRIPTION_MAX (16u << 20)
#define OPEN_MS         30000u
#define SWEEP_MS        300000u
#define FINDINGS_MAX    256

struct sandbox_findings {
    size_t count;
    sandbox_finding *found;
};

/* Where a driver's findings go. */
struct collector {
    struct sbx_findings_sink sink; /* first, so that the sink is the collector */
    sandbox_findings *findings;
    bool out_of_memory;
};

static sandbox_status choose_driver(const char *uri, const struct sbx_driver **driver,
                                    const char **rest, sandbox_error *error);
static void collect(struct sbx_findings_sink *sink, sandbox_severity severity, const char *subject,
                    const char *text, const char *remedy);
static sandbox_status examine(const struct sbx_driver *driver, const char *rest,
                              const sandbox_doctor_options *options, const struct sbx_wait *wait,
                              struct sbx_findings_sink *sink, sandbox_error *error);

sandbox_status sandbox_client_open(const sandbox_client_options *given, const sandbox_call *call,
                                   sandbox_client **out, sandbox_error *error)
{
    sandbox_client_options options;
    struct sbx_wait wait;
    const char *rest = NULL;
    const struct sbx_driver *driver = NULL;
    if (out == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no place to put the client");
    sandbox_status status = sbx_options_adopt(&options, sizeof options, given, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, OPEN_MS, error);
    const char *uri = options.uri == NULL ? DEFAULT_URI : options.uri;
    if (status == SANDBOX_OK)
        status = choose_driver(uri, &driver, &rest, error);
    if (status != SANDBOX_OK)
        return status;

    sandbox_client *client = calloc(1, sizeof *client);
    if (client == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client");
    pthread_mutex_init(&client->lock, NULL);
    sbx_list_cache_init(&client->listed);
    sbx_events_init(&client->events);
    atomic_init(&client->references, 1);
    client->pid = getpid();
    client->clock = &sbx_system_clock;
    client->uri = sbx_copy(uri);
    if (client->uri == NULL)
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client");
    if (status == SANDBOX_OK)
        status = sbx_teller_open(driver, rest, &wait, &client->driver, &client->state, error);
    if (status == SANDBOX_OK)
        status = sbx_loop_start(&client->loop, error);
    if (status == SANDBOX_OK)
        status = sbx_janitor_start(client, error);
    if (status == SANDBOX_OK)
        *out = client;
    else
        sbx_client_drop(client);
    return status;
}

void sandbox_client_free(sandbox_client *client)
{
    sbx_client_drop(client);
}

const char *sandbox_client_uri(const sandbox_client *client)
{
    return client == NULL ? "" : client->uri;
}

const char *sandbox_client_driver(const sandbox_client *client)
{
    return client == NULL ? "" : client->driver->name;
}

bool sandbox_client_can(const sandbox_client *client, sandbox_ability ability)
{
    return client != NULL && client->driver->can(client->state, ability);
}

sandbox_status sandbox_client_sweep(sandbox_client *client, const sandbox_call *call, size_t *count,
                                    sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_client_check(client, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SWEEP_MS, error);
    return status == SANDBOX_OK ? sbx_life_sweep(client, &wait, count, error) : status;
}

sandbox_status sandbox_doctor(const char *uri, const sandbox_call *call, sandbox_findings **out,
                              sandbox_error *error)
{
    const sandbox_doctor_options options = {SANDBOX_DOCTOR_OPTIONS, .uri = uri};
    return sandbox_doctor_with(&options, call, out, error);
}

sandbox_status sandbox_doctor_with(const sandbox_doctor_options *given, const sandbox_call *call,
                                   sandbox_findings **out, sandbox_error *error)
{
    struct sbx_wait wait;
    const char *rest = NULL;
    const struct sbx_driver *driver = NULL;
    sandbox_doctor_options options;
    if (out == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no place to put the findings");
    sandbox_status status = sbx_options_adopt(&options, sizeof options, given, error);
    if (status == SANDBOX_OK && options.save != NULL && options.from != NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "a description is either saved or looked at");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, OPEN_MS, error);
    if (options.uri == NULL)
        options.uri = options.from != NULL ? DESCRIBED_URI : DEFAULT_URI;
    if (status == SANDBOX_OK)
        status = choose_driver(options.uri, &driver, &rest, error);
    if (status != SANDBOX_OK)
        return status;

    struct collector collector = {.sink = {collect}};
    collector.findings = calloc(1, sizeof *collector.findings);
    if (collector.findings == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for findings");
    status = examine(driver, rest, &options, &wait, &collector.sink, error);
    sbx_teller_tell(driver, status, error);
    if (status == SANDBOX_OK && collector.out_of_memory)
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for findings");
    if (status == SANDBOX_OK)
        *out = collector.findings;
    else
        sandbox_findings_free(collector.findings);
    return status;
}

static sandbox_status examine(const struct sbx_driver *driver, const char *rest,
                              const sandbox_doctor_options *options, const struct sbx_wait *wait,
                              struct sbx_findings_sink *sink, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    size_t size = 0;
    if (options->save == NULL && options->from == NULL)
        return driver->examine(rest, wait, sink, error);
    if (driver->describe == NULL)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-description",
                            "there are descriptions of gke: only, not of '%s:'", driver->name);
    if (options->from != NULL) {
        sandbox_status status = sbx_file_read(AT_FDCWD, options->from, DESCRIPTION_MAX,
                                              (uint8_t **)&text, &size, error);
        return status == SANDBOX_OK
                   ? driver->judge_description(rest, options->from, text, size, sink, error)
                   : status;
    }
    sandbox_status status = driver->describe(rest, wait, sink, &text, error);
    return status == SANDBOX_OK
               ? sbx_file_replace(AT_FDCWD, options->save, text, strlen(text), 0600, error)
               : status;
}

size_t sandbox_findings_count(const sandbox_findings *findings)
{
    return findings == NULL ? 0 : findings->count;
}

const sandbox_finding *sandbox_findings_at(const sandbox_findings *findings, size_t index)
{
    return index < sandbox_findings_count(findings) ? &findings->found[index] : NULL;
}

void sandbox_findings_free(sandbox_findings *findings)
{
    for (size_t n = 0; findings != NULL && n < findings->count; n++) {
        free((void *)(uintptr_t)findings->found[n].subject);
        free((void *)(uintptr_t)findings->found[n].text);
        free((void *)(uintptr_t)findings->found[n].remedy);
    }
    if (findings != NULL)
        free(findings->found);
    free(findings);
}

static sandbox_status choose_driver(const char *uri, const struct sbx_driver **driver,
                                    const char **rest, sandbox_error *error)
{
    *driver = sbx_driver_of(uri, rest);
    if (*driver != NULL)
        return SANDBOX_OK;
    int length = (int)strcspn(uri, ":");
    return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "unknown-driver",
                        "there is no driver '%.*s'; URIs begin with 'gvisor:', 'gke:' or 'memory:'",
                        length < 40 ? length : 40, uri);
}

static void collect(struct sbx_findings_sink *sink, sandbox_severity severity, const char *subject,
                    const char *text, const char *remedy)
{
    struct collector *collector = (struct collector *)sink;
    sandbox_findings *findings = collector->findings;
    if (findings->count == FINDINGS_MAX)
        return;
    sandbox_finding *larger =
        realloc(findings->found, (findings->count + 1) * sizeof *findings->found);
    if (larger == NULL) {
        collector->out_of_memory = true;
        return;
    }
    findings->found = larger;
    larger[findings->count++] = (sandbox_finding){.size = sizeof(sandbox_finding),
                                                  .severity = severity,
                                                  .subject = sbx_copy(subject),
                                                  .text = sbx_copy(text),
                                                  .remedy = sbx_copy(remedy == NULL ? "" : remedy)};
    const sandbox_finding *added = &larger[findings->count - 1];
    if (added->subject == NULL || added->text == NULL || added->remedy == NULL)
        collector->out_of_memory = true;
}
