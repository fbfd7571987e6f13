/*
 * The inside of the GKE driver: workspaces as SandboxClaims of Kubernetes Agent Sandbox, suspended
 * by GKE Pod snapshots.
 *
 * A workspace "NAME" with the id ID is, in the URI's namespace:
 *   ConfigMap    sandbox-record-NAME   the record; its resourceVersion is the version
 *   SandboxClaim sandbox-ID            asks the pool for a Sandbox; deleting it deletes all below
 *   Sandbox      (named by the claim)  has one Pod at a time; operatingMode suspends it
 *   Pod          (named by the Sandbox) an incarnation: "SANDBOX/POD/UID"
 *   PodSnapshotManualTrigger sandbox-ID12-SNAPSHOTID[-N], labelled and owned by the claim
 *   PodSnapshot  (named by GKE)        a snapshot; our id is found again through its trigger
 * and for all workspaces one Secret, sandbox-keys. Labels: app.kubernetes.io/managed-by=libsandbox,
 * sandbox.users.io/workspace=ID.
 */
#ifndef SBX_DRIVERS_GKE_H
#define SBX_DRIVERS_GKE_H

#include "cloud/http.h"
#include "cloud/kubernetes.h"
#include "core/driver.h"

#define SBX_GKE_NAME 254 /* of a Kubernetes object, with its end */
#define SBX_GKE_UID 64

#define SBX_GKE_EPOCH_ANNOTATION "sandbox.users.io/epoch"
#define SBX_GKE_RESTORE_ANNOTATION "podsnapshot.gke.io/ps-name"
#define SBX_GKE_MANAGED "app.kubernetes.io/managed-by"
#define SBX_GKE_WORKSPACE "sandbox.users.io/workspace"
#define SBX_GKE_SNAPSHOT "sandbox.users.io/snapshot" /* of a trigger: our snapshot id */
#define SBX_GKE_NAME_HASH "agents.x-k8s.io/sandbox-name-hash"

#define SBX_GKE_OPERATION_ANNOTATION "sandbox.users.io/operation" /* on the claim: who made it */
#define SBX_GKE_WRITE_ANNOTATION "sandbox.users.io/write"         /* on the record: which store */
#define SBX_GKE_MANAGER "libsandbox"
#define SBX_GKE_CONTAINER "workspace"
#define SBX_GKE_PORT 7411 /* of the agent, at the Pod's own address */
#define SBX_GKE_KEYS 16 /* secrets that are kept in memory */

struct sbx_gke {
    struct sbx_kubernetes *cluster;
    char *context, *space, *pool; /* context "": in-cluster; pool "": none was given */
    char *title;                  /* for messages: "gke://CONTEXT/NAMESPACE" */
    bool direct; /* channel=pod: work goes to the Pods' own addresses */
    struct sbx_gke_proxy {
        char *egress;     /* "http://ADDRESS:PORT", where Pods connect to */
        char *admin;      /* "http://HOST:PORT", its admin API */
        char *token;      /* NULL: as the file says */
        char *token_file; /* NULL: none */
    } proxy;              /* the egress proxy; NULLs: as the environment says, or none */
    pthread_mutex_t lock; /* of what follows */
    struct sbx_gke_limits {
        bool is_known;
        uint32_t memory_mib, cpu_millis; /* 0: none, or not to be seen */
    } limits;                            /* that the pool's template sets */
    struct sbx_gke_key {
        uint32_t id; /* 0: none */
        uint8_t key[32];
    } keys[SBX_GKE_KEYS];
    uint32_t newest; /* of the keys; 0: not known yet */
    struct sbx_http *http; /* to the egress proxy; NULL until it is asked for */
};

extern const struct sbx_resource sbx_gke_claims, sbx_gke_sandboxes, sbx_gke_templates,
    sbx_gke_pools, sbx_gke_pods, sbx_gke_config_maps, sbx_gke_secrets, sbx_gke_snapshots,
    sbx_gke_triggers, sbx_gke_policies, sbx_gke_storages;

