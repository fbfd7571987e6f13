/*
 * The gvisor driver's snapshots on a real runsc: there and back, every kind of damage, takers that
 * die, disks that are full. Time goes on inside by a counter in memory, which nothing but its own
 * memory can bring back.
 */

#include "drivers/gvisor/snapshot.h"
#include "rig.h"
#include "util/child.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sbx_record record;
static struct sbx_snapshot snapshot;
static struct sbx_verdict verdict;
static struct sbx_restored restored;
static const char *text;
static sandbox_error error;

#define good(call)                                                                                 \
    do {                                                                                           \
        sandbox_status status_ = (call);                                                           \
        ck_assert_msg(status_ == SANDBOX_OK, "%s: %s", #call, error.message);                      \
    } while (0)
#define bad(expected, why, call)                                                                   \
    do {                                                                                           \
        sandbox_status status_ = (call);                                                           \
        ck_assert_msg(status_ == (expected) && strcmp(error.reason, why) == 0, "%s: %d %s: %s",    \
                      #call, (int)status_, error.reason, error.message);                           \
    } while (0)

/* As core does before it takes one. */
static void draw(struct sbx_snapshot *drawn, sandbox_keep kind)
{
    *drawn = (struct sbx_snapshot){.kind = kind, .key_id = 1, .epoch = record.epoch};
    ck_assert(sbx_id_fresh(drawn->id));
    memcpy(drawn->run, record.run, sizeof drawn->run);
    memcpy(drawn->incarnation, record.incarnation, sizeof drawn->incarnation);
    memset(drawn->seal_hash, 'a', sizeof drawn->seal_hash - 1);
}

static void take(sandbox_keep kind)
{
    draw(&snapshot, kind);
    good(rig->snapshot_prepare(rig_state, &record, &snapshot, &rig_wait, &error));
    good(rig->snapshot_take(rig_state, &record, &snapshot, NULL, &rig_wait, &error));
    ck_assert_uint_eq(strlen(snapshot.digest), 64);
    ck_assert_uint_gt(snapshot.bytes, 0);
}

static sandbox_verdict look(void)
{
    good(rig->snapshot_verify(rig_state, &record, &snapshot, NULL, &rig_wait, &verdict, &error));
    return verdict.verdict;
}

static void expect_intact(void)
{
    ck_assert_msg(look() == SANDBOX_VERDICT_INTACT, "%s", verdict.evidence);
    ck_assert_str_eq(verdict.evidence, "");
    ck_assert_uint_ge(verdict.bytes, snapshot.bytes);
}

static void release(void)
{
    for (int n = 0; n < 2; n++) /* what is gone is success */
        good(rig->release(rig_state, &record, &rig_wait, &error));
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_ABSENT);
    ck_assert_int_eq(rig_processes(record.id), 0);
}

static void bring_back(sandbox_keep keep)
{
    char before[SBX_INCARNATION_TEXT];
    memcpy(before, record.incarnation, sizeof before);
    good(rig->restore(rig_state, &record, &snapshot, keep, NULL, &rig_wait, &restored, &error));
    ck_assert_str_ne(restored.incarnation, before);
    ck_assert_int_eq(restored.evidence, SBX_EVIDENCE_NONE);
    memcpy(record.incarnation, restored.incarnation, sizeof record.incarnation);
    rig_store(&record);
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_RUNNING);
    struct sbx_channel channel = SBX_CHANNEL;
    good(rig->connect(rig_state, &record, &rig_wait, &channel, &error));
    good(sbx_wait_descriptor(&rig_wait, channel.read_fd, POLLIN, &error));
    sbx_channel_end(&channel);
}

static void begin_workspace(const char *name)
{
    rig_record(&record, name);
    rig_provision(&record);
}

