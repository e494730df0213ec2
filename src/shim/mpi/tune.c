/*
 * Decisions. For each collective and size class of a communicator: where both libraries give the same bits,
 * they take turns for some rounds, then the ranks add up their times and keep the faster one.
 * Where they do not, the model decides, so that each run of the program gives the same bits.
 *
 * A faster call may only move a wait into the next one: with more ranks than cores, ranks that leave a
 * barrier early wait in the broadcast behind it. So what the communicator's other calls take counts, too,
 * and only one collective and size class of a communicator is on trial at a time.
 */
#include <stdlib.h>

#include "base/param.h"
#include "base/wait.h"
#include "shim/mpi/shim.h"

enum { MPI_SIDE, RONDO_SIDE };
/* A turn is so many calls. The first does not count: it pays for what the other side left behind. */
enum { TURN = 4, COUNTED = TURN - 1, TURNS = SHIM_SAMPLES / COUNTED };
/* So many calls of others in a row end a trial early; twice as many end the next one. */
enum { PATIENCE = 8, MOST_PATIENCE = 1 << 12 };
/* Larger calls are measured in fewer turns. */
static int turns_of(const struct shim_call *call)
{
    return call->bytes <= 1 << 16 ? TURNS : call->bytes <= 1 << 20 ? 3 : 1;
}
/* So many calls begin a trial, on Rondo, and do not count: broadcasts and reductions to a root go through as
 * many banks of the mailbox, whose pages the kernel makes when they are first used (1 to 30 us a call). */
static int warm_of(const struct shim_call *call) { return turns_of(call) == TURNS ? 2 * TURN : 0; }

void shim_cells_free(struct shim_cells *cells)
{
    for (int coll = 0; cells != NULL && coll < SHIM_NCOLLS; coll++) {
        for (int i = 0; i < 2 * SHIM_NCLASSES; i++) {
            free(cells->cell[coll][i / SHIM_NCLASSES][i % SHIM_NCLASSES].trial);
        }
    }
    free(cells);
}

/* The verdict that needs no measuring. */
static enum shim_verdict model(const struct shim_call *call)
{
    if (shim_settings()->tune == RONDO_MPI_TUNE_ALWAYS) {
        return SHIM_TAKE;
    }
    if (call->inexact || shim_settings()->tune == RONDO_MPI_TUNE_MODEL) {
        return call->c->one_host ? SHIM_TAKE : SHIM_LEAVE;
    }
    return SHIM_OPEN;
}

/* ---- measuring ---- */

/* What a trial has found on one side, in ns; sums over the ranks. */
struct shim_times {
    int64_t own, rest, variance; /* of the rest, in square ns */
};
#define MOST_VARIANCE (INT64_C(1) << 44) /* of a rank: (4 ms)^2 */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The mean without the slowest fifth, which another process may have caused. A median would hide what a third
 * of the calls have to wait. *variance: of this mean. */
static int64_t typical(const int64_t *values, int n, int64_t *variance)
{
    int64_t sorted[SHIM_SAMPLES];
    int kept = n - (n + 4) / 5;
    double sum = 0, squares = 0;
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    for (int i = 0; i < kept; i++) {
        sum += (double)sorted[i];
    }
    for (int i = 0; i < kept; i++) {
        double off = (double)sorted[i] - sum / kept;
        squares += off * off;
    }
    squares /= (double)kept * (kept > 1 ? kept - 1 : 1);
    *variance = squares < (double)MOST_VARIANCE ? (int64_t)squares : MOST_VARIANCE;
    return (int64_t)(sum / kept);
}

/* Rondo must gain 5%, as less could be noise. The other calls may lose half of that, and behind a barrier,
 * which moves no data itself, an eighth; or 3%, or two standard errors: where ranks wait for each other's
 * work, their times vary by more than Rondo can gain. */
static enum shim_verdict judge(const struct shim_times *mpi, const struct shim_times *rondo, int nranks,
                               int is_barrier)
{
    int64_t gain = mpi->own - rondo->own, loss = rondo->rest - mpi->rest;
    /* Ranks wait for the same things: their times vary together. */
    double variance = (double)nranks * ((double)mpi->variance + (double)rondo->variance);
    int is_moved = loss > gain / (is_barrier ? 8 : 2) && loss > mpi->rest / 32 &&
                   (double)loss * (double)loss > 4 * variance;
    return gain >= mpi->own / 20 && !is_moved ? SHIM_TAKE : SHIM_LEAVE;
}

