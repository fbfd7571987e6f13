/* The log: one JSON object a line. Nothing in it is a secret, or where a name led to. */
#ifndef EGRESS_JOURNAL_H
#define EGRESS_JOURNAL_H

#include "ring.h"

bool journal_open(void);
void journal_reopen(void); /* after somebody moved the file away */
void journal_close(void);

/* An event with at most one text, which may be NULL. */
void journal_event(const char *event, const char *name, const char *text);
void journal_refusal(const struct refusal *refusal, const char *workspace, uint64_t suppressed);

#endif
