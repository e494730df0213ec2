/*
 * mpi_profiler: every collective, messages, groups and streams, watched by profiler plugins that check how
 * they are called (prof_check.h). RONDO_PROFILER_PLUGIN names one or more of them, as paths, and perhaps
 * others besides; all are used at once. Afterwards each must have got what the calls cause, to the number: a
 * Coll or P2p for each call, a KernelCh for each channel, and as many ProxySteps with as many bytes from
 * rank a to b on a as on b.
 *
 *   --exact   the algorithms have no fallbacks: as many KernelCh as channels were announced
 *   --ring    every all_reduce takes one ring: 2 (n - 1) steps a conn
 *   --matrix  instead, a communicator for every collective, algorithm and protocol; with --apart on two
 *             nodes: the upper half of the ranks says that it is on another one
 *   --gpu     instead, every collective on GPU memory: a KernelCh for each channel; with --proxied, whose
 *             connections all go over the net, their ProxyOps
 *   --net verbs|socket|plugin  every connection goes over this net device, and each step has its NetPlugin
 *             events; of receives, all that were not posted before their step began
 *   --mask    the plugins ask for Coll only: they get it and its parents
 *   --timeout SECONDS  the most that all takes (default: 100)
 *   --fails   init of every plugin fails: the calls work, and nothing is counted
 */
#include <ctype.h>
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "call/group.h"
#include "coll/coll.def"
#include "mpi_calls.h"
#include "mpi_device.h"
#include "prof_check.h"

enum { MOST_PLUGINS = 8, STREAM_CALLS = 3, NUM_COUNTS = 3 };
static const size_t counts[NUM_COUNTS] = { 1, 3000, 70000 };

static struct prof_check *plugin[MOST_PLUGINS];
static int nplugins, exact, ring, masked, fails, matrix, apart, gpu, proxied;
static int net = -1; /* who defines NetPlugin events */

/* What the calls of this rank cause. */
static struct {
    uint64_t colls, messages, groups, failed; /* failed: of colls that began and were not issued */
    uint64_t comms;
} made;

static void find_plugins(void)
{
    char *names = strdup(getenv("RONDO_PROFILER_PLUGIN") != NULL ? getenv("RONDO_PROFILER_PLUGIN") : ""),
         *save = NULL;
    for (char *name = strtok_r(names, ",", &save); name != NULL && nplugins < MOST_PLUGINS;
         name = strtok_r(NULL, ",", &save)) {
        void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
        if (library == NULL) {
            test_die("the plugin %s was not loaded", name);
        }
        plugin[nplugins] = dlsym(library, "prof_check");
        nplugins += plugin[nplugins] != NULL; /* another one is only served */
    }
    free(names);
    if (nplugins == 0) {
        test_die("RONDO_PROFILER_PLUGIN names no plugin of prof_check.c");
    }
}

/* ---- the calls ---- */

static void run_coll(rondo_comm *comm, const char *name)
{
    for (int i = 0; i < NUM_COUNTS; i++) {
        size_t wrong = 0;
        rondo_status status;
        test.what = name;
        status = test_call_once(name, comm, RONDO_FLOAT32, RONDO_SUM, counts[i], 7, &wrong);
        test_check(status == RONDO_SUCCESS && wrong == 0, "%s of %zu: %s, %zu wrong", name, counts[i],
                   rondo_status_string(status), wrong);
        made.groups++;
        if (strcmp(name, "sendrecv") == 0) {
            made.messages += 2;
        } else {
            made.colls++;
        }
    }
}

static void run_colls(rondo_comm *comm)
{
    for (int c = 0; c < test_num_colls; c++) {
        if (!test_colls[c].vform) {
            run_coll(comm, test_colls[c].name);
        }
    }
}

