/*
 * The life of a store, and how it moves. A thread of the store makes progress while no other thread does.
 * Threads that wait make progress themselves ("drivers"), and the thread sleeps meanwhile. It sleeps in a
 * futex, the door, that ranks of the node ring; net devices have nothing to sleep on, so with connections
 * over them, and while it connects, it looks again every RONDO_TENSOR_POLL.
 */
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/fork.h"
#include "base/inside.h"
#include "base/log.h"
#include "base/param.h"
#include "base/pool.h"
#include "base/thread.h"
#include "comm/backend.h"
#include "tensor/life.h"

enum {
    LOOK_NS = 50000,          /* between two looks for hellos */
    CHECK_NS = 20000000,      /* and for deaths */
    SLEEP_NS = 5000000,       /* the longest sleep of the thread, which finds hellos */
    IDLE_NS = 1000000000,     /* after this long without progress */
    IDLE_SLEEP_NS = 20000000, /* the longest sleep is this */
    DRIVEN_NS = 1000000,      /* over net devices, it looks this often whether drivers still are there */
    YIELDING_WAITS = 16,      /* after a wait that spun in vain, this many do not spin */
    MOST_SHARED = 255,        /* so many such waits, at most, between two moves to another core */
    IDLE_ROUNDS = 20,         /* rounds without progress before the thread sleeps */
    CONTROL_EVERY = 16, /* rounds of a driver that spins, between two looks at control plane and clock */
    DRIVER_SLEEP_NS = 2000000 /* a driver sleeps between its looks from then on */
};

uint64_t rondo_tensor_key_hash(const char *key, size_t bytes) { return rondo_hash(key, bytes, 0); }

const char *rondo_tensor_who(const struct rondo_tensor_core *core, int rank, char text[96])
{
    const struct rondo_peer *peers = core->ctx != NULL ? core->ctx->wiring.peers : NULL;
    snprintf(text, 96, "rank %d%s%.64s", rank, peers != NULL ? " on " : "",
             peers != NULL ? peers[rank].host : "");
    return text;
}

/* ---- progress ---- */

/* A place that a pull has given up must not be written to any more: the publisher says so soon, or loses its
 * connection. */
static void check_cancels(struct rondo_tensor_conn *conn)
{
    char who[96];
    if (conn->ncancels > 0 && rondo_now_ns() - conn->cancel_ns > RONDO_TENSOR_GRACE_NS) {
        rondo_tensor_conn_break(
            conn, rondo_fail_quiet(RONDO_REMOTE_ERROR,
                                   "%s may write to the places of %d pulls that were given up, and has not "
                                   "answered for %.0f s",
                                   rondo_tensor_who(conn->core, conn->peer, who), conn->ncancels,
                                   (double)RONDO_TENSOR_GRACE_NS * 1e-9));
    }
}

static enum rondo_rank_state state_of(const struct rondo_tensor_conn *conn)
{
    return rondo_control_state_of(conn->core->ctx->wiring.control, conn->peer);
}

int rondo_tensor_has_gone(const struct rondo_tensor_conn *conn)
{
    enum rondo_rank_state state = state_of(conn);
    return state == RONDO_RANK_DEAD || state == RONDO_RANK_LEFT;
}

static void check_peers(struct rondo_tensor_core *core)
{
    char who[96];
    for (struct rondo_tensor_conn *conn = core->conns; conn != NULL; conn = conn->next) {
        if (conn->peer == core->rank || conn->state == RONDO_TENSOR_CONN_BROKEN) {
            continue;
        }
        check_cancels(conn);
        if (rondo_tensor_has_gone(conn)) {
            rondo_tensor_conn_break(
                conn,
                rondo_fail_quiet(RONDO_REMOTE_ERROR, "%s has %s", rondo_tensor_who(core, conn->peer, who),
                                 state_of(conn) == RONDO_RANK_DEAD ? "exited" : "left the communicator"));
        }
    }
}

