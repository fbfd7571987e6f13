/*
 * What every driver must do with records, secrets and owners, through the driver table alone. The
 * platform is the one that SANDBOX_TEST_URI names.
 */

#include "subject.h"
#include "util/memory.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRITERS 100

static sandbox_status store_text(const char *name, const char *text, const char *expected,
                                 char version[SBX_VERSION_TEXT])
{
    struct sbx_wait wait = patience();
    return driver->record_store(state, name, text, strlen(text), expected, version, &wait, &error);
}

static sandbox_status load_text(const char *name, char **text, char version[SBX_VERSION_TEXT])
{
    struct sbx_wait wait = patience();
    size_t size = 0;
    sandbox_status status = driver->record_load(state, name, &wait, text, &size, version, &error);
    if (status == SANDBOX_OK)
        ck_assert_uint_eq(strlen(*text), size);
    return status;
}

/* The text of a fresh record with one field that no version knows. */
static char *strange_text(struct sbx_record *record, const char *value)
{
    if (record->json == NULL)
        record->json = cJSON_CreateObject();
    ck_assert(sbx_json_set_text(record->json, "from-the-future", value));
    char *text = NULL;
    good(sbx_record_encode(record, &text, &error));
    return text;
}

/* ---- records ---- */

START_TEST(a_record_that_is_not_there_is_not_found)
{
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    char version[SBX_VERSION_TEXT];
    bad(SANDBOX_NOT_FOUND, load_text("nobody-made-this", &text, version));
    ck_assert_str_eq(error.reason, "no-such-workspace");
}
END_TEST

START_TEST(a_record_comes_back_byte_for_byte_with_fields_nobody_knows)
{
    struct sbx_record record = fresh_record();
    SBX_ON_EXIT(sbx_free_text)
    char *text = strange_text(&record, "quotes \" and \\ and \u00e9\u6f22 \x7f and \n newline");
    SBX_ON_EXIT(sbx_free_text) char *back = NULL;
    char version[SBX_VERSION_TEXT] = "", again[SBX_VERSION_TEXT] = "";
    good(store_text(record.name, text, "", version));
    good(load_text(record.name, &back, again));
    ck_assert_str_eq(back, text);
    ck_assert_str_eq(version, again);
    ck_assert_str_ne(version, "");

    SBX_ON_EXIT(sbx_record_clear) struct sbx_record decoded = {0};
    good(sbx_record_decode(back, strlen(back), &decoded, &error));
    ck_assert_str_eq(decoded.id, record.id);
    sbx_free_text(&back);
    decoded.epoch = 2;
    good(sbx_record_encode(&decoded, &back, &error));
    ck_assert_ptr_nonnull(strstr(back, "from-the-future"));
    good(remove_record(record.name, version));
    sbx_record_clear(&record);
}
END_TEST

START_TEST(a_large_record_is_kept_whole)
{
    struct sbx_record record = fresh_record();
    SBX_ON_EXIT(sbx_free_text) char *filler = malloc(200001);
    memset(filler, '"', 200000);
    filler[200000] = '\0';
    filler[100000] = '\0'; /* each quote takes two bytes once it is escaped */
    SBX_ON_EXIT(sbx_free_text) char *text = strange_text(&record, filler);
    SBX_ON_EXIT(sbx_free_text) char *back = NULL;
    char version[SBX_VERSION_TEXT] = "";
    good(store_text(record.name, text, "", version));
    good(load_text(record.name, &back, version));
    ck_assert_str_eq(back, text);
    good(remove_record(record.name, version));
    sbx_record_clear(&record);
}
END_TEST

START_TEST(a_taken_name_exists)
{
    struct sbx_record record = fresh_record();
    good(store(&record));
    char version[SBX_VERSION_TEXT] = "";
    SBX_ON_EXIT(sbx_free_text) char *text = strange_text(&record, "second");
    bad(SANDBOX_EXISTS, store_text(record.name, text, "", version));
    SBX_ON_EXIT(sbx_free_text) char *back = NULL;
    good(load_text(record.name, &back, version));
    ck_assert_ptr_null(strstr(back, "second"));
    good(remove_record(record.name, record.version));
    sbx_record_clear(&record);
}
END_TEST

