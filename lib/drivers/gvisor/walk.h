/* Walking a large tree of directories on all cores, to any depth. For this folder only. */
#ifndef SBX_DRIVERS_GVISOR_WALK_H
#define SBX_DRIVERS_GVISOR_WALK_H

#include <sandbox/error.h>

struct sbx_wait;
struct sbx_walk_list;

/*
 * Looks at one directory, `path` below whatever the caller knows as the root, and names those in
 * it that are to be visited as well. On any thread, and beside others.
 */
typedef sandbox_status sbx_walk_visit(void *data, const char *path, struct sbx_walk_list *below,
                                      sandbox_error *error);

/* Visits `first` (NULL-terminated) and everything that is added. The first failure ends it. */
sandbox_status sbx_walk(const char *const *first, sbx_walk_visit *visit, void *data,
                        const struct sbx_wait *wait, sandbox_error *error);
/* The same by so many hands: where the disk is waited for, more than there are processors. */
sandbox_status sbx_walk_by(unsigned hands, const char *const *first, sbx_walk_visit *visit,
                           void *data, const struct sbx_wait *wait, sandbox_error *error);
/* Names PATH/NAME. */
sandbox_status sbx_walk_add(struct sbx_walk_list *below, const char *path, const char *name,
                            sandbox_error *error);

#endif
