/* The ways of mpi_random to complete requests: of collectives and messages, alone and in arrays. */
#include "mpi_random.h"

#include <sched.h>
#include <string.h>

#include "mpi_common.h"

enum { MOST = MAX_OPS + 4 };

/* Some open requests, with null requests between them. */
struct bunch {
    int n, ready;
    struct op *ops[MOST]; /* NULL: a null request */
    MPI_Request requests[MOST], before[MOST];
    MPI_Status statuses[MOST];
    int indices[MOST];
};

void run_completed(struct run *run, struct op *op)
{
    char text[300];
    uint64_t digest = (uint64_t)op->coll;
    if (op->has_send && area_check(&op->send, op->oper, op->call, &digest, text, sizeof(text))) {
        run_failed(run, op, "send buffer: %s", text);
    }
    if (op->has_recv && area_check(&op->recv, op->oper, op->call, &digest, text, sizeof(text))) {
        run_failed(run, op, "receive buffer: %s", text);
    }
    run_saw(run, op->call, digest);
    op->active = 0;
    if (!op->persistent) {
        call_free(op);
    }
}

static void check_status(struct run *run, struct op *op, MPI_Status *status)
{
    int items = -1;
    if (!op->message || !op->has_recv) {
        return;
    }
    MUST(run, MPI_Get_count(
                  status, op->recv.layout.owned || op->recv.layout.per == 1 ? op->recv.layout.type : MPI_BYTE,
                  &items));
    if (status->MPI_SOURCE != op->source || status->MPI_TAG != op->tag ||
        (op->recv.layout.owned && items != area_items(&op->recv, 0))) {
        run_failed(run, op, "status: source %d, tag %d, %d items; not %d, %d, %d", status->MPI_SOURCE,
                   status->MPI_TAG, items, op->source, op->tag, area_items(&op->recv, 0));
    }
}

/* Entry i of the bunch is complete, as a call said. */
static void bunch_done(struct run *run, struct bunch *bunch, int i, MPI_Status *status)
{
    struct op *op = bunch->ops[i];
    if (op == NULL) {
        return;
    }
    if (op->persistent ? bunch->requests[i] != bunch->before[i] : bunch->requests[i] != MPI_REQUEST_NULL) {
        run_failed(run, op, "a completed request is %s", op->persistent ? "another one" : "not null");
    }
    op->request = bunch->requests[i];
    if (status != MPI_STATUSES_IGNORE) {
        check_status(run, op, status);
    }
    run_completed(run, op);
}

/* Choose among the open operations. `only_ready`: those that will complete without further statements. */
static void bunch_make(struct run *run, struct bunch *bunch, int only_ready, int all)
{
    struct rng *rng = &run->mine;
    bunch->n = bunch->ready = 0;
    for (int i = 0; i < MAX_OPS; i++) {
        struct op *op = &run->ops[i];
        if (!op->used || !op->active || (only_ready && !op->ready) || (!all && rng_one_in(rng, 3))) {
            continue;
        }
        if (rng_one_in(rng, 8) && bunch->n < MOST - MAX_OPS + i) {
            bunch->ops[bunch->n] = NULL;
            bunch->requests[bunch->n++] = MPI_REQUEST_NULL;
        }
        bunch->ops[bunch->n] = op;
        bunch->requests[bunch->n++] = op->request;
        bunch->ready += op->ready;
    }
    for (int i = bunch->n - 1; i > 0; i--) {
        int j = rng_below(rng, i + 1);
        struct op *op = bunch->ops[i];
        MPI_Request request = bunch->requests[i];
        bunch->ops[i] = bunch->ops[j], bunch->requests[i] = bunch->requests[j];
        bunch->ops[j] = op, bunch->requests[j] = request;
    }
    memcpy(bunch->before, bunch->requests, sizeof(bunch->before));
}

/* Nothing has completed, so no handle may have changed. */
static void bunch_unchanged(struct run *run, struct bunch *bunch, const char *call)
{
    for (int i = 0; i < bunch->n; i++) {
        if (bunch->requests[i] != bunch->before[i]) {
            run_failed(run, bunch->ops[i], "%s completed nothing, but changed a request", call);
        }
    }
}

static void one(struct run *run, struct bunch *b, int i, int how)
{
    MPI_Status status, *s = rng_one_in(&run->mine, 2) ? MPI_STATUS_IGNORE : &status;
    int flag = 0;
    if (how == 0) {
        MUST(run, MPI_Wait(&b->requests[i], s));
    } else if (how == 1) {
        do {
            MUST(run, MPI_Request_get_status(b->requests[i], &flag, MPI_STATUS_IGNORE));
        } while (!flag && sched_yield() == 0);
        MUST(run, MPI_Wait(&b->requests[i], s));
    } else {
        do {
            MUST(run, MPI_Test(&b->requests[i], &flag, s));
        } while (!flag && (how == 2) && sched_yield() == 0);
        if (!flag) {
            bunch_unchanged(run, b, "MPI_Test");
            return;
        }
    }
    bunch_done(run, b, i, s == MPI_STATUS_IGNORE ? MPI_STATUSES_IGNORE : s);
}

