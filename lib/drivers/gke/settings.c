/*
 * What a "gke:" URI says: gke://CONTEXT/NAMESPACE?pool=NAME&channel=exec&egress=http://ADDRESS:PORT
 * &admin=http://HOST:PORT.
 */

#include "drivers/gke/gke.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/uri.h"
#include <stdio.h>

/* Of a namespace, and of a pool: a Pod's name is the pool's with some letters more. */
#define LABEL_MAX 63

static void clear(struct sbx_gke *settings);
static sandbox_status read_place(const char *text, size_t size, struct sbx_gke *settings,
                                 sandbox_error *error);
static sandbox_status read_parameter(const char *text, size_t size, struct sbx_gke *settings,
                                     sandbox_error *error);
static sandbox_status check(const struct sbx_gke *settings, sandbox_error *error);

sandbox_status sbx_gke_settings_read(const char *rest, struct sbx_gke *out, sandbox_error *error)
{
    SBX_ON_EXIT(clear) struct sbx_gke settings = {0};
    size_t size = strcspn(rest, "?");
    sandbox_status status = SANDBOX_OK;
    if (size > 0)
        status = read_place(rest, size, &settings, error);
    for (const char *at = rest + size; status == SANDBOX_OK && *at != '\0';) {
        at++;
        size_t length = strcspn(at, "&");
        status = read_parameter(at, length, &settings, error);
        at += length;
    }
    char **const texts[] = {&settings.context, &settings.space, &settings.pool};
    for (size_t n = 0; n < 3 && status == SANDBOX_OK; n++) {
        if (*texts[n] == NULL && (*texts[n] = sbx_copy("")) == NULL)
            status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a URI");
    }
    if (status == SANDBOX_OK)
        status = check(&settings, error);
    if (status != SANDBOX_OK)
        return status;
    out->context = sbx_take(settings.context);
    out->space = sbx_take(settings.space);
    out->pool = sbx_take(settings.pool);
    out->direct = settings.direct;
    out->proxy = settings.proxy;
    settings.proxy = (struct sbx_gke_proxy){0};
    return SANDBOX_OK;
}

void sbx_gke_settings_clear(struct sbx_gke *driver)
{
    char **const texts[] = {&driver->context,         &driver->space,        &driver->pool,
                            &driver->title,           &driver->proxy.egress, &driver->proxy.admin,
                            &driver->proxy.token_file};
    for (size_t n = 0; n < sizeof texts / sizeof texts[0]; n++)
        sbx_free_text(texts[n]);
    sbx_secret_free_text(&driver->proxy.token);
}

static void clear(struct sbx_gke *settings)
{
    sbx_gke_settings_clear(settings);
}

/* "//CONTEXT/NAMESPACE"; a slash in a context's name is written %2F. */
static sandbox_status read_place(const char *text, size_t size, struct sbx_gke *settings,
                                 sandbox_error *error)
{
    if (size < 2 || memcmp(text, "//", 2) != 0)
        return sbx_fail(error, SANDBOX_INVALID,
                        "a gke: URI is gke://CONTEXT/NAMESPACE?pool=NAME, with a context of your "
                        "kubeconfig, or gke:///NAMESPACE?pool=NAME inside a cluster");
    const char *context = text + 2, *end = text + size;
    const char *slash = memchr(context, '/', (size_t)(end - context));
    const char *context_end = slash == NULL ? end : slash;
    sandbox_status status =
        sbx_uri_decode(context, (size_t)(context_end - context), &settings->context, error);
    if (status == SANDBOX_OK && slash != NULL)
        status = sbx_uri_decode(slash + 1, (size_t)(end - slash) - 1, &settings->space, error);
    return status;
}

/* The value of "NAME=value" with that name, not empty; NULL if it is another. */
static const char *value_of(const char *text, size_t size, const char *name)
{
    size_t length = strlen(name);
    return size > length && memcmp(text, name, length) == 0 ? text + length : NULL;
}

/* False: it is another parameter. */
static bool take_text(const char *text, size_t size, const char *name, char **setting,
                      sandbox_status *status, sandbox_error *error)
{
    const char *value = value_of(text, size, name);
    if (value == NULL)
        return false;
    if (*setting != NULL)
        *status = sbx_fail(error, SANDBOX_INVALID, "the URI gives '%.*s' twice",
                           (int)strcspn(name, "="), name);
    else
        *status = sbx_uri_decode(value, size - (size_t)(value - text), setting, error);
    return true;
}

static sandbox_status read_parameter(const char *text, size_t size, struct sbx_gke *settings,
                                     sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    if (take_text(text, size, "pool=", &settings->pool, &status, error) ||
        take_text(text, size, "egress=", &settings->proxy.egress, &status, error) ||
        take_text(text, size, "admin=", &settings->proxy.admin, &status, error))
        return status;
    const char *value = value_of(text, size, "channel=");
    if (value == NULL)
        return sbx_fail(error, SANDBOX_INVALID,
                        "a gke: URI takes pool=NAME, channel=exec or channel=pod, "
                        "egress=http://ADDRESS:PORT and admin=http://HOST:PORT after the '?', not "
                        "'%.*s'",
                        (int)(size < 64 ? size : 64), text);
    size_t length = (size_t)(text + size - value);
    settings->direct = length == 3 && memcmp(value, "pod", length) == 0;
    if (!settings->direct && (length != 4 || memcmp(value, "exec", length) != 0))
        return sbx_fail(error, SANDBOX_INVALID,
                        "'%.*s' is no channel: exec, through the API server, or pod, to the "
                        "Pod's address inside the cluster",
                        (int)(length < 64 ? length : 64), value);
    return SANDBOX_OK;
}

static sandbox_status check(const struct sbx_gke *settings, sandbox_error *error)
{
    if (*settings->space != '\0' && !sbx_name_is_valid(settings->space))
        return sbx_fail(error, SANDBOX_INVALID,
                        "'%.100s' is no namespace: 1 to %d of a-z, 0-9 and '-'", settings->space,
                        LABEL_MAX);
    if (*settings->pool != '\0' && !sbx_name_is_valid(settings->pool))
        return sbx_fail(error, SANDBOX_INVALID,
                        "'%.100s' is no warm pool's name: 1 to %d of a-z, 0-9 and '-'",
                        settings->pool, LABEL_MAX);
    const struct sbx_gke_proxy *proxy = &settings->proxy;
    if (proxy->egress != NULL && !sbx_gke_proxy_url_is_good(proxy->egress, false))
        return sbx_fail(error, SANDBOX_INVALID,
                        "'%.100s' is no egress proxy: http://ADDRESS:PORT in numbers, since Pods "
                        "know no names",
                        proxy->egress);
    if (proxy->admin != NULL && !sbx_gke_proxy_url_is_good(proxy->admin, true))
        return sbx_fail(error, SANDBOX_INVALID,
                        "'%.100s' is no egress proxy's admin API: http://HOST:PORT, and the token "
                        "is never in it",
                        proxy->admin);
    return SANDBOX_OK;
}
