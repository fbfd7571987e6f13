/* Why something was refused: see reason.h. */

#include "reason.h"
#include <string.h>

static const struct {
    const char *word, *text;
    int status;
} reasons[REASON_COUNT] = {
    [REASON_UNKNOWN_SOURCE] = {"unknown-source", "no workspace is registered here", 403},
    [REASON_WRONG_KEY] = {"wrong-key", "the connection did not bring the key of this run", 403},
    [REASON_BAD_REQUEST] = {"bad-request", "the request is no HTTP/1.1 that this proxy takes", 400},
    [REASON_HOST_NOT_ALLOWED] = {"host-not-allowed", "the policy does not allow this host", 403},
    [REASON_PORT_NOT_ALLOWED] = {"port-not-allowed", "this port is not allowed", 403},
    [REASON_PRIVATE_ADDRESS] = {"private-address",
                                "the host leads to an address that is not public", 403},
    [REASON_NAME_NOT_FOUND] = {"name-not-found", "the name of the host does not resolve", 502},
    [REASON_NO_SNI] = {"no-sni", "the TLS ClientHello names no host", 403},
    [REASON_SNI_MISMATCH] = {"sni-mismatch", "the TLS ClientHello names another host", 403},
    [REASON_ECH] = {"ech", "the TLS ClientHello is encrypted (ECH)", 403},
    [REASON_NOT_TLS] = {"not-tls", "the tunnel does not begin with TLS", 403},
    [REASON_BAD_HELLO] = {"bad-hello", "the TLS ClientHello is malformed", 403},
    [REASON_TOO_MANY_CONNECTIONS] = {"too-many-connections",
                                     "the workspace has too many connections open", 429},
    [REASON_RATE] = {"rate", "the workspace opens connections too fast", 429},
    [REASON_TIMEOUT] = {"timeout", "it took too long", 408},
    [REASON_UPSTREAM_FAILED] = {"upstream-failed", "the server cannot be reached or broke off",
                                502},
    [REASON_CERTIFICATE] = {"certificate", "the certificate of the server does not verify", 502},
    [REASON_CANNOT_SCRUB] = {"cannot-scrub", "the answer cannot be looked through for credentials",
                             502},
    [REASON_UPGRADE] = {"upgrade", "another protocol cannot be asked for on this route", 501},
    [REASON_SHUTTING_DOWN] = {"shutting-down", "the proxy ends", 503},
};

const char *reason_word(enum reason reason)
{
    return reasons[reason].word;
}

int reason_status(enum reason reason)
{
    return reasons[reason].status;
}

const char *reason_text(enum reason reason)
{
    return reasons[reason].text;
}

enum reason reason_of(const char *word)
{
    for (int reason = 0; reason < REASON_COUNT; reason++)
        if (strcmp(reasons[reason].word, word) == 0)
            return (enum reason)reason;
    return REASON_BAD_REQUEST;
}
