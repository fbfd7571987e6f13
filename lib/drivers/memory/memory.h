/*
 * The inside of the memory driver: its settings, the platform's process, one exchange with it.
 *
 * Any thread may use a driver at any time: a call makes its own connection.
 */
#ifndef SBX_DRIVERS_MEMORY_H
#define SBX_DRIVERS_MEMORY_H

#include "core/driver.h"

/* How long the undoing of a failed step may take. */
#define SBX_MEMORY_ROLL_BACK_MS 10000

struct sbx_memory {
    char *socket;       /* of the platform */
    char *agent;        /* the agent's program that was asked for, or NULL */
    bool own_directory; /* the socket is in the default directory, which we make and check */
};

/* ---- settings.c ---- */

/* `rest` of "memory:[/SOCKET/PATH][?agent=PATH]". Touches nothing. */
sandbox_status sbx_memory_settings_read(const char *rest, struct sbx_memory *out,
                                        sandbox_error *error);
void sbx_memory_settings_clear(struct sbx_memory *settings);

/* ---- platform.c ---- */

/* A connection to the platform, which is started if there is none. */
sandbox_status sbx_memory_connect(const struct sbx_memory *driver, const struct sbx_wait *wait,
                                  int *fd, sandbox_error *error);
/* Only if it runs: SANDBOX_NOT_FOUND if it does not. */
sandbox_status sbx_memory_connect_running(const struct sbx_memory *driver,
                                          const struct sbx_wait *wait, int *fd,
                                          sandbox_error *error);
/* The directory of the socket: there, and nobody else's. */
sandbox_status sbx_memory_directory(const struct sbx_memory *driver, sandbox_error *error);

sandbox_status sbx_memory_examine(const char *rest, const struct sbx_wait *wait,
                                  struct sbx_findings_sink *sink, sandbox_error *error);

/* ---- exchange.c ---- */

/* A request that does `what`; NULL on no memory. */
cJSON *sbx_memory_request(const char *what);
/*
 * Sends the request and takes the answer. Takes the request over, NULL too. A failure of the
 * platform's comes back as it told it. If the answer is lost, a request that may be
 * repeated is SANDBOX_UNAVAILABLE, one that may not (`once`) is SANDBOX_UNKNOWN with reason
 * "answer-lost".
 *
 * @param answer  cJSON_Delete(); NULL allowed
 */
sandbox_status sbx_memory_ask(const struct sbx_memory *driver, cJSON *request, bool once,
                              const struct sbx_wait *wait, cJSON **answer, sandbox_error *error);

/* A request about a workspace, with what the platform compares with the stored record. */
cJSON *sbx_memory_fenced(const char *what, const struct sbx_record *record);

/* ---- records.c ---- */

sandbox_status sbx_memory_record_load(void *state, const char *name, const struct sbx_wait *wait,
                                      char **text, size_t *size, char version[SBX_VERSION_TEXT],
                                      sandbox_error *error);
sandbox_status sbx_memory_record_store(void *state, const char *name, const char *text, size_t size,
                                       const char *expected, char version[SBX_VERSION_TEXT],
                                       const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_memory_record_remove(void *state, const char *name, const char *expected,
                                        const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_memory_record_list(void *state, const struct sbx_wait *wait,
                                      bool (*visit)(void *user_data, const char *name,
                                                    const char *text, size_t size,
                                                    const char *version),
                                      void *user_data, sandbox_error *error);
sandbox_status sbx_memory_secret(void *state, uint32_t *key_id, uint8_t key[32],
                                 const struct sbx_wait *wait, sandbox_error *error);

/* ---- snapshots.c ---- */

sandbox_status sbx_memory_snapshot_prepare(void *state, const struct sbx_record *record,
                                           const struct sbx_snapshot *snapshot,
                                           const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_memory_snapshot_take(void *state, const struct sbx_record *record,
                                        struct sbx_snapshot *snapshot,
                                        struct sbx_progress *progress, const struct sbx_wait *wait,
                                        sandbox_error *error);
sandbox_status sbx_memory_snapshot_adopt(void *state, const struct sbx_record *record,
                                         struct sbx_snapshot *snapshot,
                                         const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_memory_snapshot_verify(void *state, const struct sbx_record *record,
                                          const struct sbx_snapshot *snapshot,
                                          struct sbx_progress *progress,
                                          const struct sbx_wait *wait, struct sbx_verdict *out,
                                          sandbox_error *error);
sandbox_status sbx_memory_snapshot_remove(void *state, const struct sbx_record *record,
                                          const char *snapshot_id, const struct sbx_wait *wait,
                                          sandbox_error *error);
sandbox_status sbx_memory_restore(void *state, const struct sbx_record *record,
                                  const struct sbx_snapshot *snapshot, sandbox_keep keep,
                                  struct sbx_progress *progress, const struct sbx_wait *wait,
                                  struct sbx_restored *out, sandbox_error *error);
sandbox_status sbx_memory_evidence(void *state, const struct sbx_record *record,
                                   const struct sbx_snapshot *snapshot,
                                   const struct sbx_wait *wait, struct sbx_restored *out,
                                   sandbox_error *error);
sandbox_status sbx_memory_release(void *state, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error);

#endif
