/* One workspace and one snapshot of it, for the tests of snapshots on a real runsc. */

#include "snapshot_rig.h"
#include "util/child.h"
#include "util/memory.h"
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct shot shot;

/* As core does before it takes one. */
void shot_draw(struct sbx_snapshot *drawn, sandbox_keep kind)
{
    *drawn = (struct sbx_snapshot){.kind = kind, .key_id = 1, .epoch = shot.record.epoch};
    ck_assert(sbx_id_fresh(drawn->id));
    memcpy(drawn->run, shot.record.run, sizeof drawn->run);
    memcpy(drawn->incarnation, shot.record.incarnation, sizeof drawn->incarnation);
    memset(drawn->seal_hash, 'a', sizeof drawn->seal_hash - 1);
}

void shot_take(sandbox_keep kind)
{
    shot_draw(&shot.snapshot, kind);
    good(rig->snapshot_prepare(rig_state, &shot.record, &shot.snapshot, &rig_wait, &shot.error));
    good(rig->snapshot_take(rig_state, &shot.record, &shot.snapshot, NULL, &rig_wait, &shot.error));
    ck_assert_uint_eq(strlen(shot.snapshot.digest), 64);
    ck_assert_uint_gt(shot.snapshot.bytes, 0);
}

sandbox_verdict shot_look(void)
{
    good(rig->snapshot_verify(rig_state, &shot.record, &shot.snapshot, NULL, &rig_wait,
                              &shot.verdict, &shot.error));
    return shot.verdict.verdict;
}

void shot_expect_intact(void)
{
    ck_assert_msg(shot_look() == SANDBOX_VERDICT_INTACT, "%s", shot.verdict.evidence);
    ck_assert_str_eq(shot.verdict.evidence, "");
    ck_assert_uint_ge(shot.verdict.bytes, shot.snapshot.bytes);
}

void shot_release(void)
{
    for (int n = 0; n < 2; n++) /* what is gone is success */
        good(rig->release(rig_state, &shot.record, &rig_wait, &shot.error));
    ck_assert_int_eq(rig_presence(&shot.record, NULL), SBX_PRESENCE_ABSENT);
    ck_assert_int_eq(rig_processes(shot.record.id), 0);
}

void shot_bring_back(sandbox_keep keep)
{
    char before[SBX_INCARNATION_TEXT];
    memcpy(before, shot.record.incarnation, sizeof before);
    good(rig->restore(rig_state, &shot.record, &shot.snapshot, keep, NULL, &rig_wait,
                      &shot.restored, &shot.error));
    ck_assert_str_ne(shot.restored.incarnation, before);
    ck_assert_int_eq(shot.restored.evidence, SBX_EVIDENCE_NONE);
    memcpy(shot.record.incarnation, shot.restored.incarnation, sizeof shot.record.incarnation);
    rig_store(&shot.record);
    ck_assert_int_eq(rig_presence(&shot.record, NULL), SBX_PRESENCE_RUNNING);
    struct sbx_channel channel = SBX_CHANNEL;
    good(rig->connect(rig_state, &shot.record, &rig_wait, &channel, &shot.error));
    good(sbx_wait_descriptor(&rig_wait, channel.read_fd, POLLIN, &shot.error));
    sbx_channel_end(&channel);
}

void shot_begin_workspace(const char *name)
{
    rig_record(&shot.record, name);
    rig_provision(&shot.record);
}

/* A process that counts in its memory, and some files. */
void shot_begin_counter(void)
{
    ck_assert_int_eq(
        rig_inside(&shot.record,
                   "cd /workspace && mkdir -p a/b && echo one >a/one && ln a/one a/b/two && "
                   "ln -s /nowhere a/link && echo mine >/home/sandbox/mine && "
                   "dd if=/dev/urandom of=a/large bs=1M count=9 2>/dev/null && "
                   "(setsid sh -c 'exec 3>/tmp/counter; n=0; while :; do n=$((n+1)); "
                   "echo $n >/tmp/next; mv /tmp/next /tmp/counter; sleep 0.02; done' "
                   "</dev/null >/dev/null 2>&1 &) && echo in-memory >/tmp/secret && "
                   "cp /tmp/secret /opt/overlaid",
                   &shot.text),
        0);
}

long shot_count(void)
{
    return rig_inside(&shot.record, "cat /tmp/counter", &shot.text) == 0
               ? strtol(shot.text, NULL, 10)
               : 0;
}

bool shot_counts_on(void *from)
{
    return shot_count() > *(long *)from + 3;
}

/*
 * What was in memory is there, and the counter goes on. A newer runsc ends at a restore what came
 * in by its own exec, as the counter did (and as nothing does that the agent starts).
 */
void shot_expect_memory(long before)
{
    struct sbx_gvisor_runsc runsc;
    good(sbx_gvisor_abilities(rig_state, &rig_wait, &runsc, &shot.error));
    ck_assert_int_eq(rig_inside(&shot.record, "cat /tmp/secret /opt/overlaid", &shot.text), 0);
    ck_assert_str_eq(shot.text, "in-memory\nin-memory\n");
    if (runsc.needs_shim)
        ck_assert(rig_await(shot_counts_on, &before));
    ck_assert_int_ge(shot_count(), before);
    ck_assert_int_lt(shot_count(), before + 5000);
}

char *shot_host(const char *below)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/workspaces/%s/%s", rig_folder, shot.record.id, below);
    return path;
}

void shot_shell(const char *format, ...)
{
    char command[1024] = "exec 2>&1; cd ";
    size_t used = strlen(command);
    used += (size_t)snprintf(command + used, sizeof command - used, "%s/workspaces/%s && ",
                             rig_folder, shot.record.id);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - used, format, arguments);
    va_end(arguments);
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    SBX_ON_EXIT(sbx_free_text) char *said = NULL;
    int code = -1;
    good(sbx_child_run(&options, &rig_wait, &code, &said, &shot.error));
    ck_assert_msg(code == 0, "%s: %s", command, said);
}
