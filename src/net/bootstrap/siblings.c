#include "net/bootstrap/siblings.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/mem.h"

enum { MOST_ENVIRONMENT = 1 << 20 };

/* Variables: a process's number, how many there are, and what is equal in all of a job and in no other. */
struct rondo_launcher_names {
    const char *task, *ntasks, *job[2];
};
static const struct rondo_launcher_names launchers[] = {
    { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", { "PMIX_NAMESPACE", NULL } },
    { "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", { "SLURM_JOB_ID", "SLURM_STEP_ID" } },
    { "RANK", "WORLD_SIZE", { "MASTER_ADDR", "MASTER_PORT" } }, /* torchrun, and loops like it */
};

static int number(const char *text)
{
    char *end;
    long value = text != NULL && *text != '\0' ? strtol(text, &end, 10) : -1;
    return value >= 0 && value <= INT_MAX && *end == '\0' ? (int)value : -1;
}

/* Find a variable in what /proc shows of an environment. */
static const char *variable(const char *environment, size_t bytes, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = environment; at < environment + bytes; at += strlen(at) + 1) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            return at + length + 1;
        }
    }
    return NULL;
}

/* @return the process's number in this one's job; -1: it is of another one, or cannot be seen */
static int task_of(const struct rondo_siblings *siblings, const char *environment, size_t bytes)
{
    const struct rondo_launcher_names *names = siblings->names;
    const char *value;
    for (size_t i = 0; i < RONDO_COUNTOF(names->job) && names->job[i] != NULL; i++) {
        value = variable(environment, bytes, names->job[i]);
        if (siblings->job[i] == NULL || value == NULL || strcmp(siblings->job[i], value) != 0) {
            return -1;
        }
    }
    return number(variable(environment, bytes, names->ntasks)) == siblings->ntasks
               ? number(variable(environment, bytes, names->task))
               : -1;
}

/* Read a process's environment into `place`, with a zero behind it. @return its bytes; 0: none can be seen */
static size_t read_environment(int pid, char *place, size_t room)
{
    char path[32];
    size_t bytes = 0;
    ssize_t n;
    int fd;
    snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && bytes < room - 1 && (n = read(fd, place + bytes, room - 1 - bytes)) > 0) {
        bytes += (size_t)n;
    }
    if (fd >= 0) {
        close(fd);
    }
    place[bytes] = '\0';
    return bytes;
}

/* The launcher is the first process above this one that does not have its number. */
static int find_launcher(const struct rondo_siblings *siblings)
{
    char *environment = malloc(MOST_ENVIRONMENT);
    int pid = getppid();
    while (environment != NULL && pid > 1 &&
           task_of(siblings, environment, read_environment(pid, environment, MOST_ENVIRONMENT)) ==
               siblings->task) {
        pid = rondo_process_parent(pid);
    }
    free(environment);
    return pid;
}

/* What a task has started has its number too, but its end is not the task's, even if the task does not show
 * its environment, which a program may write over. */
static void found(struct rondo_siblings *siblings, int task, int pid)
{
    struct rondo_sibling *s = siblings->list;
    int is_task = rondo_process_parent(pid) == siblings->launcher;
    while (s < siblings->list + siblings->n && s->task != task) {
        s++;
    }
    if (s == siblings->list + siblings->n) {
        if (!is_task || RONDO_ARRAY_GROW(siblings->list, siblings->n, siblings->capacity,
                                         "the processes of this job") != RONDO_SUCCESS) {
            return; /* not watched */
        }
        s = &siblings->list[siblings->n++];
        *s = (struct rondo_sibling){ .task = task };
    }
    if (s->pid == 0 || (is_task && rondo_process_look(s->pid, s->start) == RONDO_PROCESS_GONE)) {
        s->pid = pid;
        s->start = rondo_process_start(pid);
    }
    s->here = 1;
}

/* A process that a rank has started has its number too, as long as it lives. */
static void look(struct rondo_siblings *siblings)
{
    char *environment = malloc(MOST_ENVIRONMENT);
    DIR *all = environment != NULL ? opendir("/proc") : NULL;
    const struct dirent *entry;
    for (int i = 0; i < siblings->n; i++) {
        siblings->list[i].here = all == NULL;
    }
    while (all != NULL && (entry = readdir(all)) != NULL) {
        int pid = number(entry->d_name), task;
        size_t bytes = pid > 0 && pid != getpid() ? read_environment(pid, environment, MOST_ENVIRONMENT) : 0;
        task = bytes > 0 ? task_of(siblings, environment, bytes) : -1;
        if (task >= 0 && task != siblings->task) {
            found(siblings, task, pid);
        }
    }
    if (all != NULL) {
        closedir(all);
    }
    free(environment);
}

void rondo_siblings_open(struct rondo_siblings *siblings)
{
    *siblings = (struct rondo_siblings){ 0 };
    for (size_t i = 0; i < RONDO_COUNTOF(launchers) && siblings->names == NULL; i++) {
        siblings->task = number(getenv(launchers[i].task));
        siblings->ntasks = number(getenv(launchers[i].ntasks));
        if (siblings->task >= 0 && siblings->ntasks > siblings->task && getenv(launchers[i].job[0]) != NULL) {
            siblings->names = &launchers[i];
        }
    }
    if (siblings->names != NULL) {
        /* Later the environment is the program's: one of its threads may be changing it. */
        for (size_t i = 0; i < RONDO_COUNTOF(siblings->job) && siblings->names->job[i] != NULL; i++) {
            const char *value = getenv(siblings->names->job[i]);
            siblings->job[i] = value != NULL ? strdup(value) : NULL;
        }
        siblings->launcher = find_launcher(siblings);
        look(siblings);
    } else {
        siblings->ntasks = 0;
    }
}

const struct rondo_sibling *rondo_siblings_ended(struct rondo_siblings *siblings)
{
    if (siblings->names == NULL) {
        return NULL;
    }
    look(siblings);
    for (int i = 0; i < siblings->n; i++) {
        const struct rondo_sibling *s = &siblings->list[i];
        /* A program may write over its environment. */
        if (!s->here && rondo_process_look(s->pid, s->start) == RONDO_PROCESS_GONE) {
            return s;
        }
    }
    return NULL;
}

void rondo_siblings_close(struct rondo_siblings *siblings)
{
    rondo_free(siblings->list);
    free(siblings->job[0]);
    free(siblings->job[1]);
    *siblings = (struct rondo_siblings){ 0 };
}