/* A process that counts in its memory, and some files. */
static void begin_counter(void)
{
    ck_assert_int_eq(
        rig_inside(&record,
                   "cd /workspace && mkdir -p a/b && echo one >a/one && ln a/one a/b/two && "
                   "ln -s /nowhere a/link && echo mine >/home/sandbox/mine && "
                   "dd if=/dev/urandom of=a/large bs=1M count=9 2>/dev/null && "
                   "(setsid sh -c 'exec 3>/tmp/counter; n=0; while :; do n=$((n+1)); "
                   "echo $n >/tmp/next; mv /tmp/next /tmp/counter; sleep 0.02; done' "
                   "</dev/null >/dev/null 2>&1 &) && echo in-memory >/tmp/secret && "
                   "cp /tmp/secret /opt/overlaid",
                   &text),
        0);
}

static long count(void)
{
    return rig_inside(&record, "cat /tmp/counter", &text) == 0 ? strtol(text, NULL, 10) : 0;
}

static bool counts_on(void *from)
{
    return count() > *(long *)from + 3;
}

/*
 * What was in memory is there, and the counter goes on. A newer runsc ends at a restore what came
 * in by its own exec, as the counter did (and as nothing does that the agent starts).
 */
static void expect_memory(long before)
{
    struct sbx_gvisor_runsc runsc;
    good(sbx_gvisor_abilities(rig_state, &rig_wait, &runsc, &error));
    ck_assert_int_eq(rig_inside(&record, "cat /tmp/secret /opt/overlaid", &text), 0);
    ck_assert_str_eq(text, "in-memory\nin-memory\n");
    if (runsc.needs_shim)
        ck_assert(rig_await(counts_on, &before));
    ck_assert_int_ge(count(), before);
    ck_assert_int_lt(count(), before + 5000);
}

static char *host(const char *below)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/workspaces/%s/%s", rig_folder, record.id, below);
    return path;
}

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void shell(const char *format, ...)
{
    char command[1024] = "exec 2>&1; cd ";
    size_t used = strlen(command);
    used += (size_t)snprintf(command + used, sizeof command - used, "%s/workspaces/%s && ",
                             rig_folder, record.id);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - used, format, arguments);
    va_end(arguments);
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    SBX_ON_EXIT(sbx_free_text) char *said = NULL;
    int code = -1;
    good(sbx_child_run(&options, &rig_wait, &code, &said, &error));
    ck_assert_msg(code == 0, "%s: %s", command, said);
}

START_TEST(memory_and_files_come_back_in_another_instance)
{
    begin_workspace("round-trip");
    begin_counter();
    long before = 0;
    ck_assert(rig_await(counts_on, &before));
    before = count();
    take(SANDBOX_KEEP_MEMORY);
    expect_intact();
    release();
    expect_intact();
    /* Whoever wrote to the live files meanwhile does not meet what was suspended. */
    shell("echo changed >files/workspace/a/one && touch files/home/new");
    for (int n = 0; n < 2; n++) {
        bring_back(SANDBOX_KEEP_MEMORY);
        expect_memory(before);
        ck_assert_int_eq(rig_inside(&record,
                                    "cat /tmp/secret /workspace/a/one /workspace/a/b/two "
                                    "/home/sandbox/mine && ls -A /home/sandbox && "
                                    "stat -c %h /workspace/a/one && echo later >/workspace/later",
                                    &text),
                         0);
        ck_assert_str_eq(text, "in-memory\none\none\nmine\nmine\n2\n");
        expect_intact();
        release();
    }
    ck_assert_int_eq(rig_number("find %s -name '*.new*' -o -name '*.links' -o -name finished "
                                "-o -name begun.json | wc -l",
                                host("")),
                     0);
    rig_destroy(&record);
}
END_TEST

