/*
 * mpi_netdev: a single net device, without a transport and without the engine. Ranks 2k and 2k+1 exchange
 * handles over MPI, then messages in both directions at once, which are verified.
 *
 *   mpirun -n 2 mpi_netdev                           0 B to 1 MiB over verbs, with the packets per message
 *                                                    from Soft-RoCE's counters
 *   mpirun -n 2 mpi_netdev --net socket --max 4M     over sockets
 *   mpirun -n 2 mpi_netdev --seconds 8 --max 4K      repeat, while something breaks the network
 *
 * On an error of the device it prints the error and the seconds since the last message arrived, and exits
 * with status 3. Each rank prints "running" when both ends are connected.
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
#include "mpi_common.h"
#include "net/netdev.h"

enum { UNDER_WAY = 4, PAGE = 4096, TAG = 7 };

static struct {
    const char *net;
    size_t max;
    long seconds, rounds;
} o = { .net = "verbs", .max = 1 << 20, .rounds = 8 };

struct end {
    void *comm, *region, *request[UNDER_WAY];
    uint8_t *data; /* UNDER_WAY messages of o.max bytes each */
};
static const struct rondo_net_device *net;
static struct rondo_net_properties nic;
static struct end ends[2]; /* receiver, sender */
static int peer;
static double last_arrival;
static unsigned long messages;
/* With --seconds, the first byte of a message tells whether its exchange is the last one. Rank 2k decides. */
static int is_last;

static void leave(rondo_status status)
{
    test_say("%s after %.2f s: %s", rondo_status_string(status), test_now() - last_arrival,
             rondo_error_text());
    for (int i = 0; i < 2; i++) {
        net->close(ends[i].comm);
    }
    net->finalize();
    fflush(stderr);
    _exit(3);
}

static void must(rondo_status status)
{
    if (status != RONDO_SUCCESS) {
        leave(status);
    }
}

/* ---- set-up ---- */

