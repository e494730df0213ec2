/*
 * mpi_cost: with NET/verbs between all ranks (one rank per host, or RONDO_SHM_DISABLE=1), each collective,
 * with every algorithm and protocol, posts exactly the work requests that net_work.h says it needs.
 *
 *   mpirun -N 1 mpi_cost              count, up to 64 KiB
 *   mpirun -N 1 mpi_cost --most 4K    count, up to 4 KiB
 *   mpirun -N 1 mpi_cost --idle 2     over any net, call nothing for 2 s: the threads of each process must
 *                                     use less than 1 % of that as CPU time
 */
#include <getopt.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "holdings.h"
#include "mpi_calls.h"
#if RONDO_HAVE_VERBS
#include "net_work.h"
#endif

enum { SETTLED_MS = 100, IDLE_TRIES = 5 };
static const double most_idle = 0.01;
static size_t most = 64 << 10;
static long idle_s;

static void call(const char *coll, rondo_comm *comm, size_t bytes)
{
    size_t wrong = 0;
    rondo_status status = test_call_once(coll, comm, RONDO_FLOAT32, RONDO_SUM, bytes / sizeof(float), bytes,
                                         &wrong);
    test_check(status == RONDO_SUCCESS && wrong == 0, "%s of %zu bytes: %s, %zu wrong", coll, bytes,
               rondo_status_string(status), wrong);
}

/* ---- work requests ---- */

#if RONDO_HAVE_VERBS

static const char *const algos[] = { "ring", "tree", "doubling" };
static const char *const protos[] = {
    [RONDO_PROTO_LL] = "ll", [RONDO_PROTO_LL128] = "ll128", [RONDO_PROTO_SIMPLE] = "simple"
};

static struct net_work read_all(const rondo_comm *comm)
{
    struct net_work mine = { 0 }, total;
    if (!net_work_read(comm, &mine)) {
        test_die(
            "a connection does not use NET/verbs: start one rank per host, or set RONDO_SHM_DISABLE=1, and "
            "RONDO_NET=verbs");
    }
    MPI_Allreduce(&mine, &total, NET_WORK_WORDS, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return total;
}

/* The first call is not counted: it may make connections. */
static void count(const struct net_work_row *row, int proto, rondo_comm *comm, size_t bytes)
{
    struct net_work needed = net_work_needed(row, proto, comm->ctx->wiring.net.slot_bytes, test.nranks,
                                             bytes),
                    before, done;
    char text[200], needed_text[200];
    test_watchdog(60);
    call(row->coll, comm, bytes);
    before = read_all(comm);
    call(row->coll, comm, bytes);
    done = read_all(comm);
    for (size_t w = 0; w < NET_WORK_WORDS; w++) {
        ((uint64_t *)&done)[w] -= ((const uint64_t *)&before)[w];
    }
    net_work_text(&needed, needed_text, sizeof needed_text);
    net_work_text(&done, text, sizeof text);
    if (test.rank == 0) {
        printf("%-14s %-8s %-6s %7zu bytes: %s\n", row->coll, row->algo,
               row->as[0] != '\0' ? protos[proto] : "simple", bytes, text);
        test_check(memcmp(&done, &needed, sizeof done) == 0, "%s %s %s, %zu bytes: %s; expected %s",
                   row->coll, row->algo, protos[proto], bytes, text, needed_text);
    }
}

/* Create a communicator that is limited to an algorithm and a protocol. */
static rondo_comm *create(const char *algo, int proto)
{
    char text[200] = "";
    rondo_comm *comm;
    for (size_t row = 0; row < NET_WORK_ROWS; row++) {
        const struct net_work_row *r = &net_work_rows[row];
        if (r->as[0] != '\0' && strcmp(r->algo, algo) == 0) {
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s:%s", text[0] != '\0' ? ";" : "",
                     r->as, algo);
        }
    }
    setenv("RONDO_ALGO", text, 1);
    setenv("RONDO_PROTO", protos[proto], 1);
    setenv("RONDO_MAX_NCHANNELS", "1", 1);
    TEST_MUST(rondo_param_reload(), NULL);
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm), NULL);
    return comm;
}

static void count_all(void)
{
    static const size_t sizes[] = { 8, 1000, 4096, 16384, 65536 };
    for (size_t algo = 0; algo < TEST_ARRAY_LEN(algos); algo++) {
        for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
            rondo_comm *comm = create(algos[algo], proto);
            for (size_t row = 0; row < NET_WORK_ROWS; row++) {
                const struct net_work_row *r = &net_work_rows[row];
                int p2p = r->as[0] == '\0' && algo == 0 && proto == RONDO_PROTO_SIMPLE;
                int runs = (p2p || strcmp(r->algo, algos[algo]) == 0) &&
                           !(r->several_nodes && comm->ctx->wiring.layout.nnodes == 1);
                for (size_t i = 0; i < TEST_ARRAY_LEN(sizes) && runs; i++) {
                    if (sizes[i] <= most && sizes[i] <= r->most) {
                        count(r, proto, comm, sizes[i]);
                    }
                }
            }
            TEST_MUST(rondo_comm_destroy(comm), NULL);
        }
    }
}

#else

static void count_all(void) { test_die("built without infiniband/verbs.h"); }

#endif

/* ---- idle ---- */

static double cpu_time(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* @return the part of a core that this process uses while nobody calls. Other processes' load and emulation
 * add to it by chance, threads that do not sleep add to it always: the least of several times counts. */
static double idle_use(void)
{
    double least = 1e9;
    for (int i = 0; i < IDLE_TRIES && least >= most_idle; i++) {
        double cpu = cpu_time(), begin = test_now(), use;
        usleep((useconds_t)(1000000 * idle_s));
        use = (cpu_time() - cpu) / (test_now() - begin);
        least = use < least ? use : least;
    }
    return least;
}

static void idle(void)
{
    rondo_comm *comm;
    double use;
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm), NULL);
    call("all_reduce", comm, 8);
    call("all_to_all", comm, 4096);
    MPI_Barrier(MPI_COMM_WORLD);
    test_watchdog((int)idle_s * IDLE_TRIES + 30);
    usleep(1000 * SETTLED_MS);
    use = idle_use();
    test_say("%d threads used %.2f %% of a core in %ld s without calls", count_threads(), 100 * use, idle_s);
    test_check(use < most_idle, "%.2f %% of a core without calls, %d times", 100 * use, IDLE_TRIES);
    call("all_reduce", comm, 8);
    TEST_MUST(rondo_comm_destroy(comm), NULL);
}

int main(int argc, char **argv)
{
    static const struct option rows[] = { { "most", 1, NULL, 'm' },
                                          { "idle", 1, NULL, 'i' },
                                          { NULL, 0, NULL, 0 } };
    test_init("mpi_cost", MPI_THREAD_SINGLE);
    for (int opt; (opt = getopt_long(argc, argv, "", rows, NULL)) != -1;) {
        if (!((opt == 'm' && test_parse_size(optarg, &most)) ||
              (opt == 'i' && test_parse_long(optarg, 1, 1000, &idle_s)))) {
            test_die("usage: mpi_cost [--most BYTES | --idle S]");
        }
    }
    test.what = "set-up";
    if (idle_s > 0) {
        idle();
    } else {
        count_all();
    }
    test_values_clear();
    return test_finish();
}
