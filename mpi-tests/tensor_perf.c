/*
 * tensor_perf: how fast rank 1 pulls tensors that rank 0 has published, one by one or many in one request;
 * and with --vs mpi, the same bytes by MPI: rank 1 posts receives and asks for them, rank 0 sends. In both
 * cases the time of a pull runs from the puller's call until the content is in its buffer, and the sizes are
 * known.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_common.h"
#include "rondo_tensor.h"

static const char usage[] =
    "usage: mpirun -n 2 tensor_perf [OPTION]...\n"
    "\n"
    "Measure pulls of named tensors (rondo_tensor.h) from rank 0 by rank 1.\n"
    "\n"
    "  -b SIZE, -e SIZE, -f N  first and last size, and the factor between sizes (8, 64M, 4)\n"
    "  -m N                    pull N tensors of each size in one request (1)\n"
    "  -n N, -w N              iterations, and those before them that are not counted (30, 5)\n"
    "  -R 0|2                  0: ordinary memory (default); 2: rondo_tensor_alloc\n"
    "  --vs mpi                measure MPI_Isend and MPI_Irecv as well\n"
    "  --counts                print what each rank wrote for a request: message buffers, acknowledgements\n"
    "  -h, --help              show this help and exit\n"
    "\n"
    "Columns: bytes of a tensor; tensors in a request; median microseconds of a request with Rondo, and its\n"
    "GB/s; the same with MPI; ratio: MPI's time over Rondo's.\n";

static struct {
    size_t first, last;
    long factor, many, iters, warmup, memory;
    int vs_mpi, counts;
} o = { .first = 8, .last = 64 << 20, .factor = 4, .many = 1, .iters = 30, .warmup = 5 };

enum { MOST_ITERS = 10000, USAGE_ERROR = 6 };

struct job {
    size_t bytes;
    uint8_t *memory; /* of all tensors, one after the other */
    char (*keys)[24];
    double times[MOST_ITERS];
};

static double median(double *times, long n)
{
    qsort(times, (size_t)n, sizeof(*times), test_compare_times);
    return times[n / 2];
}

static uint8_t value_of(size_t i, size_t k) { return (uint8_t)(i * 31 + k); }

static void check(const struct job *job, const char *who)
{
    size_t wrong = 0;
    for (size_t i = 0; i < (size_t)o.many; i++) {
        wrong += job->memory[i * job->bytes] != value_of(i, 0) ||
                 job->memory[(i + 1) * job->bytes - 1] != value_of(i, job->bytes - 1);
    }
    test_check(wrong == 0, "%s: %zu of %ld tensors of %zu bytes are wrong", who, wrong, o.many, job->bytes);
}

static void fill(const struct job *job)
{
    for (size_t i = 0; i < (size_t)o.many; i++) {
        for (size_t k = 0; k < job->bytes; k++) {
            job->memory[i * job->bytes + k] = test.rank == 0 ? value_of(i, k) : 0;
        }
    }
}

/* Rank 0 serves all pulls while it waits. */
static void publish(rondo_tensor_store *store, struct job *job, uint64_t step)
{
    uint64_t pulls = (uint64_t)(o.iters + o.warmup);
    rondo_tensor_request **sent = calloc((size_t)o.many, sizeof(*sent));
    for (long i = 0; i < o.many; i++) {
        rondo_tensor t = RONDO_TENSOR_INIT;
        t.data = job->memory + (size_t)i * job->bytes;
        t.bytes = job->bytes;
        TEST_MUST(rondo_tensor_publish(store, job->keys[i], step, &t, pulls, &sent[i]), NULL);
    }
    for (long i = 0; i < o.many; i++) {
        TEST_MUST(rondo_tensor_wait(sent[i], 0), NULL);
    }
    free(sent);
}

/* What this rank has written since the last call. */
static void count(rondo_tensor_store *store, double per_request[2])
{
    static rondo_tensor_stats before;
    rondo_tensor_stats now = { .size = sizeof(now) };
    TEST_MUST(rondo_tensor_store_stats(store, &now), NULL);
    double requests = (double)(o.iters + o.warmup);
    per_request[0] = (double)(now.message_writes - before.message_writes) / requests;
    per_request[1] = (double)(now.acks - before.acks) / requests;
    before = now;
}

static double pull(rondo_tensor_store *store, struct job *job, uint64_t step)
{
    rondo_tensor_item *items = calloc((size_t)o.many, sizeof(*items));
    rondo_tensor *tensors = calloc((size_t)o.many, sizeof(*tensors));
    for (long n = 0; n < o.iters + o.warmup; n++) {
        for (long i = 0; i < o.many; i++) {
            tensors[i] = (rondo_tensor)RONDO_TENSOR_INIT;
            tensors[i].data = job->memory + (size_t)i * job->bytes;
            tensors[i].bytes = job->bytes;
            items[i] = (rondo_tensor_item){ .key = job->keys[i], .step = step, .tensor = &tensors[i] };
        }
        double begin = test_now();
        TEST_MUST(rondo_tensor_pull_many(store, items, (size_t)o.many, NULL), NULL);
        if (n >= o.warmup) {
            job->times[n - o.warmup] = test_now() - begin;
        }
    }
    free(items);
    free(tensors);
    return median(job->times, o.iters);
}

