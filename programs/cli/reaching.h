/* What a workspace may reach, shared by create, open, run, resume and egress. */
#ifndef CLI_REACHING_H
#define CLI_REACHING_H

#include "cli.h"

struct cli_reaching {
    struct cli_words allow;      /* hosts; "*" for all */
    const char *transformations; /* a file, or "-" */
};

/* clang-format off */

/* The table's lines for settings of `type` that hold a struct cli_reaching `reaching`. */
#define CLI_REACHING_ALLOW "that it may reach over TLS; *.NAME for all below, * for all"
#define CLI_REACHING_FILE "credentials to put in on the way out, as JSON"
#define CLI_REACHING_OPTIONS(type)                                                                \
    {0, "allow", "HOST", CLI_REACHING_ALLOW, CLI_LIST, offsetof(type, reaching.allow)},           \
    CLI_REACHING_SECRETS(type)
#define CLI_REACHING_SECRETS(type)                                                                \
    {0, "transformations", "FILE|-", CLI_REACHING_FILE, CLI_TEXT,                                 \
     offsetof(type, reaching.transformations)}

/* clang-format on */

/* What settled options hang on. */
struct cli_reached {
    sandbox_egress_options options;
    char *secrets; /* wiped when it is freed */
};

/*
 * `*out` is NULL where nothing was asked for. False: told. Free `reached` after the last use.
 */
bool cli_reaching_settle(const struct cli *cli, const struct cli_reaching *reaching,
                         struct cli_reached *reached, const sandbox_egress_options **out);
void cli_reached_free(struct cli_reached *reached);

#endif
