/* What the files of the HTTP client share. */
#ifndef SBX_CLOUD_HTTP_PARTS_H
#define SBX_CLOUD_HTTP_PARTS_H

#include "cloud/http.h"

struct sbx_http_transfer {
    struct sbx_http *http;
    CURL *easy;
    struct curl_slist *headers, *kept;
    struct sbx_http_peer peer; /* texts: the caller's, or copies in `copied` */
    char *copied[6];
    void *body; /* a copy, or NULL */
    size_t body_size;

    bool (*piece)(void *user_data, const void *data, size_t size);
    void *user_data;
    struct sbx_http_ends ends;
    bool *sent_out; /* where the caller wants to know `sent`; or NULL */

    struct sbx_http_answer answer;
    size_t header_bytes;
    bool sent;      /* the server may have seen the request */
    bool cut;       /* whoever takes the pieces has enough */
    bool too_large; /* more than may be kept */
    bool no_memory;
    int64_t silent_ms, heard_at_ms; /* 0: may be silent for ever */
    char trouble[CURL_ERROR_SIZE];

    bool cancelled, posted; /* under the mutex of `http` */
    struct sbx_http_transfer *next_posted;
    bool added; /* I/O thread: in the list of those that go on */
    struct sbx_http_transfer *previous, *next;
};

/* Everything but its start. `copy`: the request need not outlive this call. */
sandbox_status sbx_http_transfer_new(const struct sbx_http_request *request, bool copy,
                                     struct sbx_http_transfer **out, sandbox_error *error);
/* Wipes what may be secret. Accepts NULL. */
void sbx_http_transfer_free(struct sbx_http_transfer *transfer);

#endif
