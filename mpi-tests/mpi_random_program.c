/* Programs of mpi_random: a sequence of statements that every rank draws alike. */
#include "mpi_random.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mpi_common.h"

/* ---- words ---- */

void run_say(struct run *run, const char *fmt, ...)
{
    va_list args;
    int used = snprintf(run->text, RUN_TEXT, "seed %llu, statement %d: ", (unsigned long long)run->seed,
                        run->statement);
    va_start(args, fmt);
    vsnprintf(run->text + used, RUN_TEXT - (size_t)used, fmt, args);
    va_end(args);
    if (!run->quiet) {
        test_say("%s", run->text);
    }
}

void run_failed(struct run *run, const struct op *op, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (op != NULL) {
        test_check(0, "%s: %s: %s", run->text, op->text, text);
    } else {
        test_check(0, "%s: %s", run->text, text);
    }
    if (test.failed > 20) {
        test_die("too many failures");
    }
}

void run_must(struct run *run, int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;
    if (code != MPI_SUCCESS) {
        MPI_Error_string(code, text, &len);
        test_die("%s: %s gave %s", run->text, call, text);
    }
}

void run_saw(struct run *run, uint64_t what, uint64_t value)
{
    run->digest += test_hash(run->seed, what, value);
}

/* ---- operations ---- */

static struct op *new_op(struct run *run)
{
    for (;;) {
        for (int i = 0; i < MAX_OPS; i++) {
            if (!run->ops[i].used) {
                struct op *op = &run->ops[i];
                memset(op, 0, sizeof(*op));
                op->used = 1;
                op->statement = run->statement;
                op->request = MPI_REQUEST_NULL;
                return op;
            }
        }
        run_complete_all(run);
    }
}

static struct due *new_due(struct run *run)
{
    for (int i = 0; i < MAX_DUE; i++) {
        if (!run->due[i].used) {
            memset(&run->due[i], 0, sizeof(run->due[i]));
            run->due[i].used = 1;
            return &run->due[i];
        }
    }
    return NULL;
}
static int dues(const struct run *run)
{
    int n = 0;
    for (int i = 0; i < MAX_DUE; i++) {
        n += run->due[i].used;
    }
    return n;
}

/* Persistent collectives of Open MPI 4.1 use their types after the program has freed them. */
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION == 4
enum { FORGETS_TYPES = 1 };
#else
enum { FORGETS_TYPES = 0 };
#endif

static void start_op(struct run *run, struct op *op)
{
    MUST(run, call_issue(op));
    op->persistent = op->form == F_PERSISTENT;
    if (op->persistent) {
        MUST(run, MPI_Start(&op->request));
    }
    op->active = op->ready = 1;
    if (op->form == F_BLOCKING || op->form == F_LARGE) {
        run_completed(run, op);
    } else if (rng_one_in(&run->mine, 3) && !(op->persistent && FORGETS_TYPES)) {
        /* a type may be freed as soon as a call has begun */
        area_type_free(&op->send);
        area_type_free(&op->recv);
    }
}

static enum form draw_form(struct run *run)
{
    int dice = rng_below(&run->all, 20);
#ifdef RANDOM_INIT
    if (run->persistent && dice < 3 && dues(run) < MAX_DUE / 2) {
        return F_PERSISTENT;
    }
#endif
    if (RANDOM_MPI4 && dice < 5) {
        return dice == 3 ? F_LARGE : F_LARGE_NONBLOCKING;
    }
    return dice < 12 ? F_NONBLOCKING : F_BLOCKING;
}

/* A persistent call starts again some times, and is freed then. */
static void plan_restarts(struct run *run, struct comm *c, const struct op *op)
{
    int restarts = rng_below(&run->all, 4), when = run->statement;
    for (int i = 0; i <= restarts; i++) {
        struct due *due = new_due(run);
        when += 1 + rng_below(&run->all, 5);
        due->when = when;
        due->comm = (int)(c - run->comms);
        due->kind = i < restarts ? D_RESTART : D_RELEASE;
        due->op = op == NULL ? -1 : (int)(op - run->ops);
        due->call = rng_next(&run->all);
        c->busy++;
    }
}

static void statement_coll(struct run *run)
{
    struct comm *c = run_any_comm(run);
    struct op shape;
    char text[sizeof(shape.text)];
    int times = rng_one_in(&run->all, 6) ? 2 + rng_below(&run->all, 10) : 1;
    memset(&shape, 0, sizeof(shape));
    shape.form = draw_form(run);
    call_draw(&shape, &run->all, c);
    call_describe(&shape, c, text, sizeof(text));
    times = shape.form == F_PERSISTENT || shape.count > 5000 ? 1 : times;
    run_say(run, "%s%s", text, times > 1 ? ", several times" : "");
    for (int i = 0; i < times; i++, shape.call += 7) {
        struct op *op = NULL;
        if (c->rank >= 0) {
            op = new_op(run);
            shape.used = 1;
            shape.statement = run->statement;
            shape.request = MPI_REQUEST_NULL;
            *op = shape;
            memcpy(op->text, text, sizeof(text));
            call_prepare(op, &run->mine, c);
            start_op(run, op);
        }
        if (shape.form == F_PERSISTENT) {
            plan_restarts(run, c, op);
        }
    }
}

