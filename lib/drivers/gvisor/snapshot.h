/*
 * What the files about snapshots share. A snapshot is a directory of its workspace:
 *
 *   snapshots/ID/manifest.json   what it is, and the digests of all that follows
 *                config.json     the bundle's, which a restore needs again (memory only)
 *                base.list       the files of the root file system that it held (memory only)
 *                image/          what runsc wrote (memory only)
 *                files/          a copy of the workspace's files
 *                files.list      each of them in a line: see util/tree_copy.h
 *
 * It is made as ID.new and renamed once it is durable, so that ID is complete or not there. Until
 * then begun.json says what it will be, and `finished` that runsc has written its image.
 */
#ifndef SBX_DRIVERS_GVISOR_SNAPSHOT_H
#define SBX_DRIVERS_GVISOR_SNAPSHOT_H

#include "drivers/gvisor/gvisor.h"
#include "util/crew.h"
#include "util/tree_copy.h"

#define SBX_GVISOR_CHUNK     (8u << 20)
#define SBX_GVISOR_PARTS_MAX 64
#define SBX_GVISOR_PART_PATH 160

/* ---- manifest.c ---- */

/* A file of a snapshot outside its tree. */
struct sbx_gvisor_part {
    char path[SBX_GVISOR_PART_PATH]; /* "config.json", "image/NAME" */
    uint64_t size;
    uint8_t (*chunks)[SBX_DIGEST_BYTES]; /* of every SBX_GVISOR_CHUNK bytes */
    size_t chunk_count;
};

struct sbx_gvisor_manifest {
    char workspace[SBX_ID_TEXT], snapshot[SBX_ID_TEXT], run[SBX_ID_TEXT];
    char seal_hash[SBX_HASH_TEXT];
    sandbox_keep kind;
    uint32_t epoch;
    int64_t created_ms;
    struct sbx_gvisor_pins pins;
    char contents[SBX_GVISOR_DIGEST_TEXT]; /* of base.list, or see sbx_gvisor_pins_print() */
    char version[80], platform[16], flags[160]; /* of runsc; "" for files */
    char *features;                             /* of the processor, as the kernel names them */
    char spec[SBX_GVISOR_DIGEST_TEXT];          /* of config.json */
    struct sbx_gvisor_part parts[SBX_GVISOR_PARTS_MAX];
    size_t part_count;
    char tree[SBX_GVISOR_DIGEST_TEXT];
    uint64_t tree_entries, tree_bytes;
};

/* And its digest. `name` is in the open directory, which the caller makes durable. */
sandbox_status sbx_gvisor_manifest_write(int directory, const char *name,
                                         const struct sbx_gvisor_manifest *manifest,
                                         char digest[SBX_HASH_TEXT], sandbox_error *error);
/*
 * Strict: SANDBOX_FAILED, "snapshot-damaged", on whatever this version would not have written;
 * SANDBOX_NOT_FOUND if there is none. `digest` is that of the file.
 */
sandbox_status sbx_gvisor_manifest_read(int directory, const char *name,
                                        struct sbx_gvisor_manifest *out,
                                        char digest[SBX_HASH_TEXT], sandbox_error *error);
void sbx_gvisor_manifest_clear(struct sbx_gvisor_manifest *manifest);
/* All that is not in the tree, and the tree. */
uint64_t sbx_gvisor_manifest_bytes(const struct sbx_gvisor_manifest *manifest);

/* ---- parts.c and parts_read.c: the files of a snapshot ---- */

/* Adds a file and its size. */
sandbox_status sbx_gvisor_part_add(int directory, struct sbx_gvisor_manifest *manifest,
                                   const char *path, sandbox_error *error);
/* SANDBOX_NOT_RESTORED as below. */
sandbox_status sbx_gvisor_part_open(int directory, const struct sbx_gvisor_part *part, int *fd,
                                    sandbox_error *error);
/*
 * Reads every part on all processors, and notes the digests, or (`compare`) compares them:
 * "snapshot-damaged" names the part and the piece. `bytes` are what was read.
 */
sandbox_status sbx_gvisor_parts_digest(int directory, struct sbx_gvisor_manifest *manifest,
                                       bool compare, struct sbx_crew *crew,
                                       struct sbx_progress *progress, const struct sbx_wait *wait,
                                       uint64_t *bytes, sandbox_error *error);
