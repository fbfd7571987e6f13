/*
 * TLS sessions that connections have in common. Each WebSocket is a connection of its own, and
 * without this each would pay for certificates and keys what only the first has to.
 */

#include "cloud/http.h"
#include <stdatomic.h>
#include <stdlib.h>

struct sbx_http_sessions {
    CURLSH *share;
    atomic_uint references;
    pthread_mutex_t mutex;
};

static void lock(CURL *easy, curl_lock_data data, curl_lock_access access, void *user_data);
static void unlock(CURL *easy, curl_lock_data data, void *user_data);

struct sbx_http_sessions *sbx_http_sessions_new(void)
{
    struct sbx_http_sessions *sessions = calloc(1, sizeof *sessions);
    if (sessions == NULL)
        return NULL;
    sessions->share = curl_share_init();
    if (sessions->share == NULL) {
        free(sessions);
        return NULL;
    }
    atomic_init(&sessions->references, 1);
    pthread_mutex_init(&sessions->mutex, NULL);
    curl_share_setopt(sessions->share, CURLSHOPT_USERDATA, sessions);
    curl_share_setopt(sessions->share, CURLSHOPT_LOCKFUNC, lock);
    curl_share_setopt(sessions->share, CURLSHOPT_UNLOCKFUNC, unlock);
    curl_share_setopt(sessions->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
    return sessions;
}

struct sbx_http_sessions *sbx_http_sessions_use(struct sbx_http_sessions *sessions, CURL *easy)
{
    if (sessions == NULL || curl_easy_setopt(easy, CURLOPT_SHARE, sessions->share) != CURLE_OK)
        return NULL;
    atomic_fetch_add(&sessions->references, 1);
    return sessions;
}

void sbx_http_sessions_drop(struct sbx_http_sessions *sessions)
{
    if (sessions == NULL || atomic_fetch_sub(&sessions->references, 1) != 1)
        return;
    curl_share_cleanup(sessions->share);
    pthread_mutex_destroy(&sessions->mutex);
    free(sessions);
}

static void lock(CURL *easy, curl_lock_data data, curl_lock_access access, void *user_data)
{
    struct sbx_http_sessions *sessions = user_data;
    (void)easy;
    (void)data;
    (void)access;
    pthread_mutex_lock(&sessions->mutex);
}

static void unlock(CURL *easy, curl_lock_data data, void *user_data)
{
    struct sbx_http_sessions *sessions = user_data;
    (void)easy;
    (void)data;
    pthread_mutex_unlock(&sessions->mutex);
}