/* Rank r has r + 1 shares. */
static void run_vforms(rondo_comm *comm)
{
    enum { SHARE = 700 };
    size_t many[PROF_CHECK_RANKS], at[PROF_CHECK_RANKS], own[PROF_CHECK_RANKS], own_at[PROF_CHECK_RANKS],
        n = 0;
    float *in, *out;
    test.what = "the v-forms";
    for (int r = 0; r < test.nranks; r++) {
        many[r] = (size_t)(r + 1) * SHARE;
        at[r] = n;
        n += many[r];
        own[r] = SHARE * (size_t)(test.rank + 1); /* all_to_allv: a rank gets as much from each other one */
        own_at[r] = own[r] * (size_t)r;
    }
    in = calloc(n * (size_t)test.nranks, sizeof *in);
    out = calloc(n * (size_t)test.nranks, sizeof *out);
    TEST_MUST(rondo_all_gatherv(in, out, many, at, RONDO_FLOAT32, comm, NULL), comm);
    TEST_MUST(rondo_reduce_scatterv(in, out, many, at, RONDO_FLOAT32, RONDO_SUM, comm, NULL), comm);
    TEST_MUST(rondo_all_to_allv(in, many, at, out, own, own_at, RONDO_FLOAT32, comm, NULL), comm);
    TEST_MUST(rondo_gatherv(in, many[test.rank], out, many, at, RONDO_FLOAT32, 0, comm, NULL), comm);
    TEST_MUST(rondo_scatterv(in, many, at, out, many[test.rank], RONDO_FLOAT32, 0, comm, NULL), comm);
    made.groups += 5;
    made.colls += 5;
    free(in);
    free(out);
}

static void run_group(rondo_comm *comm)
{
    enum { N = 5000 };
    static float in[4][N], out[4][N];
    int next = (test.rank + 1) % test.nranks, before = (test.rank + test.nranks - 1) % test.nranks;
    test.what = "a group";
    TEST_MUST(rondo_group_start(), comm);
    TEST_MUST(rondo_all_reduce(in[0], out[0], N, RONDO_FLOAT32, RONDO_SUM, comm, NULL), comm);
    TEST_MUST(rondo_send(in[1], N, RONDO_FLOAT32, next, comm, NULL), comm);
    TEST_MUST(rondo_recv(out[1], N, RONDO_FLOAT32, before, comm, NULL), comm);
    TEST_MUST(rondo_broadcast(in[2], out[2], N, RONDO_FLOAT32, 0, comm, NULL), comm);
    TEST_MUST(rondo_group_end(), comm);
    made.groups++;
    made.colls += 2;
    made.messages += 2;
    /* A group whose calls fail. */
    TEST_MUST(rondo_group_start(), comm);
    TEST_MUST(rondo_all_reduce(in[3], out[3], 8, RONDO_FLOAT32, RONDO_SUM, comm, NULL), comm);
    test_check(rondo_all_reduce(NULL, out[3], 8, RONDO_FLOAT32, RONDO_SUM, comm, NULL) != RONDO_SUCCESS,
               "a call without a buffer succeeds");
    test_check(rondo_group_end() != RONDO_SUCCESS, "a group with a wrong call succeeds");
    made.groups++;
    made.failed++;
}

static void run_stream(rondo_comm *comm)
{
    enum { N = 20000 };
    static float in[N], out[STREAM_CALLS][N];
    rondo_stream stream;
    test.what = "a stream";
    TEST_MUST(rondo_stream_create(&stream), comm);
    for (int i = 0; i < STREAM_CALLS; i++) {
        TEST_MUST(rondo_all_reduce(in, out[i], N, RONDO_FLOAT32, RONDO_SUM, comm, stream), comm);
    }
    TEST_MUST(rondo_stream_synchronize(stream), comm);
    TEST_MUST(rondo_stream_destroy(stream), comm);
    made.groups += STREAM_CALLS;
    made.colls += STREAM_CALLS;
}

