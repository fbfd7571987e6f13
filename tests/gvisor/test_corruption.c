/*
 * Snapshots that were damaged, cut, swapped or forged: whatever it is, a look at the snapshot says
 * so, a resume refuses before runsc is asked, nothing else is lost, and once the damage is undone
 * the resume works. P019, P172. SANDBOX_TEST_COUNT says how many bits are turned.
 */

#include "scene.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 256
#define BITS      100 /* turned, where nobody asks for more */

static sandbox_process *counter;
static unsigned long counted;
static char older[40], newer[40]; /* snapshots; the newer one is the recovery point */

struct part {
    char path[512];
    off_t size;
};

static struct part parts[FILES_MAX];
static size_t part_count;

static void set_up(void)
{
    scene_open("damaged");
    counter = scene_count();
    counted = scene_read_count(counter, 0, 3);
    scene_run("mkdir -p a/b; echo one >a/one; ln a/one a/b/two; ln -s one a/link; : >a/empty; "
              "echo mine >~/mine; head -c 9M /dev/urandom >a/large");
    memcpy(older, scene_suspend(SANDBOX_KEEP_MEMORY).snapshot, sizeof older);
    scene_resume(NULL);
    scene_put("a/one", "two\n");
    memcpy(newer, scene_suspend(SANDBOX_KEEP_MEMORY).snapshot, sizeof newer);
    scene_shell("cp -a snapshots kept");
}

/* Undone, it is what it was, in memory and files. */
static void tear_down(void)
{
    scene_shell("rm -rf kept");
    sandbox_resume_result woke = scene_resume(NULL);
    ck_assert_str_eq(woke.snapshot, newer);
    ck_assert_int_eq(woke.kept, SANDBOX_KEEP_MEMORY);
    scene_read_count(counter, counted, 5);
    scene_require_file("a/one", "two\n");
    sandbox_process_free(counter);
    scene_close();
}

static void mend(void)
{
    scene_shell("rm -rf snapshots && cp -a kept snapshots");
}

static sandbox_verdict look(const char *snapshot, char evidence[240])
{
    sandbox_verification seen = {SANDBOX_VERIFICATION};
    good(sandbox_snapshot_verify(workspace, snapshot, NULL, &seen, &error));
    snprintf(evidence, 240, "%s", seen.evidence);
    return seen.verdict;
}

static void require_bad(const char *snapshot, const char *what)
{
    char evidence[240];
    sandbox_verdict verdict = look(snapshot, evidence);
    ck_assert_msg(verdict == SANDBOX_VERDICT_DAMAGED || verdict == SANDBOX_VERDICT_MISSING,
                  "%s: %s", what, sandbox_verdict_name(verdict));
    ck_assert_str_ne(evidence, "");
}

static void require_intact(const char *snapshot)
{
    char evidence[240];
    sandbox_verdict verdict = look(snapshot, evidence);
    ck_assert_msg(verdict == SANDBOX_VERDICT_INTACT, "%s", evidence);
}

/* runsc was not asked, the record is as it was, and so is the other snapshot. */
static void require_refused(const char *what)
{
    require_bad(newer, what);
    sandbox_status status = sandbox_workspace_resume(workspace, NULL, NULL, NULL, &error);
    ck_assert_msg(status == SANDBOX_NOT_RESTORED, "%s: %d %s", what, (int)status, error.message);
    ck_assert_msg(strcmp(error.reason, "snapshot-damaged") == 0 ||
                      strcmp(error.reason, "snapshot-missing") == 0,
                  "%s: %s", what, error.reason);
    ck_assert_int_eq(scene_state(), SANDBOX_STATE_BLOCKED);
    ck_assert_int_eq(scene_processes(), 0);
    ck_assert_int_eq(access(scene_host("runsc.log"), F_OK), -1);
    ck_assert_int_eq(access(scene_host("bundle"), F_OK), -1);
    ck_assert_int_eq(scene_number("ls runsc | wc -l"), 0);
    sandbox_snapshot_list *list = NULL;
    good(sandbox_snapshot_list_all(workspace, NULL, &list, &error));
    ck_assert_uint_eq(sandbox_snapshot_list_count(list), 2);
    ck_assert_str_eq(sandbox_snapshot_list_at(list, 0)->id, newer);
    ck_assert(sandbox_snapshot_list_at(list, 0)->is_recovery_point);
    ck_assert_str_eq(sandbox_snapshot_list_at(list, 1)->id, older);
    sandbox_snapshot_list_free(list);
}

