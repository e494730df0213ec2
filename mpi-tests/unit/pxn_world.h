/*
 * Conns that leave by a NIC through another GPU of the node (net/transport/pxn.h), over the NICs of
 * fake_verbs.h and the tests' CUDA driver. Ranks 0, 1 and 2 are a node: only the GPU of rank 0 is near the
 * NIC. Rank 3 is another node: 2 sends to it (RING), and so does 1 (DOWN), on each channel. Ranks are
 * threads, or three processes. TSan does not see that a tail orders the slots where the two sides have mapped
 * its segment each for itself: it wants race:store_in_order suppressed.
 */
#ifndef PXN_WORLD_H
#define PXN_WORLD_H

#include "nic_world.h"

#include <signal.h>
#include <stdlib.h>

#include "net/control/control.h"
#include "net/transport/pxn.h"

enum {
    NEAR = 1 << RONDO_GDR_READ | 1 << RONDO_GDR_WRITE,
    RANKS = 4,
    RELAY = 0,
    TO = 3,
    CELLS = 2 * CHANNELS
};

static const char nic_name[] = "fake0:2";
static struct rondo_nic nic_of[RANKS];
static int local_index[2][RANKS] = { { 0, 1, 2, -1 }, { -1, -1, -1, 0 } }, to_alone[] = { TO };
static const struct rondo_relayed through[CELLS] = {
    { 1, TO, 0, nic_name }, { 2, TO, 0, nic_name }, { 1, TO, 1, nic_name }, { 2, TO, 1, nic_name }
};

/* Forked ranks share it. */
static struct shared {
    struct rondo_shm_name relay[RANKS];
    int offers;                            /* the relay does */
    int staged;                            /* slots are expected in host memory */
    int own[RANKS];                        /* this rank is expected to go by its own way */
    pthread_barrier_t together, survivors; /* all; all but one */
} * shared;

static inline void two_nodes(struct world *w, struct rank *r)
{
    int rank = r->net.rank, apart = rank == TO;
    rondo_log_set_rank(rank); /* who is meant by RONDO_NET_FAULT */
    gpus_before(w, r);
    r->net.nlocal = apart ? 1 : 3;
    r->net.local_rank = apart ? 0 : rank;
    r->net.local_of = local_index[apart];
    r->net.local_ranks = apart ? to_alone : w->index;
    r->net.nics = &nic_of[rank];
    r->net.nnics = 1;
    r->net.relays = shared->relay;
}

static inline void relays(struct rank *r)
{
    if (r->net.rank == RELAY && shared->offers) {
        rondo_net_relay(&r->net, through, CELLS, r->world->protos, &shared->relay[RELAY]);
    }
}

static inline void ways_and_relays(struct world *w, struct rank *r)
{
    rondo_net_gpu(&r->net, &gpus->name[r->net.rank]);
    pthread_barrier_wait(&w->barrier);
    check_until_done(r);
    pthread_barrier_wait(&w->barrier);
    relays(r);
    pthread_barrier_wait(&w->barrier);
}

static inline rondo_status offers(struct world *w, int rank)
{
    for (int c = 0; c < CHANNELS; c++) {
        for (int from = 1; from < TO; from++) {
            int kind = from == 1 ? DOWN : RING;
            if (rank == from) {
                RONDO_TRY(offer_one(w, &w->rank[rank], kind, c, TO, 1));
            } else if (rank == TO) {
                RONDO_TRY(offer_one(w, &w->rank[rank], kind, c, from, 0));
            }
        }
    }
    return RONDO_SUCCESS;
}

static inline struct world *pxn_new(int processes)
{
    struct world *w = gpus_new(RANKS, RANKS, RONDO_P2P_MODE_WRITE, processes);
    pthread_barrierattr_t attr;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->together, &attr, RANKS);
    pthread_barrier_init(&shared->survivors, &attr, RANKS - 1);
    pthread_barrierattr_destroy(&attr);
    shared->offers = 1;
    w->net_name = nic_name;
    w->before = two_nodes;
    w->between = ways_and_relays;
    w->offer = offers;
    rondo_netdev_hold(); /* as a communicator does: it is not the relays that end them */
    for (int i = 0; i < RANKS; i++) {
        w->peers[i].host_hash += i == TO;
        w->node_of[i] = i == TO;
        CHECK_OK(rondo_netdev_mask(&w->peers[i].netdevs, NULL, 0));
        nic_of[i] = (struct rondo_nic){ .gdr = i == RELAY || i == TO ? NEAR : 0,
                                        .relay = i == 1 || i == 2 ? 1 + RELAY : 0 };
        snprintf(nic_of[i].name, sizeof(nic_of[i].name), "%s", nic_name);
    }
    return w;
}

