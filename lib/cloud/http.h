/*
 * HTTP over libcurl: one I/O thread and one connection pool for all requests of a cluster or a
 * cloud. The calling thread waits under its own deadline and cancel handle; whatever ends that
 * wait ends the transfer. No retry is made in here.
 */
#ifndef SBX_CLOUD_HTTP_H
#define SBX_CLOUD_HTTP_H

#include "util/bytes.h"
#include "util/wait.h"
#include <curl/curl.h>
#include <sandbox/error.h>

#define SBX_HTTP_ANSWER_MAX (64u << 20) /* bytes of one answer that is kept whole */

struct sbx_http;

sandbox_status sbx_http_start(struct sbx_http **out, sandbox_error *error);
/* Ends all transfers. Nobody waits in one any more. Accepts NULL. */
void sbx_http_stop(struct sbx_http *http);

/* How a server is reached and whom it knows us as. Borrowed during a call; texts are PEM. */
struct sbx_http_peer {
    const char *ca, *certificate, *key; /* NULL: the system's CAs; no certificate */
    const char *server_name;            /* for SNI and the certificate; NULL: the URL's host */
    const char *proxy;                  /* NULL: as the environment says; "": none */
    const char *socket;                 /* a Unix socket to connect to, whatever the URL, or NULL */
    bool insecure;                      /* the caller's explicit wish: no check of the server */
};

struct sbx_http_request {
    const struct sbx_http_peer *peer; /* NULL: the defaults */
    const char *method, *url;
    const char *const *headers; /* "Name: value", NULL-terminated, or NULL; may hold secrets */
    const void *body;
    size_t body_size;
    size_t answer_max; /* 0: SBX_HTTP_ANSWER_MAX; more is SANDBOX_LIMIT ("answer-too-large") */
    /*
     * A stream: called for each piece of a 2xx answer on the I/O thread, in place of keeping it.
     * False ends the transfer, which then is a success.
     */
    bool (*piece)(void *user_data, const void *data, size_t size);
    void *user_data;
    bool on_fresh_connection; /* after one that was silent */
};

struct sbx_http_answer {
    long status;
    struct sbx_bytes body;
    char content_type[96];
    int64_t retry_after_ms; /* -1: the server named none */
};

/*
 * Any status code is a success here. SANDBOX_UNAVAILABLE: no answer; SANDBOX_DENIED
 * ("tls-untrusted"): not the server that the CA knows; SANDBOX_INVALID ("tls-certificate",
 * "bad-url"); else as the wait ended. `*sent` (NULL allowed) says of every failure whether the
 * server may have seen the request. Free the answer with sbx_http_answer_free(), whatever came.
 */
sandbox_status sbx_http_do(struct sbx_http *http, const struct sbx_http_request *request,
                           const struct sbx_wait *wait, struct sbx_http_answer *answer,
                           bool *sent, sandbox_error *error);
void sbx_http_answer_free(struct sbx_http_answer *answer);

/* A transfer that goes on by itself. */
struct sbx_http_transfer;

struct sbx_http_ends {
    /* I/O thread, once, also after a cancel. `status` is not OK where there was no answer. */
    void (*ended)(void *user_data, sandbox_status status, struct sbx_http_answer *answer,
                  const sandbox_error *error);
    void *user_data;
};

/*
 * The request is copied. `seconds_silent`: ended as UNAVAILABLE after so long without a byte; 0:
 * never. The transfer is good for a cancel until `ended` has returned, maybe before this does.
 */
sandbox_status sbx_http_begin(struct sbx_http *http, const struct sbx_http_request *request,
                              uint32_t seconds_silent, const struct sbx_http_ends *ends,
                              struct sbx_http_transfer **out, sandbox_error *error);
/* Any thread, the callbacks too; `ended` still comes, later and on the I/O thread. */
void sbx_http_cancel(struct sbx_http_transfer *transfer);

/*
 * All that a peer needs on an easy handle: URL, certificates, names, proxy, no signals. For whoever
 * makes a connection of its own (WebSockets). The peer must outlive the handle's use, and so must
 * `*kept`: curl_slist_free_all() after curl_easy_cleanup(), also after a failure; NULL is stored
 * where there is none. With a server name the Host header is the caller's to send: the URL's own.
 */
sandbox_status sbx_http_dress(CURL *easy, const struct sbx_http_peer *peer, const char *url,
                              struct curl_slist **kept, sandbox_error *error);

/*
 * TLS sessions that connections to the same servers go on with, so that only the first one of each
 * server has to prove and check certificates. Any thread. NULL, for want of memory, is allowed
 * everywhere: then each connection makes its own.
 */
struct sbx_http_sessions;

struct sbx_http_sessions *sbx_http_sessions_new(void);
/* Before its first connection. Drop what it returns after curl_easy_cleanup(). */
struct sbx_http_sessions *sbx_http_sessions_use(struct sbx_http_sessions *sessions, CURL *easy);
void sbx_http_sessions_drop(struct sbx_http_sessions *sessions);

/* "HOST[:PORT]" in a URL without a user, and its size; the path is behind it. */
const char *sbx_http_authority(const char *url, size_t *size);

/* Why a connection of whoever dressed it did not come to be; `words`: of curl's error buffer. */
sandbox_status sbx_http_fail(CURLcode code, const char *words, sandbox_error *error);

/* Appends `text` percent-encoded as one path segment or query value. False: no memory. */
bool sbx_http_escape(struct sbx_bytes *out, const char *text);

#endif
