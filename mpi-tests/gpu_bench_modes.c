/* gpu_bench: the modes that print tables of times beside their lower bounds. */
#include "gpu_bench.h"

#include <stdlib.h>

static size_t largest(const struct bench *b)
{
    size_t most = 0;
    for (int i = 0; i < b->nbytes; i++) {
        most = b->bytes[i] > most ? b->bytes[i] : most;
    }
    return most;
}

static void note_call(const struct table *t, const struct gpu_rank *r, size_t bytes, double seconds,
                      double floor, const char *of)
{
    char name[48], what[64];
    snprintf(what, sizeof(what), "all_reduce, %s", bench_name(t, name));
    bench_note(t->b, what, r->nranks, bytes, seconds * 1e6, floor * 1e6, of);
}

/* ---- bandwidth ---- */

static void print_bandwidth(const struct table *t, const struct gpu_rank *r, const struct buffers *x,
                            double seconds)
{
    const struct bench_algo *algo = t->b->algo;
    double floor = bench_floor(t, r->nranks, x->bytes), reached = floor / seconds,
           goal = t->nccl == NULL && (algo->goal_ranks == 0 || algo->goal_ranks == r->nranks) ? algo->goal
                                                                                              : 0;
    char size[24], name[48], aim[16] = "";
    if (goal > 0) {
        snprintf(aim, sizeof(aim), "%.2f", goal);
    }
    printf("| %s | %d | %s | %s | %.1f | %.1f | %.0f | %.1f | %.2f | %s | %s |\n", bench_name(t, name),
           r->nranks, test_types[x->type].name, bench_size_text(x->bytes, size), seconds * 1e6,
           (double)x->bytes / seconds * 1e-9, t->copy * 1e-9, floor * 1e6, reached, aim,
           bench_met(goal, reached >= goal));
    note_call(t, r, x->bytes, seconds, floor, "copying the bytes that it moves");
}

static void bandwidth_row(struct gpu_rank *r, size_t bytes, rondo_dtype type)
{
    struct table *t = r->arg;
    struct buffers x = bench_buffers(r, bytes, type);
    if (bench_first_call(r, &x)) {
        double seconds = bench_time(r, &x, 1, t->samples, t->b->iters);
        bench_check(r, &x);
        if (r->rank == 0) {
            print_bandwidth(t, r, &x, seconds);
        }
    }
    bench_buffers_free(r, &x);
}

static void bandwidth_rank(struct gpu_rank *r)
{
    struct table *t = r->arg;
    const struct bench *b = t->b;
    bench_copy(r, t, largest(b), b->iters);
    for (int type = 0; type < b->ntypes; type++) {
        for (int i = 0; i < b->nbytes; i++) {
            bandwidth_row(r, b->bytes[i], b->types[type]);
        }
    }
}

int bench_bandwidth(const struct bench *b)
{
    static const size_t sizes[] = { 256u << 20, 1u << 30 };
    static struct table t;
    struct bench own = bench_with_sizes(b, sizes, TEST_ARRAY_LEN(sizes));
    test.what = "bandwidth";
    if (test.rank == 0) {
        printf(
            "| all_reduce%s | ranks | type | size | us | GB/s | copy GB/s | floor us | floor / time | goal "
            "| |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
            b->cached ? ", slots in the cache" : "");
    }
    return bench_run(&own, bandwidth_rank, &t);
}

/* ---- latency ---- */

enum { COPY_BYTES = 64 << 20 }; /* too many for the cache */

/* Time a launch with a wait for its end, and one of many launches in a row. */
static void time_empty(const struct gpu_rank *r, struct table *t, double *once, double *in_a_row)
{
    struct gpu_empty empty;
    gpu_empty_open(&empty);
    for (int calls = 1; calls <= BENCH_IN_A_ROW; calls += BENCH_IN_A_ROW - 1) {
        for (long i = -BENCH_WARM; i < t->b->iters; i++) {
            double start = test_now();
            for (int k = 0; k < calls; k++) {
                gpu_empty_launch(&empty, (CUstream)r->stream);
            }
            test_device_wait(r->stream);
            if (i >= 0) {
                t->samples[i] = (test_now() - start) / calls;
            }
        }
        *(calls == 1 ? once : in_a_row) = bench_median(t->samples, t->b->iters);
    }
    printf("For comparison: %s: %.2f us with a wait for its end, %.2f us in a row of %d.\n\n", empty.name,
           *once * 1e6, *in_a_row * 1e6, BENCH_IN_A_ROW);
    bench_note(t->b, "launch of an empty kernel, waited for", 1, 0, *once * 1e6, 0, "");
    bench_note(t->b, "launch of an empty kernel, in a row", 1, 0, *in_a_row * 1e6, 0, "");
    gpu_empty_close(&empty);
}

