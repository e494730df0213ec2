/* The calibration of two processes: what happens if one of them is late, or may not copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "base/log.h"
#include "base/types.h"
#include "comm/backend.h"
#include "in_child.h"
#include "init/phases.h"
#include "kern/direct_impl.h"
#include "tuner/model.h"

enum { CAPACITY = 128 << 10, STEPS = 10, NEAR_NS = 100, TAKEN = 64, TAKEN_BYTES = 16 << 10 };
/* As in init/calibrate.c: words of a place. */
enum { STEP_WORD = 2, GO_WORD = 4 };

/* Also in a child, in which no assert may end the test. */
static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "unit_calibrate: %s failed: %m\n", what);
        abort();
    }
}

static atomic_int *leader_ended; /* in memory of both processes */
static enum { PASS, REFUSE, UNTIL_ENDED } reads;

/* The engine's calls come here: it is linked statically. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *here, unsigned long nhere, const struct iovec *there,
                         unsigned long nthere, unsigned long flags)
{
    while (reads == UNTIL_ENDED && !atomic_load(leader_ended)) {
        usleep(1000);
    }
    if (reads == REFUSE) {
        errno = EPERM;
        return -1;
    }
    return syscall(SYS_process_vm_readv, pid, here, nhere, there, nthere, flags);
}

static struct rondo_ctx ctx;
static struct rondo_init init;

/* One of two ranks, on cores that are near. places: of the mailbox, zeroed. */
static void begin_rank(int rank, uint8_t *places, const pid_t pids[2])
{
    static struct rondo_peer peers[2];
    static int local_ranks[2] = { 0, 1 };
    static struct rondo_mailbox mailbox;
    static struct rondo_direct direct;
    static const struct rondo_backend_ops backend = { .is_gpu = 0 };
    struct rondo_layout *l = &ctx.wiring.layout;
    memset(&ctx, 0, sizeof(ctx));
    memset(&init, 0, sizeof(init));
    mailbox = (struct rondo_mailbox){
        .places = places, .stride = rondo_mailbox_stride(CAPACITY), .capacity = CAPACITY, .nranks = 2
    };
    for (int r = 0; r < 2; r++) {
        peers[r].pid = pids[r];
        peers[r].process_hash = 1 + (uint64_t)r;
    }
    ctx.wiring.mailbox = &mailbox;
    ctx.wiring.direct = &direct;
    ctx.wiring.peers = peers;
    ctx.backend = &backend;
    ctx.job.rank = rank;
    ctx.job.nranks = 2;
    l->nranks = l->nlocal = l->max_local = 2;
    l->local_rank = rank;
    l->local_ranks = local_ranks;
    rondo_model_host(&l->model, 1);
    init.ctx = &ctx;
    init.handover.best_ns = NEAR_NS;
}

static void calibrate(void)
{
    rondo_status status;
    int silent;
    while ((status = rondo_init_calibrate(&init, &silent)) == RONDO_IN_PROGRESS) {
        sched_yield();
    }
    must(status == RONDO_SUCCESS, "a calibration");
}

static uint8_t *new_places(void)
{
    uint8_t *places = mmap(NULL, rondo_mailbox_bytes(CAPACITY, 2), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(places != MAP_FAILED, "mmap");
    return places;
}

/* Calibrate in this process and in one more, whose reads are such. @return that one's id. */
static pid_t calibrate_with(int others_reads)
{
    uint8_t *places = new_places();
    pid_t pids[2] = { getpid(), 0 };
    leader_ended = mmap(NULL, sizeof(*leader_ended), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                        0);
    must(leader_ended != MAP_FAILED, "mmap");
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    fflush(NULL);
    pids[1] = fork();
    must(pids[1] >= 0, "fork");
    if (pids[1] == 0) {
        reads = others_reads;
        begin_rank(1, places, pids);
        calibrate();
        _exit(0);
    }
    begin_rank(0, places, pids);
    calibrate();
    return pids[1];
}

static void await_end(pid_t child)
{
    int status;
    must(waitpid(child, &status, 0) == child && status == 0, "local rank 1");
}

/* Both swap sums when local rank 1 loses its core, and local rank 0 gives up. @return 0: the program has not
 * got memory into which local rank 1 still writes. */
static int give_up(void *arg)
{
    const uint32_t minus_zero = 0x80000000; /* plus zero it is another number */
    uint32_t *taken[TAKEN];
    int wrong = 0;
    pid_t child = calibrate_with(UNTIL_ENDED);
    (void)arg;
    for (int i = 0; i < TAKEN; i++) {
        taken[i] = malloc(TAKEN_BYTES);
        must(taken[i] != NULL, "malloc");
        for (size_t k = 0; k < TAKEN_BYTES / sizeof(*taken[i]); k++) {
            taken[i][k] = minus_zero;
        }
    }
    atomic_store(leader_ended, 1);
    await_end(child);
    for (int i = 0; i < TAKEN; i++) {
        for (size_t k = 0; k < TAKEN_BYTES / sizeof(*taken[i]); k++) {
            wrong |= taken[i][k] != minus_zero;
        }
        free(taken[i]);
    }
    return wrong;
}

static void no_memory_is_written_after_it_was_freed(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) { /* on a busy host local rank 1 may not get so far */
        assert_int_equal(in_child(give_up, NULL), 0);
    }
}

/* @return 0: local rank 0 does not take for a swap what it did alone. */
static int swap_alone(void *arg)
{
    (void)arg;
    await_end(calibrate_with(REFUSE));
    return init.calibrating.found.kernel != 0;
}

static void a_swap_counts_only_if_both_swapped(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) { /* on a busy host nothing is found */
        assert_int_equal(in_child(swap_alone, NULL), 0);
    }
}

/* Local rank 1 answers each step, but is not told when to swap. */
static void who_has_not_swapped_says_so(void **state)
{
    uint8_t *places = new_places();
    const pid_t pids[2] = { getpid(), getpid() };
    uint64_t *words[2];
    int silent;
    (void)state;
    begin_rank(1, places, pids);
    for (int r = 0; r < 2; r++) {
        words[r] = (uint64_t *)(void *)rondo_mailbox_place(ctx.wiring.mailbox, 0, r);
    }
    for (uint64_t step = 1; step <= STEPS; step++) {
        words[0][STEP_WORD] = step;
        do {
            assert_int_equal(rondo_init_calibrate(&init, &silent), RONDO_IN_PROGRESS);
        } while (words[1][STEP_WORD] != step);
        assert_true(words[1][GO_WORD] != step);
    }
    words[0][STEP_WORD] = UINT64_MAX;
    calibrate();
    rondo_init_free_calibrating(&init, 1);
    munmap(places, rondo_mailbox_bytes(CAPACITY, 2));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_is_written_after_it_was_freed),
        cmocka_unit_test(a_swap_counts_only_if_both_swapped),
        cmocka_unit_test(who_has_not_swapped_says_so),
    };
    rondo_log_mask = RONDO_LOG_NONE;
    setenv("XDG_CACHE_HOME", "/proc/none", 1); /* what is found is not kept */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
