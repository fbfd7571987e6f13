/* What `sandbox doctor` reads of a cluster, saves of it, and finds. */
#ifndef SBX_DRIVERS_GKE_DOCTOR_H
#define SBX_DRIVERS_GKE_DOCTOR_H

#include "drivers/gke/setup.h"

#define SBX_GKE_ASKED 600 /* a path below the server, with its end */

/* ---- doctor_view.c ---- */

/* What goes out is borrowed until the view is cleared. */
struct sbx_gke_view {
    struct sbx_kubernetes *cluster; /* NULL: nobody is asked */
    /* By what was asked: {"object": …}, or {"failed": STATUS, "reason": …, "message": …}. */
    cJSON *answers;
    bool is_partial; /* what is not in it may be in the cluster all the same */
};

struct sbx_gke_question {
    const struct sbx_resource *resource;
    const char *space, *selector; /* "NAME=VALUE"; NULL: all */
    bool only_first;
};

/* False: no memory. */
bool sbx_gke_view_begin(struct sbx_gke_view *view, struct sbx_kubernetes *cluster);
void sbx_gke_view_clear(struct sbx_gke_view *view); /* for SBX_ON_EXIT too */
/* `name` "": of all of them. */
void sbx_gke_view_path(const struct sbx_resource *resource, const char *space, const char *name,
                       char out[SBX_GKE_ASKED]);
/*
 * As the calls of cloud/kubernetes.h. What a description does not hold is SANDBOX_UNAVAILABLE
 * ("not-described").
 */
sandbox_status sbx_gke_view_read(struct sbx_gke_view *view, const char *path,
                                 const struct sbx_wait *wait, const cJSON **out,
                                 sandbox_error *error);
sandbox_status sbx_gke_view_get(struct sbx_gke_view *view, const struct sbx_resource *resource,
                                const char *space, const char *name, const struct sbx_wait *wait,
                                const cJSON **out, sandbox_error *error);
sandbox_status sbx_gke_view_list(struct sbx_gke_view *view, const struct sbx_gke_question *question,
                                 const struct sbx_wait *wait,
                                 bool (*visit)(void *user_data, const cJSON *object),
                                 void *user_data, sandbox_error *error);
sandbox_status sbx_gke_view_may(struct sbx_gke_view *view, const char *verb,
                                const struct sbx_resource *resource, const char *part,
                                const char *space, const struct sbx_wait *wait, bool *allowed,
                                sandbox_error *error);
/* Notes that it was asked and failed so. Returns `why`. */
sandbox_status sbx_gke_view_failed(struct sbx_gke_view *view, const char *asked,
                                   const sandbox_error *why, sandbox_error *error);
/* What was asked where an answer is none; NULL: all are as they should be. */
const char *sbx_gke_view_damage(const struct sbx_gke_view *view);

/* ---- doctor_saved.c ---- */

/* Takes out what no finding needs, and all values of environment variables. NULL allowed. */
void sbx_gke_cut(cJSON *object);
/* Free with free(). */
sandbox_status sbx_gke_description_print(const struct sbx_gke *driver,
                                         const struct sbx_gke_view *view, char **text,
                                         sandbox_error *error);
/*
 * A description, or what `kubectl get … -o json` or `-o yaml` prints. Fills in what the driver's
 * settings leave open. `title`: of the file, for messages. SANDBOX_INVALID ("bad-description").
 */
sandbox_status sbx_gke_description_read(const char *title, const void *text, size_t size,
                                        struct sbx_gke *driver, struct sbx_gke_view *view,
                                        sandbox_error *error);

/* ---- rights.c ---- */

/* These are looked at only. */
extern const struct sbx_resource sbx_gke_networks, sbx_gke_nodes, sbx_gke_accounts,
    sbx_gke_runtimes, sbx_gke_deployments;

/* ---- doctor.c ---- */

/* A look at a cluster, or at the description of one. */
struct sbx_gke_look {
    const struct sbx_gke *driver;
    struct sbx_gke_view *view;
    const struct sbx_wait *wait;
    struct sbx_findings_sink *sink;
};

/* A note that `what` could not be seen: that is no problem of the cluster's. */
void sbx_gke_not_known(const struct sbx_gke_look *look, const char *what,
                       const sandbox_error *error);
bool sbx_gke_is_missing(sandbox_status status); /* the cluster said that there is none */

/* ---- doctor_pool.c, doctor_template.c, doctor_proxy.c, doctor_nodes.c ---- */

/* The pool, its template, and what concerns its Pods. `template`: NULL if there is none to be seen.
 */
void sbx_gke_look_at_pool(const struct sbx_gke_look *look, const cJSON **template);
void sbx_gke_look_at_template(const struct sbx_gke_look *look, const cJSON *template);
/* Nothing is told where the template lets Pods to no proxy of ours. */
void sbx_gke_look_at_proxy(const struct sbx_gke_look *look, const cJSON *template);
void sbx_gke_look_at_nodes(const struct sbx_gke_look *look, const cJSON *template);

#endif
