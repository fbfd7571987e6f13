/*
 * Commands in Pods: the handshake, on its caller's thread. A command may have side effects, so
 * nothing is tried again once the request may have been seen, but for what the server refused.
 */

#include "cloud/kubernetes_exec.h"
#include "util/fail.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKET_BYTES (1 << 20)
#define URL_MAX      (64u << 10)

/* What one handshake has taught. */
struct
try {
    enum { END, AT_ONCE, AFTER_PAUSE } next;
    uint64_t refused;       /* a credential, or 0 */
    int64_t retry_after_ms; /* as the server wants it, or -1 */
};

static char *make_url(const struct sbx_kubernetes *cluster, const struct sbx_exec_options *options);
static sandbox_status shake_hands(struct sbx_kubernetes *cluster,
                                  const struct sbx_exec_options *options, const char *url,
                                  struct sbx_exec *exec, const struct sbx_wait *wait,
                                  sandbox_error *error);
static sandbox_status shake_once(struct sbx_kubernetes *cluster,
                                 const struct sbx_exec_options *options, const char *url,
                                 struct sbx_exec *exec, const struct sbx_wait *wait,
                                 struct try *try, sandbox_error *error);

static void free_exec(struct sbx_exec **exec)
{
    sbx_exec_free(*exec);
}

sandbox_status sbx_kubernetes_exec(struct sbx_kubernetes *cluster,
                                   const struct sbx_exec_options *options,
                                   const struct sbx_wait *wait, struct sbx_channel *channel,
                                   sandbox_error *error)
{
    struct sbx_loop *loop = NULL;
    sandbox_status status = sbx_kubernetes_loop(cluster, &loop, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(free_exec) struct sbx_exec *exec = sbx_exec_new(cluster, loop, options);
    SBX_ON_EXIT(sbx_free_text) char *url = make_url(cluster, options);
    if (exec == NULL || url == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a command in a Pod");

    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return sbx_fail_errno(error, errno, "cannot make a channel to a Pod");
    SBX_ON_EXIT(sbx_close_fd) int near = ends[0];
    SBX_ON_EXIT(sbx_close_fd) int far = ends[1];
    /* Larger ones carry more; where the host's limit forbids them, small ones carry all the same.
     */
    int size = SOCKET_BYTES;
    (void)setsockopt(near, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    (void)setsockopt(far, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);

    status = shake_hands(cluster, options, url, exec, wait, error);
    if (status != SANDBOX_OK)
        return status;
    *channel = (struct sbx_channel)SBX_CHANNEL;
    channel->read_fd = channel->write_fd = sbx_take_fd(&near);
    sbx_exec_carry(sbx_take(exec), sbx_take_fd(&far));
    return SANDBOX_OK;
}

/* NULL: no memory, or a command that is too long for any server. */
static char *make_url(const struct sbx_kubernetes *cluster, const struct sbx_exec_options *options)
{
    static const struct sbx_resource pods = {"", "v1", "pods", "Pod", false};
    SBX_ON_EXIT(sbx_free_text)
    char *start = sbx_kubernetes_url(cluster, &pods, options->space, options->pod, "exec");
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes url = SBX_BYTES(URL_MAX);
    bool good = start != NULL && sbx_bytes_format(&url, "%s?container=", start) &&
                sbx_http_escape(&url, options->container);
    for (size_t at = 0; good && options->argv[at] != NULL; at++)
        good = sbx_bytes_format(&url, "&command=") && sbx_http_escape(&url, options->argv[at]);
    good = good && sbx_bytes_format(&url, "&stdin=true&stdout=true&stderr=true&tty=false");
    return good ? sbx_copy_bytes(sbx_bytes_data(&url), sbx_bytes_size(&url)) : NULL;
}

/* A node says of a container that is gone only "404": of exec, that is never an unknown kind. */
static sandbox_status refuse(const struct sbx_kubernetes *cluster,
                             const struct sbx_exec_options *options,
                             const struct sbx_http_answer *answer, sandbox_error *error)
{
    sandbox_error said;
    SBX_ON_EXIT(sbx_free_text) char *doing = sbx_format("run a command in Pod '%s'", options->pod);
    sandbox_status status =
        sbx_kubernetes_fail(cluster, answer, doing == NULL ? "run a command" : doing, &said);
    if (status == SANDBOX_UNSUPPORTED && answer->status == 404)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-object", "%s", said.message);
    if (error != NULL)
        *error = said;
    return status;
}

static sandbox_status shake_hands(struct sbx_kubernetes *cluster,
                                  const struct sbx_exec_options *options, const char *url,
                                  struct sbx_exec *exec, const struct sbx_wait *wait,
                                  sandbox_error *error)
{
    struct try try = {0};
    for (unsigned failures = 0;;) {
        sandbox_status status = shake_once(cluster, options, url, exec, wait, &try, error);
        if (status == SANDBOX_OK || try.next == END)
            return status;
        if (try.next == AT_ONCE)
            continue;
        if (++failures >= cluster->pace.tries)
            return status;
        uint32_t pause_ms = sbx_kubernetes_pause_ms(cluster, failures, try.retry_after_ms);
        status = sbx_wait_pause(wait, pause_ms, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

static sandbox_status shake_once(struct sbx_kubernetes *cluster,
                                 const struct sbx_exec_options *options, const char *url,
                                 struct sbx_exec *exec, const struct sbx_wait *wait,
                                 struct try *try, sandbox_error *error)
{
    struct sbx_kubernetes_access *access = sbx_exec_access(exec);
    try->next = END;
    sandbox_status status =
        sbx_kubeconfig_access(cluster->config, try->refused, wait, access, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_websocket_request request = {&access->peer, url, access->headers,
                                            "v5.channel.k8s.io, v4.channel.k8s.io",
                                            cluster->sessions};
    struct sbx_http_answer answer = {0};
    sandbox_error why;
    bool sent = false;
    struct sbx_wait bounded = sbx_wait_within(wait, cluster->pace.write_ms);
    status = sbx_websocket_open(&request, &bounded, sbx_exec_socket(exec), &answer, &sent, &why);
    if (status == SANDBOX_TIMED_OUT && sbx_wait_check(wait, NULL) == SANDBOX_OK)
        status = sbx_fail(&why, SANDBOX_UNAVAILABLE, "the server did not answer in time");
    if (status == SANDBOX_OK && *sbx_exec_socket(exec) != NULL)
        return SANDBOX_OK;
    if (status == SANDBOX_OK && answer.status == 401 && try->refused == 0) {
        try->next = AT_ONCE;
        try->refused = access->number;
    } else if (status == SANDBOX_OK ? answer.status == 429
                                    : status == SANDBOX_UNAVAILABLE && !sent) {
        try->next = AFTER_PAUSE;
        try->retry_after_ms = status == SANDBOX_OK ? answer.retry_after_ms : -1;
    }
    if (status == SANDBOX_OK)
        status = refuse(cluster, options, &answer, error);
    else if (status == SANDBOX_UNAVAILABLE)
        sbx_fail_for(error, status, "kubernetes-unavailable",
                     "%s: cannot run a command in Pod '%s': %s",
                     sbx_kubeconfig_title(cluster->config), options->pod, why.message);
    else if (error != NULL)
        *error = why;
    sbx_http_answer_free(&answer);
    sbx_kubernetes_access_end(access);
    return status;
}