/* ---- messages ---- */

static struct op *message_op(struct run *run, const struct due *d, int receive)
{
    struct op *op = new_op(run);
    struct area *area = receive ? &op->recv : &op->send;
    struct block *block;
    op->message = 1;
    op->basic = d->basic;
    op->oper = O_NONE;
    op->call = d->call;
    op->source = d->source;
    op->tag = d->tag;
    op->has_recv = receive;
    op->has_send = !receive;
    area_make(area, &run->mine, d->basic, 1, &d->count, 0, 0);
    block = &area->blocks[0];
    block->filled = !receive;
    block->want = receive ? W_VALUE : W_KEEP;
    area_fill(area, O_NONE, d->call);
    snprintf(op->text, sizeof(op->text), "message %d -> %d, tag %d, %ld %s", d->source, d->dest, d->tag,
             d->count, d->basic->name);
    return op;
}

static struct op *send_message(struct run *run, const struct due *d, int blocking)
{
    const struct comm *c = &run->comms[d->comm];
    struct op *op = message_op(run, d, 0);
    void *buf = area_buffer(&op->send);
    int count = area_items(&op->send, 0), synchronous = d->how % 2;
    MPI_Datatype type = op->send.layout.type;
    if (blocking) {
        MUST(run, (synchronous ? MPI_Ssend : MPI_Send)(buf, count, type, d->dest, d->tag, c->handle));
        run_completed(run, op);
        return NULL;
    }
    MUST(run,
         (synchronous ? MPI_Issend : MPI_Isend)(buf, count, type, d->dest, d->tag, c->handle, &op->request));
    op->active = 1;
    return op;
}

static struct op *receive_message(struct run *run, const struct due *d, int blocking)
{
    const struct comm *c = &run->comms[d->comm];
    struct op *op = message_op(run, d, 1);
    void *buf = area_buffer(&op->recv);
    int count = area_items(&op->recv, 0), source = rng_one_in(&run->mine, 4) ? MPI_ANY_SOURCE : d->source;
    MPI_Datatype type = op->recv.layout.type;
    MPI_Status status;
    MPI_Message message;
    if (!blocking) {
        MUST(run, MPI_Irecv(buf, count, type, source, d->tag, c->handle, &op->request));
        op->active = 1;
        return op;
    }
    switch (d->how / 2 % 3) {
    case 0: MUST(run, MPI_Recv(buf, count, type, source, d->tag, c->handle, &status)); break;
    case 1:
        MUST(run, MPI_Mprobe(source, d->tag, c->handle, &message, &status));
        MUST(run, MPI_Mrecv(buf, count, type, &message, &status));
        break;
    default:
        MUST(run, MPI_Probe(source, d->tag, c->handle, &status));
        MUST(run, MPI_Recv(buf, count, type, d->source, d->tag, c->handle, &status));
        break;
    }
    if (status.MPI_SOURCE != d->source || status.MPI_TAG != d->tag) {
        run_failed(run, op, "source %d, tag %d", status.MPI_SOURCE, status.MPI_TAG);
    }
    run_completed(run, op);
    return NULL;
}

/* One side acts now without blocking, the other one some statements later. */
static void statement_message(struct run *run, int receive_first)
{
    struct comm *c = run_any_comm(run);
    struct due *d = dues(run) < MAX_OPS / 2 ? new_due(run) : NULL;
    static const int sizes[] = { 2, 50, 50, 400, 5000, 60000 };
    if (d == NULL) {
        return;
    }
    d->kind = receive_first ? D_SEND : D_RECV;
    d->comm = (int)(c - run->comms);
    d->source = rng_below(&run->all, c->n);
    d->dest = rng_below(&run->all, c->n);
    d->basic = values_basic(rng_below(&run->all, values_basics()));
    d->count = rng_below(&run->all, sizes[rng_below(&run->all, 6)]);
    d->call = rng_next(&run->all);
    d->tag = run->next_tag++ % 30000;
    d->how = rng_below(&run->all, 12);
    d->when = run->statement + 1 + rng_below(&run->all, 4);
    d->op = -1;
    c->busy++;
    run_say(run, "%s of message %d -> %d on comm %d, tag %d, %ld %s", receive_first ? "irecv" : "isend",
            d->source, d->dest, c->id, d->tag, d->count, d->basic->name);
    if (c->rank == (receive_first ? d->dest : d->source)) {
        struct op *op = receive_first ? receive_message(run, d, 0) : send_message(run, d, 0);
        d->op = (int)(op - run->ops);
    }
}

