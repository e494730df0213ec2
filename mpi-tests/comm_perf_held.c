/* What communicators hold while they live, and what is left over afterwards. */
#include "comm_perf.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <limits.h>
#include <stdlib.h>

#include "holdings.h"

/* What one process holds. */
enum { FDS, THREADS, MAPS, SHARED_MAPS, SHARED, TOUCHED, PRIVATE, KINDS };
static const char *const names[KINDS] = { "fds",          "threads",       "maps",         "shared_maps",
                                          "shared_bytes", "touched_bytes", "private_bytes" };
struct state {
    double of[KINDS]; /* bytes: negative if the kernel does not tell */
};

/* Collective. No rank goes on before all have looked, because they share pages. */
static struct state look(void)
{
    struct holdings now;
    struct state state;
#ifdef __GLIBC__
    malloc_trim(0); /* freed memory counts for nobody */
#endif
    MPI_Barrier(MPI_COMM_WORLD);
    now = holdings_now();
    state = (struct state){ { now.fds, now.threads, now.maps, now.shared, shared_file_bytes(),
                              rollup_bytes("Pss_Shmem"), rollup_bytes("Pss_Anon") } };
    MPI_Barrier(MPI_COMM_WORLD);
    return state;
}

static struct state growth(const struct state *before, const struct state *after)
{
    struct state grown;
    for (int kind = 0; kind < KINDS; kind++) {
        grown.of[kind] = after->of[kind] - before->of[kind];
    }
    return grown;
}

/* Private mappings are also those of the allocator and of cached stacks, which come and go. */
static int is_left(const struct state *grown, long lives)
{
    return grown->of[FDS] > 0 || grown->of[THREADS] > 0 || grown->of[SHARED_MAPS] > 0 ||
           grown->of[MAPS] > 8 + (double)(lives / 10);
}

