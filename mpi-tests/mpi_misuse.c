/*
 * mpi_misuse: bad arguments, and calls that differ between ranks. Each gives the right status and an error
 * text that names the problem, in bounded time, and writes nothing outside the caller's buffers.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_calls.h"

#define LIMIT 5.0 /* seconds until all ranks must know of a mismatch */

static int verbose;

/* ---- bad arguments: this rank refuses them, before anything happens ---- */

static rondo_comm *fresh;

static void refused(rondo_status got, rondo_status want, const char *what, const char *word)
{
    const char *text = rondo_last_error(fresh);
    if (verbose && test.rank == 0) {
        test_say("%s: %s: %s", what, rondo_status_string(got), text);
    }
    test_check(got == want, "%s gave %s, expected %s", what, rondo_status_string(got),
               rondo_status_string(want));
    test_check(strstr(text, word) != NULL, "%s: the error text does not name \"%s\": %s", what, word, text);
}

#define REFUSED(call, word) refused(call, RONDO_INVALID_ARGUMENT, #call, word)

static void null_pointers_are_refused(void)
{
    size_t counts[TEST_MAX_RANKS], displs[TEST_MAX_RANKS];
    float x[TEST_MAX_RANKS] = { 0 };
    rondo_op op = RONDO_SUM;
    for (int r = 0; r < test.nranks; r++) {
        counts[r] = 1;
        displs[r] = (size_t)r;
    }
    REFUSED(rondo_all_reduce(NULL, x, 1, RONDO_FLOAT32, RONDO_SUM, fresh, NULL), "send");
    REFUSED(rondo_all_reduce(x, NULL, 1, RONDO_FLOAT32, RONDO_SUM, fresh, NULL), "rec");
    REFUSED(rondo_reduce(NULL, x, 1, RONDO_FLOAT32, RONDO_SUM, 0, fresh, NULL), "send");
    REFUSED(rondo_reduce(x, NULL, 1, RONDO_FLOAT32, RONDO_SUM, test.rank, fresh, NULL), "rec");
    REFUSED(rondo_broadcast(NULL, x, 1, RONDO_FLOAT32, test.rank, fresh, NULL), "send");
    REFUSED(rondo_broadcast(x, NULL, 1, RONDO_FLOAT32, 0, fresh, NULL), "rec");
    REFUSED(rondo_all_gather(NULL, x, 1, RONDO_FLOAT32, fresh, NULL), "send");
    REFUSED(rondo_all_gather(x, NULL, 1, RONDO_FLOAT32, fresh, NULL), "rec");
    REFUSED(rondo_reduce_scatter(NULL, x, 1, RONDO_FLOAT32, RONDO_SUM, fresh, NULL), "send");
    REFUSED(rondo_reduce_scatter(x, NULL, 1, RONDO_FLOAT32, RONDO_SUM, fresh, NULL), "rec");
    REFUSED(rondo_all_to_all(NULL, x, 1, RONDO_FLOAT32, fresh, NULL), "send");
    REFUSED(rondo_gather(NULL, x, 1, RONDO_FLOAT32, 0, fresh, NULL), "send");
    REFUSED(rondo_gather(x, NULL, 1, RONDO_FLOAT32, test.rank, fresh, NULL), "rec");
    REFUSED(rondo_scatter(NULL, x, 1, RONDO_FLOAT32, test.rank, fresh, NULL), "send");
    REFUSED(rondo_scatter(x, NULL, 1, RONDO_FLOAT32, 0, fresh, NULL), "rec");
    REFUSED(rondo_send(NULL, 1, RONDO_FLOAT32, 0, fresh, NULL), "send");
    REFUSED(rondo_recv(NULL, 1, RONDO_FLOAT32, 0, fresh, NULL), "rec");
    REFUSED(rondo_all_gatherv(x, x, NULL, displs, RONDO_FLOAT32, fresh, NULL), "count");
    REFUSED(rondo_all_gatherv(x, x, counts, NULL, RONDO_FLOAT32, fresh, NULL), "displ");
    REFUSED(rondo_reduce_scatterv(x, x, NULL, displs, RONDO_FLOAT32, RONDO_SUM, fresh, NULL), "count");
    REFUSED(rondo_all_to_allv(x, NULL, displs, x, counts, displs, RONDO_FLOAT32, fresh, NULL), "count");
    if (test.rank == 0) {
        REFUSED(rondo_gatherv(x, 1, x, NULL, displs, RONDO_FLOAT32, 0, fresh, NULL), "counts");
        REFUSED(rondo_gatherv(x, counts[0] + 1, x, counts, displs, RONDO_FLOAT32, 0, fresh, NULL),
                "own count");
        REFUSED(rondo_scatterv(x, counts, NULL, x, 1, RONDO_FLOAT32, 0, fresh, NULL), "displacements");
    }
    REFUSED(rondo_op_create_premul_sum(NULL, x, RONDO_FLOAT32, fresh), "op");
    REFUSED(rondo_op_create_premul_sum(&op, NULL, RONDO_FLOAT32, fresh), "scalar");
    REFUSED(rondo_comm_split(fresh, 0, 0, NULL, NULL), "NULL");
    REFUSED(rondo_comm_async_error(fresh, NULL), "NULL");
    fresh = NULL; /* the error text belongs to this thread */
    REFUSED(rondo_all_reduce(x, x, 1, RONDO_FLOAT32, RONDO_SUM, NULL, NULL), "comm");
    REFUSED(rondo_barrier(NULL, NULL), "comm");
    REFUSED(rondo_comm_destroy(NULL), "comm");
    REFUSED(rondo_stream_create(NULL), "stream");
    REFUSED(rondo_stream_query(NULL), "stream");
    REFUSED(rondo_stream_synchronize(NULL), "stream");
    REFUSED(rondo_get_version(NULL), "version");
}