/* Whether they are there and as long as they were: "snapshot-missing", "snapshot-damaged". */
sandbox_status sbx_gvisor_parts_look(int directory, const struct sbx_gvisor_manifest *manifest,
                                     sandbox_error *error);

/* ---- snapshot.c: where snapshots are, and the entries about them ---- */

/* "workspaces/ID/snapshots/SNAPSHOT" and what is appended; relative to the state directory. */
#define SBX_GVISOR_SNAPSHOT_PATH 160
bool sbx_gvisor_snapshot_path(const char *workspace, const char *snapshot, const char *ending,
                              char path[SBX_GVISOR_SNAPSHOT_PATH]);
/*
 * Opens a complete one and reads its manifest, which must be the one that was recorded and say
 * what the record says: SANDBOX_NOT_RESTORED, "snapshot-missing" or "snapshot-damaged".
 */
sandbox_status sbx_gvisor_snapshot_open(struct sbx_gvisor *driver, const struct sbx_record *record,
                                        const struct sbx_snapshot *snapshot, int *directory,
                                        struct sbx_gvisor_manifest *manifest,
                                        sandbox_error *error);
/* Whether these are the same as the running processor's; `missing` is one that it lacks. */
bool sbx_gvisor_features_suffice(const char *features, char missing[32]);
/* free() */
char *sbx_gvisor_features(void);
/* What every start, checkpoint and restore of a sandbox is told. */
extern const char sbx_gvisor_flags[];

