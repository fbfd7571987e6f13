/* What stands in a ClientHello: client_hello.c puts it together. */
#ifndef SBX_EGRESS_CLIENT_HELLO_PARTS_H
#define SBX_EGRESS_CLIENT_HELLO_PARTS_H

#include "egress/client_hello.h"

/*
 * Judges the body of one whole ClientHello.
 *
 * @param reason  written where it is refused
 * @return NULL: it is good; else what is wrong, static
 */
const char *sbx_egress_hello_judge(const uint8_t *body, size_t size,
                                   const struct sbx_egress_host *host, enum sbx_egress_ech ech,
                                   const char **reason);

#endif