START_TEST(each_snapshot_stands_alone)
{
    begin_workspace("alone");
    begin_counter();
    struct sbx_snapshot first;
    take(SANDBOX_KEEP_MEMORY);
    first = snapshot;
    release();
    bring_back(SANDBOX_KEEP_MEMORY);
    ck_assert_int_eq(
        rig_inside(&record, "echo second >/tmp/secret; echo 2 >/workspace/a/one", &text), 0);
    record.epoch++;
    rig_store(&record);
    take(SANDBOX_KEEP_MEMORY);
    release();
    expect_intact();
    struct sbx_snapshot second = snapshot;
    snapshot = first;
    expect_intact();
    bring_back(SANDBOX_KEEP_MEMORY);
    ck_assert_int_eq(rig_inside(&record, "cat /tmp/secret /workspace/a/one", &text), 0);
    ck_assert_str_eq(text, "in-memory\none\n");
    good(rig->snapshot_remove(rig_state, &record, second.id, &rig_wait, &error));
    good(rig->snapshot_remove(rig_state, &record, second.id, &rig_wait, &error));
    release();
    expect_intact();
    snapshot = second;
    ck_assert_int_eq(look(), SANDBOX_VERDICT_MISSING);
    bad(SANDBOX_NOT_RESTORED, "snapshot-missing",
        rig->restore(rig_state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait, &restored,
                     &error));
    ck_assert_int_eq(rig_number("ls %s | wc -l", host("snapshots")), 1);
    rig_destroy(&record);
    ck_assert_int_eq(rig_number("ls %s/workspaces | wc -l", rig_folder), 0);
}
END_TEST

START_TEST(files_come_back_without_memory)
{
    begin_workspace("files-only");
    begin_counter();
    shell("echo sealed >files/seal/kept && chmod 600 files/seal/kept");
    take(SANDBOX_KEEP_FILES);
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_RUNNING); /* until its release */
    expect_intact();
    release();
    shell("rm -rf files");
    bad(SANDBOX_NOT_RESTORED, "only-files",
        rig->restore(rig_state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait, &restored,
                     &error));
    bring_back(SANDBOX_KEEP_FILES);
    ck_assert_int_eq(rig_inside(&record,
                                "cat /workspace/a/b/two /home/sandbox/mine /run/sandbox/seal/kept; "
                                "stat -c '%a %u' /run/sandbox/seal /run/sandbox/seal/kept "
                                "/workspace/a; ls /tmp",
                                &text),
                     0);
    ck_assert_str_eq(text, "one\nmine\nsealed\n700 0\n600 0\n755 0\n");
    release();
    /* Of a workspace that has no instance. */
    shell("echo lone >files/workspace/lone");
    draw(&snapshot, SANDBOX_KEEP_FILES);
    snapshot.seal_hash[0] = '\0';
    good(rig->snapshot_prepare(rig_state, &record, &snapshot, &rig_wait, &error));
    good(rig->snapshot_take(rig_state, &record, &snapshot, NULL, &rig_wait, &error));
    expect_intact();
    shell("rm files/workspace/lone");
    bring_back(SANDBOX_KEEP_FILES);
    ck_assert_int_eq(rig_inside(&record, "cat /workspace/lone", &text), 0);
    rig_destroy(&record);
}
END_TEST

START_TEST(the_files_of_a_memory_snapshot_can_be_had_alone)
{
    begin_workspace("files-of-memory");
    begin_counter();
    take(SANDBOX_KEEP_MEMORY);
    release();
    bring_back(SANDBOX_KEEP_FILES);
    ck_assert_int_eq(rig_inside(&record, "cat /workspace/a/one; ls /tmp", &text), 0);
    ck_assert_str_eq(text, "one\n");
    rig_destroy(&record);
}
END_TEST

static void expect_refused(const char *what)
{
    sandbox_verdict found = look();
    ck_assert_msg(found == SANDBOX_VERDICT_DAMAGED || found == SANDBOX_VERDICT_MISSING,
                  "%s: verdict %d, %s", what, found, verdict.evidence);
    ck_assert_str_ne(verdict.evidence, "");
}

