/*
 * Conns that leave by a card through another GPU of the node (net/pxn.h), over the cards of fake_verbs.h and the tests' CUDA driver. Ranks 0, 1 and 2 are a node: only the GPU of rank 0 is near the card.
 * Rank 3 is another node: 2 sends to it (RING), and so does 1 (DOWN), on each channel.
 * TSan does not see that a tail orders the slots where the two sides have mapped its segment each for itself: it wants race:store_in_order suppressed.
 */
#include "card_world.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "net/control.h"
#include "net/pxn_impl.h"

enum { NEAR = 1 << RONDO_GDR_READ | 1 << RONDO_GDR_WRITE, RANKS = 4, RELAY = 0, TO = 3, CELLS = 2 * CHANNELS };

static const char card_name[] = "fake0:2";
static struct rondo_card card_of[RANKS];
static int local_index[2][RANKS] = { { 0, 1, 2, -1 }, { -1, -1, -1, 0 } }, to_alone[] = { TO };
static const struct rondo_relayed through[CELLS] = {
    { 1, TO, 0, card_name }, { 2, TO, 0, card_name }, { 1, TO, 1, card_name }, { 2, TO, 1, card_name }
};

/* Forked ranks share it. */
static struct shared {
    struct rondo_shm_name relay[RANKS];
    int offers;                            /* the relay does */
    int staged;                            /* slots are expected in host memory */
    int own[RANKS];                        /* this rank is expected to go by its own way */
    pthread_barrier_t together, survivors; /* all; all but one */
} * shared;

static void two_nodes(struct world *w, struct rank *r)
{
    int rank = r->net.rank, apart = rank == TO;
    rondo_log_set_rank(rank); /* who is meant by RONDO_NET_FAULT */
    gpus_before(w, r);
    r->net.nlocal = apart ? 1 : 3;
    r->net.local_rank = apart ? 0 : rank;
    r->net.local_of = local_index[apart];
    r->net.local_ranks = apart ? to_alone : w->index;
    r->net.cards = &card_of[rank];
    r->net.ncards = 1;
    r->net.relays = shared->relay;
}

static void relays(struct rank *r)
{
    if (r->net.rank == RELAY && shared->offers) {
        rondo_net_relay(&r->net, through, CELLS, r->world->protos, &shared->relay[RELAY]);
    }
}

static void ways_and_relays(struct world *w, struct rank *r)
{
    rondo_net_gpu(&r->net, &gpus->name[r->net.rank]);
    pthread_barrier_wait(&w->barrier);
    check_until_done(r);
    pthread_barrier_wait(&w->barrier);
    relays(r);
    pthread_barrier_wait(&w->barrier);
}

static rondo_status offers(struct world *w, int rank)
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

static struct world *pxn_new(int processes)
{
    struct world *w = gpus_new(RANKS, RANKS, RONDO_WAY_WRITE, processes);
    pthread_barrierattr_t attr;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->together, &attr, RANKS);
    pthread_barrier_init(&shared->survivors, &attr, RANKS - 1);
    pthread_barrierattr_destroy(&attr);
    shared->offers = 1;
    w->net_name = card_name;
    w->before = two_nodes;
    w->between = ways_and_relays;
    w->offer = offers;
    rondo_netdev_hold(); /* as a communicator does: it is not the relays that end them */
    for (int i = 0; i < RANKS; i++) {
        w->peers[i].host_hash += i == TO;
        w->node_of[i] = i == TO;
        CHECK_OK(rondo_netdev_mask(&w->peers[i].netdevs, NULL, 0));
        card_of[i] = (struct rondo_card){ .gdr = i == RELAY || i == TO ? NEAR : 0, .relay = i == 1 || i == 2 ? 1 + RELAY : 0 };
        snprintf(card_of[i].name, sizeof(card_of[i].name), "%s", card_name);
    }
    return w;
}

static void wait_for_relays(void)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    while (rondo_pxn_relays() > 0) {
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
}

static void pxn_free(struct world *w)
{
    pthread_barrier_destroy(&shared->together);
    pthread_barrier_destroy(&shared->survivors);
    munmap(shared, sizeof(*shared));
    gpus_free(w);
    wait_for_relays();
    rondo_netdev_finalize();
}

/* ---- bytes leave through the relay's card, from its GPU ---- */

static void check_conn(const struct rank *r, const struct end *end)
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

static void check_carried(const struct rank *r, uint64_t slices)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    while (rondo_pxn_carried(&r->net) < slices) {
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
    CHECK(rondo_pxn_carried(&r->net) == slices);
}

static void body_through(struct world *w, struct rank *r)
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

