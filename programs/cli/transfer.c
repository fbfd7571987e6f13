/* One file as a stream: from a workspace to standard output, and from standard input there. */

#include "transfer.h"

#include "signals.h"
#include "stream.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES 65536

static int write_piece(const uint8_t *data, size_t data_size);
static int write_all(struct cli *cli, sandbox_workspace *workspace, sandbox_file_writer *writer);
static void free_reader(sandbox_file_reader **reader);
static void free_writer(sandbox_file_writer **writer);

int cli_transfer_out(struct cli *cli, sandbox_workspace *workspace, const char *path)
{
    CLI_ON_EXIT(free_reader) sandbox_file_reader *reader = NULL;
    sandbox_error error = {0};
    sandbox_call call = cli_call(cli);
    sandbox_status status = sandbox_file_reader_open(workspace, path, NULL, &call, &reader, &error);
    while (status == SANDBOX_OK) {
        const uint8_t *data;
        size_t data_size;
        call = cli_call(cli);
        status = sandbox_file_reader_next(reader, &call, &data, &data_size, &error);
        if (status == SANDBOX_OK && data_size == 0)
            return CLI_OK;
        int code = status == SANDBOX_OK ? write_piece(data, data_size) : CLI_OK;
        if (code != CLI_OK)
            return code;
    }
    return cli_fail(cli, &error, sandbox_workspace_name(workspace));
}

int cli_transfer_in(struct cli *cli, sandbox_workspace *workspace, const char *path)
{
    CLI_ON_EXIT(free_writer) sandbox_file_writer *writer = NULL;
    sandbox_error error = {0};
    sandbox_call call = cli_call(cli);
    if (sandbox_file_writer_open(workspace, path, NULL, &call, &writer, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, sandbox_workspace_name(workspace));
    return write_all(cli, workspace, writer);
}

static int write_piece(const uint8_t *data, size_t data_size)
{
    switch (cli_stream_write(STDOUT_FILENO, data, data_size)) {
    case CLI_WROTE_ALL:
        return CLI_OK;
    case CLI_WROTE_BROKEN:
        return CLI_SIGNALLED + 13; /* as if SIGPIPE had ended us */
    case CLI_WROTE_STOPPED:
        return CLI_SIGNALLED + cli_signals_received();
    default:
        cli_complain("cannot write to standard output: %s", strerror(errno));
        return CLI_FAILED;
    }
}

static int write_all(struct cli *cli, sandbox_workspace *workspace, sandbox_file_writer *writer)
{
    char data[PIECE_BYTES];
    sandbox_error error = {0};
    sandbox_status status = SANDBOX_OK;
    while (status == SANDBOX_OK) {
        ssize_t got = cli_stream_read(STDIN_FILENO, cli_signals_descriptor(), data, sizeof data);
        if (got < 0 && errno == ECANCELED)
            return CLI_SIGNALLED + cli_signals_received();
        if (got < 0) {
            cli_complain("cannot read standard input: %s", strerror(errno));
            return CLI_FAILED;
        }
        sandbox_call call = cli_call(cli);
        if (got > 0) {
            status = sandbox_file_writer_write(writer, data, (size_t)got, &call, &error);
            continue;
        }
        status = sandbox_file_writer_commit(writer, &call, &error);
        if (status == SANDBOX_OK)
            return CLI_OK;
    }
    return cli_fail(cli, &error, sandbox_workspace_name(workspace));
}

static void free_reader(sandbox_file_reader **reader)
{
    sandbox_file_reader_free(*reader);
}

static void free_writer(sandbox_file_writer **writer)
{
    sandbox_file_writer_free(*writer);
}
