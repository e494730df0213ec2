/*
 * mpi_tensor: random tensors between processes. All ranks know the list of tensors: who publishes each one,
 * who pulls it, its size, its key and step, which slice is pulled, and whether it is published before or
 * after it is asked for. Every byte that arrives is checked. Each rank also works out what its end of the
 * store must have done, and compares: messages of each type, contents, bytes that a CPU copied besides, and
 * an upper bound of registrations.
 *
 *   mpirun -n N mpi_tensor [--count N] [--most SIZE] [--seed N]
 *   mpirun -n N mpi_tensor --kill RANK     that rank dies; the others get an error that names it
 *   mpirun -n N mpi_tensor --segments N    tensors in so many segments of the heap of rank 0
 */
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mpi_common.h"
#include "rondo_tensor.h"

enum { WINDOW = 64, WAIT_MS = 120000, MOST_COUNT = 65536 /* RONDO_TENSOR_CACHE */, HOST = 256 };

static struct {
    long count, seed, kill, segments;
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
    uint64_t h = test_hash((uint64_t)o.seed, (uint64_t)i, 1), g = test_hash((uint64_t)o.seed, (uint64_t)i, 2),
             key = (uint64_t)(i % WINDOW), /* at most one pull of a key is under way */
        pair = (h >> 50 & 3) != 0 ? test_hash((uint64_t)o.seed, key, 3) : h;
    struct tensor t = { .publisher = (int)(pair % (unsigned)test.nranks),
                        .puller = (int)((pair >> 16) % (unsigned)test.nranks),
                        .first = h >> 32 & 1,
                        .from_arena = h >> 33 & 1,
                        .many = h >> 34 & 1,
                        .key = key,
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

/* ---- what a rank's end of the store must have done ---- */

struct expected {
    uint64_t pulls, first_pulls, meta_data, contents, content_bytes, delivered, staged, staged_without_cma;
    uint64_t outside; /* contents that a device without RONDO_NET_APART registers for themselves */
    uint64_t direct;  /* contents that are written by RDMA from where they lie */
    uint64_t framed;  /* contents that share writes by RDMA */
};

/* What a puller knows of a part of a key: how long it was. */
struct known {
    int publisher, puller;
    uint64_t key;
    rondo_tensor_slice slice;
    size_t bytes;
};

static int is_net(const char *hosts, int a, int b)
{
    const char *transport = getenv("RONDO_TENSOR_TRANSPORT");
    return a != b && ((transport != NULL && strcmp(transport, "net") == 0) ||
                      strncmp(hosts + a * HOST, hosts + b * HOST, HOST) != 0);
}

/* Do net devices write contents straight to their places? Verbs do; the tests have no other devices but
 * sockets. */
static int writes(void)
{
    const char *net = getenv("RONDO_NET");
    return net == NULL || strcmp(net, "socket") != 0;
}

/* Does the pull take two round trips: is the part not known, or has it another length now? */
static int is_first(struct known *known, size_t size, const struct tensor *t, size_t bytes)
{
    uint64_t at = test_hash(t->key, (uint64_t)(t->publisher * test.nranks + t->puller),
                            test_hash(t->slice.part, t->slice.first, t->slice.count));
    struct known *k = &known[at % size];
    for (; k->puller >= 0; k = k + 1 < known + size ? k + 1 : known) {
        if (k->publisher == t->publisher && k->puller == t->puller && k->key == t->key &&
            k->slice.part == t->slice.part && k->slice.first == t->slice.first &&
            k->slice.count == t->slice.count) {
            int changed = k->bytes != bytes;
            k->bytes = bytes;
            return changed;
        }
    }
    *k = (struct known){ t->publisher, t->puller, t->key, t->slice, bytes };
    return 1;
}

static void expect(struct expected *e, const char *hosts)
{
    size_t size = 2 * (size_t)o.count, eager = 8 << 10 /* RONDO_TENSOR_EAGER */,
           small = 1 << 10; /* RONDO_TENSOR_ALWAYS_FRAMED */
    struct known *known = calloc(size, sizeof(*known));
    for (size_t i = 0; i < size; i++) {
        known[i].puller = -1;
    }
    for (long i = 0; i < o.count; i++) {
        struct tensor t = tensor_number(i);
        size_t bytes = t.slice.part == RONDO_TENSOR_ALL ? t.bytes : (size_t)t.slice.count;
        int first = is_first(known, size, &t, bytes), net = is_net(hosts, t.publisher, t.puller),
            framed = net && writes() && bytes <= small, /* places are in an arena */
            copies = net && bytes <= eager; /* at the end whose memory is not in an arena, or at both */
        if (t.puller == test.rank) {
            e->pulls++;
            e->first_pulls += first;
            e->delivered += net;
            e->staged += framed || (copies && !writes()) ? bytes : 0;
        }
        if (t.publisher == test.rank) {
            e->meta_data += first;
            e->contents++;
            e->content_bytes += bytes;
            e->staged += framed || (copies && !(writes() && t.from_arena)) ? bytes : 0;
            e->framed += framed;
            e->direct += net && writes() && !framed && !(copies && !t.from_arena);
            e->outside += net && bytes > eager && !t.from_arena;
            e->staged_without_cma += !net && t.puller != test.rank && !t.from_arena ? bytes : 0;
        }
    }
    free(known);
}

#define SAME(what, has, wants)                                                                         \
    test_check((has) == (wants), "%s: %llu, the protocol makes %llu", what, (unsigned long long)(has), \
               (unsigned long long)(wants))

static void check_messages(const rondo_tensor_stats *s, const struct expected *e)
{
    SAME("requests", s->requests, e->pulls);
    SAME("re-requests", s->re_requests, e->first_pulls);
    SAME("meta-data responses", s->meta_data, e->meta_data);
    SAME("errors", s->errors, 0u);
    SAME("other messages", s->other_messages, e->delivered);
    SAME("contents", s->contents, e->contents);
    SAME("bytes of contents", s->content_bytes, e->content_bytes);
    SAME("pulled", s->pulled, e->pulls);
    SAME("dropped", s->dropped, 0u);
    SAME("cloned bytes", s->cloned_bytes, 0u);
    SAME("contents by RDMA from where they lay", s->direct, e->direct);
    SAME("contents that share writes", s->framed, e->framed);
}

/* May the kernel copy between the processes of this host? All ranks call it. */
static int may_cma(const char *hosts)
{
    struct {
        long pid;
        const uint64_t *at;
    } mine, *all = calloc((size_t)test.nranks, sizeof(*all));
    static uint64_t known = 0x7e4a1f0c;
    const char *cma = getenv("RONDO_CMA");
    int may = cma == NULL || strcmp(cma, "0") != 0, everywhere = 0;
    mine.pid = getpid();
    mine.at = &known;
    MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < test.nranks; r++) {
        uint64_t got = 0;
        struct iovec local = { &got, sizeof(got) }, remote = { (void *)(uintptr_t)all[r].at, sizeof(got) };
        if (strncmp(hosts + r * HOST, hosts + test.rank * HOST, HOST) == 0) {
            may &= process_vm_readv((pid_t)all[r].pid, &local, 1, &remote, 1, 0) == (ssize_t)sizeof(got) &&
                   got == known;
        }
    }
    free(all);
    MPI_Allreduce(&may, &everywhere, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    return everywhere;
}

/* Nothing is copied besides, but small contents over sockets, or from outside an arena by RDMA; and where the
 * kernel may not copy between processes, tensors outside the arenas. */
static void check_memory(const rondo_tensor_stats *s, const struct expected *e, int cma)
{
    uint64_t most = 2 * s->connections * (1 + s->arenas_made) + (writes() ? e->outside : 0),
             staged = e->staged + (cma ? 0 : e->staged_without_cma);
    test_check(s->staged_bytes == staged, "%llu bytes were copied besides, expected %llu %s process_vm_readv",
               (unsigned long long)s->staged_bytes, (unsigned long long)staged, cma ? "with" : "without");
    test_check(s->registrations <= most, "%llu registrations with %llu arenas and %llu connections",
               (unsigned long long)s->registrations, (unsigned long long)s->arenas_made,
               (unsigned long long)s->connections);
}

/* Every write of a message buffer is acknowledged, soon after. */
static void check_acks(rondo_tensor_store *store)
{
    uint64_t mine[2], all[2];
    int looks = 0;
    do {
        rondo_tensor_stats s = { .size = sizeof(s) };
        TEST_MUST(rondo_tensor_store_stats(store, &s), NULL);
        mine[0] = s.message_writes;
        mine[1] = s.acks;
        MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        usleep(all[0] != all[1] ? 10000 : 0);
    } while (all[0] != all[1] && looks++ < 3000);
    SAME("acknowledgements of all ranks", all[1], all[0]);
}

static void random_tensors(rondo_tensor_store *store)
{
    rondo_tensor_stats stats = { .size = sizeof(stats) };
    struct expected e = { 0 };
    char *hosts = calloc((size_t)test.nranks, HOST), host[MPI_MAX_PROCESSOR_NAME + HOST] = "";
    int length;
    MPI_Get_processor_name(host, &length);
    MPI_Allgather(host, HOST, MPI_CHAR, hosts, HOST, MPI_CHAR, MPI_COMM_WORLD);
    expect(&e, hosts);
    for (long i = 0; i < o.count; i += WINDOW) {
        window(store, i, (int)(o.count - i < WINDOW ? o.count - i : WINDOW));
    }
    TEST_MUST(rondo_tensor_store_stats(store, &stats), NULL);
    check_messages(&stats, &e);
    check_memory(&stats, &e, may_cma(hosts));
    check_acks(store);
    printf("mpi_tensor: rank %d of seed %ld: %llu of %llu pulls in two round trips, %llu of %llu contents by "
           "RDMA "
           "from where they lay, %llu bytes copied besides, %llu registrations, %llu arenas\n",
           test.rank, o.seed, (unsigned long long)stats.re_requests, (unsigned long long)stats.requests,
           (unsigned long long)stats.direct, (unsigned long long)stats.contents,
           (unsigned long long)stats.staged_bytes, (unsigned long long)stats.registrations,
           (unsigned long long)stats.arenas_made);
    free(hosts);
}

/* ---- segments ---- */

enum { MOST_SEGMENTS = 256, SEGMENT = 2 << 20, PART = 64 };

/* While this process may have only little more memory than it has, the heap takes no larger segments. */
static rondo_status alloc_alone(uint8_t **data)
{
    struct rlimit before, few;
    long pages = 0;
    rondo_status status;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld", &pages) != 1 || getrlimit(RLIMIT_AS, &before) != 0) {
        test_die("no /proc/self/statm");
    }
    fclose(file);
    few = before;
    few.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + 16 * SEGMENT;
    setrlimit(RLIMIT_AS, &few);
    status = rondo_mem_alloc((void **)data, SEGMENT);
    setrlimit(RLIMIT_AS, &before);
    return status;
}

/* Memory in a segment of its own. Another thread may use up that little, as one that starts does: try
 * again. */
static uint8_t *segment_new(int number)
{
    uint8_t *data = NULL;
    rondo_status status;
    for (int tries = 0; (status = alloc_alone(&data)) != RONDO_SUCCESS && tries < 100; tries++) {
        usleep(1000);
    }
    TEST_MUST(status, NULL);
    for (int i = 0; i < PART; i++) {
        data[SEGMENT / 2 + i] = (uint8_t)(number * 7 + i);
    }
    return data;
}

/* Pull a part of each at once, from more segments than a connection describes or maps at a time. */
static void pull_parts(rondo_tensor_store *store)
{
    static rondo_tensor got[MOST_SEGMENTS];
    static rondo_tensor_item items[MOST_SEGMENTS];
    static char keys[MOST_SEGMENTS][24];
    rondo_tensor_request *request;
    for (int i = 0; i < (int)o.segments; i++) {
        snprintf(keys[i], sizeof(keys[i]), "segment/%d", i);
        got[i] = (rondo_tensor)RONDO_TENSOR_INIT;
        items[i] = (rondo_tensor_item){ .key = keys[i],
                                        .peer = 0,
                                        .step = 0,
                                        .slice = { RONDO_TENSOR_BYTES, SEGMENT / 2, PART },
                                        .tensor = &got[i] };
    }
    TEST_MUST(rondo_tensor_pull_many(store, items, (size_t)o.segments, &request), NULL);
    TEST_MUST(rondo_tensor_wait(request, WAIT_MS), NULL);
    for (int i = 0; i < (int)o.segments; i++) {
        const uint8_t *data = got[i].data;
        int wrong = got[i].bytes != PART;
        for (int k = 0; k < PART && got[i].bytes == PART; k++) {
            wrong += data[k] != (uint8_t)(i * 7 + k);
        }
        test_check(wrong == 0, "segment %d: %d of %zu bytes are wrong", i, wrong, got[i].bytes);
        TEST_MUST(rondo_tensor_free(store, got[i].data), NULL);
    }
}

static void many_segments(rondo_tensor_store *store)
{
    static uint8_t *data[MOST_SEGMENTS];
    char key[24];
    for (int i = 0; i < (int)o.segments && test.rank == 0; i++) {
        rondo_tensor tensor = RONDO_TENSOR_INIT;
        data[i] = segment_new(i);
        tensor.data = data[i];
        tensor.bytes = SEGMENT;
        snprintf(key, sizeof(key), "segment/%d", i);
        TEST_MUST(rondo_tensor_publish(store, key, 0, &tensor, RONDO_TENSOR_UNTIL_RETIRED, NULL), NULL);
    }
    for (int round = 0; round < 20; round++) {
        if (test.rank > 0) {
            pull_parts(store);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (test.rank == 0) {
        TEST_MUST(rondo_tensor_retire(store, 0), NULL);
    }
    for (int i = 0; i < (int)o.segments && test.rank == 0; i++) {
        TEST_MUST(rondo_mem_free(data[i]), NULL);
    }
}

/* ---- a death ---- */

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
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(200000); /* most likely, they wait by then */
        kill(getpid(), SIGKILL);
    }
    TEST_MUST(rondo_tensor_recv(store, "there", victim, 0, &got, NULL), NULL);
    MPI_Barrier(MPI_COMM_WORLD);
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
    static const struct option options[] = { { "count", 1, NULL, 'c' },    { "most", 1, NULL, 'm' },
                                             { "seed", 1, NULL, 's' },     { "kill", 1, NULL, 'k' },
                                             { "segments", 1, NULL, 'g' }, { NULL, 0, NULL, 0 } };
    int c, ok = 1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'c': ok &= test_parse_long(optarg, 1, MOST_COUNT, &o.count); break;
        case 'm': ok &= test_parse_size(optarg, &o.most); break;
        case 's': ok &= test_parse_long(optarg, 0, INT32_MAX, &o.seed); break;
        case 'k': ok &= test_parse_long(optarg, 0, test.nranks - 1, &o.kill); break;
        case 'g': ok &= test_parse_long(optarg, 1, MOST_SEGMENTS, &o.segments); break;
        default: ok = 0;
        }
    }
    if (!ok || optind != argc) {
        test_die("usage: mpi_tensor [--count N] [--most SIZE] [--seed N] [--kill RANK] [--segments N]");
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
    if (o.segments > 0) {
        many_segments(store);
    } else {
        random_tensors(store);
    }
    TEST_MUST(rondo_tensor_store_destroy(store), NULL);
    TEST_MUST(rondo_comm_destroy(comm), NULL);
    return test_finish();
}
