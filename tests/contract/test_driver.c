/*
 * What every driver must do with instances, through the driver table alone. The platform is the
 * one that SANDBOX_TEST_URI names.
 */

#include "agent/session.h"
#include "guard.pb-c.h"
#include "subject.h"
#include <stdio.h>
#include <string.h>

static struct sbx_instance look(const struct sbx_record *record)
{
    struct sbx_wait wait = patience();
    struct sbx_instance instance = {0};
    good(driver->inspect(state, record, &wait, &instance, &error));
    return instance;
}

static void provision(struct sbx_record *record)
{
    struct sbx_wait wait = patience();
    char incarnation[SBX_INCARNATION_TEXT] = "";
    good(driver->provision(state, record, &wait, incarnation, &error));
    ck_assert_str_ne(incarnation, "");
    snprintf(record->incarnation, sizeof record->incarnation, "%s", incarnation);
    good(store(record));
}

/* A stored record with an instance. */
static struct sbx_record running(void)
{
    struct sbx_record record = fresh_record();
    good(store(&record));
    provision(&record);
    return record;
}

/* Destroys it twice, and looks whether it is gone. */
static void finish(struct sbx_record *record)
{
    struct sbx_wait wait = patience();
    good(driver->destroy(state, record, &wait, &error));
    good(driver->destroy(state, record, &wait, &error));
    ck_assert_int_eq(look(record).presence, SBX_PRESENCE_ABSENT);
    good(remove_record(record->name, record->version));
    sbx_record_clear(record);
}

/* Asks the agent behind a fresh channel how it is. */
static void check_agent(const struct sbx_record *record)
{
    struct sbx_wait wait = patience();
    struct sbx_channel channel = SBX_CHANNEL;
    struct sbx_loop *loop = NULL;
    struct sbx_session *session = NULL;
    good(sbx_loop_start(&loop, &error));
    good(driver->connect(state, record, &wait, &channel, &error));
    good(sbx_session_start(loop, &channel, &session, &error));
    Sandbox__V1__HealthRequest request = SANDBOX__V1__HEALTH_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    good(sbx_session_call(session, "/sandbox.v1.Guard/Health", &request.base, true,
                          &sandbox__v1__health_reply__descriptor, &wait, &reply, &error));
    Sandbox__V1__HealthReply *health = (Sandbox__V1__HealthReply *)reply;
    ck_assert_uint_eq(health->protocol, 2);
    ck_assert_int_eq(health->gate, SANDBOX__V1__GATE__GATE_NOT_OPENED);
    protobuf_c_message_free_unpacked(reply, NULL);
    sbx_session_drop(session);
    sbx_loop_stop(loop);
}

START_TEST(what_was_never_made_is_absent_and_ends_well)
{
    struct sbx_record record = fresh_record();
    struct sbx_wait wait = patience();
    struct sbx_channel channel = SBX_CHANNEL;
    good(store(&record));
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_ABSENT);
    ck_assert_int_ne(driver->connect(state, &record, &wait, &channel, &error), SANDBOX_OK);
    good(driver->discard(state, &record, &wait, &error));
    finish(&record);
}
END_TEST

START_TEST(an_instance_runs_and_its_agent_answers_on_every_channel)
{
    struct sbx_record record = running();
    struct sbx_instance instance = look(&record);
    ck_assert_int_eq(instance.presence, SBX_PRESENCE_RUNNING);
    ck_assert_str_eq(instance.incarnation, record.incarnation);
    check_agent(&record);
    check_agent(&record);
    finish(&record);
}
END_TEST

START_TEST(a_second_instance_is_refused_and_the_first_goes_on)
{
    struct sbx_record record = running();
    struct sbx_wait wait = patience();
    char incarnation[SBX_INCARNATION_TEXT] = "";
    ck_assert_int_ne(driver->provision(state, &record, &wait, incarnation, &error), SANDBOX_OK);
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_RUNNING);
    check_agent(&record);
    finish(&record);
}
END_TEST

START_TEST(discarding_twice_ends_the_instance_and_the_next_is_another)
{
    struct sbx_record record = running();
    struct sbx_wait wait = patience();
    struct sbx_channel channel = SBX_CHANNEL;
    char first[SBX_INCARNATION_TEXT];
    memcpy(first, record.incarnation, sizeof first);
    good(driver->discard(state, &record, &wait, &error));
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_ABSENT);
    good(driver->discard(state, &record, &wait, &error));
    ck_assert_int_ne(driver->connect(state, &record, &wait, &channel, &error), SANDBOX_OK);

    provision(&record);
    ck_assert_str_ne(first, record.incarnation);
    check_agent(&record);
    /* Who holds the old record is not led to the new instance. */
    struct sbx_record old = record;
    memcpy(old.incarnation, first, sizeof first);
    ck_assert_int_eq(look(&old).presence, SBX_PRESENCE_OTHER);
    ck_assert_int_ne(driver->connect(state, &old, &wait, &channel, &error), SANDBOX_OK);
    finish(&record);
}
END_TEST

