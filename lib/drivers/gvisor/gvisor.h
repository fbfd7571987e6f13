/*
 * What the parts of the gVisor driver share. Outside this folder only sbx_driver_gvisor is known.
 *
 * In the state directory (root's alone):
 *   records/NAME.json     a generation and the record
 *   locks/                NAME.lock, ID.instance, ID.relay, base.build, base.pins
 *   workspaces/ID/        files/{workspace,home,seal}, layer/, bundle/, runsc.log, sandbox.pid
 *   runsc/                runsc's own --root
 *   base/DIGEST/          root/: a root file system made from the host's userland; facts.json
 *   agents/DIGEST/        copies of our agent and shim
 *   runtimes/DIGEST/      runsc: a copy of it; facts.json
 *   secrets/N             32 bytes that tokens are made from
 *   egress/               see egress.c
 *   removed/              snapshots that are nobody's any more: see sweep.c
 */
#ifndef SBX_DRIVERS_GVISOR_H
#define SBX_DRIVERS_GVISOR_H

#include "core/driver.h"
#include "util/digest.h"
#include <pthread.h>
#include <stdatomic.h>

#define SBX_GVISOR_STATE       "/var/lib/libsandbox"
#define SBX_GVISOR_PATH        4096
#define SBX_GVISOR_DIGEST_TEXT (2 * SBX_DIGEST_BYTES + 1)
/* What core asks for where nobody asked: kept where it can be, never a reason to refuse. */
#define SBX_GVISOR_DEFAULT_MEMORY_MIB 2048

struct sbx_gvisor;
struct sbx_http;

/* ---- settings.c: what the URI says ---- */

struct sbx_gvisor_settings {
    char *state;    /* absolute */
    char *runsc;    /* a path, or a name for PATH */
    char *platform; /* NULL: chosen by version */
    char *agent;    /* NULL: the installed one */
    char *shim;     /* NULL: the installed one */
};

sandbox_status sbx_gvisor_settings_read(const char *rest, struct sbx_gvisor_settings *out,
                                        sandbox_error *error);
void sbx_gvisor_settings_clear(struct sbx_gvisor_settings *settings);

/* ---- runsc.c: which runsc this is ---- */

struct sbx_gvisor_runsc {
    char version[80];
    uint32_t date; /* 20221219; 0: it does not say */
    bool has_overlay2, has_systrap;
    bool needs_shim;      /* its statx() refuses what coreutils ask */
    const char *platform; /* the default one. Static. */
};

/* @param out  free() */
sandbox_status sbx_gvisor_runsc_find(const char *name, char **out, sandbox_error *error);
sandbox_status sbx_gvisor_runsc_learn(const char *path, const struct sbx_wait *wait,
                                      struct sbx_gvisor_runsc *out, sandbox_error *error);
/* What `runsc --version` and `runsc flags` print. Free both. Errors call it `known_as`. */
sandbox_status sbx_gvisor_runsc_ask(const char *path, const char *known_as,
                                    const struct sbx_wait *wait, char **version, char **flags,
                                    sandbox_error *error);
/* From these texts. */
void sbx_gvisor_runsc_judge(const char *version, const char *flags, struct sbx_gvisor_runsc *out);
sandbox_status sbx_gvisor_runsc_too_old(const char *path, sandbox_error *error);

/* ---- pins.c: what a workspace runs on, and its snapshots need again ---- */

/*
 * Digests: base/, agents/ and runtimes/ hold what they name, for as long as a workspace's bundle
 * (annotations org.libsandbox.{base,tools,runtime} of its config.json) or a snapshot (fields
 * `base`, `tools` and `runtime` of its manifest.json) says so. "": none, or not known.
 */
struct sbx_gvisor_pins {
    char base[SBX_GVISOR_DIGEST_TEXT]; /* "": an image */
    char tools[SBX_GVISOR_DIGEST_TEXT];
    char runtime[SBX_GVISOR_DIGEST_TEXT]; /* "": the bundle of an older libsandbox */
};

