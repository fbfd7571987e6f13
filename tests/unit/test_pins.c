/* What is kept for workspaces and their snapshots, and what goes. */

#include "drivers/gvisor/gvisor.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROUNDS 60

static char folder[64];
static struct sbx_gvisor driver;
static struct sbx_wait wait_long;
static sandbox_error error;

static void set_up(void)
{
    static const char *const folders[] = {"state/locks",  "state/runtimes", "state/workspaces",
                                          "state/agents", "state/base",     "image/bin"};
    strcpy(folder, "/tmp/sandbox-pins-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t n = 0; n < sizeof folders / sizeof folders[0]; n++)
        ck_assert_int_eq(sbx_directory_make(at, folders[n], 0755, NULL), SANDBOX_OK);
    driver =
        (struct sbx_gvisor){.directory = openat(at, "state", O_RDONLY | O_DIRECTORY), .host = "/"};
    close(at);
    driver.settings.state = sbx_format("%s/state", folder);
    wait_long = sbx_wait_alone(60000);
    error = (sandbox_error){0};
}

static void tear_down(void)
{
    close(driver.directory);
    sbx_gvisor_settings_clear(&driver.settings);
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, folder, NULL), SANDBOX_OK);
}

/* 64 digits: no digest is of two kinds. */
static const char *digest_of(const char *kind, char mark)
{
    static char texts[8][SBX_GVISOR_DIGEST_TEXT];
    static unsigned next;
    char *text = texts[next++ % 8];
    memset(text, '0', SBX_GVISOR_DIGEST_TEXT - 1);
    text[0] = mark;
    text[1] = kind[0];
    text[SBX_GVISOR_DIGEST_TEXT - 1] = '\0';
    return text;
}

/* Later than everything before, also where files are timed by a coarse clock. */
static void put(const char *kind, char mark)
{
    static struct timespec last;
    char path[128];
    struct stat facts;
    snprintf(path, sizeof path, "%s/%s/some/content", kind, digest_of(kind, mark));
    ck_assert_int_eq(sbx_directory_make(driver.directory, path, 0755, NULL), SANDBOX_OK);
    snprintf(path, sizeof path, "%s/%s", kind, digest_of(kind, mark));
    do {
        ck_assert_int_eq(fchmodat(driver.directory, path, 0755, 0), 0);
        ck_assert_int_eq(fstatat(driver.directory, path, &facts, 0), 0);
    } while (facts.st_ctim.tv_sec == last.tv_sec && facts.st_ctim.tv_nsec == last.tv_nsec);
    last = facts.st_ctim;
}

static bool has(const char *kind, char mark)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", kind, digest_of(kind, mark));
    return faccessat(driver.directory, path, F_OK, 0) == 0;
}

