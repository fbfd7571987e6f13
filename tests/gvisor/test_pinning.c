/*
 * What a workspace runs on stays as it was, whatever becomes of the host: on a real runsc, over a
 * small host of our own, whose programs are replaced as packages replace them.
 */

#include "rig.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRIVER ((struct sbx_gvisor *)rig_state)

static char host[64];
static const char *text;
static sandbox_error error;

/* The programs that are needed inside, with what they are linked with, as a merged /usr has it. */
static const char make_host[] =
    "set -e; h=%s; mkdir -p $h/usr/bin $h/usr/sbin $h/usr/lib $h/usr/lib32 $h/usr/lib64 $h/etc "
    "$h/usr/local/bin $h/var/lib/dpkg; "
    "for n in bin sbin lib lib32 lib64; do ln -s usr/$n $h/$n; done; "
    "for p in sh cat; do f=$(readlink -f $(command -v $p)); cp $f $h/usr/bin/$p; "
    "for l in $(ldd $f | grep -o '/[^ ]*'); do mkdir -p $h$(dirname $l); cp -nL $l $h$l; done; "
    "done; echo 1";

static void write_host(const char *path, const char *content, mode_t mode)
{
    int at = open(host, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(sbx_file_replace(at, path, content, strlen(content), 0600, NULL), SANDBOX_OK);
    ck_assert_int_eq(fchmodat(at, path, mode, 0), 0);
    close(at);
}

/* A package comes in another version. */
static void upgrade(const char *version)
{
    SBX_ON_EXIT(sbx_free_text) char *script = sbx_format("#!/bin/sh\necho %s\n", version);
    write_host("usr/bin/tool", script, 0755);
    write_host("var/lib/dpkg/status", version, 0644);
}

static void set_up(void)
{
    strcpy(host, "/tmp/sandbox-host-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(host));
    ck_assert_int_eq(chmod(host, 0755), 0);
    char command[sizeof make_host + sizeof host];
    snprintf(command, sizeof command, make_host, host);
    ck_assert_int_eq(rig_number("%s", command), 1);
    upgrade("old");
    DRIVER->host = host;
}

static void tear_down(void)
{
    DRIVER->host = "/";
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, host, NULL), SANDBOX_OK);
}

static bool can_link(void)
{
    int root = open(host, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool possible = sbx_gvisor_farm_is_possible(DRIVER->directory, root, host);
    close(root);
    if (!possible)
        printf("not run: programs cannot be linked from here into the state directory\n");
    return possible;
}

static void expect_tool(const struct sbx_record *record, const char *version)
{
    char expected[32];
    snprintf(expected, sizeof expected, "%s\n", version);
    ck_assert_int_eq(rig_inside(record, "tool", &text), 0);
    ck_assert_str_eq(text, expected);
}

static struct sbx_gvisor_pins pins_of(const struct sbx_record *record)
{
    struct sbx_gvisor_pins pins = {0};
    ck_assert_int_eq(sbx_gvisor_pins_of(DRIVER, record->id, &pins, &error), SANDBOX_OK);
    return pins;
}

static bool is_kept(const char *kind, const char *digest)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", kind, digest);
    return faccessat(DRIVER->directory, path, F_OK, 0) == 0;
}

