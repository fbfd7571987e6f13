/*
 * The root file system of a sandbox: put together by the child that then becomes runsc, in a mount
 * namespace of its own, so that no mount is ever seen outside or left behind.
 */
#ifndef SBX_DRIVERS_GVISOR_ROOT_H
#define SBX_DRIVERS_GVISOR_ROOT_H

#include <sandbox/error.h>
#include <stddef.h>

#define SBX_GVISOR_BINDS 8

struct sbx_gvisor;
struct sbx_gvisor_start;

/* All that the child needs, since it can neither allocate nor open a file by a name it must make.
 */
struct sbx_gvisor_root {
    int groups[2]; /* cgroup.procs of the control groups to join; -1: none */
    char *place;   /* where the root file system is put together */
    char *layers;  /* mount data of the overlay */
    struct {
        char *from, *to;
    } binds[SBX_GVISOR_BINDS];
    size_t bind_count;
    /* Written by the child where it fails. */
    const char *failed, *subject;
    int number;
};

#define SBX_GVISOR_ROOT                                                                            \
    {                                                                                              \
        .groups = { -1, -1 }                                                                       \
    }

sandbox_status sbx_gvisor_root_plan(struct sbx_gvisor *driver, const char *id,
                                    const struct sbx_gvisor_start *start,
                                    struct sbx_gvisor_root *out, sandbox_error *error);
/* For sbx_child_options: joins the groups, makes the mounts. */
int sbx_gvisor_root_enter(void *root);
/* Why that failed. */
sandbox_status sbx_gvisor_root_explain(const struct sbx_gvisor_root *root, sandbox_error *error);
void sbx_gvisor_root_clear(struct sbx_gvisor_root *root); /* for SBX_ON_EXIT */

#endif