static void list_parts(void)
{
    char command[600];
    snprintf(command, sizeof command, "find %ssnapshots/%s -type f -size +0 -printf '%%s %%p\\n'",
             scene_host(""), newer);
    FILE *list = popen(command, "re");
    ck_assert_ptr_nonnull(list);
    part_count = 0;
    while (part_count < FILES_MAX &&
           fscanf(list, "%ld %511s", &parts[part_count].size, parts[part_count].path) == 2)
        part_count++;
    ck_assert_int_eq(pclose(list), 0);
    ck_assert_uint_ge(part_count, 8);
}

/* One bit; the file's times are put back, since a disk that rots changes none. */
static void turn(const struct part *part, off_t at, unsigned bit)
{
    struct stat facts;
    uint8_t byte;
    int fd = open(part->path, O_RDWR | O_CLOEXEC);
    ck_assert_msg(fd >= 0 && fstat(fd, &facts) == 0, "%s", part->path);
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= (uint8_t)(1u << bit);
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    ck_assert_int_eq(futimens(fd, (struct timespec[2]){facts.st_atim, facts.st_mtim}), 0);
    close(fd);
}

static void turn_and_look(const struct part *part, off_t at, unsigned bit, bool and_resume)
{
    char what[600];
    snprintf(what, sizeof what, "bit %u of byte %ld of %s", bit, (long)at, part->path);
    turn(part, at, bit);
    if (and_resume)
        require_refused(what);
    else
        require_bad(newer, what);
    turn(part, at, bit);
}

START_TEST(a_bit_anywhere_is_seen)
{
    unsigned long count = contract_count(BITS);
    unsigned seed = (unsigned)getpid();
    printf("%lu bits, seed %u\n", count, seed);
    srandom(seed);
    list_parts();
    for (size_t n = 0; n < part_count; n++) {
        turn_and_look(&parts[n], 0, 0, true);
        turn_and_look(&parts[n], parts[n].size - 1, 7, false);
    }
    require_intact(newer);
    for (unsigned long n = 0; n < count; n++) {
        const struct part *part = &parts[(size_t)random() % part_count];
        turn_and_look(part, (off_t)random() % part->size, (unsigned)random() % 8, false);
    }
    require_intact(newer);
    require_intact(older);
}
END_TEST

START_TEST(what_is_cut_gone_or_too_much_is_seen)
{
    static const char *const harms[] = {
        "truncate -s -1 image/checkpoint.img", "truncate -s -1 config.json",
        "truncate -s -1 manifest.json",        "truncate -s -1 files.list",
        "truncate -s -1 files/workspace/a/large",
        "echo >>image/checkpoint.img",         "echo >>files/workspace/a/one",
        "touch extra",                         "touch image/extra",
        "touch files/extra",                   "touch files/home/extra",
        "mkdir files/workspace/extra",         "mkdir extra",
        "rm image/checkpoint.img",             "rm config.json",
        "rm manifest.json",                    "rm files.list",
        "rm files/workspace/a/one",            "rm files/workspace/a/link",
        "rm files/workspace/a/empty",          "rmdir files/seal 2>/dev/null || rm -r files/seal",
        "rm -r image",                         "rm -r files",
        "chmod 4755 files/workspace/a/one",    "chown 0 files/home/mine",
        "ln -sfn two files/workspace/a/link",  "mv files/home/mine files/home/mine2",
        "rm files/workspace/a/empty; mkdir files/workspace/a/empty",
        "cp -a files/workspace/a/one x; mv x files/workspace/a/one", /* no second name any more */
        ": >manifest.json",                    "rm -r ../$(basename $PWD)",
        "mv image/checkpoint.img x; ln -s ../x image/checkpoint.img",
    };
    for (size_t n = 0; n < sizeof harms / sizeof harms[0]; n++) {
        scene_shell("cd snapshots/%s && %s", newer, harms[n]);
        require_refused(harms[n]);
        mend();
    }
    require_intact(newer);
}
END_TEST

