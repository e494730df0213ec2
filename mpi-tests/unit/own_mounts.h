/* A mount namespace for tests that need a file system of their own, where the kernel permits it. */
#ifndef RONDO_TEST_OWN_MOUNTS_H
#define RONDO_TEST_OWN_MOUNTS_H

#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

static inline int own_mounts_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    int failed = !file || fputs(text, file) < 0;
    return (file && fclose(file) != 0) || failed ? -1 : 0;
}

/* Map this user to itself in the new user namespace; otherwise it could not create files. */
static inline int own_mounts_user(void)
{
    char uids[64], gids[64];
    snprintf(uids, sizeof uids, "%d %d 1\n", (int)geteuid(), (int)geteuid());
    snprintf(gids, sizeof gids, "%d %d 1\n", (int)getegid(), (int)getegid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return -1;
    }
    return own_mounts_write("/proc/self/uid_map", uids) != 0 ||
           own_mounts_write("/proc/self/setgroups", "deny") != 0 ||
           own_mounts_write("/proc/self/gid_map", gids) != 0;
}

/* Mount an empty tmpfs of 1 MiB on path, for this process (a forked child) and its children.
 * @return 0, or another value if that is not permitted. */
static inline int own_mounts_enter(const char *path)
{
    if (unshare(CLONE_NEWNS) != 0 && own_mounts_user() != 0) {
        return -1;
    }
    return mount("", "/", "", MS_REC | MS_PRIVATE, NULL) != 0 ||
           mount("tmpfs", path, "tmpfs", 0, "size=1m") != 0;
}

#endif
