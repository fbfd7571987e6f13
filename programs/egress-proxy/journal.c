/* The log: see journal.h. */

#include "journal.h"
#include "settings.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/json.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int file = STDERR_FILENO;

static int open_file(void);
static void write_line(const cJSON *object);

bool journal_open(void)
{
    if (settings.log_path == NULL)
        return true;
    int opened = open_file();
    if (opened < 0) {
        fprintf(stderr, "sandbox-egress-proxy: --log '%s': %s\n", settings.log_path,
                strerror(errno));
        return false;
    }
    file = opened;
    return true;
}

/* The old one is kept where the new one cannot be had: better there than nowhere. */
void journal_reopen(void)
{
    if (settings.log_path == NULL)
        return;
    int opened = open_file();
    if (opened < 0)
        return;
    journal_close();
    file = opened;
}

void journal_close(void)
{
    if (file != STDERR_FILENO)
        close(file);
    file = STDERR_FILENO;
}

static int open_file(void)
{
    return open(settings.log_path,
                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640);
}

void journal_event(const char *event, const char *name, const char *text)
{
    char time[TIME_TEXT];
    time_print(sbx_clock_wall(&sbx_system_clock), time);
    cJSON *object = cJSON_CreateObject();
    if (object != NULL && sbx_json_set_text(object, "time", time) &&
        sbx_json_set_text(object, "event", event) &&
        (text == NULL || sbx_json_set_text(object, name, text)))
        write_line(object);
    cJSON_Delete(object);
}

void journal_refusal(const struct refusal *refusal, const char *workspace, uint64_t suppressed)
{
    cJSON *object = refusal_json(refusal, workspace);
    if (object != NULL && sbx_json_set_text(object, "event", "refused") &&
        (suppressed == 0 || sbx_json_set_integer(object, "suppressed", (int64_t)suppressed)))
        write_line(object);
    cJSON_Delete(object);
}

/* One write a line, so that lines of several writers stay whole. A full disk loses lines only. */
static void write_line(const cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);
    if (text == NULL)
        return;
    size_t size = strlen(text);
    text[size] = '\n';
    (void)sbx_write_all(file, text, size + 1);
    cJSON_free(text);
}
