/* A watch stream, line by line, told to those who wait. */

#include "cloud/kubernetes_feed.h"
#include "util/json.h"
#include "util/memory.h"
#include <stdio.h>

static void take_line(struct sbx_feed *feed, const void *text, size_t size);
static void take_event(struct sbx_feed *feed, const cJSON *event);
static void take_error(struct sbx_feed *feed, const cJSON *status);
static void tell(struct sbx_feed *feed, const char *name, const cJSON *object, uint64_t version);
static void move_on(struct sbx_feed *feed, const char *version, uint64_t number);

void sbx_feed_init(struct sbx_feed *feed)
{
    memset(feed, 0, sizeof *feed);
    feed->line = (struct sbx_bytes)SBX_BYTES(SBX_FEED_LINE_MAX);
}

void sbx_feed_clear(struct sbx_feed *feed)
{
    sbx_bytes_free(&feed->line);
}

/* FNV-1a. */
static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

void sbx_feed_add(struct sbx_feed *feed, struct sbx_interest *interest)
{
    interest->hash = hash_of(interest->name);
    struct sbx_interest **bucket = &feed->buckets[interest->hash % SBX_FEED_BUCKETS];
    interest->next = *bucket;
    *bucket = interest;
    feed->count++;
}

void sbx_feed_remove(struct sbx_feed *feed, struct sbx_interest *interest)
{
    struct sbx_interest **place = &feed->buckets[interest->hash % SBX_FEED_BUCKETS];
    while (*place != interest)
        place = &(*place)->next;
    *place = interest->next;
    feed->count--;
}

void sbx_feed_place(struct sbx_feed *feed, const char *version)
{
    snprintf(feed->version, sizeof feed->version, "%s", version);
    feed->recent_count = 0;
    feed->recent_since = sbx_feed_number(version);
}

bool sbx_feed_missed(const struct sbx_feed *feed, const char *name, uint64_t version)
{
    uint64_t now = sbx_feed_number(feed->version);
    if (version == 0 || now == 0 || version < feed->recent_since)
        return true;
    uint32_t hash = hash_of(name);
    size_t kept = feed->recent_count < SBX_FEED_RECENT ? feed->recent_count : SBX_FEED_RECENT;
    for (size_t each = 0; each < kept; each++) {
        if (feed->recent[each].hash == hash && feed->recent[each].version > version)
            return true;
    }
    return false;
}

void sbx_feed_begin(struct sbx_feed *feed)
{
    sbx_bytes_free(&feed->line);
    feed->how = SBX_FEED_GOING;
    feed->heard = false;
}

bool sbx_feed_take(struct sbx_feed *feed, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0 && feed->how == SBX_FEED_GOING) {
        const char *end = memchr(at, '\n', size);
        size_t part = end == NULL ? size : (size_t)(end - at);
        bool whole = end != NULL && sbx_bytes_size(&feed->line) == 0;
        if (!whole && !sbx_bytes_append(&feed->line, at, part)) {
            feed->how = SBX_FEED_LOST;
            break;
        }
        if (whole) {
            take_line(feed, at, part);
        } else if (end != NULL) {
            take_line(feed, sbx_bytes_data(&feed->line), sbx_bytes_size(&feed->line));
            sbx_bytes_free(&feed->line);
        }
        part += end != NULL;
        at += part;
        size -= part;
    }
    return feed->how == SBX_FEED_GOING;
}

void sbx_feed_ask(struct sbx_interest *interest, const cJSON *object, uint64_t version)
{
    if (interest->done || (version != 0 && version <= interest->version))
        return;
    if (version != 0)
        interest->version = version;
    if (!interest->is_done(interest->user_data, object))
        return;
    interest->done = true;
    if (interest->wants_object && object != NULL) {
        interest->object = cJSON_Duplicate(object, true);
        interest->no_memory = interest->object == NULL;
    }
    pthread_cond_signal(&interest->woken);
}

