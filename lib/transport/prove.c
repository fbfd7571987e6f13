/* The client's side of the mutual proof of a token: see util/proof.h. */

#include "transport/channel.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/wait.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

static sandbox_status say(int fd, const uint8_t *bytes, size_t size, const struct sbx_wait *wait,
                          sandbox_error *error);
static sandbox_status hear(int fd, uint8_t *bytes, size_t size, const struct sbx_wait *wait,
                           sandbox_error *error);
static sandbox_status exchange(int fd, struct sbx_proof *proof, const uint8_t *hello,
                               const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status fail(sandbox_error *error, const char *why);

sandbox_status sbx_channel_prove(const struct sbx_channel *channel,
                                 const uint8_t token[SBX_PROOF_TOKEN],
                                 const uint8_t workspace_id[SBX_PROOF_ID],
                                 const struct sbx_wait *wait, uint8_t pass[SBX_PROOF_PASS],
                                 sandbox_error *error)
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    struct sbx_proof proof = {0};
    uint8_t key[SBX_DIGEST_BYTES], address[SBX_PROOF_ADDRESS], hello[SBX_PROOF_HELLO];
    if (getpeername(channel->read_fd, (struct sockaddr *)&peer, &size) != 0 ||
        !sbx_proof_address((struct sockaddr *)&peer, address))
        return fail(error, "the connection has ended");
    bool begun =
        sbx_proof_key(token, key) && sbx_proof_hello(&proof, key, workspace_id, address, hello);
    sbx_wipe(key, sizeof key);
    if (!begun)
        return sbx_fail(error, SANDBOX_FAILED, "no random numbers, or no memory, for a proof");
    sandbox_status status = exchange(channel->read_fd, &proof, hello, wait, error);
    if (status == SANDBOX_OK && !sbx_proof_pass(&proof, pass))
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a proof");
    sbx_wipe(&proof, sizeof proof);
    return status;
}

static sandbox_status exchange(int fd, struct sbx_proof *proof, const uint8_t *hello,
                               const struct sbx_wait *wait, sandbox_error *error)
{
    uint8_t answer[SBX_PROOF_ANSWER], finish[SBX_PROOF_FINISH];
    sandbox_status status = say(fd, hello, SBX_PROOF_HELLO, wait, error);
    if (status == SANDBOX_OK)
        status = hear(fd, answer, sizeof answer, wait, error);
    if (status == SANDBOX_OK && !sbx_proof_finish(proof, answer, finish))
        status = fail(error, "its proof is wrong");
    if (status == SANDBOX_OK)
        status = say(fd, finish, sizeof finish, wait, error);
    return status;
}

static sandbox_status say(int fd, const uint8_t *bytes, size_t size, const struct sbx_wait *wait,
                          sandbox_error *error)
{
    while (size > 0) {
        sandbox_status status = sbx_wait_descriptor(wait, fd, POLLOUT, error);
        if (status != SANDBOX_OK)
            return status;
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (sent < 0)
            return fail(error, "it ended the connection");
        bytes += sent;
        size -= (size_t)sent;
    }
    return SANDBOX_OK;
}

/* Never more than that: what follows is the session's. */
static sandbox_status hear(int fd, uint8_t *bytes, size_t size, const struct sbx_wait *wait,
                           sandbox_error *error)
{
    while (size > 0) {
        sandbox_status status = sbx_wait_descriptor(wait, fd, POLLIN, error);
        if (status != SANDBOX_OK)
            return status;
        ssize_t got = recv(fd, bytes, size, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (got <= 0)
            return fail(error, "it ended the connection");
        bytes += got;
        size -= (size_t)got;
    }
    return SANDBOX_OK;
}

static sandbox_status fail(sandbox_error *error, const char *why)
{
    return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "agent-not-proven",
                        "whoever answers there did not prove to be the workspace's agent: %s", why);
}