static void run_ring(rondo_comm *comm)
{
    size_t n = 1024 * (size_t)test.nranks; /* a slice a block */
    float *in = calloc(n, sizeof *in), *out = calloc(n, sizeof *out);
    test.what = "a ring";
    TEST_MUST(rondo_all_reduce(in, out, n, RONDO_FLOAT32, RONDO_SUM, comm, NULL), comm);
    made.groups++;
    made.colls++;
    for (int p = 0; p < nplugins; p++) {
        test_check(plugin[p]->most_steps == 2 * (test.nranks - 1), "v%d: %d steps on a ring of %d ranks",
                   plugin[p]->version, plugin[p]->most_steps, test.nranks);
    }
    free(in);
    free(out);
}

/* ---- what the plugins got ---- */

static void equal(const struct prof_check *p, const char *what, uint64_t got, uint64_t wanted)
{
    test_check(got == wanted, "v%d: %llu %s, %llu expected", p->version, (unsigned long long)got, what,
               (unsigned long long)wanted);
}

/* What this rank sent to each other one is what that one received. */
static void compare_flows(const struct prof_check *p, const char *what, const uint64_t *sent,
                          const uint64_t *received)
{
    uint64_t theirs[PROF_CHECK_RANKS];
    MPI_Alltoall(sent, 1, MPI_UINT64_T, theirs, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int r = 0; r < test.nranks; r++) {
        test_check(r == test.rank || theirs[r] == received[r],
                   "v%d: rank %d sent %llu %s, this rank received %llu", p->version, r,
                   (unsigned long long)theirs[r], what, (unsigned long long)received[r]);
    }
}

/* From version 3 on, each step has events of this net device and of no other one. */
static void check_net(const struct prof_check *p)
{
    uint64_t all = 0, received = 0;
    for (int i = 0; i < PROF_CHECK_NETS; i++) {
        all += p->net[i];
    }
    equal(p, "NetPlugin", p->started[7], p->version >= 3 ? p->net[net] : 0);
    equal(p, "NetPlugin of all devices", all, p->net[net]);
    if (p->version >= 3) {
        equal(p, "sends without NetPlugin", p->sends_without, 0);
        /* Others than sockets on host memory have receives for a communicator's first slices before its first
         * call, which may be all that come. */
        for (int r = 0; r < test.nranks; r++) {
            received += p->received[r];
        }
        test_check(net == PROF_CHECK_SOCKET && !gpu ? p->receives_without == 0
                                                    : matrix || p->receives_without < received,
                   "v%d: %llu of %llu receives without NetPlugin", p->version,
                   (unsigned long long)p->receives_without, (unsigned long long)received);
        test_check(p->most_open > 1, "v%d: no two steps of a connection were open at once", p->version);
    }
}

static void check_counts(const struct prof_check *p)
{
    test.what = "the counts";
    test_check(p->bad == 0, "v%d: %d violations, the first: %s", p->version, p->bad, p->text);
    test_check(p->open == 0, "v%d: %d events are open", p->version, p->open);
    equal(p, "Coll", p->started[1], made.colls);
    if (masked) {
        equal(p, "Group", p->started[0] > 0, 1);
        equal(p, "CollApi", p->started[9], p->version >= 5 ? made.colls + made.failed : 0);
        equal(p, "events", p->stopped, p->started[0] + p->started[1] + p->started[8] + p->started[9]);
        return;
    }
    equal(p, "P2p", p->started[2], made.messages);
    if (p->version >= 5) {
        equal(p, "GroupApi", p->started[8], made.groups);
        equal(p, "CollApi", p->started[9], made.colls + made.failed);
        equal(p, "P2pApi", p->started[10], made.messages);
    }
    if (exact && p->version >= 4) {
        equal(p, "KernelCh", p->started[6], p->channels);
    }
    test_check(test.nranks == 1 || p->started[5] > 0, "v%d: no ProxyCtrl", p->version);
    if (net >= 0) {
        check_net(p);
    }
    compare_flows(p, "steps", p->sent, p->received);
    compare_flows(p, "bytes", p->sent_bytes, p->received_bytes);
}

/* ---- every collective, algorithm and protocol ---- */

