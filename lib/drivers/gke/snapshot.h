/*
 * What the files about snapshots share. A snapshot of ours is a trigger, which carries our id, and
 * the PodSnapshot that GKE made of it, which carries nothing of ours: nobody but GKE may write one.
 */
#ifndef SBX_DRIVERS_GKE_SNAPSHOT_H
#define SBX_DRIVERS_GKE_SNAPSHOT_H

#include "drivers/gke/gke.h"

#define SBX_GKE_ATTEMPTS 7 /* triggers for one snapshot; a digit in the name */
#define SBX_GKE_WHY      200

/* ---- snapshot.c ---- */

/* As the cluster has it now. */
struct sbx_gke_taken {
    cJSON *trigger;      /* the one that made it, else the last one; NULL: gone */
    cJSON *pod_snapshot; /* NULL: none yet, or gone */
};

void sbx_gke_taken_clear(struct sbx_gke_taken *taken); /* for SBX_ON_EXIT too */
/* What is not there is NULL, and no failure. */
sandbox_status sbx_gke_taken_find(struct sbx_gke *driver, const struct sbx_record *record,
                                  const char *snapshot_id, const struct sbx_wait *wait,
                                  struct sbx_gke_taken *out, sandbox_error *error);

enum sbx_gke_progress { SBX_GKE_UNDER_WAY = 0, SBX_GKE_DONE, SBX_GKE_FAILED };

/* `why`: GKE's own words, where there are any. */
enum sbx_gke_progress sbx_gke_trigger_progress(const cJSON *trigger, char why[SBX_GKE_WHY]);
/* DONE: it can be restored. Not what the trigger says, which comes before that. */
enum sbx_gke_progress sbx_gke_pod_snapshot_progress(const cJSON *pod_snapshot,
                                                    char why[SBX_GKE_WHY]);
/* The PodSnapshot's name, as the trigger tells it; "". */
const char *sbx_gke_trigger_made(const cJSON *trigger);
/* False: it was taken of another Pod, or for another trigger than `trigger` (NULL: of any). */
bool sbx_gke_is_of(const cJSON *pod_snapshot, const char *incarnation, const cJSON *trigger,
                   char why[SBX_GKE_WHY]);
/* Over all that tells it from any other one. False: no memory. */
bool sbx_gke_digest(const cJSON *pod_snapshot, const struct sbx_record *record,
                    const struct sbx_snapshot *snapshot, char out[SBX_HASH_TEXT]);
/*
 * Whether it is the one that was taken and can be restored, without a look at what surrounds it.
 * `pod_snapshot` (NULL allowed) is its name if it is intact.
 */
sandbox_status sbx_gke_judge(struct sbx_gke *driver, const struct sbx_record *record,
                             const struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                             struct sbx_verdict *out, char pod_snapshot[SBX_GKE_NAME],
                             sandbox_error *error);

/* ---- snapshot_policy.c ---- */

/* Of the policies of a namespace, the one that snapshots a Pod as we need it. */
struct sbx_gke_choice {
    const struct sbx_record *record;
    const cJSON *labels; /* of the Pod */
    sandbox_status status;
    sandbox_error why; /* of the first one that selects the Pod and is of no use */
    char storage[SBX_GKE_NAME];
    bool selected, good;
};

void sbx_gke_choice_begin(struct sbx_gke_choice *choice, const struct sbx_record *record,
                          const cJSON *pod);
bool sbx_gke_choice_visit(void *choice, const cJSON *policy);
/* After all of them were visited. `listed`: what became of that. */
sandbox_status sbx_gke_choice_end(const struct sbx_gke_choice *choice, const struct sbx_gke *driver,
                                  sandbox_status listed, sandbox_error *error);
/* Of the storage that the choice names. `read`: what became of reading it. */
sandbox_status sbx_gke_choice_storage(const struct sbx_gke_choice *choice, const cJSON *storage,
                                      sandbox_status read, sandbox_error *error);

/*
 * Whether some policy in the namespace snapshots a Pod with these labels as we need it, and its
 * storage is there. Every refusal says what to mend.
 */
sandbox_status sbx_gke_policy_check(struct sbx_gke *driver, const struct sbx_record *record,
                                    const cJSON *pod, const struct sbx_wait *wait,
                                    sandbox_error *error);
/* NOT_FOUND: the policy that the PodSnapshot was taken under, or its storage, is gone. */
sandbox_status sbx_gke_policy_of(struct sbx_gke *driver, const cJSON *pod_snapshot,
                                 const struct sbx_wait *wait, sandbox_error *error);

/* ---- snapshot_remove.c ---- */

/*
 * The PodSnapshot, then its triggers; not fenced. Waits until the PodSnapshot is gone, at most
 * `patience_ms`: GKE's deletion cannot be taken back, and may take minutes.
 */
sandbox_status sbx_gke_take_away(struct sbx_gke *driver, const struct sbx_record *record,
                                 const char *snapshot_id, uint32_t patience_ms,
                                 const struct sbx_wait *wait, sandbox_error *error);

/*
 * PodSnapshots of the workspace's Sandbox by triggers of ours that are in no list of the record:
 * they came after whoever wanted them had given up. Left, they would push good ones out of the
 * policy's group. Asks for their deletion and does not wait for the end of it.
 */
sandbox_status sbx_gke_sweep(struct sbx_gke *driver, const struct sbx_record *record,
                             const struct sbx_wait *wait, sandbox_error *error);

/* ---- evidence.c ---- */

/* What the Pod's condition says alone; `out` gets evidence and detail. */
void sbx_gke_evidence_of(const cJSON *pod, const char *pod_snapshot, struct sbx_restored *out);
/* And the Pod's events: any word against it counts, none for it is enough. */
sandbox_status sbx_gke_evidence_events(struct sbx_gke *driver, const char *pod, const char *uid,
                                       const char *pod_snapshot, const struct sbx_wait *wait,
                                       struct sbx_restored *out, sandbox_error *error);

#endif
