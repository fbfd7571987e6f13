/* Pipes for splice(): see pipes.h. */

#include "pipes.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define PIPES_KEPT 16
#define PIPE_BYTES (512 * 1024)

static struct pipe_pair *kept;
static unsigned kept_count;

static void end(struct pipe_pair *pair);

struct pipe_pair *pipe_take(void)
{
    struct pipe_pair *pair = kept;
    if (pair != NULL) {
        kept = pair->next;
        kept_count--;
        return pair;
    }
    int ends[2];
    pair = calloc(1, sizeof *pair);
    if (pair == NULL || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        free(pair);
        return NULL;
    }
    pair->out = ends[0];
    pair->in = ends[1];
    /* Fewer turns for a stream. Whoever may have no more gets the usual size, which does too. */
    (void)fcntl(pair->in, F_SETPIPE_SZ, PIPE_BYTES);
    return pair;
}

void pipe_give(struct pipe_pair *pair, bool is_empty)
{
    if (pair == NULL)
        return;
    if (!is_empty || kept_count >= PIPES_KEPT) {
        end(pair);
        return;
    }
    pair->next = kept;
    kept = pair;
    kept_count++;
}

void pipes_close(void)
{
    while (kept != NULL) {
        struct pipe_pair *pair = kept;
        kept = pair->next;
        end(pair);
    }
    kept_count = 0;
}

static void end(struct pipe_pair *pair)
{
    close(pair->in);
    close(pair->out);
    free(pair);
}