#define SCHEDULE_ROW_(ctx, COLL, ALGO, protos, ...) { #COLL, #ALGO, protos },
static const struct schedule {
    const char *coll, *algo;
    unsigned protos;
} schedules[] = { RONDO_SCHEDULE_TABLE(SCHEDULE_ROW_, ) };
#define PROTO_ROW_(ctx, name, NAME, number) #name,
static const char *const protos[] = { RONDO_PROTO_TABLE(PROTO_ROW_, ) };
#define COLL_ROW_(ctx, name, NAME, AS, ...) { #name, #AS },
static const struct {
    const char *name, *as;
} colls[] = { RONDO_COLL_TABLE(COLL_ROW_, ) };

static void in_lower_case(const char *name, char *text, size_t size)
{
    size_t i = 0;
    for (; name[i] != '\0' && i + 1 < size; i++) {
        text[i] = name[i] == '_' ? '_' : (char)tolower((unsigned char)name[i]);
    }
    text[i] = '\0';
}

/* Can this algorithm carry every call of its collective here? Some are for one node and limited sizes. */
static int is_used_here(const struct schedule *s)
{
    static const char *const inside[] = { "ONESHOT", "TWOSHOT", "HIERARCHICAL" };
    int one_node = 0;
    for (size_t i = 0; i < TEST_ARRAY_LEN(inside); i++) {
        one_node |= strcmp(s->algo, inside[i]) == 0;
    }
    if (strcmp(s->algo, "MAIL_TWOSHOT") == 0) {
        return !apart && test.nranks >= 3;
    }
    return strcmp(s->algo, "DOUBLING") == 0 ? apart : !one_node;
}

/* "all_reduce:ring;barrier:ring": for all that is scheduled as s->coll. */
static void setting(const struct schedule *s, const char *what, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < TEST_ARRAY_LEN(colls) && used < size; i++) {
        if (strcmp(colls[i].as, s->coll) == 0) {
            used += (size_t)snprintf(text + used, size - used, "%s%s:%s", used > 0 ? ";" : "", colls[i].name,
                                     what);
        }
    }
}

static rondo_comm *create_for(const struct schedule *s, int proto)
{
    char name[32], algo[48], text[200];
    rondo_comm *comm;
    in_lower_case(s->algo, name, sizeof name);
    snprintf(algo, sizeof algo, "%s%s", name, is_used_here(s) ? "" : ",ring");
    setting(s, algo, text, sizeof text);
    setenv("RONDO_ALGO", text, 1);
    setting(s, protos[proto], text, sizeof text);
    setenv("RONDO_PROTO", text, 1);
    TEST_MUST(rondo_param_reload(), NULL);
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm), NULL);
    made.comms++;
    return comm;
}

static void check_choice(const struct schedule *s, int proto)
{
    const struct prof_check *newest = plugin[nplugins - 1];
    char name[32];
    in_lower_case(newest->proto, name, sizeof name);
    test_check(!is_used_here(s) || test.nranks == 1 ||
                   (strcmp(newest->algo, s->algo) == 0 && strcmp(name, protos[proto]) == 0),
               "%s ran as %s with %s, not as %s with %s", s->coll, newest->algo, name, s->algo,
               protos[proto]);
}

static void run_matrix(void)
{
    for (size_t i = 0; i < TEST_ARRAY_LEN(schedules); i++) {
        const struct schedule *s = &schedules[i];
        for (int proto = 0; proto < (int)TEST_ARRAY_LEN(protos); proto++) {
            rondo_comm *comm = s->protos & 1u << proto ? create_for(s, proto) : NULL;
            for (size_t c = 0; c < TEST_ARRAY_LEN(colls) && comm != NULL; c++) {
                const struct test_coll *known = test_coll_by_name(colls[c].name);
                if (known != NULL && !known->vform && strcmp(colls[c].as, s->coll) == 0) {
                    run_coll(comm, colls[c].name);
                    if (strcmp(s->algo, "P2P") != 0) {
                        check_choice(s, proto);
                    }
                }
            }
            if (comm != NULL && strcmp(s->coll, "SEND") == 0) {
                run_coll(comm, "sendrecv");
                run_vforms(comm);
            }
            for (int p = 0; p < nplugins && comm != NULL; p++) {
                check_counts(plugin[p]);
            }
            if (comm != NULL) {
                TEST_MUST(rondo_comm_destroy(comm), NULL);
            }
        }
    }
}

