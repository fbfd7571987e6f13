/* What runsc is told about a workspace, and what an image must hold. */

#include "drivers/gvisor/gvisor.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID "00112233445566778899aabbccddeeff"

static char folder[64], image[128];
static struct sbx_gvisor driver;
static struct sbx_record record;
static struct sbx_wait wait_long;
static int image_at = -1;
static sandbox_error error;

/* A program that answers as that version of runsc does. */
static void install_runsc(const char *version)
{
    SBX_ON_EXIT(sbx_free_text)
    char *script =
        sbx_format("#!/bin/sh\necho 'runsc version %s'\necho '  -overlay2 value'\n", version);
    ck_assert_int_eq(
        sbx_file_replace(AT_FDCWD, driver.settings.runsc, script, strlen(script), 0755, NULL),
        SANDBOX_OK);
}

static void set_up(void)
{
    static const char *const folders[] = {"state/workspaces", "state/base", "state/locks",
                                          "state/agents",     "image/bin",  "image/etc",
                                          "state/runtimes"};
    strcpy(folder, "/tmp/sandbox-bundle-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t n = 0; n < sizeof folders / sizeof folders[0]; n++)
        ck_assert_int_eq(sbx_directory_make(at, folders[n], 0755, NULL), SANDBOX_OK);
    driver = (struct sbx_gvisor){.directory = openat(at, "state", O_RDONLY | O_DIRECTORY)};
    driver.settings.state = sbx_format("%s/state", folder);
    driver.settings.runsc = sbx_format("%s/runsc", folder);
    driver.settings.agent = sbx_copy("/bin/true");
    driver.settings.shim = sbx_copy("/bin/false");
    image_at = openat(at, "image", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(at);
    snprintf(image, sizeof image, "%s/image", folder);
    ck_assert_int_eq(sbx_file_replace(image_at, "bin/sh", "", 0, 0755, NULL), SANDBOX_OK);
    static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\nann:x:7:8::/home/ann:/bin/sh\n"
                                 "odd:x:9:9::/:/bin/sh\nshort:x:1\n";
    ck_assert_int_eq(sbx_file_replace(image_at, "etc/passwd", passwd, strlen(passwd), 0644, NULL),
                     SANDBOX_OK);
    record = (struct sbx_record){.id = ID, .name = "demo", .user = "ann"};
    record.image = image;
    install_runsc("0.0~20221219.0");
    wait_long = sbx_wait_alone(60000);
    error = (sandbox_error){0};
}

static void tear_down(void)
{
    close(driver.directory);
    close(image_at);
    sbx_gvisor_settings_clear(&driver.settings);
    sbx_gvisor_runtime_clear(&driver.runtime);
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, folder, NULL), SANDBOX_OK);
}

static sandbox_status make_over(const struct sbx_gvisor_origin *origin,
                                struct sbx_gvisor_bundle *bundle)
{
    *bundle = (struct sbx_gvisor_bundle){0};
    return sbx_gvisor_bundle_make(&driver, &record, origin, &wait_long, bundle, &error);
}

static sandbox_status make(struct sbx_gvisor_bundle *bundle)
{
    return make_over(&(struct sbx_gvisor_origin){0}, bundle);
}

