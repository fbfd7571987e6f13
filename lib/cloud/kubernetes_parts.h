/* What the files of the Kubernetes client share. */
#ifndef SBX_CLOUD_KUBERNETES_PARTS_H
#define SBX_CLOUD_KUBERNETES_PARTS_H

#include "cloud/http.h"
#include "cloud/kubeconfig.h"
#include "cloud/kubernetes.h"
#include "transport/loop.h"

struct sbx_kubernetes_watches;

/* How patient a client is. sbx_kubernetes_open() sets it; tests have less time. */
struct sbx_kubernetes_pace {
    unsigned tries;                            /* of one request, where nothing better is known */
    uint32_t first_pause_ms, longest_pause_ms; /* between them; each is twice the one before */
    uint32_t read_ms, write_ms;                /* for one try */
    uint32_t watch_seconds, slack_seconds;     /* one watch request; what it may be late */
    uint32_t linger_ms;                        /* a watch that nobody waits for any more */
    uint32_t ping_ms, silence_ms;              /* of an exec whose server says nothing */
    uint32_t close_ms;                         /* for the close behind a command's status */
};

struct sbx_kubernetes {
    struct sbx_kubeconfig *config;
    struct sbx_http *http;
    struct sbx_http_sessions *sessions; /* of the exec channels */
    struct sbx_loop *loop; /* the exec channels' I/O thread; made with the first one */
    pthread_mutex_t lock;  /* of the loop's making */
    struct sbx_kubernetes_watches *watches;
    struct sbx_kubernetes_pace pace;
};

/* The loop for exec channels, made on first use and stopped by sbx_kubernetes_close(). */
sandbox_status sbx_kubernetes_loop(struct sbx_kubernetes *cluster, struct sbx_loop **out,
                                   sandbox_error *error);

/* SERVER/api/v1/namespaces/SPACE/PLURAL[/NAME[/PART]], all escaped. free(); NULL: no memory. */
char *sbx_kubernetes_url(const struct sbx_kubernetes *cluster, const struct sbx_resource *resource,
                         const char *space, const char *name, const char *part);

/* ---- kubernetes_request.c ---- */

struct sbx_kubernetes_request {
    const char *method, *url;
    const char *type;  /* of the body */
    const cJSON *body; /* NULL: none */
    const char *doing; /* for messages: "patch sandboxes 'x'" */
    bool repeatable;   /* done twice, it is what it would have been done once */
    bool blind;        /* a conflict is only somebody else's haste: try again */
};

/* With all retries. `out`: NULL where nobody wants to see the answer. */
sandbox_status sbx_kubernetes_ask(struct sbx_kubernetes *cluster,
                                  const struct sbx_kubernetes_request *request,
                                  const struct sbx_wait *wait, cJSON **out, sandbox_error *error);
/* "Name: value" of a request with these credentials, NULL-terminated. NULL: no memory. */
const char **sbx_kubernetes_headers(const struct sbx_kubernetes_access *access,
                                    const char *content_type);
void sbx_kubernetes_headers_free(const char ***headers); /* for SBX_ON_EXIT; the list alone */
/* How long to wait before the next try, after `failures` in a row: with jitter. */
uint32_t sbx_kubernetes_pause_ms(const struct sbx_kubernetes *cluster, unsigned failures,
                                 int64_t retry_after_ms);

/* ---- kubernetes_list.c ---- */

/*
 * One object by way of a list, which tells the version also of "not there": NULL is stored then.
 * SBX_KUBERNETES_VERSION bytes of `version` are written.
 */
#define SBX_KUBERNETES_VERSION 128
sandbox_status sbx_kubernetes_find(struct sbx_kubernetes *cluster,
                                   const struct sbx_resource *resource, const char *space,
                                   const char *name, const struct sbx_wait *wait, cJSON **object,
                                   char *version, sandbox_error *error);

/* ---- kubernetes_watch.c ---- */

sandbox_status sbx_kubernetes_watches_new(struct sbx_kubernetes *cluster,
                                          struct sbx_kubernetes_watches **out,
                                          sandbox_error *error);
/* Nobody waits in one any more. Accepts NULL. */
void sbx_kubernetes_watches_free(struct sbx_kubernetes_watches *watches);

/* ---- kubernetes_status.c ---- */

/* From an answer that is no success: the Status object's reason and words. */
sandbox_status sbx_kubernetes_fail(const struct sbx_kubernetes *cluster,
                                   const struct sbx_http_answer *answer, const char *doing,
                                   sandbox_error *error);
/* What the Status object of an answer says; "" and -1 where it does not. */
struct sbx_kubernetes_status {
    char reason[64], message[400], name[64];
    int64_t retry_after_ms;
    bool is_status, version_too_large; /* a resourceVersion that the server has not come to */
};
void sbx_kubernetes_status_read(const struct sbx_http_answer *answer,
                                struct sbx_kubernetes_status *out);

#endif
