/*
 * Where contract and scenario tests run: on the platform that SANDBOX_TEST_URI names (default
 * "memory:"), with a place of its own that goes with the test. "memory:" and "gvisor:" without a
 * path get a fresh directory, so that nothing of the user's is touched; "gke:" without more gets a
 * cluster double of its own.
 */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include "util/json.h"
#include <sandbox/sandbox.h>
#include <stdbool.h>
#include <sys/types.h>

#define HARNESS_SKIP 77 /* what meson takes for "not run" */

/* False: this platform cannot be used here; it has said why. */
bool harness_begin(void);
/* Ends what harness_begin() made. */
void harness_end(void);

const char *harness_uri(void);
bool harness_is_memory(void);
bool harness_is_cluster(void);
/* Whether a snapshot can still be restored when what it was taken of has gone on. */
bool harness_restores_again(void);
/* Whom a workspace's programs run as where nothing else is said: root, or a Pod's own user. */
const char *harness_user(void);

/*
 * One request to the memory platform or the cluster double, as JSON text; the answer, or NULL if
 * the connection was cut.
 */
cJSON *harness_ask(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for a request that must succeed and whose answer does not matter. */
void harness_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A number of the platform's state: "instances", "records", "directories", "orphans". */
int harness_count(const char *what);
/* How often an operation was asked for since the last script. */
int harness_calls(const char *operation);

/* Kills the instance with everything in it, as a lack of memory would, and waits until it is dead.
 */
void harness_kill_instance(const char *id, const char *incarnation);

/* Waits at most 20 s until `is_true(data)`. */
bool harness_await(bool (*is_true)(void *data), void *data);

#endif
