/*
 * mpi_doctor: provoke hangs and mistakes one after the other, and have rondo-doctor name each. The last rank
 * of MPI watches: it starts rondo-doctor again and again until the verdict is the expected one, then it
 * releases the others. These play the faults of the table below, each on communicators of its own. Only reads
 * of a mapped file and signals go between them meanwhile, for MPI may be what a rank hangs in.
 *
 *   mpi_doctor --doctor PROGRAM [--hosts LIST --agent CMD [--link DEVICE]] [--times N] [FAULT...]
 *
 * Prints "FAULT: VERDICT after N ms" for each, in the form that mpi-tests/doctor_times.sh reads.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mpi_common.h"

#define MOST_RANKS 16

/* Shared by all ranks; the kernel is one, also below virtual hosts. */
struct board {
    _Atomic int released;          /* number of the fault whose ranks may go on */
    _Atomic int ready[MOST_RANKS]; /* number of the fault that the rank is about to play */
    _Atomic int met[MOST_RANKS];   /* meetings that the rank has come to */
    _Atomic double struck;         /* when the fault happened */
    int pid[MOST_RANKS];
};

static struct {
    struct board *board;
    int fault; /* number of the present one, from 1 */
    int players, meetings;
    MPI_Comm mpi;  /* the players */
    MPI_Comm pair; /* rank 2 and the watcher */
    rondo_comm *comm, *second;
    pthread_t releaser;
    _Atomic int ends; /* the releaser may end */
    int pipes[2];
    const char *doctor, *hosts, *agent, *link; /* link: of the watcher's host */
    long times, limit;
    int near; /* all ranks are on one host */
} g = { .times = 1, .limit = 30 };

static int is_released(void) { return g.board->released >= g.fault; }

static void nap(long us)
{
    struct timespec t = { us / 1000000, us % 1000000 * 1000 };
    nanosleep(&t, NULL);
}

/* Strike: what follows is the fault. */
static void strike(void) { g.board->struck = test_now(); }

static void wait_for_release(void)
{
    while (!is_released()) nap(1000);
}

/* ---- what players do ---- */

static rondo_status sum(rondo_comm *comm, size_t count, rondo_dtype type, rondo_op op)
{
    static double in[4096], out[4096];
    return rondo_all_reduce(in, out, count, type, op, comm, NULL);
}

/* All players are here. Through memory, for a barrier of MPI can hold ranks for long after others have left
 * it, and what comes next is the fault. */
static void meet(void)
{
    g.board->met[test.rank] = ++g.meetings;
    for (int r = 0; r < g.players; r++) {
        while (g.board->met[r] < g.meetings) nap(100);
    }
}

static void good_calls(int n)
{
    for (int i = 0; i < n; i++) TEST_MUST(sum(g.comm, 16, RONDO_FLOAT32, RONDO_SUM), g.comm);
    meet(); /* a fault may end the communicator at once, also for a rank that is still in here */
}

/* Of a call that hangs or fails: any end is right, for the releaser aborts the communicator. */
static void any_end(rondo_status status)
{
    (void)status;
    wait_for_release();
}

static void everyone_sums(void) { any_end(sum(g.comm, 16, RONDO_FLOAT32, RONDO_SUM)); }

/* Rank 2 does something else instead of the call that the others make. */
static void miss_by(void (*instead)(void))
{
    good_calls(3);
    if (test.rank == 2) {
        strike();
        instead();
    } else {
        everyone_sums();
    }
}

static void spin(void)
{
    while (!is_released()) {
    }
}
static void read_pipe(void)
{
    char byte;
    if (pipe(g.pipes) != 0 || read(g.pipes[0], &byte, 1) != 1) test_die("no pipe");
}
static void barrier_of_mpi(void) { MPI_Barrier(g.pair); } /* the watcher comes when it has seen it */
static void stop(void)
{
    kill(getpid(), SIGSTOP);
    wait_for_release();
}

static void missing_call(void) { miss_by(wait_for_release); }
static void computing(void) { miss_by(spin); }
static void in_read(void) { miss_by(read_pipe); }
static void in_mpi(void) { miss_by(barrier_of_mpi); }
static void stopped(void) { miss_by(stop); }

/* Those that rondo-doctor on the watcher's host would ask first, or all that it could ask. */
static void stopped_below(int rank)
{
    good_calls(3);
    if (test.rank < rank) {
        if (test.rank == 0) strike();
        stop();
    } else {
        everyone_sums();
    }
}
static void stopped_first(void) { stopped_below(1); }
static void stopped_host(void) { stopped_below(2); }

