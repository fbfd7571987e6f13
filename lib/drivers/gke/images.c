/* Images and limits: both are a pool's, so they choose the pool, or have to agree with it. */

#include "drivers/gke/gke.h"
#include "util/fail.h"
#include "util/memory.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>

#define SUFFIX_DIGITS 12

static const char digest_mark[] = "@sha256:";

/* The 64 digits of a pinned image's name, or NULL. */
static const char *digits_of(const char *image)
{
    const char *mark = strstr(image, digest_mark);
    if (mark == NULL || mark == image)
        return NULL;
    const char *digits = mark + sizeof digest_mark - 1;
    return strspn(digits, "0123456789abcdef") == 64 && digits[64] == '\0' ? digits : NULL;
}

bool sbx_gke_image_is_pinned(const char *image)
{
    return digits_of(image) != NULL;
}

sandbox_status sbx_gke_pool_of(const struct sbx_gke *driver, const struct sbx_record *record,
                               char out[SBX_GKE_NAME], sandbox_error *error)
{
    if (*driver->pool == '\0')
        return sbx_fail_for(error, SANDBOX_INVALID, "no-pool",
                            "the URI names no warm pool: open %s?pool=NAME", driver->title);
    if (record->image == NULL) {
        snprintf(out, SBX_GKE_NAME, "%s", driver->pool);
        return SANDBOX_OK;
    }
    const char *digits = digits_of(record->image);
    if (digits == NULL)
        return sbx_fail_for(error, SANDBOX_INVALID, "bad-image",
                            "on GKE an image is pinned by its digest, as in "
                            "NAME@sha256:…; a tag may be another image tomorrow");
    snprintf(out, SBX_GKE_NAME, "%s-%.*s", driver->pool, SUFFIX_DIGITS, digits);
    return SANDBOX_OK;
}

sandbox_status sbx_gke_image_check(const struct sbx_record *record, const cJSON *pod,
                                   sandbox_error *error)
{
    if (record->image == NULL)
        return SANDBOX_OK;
    const cJSON *container =
        sbx_gke_named(sbx_gke_at(pod, "spec", "containers", NULL), SBX_GKE_CONTAINER);
    const char *image = sbx_json_text(container, "image");
    const char *runs = digits_of(image), *wanted = digits_of(record->image);
    if (runs != NULL && wanted != NULL && strcmp(runs, wanted) == 0)
        return SANDBOX_OK;
    return sbx_fail_for(error, SANDBOX_FAILED, "wrong-image",
                        "the pool's Pods run the image '%.120s', not the one that '%s' asks for; "
                        "make a pool for it with 'sandbox manifests gke --image'",
                        image, record->name);
}

sandbox_status sbx_gke_limits_check(struct sbx_gke *driver, const struct sbx_record *record,
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gke_limits limits = {0};
    if (strcmp(record->user, "root") == 0)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-root",
                            "on GKE a Pod's programs run as its own user without any rights, never "
                            "as root");
    if (record->disk_mib != 0)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-disk-limit",
                            "disk_mib is not enforced on GKE; set ephemeral-storage in the pool's "
                            "template");
    if (record->memory_mib == 0 && record->cpu_millis == 0)
        return SANDBOX_OK;
    sandbox_status status = sbx_gke_limits(driver, wait, &limits, error);
    if (status != SANDBOX_OK)
        return status;
    if (record->memory_mib != 0 && record->memory_mib != limits.memory_mib)
        return sbx_fail_for(
            error, SANDBOX_UNSUPPORTED, "no-memory-limit",
            "the template of the pool '%s' sets the memory (%u MiB; 0: no limit, or "
            "not to be seen); leave memory_mib out, or take another pool",
            driver->pool, limits.memory_mib);
    if (record->cpu_millis != 0 && record->cpu_millis != limits.cpu_millis)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-cpu-limit",
                            "the template of the pool '%s' sets the processors (%u thousandths; 0: "
                            "no limit, or not to be seen); leave cpu_millis out, or take another "
                            "pool",
                            driver->pool, limits.cpu_millis);
    return SANDBOX_OK;
}

/* "512Mi", "2", "500m", 1.5 of a Kubernetes quantity; 0 if it is none. */
static double read_quantity(const cJSON *item)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {
        {"", 1},     {"m", 1e-3},  {"k", 1e3},      {"M", 1e6},         {"G", 1e9},
        {"T", 1e12}, {"Ki", 1024}, {"Mi", 1048576}, {"Gi", 1073741824}, {"Ti", 1099511627776}};
    if (cJSON_IsNumber(item))
        return item->valuedouble > 0 ? item->valuedouble : 0;
    const char *text = cJSON_GetStringValue(item);
    if (text == NULL || !isdigit((unsigned char)*text))
        return 0;
    char *end = NULL;
    double number = strtod(text, &end);
    for (size_t n = 0; n < sizeof units / sizeof units[0]; n++) {
        if (strcmp(end, units[n].suffix) == 0)
            return isfinite(number) ? number * units[n].factor : 0;
    }
    return 0;
}

static uint32_t whole(double number)
{
    return number >= 1 && number < UINT32_MAX ? (uint32_t)number : 0;
}

static sandbox_status read_limits(struct sbx_gke *driver, const struct sbx_wait *wait,
                                  struct sbx_gke_limits *out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *pool = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *template = NULL;
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    if (*driver->pool == '\0')
        return SANDBOX_OK;
    sandbox_status status = sbx_kubernetes_get(driver->cluster, &sbx_gke_pools, driver->space,
                                               driver->pool, wait, &pool, error);
    const char *name = sbx_gke_text(pool, "spec", "sandboxTemplateRef", "name", NULL);
    if (status == SANDBOX_OK && *name != '\0')
        status = sbx_kubernetes_get(driver->cluster, &sbx_gke_templates, driver->space, name, wait,
                                    &template, error);
    /* Who may not look, or finds nothing, can still do all that needs no new Pod. */
    if (status == SANDBOX_NOT_FOUND || status == SANDBOX_UNSUPPORTED ||
        (status == SANDBOX_DENIED && error->http_status == 403))
        return SANDBOX_OK;
    if (status != SANDBOX_OK)
        return status;
    const cJSON *containers =
        sbx_gke_at(template, "spec", "podTemplate", "spec", "containers", NULL);
    const cJSON *limits =
        sbx_gke_at(sbx_gke_named(containers, SBX_GKE_CONTAINER), "resources", "limits", NULL);
    out->memory_mib = whole(read_quantity(sbx_gke_at(limits, "memory", NULL)) / 1048576);
    out->cpu_millis = whole(read_quantity(sbx_gke_at(limits, "cpu", NULL)) * 1000);
    return SANDBOX_OK;
}

sandbox_status sbx_gke_limits(struct sbx_gke *driver, const struct sbx_wait *wait,
                              struct sbx_gke_limits *out, sandbox_error *error)
{
    pthread_mutex_lock(&driver->lock);
    *out = driver->limits;
    pthread_mutex_unlock(&driver->lock);
    if (out->is_known)
        return SANDBOX_OK;
    sandbox_status status = read_limits(driver, wait, out, error);
    if (status != SANDBOX_OK)
        return status;
    out->is_known = true;
    pthread_mutex_lock(&driver->lock);
    driver->limits = *out;
    pthread_mutex_unlock(&driver->lock);
    return SANDBOX_OK;
}
