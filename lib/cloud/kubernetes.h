/*
 * One Kubernetes cluster, as one context of a kubeconfig (or a Pod's own service account) sees it.
 *
 * Typed only where this library looks: objects go in and out as JSON, so that fields of newer
 * versions survive. Retries, throttling and refreshed credentials are settled in here, once: what
 * comes back as an error is final for that call. Any thread may use a cluster at any time.
 *
 * Errors: 404 is SANDBOX_NOT_FOUND ("no-such-object") where it names the object, and else
 * SANDBOX_UNSUPPORTED ("no-such-kind"): the cluster knows no such kind of object. A taken name is
 * SANDBOX_EXISTS ("object-exists"), a lost race or precondition SANDBOX_CONFLICT
 * ("object-changed"), 401 and 403 SANDBOX_DENIED ("kubernetes-denied"), 400 and 422
 * SANDBOX_INVALID ("kubernetes-refused"), a quota SANDBOX_LIMIT ("kubernetes-quota"), what stays
 * throttled or down SANDBOX_UNAVAILABLE ("kubernetes-unavailable"). A create whose answer was lost
 * is SANDBOX_UNKNOWN ("answer-lost"), or TIMED_OUT or CANCELLED with that reason: only its caller
 * knows by which name to look; so is a delete without a precondition. Messages hold the server's
 * own words, never a credential.
 */
#ifndef SBX_CLOUD_KUBERNETES_H
#define SBX_CLOUD_KUBERNETES_H

#include "transport/channel.h"
#include "util/wait.h"
#include <cjson/cJSON.h>
#include <sandbox/error.h>

struct sbx_kubernetes;

struct sbx_kubernetes_options {
    const char *kubeconfig; /* path; NULL: $KUBECONFIG, then ~/.kube/config */
    const char *context;    /* NULL or "": the current one */
    bool in_cluster;        /* the Pod's own service account instead of a kubeconfig */
    const char *account;    /* its directory; NULL: where Kubernetes mounts it */
};

/*
 * Reads the configuration; makes no request. SANDBOX_NOT_FOUND ("no-kubeconfig",
 * "no-such-context"), SANDBOX_INVALID ("kubeconfig"): what is wrong in which file, and how to mend
 * it.
 */
sandbox_status sbx_kubernetes_open(const struct sbx_kubernetes_options *options,
                                   struct sbx_kubernetes **out, sandbox_error *error);
/* After all its exec channels and awaits have ended. Accepts NULL. */
void sbx_kubernetes_close(struct sbx_kubernetes *cluster);
/* Of the context, or of the Pod; "default" where none is set. */
const char *sbx_kubernetes_namespace(const struct sbx_kubernetes *cluster);

/* A kind of object, where the API serves it. Static data of whoever uses it. */
struct sbx_resource {
    const char *group; /* "" for the core group */
    const char *version, *plural, *kind;
    bool cluster_scoped;
};

/* ---- one object ---- */

/* `out`: cJSON_Delete(). NULL where the caller does not want to see it. */
sandbox_status sbx_kubernetes_get(struct sbx_kubernetes *cluster,
                                  const struct sbx_resource *resource, const char *space,
                                  const char *name, const struct sbx_wait *wait, cJSON **out,
                                  sandbox_error *error);
/*
 * The name stands in the object (metadata.name), or metadata.generateName. Unknown fields are
 * refused by the server (fieldValidation=Strict), never dropped. Of a fixed name that an earlier
 * try of this same call may have made, EXISTS is what comes back: the caller looks whose it is.
 */
sandbox_status sbx_kubernetes_create(struct sbx_kubernetes *cluster,
                                     const struct sbx_resource *resource, const char *space,
                                     const cJSON *object, const struct sbx_wait *wait, cJSON **out,
                                     sandbox_error *error);
/*
 * A JSON merge patch. With metadata.resourceVersion in it, it is a compare-and-swap
 * (SANDBOX_CONFLICT, maybe by an earlier try of this same call whose answer was lost). `part`: ""
 * or "status".
 */
sandbox_status sbx_kubernetes_patch(struct sbx_kubernetes *cluster,
                                    const struct sbx_resource *resource, const char *space,
                                    const char *name, const char *part, const cJSON *patch,
                                    const struct sbx_wait *wait, cJSON **out,
                                    sandbox_error *error);
/* Replaces all of it; metadata.resourceVersion in it makes it a compare-and-swap. */
sandbox_status sbx_kubernetes_replace(struct sbx_kubernetes *cluster,
                                      const struct sbx_resource *resource, const char *space,
                                      const char *name, const cJSON *object,
                                      const struct sbx_wait *wait, cJSON **out,
                                      sandbox_error *error);