static void unknown_values_are_refused(void)
{
    float x[TEST_MAX_RANKS] = { 0 };
    rondo_op op = RONDO_SUM, other;
    double scalar = 2;
    REFUSED(rondo_all_reduce(x, x, 1, (rondo_dtype)99, RONDO_SUM, fresh, NULL), "99");
    REFUSED(rondo_broadcast(x, x, 1, (rondo_dtype)-1, 0, fresh, NULL), "type");
    REFUSED(rondo_send(x, 1, (rondo_dtype)RONDO_NUM_DTYPES, 0, fresh, NULL), "type");
    REFUSED(rondo_all_reduce(x, x, 1, RONDO_FLOAT32, (rondo_op)1234567, fresh, NULL), "1234567");
    REFUSED(rondo_reduce(x, x, 1, RONDO_FLOAT32, (rondo_op)-1, 0, fresh, NULL), "op");
    REFUSED(rondo_reduce_scatter(x, x, 1, RONDO_FLOAT32, (rondo_op)RONDO_NUM_OPS, fresh, NULL), "op");
    REFUSED(rondo_op_destroy(RONDO_SUM, fresh), "op");
    REFUSED(rondo_op_destroy((rondo_op)1234567, fresh), "op");
    REFUSED(rondo_op_create_premul_sum(&op, &scalar, (rondo_dtype)99, fresh), "99");
    REFUSED(rondo_broadcast(x, x, 1, RONDO_FLOAT32, test.nranks, fresh, NULL), "root");
    REFUSED(rondo_reduce(x, x, 1, RONDO_FLOAT32, RONDO_SUM, -1, fresh, NULL), "-1");
    REFUSED(rondo_gather(x, x, 1, RONDO_FLOAT32, 9999, fresh, NULL), "9999");
    REFUSED(rondo_scatter(x, x, 1, RONDO_FLOAT32, -7, fresh, NULL), "-7");
    REFUSED(rondo_send(x, 1, RONDO_FLOAT32, test.nranks, fresh, NULL), "peer");
    REFUSED(rondo_recv(x, 1, RONDO_FLOAT32, -1, fresh, NULL), "peer");
    TEST_MUST(rondo_op_create_premul_sum(&op, &scalar, RONDO_FLOAT64, fresh), fresh);
    REFUSED(rondo_all_reduce(x, x, 1, RONDO_FLOAT32, op, fresh, NULL), "f64");
    TEST_MUST(rondo_op_destroy(op, fresh), fresh);
    other = op;
    REFUSED(rondo_all_reduce(x, x, 1, RONDO_FLOAT64, other, fresh, NULL), "op");
}

