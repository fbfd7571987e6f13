/*
 * A few threads that share out pieces of work among them; the calling thread is one of them. For
 * work that keeps processors busy: digests and copies. No callback of a caller runs in them.
 */
#ifndef SBX_UTIL_CREW_H
#define SBX_UTIL_CREW_H

#include <sandbox/error.h>
#include <stdint.h>

#define SBX_CREW_MAX 16

struct sbx_wait;
struct sbx_crew;

/*
 * One hand for each processor that this thread may use, at most SBX_CREW_MAX; fewer where threads
 * cannot be had. NULL: no memory. One thread at a time.
 */
struct sbx_crew *sbx_crew_new(void);
/* Of so many hands, for work that waits for the disk. */
struct sbx_crew *sbx_crew_of(unsigned hands);
unsigned sbx_crew_size(const struct sbx_crew *crew); /* hands, the caller's too */

/* `hand` is below the crew's size, and no two run with the same one at a time. */
typedef sandbox_status sbx_crew_work(void *data, unsigned hand, uint64_t index,
                                     sandbox_error *error);

/*
 * Does `work` for every index below `count`, in no order. The first failure ends it, and so does
 * the wait, which is looked at between two pieces of the calling thread.
 */
sandbox_status sbx_crew_run(struct sbx_crew *crew, uint64_t count, sbx_crew_work *work, void *data,
                            const struct sbx_wait *wait, sandbox_error *error);

void sbx_crew_free(struct sbx_crew *crew); /* NULL allowed */
void sbx_crew_end(struct sbx_crew **crew); /* for SBX_ON_EXIT */

#endif
