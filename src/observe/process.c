/* Processes as /proc shows them, and their stacks by a debugger. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observe/observe.h"

/* Read a small file of /proc, without its last line end. @return its bytes. */
static size_t read_small(int pid, const char *name, char *text, size_t size)
{
    char path[64];
    ssize_t n = 0;
    int fd;
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, text, size - 1);
        close(fd);
    }
    n = n > 0 ? n : 0;
    while (n > 0 && isspace((unsigned char)text[n - 1])) {
        n--;
    }
    text[n] = '\0';
    return (size_t)n;
}

static void read_state(struct rondo_seen_process *p)
{
    char text[1024], *at;
    uint64_t start = 0;
    char state = 0;
    int threads = 0;
    p->state = 0;
    if (read_small(p->pid, "stat", text, sizeof(text)) == 0 || (at = strrchr(text, ')')) == NULL ||
        sscanf(at + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d %*s %" SCNu64,
               &state, &threads, &start) != 3) {
        return;
    }
    /* A zombie with more than one thread still lives: only its first thread has ended. */
    if ((p->start == 0 || p->start == start) && !((state == 'Z' || state == 'X') && threads <= 1)) {
        p->state = state;
    }
}

static void read_swap(struct rondo_seen_process *p)
{
    char path[64], line[128];
    unsigned long long kib;
    FILE *file;
    snprintf(path, sizeof(path), "/proc/%d/status", p->pid);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "VmSwap: %llu", &kib) == 1) {
            p->swapped = kib << 10;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* The calls in which ranks are found, by their numbers on this architecture. */
static const char *syscall_name(long number)
{
    static const struct {
        long number;
        const char *name;
    } names[] = {
        { SYS_read, "read" },
        { SYS_write, "write" },
        { SYS_openat, "openat" },
        { SYS_ppoll, "ppoll" },
        { SYS_futex, "futex" },
        { SYS_nanosleep, "nanosleep" },
        { SYS_restart_syscall, "restart_syscall" },
        { SYS_clock_nanosleep, "clock_nanosleep" },
        { SYS_sched_yield, "sched_yield" },
        { SYS_epoll_pwait, "epoll_pwait" },
        { SYS_recvfrom, "recvfrom" },
        { SYS_recvmsg, "recvmsg" },
        { SYS_sendto, "sendto" },
        { SYS_sendmsg, "sendmsg" },
        { SYS_connect, "connect" },
        { SYS_accept4, "accept4" },
        { SYS_wait4, "wait4" },
        { SYS_fsync, "fsync" },
        { SYS_ioctl, "ioctl" },
        { SYS_rt_sigsuspend, "rt_sigsuspend" },
        { SYS_pselect6, "pselect6" },
        { SYS_process_vm_readv, "process_vm_readv" },
#ifdef SYS_poll
        { SYS_poll, "poll" },
        { SYS_pause, "pause" },
        { SYS_select, "select" },
        { SYS_epoll_wait, "epoll_wait" },
#endif
    };
    for (size_t i = 0; i < RONDO_COUNTOF(names); i++) {
        if (names[i].number == number) {
            return names[i].name;
        }
    }
    return NULL;
}

static void read_place(struct rondo_seen_process *p)
{
    char text[256];
    long number;
    const char *name;
    if (read_small(p->pid, "wchan", text, sizeof(text)) > 0 && strcmp(text, "0") != 0) {
        snprintf(p->wchan, sizeof(p->wchan), "%.*s", (int)sizeof(p->wchan) - 1, text);
    }
    if (read_small(p->pid, "syscall", text, sizeof(text)) == 0) {
        return;
    }
    if (!isdigit((unsigned char)text[0])) {
        snprintf(p->syscall, sizeof(p->syscall), "%.*s", (int)sizeof(p->syscall) - 1, text); /* "running" */
        return;
    }
    number = strtol(text, NULL, 10);
    name = syscall_name(number);
    if (name != NULL) {
        snprintf(p->syscall, sizeof(p->syscall), "%s", name);
    } else {
        snprintf(p->syscall, sizeof(p->syscall), "system call %ld", number);
    }
}

void rondo_process_seen(struct rondo_seen_process *p)
{
    read_state(p);
    if (p->state == 0) {
        return;
    }
    (void)read_small(p->pid, "comm", p->command, sizeof(p->command));
    read_swap(p);
    read_place(p);
}

/* ---- stacks ---- */

/* Keep "#1 0x.. in MPI_Barrier () from .." as "MPI_Barrier", and of eu-stack "#1 0x.. MPI_Barrier - ..". */
static int frame_name(const char *line, char *name, size_t size)
{
    const char *at = strchr(line, '#');
    size_t n;
    if (at == NULL || at - line > 2 || !isdigit((unsigned char)at[1])) {
        return 0;
    }
    at += strspn(at + 1, "0123456789") + 1;
    at += strspn(at, " ");
    if (strncmp(at, "0x", 2) == 0) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    at += strncmp(at, "in ", 3) == 0 ? 3 : 0;
    n = strcspn(at, " (\n");
    if (n == 0 || at[0] == '?' || at[0] == '-') {
        return 0;
    }
    snprintf(name, size, "%.*s", (int)n, at);
    return 1;
}

/* The output of a debugger, frame by frame of the first thread. */
static int read_frames(FILE *in, char stack[RONDO_SEEN_STACK])
{
    char line[1024], name[128];
    size_t at = 0;
    int n = 0;
    stack[0] = '\0';
    while (fgets(line, sizeof(line), in) != NULL) {
        if (frame_name(line, name, sizeof(name)) && at + strlen(name) + 2 < RONDO_SEEN_STACK) {
            at += (size_t)snprintf(stack + at, RONDO_SEEN_STACK - at, "%s\n", name);
            n++;
        }
    }
    return n;
}

/* Not by fork: this may be a rank, whose memory a NIC may write to. */
static pid_t start(char *const argv[], int *out)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    int pipes[2];
    pid_t child = -1;
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return -1;
    }
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    if (posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0) != 0 ||
        posix_spawn_file_actions_adddup2(&files, pipes[1], 1) != 0 ||
        posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0) != 0 ||
        posix_spawnattr_setsigmask(&attributes, &none) != 0 ||
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK) != 0 ||
        posix_spawnp(&child, argv[0], &files, &attributes, argv, environ) != 0) {
        child = -1;
    }
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    close(pipes[1]);
    if (child < 0) {
        close(pipes[0]);
        return -1;
    }
    *out = pipes[0];
    return child;
}