static void operations_that_a_type_lacks_are_refused(void)
{
    long double x[4 * TEST_MAX_RANKS] = { 0 };
    rondo_op op;
    REFUSED(rondo_all_reduce(x, x, 1, RONDO_FLOAT32, RONDO_BAND, fresh, NULL),
            "f32 has sum, prod, max, min, avg");
    REFUSED(rondo_reduce(x, x, 1, RONDO_COMPLEX_FLOAT64, RONDO_MAX, 0, fresh, NULL),
            "cf64 has sum, prod, avg");
    REFUSED(rondo_all_reduce(x, x, 1, RONDO_BOOL8, RONDO_SUM, fresh, NULL), "b8 has land, lor, lxor");
    REFUSED(rondo_all_reduce(x, x, 0, RONDO_FLOAT_INT, RONDO_MIN, fresh, NULL),
            "float_int has minloc, maxloc");
    REFUSED(rondo_all_reduce(x, x, 1, RONDO_INT_INT, RONDO_AVG, fresh, NULL), "minloc");
    REFUSED(rondo_reduce_scatter(x, x, 1, RONDO_INT32, RONDO_MINLOC, fresh, NULL), "bxor");
    REFUSED(rondo_op_create_premul_sum(&op, x, RONDO_COMPLEX_FLOAT64, fresh), "cf64");
    REFUSED(rondo_op_create_premul_sum(&op, x, RONDO_BOOL8, fresh), "b8");
}

static void counts_beyond_memory_are_refused(void)
{
    float x[TEST_MAX_RANKS] = { 0 };
    size_t counts[TEST_MAX_RANKS], displs[TEST_MAX_RANKS] = { 0 };
    for (int r = 0; r < test.nranks; r++) {
        counts[r] = SIZE_MAX / 2;
    }
    REFUSED(rondo_all_reduce(x, x, SIZE_MAX, RONDO_FLOAT32, RONDO_SUM, fresh, NULL), "count");
    REFUSED(rondo_all_gather(x, x, SIZE_MAX / 4, RONDO_FLOAT32, fresh, NULL), "count");
    REFUSED(rondo_reduce_scatter(x, x, SIZE_MAX / 2, RONDO_FLOAT64, RONDO_SUM, fresh, NULL), "count");
    REFUSED(rondo_all_to_all(x, x, SIZE_MAX, RONDO_INT8, fresh, NULL), "count");
    REFUSED(rondo_send(x, SIZE_MAX, RONDO_FLOAT16, 0, fresh, NULL), "count");
    REFUSED(rondo_all_gatherv(x, x, counts, displs, RONDO_FLOAT32, fresh, NULL), "count");
}

static void a_refused_call_leaves_the_communicator_usable(void)
{
    size_t wrong = 0;
    rondo_status status = test_call_once("all_reduce", fresh, RONDO_INT64, RONDO_SUM, 1001, 5, &wrong);
    test_check(status == RONDO_SUCCESS && wrong == 0, "after refused calls: %s, %zu wrong: %s",
               rondo_status_string(status), wrong, rondo_last_error(fresh));
}

