/*
 * A server inside a workspace that is asked for JSON over HTTP. What it answers is a stranger's:
 * bytes, headers, items and time are bounded, redirections are not followed.
 *
 * For one thread. Nothing listens on this machine for it, and no proxy is asked.
 */
#ifndef SBX_GUEST_HTTP_H
#define SBX_GUEST_HTTP_H

#include "util/json.h"
#include "util/wait.h"
#include <sandbox/workspace.h>

#define SBX_GUEST_ANSWER_MAX (8u << 20) /* bytes of one answer */
#define SBX_GUEST_CURSOR_TEXT 512

struct sbx_guest_http;

/* Connects to nothing yet. `password` NULL: none is sent. Both are copied. */
sandbox_status sbx_guest_http_open(sandbox_workspace *workspace, uint16_t port, const char *user,
                                   const char *password, struct sbx_guest_http **out,
                                   sandbox_error *error);

/*
 * GET. `path` begins with '/' and is ready to be sent. SANDBOX_NOT_FOUND "connection-refused":
 * nothing listens. SANDBOX_DENIED "check-denied": it wants another password. What is no JSON or no
 * success is SANDBOX_UNAVAILABLE "check-failed", and so is no answer in time.
 *
 * @param answer  cJSON_Delete()
 * @param cursor  of the next page, from the header x-next-cursor, or ""; NULL allowed
 */
sandbox_status sbx_guest_http_get(struct sbx_guest_http *http, const char *path,
                                  const struct sbx_wait *wait, cJSON **answer,
                                  char cursor[SBX_GUEST_CURSOR_TEXT], sandbox_error *error);

/* The same wait for a public function, at most that long. */
sandbox_call sbx_guest_call(const struct sbx_wait *wait, uint32_t at_most_ms);

/* Fit to stand in a path's query; free(). NULL on no memory. */
char *sbx_guest_http_escape(const char *text);

void sbx_guest_http_free(struct sbx_guest_http *http); /* accepts NULL */

#endif
