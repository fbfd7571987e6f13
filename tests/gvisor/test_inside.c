/* What a workspace of the gvisor driver sees, may touch and may use, on a real runsc. */

#include "rig.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sbx_record record;
static const char *text;
static sandbox_error error;

START_TEST(nothing_of_the_host_is_seen_but_its_programs)
{
    char marker[64], command[1024];
    strcpy(marker, "/var/tmp/sandbox-marker-XXXXXX");
    int fd = mkstemp(marker);
    ck_assert_int_ge(fd, 0);
    close(fd);
    rig_record(&record, "sees-nothing");
    rig_provision(&record);
    snprintf(command, sizeof command,
             "for p in %s %s /etc/shadow /etc/gshadow /etc/ssh /etc/ssl/private /etc/sudoers "
             "/root/.ssh /var/lib/dpkg /boot /sys/fs/cgroup/memory/libsandbox /proc/1/root%s; do "
             "[ -e $p ] && echo $p; done; "
             "ls -A /root /home/sandbox /opt /srv /mnt /var/log /tmp | grep -v '^/\\|^$'",
             marker, rig_folder, rig_folder);
    rig_inside(&record, command, &text);
    ck_assert_str_eq(text, "");
    rig_inside(&record, "ls /home; cat /etc/hostname; uname -n; wc -l </etc/passwd", &text);
    ck_assert_str_eq(text, "sandbox\nsees-nothing\nsees-nothing\n4\n");
    unlink(marker);
    rig_destroy(&record);
}
END_TEST

START_TEST(there_is_no_network_interface_but_loopback)
{
    rig_record(&record, "no-network");
    rig_provision(&record);
    rig_inside(&record, "tail -n +3 /proc/net/dev | cut -d: -f1", &text);
    ck_assert(strcmp(text, "    lo\n") == 0 || strcmp(text, "lo\n") == 0);
    rig_destroy(&record);
}
END_TEST

/* The shim: coreutils of 2022 and later fail without it in the sentry of 2022. */
START_TEST(usual_programs_work)
{
    rig_record(&record, "programs");
    rig_provision(&record);
    ck_assert_int_eq(rig_inside(&record,
                                "ls -la / >/dev/null && stat /etc/passwd >/dev/null && "
                                "touch /workspace/a && cp /workspace/a /workspace/b && "
                                "id sandbox && date && bash -lc 'echo $PATH'",
                                &text),
                     0);
    ck_assert_ptr_nonnull(strstr(text, "uid=1000(sandbox)"));
    rig_destroy(&record);
}
END_TEST

START_TEST(no_secret_is_in_the_agents_environment_or_command_line)
{
    rig_record(&record, "p127"); /* P127 */
    rig_provision(&record);
    rig_inside(&record,
               "tr '\\0' '\\n' </proc/1/cmdline; "
               "tr '\\0' '\\n' </proc/1/environ 2>/dev/null | grep -v '^PATH=\\|^HOME='",
               &text);
    ck_assert_str_eq(text, "/.sandbox/sandbox-agent\nserve\n--socket\n/run/sandbox/agent.sock\n"
                           "--seal\n/run/sandbox/seal/seal\n"
                           "--init\n");
    rig_inside(&record,
               "setpriv --reuid 1000 --regid 1000 --clear-groups "
               "cat /run/sandbox/agent.sock /proc/1/environ",
               &text);
    ck_assert_ptr_nonnull(strstr(text, "denied"));
    rig_destroy(&record);
}
END_TEST

/* P163: mounts, not rules about names. */
START_TEST(root_inside_cannot_move_uncover_or_change_what_is_protected)
{
    rig_record(&record, "p163");
    rig_provision(&record);
    ck_assert_int_ne(rig_inside(&record, "mv /.sandbox /elsewhere", NULL), 0);
    ck_assert_int_ne(rig_inside(&record, "umount /.sandbox", NULL), 0);
    ck_assert_int_ne(rig_inside(&record, "umount -l /workspace", NULL), 0);
    ck_assert_int_ne(rig_inside(&record, "mount -t tmpfs x /opt", NULL), 0);
    ck_assert_int_ne(rig_inside(&record, "echo x >/.sandbox/sandbox-agent", NULL), 0);
    ck_assert_int_ne(rig_inside(&record, "rm -f /.sandbox/sandbox-agent", NULL), 0);
    struct sbx_channel channel = SBX_CHANNEL;
    ck_assert_int_eq(rig->connect(rig_state, &record, &rig_wait, &channel, NULL), SANDBOX_OK);
    sbx_channel_end(&channel);
    rig_destroy(&record);
}
END_TEST