static void time_latency(struct gpu_rank *r, const struct buffers *x, double empty)
{
    static const double goal = 3e-6;
    struct table *t = r->arg;
    double once, in_a_row;
    char size[24], name[48];
    bench_call(r, x, BENCH_WARM);
    once = bench_time(r, x, 1, t->samples, t->b->iters);
    in_a_row = bench_time(r, x, BENCH_IN_A_ROW, t->samples, t->b->iters);
    if (r->rank == 0) {
        int has_goal = r->nranks == 2 && t->nccl == NULL;
        printf("| %s | %d | %s | %.2f | %.2f | %.2f | %s | %s |\n", bench_name(t, name), r->nranks,
               bench_size_text(x->bytes, size), once * 1e6, (once - empty) * 1e6, in_a_row * 1e6,
               has_goal ? "3" : "", bench_met(has_goal, once - empty <= goal));
        note_call(t, r, x->bytes, once, empty + bench_floor(t, r->nranks, x->bytes),
                  "an empty kernel, and copying the bytes");
    }
}

static void latency_row(struct gpu_rank *r, size_t bytes, rondo_dtype type, double empty)
{
    struct buffers x = bench_buffers(r, bytes, type);
    if (bench_first_call(r, &x)) {
        time_latency(r, &x, empty);
    }
    bench_buffers_free(r, &x);
}

static void latency_rank(struct gpu_rank *r)
{
    struct table *t = r->arg;
    const struct bench *b = t->b;
    double once = 0, in_a_row = 0;
    bench_copy(r, t, COPY_BYTES, b->iters < 20 ? b->iters : 20);
    if (r->rank == 0) {
        time_empty(r, t, &once, &in_a_row);
        printf("| all_reduce | ranks | size | us | beyond an empty launch, us | in a row, us | goal, us | "
               "|\n|---|---|---|---|---|---|---|---|\n");
    }
    gpu_meet(r);
    for (int i = 0; i < b->nbytes; i++) {
        latency_row(r, b->bytes[i], b->types[0], once);
    }
}

int bench_latency(const struct bench *b)
{
    static const size_t sizes[] = { 8, 64, 512, 4096, 16384, 65536 };
    static struct table t;
    struct bench own = bench_with_sizes(b, sizes, TEST_ARRAY_LEN(sizes));
    test.what = "latency";
    return bench_run(&own, latency_rank, &t);
}

/* ---- one rank ---- */

static void one_rank_row(struct gpu_rank *r, size_t bytes, rondo_dtype type)
{
    struct table *t = r->arg;
    struct buffers x = bench_buffers(r, bytes, type);
    static double copies[BENCH_SAMPLES];
    double ours, copy;
    char size[24];
    (void)bench_first_call(r, &x); /* calls of one rank are copies, which are always available */
    bench_call(r, &x, BENCH_WARM);
    (void)bench_copies(gpu_address(x.recv), gpu_address(x.send), bytes, BENCH_WARM, r->stream);
    for (long i = 0; i < t->b->iters; i++) {
        (void)bench_time(r, &x, 1, &t->samples[i], 1);
        copies[i] = bench_copies(gpu_address(x.recv), gpu_address(x.send), bytes, 1, r->stream);
    }
    ours = bench_median(t->samples, t->b->iters);
    copy = bench_median(copies, t->b->iters);
    printf("| %s | %s | %.2f | %.2f | %.2f |\n", test_types[type].name, bench_size_text(bytes, size),
           ours * 1e6, copy * 1e6, copy / ours);
    bench_note(t->b, "all_reduce of one rank", 1, bytes, ours * 1e6, copy * 1e6, "cuMemcpyAsync");
    bench_buffers_free(r, &x);
}

static void one_rank(struct gpu_rank *r)
{
    const struct bench *b = ((struct table *)r->arg)->b;
    printf(
        "| all_reduce of one rank | size | us | cuMemcpyAsync, us | copy / ours |\n|---|---|---|---|---|\n");
    for (int i = 0; i < b->nbytes; i++) {
        one_rank_row(r, b->bytes[i], b->types[0]);
    }
}

