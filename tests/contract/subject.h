/* The driver under test, through its table alone, and records for it. */
#ifndef TESTS_SUBJECT_H
#define TESTS_SUBJECT_H

#include "checks.h"
#include "core/driver.h"

extern const struct sbx_driver *driver;
extern void *state;

/* Longer than anything here may take. */
struct sbx_wait patience(void);

/* The fixtures. */
void open_driver(void);
void close_driver(void);

/* A record as the core would write it, under a fresh name, with an operation under way. */
struct sbx_record fresh_record(void);
/* Over the version that it says, which becomes the new one. */
sandbox_status store(struct sbx_record *record);
sandbox_status remove_record(const char *name, const char *expected);

#endif
