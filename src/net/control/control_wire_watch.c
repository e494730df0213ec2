/*
 * The rules of spread.h on the wire: leaders watch leaders, pass reasons on, and judge who has ended or is
 * silent.
 */
#include "net/control/control_wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"

#define LAST_NS INT64_C(1000000000) /* from the end of a process's first connection to that of its last */

/* Does this rank lead its node? */
static int leads(struct rondo_control *control)
{
    for (int i = 0; i < control->local_rank; i++) {
        if (rondo_control_state_of(control, control->local_ranks[i]) == RONDO_RANK_ALIVE) {
            return 0;
        }
    }
    return !control->wire->left;
}

/* @return NULL: none now; try again at the next beat. */
static struct rondo_wire_conn *conn_to_leader(struct rondo_control *control, int rank)
{
    struct rondo_wire_conn *conn = NULL;
    rondo_status status = rondo_wire_conn_to(control, rank, &conn);
    if (status != RONDO_SUCCESS && status != RONDO_REMOTE_ERROR && !control->wire->complained) {
        control->wire->complained = 1;
        rondo_wire_note("%s", rondo_error_text());
    }
    return conn;
}

static int is_alive(void *arg, int rank)
{
    struct rondo_control *control = arg;
    return atomic_load_explicit(&control->wire->state[rank], memory_order_relaxed) == RONDO_RANK_ALIVE;
}

static int watch_rank(void *arg, int rank)
{
    static const struct rondo_wire_head watch = {
        .magic = RONDO_WIRE_MAGIC, .kind = RONDO_WIRE_WATCH, .from = -1, .to = -1
    };
    struct rondo_wire_conn *conn = conn_to_leader(arg, rank);
    if (conn != NULL && !conn->beats.watching && rondo_wire_put(conn, &watch, NULL, 0)) {
        conn->beats.watching = 1;
        conn->beats.heard_ns = rondo_now_ns(); /* nobody beat on it before */
    }
    return conn != NULL && conn->beats.watching;
}

struct rondo_wire_abort rondo_wire_abort_of(struct rondo_control *control)
{
    struct rondo_wire_abort abort = { 0 };
    int rank, lost;
    abort.status = (int32_t)rondo_control_reason(control, abort.text, &rank);
    abort.rank = rank;
    abort.loss = (int32_t)rondo_control_loss(control, &lost);
    return abort;
}

static int tell_rank(void *arg, int rank)
{
    struct rondo_control *control = arg;
    struct rondo_wire_abort abort = rondo_wire_abort_of(control);
    return rondo_wire_say(control, rank, RONDO_WIRE_ABORT, 0, &abort, sizeof(abort));
}

static const struct rondo_spread_ops spread_ops = { is_alive, watch_rank, tell_rank };

void rondo_wire_watch_ahead(struct rondo_control *control)
{
    if (!rondo_control_aborted(control) && leads(control)) {
        rondo_spread_watch(&control->wire->spread, &spread_ops, control);
    }
}

/* ---- reasons ---- */

void rondo_wire_spread_on(struct rondo_control *control)
{
    rondo_spread_tell(&control->wire->spread, &spread_ops, control);
}

/* Spread the reason if this rank set it or leads its node. */
static void spread_if_due(struct rondo_control *control)
{
    if (rondo_control_aborted(control) && (control->wire->spreading || leads(control))) {
        control->wire->spreading = 1;
        rondo_wire_spread_on(control);
    }
}

void rondo_wire_spread(struct rondo_control *control)
{
    if (control->wire == NULL || control->pid != getpid()) {
        return;
    }
    rondo_wire_lock();
    control->wire->spreading = 1;
    if (control->wire->joined) {
        spread_if_due(control);
    }
    rondo_wire_unlock();
}

void rondo_wire_spread_later(struct rondo_control *control)
{
    if (control->wire) {
        control->wire->spreading = 1;
    }
}

/* ---- deaths ---- */

struct verdict {
    int state; /* enum rondo_rank_state that the process's ranks get */
    int error; /* for SILENT, why the connection ended; 0: it has not */
    int64_t silent_ns;
};