START_TEST(a_snapshot_that_is_another_one_is_seen)
{
    sandbox_workspace *mine = workspace, *other = NULL;
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "other"};
    char place[512];
    snprintf(place, sizeof place, "%ssnapshots/%s", scene_host(""), newer);
    good(sandbox_workspace_create(client, &options, NULL, &other, &error));
    workspace = other;
    scene_put("whose", "the other's");
    char others[40];
    memcpy(others, scene_suspend(SANDBOX_KEEP_MEMORY).snapshot, sizeof others);
    for (int n = 0; n < 2; n++) {
        scene_shell("mv %s away && mv snapshots/%s %s && mv away snapshots/%s", place, others,
                    place, others);
        if (n == 1)
            break;
        require_bad(others, "swapped");
        bad(SANDBOX_NOT_RESTORED, sandbox_workspace_resume(workspace, NULL, NULL, NULL, &error));
        workspace = mine;
        require_refused("swapped");
        workspace = other;
    }
    sandbox_resume_result woke = scene_resume(NULL);
    ck_assert_str_eq(woke.snapshot, others);
    scene_require_file("whose", "the other's");
    good(sandbox_workspace_delete(other, NULL, &error));
    sandbox_workspace_free(other);
    workspace = mine;

    scene_shell("rm -r snapshots/%s && cp -a snapshots/%s snapshots/%s", newer, older, newer);
    require_refused("the older one by the newer one's name");
    scene_shell("cd snapshots/%s && sed -i 's/%s/%s/' manifest.json", newer, older, newer);
    require_refused("the older one by the newer one's name, and it says so");
    /* All that tells them apart in it: still nothing that was recorded. */
    scene_shell("cd snapshots/%s && "
                "for f in snapshot run seal epoch created_ms; do "
                "v=$(grep -o \"\\\"$f[a-z_]*\\\":[^,}]*\" ../../kept/%s/manifest.json | head -n 1);"
                "[ -z \"$v\" ] || sed -i \"s/${v%%%%:*}:[^,}]*/$v/\" manifest.json; done",
                newer, newer);
    require_refused("the older one, with all that names it adapted");
    mend();
}
END_TEST

START_TEST(a_manifest_that_was_edited_is_seen)
{
    static const char *const edits[] = {
        "s/\"epoch\":[0-9]*/\"epoch\":99/",
        /* Another digit than whichever is there. */
        "s/\"workspace\":\"f/\"workspace\":\"e/;t;s/\"workspace\":\"./\"workspace\":\"f/",
        "s/ptrace\\|systrap/kvm/",
        "s/,/, /",
        "s/}$/,\"more\":1}/",
        "s/\"version\"/\"versions\"/",
    };
    for (size_t n = 0; n < sizeof edits / sizeof edits[0]; n++) {
        scene_shell("cd snapshots/%s && cp manifest.json x && sed -i '%s' manifest.json && "
                    "! cmp -s x manifest.json && rm x",
                    newer, edits[n]);
        require_refused(edits[n]);
        mend();
    }
    /* A file is changed, and all that depends on it, as somebody would who knows how. */
    scene_shell("cd snapshots/%s && chmod 755 files/workspace/a/large && "
                "was=$(sha256sum <files.list | cut -c1-64) && cp -p files.list x && "
                "sed -i '/ large$/s/^f 0644/f 0755/' files.list && ! cmp -s x files.list && "
                "is=$(sha256sum <files.list | cut -c1-64) && "
                "sed -i s/$was/$is/g manifest.json && grep -q $is manifest.json && rm x",
                newer);
    require_refused("a file, its line, and the list's digest");
    mend();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("damaged snapshots");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 900);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_bit_anywhere_is_seen);
    tcase_add_test(all, what_is_cut_gone_or_too_much_is_seen);
    tcase_add_test(all, a_snapshot_that_is_another_one_is_seen);
    tcase_add_test(all, a_manifest_that_was_edited_is_seen);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    return scene_main(make_suite);
}
