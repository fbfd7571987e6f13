/*
 * What every driver must do with snapshots, through the driver table alone, with a sealed agent
 * in them. What a platform may do wrong can be seen on the memory platform only.
 */

#include "agent/session.h"
#include "guard.pb-c.h"
#include "subject.h"
#include "util/digest.h"
#include "util/memory.h"
#include <stdio.h>
#include <string.h>

static const uint8_t token[SBX_TOKEN_BYTES] = {7};
static struct sbx_loop *loop;

static sandbox_status call(struct sbx_session *session, const char *method,
                           const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *descriptor, void *reply)
{
    struct sbx_wait wait = patience();
    char path[64];
    snprintf(path, sizeof path, "/sandbox.v1.Guard/%s", method);
    return sbx_session_call(session, path, request, true, descriptor, &wait, reply, &error);
}

static struct sbx_session *reach(const struct sbx_record *record, uint32_t epoch)
{
    struct sbx_wait wait = patience();
    struct sbx_channel channel = SBX_CHANNEL;
    struct sbx_session *session = NULL;
    good(driver->connect(state, record, &wait, &channel, &error));
    good(sbx_session_start(loop, &channel, &session, &error));
    sbx_session_identify(session, token, epoch);
    return session;
}

/* A new operation of a higher epoch. */
static void claim(struct sbx_record *record)
{
    record->epoch++;
    ck_assert(sbx_id_fresh(record->operation.id));
    good(store(record));
}

static struct sbx_instance look(const struct sbx_record *record)
{
    struct sbx_wait wait = patience();
    struct sbx_instance instance = {0};
    good(driver->inspect(state, record, &wait, &instance, &error));
    return instance;
}

/* A stored record with an instance whose agent is open. */
static struct sbx_record open_one(void)
{
    struct sbx_record record = fresh_record();
    struct sbx_wait wait = patience();
    good(store(&record));
    good(driver->provision(state, &record, &wait, record.incarnation, &error));
    good(store(&record));

    struct sbx_session *session = reach(&record, record.epoch);
    uint8_t id[SBX_ID_BYTES];
    ck_assert(sbx_id_parse(record.id, id));
    Sandbox__V1__OpenRequest request = SANDBOX__V1__OPEN_REQUEST__INIT;
    request.epoch = record.epoch;
    request.workspace_id = (ProtobufCBinaryData){sizeof id, id};
    request.token = (ProtobufCBinaryData){sizeof token, (uint8_t *)token};
    request.user = (char *)(uintptr_t)harness_user();
    ProtobufCMessage *reply = NULL;
    good(call(session, "Open", &request.base, &sandbox__v1__open_reply__descriptor, &reply));
    protobuf_c_message_free_unpacked(reply, NULL);
    sbx_session_drop(session);
    return record;
}

static struct sbx_snapshot draw(const struct sbx_record *record, sandbox_keep kind)
{
    struct sbx_snapshot snapshot = {.kind = kind, .epoch = record->epoch};
    ck_assert(sbx_id_fresh(snapshot.id));
    memcpy(snapshot.incarnation, record->incarnation, sizeof snapshot.incarnation);
    memcpy(snapshot.run, record->run, sizeof snapshot.run);
    return snapshot;
}

/* Seals the agent under a new operation. */
static struct sbx_snapshot seal(struct sbx_record *record, sandbox_keep kind)
{
    claim(record);
    struct sbx_session *session = reach(record, record->epoch);
    struct sbx_snapshot snapshot = draw(record, kind);
    Sandbox__V1__QuiesceRequest quiesce = SANDBOX__V1__QUIESCE_REQUEST__INIT;
    quiesce.epoch = record->epoch;
    quiesce.lease_ms = 60000;
    quiesce.deadline_ms = 10000;
    ProtobufCMessage *reply = NULL;
    good(call(session, "Quiesce", &quiesce.base, &sandbox__v1__quiesce_reply__descriptor, &reply));
    protobuf_c_message_free_unpacked(reply, NULL);
    Sandbox__V1__SealRequest request = SANDBOX__V1__SEAL_REQUEST__INIT;
    request.epoch = record->epoch;
    request.park_sockets = kind == SANDBOX_KEEP_MEMORY && driver->needs_parking != NULL &&
                           driver->needs_parking(state, record);
    good(call(session, "Seal", &request.base, &sandbox__v1__seal_reply__descriptor, &reply));
    const Sandbox__V1__SealReply *sealed = (Sandbox__V1__SealReply *)reply;
    ck_assert_uint_eq(sealed->seal_hash.len, SBX_DIGEST_BYTES);
    sbx_hex_print(sealed->seal_hash.data, SBX_DIGEST_BYTES, snapshot.seal_hash);
    protobuf_c_message_free_unpacked(reply, NULL);
    sbx_session_drop(session);
    record->making = snapshot;
    good(store(record));
    return snapshot;
}