static void group_misuse_is_refused(void)
{
    rondo_comm *comm = fresh, *made;
    float x = 0;
    fresh = NULL; /* without a communicator */
    refused(rondo_group_end(), RONDO_INVALID_USAGE, "group_end without group_start", "group_start");
    REFUSED(rondo_group_refuse(NULL), "NULL");
    fresh = comm;
    TEST_MUST(rondo_group_start(), fresh);
    REFUSED(rondo_all_reduce(&x, NULL, 1, RONDO_FLOAT32, RONDO_SUM, fresh, NULL), "rec");
    test_check(rondo_group_end() != RONDO_SUCCESS, "a group with a refused call succeeded");
    fresh = NULL;
    TEST_MUST(rondo_group_start(), NULL);
    REFUSED(rondo_comm_create(MPI_COMM_NULL, NULL, &made), "MPI_COMM_NULL");
    refused(rondo_group_end(), RONDO_INVALID_ARGUMENT, "a group with a refused creation", "MPI_COMM_NULL");
    fresh = comm;
    float one = 1;
    TEST_MUST(rondo_group_refuse("outside of a group"), fresh);
    TEST_MUST(rondo_group_start(), fresh);
    TEST_MUST(rondo_all_reduce(&one, &x, 1, RONDO_FLOAT32, RONDO_SUM, fresh, NULL), fresh);
    TEST_MUST(rondo_group_refuse("a binding refuses its second call"), fresh);
    refused(rondo_group_end(), RONDO_INVALID_ARGUMENT, "a group that a binding refuses", "its second call");
    test_check(x == 0, "a group that a binding refuses made a call");
}

/* ---- calls that differ ---- */

struct step {
    const char *coll;
    size_t count;
    rondo_dtype type;
    rondo_op op;
    int root;
};

enum kind { COUNT, TYPE, OP, ROOT, COLLECTIVE, ORDER, GROUP_ORDER, SEND_COUNT, SCATTER_COUNT, NUM_KINDS };
static const char *const kind_names[NUM_KINDS] = { "count",       "type",       "op",
                                                   "root",        "collective", "order",
                                                   "group-order", "send-count", "reduce_scatter" };
static const char *const colls[] = { "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter" };

struct script {
    struct step steps[2];
    int nsteps, group, exchange; /* exchange: rank 0 sends to rank 1, which expects half the bytes */
    const char *words[4];        /* one of the error texts names all of these */
};

static const char *number(size_t value, char *text)
{
    snprintf(text, 32, "%zu", value);
    return text;
}

/* Write the calls of this rank; those of rank 1 differ. @return false if this collective cannot differ in
 * this way. */
static int write_script(enum kind kind, const char *coll, size_t count, struct script *s)
{
    static char a[32], b[32];
    const struct test_coll *row = test_coll_by_name(coll);
    int differs = test.rank == 1;
    const char *other = strcmp(coll, "all_reduce") == 0 ? "broadcast" : "all_reduce";
    struct step *step = &s->steps[0];
    *s = (struct script){ .steps = { { coll, count, RONDO_FLOAT32, RONDO_SUM, 0 } },
                          .nsteps = 1,
                          .words = { coll, "rank 1" } };
    s->steps[1] = (struct step){ other, count, RONDO_FLOAT32, RONDO_SUM, 0 };
    switch (kind) {
    case COUNT:
        s->words[2] = number(count, a);
        s->words[3] = number(count + 1, b);
        step->count += (size_t)differs;
        return 1;
    case TYPE:
        s->words[2] = "f32";
        s->words[3] = "i32";
        step->type = differs ? RONDO_INT32 : RONDO_FLOAT32;
        return 1;
    case OP:
        s->words[2] = "sum";
        s->words[3] = "max";
        step->op = differs ? RONDO_MAX : RONDO_SUM;
        return row->reduces;
    case ROOT:
        s->words[2] = "root 0";
        s->words[3] = "root 1";
        step->root = differs;
        return row->rooted;
    case COLLECTIVE:
        s->words[2] = other;
        step->coll = differs ? other : coll;
        return 1;
    case ORDER:
    case GROUP_ORDER:
        s->words[2] = other;
        s->nsteps = 2;
        s->group = kind == GROUP_ORDER;
        if (differs) {
            struct step swap = s->steps[0];
            s->steps[0] = s->steps[1];
            s->steps[1] = swap;
        }
        return 1;
    case SEND_COUNT:
        s->group = s->exchange = 1;
        s->words[0] = "rank 0";
        return 1;
    default:
        s->words[2] = "reduce_scatter";
        if (differs) {
            *step = (struct step){ "reduce_scatter", count * 2, RONDO_FLOAT32, RONDO_SUM, 0 };
        }
        return 1;
    }
}