START_TEST(writes_outside_the_workspace_never_reach_the_host)
{
    rig_record(&record, "writes");
    rig_provision(&record);
    ck_assert_int_eq(rig_inside(&record,
                                "echo x >/usr/sandbox-was-here; rm /usr/bin/env; "
                                "echo x >>/etc/passwd; [ -e /usr/sandbox-was-here ] && "
                                "[ ! -e /usr/bin/env ]",
                                &text),
                     0);
    ck_assert_int_lt(access("/usr/sandbox-was-here", F_OK), 0);
    ck_assert_int_eq(access("/usr/bin/env", X_OK), 0);
    ck_assert_int_eq(rig_number("grep -lx x %s/base/*/etc/passwd | wc -l", rig_folder), 0);
    rig_destroy(&record);
}
END_TEST

START_TEST(links_of_a_guest_lead_nowhere_on_the_host)
{
    rig_record(&record, "links");
    rig_provision(&record);
    char place[64], command[400];
    strcpy(place, "/tmp/sandbox-outside-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(place));
    int at = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(sbx_file_replace(at, "file", "x", 1, 0600, NULL), SANDBOX_OK);
    snprintf(command, sizeof command,
             "ln -s %s /workspace/out; ln -s ../../../../.. /workspace/up; "
             "ln -s %s/file /home/sandbox/f; cat /workspace/out/file /workspace/up/etc/shadow",
             place, place);
    ck_assert_int_ne(rig_inside(&record, command, NULL), 0);
    /* A start over such files, and their removal, touch only the files. */
    ck_assert_int_eq(rig->discard(rig_state, &record, &rig_wait, NULL), SANDBOX_OK);
    rig_provision(&record);
    rig_destroy(&record);
    ck_assert_int_eq(faccessat(at, "file", F_OK, 0), 0);
    close(at);
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, place, NULL), SANDBOX_OK);
}
END_TEST

/* P135 */
START_TEST(names_are_bytes_on_both_sides)
{
    static const char *const names[] = {".env",      "..hidden",   "a b",
                                        "%41",       "\xc3\xa9",   "\xe6\x97\xa5\xe6\x9c\xac",
                                        "new\nline", "bad\xff\xfe"};
    rig_record(&record, "p135");
    rig_provision(&record);
    char place[160], longest[256];
    memset(longest, 'n', 255);
    longest[255] = '\0';
    snprintf(place, sizeof place, "%s/workspaces/%s/files/workspace", rig_folder, record.id);
    int at = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t n = 0; n < 9; n++) {
        const char *name = n == 8 ? longest : names[n];
        char command[400];
        /* runsc hands arguments on as JSON, which holds no byte that is not UTF-8. */
        if (strchr(name, '\xff') != NULL)
            snprintf(command, sizeof command, "echo x >\"/workspace/$(printf 'bad\\377\\376')\"");
        else
            snprintf(command, sizeof command, "echo x >'/workspace/%s'", name);
        ck_assert_int_eq(rig_inside(&record, command, &text), 0);
        struct stat facts;
        ck_assert_msg(fstatat(at, name, &facts, 0) == 0, "'%s' is not on the host", name);
    }
    close(at);
    rig_destroy(&record);
}
END_TEST

START_TEST(an_image_is_used_and_never_written)
{
    char image[64];
    strcpy(image, "/tmp/sandbox-image-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(image));
    ck_assert_int_eq(chmod(image, 0755), 0);
    /* An image of the host's own programs, with a user of its own. */
    rig_number(
        "cd %s && mkdir -p bin etc lib lib64 && cp -L /bin/sh /bin/ls /bin/cat bin/ && "
        "for l in $(ldd /bin/sh /bin/ls /bin/cat | grep -o '/lib[^ ]*' | sort -u); do "
        "mkdir -p .$(dirname $l) && cp -L $l .$l; done; "
        "echo 'root:x:0:0::/root:/bin/sh' >etc/passwd; "
        "echo 'ann:x:777:778::/home/ann:/bin/sh' >>etc/passwd; echo mine >etc/marker; echo 0",
        image);
    long before = rig_number("find %s | sort | cksum", image);
    rig_record(&record, "imaged");
    record.image = sbx_copy(image);
    snprintf(record.user, sizeof record.user, "ann");
    rig_store(&record);
    rig_provision(&record);
    ck_assert_int_eq(rig_inside(&record,
                                "cat /etc/marker; echo changed >/etc/marker; "
                                "echo x >/new; echo y >/home/ann/z; cat /etc/marker",
                                &text),
                     0);
    ck_assert_str_eq(text, "mine\nchanged\n");
    ck_assert_int_eq(rig_number("stat -c %%u %s/workspaces/%s/files/home", rig_folder, record.id),
                     777);
    struct sbx_channel channel = SBX_CHANNEL;
    ck_assert_int_eq(rig->connect(rig_state, &record, &rig_wait, &channel, NULL), SANDBOX_OK);
    sbx_channel_end(&channel);
    rig_destroy(&record);
    ck_assert_int_eq(rig_number("find %s | sort | cksum", image), before);
    ck_assert_int_eq(rig_number("grep -c mine %s/etc/marker", image), 1);
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, image, NULL), SANDBOX_OK);
}
END_TEST