static void accuse(struct rondo_control *control, int rank, const struct verdict *verdict)
{
    enum rondo_loss loss = verdict->state == RONDO_RANK_DEAD ? RONDO_LOSS_DEAD : RONDO_LOSS_SILENT;
    char who[RONDO_HOST_LEN + RONDO_CONTROL_NAME + 80], text[RONDO_ERROR_TEXT];
    rondo_loss_who(control, rank, who, sizeof(who));
    if (loss == RONDO_LOSS_DEAD) {
        rondo_loss_text(control, rank, loss, text, sizeof(text));
    } else if (verdict->error != 0) {
        snprintf(text, sizeof(text),
                 "the control connection between host %s and %s was lost: %s; check that host, the network "
                 "between the two, and that RONDO_SOCKET_IFNAME names an interface that both can reach",
                 rondo_log_host(), who, strerror(verdict->error));
    } else {
        snprintf(text, sizeof(text),
                 "%s is unresponsive: no heartbeat for %lld ms on host %s; is it stopped, its host "
                 "overloaded or cut off? RONDO_DEAD_AFTER sets the limit",
                 who, (long long)(verdict->silent_ns / 1000000), rondo_log_host());
    }
    if (rondo_control_end(control, RONDO_REMOTE_ERROR, rank, loss, text)) {
        rondo_wire_note("%s", text);
        control->wire->spreading = 1;
    }
}

/* Give all ranks of a process that have not left a new state; end their communicators unless the process
 * may have left in order. */
static void judge(const struct rondo_wire_conn *conn, const struct verdict *verdict)
{
    for (struct rondo_control *control = rondo_wire->controls; control; control = control->wire->next) {
        int from, to;
        rondo_wire_ranks_of(control, conn, &from, &to);
        for (int i = from; i < to; i++) {
            int rank = control->wire->by_process[i], state = rondo_wire_state_of(control, rank);
            if (control->local_of[rank] >= 0 || state == RONDO_RANK_LEFT || state == RONDO_RANK_DEAD ||
                state == verdict->state) {
                continue; /* the watcher of a node judges its own processes */
            }
            atomic_store_explicit(&control->wire->state[rank], (uint8_t)verdict->state, memory_order_release);
            if (verdict->state == RONDO_RANK_DEAD || verdict->state == RONDO_RANK_SILENT) {
                accuse(control, rank, verdict);
            }
        }
        if (from < to) {
            spread_if_due(control); /* that node may have another leader now, who was not told yet */
        }
    }
}

int rondo_wire_pass_on(const struct rondo_wire_conn *ended)
{
    static const struct rondo_wire_head watch = {
        .magic = RONDO_WIRE_MAGIC, .kind = RONDO_WIRE_WATCH, .from = -1, .to = -1
    };
    int64_t now = rondo_now_ns();
    int n = 0;
    for (struct rondo_wire_conn *conn = rondo_wire->conns; conn; conn = conn->next) {
        if (conn->process == ended->process && conn->own == ended->own &&
            !rondo_wire_is_unproved(conn->state)) {
            conn->was_open |= ended->was_open || ended->ended_in == RONDO_WIRE_OPEN;
            if (ended->lost != 0 && conn->lost_ns == 0) {
                conn->lost = ended->lost;
                conn->lost_ns = now;
            }
            if (ended->beats.watching && !conn->beats.watching && rondo_wire_put(conn, &watch, NULL, 0)) {
                conn->beats.watching = 1;
                conn->beats.heard_ns = now; /* nobody beat on it before */
            }
            n++;
        }
    }
    return n;
}

void rondo_wire_lost(const struct rondo_wire_conn *conn)
{
    int ended = conn->error == 0 || conn->error == ECONNRESET || conn->error == EPIPE ||
                conn->error == ECONNREFUSED;
    int known = conn->was_open || conn->ended_in == RONDO_WIRE_OPEN;
    struct verdict verdict = { .state = !ended  ? RONDO_RANK_SILENT
                                        : known ? RONDO_RANK_DEAD
                                                : RONDO_RANK_GONE,
                               .error = conn->error };
    judge(conn, &verdict);
}

void rondo_wire_bye(const struct rondo_wire_conn *conn)
{
    struct verdict verdict = { .state = RONDO_RANK_LEFT };
    judge(conn, &verdict);
}

/* ---- beats ---- */

/* Ranks of the process that were taken for silent or gone are alive. What was said to them may be lost. */
static void revive(const struct rondo_wire_conn *conn, enum rondo_rank_state taken_for)
{
    for (struct rondo_control *control = rondo_wire->controls; control; control = control->wire->next) {
        int from, to;
        rondo_wire_ranks_of(control, conn, &from, &to);
        for (int i = from; i < to; i++) {
            uint8_t state = (uint8_t)taken_for;
            int rank = control->wire->by_process[i];
            if (atomic_compare_exchange_strong_explicit(&control->wire->state[rank], &state, RONDO_RANK_ALIVE,
                                                        memory_order_acq_rel, memory_order_relaxed)) {
                rondo_spread_anew(&control->wire->spread, rank);
            }
        }
    }
}