static void missing_root(void)
{
    int32_t x = 0;
    good_calls(2);
    if (test.rank == 0) {
        strike();
        wait_for_release();
    } else {
        any_end(rondo_broadcast(&x, &x, 1, RONDO_INT32, 0, g.comm, NULL));
    }
}

static void missing_barrier(void)
{
    if (test.rank == 1) {
        strike();
        wait_for_release();
    } else {
        any_end(rondo_barrier(g.comm, NULL));
    }
}

static void extra_call(void)
{
    good_calls(5);
    if (test.rank == 1) {
        strike();
        everyone_sums();
    }
    wait_for_release();
}

/* Rank 1 makes another call than the others. */
static void odd_sum(size_t count, rondo_dtype type, rondo_op op)
{
    good_calls(2);
    if (test.rank == 1) {
        strike();
        any_end(sum(g.comm, count, type, op));
    } else {
        everyone_sums();
    }
}
static void wrong_count(void) { odd_sum(17, RONDO_FLOAT32, RONDO_SUM); }
static void wrong_type(void) { odd_sum(16, RONDO_INT32, RONDO_SUM); }
static void wrong_op(void) { odd_sum(16, RONDO_FLOAT32, RONDO_MAX); }

static void wrong_root(void)
{
    int32_t x = 0;
    good_calls(2);
    if (test.rank == 1) strike();
    any_end(rondo_broadcast(&x, &x, 1, RONDO_INT32, test.rank == 1 ? 1 : 0, g.comm, NULL));
}

static void wrong_operation(void)
{
    int32_t in = 1, out[MOST_RANKS];
    good_calls(2);
    if (test.rank == 1) {
        strike();
        any_end(rondo_all_gather(&in, out, 1, RONDO_INT32, g.comm, NULL));
    } else {
        everyone_sums();
    }
}

static void wrong_counts(void)
{
    static int32_t in[64], out[64 * MOST_RANKS];
    size_t counts[MOST_RANKS], displs[MOST_RANKS];
    for (int r = 0; r < g.players; r++) {
        counts[r] = r == 1 && test.rank == 1 ? 5 : 4;
        displs[r] = (size_t)r * 64;
    }
    if (test.rank == 1) strike();
    any_end(rondo_all_gatherv(in, out, counts, displs, RONDO_INT32, g.comm, NULL));
}

/* Rank 0 uses the second communicator first. */
static void wrong_order(void)
{
    rondo_comm *first = test.rank == 0 ? g.second : g.comm, *then = test.rank == 0 ? g.comm : g.second;
    if (test.rank == 0) strike();
    (void)sum(first, 16, RONDO_FLOAT32, RONDO_SUM);
    any_end(sum(then, 16, RONDO_FLOAT32, RONDO_SUM));
}

static void missing_send(void)
{
    static int32_t buffer[16];
    if (test.rank == 0) {
        strike();
        any_end(rondo_recv(buffer, 16, RONDO_INT32, 1, g.comm, NULL));
    }
    wait_for_release();
}

static void missing_receive(void)
{
    static char buffer[4 << 20];
    if (test.rank == 0) {
        strike();
        any_end(rondo_send(buffer, sizeof(buffer), RONDO_UINT8, 1, g.comm, NULL));
    }
    wait_for_release();
}

static void both_receive(void)
{
    static int32_t buffer[16];
    if (test.rank < 2) {
        if (test.rank == 0) strike();
        any_end(rondo_recv(buffer, 16, RONDO_INT32, 1 - test.rank, g.comm, NULL));
    }
    wait_for_release();
}

static void message_and_sum(void)
{
    static int32_t buffer[16];
    good_calls(1);
    if (test.rank == 1) {
        strike();
        any_end(rondo_recv(buffer, 16, RONDO_INT32, 0, g.comm, NULL));
    } else {
        everyone_sums();
    }
}

/* A rank is stopped by the watcher while all make calls. */
static void stopped_inside(void)
{
    rondo_status status = RONDO_SUCCESS;
    if (test.rank == 2) strike();
    while (status == RONDO_SUCCESS && !is_released()) status = sum(g.comm, 4096, RONDO_FLOAT64, RONDO_SUM);
    wait_for_release();
}

static void lost_packets(void)
{
    rondo_status status = RONDO_SUCCESS;
    while (status == RONDO_SUCCESS && !is_released()) status = sum(g.comm, 4096, RONDO_FLOAT64, RONDO_SUM);
    wait_for_release();
}