static void end_open(struct end *end, int is_send, const struct rondo_net_peer *to)
{
    uint8_t mine[RONDO_NET_HANDLE], theirs[RONDO_NET_HANDLE];
    double start;
    rondo_status status;
    end->data = aligned_alloc(PAGE, UNDER_WAY * o.max);
    if (end->data == NULL) {
        test_die("no memory for %zu bytes", UNDER_WAY * o.max);
    }
    must(net->prepare(0, to, is_send, &end->comm, mine));
    /* The lower rank exchanges the handle of its send end with that of the higher rank's receive end. */
    MPI_Sendrecv(mine, sizeof mine, MPI_BYTE, peer, is_send, theirs, sizeof theirs, MPI_BYTE, peer, !is_send,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    start = test_now();
    while ((status = net->connect(end->comm, theirs)) == RONDO_IN_PROGRESS && test_now() - start < 20) {
        sched_yield();
    }
    must(status == RONDO_IN_PROGRESS ? rondo_fail(RONDO_TIMEOUT, "not connected after 20 s") : status);
    must(net->reg(end->comm, end->data, UNDER_WAY * o.max, RONDO_NET_HOST, -1, &end->region));
}

static void open_both(void)
{
    struct rondo_net_peer to = { .rank = peer, .self = test.rank, .secret = { 1, 2 } };
    char name[RONDO_HOST_LEN] = "", why[512] = "";
    int n = 0;
    must(net->init(&n, why, sizeof why));
    if (n == 0) {
        test_die("no %s device on %s: %s", o.net, rondo_log_host(), why);
    }
    must(net->properties(0, &nic));
    snprintf(name, sizeof name, "%s", rondo_log_host());
    MPI_Sendrecv(name, sizeof name, MPI_BYTE, peer, 2, to.host, sizeof to.host, MPI_BYTE, peer, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    last_arrival = test_now();
    end_open(&ends[test.rank % 2], test.rank % 2, &to);
    end_open(&ends[1 - test.rank % 2], 1 - test.rank % 2, &to);
    last_arrival = test_now();
}

/* ---- messages ---- */

static uint8_t byte_of(int from, unsigned long message, size_t i)
{
    return (uint8_t)((unsigned long)from * 31 + message * 17 + i * 7 + i / 251);
}

static void fill(int slot, unsigned long message, size_t bytes)
{
    uint8_t *out = ends[1].data + (size_t)slot * o.max, *in = ends[0].data + (size_t)slot * o.max;
    for (size_t i = 0; i < bytes; i++) {
        out[i] = byte_of(test.rank, message, i);
        in[i] = (uint8_t)~byte_of(peer, message, i);
    }
    if (o.seconds > 0) {
        out[0] = (uint8_t)is_last;
    }
    if (bytes < o.max) {
        in[bytes] = 0xa5;
    }
}

static void verify(int slot, unsigned long message, size_t bytes, size_t arrived)
{
    const uint8_t *in = ends[0].data + (size_t)slot * o.max;
    size_t wrong = 0;
    for (size_t i = o.seconds > 0; i < bytes; i++) {
        wrong += in[i] != byte_of(peer, message, i);
    }
    if (o.seconds > 0 && test.rank % 2 != 0) {
        is_last = in[0];
    }
    wrong += bytes < o.max && in[bytes] != 0xa5;
    test_check(wrong == 0 && arrived == bytes, "message %lu of %zu bytes: %zu wrong, %zu arrived", message,
               bytes, wrong, arrived);
}

/* Post what is not posted, and test what is. Slots are freed in order. @return 1 when nothing is pending. */
static int move(int is_send, int n, size_t bytes, int *posted, int *done)
{
    struct end *end = &ends[is_send];
    while (*posted < n) {
        void **request = &end->request[*posted], *data = end->data + (size_t)*posted * o.max;
        int tag = TAG;
        must(is_send ? net->isend(end->comm, data, bytes, TAG, end->region, request)
                     : net->irecv(end->comm, 1, &data, &bytes, &tag, &end->region, request));
        if (*request == NULL) {
            break;
        }
        (*posted)++;
    }
    while (*done < *posted) {
        size_t arrived = 0;
        int finished = 0;
        must(net->test(end->request[*done], &finished, &arrived));
        if (!finished) {
            break;
        }
        if (!is_send) {
            verify(*done, messages + (unsigned long)*done, bytes, arrived);
        }
        last_arrival = test_now();
        (*done)++;
    }
    return *done == n;
}

/* Exchange n messages of one size in each direction. */
static void exchange(int n, size_t bytes)
{
    int posted[2] = { 0, 0 }, done[2] = { 0, 0 }, idle = 0;
    for (int i = 0; i < n; i++) {
        fill(i, messages + (unsigned long)i, bytes);
    }
    while (idle != 3) {
        idle = move(0, n, bytes, &posted[0], &done[0]) | move(1, n, bytes, &posted[1], &done[1]) << 1;
        if (idle != 3) {
            sched_yield();
        }
    }
    messages += (unsigned long)n;
}

/* ---- the NIC's counters ---- */

/* The counters of retransmissions come last. */
static const char *const counters[] = { "sent_pkts", "rdma_recvs", "completer_retry_err", "duplicate_request",
                                        "out_of_seq_request" };
enum { PACKETS, RECEIVES, TWICE, NUM_COUNTERS = TEST_ARRAY_LEN(counters), MTU = 4096 };

/* @return -1 if the NIC has no such counter. */
static long counter(const char *name)
{
    char path[256];
    long value = -1;
    FILE *file;
    snprintf(path, sizeof path, "/sys/class/infiniband/%.*s/ports/%d/hw_counters/%s",
             (int)strcspn(nic.name, ":"), nic.name, nic.port, name);
    file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%ld", &value) != 1) {
            value = -1;
        }
        fclose(file);
    }
    return value;
}