/* After the last turn, all ranks are here. If Rondo fails, so does the call that it takes then. */
static void agree(struct shim_call *call)
{
    const struct shim_comm *c = call->c;
    struct shim_trial *trial = call->cell->trial;
    struct shim_times mine[2] = { { 0 } }, all[2];
    int n = COUNTED * turns_of(call);
    for (int side = 0; side < 2 && trial != NULL; side++) {
        int64_t unused;
        mine[side].own = typical(trial->own[side], n, &unused);
        mine[side].rest = typical(trial->rest[side], n, &mine[side].variance);
    }
    struct shim_outer outer = shim_enter(SHIM_CALLS);
    rondo_status status = rondo_all_reduce(mine, all, (sizeof mine) / (sizeof(int64_t)), RONDO_INT64,
                                           RONDO_SUM, c->host != NULL ? c->host->rondo : c->rondo, NULL);
    shim_exit(outer);
    if (status != RONDO_SUCCESS) {
        call->cell->verdict = SHIM_TAKE;
        return;
    }
    call->cell->verdict = (uint8_t)judge(&all[MPI_SIDE], &all[RONDO_SIDE], call->c->n,
                                         call->coll == SHIM_BARRIER);
    for (int side = 0; side < 2 && trial != NULL; side++) {
        trial->agreed[side] = all[side].own;
    }
}

/* Put a cell on trial. Threads that know of calls left to MPI forget them, so that their time is seen. */
static void trial_begin(struct shim_comm *c, struct shim_cell *cell)
{
    c->tried = cell;
    c->steady = NULL;
    c->has_mark = 0;
    c->nothers = 0;
    c->patience = c->patience != 0 ? c->patience : PATIENCE;
    if (cell->trial == NULL) {
        cell->trial = calloc(1, sizeof *cell->trial); /* NULL: the other ranks' times decide */
    }
    __atomic_add_fetch(&shim_generation, 1, __ATOMIC_RELEASE);
}

static void trial_end(struct shim_comm *c)
{
    c->tried = NULL;
    c->steady = c->gpu == NULL ? c->cells : NULL;
    c->patience = PATIENCE;
}

/* The tried cell has not been called for long: others may be tried. A turn that was not finished is repeated
 * later. A call that is as rare as can be is not worth what a trial costs the others: it stays with MPI. */
static void trial_lapse(struct shim_comm *c)
{
    struct shim_cell *cell = c->tried;
    unsigned patience = c->patience;
    cell->round -= cell->round > 0 ? (cell->round - 1) % TURN + 1 : 0;
    trial_end(c);
    c->patience = patience < MOST_PATIENCE ? 2 * patience : patience;
    if (patience >= MOST_PATIENCE) {
        cell->verdict = SHIM_LEAVE;
    }
}

/* Is the cell on trial from now on? Calls alone decide, which the ranks have in common. */
static int is_tried(struct shim_comm *c, struct shim_cell *cell)
{
    if (c->tried == NULL) {
        trial_begin(c, cell);
    }
    return c->tried == cell;
}

/* MPI, Rondo, Rondo, MPI, and so on: what changes steadily, or comes at every other turn, harms neither.
 * round < 0: it does not count. */
static int side_of(int round) { return round < 0 ? RONDO_SIDE : (round / TURN + 1) / 2 % 2; }

/* The times of the tried cell's last call, of that round, and of those since. */
static void sample(struct shim_comm *c, int round)
{
    struct shim_trial *trial = c->tried->trial;
    int turn = round / (2 * TURN), at = round % TURN;
    if (c->has_mark && trial != NULL && round >= 0 && at > 0 && turn < TURNS) {
        trial->own[side_of(round)][turn * COUNTED + at - 1] = c->own_ns;
        trial->rest[side_of(round)][turn * COUNTED + at - 1] = c->spent_ns - c->own_ns;
    }
    c->has_mark = 1;
    c->own_ns = c->spent_ns = 0;
}

/* A call of a cell without a verdict. */
static int measures(struct shim_call *call)
{
    struct shim_comm *c = call->c;
    struct shim_cell *cell = call->cell;
    int round = cell->round - warm_of(call);
    if (!is_tried(c, cell)) {
        return shim_leave(call, SHIM_BY_TRIAL);
    }
    c->nothers = 0;
    sample(c, round - 1);
    if (round == 2 * TURN * turns_of(call)) {
        agree(call);
        trial_end(c);
        return cell->verdict == SHIM_TAKE || shim_leave(call, SHIM_BY_SLOWER);
    }
    call->sampled = call->timed = 1;
    cell->round++;
    return side_of(round) == RONDO_SIDE || shim_leave(call, SHIM_BY_TRIAL);
}

