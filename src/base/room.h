/*
 * Room for more memory on this host. Linux kills a process that touches more than its cgroup or the host has:
 * fallocate does not fail first. So large reservations look before.
 */
#ifndef RONDO_BASE_ROOM_H
#define RONDO_BASE_ROOM_H

#include "base/types.h"

enum { RONDO_ROOM_TEXT = 200 };

struct rondo_room {
    uint64_t bytes;              /* UINT64_MAX: unknown */
    char limit[RONDO_ROOM_TEXT]; /* what leaves no more: "the host has 10.0 MiB available" */
    int is_cgroup;
};

/**
 * The least room that the host and the cgroups of this process leave, those above included (versions 1 and
 * 2). Swap space counts where it may be used; caches of files count as free, for the kernel drops them.
 * @param root  where /proc and /sys are: ""; tests give a directory
 */
void rondo_room_find(const char *root, struct rondo_room *room);

/**
 * Is there room for these bytes, their page tables and a little more? Asks again after 100 ms at the latest,
 * or when what it has granted since is 1/64 of what was left.
 * @param room  out, if not: as rondo_room_find
 */
int rondo_room_for(size_t bytes, struct rondo_room *room);
/** rondo_room_for looks below this directory (tests only). The string is not copied. */
void rondo_room_set_root(const char *root);

#endif