static void run_it(struct world *w, void (*body)(struct world *w, struct rank *r))
{
    w->body = body;
    run_threads(w);
    pxn_free(w);
    all_is_given_back();
}

static void slices_leave_from_the_gpu_next_to_the_card(void **state)
{
    (void)state;
    run_it(pxn_new(0), body_through);
}

static void cards_that_take_no_gpu_memory_send_from_the_relays_segment(void **state)
{
    struct world *w;
    (void)state;
    set("RONDO_DMABUF_ENABLE", "0");
    w = pxn_new(0);
    shared->staged = 1;
    run_it(w, body_through);
    set("RONDO_DMABUF_ENABLE", NULL);
}

/* When the sender has been promised its cell already; the one registration of the relay's that is refused is enough for all its conns. */
static void memory_that_the_card_refuses_is_the_segments(void **state)
{
    struct world *w = pxn_new(0);
    uint32_t mask = rondo_log_mask;
    (void)state;
    rondo_log_mask = RONDO_LOG_NONE;
    card_of[TO].gdr = 0; /* its registrations do not count */
    fake.fail_dmabuf_in = 1;
    fake.fail_errno = EINVAL;
    shared->staged = 1;
    run_it(w, body_through);
    rondo_log_mask = mask;
}

static void late_and_busy_devices_lose_nothing(void **state)
{
    (void)state;
    set("RONDO_NET_FAULT", "seed=7,late=3,again=2,connect=5");
    run_it(pxn_new(0), body_through);
    set("RONDO_NET_FAULT", NULL);
}

/* ---- between processes: the receiver's is the relay's, as cards of the tests do not leave a process ---- */

