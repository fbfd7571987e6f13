/*
 * Starts an image on its way to the disk while runsc still writes it, which keeps the processors
 * busy and the disk idle: the sync at its end then finds little to do. Only a beginning: whatever
 * does not work here is left to that sync.
 */

#include "drivers/gvisor/snapshot.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES (UINT64_C(16) << 20)

static void take_events(struct sbx_gvisor_ahead *ahead);
static void write_out(struct sbx_gvisor_ahead *ahead, const char *name);

bool sbx_gvisor_ahead_begin(struct sbx_gvisor_ahead *ahead, int directory, int told)
{
    char path[64];
    struct epoll_event of_image = {.events = EPOLLIN}, of_end = {.events = EPOLLIN};
    *ahead = (struct sbx_gvisor_ahead){.image = -1, .changes = -1, .both = -1};
    for (size_t n = 0; n < SBX_GVISOR_AHEAD_FILES; n++)
        ahead->files[n].fd = -1;
    ahead->image = openat(directory, "image", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ahead->changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    ahead->both = epoll_create1(EPOLL_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ahead->image);
    return ahead->image >= 0 && ahead->changes >= 0 && ahead->both >= 0 &&
           inotify_add_watch(ahead->changes, path, IN_MODIFY) >= 0 &&
           epoll_ctl(ahead->both, EPOLL_CTL_ADD, ahead->changes, &of_image) == 0 &&
           epoll_ctl(ahead->both, EPOLL_CTL_ADD, told, &of_end) == 0;
}

sandbox_status sbx_gvisor_ahead_go(struct sbx_gvisor_ahead *ahead, int told,
                                   const struct sbx_wait *wait, sandbox_error *error)
{
    for (;;) {
        struct pollfd heard = {.fd = told, .events = POLLIN};
        sandbox_status status = sbx_wait_descriptor(wait, ahead->both, POLLIN, error);
        if (status != SANDBOX_OK || poll(&heard, 1, 0) != 0)
            return status;
        take_events(ahead);
    }
}

void sbx_gvisor_ahead_end(struct sbx_gvisor_ahead *ahead)
{
    for (size_t n = 0; n < SBX_GVISOR_AHEAD_FILES; n++)
        sbx_close_fd(&ahead->files[n].fd);
    sbx_close_fd(&ahead->both);
    sbx_close_fd(&ahead->changes);
    sbx_close_fd(&ahead->image);
}

static void take_events(struct sbx_gvisor_ahead *ahead)
{
    _Alignas(struct inotify_event) char data[4096];
    ssize_t size = read(ahead->changes, data, sizeof data);
    for (ssize_t at = 0; at < size;) {
        const struct inotify_event *event = (const struct inotify_event *)(void *)(data + at);
        if (event->len > 0)
            write_out(ahead, event->name);
        at += (ssize_t)(sizeof *event + event->len);
    }
}

static void write_out(struct sbx_gvisor_ahead *ahead, const char *name)
{
    struct sbx_gvisor_ahead_file *file = ahead->files, *end = file + SBX_GVISOR_AHEAD_FILES;
    struct stat facts;
    while (file < end && file->fd >= 0 && strcmp(file->name, name) != 0)
        file++;
    if (file == end || strlen(name) >= sizeof file->name)
        return;
    if (file->fd < 0) {
        file->fd = openat(ahead->image, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        snprintf(file->name, sizeof file->name, "%s", name);
    }
    if (file->fd < 0 || fstat(file->fd, &facts) < 0 || !S_ISREG(facts.st_mode) ||
        (uint64_t)facts.st_size < file->begun + PIECE_BYTES)
        return;
    (void)sync_file_range(file->fd, (off64_t)file->begun,
                          (off64_t)((uint64_t)facts.st_size - file->begun), SYNC_FILE_RANGE_WRITE);
    file->begun = (uint64_t)facts.st_size;
}
