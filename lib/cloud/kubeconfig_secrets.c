/* Texts that nobody may find in freed memory. */

#include "cloud/kubeconfig_parts.h"
#include "util/memory.h"

static void wipe_json(const cJSON *json);

void sbx_secret_free(char *text)
{
    if (text != NULL)
        sbx_wipe(text, strlen(text));
    free(text);
}

void sbx_secret_free_text(char **text)
{
    sbx_secret_free(sbx_take(*text));
}

void sbx_secret_free_strings(char **strings)
{
    for (size_t n = 0; strings != NULL && strings[n] != NULL; n++)
        sbx_secret_free(strings[n]);
    free(strings);
}

void sbx_secret_free_json(cJSON **json)
{
    wipe_json(*json);
    cJSON_Delete(sbx_take(*json));
}

bool sbx_is_header_text(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return false;
    }
    return *text != '\0';
}

/* As deep as the parser let it become. */
static void wipe_json(const cJSON *json)
{
    for (const cJSON *item = json; item != NULL; item = item->next) {
        if (item->valuestring != NULL)
            sbx_wipe(item->valuestring, strlen(item->valuestring));
        wipe_json(item->child);
    }
}