struct buffers {
    void *send, *recv;
    size_t send_bytes, recv_bytes;
};

static rondo_status run_step(const struct step *step, rondo_comm *comm, struct buffers *b)
{
    struct test_call call = { .coll = test_coll_by_name(step->coll),
                              .type = step->type,
                              .op = (int)step->op,
                              .handle = step->op,
                              .root = step->root,
                              .count = step->count,
                              .rank = test.rank,
                              .nranks = test.nranks };
    struct test_extent e = call.coll->extent(&call);
    b->send_bytes = e.send * test_types[step->type].size;
    b->recv_bytes = e.recv * test_types[step->type].size;
    b->send = test_guard_alloc(b->send_bytes);
    b->recv = test_guard_alloc(b->recv_bytes);
    return call.coll->run(&call, b->send, b->recv, comm, NULL);
}

static rondo_status run_exchange(rondo_comm *comm, size_t count, struct buffers *b)
{
    size_t mine = test.rank == 0 ? count : count / 2;
    b->recv_bytes = mine * 4;
    b->recv = test_guard_alloc(b->recv_bytes);
    return test.rank == 0   ? rondo_send(b->recv, mine, RONDO_FLOAT32, 1, comm, NULL)
           : test.rank == 1 ? rondo_recv(b->recv, mine, RONDO_FLOAT32, 0, comm, NULL)
                            : RONDO_SUCCESS;
}

static rondo_status first_of(rondo_status a, rondo_status b) { return a != RONDO_SUCCESS ? a : b; }

/* A rank that has done its part may return before the mismatch is detected. It gets the error from its next
 * call. */
static rondo_status run_script(const struct script *s, rondo_comm *comm, struct buffers *buffers)
{
    rondo_status status = RONDO_SUCCESS;
    if (s->group) {
        TEST_MUST(rondo_group_start(), comm);
    }
    for (int i = 0; i < s->nsteps && status == RONDO_SUCCESS; i++) {
        status = run_step(&s->steps[i], comm, &buffers[i]);
    }
    if (s->exchange) {
        status = first_of(status, run_exchange(comm, s->steps[0].count, &buffers[2]));
    }
    if (s->group) {
        status = first_of(status, rondo_group_end());
    }
    return status != RONDO_SUCCESS ? status : rondo_barrier(comm, NULL);
}

/* The barrier keeps a rank from ending the communicator while another one still creates it, which would make
 * that creation fail. */
static rondo_comm *create_on_all(const rondo_config *config)
{
    rondo_comm *comm;
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, config, &comm), NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    return comm;
}

static int names_all(const char *text, const struct script *s)
{
    for (size_t i = 0; i < TEST_ARRAY_LEN(s->words); i++) {
        if (s->words[i] != NULL && strstr(text, s->words[i]) == NULL) {
            return 0;
        }
    }
    return 1;
}

