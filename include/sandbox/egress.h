/**
 * The way out of a workspace: which hosts its commands may reach, and with whose credentials.
 *
 * A workspace has no network. With an egress policy its commands find an HTTP proxy at
 * 127.0.0.1:3128 (HTTPS_PROXY and the like tell them), which lets them reach the hosts that the
 * policy names, and nothing else. A credential is given as a transformation: inside there is only a
 * placeholder, and the real value is put in on the way out and taken out of the answers.
 *
 * The policy stands in the workspace's record and survives a suspend. Transformations, which hold
 * secrets, are in the memory of the egress proxy alone: a resume, and a proxy that was started
 * anew, have lost them, and they must be given again. doc/egress.md says what the proxy can stop
 * and what it cannot.
 */
#ifndef SANDBOX_EGRESS_H
#define SANDBOX_EGRESS_H

#include <sandbox/workspace.h>

SANDBOX_BEGIN_DECLARATIONS

/** What may be reached. The numbers never change. */
typedef enum sandbox_egress_mode {
    SANDBOX_EGRESS_UNSET = 0,     /**< As it is; where there was none: CUSTOM. */
    SANDBOX_EGRESS_CUSTOM = 1,    /**< What the lists name; an empty list names nothing. */
    SANDBOX_EGRESS_ALLOW_ALL = 2, /**< Every public host, over TLS. */
    SANDBOX_EGRESS_DENY_ALL = 3,  /**< Nothing. */
} sandbox_egress_mode;

/** Encrypted ClientHello, which hides from the proxy whom a tunnel leads to. */
typedef enum sandbox_egress_ech {
    SANDBOX_EGRESS_ECH_UNSET = 0, /**< As it is; where there was none: DENY. */
    SANDBOX_EGRESS_ECH_DENY = 1,
    /** For browsers that send a meaningless one. A guest can then hide behind an allowed name. */
    SANDBOX_EGRESS_ECH_ALLOW_GREASE = 2,
} sandbox_egress_ech;

/**
 * A policy, or a change of one. In whatever order things are set: the lists that are given take the
 * place of the old ones, then hosts are added, then removed.
 *
 * A host is exact ("api.example.com") or everything below a name ("*.example.com", not itself). No
 * ports, no addresses, no ranges.
 */
typedef struct sandbox_egress_options {
    size_t size;              /**< Set by the initializer. */
    sandbox_egress_mode mode;
    sandbox_egress_ech ech;
    const char *const *allow; /**< Hosts over TLS, NULL-terminated. NULL: as they are. */
    const char *const *http;  /**< Hosts over plain HTTP, likewise. No credential goes there. */
    const char *const *add_allow; /**< Beside those that are there. Makes DENY_ALL CUSTOM. */
    const char *const *add_http;
    const char *const *remove;    /**< From both lists; what is in neither is fine. */
    /**
     * A JSON array of transformations, as doc/egress.md describes them, in place of all that were
     * there; "[]" forgets all credentials. NULL: as they are.
     *   [{"match": {"host": "api.example.com",
     *               "headers": [{"name": "x-api-key", "value_exact": "PLACEHOLDER"}]},
     *     "set": {"x-api-key": "the real one"}}]
     * Borrowed for the call, never written down, and wiped wherever the library had it.
     */
    const char *transformations;
    const char *add_transformations; /**< Beside those that are there. */
    bool close_denied; /**< Close what is open to hosts that the new policy refuses. */
} sandbox_egress_options;

#define SANDBOX_EGRESS_OPTIONS .size = sizeof(sandbox_egress_options)

/**
 * Set or change what a workspace may reach. In force for new connections when it returns. A
 * workspace that does not run keeps the policy for when it does; it cannot take transformations
 * (SANDBOX_SUSPENDED and the like).
 *
 * @param call  default deadline 30 s
 * @return SANDBOX_OK, SANDBOX_INVALID (one sentence that names what is wrong),
 *         SANDBOX_UNSUPPORTED (a driver without a way out; "cidrs-unsupported" for a range;
 *         "old-agent" for a workspace of an older version), SANDBOX_LIMIT, SANDBOX_UNAVAILABLE
 *         ("no-proxy": the policy is kept, nothing goes out)
 */
SANDBOX_CHECKED sandbox_status sandbox_egress_set(sandbox_workspace *workspace,
                                                  const sandbox_egress_options *options,
                                                  const sandbox_call *call, sandbox_error *error);

/** How a workspace's way out stands. Borrowed from the list. */
typedef struct sandbox_egress_info {
    size_t size;
    sandbox_egress_mode mode; /**< UNSET: there is no way out. */
    sandbox_egress_ech ech;
    const char *const *allow; /**< NULL-terminated. */
    const char *const *http;
    /** "HOST: HEADER, HEADER" for each transformation; never what is put in. */
    const char *const *credentials;
    bool available;           /**< This platform can give a workspace a way out. */
    bool registered;          /**< The proxy knows this workspace: the policy is in force. */
    uint32_t connections;     /**< Open now. */
    uint64_t refused;         /**< Since it was registered. */
} sandbox_egress_info;

typedef struct sandbox_egress_list sandbox_egress_list;

/** @param out  a list of one; written on success only, free it with sandbox_egress_list_free() */
SANDBOX_CHECKED sandbox_status sandbox_egress_inspect(sandbox_workspace *workspace,
                                                      const sandbox_call *call,
                                                      sandbox_egress_list **out,
                                                      sandbox_error *error);
SANDBOX_API size_t sandbox_egress_list_count(const sandbox_egress_list *list);
/** NULL past the end. */
SANDBOX_API const sandbox_egress_info *sandbox_egress_list_at(const sandbox_egress_list *list,
                                                              size_t index);
SANDBOX_API void sandbox_egress_list_free(sandbox_egress_list *list);

/** Something that was not let out. Borrowed from the log. */
typedef struct sandbox_egress_refusal {
    size_t size;
    int64_t time_ms;    /**< Unix time. */
    const char *reason; /**< A stable word: "host-not-allowed"; doc/egress.md lists them. */
    const char *kind;   /**< "connect", "http", "route", or "none". */
    const char *host;   /**< As it was asked for, or "". */
    uint32_t port;      /**< 0: none was read. */
} sandbox_egress_refusal;

typedef struct sandbox_egress_log sandbox_egress_log;

/**
 * The last 64 refusals since the workspace was registered, oldest first. Empty where it is not.
 *
 * @param out  written on success only; free it with sandbox_egress_log_free()
 */
SANDBOX_CHECKED sandbox_status sandbox_egress_read_log(sandbox_workspace *workspace,
                                                       const sandbox_call *call,
                                                       sandbox_egress_log **out,
                                                       sandbox_error *error);
SANDBOX_API size_t sandbox_egress_log_count(const sandbox_egress_log *log);
SANDBOX_API const sandbox_egress_refusal *sandbox_egress_log_at(const sandbox_egress_log *log,
                                                                size_t index);
SANDBOX_API void sandbox_egress_log_free(sandbox_egress_log *log);

/** The mode's name: "custom", "allow-all", "deny-all", "none". Static. */
SANDBOX_API const char *sandbox_egress_mode_name(sandbox_egress_mode mode);

SANDBOX_END_DECLARATIONS

#endif
