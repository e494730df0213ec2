/* PXN: conns that leave by a NIC through another GPU of the node (pxn_world.h). Relays and senders die,
 * leave, fail, or write nonsense. */
#include "pxn_world.h"

#include "faults.h"
#include "base/process.h"

/* Do not wait for slices of rank 2. */
static void forget_rank_2(struct rank *r)
{
    for (int i = 0; i < r->nends; i++) {
        r->ends[i].link.conn.wanted &= r->ends[i].link.peer != 2;
    }
}

static int is_of_rank_1(const struct rank *r, const struct end *end)
{
    return r->net.rank == 1 || (r->net.rank == TO && end->link.peer == 1);
}

static void rank_1_goes_on(struct rank *r)
{
    for (int i = 0; i < r->nends; i++) {
        if (is_of_rank_1(r, &r->ends[i])) {
            stream(r, &r->ends[i], 1, FEW);
        }
    }
}

/* Post slices and make progress until it fails; without posts, only make progress. */
static rondo_status progress_until_error(struct rank *r, int posts)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    rondo_status status = RONDO_SUCCESS;
    while (status == RONDO_SUCCESS) {
        int moved = 0;
        for (int i = 0; posts && i < r->nends; i++) {
            (void)stream_slice(r, &r->ends[i]);
        }
        status = rondo_net_progress(&r->net, &moved);
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
    return status;
}

/* ---- processes that end ---- */

/* Rank 2 dies after the relay's rank has left. The relay goes on for rank 1, and ends when rank 1 does. */
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
    rank_1_goes_on(r);
    pthread_barrier_wait(&shared->survivors);
    rank_close(r);
    pthread_exit(NULL); /* not through the barrier, because rank 2 does not come to it */
}

static void a_sender_that_dies_does_not_block_its_relay(void **state)
{
    (void)state;
    run_it_in_processes(body_one_dies, 2);
}

/* Ranks 1 and 2 post slices, and the receiver takes none. The relay's rank has left in good order, and then
 * its process is killed. */
static void body_relay_dies(struct world *w, struct rank *r)
{
    static int past;
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
        __atomic_store_n(&past, 1, __ATOMIC_RELEASE); /* all have left the barrier, in which nobody may die */
        pause();
    }
    CHECK(progress_until_error(r, 1) == RONDO_REMOTE_ERROR);
    CHECK(strstr(rondo_error_text(), "through the GPU of rank 0: its process, ") != NULL);
    CHECK(strstr(rondo_error_text(), "RONDO_PXN_DISABLE") != NULL);
    rank_close(r);
    pthread_exit(NULL);
}

static void a_relay_that_dies_after_it_left_is_an_error(void **state)
{
    uint32_t mask = rondo_log_mask;
    (void)state;
    rondo_log_mask = RONDO_LOG_NONE;
    run_it_in_processes(body_relay_dies, RELAY);
    rondo_log_mask = mask;
}

/* Registered after the library's own exit handler, and so called before it: nothing is sent before exit(). */
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
    if (r->net.rank != TO) {
        rank_close(r);
    } else { /* its process ends here without joining this thread */
        pthread_detach(pthread_self());
    }
    pthread_exit(NULL);
}

static void a_process_exits_when_its_relay_has_sent_all(void **state)
{
    (void)state;
    run_it_in_processes(body_relay_exits, -1);
}

