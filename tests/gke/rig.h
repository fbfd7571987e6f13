/* What the tests of the GKE driver over the cluster double share. */
#ifndef TESTS_GKE_RIG_H
#define TESTS_GKE_RIG_H

#include "scenario.h"
#include "util/memory.h"

#define RIG_SPACE "workspaces"

/* On a cluster double of its own; a child of a scenario does its operation instead. */
void rig_begin(int argc, char **argv);
/* SANDBOX_TEST_COUNT, or the usual one. */
unsigned rig_count(unsigned usual);

/* The objects of a kind, as the double has them; cJSON_Delete(). `name` NULL: all. */
cJSON *rig_objects(const char *resource, const char *name);
unsigned rig_object_count(const char *resource);
/* Instances of workspaces: Pods of claimed Sandboxes. */
unsigned rig_instances(void);
/* The workspace's Sandbox and claim, by name. Static texts. */
const char *rig_sandbox(sandbox_workspace *workspace);
const char *rig_claim(sandbox_workspace *workspace);
/* Which PodSnapshot its next Pod is pinned to; "". */
const char *rig_pin(sandbox_workspace *workspace);
/* The name of the PodSnapshot that a resume goes back to; "". */
const char *rig_pod_snapshot(sandbox_workspace *workspace);
/* GKE says at last that its Pod was restored from its newest PodSnapshot. */
void rig_confirm_restore(sandbox_workspace *workspace);
/* How many requests there were, "patch sandboxes" and the like. */
int rig_requests(const char *what);

#endif