static void slow_rank(void)
{
    rondo_status status = RONDO_SUCCESS;
    if (test.rank == 3) strike();
    while (status == RONDO_SUCCESS && !is_released()) {
        if (test.rank == 3) nap(2000);
        status = sum(g.comm, 16, RONDO_FLOAT32, RONDO_SUM);
    }
    wait_for_release();
}

static void left_early(void)
{
    good_calls(2);
    if (test.rank == 1) {
        strike();
        rondo_comm_abort(g.comm);
        g.comm = NULL;
        wait_for_release();
    } else {
        everyone_sums();
    }
}

static void nobody_waits(void)
{
    good_calls(3);
    if (test.rank == 0) strike();
    wait_for_release();
}

/* ---- what the watcher does besides ---- */

static void stop_rank_2(void)
{
    nap(20000);
    kill(g.board->pid[2], SIGSTOP);
}
/* From now on the network swallows every packet of this host. TCP repeats them when it is mended. */
static void set_link(const char *state)
{
    char command[128];
    snprintf(command, sizeof(command), "ip link set %s %s", g.link, state);
    if (system(command) != 0) test_die("%s failed", command);
}
static void cut_link(void)
{
    nap(20000);
    set_link("down");
    strike();
}
static void mend_link(void) { set_link("up"); }
static void continue_rank_2(void) { kill(g.board->pid[2], SIGCONT); }
static void continue_first(void)
{
    for (int r = 0; r < 2; r++) kill(g.board->pid[r], SIGCONT);
}
static void join_barrier(void) { MPI_Barrier(g.pair); }

/* verdict: kinds that are right, "missing|stuck"; says: a word of the sentence, or "". */
static const struct fault {
    const char *name;
    void (*play)(void);
    const char *verdict;
    int rank; /* that the finding must name; -1: any */
    const char *says;
    int aborts; /* the players' calls end by abort */
    void (*before)(void), (*after)(void);
} faults[] = {
    { "missing_call", missing_call, "missing", 2, "has not called all_reduce #4", 1, NULL, NULL },
    { "missing_root", missing_root, "missing", 0, "has not called broadcast #3", 1, NULL, NULL },
    { "missing_barrier", missing_barrier, "missing", 1, "has not called barrier #1", 1, NULL, NULL },
    { "extra_call", extra_call, "missing", -1, "has not called all_reduce #6", 1, NULL, NULL },
    { "computing", computing, "missing", 2, "it runs", 1, NULL, NULL },
    { "in_read", in_read, "missing", 2, "it sleeps in read", 1, NULL, NULL },
    { "in_mpi", in_mpi, "missing", 2, "has not called all_reduce #4", 1, NULL, join_barrier },
    { "stopped", stopped, "stopped", 2, "is stopped", 1, NULL, continue_rank_2 },
    { "stopped_inside", stopped_inside, "stopped", 2, "is stopped", 1, stop_rank_2, continue_rank_2 },
    { "stopped_first", stopped_first, "stopped", 0, "is stopped", 1, NULL, continue_first },
    { "stopped_host", stopped_host, "stopped", -1, "is stopped", 1, NULL, continue_first },
    { "wrong_count", wrong_count, "mismatch", -1, "count 17", 1, NULL, NULL },
    { "wrong_type", wrong_type, "mismatch", -1, "i32", 1, NULL, NULL },
    { "wrong_op", wrong_op, "mismatch", -1, "max", 1, NULL, NULL },
    { "wrong_root", wrong_root, "mismatch", -1, "root 1", 1, NULL, NULL },
    { "wrong_operation", wrong_operation, "mismatch", -1, "all_gather", 1, NULL, NULL },
    { "wrong_counts", wrong_counts, "mismatch", -1, "all counts together", 1, NULL, NULL },
    { "wrong_order", wrong_order, "order", -1, "in different orders", 1, NULL, NULL },
    { "missing_send", missing_send, "message", 1, "has not sent it", 1, NULL, NULL },
    { "missing_receive", missing_receive, "message", 1, "has not received it", 1, NULL, NULL },
    { "both_receive", both_receive, "message", -1, "has not sent it; it waits in a receive", 1, NULL, NULL },
    { "message_and_sum", message_and_sum, "ended", -1, "a collective does not meet", 1, NULL, NULL },
    { "lost_packets", lost_packets, "stuck", -1, "and do not end it", 1, cut_link, mend_link },
    { "slow_rank", slow_rank, "late", 3, "arrives last", 1, NULL, NULL },
    { "left_early", left_early, "ended", 1, "aborted the communicator", 1, NULL, NULL },
    { "nobody_waits", nobody_waits, "nothing", -1, "nobody waits", 0, NULL, NULL },
};