static void any(struct run *run, struct bunch *b, int wait)
{
    int index = -5, flag = 1, open = 0;
    for (int i = 0; i < b->n; i++) {
        open += b->ops[i] != NULL;
    }
    if (wait) {
        MUST(run, MPI_Waitany(b->n, b->requests, &index, &b->statuses[0]));
    } else {
        MUST(run, MPI_Testany(b->n, b->requests, &index, &flag, &b->statuses[0]));
    }
    if (!flag) {
        bunch_unchanged(run, b, "MPI_Testany");
    } else if (open == 0 ? index != MPI_UNDEFINED : index < 0 || index >= b->n || b->ops[index] == NULL) {
        run_failed(run, NULL, "MPI_%sany: index %d of %d, %d open", wait ? "Wait" : "Test", index, b->n,
                   open);
    } else if (open > 0) {
        bunch_done(run, b, index, &b->statuses[0]);
    }
}

static void some(struct run *run, struct bunch *b, int wait)
{
    int done = -5, open = 0;
    MPI_Status *statuses = rng_one_in(&run->mine, 2) ? MPI_STATUSES_IGNORE : b->statuses;
    for (int i = 0; i < b->n; i++) {
        open += b->ops[i] != NULL;
    }
    if (wait) {
        MUST(run, MPI_Waitsome(b->n, b->requests, &done, b->indices, statuses));
    } else {
        MUST(run, MPI_Testsome(b->n, b->requests, &done, b->indices, statuses));
    }
    if (open == 0 ? done != MPI_UNDEFINED : done < wait || done > open) {
        run_failed(run, NULL, "MPI_%ssome: %d of %d done, %d open", wait ? "Wait" : "Test", done, b->n, open);
        return;
    }
    for (int k = 0; open > 0 && k < done; k++) {
        int i = b->indices[k];
        if (i < 0 || i >= b->n || b->ops[i] == NULL) {
            run_failed(run, NULL, "MPI_%ssome: index %d", wait ? "Wait" : "Test", i);
        } else {
            bunch_done(run, b, i, statuses == MPI_STATUSES_IGNORE ? statuses : &statuses[k]);
        }
    }
}

/* how 0: Waitall; 1: Testall until done; 2: Testall once */
static void every(struct run *run, struct bunch *b, int how)
{
    MPI_Status *statuses = rng_one_in(&run->mine, 2) ? MPI_STATUSES_IGNORE : b->statuses;
    int flag = 1;
    if (how == 0) {
        MUST(run, MPI_Waitall(b->n, b->requests, statuses));
    } else {
        do {
            MUST(run, MPI_Testall(b->n, b->requests, &flag, statuses));
        } while (!flag && how == 1 && sched_yield() == 0);
    }
    if (!flag) {
        bunch_unchanged(run, b, "MPI_Testall");
        return;
    }
    for (int i = 0; i < b->n; i++) {
        bunch_done(run, b, i, statuses == MPI_STATUSES_IGNORE ? statuses : &statuses[i]);
    }
}

/* Use one way to complete requests. `all`: of all that are open and ready. */
static void complete_by(struct run *run, int how, int all)
{
    struct bunch b;
    int may_stall = how == 3 || how == 5 || how == 7 || how == 9; /* these return at once */
    bunch_make(run, &b, !may_stall && how != 4 && how != 6, all);
    if ((how == 4 || how == 6) && b.ready == 0) { /* would wait for what later statements do */
        bunch_make(run, &b, 1, all);
    }
    if (how <= 3 && b.n > 0) {
        int i = rng_below(&run->mine, b.n);
        if (b.ops[i] != NULL) {
            one(run, &b, i, how);
        }
        return;
    }
    switch (how) {
    case 4:
    case 5: any(run, &b, how == 4); break;
    case 6:
    case 7: some(run, &b, how == 6); break;
    case 8:
    case 9:
    case 10: every(run, &b, how == 8 ? 0 : how == 10 ? 1 : 2); break;
    default: break;
    }
}

void run_complete_some(struct run *run)
{
    for (int times = rng_below(&run->mine, 4) - 1; times > 0; times--) {
        complete_by(run, rng_below(&run->mine, 11), rng_one_in(&run->mine, 4));
    }
}

void run_complete(struct run *run, struct op *op)
{
    struct bunch b = { .n = 1, .ops = { op } };
    if (op->active) {
        b.requests[0] = b.before[0] = op->request;
        one(run, &b, 0, rng_below(&run->mine, 3));
    }
}

void run_complete_all(struct run *run)
{
    for (;;) {
        int open = 0;
        for (int i = 0; i < MAX_OPS; i++) {
            open += run->ops[i].used && run->ops[i].active && run->ops[i].ready;
        }
        if (open == 0) {
            return;
        }
        complete_by(run, rng_below(&run->mine, 11), rng_one_in(&run->mine, 2));
    }
}
