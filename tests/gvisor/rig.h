/*
 * What the tests of the gvisor driver share: a state directory of their own, workspaces in it,
 * and a look inside them by runsc's own exec, which owes nothing to the agent.
 */
#ifndef TESTS_GVISOR_RIG_H
#define TESTS_GVISOR_RIG_H

#include "drivers/gvisor/gvisor.h"

extern void *rig_state;              /* the open driver */
extern const struct sbx_driver *rig; /* its table */
extern char rig_folder[64];          /* the state directory */
extern struct sbx_wait rig_wait;

/* False: it cannot be done on this machine; it has said why. */
bool rig_begin(void);
/* Destroys whatever is left, and the state directory. */
void rig_end(void);
/* Opens the driver once more, as another client would; `more` is further URI parameters. */
void *rig_open(const char *more);

/* A stored record that is being created. */
void rig_record(struct sbx_record *record, const char *name);
/* The record as it is now, written again. */
void rig_store(struct sbx_record *record);
void rig_provision(struct sbx_record *record);
/* Destroys it and removes its record. */
void rig_destroy(struct sbx_record *record);
enum sbx_presence rig_presence(const struct sbx_record *record, char detail[160]);

/* Runs a shell command inside, as root; returns its code, and its text in a static place. */
int rig_inside(const struct sbx_record *record, const char *command, const char **text);
/* A number that a host command prints. */
long rig_number(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The host processes that work for this workspace, found without the driver. */
long rig_processes(const char *id);
/* Waits at most 20 s until `is_true(data)`. */
bool rig_await(bool (*is_true)(void *data), void *data);

#endif