static void group_lives(struct world *w, const int *ranks, int n)
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
static void run_processes_of(struct world *w, int killed)
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
        CHECK(i == killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void processes_send_through_the_gpu_of_another_one(void **state)
{
    static const char *const no_vmm[] = { "0", "1" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        setenv("FAKE_CUDA_NO_VMM", no_vmm[i], 1);
        struct world *w = pxn_new(1);
        w->body = body_through;
        run_processes_of(w, -1);
        pxn_free(w);
    }
    unsetenv("FAKE_CUDA_NO_VMM");
}

/* Nobody waits for what it sends. */
static void forget_rank_2(struct rank *r)
{
    for (int i = 0; i < r->nends; i++) {
        r->ends[i].link.conn.wanted &= r->ends[i].link.peer != 2;
    }
}

/* Rank 2 dies: the relay has left, goes on for rank 1, and ends when that one does. */
static void body_one_dies(struct world *w, struct rank *r)
{
    (void)w;
    forget_rank_2(r);
    pthread_barrier_wait(&shared->together);
    if (r->net.rank == 2) {
        kill(getpid(), SIGKILL);
    }
    if (r->net.rank == RELAY) {
        rondo_net_close(&r->net);
        CHECK(rondo_pxn_relays() == 1);
    }
    for (int i = 0; i < r->nends; i++) {
        if (r->net.rank == 1 || (r->net.rank == TO && r->ends[i].link.peer == 1)) {
            stream(r, &r->ends[i], 1, FEW);
        }
    }
    pthread_barrier_wait(&shared->survivors);
    rank_close(r);
    pthread_exit(NULL); /* without the barrier to which rank 2 does not come */
}

static void a_sender_that_dies_holds_no_relay(void **state)
{
    struct world *w = pxn_new(1);
    (void)state;
    w->body = body_one_dies;
    run_processes_of(w, 2);
    pxn_free(w);
}

/* Slices of rank 1 and 2 are posted, and the receiver takes none, until their relay's process, which has left in order, is no more. */
static void body_relay_dies(struct world *w, struct rank *r)
{
    static int past;
    int64_t late = rondo_now_ns() + deadline_ns;
    rondo_status status = RONDO_SUCCESS;
    (void)w;
    if (r->net.rank == RELAY) {
        rondo_net_close(&r->net);
    }
    pthread_barrier_wait(&shared->together);
    while (r->net.rank == RELAY && !__atomic_load_n(&past, __ATOMIC_ACQUIRE)) {
        sched_yield();
    }
    if (r->net.rank == RELAY) {
        kill(getpid(), SIGKILL);
    }
    while (r->net.rank == TO) {
        __atomic_store_n(&past, 1, __ATOMIC_RELEASE); /* the barrier: who dies in it can never leave it */
        pause();
    }
    while (status == RONDO_SUCCESS) {
        int moved = 0;
        for (int i = 0; i < r->nends; i++) {
            (void)stream_turn(r, &r->ends[i]);
        }
        status = rondo_net_turn(&r->net, &moved);
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
    CHECK(status == RONDO_REMOTE_ERROR && strstr(rondo_error_text(), "through the GPU of rank 0: its process, ") != NULL);
    CHECK(strstr(rondo_error_text(), "RONDO_PXN_DISABLE") != NULL);
    rank_close(r);
    pthread_exit(NULL);
}

static void a_relay_that_dies_after_it_left_is_an_error(void **state)
{
    struct world *w = pxn_new(1);
    uint32_t mask = rondo_log_mask;
    (void)state;
    rondo_log_mask = RONDO_LOG_NONE;
    w->body = body_relay_dies;
    run_processes_of(w, 0);
    pxn_free(w);
    rondo_log_mask = mask;
}

/* Before the library's own wait, as it is registered later: nothing is sent before the process exits. */
static void exits(void) { pthread_barrier_wait(&shared->together); }

static void body_relay_exits(struct world *w, struct rank *r)
{
    (void)w;
    if (r->net.rank == RELAY) {
        rondo_net_close(&r->net);
        CHECK(rondo_pxn_relays() == 1 && atexit(exits) == 0);
        exit(0);
    }
    pthread_barrier_wait(&shared->together);
    stream(r, r->ends, r->nends, FEW);
    if (r->net.rank != TO) { /* that one's process ends here */
        rank_close(r);
    }
    pthread_exit(NULL);
}

static void a_process_exits_when_its_relay_has_sent_all(void **state)
{
    struct world *w = pxn_new(1);
    (void)state;
    w->body = body_relay_exits;
    run_processes_of(w, -1);
    pxn_free(w);
}

/* A pid that another process has got. */
static void processes_are_known_by_their_start(void **state)
{
    struct rondo_pxn_process self = { getpid(), rondo_process_start(getpid()) }, other = { getpid(), self.start + 1 };
    pid_t child = fork();
    (void)state;
    if (child == 0) {
        _exit(0);
    }
    struct rondo_pxn_process ended = { child, 0 };
    siginfo_t info;
    assert_true(child > 0 && self.start != 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_false(rondo_pxn_is_dead(&self));
    assert_true(rondo_pxn_is_dead(&other));
    assert_true(rondo_pxn_is_dead(&ended));
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* ---- relays and senders that leave ---- */

static void body_relay_leaves_first(struct world *w, struct rank *r)
{
    (void)w;
    if (r->net.rank == RELAY) {
        rondo_net_close(&r->net);
        CHECK(rondo_pxn_relays() == 1);
    }
    pthread_barrier_wait(&shared->together);
    stream(r, r->ends, r->nends, FEW);
}

static void a_relay_that_leaves_first_sends_until_its_senders_leave(void **state)
{
    (void)state;
    run_it(pxn_new(0), body_relay_leaves_first);
}

/* Rank 2 gives up with slices on their way; rank 1 goes on. */
static void body_sender_aborts(struct world *w, struct rank *r)
{
    (void)w;
    forget_rank_2(r);
    pthread_barrier_wait(&shared->together);
    for (int i = 0; i < r->nends; i++) {
        struct end *end = &r->ends[i];
        if (r->net.rank == 2) {
            for (int k = 0; k < RONDO_SLOTS; k++) {
                CHECK(stream_turn(r, end));
            }
            rondo_link_close(&r->net, &end->link);
        } else if (r->net.rank == 1 || (r->net.rank == TO && end->link.peer == 1)) {
            stream(r, end, 1, FEW);
        }
    }
}

static void a_sender_that_gives_up_takes_nobody_along(void **state)
{
    (void)state;
    run_it(pxn_new(0), body_sender_aborts);
}

/* Until the relay's comm dies: who sends through it learns so, in the device's words. */
static void body_error(struct world *w, struct rank *r)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    rondo_status status = RONDO_SUCCESS;
    (void)w;
    while (status == RONDO_SUCCESS && r->net.rank != RELAY && r->net.rank != TO) {
        int moved = 0;
        for (int i = 0; i < r->nends; i++) {
            (void)stream_turn(r, &r->ends[i]);
        }
        status = rondo_net_turn(&r->net, &moved);
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
    CHECK(r->nends == 0 || r->net.rank == TO ||
          (status == RONDO_REMOTE_ERROR && strstr(rondo_error_text(), "through the GPU of rank 0: ") != NULL &&
           strstr(rondo_error_text(), "on purpose") != NULL));
}

static void errors_of_a_relays_card_are_the_senders(void **state)
{
    uint32_t mask = rondo_log_mask;
    (void)state;
    set("RONDO_NET_FAULT", "die=5,rank=0");
    rondo_log_mask = RONDO_LOG_NONE; /* the parameters had set it */
    run_it(pxn_new(0), body_error);
    set("RONDO_NET_FAULT", NULL);
    rondo_log_mask = mask;
}

/* ---- what senders write is not believed ---- */

enum { TAIL, SIZE, NO_END, SCRIBBLES };
static int scribble;

/* More slices than there are slots, or one that is longer than its slot, for the relay to send: it says so, and sends nothing. */
static void post_nonsense(struct rank *r)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    struct rondo_conn *conn = &r->ends[0].link.conn;
    uint32_t bytes = conn->slot_bytes[RONDO_PROTO_SIMPLE] + (scribble == SIZE ? 1u << 20 : 0);
    rondo_status status = RONDO_SUCCESS;
    for (uint64_t i = 0; i < RONDO_SLOTS; i++) {
        conn->tail->size[i] = rondo_conn_size(conn->step + i, RONDO_PROTO_SIMPLE, bytes);
    }
    __atomic_store_n(&conn->tail->tail, conn->step + (scribble == TAIL ? RONDO_SLOTS + 1 : 1), __ATOMIC_RELEASE);
    while (status == RONDO_SUCCESS) {
        int moved = 0;
        status = rondo_net_turn(&r->net, &moved);
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
    CHECK(strstr(rondo_error_text(), "is damaged") != NULL);
}

static void rank_2_says(const struct rondo_shm *shm, uint32_t sender)
{
    struct rondo_pxn_header *header = (struct rondo_pxn_header *)(void *)shm->base;
    for (int i = 0; i < CELLS; i++) {
        if (header->cell[i].from == 2) {
            rondo_pxn_store(&header->cell[i].relay, RONDO_PXN_OFFERED);
            rondo_pxn_store(&header->cell[i].sender, sender);
        }
    }
    rondo_pxn_ring(header);
}

/* Once the relay has let go of them. */
static void close_ends(struct rank *r)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    long before = (long)fake_verbs_objects();
    for (int i = 0; i < r->nends; i++) {
        rondo_link_close(&r->net, &r->ends[i].link);
    }
    while ((long)fake_verbs_objects() >= before) {
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
}

/* Rank 2 does, and rank 1 goes on; nor has an end that is gone to be connected. */
static void body_scribbles(struct world *w, struct rank *r)
{
    struct rondo_shm shm = { 0 };
    (void)w;
    forget_rank_2(r);
    pthread_barrier_wait(&shared->together);
    if (r->net.rank == 2 && scribble != NO_END) {
        post_nonsense(r);
    } else if (r->net.rank == 2) {
        close_ends(r);
        CHECK_OK(rondo_shm_open(&shm, &shared->relay[RELAY]));
        rank_2_says(&shm, RONDO_PXN_CONNECT);
    }
    pthread_barrier_wait(&shared->together);
    for (int i = 0; i < r->nends; i++) {
        if (r->net.rank == 1 || (r->net.rank == TO && r->ends[i].link.peer == 1)) {
            stream(r, &r->ends[i], 1, FEW);
        }
    }
    pthread_barrier_wait(&shared->together);
    if (shm.base != NULL) {
        rank_2_says(&shm, RONDO_PXN_GONE);
        rondo_shm_close(&shm);
    }
}

static void what_senders_write_is_not_believed(void **state)
{
    uint32_t mask = rondo_log_mask;
    (void)state;
    for (scribble = 0; scribble < SCRIBBLES; scribble++) {
        struct world *w = pxn_new(0);
        rondo_log_mask = RONDO_LOG_NONE;
        run_it(w, body_scribbles);
    }
    rondo_log_mask = mask;
}

/* What it sends for others goes by its own card, also when the topology would have that one reached through another GPU. */
static void a_relays_own_net_is_not_relayed(void **state)
{
    struct world *w = pxn_new(0);
    (void)state;
    card_of[RELAY].relay = 1 + 1;
    run_it(w, body_through);
}

/* ---- without a relay: by the own way ---- */

static void a_rank_without_relay_goes_by_its_own_way(void **state)
{
    struct world *w;
    (void)state;
    w = pxn_new(0);
    shared->own[1] = shared->own[2] = 1;
    shared->offers = 0;
    run_it(w, body_through);
    w = pxn_new(0); /* a way that the check has broken: the relay's cells for it stay free */
    shared->own[1] = 1;
    gpus->way[1][RELAY] = RONDO_WAY_NONE;
    run_it(w, body_through);
}

static void set_offsets(struct rondo_pxn_header *header, uint64_t offset)
{
    for (int i = 0; i < CELLS; i++) {
        header->cell[i].offset = offset;
    }
}

/* What no relay has written: the relay's thread is there, and nobody uses it. */
static void damage(struct world *w, struct rank *r)
{
    static int turn;
    ways_and_relays(w, r);
    if (r->net.rank == RELAY) {
        struct rondo_net_state *state = rondo_transport_state(&r->net, &rondo_transport_net);
        struct rondo_shm shm = { 0 };
        CHECK(state->pxn->relay != NULL);
        CHECK_OK(rondo_shm_open(&shm, &shared->relay[RELAY]));
        struct rondo_pxn_header *header = (struct rondo_pxn_header *)(void *)shm.base;
        switch (turn++) {
        case 0: header->magic++; break;
        case 1: header->ncells = 1 << 20; break;
        case 2: header->bytes++; break;
        case 3: header->block.kind = RONDO_NUM_GPU_KINDS; break;
        case 4: set_offsets(header, 0); break;
        default:
            for (int i = 0; i < CELLS; i++) {
                header->cell[i].offset = turn == 6 ? shm.size : header->cell[i].offset + 1;
                header->cell[i].slots = header->block.bytes;
            }
        }
        rondo_shm_close(&shm);
    }
    pthread_barrier_wait(&w->barrier);
}

static void damaged_cells_are_not_used(void **state)
{
    (void)state;
    for (int i = 0; i < 7; i++) {
        struct world *w = pxn_new(0);
        shared->own[1] = shared->own[2] = 1;
        w->between = damage;
        run_it(w, body_through);
    }
}

/* ---- each call of the driver in turn: it goes on, or ends with nothing left ---- */

static rondo_status try_to_connect(struct world *w)
{
    rondo_status status = RONDO_IN_PROGRESS;
    int64_t late = rondo_now_ns() + deadline_ns;
    for (int i = 0; i < RANKS; i++) {
        rondo_log_set_rank(i);
        RONDO_TRY(rank_open(w, i, MAX_LINKS));
        rondo_net_gpu(&w->rank[i].net, &gpus->name[i]);
    }
    relays(&w->rank[RELAY]);
    for (int i = 0; i < RANKS; i++) {
        RONDO_TRY(offers(w, i));
    }
    while (status == RONDO_IN_PROGRESS) {
        status = RONDO_SUCCESS;
        for (int i = 0; i < RANKS; i++) {
            rondo_status one = rank_connect(w, i);
            if (one != RONDO_SUCCESS && one != RONDO_IN_PROGRESS) {
                return one;
            }
            status = one == RONDO_IN_PROGRESS ? one : status;
        }
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
    return status;
}

static void calls_of_the_driver_that_fail_leave_nothing(void **state)
{
    int goes_on = 0, ends = 0, n = 0, called = 1;
    uint32_t mask = rondo_log_mask;
    (void)state;
    rondo_log_mask = RONDO_LOG_NONE;
    while (called) {
        struct world *w = pxn_new(0);
        driver.calls = 0;
        driver.fail_at = ++n;
        rondo_status status = try_to_connect(w);
        driver.fail_at = 0;
        called = driver.calls >= n;
        goes_on += called && status == RONDO_SUCCESS;
        ends += called && status != RONDO_SUCCESS;
        close_by_turns(w);
        pxn_free(w);
        all_is_given_back();
    }
    rondo_log_mask = mask;
    assert_true(goes_on > 0 && ends > 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(slices_leave_from_the_gpu_next_to_the_card),
        TEST(cards_that_take_no_gpu_memory_send_from_the_relays_segment),
        TEST(memory_that_the_card_refuses_is_the_segments),
        TEST(late_and_busy_devices_lose_nothing),
        TEST(processes_send_through_the_gpu_of_another_one),
        TEST(a_sender_that_dies_holds_no_relay),
        TEST(a_relay_that_dies_after_it_left_is_an_error),
        TEST(a_process_exits_when_its_relay_has_sent_all),
        TEST(processes_are_known_by_their_start),
        TEST(a_relay_that_leaves_first_sends_until_its_senders_leave),
        TEST(a_sender_that_gives_up_takes_nobody_along),
        TEST(errors_of_a_relays_card_are_the_senders),
        TEST(what_senders_write_is_not_believed),
        TEST(a_relays_own_net_is_not_relayed),
        TEST(a_rank_without_relay_goes_by_its_own_way),
        TEST(damaged_cells_are_not_used),
        TEST(calls_of_the_driver_that_fail_leave_nothing),
    };
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    choose_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
