/*
 * Users and groups, read from the guest's own files: a static program has no name service in
 * foreign images.
 */

#include "init.h"
#include "server.h"
#include "util/memory.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX     (1u << 20)
#define FIELDS_MAX   7
#define DEFAULT_USER "sandbox"
#define DEFAULT_ID   1000u

static bool find_number_pair(const char *user, struct agent_identity *out);
static bool find_entry(const char *name, const uint32_t *uid, struct agent_identity *out);
static void find_groups(struct agent_identity *identity);
static bool find_self(const char *user, struct agent_identity *out);
static void find_groups_of_self(struct agent_identity *self);
static bool is_self(const char *user, const struct agent_identity *self);
static void settle_home(struct agent_identity *self);

bool agent_identity_find(const char *user, struct agent_identity *out)
{
    *out = (struct agent_identity){.home = "/"};
    if (geteuid() != 0)
        return find_self(user, out);
    if (*user == '\0')
        user = DEFAULT_USER;
    if (find_entry(user, NULL, out)) {
        find_groups(out);
        return true;
    }
    if (strcmp(user, "root") == 0)
        *out = (struct agent_identity){.user = "root", .home = "/root"};
    else if (strcmp(user, DEFAULT_USER) == 0)
        *out = (struct agent_identity){.user = DEFAULT_USER,
                                       .uid = DEFAULT_ID,
                                       .gid = DEFAULT_ID,
                                       .home = "/home/" DEFAULT_USER};
    else
        return find_number_pair(user, out);
    find_groups(out);
    return true;
}

/* At most FILE_MAX bytes, ended by a zero byte; NULL where there is none. */
static char *read_text(const char *path)
{
    SBX_ON_EXIT(sbx_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    if (end < 0 || end > FILE_MAX || lseek(fd, 0, SEEK_SET) != 0)
        return NULL;
    char *text = malloc((size_t)end + 1);
    if (text == NULL)
        return NULL;
    size_t used = 0;
    while (used < (size_t)end) {
        ssize_t size = read(fd, text + used, (size_t)end - used);
        if (size <= 0)
            break;
        used += (size_t)size;
    }
    text[used] = '\0';
    return text;
}

/* Cuts the next line off and into its fields. False at the end. */
static bool next_line(char **text, char *fields[FIELDS_MAX], size_t *count)
{
    char *line = strsep(text, "\n");
    if (line == NULL)
        return false;
    *count = 0;
    while (*count < FIELDS_MAX && line != NULL)
        fields[(*count)++] = strsep(&line, ":");
    return true;
}

static bool parse_id(const char *text, const char **end, uint32_t *id)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && value <= UINT32_MAX; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    *end = at;
    *id = (uint32_t)value;
    /* The highest number means "leave it" to setuid and chown. */
    return at != text && value < UINT32_MAX;
}

static bool parse_whole_id(const char *text, uint32_t *id)
{
    const char *end;
    return parse_id(text, &end, id) && *end == '\0';
}

/* By name, or by number where `uid` is given. */
static bool find_entry(const char *name, const uint32_t *uid, struct agent_identity *out)
{
    SBX_ON_EXIT(sbx_free_text) char *memory = read_text("/etc/passwd");
    char *text = memory, *fields[FIELDS_MAX];
    size_t count;
    while (text != NULL && next_line(&text, fields, &count)) {
        uint32_t found_uid, found_gid;
        if (count < 6 || strlen(fields[0]) >= sizeof out->user ||
            strlen(fields[5]) >= sizeof out->home || !parse_whole_id(fields[2], &found_uid) ||
            !parse_whole_id(fields[3], &found_gid))
            continue;
        if (uid == NULL ? strcmp(fields[0], name) != 0 : found_uid != *uid)
            continue;
        snprintf(out->user, sizeof out->user, "%s", fields[0]);
        snprintf(out->home, sizeof out->home, "%s", *fields[5] == '/' ? fields[5] : "/");
        out->uid = found_uid;
        out->gid = found_gid;
        return true;
    }
    return false;
}