static inline void wait_for_relays(void)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    while (rondo_pxn_relays() > 0) {
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
}

static inline void pxn_free(struct world *w)
{
    pthread_barrier_destroy(&shared->together);
    pthread_barrier_destroy(&shared->survivors);
    munmap(shared, sizeof(*shared));
    gpus_free(w);
    wait_for_relays();
    rondo_netdev_finalize();
}

static inline void run_it(struct world *w, void (*body)(struct world *w, struct rank *r))
{
    w->body = body;
    run_threads(w);
    pxn_free(w);
    all_is_given_back();
}

/* ---- processes: the receiver's is the relay's, as the fake NICs do not leave a process ---- */

static inline void group_lives(struct world *w, const int *ranks, int n)
{
    pthread_t thread[2];
    struct thread_arg arg[2];
    alarm(60);
    for (int i = 0; i < n; i++) {
        w->peers[ranks[i]].pid = getpid();
        arg[i] = (struct thread_arg){ w, ranks[i] };
        CHECK(pthread_create(&thread[i], NULL, thread_main, &arg[i]) == 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
    }
    wait_for_relays();
    check_nothing_left();
    _exit(0);
}

/* killed: a rank whose process is killed by itself; -1: none is. */
static inline void run_processes_of(struct world *w, int killed)
{
    static const int ranks[3][2] = { { RELAY, TO }, { 1 }, { 2 } };
    pid_t pid[3];
    int status;
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        w->peers[i].process_hash = (uint64_t)i + 1;
        if ((pid[i] = fork()) == 0) {
            group_lives(w, ranks[i], i == 0 ? 2 : 1);
        }
    }
    for (int i = 0; i < 3; i++) {
        CHECK(waitpid(pid[i], &status, 0) == pid[i]);
        if (status != 0 && i != killed) {
            fprintf(stderr, "process %d of 3 ended with wait status %#x\n", i, (unsigned)status);
        }
        CHECK(i == killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                          : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static inline void run_it_in_processes(void (*body)(struct world *w, struct rank *r), int killed)
{
    struct world *w = pxn_new(1);
    w->body = body;
    run_processes_of(w, killed);
    pxn_free(w);
}

/* ---- bodies ---- */

static inline void check_conn(const struct rank *r, const struct end *end)
{
    int own = shared->own[r->net.rank], ordinal;
    const char *via = end->link.conn.via;
    enum rondo_pointer_kind kind;
    CHECK((strstr(via, "/PXN0") != NULL) == !own);
    CHECK(own || (strstr(via, "/GDRDMA") != NULL) == !shared->staged);
    CHECK_OK(rondo_cuda_pointer(end->link.conn.slots[RONDO_PROTO_SIMPLE], &kind, &ordinal));
    CHECK(own || shared->staged ? kind == RONDO_POINTER_PINNED : kind == RONDO_POINTER_DEVICE);
    CHECK(own || shared->staged || r->world->peers[RELAY].pid != getpid() || ordinal == gpus->ordinal[RELAY]);
    CHECK_OK(rondo_cuda_pointer(end->link.conn.tail, &kind, &ordinal));
    CHECK(kind == RONDO_POINTER_PINNED && end->link.tail != NULL && end->link.conn.proxied);
}

static inline void check_carried(const struct rank *r, uint64_t slices)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    while (rondo_pxn_carried(&r->net) < slices) {
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
    CHECK(rondo_pxn_carried(&r->net) == slices);
}

/* Bytes leave through the relay's NIC, from its GPU, but for those of ranks that have their own way. */
static inline void body_through(struct world *w, struct rank *r)
{
    int carried = 0;
    (void)w;
    for (int i = 0; i < r->nends; i++) {
        if (r->ends[i].link.is_send) {
            check_conn(r, &r->ends[i]);
        }
    }
    for (int from = 1; from < TO; from++) {
        carried += shared->own[from] ? 0 : CHANNELS * (FEW + 1); /* and the hello */
    }
    stream(r, r->ends, r->nends, FEW);
    if (r->net.rank == RELAY && carried > 0) {
        check_carried(r, (uint64_t)carried);
    }
}

#endif
