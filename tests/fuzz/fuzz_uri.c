/* The URI of a client: it may come from a configuration that a stranger wrote. */

#include "core/driver.h"
#include "drivers/gvisor/gvisor.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_settings(const char *rest);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *uri = malloc(size + 1);
    if (uri == NULL)
        return 0;
    if (size > 0)
        memcpy(uri, data, size);
    uri[size] = '\0';

    const char *rest = NULL;
    const struct sbx_driver *driver = sbx_driver_of(uri, &rest);
    if (driver != NULL && (rest < uri || rest > uri + size))
        abort();
    if (driver == &sbx_driver_gvisor)
        read_settings(rest);
    /* Whatever stands there: the parser itself is asked, not only behind the right scheme. */
    read_settings(uri);
    free(uri);
    return 0;
}

/* What is taken is a place that can be used as one: absolute, and named. */
static void read_settings(const char *rest)
{
    struct sbx_gvisor_settings settings = {0};
    sandbox_error error;
    sandbox_status status = sbx_gvisor_settings_read(rest, &settings, &error);
    if (status == SANDBOX_OK) {
        if (settings.state == NULL || settings.state[0] != '/' || settings.runsc == NULL ||
            settings.runsc[0] == '\0')
            abort();
        sbx_gvisor_settings_clear(&settings);
    } else if (status != error.status || error.message[0] == '\0' ||
               strchr(error.message, '\n') != NULL) {
        abort();
    }
}