START_TEST(an_older_epoch_is_refused_and_changes_nothing)
{
    struct sbx_record record = running();
    struct sbx_wait wait = patience();
    char incarnation[SBX_INCARNATION_TEXT] = "";
    struct sbx_record stale = record;
    record.epoch++;
    ck_assert(sbx_id_fresh(record.operation.id));
    good(store(&record));
    bad(SANDBOX_CONFLICT, driver->discard(state, &stale, &wait, &error));
    ck_assert_str_eq(error.reason, "stale-epoch");
    bad(SANDBOX_CONFLICT, driver->destroy(state, &stale, &wait, &error));
    ck_assert_str_eq(error.reason, "stale-epoch");
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_RUNNING);
    check_agent(&record);
    good(driver->discard(state, &record, &wait, &error));
    bad(SANDBOX_CONFLICT, driver->provision(state, &stale, &wait, incarnation, &error));
    ck_assert_str_eq(error.reason, "stale-epoch");
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_ABSENT);
    finish(&record);
}
END_TEST

START_TEST(a_killed_instance_does_not_run_and_can_be_replaced)
{
    struct sbx_record record = running();
    struct sbx_wait wait = patience();
    harness_kill_instance(record.id, record.incarnation);
    enum sbx_presence presence = look(&record).presence;
    ck_assert(presence == SBX_PRESENCE_STOPPED || presence == SBX_PRESENCE_ABSENT);
    good(driver->discard(state, &record, &wait, &error));
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_ABSENT);
    provision(&record);
    check_agent(&record);
    finish(&record);
}
END_TEST

/* P111, P112: whatever the moment, a call that fails has left nothing. */
START_TEST(a_provision_that_runs_out_of_time_leaves_nothing)
{
    static const uint32_t moments[] = {1, 3, 7, 15, 30, 60};
    for (size_t n = 0; n < sizeof moments / sizeof moments[0]; n++) {
        struct sbx_record record = fresh_record();
        struct sbx_wait wait = sbx_wait_alone(moments[n]);
        char incarnation[SBX_INCARNATION_TEXT] = "";
        good(store(&record));
        sandbox_status status = driver->provision(state, &record, &wait, incarnation, &error);
        ck_assert_msg(status == SANDBOX_OK || status == SANDBOX_TIMED_OUT, "%s", error.message);
        if (status != SANDBOX_OK)
            ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_ABSENT);
        finish(&record);
    }
}
END_TEST

START_TEST(a_cancelled_call_ends_soon)
{
    struct sbx_record record = fresh_record();
    char incarnation[SBX_INCARNATION_TEXT] = "";
    sandbox_cancel *cancel = NULL;
    good(sandbox_cancel_create(&cancel, &error));
    sandbox_cancel_trigger(cancel);
    good(store(&record));
    struct sbx_wait wait = patience();
    wait.cancel = cancel;
    bad(SANDBOX_CANCELLED, driver->provision(state, &record, &wait, incarnation, &error));
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_ABSENT);
    sandbox_cancel_free(cancel);
    finish(&record);
}
END_TEST

static void count_finding(struct sbx_findings_sink *sink, sandbox_severity severity,
                          const char *subject, const char *text, const char *remedy)
{
    ck_assert_str_ne(subject, "");
    ck_assert_str_ne(text, "");
    ck_assert_msg(severity != SANDBOX_SEVERITY_PROBLEM || *remedy != '\0', "%s: no remedy",
                  subject);
}

START_TEST(the_doctor_looks_at_a_good_and_at_an_impossible_place)
{
    struct sbx_wait wait = patience();
    struct sbx_findings_sink sink = {count_finding};
    const char *rest = NULL;
    const char *nowhere =
        harness_is_cluster() ? "//nowhere/workspaces?pool=standard" : "/proc/nowhere/socket";
    (void)sbx_driver_of(harness_uri(), &rest);
    good(driver->examine(rest, &wait, &sink, &error));
    good(driver->examine(nowhere, &wait, &sink, &error));
    bad(SANDBOX_INVALID, driver->examine("?no-such-option=1", &wait, &sink, &error));
}
END_TEST

static Suite *driver_suite(void)
{
    Suite *suite = suite_create("driver contract");
    TCase *instances = tcase_create("instances");
    tcase_add_checked_fixture(instances, open_driver, close_driver);
    tcase_set_timeout(instances, 240);
    tcase_add_test(instances, what_was_never_made_is_absent_and_ends_well);
    tcase_add_test(instances, an_instance_runs_and_its_agent_answers_on_every_channel);
    tcase_add_test(instances, a_second_instance_is_refused_and_the_first_goes_on);
    tcase_add_test(instances, discarding_twice_ends_the_instance_and_the_next_is_another);
    tcase_add_test(instances, an_older_epoch_is_refused_and_changes_nothing);
    tcase_add_test(instances, a_killed_instance_does_not_run_and_can_be_replaced);
    tcase_add_test(instances, a_provision_that_runs_out_of_time_leaves_nothing);
    tcase_add_test(instances, a_cancelled_call_ends_soon);
    tcase_add_test(instances, the_doctor_looks_at_a_good_and_at_an_impossible_place);
    suite_add_tcase(suite, instances);
    return suite;
}

int main(void)
{
    return contract_main(driver_suite);
}