bool sbx_gvisor_needs_parking(void *state, const struct sbx_record *record);
sandbox_status sbx_gvisor_snapshot_prepare(void *state, const struct sbx_record *record,
                                           const struct sbx_snapshot *snapshot,
                                           const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_gvisor_snapshot_remove(void *state, const struct sbx_record *record,
                                          const char *snapshot_id, const struct sbx_wait *wait,
                                          sandbox_error *error);

/* ---- held.c: the files of its root file system that a sandbox holds ---- */

/*
 * Lists what the workspace's programs have open or mapped of it in "base.list" of the open
 * directory, and gives the list's digest; `contents` stays "" where it cannot be told. `config` is
 * the text of the bundle's config.json.
 */
sandbox_status sbx_gvisor_held_list(struct sbx_gvisor *driver, const struct sbx_record *record,
                                    const struct sbx_gvisor_pins *pins, const char *config,
                                    int directory, char contents[SBX_GVISOR_DIGEST_TEXT],
                                    sandbox_error *error);
bool sbx_gvisor_held_has_list(const struct sbx_gvisor_manifest *manifest);
/* Whether each file in it is as it was: SANDBOX_NOT_RESTORED, "base-changed". */
sandbox_status sbx_gvisor_held_check(struct sbx_gvisor *driver,
                                     const struct sbx_gvisor_manifest *manifest, const char *image,
                                     int directory, sandbox_error *error);

/* ---- side.c: the print of a root file system, taken while something else is waited for ---- */

struct sbx_gvisor_side {
    pthread_t thread;
    bool started;
    struct sbx_gvisor *driver;
    const struct sbx_gvisor_pins *pins; /* borrowed until the end */
    const char *image;
    char contents[SBX_GVISOR_DIGEST_TEXT];
    struct sbx_wait wait;
    sandbox_status status;
    sandbox_error error;
};

/* `contents` NULL: find out; else compare with it. Fails where there can be no thread. */
sandbox_status sbx_gvisor_side_start(struct sbx_gvisor_side *side, struct sbx_gvisor *driver,
                                     const struct sbx_gvisor_pins *pins, const char *image,
                                     const char *contents, const struct sbx_wait *wait,
                                     sandbox_error *error);
/* Waits for it, and says how it went. */
sandbox_status sbx_gvisor_side_end(struct sbx_gvisor_side *side, sandbox_error *error);
void sbx_gvisor_side_join(struct sbx_gvisor_side *side); /* for SBX_ON_EXIT */

/* ---- snapshot_take.c ---- */

sandbox_status sbx_gvisor_snapshot_take(void *state, const struct sbx_record *record,
                                        struct sbx_snapshot *snapshot,
                                        struct sbx_progress *progress, const struct sbx_wait *wait,
                                        sandbox_error *error);
sandbox_status sbx_gvisor_snapshot_adopt(void *state, const struct sbx_record *record,
                                         struct sbx_snapshot *snapshot,
                                         const struct sbx_wait *wait, sandbox_error *error);

/* ---- checkpoint.c: runsc checkpoint, which outlives whoever started it ---- */

/*
 * Holds off every channel into the sandbox until `lock` is closed: "channel-open" where one does
 * not end soon, as it must once the agent is sealed.
 */
sandbox_status sbx_gvisor_channels_hold(struct sbx_gvisor *driver, const struct sbx_record *record,
                                        const struct sbx_wait *wait, int *lock,
                                        sandbox_error *error);
/*
 * Starts it in the snapshot's new directory. It holds the locks until it has ended, whatever
 * becomes of us. `told` says how it goes, and ends when the image is durable.
 */
sandbox_status sbx_gvisor_checkpoint_start(struct sbx_gvisor *driver, const char *id,
                                           const char *place,
                                           const struct sbx_gvisor_runtime *runtime,
                                           const int locks[2], int *told, sandbox_error *error);
/* Until the image is there, or "checkpoint-failed". `directory` is the snapshot's new one. */
sandbox_status sbx_gvisor_checkpoint_await(struct sbx_gvisor *driver,
                                           const struct sbx_record *record, int directory, int told,
                                           const struct sbx_wait *wait, sandbox_error *error);
/* Until it is durable. */
sandbox_status sbx_gvisor_checkpoint_end(int told, const struct sbx_wait *wait,
                                         sandbox_error *error);
/* Of a finished one: until the sandbox, which it ends, has ended. */
void sbx_gvisor_checkpoint_over(struct sbx_gvisor *driver, const struct sbx_record *record,
                                const struct sbx_wait *wait);
/* Whether the mark of a finished image is in the open directory, and holds after a restart too. */
bool sbx_gvisor_checkpoint_finished(int directory);
/* Until the sandbox writes to no image any more, or is gone. */
sandbox_status sbx_gvisor_checkpoint_quiet(struct sbx_gvisor *driver,
                                           const struct sbx_record *record,
                                           const struct sbx_wait *wait, sandbox_error *error);
/* What the guest's memory takes, as an image will: of the recorded incarnation. */
uint64_t sbx_gvisor_memory_used(const struct sbx_record *record);

/* ---- ahead.c: the image's way to the disk, begun while it is written ---- */

#define SBX_GVISOR_AHEAD_FILES 4

struct sbx_gvisor_ahead {
    int image;   /* the directory */
    int changes; /* of the files in it */
    int both;    /* of these, and of what is told */
    struct sbx_gvisor_ahead_file {
        char name[64];
        int fd;
        uint64_t begun; /* bytes that are on their way */
    } files[SBX_GVISOR_AHEAD_FILES];
};

/* False: it cannot be had here. End it in any case. */
bool sbx_gvisor_ahead_begin(struct sbx_gvisor_ahead *ahead, int directory, int told);
/* Until there is something to hear at `told`. */
sandbox_status sbx_gvisor_ahead_go(struct sbx_gvisor_ahead *ahead, int told,
                                   const struct sbx_wait *wait, sandbox_error *error);
void sbx_gvisor_ahead_end(struct sbx_gvisor_ahead *ahead); /* for SBX_ON_EXIT */

/* ---- snapshot_verify.c ---- */

sandbox_status sbx_gvisor_snapshot_verify(void *state, const struct sbx_record *record,
                                          const struct sbx_snapshot *snapshot,
                                          struct sbx_progress *progress,
                                          const struct sbx_wait *wait, struct sbx_verdict *out,
                                          sandbox_error *error);

/* ---- restore.c ---- */

sandbox_status sbx_gvisor_restore(void *state, const struct sbx_record *record,
                                  const struct sbx_snapshot *snapshot, sandbox_keep keep,
                                  struct sbx_progress *progress, const struct sbx_wait *wait,
                                  struct sbx_restored *out, sandbox_error *error);

#endif
