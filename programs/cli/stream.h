/* Standard streams: bytes as they are, and no wait that a signal to the command cannot end. */
#ifndef CLI_STREAM_H
#define CLI_STREAM_H

#include <stddef.h>
#include <sys/types.h>

enum cli_wrote {
    CLI_WROTE_ALL,
    CLI_WROTE_BROKEN,  /* the reader is gone */
    CLI_WROTE_STOPPED, /* a signal asked the command to end */
    CLI_WROTE_NOTHING, /* errno says why */
};

enum cli_wrote cli_stream_write(int fd, const void *data, size_t data_size);
/*
 * Waits for bytes or the end. 0 at the end; -1 with errno, ECANCELED where `stop` became readable
 * first.
 */
ssize_t cli_stream_read(int fd, int stop, void *data, size_t data_size);

#endif
