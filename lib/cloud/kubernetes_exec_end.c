/* What comes on the channels of an exec, and how the command ended. */

#include "cloud/kubernetes_exec.h"
#include "util/json.h"
#include "util/memory.h"
#include <stdio.h>

enum { OUTPUT = 1, ERRORS = 2, STATUS = 3, UNKNOWN = 255 };

static void keep_errors(struct sbx_exec_reader *reader, const uint8_t *data, size_t size);
static void judge(const cJSON *status, struct sbx_exec_end *out);
static void add_words(char *text, size_t text_size, const char *words, size_t size);

void sbx_exec_read(struct sbx_exec_reader *reader, const uint8_t *data, size_t size, bool begins)
{
    if (begins) {
        reader->channel = data[0];
        data++;
        size--;
    }
    if (size == 0)
        return;
    if (reader->channel == OUTPUT)
        reader->output(reader->user_data, data, size);
    else if (reader->channel == ERRORS)
        keep_errors(reader, data, size);
    else if (reader->channel == STATUS && !sbx_bytes_append(&reader->status, data, size))
        reader->status_is_cut = true;
}

bool sbx_exec_has_status(const struct sbx_exec_reader *reader)
{
    return sbx_bytes_size(&reader->status) > 0;
}

static void keep_errors(struct sbx_exec_reader *reader, const uint8_t *data, size_t size)
{
    if (size > SBX_EXEC_ERRORS) {
        data += size - SBX_EXEC_ERRORS;
        size = SBX_EXEC_ERRORS;
    }
    size_t kept = reader->errors_size;
    if (kept > SBX_EXEC_ERRORS - size)
        kept = SBX_EXEC_ERRORS - size;
    memmove(reader->errors, reader->errors + reader->errors_size - kept, kept);
    memcpy(reader->errors + kept, data, size);
    reader->errors_size = kept + size;
}

void sbx_exec_settle(const struct sbx_exec_reader *reader, const char *why,
                     struct sbx_exec_end *out)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *status = NULL;
    const struct sbx_bytes *bytes = &reader->status;
    *out = (struct sbx_exec_end){.how = SBX_EXEC_UNKNOWN};
    if (!sbx_exec_has_status(reader))
        add_words(out->message, sizeof out->message, why, strlen(why));
    else if (reader->status_is_cut || sbx_json_parse(sbx_bytes_data(bytes), sbx_bytes_size(bytes),
                                                     SBX_EXEC_STATUS, &status, NULL) != SANDBOX_OK)
        snprintf(out->message, sizeof out->message, "the server's word on the end is no JSON");
    else
        judge(status, out);
    if (out->how == SBX_EXEC_EXITED && out->code == 0)
        return;
    /* The last of it says most. */
    size_t used = strlen(out->message), left = sizeof out->message - used;
    if (reader->errors_size == 0 || left < 8)
        return;
    if (used > 0)
        add_words(out->message, sizeof out->message, ": ", 2);
    left = sizeof out->message - strlen(out->message) - 1;
    size_t size = reader->errors_size < left ? reader->errors_size : left;
    add_words(out->message, sizeof out->message, reader->errors + reader->errors_size - size, size);
}

/* Of a command that ran: its exit code, in the place that the API has for it. */
static bool find_code(const cJSON *status, int *code)
{
    const cJSON *details = cJSON_GetObjectItemCaseSensitive(status, "details"), *cause;
    cJSON_ArrayForEach(cause, cJSON_GetObjectItemCaseSensitive(details, "causes"))
    {
        const char *text = sbx_json_text(cause, "message");
        size_t digits = strspn(text, "0123456789");
        if (strcmp(sbx_json_text(cause, "reason"), "ExitCode") == 0 && digits > 0 && digits <= 9 &&
            text[digits] == '\0') {
            *code = (int)strtol(text, NULL, 10);
            return true;
        }
    }
    return false;
}

static void judge(const cJSON *status, struct sbx_exec_end *out)
{
    const char *word = sbx_json_text(status, "status"), *message = sbx_json_text(status, "message");
    bool ran = strcmp(sbx_json_text(status, "reason"), "NonZeroExitCode") == 0;
    bool failed = strcmp(word, "Failure") == 0;
    if (strcmp(word, "Success") == 0 || (failed && ran && find_code(status, &out->code))) {
        out->how = SBX_EXEC_EXITED;
    } else if (!failed) {
        snprintf(out->message, sizeof out->message, "the server's word on the end is no Status");
    } else {
        out->how = SBX_EXEC_FAILED;
        add_words(out->message, sizeof out->message, message, strlen(message));
    }
}

/* As one line of plain text: it is a stranger's. */
static void add_words(char *text, size_t text_size, const char *words, size_t size)
{
    size_t used = strlen(text);
    for (size_t at = 0; at < size && used + 1 < text_size; at++) {
        unsigned char letter = (unsigned char)words[at];
        bool is_end = letter == '\n' && at + 1 == size;
        if (!is_end)
            text[used++] = letter < ' ' || letter == 127 ? ' ' : letter > 127 ? '?' : words[at];
    }
    text[used] = '\0';
}