/* Takes, verifies and releases, as a suspend does. */
static struct sbx_snapshot suspend(struct sbx_record *record, sandbox_keep kind)
{
    struct sbx_wait wait = patience();
    struct sbx_snapshot snapshot = seal(record, kind);
    good(driver->snapshot_take(state, record, &snapshot, NULL, &wait, &error));
    ck_assert_uint_eq(strlen(snapshot.digest), SBX_HASH_TEXT - 1);
    record->making = (struct sbx_snapshot){.id = ""};
    good(sbx_record_add_snapshot(record, &snapshot, &error));
    memcpy(record->snapshot, snapshot.id, sizeof record->snapshot);
    good(store(record));
    good(driver->release(state, record, &wait, &error));
    good(driver->release(state, record, &wait, &error));
    ck_assert_int_eq(look(record).presence, SBX_PRESENCE_ABSENT);
    record->incarnation[0] = '\0';
    good(store(record));
    return snapshot;
}

static sandbox_verdict verify(const struct sbx_record *record, const struct sbx_snapshot *snapshot)
{
    struct sbx_wait wait = patience();
    struct sbx_verdict verdict = {.verdict = SANDBOX_VERDICT_CANNOT_TELL};
    good(driver->snapshot_verify(state, record, snapshot, NULL, &wait, &verdict, &error));
    return verdict.verdict;
}

static struct sbx_restored restore(struct sbx_record *record, const struct sbx_snapshot *snapshot,
                                   sandbox_keep keep)
{
    struct sbx_wait wait = patience();
    struct sbx_restored restored = {.incarnation = ""};
    claim(record);
    good(driver->restore(state, record, snapshot, keep, NULL, &wait, &restored, &error));
    ck_assert_str_ne(restored.incarnation, snapshot->incarnation);
    memcpy(record->incarnation, restored.incarnation, sizeof record->incarnation);
    good(store(record));
    ck_assert_int_eq(look(record).presence, SBX_PRESENCE_RUNNING);
    return restored;
}

/* Whether its agent holds the nonce of the seal, and from where. */
static void check_proof(const struct sbx_record *record, const struct sbx_snapshot *snapshot,
                        bool in_memory)
{
    struct sbx_session *session = reach(record, record->epoch);
    Sandbox__V1__ProveRequest request = SANDBOX__V1__PROVE_REQUEST__INIT;
    request.epoch = record->epoch;
    ProtobufCMessage *reply = NULL;
    good(call(session, "Prove", &request.base, &sandbox__v1__prove_reply__descriptor, &reply));
    const Sandbox__V1__ProveReply *proof = (Sandbox__V1__ProveReply *)reply;
    uint8_t hash[SBX_DIGEST_BYTES];
    char text[SBX_HASH_TEXT];
    sbx_sha256(proof->nonce.data, proof->nonce.len, hash);
    sbx_hex_print(hash, sizeof hash, text);
    ck_assert_str_eq(text, snapshot->seal_hash);
    ck_assert_uint_eq(proof->epoch, snapshot->epoch);
    ck_assert(proof->in_file && proof->in_memory == in_memory);
    protobuf_c_message_free_unpacked(reply, NULL);
    sbx_session_drop(session);
}

