/* Bringing a workspace back, shared by open, resume and restore. */
#ifndef CLI_RESUMING_H
#define CLI_RESUMING_H

#include "cli.h"

/* --from of open and resume; the text is NULL where it was not given. False: told. */
bool cli_from_settle(const struct cli *cli, const char *text, sandbox_from *out);
/* Resumes with progress and tells how it went. The exit code. */
int cli_bring_back(struct cli *cli, sandbox_workspace *workspace,
                   const sandbox_resume_options *wanted);

#endif
