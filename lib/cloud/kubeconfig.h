/*
 * Where a cluster is and who we are there: from kubeconfig files or a Pod's service account.
 *
 * Credentials are held in memory only and wiped. They change while a process lives: token files
 * are read again, plugins are run again when what they gave expires or is refused.
 */
#ifndef SBX_CLOUD_KUBECONFIG_H
#define SBX_CLOUD_KUBECONFIG_H

#include "cloud/http.h"
#include "cloud/kubernetes.h"

struct sbx_kubeconfig;

/* Reads and checks; runs nothing. Errors as sbx_kubernetes_open() tells them. */
sandbox_status sbx_kubeconfig_read(const struct sbx_kubernetes_options *options,
                                   struct sbx_kubeconfig **out, sandbox_error *error);
void sbx_kubeconfig_free(struct sbx_kubeconfig *config); /* accepts NULL */

/* "https://HOST[:PORT][/PATH]", no slash at the end. */
const char *sbx_kubeconfig_server(const struct sbx_kubeconfig *config);
const char *sbx_kubeconfig_namespace(const struct sbx_kubeconfig *config);
/* What a person calls it in messages: "context 'NAME'" or "this Pod's service account". */
const char *sbx_kubeconfig_title(const struct sbx_kubeconfig *config);

/*
 * What one request takes with it: the peer's certificates and the headers of its user
 * (Authorization, Impersonate-…). Texts are counted references: a later refresh does not free
 * what is in use.
 */
struct sbx_kubernetes_access {
    struct sbx_http_peer peer;
    const char *const *headers; /* NULL-terminated, secret */
    struct sbx_kubernetes_bundle *bundle; /* holds all of these texts */
    uint64_t number; /* of this credential; a fresh one has a higher number */
};

/*
 * `refused` is the number of a credential that the server answered 401 to, or 0: it is not given
 * again. May run a plugin, one at a time for all threads, under the caller's wait.
 * SANDBOX_DENIED ("credential-plugin", "credential-file", "credential-refused"): what failed, in
 * the plugin's own words less anything that looks like a credential, and its install hint.
 */
sandbox_status sbx_kubeconfig_access(struct sbx_kubeconfig *config, uint64_t refused,
                                     const struct sbx_wait *wait,
                                     struct sbx_kubernetes_access *out, sandbox_error *error);
void sbx_kubernetes_access_end(struct sbx_kubernetes_access *access);

/* Of kubeconfig_yaml.c: one YAML document as JSON, with limits on bytes, depth and nodes. */
sandbox_status sbx_yaml_parse(const void *text, size_t size, const char *title, cJSON **out,
                              sandbox_error *error);
/* The other way: a document without its marks. free(); NULL: no memory. */
char *sbx_yaml_print(const cJSON *json);

#endif