void sbx_feed_wake_all(struct sbx_feed *feed, bool failed)
{
    for (size_t bucket = 0; bucket < SBX_FEED_BUCKETS; bucket++) {
        for (struct sbx_interest *each = feed->buckets[bucket]; each != NULL; each = each->next) {
            each->stale = true;
            each->failed = each->failed || failed;
            pthread_cond_signal(&each->woken);
        }
    }
}

uint64_t sbx_feed_number(const char *version)
{
    uint64_t number = 0;
    size_t digits = strspn(version, "0123456789");
    if (digits == 0 || digits > 19 || version[digits] != '\0')
        return 0;
    for (; *version != '\0'; version++)
        number = 10 * number + (uint64_t)(*version - '0');
    return number;
}

/* A line that nobody understands may have been the one that somebody waits for. */
static void take_line(struct sbx_feed *feed, const void *text, size_t size)
{
    if (size == 0)
        return;
    SBX_ON_EXIT(sbx_json_free) cJSON *event = NULL;
    if (sbx_json_parse(text, size, SBX_FEED_LINE_MAX, &event, NULL) == SANDBOX_OK)
        take_event(feed, event);
    else
        feed->how = SBX_FEED_LOST;
}

static void take_event(struct sbx_feed *feed, const cJSON *event)
{
    const char *type = sbx_json_text(event, "type");
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(event, "object");
    if (strcmp(type, "ERROR") == 0) {
        take_error(feed, object);
        return;
    }
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(object, "metadata");
    const char *name = sbx_json_text(metadata, "name");
    const char *version = sbx_json_text(metadata, "resourceVersion");
    uint64_t number = sbx_feed_number(version);
    bool is_deleted = strcmp(type, "DELETED") == 0;
    bool is_change = is_deleted || strcmp(type, "ADDED") == 0 || strcmp(type, "MODIFIED") == 0;
    if (version[0] == '\0' || strlen(version) >= sizeof feed->version ||
        (is_change ? name[0] == '\0' : strcmp(type, "BOOKMARK") != 0)) {
        feed->how = SBX_FEED_LOST;
        return;
    }
    if (is_change)
        tell(feed, name, is_deleted ? NULL : object, number);
    move_on(feed, version, number);
    feed->heard = true;
}

static void take_error(struct sbx_feed *feed, const cJSON *status)
{
    const char *reason = sbx_json_text(status, "reason");
    bool is_old = sbx_json_integer(status, "code") == 410 || strcmp(reason, "Expired") == 0 ||
                  strcmp(reason, "Gone") == 0;
    feed->how = is_old ? SBX_FEED_LOST : SBX_FEED_BROKEN;
}

/* A version that is no number says nothing of the order: from then on nothing is known. */
static void remember(struct sbx_feed *feed, uint32_t hash, uint64_t version)
{
    size_t place = feed->recent_count++ % SBX_FEED_RECENT;
    if (feed->recent_count > SBX_FEED_RECENT && feed->recent[place].version > feed->recent_since)
        feed->recent_since = feed->recent[place].version;
    if (version == 0)
        feed->recent_since = UINT64_MAX;
    feed->recent[place].version = version;
    feed->recent[place].hash = hash;
}

static void tell(struct sbx_feed *feed, const char *name, const cJSON *object, uint64_t version)
{
    uint32_t hash = hash_of(name);
    remember(feed, hash, version);
    for (struct sbx_interest *each = feed->buckets[hash % SBX_FEED_BUCKETS]; each != NULL;
         each = each->next) {
        if (each->hash != hash || strcmp(each->name, name) != 0)
            continue;
        if (!each->is_unseen) {
            sbx_feed_ask(each, object, version);
            continue;
        }
        each->passed = each->has_passed && each->passed == 0 ? 0 : version;
        each->has_passed = true;
    }
}

/* Never back, where that can be told. */
static void move_on(struct sbx_feed *feed, const char *version, uint64_t number)
{
    uint64_t before = sbx_feed_number(feed->version);
    if (number != 0 && number < before)
        return;
    snprintf(feed->version, sizeof feed->version, "%s", version);
}
