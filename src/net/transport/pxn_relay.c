/* PXN, the relay's side: a thread sends conns of other ranks through this rank's GPU and its NIC.
 * Contract: net/transport/pxn.h. */
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/thread.h"
#include "base/wait.h"
#include "net/transport/pxn.h"

enum { EAGER_ROUNDS = 2000, SLEEP_ROUNDS = EAGER_ROUNDS + 200, NAP_NS = 50000 };

struct relay_link {
    struct rondo_link link;
    struct rondo_pxn_process sender;
};

struct rondo_pxn_thread {
    struct rondo_net net; /* a net of its own, with only the net transport; peers and nics are valid while
                           * the communicator exists */
    struct rondo_net_state *state;
    struct rondo_cuda_device device;
    struct rondo_shm shm;
    struct rondo_pxn_header *header;
    struct relay_link *link; /* of each cell */
    int n;
    pthread_t thread;
    pthread_mutex_t lock; /* held while connecting, which reads peers */
    int stays;            /* left before its senders did: counted in nstaying */
    int bound;            /* bound to its cores; only the thread uses it */
    int left;         /* the communicator is gone; written under the lock, also read without it (atomic) */
    uint64_t carried; /* slices; atomic */
    size_t bytes;     /* memory, as offered */
};

static int nrelays, nstaying; /* atomic */

int rondo_pxn_relays(void) { return __atomic_load_n(&nrelays, __ATOMIC_ACQUIRE); }

uint64_t rondo_pxn_carried(const struct rondo_net *net)
{
    const struct rondo_net_state *state = rondo_transport_state(net, &rondo_transport_net);
    return state->pxn == NULL || state->pxn->relay == NULL
               ? 0
               : __atomic_load_n(&state->pxn->relay->carried, __ATOMIC_RELAXED);
}

size_t rondo_pxn_bytes(const struct rondo_net_state *state)
{
    return state->pxn == NULL || state->pxn->relay == NULL ? 0 : state->pxn->relay->bytes;
}

/* ---- a cell's way ---- */

static struct rondo_net_end *end_of(struct rondo_pxn_thread *relay, int i)
{
    return relay->link[i].link.state;
}

/* Bind the thread when its first conn is connected. */
static void bind_near(struct rondo_pxn_thread *relay)
{
    struct rondo_cores near = { 0 };
    if (relay->bound) {
        return;
    }
    relay->bound = 1;
    rondo_transport_net.cores(relay->state, &near);
    rondo_net_bind(relay->net.rank, &near, "sends for other GPUs");
}

/* @return RONDO_IN_PROGRESS: call again. */
static rondo_status cell_connect(struct rondo_pxn_thread *relay, int i)
{
    struct rondo_pxn_cell *cell = &relay->header->cell[i];
    struct rondo_connect record = { 0 };
    rondo_status status;
    memcpy(record.data, cell->theirs, sizeof(record.data));
    pthread_mutex_lock(&relay->lock);
    status = relay->left ? rondo_fail(RONDO_REMOTE_ERROR,
                                      "rank %d on %s has left the communicator before it had connected",
                                      relay->net.rank, rondo_log_host())
                         : rondo_transport_net.connect(relay->state, &relay->link[i].link, &record);
    pthread_mutex_unlock(&relay->lock);
    if (status == RONDO_SUCCESS) {
        bind_near(relay);
        cell->gdr = (uint32_t)end_of(relay, i)->gdr.on;
        snprintf(cell->via, sizeof(cell->via), "%s", end_of(relay, i)->via);
        rondo_pxn_store(&cell->relay, RONDO_PXN_CONNECTED);
    } else if (status != RONDO_IN_PROGRESS) {
        rondo_pxn_cell_fail(cell, status);
    }
    return status;
}

static void cell_move(struct rondo_pxn_thread *relay, int i, int *busy, int *moved)
{
    struct rondo_pxn_cell *cell = &relay->header->cell[i];
    struct rondo_net_end *end = end_of(relay, i);
    uint64_t done = end->done;
    rondo_status status = rondo_net_end_progress(end, 1, busy, moved);
    if (status != RONDO_SUCCESS) {
        rondo_pxn_cell_fail(cell, status);
    }
    __atomic_fetch_add(&relay->carried, end->done - done, __ATOMIC_RELAXED);
}

static void cell_progress(struct rondo_pxn_thread *relay, int i, int *busy, int *moved)
{
    struct rondo_pxn_cell *cell = &relay->header->cell[i];
    uint32_t sender = rondo_pxn_load(&cell->sender), state = rondo_pxn_load(&cell->relay);
    if (end_of(relay, i) == NULL) { /* whatever the cell says */
        return;
    }
    if (sender >= RONDO_PXN_CLOSED) {
        rondo_transport_net.disconnect(relay->state, &relay->link[i].link);
    } else if (sender == RONDO_PXN_CONNECT && state == RONDO_PXN_OFFERED) {
        *busy |= cell_connect(relay, i) == RONDO_IN_PROGRESS;
        *moved |= rondo_pxn_load(&cell->relay) != RONDO_PXN_OFFERED;
    } else if (sender == RONDO_PXN_CONNECT && state == RONDO_PXN_CONNECTED) {
        cell_move(relay, i, busy, moved);
    }
}

