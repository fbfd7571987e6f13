/* Parking: who is at risk, who shows what, and telling them. See park.h and shared/parking.h. */

#include "park.h"
#include "shared/parking.h"
#include "util/memory.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PARK_MS_MAX    5000
#define LOOK_AGAIN_MS  10
#define TELL_AGAIN_MS  200 /* the sentry of 2022 does not always wake who it has a signal for */
#define PROCESSES_MAX  65536u
#define SOCKETS_MAX    65536u
#define MAP_LINES_MAX  (1u << 17)
#define MAP_LINE_BYTES (4096 + 128)
#define STAT_BYTES     1024

/*
 * A child between fork and exec has all that its parent shows, but would die of a signal that comes
 * while it becomes another program. So nobody is judged before it was seen for that long, and
 * nobody is told anything who borrows its parent's memory: what the parent does is done for both.
 */
#define SETTLED_MS 100

/* One process, and what was learned of it. */
struct seen {
    pid_t pid;
    unsigned long long start; /* a number alone may become another's */
    bool borrows;
    unsigned pages;            /* enum parking_answer; 0: it shows nothing */
    int64_t since_ms, told_ms; /* told_ms: the last time; 0: never */
};

struct seen_list {
    struct seen *all;
    size_t count, room;
};

struct agent_park {
    struct seen_list known; /* at risk, at the last look */
};

/* The inodes of TCP sockets. */
struct sockets {
    unsigned long *inodes;
    size_t count, room;
    bool unknown; /* there is no list, or no memory for it: any socket may be one */
};

static bool look(bool at_risk_only, struct seen_list *out);
static bool add_seen(struct seen_list *list, const struct seen *seen);
static bool read_stat(pid_t pid, unsigned long long *start, pid_t *parent);
static bool has_lent(pid_t parent);
static bool is_at_risk(pid_t pid);
static bool holds(pid_t pid, const struct sockets *sockets);
static void read_sockets(pid_t pid, const char *name, struct sockets *out);
static int compare_inodes(const void *left, const void *right);
static unsigned pages_shown(pid_t pid);
static size_t judge(struct agent_park *park, struct seen_list *now, bool is_last,
                    struct agent_park_report *report);
static const struct seen *find(const struct seen_list *list, const struct seen *wanted);
static void tell(const struct seen *seen, int wish);
static uint32_t count_parked(bool tell_them);

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void free_list(struct seen_list *list)
{
    free(list->all);
    *list = (struct seen_list){0};
}

void agent_park_free(struct agent_park *park)
{
    if (park == NULL)
        return;
    free_list(&park->known);
    free(park);
}

bool agent_park_begin(struct agent_park **out, struct agent_park_report *report)
{
    *out = calloc(1, sizeof **out);
    int64_t deadline_ms = now_ms() + PARK_MS_MAX;
    bool is_last = *out == NULL;
    *report = (struct agent_park_report){0};
    while (!is_last) {
        struct seen_list now = {0};
        *report = (struct agent_park_report){0};
        is_last = now_ms() >= deadline_ms;
        if (!look(true, &now)) {
            free_list(&now);
            break;
        }
        size_t waiting = judge(*out, &now, is_last, report);
        if (report->obstacles_count > 0)
            break;
        if (waiting == 0)
            return true;
        poll(NULL, 0, LOOK_AGAIN_MS);
    }
    agent_park_undo(*out);
    agent_park_free(sbx_take(*out));
    return false;
}

/* Takes over what was seen now. Returns how many are still to be waited for. */
static size_t judge(struct agent_park *park, struct seen_list *now, bool is_last,
                    struct agent_park_report *report)
{
    size_t waiting = 0;
    for (size_t at = 0; at < now->count; at++) {
        struct seen *seen = &now->all[at];
        const struct seen *before = find(&park->known, seen);
        if (before != NULL) {
            seen->since_ms = before->since_ms;
            seen->told_ms = before->told_ms;
        }
        if (seen->pages == PARKING_PARKED) {
            report->parked++;
            continue;
        }
        bool is_settled = !seen->borrows && now_ms() - seen->since_ms >= SETTLED_MS;
        if (is_last || (is_settled && seen->pages != PARKING_ABLE)) {
            (void)agent_park_add_obstacle(report, seen->pid);
            continue;
        }
        waiting++;
        if (is_settled && now_ms() - seen->told_ms >= TELL_AGAIN_MS) {
            tell(seen, PARKING_PARK);
            seen->told_ms = now_ms();
        }
    }
    free_list(&park->known);
    park->known = *now;
    return waiting;
}

bool agent_park_holds(struct agent_park_report *report)
{
    struct seen_list now = {0};
    *report = (struct agent_park_report){0};
    bool looked = look(true, &now);
    for (size_t at = 0; at < now.count; at++) {
        if (now.all[at].pages == PARKING_PARKED)
            report->parked++;
        else
            (void)agent_park_add_obstacle(report, now.all[at].pid);
    }
    free_list(&now);
    return looked && report->obstacles_count == 0;
}