static void flip(const char *path, off_t at)
{
    struct stat facts;
    uint8_t byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_msg(fd >= 0 && fstat(fd, &facts) == 0, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    const struct timespec times[2] = {facts.st_atim, facts.st_mtim};
    ck_assert_int_eq(futimens(fd, times), 0);
    close(fd);
}

/* P: issue "corruption": one bit anywhere, and every other harm. */
START_TEST(every_damage_is_seen_and_refused_before_runsc)
{
    begin_workspace("damaged");
    begin_counter();
    take(SANDBOX_KEEP_MEMORY);
    release();
    char folder[600], path[1200], list[700];
    snprintf(folder, sizeof folder, "%s/%s", host("snapshots"), snapshot.id);
    snprintf(list, sizeof list, "%s/../list", folder);
    shell("find %s -type f -size +0 >%s", folder, list);
    FILE *paths = fopen(list, "re");
    ck_assert_ptr_nonnull(paths);
    unsigned seen = 0;
    while (fgets(path, sizeof path, paths) != NULL) {
        path[strcspn(path, "\n")] = '\0';
        struct stat facts;
        ck_assert_int_eq(stat(path, &facts), 0);
        const off_t places[] = {0, facts.st_size / 2, facts.st_size - 1};
        for (size_t n = 0; n < 3; n++) {
            flip(path, places[n]);
            expect_refused(path);
            flip(path, places[n]);
        }
        seen++;
    }
    fclose(paths);
    ck_assert_int_eq(unlink(list), 0);
    ck_assert_uint_ge(seen, 7);
    expect_intact();

    static const char *const harms[] = {
        "truncate -s -1 image/checkpoint.img",
        "echo >>image/checkpoint.img",
        "rm image/checkpoint.img",
        "rm -r image",
        "rm manifest.json",
        "rm config.json",
        "rm files.list",
        "rm -r files",
        "rm files/workspace/a/one",
        "touch files/workspace/extra",
        "touch extra",
        "touch image/extra",
        "mkdir image/extra",
        "chmod 777 files/workspace/a/one",
        "touch files/home/mine",
        "truncate -s 0 manifest.json",
        "ln -sf /etc/passwd files/workspace/a/link",
        "rm files/workspace/a/one && ln -s large files/workspace/a/one",
        "mv image/checkpoint.img image/other.img",
        "sed -i 's/\"epoch\":1/\"epoch\":2/' manifest.json",
        "rm config.json && ln -s ../../bundle config.json",
        "truncate -s 9M files/workspace/a/one",
    };
    shell("cp -a %s kept", folder);
    for (size_t n = 0; n < sizeof harms / sizeof harms[0]; n++) {
        shell("cd %s && if [ -e image/checkpoint.img ]; then %s; fi", folder, harms[n]);
        expect_refused(harms[n]);
        shell("rm -rf %s && cp -a kept %s", folder, folder);
        expect_intact();
    }
    /* What restore itself looks at is refused there, whatever the caller did before. */
    flip(strcat(strcpy(path, folder), "/manifest.json"), 20);
    bad(SANDBOX_NOT_RESTORED, "snapshot-damaged",
        rig->restore(rig_state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait, &restored,
                     &error));
    flip(path, 20);
    ck_assert_int_eq(rig_processes(record.id), 0);
    bring_back(SANDBOX_KEEP_MEMORY);
    ck_assert_int_eq(rig_inside(&record, "cat /tmp/secret", &text), 0);
    rig_destroy(&record);
}
END_TEST

START_TEST(swapped_snapshots_are_told_apart)
{
    begin_workspace("swap-a");
    take(SANDBOX_KEEP_MEMORY);
    release();
    struct sbx_record other = record;
    struct sbx_snapshot others = snapshot;
    char place[600];
    snprintf(place, sizeof place, "%s/%s", host("snapshots"), snapshot.id);
    begin_workspace("swap-b");
    take(SANDBOX_KEEP_MEMORY);
    release();
    shell("mv snapshots/%s away && mv %s snapshots/%s && mv away %s", snapshot.id, place,
          snapshot.id, place);
    expect_refused("swapped");
    ck_assert_ptr_nonnull(strstr(verdict.evidence, "manifest.json"));
    bad(SANDBOX_NOT_RESTORED, "snapshot-damaged",
        rig->restore(rig_state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait, &restored,
                     &error));
    shell("mv snapshots/%s away && mv %s snapshots/%s && mv away %s", snapshot.id, place,
          snapshot.id, place);
    expect_intact();
    bring_back(SANDBOX_KEEP_MEMORY);
    rig_destroy(&record);
    record = other;
    snapshot = others;
    expect_intact();
    rig_destroy(&record);
}
END_TEST

START_TEST(an_open_channel_holds_a_checkpoint_off)
{
    begin_workspace("channel");
    draw(&snapshot, SANDBOX_KEEP_MEMORY);
    struct sbx_channel channel = SBX_CHANNEL;
    good(rig->connect(rig_state, &record, &rig_wait, &channel, &error));
    bad(SANDBOX_BUSY, "channel-open",
        rig->snapshot_take(rig_state, &record, &snapshot, NULL, &rig_wait, &error));
    sbx_channel_end(&channel);
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_RUNNING);
    ck_assert_int_eq(rig_number("ls %s | wc -l", host("snapshots")), 0);

    /* And so does an exec that is none of ours, which knows no lock. */
    SBX_ON_EXIT(sbx_free_text) char *root = sbx_format("--root=%s/runsc", rig_folder);
    const struct sbx_gvisor *driver = rig_state;
    const char *argv[] = {driver->settings.runsc, root, "exec", record.id, "sleep", "1000", NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    SBX_ON_EXIT(sbx_child_end) struct sbx_child child = SBX_CHILD;
    good(sbx_child_start(&child, &options, &error));
    bad(SANDBOX_BUSY, "channel-open",
        rig->snapshot_take(rig_state, &record, &snapshot, NULL, &rig_wait, &error));
    sbx_child_end(&child);
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_RUNNING);
    ck_assert_int_eq(rig_inside(&record, "pkill sleep; true", &text), 0);
    take(SANDBOX_KEEP_MEMORY);
    release();
    bring_back(SANDBOX_KEEP_MEMORY);
    rig_destroy(&record);
}
END_TEST

