/* Conns of GPUs with faults: memory that loses writes, copies that hang, records that no rank sent, and each
 * driver call failing in turn. Nothing may be left behind. */
#include "p2p_world.h"

#include "in_child.h"
#include "base/param.h"

static void reload_check(const char *value)
{
    setenv("RONDO_P2P_CHECK", value, 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
}

/* ---- the check ---- */

/* Check that exactly the pair of ranks a and b was found broken. */
static void expect_broken(struct world *w, int a, int b)
{
    for (int i = 0; i < w->nranks; i++) {
        for (int k = 0; k < w->nranks; k++) {
            int broken = (i == a && k == b) || (i == b && k == a);
            CHECK(gpus->found[i][k] == (broken ? RONDO_P2P_MODE_BROKEN : gpus->way[i][k]));
        }
    }
}

static void offer_and_connect(struct world *w)
{
    for (int i = 0; i < w->nranks; i++) {
        CHECK_OK(rank_offer(w, i));
    }
    for (int i = 0; i < w->nranks; i++) {
        CHECK_OK(rank_connect(w, i));
    }
}

/* Check that the broken pair uses shared memory and all others P2P. */
static void check_fallback(struct world *w, int a, int b)
{
    for (int i = 0; i < w->nranks; i++) {
        for (int e = 0; e < w->rank[i].nends; e++) {
            const struct end *end = &w->rank[i].ends[e];
            int broken = (i == a && end->link.peer == b) || (i == b && end->link.peer == a);
            CHECK(is_p2p(end) == !broken);
        }
    }
}

static void missing_words_break_a_pair(void **state)
{
    struct world *w = gpus_new(3, 2, RONDO_P2P_MODE_WRITE, 0);
    uint32_t mask = rondo_log_mask;
    (void)state;
    rondo_log_mask = RONDO_LOG_NONE;
    for (int i = 0; i < w->nranks; i++) {
        CHECK_OK(rank_open(w, i, MAX_LINKS));
        rondo_net_gpu(&w->rank[i].net, &gpus->name[i]);
    }
    /* Damage the word that rank 2 looks for in rank 0's memory. */
    *(uint64_t *)(uintptr_t)(gpus->name[0].address + RONDO_P2P_CELL(2, owner)) ^= 1;
    for (int i = 0; i < w->nranks; i++) {
        check_until_done(&w->rank[i]);
    }
    assert_int_equal(gpus->found[2][0], RONDO_P2P_MODE_BROKEN);
    assert_int_equal(gpus->found[0][2], RONDO_P2P_MODE_WRITE);
    for (int i = 0; i < w->nranks; i++) {
        agree(w, i);
    }
    expect_broken(w, 0, 2);
    offer_and_connect(w);
    check_fallback(w, 0, 2);
    rondo_log_mask = mask;
    ranks_close_gpus(w);
    check_nothing_left();
}

static void lost_writes_break_a_pair(void **state)
{
    struct world *w = gpus_new(2, 2, RONDO_P2P_MODE_WRITE, 0);
    uint32_t mask = rondo_log_mask;
    (void)state;
    rondo_log_mask = RONDO_LOG_NONE;
    for (int i = 0; i < w->nranks; i++) {
        CHECK_OK(rank_open(w, i, MAX_LINKS));
        rondo_net_gpu(&w->rank[i].net, &gpus->name[i]);
    }
    driver.lossy = (uint8_t *)(uintptr_t)gpus->name[1].address;
    driver.lossy_bytes = gpus->name[1].bytes;
    for (int i = 0; i < w->nranks; i++) {
        check_until_done(&w->rank[i]);
    }
    driver.lossy = NULL;
    assert_int_equal(gpus->found[0][1], RONDO_P2P_MODE_BROKEN); /* rank 0 writes there */
    assert_int_equal(gpus->found[1][0], RONDO_P2P_MODE_WRITE);
    for (int i = 0; i < w->nranks; i++) {
        agree(w, i);
    }
    offer_and_connect(w);
    check_fallback(w, 0, 1);
    rondo_log_mask = mask;
    ranks_close_gpus(w);
    check_nothing_left();
}

static void the_warning_names_the_pair_and_the_cause(void **state)
{
    struct world *w = gpus_new(2, 2, RONDO_P2P_MODE_READ, 0);
    FILE *file = tmpfile();
    char text[4096] = "";
    int saved = dup(2);
    (void)state;
    for (int i = 0; i < w->nranks; i++) {
        snprintf(w->peers[i].bus_id, sizeof(w->peers[i].bus_id), "0000:%x1:00.0", (unsigned)(i + 1) & 15);
        CHECK_OK(rank_open(w, i, MAX_LINKS));
        rondo_net_gpu(&w->rank[i].net, &gpus->name[i]);
    }
    gpus->name[1].serial += 1000; /* this memory does not exist */
    fflush(stderr);
    dup2(fileno(file), 2);
    check_until_done(&w->rank[0]);
    dup2(saved, 2);
    close(saved);
    rewind(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    assert_non_null(strstr(text, "P2P from rank 0 (GPU 0000:11:00.0) to rank 1 (GPU 0000:21:00.0)"));
    assert_non_null(strstr(text, "its record names memory that this process does not have"));
    assert_non_null(strstr(text, "ACS"));
    assert_non_null(strstr(text, "iommu=pt"));
    ranks_close_gpus(w);
    check_nothing_left();
}

/* This test runs last, because what hangs stays. */
static void a_pair_that_hangs_breaks_in_time(void **state)
{
    struct world *w = gpus_new(2, 2, RONDO_P2P_MODE_WRITE, 0);
    uint32_t mask = rondo_log_mask;
    int64_t begin;
    (void)state;
    reload_check("300ms");
    rondo_log_mask = RONDO_LOG_NONE;
    for (int i = 0; i < w->nranks; i++) {
        CHECK_OK(rank_open(w, i, MAX_LINKS));
        rondo_net_gpu(&w->rank[i].net, &gpus->name[i]);
    }
    driver.hang = 1;
    begin = rondo_now_ns();
    check_until_done(&w->rank[0]);
    assert_true(rondo_now_ns() - begin >= 300000000);
    driver.hang = 0;
    reload_check("20s");
    check_until_done(&w->rank[1]);
    assert_int_equal(gpus->found[0][1], RONDO_P2P_MODE_BROKEN);
    for (int i = 0; i < w->nranks; i++) {
        agree(w, i);
    }
    offer_and_connect(w);
    check_fallback(w, 0, 1);
    ranks_close_gpus(w);
    rondo_log_mask = mask;
    /* Rank 0's copies may still touch its block, its pinned words and what it had open of rank 1, so all of
     * these stay. */
    assert_int_equal(driver.things[STREAM], 0);
    assert_int_equal(driver.things[PINNED], 1);
    assert_int_equal(driver.things[HANDLE], 2);
}

/* ---- records ---- */

static void touch(const struct rondo_conn *conn)
{
    volatile uint64_t sum = conn->tail->tail + conn->head->head;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        sum += conn->slots[p][0] + conn->slots[p][RONDO_SLOTS * conn->slot_bytes[p] - 1];
    }
}

static rondo_status connect_with(struct world *w, const struct end *end, const struct rondo_connect *record)
{
    struct rondo_link link = end->link; /* the original keeps the state */
    rondo_status status = rondo_link_connect(&w->rank[0].net, &link, record);
    if (status == RONDO_SUCCESS) {
        touch(&link.conn);
    }
    return status;
}

enum { NAME_WORDS = sizeof(struct rondo_gpu_name) / 8, LINE = NAME_WORDS, SLOTS_AT, RECORD_WORDS };

static void hostile_records_are_refused(void **state)
{
    static const uint64_t offsets[] = {
        64, 1, 4 << 20, 1ull << 32, UINT64_MAX, UINT64_MAX - 127, UINT64_MAX - 8 * 1024 + 1, 1ull << 63
    };
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct world *w = gpus_new(2, 2, k ? RONDO_P2P_MODE_READ : RONDO_P2P_MODE_WRITE, 0);
        uint32_t mask = rondo_log_mask;
        uint64_t word[RONDO_CONNECT_DATA / 8];
        ranks_open(w);
        CHECK_OK(rank_offer(w, 0));
        CHECK_OK(rank_offer(w, 1));
        rondo_log_mask = RONDO_LOG_NONE;
        for (int e = 0; e < w->rank[0].nends; e++) {
            const struct end *end = &w->rank[0].ends[e];
            const struct rondo_connect good = *record_of(w, &w->rank[0], end);
            struct rondo_connect bad = good;
            int theirs = end->link.is_send ? 1 : k; /* the peer has the slots */
            assert_int_equal(connect_with(w, end, &good), RONDO_SUCCESS);
            memset(bad.data, 0, sizeof(bad.data));
            assert_int_equal(connect_with(w, end, &bad), RONDO_INTERNAL_ERROR);
            for (int i = LINE; i <= SLOTS_AT; i++) {
                for (size_t o = 0; o < RONDO_COUNTOF(offsets) && (i == LINE || theirs); o++) {
                    bad = good;
                    memcpy(word, bad.data, sizeof(word));
                    word[i] = offsets[o];
                    memcpy(bad.data, word, sizeof(word));
                    assert_int_equal(connect_with(w, end, &bad), RONDO_INTERNAL_ERROR);
                }
            }
            /* These bytes are the sizes, the protocols and the P2P mode. */
            for (size_t byte = 8 * RECORD_WORDS; byte < 8 * RECORD_WORDS + 4 * RONDO_NUM_PROTOS + 2; byte++) {
                bad = good;
                bad.data[byte] ^= 0x81;
                assert_int_equal(connect_with(w, end, &bad), RONDO_INTERNAL_ERROR);
            }
        }
        rondo_log_mask = mask;
        ranks_close_gpus(w);
        check_nothing_left();
    }
}

