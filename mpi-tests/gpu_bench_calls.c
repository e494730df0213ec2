/* gpu_bench: calls on buffers with known contents, their times, and lines of tables. */
#include "gpu_bench.h"

#include <stdlib.h>
#include <string.h>

/* ---- buffers with known contents, too large to be filled by the host ---- */

enum { PIECE = 1 << 20, PIECES = 16 };

static void *host_memory(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) {
        test_die("no memory for %zu bytes", bytes);
    }
    return memory;
}

/* Fill device memory with a rank's input for a sum, and wait for the stream. The first period comes from the
 * host and is doubled on the device. */
static void bench_fill(const struct test_values *values, size_t size, int rank, void *there, size_t count,
                       rondo_stream stream)
{
    size_t done = count < TEST_PERIOD ? count : TEST_PERIOD;
    unsigned char *to = there, *host = host_memory(done * size);
    test_values_input(values, rank, 0, done, host);
    test_device_copy(to, host, done * size);
    while (done < count) {
        size_t part = done < count - done ? done : count - done;
        test_device_must(gpu_cuda()->MemcpyAsync(gpu_address(to + done * size), gpu_address(to), part * size,
                                                 (CUstream)stream),
                         "cuMemcpyAsync on the device");
        done += part;
    }
    test_device_wait(stream);
    free(host);
}

static int piece_is_right(const struct test_values *values, size_t size, int rank, const unsigned char *there,
                          size_t first, size_t count)
{
    size_t at = 0, wrong;
    unsigned char *got = host_memory(count * size), *want = host_memory(count * size);
    test_device_copy(got, there + first * size, count * size);
    test_values_result(values, first, count, want);
    wrong = test_values_wrong(values, got, want, count, &at);
    test_check(wrong == 0, "rank %d: %zu of elements %zu .. %zu are wrong, first %zu", rank, wrong, first,
               first + count - 1, first + at);
    free(got);
    free(want);
    return wrong == 0;
}

/* Check that device memory holds the sum: the first and last piece and some between. Counts a failure. */
static void check_all(const struct test_values *values, size_t size, int rank, const void *there,
                      size_t count)
{
    size_t piece = PIECE / size, last = count > piece ? count - piece : 0;
    for (size_t i = 0; i < PIECES; i++) {
        size_t first = last / (PIECES - 1) * i, n = count < piece ? count : piece;
        if (i == PIECES - 1) {
            first = last;
        }
        if (!piece_is_right(values, size, rank, there, first, n) || count <= piece) {
            return;
        }
    }
}

/* ---- tables ---- */

enum { COPIES = 8 };

double bench_median(double *samples, long n)
{
    qsort(samples, (size_t)n, sizeof(*samples), test_compare_times);
    return n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

const char *bench_size_text(size_t bytes, char text[24])
{
    static const char units[] = " KMG";
    int unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 24, unit == 0 ? "%zu B" : "%zu %ciB", bytes, units[unit]);
    return text;
}

const char *bench_met(double goal, int good) { return goal == 0 ? "" : good ? "met" : "missed"; }

const char *bench_name(const struct table *t, char text[48])
{
    const struct bench *b = t->b;
    snprintf(text, 48, "%s%s%s", t->nccl != NULL ? gpu_nccl_name(t->nccl) : b->algo->name,
             b->proto != NULL ? " " : "", b->proto != NULL ? b->proto : "");
    return text;
}

void bench_note(const struct bench *b, const char *what, int nranks, size_t bytes, double us, double floor_us,
                const char *floor)
{
    FILE *file = b->rows != NULL ? fopen(b->rows, "a") : NULL;
    if (b->rows == NULL) {
        return;
    }
    if (file == NULL ||
        fprintf(file, "%s\t%d\t%zu\t%.3f\t%.3f\t%s\n", what, nranks, bytes, us, floor_us, floor) < 0) {
        test_die("cannot write to %s: %m", b->rows);
    }
    if (fclose(file) != 0) {
        test_die("cannot write to %s: %m", b->rows);
    }
}

