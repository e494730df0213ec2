/* The resources a process holds, for tests that look for leaks. */
#ifndef RONDO_TEST_HOLDINGS_H
#define RONDO_TEST_HOLDINGS_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct holdings {
    int fds, threads;
    int maps, shared; /* mappings; mappings of shared memory. Those of allocators come and go. */
};

/* The kernel may list a thread shortly after it was joined, but has marked it as exiting by then. */
static inline int is_exiting(const char *tid)
{
    enum { PF_EXITING = 4 }; /* in the flags of a task, proc(5) */
    unsigned flags = PF_EXITING;
    char path[300], line[1024];
    FILE *file;
    snprintf(path, sizeof(path), "/proc/self/task/%s/stat", tid);
    file = fopen(path, "r");
    if (file != NULL) {
        const char *name_end = fgets(line, sizeof(line), file) != NULL ? strrchr(line, ')') : NULL;
        if (name_end != NULL) {
            sscanf(name_end, ") %*c %*d %*d %*d %*d %*d %u", &flags);
        }
        fclose(file);
    }
    return (flags & PF_EXITING) != 0;
}

/* Count the entries of a directory that start with prefix, except hidden ones and those for which but() is
 * true. */
static inline int count_but(const char *directory, const char *prefix, int (*but)(const char *name))
{
    const struct dirent *entry;
    DIR *dir = opendir(directory);
    int n = 0;
    if (dir == NULL) {
        perror(directory);
        abort();
    }
    while ((entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        n += name[0] != '.' && strncmp(name, prefix, strlen(prefix)) == 0 && (but == NULL || !but(name));
    }
    closedir(dir);
    return n;
}

static inline int count_entries(const char *directory, const char *prefix)
{
    return count_but(directory, prefix, NULL);
}
static inline int count_fds(void) { return count_entries("/proc/self/fd", ""); }
/* Count the running threads, including this one. */
static inline int count_threads(void) { return count_but("/proc/self/task", "", is_exiting); }

static inline int is_shared_memory(const char *path)
{
    return strstr(path, "/memfd:") != NULL || strstr(path, "/dev/shm/") != NULL;
}

static inline struct holdings holdings_now(void)
{
    struct holdings now = { .fds = count_fds(), .threads = count_threads() };
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    if (maps == NULL) {
        perror("/proc/self/maps");
        abort();
    }
    while (fgets(line, sizeof(line), maps) != NULL) {
        now.maps++;
        now.shared += is_shared_memory(line);
    }
    fclose(maps);
    return now;
}

/* @return the bytes that the host has set aside for the files of shared memory that this process has open for
 * writing, used or not. */
static inline double shared_file_bytes(void)
{
    const struct dirent *entry;
    double bytes = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char link[300], path[300];
        struct stat st;
        ssize_t len;
        snprintf(link, sizeof(link), "/proc/self/fd/%s", entry->d_name);
        len = readlink(link, path, sizeof(path) - 1);
        path[len < 0 ? 0 : len] = '\0';
        /* Whoever holds a file for rondo-doctor can only read it, and does not own its memory. */
        if (is_shared_memory(path) && (fcntl(atoi(entry->d_name), F_GETFL) & O_ACCMODE) == O_RDWR &&
            stat(link, &st) == 0) {
            bytes += 512.0 * (double)st.st_blocks;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return bytes;
}

/* @return the bytes of a line "field: N kB" of a file of /proc; -1 if it has none. */
static inline double proc_bytes(const char *name, const char *field)
{
    size_t len = strlen(field);
    double kib = -1;
    char line[256];
    FILE *file = fopen(name, "r");
    while (file != NULL && kib < 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, field, len) == 0 && line[len] == ':') {
            kib = strtod(line + len + 1, NULL);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib < 0 ? -1 : 1024 * kib;
}

/* @return the bytes of a field of /proc/self/smaps_rollup, such as "Pss_Shmem"; -1 if the kernel has no such
 * field. Pss counts a page that n processes map as 1/n, so the sum over the processes counts it once. */
static inline double rollup_bytes(const char *field) { return proc_bytes("/proc/self/smaps_rollup", field); }

#endif