/*
 * The parts of an incarnation "SANDBOX/POD/UID". Of a Pod whose container had been started anew
 * before it became one, the number of those restarts follows ("SANDBOX/POD/UID/2"): one more is
 * another instance.
 */
struct sbx_gke_incarnation {
    char sandbox[SBX_GKE_NAME], pod[SBX_GKE_NAME], uid[SBX_GKE_UID];
    uint32_t restarts;
};

/* ---- settings.c ---- */

/* `rest` of "gke://CONTEXT/NAMESPACE?pool=NAME"; an empty context is the Pod's own cluster. */
sandbox_status sbx_gke_settings_read(const char *rest, struct sbx_gke *out, sandbox_error *error);
void sbx_gke_settings_clear(struct sbx_gke *driver);

/* ---- egress.c: the way out, through a proxy that the Pods' agents connect to ---- */

/* Whether a URI's or variable's value is one of these. `admin`: a host's name will do too. */
bool sbx_gke_proxy_url_is_good(const char *url, bool admin);
/* What the URI leaves open is what the environment says. */
sandbox_status sbx_gke_egress_settle(struct sbx_gke *driver, sandbox_error *error);
bool sbx_gke_egress_is_set(const struct sbx_gke *driver);
/* All three: SANDBOX_UNSUPPORTED ("no-egress") where no proxy was named says how to. */
sandbox_status sbx_gke_egress_open(void *state, const struct sbx_record *record,
                                   const cJSON *registration, bool keep,
                                   const struct sbx_wait *wait, struct sbx_egress_way *way,
                                   sandbox_error *error);
sandbox_status sbx_gke_egress_ask(void *state, const char *workspace_id,
                                  enum sbx_egress_question question, const cJSON *body,
                                  const struct sbx_wait *wait, cJSON **answer,
                                  sandbox_error *error);
sandbox_status sbx_gke_egress_forget(void *state, const char *workspace_id,
                                     const struct sbx_wait *wait, sandbox_error *error);

/* ---- names.c ---- */

void sbx_gke_record_name(const char *workspace, char out[SBX_GKE_NAME]);
void sbx_gke_claim_name(const struct sbx_record *record, char out[SBX_GKE_NAME]);
/*
 * "sandbox-", the first 12 digits of the workspace's id, "-", the snapshot's id. GKE writes a
 * trigger's name as a label's value onto the PodSnapshot: 63 characters at most, and we add "-9".
 */
void sbx_gke_trigger_name(const struct sbx_record *record, const char *snapshot_id,
                          char out[SBX_GKE_NAME]);
bool sbx_gke_incarnation_read(const char *text, struct sbx_gke_incarnation *out);
/* False: it does not fit. */
bool sbx_gke_incarnation_print(const char *sandbox, const char *pod, const char *uid,
                               char out[SBX_INCARNATION_TEXT]);
/* The same with the restarts of the Pod's container. */
bool sbx_gke_incarnation_of(const cJSON *sandbox, const cJSON *pod,
                            char out[SBX_INCARNATION_TEXT]);
/* FNV-1a of the Sandbox's name, as its controller makes it. */
void sbx_gke_name_hash(const char *sandbox, char out[9]);
/* "2026-01-31T09:30:00Z" of Unix time. */
void sbx_gke_time(int64_t ms, char out[32]);

/* ---- object.c: making and reading objects; paths end with NULL ---- */

/* A new object of that kind. NULL: no memory, as for all below. */
cJSON *sbx_gke_object(const struct sbx_resource *resource, const char *name);
/*
 * Sets a text at a path, making what is missing; NULL makes a JSON null, which removes the field
 * in a merge patch. False: no memory, or `object` is NULL.
 */