static void finish(struct sbx_record *record)
{
    struct sbx_wait wait = patience();
    claim(record);
    good(driver->destroy(state, record, &wait, &error));
    ck_assert_int_eq(look(record).presence, SBX_PRESENCE_ABSENT);
    good(remove_record(record->name, record->version));
    if (harness_is_memory()) {
        ck_assert_int_eq(harness_count("frozen"), 0);
        ck_assert_int_eq(harness_count("snapshots"), 0);
    }
    sbx_record_clear(record);
}

static const sandbox_keep kinds[] = {SANDBOX_KEEP_MEMORY, SANDBOX_KEEP_FILES};

static bool can_keep(sandbox_keep kind)
{
    return driver->can(state, kind == SANDBOX_KEEP_FILES ? SANDBOX_CAN_KEEP_FILES
                                                         : SANDBOX_CAN_KEEP_MEMORY);
}

/* Files alone where they can be kept, else all of it. */
static sandbox_keep least(void)
{
    return can_keep(SANDBOX_KEEP_FILES) ? SANDBOX_KEEP_FILES : SANDBOX_KEEP_MEMORY;
}

START_TEST(what_cannot_be_kept_is_refused_and_changes_nothing)
{
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    for (size_t n = 0; n < sizeof kinds / sizeof kinds[0]; n++) {
        struct sbx_snapshot snapshot = draw(&record, kinds[n]);
        if (!can_keep(kinds[n]))
            bad(SANDBOX_UNSUPPORTED,
                driver->snapshot_prepare(state, &record, &snapshot, &wait, &error));
    }
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_RUNNING);
    finish(&record);
}
END_TEST

START_TEST(a_snapshot_comes_back_as_another_incarnation_that_proves_it)
{
    sandbox_keep kind = kinds[_i];
    if (!can_keep(kind))
        return;
    struct sbx_record record = open_one();
    struct sbx_snapshot snapshot = suspend(&record, kind);
    ck_assert_int_eq(verify(&record, &snapshot), SANDBOX_VERDICT_INTACT);
    restore(&record, &snapshot, kind);
    check_proof(&record, &snapshot, kind == SANDBOX_KEEP_MEMORY);
    ck_assert_int_eq(verify(&record, &snapshot), SANDBOX_VERDICT_INTACT);
    finish(&record);
}
END_TEST

START_TEST(what_was_not_opened_can_be_restored_again)
{
    sandbox_keep kind = kinds[_i];
    if (!can_keep(kind))
        return;
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    struct sbx_snapshot snapshot = suspend(&record, kind);
    char first[SBX_INCARNATION_TEXT];
    restore(&record, &snapshot, kind);
    memcpy(first, record.incarnation, sizeof first);
    claim(&record);
    good(driver->discard(state, &record, &wait, &error));
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_ABSENT);
    restore(&record, &snapshot, kind);
    ck_assert_str_ne(record.incarnation, first);
    check_proof(&record, &snapshot, kind == SANDBOX_KEEP_MEMORY);
    finish(&record);
}
END_TEST

START_TEST(a_memory_snapshot_gives_its_files_alone_too)
{
    if (!can_keep(SANDBOX_KEEP_FILES))
        return;
    struct sbx_record record = open_one();
    struct sbx_snapshot snapshot = suspend(&record, SANDBOX_KEEP_MEMORY);
    restore(&record, &snapshot, SANDBOX_KEEP_FILES);
    check_proof(&record, &snapshot, false);
    finish(&record);
}
END_TEST

