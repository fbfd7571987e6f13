/* One file as a stream: from a workspace to standard output, and from standard input there. */
#ifndef CLI_TRANSFER_H
#define CLI_TRANSFER_H

#include "cli.h"

/* The exit code; failures are told. */
int cli_transfer_out(struct cli *cli, sandbox_workspace *workspace, const char *path);
/* The file is there as a whole or not at all. */
int cli_transfer_in(struct cli *cli, sandbox_workspace *workspace, const char *path);

#endif