/* ---- the thread ---- */

/* Write GONE for senders that never came and can no longer come; with look, also for dead ones. @return
 * how many senders remain. */
static int senders(struct rondo_pxn_thread *relay, int look)
{
    int n = 0;
    for (int i = 0; i < relay->n; i++) {
        uint32_t *sender = &relay->header->cell[i].sender;
        if (!rondo_pxn_swap(sender, RONDO_PXN_FREE, RONDO_PXN_GONE) &&
            rondo_pxn_load(sender) != RONDO_PXN_GONE) {
            if (look && rondo_pxn_is_dead(&relay->link[i].sender)) {
                rondo_pxn_store(sender, RONDO_PXN_GONE);
            }
            n += rondo_pxn_load(sender) != RONDO_PXN_GONE;
        }
    }
    return n;
}

/* Is there nothing to do, and nothing that the thread has not seen? */
static int is_quiet(struct rondo_pxn_thread *relay, int left)
{
    for (int i = 0; i < relay->n; i++) {
        const struct rondo_pxn_cell *cell = &relay->header->cell[i];
        const struct rondo_net_end *end = end_of(relay, i);
        uint32_t sender = rondo_pxn_load(&cell->sender), state = rondo_pxn_load(&cell->relay);
        if (end != NULL &&
            (sender >= RONDO_PXN_CLOSED || (sender == RONDO_PXN_CONNECT && state == RONDO_PXN_OFFERED) ||
             (state == RONDO_PXN_CONNECTED && __atomic_load_n(end->word, __ATOMIC_ACQUIRE) != end->done))) {
            return 0;
        }
    }
    return __atomic_load_n(&relay->left, __ATOMIC_SEQ_CST) == left;
}

/* Sleep until a sender rings or dies. */
static void sleep_until_rung(struct rondo_pxn_thread *relay, int left)
{
    const struct timespec limit = { 0, RONDO_PXN_LOOK_NS };
    struct rondo_pxn_header *header = relay->header;
    uint32_t bell = __atomic_load_n(&header->bell, __ATOMIC_SEQ_CST);
    __atomic_store_n(&header->asleep, 1, __ATOMIC_SEQ_CST);
    if (is_quiet(relay, left)) {
        (void)syscall(SYS_futex, &header->bell, FUTEX_WAIT, bell, &limit, NULL, 0);
    }
    __atomic_store_n(&header->asleep, 0, __ATOMIC_SEQ_CST);
}

static void rest(struct rondo_pxn_thread *relay, int left, int idle, int busy)
{
    const struct timespec nap = { 0, NAP_NS };
    if (idle < EAGER_ROUNDS) {
        rondo_cpu_relax();
    } else if (busy || idle < SLEEP_ROUNDS) {
        nanosleep(&nap, NULL);
    } else {
        sleep_until_rung(relay, left);
    }
}

static void relay_free(struct rondo_pxn_thread *relay)
{
    for (int i = 0; relay->link != NULL && i < relay->n; i++) {
        rondo_transport_net.disconnect(relay->state, &relay->link[i].link);
    }
    if (relay->state != NULL) {
        rondo_transport_net.close(relay->state);
    }
    rondo_shm_close(&relay->shm);
    rondo_cuda_close(&relay->device);
    rondo_netdev_finalize();
    pthread_mutex_destroy(&relay->lock);
    rondo_free(relay->link);
    rondo_free(relay);
}

static void *relay_main(void *arg)
{
    struct rondo_pxn_thread *relay = arg;
    int left = 0, idle = 0, stays;
    struct rondo_net_inside inside;
    rondo_log_set_rank(relay->net.rank);
    rondo_net_enter(&relay->net, &inside);
    while (!left || senders(relay, idle == SLEEP_ROUNDS) > 0) {
        int busy = 0, moved = 0;
        for (int i = 0; i < relay->n; i++) {
            cell_progress(relay, i, &busy, &moved);
        }
        idle = moved ? 0 : idle + (idle < SLEEP_ROUNDS);
        rest(relay, left, idle, busy);
        left = __atomic_load_n(&relay->left, __ATOMIC_ACQUIRE);
    }
    pthread_mutex_lock(&relay->lock); /* wait until the leaving thread has released it */
    stays = relay->stays;
    pthread_mutex_unlock(&relay->lock);
    RONDO_INFO(RONDO_SUBSYS_NET | RONDO_SUBSYS_DESTROY,
               "rank %d: its NIC sent %llu slices of %d connections for other GPUs", relay->net.rank,
               (unsigned long long)relay->carried, relay->n);
    rondo_net_leave(&inside);
    relay_free(relay);
    __atomic_sub_fetch(&nstaying, stays, __ATOMIC_ACQ_REL);
    __atomic_sub_fetch(&nrelays, 1, __ATOMIC_ACQ_REL);
    return NULL;
}

