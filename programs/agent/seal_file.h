/*
 * The seal file: what of a seal is kept among the workspace's files, for root only, so that a
 * fresh agent over a copy of them can prove whose they are. Any thread.
 */
#ifndef AGENT_SEAL_FILE_H
#define AGENT_SEAL_FILE_H

#include <stdbool.h>
#include <stdint.h>

#define AGENT_NONCE_BYTES 32

struct agent_seal {
    uint32_t epoch;
    uint32_t generation; /* how often the workspace was restored before */
    uint8_t workspace_id[16];
    uint8_t nonce[AGENT_NONCE_BYTES];
    uint8_t token_hash[32];
};

/* Durable once it returns. 0 or an errno value, and nothing is left then. */
int agent_seal_write(const char *path, const struct agent_seal *seal);
/* 0, ENOENT, or an errno value: EBADMSG where it is no seal file of ours, EPERM where others may
 * read or have written it. */
int agent_seal_read(const char *path, struct agent_seal *out);
/* It is spent. What is not there is no failure. 0 or an errno value. */
int agent_seal_remove(const char *path);

#endif
