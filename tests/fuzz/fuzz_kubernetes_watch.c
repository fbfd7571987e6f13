/*
 * What a hostile API server sends on a watch (lib/cloud/kubernetes_feed.c), and as a Status
 * (lib/cloud/kubernetes_status.c). The first byte says in pieces of which size the rest comes; with
 * its highest bit set the rest is a Status.
 */

#include "cloud/kubernetes_feed.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool right)
{
    if (!right)
        abort();
}

static void read_status(const uint8_t *data, size_t size)
{
    struct sbx_http_answer answer = {
        .status = 500, .retry_after_ms = -1, .body = SBX_BYTES(1u << 20)};
    struct sbx_kubernetes_status said;
    if (sbx_bytes_append(&answer.body, data, size))
        sbx_kubernetes_status_read(&answer, &said);
    else
        said = (struct sbx_kubernetes_status){.retry_after_ms = -1};
    must(strnlen(said.reason, sizeof said.reason) < sizeof said.reason &&
         strnlen(said.message, sizeof said.message) < sizeof said.message &&
         strnlen(said.name, sizeof said.name) < sizeof said.name);
    must(said.retry_after_ms >= -1 && said.retry_after_ms < 86400000);
    sbx_http_answer_free(&answer);
}

/* Done when it is gone, or the second time. */
static bool is_done(void *user_data, const cJSON *object)
{
    unsigned *calls = user_data;
    must(object == NULL || cJSON_IsObject(object));
    return object == NULL || ++*calls > 1;
}

static void feed_all(struct sbx_feed *feed, const uint8_t *data, size_t size, size_t piece)
{
    bool going = true;
    uint64_t before = 0;
    while (size > 0 && going) {
        size_t part = piece < size ? piece : size;
        going = sbx_feed_take(feed, data, part);
        must(going == (feed->how == SBX_FEED_GOING));
        must(strnlen(feed->version, sizeof feed->version) < sizeof feed->version);
        uint64_t now = sbx_feed_number(feed->version);
        must(now == 0 || now >= before);
        before = now;
        data += part;
        size -= part;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (data[0] >= 0x80) {
        read_status(data + 1, size - 1);
        return 0;
    }
    static struct sbx_feed feed;
    static const char *const names[] = {"one", "two", "two"};
    struct sbx_interest interests[3];
    unsigned calls[3] = {0};
    sbx_feed_init(&feed);
    for (unsigned each = 0; each < 3; each++) {
        interests[each] = (struct sbx_interest){.name = names[each],
                                                .is_done = is_done,
                                                .user_data = &calls[each],
                                                .wants_object = each != 1,
                                                .version = each};
        pthread_cond_init(&interests[each].woken, NULL);
        sbx_feed_add(&feed, &interests[each]);
    }
    sbx_feed_begin(&feed);
    feed_all(&feed, data + 1, size - 1, 1 + (size_t)data[0] * 8);
    for (unsigned each = 0; each < 3; each++) {
        must(interests[each].object == NULL || interests[each].done);
        cJSON_Delete(interests[each].object);
        sbx_feed_remove(&feed, &interests[each]);
        pthread_cond_destroy(&interests[each].woken);
    }
    must(feed.count == 0);
    sbx_feed_clear(&feed);
    return 0;
}
