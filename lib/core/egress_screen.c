/*
 * A command that carries a credential would bring it inside, where it is the guest's. The proxy
 * knows them all, whoever has given them: it is asked before the command leaves.
 */

#include "core/egress.h"
#include "core/session.h"
#include "util/fail.h"
#include "util/memory.h"

static cJSON *make_body(const struct sbx_egress_texts *texts);
static bool add_text(cJSON *array, const char *text);
static size_t sequence_size(const unsigned char *at);

sandbox_status sbx_egress_screen(sandbox_workspace *workspace, const struct sbx_egress_texts *texts,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_client *client = workspace->client;
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *answer = NULL;
    if (client->driver->egress_ask == NULL ||
        client->driver->egress_ask(client->state, workspace->id, SBX_EGRESS_KNOWN, NULL, wait, NULL,
                                   NULL) != SANDBOX_OK)
        return SANDBOX_OK;
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *body = make_body(texts);
    if (body == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a command");
    sandbox_status status = client->driver->egress_ask(
        client->state, workspace->id, SBX_EGRESS_CHECK, body, wait, &answer, error);
    /* Who is not registered has no credentials. */
    if (status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK;
    if (status != SANDBOX_OK || !sbx_json_flag(answer, "secret"))
        return status;
    const char *host = cJSON_GetStringValue(
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(answer, "hosts"), 0));
    return sbx_fail_for(error, SANDBOX_DENIED, "credential",
                        "the command carries a credential (for %.100s) that is to stay outside of "
                        "'%s'; use its placeholder, and it is put in on the way out",
                        host == NULL ? "a host" : host, workspace->name);
}

static cJSON *make_body(const struct sbx_egress_texts *texts)
{
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *body = cJSON_CreateObject();
    cJSON *array = cJSON_AddArrayToObject(body, "texts");
    const char *const *const lists[] = {texts->arguments, texts->environment};
    if (array == NULL || (texts->command != NULL && !add_text(array, texts->command)))
        return NULL;
    for (size_t n = 0; n < 2; n++) {
        for (size_t at = 0; lists[n] != NULL && lists[n][at] != NULL; at++) {
            if (!add_text(array, lists[n][at]))
                return NULL;
        }
    }
    return sbx_take(body);
}

/* Bytes that are no UTF-8 go as the characters of Latin-1: what is looked for is ASCII. */
static bool add_text(cJSON *array, const char *text)
{
    size_t length = strlen(text), used = 0;
    char *clean = malloc(2 * length + 1);
    if (clean == NULL)
        return false;
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        size_t size = sequence_size(at);
        if (size > 0) {
            memcpy(clean + used, at, size);
            used += size;
            at += size;
        } else {
            clean[used++] = (char)(0xc0 | (*at >> 6));
            clean[used++] = (char)(0x80 | (*at++ & 0x3f));
        }
    }
    clean[used] = '\0';
    cJSON *item = cJSON_CreateString(clean);
    sbx_secret_free(clean);
    if (item != NULL && cJSON_AddItemToArray(array, item))
        return true;
    sbx_secret_free_json(&item);
    return false;
}

/* Of the UTF-8 sequence that begins there; 0: it is none. */
static size_t sequence_size(const unsigned char *at)
{
    size_t size = *at < 0x80                  ? 1
                  : *at >= 0xc2 && *at < 0xe0 ? 2
                  : *at >= 0xe0 && *at < 0xf0 ? 3
                  : *at >= 0xf0 && *at < 0xf5 ? 4
                                              : 0;
    for (size_t n = 1; n < size; n++) {
        if ((at[n] & 0xc0) != 0x80)
            return 0;
    }
    return size;
}