static void look_at_control(struct rondo_tensor_core *core, int *moved)
{
    struct rondo_control *control = core->ctx->wiring.control;
    int64_t now = rondo_now_ns();
    if (rondo_control_aborted(control)) {
        char text[RONDO_ERROR_TEXT];
        int whose = -1;
        rondo_status status = rondo_control_reason(control, text, &whose);
        rondo_tensor_core_fail(
            core, rondo_fail_quiet(status != RONDO_SUCCESS ? status : RONDO_REMOTE_ERROR, "%s", text));
        return;
    }
    if (now - core->looked_ns >= LOOK_NS) {
        core->looked_ns = now;
        rondo_status status = rondo_tensor_conns_listen(core, moved);
        if (status != RONDO_SUCCESS) {
            rondo_tensor_core_fail(core, status);
            return;
        }
    }
    if (now - core->checked_ns >= CHECK_NS) {
        core->checked_ns = now;
        check_peers(core);
    }
}

/* Of what others have written. Without reading the clock. */
static void progress_conns(struct rondo_tensor_core *core, int *moved)
{
    if (core->failure != RONDO_SUCCESS) {
        rondo_tensor_conns_settle(core);
        return;
    }
    if (core->unserved) {
        rondo_tensor_serve_again(core);
    }
    for (struct rondo_tensor_conn *conn = core->conns; conn != NULL; conn = conn->next) {
        (void)rondo_tensor_conn_progress(conn, moved);
    }
    *moved |= rondo_tensor_fill(core);
    core->nmoved += *moved != 0;
    if (core->unflushed) {
        core->unflushed = 0;
        rondo_tensor_flush_all(core);
    }
}

void rondo_tensor_progress(struct rondo_tensor_core *core, int *moved)
{
    if (core->failure == RONDO_SUCCESS && core->ctx->wiring.control != NULL) {
        look_at_control(core, moved);
    }
    progress_conns(core, moved);
}

void rondo_tensor_core_fail(struct rondo_tensor_core *core, rondo_status status)
{
    if (core->failure != RONDO_SUCCESS) {
        return;
    }
    core->failure = status;
    snprintf(core->failure_text, sizeof(core->failure_text), "%s", rondo_error_text());
    for (struct rondo_tensor_conn *conn = core->conns; conn != NULL; conn = conn->next) {
        (void)rondo_fail_quiet(status, "%s", core->failure_text);
        rondo_tensor_conn_break(conn, status);
    }
    for (struct rondo_tensor_request *request = core->requests; request != NULL; request = request->next) {
        rondo_tensor_request_give_up(request, status, core->failure_text);
    }
    rondo_tensor_pubs_retire(core, 0, 1);
}

/* ---- the thread, and threads that wait ---- */

