/* Checks: from the words in a record to functions that can be asked. */

#include "checks.h"
#include "util/fail.h"
#include "util/memory.h"

static bool parse(const char *text, uint16_t *port);

sandbox_status sbx_checks_validate(const char *const *checks, sandbox_error *error)
{
    uint16_t port;
    size_t count = sbx_count_strings(checks);
    if (count > SBX_CHECKS_MAX)
        return sbx_fail(error, SANDBOX_LIMIT, "%zu checks; at most %d are allowed", count,
                        SBX_CHECKS_MAX);
    for (size_t n = 0; n < count; n++) {
        if (!parse(checks[n], &port))
            return sbx_fail(error, SANDBOX_INVALID,
                            "check %zu is not \"opencode:PORT\" with a port of 1 to 65535",
                            n + 1);
    }
    return SANDBOX_OK;
}

sandbox_status sbx_checks_settle(const char *const *recorded, const sandbox_check *given,
                                 size_t given_count, struct sbx_checks *out,
                                 sandbox_error *error)
{
    *out = (struct sbx_checks){0};
    sandbox_status status = sbx_checks_validate(recorded, error);
    if (status != SANDBOX_OK)
        return status;
    if (given_count > SBX_CHECKS_GIVEN_MAX)
        return sbx_fail(error, SANDBOX_LIMIT, "%zu checks; at most %d are allowed", given_count,
                        SBX_CHECKS_GIVEN_MAX);
    for (size_t n = 0; recorded != NULL && recorded[n] != NULL; n++) {
        out->opencode[n] = (sandbox_opencode){SANDBOX_OPENCODE};
        (void)parse(recorded[n], &out->opencode[n].port);
        out->all[out->count++] = (sandbox_check){sandbox_check_opencode, &out->opencode[n]};
    }
    for (size_t n = 0; n < given_count; n++) {
        if (given == NULL || given[n].ask == NULL)
            return sbx_fail(error, SANDBOX_INVALID, "check %zu has no function to ask", n + 1);
        out->all[out->count++] = given[n];
    }
    return SANDBOX_OK;
}

static bool parse(const char *text, uint16_t *port)
{
    static const char name[] = "opencode:";
    if (strncmp(text, name, sizeof name - 1) != 0)
        return false;
    const char *digits = text + sizeof name - 1;
    size_t count = strspn(digits, "0123456789");
    if (count == 0 || count > 5 || digits[count] != '\0' || digits[0] == '0')
        return false;
    unsigned long number = strtoul(digits, NULL, 10);
    *port = (uint16_t)number;
    return number <= UINT16_MAX;
}
