/* What the admin API answers. doc/egress.md is its contract. */
#ifndef EGRESS_ADMIN_API_H
#define EGRESS_ADMIN_API_H

#include "egress/head.h"
#include "util/bytes.h"
#include <sandbox/error.h>

#define ADMIN_BODY_MAX (1024u * 1024)

struct admin_request {
    struct sbx_egress_text method, target;
    const void *body;
    size_t body_size;
};

struct admin_answer {
    int status;
    const char *type; /* of the content */
    struct sbx_bytes body;
};

/* False: not allowed to ask; the answer says so. */
bool admin_check(const struct sbx_egress_head *head, struct admin_answer *answer);
/* A request whose body may be as long as ADMIN_CHECK_MAX. */
bool admin_asks_for_check(struct sbx_egress_text target);
void admin_answer(const struct admin_request *request, struct admin_answer *answer);
void admin_fail(struct admin_answer *answer, int status, const char *reason, const char *message);
const char *admin_phrase(int status);

#endif