static rondo_status thread_start(struct rondo_pxn_thread *relay)
{
    rondo_status status;
    __atomic_add_fetch(&nrelays, 1, __ATOMIC_ACQ_REL);
    status = rondo_thread_start(&relay->thread, "rondo-pxn", relay_main, relay);
    if (status != RONDO_SUCCESS) {
        __atomic_sub_fetch(&nrelays, 1, __ATOMIC_ACQ_REL);
    }
    return status;
}

/* ---- the offer ---- */

/* Choose the device as sender and receiver do: their records name it. */
static int same_device(const struct rondo_net *net, const struct rondo_relayed *conn)
{
    const struct rondo_peer *peers = net->peers;
    const struct rondo_net_device *device = rondo_netdev_common(peers[net->rank].netdevs,
                                                                peers[conn->to].netdevs);
    return device != NULL &&
           device == rondo_netdev_common(peers[conn->from].netdevs, peers[conn->to].netdevs);
}

/* If an end cannot be allocated, only its sender is affected: the cell says GONE. */
static void cell_offer(struct rondo_pxn_thread *relay, int i, const struct rondo_relayed *conn,
                       uint32_t protos)
{
    struct rondo_pxn_cell *cell = &relay->header->cell[i];
    struct rondo_link *link = &relay->link[i].link;
    struct rondo_connect record = { 0 };
    const struct rondo_gpu_mem *block;
    rondo_status status;
    *link = (struct rondo_link){ .transport = &rondo_transport_net,
                                 .peer = conn->to,
                                 .channel = conn->channel,
                                 .is_send = 1,
                                 .relayed = 1 + conn->from,
                                 .protos = protos };
    link->net_name = conn->net_name; /* valid only during the offer */
    *cell = (struct rondo_pxn_cell){
        .from = conn->from, .to = conn->to, .channel = conn->channel, .protos = protos
    };
    snprintf(cell->net, sizeof(cell->net), "%s", conn->net_name);
    status = same_device(&relay->net, conn)
                 ? rondo_transport_net.offer(relay->state, link, &record)
                 : rondo_fail_quiet(RONDO_REMOTE_ERROR, "the two hosts do not have the same net devices");
    link->net_name = NULL;
    if (status != RONDO_SUCCESS) {
        RONDO_INFO(RONDO_SUBSYS_NET, "rank %d does not send for rank %d to rank %d on channel %d: %s",
                   relay->net.rank, conn->from, conn->to, conn->channel, rondo_error_text());
        rondo_pxn_store(&cell->sender, RONDO_PXN_GONE);
        return;
    }
    memcpy(cell->record, record.data, sizeof(cell->record));
    cell->offset = end_of(relay, i)->offset;
    block = end_of(relay, i)->gdr.on ? rondo_net_gdr_block(relay->state) : NULL;
    if (block != NULL) {
        relay->header->block = block->name;
        cell->slots = (uint64_t)(end_of(relay, i)->gdr.slots - block->base);
    }
}

static size_t cells_bytes(int n)
{
    return rondo_round_up(sizeof(struct rondo_pxn_header) + (size_t)n * sizeof(struct rondo_pxn_cell),
                          (size_t)sysconf(_SC_PAGESIZE));
}

static rondo_status segment_make(struct rondo_pxn_thread *relay, uint32_t protos)
{
    const struct rondo_link any = { .protos = protos };
    size_t largest = rondo_net_largest(&relay->net, &any), cells = cells_bytes(relay->n);
    RONDO_TRY(rondo_shm_create(&relay->shm, cells + (size_t)relay->n * rondo_net_room(largest),
                               relay->net.shm_mode));
    RONDO_TRY(rondo_shm_reserve(&relay->shm, 0, cells));
    relay->header = (struct rondo_pxn_header *)(void *)relay->shm.base;
    *relay->header = (struct rondo_pxn_header){ .magic = RONDO_PXN_MAGIC,
                                                .version = RONDO_PXN_VERSION,
                                                .rank = relay->net.rank,
                                                .ncells = relay->n,
                                                .bytes = relay->shm.size };
    relay->state->segment = &relay->shm;
    relay->state->segment_used = cells;
    relay->state->expected = (size_t)relay->n * rondo_net_gdr_bytes(largest);
    return RONDO_SUCCESS;
}