void rondo_tensor_door_ring(struct rondo_tensor_door *door)
{
    /* Whoever sets `sleeping` looks once more afterwards: so either that is seen here, or what came is seen
     * there. Mostly it is not set, and the line stays in both caches. */
    if (__atomic_load_n(&door->sleeping, __ATOMIC_SEQ_CST)) {
        __atomic_add_fetch(&door->rung, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &door->rung, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

static int64_t sleep_ns(const struct rondo_tensor_core *core, int64_t idle_ns)
{
    int64_t ns = idle_ns > IDLE_NS ? IDLE_SLEEP_NS : SLEEP_NS, poll = rondo_params()->tensor_poll;
    return (core->nnet > 0 || core->nopening > 0) && poll < ns ? poll : ns;
}

/* Called with the lock, which is released meanwhile. */
static void sleep_at_door(struct rondo_tensor_core *core, int64_t ns)
{
    struct rondo_tensor_door *door = core->door;
    struct timespec time = { ns / 1000000000, ns % 1000000000 };
    uint32_t rung = __atomic_load_n(&door->rung, __ATOMIC_SEQ_CST);
    int moved = 0;
    __atomic_store_n(&door->sleeping, 1, __ATOMIC_SEQ_CST);
    rondo_tensor_progress(core, &moved); /* what came before others saw the flag */
    if (!moved && !core->stop) {
        pthread_mutex_unlock(&core->lock);
        syscall(SYS_futex, &door->rung, FUTEX_WAIT, rung, &time, NULL, 0);
        pthread_mutex_lock(&core->lock);
    }
    __atomic_store_n(&door->sleeping, 0, __ATOMIC_SEQ_CST);
}

/* Other threads make progress. Without the lock, which a driver may hold while a device copies, and seldom:
 * whoever wakes takes a core from a driver. Called with the lock, which is released meanwhile. */
static void sleep_while_driven(struct rondo_tensor_core *core)
{
    const struct timespec time = { 0, core->nnet > 0 || core->nopening > 0 ? DRIVEN_NS : SLEEP_NS };
    pthread_mutex_unlock(&core->lock);
    for (;;) { /* who rings after the last driver has gone finds `rung` as it was, or the thread awake */
        uint32_t rung = __atomic_load_n(&core->door->rung, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&core->drivers, __ATOMIC_SEQ_CST) == 0 ||
            __atomic_load_n(&core->stop, __ATOMIC_SEQ_CST)) {
            break;
        }
        syscall(SYS_futex, &core->door->rung, FUTEX_WAIT, rung, &time, NULL, 0);
    }
    pthread_mutex_lock(&core->lock);
}

static void *serve(void *arg)
{
    struct rondo_tensor_core *core = arg;
    int64_t active_ns = rondo_now_ns();
    int rounds = 0;
    (void)rondo_inside_begin("the thread of a tensor store"); /* callbacks may not call stores */
    rondo_log_set_rank(core->rank);
    pthread_mutex_lock(&core->lock);
    while (!core->stop) {
        int moved = 0;
        if (__atomic_load_n(&core->drivers, __ATOMIC_RELAXED) > 0) {
            sleep_while_driven(core);
            rounds = 0;
            continue;
        }
        rondo_tensor_progress(core, &moved);
        if (moved) {
            active_ns = rondo_now_ns();
            rounds = 0;
        }
        if (rounds++ < IDLE_ROUNDS) {
            pthread_mutex_unlock(&core->lock);
            sched_yield();
            pthread_mutex_lock(&core->lock);
        } else {
            sleep_at_door(core, sleep_ns(core, rondo_now_ns() - active_ns));
            rounds = 0;
        }
    }
    pthread_mutex_unlock(&core->lock);
    rondo_inside_end();
    return NULL;
}

static void driver_begin(struct rondo_tensor_core *core)
{
    __atomic_add_fetch(&core->drivers, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&core->door->sleeping, 0, __ATOMIC_SEQ_CST);
}

/* The thread may sleep: let others ring from now on, and look once at what came before. */
static void driver_end(struct rondo_tensor_core *core)
{
    int moved = 0;
    if (__atomic_sub_fetch(&core->drivers, 1, __ATOMIC_SEQ_CST) == 0 && core->has_thread) {
        __atomic_store_n(&core->door->sleeping, 1, __ATOMIC_SEQ_CST);
        rondo_tensor_progress(core, &moved);
    }
}

/* What came with the first yield, after all spins were in vain, was made on this core meanwhile. That yield
 * may have been too short to be noticed, and then each wait would spin in vain. restarts: the wait had other
 * progress before. */
static void note_shared_core(struct rondo_tensor_core *core, const struct rondo_wait *wait, int restarts)
{
    struct rondo_oversubscription *seen = wait->policy->oversubscription;
    if (seen == NULL || wait->rounds == 0) {
        return;
    }
    if (wait->rounds < wait->spins) { /* it was made on another core */
        core->shared = core->shared_most = 0;
    } else if (wait->rounds - wait->spins <= 1) {
        seen->waits = wait->spins > 0 ? YIELDING_WAITS : seen->waits;
        core->shared += !restarts;
    }
}

/* The kernel may leave two ranks that yield to one another on a core for a second, while another core is
 * idle. So move; if that did not help, because all cores have work, again after twice as many such waits.
 * @return 1: it has moved */
static int move_apart(struct rondo_tensor_core *core)
{
    if (core->shared <= core->shared_most) {
        return 0;
    }
    core->shared = 0;
    core->shared_most = core->shared_most < MOST_SHARED ? 2 * core->shared_most + 1 : MOST_SHARED;
    pthread_mutex_unlock(&core->lock);
    int moved = rondo_cores_move(-1) == 0;
    pthread_mutex_lock(&core->lock);
    core->moves++;
    return moved;
}

rondo_status rondo_tensor_wait_until(struct rondo_tensor_core *core, int (*done)(void *arg), void *arg,
                                     int64_t timeout_ns)
{
    struct rondo_oversubscription seen = core->oversubscription; /* a copy: other threads wait as well */
    struct rondo_wait_policy policy = { .sleep_after_ns = DRIVER_SLEEP_NS };
    int64_t now = rondo_now_ns();
    int64_t end = timeout_ns > 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : INT64_MAX;
    rondo_status status = RONDO_SUCCESS;
    struct rondo_wait wait;
    int restarts = 0;
    if (core->ctx != NULL) {
        const struct rondo_wait_policy *of_calls = &core->ctx->running.policy;
        policy.spins = of_calls->spins;
        policy.oversubscription = of_calls->oversubscription != NULL ? &seen : NULL;
    }
    driver_begin(core);
    if (move_apart(core)) {
        seen = (struct rondo_oversubscription){ 0 };
    }
    rondo_wait_begin(&wait, &policy);
    for (uint32_t rounds = 0;; rounds++) {
        int moved = 0;
        core->spins = policy.spins > 0;
        if (rounds % CONTROL_EVERY == 0 || wait.rounds >= wait.spins) {
            rondo_tensor_progress(core, &moved);
        } else {
            progress_conns(core, &moved);
        }
        if (done(arg)) {
            note_shared_core(core, &wait, restarts);
            break;
        }
        if (core->failure != RONDO_SUCCESS) {
            status = rondo_fail_quiet(core->failure, "%s", core->failure_text);
            break;
        }
        if (end != INT64_MAX && rondo_now_ns() >= end) {
            status = RONDO_TIMEOUT;
            break;
        }
        pthread_mutex_unlock(&core->lock);
        if (moved) {
            rondo_wait_begin(&wait, &policy); /* waits of publishers are long: they notice anew */
            restarts = 1;
        } else {
            (void)rondo_wait_once(&wait); /* without deadline and checks it reports no error */
        }
        pthread_mutex_lock(&core->lock);
    }
    core->oversubscription = seen;
    driver_end(core);
    return status;
}

void rondo_tensor_wait_for_copies(struct rondo_tensor_core *core, int (*done)(void *arg), void *arg)
{
    for (rondo_tensor_conns_settle(core); !done(arg); rondo_tensor_conns_settle(core)) {
        pthread_mutex_unlock(&core->lock);
        sched_yield();
        pthread_mutex_lock(&core->lock);
    }
}

/* ---- creation ---- */

static rondo_status open_door(struct rondo_tensor_core *core)
{
    core->door = &core->own_door;
    if (core->nranks > 1) {
        RONDO_TRY(rondo_pool_take(&core->door_memory, sizeof(*core->door), sizeof(*core->door),
                                  core->ctx->wiring.net.shm_mode, RONDO_SHM_FOR_CONTROL));
        core->door = (struct rondo_tensor_door *)(void *)core->door_memory.base;
    }
    return RONDO_SUCCESS;
}

static void core_free(struct rondo_tensor_core *core)
{
    rondo_tensor_conns_release(core);
    rondo_tensor_pubs_release(core);
    rondo_tensor_pulls_release(core);
    while (core->requests != NULL) {
        struct rondo_tensor_request *request = core->requests;
        core->requests = request->next;
        rondo_free(request);
    }
    rondo_tensor_arenas_release(&core->arenas);
    rondo_tensor_gpus_release(&core->gpus);
    rondo_shm_close(&core->door_memory);
    pthread_mutex_destroy(&core->lock);
    rondo_free(core);
}

static rondo_status core_open(struct rondo_tensor_core *core)
{
    char tag[16];
    core->tag = rondo_hash(tag, (size_t)snprintf(tag, sizeof(tag), "tensor%u", core->number), 0);
    RONDO_TRY(RONDO_NEW_ARRAY(core->conn_of, core->nranks, "the connections of a tensor store"));
    RONDO_TRY(open_door(core));
    if (core->wants_thread) {
        rondo_status status = rondo_thread_start(&core->thread, "rondo-tensor", serve, core);
        if (status != RONDO_SUCCESS) {
            return rondo_fail_aloud(status);
        }
        core->has_thread = 1;
    }
    return RONDO_SUCCESS;
}

/* Protects the lists of stores (ctx->stores), `ending` and, with the store's lock, core->ctx. A store is
 * ended by its communicator, which any thread may abort, or by the thread that destroys it: by one at a
 * time. Taken before a store's lock. */
static pthread_mutex_t ends_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ends_changed = PTHREAD_COND_INITIALIZER;

unsigned rondo_tensor_forks;

static void forget_ends(void)
{
    rondo_tensor_forks++;
    (void)rondo_fork_lock(&ends_lock);
    pthread_cond_init(&ends_changed, NULL);
}
RONDO_AT_FORK(forget_ends)

static void end_stores(struct rondo_ctx *ctx);

rondo_status rondo_tensor_core_create(struct rondo_ctx *ctx, uint32_t number,
                                      const rondo_tensor_config *config, struct rondo_tensor_core **core_out)
{
    const struct rondo_params *params = rondo_params();
    struct rondo_tensor_core *core;
    rondo_status status;
    if (ctx->backend->is_gpu) {
        return rondo_fail(
            RONDO_INVALID_USAGE,
            "rank %d on %s: a tensor store needs a communicator of host memory, and this one is of "
            "CUDA device %d: create another one with config.device RONDO_CONFIG_DEFAULT",
            ctx->job.rank, rondo_log_host(), ctx->job.config.device);
    }
    RONDO_TRY(RONDO_NEW(core, "a tensor store"));
    pthread_mutex_init(&core->lock, NULL);
    core->ctx = ctx;
    core->rank = ctx->job.rank;
    core->nranks = ctx->job.nranks;
    core->forks = rondo_tensor_forks;
    core->number = number;
    core->message_bytes = (size_t)params->tensor_message;
    core->newest = RONDO_TENSOR_WIRE_VERSION;
    core->checksum = config->checksum == RONDO_CONFIG_DEFAULT ? params->tensor_checksum : config->checksum;
    core->timeout_ns = config->timeout_ms == RONDO_CONFIG_DEFAULT ? params->tensor_timeout
                                                                  : rondo_ms_to_ns(config->timeout_ms);
    core->arenas.least = config->arena_bytes > 0 ? config->arena_bytes : (size_t)params->tensor_arena;
    core->wants_thread = config->thread;
    status = core_open(core);
    if (status != RONDO_SUCCESS) {
        core_free(core);
        return status;
    }
    pthread_mutex_lock(&ends_lock);
    core->next = ctx->stores;
    ctx->stores = core;
    ctx->end_stores = end_stores;
    pthread_mutex_unlock(&ends_lock);
    *core_out = core;
    return RONDO_SUCCESS;
}

/* ---- the end ---- */

static void stop_thread(struct rondo_tensor_core *core)
{
    pthread_mutex_lock(&core->lock);
    __atomic_store_n(&core->stop, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&core->lock);
    if (core->has_thread) {
        __atomic_store_n(&core->door->sleeping, 1, __ATOMIC_SEQ_CST);
        rondo_tensor_door_ring(core->door);
        pthread_join(core->thread, NULL);
        core->has_thread = 0;
    }
}

static int nobody_copies(void *arg)
{
    const struct rondo_tensor_core *core = arg;
    const struct rondo_tensor_conn *conn = core->conns;
    while (conn != NULL && !conn->busy && !conn->closing) {
        conn = conn->next;
    }
    return conn == NULL && core->filling == NULL;
}

/* The store ends with this thread's sentence. Afterwards nothing uses the communicator. */
static void core_end(struct rondo_tensor_core *core, rondo_status status)
{
    pthread_mutex_lock(&core->lock);
    rondo_tensor_core_fail(core, status);
    rondo_tensor_wait_for_copies(core, nobody_copies, core);
    rondo_tensor_conns_release(core);
    pthread_mutex_unlock(&core->lock);
}

/* Take the store off its communicator's list. Called with ends_lock. */
static void core_unlink(struct rondo_tensor_core *core)
{
    struct rondo_tensor_core **at = &core->ctx->stores;
    while (*at != core) {
        at = &(*at)->next;
    }
    *at = core->next;
    pthread_mutex_lock(&core->lock);
    core->ctx = NULL;
    pthread_mutex_unlock(&core->lock);
    core->ending = 0;
    pthread_cond_broadcast(&ends_changed);
}

/* The communicator ends, and its control plane with it. The user still destroys the stores. */
static void end_stores(struct rondo_ctx *ctx)
{
    pthread_mutex_lock(&ends_lock);
    while (ctx->stores != NULL) {
        struct rondo_tensor_core *core = ctx->stores;
        while (core != NULL && core->ending) {
            core = core->next;
        }
        if (core == NULL) { /* the others are being destroyed */
            pthread_cond_wait(&ends_changed, &ends_lock);
            continue;
        }
        core->ending = 1;
        pthread_mutex_unlock(&ends_lock);
        stop_thread(core);
        core_end(core, rondo_fail_quiet(RONDO_INVALID_USAGE,
                                        "rank %d on %s: the communicator of the tensor store was "
                                        "destroyed before the store",
                                        core->rank, rondo_log_host()));
        pthread_mutex_lock(&ends_lock);
        core_unlink(core);
    }
    pthread_mutex_unlock(&ends_lock);
}

/* From now on this thread ends the store. @return 1: its communicator has not ended, and will not before the
 * store has */
static int begin_end(struct rondo_tensor_core *core)
{
    pthread_mutex_lock(&ends_lock);
    while (core->ending) {
        pthread_cond_wait(&ends_changed, &ends_lock);
    }
    core->ending = 1;
    int has_comm = core->ctx != NULL;
    pthread_mutex_unlock(&ends_lock);
    return has_comm;
}

/* Wait for other ranks as calls do, with the communicator's deadline. @return an error: it has ended. */
static rondo_status wait_for_ranks(rondo_comm *comm, struct rondo_wait *wait)
{
    struct rondo_ctx *ctx;
    if (!rondo_comm_is_alive(comm) ||
        rondo_comm_visit(comm, "rondo_tensor_store_destroy", &ctx) != RONDO_SUCCESS) {
        sched_yield(); /* its end ends the barrier, too */
        return RONDO_SUCCESS;
    }
    rondo_status status = rondo_wait_once(wait);
    rondo_comm_unvisit(comm);
    return status;
}

/* What the store did while its end waits; its own thread makes progress, too. */
struct served {
    uint64_t nmoved;  /* core->nmoved at the last step */
    int64_t since_ns; /* when it changed */
};

/* A content is under way, which may take longer than the deadline: the wait sleeps, but gets no older. But a
 * rank that lives and takes nothing does not hold it for ever. */
static void hold_time(struct rondo_wait *wait, int64_t since_ns)
{
    enum { DEADLINES_HELD = 10 };
    if ((rondo_now_ns() - since_ns) / DEADLINES_HELD > wait->policy->timeout_ns) {
        return;
    }
    const struct rondo_wait_policy *policy = wait->policy;
    int64_t half = policy->timeout_ns / 2,
            start = rondo_now_ns() - (policy->sleep_after_ns < half ? policy->sleep_after_ns : half);
    wait->start_ns = wait->start_ns < start ? start : wait->start_ns;
}

static rondo_status meet_step(struct rondo_tensor_core *core, rondo_comm *comm, int serves,
                              struct rondo_wait *wait, struct served *last)
{
    if (serves) {
        int moved = 0;
        pthread_mutex_lock(&core->lock);
        rondo_tensor_progress(core, &moved);
        int served = core->nmoved != last->nmoved;
        if (served) {
            *last = (struct served){ core->nmoved, rondo_now_ns() };
        }
        if (wait->start_ns != 0 && wait->policy->timeout_ns > 0 && rondo_tensor_serves(core)) {
            hold_time(wait, last->since_ns);
        }
        pthread_mutex_unlock(&core->lock);
        if (served) {
            rondo_wait_reset(wait);
            return RONDO_SUCCESS;
        }
    }
    return wait_for_ranks(comm, wait);
}

/* All ranks come here; meanwhile @a serves others. */
static rondo_status meet(struct rondo_tensor_core *core, int serves)
{
    rondo_comm *comm = core->ctx->shell;
    rondo_stream stream;
    rondo_status status;
    char text[RONDO_ERROR_TEXT];
    struct rondo_wait wait;
    struct served last = { 0, rondo_now_ns() };
    RONDO_TRY(rondo_stream_create(&stream));
    rondo_wait_begin(&wait, &core->ctx->running.policy);
    status = rondo_barrier(comm, stream);
    while (status == RONDO_SUCCESS && (status = rondo_stream_query(stream)) == RONDO_IN_PROGRESS) {
        (void)rondo_inside_begin("rondo_tensor_store_destroy");
        status = meet_step(core, comm, serves, &wait, &last);
        rondo_inside_end();
    }
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    (void)rondo_stream_destroy(stream);
    return status == RONDO_SUCCESS ? RONDO_SUCCESS : rondo_fail_quiet(status, "%s", text);
}

static void end_and_free(struct rondo_tensor_core *core, int has_comm)
{
    /* What is called back may not end the communicator, whose end waits for this. */
    (void)rondo_inside_begin("rondo_tensor_store_destroy");
    core_end(core, rondo_fail_quiet(RONDO_INVALID_USAGE, "the tensor store was destroyed"));
    rondo_inside_end();
    if (has_comm) {
        pthread_mutex_lock(&ends_lock);
        core_unlink(core);
        pthread_mutex_unlock(&ends_lock);
    }
    core_free(core);
}

rondo_status rondo_tensor_core_destroy(struct rondo_tensor_core *core)
{
    char text[RONDO_ERROR_TEXT];
    int has_comm = begin_end(core);
    rondo_status status = has_comm ? meet(core, 1) : RONDO_SUCCESS;
    stop_thread(core);
    if (status == RONDO_SUCCESS && has_comm) {
        status = meet(core, 0); /* nobody looks at connections any more: now they may close */
    }
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    end_and_free(core, has_comm);
    return status == RONDO_SUCCESS ? RONDO_SUCCESS : rondo_fail_quiet(status, "%s", text);
}

void rondo_tensor_core_discard(struct rondo_tensor_core *core)
{
    int has_comm = begin_end(core);
    stop_thread(core);
    end_and_free(core, has_comm);
}
