/* The seal file: six lines of text, exactly in this order, and nothing else. */

#include "seal_file.h"
#include "util/memory.h"
#include "util/random.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD     "sandbox-seal 1\n"
#define FILE_MAX 512

static int write_new(const char *path, const char *text, size_t size);
static int sync_directory(const char *path);
static bool is_ours(int fd);
static bool parse(const char *text, struct agent_seal *out);

static void wipe_text(char (*text)[FILE_MAX])
{
    sbx_wipe(*text, sizeof *text);
}

int agent_seal_write(const char *path, const struct agent_seal *seal)
{
    SBX_ON_EXIT(wipe_text) char text[FILE_MAX];
    char workspace[2 * sizeof seal->workspace_id + 1], nonce[2 * sizeof seal->nonce + 1],
        token[2 * sizeof seal->token_hash + 1];
    sbx_hex_print(seal->workspace_id, sizeof seal->workspace_id, workspace);
    sbx_hex_print(seal->nonce, sizeof seal->nonce, nonce);
    sbx_hex_print(seal->token_hash, sizeof seal->token_hash, token);
    int size = snprintf(text, sizeof text,
                        HEAD "epoch %" PRIu32 "\ngeneration %" PRIu32
                             "\nworkspace %s\nnonce %s\ntoken-sha256 %s\n",
                        seal->epoch, seal->generation, workspace, nonce, token);
    sbx_wipe(nonce, sizeof nonce);

    SBX_ON_EXIT(sbx_free_text) char *fresh = sbx_format("%s.new", path);
    if (fresh == NULL)
        return ENOMEM;
    unlink(fresh); /* of an attempt that was cut off */
    int number = write_new(fresh, text, (size_t)size);
    if (number == 0 && rename(fresh, path) != 0)
        number = errno;
    if (number == 0)
        number = sync_directory(path);
    if (number != 0) {
        unlink(fresh);
        unlink(path);
    }
    return number;
}

static int write_new(const char *path, const char *text, size_t size)
{
    SBX_ON_EXIT(sbx_close_fd)
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    ssize_t written = write(fd, text, size);
    if (written < 0)
        return errno;
    if ((size_t)written < size)
        return ENOSPC;
    return fsync(fd) == 0 ? 0 : errno;
}

static int sync_directory(const char *path)
{
    SBX_ON_EXIT(sbx_free_text) char *parent = sbx_copy(path);
    if (parent == NULL)
        return ENOMEM;
    char *slash = strrchr(parent, '/');
    if (slash != NULL)
        slash[slash == parent] = '\0';
    SBX_ON_EXIT(sbx_close_fd)
    int fd = open(slash != NULL ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    /* Some file systems have nothing to do for a directory, and say so. */
    return fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
}

int agent_seal_read(const char *path, struct agent_seal *out)
{
    SBX_ON_EXIT(wipe_text) char text[FILE_MAX];
    SBX_ON_EXIT(sbx_close_fd)
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    if (!is_ours(fd))
        return EPERM;
    size_t used = 0;
    for (;;) {
        ssize_t size = read(fd, text + used, sizeof text - used);
        if (size < 0)
            return errno;
        if (size == 0)
            break;
        used += (size_t)size;
        if (used == sizeof text)
            return EBADMSG;
    }
    text[used] = '\0';
    struct agent_seal seal;
    bool good = strlen(text) == used && parse(text, &seal);
    if (good)
        *out = seal;
    sbx_wipe(&seal, sizeof seal);
    return good ? 0 : EBADMSG;
}

/* A plain file that nobody else can have read or written. */
static bool is_ours(int fd)
{
    struct stat facts;
    return fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() &&
           (facts.st_mode & 077) == 0 && facts.st_nlink == 1;
}

/* Steps over `word` and what follows up to the end of the line, which is cut off. */
static char *take_line(char **text, const char *word)
{
    size_t size = strlen(word);
    if (*text == NULL || strncmp(*text, word, size) != 0 || strchr(*text, '\n') == NULL)
        return NULL;
    return strsep(text, "\n") + size;
}

static bool take_number(char **text, const char *word, uint32_t *out)
{
    const char *digits = take_line(text, word);
    if (digits == NULL || *digits == '\0' || strlen(digits) > 10 ||
        (digits[0] == '0' && digits[1] != '\0'))
        return false;
    uint64_t value = 0;
    for (const char *at = digits; *at != '\0'; at++) {
        if (*at < '0' || *at > '9')
            return false;
        value = value * 10 + (uint64_t)(*at - '0');
    }
    *out = (uint32_t)value;
    return value <= UINT32_MAX;
}

static bool take_bytes(char **text, const char *word, uint8_t *out, size_t size)
{
    const char *digits = take_line(text, word);
    return digits != NULL && strpbrk(digits, "ABCDEF") == NULL && sbx_hex_parse(digits, out, size);
}

static bool parse(const char *text, struct agent_seal *out)
{
    SBX_ON_EXIT(wipe_text) char memory[FILE_MAX];
    snprintf(memory, sizeof memory, "%s", text);
    if (strncmp(memory, HEAD, strlen(HEAD)) != 0)
        return false;
    char *rest = memory + strlen(HEAD);
    return take_number(&rest, "epoch ", &out->epoch) &&
           take_number(&rest, "generation ", &out->generation) &&
           take_bytes(&rest, "workspace ", out->workspace_id, sizeof out->workspace_id) &&
           take_bytes(&rest, "nonce ", out->nonce, sizeof out->nonce) &&
           take_bytes(&rest, "token-sha256 ", out->token_hash, sizeof out->token_hash) &&
           *rest == '\0' && out->epoch > 0;
}

int agent_seal_remove(const char *path)
{
    if (unlink(path) != 0)
        return errno == ENOENT ? 0 : errno;
    return sync_directory(path);
}
