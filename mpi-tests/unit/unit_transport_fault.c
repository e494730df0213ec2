/* Transports with faults: hostile records, limits of files and memory, ranks that leave half-way. */
#include "transport_world.h"
#include "../holdings.h"

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Read both ends of the slots and the line. This faults if a pointer from the peer's record lies outside of
 * the peer's memory. */
static void touch(const struct rondo_conn *conn, uint64_t size)
{
    volatile uint64_t sum = conn->tail->tail + conn->head->head;

    assert_true(size > 0);
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        sum += conn->slots[p][0] + conn->slots[p][RONDO_SLOTS * conn->slot_bytes[p] - 1];
    }
}

static rondo_status connect_with(struct world *w, const struct end *end, const struct rondo_connect *record)
{
    struct rondo_link link = end->link; /* the original keeps the state */
    rondo_status status = rondo_link_connect(&w->rank[0].net, &link, record);

    if (status == RONDO_SUCCESS) {
        touch(&link.conn, w->arenas[1].size);
    }
    return status;
}

static void hostile_records_are_refused(void **state)
{
    enum { NONCE, LINE, SLOTS, SLOTS_BYTES };                  /* 8-byte words of a shm record */
    struct world *w = world_new(2, RONDO_SHM_MODE_FILE, 1024); /* so records say where slots are */
    uint32_t mask = rondo_log_mask;
    uint64_t word[RONDO_CONNECT_DATA / 8];
    (void)state;

    rondo_log_mask = RONDO_LOG_NONE;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rank_open(w, i, MAX_LINKS), RONDO_SUCCESS);
        assert_int_equal(rank_offer(w, i), RONDO_SUCCESS);
    }
    const struct rank *r = &w->rank[0];
    const uint64_t size = w->arenas[1].size;
    const uint64_t offsets[] = { 0,
                                 64,
                                 128,
                                 size,
                                 size - 64,
                                 size - 8 * 1024,
                                 UINT64_MAX,
                                 UINT64_MAX - 127,
                                 UINT64_MAX - 8 * 1024 + 1,
                                 1ull << 63 };
    for (int e = 0; e < r->nends; e++) {
        const struct end *end = &r->ends[e];
        const struct rondo_connect good = *record_of(w, r, end);
        struct rondo_connect bad = good;
        assert_int_equal(connect_with(w, end, &good), RONDO_SUCCESS);
        memset(&bad, 0, sizeof(bad));
        assert_int_equal(connect_with(w, end, &bad), RONDO_INTERNAL_ERROR);
        for (int k = 0; k < 4; k++) {
            bad = good;
            bad.transport += k == 0;
            bad.is_send ^= k == 1;
            bad.channel += k == 2;
            bad.peer += k == 3;
            assert_int_equal(connect_with(w, end, &bad), RONDO_INTERNAL_ERROR);
        }
        for (int k = NONCE; k <= SLOTS_BYTES; k++) {
            for (size_t o = 0; o < RONDO_COUNTOF(offsets); o++) {
                if ((k == SLOTS && !end->link.is_send) || (k == LINE && offsets[o] == size - 8 * 1024)) {
                    continue; /* nobody reads the first; the second lies inside, though it is no line */
                }
                bad = good;
                memcpy(word, bad.data, sizeof(word));
                word[k] = k == SLOTS_BYTES && !end->link.is_send && offsets[o] == 0 ? 1 : offsets[o];
                memcpy(bad.data, word, sizeof(word));
                assert_int_equal(connect_with(w, end, &bad), RONDO_INTERNAL_ERROR);
            }
        }
    }
    rondo_log_mask = mask;
    ranks_close(w);
    world_free(w);
}

static void foreign_arenas_are_refused(void **state)
{
    /* 4-byte words of an arena's header: whoever maps the arena checks each, alone or with the record. */
    enum { HEADER_WORDS = 13 };
    struct world *w = world_new(3, RONDO_SHM_MODE_MEMFD, 1024);
    uint32_t mask = rondo_log_mask;
    struct rondo_shm peer;
    (void)state;

    rondo_log_mask = RONDO_LOG_NONE;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rank_open(w, i, MAX_LINKS), RONDO_SUCCESS);
        assert_int_equal(rank_offer(w, i), RONDO_SUCCESS);
    }
    struct rank *r = &w->rank[0];
    struct end *end = &r->ends[1]; /* to rank 1 */
    struct rondo_shm_name name = w->arenas[1];
    w->arenas[1] = w->arenas[2];
    assert_int_equal(rondo_link_connect(&r->net, &end->link, record_of(w, r, end)), RONDO_INTERNAL_ERROR);
    w->arenas[1] = name;
    assert_int_equal(rondo_shm_open(&peer, &name), RONDO_SUCCESS);
    for (int i = 0; i < HEADER_WORDS; i++) {
        /* The nonce comes last: it is checked only with the record, and the mapping stays until then. */
        int k = i < 4 ? i : i < HEADER_WORDS - 2 ? i + 2 : i - (HEADER_WORDS - 2) + 4;
        ((uint32_t *)peer.base)[k] ^= 1u << 31;
        assert_int_equal(rondo_link_connect(&r->net, &end->link, record_of(w, r, end)), RONDO_INTERNAL_ERROR);
        ((uint32_t *)peer.base)[k] ^= 1u << 31;
    }
    rondo_shm_close(&peer);
    rondo_log_mask = mask;
    ranks_close(w);
    world_free(w);
}

