/* Whether texts hold a credential of a workspace: POST /v1/workspaces/ID/check. */
#ifndef EGRESS_ADMIN_CHECK_H
#define EGRESS_ADMIN_CHECK_H

#include "admin_api.h"
#include "registry.h"

/* What a command brings can be longer than a registration. */
#define ADMIN_CHECK_MAX (8u * 1024 * 1024)

void admin_check_texts(const struct workspace *workspace, const struct admin_request *request,
                       struct admin_answer *answer);

#endif
