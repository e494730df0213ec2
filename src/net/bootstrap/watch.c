#include "net/bootstrap/watch.h"

#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"

#define LOOK_NS (100 * INT64_C(1000000))
#define LATE_NS (10 * INT64_C(1000000))
/* For the last records, or the last word, of a process that has ended. */
#define GRACE_NS (1000 * INT64_C(1000000))

rondo_status rondo_watch_add(struct rondo_watch *watch, const struct rondo_watched *process)
{
    RONDO_TRY(RONDO_ARRAY_GROW(watch->process, watch->n, watch->capacity, "the processes of this node"));
    watch->process[watch->n] = *process;
    watch->process[watch->n].state = RONDO_PROCESS_RUNS;
    watch->process[watch->n++].since_ns = 0;
    return RONDO_SUCCESS;
}

rondo_status rondo_watch_open(struct rondo_watch *watch, const struct rondo_hello *hello, int nranks,
                              int self)
{
    const struct rondo_hello *mine = &hello[self];
    for (int r = 0; r < nranks && mine->pidns != 0; r++) {
        if (hello[r].host_hash != mine->host_hash || hello[r].pidns != mine->pidns || hello[r].pid <= 0 ||
            hello[r].pid == mine->pid) {
            continue;
        }
        struct rondo_watched process = { .rank = r, .pid = hello[r].pid, .start = hello[r].start };
        memcpy(process.host, hello[r].host, sizeof(process.host) - 1);
        RONDO_TRY(rondo_watch_add(watch, &process));
    }
    return RONDO_SUCCESS;
}

static rondo_status lost(const struct rondo_watched *process)
{
    if (process->state == RONDO_PROCESS_GONE) {
        return rondo_fail(RONDO_REMOTE_ERROR,
                          "rank %d (pid %d on %s) exited while the communicator was being created; see that "
                          "rank's own output for the cause",
                          process->rank, process->pid, process->host);
    }
    return rondo_fail(RONDO_REMOTE_ERROR,
                      "rank %d (pid %d on %s) is stopped, and the communicator cannot be created without it; "
                      "continue it (kill -CONT %d) and create the communicator again",
                      process->rank, process->pid, process->host, process->pid);
}

/* @return how long a process may be in its state; -1: for ever. */
static int64_t patience(const struct rondo_watched *process, int late)
{
    int64_t dead_ns = rondo_params()->dead_after;
    switch (process->state) {
    case RONDO_PROCESS_GONE: return late ? 0 : GRACE_NS;
    case RONDO_PROCESS_STOPPED: return late ? 0 : dead_ns > 0 ? dead_ns : -1;
    default: return -1;
    }
}

static void read_states(struct rondo_watch *watch, int64_t now)
{
    /* This process may have been stopped itself, with all others: then their stop counts from now. */
    int restart = now - watch->looked_ns > 10 * LOOK_NS;
    watch->looked_ns = now;
    for (int i = 0; i < watch->n; i++) {
        struct rondo_watched *process = &watch->process[i];
        enum rondo_process_state state = rondo_process_look(process->pid, process->start);
        if (state != process->state || (restart && state == RONDO_PROCESS_STOPPED)) {
            process->state = state;
            process->since_ns = now;
        }
    }
}

rondo_status rondo_watch_look(struct rondo_watch *watch, int late)
{
    int64_t now = rondo_now_ns();
    if (now - watch->looked_ns >= (late ? LATE_NS : LOOK_NS)) {
        read_states(watch, now);
    }
    for (int i = 0; i < watch->n; i++) {
        const struct rondo_watched *process = &watch->process[i];
        if (patience(process, late) >= 0 && now - process->since_ns >= patience(process, late)) {
            return lost(process);
        }
    }
    return RONDO_SUCCESS;
}

static const struct rondo_watched *find(const struct rondo_watch *watch, int rank)
{
    for (int i = 0; i < watch->n; i++) {
        if (watch->process[i].rank == rank) {
            return &watch->process[i];
        }
    }
    return NULL;
}

int rondo_watch_lost(const struct rondo_watch *watch, int rank)
{
    const struct rondo_watched *process = find(watch, rank);
    return process != NULL && process->state != RONDO_PROCESS_RUNS;
}

int rondo_watch_sees(const struct rondo_watch *watch, int rank) { return find(watch, rank) != NULL; }

void rondo_watch_close(struct rondo_watch *watch)
{
    rondo_free(watch->process);
    *watch = (struct rondo_watch){ 0 };
}