static void random_records_never_point_outside(void **state)
{
    struct world *w = world_new(2, RONDO_SHM_MODE_FILE, 128);
    unsigned seed = (unsigned)rondo_now_ns();
    uint32_t mask = rondo_log_mask;
    int accepted = 0;
    (void)state;

    print_message("seed %u\n", seed);
    rondo_log_mask = RONDO_LOG_NONE;
    ranks_connect(w);
    for (int i = 0; i < 20000; i++) {
        struct rank *r = &w->rank[0];
        struct end *end = &r->ends[rand_r(&seed) % (unsigned)r->nends];
        struct rondo_connect record = *record_of(w, r, end);
        for (int k = rand_r(&seed) % 4; k > 0; k--) {
            ((uint8_t *)&record)[rand_r(&seed) % 56] ^= (uint8_t)(1u << rand_r(&seed) % 8);
        }
        end->link.connected = 0;
        accepted += connect_with(w, end, &record) == RONDO_SUCCESS;
        end->link.connected = 1;
    }
    assert_in_range(accepted, 1000, 19000);
    rondo_log_mask = mask;
    ranks_close(w);
    world_free(w);
}

static void links_over_the_announced_number_are_refused(void **state)
{
    struct world *w = world_new(2, RONDO_SHM_MODE_MEMFD, 128);
    struct rank *r = &w->rank[0];
    uint32_t mask = rondo_log_mask;
    (void)state;

    rondo_log_mask = RONDO_LOG_NONE;
    assert_int_equal(rank_open(w, 0, 3), RONDO_SUCCESS);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(offer_one(w, r, RING, 0, 1, 0), RONDO_SUCCESS);
    }
    assert_int_equal(offer_one(w, r, RING, 0, 1, 0), RONDO_INTERNAL_ERROR);
    assert_null(r->ends[3].link.state);
    assert_int_equal(offer_one(w, r, RING, 0, 1, 1), RONDO_INTERNAL_ERROR);
    assert_int_equal(
        rondo_link_offer(&r->net, &r->ends[3].link, 2, 0, 1, 4, NULL, &w->records[0][0][0][0][0]),
        RONDO_INTERNAL_ERROR);
    assert_int_equal(
        rondo_link_offer(&r->net, &r->ends[3].link, -1, 0, 1, 4, NULL, &w->records[0][0][0][0][0]),
        RONDO_SUCCESS);
    assert_int_equal(rondo_link_connect(&r->net, &r->ends[3].link, &w->records[0][0][0][0][0]),
                     RONDO_SUCCESS);
    assert_int_equal(r->ends[3].link.connected, 0);
    rondo_log_mask = mask;
    rank_close(r);
    world_free(w);
}

struct resources {
    struct holdings held;
    int names;
};

static struct resources resources_now(void)
{
    char own[32]; /* other tests run at the same time, so the name is our own */
    snprintf(own, sizeof own, "rondo-%08x", (unsigned)getpid());
    return (struct resources){ holdings_now(), count_entries("/dev/shm", own) };
}

static void assert_resources(struct resources before)
{
    struct resources now = resources_now();

    assert_int_equal(now.held.fds, before.held.fds);
    assert_int_equal(now.held.shared, before.held.shared);
    assert_int_equal(now.names, before.names);
}

/* Some ranks finish, some close after the offers, and some fail to connect. */
static void a_hundred_connections_leave_nothing(void **state)
{
    uint32_t mask = rondo_log_mask;
    (void)state;

    for (size_t m = 0; m < RONDO_COUNTOF(modes); m++) {
        struct resources before = resources_now();
        for (int cycle = 0; cycle < 100; cycle++) {
            struct world *w = world_new(3, modes[m], 128);
            if (cycle % 4 == 0) {
                ranks_connect(w);
                struct resources open = resources_now();
                assert_int_equal(open.names, before.names); /* the net has settled */
                /* the ranks are one process, and files are no parts of its pool */
                assert_int_equal(open.held.fds - before.held.fds, modes[m] == RONDO_SHM_MODE_FILE ? 3 : 1);
            } else {
                for (int i = 0; i < 3; i++) {
                    assert_int_equal(rank_open(w, i, MAX_LINKS), RONDO_SUCCESS);
                    assert_int_equal(cycle % 4 > 1 ? rank_offer(w, i) : RONDO_SUCCESS, RONDO_SUCCESS);
                }
                if (cycle % 4 == 3) {
                    rondo_log_mask = RONDO_LOG_NONE;
                    memset(w->records[1], 0xff, sizeof(w->records[1]));
                    assert_int_equal(rank_connect(w, 0), RONDO_INTERNAL_ERROR);
                    rank_close(&w->rank[1]); /* the peer leaves, and its name with it */
                    assert_int_not_equal(rank_connect(w, 2), RONDO_SUCCESS);
                    rondo_log_mask = mask;
                    assert_int_equal(w->rank[0].ends[0].link.connected, 1);
                    memset(&w->rank[1], 0, sizeof(w->rank[1]));
                }
            }
            ranks_close(w);
            world_free(w);
        }
        assert_resources(before);
    }
}