int rondo_process_stack(int pid, char stack[RONDO_SEEN_STACK])
{
    char number[16];
    char *gdb[] = { "timeout", "-k", "1", "10", "gdb", "-nx", "-batch", "-p", number, "-ex", "bt 40", NULL };
    char *eu[] = { "timeout", "-k", "1", "10", "eu-stack", "-1", "-n", "40", "-p", number, NULL };
    char *const *tools[] = { eu, gdb };
    snprintf(number, sizeof(number), "%d", pid);
    for (size_t i = 0; i < RONDO_COUNTOF(tools); i++) {
        int out = -1, n = 0, status;
        pid_t child = start(tools[i], &out);
        FILE *in = child > 0 ? fdopen(out, "r") : NULL;
        if (in != NULL) {
            n = read_frames(in, stack);
            fclose(in);
        }
        while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        if (n > 0) {
            return 1;
        }
    }
    snprintf(stack, RONDO_SEEN_STACK, "%s", "");
    return 0;
}

int rondo_process_runs(const struct rondo_seen_process *p)
{
    return p->state != 0 && p->state != 'T' && p->state != 't' && p->state != 'Z';
}

void rondo_seen_stacks(struct rondo_seen *seen, const _Atomic int *ended)
{
    for (int i = 0; i < seen->nprocesses && (ended == NULL || !atomic_load(ended)); i++) {
        if (rondo_process_runs(&seen->processes[i])) {
            (void)rondo_process_stack(seen->processes[i].pid, seen->processes[i].stack);
        }
    }
}
