/*
 * Ranks that are lost: dead, or silent for too long. A process is lost in all of its communicators, but each
 * of them finds out by itself, one a little later than the other. A program that was told of a loss by one of
 * them ends others, which then would have its rank as their reason, or none, and not the lost one. So what
 * this process was told of losses is kept here, and comes before any other reason and before a leave; and a
 * communicator that starts after its rank was lost, which had done its part, ends at once.
 */
#include "net/control/control_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/fork.h"

enum { LOSSES = 64 };
#define SILENT_NS (5 * INT64_C(1000000000)) /* a process that was silent may go on */

static struct {
    pthread_mutex_t lock;
    _Atomic unsigned n; /* learned so far */
    struct loss {
        uint64_t process; /* its hash */
        int64_t since_ns;
        enum rondo_loss loss;
    } loss[LOSSES];
    char last[RONDO_HOST_LEN + RONDO_CONTROL_NAME + 80]; /* who was lost last */
    int64_t last_ns;
} known = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Losses of the parent's communicators, of which the child has none. */
static void in_child(void)
{
    (void)rondo_fork_lock(&known.lock);
    atomic_store(&known.n, 0);
}
RONDO_AT_FORK(in_child)

void rondo_loss_learn(struct rondo_control *control, int rank, enum rondo_loss loss)
{
    struct loss new = { control->peers[rank].process_hash, rondo_now_ns(), loss };
    unsigned n, i = 0;
    if (loss == RONDO_LOSS_NONE || new.process == control->peers[control->rank].process_hash ||
        atomic_exchange_explicit(&control->told_loss, 1, memory_order_relaxed)) {
        return; /* each tells of one, when it is new */
    }
    pthread_mutex_lock(&known.lock);
    n = atomic_load_explicit(&known.n, memory_order_relaxed);
    while (i < n && i < LOSSES && known.loss[i].process != new.process) {
        i++;
    }
    if (i == n || i == LOSSES) { /* the first of this process */
        i = n % LOSSES;
        atomic_store_explicit(&known.n, n + 1, memory_order_release);
    }
    known.loss[i] = new;
    rondo_loss_who(control, rank, known.last, sizeof(known.last));
    known.last_ns = new.since_ns;
    pthread_mutex_unlock(&known.lock);
}

void rondo_control_told_loss(char *text, size_t bytes)
{
    text[0] = '\0';
    if (atomic_load_explicit(&known.n, memory_order_acquire) == 0) {
        return;
    }
    pthread_mutex_lock(&known.lock);
    if (rondo_now_ns() - known.last_ns < RONDO_CONTROL_TOLD_NS) {
        snprintf(text, bytes, "%s", known.last);
    }
    pthread_mutex_unlock(&known.lock);
}

/* @return how a rank's process was lost, as far as this process was told. What it was told before the
 * communicator was made does not count: that process was there then. */
static enum rondo_loss loss_of(const struct rondo_control *control, int rank, int64_t now)
{
    unsigned n = atomic_load_explicit(&known.n, memory_order_relaxed);
    for (unsigned i = 0; i < n && i < LOSSES; i++) {
        const struct loss *loss = &known.loss[i];
        if (loss->process == control->peers[rank].process_hash && loss->since_ns >= control->made_ns &&
            (loss->loss == RONDO_LOSS_DEAD || now - loss->since_ns < SILENT_NS)) {
            return loss->loss;
        }
    }
    return RONDO_LOSS_NONE;
}

/* In order, for certain: not RONDO_RANK_GONE. */
static int has_left(struct rondo_control *control, int rank)
{
    return control->local_of[rank] < 0 && control->wire != NULL
               ? rondo_wire_state_of(control, rank) == RONDO_RANK_LEFT
               : rondo_control_state_of(control, rank) == RONDO_RANK_LEFT;
}

void rondo_control_tell_loss(struct rondo_control *control)
{
    char text[RONDO_ERROR_TEXT];
    enum rondo_loss loss = RONDO_LOSS_NONE;
    int64_t now = rondo_now_ns();
    int rank = -1;
    if (atomic_load_explicit(&known.n, memory_order_acquire) == 0 || rondo_control_aborted(control)) {
        return;
    }
    pthread_mutex_lock(&known.lock);
    while (loss == RONDO_LOSS_NONE && ++rank < control->nranks) {
        loss = has_left(control, rank) ? RONDO_LOSS_NONE : loss_of(control, rank, now);
    }
    pthread_mutex_unlock(&known.lock);
    if (loss == RONDO_LOSS_NONE) {
        return;
    }
    rondo_loss_text(control, rank, loss, text, sizeof(text));
    if (rondo_control_end(control, RONDO_REMOTE_ERROR, rank, loss, text)) {
        rondo_wire_spread(control);
    }
}

void rondo_loss_who(const struct rondo_control *control, int rank, char *text, size_t bytes)
{
    int local = control->local_of[rank];
    snprintf(text, bytes, "rank %d (pid %d on host %.*s) of communicator %s", rank,
             local >= 0 ? control->blocks[local].life.pid : control->peers[rank].pid, RONDO_HOST_LEN - 1,
             control->peers[rank].host, control->name);
}

void rondo_loss_text(const struct rondo_control *control, int rank, enum rondo_loss loss, char *text,
                     size_t bytes)
{
    char who[RONDO_HOST_LEN + RONDO_CONTROL_NAME + 80];
    rondo_loss_who(control, rank, who, sizeof(who));
    snprintf(text, bytes, "%s %s", who,
             loss == RONDO_LOSS_DEAD
                 ? "exited without destroying its communicator; see that rank's own output for the cause"
                 : "is unresponsive: it has sent no heartbeat; is it stopped, its host overloaded or cut "
                   "off? RONDO_DEAD_AFTER sets the limit");
}