int bench_one_rank(const struct bench *b)
{
    static const size_t sizes[] = { 4096, 1u << 20, 256u << 20, 1u << 30 };
    static struct table t;
    struct bench own = bench_with_sizes(b, sizes, TEST_ARRAY_LEN(sizes));
    own.nranks = own.ranks[0] = 1;
    test.what = "one rank";
    return bench_run(&own, one_rank, &t);
}

/* ---- two communicators at once ---- */

/* The same ranks in two communicators, each with a stream and buffers of its own. */
struct pair {
    struct gpu_rank half[2];
    struct buffers x[2];
};

static void wait_for_both(const struct pair *p)
{
    test_device_wait(p->half[0].stream);
    test_device_wait(p->half[1].stream);
}

/* Call both; odd ranks in the other order. */
static void call_both(const struct pair *p)
{
    int first = p->half[0].rank & 1;
    for (int k = 0; k < 2; k++) {
        const struct gpu_rank *r = &p->half[first ^ k];
        const struct buffers *x = &p->x[first ^ k];
        TEST_MUST(rondo_all_reduce(x->send, x->recv, x->count, x->type, RONDO_SUM, r->comm, r->stream),
                  r->comm);
    }
    wait_for_both(p);
}

static double time_both(const struct pair *p, double *samples, long iters)
{
    const struct gpu_rank *r = &p->half[0];
    for (long i = -BENCH_WARM; i < iters; i++) {
        double start, took;
        gpu_meet(r);
        start = test_now();
        call_both(p);
        took = gpu_most(r, test_now() - start);
        if (r->rank == 0 && i >= 0) {
            samples[i] = took;
        }
    }
    return r->rank == 0 ? bench_median(samples, iters) : 0;
}

static void overlap_row(struct pair *p, size_t bytes, rondo_dtype type)
{
    const struct gpu_rank *r = &p->half[0];
    struct table *t = r->arg;
    double alone[2], both, longer;
    char size[24];
    for (int k = 0; k < 2; k++) {
        p->x[k] = bench_buffers(&p->half[k], bytes, type);
        (void)bench_first_call(&p->half[k], &p->x[k]);
        alone[k] = bench_time(&p->half[k], &p->x[k], 1, t->samples, t->b->iters);
    }
    both = time_both(p, t->samples, t->b->iters);
    bench_check(&p->half[0], &p->x[0]);
    bench_check(&p->half[1], &p->x[1]);
    if (r->rank == 0) {
        longer = alone[0] > alone[1] ? alone[0] : alone[1];
        printf("| %d | %s | %.1f | %.1f | %.1f | %.2f |\n", r->nranks, bench_size_text(bytes, size),
               alone[0] * 1e6, alone[1] * 1e6, both * 1e6, longer / both);
        bench_note(t->b, "all_reduce on two communicators at once", r->nranks, bytes, both * 1e6,
                   longer * 1e6, "the longer one alone");
    }
    bench_buffers_free(&p->half[1], &p->x[1]);
    bench_buffers_free(&p->half[0], &p->x[0]);
}

static void overlap_rank(struct gpu_rank *r)
{
    const struct bench *b = ((struct table *)r->arg)->b;
    struct pair p = { .half = { *r, *r } };
    TEST_MUST(rondo_comm_split(r->comm, 0, r->rank, NULL, &p.half[1].comm), r->comm);
    p.half[1].stream = test_device_stream_new();
    gpu_meet(r);
    for (int i = 0; i < b->nbytes; i++) {
        overlap_row(&p, b->bytes[i], b->types[0]);
    }
    test_device_stream_free(p.half[1].stream);
    TEST_MUST(rondo_comm_destroy(p.half[1].comm), NULL);
    gpu_meet(r);
}

int bench_overlap(const struct bench *b)
{
    static const size_t sizes[] = { 8, 1u << 20, 64u << 20 };
    static struct table t;
    struct bench own = bench_with_sizes(b, sizes, TEST_ARRAY_LEN(sizes));
    test.what = "two communicators at once";
    if (test.rank == 0) {
        printf("| ranks | size | one alone, us | the other alone, us | both at once, us | longer / both |\n"
               "|---|---|---|---|---|---|\n");
    }
    return bench_run(&own, overlap_rank, &t);
}