/* Two hosts, of which one does not answer over the network. In all other faults there is no agent. */
static int needs_agent(const struct fault *f) { return f->play == lost_packets || f->play == stopped_host; }

/* ---- players ---- */

/* A call that hangs ends when another thread aborts its communicator. */
static void *release(void *unused)
{
    (void)unused;
    while (!is_released() && !g.ends) nap(1000);
    if (!g.ends) {
        if (g.pipes[1] > 0 && write(g.pipes[1], "", 1) != 1) test_say("the pipe is closed");
        if (g.comm != NULL) rondo_comm_abort(g.comm);
        if (g.second != NULL) rondo_comm_abort(g.second);
    }
    return NULL;
}

static rondo_comm *create(const char *name)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm;
    config.name = name;
    TEST_MUST(rondo_comm_create(g.mpi, &config, &comm), NULL);
    return comm;
}

static void play(const struct fault *f)
{
    int two = f->play == wrong_order;
    g.pipes[0] = g.pipes[1] = 0;
    g.ends = 0;
    g.comm = create(f->name);
    g.second = two ? create("second") : NULL;
    MPI_Barrier(g.mpi);
    if (f->aborts && pthread_create(&g.releaser, NULL, release, NULL) != 0) test_die("no thread");
    g.board->ready[test.rank] = g.fault;
    f->play();
    wait_for_release();
    if (f->aborts) {
        pthread_join(g.releaser, NULL);
    } else {
        rondo_comm_abort(g.comm);
    }
    if (g.pipes[1] > 0) {
        close(g.pipes[0]);
        close(g.pipes[1]);
    }
}

/* ---- the watcher ---- */

/* One answer of rondo-doctor: the first finding. */
struct verdict {
    char kind[32], text[1024];
    int rank;
};

static int field_of(const char *json, const char *name, char *out, size_t size)
{
    char key[48];
    const char *at;
    size_t n = 0;
    snprintf(key, sizeof(key), "\"%s\": ", name);
    at = strstr(json, key);
    if (at == NULL) return 0;
    at += strlen(key);
    if (*at != '"') {
        snprintf(out, size, "%.*s", (int)strspn(at, "-0123456789"), at);
        return 1;
    }
    for (at++; *at != '\0' && *at != '"' && n + 1 < size; at++) {
        at += *at == '\\' && at[1] != '\0';
        out[n++] = *at;
    }
    out[n] = '\0';
    return 1;
}

static void ask(struct verdict *v)
{
    static char json[1 << 16];
    char command[1024], rank[16] = "-1", where[600];
    FILE *in;
    size_t n;
    memset(v, 0, sizeof(*v));
    if (g.hosts != NULL) {
        snprintf(where, sizeof(where), "--all --hosts %s --agent '%s'", g.hosts,
                 g.fault > 0 && needs_agent(&faults[g.fault % 1000 - 1]) ? g.agent : "false");
    } else {
        snprintf(where, sizeof(where), "%d --here", g.board->pid[0]);
    }
    snprintf(command, sizeof(command), "%s %s --slow 0.3 --sample 20 --json%s", g.doctor, where,
             g.fault > 0 && strcmp(faults[g.fault % 1000 - 1].name, "in_mpi") == 0 ? "" : " --no-stack");
    in = popen(command, "r");
    if (in == NULL) test_die("cannot start %s", g.doctor);
    n = fread(json, 1, sizeof(json) - 1, in);
    json[n] = '\0';
    while (fread(command, 1, sizeof(command), in) > 0) {
    }
    pclose(in);
    (void)field_of(json, "kind", v->kind, sizeof(v->kind));
    (void)field_of(json, "rank", rank, sizeof(rank));
    (void)field_of(json, "text", v->text, sizeof(v->text));
    v->rank = atoi(rank);
}

static int is_one_of(const char *word, const char *list)
{
    size_t n = strlen(word);
    for (; *list != '\0'; list += strcspn(list, "|") + (list[strcspn(list, "|")] == '|')) {
        if (strcspn(list, "|") == n && strncmp(list, word, n) == 0) return 1;
    }
    return 0;
}

static int all_ready(void)
{
    for (int r = 0; r < g.players; r++) {
        if (g.board->ready[r] < g.fault) return 0;
    }
    return 1;
}

