/*
 * One descriptor for poll() that stands for others, which come and go, and for a fact that no
 * descriptor tells.
 *
 * Not thread-safe: its owner guards it.
 */
#ifndef SBX_READINESS_H
#define SBX_READINESS_H

#include <stdbool.h>

struct sbx_readiness {
    int descriptor; /* readable while one of its members is; -1: not made */
    int fact_fd;
    bool fact;
};

#define SBX_READINESS {-1, -1, false}

/* False where descriptors have run out. Making it twice is fine. */
bool sbx_readiness_make(struct sbx_readiness *readiness);
void sbx_readiness_free(struct sbx_readiness *readiness);
/* Both do nothing with -1, or before it is made. */
void sbx_readiness_add(struct sbx_readiness *readiness, int fd);
void sbx_readiness_remove(struct sbx_readiness *readiness, int fd);
/* Readable whatever the members say. Remembered where it is not made yet. */
void sbx_readiness_set(struct sbx_readiness *readiness, bool fact);

#endif