/* Of the workspace's bundle. SANDBOX_NOT_FOUND if it has none. */
sandbox_status sbx_gvisor_pins_of(struct sbx_gvisor *driver, const char *id,
                                  struct sbx_gvisor_pins *out, sandbox_error *error);
/* Whether all of it is there; SANDBOX_NOT_RESTORED, "pin-missing". Costs nothing. */
sandbox_status sbx_gvisor_pins_find(struct sbx_gvisor *driver, const struct sbx_gvisor_pins *pins,
                                    sandbox_error *error);
/*
 * What the root file system under a workspace (the base, or its image) is right now: a digest
 * over path, size, mtime and inode of every file, none of which is read. A program on the host
 * that rewrites one in place shows in it, whatever the links. A snapshot keeps it as its
 * `contents` where what is held cannot be listed. On all cores, and some 0.1 s for 100,000 files:
 * best beside something else.
 */
sandbox_status sbx_gvisor_pins_print(struct sbx_gvisor *driver, const struct sbx_gvisor_pins *pins,
                                     const char *image, const struct sbx_wait *wait,
                                     char contents[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error);
/* Before a restore: all is there, and the root file system what it was. SANDBOX_NOT_RESTORED,
 * "pin-missing" or "base-changed". */
sandbox_status sbx_gvisor_pins_check(struct sbx_gvisor *driver, const struct sbx_gvisor_pins *pins,
                                     const char *image, const char *contents,
                                     const struct sbx_wait *wait, sandbox_error *error);
/* Removes folder/name with all that is in it, for as long as the wait lasts. See removal.c. */
sandbox_status sbx_gvisor_remove(int folder, const char *name, const struct sbx_wait *wait,
                                 sandbox_error *error);
/* Held while digests are taken into use, until a file names them. */
sandbox_status sbx_gvisor_pins_hold(struct sbx_gvisor *driver, const struct sbx_wait *wait,
                                    int *lock, sandbox_error *error);
/* Removes what nobody names, unless somebody is just taking some into use. For when a workspace
 * or a snapshot has been removed. What fails is logged. */
void sbx_gvisor_pins_collect(struct sbx_gvisor *driver);

/* ---- sweep.c: what was removed goes from the disk beside everything else ---- */

struct sbx_gvisor_sweeper {
    pthread_t thread;
    bool started, busy, again; /* guarded by the driver's mutex */
    pthread_cond_t idle;
    atomic_bool stop;
};

/* Goes on with what others have left. */
void sbx_gvisor_sweep_begin(struct sbx_gvisor *driver);
/*
 * Removes a snapshot. When this returns it has no name any more, nor after a loss of power; its
 * room on the disk comes back a moment later. What is not there is success. With the fence held.
 */
sandbox_status sbx_gvisor_sweep(struct sbx_gvisor *driver, const char *id, const char *snapshot,
                                const struct sbx_wait *wait, sandbox_error *error);
/* Until nothing is left of what was removed: of that workspace, or of all (NULL). */
sandbox_status sbx_gvisor_sweep_now(struct sbx_gvisor *driver, const char *id,
                                    const struct sbx_wait *wait, sandbox_error *error);
/* Ends the thread, soon; what is left is for whoever opens the state directory next. */
void sbx_gvisor_sweep_end(struct sbx_gvisor *driver);

/* ---- runtime.c: the copies of runsc that sandboxes run on ---- */

#define SBX_GVISOR_ORIGIN 128

struct sbx_gvisor_runtime {
    char digest[SBX_GVISOR_DIGEST_TEXT];
    char *path;
    struct sbx_gvisor_runsc runsc;
};

/* The copy of the configured runsc as it is now, made if there is none yet. */
sandbox_status sbx_gvisor_runtime(struct sbx_gvisor *driver, const struct sbx_wait *wait,
                                  struct sbx_gvisor_runtime *out, sandbox_error *error);
/* A copy by its digest; SANDBOX_NOT_RESTORED, "pin-missing". */
sandbox_status sbx_gvisor_runtime_pinned(struct sbx_gvisor *driver, const char *digest,
                                         struct sbx_gvisor_runtime *out, sandbox_error *error);
/* What the workspace's bundle was made for: whoever talks to a sandbox must be of its version.
 * Free the path. */
sandbox_status sbx_gvisor_runtime_of(struct sbx_gvisor *driver, const char *id, char **path,
                                     sandbox_error *error);
void sbx_gvisor_runtime_clear(struct sbx_gvisor_runtime *runtime);

/* ---- limits.c: control groups of the host ---- */

struct sbx_gvisor_limits {
    bool unified;                           /* cgroup v2 */
    bool memory, cpu;                       /* can be enforced */
    char memory_group[256], cpu_group[256]; /* where our groups are made; the same on v2 */
};

void sbx_gvisor_limits_probe(struct sbx_gvisor_limits *out);
/* Makes the workspace's groups. Empty texts: none is needed, or there can be none. */
sandbox_status sbx_gvisor_limits_make(const struct sbx_gvisor_limits *limits,
                                      const struct sbx_record *record, char memory_group[320],
                                      char cpu_group[320], sandbox_error *error);
sandbox_status sbx_gvisor_limits_remove(const struct sbx_gvisor_limits *limits, const char *id,
                                        const struct sbx_wait *wait, sandbox_error *error);
/* How often the kernel killed for lack of memory in there. */
uint64_t sbx_gvisor_limits_killed(const struct sbx_gvisor_limits *limits, const char *id);

/* ---- gvisor.c: the open driver ---- */

struct sbx_gvisor_cache;

/* A channel that proved a fresh instance alive, kept for the caller who connects next. */
struct sbx_gvisor_ready {
    char id[SBX_ID_TEXT]; /* "": empty */
    struct sbx_channel channel;
};
#define SBX_GVISOR_READY 8

struct sbx_gvisor {
    struct sbx_gvisor_settings settings; /* `state` and `runsc` made canonical */
    int directory;                       /* of the state */
    char *runsc_root;                    /* STATE/runsc */
    const char *host;                    /* whose programs workspaces run: "/" but in tests */
    struct sbx_gvisor_limits limits;
    struct sbx_gvisor_cache *cache;
    pthread_mutex_t mutex; /* guards what follows, and the cache */
    char runtime_origin[SBX_GVISOR_ORIGIN]; /* which file `runtime` is a copy of; "": none yet */
    struct sbx_gvisor_runtime runtime;
    struct sbx_gvisor_ready ready[SBX_GVISOR_READY];
    struct sbx_gvisor_sweeper sweeper;
    struct sbx_http *http; /* to the egress proxy; NULL until it is asked for */
};

/* Of the configured runsc, as it is now. */
sandbox_status sbx_gvisor_abilities(struct sbx_gvisor *driver, const struct sbx_wait *wait,
                                    struct sbx_gvisor_runsc *out, sandbox_error *error);
/* STATE/FORMAT… */
char *sbx_gvisor_path(const struct sbx_gvisor *driver, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A directory with exactly this mode, whatever the host's umask. An existing one is fine. */
sandbox_status sbx_gvisor_directory(int at, const char *path, mode_t mode, sandbox_error *error);
/* A file with exactly this mode, replacing what was there. */
sandbox_status sbx_gvisor_file(int at, const char *path, const void *data, size_t size, mode_t mode,
                               sandbox_error *error);

/* ---- store.c: records and secrets ---- */

struct sbx_gvisor_cache *sbx_gvisor_cache_new(void);
void sbx_gvisor_cache_free(struct sbx_gvisor_cache *cache);

sandbox_status sbx_gvisor_record_load(void *state, const char *name, const struct sbx_wait *wait,
                                      char **text, size_t *size, char version[SBX_VERSION_TEXT],
                                      sandbox_error *error);
sandbox_status sbx_gvisor_record_store(void *state, const char *name, const char *text, size_t size,
                                       const char *expected, char version[SBX_VERSION_TEXT],
                                       const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_gvisor_record_remove(void *state, const char *name, const char *expected,
                                        const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_gvisor_record_list(void *state, const struct sbx_wait *wait,
                                      bool (*visit)(void *user_data, const char *name,
                                                    const char *text, size_t size,
                                                    const char *version),
                                      void *user_data, sandbox_error *error);
sandbox_status sbx_gvisor_secret(void *state, uint32_t *key_id, uint8_t key[32],
                                 const struct sbx_wait *wait, sandbox_error *error);

/* ---- fence.c: who may act now ---- */

/*
 * Takes the workspace's own lock and makes sure that the stored record is still the caller's:
 * same id, epoch and operation. Nobody else acts until `lock` is closed.
 */
sandbox_status sbx_gvisor_fence(struct sbx_gvisor *driver, const struct sbx_record *record,
                                const struct sbx_wait *wait, int *lock, sandbox_error *error);
sandbox_status sbx_gvisor_owner_name(void *state, char owner[128], sandbox_error *error);
bool sbx_gvisor_owner_is_gone(void *state, const char *owner);

/* ---- processes.c: what runs on this host ---- */

bool sbx_gvisor_boot_id(char text[40]);
/*
 * In clock ticks since boot; 0 where there is no such process, or only its zombie. A caller that
 * has run out of descriptors or memory cannot tell, and must not take that for an end.
 */
#define SBX_GVISOR_CANNOT_TELL UINT64_MAX
uint64_t sbx_gvisor_started(pid_t pid);
/* Whether this process is a sandbox of this workspace, started with our --root. */
bool sbx_gvisor_is_sandbox(const struct sbx_gvisor *driver, pid_t pid, const char *id);
bool sbx_gvisor_has_sandbox(const struct sbx_gvisor *driver, const char *id);
/* How many processes of the workspace there are, their descendants counted. */
size_t sbx_gvisor_processes(const struct sbx_gvisor *driver, const char *id);
/* Those that were started with our --root for it, the sandbox and its gofer among them: how many
 * of them are in `pids`. 0: it cannot be told. */
size_t sbx_gvisor_started_for(const struct sbx_gvisor *driver, const char *id, pid_t *pids,
                              size_t room);
/* How many of them are a `runsc exec`, ours or somebody's. `pidfd` shows the end of one; or -1. */
size_t sbx_gvisor_attached(const struct sbx_gvisor *driver, const char *id, int *pidfd);
/* Kills them all, and waits until they are gone. */
sandbox_status sbx_gvisor_processes_end(const struct sbx_gvisor *driver, const char *id,
                                        const struct sbx_wait *wait, sandbox_error *error);

/* ---- base.c and bundle.c: what a workspace sees ---- */

/* The base's digest, making it if there is none. Call it with the pins held. */
sandbox_status sbx_gvisor_base(struct sbx_gvisor *driver, const struct sbx_wait *wait,
                               char digest[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error);
/*
 * Where a base is: the root file system itself, and where /usr and its like are bound from, which
 * is the same or, where no links can be made, the host's root. SANDBOX_NOT_RESTORED, "pin-missing".
 * Free both.
 */
sandbox_status sbx_gvisor_base_find(struct sbx_gvisor *driver, const char *digest, char **lower,
                                    char **userland, sandbox_error *error);
/* What sbx_gvisor_pins_print() says of it. */
sandbox_status sbx_gvisor_base_print(struct sbx_gvisor *driver, const char *digest,
                                     const struct sbx_wait *wait,
                                     char contents[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error);
/* base_build.c: makes what surrounds the programs in an open empty directory. */
sandbox_status sbx_gvisor_base_build(int target, int etc, int root, sandbox_error *error);
/* NULL-terminated: patterns below /etc, and /usr with its like. */
extern const char *const sbx_gvisor_base_copied[], *const sbx_gvisor_base_programs[];
/*
 * farm.c: whether programs of `root`, known as `host`, can be linked into the directory `state`.
 * Links cannot leave a file system, or a mount of it. On an overlay, the root of most containers,
 * they can be made, but each would first copy the whole file.
 */
bool sbx_gvisor_farm_is_possible(int state, int root, const char *host);
/* Links the directories `names` of `from` into those that are there in `to`, leaving out
 * the directory `avoid` wherever it is met. */
sandbox_status sbx_gvisor_farm_make(int from, int to, const char *const *names, int avoid,
                                    const struct sbx_wait *wait, sandbox_error *error);
/* print.c: a digest over path, size, mtime and inode of all that is in a directory. */
sandbox_status sbx_gvisor_print(int root, const struct sbx_wait *wait,
                                char contents[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error);
/* The digest of our agent and shim, copying them into agents/DIGEST if they are not there. */
sandbox_status sbx_gvisor_tools(struct sbx_gvisor *driver, bool with_shim,
                                char digest[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error);

/* Who works in the workspace, as its root file system knows him. */
struct sbx_gvisor_user {
    uint32_t uid, gid;
    char home[512];
};

/* A workspace's files and what runsc is told about them. */
struct sbx_gvisor_bundle {
    struct sbx_gvisor_user user;
    char *lower;    /* the root file system under the workspace's layer */
    char *userland; /* where /usr and its like are bound from; NULL: an image has its own */
    struct sbx_gvisor_pins pins;
    struct sbx_gvisor_runtime runtime;
};

/* What a bundle is made over. All zero: a fresh start, on what this host has now. */
struct sbx_gvisor_origin {
    const struct sbx_gvisor_pins *pins; /* exactly these; missing is as sbx_gvisor_pins_check() */
    const char *config;                 /* config.json's text as it was; NULL: it is made */
};

/*
 * Leaves files/{workspace,home,seal} as they are where they are there: emptying `seal` before a
 * fresh start is the caller's.
 */
sandbox_status sbx_gvisor_bundle_make(struct sbx_gvisor *driver, const struct sbx_record *record,
                                      const struct sbx_gvisor_origin *origin,
                                      const struct sbx_wait *wait, struct sbx_gvisor_bundle *out,
                                      sandbox_error *error);
void sbx_gvisor_bundle_clear(struct sbx_gvisor_bundle *bundle);
/* config.json. Free with cJSON_Delete(); NULL: no memory. */
cJSON *sbx_gvisor_config(const struct sbx_gvisor *driver, const struct sbx_record *record,
                         const struct sbx_gvisor_bundle *bundle);
/* Finds a user in the text of a passwd file. */
bool sbx_gvisor_user_find(const char *passwd, const char *name, struct sbx_gvisor_user *out);

/* ---- launch.c: from the bundle to a running sandbox ---- */

struct sbx_gvisor_start {
    struct sbx_gvisor_bundle bundle;
    char memory_group[320], cpu_group[320]; /* "": none */
    const char *image; /* a checkpoint's directory, restored instead of run; NULL: run */
};

/*
 * `early`: where a relay to the agent is put that was started while runsc still restored, and which
 * sbx_gvisor_await_agent() then takes; it stays empty where that could not be.
 */
sandbox_status sbx_gvisor_launch(struct sbx_gvisor *driver, const struct sbx_record *record,
                                 const struct sbx_gvisor_start *start, const struct sbx_wait *wait,
                                 struct sbx_channel *early, sandbox_error *error);
/* Why there is no sandbox, in the words of whoever gave up. */
sandbox_status sbx_gvisor_explain(struct sbx_gvisor *driver, const char *id, int code,
                                  sandbox_error *error);
/* The last that the first of the workspace's `logs` (NULL-terminated) with anything in it says. */
void sbx_gvisor_last_words(struct sbx_gvisor *driver, const char *id, const char *const *logs,
                           char words[200]);
/* Which of runsc's platforms sandboxes run on: the URI's, or what suits this runsc. */
const char *sbx_gvisor_platform(const struct sbx_gvisor *driver,
                                const struct sbx_gvisor_runsc *runsc);

/* ---- instance.c and connect.c ---- */

/*
 * Starts it over its files and waits for the agent. `image`: a checkpoint's directory to restore;
 * NULL: run. There is no instance, and the fence is held; on failure its parts may be left.
 */
sandbox_status sbx_gvisor_instance_start(struct sbx_gvisor *driver, const struct sbx_record *record,
                                         const struct sbx_gvisor_origin *origin, const char *image,
                                         const struct sbx_wait *wait,
                                         char incarnation[SBX_INCARNATION_TEXT],
                                         sandbox_error *error);
/* Ends and removes all of it but its files and snapshots. With the fence held. */
sandbox_status sbx_gvisor_instance_end(struct sbx_gvisor *driver, const char *id,
                                       const struct sbx_wait *wait, sandbox_error *error);
/* The same after a failure, whose wait may be over; what is left is logged. */
void sbx_gvisor_instance_clear(struct sbx_gvisor *driver, const struct sbx_record *record);
/* A fresh agent must not find the seal of another one. */
sandbox_status sbx_gvisor_seal_empty(struct sbx_gvisor *driver, const char *id,
                                     sandbox_error *error);

sandbox_status sbx_gvisor_provision(void *state, const struct sbx_record *record,
                                    const struct sbx_wait *wait,
                                    char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error);
sandbox_status sbx_gvisor_inspect(void *state, const struct sbx_record *record,
                                  const struct sbx_wait *wait, struct sbx_instance *out,
                                  sandbox_error *error);
sandbox_status sbx_gvisor_discard(void *state, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_gvisor_destroy(void *state, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error);

sandbox_status sbx_gvisor_connect(void *state, const struct sbx_record *record,
                                  const struct sbx_wait *wait, struct sbx_channel *channel,
                                  sandbox_error *error);
/* Starts a relay to the agent, which may not be there: then the relay ends. */
sandbox_status sbx_gvisor_relay(struct sbx_gvisor *driver, const char *id,
                                const struct sbx_wait *wait, struct sbx_channel *channel,
                                sandbox_error *error);
/*
 * Waits until the agent speaks through a relay, which is then kept for the next connect(). `early`:
 * a relay to try first; it is taken over.
 */
sandbox_status sbx_gvisor_await_agent(struct sbx_gvisor *driver, const char *id, pid_t sandbox,
                                      struct sbx_channel *early, const struct sbx_wait *wait,
                                      sandbox_error *error);
/* Ends what is kept: of one workspace, or of all (NULL). */
void sbx_gvisor_ready_forget(struct sbx_gvisor *driver, const char *id);
/* "BOOT:PID:START" of a process of ours; false where it is none, or has ended. */
bool sbx_gvisor_incarnation(const struct sbx_gvisor *driver, const char *id, pid_t pid,
                            char incarnation[SBX_INCARNATION_TEXT]);
/* Whether that very incarnation runs now. */
bool sbx_gvisor_is_running(const struct sbx_gvisor *driver, const char *id,
                           const char *incarnation);

/* ---- egress.c: the way out, through a proxy and carriers on this host ---- */

sandbox_status sbx_gvisor_egress_open(void *state, const struct sbx_record *record,
                                      const cJSON *registration, bool keep,
                                      const struct sbx_wait *wait, struct sbx_egress_way *way,
                                      sandbox_error *error);
sandbox_status sbx_gvisor_egress_ask(void *state, const char *workspace_id,
                                     enum sbx_egress_question question, const cJSON *body,
                                     const struct sbx_wait *wait, cJSON **answer,
                                     sandbox_error *error);
sandbox_status sbx_gvisor_egress_forget(void *state, const char *workspace_id,
                                        const struct sbx_wait *wait, sandbox_error *error);
/* egress_carrier.c: ends the workspace's former carrier, and starts one that brings `key`. */
sandbox_status sbx_gvisor_carrier_start(struct sbx_gvisor *driver, const struct sbx_record *record,
                                        const char *key, const struct sbx_wait *wait,
                                        sandbox_error *error);
/* What does not run is success. */
sandbox_status sbx_gvisor_carrier_end(struct sbx_gvisor *driver, const char *workspace_id,
                                      const struct sbx_wait *wait, sandbox_error *error);

/* "egress/" and 16 digits of a workspace's id, and an ending: a socket's path has to be short. */
#define SBX_GVISOR_EGRESS_FILE "egress/%.16s%s"

/* ---- doctor.c ---- */

sandbox_status sbx_gvisor_examine(const char *rest, const struct sbx_wait *wait,
                                  struct sbx_findings_sink *sink, sandbox_error *error);

#endif
