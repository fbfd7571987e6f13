/**
 * What a platform needs before workspaces can be made there: printed, or applied.
 *
 * Only platforms that are clusters have this (`gke:`); others need nothing. The same settings give
 * the same text, so that it can be kept under version control.
 */
#ifndef SANDBOX_MANIFESTS_H
#define SANDBOX_MANIFESTS_H

#include <sandbox/call.h>

SANDBOX_BEGIN_DECLARATIONS

/** What differs from one set-up to the next. A field left zero asks for the default. */
typedef struct sandbox_manifests_options {
    size_t size;       /**< Set by the initializer. */
    const char *image; /**< NAME@sha256:…; the pool is named after it. Default: debian:12. */
    const char *agent_image;    /**< With the agent at /sandbox-agent. Needed. */
    const char *bucket;         /**< Where snapshots lie. Needed. */
    const char *path;           /**< Within the bucket. Default: the namespace. */
    const char *egress; /**< ADDRESS:PORT of an egress proxy that is there. Default: no way out. */
    const char *machine_family; /**< Default: n2. E2 keeps no memory and is refused. */
    const char *service_account; /**< [NAMESPACE/]NAME that uses the library. Default: made. */
    uint32_t replicas;           /**< Pods that wait ready. Default: 2. */
    uint32_t memory_mib;         /**< Of a workspace. Default: 1,024. */
    uint32_t cpu_millis;         /**< Of a workspace. Default: 1,000. */
    bool own_nodes; /**< Use nodes that are there; make no compute class that creates some. */
    bool force;     /**< Applying: take over fields that somebody else has set. */
    bool reserved[2];
    /** With sandbox-egress-proxy, as NAME@sha256:…: one is set up as the only way out. */
    const char *egress_image;
} sandbox_manifests_options;

#define SANDBOX_MANIFESTS_OPTIONS .size = sizeof(sandbox_manifests_options)

/** One object. All texts are borrowed until the manifests are freed. */
typedef struct sandbox_manifest {
    size_t size;
    const char *kind, *name;
    const char *space; /**< Its namespace, or "". */
    const char *text;  /**< YAML, with comments, without a document mark. */
} sandbox_manifest;

/** A whole set-up, in the order in which it is applied. */
typedef struct sandbox_manifests sandbox_manifests;

/**
 * Make the texts. Asks nobody.
 *
 * @param uri  "gke://CONTEXT/NAMESPACE?pool=NAME"
 * @param out  written on success only; free it with sandbox_manifests_free()
 * @return SANDBOX_OK, SANDBOX_INVALID or SANDBOX_UNSUPPORTED
 */
SANDBOX_CHECKED sandbox_status sandbox_manifests_render(const char *uri,
                                                        const sandbox_manifests_options *options,
                                                        sandbox_manifests **out,
                                                        sandbox_error *error);
/**
 * The same, and apply them one after the other (server-side, as "libsandbox"). What is there
 * already is brought to what they say. After a failure the ones before it have been applied.
 * Default deadline: 60 s.
 */
SANDBOX_CHECKED sandbox_status sandbox_manifests_apply(const char *uri,
                                                       const sandbox_manifests_options *options,
                                                       const sandbox_call *call,
                                                       sandbox_manifests **out,
                                                       sandbox_error *error);
SANDBOX_API size_t sandbox_manifests_count(const sandbox_manifests *manifests);
/** Borrowed until the manifests are freed; NULL past the end. */
SANDBOX_API const sandbox_manifest *sandbox_manifests_at(const sandbox_manifests *manifests,
                                                         size_t index);
SANDBOX_API void sandbox_manifests_free(sandbox_manifests *manifests);

SANDBOX_END_DECLARATIONS

#endif
