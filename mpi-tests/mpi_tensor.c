/*
 * mpi_tensor: random tensors between processes. All ranks know the list of tensors: who publishes each one,
 * who pulls it, its size, its key and step, which slice is pulled, and whether it is published before or
 * after it is asked for. Every byte that arrives is checked, and the numbers of messages are those of the
 * protocol.
 *
 *   mpirun -n N mpi_tensor [--count N] [--most SIZE] [--seed N]
 *   mpirun -n N mpi_tensor --kill RANK     that rank dies; the others get an error that names it
 */
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi_common.h"
#include "rondo_tensor.h"

enum { KEYS = 4, WINDOW = 64, WAIT_MS = 120000 };

static struct {
    long count, seed, kill;
    size_t most;
} o = { .count = 1500, .seed = 1, .kill = -1, .most = 1 << 20 };

struct tensor {
    int publisher, puller, first, from_arena, many;
    uint64_t key, hash;
    size_t bytes;
    rondo_tensor_slice slice;
};

static struct tensor tensor_number(long i)
{
    uint64_t h = test_hash((uint64_t)o.seed, (uint64_t)i, 1), g = test_hash((uint64_t)o.seed, (uint64_t)i, 2);
    struct tensor t = { .publisher = (int)(h % (unsigned)test.nranks),
                        .puller = (int)((h >> 16) % (unsigned)test.nranks),
                        .first = h >> 32 & 1,
                        .from_arena = h >> 33 & 1,
                        .many = h >> 34 & 1,
                        .key = g % KEYS,
                        .hash = g };
    int bits = 0;
    while ((o.most >> bits) > 1) {
        bits++;
    }
    /* Sizes are spread over the powers of two; mostly a key keeps the size that it had before. */
    if ((g >> 40 & 7) != 0) {
        g = test_hash((uint64_t)o.seed, t.key, (uint64_t)t.publisher + 3);
    }
    t.bytes = (size_t)(1 + (g >> 8) % ((size_t)1 << (g >> 48) % (unsigned)(bits + 1)));
    if ((h >> 36 & 7) == 0) {
        t.slice.part = RONDO_TENSOR_BYTES;
        t.slice.first = (h >> 40) % t.bytes;
        t.slice.count = (h >> 20) % (t.bytes - t.slice.first + 1);
    }
    return t;
}

static uint8_t byte_at(const struct tensor *t, size_t i) { return (uint8_t)(t->hash + i * 13 + i / 509); }

/* One tensor on its way, at this rank. */
struct job {
    struct tensor t;
    uint8_t *data;
    rondo_tensor got;
    rondo_tensor_request *sent, *pulled;
    char key[24];
};

static void publish(rondo_tensor_store *store, struct job *job, long step)
{
    rondo_tensor tensor = RONDO_TENSOR_INIT;
    void *data = NULL;
    if (job->t.from_arena) {
        TEST_MUST(rondo_tensor_alloc(store, job->t.bytes, &data), NULL);
    } else if ((data = malloc(job->t.bytes)) == NULL) {
        test_die("no memory");
    }
    job->data = data;
    for (size_t i = 0; i < job->t.bytes; i++) {
        job->data[i] = byte_at(&job->t, i);
    }
    tensor.data = data;
    tensor.bytes = job->t.bytes;
    TEST_MUST(rondo_tensor_send(store, job->key, (uint64_t)step, &tensor, &job->sent), NULL);
}

static void check(const struct job *job, long step)
{
    int sliced = job->t.slice.part != RONDO_TENSOR_ALL;
    size_t first = sliced ? (size_t)job->t.slice.first : 0, wrong = 0,
           bytes = sliced ? (size_t)job->t.slice.count : job->t.bytes;
    const uint8_t *got = job->got.data;
    for (size_t i = 0; i < job->got.bytes && job->got.bytes == bytes; i++) {
        wrong += got[i] != byte_at(&job->t, first + i);
    }
    test_check(job->got.bytes == bytes && wrong == 0 && job->got.peer == job->t.publisher &&
                   job->got.step == (uint64_t)step,
               "tensor %ld from rank %d: %zu bytes, expected %zu; %zu are wrong", step, job->t.publisher,
               job->got.bytes, bytes, wrong);
}