/* ---- the lower bound: a copy ---- */

double bench_copies(CUdeviceptr to, CUdeviceptr from, size_t bytes, int copies, rondo_stream stream)
{
    double start = test_now();
    for (int i = 0; i < copies; i++) {
        test_device_must(gpu_cuda()->MemcpyAsync(to, from, bytes, (CUstream)stream),
                         "cuMemcpyAsync on the device");
    }
    test_device_wait(stream);
    return (test_now() - start) / copies;
}

/* The bytes per second of the memory's pins; 0: the driver does not say. */
static double memory_peak(void)
{
    int khz = 0, bits = 0;
    CUdevice device;
    test_device_must(gpu_cuda()->CtxGetDevice(&device), "cuCtxGetDevice");
    (void)gpu_cuda()->DeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device);
    (void)gpu_cuda()->DeviceGetAttribute(&bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device);
    return 2e3 * khz * bits / 8;
}

static double copy_bandwidth(const struct bench *b, size_t bytes, long iters)
{
    unsigned char *memory = test_device_alloc(2 * bytes);
    rondo_stream stream = test_device_stream_new();
    double samples[BENCH_SAMPLES], seconds, peak = memory_peak();
    (void)bench_copies(gpu_address(memory), gpu_address(memory + bytes), bytes, BENCH_WARM, stream);
    for (long i = 0; i < iters; i++) {
        samples[i] = bench_copies(gpu_address(memory), gpu_address(memory + bytes), bytes, COPIES, stream);
    }
    seconds = bench_median(samples, iters);
    bench_note(b, "copy on the device", 1, bytes, seconds * 1e6,
               peak > 0 ? 2 * (double)bytes / peak * 1e6 : 0, "peak of the memory");
    test_device_stream_free(stream);
    test_device_free(memory);
    return 2 * (double)bytes / seconds;
}

void bench_copy(const struct gpu_rank *r, struct table *t, size_t bytes, long iters)
{
    gpu_meet(r);
    if (r->rank == 0) {
        t->copy = copy_bandwidth(t->b, bytes, iters);
    }
    gpu_meet(r);
}

double bench_floor(const struct table *t, int nranks, size_t bytes)
{
    const struct bench_algo *algo = t->b->algo;
    return (double)bytes * (algo->user(nranks) + (t->b->cached ? 0 : algo->slots(nranks))) / t->copy;
}

/* ---- calls ---- */

struct buffers bench_buffers(const struct gpu_rank *r, size_t bytes, rondo_dtype type)
{
    struct buffers x = { .bytes = bytes, .count = bytes / test_types[type].size, .type = type };
    TEST_MUST(rondo_mem_alloc_device(&x.send, bytes, RONDO_DEVICE_CURRENT), r->comm);
    TEST_MUST(rondo_mem_alloc_device(&x.recv, bytes, RONDO_DEVICE_CURRENT), r->comm);
    TEST_MUST(rondo_comm_register(r->comm, x.send, bytes, &x.handle[0]), r->comm);
    TEST_MUST(rondo_comm_register(r->comm, x.recv, bytes, &x.handle[1]), r->comm);
    return x;
}

void bench_buffers_free(const struct gpu_rank *r, struct buffers *x)
{
    gpu_meet(r);
    for (int i = 0; i < 2; i++) {
        if (x->handle[i] != NULL) {
            TEST_MUST(rondo_comm_deregister(r->comm, x->handle[i]), r->comm);
        }
    }
    gpu_meet(r);
    TEST_MUST(rondo_mem_free(x->send), r->comm);
    TEST_MUST(rondo_mem_free(x->recv), r->comm);
    gpu_meet(r);
}