bool sbx_gke_put(cJSON *object, const char *text, ...) __attribute__((sentinel));
/* The labels that tell whose it is. */
bool sbx_gke_put_labels(cJSON *object, const char *workspace_id);
/* NULL if there is nothing. Borrowed. */
const cJSON *sbx_gke_at(const cJSON *object, ...) __attribute__((sentinel));
/* "" if there is no text. Borrowed. */
const char *sbx_gke_text(const cJSON *object, ...) __attribute__((sentinel));
/* The entry of a list whose "name" that is; NULL if there is none. */
const cJSON *sbx_gke_named(const cJSON *list, const char *name);
/* Made by this library, and (NULL: whichever) for that workspace. */
bool sbx_gke_is_ours(const cJSON *object, const char *workspace_id);

/* One in the URI's namespace; NULL is stored, and `error` left alone, where it is not there. */
sandbox_status sbx_gke_find(struct sbx_gke *driver, const struct sbx_resource *resource,
                            const char *name, const struct sbx_wait *wait, cJSON **out,
                            sandbox_error *error);

/* ---- look.c: what objects say ---- */

/* Borrowed; NULL if there is none of that type. */
const cJSON *sbx_gke_condition(const cJSON *object, const char *type);
bool sbx_gke_condition_is(const cJSON *object, const char *type, const char *status);
/* "" where there is none. Borrowed. */
const char *sbx_gke_annotation(const cJSON *object, const char *name);
const char *sbx_gke_uid(const cJSON *object);
const char *sbx_gke_version(const cJSON *object);
/* The Sandbox's Ready is True and speaks of its present spec (observedGeneration). */
bool sbx_gke_sandbox_is_ready(const cJSON *sandbox);
/* It is suspended, and says so of its present spec: the controller makes no Pod any more. */
bool sbx_gke_sandbox_is_suspended(const cJSON *sandbox);
/* The condition is there and was judged for the present spec. */
bool sbx_gke_condition_is_current(const cJSON *object, const char *type);
/*
 * Why a claim, Sandbox or Pod will never be ready as it is: reason and message for a person; or
 * false. Of a claim only what the claim's own controller says, of a Sandbox only what it says of
 * its present spec.
 */
bool sbx_gke_is_hopeless(const cJSON *object, char why[300]);
bool sbx_gke_pod_is_ready(const cJSON *pod);
bool sbx_gke_pod_has_ended(const cJSON *pod); /* Failed or Succeeded */
uint32_t sbx_gke_pod_restarts(const cJSON *pod);
/* What a Pod says of its trouble or its end; "" if nothing. */
void sbx_gke_pod_trouble(const cJSON *pod, char *out, size_t size);
/* The owner reference of what controls it, or NULL. Borrowed. */
const cJSON *sbx_gke_controller(const cJSON *object);
/* Whether `object` is controlled by the one with that UID. */
bool sbx_gke_is_controlled_by(const cJSON *object, const char *uid);
/* The name of a Sandbox's Pod. Borrowed. */
const char *sbx_gke_pod_name(const cJSON *sandbox);

/* ---- records.c, secret.c, owner.c ---- */

sandbox_status sbx_gke_record_load(void *state, const char *name, const struct sbx_wait *wait,
                                   char **text, size_t *size, char version[SBX_VERSION_TEXT],
                                   sandbox_error *error);
