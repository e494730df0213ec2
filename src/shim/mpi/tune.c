/*
 * Decisions. For each collective and size class of a communicator: where both libraries give the same bits,
 * they take turns for some rounds, then the ranks add up their times and keep the faster one.
 * Where they do not, the model decides, so that each run of the program gives the same bits.
 */
#include <stdlib.h>

#include "base/param.h"
#include "base/wait.h"
#include "shim/mpi/shim.h"

enum { MPI_SIDE, RONDO_SIDE };
/* A turn is so many calls. The first does not count: it pays for what the other side left behind. */
enum { TURN = 4, COUNTED = TURN - 1, TURNS = SHIM_SAMPLES / COUNTED };
/* Larger calls are measured in fewer turns. */
static int turns_of(const struct shim_call *call)
{
    return call->bytes <= 1 << 16 ? TURNS : call->bytes <= 1 << 20 ? 3 : 1;
}

void shim_cells_free(struct shim_cells *cells)
{
    for (int coll = 0; cells != NULL && coll < SHIM_NCOLLS; coll++) {
        for (int i = 0; i < 2 * SHIM_NCLASSES; i++) {
            free(cells->cell[coll][i / SHIM_NCLASSES][i % SHIM_NCLASSES].trial);
        }
    }
    free(cells);
}

/* A reduce_scatter in which a rank gets nothing, so that MPI has little to do (measured: 4 ranks, one
 * float). */
static int is_sparse(const struct shim_call *call)
{
    return call->coll == SHIM_REDUCE_SCATTER && call->moves && call->count < (size_t)call->c->n;
}

/* The verdict that needs no measuring. */
static enum shim_verdict model(const struct shim_call *call)
{
    if (shim_settings()->tune == RONDO_MPI_TUNE_ALWAYS) {
        return SHIM_TAKE;
    }
    if (call->inexact || shim_settings()->tune == RONDO_MPI_TUNE_MODEL) {
        return call->c->one_host && !is_sparse(call) ? SHIM_TAKE : SHIM_LEAVE;
    }
    return SHIM_OPEN;
}

/* MPI and Rondo take turns. */
static int measures(struct shim_call *call)
{
    struct shim_cell *cell = call->cell;
    int side = cell->round / TURN % 2;
    if (cell->trial == NULL) {
        cell->trial = calloc(1, sizeof *cell->trial); /* NULL: the other ranks' times decide */
    }
    call->sampled = 1;
    if (side == RONDO_SIDE) {
        return 1;
    }
    call->reason = SHIM_BY_TRIAL;
    call->timed = 1;
    call->start_ns = rondo_now_ns();
    return 0;
}

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
    call->cell = &c->cells->cell[call->coll][call->inexact][shim_class(call->bytes)];
    if (call->cell->verdict == SHIM_OPEN) {
        call->cell->verdict = (uint8_t)model(call);
    }
    if (call->cell->verdict == SHIM_OPEN) {
        return measures(call);
    }
    return call->cell->verdict == SHIM_TAKE ||
           shim_leave(call, call->inexact ? SHIM_BY_MODEL : SHIM_BY_SLOWER);
}

/* Reasons that hold for all calls with these arguments, on all ranks. */
static int is_lasting(enum shim_reason reason)
{
    static const unsigned reasons = 1U << SHIM_BY_OFF | 1U << SHIM_BY_INTER | 1U << SHIM_BY_ALONE |
                                    1U << SHIM_BY_MANY | 1U << SHIM_BY_GPU | 1U << SHIM_BY_FAILED |
                                    1U << SHIM_BY_TYPE | 1U << SHIM_BY_SIZE | 1U << SHIM_BY_EXACT |
                                    1U << SHIM_BY_MODEL | 1U << SHIM_BY_SLOWER | 1U << SHIM_BY_REQUEST;
    return (reasons >> reason & 1) != 0;
}

void shim_note_left(int is_request, const struct shim_call *call, MPI_Comm comm, int64_t count,
                    MPI_Datatype type, MPI_Op op)
{
    struct shim_thread *t = &shim_thread;
    if (is_request && call->reason == SHIM_BY_SLOWER && call->cell->verdict == SHIM_OPEN) {
        return; /* the blocking calls will decide */
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
    if (!c->moves_requests) {
        return shim_leave(call, SHIM_BY_REQUEST);
    }
    call->cell = &c->cells->cell[call->coll][call->inexact][shim_class(call->bytes)];
    enum shim_verdict verdict = (enum shim_verdict)call->cell->verdict;
    if (verdict == SHIM_OPEN) {
        verdict = model(call);
        verdict = verdict != SHIM_OPEN ? verdict : c->one_host ? SHIM_TAKE : SHIM_LEAVE;
    }
    return verdict == SHIM_TAKE || shim_leave(call, call->inexact ? SHIM_BY_MODEL : SHIM_BY_SLOWER);
}

/* ---- measuring ---- */

static void sample(struct shim_call *call, int side, int64_t ns)
{
    int turn = call->cell->round / (2 * TURN), at = call->cell->round % TURN;
    if (call->cell->trial != NULL && at > 0 && turn < TURNS) {
        call->cell->trial->ns[side][turn * COUNTED + at - 1] = ns;
    }
    call->cell->round++;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The mean without the slowest fifth, which another process may have caused. A median would hide what a third
 * of the calls have to wait. */
static int64_t typical(const int64_t *values, int n)
{
    int64_t sorted[SHIM_SAMPLES], sum = 0;
    int kept = n - (n + 4) / 5;
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    for (int i = 0; i < kept; i++) {
        sum += sorted[i];
    }
    return sum / kept;
}

/* After the last round, all ranks are here. */
static rondo_status agree(struct shim_call *call)
{
    struct shim_trial *trial = call->cell->trial;
    int64_t mine[2] = { 0, 0 }, all[2];
    for (int side = 0; side < 2 && trial != NULL; side++) {
        mine[side] = typical(trial->ns[side], COUNTED * turns_of(call));
    }
    rondo_status status = rondo_all_reduce(mine, all, 2, RONDO_INT64, RONDO_SUM, call->c->rondo, NULL);
    if (status == RONDO_SUCCESS) {
        int64_t most = all[MPI_SIDE] - all[MPI_SIDE] / 20; /* a gain that could be noise is none */
        call->cell->verdict = all[RONDO_SIDE] <= most ? SHIM_TAKE : SHIM_LEAVE;
        if (trial != NULL) {
            memcpy(trial->agreed, all, sizeof all);
        }
    }
    return status;
}

void shim_passed(struct shim_call *call)
{
    int64_t ns = rondo_now_ns() - call->start_ns;
    if (call->sampled) {
        sample(call, MPI_SIDE, ns);
    }
    if (shim_reporting) {
        shim_report_add(call, 0, ns);
    }
}

rondo_status shim_took(struct shim_call *call, int64_t ns)
{
    rondo_status status = RONDO_SUCCESS;
    if (call->sampled) {
        sample(call, RONDO_SIDE, ns);
        if (call->cell->round >= 2 * TURN * turns_of(call)) {
            status = agree(call);
        }
    }
    if (shim_reporting) {
        shim_report_add(call, 1, ns);
    }
    return status;
}