START_TEST(what_a_dead_taker_left_is_in_nobodys_way)
{
    begin_workspace("leftovers");
    draw(&snapshot, SANDBOX_KEEP_MEMORY);
    shell("mkdir -p snapshots/%s.new/image && echo x >snapshots/%s.new/image/checkpoint.img && "
          "echo x >snapshots/%s.new/finished",
          snapshot.id, snapshot.id, snapshot.id);
    bad(SANDBOX_NOT_FOUND, "no-such-snapshot",
        rig->snapshot_adopt(rig_state, &record, &snapshot, &rig_wait, &error));
    ck_assert_int_eq(rig_number("ls %s | wc -l", host("snapshots")), 0);
    shell("mkdir -p snapshots/%s.new/image && echo x >snapshots/%s.new/image/checkpoint.img",
          snapshot.id, snapshot.id);
    good(rig->snapshot_take(rig_state, &record, &snapshot, NULL, &rig_wait, &error));
    bad(SANDBOX_EXISTS, "snapshot-exists",
        rig->snapshot_take(rig_state, &record, &snapshot, NULL, &rig_wait, &error));
    struct sbx_snapshot adopted = snapshot;
    adopted.digest[0] = '\0';
    good(rig->snapshot_adopt(rig_state, &record, &adopted, &rig_wait, &error));
    ck_assert_str_eq(adopted.digest, snapshot.digest);
    ck_assert_uint_eq(adopted.bytes, snapshot.bytes);
    release();
    bring_back(SANDBOX_KEEP_MEMORY);
    rig_destroy(&record);
}
END_TEST