static void statement_shift(struct run *run)
{
    struct comm *c = run_any_comm(run);
    int by = 1 + rng_below(&run->all, MAX_RANKS), tag = run->next_tag++ % 30000;
    struct due out = { .basic = values_basic(rng_below(&run->all, values_basics())),
                       .count = rng_below(&run->all, 3000),
                       .call = rng_next(&run->all),
                       .tag = tag },
               in = out;
    struct op *send, *recv;
    MPI_Status status;
    run_say(run, "sendrecv by %d on comm %d of %d, tag %d, %ld %s", by, c->id, c->n, tag, out.count,
            out.basic->name);
    if (c->rank < 0) {
        return;
    }
    out.source = in.dest = c->rank;
    out.dest = (c->rank + by) % c->n;
    in.source = (c->rank + c->n - by % c->n) % c->n;
    send = message_op(run, &out, 0);
    recv = message_op(run, &in, 1);
    MUST(run, MPI_Sendrecv(area_buffer(&send->send), area_items(&send->send, 0), send->send.layout.type,
                           out.dest, tag, area_buffer(&recv->recv), area_items(&recv->recv, 0),
                           recv->recv.layout.type, in.source, tag, c->handle, &status));
    run_completed(run, send);
    run_completed(run, recv);
}

/* ---- what is due ---- */

static void restart(struct run *run, struct op *op, uint64_t call)
{
    run_complete(run, op);
    op->call = call;
    call_fill(op);
    MUST(run, MPI_Start(&op->request));
    op->active = 1;
}

static void release(struct run *run, struct op *op)
{
    run_complete(run, op);
    MUST(run, MPI_Request_free(&op->request));
    call_free(op);
}

static void due_do(struct run *run, struct due *d)
{
    struct comm *c = &run->comms[d->comm];
    struct op *op = d->op < 0 ? NULL : &run->ops[d->op];
    static const char *const kinds[] = { "send", "receive", "start again", "end of persistent" };
    run_say(run, "%s on comm %d, tag %d%s%s", kinds[d->kind], c->id, d->tag,
            op != NULL && op->persistent ? ": " : "", op != NULL && op->persistent ? op->text : "");
    d->used = 0;
    c->busy--;
    if (c->rank < 0) {
        return;
    }
    switch (d->kind) {
    case D_SEND:
        if (c->rank == d->source) {
            send_message(run, d, 1);
        }
        break;
    case D_RECV:
        if (c->rank == d->dest) {
            receive_message(run, d, 1);
        }
        break;
    case D_RESTART: restart(run, op, d->call); return;
    default: release(run, op); return;
    }
    if (op != NULL && op->used && op->message && op->tag == d->tag) { /* else it was complete before */
        op->ready = 1;
    }
}

static void due_all(struct run *run)
{
    for (int i = 0; i < MAX_DUE; i++) {
        if (run->due[i].used && run->due[i].when <= run->statement) {
            due_do(run, &run->due[i]);
        }
    }
}

/* ---- programs ---- */

static void statement(struct run *run)
{
    int dice = rng_below(&run->all, 100), late = rng_below(&run->all, MAX_RANKS);
    if (dice < 55) {
        statement_coll(run);
    } else if (dice < 68) {
        statement_message(run, 1);
    } else if (dice < 79) {
        statement_message(run, 0);
    } else if (dice < 84) {
        statement_shift(run);
    } else if (dice < 94) {
        statement_comm(run);
    } else if (dice < 96) {
        statement_inter(run);
    } else if (dice < 98) {
        statement_wrong(run);
    } else if (run->comms[0].rank == late) { /* a rank is late */
        usleep(300);
    }
}

void run_program(struct run *run, uint64_t seed, MPI_Comm world, MPI_Comm self)
{
    run->seed = seed;
    run->digest = 0;
    run->all.state = test_hash(seed, 1, 2);
    run->next_tag = 1;
    memset(run->ops, 0, sizeof(run->ops));
    memset(run->due, 0, sizeof(run->due));
    run_comms_open(run, world, self);
    run->mine.state = test_hash(seed, 3, (uint64_t)run->comms[0].rank);
    run->statements = 10 + rng_below(&run->all, 60);
    for (run->statement = 0; run->statement < run->statements; run->statement++) {
        due_all(run);
        run_complete_some(run);
        statement(run);
    }
    while (dues(run) > 0) {
        due_all(run);
        run_complete_some(run);
        run->statement++;
    }
    run_say(run, "the end");
    run_complete_all(run);
    run_comms_close(run);
}
