/*
 * The admin API of an egress proxy, as drivers ask it: see doc/egress.md. It is no place for
 * retries: what fails is the caller's to judge.
 */
#ifndef SBX_CLOUD_EGRESS_ADMIN_H
#define SBX_CLOUD_EGRESS_ADMIN_H

#include "cloud/http.h"
#include "egress/question.h"
#include "util/json.h"

#define SBX_EGRESS_KEY_TEXT 65 /* 64 hexadecimal digits and the end */

/* Where it listens. Borrowed during a call. */
struct sbx_egress_admin {
    const char *url;    /* "http://ADDRESS:PORT", without a slash at the end */
    const char *socket; /* a Unix socket, then the URL's host means nothing; or NULL */
    const char *token;  /* NULL: none is asked for */
};

/* A fresh key, for one run. False: the kernel gives no random bytes. */
bool sbx_egress_admin_key(char key[SBX_EGRESS_KEY_TEXT]);

/* Whether a proxy of our protocol answers there: SANDBOX_UNAVAILABLE ("no-proxy") if none does. */
sandbox_status sbx_egress_admin_hello(struct sbx_http *http, const struct sbx_egress_admin *admin,
                                      const struct sbx_wait *wait, sandbox_error *error);

/*
 * Registers the workspace, which comes from `source` ({"address"} or {"socket"}) and brings `key`.
 * With `keep` what is registered there already only gets the new key.
 */
sandbox_status sbx_egress_admin_put(struct sbx_http *http, const struct sbx_egress_admin *admin,
                                    const char *workspace_id, const cJSON *source, const char *key,
                                    const cJSON *registration, bool keep,
                                    const struct sbx_wait *wait, sandbox_error *error);
/* As the driver's egress_ask(). */
sandbox_status sbx_egress_admin_ask(struct sbx_http *http, const struct sbx_egress_admin *admin,
                                    const char *workspace_id, enum sbx_egress_question question,
                                    const cJSON *body, const struct sbx_wait *wait, cJSON **answer,
                                    sandbox_error *error);
/* As the driver's egress_forget(). Where no proxy answers there is nothing to forget. */
sandbox_status sbx_egress_admin_forget(struct sbx_http *http, const struct sbx_egress_admin *admin,
                                       const char *workspace_id, const struct sbx_wait *wait,
                                       sandbox_error *error);

#endif