START_TEST(an_actor_whose_epoch_is_stale_changes_nothing)
{
    begin_workspace("stale");
    take(SANDBOX_KEEP_FILES);
    struct sbx_record stale = record;
    struct sbx_snapshot fresh;
    record.epoch++;
    rig_store(&record);
    draw(&fresh, SANDBOX_KEEP_MEMORY);
    bad(SANDBOX_CONFLICT, "stale-epoch",
        rig->snapshot_take(rig_state, &stale, &fresh, NULL, &rig_wait, &error));
    bad(SANDBOX_CONFLICT, "stale-epoch",
        rig->snapshot_adopt(rig_state, &stale, &fresh, &rig_wait, &error));
    bad(SANDBOX_CONFLICT, "stale-epoch", rig->release(rig_state, &stale, &rig_wait, &error));
    bad(SANDBOX_CONFLICT, "stale-epoch",
        rig->snapshot_remove(rig_state, &stale, snapshot.id, &rig_wait, &error));
    bad(SANDBOX_CONFLICT, "stale-epoch",
        rig->restore(rig_state, &stale, &snapshot, SANDBOX_KEEP_FILES, NULL, &rig_wait, &restored,
                     &error));
    bad(SANDBOX_CONFLICT, "instance-exists",
        rig->restore(rig_state, &record, &snapshot, SANDBOX_KEEP_FILES, NULL, &rig_wait, &restored,
                     &error));
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_RUNNING);
    expect_intact();
    rig_destroy(&record);
}
END_TEST

/* P196 */
START_TEST(failing_restores_leave_no_process)
{
    begin_workspace("never-starts");
    begin_counter();
    take(SANDBOX_KEEP_MEMORY);
    release();
    /* An image that runsc refuses, and that the manifest agrees with. */
    char path[600];
    snprintf(path, sizeof path, "%s/%s/image/checkpoint.img", host("snapshots"), snapshot.id);
    flip(path, 3);
    int directory = -1;
    struct sbx_gvisor_manifest manifest = {0};
    good(sbx_gvisor_snapshot_open(rig_state, &record, &snapshot, &directory, &manifest, &error));
    struct sbx_crew *crew = sbx_crew_new();
    good(sbx_gvisor_parts_digest(directory, &manifest, false, crew, NULL, &rig_wait, NULL, &error));
    good(sbx_gvisor_manifest_write(directory, "manifest.json", &manifest, snapshot.digest, &error));
    sbx_crew_free(crew);
    sbx_gvisor_manifest_clear(&manifest);
    close(directory);
    expect_intact();
    for (int n = 0; n < 20; n++) {
        ck_assert_int_ne(rig->restore(rig_state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL,
                                      &rig_wait, &restored, &error),
                         SANDBOX_OK);
        ck_assert_int_eq(rig_processes(record.id), 0);
        ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_ABSENT);
    }
    ck_assert_str_eq(error.reason, "no-start");
    expect_intact();
    ck_assert_int_eq(rig_number("ls %s | wc -l", host("")), 2);
    bring_back(SANDBOX_KEEP_FILES);
    rig_destroy(&record);
}
END_TEST

START_TEST(another_runtime_is_refused)
{
    begin_workspace("runtime");
    take(SANDBOX_KEEP_MEMORY);
    release();
    int directory = -1;
    struct sbx_gvisor_manifest manifest = {0};
    good(sbx_gvisor_snapshot_open(rig_state, &record, &snapshot, &directory, &manifest, &error));
    char *kept = manifest.features;
    manifest.features = sbx_format("%s no_such_feature", kept);
    good(sbx_gvisor_manifest_write(directory, "manifest.json", &manifest, snapshot.digest, &error));
    bad(SANDBOX_NOT_RESTORED, "runtime-differs",
        rig->restore(rig_state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait, &restored,
                     &error));
    ck_assert_ptr_nonnull(strstr(error.message, "no_such_feature"));
    free(manifest.features);
    manifest.features = kept;
    char platform[16];
    memcpy(platform, manifest.platform, sizeof platform);
    snprintf(manifest.platform, sizeof manifest.platform, "abacus");
    good(sbx_gvisor_manifest_write(directory, "manifest.json", &manifest, snapshot.digest, &error));
    bad(SANDBOX_NOT_RESTORED, "runtime-differs",
        rig->restore(rig_state, &record, &snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait, &restored,
                     &error));
    memcpy(manifest.platform, platform, sizeof platform);
    good(sbx_gvisor_manifest_write(directory, "manifest.json", &manifest, snapshot.digest, &error));
    bring_back(SANDBOX_KEEP_MEMORY);
    sbx_gvisor_manifest_clear(&manifest);
    close(directory);
    rig_destroy(&record);
}
END_TEST

