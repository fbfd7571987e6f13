/* Which addresses may be connected to: none of this machine's own, and no special one. */
#ifndef EGRESS_OWN_H
#define EGRESS_OWN_H

#include "endpoint.h"

/* The operator's ranges are read. False: no memory. */
bool own_open(void);
void own_close(void);
bool own_address_is_open(const union address *address);

#endif
