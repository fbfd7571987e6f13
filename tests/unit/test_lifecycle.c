/*
 * Leases: an owner that lives but does not renew loses its operation, on the taker's own clock.
 * Runs against the memory platform, which is a separate process.
 */

#include "core/client.h"
#include "core/janitor.h"
#include "core/lifecycle.h"
#include "core/operation.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CALL_MS 30000u

static char folder[64], uri[128];
static sandbox_client *client;

/* A clock whose every reading is `step` later than the one before. */
struct moving_clock {
    int64_t now_ms, step_ms, wall_ms;
};

static int64_t read_moving(void *user_data)
{
    struct moving_clock *clock = user_data;
    return clock->now_ms += clock->step_ms;
}

static int64_t read_wall(void *user_data)
{
    return ((struct moving_clock *)user_data)->wall_ms;
}

static void open_client(void)
{
    strcpy(folder, "/tmp/sandbox-lifecycle-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(uri, sizeof uri, "memory:%s/socket", folder);
    sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = uri};
    sandbox_error error = {0};
    ck_assert_msg(sandbox_client_open(&options, NULL, &client, &error) == SANDBOX_OK, "%s",
                  error.message);
}

/* The platform outlives its callers, so it is told that nobody will come back. */
static void stop_platform(void)
{
    struct sbx_wait wait = sbx_wait_alone(CALL_MS);
    struct sbx_channel channel = SBX_CHANNEL;
    char path[128], answer[256];
    snprintf(path, sizeof path, "%s/socket", folder);
    ck_assert_int_eq(sbx_channel_connect_unix(&channel, path, &wait, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_write_all(channel.write_fd, "{\"do\":\"stop\"}\n", 14), 0);
    while (sbx_wait_descriptor(&wait, channel.read_fd, POLLIN, NULL) == SANDBOX_OK &&
           read(channel.read_fd, answer, sizeof answer) > 0)
        continue;
    sbx_channel_end(&channel);
}

static void close_client(void)
{
    sandbox_client_free(client);
    stop_platform();
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, folder, NULL), SANDBOX_OK);
}

/* A record of an operation that this very process owns, so that its owner surely lives. */
static void leave_operation(const char *name, const char *kind, sandbox_state state)
{
    struct sbx_wait wait = sbx_wait_alone(CALL_MS);
    struct sbx_record record = {.state = state, .epoch = 1, .driver = "memory",
                                .user = "sandbox", .created_ms = 1};
    snprintf(record.name, sizeof record.name, "%s", name);
    ck_assert(sbx_id_fresh(record.id));
    ck_assert(sbx_id_fresh(record.run));
    ck_assert_int_eq(sbx_operation_begin(client, &record, kind, NULL), SANDBOX_OK);
    ck_assert(!sbx_operation_is_abandoned(client, &record));
    ck_assert_int_eq(sbx_store_add(client, &record, &wait, NULL), SANDBOX_OK);
    sbx_record_clear(&record);
}

static sandbox_status settle(const char *name, uint32_t timeout_ms, struct moving_clock *moving,
                             sandbox_error *error)
{
    const struct sbx_clock clock = {read_moving, read_wall, moving};
    struct sbx_wait wait = sbx_wait_alone(timeout_ms);
    struct sbx_record record = {0};
    ck_assert_int_eq(sbx_store_load(client, name, &wait, &record, NULL), SANDBOX_OK);
    client->clock = &clock;
    sandbox_status status = sbx_operation_settle(client, &record, &wait, error);
    client->clock = &sbx_system_clock;
    sbx_record_clear(&record);
    return status;
}

static sandbox_status load(const char *name, struct sbx_record *record)
{
    struct sbx_wait wait = sbx_wait_alone(CALL_MS);
    return sbx_store_load(client, name, &wait, record, NULL);
}

START_TEST(a_living_owner_within_its_lease_is_waited_for)
{
    sandbox_error error = {0};
    struct moving_clock still = {.wall_ms = 1};
    leave_operation("one", "create", SANDBOX_STATE_CREATING);
    ck_assert_int_eq(settle("one", 50, &still, &error), SANDBOX_TIMED_OUT);
    ck_assert_str_eq(error.reason, "operation-under-way");
    struct sbx_record record = {0};
    ck_assert_int_eq(load("one", &record), SANDBOX_OK);
    sbx_record_clear(&record);
}
END_TEST