START_TEST(a_removed_snapshot_is_missing_and_the_others_stay)
{
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    struct sbx_snapshot first = seal(&record, least());
    good(driver->snapshot_take(state, &record, &first, NULL, &wait, &error));
    struct sbx_snapshot second = draw(&record, least());
    memcpy(second.seal_hash, first.seal_hash, sizeof second.seal_hash);
    good(driver->snapshot_take(state, &record, &second, NULL, &wait, &error));
    good(driver->snapshot_remove(state, &record, first.id, &wait, &error));
    good(driver->snapshot_remove(state, &record, first.id, &wait, &error));
    ck_assert_int_eq(verify(&record, &first), SANDBOX_VERDICT_MISSING);
    ck_assert_int_eq(verify(&record, &second), SANDBOX_VERDICT_INTACT);
    good(sbx_record_add_snapshot(&record, &second, &error));
    memcpy(record.snapshot, second.id, sizeof record.snapshot);
    good(store(&record));
    good(driver->release(state, &record, &wait, &error));

    struct sbx_restored restored = {.incarnation = ""};
    bad(SANDBOX_NOT_RESTORED,
        driver->restore(state, &record, &first, least(), NULL, &wait, &restored, &error));
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_ABSENT);
    finish(&record);
}
END_TEST

START_TEST(another_digest_is_not_restored)
{
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    struct sbx_snapshot snapshot = suspend(&record, SANDBOX_KEEP_MEMORY), other = snapshot;
    other.digest[0] = other.digest[0] == '0' ? '1' : '0';
    ck_assert_int_eq(verify(&record, &other), SANDBOX_VERDICT_DAMAGED);
    struct sbx_restored restored = {.incarnation = ""};
    claim(&record);
    bad(SANDBOX_NOT_RESTORED, driver->restore(state, &record, &other, SANDBOX_KEEP_MEMORY, NULL,
                                              &wait, &restored, &error));
    ck_assert_str_eq(error.reason, "snapshot-damaged");
    restore(&record, &snapshot, SANDBOX_KEEP_MEMORY);
    check_proof(&record, &snapshot, true);
    finish(&record);
}
END_TEST

START_TEST(an_older_epoch_is_refused_and_changes_nothing)
{
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    struct sbx_snapshot snapshot = suspend(&record, SANDBOX_KEEP_MEMORY), more = snapshot;
    struct sbx_record stale = record;
    claim(&record);
    ck_assert(sbx_id_fresh(more.id));
    struct sbx_restored restored = {.incarnation = ""};
    bad(SANDBOX_CONFLICT, driver->snapshot_take(state, &stale, &more, NULL, &wait, &error));
    ck_assert_str_eq(error.reason, "stale-epoch");
    bad(SANDBOX_CONFLICT, driver->snapshot_adopt(state, &stale, &snapshot, &wait, &error));
    bad(SANDBOX_CONFLICT, driver->snapshot_remove(state, &stale, snapshot.id, &wait, &error));
    bad(SANDBOX_CONFLICT, driver->restore(state, &stale, &snapshot, SANDBOX_KEEP_MEMORY, NULL,
                                          &wait, &restored, &error));
    restore(&record, &snapshot, SANDBOX_KEEP_MEMORY);
    bad(SANDBOX_CONFLICT, driver->release(state, &stale, &wait, &error));
    check_proof(&record, &snapshot, true);
    finish(&record);
}
END_TEST

START_TEST(adopting_tells_what_is_complete_and_removes_the_rest)
{
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    struct sbx_snapshot none = draw(&record, SANDBOX_KEEP_MEMORY);
    claim(&record);
    good(driver->snapshot_prepare(state, &record, &none, &wait, &error));
    bad(SANDBOX_NOT_FOUND, driver->snapshot_adopt(state, &record, &none, &wait, &error));
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_RUNNING);

    struct sbx_snapshot snapshot = seal(&record, SANDBOX_KEEP_MEMORY), found = snapshot;
    good(driver->snapshot_take(state, &record, &snapshot, NULL, &wait, &error));
    claim(&record);
    good(driver->snapshot_adopt(state, &record, &found, &wait, &error));
    ck_assert_str_eq(found.digest, snapshot.digest);
    ck_assert_uint_eq(found.bytes, snapshot.bytes);
    finish(&record);
}
END_TEST

