/*
 * Which TCP sockets this process put into which epoll sets, and for which events. Its holder keeps
 * others out. Bounded, and without an allocator: it lives in programs that we do not know.
 */
#ifndef SHIM_TABLE_H
#define SHIM_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

/* Of pairs of socket and set. A process with more cannot be parked. */
#define TABLE_MAX 16384

struct table_entry {
    uint64_t inode; /* of the socket: the descriptor's number may have become another's since */
    struct epoll_event event;
    int set, fd;
    uint16_t next;   /* of its bucket, or of the unused ones */
    bool used, away; /* away: not in its set, to be put back */
};

/* Whether anything may be known about it. Needs no lock. */
bool table_may_know(int fd);
struct table_entry *table_find(int set, int fd);
/* A new entry, or the one that is there already. NULL: the table is full. */
struct table_entry *table_add(int set, int fd);
void table_remove(struct table_entry *entry);
/* Entries that an older socket of that number left. */
void table_remove_stale(int fd, uint64_t inode);
/* All of a set. */
void table_remove_set(int set);
/* The next one after `at`; the first after NULL. NULL: no more. It may be removed meanwhile. */
struct table_entry *table_next(struct table_entry *at);

#endif