static void pull(rondo_tensor_store *store, struct job *jobs, int n, long begin, rondo_tensor_request **many,
                 rondo_tensor_item *items)
{
    size_t nitems = 0;
    for (int i = 0; i < n; i++) {
        struct job *job = &jobs[i];
        rondo_tensor_item item = { .key = job->key,
                                   .peer = job->t.publisher,
                                   .step = (uint64_t)(begin + i),
                                   .slice = job->t.slice,
                                   .tensor = &job->got };
        job->got = (rondo_tensor)RONDO_TENSOR_INIT;
        if (job->t.puller != test.rank) {
            continue;
        }
        if (job->t.many) {
            items[nitems++] = item;
        } else {
            TEST_MUST(rondo_tensor_pull(store, item.key, item.peer, item.step, &item.slice, item.tensor,
                                        &job->pulled),
                      NULL);
        }
    }
    TEST_MUST(rondo_tensor_pull_many(store, items, nitems, many), NULL);
}

static void window(rondo_tensor_store *store, long begin, int n)
{
    static struct job jobs[WINDOW];
    static rondo_tensor_item items[WINDOW];
    rondo_tensor_request *many;
    memset(jobs, 0, sizeof(jobs));
    for (int i = 0; i < n; i++) {
        jobs[i].t = tensor_number(begin + i);
        snprintf(jobs[i].key, sizeof(jobs[i].key), "tensor/%d", (int)jobs[i].t.key);
        if (jobs[i].t.publisher == test.rank && jobs[i].t.first) {
            publish(store, &jobs[i], begin + i);
        }
    }
    pull(store, jobs, n, begin, &many, items);
    for (int i = 0; i < n; i++) {
        if (jobs[i].t.publisher == test.rank && !jobs[i].t.first) {
            publish(store, &jobs[i], begin + i);
        }
    }
    TEST_MUST(rondo_tensor_wait(many, WAIT_MS), NULL);
    for (int i = 0; i < n; i++) {
        if (jobs[i].pulled != NULL) {
            TEST_MUST(rondo_tensor_wait(jobs[i].pulled, WAIT_MS), NULL);
        }
        if (jobs[i].t.puller == test.rank) {
            check(&jobs[i], begin + i);
            TEST_MUST(rondo_tensor_free(store, jobs[i].got.data), NULL);
        }
    }
    for (int i = 0; i < n; i++) {
        if (jobs[i].sent != NULL) {
            TEST_MUST(rondo_tensor_wait(jobs[i].sent, WAIT_MS), NULL);
        }
        if (jobs[i].data != NULL && jobs[i].t.from_arena) {
            TEST_MUST(rondo_tensor_free(store, jobs[i].data), NULL);
        } else {
            free(jobs[i].data);
        }
    }
    test_watchdog(200);
}