static void watch(const struct fault *f)
{
    struct verdict v = { 0 };
    double end, longest = 0;
    int right = 0;
    while (!all_ready()) nap(1000);
    if (f->before != NULL) f->before();
    end = test_now() + (double)g.limit;
    while (!right && test_now() < end) {
        double begin = test_now();
        ask(&v);
        longest = test_now() - begin > longest ? test_now() - begin : longest;
        right = is_one_of(v.kind, f->verdict) && (f->rank < 0 || v.rank == f->rank) &&
                strstr(v.text, f->says) != NULL;
    }
    test_check(right, "the verdict is \"%s\" about rank %d (%s), expected %s about rank %d with \"%s\"",
               v.kind, v.rank, v.text, f->verdict, f->rank, f->says);
    printf("%s: %s after %.0f ms: %s; the longest question took %.0f ms\n", f->name,
           right ? v.kind : "NOT NAMED", 1e3 * (test_now() - g.board->struck), v.text, 1e3 * longest);
    fflush(stdout);
    g.board->released = g.fault;
    if (f->after != NULL) f->after();
}

/* ---- all ---- */

static void board_open(void)
{
    char folder[256] = "", path[300];
    int fd = -1, watcher = test.nranks - 1;
    if (test.rank == watcher) test_folder_make(folder, sizeof(folder));
    MPI_Bcast(folder, sizeof(folder), MPI_CHAR, watcher, MPI_COMM_WORLD);
    snprintf(path, sizeof(path), "%s/board", folder);
    if (test.rank == watcher) {
        fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0 || ftruncate(fd, sizeof(struct board)) != 0) test_die("no file %s", path);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (test.rank != watcher) fd = open(path, O_RDWR);
    g.board = fd >= 0 ? mmap(NULL, sizeof(*g.board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (g.board == MAP_FAILED) test_die("cannot map %s", path);
    close(fd);
    g.board->pid[test.rank] = getpid();
    MPI_Barrier(MPI_COMM_WORLD);
    if (test.rank == watcher) {
        unlink(path);
        rmdir(folder);
    }
}

static void run(const struct fault *f, long time)
{
    int watcher = test.rank == g.players;
    g.fault = (int)(f - faults) + 1 + (int)time * 1000;
    test.what = f->name;
    test_watchdog(120);
    if (watcher) {
        watch(f);
    } else {
        play(f);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static int parse(int argc, char **argv, int *first)
{
    static const struct {
        const char *name;
        const char **text;
        long *number;
    } options[] = { { "--doctor", &g.doctor, NULL }, { "--hosts", &g.hosts, NULL },
                    { "--agent", &g.agent, NULL },   { "--link", &g.link, NULL },
                    { "--times", NULL, &g.times },   { "--limit", NULL, &g.limit } };
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i += 2) {
        int known = 0;
        for (size_t o = 0; o < TEST_ARRAY_LEN(options) && i + 1 < argc; o++) {
            if (strcmp(argv[i], options[o].name) != 0) continue;
            known = options[o].text != NULL || test_parse_long(argv[i + 1], 1, 100000, options[o].number);
            if (options[o].text != NULL) *options[o].text = argv[i + 1];
        }
        if (!known) return 0;
    }
    *first = i;
    return g.doctor != NULL && (g.hosts == NULL) == (g.agent == NULL);
}

static int is_wanted(const char *name, int n, char **names)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) return 1;
    }
    return n == 0;
}

int main(int argc, char **argv)
{
    int first = 0;
    test_init("mpi_doctor", MPI_THREAD_FUNNELED);
    if (!parse(argc, argv, &first) || test.nranks != 5) {
        test_die("usage: 5 ranks, --doctor PROGRAM [--hosts LIST --agent CMD] [--times N] [--limit SECONDS] "
                 "[FAULT...]");
    }
    g.players = test.nranks - 1;
    board_open();
    MPI_Comm_split(MPI_COMM_WORLD, test.rank == g.players, test.rank, &g.mpi);
    MPI_Comm_split(MPI_COMM_WORLD, test.rank == 2 || test.rank == g.players, test.rank, &g.pair);
    for (long time = 0; time < g.times; time++) {
        for (size_t i = 0; i < TEST_ARRAY_LEN(faults); i++) {
            if (is_wanted(faults[i].name, argc - first, argv + first) &&
                (g.link != NULL || !needs_agent(&faults[i]))) {
                run(&faults[i], time);
            }
        }
    }
    MPI_Comm_free(&g.mpi);
    MPI_Comm_free(&g.pair);
    munmap(g.board, sizeof(*g.board));
    return test_finish();
}
