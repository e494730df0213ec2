/*
 * gpu_bench torn: sums of random bytes, again and again. LL128 relies on lines of 128 bytes that arrive
 * whole: a reader takes the 120 bytes before a flag as soon as it sees the flag. Here every call's bytes
 * differ from those that the line carried before, so a line that is torn gives a wrong word.
 */
#include "gpu_bench.h"

#include <stdlib.h>
#include <string.h>

enum { PATTERNS = 4, BATCH = 16, LINE_WORDS = 15 };

/* A rank's memory: what it sends, where the results of a batch go, and the results. */
struct torn {
    uint64_t *send[PATTERNS], *want[PATTERNS], *got;
    struct buffers sent, came; /* PATTERNS and BATCH pieces of `most` words */
    size_t most, sizes;
    const size_t *bytes;
    unsigned long calls;
};

static uint64_t *words_new(size_t n)
{
    uint64_t *words = malloc(n * sizeof(*words));
    if (words == NULL) {
        test_die("no memory for %zu words", n);
    }
    return words;
}

static void torn_open(struct torn *x, const struct gpu_rank *r, const struct bench *b)
{
    *x = (struct torn){ .bytes = b->bytes, .sizes = (size_t)b->nbytes };
    for (size_t i = 0; i < x->sizes; i++) {
        x->most = b->bytes[i] / sizeof(uint64_t) > x->most ? b->bytes[i] / sizeof(uint64_t) : x->most;
    }
    x->sent = bench_buffers(r, PATTERNS * x->most * sizeof(uint64_t), RONDO_UINT64);
    x->came = bench_buffers(r, BATCH * x->most * sizeof(uint64_t), RONDO_UINT64);
    x->got = words_new(BATCH * x->most);
    for (int p = 0; p < PATTERNS; p++) {
        x->want[p] = words_new(x->most);
        x->send[p] = (uint64_t *)x->sent.send + (size_t)p * x->most;
        for (size_t i = 0; i < x->most; i++) {
            x->want[p][i] = 0;
            for (int k = 0; k < r->nranks; k++) {
                x->want[p][i] += test_hash((uint64_t)p, (uint64_t)k, i);
            }
            x->got[i] = test_hash((uint64_t)p, (uint64_t)r->rank, i);
        }
        test_device_copy(x->send[p], x->got, x->most * sizeof(uint64_t));
    }
    gpu_meet(r);
}

static void torn_close(struct torn *x, const struct gpu_rank *r)
{
    for (int p = 0; p < PATTERNS; p++) {
        free(x->want[p]);
    }
    free(x->got);
    bench_buffers_free(r, &x->came);
    bench_buffers_free(r, &x->sent);
}

static size_t words_of(const struct torn *x, unsigned long call)
{
    return x->bytes[call % x->sizes] / sizeof(uint64_t);
}

/* Successive calls differ in pattern and size, and so does the next batch's call at the same place. */
static int pattern_of(unsigned long call) { return (int)((call + call / BATCH) % PATTERNS); }

static void check_call(const struct torn *x, const struct gpu_rank *r, unsigned long call)
{
    const uint64_t *got = x->got + call % BATCH * x->most, *want = x->want[pattern_of(call)];
    size_t n = words_of(x, call), i = 0, wrong = 0, first = 0;
    for (i = 0; i < n; i++) {
        if (got[i] != want[i]) {
            first = wrong == 0 ? i : first;
            wrong++;
        }
    }
    test_check(wrong == 0,
               "rank %d: call %lu of %zu words: %zu are wrong, first word %zu (%zu of its line): %#llx, not "
               "%#llx",
               r->rank, call, n, wrong, first, first % LINE_WORDS, (unsigned long long)got[first],
               (unsigned long long)want[first]);
}

static void batch(struct torn *x, const struct gpu_rank *r)
{
    uint64_t *to = x->came.recv;
    for (unsigned long call = x->calls; call < x->calls + BATCH; call++) {
        TEST_MUST(rondo_all_reduce(x->send[pattern_of(call)], to + call % BATCH * x->most, words_of(x, call),
                                   RONDO_UINT64, RONDO_SUM, r->comm, r->stream),
                  r->comm);
    }
    test_device_wait(r->stream);
    test_device_copy(x->got, to, BATCH * x->most * sizeof(uint64_t));
    for (unsigned long call = x->calls; call < x->calls + BATCH; call++) {
        check_call(x, r, call);
    }
    x->calls += BATCH;
}

static void torn_rank(struct gpu_rank *r)
{
    struct table *t = r->arg;
    double end = test_now() + (double)t->b->seconds;
    struct torn x;
    unsigned long words = 0;
    torn_open(&x, r, t->b);
    while (gpu_most(r, test_now() < end && test.failed == 0) > 0) {
        if (r->leads) {
            test_watchdog((int)t->b->timeout_s);
        }
        batch(&x, r);
    }
    for (unsigned long call = 0; call < x.calls; call++) {
        words += words_of(&x, call);
    }
    if (r->rank == 0) {
        printf("torn: %lu calls of %d ranks, %lu lines checked on each\n", x.calls, r->nranks,
               words / LINE_WORDS);
    }
    t->rows += r->leads;
    torn_close(&x, r);
}

int bench_torn(const struct bench *b)
{
    static const size_t sizes[] = { 8, 120, 1000, 4096, 15360, 65536, 100000, 262144 };
    static struct table t;
    struct bench own = bench_with_sizes(b, sizes, TEST_ARRAY_LEN(sizes));
    test.what = "torn lines";
    return bench_run(&own, torn_rank, &t);
}
