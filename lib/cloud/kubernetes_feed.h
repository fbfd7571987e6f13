/*
 * A watch stream, line by line, told to those who wait for objects by name. Bytes in, the waiting
 * woken: no I/O and no thread in here. Whoever owns a feed holds a lock around all of this.
 *
 * No object is kept but those that somebody was done with; one that nobody waits for is forgotten
 * as soon as it was read.
 */
#ifndef SBX_CLOUD_KUBERNETES_FEED_H
#define SBX_CLOUD_KUBERNETES_FEED_H

#include "cloud/kubernetes_parts.h"

#define SBX_FEED_BUCKETS  1024
#define SBX_FEED_LINE_MAX (8u << 20)
#define SBX_FEED_RECENT   1024

/* One who waits; on his stack. */
struct sbx_interest {
    const char *name;
    bool (*is_done)(void *user_data, const cJSON *object);
    void *user_data;
    bool wants_object;
    pthread_cond_t woken;

    uint64_t version; /* of the state that was asked about last; 0: not known */
    bool done;
    bool stale;     /* something may have been missed: fetch the object anew */
    /*
     * It is being fetched for the first time. A stream may still tell what is older than that, so
     * it is not asked meanwhile; `passed` is the newest that was passed over, 0: none that can be
     * compared.
     */
    bool is_unseen, has_passed;
    uint64_t passed;
    bool failed;    /* the watch cannot go on */
    bool no_memory; /* done, but the object could not be kept */
    cJSON *object;  /* the state it is done for: the owner's */

    uint32_t hash;
    struct sbx_interest *next;
};

struct sbx_feed {
    struct sbx_interest *buckets[SBX_FEED_BUCKETS];
    size_t count;
    char version[SBX_KUBERNETES_VERSION]; /* where a stream goes on; "": nowhere yet */
    struct sbx_bytes line;                /* one that has not ended */
    enum {
        SBX_FEED_GOING = 0,
        SBX_FEED_LOST,   /* too old, or not understood: everything is to be fetched anew */
        SBX_FEED_BROKEN, /* the server is in trouble: again from the same place */
    } how;
    bool heard; /* something came in this stream */

    /* The latest changes, so that who comes late need not ask whether he missed one. */
    struct {
        uint64_t version;
        uint32_t hash;
    } recent[SBX_FEED_RECENT];
    size_t recent_count;   /* all there were; the oldest are overwritten */
    uint64_t recent_since; /* every change after this version is there */
};

void sbx_feed_init(struct sbx_feed *feed);
void sbx_feed_clear(struct sbx_feed *feed);
void sbx_feed_add(struct sbx_feed *feed, struct sbx_interest *interest);
void sbx_feed_remove(struct sbx_feed *feed, struct sbx_interest *interest);

/* Streams begin at this version from now on. */
void sbx_feed_place(struct sbx_feed *feed, const char *version);
/* Whether a change of that object after `version` was maybe told already. */
bool sbx_feed_missed(const struct sbx_feed *feed, const char *name, uint64_t version);

/* A new stream: what was left of the last one's last line is nothing. */
void sbx_feed_begin(struct sbx_feed *feed);
/* False: this stream is of no more use; `how` says why. */
bool sbx_feed_take(struct sbx_feed *feed, const void *data, size_t size);

/*
 * Asks one of those who wait about a state: NULL is "not there". Passed over if it is no newer
 * than what was asked before. `version` 0: not known.
 */
void sbx_feed_ask(struct sbx_interest *interest, const cJSON *object, uint64_t version);
/* Wakes all: they are stale, or failed. */
void sbx_feed_wake_all(struct sbx_feed *feed, bool failed);

/* A resourceVersion that can be compared; 0: it is none. */
uint64_t sbx_feed_number(const char *version);

#endif
