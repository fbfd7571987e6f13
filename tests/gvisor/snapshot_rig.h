/*
 * What the tests of snapshots on a real runsc share: one workspace, one snapshot of it, and what is
 * done with them as core does it. Time goes on inside by a counter in memory, which nothing but its
 * own memory can bring back.
 */
#ifndef TESTS_GVISOR_SNAPSHOT_RIG_H
#define TESTS_GVISOR_SNAPSHOT_RIG_H

#include "drivers/gvisor/snapshot.h"
#include "rig.h"
#include <check.h>
#include <string.h>

extern struct shot {
    struct sbx_record record;
    struct sbx_snapshot snapshot;
    struct sbx_verdict verdict;
    struct sbx_restored restored;
    const char *text;
    sandbox_error error;
} shot;

#define good(call)                                                                                 \
    do {                                                                                           \
        sandbox_status status_ = (call);                                                           \
        ck_assert_msg(status_ == SANDBOX_OK, "%s: %s", #call, shot.error.message);                 \
    } while (0)
#define bad(expected, why, call)                                                                   \
    do {                                                                                           \
        sandbox_status status_ = (call);                                                           \
        ck_assert_msg(status_ == (expected) && strcmp(shot.error.reason, why) == 0,                \
                      "%s: %d %s: %s", #call, (int)status_, shot.error.reason,                     \
                      shot.error.message);                                                         \
    } while (0)

/* As core does before it takes one. */
void shot_draw(struct sbx_snapshot *drawn, sandbox_keep kind);
void shot_take(sandbox_keep kind);
sandbox_verdict shot_look(void);
void shot_expect_intact(void);
void shot_release(void);
void shot_bring_back(sandbox_keep keep);
void shot_begin_workspace(const char *name);
/* A process that counts in its memory, and some files. */
void shot_begin_counter(void);
long shot_count(void);
/* For rig_await(): it is some way beyond the number at `from`. */
bool shot_counts_on(void *from);
void shot_expect_memory(long before);
/* A path below the workspace, on this machine. Until the next call. */
char *shot_host(const char *below);
/* Runs it in the workspace's directory on this machine. */
void shot_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