/* An instance over what a snapshot pins; else the newest of the host would be taken. */
static void start_over(struct sbx_record *record, const struct sbx_gvisor_pins *pins)
{
    struct sbx_gvisor_start start = {0};
    struct sbx_gvisor_origin origin = {.pins = pins};
    char path[80];
    uint8_t *pid = NULL;
    size_t size = 0;
    ck_assert_int_eq(sbx_gvisor_limits_make(&DRIVER->limits, record, start.memory_group,
                                            start.cpu_group, &error),
                     SANDBOX_OK);
    sandbox_status status =
        sbx_gvisor_bundle_make(DRIVER, record, &origin, &rig_wait, &start.bundle, &error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_launch(DRIVER, record, &start, &rig_wait,
                                   &(struct sbx_channel)SBX_CHANNEL, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
    sbx_gvisor_bundle_clear(&start.bundle);
    snprintf(path, sizeof path, "workspaces/%s/sandbox.pid", record->id);
    ck_assert_int_eq(sbx_file_read(DRIVER->directory, path, 64, &pid, &size, NULL), SANDBOX_OK);
    ck_assert(sbx_gvisor_incarnation(DRIVER, record->id, (pid_t)strtol((char *)pid, NULL, 10),
                                     record->incarnation));
    free(pid);
    rig_store(record);
}

START_TEST(an_upgrade_of_the_host_is_seen_by_new_workspaces_only)
{
    struct sbx_record first, second;
    if (!can_link())
        return;
    rig_record(&first, "first");
    rig_provision(&first);
    expect_tool(&first, "old");
    struct sbx_gvisor_pins pins = pins_of(&first);

    upgrade("new");
    expect_tool(&first, "old");
    rig_record(&second, "second");
    rig_provision(&second);
    expect_tool(&second, "new");
    expect_tool(&first, "old");
    ck_assert_str_ne(pins_of(&second).base, pins.base);

    ck_assert_int_eq(rig->discard(rig_state, &first, &rig_wait, &error), SANDBOX_OK);
    start_over(&first, &pins);
    expect_tool(&first, "old");
    ck_assert_int_eq(rig->discard(rig_state, &first, &rig_wait, &error), SANDBOX_OK);
    rig_provision(&first);
    expect_tool(&first, "new");
    rig_destroy(&first);
    rig_destroy(&second);
}
END_TEST

START_TEST(what_was_not_packaged_is_noticed_too)
{
    struct sbx_record first, second;
    rig_record(&first, "first");
    rig_provision(&first);
    ck_assert_int_ne(rig_inside(&first, "homemade", &text), 0);
    write_host("usr/local/bin/homemade", "#!/bin/sh\necho yes\n", 0755);
    rig_record(&second, "second");
    rig_provision(&second);
    ck_assert_int_eq(rig_inside(&second, "homemade", &text), 0);
    rig_destroy(&first);
    rig_destroy(&second);
}
END_TEST

START_TEST(a_base_is_kept_while_something_needs_it_and_no_longer)
{
    struct sbx_record first, second;
    if (!can_link())
        return;
    rig_record(&first, "first");
    rig_provision(&first);
    struct sbx_gvisor_pins old = pins_of(&first);
    upgrade("new");
    rig_record(&second, "second");
    rig_provision(&second);
    struct sbx_gvisor_pins new = pins_of(&second);
    rig_destroy(&second);
    ck_assert(is_kept("base", old.base) && is_kept("base", new.base));
    expect_tool(&first, "old");
    rig_destroy(&first);
    ck_assert(!is_kept("base", old.base));
    ck_assert(is_kept("base", new.base)); /* for the next start */
    ck_assert_int_eq(rig_number("ls %s/base | wc -l", rig_folder), 1);
}
END_TEST

START_TEST(a_program_that_is_written_in_place_is_noticed_before_a_restore)
{
    struct sbx_record record;
    char contents[SBX_GVISOR_DIGEST_TEXT], path[96];
    rig_record(&record, "in-place");
    rig_provision(&record);
    struct sbx_gvisor_pins pins = pins_of(&record);
    ck_assert_int_eq(sbx_gvisor_pins_print(DRIVER, &pins, NULL, &rig_wait, contents, &error),
                     SANDBOX_OK);
    if (can_link()) {
        upgrade("new"); /* by rename: no link changes */
        ck_assert_int_eq(sbx_gvisor_pins_check(DRIVER, &pins, NULL, contents, &rig_wait, &error),
                         SANDBOX_OK);
        snprintf(path, sizeof path, "%s/usr/bin/cat", host);
        int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        ck_assert_int_eq(write(fd, "x", 1), 1);
        close(fd);
    } else {
        upgrade("new");
    }
    ck_assert_int_eq(sbx_gvisor_pins_check(DRIVER, &pins, NULL, contents, &rig_wait, &error),
                     SANDBOX_NOT_RESTORED);
    ck_assert_str_eq(error.reason, "base-changed");
    rig_destroy(&record);
}
END_TEST

/* Where the host cannot be linked: a state directory on another file system. */
START_TEST(without_links_an_upgrade_is_noticed_before_a_restore)
{
    struct sbx_record record;
    char contents[SBX_GVISOR_DIGEST_TEXT], elsewhere[64] = "/dev/shm/sandbox-host-XXXXXX";
    if (mkdtemp(elsewhere) == NULL) {
        printf("not run: there is no second file system at /dev/shm\n");
        return;
    }
    ck_assert_int_eq(rig_number("cp -a %s/. %s && echo 1", host, elsewhere), 1);
    DRIVER->host = elsewhere;
    rig_record(&record, "bound");
    rig_provision(&record);
    expect_tool(&record, "old");
    struct sbx_gvisor_pins pins = pins_of(&record);
    ck_assert_int_eq(sbx_gvisor_pins_print(DRIVER, &pins, NULL, &rig_wait, contents, &error),
                     SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_pins_check(DRIVER, &pins, NULL, contents, &rig_wait, &error),
                     SANDBOX_OK);
    ck_assert_int_eq(rig_number("echo new >%s/var/lib/dpkg/status && echo 1", elsewhere), 1);
    ck_assert_int_eq(sbx_gvisor_pins_check(DRIVER, &pins, NULL, contents, &rig_wait, &error),
                     SANDBOX_NOT_RESTORED);
    ck_assert_str_eq(error.reason, "base-changed");
    rig_destroy(&record);
    DRIVER->host = host;
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, elsewhere, NULL), SANDBOX_OK);
}
END_TEST