/* Whatever a record says, it never leads outside of the memory that its owner shares. */
static void random_records_never_point_outside(void **state)
{
    struct world *w = gpus_new(2, 2, RONDO_P2P_MODE_READ, 0);
    unsigned seed = (unsigned)rondo_now_ns();
    uint32_t mask = rondo_log_mask;
    int accepted = 0;
    (void)state;
    print_message("seed %u\n", seed);
    ranks_open(w);
    CHECK_OK(rank_offer(w, 0));
    CHECK_OK(rank_offer(w, 1));
    rondo_log_mask = RONDO_LOG_NONE;
    for (int i = 0; i < 2000; i++) {
        const struct end *end = &w->rank[0].ends[rand_r(&seed) % (unsigned)w->rank[0].nends];
        struct rondo_connect record = *record_of(w, &w->rank[0], end);
        for (int k = rand_r(&seed) % 3; k > 0; k--) {
            ((uint8_t *)&record)[rand_r(&seed) % sizeof(record)] ^= (uint8_t)(1u << rand_r(&seed) % 8);
        }
        accepted += connect_with(w, end, &record) == RONDO_SUCCESS;
    }
    assert_in_range(accepted, 200, 1999);
    rondo_log_mask = mask;
    ranks_close_gpus(w);
    check_nothing_left();
}