static cJSON *read_config(void)
{
    uint8_t *text = NULL;
    size_t size = 0;
    cJSON *json = NULL;
    ck_assert_int_eq(sbx_file_read(driver.directory, "workspaces/" ID "/bundle/config.json",
                                   1u << 20, &text, &size, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(sbx_json_parse(text, size, 1u << 20, &json, NULL), SANDBOX_OK);
    free(text);
    return json;
}

/* The options of a mount joined by commas; NULL: there is no such mount. */
static const char *mount_options(const cJSON *config, const char *destination, const char *source)
{
    static char joined[256];
    const cJSON *mount;
    cJSON_ArrayForEach(mount, cJSON_GetObjectItem(config, "mounts"))
    {
        if (strcmp(sbx_json_text(mount, "destination"), destination) != 0)
            continue;
        ck_assert_msg(strstr(sbx_json_text(mount, "source"), source) != NULL, "%s comes from %s",
                      destination, sbx_json_text(mount, "source"));
        joined[0] = '\0';
        const cJSON *option;
        cJSON_ArrayForEach(option, cJSON_GetObjectItem(mount, "options"))
        {
            strcat(joined, option->valuestring);
            strcat(joined, ",");
        }
        return joined;
    }
    return NULL;
}

START_TEST(the_configuration_mounts_the_workspaces_own_files_and_nothing_of_the_host)
{
    struct sbx_gvisor_bundle bundle;
    ck_assert_int_eq(make(&bundle), SANDBOX_OK);
    SBX_ON_EXIT(sbx_json_free) cJSON *config = read_config();
    ck_assert_str_eq(mount_options(config, "/workspace", ID "/files/workspace"),
                     "bind,rw,nosuid,nodev,");
    ck_assert_str_eq(mount_options(config, "/home/ann", ID "/files/home"), "bind,rw,nosuid,nodev,");
    ck_assert_str_eq(mount_options(config, "/.sandbox", "agents/"), "bind,ro,nosuid,nodev,");
    ck_assert_str_eq(mount_options(config, "/run/sandbox", "tmpfs"), "nosuid,nodev,mode=0700,");
    ck_assert_str_eq(mount_options(config, "/run/sandbox/seal", ID "/files/seal"),
                     "bind,rw,nosuid,nodev,noexec,");
    int binds = 0;
    const cJSON *mount;
    cJSON_ArrayForEach(mount, cJSON_GetObjectItem(config, "mounts")) binds +=
        sbx_json_text(mount, "source")[0] == '/';
    ck_assert_int_eq(binds, 4);
    ck_assert_str_eq(sbx_json_text(config, "hostname"), "demo");
    sbx_gvisor_bundle_clear(&bundle);
}
END_TEST

START_TEST(nobody_inside_may_mount_and_no_network_is_joined)
{
    struct sbx_gvisor_bundle bundle;
    ck_assert_int_eq(make(&bundle), SANDBOX_OK);
    SBX_ON_EXIT(sbx_json_free) cJSON *config = read_config();
    SBX_ON_EXIT(sbx_free_text) char *text = cJSON_PrintUnformatted(config);
    ck_assert_ptr_null(strstr(text, "SYS_ADMIN"));
    ck_assert_ptr_null(strstr(text, "NET_ADMIN"));
    ck_assert_ptr_null(strstr(text, "\"path\":\"/proc"));
    const cJSON *process = cJSON_GetObjectItem(config, "process");
    ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(process, "env")), 1);
    ck_assert(sbx_json_flag(process, "noNewPrivileges"));
    sbx_gvisor_bundle_clear(&bundle);
}
END_TEST

START_TEST(files_are_the_users_and_an_image_is_not_touched)
{
    struct sbx_gvisor_bundle bundle;
    struct stat facts;
    ck_assert_int_eq(make(&bundle), SANDBOX_OK);
    ck_assert_int_eq(fstatat(driver.directory, "workspaces/" ID "/files/workspace", &facts, 0), 0);
    ck_assert_uint_eq(facts.st_uid, 7);
    ck_assert_uint_eq(facts.st_gid, 8);
    ck_assert_int_eq(fstatat(driver.directory, "workspaces/" ID "/files", &facts, 0), 0);
    ck_assert_uint_eq(facts.st_mode & 07777, 0700);
    ck_assert_int_lt(faccessat(image_at, "workspace", F_OK, 0), 0);
    ck_assert_int_lt(faccessat(image_at, "etc/hosts", F_OK, 0), 0);
    sbx_gvisor_bundle_clear(&bundle);
}
END_TEST

START_TEST(files_that_are_there_are_left_as_they_are)
{
    struct sbx_gvisor_bundle bundle;
    ck_assert_int_eq(make(&bundle), SANDBOX_OK);
    sbx_gvisor_bundle_clear(&bundle);
    static const char path[] = "workspaces/" ID "/files/workspace";
    ck_assert_int_eq(fchmodat(driver.directory, path, 0711, 0), 0);
    ck_assert_int_eq(make(&bundle), SANDBOX_OK);
    struct stat facts;
    ck_assert_int_eq(fstatat(driver.directory, path, &facts, 0), 0);
    ck_assert_uint_eq(facts.st_mode & 07777, 0711);
    sbx_gvisor_bundle_clear(&bundle);
}
END_TEST