/* Collective. Say what this rank has left over. @return whether any rank has. */
static int left_over(const struct state *grown, long lives)
{
    int left = is_left(grown, lives);
    if (left) {
        test_say("left over of %ld destroyed communicator%s: %g files, %g threads, %g mappings, %g of them "
                 "shared",
                 lives, lives == 1 ? "" : "s", grown->of[FDS], grown->of[THREADS], grown->of[MAPS],
                 grown->of[SHARED_MAPS]);
    }
    MPI_Allreduce(MPI_IN_PLACE, &left, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return left;
}

/* ---- a number of communicators ---- */

struct held {
    long wanted, made;
    rondo_comm **comms;
    rondo_status status; /* the first error of this rank */
    double create_s, destroy_s;
    unsigned long wrong;
    struct state held, left; /* more than before, of this rank */
};

/* Collective. @return true if no rank has an error; else the first rank that has one says it. */
static int all_well(struct held *h, const rondo_comm *comm, const char *what, long alive)
{
    int bad = h->status != RONDO_SUCCESS ? test.rank : INT_MAX, first, status = (int)h->status;
    MPI_Allreduce(&bad, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == INT_MAX) {
        return 1;
    }
    if (first == test.rank) {
        test_say("%s failed with %ld of %ld communicators alive: %s: %s", what, alive, h->wanted,
                 rondo_status_string(h->status), rondo_last_error(comm));
    }
    MPI_Bcast(&status, 1, MPI_INT, first, MPI_COMM_WORLD);
    h->status = (rondo_status)status;
    return 0;
}

/* If creation fails in one rank it fails in all, but not before all have tried it. */
static int make_all(const struct comm_perf *cp, struct held *h)
{
    double start;
    long least;
    test_start();
    start = test_now();
    while (h->made < h->wanted && h->status == RONDO_SUCCESS) {
        h->status = rondo_comm_split(cp->parent, 0, test.rank, &cp->config, &h->comms[h->made]);
        h->made += h->status == RONDO_SUCCESS;
    }
    h->create_s = test_now() - start;
    MPI_Allreduce(&h->made, &least, 1, MPI_LONG, MPI_MIN, MPI_COMM_WORLD);
    while (h->made > least) {
        (void)rondo_comm_abort(h->comms[--h->made]);
    }
    return all_well(h, cp->parent, "rondo_comm_split", h->made);
}

/* Verify an all_reduce of each. */
static int use_all(const struct comm_perf *cp, struct held *h)
{
    const rondo_comm *comm = NULL;
    unsigned long wrong = 0;
    for (long i = 0; i < h->made && h->status == RONDO_SUCCESS; i++) {
        struct test_call call;
        comm = h->comms[i];
        comm_perf_prepare(cp, h->comms[i], COMM_PERF_SMALL, &call);
        h->status = call.coll->run(&call, cp->send, cp->recv, h->comms[i], NULL);
        wrong += h->status == RONDO_SUCCESS ? comm_perf_wrong(cp, &call) : 0;
    }
    MPI_Allreduce(&wrong, &h->wrong, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all_well(h, comm, "rondo_all_reduce", h->made);
}

static void destroy_all(struct held *h, int well)
{
    double start;
    test_start();
    start = test_now();
    for (long i = 0; i < h->made; i++) {
        rondo_status status = rondo_comm_destroy(h->comms[i]);
        if (well) { /* after an error it returns the error again */
            perf_must(status, NULL, "rondo_comm_destroy");
        }
    }
    h->destroy_s = test_now() - start;
}

/* Make, use and destroy the communicators. @return true if all calls were successful. */
static int hold(const struct comm_perf *cp, struct held *h)
{
    struct state before, full, after;
    int well;
    h->comms = (rondo_comm **)(void *)perf_buffer((size_t)h->wanted * sizeof(*h->comms));
    full = before = look();
    well = make_all(cp, h) && use_all(cp, h);
    if (well) {
        full = look();
    }
    destroy_all(h, well);
    after = look();
    h->held = growth(&before, &full);
    h->left = growth(&before, &after);
    free(h->comms);
    return well;
}

/* ---- the rows ---- */

static void print_header(void)
{
    /* malloc_trim cannot return a page of which a byte is in use, so some private pages may be left. */
    printf(
        "# Held by N communicators at once, made by rondo_comm_split of all ranks and used once: for each\n"
        "# communicator and rank, in the mean. shared: memory that the host set aside for shared memory;\n"
        "# touched: the part in use. Left over after all were destroyed: by the rank with most. create and\n"
        "# destroy: slowest rank.\n#\n");
    printf("#%6s %9s %9s %9s  %9s %9s %9s %7s %7s %7s %6s  %4s %7s %5s %8s %8s\n", "N", "create", "each",
           "destroy", "shared", "touched", "private", "fds", "threads", "maps", "#wrong", "fds", "threads",
           "maps", "shared", "private");
    printf("#%6s %9s %9s %9s  %9s %9s %9s %7s %7s %7s %6s  %4s %7s %5s %8s %8s\n", "", "(s)", "(us)", "(s)",
           "(KiB)", "(KiB)", "(KiB)", "", "", "", "", "left", "left", "left", "(KiB)", "(KiB)");
}

static void print_kib(int width, int known, double bytes)
{
    if (known) {
        printf(" %*.1f", width, bytes / 1024);
    } else {
        printf(" %*s", width, "n/a");
    }
}

static void print_row(const struct held *h, const double *each, const double *left, const int *known)
{
    printf("%7ld %9.4f %9.1f %9.4f ", h->wanted, h->create_s, 1e6 * h->create_s / (double)h->wanted,
           h->destroy_s);
    print_kib(9, known[SHARED], each[SHARED]);
    print_kib(9, known[TOUCHED], each[TOUCHED]);
    print_kib(9, known[PRIVATE], each[PRIVATE]);
    printf(" %7.2f %7.2f %7.2f %6lu  %4g %7g %5g", each[FDS], each[THREADS], each[MAPS], h->wrong, left[FDS],
           left[THREADS], left[MAPS]);
    print_kib(8, known[SHARED], left[SHARED]);
    print_kib(8, known[PRIVATE], left[PRIVATE]);
    printf("\n");
    fflush(stdout);
}

static void write_row(const struct held *h, const double *each, const double *left, const int *known)
{
    static int written;
    perf_json_text("%s\n{\"live\":%ld", written++ > 0 ? "," : "", h->wanted);
    perf_json_number("create_s", h->create_s, 1);
    perf_json_number("destroy_s", h->destroy_s, 1);
    perf_json_number("wrong", (double)h->wrong, 1);
    for (int kind = 0; kind < KINDS; kind++) {
        char name[32];
        perf_json_number(names[kind], each[kind], known[kind]);
        snprintf(name, sizeof(name), "left_%s", names[kind]);
        perf_json_number(name, left[kind], known[kind]);
    }
    perf_json_text("}");
}

/* Print and write what each communicator and rank holds, in the mean: *each, on all ranks. */
static void row(struct held *h, const int *known, double each[KINDS])
{
    double left[KINDS], mine[2] = { h->create_s, h->destroy_s }, slowest[2];
    MPI_Allreduce(h->held.of, each, KINDS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(h->left.of, left, KINDS, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(mine, slowest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int kind = 0; kind < KINDS; kind++) {
        each[kind] /= (double)h->wanted * test.nranks;
    }
    h->create_s = slowest[0];
    h->destroy_s = slowest[1];
    if (test.rank == 0) {
        print_row(h, each, left, known);
        write_row(h, each, left, known);
    }
}

/* ---- the part ---- */

static void make_parent(struct comm_perf *cp)
{
    perf_must(rondo_comm_create(MPI_COMM_WORLD, &cp->config, &cp->parent), NULL, "creating the parent");
}

static void destroy_parent(struct comm_perf *cp)
{
    perf_must(rondo_comm_destroy(cp->parent), NULL, "destroying the parent");
}

/* After a parent and two children have lived, MPI and libc hold all that they keep. *each: the memory of a
 * communicator on this node. */
static int warm_up(struct comm_perf *cp, MPI_Comm node, double *each)
{
    struct held h = { .wanted = 2 };
    double bytes;
    int well;
    make_parent(cp);
    well = hold(cp, &h);
    destroy_parent(cp);
    bytes = (h.held.of[SHARED] + h.held.of[PRIVATE]) / 2;
    MPI_Allreduce(&bytes, each, 1, MPI_DOUBLE, MPI_SUM, node);
    return well ? PERF_OK : perf_exit_of(h.status);
}

/* Collective. The kernel kills processes when the host is full, even if it granted the memory; so do not
 * start what cannot fit. */
static int fits(long live, double each)
{
    double needed = each * (double)live, free_bytes = proc_bytes("/proc/meminfo", "MemAvailable");
    int mine = free_bytes < 0 || needed < 0.9 * free_bytes ? INT_MAX : test.rank, first;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == test.rank) {
        test_say(
            "%ld communicators need about %.1f GiB of this host's memory, of which %.1f GiB are available; "
            "use a smaller --live",
            live, needed / (1 << 30), free_bytes / (1 << 30));
    }
    return first == INT_MAX;
}

/* Few communicators share what a process takes once. */
static int is_heavy(const struct comm_perf *cp, long live, const double each[KINDS])
{
    long largest = 0;
    double kib = (each[SHARED] + each[PRIVATE]) / 1024;
    for (int i = 0; i < cp->nlive; i++) {
        largest = cp->live[i] > largest ? cp->live[i] : largest;
    }
    if (cp->most_kib == 0 || live < largest || (kib <= (double)cp->most_kib && each[FDS] < 0.5)) {
        return 0;
    }
    if (test.rank == 0) {
        test_say("each of %ld communicators holds %.1f KiB and %.2f files a rank; --most allows %ld KiB",
                 live, kib, each[FDS], cp->most_kib);
    }
    return 1;
}

static int hold_and_report(struct comm_perf *cp, long live, const int *known)
{
    struct held h = { .wanted = live };
    double each[KINDS];
    int well = hold(cp, &h), left = left_over(&h.left, live);
    if (!well) {
        return perf_exit_of(h.status);
    }
    cp->wrong += h.wrong;
    row(&h, known, each);
    return left || is_heavy(cp, live, each) ? PERF_INTERNAL : PERF_OK;
}

/* @return the first failure. An error of the library ends the part, what is left over does not. */
static int hold_each(struct comm_perf *cp, double each, const int *known)
{
    int result = PERF_OK;
    for (int i = 0; i < cp->nlive; i++) {
        int code = fits(cp->live[i], each) ? hold_and_report(cp, cp->live[i], known) : PERF_USAGE;
        if (code != PERF_OK && code != PERF_INTERNAL) {
            return code;
        }
        result = result == PERF_OK ? code : result;
    }
    return result;
}

static int run(struct comm_perf *cp)
{
    struct state before, after, grown;
    int known[KINDS], result;
    double each;
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, test.rank, MPI_INFO_NULL, &node);
    result = warm_up(cp, node, &each);
    MPI_Comm_free(&node);
    if (result != PERF_OK) {
        return result;
    }
    before = look();
    for (int kind = 0; kind < KINDS; kind++) {
        known[kind] = before.of[kind] >= 0;
    }
    MPI_Allreduce(MPI_IN_PLACE, known, KINDS, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (test.rank == 0) {
        print_header();
    }
    make_parent(cp);
    result = hold_each(cp, each, known);
    destroy_parent(cp);
    after = look();
    grown = growth(&before, &after);
    return left_over(&grown, 1) && result == PERF_OK ? PERF_INTERNAL : result;
}

int comm_perf_held(struct comm_perf *cp)
{
    int result = PERF_OK;
    perf_json_text("\"held\":[");
    if (cp->nlive > 0) {
        result = run(cp);
    }
    perf_json_text("\n],\n");
    return result;
}
