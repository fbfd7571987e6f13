/* What fields of HTTP may look like, and which belong to one connection only. */
#ifndef SBX_EGRESS_FIELDS_H
#define SBX_EGRESS_FIELDS_H

#include "egress/head.h"

bool sbx_egress_is_token(struct sbx_egress_text text);  /* a field's name; not empty */
bool sbx_egress_is_method(struct sbx_egress_text text); /* upper case and '-', at most 24 bytes */
/* A field's value: no control bytes but tabs inside, no blanks at its ends. May be empty. */
bool sbx_egress_is_value(struct sbx_egress_text text);
/* Removed before a request goes on, whatever Connection says. */
bool sbx_egress_is_hop_by_hop(struct sbx_egress_text name);
/* Not to be set by a rule: hop-by-hop, framing, routing, or the proxy's own to set. */
bool sbx_egress_is_reserved(struct sbx_egress_text name);
/* Whether a list ("a, b") has that word. */
bool sbx_egress_list_has(struct sbx_egress_text list, struct sbx_egress_text word);

#endif