static void count_time(struct shim_call *call, int taken, int64_t ns)
{
    struct shim_comm *c = call->c;
    if (c != NULL && c->tried != NULL) {
        c->spent_ns += ns;
        c->own_ns = call->sampled ? ns : c->own_ns;
    }
    if (shim_reporting) {
        shim_report_add(call, taken, ns);
    }
}

void shim_passed(struct shim_call *call) { count_time(call, 0, rondo_now_ns() - call->start_ns); }
void shim_took(struct shim_call *call, int64_t ns) { count_time(call, 1, ns); }

/* ---- decisions ---- */

int shim_takes_slow(struct shim_call *call)
{
    struct shim_comm *c = call->c;
    if (c->cells == NULL) {
        if (c->ncalls + 1 < shim_settings()->after) {
            c->ncalls++;
            return shim_leave(call, SHIM_BY_EARLY);
        }
        shim_comm_make(c);
        if (c->cells == NULL) {
            return shim_leave(call, c->leaves);
        }
    }
    if (c->gpu != NULL) {
        if (!shim_gpu_choose(call)) {
            return 0;
        }
        c = call->c;
        if (c->failed) {
            return 1; /* an error */
        }
    }
    call->cell = &c->cells->cell[call->coll][call->inexact][shim_class(call->bytes)];
    if (c->tried != NULL && c->tried != call->cell && ++c->nothers >= c->patience) {
        trial_lapse(c);
    }
    if (call->cell->verdict == SHIM_OPEN) {
        call->cell->verdict = (uint8_t)model(call);
    }
    if (call->cell->verdict == SHIM_OPEN) {
        return measures(call);
    }
    call->timed = c->tried != NULL;
    return call->cell->verdict == SHIM_TAKE ||
           shim_leave(call, call->inexact ? SHIM_BY_MODEL : SHIM_BY_SLOWER);
}

/* Reasons that hold for all calls with these arguments, on all ranks. */
static int is_lasting(enum shim_reason reason)
{
    static const unsigned reasons = 1U << SHIM_BY_OFF | 1U << SHIM_BY_INTER | 1U << SHIM_BY_ALONE |
                                    1U << SHIM_BY_JOBS | 1U << SHIM_BY_MANY | 1U << SHIM_BY_GPU |
                                    1U << SHIM_BY_FAILED | 1U << SHIM_BY_TYPE | 1U << SHIM_BY_SIZE |
                                    1U << SHIM_BY_EXACT | 1U << SHIM_BY_MODEL | 1U << SHIM_BY_SLOWER |
                                    1U << SHIM_BY_REQUEST;
    return (reasons >> reason & 1) != 0;
}

void shim_note_left(int is_request, const struct shim_call *call, MPI_Comm comm, int64_t count,
                    MPI_Datatype type, MPI_Op op)
{
    struct shim_thread *t = &shim_thread;
    if (is_request && call->reason == SHIM_BY_SLOWER && call->cell->verdict == SHIM_OPEN) {
        return; /* the blocking calls will decide */
    }
    if (call->c != NULL && (call->c->tried != NULL || call->c->gpu != NULL)) {
        return; /* its time counts, or its buffers decide */
    }
    if (count >= 0 && t->types != NULL && t->comm == comm && t->state == call->c && !shim_reporting &&
        is_lasting((enum shim_reason)call->reason)) {
        t->types->left[is_request][call->coll] = (struct shim_left){ comm, t->generation, count, type, op };
    }
}

/* A class that is being measured is left to the blocking calls. */
int shim_takes_request(struct shim_call *call)
{
    const struct shim_comm *c = call->c;
    if (c->cells == NULL) {
        return shim_leave(call, SHIM_BY_EARLY);
    }
    if (!c->moves_requests || c->gpu != NULL) {
        return shim_leave(call, c->gpu != NULL ? SHIM_BY_GPU : SHIM_BY_REQUEST);
    }
    call->cell = &c->cells->cell[call->coll][call->inexact][shim_class(call->bytes)];
    enum shim_verdict verdict = (enum shim_verdict)call->cell->verdict;
    if (verdict == SHIM_OPEN) {
        verdict = model(call);
        verdict = verdict != SHIM_OPEN ? verdict : c->one_host ? SHIM_TAKE : SHIM_LEAVE;
    }
    return verdict == SHIM_TAKE || shim_leave(call, call->inexact ? SHIM_BY_MODEL : SHIM_BY_SLOWER);
}