/* Server-side apply as field manager "libsandbox". `force`: take over fields of other managers. */
sandbox_status sbx_kubernetes_apply(struct sbx_kubernetes *cluster,
                                    const struct sbx_resource *resource, const char *space,
                                    const cJSON *object, bool force, const struct sbx_wait *wait,
                                    cJSON **out, sandbox_error *error);

struct sbx_delete_options {
    const char *uid;         /* only this one, not a namesake made later; NULL: whichever */
    const char *version;     /* only at this resourceVersion; NULL: at any */
    const char *propagation; /* "Background", "Foreground", "Orphan"; NULL: the kind's default */
    bool at_once; /* of a Pod whose node does not end it: gracePeriodSeconds 0 */
};

/*
 * Asks for the deletion and does not wait for the end of it (see sbx_kubernetes_await()). NOT_FOUND
 * if it is not there, CONFLICT if a precondition does not hold.
 */
sandbox_status sbx_kubernetes_delete(struct sbx_kubernetes *cluster,
                                     const struct sbx_resource *resource, const char *space,
                                     const char *name, const struct sbx_delete_options *options,
                                     const struct sbx_wait *wait, sandbox_error *error);

/* ---- many ---- */

/*
 * Page by page. `selector`: a label selector, or NULL. `visit` borrows the object and returns
 * false to stop; apiVersion and kind are filled in where the server leaves them out.
 */
sandbox_status sbx_kubernetes_list(struct sbx_kubernetes *cluster,
                                   const struct sbx_resource *resource, const char *space,
                                   const char *selector, const struct sbx_wait *wait,
                                   bool (*visit)(void *user_data, const cJSON *object),
                                   void *user_data, sandbox_error *error);

/* ---- waiting ---- */

/*
 * Waits until `is_done` says so of the object: asked first for `known` (what a create or patch just
 * returned; NULL: it is fetched), then at every change. `object` NULL: it is not there (any more).
 * It runs on any thread and under a lock: it must not block, nor call the cluster. It is not asked
 * twice for one state in the usual course.
 *
 * All awaits on one kind in one namespace share one watch, which lives on a while afterwards.
 * Where it breaks, is closed or is too old (410), it is begun again and nothing is missed: each
 * awaited object is fetched anew. `out`: the state that it was done for; cJSON_Delete(), NULL
 * allowed; NULL is stored where that state is "not there".
 */
sandbox_status sbx_kubernetes_await(struct sbx_kubernetes *cluster,
                                    const struct sbx_resource *resource, const char *space,
                                    const char *name, const cJSON *known,
                                    bool (*is_done)(void *user_data, const cJSON *object),
                                    void *user_data, const struct sbx_wait *wait, cJSON **out,
                                    sandbox_error *error);

/*
 * Events (core/v1) about one object, newest last, that are there now; the same as a list with field
 * selectors involvedObject.{kind,name,uid}.
 */
sandbox_status sbx_kubernetes_events(struct sbx_kubernetes *cluster, const char *space,
                                     const char *kind, const char *name, const char *uid,
                                     const struct sbx_wait *wait,
                                     bool (*visit)(void *user_data, const cJSON *event),
                                     void *user_data, sandbox_error *error);

/* ---- questions ---- */

/* Whether the caller may (SelfSubjectAccessReview). `part`: a subresource or "". */
sandbox_status sbx_kubernetes_may(struct sbx_kubernetes *cluster, const char *verb,
                                  const struct sbx_resource *resource, const char *part,
                                  const char *space, const struct sbx_wait *wait, bool *allowed,
                                  sandbox_error *error);
/* Any path below the server, for "/version" and "/apis/GROUP/VERSION". */
sandbox_status sbx_kubernetes_read(struct sbx_kubernetes *cluster, const char *path,
                                   const struct sbx_wait *wait, cJSON **out, sandbox_error *error);

/* ---- exec ---- */

/* How a command in a Pod ended. */
struct sbx_exec_end {
    enum { SBX_EXEC_UNKNOWN = 0, SBX_EXEC_EXITED, SBX_EXEC_FAILED } how;
    int code;          /* of EXITED */
    /* The server's words of FAILED and UNKNOWN, then the end of stderr; empty of exit code 0. */
    char message[200];
};

struct sbx_exec_options {
    const char *space, *pod, *container;
    const char *const *argv;
    /* Told once, after all output was written to the channel. Any thread; NULL: nobody. */
    void (*ended)(void *user_data, const struct sbx_exec_end *end);
    void *user_data;
};

/*
 * Runs a command; the channel is its stdin and stdout (one descriptor for both). Shutting down
 * the writing side ends its stdin where the server speaks v5.channel.k8s.io. Closing the channel
 * ends the connection. Reading ends when the command has: bytes that came before are never lost.
 */
sandbox_status sbx_kubernetes_exec(struct sbx_kubernetes *cluster,
                                   const struct sbx_exec_options *options,
                                   const struct sbx_wait *wait, struct sbx_channel *channel,
                                   sandbox_error *error);

#endif