void agent_park_undo(const struct agent_park *park)
{
    struct seen_list now = {0};
    (void)look(false, &now);
    for (size_t at = 0; at < now.count; at++) {
        const struct seen *before = park == NULL ? NULL : find(&park->known, &now.all[at]);
        /* Told and not parked yet: both signals will come to it, this one last. */
        if (now.all[at].pages >= PARKING_PARKED || (before != NULL && before->told_ms != 0))
            tell(&now.all[at], PARKING_UNPARK);
    }
    free_list(&now);
}

uint32_t agent_park_settle(uint32_t at_most_ms)
{
    int64_t told_ms = now_ms(), deadline_ms = told_ms + at_most_ms;
    /* Most are awake at once, and a caller waits for this. */
    for (int pause_ms = 1;; pause_ms = pause_ms < LOOK_AGAIN_MS ? 2 * pause_ms : pause_ms) {
        bool tell_them = now_ms() - told_ms >= TELL_AGAIN_MS;
        uint32_t left = count_parked(tell_them);
        if (left == 0 || now_ms() >= deadline_ms)
            return left;
        if (tell_them)
            told_ms = now_ms();
        poll(NULL, 0, pause_ms);
    }
}

static uint32_t count_parked(bool tell_them)
{
    struct seen_list now = {0};
    uint32_t count = 0;
    (void)look(false, &now);
    for (size_t at = 0; at < now.count; at++) {
        bool parked = now.all[at].pages >= PARKING_PARKED;
        count += parked;
        if (parked && tell_them)
            tell(&now.all[at], PARKING_UNPARK);
    }
    free_list(&now);
    return count;
}

/* Those at risk, or those that show something. False: no memory, or no /proc. */
static bool look(bool at_risk_only, struct seen_list *out)
{
    DIR *directory = opendir("/proc");
    bool failed = directory == NULL;
    for (struct dirent *entry; !failed && (entry = readdir(directory)) != NULL;) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        struct seen seen = {.pid = (pid_t)pid, .since_ms = now_ms()};
        pid_t parent;
        if (pid <= 0 || *end != '\0' || pid == getpid() ||
            !read_stat(seen.pid, &seen.start, &parent))
            continue;
        if (at_risk_only && !is_at_risk(seen.pid))
            continue;
        /* In this order: whoever shows something after it was no borrower shows its own. */
        seen.borrows = has_lent(parent);
        seen.pages = pages_shown(seen.pid);
        if (at_risk_only || seen.pages != 0)
            failed = !add_seen(out, &seen);
    }
    if (directory != NULL)
        closedir(directory);
    return !failed;
}

static bool add_seen(struct seen_list *list, const struct seen *seen)
{
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 16 : list->room * 2;
        struct seen *more = room > PROCESSES_MAX ? NULL : realloc(list->all, room * sizeof *more);
        if (more == NULL)
            return false;
        list->all = more;
        list->room = room;
    }
    list->all[list->count++] = *seen;
    return true;
}

static const struct seen *find(const struct seen_list *list, const struct seen *wanted)
{
    for (size_t at = 0; at < list->count; at++) {
        if (list->all[at].pid == wanted->pid && list->all[at].start == wanted->start)
            return &list->all[at];
    }
    return NULL;
}

static FILE *open_of(pid_t pid, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return fopen(path, "re");
}

/* What stands behind the command in a stat file; NULL: there is no such process any more. */
static const char *read_behind_command(pid_t pid, const char *name, char *text, size_t size)
{
    FILE *file = open_of(pid, name);
    size_t got = file == NULL ? 0 : fread(text, 1, size - 1, file);
    if (file != NULL)
        fclose(file);
    text[got] = '\0';
    /* The command may hold anything, a closing bracket too: the last one ends it. */
    const char *end = strrchr(text, ')');
    return end == NULL ? NULL : end + 1;
}

static bool read_stat(pid_t pid, unsigned long long *start, pid_t *parent)
{
    char text[STAT_BYTES];
    const char *rest = read_behind_command(pid, "stat", text, sizeof text);
    return rest != NULL && sscanf(rest,
                                  " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
                                  "%*d %*d %*d %*d %llu",
                                  parent, start) == 2;
}

/*
 * Whether one of its threads sleeps without hearing signals, as it does while a child of its has
 * its memory (vfork). It may sleep for another reason: then its children are looked at again later.
 */
static bool has_lent(pid_t parent)
{
    char path[64], text[STAT_BYTES];
    snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    DIR *directory = opendir(path);
    bool found = false;
    for (struct dirent *entry;
         directory != NULL && !found && (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "task/%.20s/stat", entry->d_name);
        const char *rest = read_behind_command(parent, path, text, sizeof text);
        found = rest != NULL && strncmp(rest, " D ", 3) == 0;
    }
    if (directory != NULL)
        closedir(directory);
    return found;
}