START_TEST(a_creation_whose_lease_ran_out_is_rolled_back)
{
    struct moving_clock fast = {.step_ms = SBX_LEASE_MS, .wall_ms = 1};
    leave_operation("one", "create", SANDBOX_STATE_CREATING);
    ck_assert_int_eq(settle("one", CALL_MS, &fast, NULL), SANDBOX_OK);
    struct sbx_record record = {0};
    ck_assert_int_eq(load("one", &record), SANDBOX_NOT_FOUND);
}
END_TEST

START_TEST(a_restart_whose_lease_ran_out_leaves_the_files_and_says_interrupted)
{
    struct moving_clock fast = {.step_ms = SBX_LEASE_MS, .wall_ms = 1};
    leave_operation("one", "restart", SANDBOX_STATE_CREATING);
    ck_assert_int_eq(settle("one", CALL_MS, &fast, NULL), SANDBOX_OK);
    struct sbx_record record = {0};
    ck_assert_int_eq(load("one", &record), SANDBOX_OK);
    ck_assert_int_eq(record.state, SANDBOX_STATE_INTERRUPTED);
    ck_assert_str_eq(record.operation.kind, "");
    ck_assert_uint_eq(record.epoch, 2);
    sbx_record_clear(&record);
}
END_TEST

START_TEST(a_deletion_whose_lease_ran_out_is_finished)
{
    struct moving_clock fast = {.step_ms = SBX_LEASE_MS, .wall_ms = 1};
    leave_operation("one", "delete", SANDBOX_STATE_DELETING);
    ck_assert_int_eq(settle("one", CALL_MS, &fast, NULL), SANDBOX_OK);
    struct sbx_record record = {0};
    ck_assert_int_eq(load("one", &record), SANDBOX_NOT_FOUND);
}
END_TEST

START_TEST(the_old_owner_of_a_taken_operation_cannot_write_any_more)
{
    sandbox_error error = {0};
    struct moving_clock fast = {.step_ms = SBX_LEASE_MS, .wall_ms = 1};
    leave_operation("one", "restart", SANDBOX_STATE_CREATING);
    struct sbx_record before = {0};
    ck_assert_int_eq(load("one", &before), SANDBOX_OK);
    ck_assert_int_eq(settle("one", CALL_MS, &fast, NULL), SANDBOX_OK);

    struct sbx_wait wait = sbx_wait_alone(CALL_MS);
    struct sbx_step step = {.operation_id = before.operation.id, .state = SANDBOX_STATE_RUNNING};
    ck_assert_int_eq(sbx_store_change(client, "one", &wait, sbx_change_step, &step, NULL, &error),
                     SANDBOX_CONFLICT);
    ck_assert_str_eq(error.reason, "operation-taken");
    char incarnation[SBX_INCARNATION_TEXT] = "";
    ck_assert_int_eq(client->driver->provision(client->state, &before, &wait, incarnation, &error),
                     SANDBOX_CONFLICT);
    ck_assert_str_eq(error.reason, "stale-epoch");
    sbx_record_clear(&before);
}
END_TEST

START_TEST(expiry_is_the_wall_clocks_business)
{
    struct moving_clock late = {.wall_ms = 2000};
    const struct sbx_clock clock = {read_moving, read_wall, &late};
    struct sbx_record record = {.expires_ms = 1999};
    client->clock = &clock;
    ck_assert(sbx_life_is_expired(client, &record));
    record.expires_ms = 2001;
    ck_assert(!sbx_life_is_expired(client, &record));
    record.expires_ms = 0;
    ck_assert(!sbx_life_is_expired(client, &record));
    ck_assert_int_gt(sbx_expiry_after(client, UINT64_MAX), 2000); /* P158: no overflow */
    client->clock = &sbx_system_clock;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lifecycle");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_checked_fixture(all, open_client, close_client);
    tcase_add_test(all, a_living_owner_within_its_lease_is_waited_for);
    tcase_add_test(all, a_creation_whose_lease_ran_out_is_rolled_back);
    tcase_add_test(all, a_restart_whose_lease_ran_out_leaves_the_files_and_says_interrupted);
    tcase_add_test(all, a_deletion_whose_lease_ran_out_is_finished);
    tcase_add_test(all, the_old_owner_of_a_taken_operation_cannot_write_any_more);
    tcase_add_test(all, expiry_is_the_wall_clocks_business);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