START_TEST(the_shim_is_preloaded_only_where_runsc_needs_it)
{
    static const char path[] = "workspaces/" ID "/layer/etc/ld.so.preload";
    struct sbx_gvisor_bundle bundle;
    uint8_t *text = NULL;
    size_t size = 0;
    ck_assert_int_eq(sbx_file_replace(image_at, "etc/ld.so.preload", "/own.so\n", 8, 0644, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(make(&bundle), SANDBOX_OK);
    sbx_gvisor_bundle_clear(&bundle);
    ck_assert_int_eq(sbx_file_read(driver.directory, path, 4096, &text, &size, NULL), SANDBOX_OK);
    ck_assert_str_eq((char *)text, "/.sandbox/sandbox-shim.so\n/own.so\n");
    free(text);
    install_runsc("release-20260224.0");
    ck_assert_int_eq(make(&bundle), SANDBOX_OK);
    sbx_gvisor_bundle_clear(&bundle);
    ck_assert_int_lt(faccessat(driver.directory, path, F_OK, 0), 0);
}
END_TEST

START_TEST(a_newer_agent_and_runsc_are_other_copies)
{
    struct sbx_gvisor_bundle first, second;
    ck_assert_int_eq(make(&first), SANDBOX_OK);
    free(driver.settings.agent);
    driver.settings.agent = sbx_copy("/bin/cat");
    install_runsc("release-20260224.0");
    ck_assert_int_eq(make(&second), SANDBOX_OK);
    ck_assert_str_ne(first.pins.tools, second.pins.tools);
    ck_assert_str_ne(first.pins.runtime, second.pins.runtime);
    ck_assert_str_ne(first.runtime.path, second.runtime.path);
    char path[128];
    snprintf(path, sizeof path, "agents/%s/sandbox-agent", first.pins.tools);
    ck_assert_int_eq(faccessat(driver.directory, path, X_OK, 0), 0);
    ck_assert_int_eq(access(first.runtime.path, X_OK), 0);
    sbx_gvisor_bundle_clear(&first);
    sbx_gvisor_bundle_clear(&second);
}
END_TEST

START_TEST(what_is_pinned_is_what_a_bundle_is_made_over)
{
    struct sbx_gvisor_bundle first, again;
    ck_assert_int_eq(make(&first), SANDBOX_OK);
    SBX_ON_EXIT(sbx_json_free) cJSON *config = read_config();
    SBX_ON_EXIT(sbx_free_text) char *text = cJSON_PrintUnformatted(config);
    free(driver.settings.agent);
    driver.settings.agent = sbx_copy("/bin/cat");
    install_runsc("release-20260224.0");

    struct sbx_gvisor_pins pins = {0};
    ck_assert_int_eq(sbx_gvisor_pins_of(&driver, ID, &pins, &error), SANDBOX_OK);
    struct sbx_gvisor_origin origin = {.pins = &pins, .config = text};
    ck_assert_int_eq(make_over(&origin, &again), SANDBOX_OK);
    ck_assert_str_eq(again.pins.tools, first.pins.tools);
    ck_assert_str_eq(again.runtime.path, first.runtime.path);
    ck_assert(again.runtime.runsc.needs_shim);
    SBX_ON_EXIT(sbx_json_free) cJSON *same = read_config();
    ck_assert(cJSON_Compare(config, same, true));
    sbx_gvisor_bundle_clear(&again);

    char path[128];
    snprintf(path, sizeof path, "agents/%s", first.pins.tools);
    ck_assert_int_eq(sbx_tree_remove(driver.directory, path, NULL), SANDBOX_OK);
    ck_assert_int_eq(make_over(&origin, &again), SANDBOX_NOT_RESTORED);
    ck_assert_str_eq(error.reason, "pin-missing");
    sbx_gvisor_bundle_clear(&first);
}
END_TEST

START_TEST(a_user_the_image_does_not_know_is_refused)
{
    struct sbx_gvisor_bundle bundle;
    static const char *const users[] = {"bob", "an", "odd", "short", "ann:x"};
    for (size_t n = 0; n < sizeof users / sizeof users[0]; n++) {
        snprintf(record.user, sizeof record.user, "%s", users[n]);
        ck_assert_int_eq(make(&bundle), SANDBOX_INVALID);
        ck_assert_str_eq(error.reason, "no-such-user");
    }
}
END_TEST

static const char *const bad_images[] = {"relative", "/", "/etc/passwd", "/var/empty:odd"};

START_TEST(what_is_no_image_is_refused_with_a_reason)
{
    struct sbx_gvisor_bundle bundle;
    record.image = (char *)(uintptr_t)bad_images[_i];
    sandbox_status status = make(&bundle);
    ck_assert(status == SANDBOX_INVALID || status == SANDBOX_NOT_FOUND);
    ck_assert_int_gt((int)strlen(error.message), 10);
}
END_TEST

START_TEST(an_image_that_holds_the_state_directory_is_refused)
{
    struct sbx_gvisor_bundle bundle;
    record.image = folder;
    ck_assert_int_eq(make(&bundle), SANDBOX_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "state directory"));
}
END_TEST

START_TEST(links_of_an_image_are_followed_inside_it_only)
{
    struct sbx_gvisor_bundle bundle;
    ck_assert_int_eq(unlinkat(image_at, "etc/passwd", 0), 0);
    ck_assert_int_eq(symlinkat("/etc/../../../../etc/passwd.real", image_at, "etc/passwd"), 0);
    ck_assert_int_eq(make(&bundle), SANDBOX_INVALID); /* whatever the host's /etc holds */
    ck_assert_int_eq(sbx_file_replace(image_at, "etc/passwd.real", "ann:x:7:8::/home/ann:/bin/sh\n",
                                      29, 0644, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(make(&bundle), SANDBOX_OK);
    sbx_gvisor_bundle_clear(&bundle);
}
END_TEST

START_TEST(a_limit_that_nobody_enforces_is_refused_by_name)
{
    struct sbx_gvisor_limits none = {0};
    char memory_group[320], cpu_group[320];
    record.memory_mib = SBX_GVISOR_DEFAULT_MEMORY_MIB;
    ck_assert_int_eq(sbx_gvisor_limits_make(&none, &record, memory_group, cpu_group, &error),
                     SANDBOX_OK);
    ck_assert_str_eq(memory_group, "");
    record.memory_mib = 100;
    ck_assert_int_eq(sbx_gvisor_limits_make(&none, &record, memory_group, cpu_group, &error),
                     SANDBOX_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.message, "memory_mib"));
    record.memory_mib = 0;
    record.cpu_millis = 1;
    ck_assert_int_eq(sbx_gvisor_limits_make(&none, &record, memory_group, cpu_group, &error),
                     SANDBOX_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.message, "cpu_millis"));
    record.cpu_millis = 0;
    record.disk_mib = 1;
    ck_assert_int_eq(sbx_gvisor_limits_make(&none, &record, memory_group, cpu_group, &error),
                     SANDBOX_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.message, "disk_mib"));
}
END_TEST