static void random_tensors(rondo_tensor_store *store)
{
    rondo_tensor_stats stats = { .size = sizeof(stats) };
    uint64_t pulls = 0, mine[5], all[5];
    for (long i = 0; i < o.count; i += WINDOW) {
        window(store, i, (int)(o.count - i < WINDOW ? o.count - i : WINDOW));
    }
    for (long i = 0; i < o.count; i++) {
        pulls += tensor_number(i).puller == test.rank;
    }
    TEST_MUST(rondo_tensor_store_stats(store, &stats), NULL);
    test_check(stats.pulled == pulls && stats.requests == pulls && stats.dropped == 0 && stats.errors == 0,
               "%llu pulled of %llu, %llu requests", (unsigned long long)stats.pulled,
               (unsigned long long)pulls, (unsigned long long)stats.requests);
    mine[0] = stats.meta_data, mine[1] = stats.re_requests, mine[2] = stats.contents, mine[3] = stats.pulled;
    mine[4] = stats.content_bytes - stats.pulled_bytes; /* of all ranks: 0 */
    MPI_Allreduce(mine, all, 5, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    test_check(all[0] == all[1] && all[2] == all[3] && all[2] == (uint64_t)o.count && all[4] == 0,
               "%llu answers to %llu first requests, %llu contents for %llu pulls",
               (unsigned long long)all[0], (unsigned long long)all[1], (unsigned long long)all[2],
               (unsigned long long)all[3]);
    test_check(all[0] < (uint64_t)o.count * 9 / 10,
               "%llu of %ld pulls took two round trips: sizes repeat more", (unsigned long long)all[0],
               o.count);
    if (test.rank == 0) {
        printf("mpi_tensor: %ld tensors, seed %ld, %llu in two round trips, %llu bytes staged at rank 0\n",
               o.count, o.seed, (unsigned long long)all[0], (unsigned long long)stats.staged_bytes);
    }
}

/* A rank dies while the others wait for a tensor of it. */
static int one_dies(rondo_tensor_store *store)
{
    rondo_tensor got = RONDO_TENSOR_INIT, own = RONDO_TENSOR_INIT;
    static uint8_t data[100];
    double begun;
    int victim = (int)o.kill;
    own.data = data;
    own.bytes = sizeof(data);
    if (test.rank == victim) {
        TEST_MUST(rondo_tensor_publish(store, "there", 0, &own, RONDO_TENSOR_UNTIL_RETIRED, NULL), NULL);
        sleep(2);
        kill(getpid(), SIGKILL);
    }
    TEST_MUST(rondo_tensor_recv(store, "there", victim, 0, &got, NULL), NULL);
    begun = test_now();
    rondo_status status = rondo_tensor_recv(store, "absent", victim, 0, &got, NULL);
    int ok = test_check(status == RONDO_REMOTE_ERROR && test_names_rank(rondo_last_error(NULL), victim) &&
                            test_now() - begun < 15,
                        "%s after %.1f s: %s", rondo_status_string(status), test_now() - begun,
                        rondo_last_error(NULL));
    status = rondo_tensor_store_destroy(store);
    ok &= test_check(status == RONDO_REMOTE_ERROR, "destroy gave %s", rondo_status_string(status));
    printf("mpi_tensor: rank %d %s\n", test.rank, ok ? "was told of the death" : "failed");
    fflush(stdout);
    _exit(ok ? 0 : 1); /* MPI cannot be finalized after a death */
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = { { "count", 1, NULL, 'c' },
                                             { "most", 1, NULL, 'm' },
                                             { "seed", 1, NULL, 's' },
                                             { "kill", 1, NULL, 'k' },
                                             { NULL, 0, NULL, 0 } };
    int c, ok = 1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'c': ok &= test_parse_long(optarg, 1, 100000000, &o.count); break;
        case 'm': ok &= test_parse_size(optarg, &o.most); break;
        case 's': ok &= test_parse_long(optarg, 0, INT32_MAX, &o.seed); break;
        case 'k': ok &= test_parse_long(optarg, 0, test.nranks - 1, &o.kill); break;
        default: ok = 0;
        }
    }
    if (!ok || optind != argc) {
        test_die("usage: mpi_tensor [--count N] [--most SIZE] [--seed N] [--kill RANK]");
    }
}

int main(int argc, char **argv)
{
    rondo_comm *comm = NULL;
    rondo_tensor_store *store = NULL;
    test_init("mpi_tensor", MPI_THREAD_FUNNELED);
    parse(argc, argv);
    test_watchdog(200);
    test.what = "tensors";
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm), comm);
    TEST_MUST(rondo_tensor_store_create(comm, NULL, &store), NULL);
    if (o.kill >= 0) {
        return one_dies(store);
    }
    random_tensors(store);
    TEST_MUST(rondo_tensor_store_destroy(store), NULL);
    TEST_MUST(rondo_comm_destroy(comm), NULL);
    return test_finish();
}