/* Every rank must have an error, and at least one INVALID_USAGE with a text that names both calls. */
static void judge(const struct script *s, rondo_status status, const char *text, double took)
{
    int mine[4] = { status == RONDO_INVALID_USAGE, status == RONDO_INVALID_USAGE && names_all(text, s),
                    status == RONDO_SUCCESS, took > LIMIT };
    int all[4];
    MPI_Allreduce(mine, all, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (verbose || all[0] == 0 || all[1] == 0) {
        test_say("%s: %s after %.0f ms: %s", test.what, rondo_status_string(status), 1e3 * took, text);
    }
    test_check(status != RONDO_SUCCESS,
               "the calls differ, but neither this call nor the next barrier failed on this rank");
    test_check(took <= LIMIT, "%.1f s until the error", took);
    if (test.rank == 0) {
        test_check(all[0] > 0, "no rank had %s", rondo_status_string(RONDO_INVALID_USAGE));
        test_check(all[1] > 0, "no error text names \"%s\", \"%s\", \"%s\", \"%s\"", s->words[0], s->words[1],
                   s->words[2] ? s->words[2] : "", s->words[3] ? s->words[3] : "");
    }
}

static void mismatch(enum kind kind, const char *coll, size_t count)
{
    static char what[96];
    struct script script;
    struct buffers buffers[3] = { { 0 } };
    rondo_comm *comm;
    rondo_status status;
    double start;
    if (!write_script(kind, coll, count, &script)) {
        return;
    }
    snprintf(what, sizeof(what), "mismatch %s in %s of %zu", kind_names[kind], coll, count);
    test.what = what;
    test_watchdog(30);
    comm = create_on_all(NULL);
    start = test_now();
    status = run_script(&script, comm, buffers);
    judge(&script, status, rondo_last_error(comm), test_now() - start);
    TEST_MUST(rondo_comm_abort(comm), NULL);
    MPI_Barrier(MPI_COMM_WORLD); /* from here on, nobody writes */
    for (int i = 0; i < 3; i++) {
        test_check(
            (buffers[i].send == NULL || test_guard_untouched(buffers[i].send, buffers[i].send_bytes)) &&
                (buffers[i].recv == NULL || test_guard_intact(buffers[i].recv, buffers[i].recv_bytes)),
            "the call wrote outside the receive buffer");
        test_guard_free(buffers[i].send);
        test_guard_free(buffers[i].recv);
    }
}

/* ---- a call that one rank never makes ---- */

/* @return true if the ranks were punctual, so that the case counts. */
static int one_rank_never_calls(const char *coll, int timeout_ms)
{
    static char what[96];
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm;
    rondo_status status;
    struct step step = { coll, 100, RONDO_FLOAT32, RONDO_SUM, 0 };
    struct buffers buffers = { 0 };
    int missing = test.nranks - 1, punctual, named = 1;
    char name[32], text[512] = "";
    double start;
    snprintf(what, sizeof(what), "rank %d never calls %s", missing, coll);
    test.what = what;
    test_watchdog(30);
    if (getenv("RONDO_TIMEOUT") == NULL) {
        config.timeout_ms = timeout_ms;
    }
    comm = create_on_all(&config);
    start = test_now();
    if (test.rank == missing) {
        status = test_wait_error(comm, LIMIT);
        test_check(status != RONDO_SUCCESS, "the rank that never called gets no error");
    } else {
        status = run_step(&step, comm, &buffers);
        status = status != RONDO_SUCCESS ? status : rondo_barrier(comm, NULL);
        snprintf(name, sizeof(name), "rank %d", missing);
        if (verbose) {
            test_say("%s: %s: %s", what, rondo_status_string(status), rondo_last_error(comm));
        }
        test_check(status == RONDO_TIMEOUT, "%s, expected %s: %s", rondo_status_string(status),
                   rondo_status_string(RONDO_TIMEOUT), rondo_last_error(comm));
        snprintf(text, sizeof(text), "%s", rondo_last_error(comm));
        named = strstr(text, name) != NULL;
        test_check(test_now() - start < LIMIT, "%.1f s", test_now() - start);
    }
    punctual = test_are_punctual(start, missing, 1e-3 * timeout_ms, 1.5e-3 * timeout_ms);
    test_check(named || !punctual, "the error text does not name %s: %s", name, text);
    TEST_MUST(rondo_comm_abort(comm), NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    test_guard_free(buffers.send);
    test_guard_free(buffers.recv);
    return punctual;
}

/* Repeat it until `times` cases have counted, but not for ever. */
static void a_rank_never_calls(const char *coll, int timeout_ms, long times)
{
    long counted = 0;
    for (long i = 0; i < 5 * times && counted < times; i++) {
        counted += one_rank_never_calls(coll, timeout_ms);
    }
    if (test.rank == 0 && counted < times) {
        test_say("%ld of %ld cases counted: the machine is busy", counted, times);
        test_check(counted > 0, "the name of the absent rank was never looked at");
    }
}

/* ---- the program ---- */

static void run_arguments(void)
{
    static void (*const cases[])(void) = { null_pointers_are_refused, unknown_values_are_refused,
                                           operations_that_a_type_lacks_are_refused,
                                           counts_beyond_memory_are_refused, group_misuse_is_refused };
    rondo_comm *comm;
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm), NULL);
    for (size_t i = 0; i < TEST_ARRAY_LEN(cases); i++) {
        fresh = comm;
        test.what = "bad arguments";
        test_watchdog(30);
        cases[i]();
        fresh = comm;
        a_refused_call_leaves_the_communicator_usable();
    }
    TEST_MUST(rondo_comm_destroy(comm), NULL);
}