void rondo_wire_heard(struct rondo_wire_conn *conn, int64_t now)
{
    if (rondo_beats_heard(&conn->beats, now)) {
        revive(conn, RONDO_RANK_SILENT);
    }
}

void rondo_wire_proved(const struct rondo_wire_conn *conn)
{
    revive(conn, RONDO_RANK_GONE);
    revive(conn, RONDO_RANK_SILENT);
}

/* @return for how long a process may be silent; 0: for ever. One that has not answered yet may still be
 * creating its communicator. */
static int64_t silence_of(const struct rondo_wire_conn *conn, int64_t dead_ns)
{
    int64_t init_ns = rondo_params()->init_timeout; /* 0: without limit */
    if (conn->state == RONDO_WIRE_OPEN || dead_ns == 0) {
        return dead_ns;
    }
    return (conn->state == RONDO_WIRE_CONNECTING || conn->state == RONDO_WIRE_GREETED) && init_ns > 0
               ? dead_ns + init_ns
               : 0;
}

/* What was under way is lost, so communicators end, but the process may live. */
static void judge_rest(struct rondo_wire_conn *conn)
{
    struct verdict verdict = { .state = RONDO_RANK_SILENT, .error = conn->lost };
    int speaks = conn->beats.heard_ns > conn->lost_ns;
    conn->lost = 0;
    conn->lost_ns = 0;
    conn->beats.silent = 1;
    judge(conn, &verdict);
    if (speaks) {
        rondo_wire_heard(conn, conn->beats.heard_ns);
    }
}

static void beat_and_listen(struct rondo_wire_conn *conn, int64_t now, int64_t dead_ns)
{
    static const struct rondo_wire_head beat = {
        .magic = RONDO_WIRE_MAGIC, .kind = RONDO_WIRE_BEAT, .from = -1, .to = -1
    };
    int64_t silent_ns = rondo_beats_silence(&conn->beats, now, silence_of(conn, dead_ns));
    if (conn->state == RONDO_WIRE_OPEN && conn->beats.beating && conn->out_from == conn->out_to) {
        rondo_wire_put(conn, &beat, NULL, 0); /* not if the peer has yet to read earlier bytes */
    }
    if (silent_ns > 0) {
        struct verdict verdict = { .state = RONDO_RANK_SILENT, .silent_ns = silent_ns };
        judge(conn, &verdict);
    }
    if (conn->lost_ns != 0 && now - conn->lost_ns > LAST_NS) { /* by a death all would have ended */
        judge_rest(conn);
    }
}

static void expire_parked(int64_t now)
{
    for (int i = 0; i < RONDO_WIRE_PARKED; i++) {
        struct rondo_wire_parked *parked = &rondo_wire->parked[i];
        if (parked->since_ns != 0 && now - parked->since_ns > RONDO_WIRE_PARKED_NS) {
            parked->since_ns = 0;
            rondo_wire_count(RONDO_WIRE_DROP_OLD);
        }
    }
}

static void beat_all(int64_t now, int64_t dead_ns)
{
    for (struct rondo_wire_conn *conn = rondo_wire->conns, *next; conn; conn = next) {
        next = conn->next;
        beat_and_listen(conn, now, dead_ns);
    }
    for (struct rondo_control *control = rondo_wire->controls; control; control = control->wire->next) {
        rondo_wire_watch_ahead(control);
        rondo_wire_repay(control);
    }
    rondo_wire_expire(now);
    expire_parked(now);
}

int rondo_wire_epoll(void)
{
    int epoll;
    rondo_wire_lock();
    epoll = rondo_wire ? rondo_wire->epoll : -1;
    rondo_wire_unlock();
    return epoll;
}

int rondo_wire_tick(int64_t now, int restart, int64_t beat_ns, int64_t dead_ns)
{
    int soon = 0;
    rondo_wire_lock();
    if (rondo_wire) {
        rondo_wire_progress();
        for (struct rondo_wire_conn *conn = rondo_wire->conns; conn && restart; conn = conn->next) {
            conn->beats.heard_ns = now; /* their beats of the meantime may not have been read yet */
        }
        for (struct rondo_control *control = rondo_wire->controls; control; control = control->wire->next) {
            spread_if_due(control);
        }
        if (now - rondo_wire->ticked_ns >= beat_ns - beat_ns / 8) {
            rondo_wire->ticked_ns = now;
            beat_all(now, dead_ns);
        }
        rondo_wire_settle(); /* calls that were ended just now may be put off */
        soon = rondo_wire->nagain > 0;
    }
    rondo_wire_unlock();
    return soon;
}