static void links_over_the_announced_number_are_refused(void **state)
{
    struct world *w = gpus_new(2, 1, RONDO_P2P_MODE_WRITE, 0);
    struct rondo_connect record;
    struct rondo_link link;
    uint32_t mask = rondo_log_mask;
    rondo_status status = RONDO_SUCCESS;
    int n = 0;
    (void)state;
    ranks_open(w);
    rondo_log_mask = RONDO_LOG_NONE;
    while (status == RONDO_SUCCESS && n < 100) {
        status = rondo_link_offer(&w->rank[0].net, &link, 1, 0, 1, ALL_PROTOS, NULL, &record);
        n += status == RONDO_SUCCESS;
        rondo_link_close(&w->rank[0].net, &link);
    }
    assert_int_equal(status, RONDO_INTERNAL_ERROR);
    assert_int_equal(n, MAX_LINKS + 2 * 2);
    rondo_log_mask = mask;
    ranks_close_gpus(w);
    check_nothing_left();
}

/* ---- each driver call fails in turn ---- */

/* The number of rounds is not fixed, because the driver's streams copy in threads of their own. */
static rondo_status ranks_hello(struct world *w)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    int pending, open = 1;
    while (open) {
        open = 0;
        for (int i = 0; i < w->nranks; i++) {
            rondo_status status = rank_hello(&w->rank[i], &pending);
            open |= status == RONDO_IN_PROGRESS;
            if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
                return status;
            }
        }
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
    return RONDO_SUCCESS;
}