START_TEST(an_old_version_is_a_conflict_and_changes_nothing)
{
    struct sbx_record record = fresh_record();
    char old[SBX_VERSION_TEXT], version[SBX_VERSION_TEXT];
    good(store(&record));
    memcpy(old, record.version, sizeof old);
    record.epoch = 2;
    good(store(&record));
    ck_assert_str_ne(old, record.version);

    SBX_ON_EXIT(sbx_free_text) char *text = strange_text(&record, "late");
    bad(SANDBOX_CONFLICT, store_text(record.name, text, old, version));
    bad(SANDBOX_CONFLICT, remove_record(record.name, old));
    SBX_ON_EXIT(sbx_free_text) char *back = NULL;
    good(load_text(record.name, &back, version));
    ck_assert_str_eq(version, record.version);
    ck_assert_ptr_null(strstr(back, "late"));
    good(remove_record(record.name, version));
    /* Nor does an old version bring a removed record back. */
    bad(SANDBOX_CONFLICT, store_text(record.name, text, version, old));
    bad(SANDBOX_NOT_FOUND, load_text(record.name, &back, version));
    sbx_record_clear(&record);
}
END_TEST

START_TEST(removing_twice_is_success)
{
    struct sbx_record record = fresh_record();
    good(store(&record));
    good(remove_record(record.name, record.version));
    good(remove_record(record.name, record.version));
    sbx_record_clear(&record);
}
END_TEST

struct listing {
    const char *wanted[3];
    unsigned seen[3], count, stop_after;
};

static bool visit(void *user_data, const char *name, const char *text, size_t size,
                  const char *version)
{
    struct listing *listing = user_data;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    good(sbx_record_decode(text, size, &record, &error));
    ck_assert_str_eq(record.name, name);
    ck_assert_str_ne(version, "");
    for (size_t n = 0; n < 3; n++)
        listing->seen[n] += strcmp(listing->wanted[n], name) == 0;
    return ++listing->count != listing->stop_after;
}

START_TEST(a_listing_tells_each_record_once_and_stops_when_told)
{
    struct sbx_wait wait = patience();
    struct sbx_record records[3];
    struct listing listing = {0};
    for (size_t n = 0; n < 3; n++) {
        records[n] = fresh_record();
        good(store(&records[n]));
        listing.wanted[n] = records[n].name;
    }
    good(driver->record_list(state, &wait, visit, &listing, &error));
    for (size_t n = 0; n < 3; n++)
        ck_assert_uint_eq(listing.seen[n], 1);
    struct listing short_one = {.wanted = {records[0].name, records[1].name, records[2].name},
                                .stop_after = 2};
    good(driver->record_list(state, &wait, visit, &short_one, &error));
    ck_assert_uint_eq(short_one.count, 2);
    for (size_t n = 0; n < 3; n++) {
        good(remove_record(records[n].name, records[n].version));
        sbx_record_clear(&records[n]);
    }
}
END_TEST

/* Writers of one record, each on its own thread. */
struct writer {
    pthread_t thread;
    const char *name, *text;
    unsigned made, conflicts;
    sandbox_status status;
};

static void *create_once(void *data)
{
    struct writer *writer = data;
    char version[SBX_VERSION_TEXT];
    struct sbx_wait wait = patience();
    writer->status = driver->record_store(state, writer->name, writer->text, strlen(writer->text),
                                          "", version, &wait, NULL);
    return NULL;
}

START_TEST(of_100_creators_one_wins)
{
    struct sbx_record record = fresh_record();
    SBX_ON_EXIT(sbx_free_text) char *text = strange_text(&record, "race");
    struct writer writers[WRITERS] = {0};
    for (size_t n = 0; n < WRITERS; n++) {
        writers[n].name = record.name;
        writers[n].text = text;
        ck_assert_int_eq(pthread_create(&writers[n].thread, NULL, create_once, &writers[n]), 0);
    }
    unsigned won = 0;
    for (size_t n = 0; n < WRITERS; n++) {
        pthread_join(writers[n].thread, NULL);
        won += writers[n].status == SANDBOX_OK;
        ck_assert(writers[n].status == SANDBOX_OK || writers[n].status == SANDBOX_EXISTS);
    }
    ck_assert_uint_eq(won, 1);
    SBX_ON_EXIT(sbx_free_text) char *back = NULL;
    char version[SBX_VERSION_TEXT];
    good(load_text(record.name, &back, version));
    good(remove_record(record.name, version));
    sbx_record_clear(&record);
}
END_TEST

/* Adds one to the record's epoch, again and again until nobody was faster. */
static void *count_up(void *data)
{
    struct writer *writer = data;
    for (;;) {
        SBX_ON_EXIT(sbx_free_text) char *text = NULL;
        SBX_ON_EXIT(sbx_free_text) char *changed = NULL;
        SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
        char version[SBX_VERSION_TEXT];
        size_t size = 0;
        struct sbx_wait wait = patience();
        writer->status =
            driver->record_load(state, writer->name, &wait, &text, &size, version, NULL);
        if (writer->status == SANDBOX_OK)
            writer->status = sbx_record_decode(text, size, &record, NULL);
        record.epoch++;
        if (writer->status == SANDBOX_OK)
            writer->status = sbx_record_encode(&record, &changed, NULL);
        if (writer->status == SANDBOX_OK)
            writer->status = driver->record_store(state, writer->name, changed, strlen(changed),
                                                  version, version, &wait, NULL);
        if (writer->status != SANDBOX_CONFLICT)
            return NULL;
    }
}

