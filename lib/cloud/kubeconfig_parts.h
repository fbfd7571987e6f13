/* What the files of the kubeconfig reader share. */
#ifndef SBX_CLOUD_KUBECONFIG_PARTS_H
#define SBX_CLOUD_KUBECONFIG_PARTS_H

#include "cloud/kubeconfig.h"
#include "util/clock.h"
#include <pthread.h>

#define SBX_KUBECONFIG_BYTES (4u << 20)
#define SBX_CREDENTIAL_BYTES (1u << 20) /* of a token's, certificate's or key's file */

/* ---- kubeconfig_files.c: what stands in the files ---- */

struct sbx_kubeconfig_file {
    char *path, *folder; /* relative paths in it begin at the folder */
    cJSON *json;
};

/* In the order of their rank. */
struct sbx_kubeconfig_files {
    struct sbx_kubeconfig_file *files;
    size_t count;
};

/* One of "clusters", "contexts", "users", by its name. All borrowed. */
struct sbx_kubeconfig_entry {
    const struct sbx_kubeconfig_file *file;
    const char *kind, *name;
    const cJSON *values;
};

/* `path` NULL: $KUBECONFIG, then ~/.kube/config. */
sandbox_status sbx_kubeconfig_files_read(const char *path, struct sbx_kubeconfig_files *out,
                                         sandbox_error *error);
void sbx_kubeconfig_files_clear(struct sbx_kubeconfig_files *files);
/* Of the first file that names one; "" if none does. */
const char *sbx_kubeconfig_current(const struct sbx_kubeconfig_files *files);
/* `kind`: "cluster", "context" or "user". NOT_FOUND: no file has it. */
sandbox_status sbx_kubeconfig_find(const struct sbx_kubeconfig_files *files, const char *kind,
                                   const char *name, struct sbx_kubeconfig_entry *out,
                                   sandbox_error *error);
/* Some names of that kind for a message: "'a', 'b', …". */
void sbx_kubeconfig_names(const struct sbx_kubeconfig_files *files, const char *kind, char *out,
                          size_t size);

/* SANDBOX_INVALID ("kubeconfig"): "FILE: KIND 'NAME': …". */
sandbox_status sbx_kubeconfig_wrong(const struct sbx_kubeconfig_entry *entry, sandbox_error *error,
                                    const char *format, ...) __attribute__((format(printf, 3, 4)));
/* NULL where it is not there or null. */
const cJSON *sbx_kubeconfig_value(const cJSON *values, const char *field);
/* `out`: "" where it is not there. Borrowed. */
sandbox_status sbx_kubeconfig_text(const struct sbx_kubeconfig_entry *entry, const cJSON *values,
                                   const char *field, const char **out, sandbox_error *error);
sandbox_status sbx_kubeconfig_flag(const struct sbx_kubeconfig_entry *entry, const char *field,
                                   bool *out, sandbox_error *error);
/* NULL is stored where the field is not there. Relative ones begin at the file's folder. */
sandbox_status sbx_kubeconfig_path(const struct sbx_kubeconfig_entry *entry, const char *field,
                                   char **out, sandbox_error *error);
/* Of FIELD-data; NULL is stored where that is not there. */
sandbox_status sbx_kubeconfig_data(const struct sbx_kubeconfig_entry *entry, const char *field,
                                   char **out, sandbox_error *error);
/* Text of a file of PEM blocks. */
sandbox_status sbx_kubeconfig_read_pem(const char *path, char **out, sandbox_error *error);

/* ---- kubeconfig_secrets.c ---- */

/* A whole file as text; sbx_secret_free(). */
sandbox_status sbx_secret_read(const char *path, char **out, sandbox_error *error);
/* May stand in a header: no control characters, nothing empty. */
bool sbx_is_header_text(const char *text);

/* ---- kubeconfig_plugin.c ---- */

struct sbx_kubeconfig_plugin {
    char *command, *hint, *version;
    char **argv, **env; /* `env`: what stands in the file and KUBERNETES_EXEC_INFO, "NAME=value" */
};

/* What a plugin gave. All secret. */
struct sbx_plugin_credential {
    char *token, *certificate, *key; /* NULL: none */
    int64_t expires_ms;              /* Unix time; INT64_MAX: not known */
};

/* `cluster`: what the plugin is told of it where it asks for that. */
sandbox_status sbx_kubeconfig_plugin_read(const struct sbx_kubeconfig_entry *user,
                                          const struct sbx_kubeconfig_entry *cluster,
                                          const char *ca, struct sbx_kubeconfig_plugin **out,
                                          sandbox_error *error);
void sbx_kubeconfig_plugin_free(struct sbx_kubeconfig_plugin *plugin);
/* `title`: of the kubeconfig, for messages. */
sandbox_status sbx_kubeconfig_plugin_run(const struct sbx_kubeconfig_plugin *plugin,
                                         const char *title, const struct sbx_wait *wait,
                                         struct sbx_plugin_credential *out, sandbox_error *error);
void sbx_plugin_credential_clear(struct sbx_plugin_credential *credential);
/* The end of what a program said, in one line, less what looks like a credential. */
void sbx_plugin_words(const char *text, char *out, size_t size);

/* ---- kubeconfig_user.c ---- */

/* Who we are there. What stands in files is read when it is needed. */
struct sbx_kubeconfig_user {
    char *authorization; /* "Authorization: …", or NULL */
    char *token_path, *certificate_path, *key_path;
    char *certificate, *key; /* PEM, where they stand in the kubeconfig */
    char **impersonation;    /* headers, or NULL */
    struct sbx_kubeconfig_plugin *plugin;
};

sandbox_status sbx_kubeconfig_user_read(const struct sbx_kubeconfig_entry *user,
                                        const struct sbx_kubeconfig_entry *cluster, const char *ca,
                                        struct sbx_kubeconfig_user *out, sandbox_error *error);
void sbx_kubeconfig_user_clear(struct sbx_kubeconfig_user *user);

/* ---- kubeconfig.c, kubeconfig_credentials.c ---- */

struct sbx_kubeconfig {
    char *server, *space, *title;
    char *ca, *server_name, *proxy; /* NULL where not set */
    bool insecure;
    struct sbx_kubeconfig_user user;
    const struct sbx_clock *clock;

    pthread_mutex_t lock;
    pthread_cond_t ran;    /* a plugin's run has ended */
    bool running;          /* a plugin, for some thread */
    uint64_t runs;         /* that have ended and were not given up by their caller */
    sandbox_error failure; /* of the last of these; status SANDBOX_OK: it did not fail */
    struct sbx_kubernetes_bundle *current; /* NULL: none yet */
    uint64_t number;                       /* of the current credential */
    int64_t read_ms;                       /* monotonic time when the files were read last */
    int64_t renew_ms;                      /* Unix time from when the plugin is run again */
};

/* Another clock than the system's, for tests; before the first use. */
void sbx_kubeconfig_set_clock(struct sbx_kubeconfig *config, const struct sbx_clock *clock);
void sbx_kubernetes_bundle_drop(struct sbx_kubernetes_bundle *bundle); /* accepts NULL */

#endif