static void run_child(rondo_comm *comm)
{
    rondo_comm *child;
    size_t wrong = 0;
    test.what = "a split";
    TEST_MUST(rondo_comm_split(comm, test.rank % 2, 0, NULL, &child), comm);
    TEST_MUST(test_call_once("all_reduce", child, RONDO_FLOAT32, RONDO_SUM, 100, 7, &wrong), child);
    made.comms++;
    TEST_MUST(test.rank % 2 == 0 ? rondo_comm_abort(child) : rondo_comm_destroy(child), NULL);
}

/* Calls that are never issued: their communicator ends before the group, or the group is only estimated. */
static void run_abandoned(rondo_comm *comm)
{
    enum { N = 100 };
    static float in[N], out[N];
    rondo_comm *child;
    double us;
    test.what = "a group whose communicator is aborted";
    TEST_MUST(rondo_comm_split(comm, 0, 0, NULL, &child), comm);
    made.comms++;
    TEST_MUST(rondo_group_start(), comm);
    TEST_MUST(rondo_all_reduce(in, out, N, RONDO_FLOAT32, RONDO_SUM, child, NULL), child);
    TEST_MUST(rondo_all_reduce(in, out, N, RONDO_FLOAT32, RONDO_SUM, comm, NULL), comm);
    TEST_MUST(rondo_all_reduce(in, out, N, RONDO_FLOAT32, RONDO_SUM, child, NULL), child);
    MPI_Barrier(MPI_COMM_WORLD); /* an abort ends calls of the others */
    TEST_MUST(rondo_comm_abort(child), NULL);
    test_check(rondo_group_end() == RONDO_INVALID_ARGUMENT, "its end: %s", rondo_last_error(NULL));
    test.what = "a group that is estimated";
    TEST_MUST(rondo_group_start(), comm);
    TEST_MUST(rondo_all_reduce(in, out, N, RONDO_FLOAT32, RONDO_SUM, comm, NULL), comm);
    TEST_MUST(rondo_group_simulate(&us), comm);
}

static void check_end(const struct prof_check *p)
{
    test.what = "the end";
    if (fails) {
        equal(p, "inits", (uint64_t)p->inits, 1);
        equal(p, "finalizes", (uint64_t)p->finalizes, 0);
        equal(p, "Coll", p->started[1], 0);
        return;
    }
    equal(p, "inits", (uint64_t)p->inits, made.comms);
    equal(p, "finalizes", (uint64_t)p->finalizes, made.comms);
    test_check(p->bad == 0 && p->open == 0, "v%d: %d open, %d violations, the first: %s", p->version, p->open,
               p->bad, p->text);
}

/* ---- GPUs ---- */

/* The values are mpi_coll's affair. */
static void run_on_gpu(rondo_comm *comm, const struct test_coll *coll, size_t count)
{
    struct test_call call = { .coll = coll,
                              .type = RONDO_FLOAT32,
                              .handle = RONDO_SUM,
                              .count = count,
                              .rank = test.rank,
                              .nranks = test.nranks };
    struct test_extent extent = coll->extent(&call);
    void *send = test_device_alloc((extent.send + 1) * sizeof(float)),
         *recv = test_device_alloc((extent.recv + 1) * sizeof(float));
    test.what = coll->name;
    TEST_MUST(coll->run(&call, send, recv, comm, NULL), comm);
    test_device_wait(NULL);
    test_device_free(send);
    test_device_free(recv);
    made.groups++;
    *(strcmp(coll->name, "sendrecv") == 0 ? &made.messages
                                          : &made.colls) += strcmp(coll->name, "sendrecv") == 0 ? 2 : 1;
}

