/* How what is known of a workspace is shown, shared by list and inspect. */
#ifndef CLI_FACTS_H
#define CLI_FACTS_H

#include "cli.h"
#include "json.h"
#include "text.h"

/* One object. */
void cli_facts_json(struct cli_json *json, const sandbox_workspace_info *info);
/* "a=1,b=2", cut where it does not fit. */
void cli_facts_labels(const sandbox_workspace_info *info, char *out, size_t out_size);
/* How old the recovery point is: "12m"; "none". */
const char *cli_facts_recovery(const sandbox_workspace_info *info, int64_t now_ms,
                               char out[CLI_SHORT_BYTES]);
/* "in 12m", "never", "passed". */
const char *cli_facts_expiry(const sandbox_workspace_info *info, int64_t now_ms,
                             char out[CLI_SHORT_BYTES]);

#endif