START_TEST(of_100_writers_no_change_is_lost)
{
    struct sbx_record record = fresh_record();
    good(store(&record));
    struct writer writers[WRITERS] = {0};
    for (size_t n = 0; n < WRITERS; n++) {
        writers[n].name = record.name;
        ck_assert_int_eq(pthread_create(&writers[n].thread, NULL, count_up, &writers[n]), 0);
    }
    for (size_t n = 0; n < WRITERS; n++) {
        pthread_join(writers[n].thread, NULL);
        ck_assert_int_eq(writers[n].status, SANDBOX_OK);
    }
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record last = {0};
    char version[SBX_VERSION_TEXT];
    good(load_text(record.name, &text, version));
    good(sbx_record_decode(text, strlen(text), &last, &error));
    ck_assert_uint_eq(last.epoch, 1 + WRITERS);
    good(remove_record(record.name, version));
    sbx_record_clear(&record);
}
END_TEST

/* ---- secrets and owners ---- */

START_TEST(a_secret_stays_the_same_under_its_number)
{
    struct sbx_wait wait = patience();
    uint32_t newest = 0, number;
    uint8_t key[32], again[32], zero[32] = {0};
    good(driver->secret(state, &newest, key, &wait, &error));
    ck_assert_uint_ne(newest, 0);
    ck_assert(memcmp(key, zero, 32) != 0);
    number = 0;
    good(driver->secret(state, &number, again, &wait, &error));
    ck_assert_uint_eq(number, newest);
    ck_assert(memcmp(key, again, 32) == 0);
    number = newest;
    good(driver->secret(state, &number, again, &wait, &error));
    ck_assert(memcmp(key, again, 32) == 0);
    number = newest + 1000;
    ck_assert_int_ne(driver->secret(state, &number, again, &wait, &error), SANDBOX_OK);
}
END_TEST

START_TEST(an_owner_is_gone_when_its_process_is)
{
    if (driver->owner_is_gone == NULL)
        return;
    char own[128], theirs[128] = "";
    int ends[2], hold[2];
    good(driver->owner_name(state, own, &error));
    ck_assert(!driver->owner_is_gone(state, own));
    ck_assert(!driver->owner_is_gone(state, ""));
    ck_assert(!driver->owner_is_gone(state, "whoever wrote this"));

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC) | pipe2(hold, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(hold[1]);
        bool named = driver->owner_name(state, theirs, NULL) == SANDBOX_OK;
        bool told = write(ends[1], theirs, sizeof theirs) == (ssize_t)sizeof theirs;
        char end;
        _exit(named && told && read(hold[0], &end, 1) == 0 ? 0 : 1);
    }
    close(hold[0]);
    ck_assert_int_eq(read(ends[0], theirs, sizeof theirs), (ssize_t)sizeof theirs);
    ck_assert_str_ne(own, theirs);
    ck_assert(!driver->owner_is_gone(state, theirs));
    close(hold[1]);
    /* Ended, but not reaped: it will not write anything any more. */
    siginfo_t ended;
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
    ck_assert(driver->owner_is_gone(state, theirs));
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert(driver->owner_is_gone(state, theirs));
    close(ends[0]);
    close(ends[1]);
}
END_TEST

static Suite *records_suite(void)
{
    Suite *suite = suite_create("records contract");
    TCase *records = tcase_create("records");
    tcase_add_checked_fixture(records, open_driver, close_driver);
    tcase_set_timeout(records, 120);
    tcase_add_test(records, a_record_that_is_not_there_is_not_found);
    tcase_add_test(records, a_record_comes_back_byte_for_byte_with_fields_nobody_knows);
    tcase_add_test(records, a_large_record_is_kept_whole);
    tcase_add_test(records, a_taken_name_exists);
    tcase_add_test(records, an_old_version_is_a_conflict_and_changes_nothing);
    tcase_add_test(records, removing_twice_is_success);
    tcase_add_test(records, a_listing_tells_each_record_once_and_stops_when_told);
    tcase_add_test(records, of_100_creators_one_wins);
    tcase_add_test(records, of_100_writers_no_change_is_lost);
    tcase_add_test(records, a_secret_stays_the_same_under_its_number);
    tcase_add_test(records, an_owner_is_gone_when_its_process_is);
    suite_add_tcase(suite, records);
    return suite;
}

int main(void)
{
    return contract_main(records_suite);
}
