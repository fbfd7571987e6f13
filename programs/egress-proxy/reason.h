/*
 * Why something was refused. The words are stable: guests read them, metrics count by them, the
 * log and the admin API carry them. doc/egress.md tells them all.
 */
#ifndef EGRESS_REASON_H
#define EGRESS_REASON_H

enum reason {
    REASON_UNKNOWN_SOURCE,
    REASON_WRONG_KEY,
    REASON_BAD_REQUEST,
    REASON_HOST_NOT_ALLOWED,
    REASON_PORT_NOT_ALLOWED,
    REASON_PRIVATE_ADDRESS,
    REASON_NAME_NOT_FOUND,
    REASON_NO_SNI,
    REASON_SNI_MISMATCH,
    REASON_ECH,
    REASON_NOT_TLS,
    REASON_BAD_HELLO,
    REASON_TOO_MANY_CONNECTIONS,
    REASON_RATE,
    REASON_TIMEOUT,
    REASON_UPSTREAM_FAILED,
    REASON_CERTIFICATE,
    REASON_CANNOT_SCRUB,
    REASON_UPGRADE,
    REASON_SHUTTING_DOWN,
    REASON_COUNT,
};

const char *reason_word(enum reason reason);
int reason_status(enum reason reason);
const char *reason_text(enum reason reason); /* one line: what is wrong */
/* Of a word that the engine gave. */
enum reason reason_of(const char *word);

#endif