sandbox_status sbx_gke_record_store(void *state, const char *name, const char *text, size_t size,
                                    const char *expected, char version[SBX_VERSION_TEXT],
                                    const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_gke_record_remove(void *state, const char *name, const char *expected,
                                     const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_gke_record_list(void *state, const struct sbx_wait *wait,
                                   bool (*visit)(void *user_data, const char *name,
                                                 const char *text, size_t size,
                                                 const char *version),
                                   void *user_data, sandbox_error *error);
sandbox_status sbx_gke_secret(void *state, uint32_t *key_id, uint8_t key[32],
                              const struct sbx_wait *wait, sandbox_error *error);

/* ---- fence.c ---- */

/* The stored record is of this very operation and epoch, else SANDBOX_CONFLICT ("stale-epoch"). */
sandbox_status sbx_gke_check_record(struct sbx_gke *driver, const struct sbx_record *record,
                                    const struct sbx_wait *wait, sandbox_error *error);

/*
 * Holds off older owners: writes the record's epoch into the Sandbox's annotation (only upwards),
 * then reads the stored record again: another epoch there is SANDBOX_CONFLICT ("stale-epoch").
 * `sandbox` (NULL allowed): the Sandbox as it is now, cJSON_Delete(); NULL is stored if there is
 * none.
 */
sandbox_status sbx_gke_fence(struct sbx_gke *driver, const struct sbx_record *record,
                             const struct sbx_wait *wait, cJSON **sandbox, sandbox_error *error);

/* ---- images.c ---- */

/*
 * The warm pool for the record's image: the URI's pool, or for "NAME@sha256:…" that pool's name,
 * "-" and the first 12 digits. INVALID for an image that is not pinned.
 */
sandbox_status sbx_gke_pool_of(const struct sbx_gke *driver, const struct sbx_record *record,
                               char out[SBX_GKE_NAME], sandbox_error *error);
/*
 * The Pod runs the record's image (any, where it names none), else SANDBOX_FAILED ("wrong-image").
 */
sandbox_status sbx_gke_image_check(const struct sbx_record *record, const cJSON *pod,
                                   sandbox_error *error);
/* "NAME@sha256:…": nobody can put another one in its place. */
bool sbx_gke_image_is_pinned(const char *image);
/* What the record asks for is what the pool's template sets, else SANDBOX_UNSUPPORTED. */
sandbox_status sbx_gke_limits_check(struct sbx_gke *driver, const struct sbx_record *record,
                                    const struct sbx_wait *wait, sandbox_error *error);
/* Of the pool's template, which is read once; what may not be seen or is not there is no limit. */
sandbox_status sbx_gke_limits(struct sbx_gke *driver, const struct sbx_wait *wait,
                              struct sbx_gke_limits *out, sandbox_error *error);

/* ---- claim.c ---- */

/*
 * The claim; NULL is stored if there is none. One of somebody else is SANDBOX_CONFLICT ("not-
 * ours").
 */
sandbox_status sbx_gke_claim_get(struct sbx_gke *driver, const struct sbx_record *record,
                                 const struct sbx_wait *wait, cJSON **claim, sandbox_error *error);
/*
 * Makes the claim, with an end of its own until sbx_gke_claim_keep(), so that none stays behind a
 * creator that died. EXISTS if there is one; `claim` is then that one.
 */
sandbox_status sbx_gke_claim_make(struct sbx_gke *driver, const struct sbx_record *record,
                                  const struct sbx_wait *wait, cJSON **claim,
                                  sandbox_error *error);
/* From now on it ends with the workspace: an hour after it expires, if it does. */
sandbox_status sbx_gke_claim_keep(struct sbx_gke *driver, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error);
/*
 * `value` of the annotation podsnapshot.gke.io/ps-name for the next Pod (NULL: none), set on the
 * claim, and waits until it has arrived at the Sandbox. `claim` (NULL allowed): as it is then.
 */
sandbox_status sbx_gke_claim_pin(struct sbx_gke *driver, const struct sbx_record *record,
                                 const char *value, const struct sbx_wait *wait, cJSON **claim,
                                 sandbox_error *error);
/* Deletes it and waits until it and what it owns is gone. What is not there is success. */
sandbox_status sbx_gke_claim_remove(struct sbx_gke *driver, const struct sbx_record *record,
                                    const struct sbx_wait *wait, sandbox_error *error);
/*
 * Waits until the object of that UID is not there any more, at most for three minutes: then
 * SANDBOX_UNAVAILABLE ("still-there") says what holds it.
 */
sandbox_status sbx_gke_await_gone(struct sbx_gke *driver, const struct sbx_resource *resource,
                                  const char *name, const char *uid, const struct sbx_wait *wait,
                                  sandbox_error *error);

/* ---- instance.c ---- */

/*
 * The workspace's Sandbox by its claim's status; NOT_FOUND ("no-instance") if there is none, or it
 * is not controlled by the claim. `claim` (NULL allowed) is stored whenever there is one.
 */
sandbox_status sbx_gke_sandbox_of(struct sbx_gke *driver, const struct sbx_record *record,
                                  const struct sbx_wait *wait, cJSON **claim, cJSON **sandbox,
                                  sandbox_error *error);
/* The same; NULL is stored if there is none, and that is no failure. */
sandbox_status sbx_gke_sandbox_find(struct sbx_gke *driver, const struct sbx_record *record,
                                    const struct sbx_wait *wait, cJSON **claim, cJSON **sandbox,
                                    sandbox_error *error);
/* That, asking for the one that the record names first: mostly it is that, and one request. */
sandbox_status sbx_gke_sandbox_named(struct sbx_gke *driver, const struct sbx_record *record,
                                     const struct sbx_wait *wait, cJSON **sandbox,
                                     sandbox_error *error);
/*
 * The Sandbox's Pod as it is now, one that is being deleted too; NULL is stored if there is none.
 */
sandbox_status sbx_gke_pod_of(struct sbx_gke *driver, const cJSON *sandbox,
                              const struct sbx_wait *wait, cJSON **pod, sandbox_error *error);
/*
 * operatingMode, as a compare-and-swap on the Sandbox that was seen with this epoch in its
 * annotation. Whether it changes anything or is so already.
 */
sandbox_status sbx_gke_set_mode(struct sbx_gke *driver, const struct sbx_record *record,
                                const char *mode, const struct sbx_wait *wait, cJSON **sandbox,
                                sandbox_error *error);
/* Until the Pod of that incarnation is gone (404 or another UID under its name). */
sandbox_status sbx_gke_await_pod_gone(struct sbx_gke *driver,
                                      const struct sbx_gke_incarnation *incarnation,
                                      const struct sbx_wait *wait, sandbox_error *error);
/*
 * Until the controller says of the present spec that it is suspended, so that no Pod can come any
 * more.
 */
sandbox_status sbx_gke_await_suspended(struct sbx_gke *driver, const cJSON *sandbox,
                                       const struct sbx_wait *wait, sandbox_error *error);
/* What is known before a wait for a Pod; NULL: not known. */
struct sbx_gke_seen {
    const char *not_uid;           /* of a Pod that does not count; "": any does */
    const cJSON *claim, *sandbox;  /* as the cluster answered last */
};

/*
 * Until the Sandbox runs a Pod whose UID is not `not_uid` and whose readiness is told
 * for the present spec, with the record's image. `pod`: as it is then. Fails at once on what will
 * never be ready: SANDBOX_FAILED "pod-ended" (the Pod ended, or its container cannot start or
 * crashes) or "never-ready" (claim or Sandbox say so), SANDBOX_NOT_FOUND "no-such-pool",
 * SANDBOX_LIMIT "kubernetes-quota".
 */
sandbox_status sbx_gke_await_ready(struct sbx_gke *driver, const struct sbx_record *record,
                                   const struct sbx_gke_seen *known, const struct sbx_wait *wait,
                                   char incarnation[SBX_INCARNATION_TEXT], cJSON **pod,
                                   sandbox_error *error);
sandbox_status sbx_gke_provision(void *state, const struct sbx_record *record,
                                 const struct sbx_wait *wait,
                                 char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error);
sandbox_status sbx_gke_inspect(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, struct sbx_instance *out,
                               sandbox_error *error);
sandbox_status sbx_gke_discard(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_gke_destroy(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, sandbox_error *error);
/* It has that UID and name. */
bool sbx_gke_pod_is_recorded(const cJSON *pod, const struct sbx_gke_incarnation *recorded);
/* The record's expiry was moved: the claim's end follows. */
sandbox_status sbx_gke_renewed(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, sandbox_error *error);

/* ---- connect.c ---- */

sandbox_status sbx_gke_connect(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, struct sbx_channel *channel,
                               sandbox_error *error);
bool sbx_gke_is_direct(void *state);
/* SANDBOX_UNAVAILABLE "pod-unreachable": nobody answers at the Pod's address. */
sandbox_status sbx_gke_connect_direct(void *state, const struct sbx_record *record,
                                      const struct sbx_wait *wait, struct sbx_channel *channel,
                                      sandbox_error *error);
/*
 * The Pod of the recorded incarnation, as long as it runs; SANDBOX_UNAVAILABLE ("no-instance").
 * `recorded` is filled in.
 */
sandbox_status sbx_gke_recorded_pod(struct sbx_gke *driver, const struct sbx_record *record,
                                    struct sbx_gke_incarnation *recorded,
                                    const struct sbx_wait *wait, cJSON **pod, sandbox_error *error);
/* Of a Pod, IPv4 rather than IPv6; "" if it has none yet. Borrowed. */
const char *sbx_gke_pod_address(const cJSON *pod);

/* ---- snapshot*.c, restore.c ---- */

sandbox_status sbx_gke_snapshot_prepare(void *state, const struct sbx_record *record,
                                        const struct sbx_snapshot *snapshot,
                                        const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_gke_snapshot_take(void *state, const struct sbx_record *record,
                                     struct sbx_snapshot *snapshot, struct sbx_progress *progress,
                                     const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_gke_snapshot_adopt(void *state, const struct sbx_record *record,
                                      struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                                      sandbox_error *error);
sandbox_status sbx_gke_snapshot_verify(void *state, const struct sbx_record *record,
                                       const struct sbx_snapshot *snapshot,
                                       struct sbx_progress *progress, const struct sbx_wait *wait,
                                       struct sbx_verdict *out, sandbox_error *error);
sandbox_status sbx_gke_snapshot_remove(void *state, const struct sbx_record *record,
                                       const char *snapshot_id, const struct sbx_wait *wait,
                                       sandbox_error *error);
/*
 * Every snapshot of the workspace, in an order that leaves nothing in the bucket. Until all are
 * gone. The Pod has ended before, so that none is under way; the claim is there still: it knows
 * the group.
 */
sandbox_status sbx_gke_snapshots_remove_all(struct sbx_gke *driver, const struct sbx_record *record,
                                            const struct sbx_wait *wait, sandbox_error *error);
/*
 * After the Open: a Pod that the platform makes later is not to be restored from an old snapshot.
 */
sandbox_status sbx_gke_settled(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_gke_restore(void *state, const struct sbx_record *record,
                               const struct sbx_snapshot *snapshot, sandbox_keep keep,
                               struct sbx_progress *progress, const struct sbx_wait *wait,
                               struct sbx_restored *out, sandbox_error *error);
sandbox_status sbx_gke_evidence(void *state, const struct sbx_record *record,
                                const struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                                struct sbx_restored *out, sandbox_error *error);
sandbox_status sbx_gke_release(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, sandbox_error *error);

/* ---- doctor.c ---- */

sandbox_status sbx_gke_examine(const char *rest, const struct sbx_wait *wait,
                               struct sbx_findings_sink *sink, sandbox_error *error);
/* `text` (NULL allowed): all that was read; free it with free(). */
sandbox_status sbx_gke_describe(const char *rest, const struct sbx_wait *wait,
                                struct sbx_findings_sink *sink, char **text, sandbox_error *error);
sandbox_status sbx_gke_judge_description(const char *rest, const char *title, const void *text,
                                         size_t size, struct sbx_findings_sink *sink,
                                         sandbox_error *error);

#endif