static rondo_status ranks_live(struct world *w, int *opened)
{
    for (int i = 0; i < w->nranks; i++) {
        RONDO_TRY(rank_open(w, i, MAX_LINKS));
        ++*opened;
        rondo_net_gpu(&w->rank[i].net, &gpus->name[i]);
    }
    for (int i = 0; i < w->nranks; i++) {
        rondo_status status;
        while ((status = rondo_net_check(&w->rank[i].net)) == RONDO_IN_PROGRESS) {
        }
        RONDO_TRY(status);
    }
    for (int i = 0; i < w->nranks; i++) {
        agree(w, i);
    }
    for (int i = 0; i < w->nranks; i++) {
        RONDO_TRY(rank_offer(w, i));
    }
    for (int i = 0; i < w->nranks; i++) {
        RONDO_TRY(rank_connect(w, i));
    }
    return ranks_hello(w);
}

/* Connect and close all ranks, while driver call number fail_at fails. */
static rondo_status life(int fail_at, enum rondo_p2p_mode way, int no_vmm)
{
    struct world *w = gpus_new(2, 2, way, 0);
    int opened = 0;
    rondo_status status;
    gpus->no_vmm = no_vmm;
    watch();
    driver.calls = 0;
    driver.fail_at = fail_at;
    status = ranks_live(w, &opened);
    driver.fail_at = 0;
    for (int i = 0; i < opened; i++) {
        rank_close(&w->rank[i]);
    }
    if (opened < w->nranks && w->rank[opened].net.device != NULL) { /* its net failed to open */
        gpus_after(w, &w->rank[opened]);
    }
    gpus_free(w);
    return status;
}

static void driver_calls_that_fail_leave_nothing(void **state)
{
    static const struct {
        enum rondo_p2p_mode way;
        int no_vmm;
    } lives[] = { { RONDO_P2P_MODE_WRITE, 0 }, { RONDO_P2P_MODE_READ, 1 }, { RONDO_P2P_MODE_NONE, 0 } };
    uint32_t mask = rondo_log_mask;
    (void)state;
    rondo_log_mask = RONDO_LOG_NONE;
    for (size_t i = 0; i < RONDO_COUNTOF(lives); i++) {
        int failed = 0, n;
        assert_int_equal(life(0, lives[i].way, lives[i].no_vmm), RONDO_SUCCESS);
        n = driver.calls;
        check_nothing_left();
        for (int at = 1; at <= n; at++) {
            failed += life(at, lives[i].way, lives[i].no_vmm) != RONDO_SUCCESS;
            check_nothing_left();
        }
        assert_in_range(failed, 1, n);
    }
    rondo_log_mask = mask;
}

/* Where the CPU has protection keys, the fake driver kills host code that touches device memory. */
static int live_strictly(void)
{
    return life(0, RONDO_P2P_MODE_WRITE, 0) != RONDO_SUCCESS ||
           life(0, RONDO_P2P_MODE_READ, 1) != RONDO_SUCCESS;
}

static int exec_strictly(void *arg)
{
    (void)arg;
    setenv("FAKE_CUDA_STRICT", "1", 1);
    setenv("FAKE_CUDA_LEAKS", "1", 1);
    execl("/proc/self/exe", "strict", "strict", (char *)NULL);
    return 1;
}