START_TEST(a_memory_hog_ends_and_the_host_does_not)
{
    if (!rig->can(rig_state, SANDBOX_CAN_LIMIT_MEMORY))
        return;
    rig_record(&record, "memory-hog");
    record.memory_mib = 200;
    rig_store(&record);
    rig_provision(&record);
    /* tail keeps its last line in memory, and this one has no end. */
    ck_assert_int_ne(rig_inside(&record, "tail -n 1 /dev/zero", &text), 0);
    ck_assert_int_gt(rig_number("cat /sys/fs/cgroup/memory/libsandbox/%s/memory.oom_control "
                                "/sys/fs/cgroup/libsandbox/%s/memory.events 2>/dev/null | "
                                "grep 'oom_kill ' | cut -d' ' -f2",
                                record.id, record.id),
                     0);
    /* The kernel ends the sandbox, or under systrap only the process inside that was too large. */
    char detail[160] = "";
    enum sbx_presence presence = rig_presence(&record, detail);
    if (presence == SBX_PRESENCE_STOPPED)
        ck_assert_str_eq(detail, "killed: it used more than its 200 MiB of memory");
    else
        ck_assert_int_eq(rig_inside(&record, "true", NULL), 0);
    rig_destroy(&record);
}
END_TEST

START_TEST(a_processor_hog_is_throttled)
{
    if (!rig->can(rig_state, SANDBOX_CAN_LIMIT_CPU))
        return;
    rig_record(&record, "cpu-hog");
    record.cpu_millis = 250;
    rig_store(&record);
    rig_provision(&record);
    ck_assert_int_eq(rig_number("cat /sys/fs/cgroup/cpu/libsandbox/%s/cpu.cfs_quota_us "
                                "/sys/fs/cgroup/libsandbox/%s/cpu.max 2>/dev/null",
                                record.id, record.id),
                     25000);
    rig_inside(&record, "timeout 1 sh -c 'while :; do :; done'", &text);
    ck_assert_int_gt(rig_number("cat /sys/fs/cgroup/cpu/libsandbox/%s/cpu.stat "
                                "/sys/fs/cgroup/libsandbox/%s/cpu.stat 2>/dev/null | "
                                "grep nr_throttled | cut -d' ' -f2",
                                record.id, record.id),
                     2);
    rig_destroy(&record);
}
END_TEST

START_TEST(a_disk_limit_is_refused_and_leaves_nothing)
{
    ck_assert(!rig->can(rig_state, SANDBOX_CAN_LIMIT_DISK));
    ck_assert(rig->can(rig_state, SANDBOX_CAN_USE_IMAGES));
    ck_assert(rig->can(rig_state, SANDBOX_CAN_LIMIT_PROCESSES));
    rig_record(&record, "disk-limit");
    record.disk_mib = 10;
    rig_store(&record);
    ck_assert_int_eq(rig->provision(rig_state, &record, &rig_wait, record.incarnation, &error),
                     SANDBOX_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.message, "disk_mib"));
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_ABSENT);
    rig_destroy(&record);
}
END_TEST

struct findings {
    struct sbx_findings_sink sink;
    int problems, count;
    char said[8192];
};

static void collect(struct sbx_findings_sink *sink, sandbox_severity severity, const char *subject,
                    const char *words, const char *remedy)
{
    struct findings *findings = (struct findings *)sink;
    size_t used = strlen(findings->said);
    findings->count++;
    findings->problems += severity == SANDBOX_SEVERITY_PROBLEM;
    if (severity == SANDBOX_SEVERITY_PROBLEM)
        ck_assert_int_gt((int)strlen(remedy), 0);
    snprintf(findings->said + used, sizeof findings->said - used, "%d %s: %s (%s)\n", (int)severity,
             subject, words, remedy);
}