static bool is_member(char *members, const char *user)
{
    for (char *member; (member = strsep(&members, ",")) != NULL;) {
        if (strcmp(member, user) == 0)
            return true;
    }
    return false;
}

static void find_groups(struct agent_identity *identity)
{
    const unsigned most = sizeof identity->groups / sizeof *identity->groups;
    identity->group_count = 0;
    identity->groups[identity->group_count++] = identity->gid;
    SBX_ON_EXIT(sbx_free_text) char *memory = read_text("/etc/group");
    char *text = memory, *fields[FIELDS_MAX];
    size_t count;
    while (text != NULL && identity->group_count < most && next_line(&text, fields, &count)) {
        uint32_t gid;
        if (count >= 4 && parse_whole_id(fields[2], &gid) && gid != identity->gid &&
            is_member(fields[3], identity->user))
            identity->groups[identity->group_count++] = gid;
    }
}

/* "UID:GID". The numbers need not be in any file. */
static bool find_number_pair(const char *user, struct agent_identity *out)
{
    const char *colon;
    uint32_t uid, gid;
    if (!parse_id(user, &colon, &uid) || *colon != ':' || !parse_whole_id(colon + 1, &gid))
        return false;
    if (!find_entry(NULL, &uid, out))
        snprintf(out->user, sizeof out->user, "%s", user);
    out->uid = uid;
    out->gid = gid;
    out->groups[0] = gid;
    out->group_count = 1;
    return true;
}

/*
 * Without root everything runs as whoever runs the agent. On a host that is taken as it is; of a
 * container that has no root, whoever asks for another user is told.
 */
static bool find_self(const char *user, struct agent_identity *out)
{
    uint32_t uid = geteuid();
    const char *home = getenv("HOME");
    bool first = agent_init_is_first(), found = find_entry(NULL, &uid, out);
    if (!found && first && uid == DEFAULT_ID)
        snprintf(out->user, sizeof out->user, "%s", DEFAULT_USER);
    else if (!found)
        snprintf(out->user, sizeof out->user, "%u", uid);
    if (!found)
        snprintf(out->home, sizeof out->home, "%s", home != NULL && *home == '/' ? home : "/");
    out->uid = uid;
    out->gid = getegid();
    find_groups_of_self(out);
    if (!first)
        return true;
    settle_home(out);
    return is_self(user, out);
}

/* What the kernel says, not the files: a Pod's own groups stand in no file. */
static void find_groups_of_self(struct agent_identity *self)
{
    gid_t groups[sizeof self->groups / sizeof *self->groups];
    int count = getgroups(sizeof groups / sizeof *groups, groups);
    self->groups[0] = self->gid;
    self->group_count = 1;
    for (int at = 0; at < count; at++) {
        if (groups[at] != self->gid && self->group_count < sizeof groups / sizeof *groups)
            self->groups[self->group_count++] = groups[at];
    }
}

/* Names and numbers of our own; "sandbox" is whoever works here. */
static bool is_self(const char *user, const struct agent_identity *self)
{
    char uid[16], both[32];
    snprintf(uid, sizeof uid, "%u", self->uid);
    snprintf(both, sizeof both, "%u:%u", self->uid, self->gid);
    return *user == '\0' || strcmp(user, DEFAULT_USER) == 0 || strcmp(user, self->user) == 0 ||
           strcmp(user, uid) == 0 || strcmp(user, both) == 0;
}

/* What the container was given wins over the image's files; "/" is what a runtime sets for lack of
 * any. */
static void settle_home(struct agent_identity *self)
{
    const char *home = getenv("HOME");
    if (home != NULL && home[0] == '/' && home[1] != '\0' && strlen(home) < sizeof self->home)
        memcpy(self->home, home, strlen(home) + 1);
    else if (strcmp(self->home, "/") == 0 && access("/home/" DEFAULT_USER, W_OK) == 0)
        snprintf(self->home, sizeof self->home, "%s", "/home/" DEFAULT_USER);
}