/* A process is still known as dead when another one has got its pid. */
static void processes_are_known_by_their_start_time(void **state)
{
    struct rondo_pxn_process self = { getpid(), rondo_process_start(getpid()) },
                             other = { getpid(), self.start + 1 };
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

/* Rank 2 gives up while its slices are on their way. Rank 1 goes on. */
static void body_sender_aborts(struct world *w, struct rank *r)
{
    (void)w;
    forget_rank_2(r);
    pthread_barrier_wait(&shared->together);
    for (int i = 0; i < r->nends; i++) {
        struct end *end = &r->ends[i];
        if (r->net.rank == 2) {
            for (int k = 0; k < RONDO_SLOTS; k++) {
                CHECK(stream_slice(r, end));
            }
            rondo_link_close(&r->net, &end->link);
        } else if (is_of_rank_1(r, end)) {
            stream(r, end, 1, FEW);
        }
    }
}

static void a_sender_that_gives_up_does_not_stop_others(void **state)
{
    (void)state;
    run_it(pxn_new(0), body_sender_aborts);
}

/* When the relay's comm dies, its senders get the error in the device's words. */
static void body_error(struct world *w, struct rank *r)
{
    (void)w;
    if (r->net.rank != RELAY && r->net.rank != TO) {
        CHECK(progress_until_error(r, 1) == RONDO_REMOTE_ERROR);
        CHECK(strstr(rondo_error_text(), "through the GPU of rank 0: ") != NULL &&
              strstr(rondo_error_text(), "by RONDO_NET_FAULT") != NULL);
    }
}

static void senders_get_the_errors_of_their_relays_nic(void **state)
{
    uint32_t mask = rondo_log_mask;
    (void)state;
    needs_faults();
    set("RONDO_NET_FAULT", "die=5,rank=0");
    rondo_log_mask = RONDO_LOG_NONE; /* set() has loaded it from the parameters */
    run_it(pxn_new(0), body_error);
    set("RONDO_NET_FAULT", NULL);
    rondo_log_mask = mask;
}

/* ---- a relay checks what senders write ---- */

enum { TAIL, SIZE, NO_END, SCRIBBLES };
static int scribble;

/* Ask the relay to send more slices than there are slots, or one that is longer than its slot. It must report
 * this and send nothing. */
static void post_nonsense(struct rank *r)
{
    struct rondo_conn *conn = &r->ends[0].link.conn;
    uint32_t bytes = conn->slot_bytes[RONDO_PROTO_SIMPLE] + (scribble == SIZE ? 1u << 20 : 0);
    for (uint64_t i = 0; i < RONDO_SLOTS; i++) {
        conn->tail->size[i] = rondo_conn_size(conn->step + i, RONDO_PROTO_SIMPLE, bytes);
    }
    __atomic_store_n(&conn->tail->tail, conn->step + (scribble == TAIL ? RONDO_SLOTS + 1 : 1),
                     __ATOMIC_RELEASE);
    (void)progress_until_error(r, 0);
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

/* Close all ends, and wait until the relay has given up their objects. */
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

/* Rank 2 writes nonsense, or asks to connect ends that it has closed. Rank 1 goes on. */
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
    rank_1_goes_on(r);
    pthread_barrier_wait(&shared->together);
    if (shm.base != NULL) {
        rank_2_says(&shm, RONDO_PXN_GONE);
        rondo_shm_close(&shm);
    }
}

static void nonsense_from_senders_is_refused(void **state)
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

/* ---- senders check what a relay writes ---- */

static void set_offsets(struct rondo_pxn_header *header, uint64_t offset)
{
    for (int i = 0; i < CELLS; i++) {
        header->cell[i].offset = offset;
    }
}

/* Damage what the relay has written. Its thread runs, but nobody uses it. */
static void damage(struct world *w, struct rank *r)
{
    static int lives;
    ways_and_relays(w, r);
    if (r->net.rank == RELAY) {
        struct rondo_net_state *state = rondo_transport_state(&r->net, &rondo_transport_net);
        struct rondo_shm shm = { 0 };
        CHECK(state->pxn->relay != NULL);
        CHECK_OK(rondo_shm_open(&shm, &shared->relay[RELAY]));
        struct rondo_pxn_header *header = (struct rondo_pxn_header *)(void *)shm.base;
        switch (lives++) {
        case 0: header->magic++; break;
        case 1: header->ncells = 1 << 20; break;
        case 2: header->bytes++; break;
        case 3: header->block.kind = RONDO_NUM_GPU_KINDS; break;
        case 4: set_offsets(header, 0); break;
        default:
            for (int i = 0; i < CELLS; i++) {
                header->cell[i].offset = lives == 6 ? shm.size : header->cell[i].offset + 1;
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

/* ---- driver calls that fail ---- */

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

static struct world *threads_new(void) { return pxn_new(0); }

static void close_all(struct world *w)
{
    ranks_close(w);
    pxn_free(w);
}

static void driver_calls_that_fail_leave_nothing(void **state)
{
    (void)state;
    fail_each_call(threads_new, try_to_connect, close_all);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_sender_that_dies_does_not_block_its_relay),
        TEST(a_relay_that_dies_after_it_left_is_an_error),
        TEST(a_process_exits_when_its_relay_has_sent_all),
        TEST(processes_are_known_by_their_start_time),
        TEST(a_relay_that_leaves_first_sends_until_its_senders_leave),
        TEST(a_sender_that_gives_up_does_not_stop_others),
        TEST(senders_get_the_errors_of_their_relays_nic),
        TEST(nonsense_from_senders_is_refused),
        TEST(damaged_cells_are_not_used),
        TEST(driver_calls_that_fail_leave_nothing),
    };
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    choose_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
