/* One workspace in the admin API: registered, changed, told. */
#ifndef EGRESS_ADMIN_WORKSPACE_H
#define EGRESS_ADMIN_WORKSPACE_H

#include "admin_api.h"
#include "registry.h"
#include <cjson/cJSON.h>

void admin_workspace_put(const char *id, const struct admin_request *request,
                         struct admin_answer *answer);
void admin_workspace_patch(struct workspace *workspace, const struct admin_request *request,
                           struct admin_answer *answer);
/* Never a key or a value. NULL: no memory. */
cJSON *admin_workspace_json(const struct workspace *workspace);

/* Takes the object; `whole` is false where memory was not enough for it. */
void admin_tell(struct admin_answer *answer, int status, cJSON *object, bool whole);

#endif
