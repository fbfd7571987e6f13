/* What a long operation is at, on standard error, as the library's events tell it. */

#include "progress.h"

#include "text.h"

#include <stdatomic.h>
#include <unistd.h>

#define BAR_COLUMNS 79
#define CLEAR       "\r\033[K"

static void *show(void *progress);
static void show_bar(const sandbox_event *event);
static void write_amount(const sandbox_event *event, char *out, size_t out_size);

static atomic_bool bar_is_shown;

void cli_progress_begin(const struct cli *cli, struct cli_progress *progress)
{
    *progress = (struct cli_progress){.lines = cli->verbose};
    bool shown = cli->verbose || (!cli->quiet && isatty(STDERR_FILENO));
    if (!shown || sandbox_cancel_create(&progress->stop, NULL) != SANDBOX_OK)
        return;
    if (sandbox_client_watch(cli->client, &progress->watch, NULL) == SANDBOX_OK)
        progress->started = pthread_create(&progress->thread, NULL, show, progress) == 0;
    if (!progress->started)
        cli_progress_end(progress);
}

void cli_progress_end(struct cli_progress *progress)
{
    if (progress->started) {
        sandbox_cancel_trigger(progress->stop);
        pthread_join(progress->thread, NULL);
        fputs(cli_progress_clear(), stderr);
        atomic_store(&bar_is_shown, false);
    }
    sandbox_watch_free(progress->watch);
    sandbox_cancel_free(progress->stop);
    *progress = (struct cli_progress){0};
}

const char *cli_progress_clear(void)
{
    return atomic_load(&bar_is_shown) ? CLEAR : "";
}

/* Until it is stopped, and then what has been told already: short operations are seen too. */
static void *show(void *given)
{
    struct cli_progress *progress = given;
    const sandbox_call call = {SANDBOX_CALL, .timeout_ms = SANDBOX_FOREVER,
                               .cancel = progress->stop};
    sandbox_event event = {SANDBOX_EVENT};
    while (sandbox_watch_next(progress->watch, &call, &event, NULL) == SANDBOX_OK) {
        if (!progress->lines)
            show_bar(&event);
        else if (event.kind == SANDBOX_EVENT_STEP)
            cli_complain("info: %s: %s: %s", event.workspace, event.operation, event.text);
        event = (sandbox_event){SANDBOX_EVENT};
    }
    return NULL;
}

static void show_bar(const sandbox_event *event)
{
    char plain[256], line[256], amount[2 * CLI_SHORT_BYTES + 16] = "";
    if (event->kind == SANDBOX_EVENT_PROGRESS)
        write_amount(event, amount, sizeof amount);
    else if (event->kind != SANDBOX_EVENT_STEP)
        return;
    snprintf(plain, sizeof plain, "%s: %s: %s%s", event->workspace, event->operation, event->text,
             amount);
    cli_text_clean(plain, line, sizeof line);
    cli_text_cut(line, BAR_COLUMNS);
    atomic_store(&bar_is_shown, true);
    fprintf(stderr, CLEAR "%s", line);
}

static void write_amount(const sandbox_event *event, char *out, size_t out_size)
{
    char done[CLI_SHORT_BYTES], total[CLI_SHORT_BYTES];
    cli_text_size(event->done, done);
    if (event->total == 0 || event->done > event->total)
        snprintf(out, out_size, "  %s", done);
    else
        snprintf(out, out_size, "  %3u%%  %s of %s",
                 (unsigned)((double)event->done * 100 / (double)event->total), done,
                 cli_text_size(event->total, total));
}
