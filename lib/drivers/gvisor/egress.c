/*
 * The way out of this host's workspaces: one proxy for the state directory, which is found or
 * started, and one carrier for each workspace.
 *
 *   egress/admin.sock   the proxy's admin API; whoever listens there first is the proxy
 *   egress/log          what it tells
 *   egress/options      further options for one that is started here, each on a line; the
 * operator's egress/ID.sock      a workspace's own socket, which the proxy makes egress/ID.carrier
 * the number of its carrier, which holds a lock on it
 */

#include "cloud/egress_admin.h"
#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/place.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

#define OPTIONS_MAX  (64u << 10)
#define WORDS_MAX    256u
#define START_MS     15000u
#define IDLE_MINUTES "10"

/* Where the proxy is asked. The host's name means nothing behind a Unix socket. */
struct place {
    struct sbx_http *http;
    char socket[sizeof((struct sockaddr_un *)NULL)->sun_path];
    struct sbx_egress_admin admin;
};

static sandbox_status find_place(struct sbx_gvisor *driver, struct place *out,
                                 sandbox_error *error);
static sandbox_status find_proxy(struct sbx_gvisor *driver, const struct place *place,
                                 const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status start_proxy(struct sbx_gvisor *driver, const struct place *place,
                                  const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status read_options(struct sbx_gvisor *driver, char **text,
                                   const char *words[WORDS_MAX], size_t *count,
                                   sandbox_error *error);
static sandbox_status put(struct sbx_gvisor *driver, const struct place *place,
                          const struct sbx_record *record, const cJSON *registration, bool keep,
                          const char *key, const struct sbx_wait *wait, sandbox_error *error);
static bool is_known(struct sbx_gvisor *driver, const char *id);

sandbox_status sbx_gvisor_egress_open(void *state, const struct sbx_record *record,
                                      const cJSON *registration, bool keep,
                                      const struct sbx_wait *wait, struct sbx_egress_way *way,
                                      sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    struct place place;
    char key[SBX_EGRESS_KEY_TEXT];
    if (!sbx_egress_admin_key(key))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    sandbox_status status = find_place(driver, &place, error);
    if (status == SANDBOX_OK)
        status = find_proxy(driver, &place, wait, error);
    if (status == SANDBOX_OK)
        status = put(driver, &place, record, registration, keep, key, wait, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_carrier_start(driver, record, key, wait, error);
    sbx_wipe(key, sizeof key);
    *way = (struct sbx_egress_way){.address = ""};
    return status;
}

sandbox_status sbx_gvisor_egress_ask(void *state, const char *id, enum sbx_egress_question question,
                                     const cJSON *body, const struct sbx_wait *wait, cJSON **answer,
                                     sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    struct place place;
    if (!is_known(driver, id))
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "not-registered",
                            "the workspace is not registered with an egress proxy");
    if (question == SBX_EGRESS_KNOWN)
        return SANDBOX_OK;
    sandbox_status status = find_place(driver, &place, error);
    if (status != SANDBOX_OK)
        return status;
    return sbx_egress_admin_ask(place.http, &place.admin, id, question, body, wait, answer, error);
}

sandbox_status sbx_gvisor_egress_forget(void *state, const char *id, const struct sbx_wait *wait,
                                        sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    struct place place;
    char path[64];
    sandbox_status ended = sbx_gvisor_carrier_end(driver, id, wait, error);
    sandbox_status status = SANDBOX_OK;
    if (is_known(driver, id)) {
        status = find_place(driver, &place, error);
        if (status == SANDBOX_OK)
            status = sbx_egress_admin_forget(place.http, &place.admin, id, wait, error);
    }
    snprintf(path, sizeof path, SBX_GVISOR_EGRESS_FILE, id, ".sock");
    if (status == SANDBOX_OK)
        (void)unlinkat(driver->directory, path, 0); /* of a proxy that was killed */
    return status == SANDBOX_OK ? ended : status;
}

static bool is_known(struct sbx_gvisor *driver, const char *id)
{
    char path[64];
    snprintf(path, sizeof path, SBX_GVISOR_EGRESS_FILE, id, ".sock");
    return faccessat(driver->directory, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static sandbox_status find_place(struct sbx_gvisor *driver, struct place *out, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    int length =
        snprintf(out->socket, sizeof out->socket, "%s/egress/admin.sock", driver->settings.state);
    /* A workspace's own is the longer one. */
    if (strlen(driver->settings.state) + sizeof "/egress/0123456789abcdef.sock" >
            sizeof out->socket ||
        length < 0)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "long-path",
                            "the state directory's path is too long for the sockets that a way out "
                            "needs: at most %zu bytes",
                            sizeof out->socket - sizeof "/egress/0123456789abcdef.sock");
    pthread_mutex_lock(&driver->mutex);
    if (driver->http == NULL)
        status = sbx_http_start(&driver->http, error);
    out->http = driver->http;
    pthread_mutex_unlock(&driver->mutex);
    out->admin = (struct sbx_egress_admin){.url = "http://egress", .socket = out->socket};
    return status;
}

/* One of us starts it, the others find it. */
static sandbox_status find_proxy(struct sbx_gvisor *driver, const struct place *place,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    sandbox_status status = sbx_egress_admin_hello(place->http, &place->admin, wait, error);
    if (status != SANDBOX_UNAVAILABLE)
        return status;
    status = sbx_file_lock(driver->directory, "locks/egress", true, wait, &lock, error);
    if (status != SANDBOX_OK)
        return status;
    status = sbx_egress_admin_hello(place->http, &place->admin, wait, error);
    if (status != SANDBOX_UNAVAILABLE)
        return status;
    status = start_proxy(driver, place, wait, error);
    return status == SANDBOX_OK ? sbx_egress_admin_hello(place->http, &place->admin, wait, error)
                                : status;
}

/* It detaches itself once it listens, and says before that what is wrong. */
static sandbox_status start_proxy(struct sbx_gvisor *driver, const struct place *place,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *program = NULL;
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    SBX_ON_EXIT(sbx_free_text) char *options_text = NULL;
    SBX_ON_EXIT(sbx_free_text) char *admin = sbx_format("unix:%s", place->socket);
    SBX_ON_EXIT(sbx_free_text) char *log = sbx_gvisor_path(driver, "egress/log");
    const char *words[WORDS_MAX + 10] = {NULL};
    size_t count = 0;
    int code = 0;
    if (admin == NULL || log == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    sandbox_status status = sbx_place_find("sandbox-egress-proxy", &program, error);
    if (status != SANDBOX_OK)
        return status;
    const char *const fixed[] = {program, "--detach", "--admin",     admin,
                                 "--log", log,        "--idle-exit", IDLE_MINUTES};
    for (; count < sizeof fixed / sizeof fixed[0]; count++)
        words[count] = fixed[count];
    status = read_options(driver, &options_text, words, &count, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = words, .own_session = true};
    const char *upstream = getenv("SANDBOX_UPSTREAM_PROXY");
    SBX_ON_EXIT(sbx_secret_free_text)
    char *variable = upstream == NULL ? NULL : sbx_format("SANDBOX_UPSTREAM_PROXY=%s", upstream);
    const char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", variable, NULL};
    options.env = environment;
    struct sbx_wait soon = sbx_wait_within(wait, START_MS);
    status = sbx_child_run(&options, &soon, &code, &text, error);
    if (status == SANDBOX_OK && code != 0)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "no-proxy",
                            "the egress proxy does not start: %.200s",
                            text == NULL || *text == '\0' ? "it said nothing" : text);
    return status;
}

/* Lines that are empty or begin with '#' are passed over. */
static sandbox_status read_options(struct sbx_gvisor *driver, char **text,
                                   const char *words[WORDS_MAX], size_t *count,
                                   sandbox_error *error)
{
    uint8_t *data = NULL;
    size_t size = 0;
    sandbox_error own = {0};
    sandbox_status status =
        sbx_file_read(driver->directory, "egress/options", OPTIONS_MAX, &data, &size, &own);
    if (status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK;
    if (status != SANDBOX_OK)
        return sbx_fail(error, status, "%s", own.message);
    *text = (char *)data;
    char *rest = *text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (*line == '\0' || *line == '#')
            continue;
        if (*count >= WORDS_MAX)
            return sbx_fail(error, SANDBOX_LIMIT, "more than %u lines in egress/options",
                            WORDS_MAX);
        words[(*count)++] = line;
    }
    return SANDBOX_OK;
}

static sandbox_status put(struct sbx_gvisor *driver, const struct place *place,
                          const struct sbx_record *record, const cJSON *registration, bool keep,
                          const char *key, const struct sbx_wait *wait, sandbox_error *error)
{
    char path[64];
    snprintf(path, sizeof path, SBX_GVISOR_EGRESS_FILE, record->id, ".sock");
    SBX_ON_EXIT(sbx_free_text) char *socket = sbx_gvisor_path(driver, "%s", path);
    SBX_ON_EXIT(sbx_json_free) cJSON *source = cJSON_CreateObject();
    if (socket == NULL || source == NULL || !sbx_json_set_text(source, "socket", socket))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a registration");
    return sbx_egress_admin_put(place->http, &place->admin, record->id, source, key, registration,
                                keep, wait, error);
}