START_TEST(files_without_an_instance_are_kept_without_a_seal)
{
    if (!can_keep(SANDBOX_KEEP_FILES))
        return;
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    harness_kill_instance(record.id, record.incarnation);
    claim(&record);
    good(driver->discard(state, &record, &wait, &error));
    struct sbx_snapshot snapshot = draw(&record, SANDBOX_KEEP_FILES);
    good(driver->snapshot_take(state, &record, &snapshot, NULL, &wait, &error));
    ck_assert_int_eq(verify(&record, &snapshot), SANDBOX_VERDICT_INTACT);
    restore(&record, &snapshot, SANDBOX_KEEP_FILES);
    struct sbx_session *session = reach(&record, record.epoch);
    Sandbox__V1__HealthRequest request = SANDBOX__V1__HEALTH_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    good(call(session, "Health", &request.base, &sandbox__v1__health_reply__descriptor, &reply));
    ck_assert_int_eq(((Sandbox__V1__HealthReply *)reply)->gate, SANDBOX__V1__GATE__GATE_NOT_OPENED);
    protobuf_c_message_free_unpacked(reply, NULL);
    sbx_session_drop(session);
    finish(&record);
}
END_TEST

/* ---- what only the memory platform can be told to do ---- */

static void script(const char *operation, const char *fault)
{
    harness_tell("{\"do\":\"script\",\"rules\":[{\"on\":\"%s\",\"nth\":1,\"do\":\"%s\"}]}",
                 operation, fault);
}

START_TEST(a_take_whose_answer_is_lost_is_found)
{
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    struct sbx_snapshot snapshot = seal(&record, SANDBOX_KEEP_MEMORY);
    script("snapshot.take", "lose-answer");
    good(driver->snapshot_take(state, &record, &snapshot, NULL, &wait, &error));
    ck_assert_int_eq(verify(&record, &snapshot), SANDBOX_VERDICT_INTACT);
    restore(&record, &snapshot, SANDBOX_KEEP_MEMORY);
    check_proof(&record, &snapshot, true);
    finish(&record);
}
END_TEST

START_TEST(a_take_that_fails_half_way_leaves_nothing)
{
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    struct sbx_snapshot snapshot = seal(&record, SANDBOX_KEEP_MEMORY);
    script("snapshot.take", "half-made");
    bad(SANDBOX_UNAVAILABLE, driver->snapshot_take(state, &record, &snapshot, NULL, &wait, &error));
    ck_assert_int_eq(harness_count("snapshots"), 0);
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_RUNNING);
    check_proof(&record, &snapshot, true);
    finish(&record);
}
END_TEST

/* The caller's time is over before the platform has begun. */
START_TEST(a_take_that_runs_out_of_time_leaves_the_instance)
{
    struct sbx_wait soon = sbx_wait_alone(100);
    struct sbx_record record = open_one();
    struct sbx_snapshot snapshot = seal(&record, SANDBOX_KEEP_MEMORY);
    script("snapshot.take", "hang");
    bad(SANDBOX_TIMED_OUT, driver->snapshot_take(state, &record, &snapshot, NULL, &soon, &error));
    harness_tell("{\"do\":\"script\",\"rules\":[]}"); /* it may have been over even before that */
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_RUNNING);
    check_proof(&record, &snapshot, true);
    finish(&record);
}
END_TEST

START_TEST(a_restore_whose_answer_is_lost_is_undone)
{
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    struct sbx_snapshot snapshot = suspend(&record, SANDBOX_KEEP_MEMORY);
    struct sbx_restored restored = {.incarnation = ""};
    claim(&record);
    script("restore", _i == 0 ? "lose-answer" : "half-made");
    bad(SANDBOX_UNAVAILABLE, driver->restore(state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL,
                                             &wait, &restored, &error));
    ck_assert_str_eq(error.reason, _i == 0 ? "answer-lost" : "scripted");
    ck_assert_int_eq(look(&record).presence, SBX_PRESENCE_ABSENT);
    restore(&record, &snapshot, SANDBOX_KEEP_MEMORY);
    check_proof(&record, &snapshot, true);
    finish(&record);
}
END_TEST

