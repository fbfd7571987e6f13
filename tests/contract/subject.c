/* The driver under test: see subject.h. */

#include "subject.h"
#include "util/clock.h"
#include "util/memory.h"
#include <stdio.h>

#define PATIENCE_MS 120000

const struct sbx_driver *driver;
void *state;

struct sbx_wait patience(void)
{
    return sbx_wait_alone(PATIENCE_MS);
}

void open_driver(void)
{
    const char *rest = NULL;
    driver = sbx_driver_of(harness_uri(), &rest);
    struct sbx_wait wait = patience();
    good(driver->open(rest, &wait, &state, &error));
}

void close_driver(void)
{
    driver->close(state);
}

struct sbx_record fresh_record(void)
{
    struct sbx_record record = {0};
    snprintf(record.driver, sizeof record.driver, "%s", driver->name);
    ck_assert(sbx_id_fresh(record.id) && sbx_id_fresh(record.run) &&
              sbx_id_fresh(record.operation.id));
    snprintf(record.name, sizeof record.name, "w-%s", record.id);
    snprintf(record.user, sizeof record.user, "%s", harness_user());
    snprintf(record.operation.kind, sizeof record.operation.kind, "create");
    snprintf(record.operation.step, sizeof record.operation.step, "begin");
    record.state = SANDBOX_STATE_CREATING;
    record.epoch = 1;
    /* A Pod's memory is its pool's. */
    record.memory_mib = harness_is_cluster() ? 0 : 512;
    record.process_limit = 256;
    record.created_ms = sbx_clock_wall(&sbx_system_clock);
    return record;
}

sandbox_status store(struct sbx_record *record)
{
    struct sbx_wait wait = patience();
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    good(sbx_record_encode(record, &text, &error));
    return driver->record_store(state, record->name, text, strlen(text), record->version,
                                record->version, &wait, &error);
}

sandbox_status remove_record(const char *name, const char *expected)
{
    struct sbx_wait wait = patience();
    return driver->record_remove(state, name, expected, &wait, &error);
}