/* It holds an epoll set and a TCP socket. A process that vanishes meanwhile is at none. */
static bool is_at_risk(pid_t pid)
{
    if (!holds(pid, NULL))
        return false;
    struct sockets tcp = {0};
    read_sockets(pid, "net/tcp", &tcp);
    read_sockets(pid, "net/tcp6", &tcp);
    if (!tcp.unknown && tcp.count > 0)
        qsort(tcp.inodes, tcp.count, sizeof *tcp.inodes, compare_inodes);
    bool at_risk = holds(pid, &tcp);
    free(tcp.inodes);
    return at_risk;
}

/* A descriptor of one of the sockets, or, without these, of an epoll set. */
static bool holds(pid_t pid, const struct sockets *sockets)
{
    char path[64], target[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    bool found = false;
    for (struct dirent *entry;
         directory != NULL && !found && (entry = readdir(directory)) != NULL;) {
        ssize_t size = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);
        unsigned long inode;
        target[size > 0 ? size : 0] = '\0';
        if (sockets == NULL)
            found = strcmp(target, "anon_inode:[eventpoll]") == 0;
        else if (sscanf(target, "socket:[%lu]", &inode) == 1)
            found = sockets->unknown ||
                    (sockets->count > 0 && bsearch(&inode, sockets->inodes, sockets->count,
                                                   sizeof inode, compare_inodes) != NULL);
    }
    if (directory != NULL)
        closedir(directory);
    return found;
}

/* Of the process's own network. */
static void read_sockets(pid_t pid, const char *name, struct sockets *out)
{
    FILE *file = open_of(pid, name);
    char line[512];
    unsigned long inode;
    out->unknown = out->unknown || file == NULL;
    while (!out->unknown && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, " %*u: %*s %*s %*s %*s %*s %*s %*s %*s %lu", &inode) != 1)
            continue;
        if (out->count == out->room) {
            size_t room = out->room == 0 ? 64 : out->room * 2;
            unsigned long *more =
                room > SOCKETS_MAX ? NULL : realloc(out->inodes, room * sizeof *more);
            out->unknown = more == NULL;
            if (more == NULL)
                break;
            out->inodes = more;
            out->room = room;
        }
        out->inodes[out->count++] = inode;
    }
    if (file != NULL)
        fclose(file);
}

static int compare_inodes(const void *left, const void *right)
{
    unsigned long first = *(const unsigned long *)left, second = *(const unsigned long *)right;
    return first < second ? -1 : first > second;
}

/* How many pages of the preloaded library are writable only. */
static unsigned pages_shown(pid_t pid)
{
    static const char library[] = "/" PARKING_LIBRARY "\n";
    FILE *file = open_of(pid, "maps");
    char line[MAP_LINE_BYTES];
    unsigned long pages = 0;
    for (unsigned count = 0;
         file != NULL && count < MAP_LINES_MAX && fgets(line, sizeof line, file) != NULL; count++) {
        unsigned long begin, end;
        size_t size = strlen(line);
        if (size > sizeof library && strcmp(line + size - (sizeof library - 1), library) == 0 &&
            strstr(line, " -w-p ") != NULL && sscanf(line, "%lx-%lx", &begin, &end) == 2)
            pages += (end - begin) / PARKING_PAGE_BYTES;
    }
    if (file != NULL)
        fclose(file);
    return pages <= PARKING_REFUSES ? (unsigned)pages : 0;
}

static void tell(const struct seen *seen, int wish)
{
    unsigned long long start;
    pid_t parent;
    if (!seen->borrows && read_stat(seen->pid, &start, &parent) && start == seen->start)
        (void)sigqueue(seen->pid, PARKING_SIGNAL, (union sigval){.sival_int = wish});
}

struct agent_park_obstacle *agent_park_add_obstacle(struct agent_park_report *report, pid_t pid)
{
    if (report->obstacles_count == AGENT_PARK_OBSTACLES_MAX)
        return NULL;
    struct agent_park_obstacle *obstacle = &report->obstacles[report->obstacles_count++];
    FILE *file = open_of(pid, "cmdline");
    obstacle->pid = pid;
    if (file == NULL)
        return obstacle;
    obstacle->command_size = fread(obstacle->command, 1, sizeof obstacle->command, file);
    fclose(file);
    /* Each word ends with a zero byte. */
    if (obstacle->command_size > 0 && obstacle->command[obstacle->command_size - 1] == '\0')
        obstacle->command_size--;
    for (size_t at = 0; at < obstacle->command_size; at++) {
        if (obstacle->command[at] == '\0')
            obstacle->command[at] = ' ';
    }
    return obstacle;
}
