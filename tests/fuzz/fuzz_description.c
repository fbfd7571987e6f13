/*
 * The description of a cluster, or what kubectl printed of one: sent by somebody else. Whatever it
 * is, it ends in findings or in one error, and every finding is whole.
 */

#include "drivers/gke/gke.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take(struct sbx_findings_sink *sink, sandbox_severity severity, const char *subject,
                 const char *text, const char *remedy)
{
    if (sink == NULL || severity > SANDBOX_SEVERITY_PROBLEM || *subject == '\0' || *text == '\0' ||
        (severity == SANDBOX_SEVERITY_PROBLEM && *remedy == '\0'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sbx_findings_sink sink = {take};
    sandbox_error error = {0};
    sandbox_status status = sbx_gke_judge_description("//c/workspaces?pool=standard", "fuzz", data,
                                                      size, &sink, &error);
    if (status != error.status || (status != SANDBOX_OK && error.message[0] == '\0') ||
        strchr(error.message, '\n') != NULL)
        abort();
    return 0;
}
