/*
 * Speed of reductions and copies in GB/s of memory touched (sources read and destination written), for each
 * instruction set of this machine.
 *   bench_reduce [bytes of a span, 32768] [number of sources, 2] [only this type]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kern/cpu/reduce_isa.h"

enum { MAX_SOURCES = 64, REPEATS = 5 };

/* CPU time of this thread, which excludes other programs. */
static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What to time. */
struct job {
    rondo_reduce_fn *fn; /* NULL: rondo_copy */
    void *dst;
    const void **srcs;
    int nsrcs, stream;
    size_t n;
};

static void run(const struct job *job)
{
    if (job->fn != NULL) {
        job->fn(job->dst, job->srcs, job->nsrcs, job->n);
    } else {
        rondo_copy(job->dst, job->srcs[0], job->n, job->stream);
    }
}

/* The best of a few runs of about 4 ms each: other programs can only slow us down. */
static double gbs(const struct job *job, size_t bytes)
{
    double best = 0, start = now_s();
    int runs = 0;
    while (now_s() - start < 0.002) {
        run(job);
        runs++;
    }
    for (int r = 0; r < REPEATS; r++) {
        start = now_s();
        for (int i = 0; i < 2 * runs; i++) {
            run(job);
            __asm__ volatile("" ::: "memory");
        }
        start = now_s() - start;
        if (best == 0 || 2 * runs * (double)bytes / start > best) {
            best = 2 * runs * (double)bytes / start;
        }
    }
    return best * 1e-9;
}

static void *span(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (p == NULL) {
        fprintf(stderr, "bench_reduce: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memset(p, 0x3a, bytes); /* ordinary numbers in every type */
}

#define TYPE_NAME(ctx, name, NAME, value, storage, ...) { #name, sizeof(storage) },
static const struct {
    const char *name;
    size_t bytes;
} types[] = { RONDO_DTYPE_TABLE(TYPE_NAME, ) };
#define OP_NAME(ctx, name, ...) #name,
static const char *const ops[] = { RONDO_REDUCE_TABLE(OP_NAME, ) };

int main(int argc, char **argv)
{
    const size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 0) : 32768;
    const int nsrcs = argc > 2 ? atoi(argv[2]) : 2;
    const void *srcs[MAX_SOURCES];
    struct job job = { .dst = span(bytes), .srcs = srcs, .nsrcs = nsrcs };
    if (bytes < 8 || nsrcs < 1 || nsrcs > MAX_SOURCES) {
        fprintf(stderr, "usage: bench_reduce [bytes >= 8] [sources 1..%d] [type]\n", MAX_SOURCES);
        return 2;
    }
    for (int i = 0; i < nsrcs; i++) {
        srcs[i] = span(bytes);
    }
    printf("# spans of %zu bytes, %d sources, GB/s touched\n%-8s", bytes, nsrcs, "type");
    for (int i = 0; rondo_reduce_usable(i) != NULL; i++) {
        for (int op = 0; op < RONDO_NUM_REDUCES; op++) {
            printf("%7.6s/%-4s", rondo_reduce_usable(i)->name, ops[op]);
        }
    }
    for (int type = 0; type < RONDO_NUM_DTYPES; type++) {
        if (argc > 3 && strcmp(types[type].name, argv[3]) != 0) {
            continue;
        }
        printf("\n%-8s", types[type].name);
        job.n = bytes / types[type].bytes;
        for (int i = 0; rondo_reduce_usable(i) != NULL; i++) {
            for (int op = 0; op < RONDO_NUM_REDUCES; op++) {
                job.fn = rondo_reduce_usable(i)->reduce[type][op];
                if (job.fn == NULL) {
                    printf("%12s", "-");
                    continue;
                }
                printf("%12.1f", gbs(&job, bytes * (size_t)(nsrcs + 1)));
                fflush(stdout);
            }
        }
    }
    job.fn = NULL;
    job.n = bytes;
    printf("\ncopy %.1f", gbs(&job, 2 * bytes));
    job.stream = 1;
    printf(", streaming copy %.1f\n", gbs(&job, 2 * bytes));
    for (int i = 0; i < nsrcs; i++) {
        free((void *)(uintptr_t)srcs[i]);
    }
    free(job.dst);
    return 0;
}