static void run_mismatches(int only, size_t count)
{
    static const size_t counts[] = { 24, 100000 };
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        for (size_t c = 0; c < TEST_ARRAY_LEN(colls) && (only < 0 || only == kind); c++) {
            for (size_t i = 0; i < TEST_ARRAY_LEN(counts); i++) {
                if (count == 0 || i == 0) {
                    mismatch((enum kind)kind, colls[c], count != 0 ? count : counts[i]);
                }
            }
        }
    }
}

static int kind_by_name(const char *name)
{
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        if (strcmp(kind_names[kind], name) == 0) {
            return kind;
        }
    }
    return -1;
}

int main(int argc, char **argv)
{
    static const struct option rows[] = { { "only", 1, NULL, 'o' },  { "count", 1, NULL, 'c' },
                                          { "never", 1, NULL, 'n' }, { "verbose", 0, NULL, 'v' },
                                          { "help", 0, NULL, 'h' },  { NULL, 0, NULL, 0 } };
    int opt, only = -1, bad = 0;
    long never = 0;
    size_t count = 0;
    while ((opt = getopt_long(argc, argv, "vh", rows, NULL)) != -1) {
        bad |= opt == 'o'   ? (only = kind_by_name(optarg)) < 0
               : opt == 'c' ? !test_parse_size(optarg, &count)
               : opt == 'n' ? !test_parse_long(optarg, 1, 100000, &never)
                            : opt != 'v';
        verbose |= opt == 'v';
    }
    if (bad) {
        fprintf(stderr, "usage: mpirun -n RANKS mpi_misuse [--only KIND] [--count N] [--never TIMES] "
                        "[--verbose]\nKinds of mismatch:");
        for (int kind = 0; kind < NUM_KINDS; kind++) {
            fprintf(stderr, " %s", kind_names[kind]);
        }
        fprintf(stderr, "\n");
        return 2;
    }
    setenv("RONDO_DEBUG", "NONE", 0); /* errors are expected */
    test_init("mpi_misuse", MPI_THREAD_SINGLE);
    if (only < 0 && never == 0) {
        run_arguments();
    }
    if (never > 0) { /* all deadlines pass at once, so that each rank asks while others answer */
        a_rank_never_calls("broadcast", 100, never);
    }
    if (test.nranks > 1 && never == 0) {
        run_mismatches(only, count);
        for (size_t c = 0; c < TEST_ARRAY_LEN(colls) && only < 0; c++) {
            a_rank_never_calls(colls[c], 1000, 1);
        }
    }
    test_values_clear();
    return test_finish();
}
