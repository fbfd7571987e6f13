/* The refusals that the admin API tells: of one workspace, or of all in the order of time. */
#ifndef EGRESS_ADMIN_LOG_H
#define EGRESS_ADMIN_LOG_H

#include "admin_api.h"

void admin_log_answer(const char *target, struct admin_answer *answer);

#endif
