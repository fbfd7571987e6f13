/* Texts of credentials: out of files, and what of them may stand in a header. */

#include "cloud/kubeconfig_parts.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <fcntl.h>

sandbox_status sbx_secret_read(const char *path, char **out, sandbox_error *error)
{
    uint8_t *data = NULL;
    size_t size = 0;
    sandbox_status status =
        sbx_file_read(AT_FDCWD, path, SBX_CREDENTIAL_BYTES, &data, &size, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_secret_free_text) char *text = (char *)data;
    if (strlen(text) != size)
        return sbx_fail(error, SANDBOX_INVALID, "'%s' is no text: it holds a zero byte", path);
    *out = sbx_take(text);
    return SANDBOX_OK;
}

bool sbx_is_header_text(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return false;
    }
    return *text != '\0';
}
