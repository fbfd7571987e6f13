/* What the suites share: see checks.h. */

#include "checks.h"

sandbox_error error;

int contract_main(Suite *(*make)(void))
{
    if (!harness_begin())
        return HARNESS_SKIP;
    SRunner *runner = srunner_create(make());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    harness_end();
    return failed == 0 ? 0 : 1;
}
