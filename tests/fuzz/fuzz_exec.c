/*
 * What a server sends to an exec (lib/cloud): its answer to the handshake, frames, and the channels
 * in them up to the word on the command's end. The first byte says which, and into what pieces it
 * is cut: pieces must make no difference.
 */

#include "cloud/kubernetes_exec.h"
#include "util/memory.h"

#define OUTPUT_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
    struct sbx_exec_reader reader;
    struct sbx_frames *frames;
    struct sbx_bytes output;
    unsigned refuse_each, asked;
    size_t since; /* bytes since the sink was asked */
    struct sbx_exec_end end;
};

static void must(bool right)
{
    if (!right)
        abort();
}

static void keep(void *user_data, const uint8_t *data, size_t size)
{
    struct run *run = user_data;
    must(size > 0 && sbx_bytes_append(&run->output, data, size));
}

static void take(void *user_data, const uint8_t *data, size_t size, bool begins)
{
    struct run *run = user_data;
    run->since += size;
    must(size > 0 && run->since <= 4096);
    sbx_exec_read(&run->reader, data, size, begins);
}

static bool has_room(void *user_data)
{
    struct run *run = user_data;
    run->since = 0;
    return run->refuse_each == 0 || ++run->asked % run->refuse_each != 0;
}

static void begin(struct run *run)
{
    *run = (struct run){.output = SBX_BYTES(OUTPUT_MAX)};
    run->reader = (struct sbx_exec_reader){
        .output = keep, .user_data = run, .status = SBX_BYTES(SBX_EXEC_STATUS)};
}

static void end(struct run *run)
{
    sbx_exec_settle(&run->reader, "it ended", &run->end);
    must(memchr(run->end.message, '\0', sizeof run->end.message) != NULL);
    for (const char *at = run->end.message; *at != '\0'; at++)
        must(*at >= ' ' && *at < 127);
    must(run->end.how == SBX_EXEC_EXITED ? run->end.code >= 0 : run->end.code == 0);
}

static void forget(struct run *run)
{
    sbx_frames_free(run->frames);
    sbx_bytes_free(&run->reader.status);
    sbx_bytes_free(&run->output);
}

/* What we have to say is sent, a little at a time. */
static void send_some(struct sbx_frames *frames, size_t most)
{
    size_t size;
    (void)sbx_frames_output(frames, &size);
    if (size > 0)
        sbx_frames_sent(frames, size < most ? size : most);
}

static void feed(struct run *run, const uint8_t *data, size_t size, size_t piece)
{
    struct sbx_websocket_sink sink = {take, has_room, run};
    run->frames = sbx_frames_new(&sink);
    must(run->frames != NULL);
    while (size > 0 && !sbx_frames_are_over(run->frames)) {
        size_t part = size < piece ? size : piece;
        size_t taken = sbx_frames_take(run->frames, data, part);
        must(taken <= part);
        data += taken;
        size -= taken;
        uint8_t stdin_bytes[] = {0, 'x'};
        if (sbx_frames_room(run->frames) >= sizeof stdin_bytes)
            must(sbx_frames_put(run->frames, stdin_bytes, sizeof stdin_bytes));
        /* As a connection that takes everything, or seven bytes at a time. */
        send_some(run->frames, run->refuse_each == 0 ? SIZE_MAX : 7);
        if (taken == 0)
            send_some(run->frames, SIZE_MAX);
    }
    char reason[160];
    sbx_frames_reason(run->frames, reason);
    must(memchr(reason, '\0', sizeof reason) != NULL);
    end(run);
}

static void read_frames(const uint8_t *data, size_t size, size_t piece)
{
    struct run whole, cut;
    begin(&whole);
    feed(&whole, data, size, size);
    begin(&cut);
    cut.refuse_each = 3;
    feed(&cut, data, size, piece);
    /* Which of two ends it comes to may differ: wslay judges the words of a cut close otherwise. */
    must(whole.end.how == cut.end.how && whole.end.code == cut.end.code &&
         strcmp(whole.end.message, cut.end.message) == 0);
    size_t output = sbx_bytes_size(&whole.output);
    must(output == sbx_bytes_size(&cut.output) &&
         (output == 0 ||
          memcmp(sbx_bytes_data(&whole.output), sbx_bytes_data(&cut.output), output) == 0));
    forget(&whole);
    forget(&cut);
}

static void read_status(const uint8_t *data, size_t size)
{
    struct run run;
    begin(&run);
    sbx_exec_read(&run.reader, (const uint8_t *)"\002stderr of it", 13, true);
    if (size > 0) {
        sbx_exec_read(&run.reader, (const uint8_t *)"\003", 1, true);
        sbx_exec_read(&run.reader, data, size, false);
    }
    end(&run);
    forget(&run);
}

/* A beginning is unfinished, or is what the whole is: nothing later changes what was whole. */
static void read_answer(const uint8_t *data, size_t size, size_t piece)
{
    struct sbx_upgrade whole, part;
    enum sbx_upgrade_state last = sbx_upgrade_read(data, size, false, &whole);
    must(last != SBX_UPGRADE_WHOLE || whole.size <= size);
    for (size_t at = piece; at < size; at += piece) {
        enum sbx_upgrade_state state = sbx_upgrade_read(data, at, false, &part);
        if (state == SBX_UPGRADE_WHOLE) {
            must(last == SBX_UPGRADE_WHOLE && part.status == whole.status &&
                 part.size == whole.size);
            sbx_http_answer_free(&part.answer);
        }
        must(state != SBX_UPGRADE_BROKEN || last == SBX_UPGRADE_BROKEN);
    }
    if (last == SBX_UPGRADE_WHOLE)
        sbx_http_answer_free(&whole.answer);
    else if (sbx_upgrade_read(data, size, true, &whole) == SBX_UPGRADE_WHOLE)
        sbx_http_answer_free(&whole.answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > OUTPUT_MAX)
        return 0;
    size_t piece = (size_t)(data[0] >> 2) + 1;
    switch (data[0] & 3) {
    case 0:
        read_status(data + 1, size - 1);
        break;
    case 1:
        read_answer(data + 1, size - 1, piece * 16);
        break;
    default:
        read_frames(data + 1, size - 1, piece);
        break;
    }
    return 0;
}
