/*
 * What tokens are made from: one Secret for all workspaces of the namespace, made by whoever comes
 * first. Whoever may read it may open every agent there; the namespace's readers of Secrets are its
 * owners.
 */

#include "drivers/gke/gke.h"
#include "util/base64.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

#define SECRET_NAME "sandbox-keys"
#define KEY_BYTES   32

static bool recall(struct sbx_gke *driver, uint32_t *key_id, uint8_t key[KEY_BYTES]);
static void remember(struct sbx_gke *driver, uint32_t key_id, const uint8_t key[KEY_BYTES],
                     bool newest);
static void remember_newest(struct sbx_gke *driver, const cJSON *secret);
static sandbox_status load(struct sbx_gke *driver, const struct sbx_wait *wait, cJSON **secret,
                           sandbox_error *error);
static sandbox_status make(struct sbx_gke *driver, const struct sbx_wait *wait, cJSON **secret,
                           sandbox_error *error);
static sandbox_status read_key(const cJSON *secret, uint32_t *key_id, uint8_t key[KEY_BYTES],
                               sandbox_error *error);
static void wipe(cJSON **secret);

sandbox_status sbx_gke_secret(void *state, uint32_t *key_id, uint8_t key[KEY_BYTES],
                              const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gke *driver = state;
    bool newest = *key_id == 0;
    if (recall(driver, key_id, key))
        return SANDBOX_OK;
    SBX_ON_EXIT(wipe) cJSON *secret = NULL;
    sandbox_status status = load(driver, wait, &secret, error);
    if (status == SANDBOX_NOT_FOUND && newest)
        status = make(driver, wait, &secret, error);
    if (status == SANDBOX_OK)
        status = read_key(secret, key_id, key, error);
    if (status == SANDBOX_OK)
        remember(driver, *key_id, key, newest);
    if (status == SANDBOX_OK && !newest)
        remember_newest(driver, secret);
    return status;
}

/* It will be asked for too, and stands in the same Secret. */
static void remember_newest(struct sbx_gke *driver, const cJSON *secret)
{
    uint32_t key_id = 0;
    uint8_t key[KEY_BYTES];
    if (read_key(secret, &key_id, key, NULL) == SANDBOX_OK)
        remember(driver, key_id, key, true);
    sbx_wipe(key, sizeof key);
}

static bool recall(struct sbx_gke *driver, uint32_t *key_id, uint8_t key[KEY_BYTES])
{
    bool found = false;
    pthread_mutex_lock(&driver->lock);
    uint32_t wanted = *key_id == 0 ? driver->newest : *key_id;
    for (size_t n = 0; n < SBX_GKE_KEYS && wanted != 0 && !found; n++) {
        found = driver->keys[n].id == wanted;
        if (found)
            memcpy(key, driver->keys[n].key, KEY_BYTES);
    }
    pthread_mutex_unlock(&driver->lock);
    if (found)
        *key_id = wanted;
    return found;
}

/* Where there is no room the key is asked for each time. */
static void remember(struct sbx_gke *driver, uint32_t key_id, const uint8_t key[KEY_BYTES],
                     bool newest)
{
    pthread_mutex_lock(&driver->lock);
    struct sbx_gke_key *place = NULL;
    for (size_t n = 0; n < SBX_GKE_KEYS && place == NULL; n++) {
        if (driver->keys[n].id == 0 || driver->keys[n].id == key_id)
            place = &driver->keys[n];
    }
    if (place != NULL) {
        place->id = key_id;
        memcpy(place->key, key, KEY_BYTES);
        driver->newest = newest ? key_id : driver->newest;
    }
    pthread_mutex_unlock(&driver->lock);
}

static sandbox_status load(struct sbx_gke *driver, const struct sbx_wait *wait, cJSON **secret,
                           sandbox_error *error)
{
    sandbox_status status = sbx_kubernetes_get(driver->cluster, &sbx_gke_secrets, driver->space,
                                               SECRET_NAME, wait, secret, error);
    if (status == SANDBOX_NOT_FOUND)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-key",
                            "the Secret '" SECRET_NAME "' is missing in '%s'", driver->title);
    if (status == SANDBOX_OK && !sbx_gke_is_ours(*secret, NULL))
        return sbx_fail_for(error, SANDBOX_CONFLICT, "not-ours",
                            "the Secret '" SECRET_NAME "' in '%s' is not the library's: it has no "
                            "label " SBX_GKE_MANAGED "=" SBX_GKE_MANAGER
                            "; rename it, or take another namespace",
                            driver->title);
    return status;
}

static sandbox_status make(struct sbx_gke *driver, const struct sbx_wait *wait, cJSON **secret,
                           sandbox_error *error)
{
    uint8_t key[KEY_BYTES];
    if (!sbx_random(key, sizeof key))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    char *text = sbx_base64_text(key, sizeof key);
    sbx_wipe(key, sizeof key);
    SBX_ON_EXIT(wipe) cJSON *object = sbx_gke_object(&sbx_gke_secrets, SECRET_NAME);
    bool filled = text != NULL && sbx_gke_put(object, text, "data", "1", NULL) &&
                  sbx_gke_put(object, "Opaque", "type", NULL) &&
                  sbx_gke_put(object, SBX_GKE_MANAGER, "metadata", "labels", SBX_GKE_MANAGED, NULL);
    if (text != NULL)
        sbx_wipe(text, strlen(text));
    free(text);
    if (!filled)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a secret");
    sandbox_status status = sbx_kubernetes_create(driver->cluster, &sbx_gke_secrets, driver->space,
                                                  object, wait, secret, error);
    /* Somebody was quicker, or the answer of our own try was lost: theirs or ours, it counts. */
    return status == SANDBOX_EXISTS ? load(driver, wait, secret, error) : status;
}

/* The key of that number; of 0 the one with the highest number, which is then said. */
static sandbox_status read_key(const cJSON *secret, uint32_t *key_id, uint8_t key[KEY_BYTES],
                               sandbox_error *error)
{
    const cJSON *chosen = NULL, *item;
    uint32_t wanted = *key_id;
    cJSON_ArrayForEach(item, sbx_gke_at(secret, "data", NULL))
    {
        char *end = NULL;
        unsigned long number = strtoul(item->string, &end, 10);
        if (item->string[0] < '1' || item->string[0] > '9' || *end != '\0' || number > UINT32_MAX)
            continue;
        if (wanted == 0 ? number > *key_id : number == wanted) {
            chosen = item;
            *key_id = (uint32_t)number;
        }
    }
    uint8_t *data = NULL;
    size_t size = 0;
    const char *text = cJSON_GetStringValue(chosen);
    bool good = text != NULL && sbx_base64_parse(text, &data, &size, NULL) == SANDBOX_OK &&
                size == KEY_BYTES;
    if (good)
        memcpy(key, data, KEY_BYTES);
    if (data != NULL)
        sbx_wipe(data, size);
    free(data);
    if (chosen == NULL && wanted != 0)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-key",
                            "the Secret '" SECRET_NAME "' has no key %u any more", wanted);
    return good
               ? SANDBOX_OK
               : sbx_fail(error, SANDBOX_FAILED,
                          "the Secret '" SECRET_NAME "' holds no key of %d bytes; put it back from "
                          "a copy: what was made with it cannot be opened without",
                          KEY_BYTES);
}

static void wipe(cJSON **secret)
{
    cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(*secret, "data"))
    {
        if (cJSON_IsString(item))
            sbx_wipe(item->valuestring, strlen(item->valuestring));
    }
    sbx_json_free(secret);
}
