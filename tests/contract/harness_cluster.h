/* The cluster double, for the harness: a program of its own, started and ended with the test. */
#ifndef TESTS_HARNESS_CLUSTER_H
#define TESTS_HARNESS_CLUSTER_H

#include <stdbool.h>

#define HARNESS_CLUSTER_URI "gke://double/workspaces?pool=standard"

/* Starts it with its files in `directory`, and sets KUBECONFIG. False: it cannot run here; it has
 * said why. */
bool harness_cluster_start(const char *directory);
void harness_cluster_end(void);
/* Kills what runs in the Pod of the workspace with that id, and waits until the Pod says so. */
void harness_cluster_kill(const char *id);

#endif