static void expect_agent(struct sbx_record *record)
{
    struct sbx_channel channel = SBX_CHANNEL;
    uint8_t frame[9];
    sbx_gvisor_ready_forget(DRIVER, record->id);
    ck_assert_int_eq(rig->connect(rig_state, record, &rig_wait, &channel, &error), SANDBOX_OK);
    struct sbx_wait bounded = sbx_wait_within(&rig_wait, 20000);
    ck_assert_int_eq(sbx_wait_descriptor(&bounded, channel.read_fd, POLLIN, NULL), SANDBOX_OK);
    ck_assert_int_eq(read(channel.read_fd, frame, sizeof frame), sizeof frame);
    ck_assert_uint_eq(frame[3], 4); /* SETTINGS */
    sbx_channel_end(&channel);
}

START_TEST(a_sandbox_runs_on_a_copy_of_runsc_and_outlives_an_upgrade)
{
    struct sbx_record first, second;
    char runsc[96], more[128], link[96], path[256] = "";
    snprintf(runsc, sizeof runsc, "%s/runsc-here", host);
    ck_assert_int_eq(rig_number("cp %s %s && echo 1", DRIVER->settings.runsc, runsc), 1);
    snprintf(more, sizeof more, "runsc=%s", runsc);
    void *usual = rig_state;
    rig_state = rig_open(more);
    DRIVER->host = host;
    rig_record(&first, "first");
    rig_provision(&first);
    struct sbx_gvisor_pins old = pins_of(&first);
    snprintf(link, sizeof link, "/proc/%s/exe", strchr(first.incarnation, ':') + 1);
    *strrchr(link, ':') = '\0';
    snprintf(link + strlen(link), sizeof link - strlen(link), "/exe");
    ck_assert_int_gt(readlink(link, path, sizeof path - 1), 0);
    ck_assert_msg(strstr(path, "/runtimes/") != NULL, "%s", path);

    /* Another version, which goes by the same name: a byte more changes nothing of a program. */
    ck_assert_int_eq(rig_number("cp %s %s.new && echo >>%s.new && mv %s.new %s && echo 1", runsc,
                                runsc, runsc, runsc, runsc),
                     1);
    expect_agent(&first);
    ck_assert_int_eq(rig_presence(&first, NULL), SBX_PRESENCE_RUNNING);
    rig_record(&second, "second");
    rig_provision(&second);
    ck_assert_str_ne(pins_of(&second).runtime, old.runtime);
    expect_agent(&second);

    ck_assert_int_eq(unlink(runsc), 0); /* the package is removed */
    expect_agent(&first);
    ck_assert_int_eq(rig->discard(rig_state, &first, &rig_wait, &error), SANDBOX_OK);
    start_over(&first, &old);
    ck_assert_int_eq(rig_presence(&first, NULL), SBX_PRESENCE_RUNNING);
    ck_assert(is_kept("runtimes", old.runtime));
    rig_destroy(&first);
    ck_assert(!is_kept("runtimes", old.runtime));
    rig_destroy(&second);
    rig->close(rig_state);
    rig_state = usual;
}
END_TEST