int main(void)
{
    if (geteuid() != 0) {
        puts("not run: giving files to their user needs root");
        return 77;
    }
    Suite *suite = suite_create("bundle");
    TCase *tests = tcase_create("bundle");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests,
                   the_configuration_mounts_the_workspaces_own_files_and_nothing_of_the_host);
    tcase_add_test(tests, nobody_inside_may_mount_and_no_network_is_joined);
    tcase_add_test(tests, files_are_the_users_and_an_image_is_not_touched);
    tcase_add_test(tests, files_that_are_there_are_left_as_they_are);
    tcase_add_test(tests, the_shim_is_preloaded_only_where_runsc_needs_it);
    tcase_add_test(tests, a_newer_agent_and_runsc_are_other_copies);
    tcase_add_test(tests, what_is_pinned_is_what_a_bundle_is_made_over);
    tcase_add_test(tests, a_user_the_image_does_not_know_is_refused);
    tcase_add_loop_test(tests, what_is_no_image_is_refused_with_a_reason, 0,
                        sizeof bad_images / sizeof bad_images[0]);
    tcase_add_test(tests, an_image_that_holds_the_state_directory_is_refused);
    tcase_add_test(tests, links_of_an_image_are_followed_inside_it_only);
    tcase_add_test(tests, a_limit_that_nobody_enforces_is_refused_by_name);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
