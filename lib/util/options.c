/* Options structs that begin with their size. */

#include "util/options.h"
#include "util/fail.h"
#include <string.h>

sandbox_status sbx_options_adopt(void *known, size_t known_size, const void *given,
                                 sandbox_error *error)
{
    memset(known, 0, known_size);
    if (given == NULL)
        return SANDBOX_OK;
    size_t given_size;
    memcpy(&given_size, given, sizeof given_size);
    if (given_size < sizeof(size_t) || given_size > 65536)
        return sbx_fail(error, SANDBOX_INVALID,
                        "options without a size; begin them with their initializer macro");
    for (size_t n = known_size; n < given_size; n++) {
        if (((const unsigned char *)given)[n] != 0)
            return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "unknown-option",
                                "an option that this version of the library does not know");
    }
    memcpy(known, given, given_size < known_size ? given_size : known_size);
    return SANDBOX_OK;
}

sandbox_status sbx_options_fill(void *given, const void *known, size_t known_size,
                                sandbox_error *error)
{
    size_t given_size;
    if (given == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no struct to write the answer to");
    memcpy(&given_size, given, sizeof given_size);
    if (given_size < sizeof(size_t) || given_size > 65536)
        return sbx_fail(error, SANDBOX_INVALID,
                        "a struct without a size; begin it with its initializer macro");
    size_t size = given_size < known_size ? given_size : known_size;
    memcpy((char *)given + sizeof(size_t), (const char *)known + sizeof(size_t),
           size - sizeof(size_t));
    return SANDBOX_OK;
}