static const int moments[] = {0, 1, 2, 4, 10, 30, 60, 100, 150, 220, 300, 500};

static bool has_ended(void *child)
{
    return waitpid(*(pid_t *)child, NULL, WNOHANG) > 0;
}

/* The taker is killed at some moment; what it began is finished, or as if it had not been. */
START_TEST(a_killed_takers_snapshot_is_finished_or_gone)
{
    char name[32];
    snprintf(name, sizeof name, "killed-%d", moments[_i]);
    begin_workspace(name);
    begin_counter();
    long before = count();
    draw(&snapshot, SANDBOX_KEEP_MEMORY);
    sbx_gvisor_ready_forget(rig_state, record.id); /* or the fork would keep it open */
    pid_t taker = fork();
    ck_assert_int_ge(taker, 0);
    if (taker == 0) {
        void *own = NULL;
        char rest[256];
        snprintf(rest, sizeof rest, "%s?runsc=%s", rig_folder,
                 ((struct sbx_gvisor *)rig_state)->settings.runsc);
        if (rig->open(rest, &rig_wait, &own, NULL) == SANDBOX_OK)
            (void)rig->snapshot_take(own, &record, &snapshot, NULL, &rig_wait, NULL);
        _exit(0);
    }
    (void)sbx_wait_pause(&rig_wait, (uint32_t)moments[_i], NULL); /* the moment is what varies */
    kill(taker, SIGKILL);
    ck_assert(rig_await(has_ended, &taker));
    sandbox_status status = rig->snapshot_adopt(rig_state, &record, &snapshot, &rig_wait, &error);
    printf("killed after %d ms: %s\n", moments[_i], status == SANDBOX_OK ? "finished" : "undone");
    if (status == SANDBOX_OK) {
        expect_intact();
        release();
        bring_back(SANDBOX_KEEP_MEMORY);
        expect_memory(before);
    } else {
        ck_assert_msg(status == SANDBOX_NOT_FOUND, "%s", error.message);
        ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_RUNNING);
        ck_assert_int_le(rig_number("ls %s | wc -l", host("snapshots")), 0);
        ck_assert(rig_await(counts_on, &before));
    }
    rig_destroy(&record);
}
END_TEST

/* runsc's own client is killed: what the sandbox writes is not known to be complete. */
START_TEST(a_killed_checkpoint_is_no_snapshot)
{
    begin_workspace("client-killed");
    ck_assert_int_eq(rig_inside(&record, "head -c 200M /dev/urandom >/tmp/much", &text), 0);
    draw(&snapshot, SANDBOX_KEEP_MEMORY);
    sbx_gvisor_ready_forget(rig_state, record.id);
    pid_t killer = fork();
    if (killer == 0) {
        while (rig_number("pid=$(pgrep -f '[r]unsc.* checkpoint .*%s' | tail -n 1); "
                          "[ -n \"$pid\" ] && grep -q '^.*runsc' /proc/$pid/comm && "
                          "kill -9 $pid && echo 1",
                          record.id) != 1)
            continue;
        _exit(0);
    }
    sandbox_status status =
        rig->snapshot_take(rig_state, &record, &snapshot, NULL, &rig_wait, &error);
    kill(killer, SIGKILL);
    ck_assert(rig_await(has_ended, &killer));
    if (status == SANDBOX_OK) {
        printf("runsc was faster than its killer\n");
        expect_intact();
        rig_destroy(&record);
        return;
    }
    ck_assert_str_eq(error.reason, "checkpoint-failed");
    ck_assert_int_eq(rig_number("ls %s | wc -l", host("snapshots")), 0);
    /* Whatever became of the sandbox, it is told now, and stays so. */
    enum sbx_presence presence = rig_presence(&record, NULL);
    ck_assert(presence == SBX_PRESENCE_RUNNING || presence == SBX_PRESENCE_STOPPED);
    if (presence == SBX_PRESENCE_RUNNING)
        ck_assert_int_eq(rig_inside(&record, "true", &text), 0);
    rig_destroy(&record);
}
END_TEST