void bench_call(const struct gpu_rank *r, const struct buffers *x, int calls)
{
    const struct table *t = r->arg;
    for (int i = 0; i < calls && t->nccl != NULL; i++) {
        gpu_nccl_all_reduce(t->nccl, x, r->stream);
    }
    for (int i = 0; i < calls && t->nccl == NULL; i++) {
        rondo_status status = rondo_all_reduce(x->send, x->recv, x->count, x->type, RONDO_SUM, r->comm,
                                               r->stream);
        if (status != RONDO_SUCCESS) {
            test_die("rank %d: all_reduce of %zu bytes: %s: %s", r->rank, x->bytes,
                     rondo_status_string(status), rondo_last_error(r->comm));
        }
    }
    test_device_wait(r->stream);
}

/* ---- a row's first call ---- */

/* Try a first call. @return 0 if the algorithm is missing, which is allowed; nothing was launched. */
static int try_call(const struct gpu_rank *r, const struct buffers *x, const struct bench *b)
{
    if (((const struct table *)r->arg)->nccl != NULL) {
        bench_call(r, x, 1);
        return 1;
    }
    rondo_status status = rondo_all_reduce(x->send, x->recv, x->count, x->type, RONDO_SUM, r->comm,
                                           r->stream);
    int skipped = b->algo->may_lack && gpu_most(r, status == RONDO_INVALID_USAGE) > 0;
    if (skipped) {
        if (r->rank == 0) {
            printf("skipped: all_reduce by %s with %d ranks: %s\n", b->algo->name, r->nranks,
                   rondo_last_error(r->comm));
        }
        return 0;
    }
    TEST_MUST(status, r->comm);
    test_device_wait(r->stream);
    return 1;
}

void bench_check(const struct gpu_rank *r, const struct buffers *x)
{
    const struct table *t = r->arg;
    check_all(t->values, test_types[x->type].size, r->rank, x->recv, x->count);
}

int bench_first_call(const struct gpu_rank *r, const struct buffers *x)
{
    struct table *t = r->arg;
    size_t size = test_types[x->type].size;
    gpu_meet(r);
    if (r->leads) {
        test_watchdog((int)t->b->timeout_s);
        t->values = test_values_get(x->type, RONDO_SUM, r->nranks, 1);
        test_values_result(t->values, 0, 0, NULL);
    }
    gpu_meet(r);
    bench_fill(t->values, size, r->rank, x->send, x->count, r->stream);
    test_device_must(gpu_cuda()->MemsetD8Async(gpu_address(x->recv), 0x5a, x->bytes, (CUstream)r->stream),
                     "cuMemsetD8Async");
    test_device_wait(r->stream);
    gpu_meet(r);
    if (!try_call(r, x, t->b)) {
        return 0;
    }
    bench_check(r, x);
    gpu_meet(r);
    bench_call(r, x, 1);
    t->rows += r->leads;
    return 1;
}

double bench_time(const struct gpu_rank *r, const struct buffers *x, int calls, double *samples, long iters)
{
    for (long i = 0; i < iters; i++) {
        double start, took;
        gpu_meet(r);
        start = test_now();
        bench_call(r, x, calls);
        took = gpu_most(r, test_now() - start) / calls;
        if (r->rank == 0) {
            samples[i] = took;
        }
    }
    return r->rank == 0 ? bench_median(samples, iters) : 0;
}

/* ---- runs ---- */

struct bench bench_with_sizes(const struct bench *b, const size_t *bytes, int n)
{
    struct bench own = *b;
    for (int i = 0; b->nbytes == 0 && i < n; i++) {
        own.bytes[i] = bytes[i];
        own.nbytes = n;
    }
    return own;
}

int bench_run(const struct bench *b, gpu_rank_fn *fn, struct table *t)
{
    t->b = b;
    if (b->nccl != NULL && (t->nccl = gpu_nccl_open(b->nccl)) == NULL) {
        return 0;
    }
    for (int i = 0; i < (b->mpi ? 1 : b->nranks); i++) {
        gpu_ranks_run(b->ranks[i], fn, t);
    }
    if (t->nccl != NULL) {
        gpu_nccl_close(t->nccl);
    }
    return t->rows;
}
