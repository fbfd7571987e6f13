/* One descriptor for poll() that stands for others: an epoll set. */

#include "readiness.h"
#include "util/memory.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

bool sbx_readiness_make(struct sbx_readiness *readiness)
{
    if (readiness->descriptor >= 0)
        return true;
    readiness->fact_fd = eventfd(readiness->fact ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    readiness->descriptor = epoll_create1(EPOLL_CLOEXEC);
    if (readiness->fact_fd >= 0 && readiness->descriptor >= 0) {
        sbx_readiness_add(readiness, readiness->fact_fd);
        return true;
    }
    sbx_readiness_free(readiness);
    return false;
}

void sbx_readiness_free(struct sbx_readiness *readiness)
{
    sbx_close_fd(&readiness->descriptor);
    sbx_close_fd(&readiness->fact_fd);
}

void sbx_readiness_add(struct sbx_readiness *readiness, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (readiness->descriptor >= 0 && fd >= 0)
        (void)epoll_ctl(readiness->descriptor, EPOLL_CTL_ADD, fd, &event);
}

void sbx_readiness_remove(struct sbx_readiness *readiness, int fd)
{
    if (readiness->descriptor >= 0 && fd >= 0)
        (void)epoll_ctl(readiness->descriptor, EPOLL_CTL_DEL, fd, NULL);
}

void sbx_readiness_set(struct sbx_readiness *readiness, bool fact)
{
    if (readiness->fact == fact)
        return;
    readiness->fact = fact;
    if (readiness->fact_fd < 0)
        return;
    eventfd_t ignored;
    if (fact)
        (void)eventfd_write(readiness->fact_fd, 1);
    else
        (void)eventfd_read(readiness->fact_fd, &ignored);
}
