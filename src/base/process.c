#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct process_stat {
    char state;
    int parent, threads;
    uint64_t start;
};

/* Read a process's entry in /proc. @return 0: it has none. */
static int process_stat(int pid, struct process_stat *stat)
{
    char path[32], text[1024], *at;
    ssize_t n;
    int fd;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    at = strrchr(text, ')'); /* the name before it may contain anything */
    if (at == NULL ||
        sscanf(at + 1, " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d %*s %" SCNu64,
               &stat->state, &stat->parent, &stat->threads, &stat->start) != 4) {
        return 0;
    }
    return 1;
}

int rondo_process_parent(int pid)
{
    struct process_stat stat;
    return process_stat(pid, &stat) ? stat.parent : 0;
}

/* This process's own is read once, and again in a forked child. */
uint64_t rondo_process_start(int pid)
{
    static _Atomic uint64_t own_start;
    static _Atomic int own_pid;
    struct process_stat stat;
    if (atomic_load_explicit(&own_pid, memory_order_acquire) == pid) {
        return atomic_load_explicit(&own_start, memory_order_relaxed);
    }
    if (!process_stat(pid, &stat)) {
        return 0;
    }
    if (pid == getpid()) {
        atomic_store_explicit(&own_start, stat.start, memory_order_relaxed);
        atomic_store_explicit(&own_pid, pid, memory_order_release);
    }
    return stat.start;
}

enum rondo_process_state rondo_process_look(int pid, uint64_t start)
{
    struct process_stat stat;
    if (kill(pid, 0) != 0 && errno == ESRCH) {
        return RONDO_PROCESS_GONE;
    }
    if (!process_stat(pid, &stat)) {
        return RONDO_PROCESS_RUNS;
    }
    /* A zombie with more than one thread still lives: only its first thread has ended. */
    if (((stat.state == 'Z' || stat.state == 'X') && stat.threads <= 1) || (start && stat.start != start)) {
        return RONDO_PROCESS_GONE;
    }
    return stat.state == 'T' ? RONDO_PROCESS_STOPPED : RONDO_PROCESS_RUNS;
}