START_TEST(a_full_disk_is_told_before_and_costs_no_file)
{
    char folder[64];
    snprintf(folder, sizeof folder, "%.50s-small", rig_folder);
    if (mkdir(folder, 0700) != 0 || mount("tmpfs", folder, "tmpfs", 0, "size=320m,mode=700") != 0) {
        printf("not run: it needs a mount: %s\n", strerror(errno));
        rmdir(folder);
        return;
    }
    memcpy(rig_folder, folder, sizeof folder);
    void *outer = rig_state;
    rig_state = rig_open("");
    begin_workspace("small-disk");
    begin_counter();
    ck_assert_int_eq(rig_inside(&record, "head -c 60M /dev/urandom >/tmp/much", &text), 0);
    shell("free=$(df --output=avail -B1M . | tail -1) && head -c $((free-40))M /dev/zero >fill");
    draw(&snapshot, SANDBOX_KEEP_MEMORY);
    bad(SANDBOX_LIMIT, "no-room",
        rig->snapshot_prepare(rig_state, &record, &snapshot, &rig_wait, &error));
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_RUNNING);
    /* Taken all the same: it fails, and the files are whole. */
    ck_assert_int_ne(rig->snapshot_take(rig_state, &record, &snapshot, NULL, &rig_wait, &error),
                     SANDBOX_OK);
    ck_assert_str_eq(error.reason, "checkpoint-failed");
    ck_assert_int_eq(rig_number("ls %s | wc -l", host("snapshots")), 0);
    shell("rm fill && cmp files/workspace/a/one files/workspace/a/b/two");
    release();
    /* No room for the tree alone, found out on the way. */
    draw(&snapshot, SANDBOX_KEEP_FILES);
    snapshot.seal_hash[0] = '\0';
    shell("free=$(df --output=avail -B1M . | tail -1) && head -c $((free-4))M /dev/zero >fill");
    ck_assert_int_eq(rig->snapshot_take(rig_state, &record, &snapshot, NULL, &rig_wait, &error),
                     SANDBOX_LIMIT);
    shell("rm fill && [ -z \"$(ls snapshots)\" ]");
    good(rig->snapshot_take(rig_state, &record, &snapshot, NULL, &rig_wait, &error));
    expect_intact();
    rig_destroy(&record);
    rig->close(rig_state);
    rig_state = outer;
    ck_assert_int_eq(umount2(folder, MNT_DETACH), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

int main(void)
{
    if (!rig_begin())
        return 77;
    Suite *suite = suite_create("gvisor snapshots");
    TCase *tests = tcase_create("snapshots");
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, memory_and_files_come_back_in_another_instance);
    tcase_add_test(tests, each_snapshot_stands_alone);
    tcase_add_test(tests, files_come_back_without_memory);
    tcase_add_test(tests, the_files_of_a_memory_snapshot_can_be_had_alone);
    tcase_add_test(tests, every_damage_is_seen_and_refused_before_runsc);
    tcase_add_test(tests, swapped_snapshots_are_told_apart);
    tcase_add_test(tests, an_open_channel_holds_a_checkpoint_off);
    tcase_add_test(tests, what_a_dead_taker_left_is_in_nobodys_way);
    tcase_add_test(tests, an_actor_whose_epoch_is_stale_changes_nothing);
    tcase_add_test(tests, failing_restores_leave_no_process);
    tcase_add_test(tests, another_runtime_is_refused);
    tcase_add_loop_test(tests, a_killed_takers_snapshot_is_finished_or_gone, 0,
                        sizeof moments / sizeof moments[0]);
    tcase_add_test(tests, a_killed_checkpoint_is_no_snapshot);
    tcase_add_test(tests, a_full_disk_is_told_before_and_costs_no_file);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_end();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