START_TEST(memory_that_was_used_up_is_told)
{
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    struct sbx_snapshot snapshot = suspend(&record, SANDBOX_KEEP_MEMORY);
    restore(&record, &snapshot, SANDBOX_KEEP_MEMORY);
    record.precious = true;
    claim(&record);
    good(driver->discard(state, &record, &wait, &error));
    struct sbx_restored restored = {.incarnation = ""};
    bad(SANDBOX_NOT_RESTORED, driver->restore(state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL,
                                              &wait, &restored, &error));
    ck_assert_str_eq(error.reason, "memory-gone");
    restore(&record, &snapshot, SANDBOX_KEEP_FILES);
    check_proof(&record, &snapshot, false);
    finish(&record);
}
END_TEST

START_TEST(the_platforms_evidence_comes_through)
{
    static const char *const faults[] = {"evidence-confirmed", "evidence-missing",
                                         "evidence-contrary"};
    static const enum sbx_evidence said[] = {SBX_EVIDENCE_CONFIRMED, SBX_EVIDENCE_MISSING,
                                             SBX_EVIDENCE_CONTRARY};
    struct sbx_wait wait = patience();
    struct sbx_record record = open_one();
    struct sbx_snapshot snapshot = suspend(&record, SANDBOX_KEEP_FILES);
    script("restore", faults[_i]);
    ck_assert_int_eq(restore(&record, &snapshot, SANDBOX_KEEP_FILES).evidence, said[_i]);
    struct sbx_restored restored = {.incarnation = ""};
    good(driver->evidence(state, &record, &snapshot, &wait, &restored, &error));
    ck_assert_int_eq(restored.evidence, said[_i]);
    ck_assert_str_ne(restored.detail, "");
    harness_tell("{\"do\":\"evidence\",\"id\":\"%s\"}", record.id);
    good(driver->evidence(state, &record, &snapshot, &wait, &restored, &error));
    ck_assert_int_eq(restored.evidence, SBX_EVIDENCE_CONFIRMED);
    finish(&record);
}
END_TEST

static void begin(void)
{
    open_driver();
    good(sbx_loop_start(&loop, &error));
}

static void end(void)
{
    sbx_loop_stop(loop);
    close_driver();
}

static Suite *snapshot_suite(void)
{
    Suite *suite = suite_create("snapshot contract");
    TCase *all = tcase_create("snapshots");
    tcase_add_checked_fixture(all, begin, end);
    tcase_set_timeout(all, 240);
    tcase_add_test(all, what_cannot_be_kept_is_refused_and_changes_nothing);
    tcase_add_loop_test(all, a_snapshot_comes_back_as_another_incarnation_that_proves_it, 0, 2);
    tcase_add_loop_test(all, what_was_not_opened_can_be_restored_again, 0, 2);
    tcase_add_test(all, a_memory_snapshot_gives_its_files_alone_too);
    tcase_add_test(all, a_removed_snapshot_is_missing_and_the_others_stay);
    tcase_add_test(all, another_digest_is_not_restored);
    tcase_add_test(all, an_older_epoch_is_refused_and_changes_nothing);
    tcase_add_test(all, adopting_tells_what_is_complete_and_removes_the_rest);
    tcase_add_test(all, files_without_an_instance_are_kept_without_a_seal);
    if (harness_is_memory()) {
        tcase_add_test(all, a_take_whose_answer_is_lost_is_found);
        tcase_add_test(all, a_take_that_fails_half_way_leaves_nothing);
        tcase_add_test(all, a_take_that_runs_out_of_time_leaves_the_instance);
        tcase_add_loop_test(all, a_restore_whose_answer_is_lost_is_undone, 0, 2);
        tcase_add_test(all, memory_that_was_used_up_is_told);
        tcase_add_loop_test(all, the_platforms_evidence_comes_through, 0, 3);
    }
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    const char *uri = getenv("SANDBOX_TEST_URI"), *rest = NULL;
    const struct sbx_driver *asked = sbx_driver_of(uri == NULL ? "memory:" : uri, &rest);
    if (asked != NULL && asked->snapshot_take == NULL) {
        fprintf(stderr, "not run on '%s': it keeps no snapshots\n", asked->name);
        return HARNESS_SKIP;
    }
    return contract_main(snapshot_suite);
}