START_TEST(the_doctor_finds_this_machine_fit)
{
    struct findings findings = {.sink = {collect}};
    char rest[256];
    snprintf(rest, sizeof rest, "%s?runsc=%s&agent=%s", rig_folder,
             ((struct sbx_gvisor *)rig_state)->settings.runsc, "/bin/true");
    ck_assert_int_eq(rig->examine(rest, &rig_wait, &findings.sink, &error), SANDBOX_OK);
    ck_assert_msg(findings.problems == 0, "%s", findings.said);
    ck_assert_int_gt(findings.count, 6);
    ck_assert_ptr_nonnull(strstr(findings.said, "0 runsc: "));
}
END_TEST

START_TEST(the_doctor_names_what_is_missing_with_its_remedy)
{
    struct findings findings = {.sink = {collect}};
    ck_assert_int_eq(rig->examine("/etc/passwd?runsc=/nowhere&agent=/nowhere", &rig_wait,
                                  &findings.sink, &error),
                     SANDBOX_OK);
    ck_assert_msg(findings.problems == 3, "%s", findings.said);
    ck_assert_ptr_nonnull(strstr(findings.said, "apt-get install runsc"));
    ck_assert_ptr_nonnull(strstr(findings.said, "not a directory"));
    ck_assert_int_eq(rig->examine("?runsk=/x", &rig_wait, &findings.sink, &error), SANDBOX_INVALID);
}
END_TEST

START_TEST(without_root_the_driver_says_that_it_needs_it)
{
    pid_t child = fork();
    if (child == 0) {
        struct findings findings = {.sink = {collect}};
        void *state = NULL;
        if (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
            _exit(1);
        if (rig->open("/tmp/never", &rig_wait, &state, &error) != SANDBOX_DENIED ||
            strcmp(error.reason, "needs-root") != 0)
            _exit(2);
        if (rig->examine("/tmp/never", &rig_wait, &findings.sink, &error) != SANDBOX_OK ||
            strstr(findings.said, "2 root: ") == NULL || strstr(findings.said, "sudo") == NULL)
            _exit(3);
        _exit(0);
    }
    int how = -1;
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert_int_eq(how, 0);
}
END_TEST

START_TEST(a_state_directory_that_others_can_write_is_refused)
{
    char place[64], rest[200];
    strcpy(place, "/tmp/sandbox-unsafe-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(place));
    ck_assert_int_eq(chmod(place, 0777), 0);
    snprintf(rest, sizeof rest, "%s?runsc=/bin/true", place);
    void *state = NULL;
    ck_assert_int_eq(rig->open(rest, &rig_wait, &state, &error), SANDBOX_DENIED);
    ck_assert_str_eq(error.reason, "unsafe-state-directory");
    ck_assert_int_eq(rmdir(place), 0); /* nothing was made in it */
}
END_TEST

int main(void)
{
    if (!rig_begin())
        return 77;
    Suite *suite = suite_create("inside gvisor");
    TCase *tests = tcase_create("inside");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, nothing_of_the_host_is_seen_but_its_programs);
    tcase_add_test(tests, there_is_no_network_interface_but_loopback);
    tcase_add_test(tests, usual_programs_work);
    tcase_add_test(tests, no_secret_is_in_the_agents_environment_or_command_line);
    tcase_add_test(tests, root_inside_cannot_move_uncover_or_change_what_is_protected);
    tcase_add_test(tests, writes_outside_the_workspace_never_reach_the_host);
    tcase_add_test(tests, links_of_a_guest_lead_nowhere_on_the_host);
    tcase_add_test(tests, names_are_bytes_on_both_sides);
    tcase_add_test(tests, an_image_is_used_and_never_written);
    tcase_add_test(tests, a_memory_hog_ends_and_the_host_does_not);
    tcase_add_test(tests, a_processor_hog_is_throttled);
    tcase_add_test(tests, a_disk_limit_is_refused_and_leaves_nothing);
    tcase_add_test(tests, the_doctor_finds_this_machine_fit);
    tcase_add_test(tests, the_doctor_names_what_is_missing_with_its_remedy);
    tcase_add_test(tests, without_root_the_driver_says_that_it_needs_it);
    tcase_add_test(tests, a_state_directory_that_others_can_write_is_refused);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_end();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
