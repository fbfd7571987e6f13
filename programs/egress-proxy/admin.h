/*
 * The admin API's connections: HTTP/1.1 over a Unix socket or TCP, one request at a time. What is
 * asked is answered at once, since nothing of it waits.
 */
#ifndef EGRESS_ADMIN_H
#define EGRESS_ADMIN_H

#include <stdbool.h>

bool admin_open(void); /* false: said why on standard error */
void admin_close(void);

#endif