/* One transfer of all tensors by MPI, which rank 1 asks for. */
static void mpi_once(const struct job *job, MPI_Request *requests, MPI_Status *statuses)
{
    char go = 0;
    int count = (int)job->bytes;
    if (test.rank == 0) {
        MPI_Recv(&go, 1, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (long i = 0; i < o.many; i++) {
        uint8_t *at = job->memory + (size_t)i * job->bytes;
        if (test.rank == 0) {
            MPI_Isend(at, count, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[i]);
        } else {
            MPI_Irecv(at, count, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[i]);
        }
    }
    if (test.rank == 1) {
        MPI_Send(&go, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    MPI_Waitall((int)o.many, requests, statuses); /* MPICH's header warns of MPI_STATUSES_IGNORE */
}

static double by_mpi(struct job *job)
{
    MPI_Request *requests = calloc((size_t)o.many, sizeof(*requests));
    MPI_Status *statuses = calloc((size_t)o.many, sizeof(*statuses));
    for (long n = 0; n < o.iters + o.warmup; n++) {
        double begin = test_now();
        mpi_once(job, requests, statuses);
        if (n >= o.warmup) {
            job->times[n - o.warmup] = test_now() - begin;
        }
    }
    free(requests);
    free(statuses);
    return median(job->times, o.iters);
}

static void row(rondo_tensor_store *store, size_t bytes, uint64_t step)
{
    static struct job job;
    double us = 0, mpi_us = 0, total = (double)bytes * (double)o.many;
    void *memory = NULL;
    job.bytes = bytes;
    job.keys = calloc((size_t)o.many, sizeof(*job.keys));
    if (o.memory == 2) {
        TEST_MUST(rondo_tensor_alloc(store, bytes * (size_t)o.many, &memory), NULL);
    } else if (posix_memalign(&memory, 4096, bytes * (size_t)o.many) != 0) {
        test_die("no memory");
    }
    job.memory = memory;
    for (long i = 0; i < o.many; i++) {
        snprintf(job.keys[i], sizeof(job.keys[i]), "t%ld", i);
    }
    fill(&job);
    if (test.rank == 0) {
        publish(store, &job, step);
    } else {
        us = 1e6 * pull(store, &job, step);
        check(&job, "rondo");
        fill(&job);
    }
    double counts[2][2];
    count(store, counts[test.rank]);
    if (o.vs_mpi) {
        mpi_us = 1e6 * by_mpi(&job);
    }
    if (test.rank == 1) {
        printf("%12zu %8ld %12.2f %8.2f", bytes, o.many, us, total / us / 1e3);
        if (o.vs_mpi) {
            check(&job, "MPI");
            printf(" %12.2f %8.2f %7.2f", mpi_us, total / mpi_us / 1e3, mpi_us / us);
        }
        printf("\n");
        if (o.counts) {
            MPI_Recv(counts[0], 2, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int i = 0; i < 2; i++) {
                printf("# rank %d: %.1f message buffers, %.1f acknowledgements\n", i, counts[i][0],
                       counts[i][1]);
            }
        }
        fflush(stdout);
    } else if (o.counts) {
        MPI_Send(counts[0], 2, MPI_DOUBLE, 1, 2, MPI_COMM_WORLD);
    }
    if (o.memory == 2) {
        TEST_MUST(rondo_tensor_free(store, memory), NULL);
    } else {
        free(memory);
    }
    free(job.keys);
    test_watchdog(300);
}

static int parse(int argc, char **argv)
{
    static const struct option options[] = {
        { "vs", 1, NULL, 'v' }, { "counts", 0, NULL, 'c' }, { "help", 0, NULL, 'h' }, { NULL, 0, NULL, 0 }
    };
    int c, ok = 1;
    while ((c = getopt_long(argc, argv, "b:e:f:m:n:w:R:h", options, NULL)) != -1) {
        switch (c) {
        case 'b': ok &= test_parse_size(optarg, &o.first) && o.first > 0; break;
        case 'e': ok &= test_parse_size(optarg, &o.last) && o.last <= INT32_MAX; break;
        case 'f': ok &= test_parse_long(optarg, 2, 1024, &o.factor); break;
        case 'm': ok &= test_parse_long(optarg, 1, 1000000, &o.many); break;
        case 'n': ok &= test_parse_long(optarg, 1, MOST_ITERS, &o.iters); break;
        case 'w': ok &= test_parse_long(optarg, 0, MOST_ITERS, &o.warmup); break;
        case 'R': ok &= test_parse_long(optarg, 0, 2, &o.memory) && o.memory != 1; break;
        case 'v': ok &= o.vs_mpi = strcmp(optarg, "mpi") == 0; break;
        case 'c': o.counts = 1; break;
        case 'h':
            if (test.rank == 0) {
                fputs(usage, stdout);
            }
            return 0;
        default: ok = 0;
        }
    }
    if ((!ok || optind != argc) && test.rank == 0) {
        fputs(usage, stderr);
    }
    return ok && optind == argc ? -1 : USAGE_ERROR;
}

int main(int argc, char **argv)
{
    rondo_comm *comm = NULL;
    rondo_tensor_store *store = NULL;
    test_init("tensor_perf", MPI_THREAD_FUNNELED);
    int ends = parse(argc, argv);
    if (ends < 0 && test.nranks != 2) {
        if (test.rank == 0) {
            fprintf(stderr, "tensor_perf: %d ranks; it needs 2\n", test.nranks);
        }
        ends = USAGE_ERROR;
    }
    if (ends >= 0) {
        MPI_Finalize();
        return ends;
    }
    test_watchdog(300);
    test.what = "tensor_perf";
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm), comm);
    TEST_MUST(rondo_tensor_store_create(comm, NULL, &store), NULL);
    if (test.rank == 1) {
        printf("#      bytes  tensors    pull (us)     GB/s%s\n",
               o.vs_mpi ? "     mpi (us)     GB/s   ratio" : "");
    }
    uint64_t step = 0;
    for (size_t bytes = o.first; bytes <= o.last; bytes *= (size_t)o.factor) {
        row(store, bytes, step++);
    }
    TEST_MUST(rondo_tensor_store_destroy(store), NULL);
    TEST_MUST(rondo_comm_destroy(comm), NULL);
    return test_finish();
}