/* Sum the counters over all ranks while none sends. sysfs may lag; it says by how many ms. */
static void count(long *values)
{
    long age = counter("lifespan");
    MPI_Barrier(MPI_COMM_WORLD);
    usleep(age < 0 ? 0 : (useconds_t)(age + 1) * 1000);
    for (int c = 0; c < NUM_COUNTERS; c++) {
        values[c] = counter(counters[c]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static int ranks_here(void)
{
    MPI_Comm here;
    int n;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &n);
    MPI_Comm_free(&here);
    return n;
}

/* For a message in each direction, a rank sends the message's packets, a clear-to-send for the peer's
 * message, and an acknowledgement for each of the peer's two writes. It consumes one receive. */
static void check_counts(const long *before, const long *after, int sharers, size_t bytes)
{
    long packets = o.rounds * (3 + (bytes == 0 ? 1 : (long)((bytes + MTU - 1) / MTU)));
    for (int c = TWICE; c < NUM_COUNTERS; c++) {
        if (before[c] != after[c]) {
            return;
        }
    }
    if (before[PACKETS] >= 0) {
        test_check(after[PACKETS] - before[PACKETS] == sharers * packets &&
                       after[RECEIVES] - before[RECEIVES] == sharers * o.rounds,
                   "%zu bytes, %ld messages, %d ranks: %ld packets (%ld a rank are needed), %ld receives",
                   bytes, o.rounds, sharers, after[PACKETS] - before[PACKETS], packets,
                   after[RECEIVES] - before[RECEIVES]);
    }
}

static void sizes(void)
{
    static const size_t all[] = { 0,     1,       8,       255,     4096,    4097,   32768,
                                  65536, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26 };
    int sharers = ranks_here();
    if (test.rank == 0) {
        printf("# %s on %s and its peer\n#%11s %12s %12s %12s\n", nic.name, rondo_log_host(), "bytes",
               "us/message", "packets", "receives");
    }
    for (size_t i = 0; i < TEST_ARRAY_LEN(all) && all[i] <= o.max; i++) {
        long before[NUM_COUNTERS], after[NUM_COUNTERS];
        double start, end, each = (double)(o.rounds * sharers);
        count(before);
        start = test_now();
        for (long sent = 0; sent < o.rounds; sent += UNDER_WAY) {
            exchange(UNDER_WAY, all[i]);
        }
        end = test_now();
        count(after);
        check_counts(before, after, sharers, all[i]);
        if (test.rank == 0) {
            printf("%12zu %12.1f %12.2f %12.2f\n", all[i], (end - start) * 1e6 / (double)o.rounds,
                   (double)(after[PACKETS] - before[PACKETS]) / each,
                   (double)(after[RECEIVES] - before[RECEIVES]) / each);
        }
    }
}

static void for_seconds(void)
{
    double start = test_now(), worst = 0;
    printf("running\n");
    for (size_t bytes = o.max; !is_last; bytes = bytes > 1 ? bytes / 2 : o.max) {
        double begin = test_now();
        is_last = test.rank % 2 == 0 && begin - start > (double)o.seconds;
        exchange(UNDER_WAY, bytes);
        worst = test_now() - begin > worst ? test_now() - begin : worst;
    }
    test_say("%lu messages, the longest exchange took %.2f s", messages, worst);
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = { { "net", required_argument, NULL, 'n' },
                                             { "max", required_argument, NULL, 'm' },
                                             { "seconds", required_argument, NULL, 's' },
                                             { "rounds", required_argument, NULL, 'r' },
                                             { NULL, 0, NULL, 0 } };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'n') {
            o.net = optarg;
        } else if ((c == 'm' && (!test_parse_size(optarg, &o.max) || o.max < 1 || o.max > (64u << 20))) ||
                   (c == 's' && !test_parse_long(optarg, 1, 3600, &o.seconds)) ||
                   (c == 'r' && !test_parse_long(optarg, UNDER_WAY, 1000, &o.rounds)) || c == '?') {
            test_die("usage: mpi_netdev [--net verbs|socket] [--max BYTES] [--rounds N | --seconds S]");
        }
    }
    o.rounds -= o.rounds % UNDER_WAY;
}

int main(int argc, char **argv)
{
    test_init("mpi_netdev", MPI_THREAD_SINGLE);
    parse(argc, argv);
    if (test.nranks % 2 != 0) {
        test_die("the number of ranks must be even");
    }
    if (rondo_param_init() != RONDO_SUCCESS) {
        test_die("%s", rondo_error_text());
    }
    net = rondo_netdev_by_name(o.net);
    if (net == NULL) {
        test_die("unknown net device %s", o.net);
    }
    peer = test.rank ^ 1;
    test.what = o.net;
    test_watchdog(o.seconds > 0 ? (int)o.seconds + 60 : 120);
    open_both();
    if (o.seconds > 0) {
        for_seconds();
    } else {
        sizes();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        must(net->unreg(ends[i].comm, ends[i].region));
        net->close(ends[i].comm);
        free(ends[i].data);
    }
    net->finalize();
    return test_finish();
}