static void run_gpu(void)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm;
    const char *why = NULL;
    config.device = test_device_begin(test.rank, &why);
    if (config.device < 0) {
        test_die("no GPU: %s", why);
    }
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, &config, &comm), NULL);
    made.comms++;
    find_plugins();
    for (int c = 0; c < test_num_colls; c++) {
        for (int i = 0; i < NUM_COUNTS && !test_colls[c].vform; i++) {
            run_on_gpu(comm, &test_colls[c], counts[i]);
        }
    }
    TEST_MUST(rondo_comm_destroy(comm), NULL); /* every call has ended now */
    for (int p = 0; p < nplugins; p++) {
        check_counts(plugin[p]);
        test_check(plugin[p]->version < 3 || plugin[p]->started[6] > 0, "v%d: no KernelCh",
                   plugin[p]->version);
        test_check((plugin[p]->started[3] > 0) == proxied && (plugin[p]->started[4] > 0) == proxied,
                   "v%d: %llu ProxyOps, %llu ProxySteps", plugin[p]->version,
                   (unsigned long long)plugin[p]->started[3], (unsigned long long)plugin[p]->started[4]);
    }
    test_device_end();
}

static void run_all(rondo_comm *comm)
{
    run_colls(comm);
    run_vforms(comm);
    run_group(comm);
    run_stream(comm);
    if (ring) {
        run_ring(comm);
    }
    for (int p = 0; p < nplugins && !fails; p++) {
        check_counts(plugin[p]);
    }
    run_child(comm);
    run_abandoned(comm);
}

static void run_host(void)
{
    rondo_comm *comm;
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm), NULL);
    made.comms++;
    find_plugins();
    if (matrix) {
        run_matrix();
    } else {
        run_all(comm);
    }
    TEST_MUST(rondo_comm_destroy(comm), NULL);
}

static int net_named(const char *name)
{
    static const char *const names[PROF_CHECK_NETS] = { "verbs", "socket", "plugin" };
    for (int i = 0; i < PROF_CHECK_NETS; i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    test_die("--net %s", name);
    return -1;
}

int main(int argc, char **argv)
{
    long seconds = 100;
    test_init("mpi_profiler", MPI_THREAD_FUNNELED);
    const struct {
        const char *name;
        int *flag;
    } flags[] = { { "--exact", &exact },     { "--ring", &ring },     { "--mask", &masked },
                  { "--fails", &fails },     { "--matrix", &matrix }, { "--gpu", &gpu },
                  { "--proxied", &proxied }, { "--apart", &apart } };
    for (int i = 1; i < argc; i++) {
        size_t f = 0;
        while (f < TEST_ARRAY_LEN(flags) && strcmp(argv[i], flags[f].name) != 0) {
            f++;
        }
        if (f < TEST_ARRAY_LEN(flags)) {
            *flags[f].flag = 1;
        } else if (strcmp(argv[i], "--net") == 0 && i + 1 < argc) {
            net = net_named(argv[++i]);
        } else if (strcmp(argv[i], "--timeout") != 0 || i + 1 == argc ||
                   !test_parse_long(argv[++i], 1, 100000, &seconds)) {
            test_die("invalid argument: %s", argv[i]);
        }
    }
    test_watchdog((int)seconds);
    if (apart) {
        setenv("RONDO_HOSTID", test.rank * 2 / test.nranks == 0 ? "node0" : "node1", 1);
    }
    if (gpu) {
        run_gpu();
    } else {
        run_host();
    }
    for (int p = 0; p < nplugins; p++) {
        check_end(plugin[p]);
    }
    test_watchdog(0);
    if (test.rank == 0) {
        printf("mpi_profiler: a rank made %llu collectives and %llu messages\n",
               (unsigned long long)made.colls, (unsigned long long)made.messages);
    }
    return test_finish();
}