/* Run body in a child. @return what body returned. */
static int in_child(int (*body)(void *arg), void *arg)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        alarm(60);
        _exit(body(arg));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int process_rank(void *arg)
{
    const struct thread_arg *a = arg;
    struct rlimit limit = { 64, 64 };

    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    a->w->peers[a->rank].pid = getpid();
    rank_live(a->w, a->rank);
    return 0;
}

static void eight_processes_with_64_files_connect(void **state)
{
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(modes); m++) {
        struct world *w = world_new(8, modes[m], 128);
        pid_t pid[8];
        w->body = m == 0 ? body_stream : body_lazy;
        for (int i = 0; i < 8; i++) {
            struct thread_arg arg = { w, i };
            if ((pid[i] = fork()) == 0) {
                alarm(60);
                _exit(process_rank(&arg));
            }
            assert_true(pid[i] > 0);
        }
        for (int i = 0; i < 8; i++) {
            int status;
            assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
            assert_int_equal(status, 0);
        }
        world_free(w);
    }
}

static int open_without_files(void *arg)
{
    struct rlimit limit = { 3, 3 };
    struct world *w = arg;

    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(rank_open(w, 0, MAX_LINKS) == RONDO_SYSTEM_ERROR);
    CHECK(w->rank[0].net.state[0] == NULL && strlen(rondo_error_text()) > 0);
    rank_close(&w->rank[0]);
    return 0;
}

static void running_out_of_files_is_a_system_error(void **state)
{
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(modes); m++) {
        struct world *w = world_new(2, modes[m], 128);
        assert_int_equal(in_child(open_without_files, w), 0);
        world_free(w);
    }
}

enum { NO_NAMESPACE = 77 };

/* In a container with a /dev/shm of 1 MiB, a big communicator fails, and a small one afterwards works. */
static int live_in_small_dev_shm(void *arg)
{
    struct world *big = arg, *small = world_new(2, RONDO_SHM_MODE_FILE, 1024);
    int offered = 0;
    rondo_status status = RONDO_SUCCESS;

    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0) {
        return NO_NAMESPACE;
    }
    CHECK_OK(rank_open(big, 0, MAX_LINKS));
    while (offered < CHANNELS &&
           (status = offer_one(big, &big->rank[0], RING, offered, 1, 0)) == RONDO_SUCCESS) {
        offered++;
    }
    CHECK(status == RONDO_SYSTEM_ERROR && offered == 1);
    CHECK(strstr(rondo_error_text(), "reserve 0.5 MiB") != NULL &&
          strstr(rondo_error_text(), "MiB free of 1.0 MiB") != NULL);
    for (int i = 0; i < offered; i++) { /* all memory that was given can be written */
        CHECK_OK(rank_open(big, 1, MAX_LINKS));
        CHECK_OK(offer_one(big, &big->rank[1], RING, 0, 0, 1));
        struct end *end = &big->rank[1].ends[0];
        CHECK_OK(rondo_link_connect(&big->rank[1].net, &end->link, record_of(big, &big->rank[1], end)));
        memset(end->link.conn.slots[RONDO_PROTO_SIMPLE], 0x5a,
               RONDO_SLOTS * big->slot_bytes[RONDO_PROTO_SIMPLE]);
    }
    rank_close(&big->rank[0]);
    rank_close(&big->rank[1]);
    CHECK(count_entries("/dev/shm", "") == 0);
    CHECK_OK(rank_open(small, 0, MAX_LINKS));
    CHECK_OK(rank_offer(small, 0));
    rank_close(&small->rank[0]);
    CHECK(count_entries("/dev/shm", "") == 0);
    return 0;
}

static void a_full_dev_shm_is_a_system_error(void **state)
{
    struct world *w = world_new(2, RONDO_SHM_MODE_FILE, 64 << 10);
    (void)state;

    w->protos = 1u << RONDO_PROTO_SIMPLE;
    int result = in_child(live_in_small_dev_shm, w);
    world_free(w);
    if (result == NO_NAMESPACE) {
        print_message("skipped: needs the right to mount a tmpfs in a new mount namespace\n");
        skip();
    }
    assert_int_equal(result, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_records_are_refused),
        cmocka_unit_test(foreign_arenas_are_refused),
        cmocka_unit_test(random_records_never_point_outside),
        cmocka_unit_test(links_over_the_announced_number_are_refused),
        cmocka_unit_test(a_hundred_connections_leave_nothing),
        cmocka_unit_test(eight_processes_with_64_files_connect),
        cmocka_unit_test(running_out_of_files_is_a_system_error),
        cmocka_unit_test(a_full_dev_shm_is_a_system_error),
    };

    alarm(120);
    rondo_log_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