static rondo_status relay_make(struct rondo_pxn_thread *relay, const struct rondo_net *net,
                               const struct rondo_relayed *list, uint32_t protos)
{
    void *state = NULL;
    RONDO_TRY(rondo_cuda_open(net->device->ordinal, &relay->device));
    relay->net = (struct rondo_net){ .rank = net->rank,
                                     .nranks = net->nranks,
                                     .peers = net->peers,
                                     .shm_mode = net->shm_mode,
                                     .device = &relay->device,
                                     .nics = net->nics,
                                     .nnics = net->nnics };
    memcpy(relay->net.slot_bytes, net->slot_bytes, sizeof(relay->net.slot_bytes));
    RONDO_TRY(RONDO_NEW_ARRAY(relay->link, relay->n, "connections of other GPUs"));
    RONDO_TRY(rondo_transport_net.open(&relay->net, &state, relay->n));
    relay->state = state;
    RONDO_TRY(segment_make(relay, protos));
    for (int i = 0; i < relay->n; i++) {
        relay->link[i].sender = rondo_pxn_process(net, list[i].from);
        cell_offer(relay, i, &list[i], protos);
    }
    relay->bytes = relay->state->bytes + cells_bytes(relay->n);
    for (int i = 0; i < relay->n; i++) {
        relay->bytes += end_of(relay, i) != NULL ? end_of(relay, i)->bytes : 0;
    }
    return thread_start(relay);
}

void rondo_net_relay(struct rondo_net *net, const struct rondo_relayed *list, int n, uint32_t protos,
                     struct rondo_shm_name *name)
{
    struct rondo_net_state *state = rondo_transport_state(net, &rondo_transport_net);
    struct rondo_pxn_thread *relay = NULL;
    struct rondo_pxn *pxn;
    rondo_status status;
    memset(name, 0, sizeof(*name));
    if (n == 0 || net->device == NULL || state == NULL) {
        return;
    }
    status = rondo_pxn_get(state, &pxn);
    if (status == RONDO_SUCCESS) {
        status = RONDO_NEW(relay, "what this GPU sends for others");
    }
    if (status == RONDO_SUCCESS) {
        relay->n = n;
        pthread_mutex_init(&relay->lock, NULL);
        rondo_netdev_hold();
        status = relay_make(relay, net, list, protos);
    }
    if (status != RONDO_SUCCESS) {
        RONDO_INFO(RONDO_SUBSYS_NET, "rank %d sends nothing for other GPUs (PXN): %s", net->rank,
                   rondo_error_text());
        if (relay != NULL) {
            relay_free(relay);
        }
        return;
    }
    pxn->relay = relay;
    *name = relay->shm.name;
}

/* ---- the end ---- */

void rondo_pxn_relay_settle(struct rondo_pxn_thread *relay)
{
    struct rondo_gpu_mem *block = rondo_net_gdr_block(relay->state);
    if (block != NULL) {
        rondo_gpu_mem_settle(block);
    }
    rondo_shm_unlink(&relay->shm);
}

/* On a normal exit the process first lets its relays send what their senders have posted: nobody else can.
 * A forked child has no such thread. */
static int32_t exit_pid;

static void exit_wait(void)
{
    const struct timespec nap = { 0, NAP_NS };
    int64_t late = rondo_now_ns() + rondo_params()->p2p_check;
    while (exit_pid == (int32_t)getpid() && __atomic_load_n(&nstaying, __ATOMIC_ACQUIRE) > 0 &&
           rondo_now_ns() < late) {
        nanosleep(&nap, NULL);
    }
}

static void exit_hook(void) { (void)atexit(exit_wait); }

/* The thread continues without its communicator. */
static void relay_stays(struct rondo_pxn_thread *relay)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, exit_hook);
    __atomic_store_n(&exit_pid, (int32_t)getpid(), __ATOMIC_RELAXED);
    __atomic_add_fetch(&nstaying, 1, __ATOMIC_ACQ_REL);
    relay->stays = 1;
}

void rondo_pxn_relay_leave(struct rondo_pxn_thread *relay)
{
    pthread_t thread = relay->thread;
    int staying, rank = relay->net.rank;
    pthread_mutex_lock(&relay->lock);
    staying = senders(relay, 1);
    if (staying > 0) {
        relay_stays(relay);
    }
    relay->net.peers = NULL;
    relay->net.nics = NULL;
    relay->net.nnics = 0;
    __atomic_store_n(&relay->left, 1, __ATOMIC_SEQ_CST);
    rondo_pxn_ring(relay->header);
    pthread_mutex_unlock(&relay->lock);
    if (staying == 0) {
        pthread_join(thread, NULL);
        return;
    }
    RONDO_INFO(
        RONDO_SUBSYS_NET | RONDO_SUBSYS_DESTROY,
        "rank %d has left; its relay thread still sends for %d connections of other GPUs until those leave",
        rank, staying);
    pthread_detach(thread);
}
