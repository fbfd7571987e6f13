/* Checks that say what went wrong, and what every suite here needs. */
#ifndef TESTS_CHECKS_H
#define TESTS_CHECKS_H

#include "harness.h"
#include <check.h>

/* The last failure; Check runs each case in a process of its own. */
extern sandbox_error error;

/* The main() of a suite: begins the harness, runs it, ends the harness. */
int contract_main(Suite *(*make)(void));

/* A client of the platform and a workspace of that name; `env` may be NULL. */
void contract_open(const char *name, const char *const *env, sandbox_client **client,
                   sandbox_workspace **workspace);
/* Deletes the workspace and forgets both. */
void contract_close(sandbox_client *client, sandbox_workspace *workspace);
/* How often to repeat: what SANDBOX_TEST_COUNT says, else `usual`. */
unsigned long contract_count(unsigned long usual);

#define bad(expected, call)                                                                        \
    do {                                                                                           \
        sandbox_status status_ = (call);                                                           \
        ck_assert_msg(status_ == (expected), "%s: %s (%s)", #call, sandbox_status_name(status_),   \
                      status_ == SANDBOX_OK ? "" : error.message);                                 \
    } while (0)
#define good(call) bad(SANDBOX_OK, call)

#endif