static void write_state(const char *path, const char *text)
{
    char parent[256];
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = '\0';
    ck_assert_int_eq(sbx_directory_make(driver.directory, parent, 0700, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_file_replace(driver.directory, path, text, strlen(text), 0600, NULL),
                     SANDBOX_OK);
}

static void name_in_bundle(const char *workspace, const char *base, const char *tools,
                           const char *runtime)
{
    char path[128];
    snprintf(path, sizeof path, "workspaces/%s/bundle/config.json", workspace);
    SBX_ON_EXIT(sbx_free_text)
    char *text = sbx_format("{\"annotations\":{\"org.libsandbox.base\":\"%s\","
                            "\"org.libsandbox.tools\":\"%s\",\"org.libsandbox.runtime\":\"%s\"}}",
                            base, tools, runtime);
    write_state(path, text);
}

START_TEST(what_nobody_names_goes_but_the_newest)
{
    static const char *const kinds[] = {"base", "agents", "runtimes"};
    for (size_t n = 0; n < 3; n++) {
        put(kinds[n], 'a');
        put(kinds[n], 'b');
        put(kinds[n], 'c');
    }
    name_in_bundle("w", digest_of("base", 'a'), digest_of("agents", 'b'), "");
    sbx_gvisor_pins_collect(&driver);
    ck_assert(has("base", 'a') && !has("base", 'b') && has("base", 'c'));
    ck_assert(!has("agents", 'a') && has("agents", 'b') && has("agents", 'c'));
    ck_assert(!has("runtimes", 'a') && !has("runtimes", 'b') && has("runtimes", 'c'));

    ck_assert_int_eq(sbx_tree_remove(driver.directory, "workspaces/w", NULL), SANDBOX_OK);
    sbx_gvisor_pins_collect(&driver);
    ck_assert(!has("base", 'a') && has("base", 'c'));
    ck_assert(!has("agents", 'b') && has("agents", 'c'));
}
END_TEST

START_TEST(what_a_snapshot_names_is_kept_until_it_is_removed)
{
    put("base", 'a');
    put("runtimes", 'a');
    put("base", 'b');
    put("runtimes", 'b');
    put("base", 'c');
    put("runtimes", 'c');
    SBX_ON_EXIT(sbx_free_text)
    char *manifest = sbx_format("{\"base\":\"%s\",\"tools\":\"\"}", digest_of("base", 'a'));
    SBX_ON_EXIT(sbx_free_text)
    char *config = sbx_format("{\"annotations\":{\"org.libsandbox.runtime\":\"%s\"}}",
                              digest_of("runtimes", 'b'));
    write_state("workspaces/w/snapshots/s/manifest.json", manifest);
    write_state("workspaces/w/snapshots/t.new/config.json", config); /* being made */
    sbx_gvisor_pins_collect(&driver);
    ck_assert(has("base", 'a') && !has("base", 'b') && has("base", 'c'));
    ck_assert(!has("runtimes", 'a') && has("runtimes", 'b') && has("runtimes", 'c'));
    ck_assert_int_eq(sbx_tree_remove(driver.directory, "workspaces/w/snapshots", NULL), SANDBOX_OK);
    sbx_gvisor_pins_collect(&driver);
    ck_assert(!has("base", 'a') && has("base", 'c'));
    ck_assert(!has("runtimes", 'b') && has("runtimes", 'c'));
}
END_TEST

static const char *const unreadable[] = {"workspaces/w/bundle/config.json",
                                         "workspaces/w/snapshots/s/manifest.json"};

START_TEST(a_file_that_cannot_be_read_could_name_anything)
{
    put("base", 'a');
    put("base", 'b');
    write_state(unreadable[_i], "{ half of a");
    sbx_gvisor_pins_collect(&driver);
    ck_assert(has("base", 'a') && has("base", 'b'));
}
END_TEST

START_TEST(while_somebody_takes_into_use_nothing_goes)
{
    put("base", 'a');
    put("base", 'b');
    int lock = -1;
    ck_assert_int_eq(sbx_gvisor_pins_hold(&driver, &wait_long, &lock, &error), SANDBOX_OK);
    sbx_gvisor_pins_collect(&driver);
    ck_assert(has("base", 'a') && has("base", 'b'));
    close(lock);
    sbx_gvisor_pins_collect(&driver);
    ck_assert(!has("base", 'a') && has("base", 'b'));
}
END_TEST

/* A base is large, and somebody waits: what is not removed now is removed the next times. */
START_TEST(a_large_tree_is_gone_from_its_name_at_once_and_removed_in_the_end)
{
    put("base", 'a');
    put("base", 'b');
    SBX_ON_EXIT(sbx_free_text)
    char *large = sbx_format("base/%s/root/usr", digest_of("base", 'a'));
    for (int n = 0; n < 2000; n++) {
        char path[160];
        snprintf(path, sizeof path, "%s/%d/below", large, n);
        ck_assert_int_eq(sbx_directory_make(driver.directory, path, 0755, NULL), SANDBOX_OK);
        snprintf(path, sizeof path, "%s/%d/below/file", large, n);
        close(openat(driver.directory, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    }
    sbx_gvisor_pins_collect(&driver);
    ck_assert(!has("base", 'a') && has("base", 'b'));
    SBX_ON_EXIT(sbx_free_text) char *base = sbx_format("%s/base", driver.settings.state);
    struct stat facts;
    int rounds = 0;
    do {
        ck_assert_int_lt(rounds++, 100);
        sbx_gvisor_pins_collect(&driver);
        ck_assert_int_eq(stat(base, &facts), 0);
    } while (facts.st_nlink > 3);
}
END_TEST

START_TEST(what_a_killed_actor_left_goes_too)
{
    put("base", 'a');
    ck_assert_int_eq(sbx_directory_make(driver.directory, "base/new/root", 0755, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_directory_make(driver.directory, "agents/new.1/x", 0755, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(sbx_directory_make(driver.directory, "runtimes/gone.1/x", 0755, NULL),
                     SANDBOX_OK);
    sbx_gvisor_pins_collect(&driver);
    ck_assert(has("base", 'a'));
    ck_assert_int_lt(faccessat(driver.directory, "base/new", F_OK, 0), 0);
    ck_assert_int_lt(faccessat(driver.directory, "agents/new.1", F_OK, 0), 0);
    ck_assert_int_lt(faccessat(driver.directory, "runtimes/gone.1", F_OK, 0), 0);
}
END_TEST

static void *collect_on_and_on(void *stop)
{
    while (!atomic_load((atomic_bool *)stop))
        sbx_gvisor_pins_collect(&driver);
    return NULL;
}

struct user {
    pthread_t thread;
    char name[8], agent[96];
};

/* Takes an agent of its own into use, again and again, each time another or an earlier one. */
static void *use_and_drop(void *data)
{
    struct user *user = data;
    struct sbx_gvisor own = driver;
    own.settings.agent = user->agent;
    char path[128];
    for (int round = 0; round < ROUNDS; round++) {
        char digest[SBX_GVISOR_DIGEST_TEXT], content[16];
        snprintf(content, sizeof content, "%s%d", user->name, round % 3);
        ck_assert_int_eq(
            sbx_file_replace(AT_FDCWD, user->agent, content, strlen(content), 0755, NULL),
            SANDBOX_OK);
        int lock = -1;
        ck_assert_int_eq(sbx_gvisor_pins_hold(&own, &wait_long, &lock, NULL), SANDBOX_OK);
        ck_assert_int_eq(sbx_gvisor_tools(&own, false, digest, NULL), SANDBOX_OK);
        name_in_bundle(user->name, "", digest, "");
        close(lock);

        snprintf(path, sizeof path, "agents/%s/sandbox-agent", digest);
        for (int look = 0; look < 20; look++)
            ck_assert_int_eq(faccessat(driver.directory, path, X_OK, 0), 0);
        snprintf(path, sizeof path, "workspaces/%s", user->name);
        ck_assert_int_eq(sbx_tree_remove(driver.directory, path, NULL), SANDBOX_OK);
    }
    return NULL;
}

START_TEST(what_is_taken_into_use_is_never_collected_under_the_hands)
{
    atomic_bool stop = false;
    pthread_t collectors[2];
    struct user users[3] = {0};
    for (size_t n = 0; n < 2; n++)
        ck_assert_int_eq(pthread_create(&collectors[n], NULL, collect_on_and_on, &stop), 0);
    for (size_t n = 0; n < 3; n++) {
        snprintf(users[n].name, sizeof users[n].name, "u%zu", n);
        snprintf(users[n].agent, sizeof users[n].agent, "%s/agent-%zu", folder, n);
        ck_assert_int_eq(pthread_create(&users[n].thread, NULL, use_and_drop, &users[n]), 0);
    }
    for (size_t n = 0; n < 3; n++)
        pthread_join(users[n].thread, NULL);
    atomic_store(&stop, true);
    for (size_t n = 0; n < 2; n++)
        pthread_join(collectors[n], NULL);
    sbx_gvisor_pins_collect(&driver);
    SBX_ON_EXIT(sbx_free_text) char *agents = sbx_format("%s/agents", driver.settings.state);
    struct stat facts;
    ck_assert_int_eq(stat(agents, &facts), 0);
    ck_assert_uint_le(facts.st_nlink, 3); /* the newest alone, where links count directories */
}
END_TEST

START_TEST(a_changed_or_missing_image_is_found_before_a_restore)
{
    struct sbx_gvisor_pins pins = {0};
    char image[80], contents[SBX_GVISOR_DIGEST_TEXT], program[96];
    snprintf(image, sizeof image, "%s/image", folder);
    snprintf(program, sizeof program, "%s/bin/sh", image);
    ck_assert_int_eq(sbx_file_replace(AT_FDCWD, program, "shell", 5, 0755, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_pins_print(&driver, &pins, image, &wait_long, contents, &error),
                     SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_pins_check(&driver, &pins, image, contents, &wait_long, &error),
                     SANDBOX_OK);
    ck_assert_int_eq(sbx_file_replace(AT_FDCWD, program, "shell", 5, 0755, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_pins_check(&driver, &pins, image, contents, &wait_long, &error),
                     SANDBOX_NOT_RESTORED);
    ck_assert_str_eq(error.reason, "base-changed");
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, image, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_pins_check(&driver, &pins, image, contents, &wait_long, &error),
                     SANDBOX_NOT_RESTORED);
    ck_assert_str_eq(error.reason, "pin-missing");
    snprintf(pins.runtime, sizeof pins.runtime, "%s", digest_of("runtimes", 'a'));
    error = (sandbox_error){0};
    ck_assert_int_eq(sbx_gvisor_pins_find(&driver, &pins, &error), SANDBOX_NOT_RESTORED);
    ck_assert_str_eq(error.reason, "pin-missing");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pins");
    TCase *tests = tcase_create("pins");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, what_nobody_names_goes_but_the_newest);
    tcase_add_test(tests, what_a_snapshot_names_is_kept_until_it_is_removed);
    tcase_add_loop_test(tests, a_file_that_cannot_be_read_could_name_anything, 0,
                        sizeof unreadable / sizeof unreadable[0]);
    tcase_add_test(tests, while_somebody_takes_into_use_nothing_goes);
    tcase_add_test(tests, a_large_tree_is_gone_from_its_name_at_once_and_removed_in_the_end);
    tcase_add_test(tests, what_a_killed_actor_left_goes_too);
    tcase_add_test(tests, what_is_taken_into_use_is_never_collected_under_the_hands);
    tcase_add_test(tests, a_changed_or_missing_image_is_found_before_a_restore);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