START_TEST(what_an_older_libsandbox_started_is_still_found)
{
    struct sbx_record record;
    rig_record(&record, "older");
    rig_provision(&record);
    ck_assert_int_eq(rig->discard(rig_state, &record, &rig_wait, &error), SANDBOX_OK);
    /* It ran the configured runsc itself, and did not say so in the bundle. */
    struct sbx_gvisor_start start = {0};
    struct sbx_gvisor_origin origin = {0};
    ck_assert_int_eq(
        sbx_gvisor_bundle_make(DRIVER, &record, &origin, &rig_wait, &start.bundle, &error),
        SANDBOX_OK);
    free(start.bundle.runtime.path);
    start.bundle.runtime.path = sbx_copy(DRIVER->settings.runsc);
    ck_assert_int_eq(rig_number("f=%s/workspaces/%s/bundle/config.json; grep -v "
                                "org.libsandbox.runtime $f | sed 's/\\(org.libsandbox.tools.*\\),$/"
                                "\\1/' >$f.new && mv $f.new $f && echo 1",
                                rig_folder, record.id),
                     1);
    struct sbx_channel early = SBX_CHANNEL;
    sandbox_status status = sbx_gvisor_launch(DRIVER, &record, &start, &rig_wait, &early, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
    sbx_gvisor_bundle_clear(&start.bundle);
    ck_assert_str_eq(pins_of(&record).runtime, "");

    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_OTHER);
    long pid = rig_number("cat %s/workspaces/%s/sandbox.pid", rig_folder, record.id);
    ck_assert(sbx_gvisor_incarnation(DRIVER, record.id, (pid_t)pid, record.incarnation));
    rig_store(&record);
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_RUNNING);
    ck_assert_int_eq(
        sbx_gvisor_await_agent(DRIVER, record.id, (pid_t)pid, &early, &rig_wait, &error),
        SANDBOX_OK);
    expect_agent(&record);
    char id[SBX_ID_TEXT];
    memcpy(id, record.id, sizeof id);
    rig_destroy(&record);
    ck_assert_int_eq(rig_processes(id), 0);
}
END_TEST