static void the_host_never_touches_device_memory(void **state)
{
    (void)state;
    assert_int_equal(in_child(exec_strictly, NULL), 0);
}

/* ---- memory for users ---- */

static void user_memory_is_found_shared_and_freed_once(void **state)
{
    struct rondo_cuda_device a, b;
    struct rondo_gpu_name name;
    struct rondo_gpu_mem mem = { 0 };
    void *pointer = NULL;
    int local = 0;
    (void)state;
    watch();
    for (int no_vmm = 0; no_vmm < 2; no_vmm++) {
        assert_int_equal(rondo_cuda_open(0, &a), RONDO_SUCCESS);
        assert_int_equal(rondo_cuda_open(1, &b), RONDO_SUCCESS);
        a.vmm = a.vmm && !no_vmm;
        assert_int_equal(rondo_gpu_alloc(&a, 5000, &pointer), RONDO_SUCCESS);
        assert_false(rondo_gpu_find(&local, &name));
        assert_true(rondo_gpu_find((char *)pointer + 4999, &name));
        assert_int_equal(name.address, (uintptr_t)pointer);
        assert_int_equal(name.kind, no_vmm ? RONDO_GPU_IPC : RONDO_GPU_VMM);
        assert_true(name.bytes >= 5000);
        assert_int_equal(rondo_gpu_mem_open(&mem, &b, &name), RONDO_SUCCESS);
        assert_ptr_equal(mem.base, pointer);
        assert_false(rondo_gpu_free(&local));
        assert_false(rondo_gpu_free((char *)pointer + 1));
        assert_true(rondo_gpu_free(pointer));
        assert_false(rondo_gpu_free(pointer));
        assert_false(rondo_gpu_find(pointer, &name));
        mem.base[4999] = 7; /* memory lives while anybody has it open */
        rondo_gpu_mem_close(&mem);
        assert_int_not_equal(rondo_gpu_mem_open(&mem, &b, &name), RONDO_SUCCESS);
        rondo_cuda_close(&b);
        rondo_cuda_close(&a);
        check_nothing_left();
    }
}

static void memory_that_the_gpu_lacks_is_an_error_with_its_cause(void **state)
{
    struct rondo_cuda_device a;
    uint32_t mask = rondo_log_mask;
    void *pointer;
    (void)state;
    watch();
    assert_int_equal(rondo_cuda_open(0, &a), RONDO_SUCCESS);
    rondo_log_mask = RONDO_LOG_NONE;
    assert_int_equal(rondo_gpu_alloc(&a, 0, &pointer), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_gpu_alloc(&a, SIZE_MAX, &pointer), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_gpu_alloc(&a, 1ull << 50, &pointer), RONDO_UNHANDLED_CUDA_ERROR);
    assert_non_null(strstr(rondo_error_text(), "cannot allocate 1073741824.0 MiB on GPU 0"));
    assert_non_null(strstr(rondo_error_text(), "MiB free"));
    rondo_log_mask = mask;
    rondo_cuda_close(&a);
    check_nothing_left();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_words_break_a_pair),
        cmocka_unit_test(lost_writes_break_a_pair),
        cmocka_unit_test(the_warning_names_the_pair_and_the_cause),
        cmocka_unit_test(hostile_records_are_refused),
        cmocka_unit_test(random_records_never_point_outside),
        cmocka_unit_test(links_over_the_announced_number_are_refused),
        cmocka_unit_test(driver_calls_that_fail_leave_nothing),
        cmocka_unit_test(the_host_never_touches_device_memory),
        cmocka_unit_test(user_memory_is_found_shared_and_freed_once),
        cmocka_unit_test(memory_that_the_gpu_lacks_is_an_error_with_its_cause),
        cmocka_unit_test(a_pair_that_hangs_breaks_in_time),
    };

    alarm(120);
    choose_driver();
    rondo_log_init();
    if (argc > 1 && strcmp(argv[1], "strict") == 0) {
        return live_strictly();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