static struct sbx_snapshot put_to_sleep(struct sbx_record *record)
{
    struct sbx_snapshot snapshot = {.kind = SANDBOX_KEEP_MEMORY, .key_id = 1,
                                    .epoch = record->epoch};
    ck_assert(sbx_id_fresh(snapshot.id));
    memcpy(snapshot.run, record->run, sizeof snapshot.run);
    memcpy(snapshot.incarnation, record->incarnation, sizeof snapshot.incarnation);
    memset(snapshot.seal_hash, 'a', sizeof snapshot.seal_hash - 1);
    sandbox_status status =
        rig->snapshot_take(rig_state, record, &snapshot, NULL, &rig_wait, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
    ck_assert_int_eq(rig->release(rig_state, record, &rig_wait, &error), SANDBOX_OK);
    return snapshot;
}

static void write_in_place(const char *program)
{
    char path[128];
    snprintf(path, sizeof path, "%s/usr/bin/%s", host, program);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    ck_assert_int_eq(write(fd, "#", 1), 1);
    close(fd);
}

/* Suspended before the upgrade and resumed after it. */
START_TEST(a_snapshot_comes_back_over_the_programs_that_it_was_taken_over)
{
    struct sbx_record record, later;
    struct sbx_restored restored = {0};
    if (!can_link())
        return;
    rig_record(&record, "asleep");
    rig_provision(&record);
    expect_tool(&record, "old");
    ck_assert_int_eq(rig_inside(&record, "echo here >/tmp/memory", &text), 0);
    struct sbx_snapshot snapshot = put_to_sleep(&record);

    upgrade("new");
    rig_record(&later, "later");
    rig_provision(&later);
    expect_tool(&later, "new");
    rig_destroy(&later);
    sandbox_status status = rig->restore(rig_state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL,
                                         &rig_wait, &restored, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
    memcpy(record.incarnation, restored.incarnation, sizeof record.incarnation);
    rig_store(&record);
    expect_tool(&record, "old");
    ck_assert_int_eq(rig_inside(&record, "cat /tmp/memory", &text), 0);
    ck_assert_str_eq(text, "here\n");
    rig_destroy(&record);
}
END_TEST

/* What is mapped would change under its programs; what is not is looked up as it is then. */
START_TEST(a_program_in_use_that_was_written_in_place_is_noticed)
{
    struct sbx_record record;
    struct sbx_restored restored = {0};
    if (!can_link())
        return;
    rig_record(&record, "held");
    rig_provision(&record);
    ck_assert_int_eq(rig_inside(&record, "(sh -c 'echo; read x </dev/zero' | cat) "
                                         "</dev/null >/tmp/out 2>&1 & "
                                         "until test -s /tmp/out; do :; done",
                                &text),
                     0);
    struct sbx_snapshot snapshot = put_to_sleep(&record);

    write_in_place("tool");
    sandbox_status status = rig->restore(rig_state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL,
                                         &rig_wait, &restored, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
    ck_assert_int_eq(rig->discard(rig_state, &record, &rig_wait, &error), SANDBOX_OK);

    write_in_place("cat");
    status = rig->restore(rig_state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait,
                          &restored, &error);
    ck_assert_int_eq(status, SANDBOX_NOT_RESTORED);
    ck_assert_str_eq(error.reason, "base-changed");
    ck_assert_msg(strstr(error.message, "'/usr/bin/cat'") != NULL, "%s", error.message);
    rig_destroy(&record);
}
END_TEST

int main(void)
{
    if (!rig_begin())
        return 77;
    Suite *suite = suite_create("gvisor pinning");
    TCase *tests = tcase_create("pinning");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, an_upgrade_of_the_host_is_seen_by_new_workspaces_only);
    tcase_add_test(tests, what_was_not_packaged_is_noticed_too);
    tcase_add_test(tests, a_base_is_kept_while_something_needs_it_and_no_longer);
    tcase_add_test(tests, a_program_that_is_written_in_place_is_noticed_before_a_restore);
    tcase_add_test(tests, without_links_an_upgrade_is_noticed_before_a_restore);
    tcase_add_test(tests, a_sandbox_runs_on_a_copy_of_runsc_and_outlives_an_upgrade);
    tcase_add_test(tests, what_an_older_libsandbox_started_is_still_found);
    tcase_add_test(tests, a_snapshot_comes_back_over_the_programs_that_it_was_taken_over);
    tcase_add_test(tests, a_program_in_use_that_was_written_in_place_is_noticed);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_end();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
