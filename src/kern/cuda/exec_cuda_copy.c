/*
 * Large calls that only move bytes, by the GPUs' copy engines: no multiprocessor waits or copies. Contract:
 * kern/cuda/exec_cuda.h.
 *
 * The hosts meet first, in the table of exec_cuda_direct.c: each publishes where its buffers are, and all
 * draw the same conclusion from that, whether engines carry the call. Then they put into their streams:
 *
 *   come    write to every peer, wait for every peer    all inputs are ready and all outputs free
 *   copies  from the peers' buffers to this rank's      in several streams at once; in one if it captures
 *   half    as come                                     only if the call has two rounds: then copies again
 *   leave   as come                                     nobody reads this rank's buffers any more
 *
 * Each kind of meeting has words in pinned shared memory. Each peer sets its word of the rank to 1; the
 * rank's stream waits for them and sets them back to 0. Successive meetings differ in kind, so nobody sets a
 * word again before it was set back. Nothing counts, so a graph may replay. An abort sets the rank's words
 * itself, without a CUDA call, and repeats that while launches are in progress, because streams set them
 * back.
 */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "kern/cuda/exec_cuda_impl.h"

enum meeting { COME, HALF, LEAVE, MEETINGS };
enum {
    /* streams beside the user's: a device has a handful of engines, and one copy rarely fills a link */
    SIDES = 3,
    MOST_OPS = 3 * RONDO_DIRECT_RANKS + 4, /* of a meeting; the driver takes 255 at once */
    MOST_FLYING = 64,  /* calls in the streams: a driver blocks the caller when its queues are full */
    RELEASED = 1 << 30 /* what an abort sets words to; streams wait for at least 1 */
};

/* What a rank publishes about a call. Two offers are used in turn: a rank that publishes the next one has
 * seen everyone's previous one. */
struct offer {
    uint64_t sequence; /* written last */
    uint32_t call_word;
    uint8_t open, in_place;
    struct rondo_cuda_spot in, out;
};

/* A rank's part of the table, after that of exec_cuda_direct.c. Peer p writes came[p]. */
struct place {
    uint64_t able; /* 1: this rank's driver and device can do it; written before the verdict */
    struct offer offer[2];
    struct {
        uint32_t at;     /* the meeting that the stream waits in, counted from 1; 0: none */
        uint32_t left;   /* set when the stream leaves a meeting; the host resets it */
        uint32_t copied; /* calls that have ended, captured ones excluded */
    } stream RONDO_ALIGNED(RONDO_CTRL_ALIGN);
    struct {
        uint32_t word[MEETINGS];
    } RONDO_ALIGNED(RONDO_CACHE_LINE) came[];
};

/* A call by copy engines. */
struct copied {
    const struct rondo_run *run;
    int rounds;
    /* each rank's, as addresses here; 0: not needed */
    CUdeviceptr in[RONDO_DIRECT_RANKS], out[RONDO_DIRECT_RANKS];
};

struct move {
    CUdeviceptr to, from;
    size_t bytes;
};

enum { NEEDS_IN = 1, NEEDS_OUT = 2 };

struct rondo_cuda_copies {
    int nlocal, index;
    int on;          /* all ranks can; atomic */
    uint8_t *pinned; /* whole pages around the table; NULL: not registered */
    CUdeviceptr pinned_there;
    CUstream side[SIDES];
    CUevent fork, join[SIDES];
    /* the hosts' meetings */
    uint64_t sequence;
    int meeting, published, at, silent; /* in the plan whose runs are being met for */
    struct copied *call;
    int ncalls, capacity;
    /* launches */
    uint32_t copied; /* calls given to the engines, captured ones excluded */
    uint64_t left;   /* meetings that have ended */
};

#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#define STORE(word, value) __atomic_store_n(&(word), value, __ATOMIC_RELEASE)

static struct place *place_of(const struct rondo_exec *exec, int local)
{
    return (struct place *)(void *)rondo_cuda_direct_beyond(exec, local);
}
static struct place *mine(const struct rondo_exec *exec) { return place_of(exec, exec->copies->index); }

size_t rondo_cuda_copy_place_bytes(int nlocal)
{
    return rondo_round_up(sizeof(struct place) + sizeof(((struct place *)0)->came[0]) * (size_t)nlocal,
                          RONDO_CTRL_ALIGN);
}

/* ---- stream operations on words ---- */

static CUdeviceptr there(const struct rondo_cuda_copies *c, const uint32_t *word)
{
    return c->pinned_there + (CUdeviceptr)((const uint8_t *)word - c->pinned);
}

struct ops {
    CUstreamBatchMemOpParams op[MOST_OPS];
    unsigned n;
};

/* Without flags, a write comes after all earlier writes of the stream, and a wait is for at least the value.
 */
static void add_op(const struct rondo_cuda_copies *c, struct ops *ops, CUstreamBatchMemOpType type,
                   const uint32_t *word, uint32_t value)
{
    CUstreamBatchMemOpParams *op = &ops->op[ops->n++];
    memset(op, 0, sizeof(*op));
    op->writeValue.operation = type; /* waits have the same layout as writes */
    op->writeValue.address = there(c, word);
    op->writeValue.value = value;
}
static void add_write(const struct rondo_cuda_copies *c, struct ops *ops, const uint32_t *word,
                      uint32_t value)
{
    add_op(c, ops, CU_STREAM_MEM_OP_WRITE_VALUE_32, word, value);
}

/* ---- life ---- */

rondo_status rondo_cuda_copy_open(struct rondo_exec *exec, int nlocal, int index)
{
    struct rondo_cuda_copies *c;
    RONDO_TRY(RONDO_NEW(c, "calls by copy engines"));
    c->nlocal = nlocal;
    c->index = index;
    STORE(exec->copies, c);
    return RONDO_SUCCESS;
}

static rondo_status make_streams(struct rondo_exec *exec, struct rondo_cuda_copies *c)
{
    const struct rondo_cuda *cuda = exec->cuda;
    char where[80];
    rondo_exec_cuda_where(exec, where);
    RONDO_CUDA_TRY(cuda->EventCreate(&c->fork, CU_EVENT_DISABLE_TIMING), "%s: cuEventCreate", where);
    for (int s = 0; s < SIDES; s++) {
        RONDO_CUDA_TRY(cuda->StreamCreateWithPriority(&c->side[s], CU_STREAM_NON_BLOCKING, 0),
                       "%s: cuStreamCreate", where);
        RONDO_CUDA_TRY(cuda->EventCreate(&c->join[s], CU_EVENT_DISABLE_TIMING), "%s: cuEventCreate", where);
    }
    return RONDO_SUCCESS;
}

static rondo_status pin_table(struct rondo_exec *exec, struct rondo_cuda_copies *c)
{
    uint8_t *begin = rondo_cuda_direct_beyond(exec, 0), *end = rondo_cuda_direct_beyond(exec, c->nlocal - 1);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)begin / page * page;
    size_t bytes = rondo_round_up((uintptr_t)end + rondo_cuda_copy_place_bytes(c->nlocal) - first, page);
    char where[80];
    rondo_exec_cuda_where(exec, where);
    RONDO_CUDA_TRY(exec->cuda->MemHostRegister((void *)first, bytes,
                                               CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                   "%s: pinning %zu bytes of shared memory (look at ulimit -l)", where, bytes);
    c->pinned = (uint8_t *)first;
    RONDO_CUDA_TRY(exec->cuda->MemHostGetDevicePointer(&c->pinned_there, c->pinned, 0),
                   "%s: cuMemHostGetDevicePointer", where);
    return RONDO_SUCCESS;
}

static int sides_busy(const struct rondo_exec *exec)
{
    int busy = 0;
    for (int s = 0; s < SIDES; s++) {
        busy |= exec->cuda->StreamQuery(exec->copies->side[s]) == CUDA_ERROR_NOT_READY;
    }
    return busy;
}

/* Try the words first: a driver may have the call and refuse it, or words may not arrive. Nobody else writes
 * this rank's own word. */
static rondo_status try_words(struct rondo_exec *exec, struct rondo_cuda_copies *c)
{
    uint32_t *word = &mine(exec)->came[c->index].word[COME];
    int64_t end_ns = rondo_now_ns() + rondo_params()->p2p_check;
    struct ops ops = { .n = 0 };
    uint32_t arrived;
    char where[80];
    rondo_exec_cuda_where(exec, where);
    add_write(c, &ops, word, 1);
    add_op(c, &ops, CU_STREAM_MEM_OP_WAIT_VALUE_32, word, 1);
    RONDO_CUDA_TRY(exec->cuda->StreamBatchMemOp(c->side[0], ops.n, ops.op, 0), "%s: cuStreamBatchMemOp",
                   where);
    while (sides_busy(exec) && rondo_now_ns() < end_ns) {
        sched_yield();
    }
    arrived = LOAD(*word);
    STORE(*word, (uint32_t)RELEASED); /* release the stream if it still waits */
    RONDO_CUDA_TRY(exec->cuda->StreamQuery(c->side[0]), "%s: waiting for a word in a stream", where);
    STORE(*word, 0);
    return arrived == 1 ? RONDO_SUCCESS
                        : rondo_fail_quiet(RONDO_UNHANDLED_CUDA_ERROR,
                                           "%s: a word that a stream wrote did not arrive", where);
}

/* Ranks that share a device share its queues, where one rank's wait could block what another one waits for.
 */
static rondo_status make_able(struct rondo_exec *exec, struct rondo_cuda_copies *c)
{
    if (exec->cuda->StreamBatchMemOp == NULL || exec->config.sharers > 1) {
        return rondo_fail_quiet(RONDO_INVALID_USAGE, "%s",
                                exec->config.sharers > 1 ? "several ranks use its GPU"
                                                         : "the driver has no cuStreamBatchMemOp");
    }
    RONDO_TRY(pin_table(exec, c));
    RONDO_TRY(make_streams(exec, c));
    return try_words(exec, c);
}

void rondo_cuda_copy_offer(struct rondo_exec *exec)
{
    struct rondo_cuda_copies *c = exec->copies;
    if (c != NULL && make_able(exec, c) == RONDO_SUCCESS) {
        STORE(mine(exec)->able, 1);
    } else if (c != NULL) {
        RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_P2P, "rank %d: copy engines are not used: %s",
                   exec->config.rank, rondo_error_text());
    }
}

void rondo_cuda_copy_agree(struct rondo_exec *exec)
{
    struct rondo_cuda_copies *c = exec->copies;
    int able = 1;
    for (int i = 0; c != NULL && i < c->nlocal; i++) {
        able &= LOAD(place_of(exec, i)->able) == 1;
        STORE(c->on, able && i == c->nlocal - 1);
    }
}

int rondo_exec_cuda_copies(const struct rondo_exec *exec) { return exec->copies != NULL && exec->copies->on; }

uint32_t rondo_exec_cuda_copied(const struct rondo_exec *exec)
{
    return exec->copies != NULL ? exec->copies->copied : 0;
}

void rondo_cuda_copy_close(struct rondo_exec *exec)
{
    struct rondo_cuda_copies *c = exec->copies;
    if (c == NULL) {
        return;
    }
    RONDO_INFO(RONDO_SUBSYS_DESTROY, "rank %d: %u calls went to copy engines", exec->config.rank, c->copied);
    for (int s = 0; s < SIDES; s++) {
        if (c->side[s] != NULL) {
            (void)exec->cuda->StreamDestroy(c->side[s]);
        }
        if (c->join[s] != NULL) {
            (void)exec->cuda->EventDestroy(c->join[s]);
        }
    }
    if (c->fork != NULL) {
        (void)exec->cuda->EventDestroy(c->fork);
    }
    if (c->pinned != NULL && !exec->kept) {
        (void)exec->cuda->MemHostUnregister(c->pinned);
    }
    STORE(exec->copies, NULL);
    rondo_free(c->call);
    rondo_free(c);
}

/* ---- what a rank copies, and which buffers its peers read ---- */

static int is_root(const struct rondo_work *w) { return w->seat.index == w->seat.root; }

/* Does every rank copy a piece of the root's buffer, and the other pieces from one another? */
static int spreads(const struct rondo_work *w)
{
    return w->coll == RONDO_COLL_BROADCAST && w->seat.nranks > 2;
}

static size_t block_bytes(const struct rondo_work *w, int rank)
{
    return (w->counts != NULL ? w->counts[rank] : w->block) * w->elem_bytes;
}

/* Bytes of a rank's buffer that others read. */
static size_t bytes_of(const struct rondo_work *w)
{
    return block_bytes(w, w->seat.index) * (w->coll == RONDO_COLL_ALL_TO_ALL ? (size_t)w->seat.nranks : 1);
}

/* Which of this rank's buffers others read. */
static unsigned needs_of(const struct rondo_work *w)
{
    if (bytes_of(w) == 0) {
        return 0;
    }
    return w->coll != RONDO_COLL_BROADCAST || is_root(w) ? NEEDS_IN : spreads(w) ? NEEDS_OUT : 0;
}

static void add_move(struct move *move, int *n, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    if (bytes > 0 && to != from) {
        move[(*n)++] = (struct move){ .to = to, .from = from, .bytes = bytes };
    }
}

/* A rank's piece of a buffer that is divided among all ranks, in whole lines. */
static size_t piece_of(const struct rondo_work *w, int rank, size_t *bytes)
{
    size_t all = block_bytes(w, 0),
           share = rondo_round_up((all + (size_t)w->seat.nranks - 1) / (size_t)w->seat.nranks,
                                  RONDO_CTRL_ALIGN);
    size_t at = rondo_min_size(share * (size_t)rank, all);
    *bytes = rondo_min_size(share, all - at);
    return at;
}

static int broadcast_moves(const struct copied *call, int round, struct move *move)
{
    const struct rondo_work *w = &call->run->work;
    int n = 0, nranks = w->seat.nranks, index = w->seat.index, root = w->seat.root;
    size_t bytes, at;
    if (is_root(w) || !spreads(w)) {
        add_move(move, &n, call->out[index], call->in[root], round == 0 ? block_bytes(w, 0) : 0);
        return n;
    }
    for (int d = round; d < (round == 0 ? 1 : nranks); d++) {
        int rank = (index + d) % nranks;
        at = piece_of(w, rank, &bytes);
        add_move(move, &n, call->out[index] + at,
                 (round == 0 || rank == root ? call->in[root] : call->out[rank]) + at, bytes);
    }
    return n;
}

/* Each rank begins with another one. In place, the second round copies back what the first one put aside. */
static int gather_moves(const struct copied *call, int round, struct move *move)
{
    const struct rondo_work *w = &call->run->work;
    int n = 0, nranks = w->seat.nranks, index = w->seat.index, exchanges = w->coll == RONDO_COLL_ALL_TO_ALL,
        aside = exchanges && w->in == w->out;
    CUdeviceptr to = aside ? (CUdeviceptr)(uintptr_t)call->run->aside : call->out[index];
    if (round > 0) {
        add_move(move, &n, call->out[index], to, aside ? bytes_of(w) : 0);
        return n;
    }
    for (int d = 0; d < nranks; d++) {
        int rank = (index + d) % nranks;
        size_t block = block_bytes(w, rank),
               at = w->displs != NULL ? w->displs[rank] * w->elem_bytes : (size_t)rank * block;
        add_move(move, &n, to + at, call->in[rank] + (exchanges ? (size_t)index * block : 0), block);
    }
    return n;
}

/* The copies of a round, in the order in which they begin. @return their number. */
static int moves_of(const struct copied *call, int round, struct move move[RONDO_DIRECT_RANKS])
{
    return (call->run->work.coll == RONDO_COLL_BROADCAST ? broadcast_moves : gather_moves)(call, round, move);
}

/* ---- the hosts meet ---- */

static rondo_status publish_offer(struct rondo_exec *exec, struct rondo_cuda_copies *c,
                                  const struct rondo_work *w)
{
    struct offer *offer = &mine(exec)->offer[++c->sequence & 1];
    unsigned needs = needs_of(w);
    CUstreamCaptureMode before;
    rondo_status status;
    RONDO_TRY(rondo_exec_cuda_enter(exec, &before));
    status = rondo_cuda_direct_look(exec);
    offer->open = 1;
    if (status == RONDO_SUCCESS && (needs & NEEDS_IN)) {
        offer->open &= (uint8_t)rondo_cuda_direct_spot(exec, 0, w->in, bytes_of(w), &offer->in);
    }
    if (status == RONDO_SUCCESS && (needs & NEEDS_OUT)) {
        offer->open &= (uint8_t)rondo_cuda_direct_spot(exec, 1, w->out, bytes_of(w), &offer->out);
    }
    rondo_exec_cuda_leave(before);
    RONDO_TRY(status);
    offer->in_place = w->coll == RONDO_COLL_ALL_TO_ALL && w->in == w->out;
    offer->call_word = w->call_word;
    STORE(offer->sequence, c->sequence);
    return RONDO_SUCCESS;
}

static rondo_status next_call(struct rondo_cuda_copies *c, struct copied **call)
{
    RONDO_TRY(RONDO_ARRAY_GROW(c->call, c->ncalls, c->capacity, "calls by copy engines"));
    *call = &c->call[c->ncalls++];
    memset(*call, 0, sizeof(**call));
    return RONDO_SUCCESS;
}

/* This rank's addresses of a peer's buffers. */
static rondo_status find_buffers(struct rondo_exec *exec, struct copied *call, int peer,
                                 const struct offer *offer)
{
    struct rondo_work as = call->run->work;
    unsigned needs;
    as.seat.index = peer;
    needs = needs_of(&as);
    call->in[peer] = (needs & NEEDS_IN) ? rondo_cuda_direct_at(exec, peer, &offer->in, bytes_of(&as)) : 0;
    call->out[peer] = (needs & NEEDS_OUT) ? rondo_cuda_direct_at(exec, peer, &offer->out, bytes_of(&as)) : 0;
    if (((needs & NEEDS_IN) && call->in[peer] == 0) || ((needs & NEEDS_OUT) && call->out[peer] == 0)) {
        char where[80];
        return rondo_fail(RONDO_REMOTE_ERROR,
                          "%s: rank %d calls with memory that is no longer mapped here: was it freed while "
                          "calls were in progress?",
                          rondo_exec_cuda_where(exec, where), peer);
    }
    return RONDO_SUCCESS;
}

/* All offers are there; all ranks draw the same conclusion. */
static rondo_status conclude(struct rondo_exec *exec, struct rondo_cuda_copies *c, struct rondo_run *run)
{
    struct copied *call;
    int open = 1, in_place = 0;
    for (int i = 0; i < c->nlocal; i++) {
        const struct offer *offer = &place_of(exec, i)->offer[c->sequence & 1];
        if (offer->call_word != run->work.call_word) {
            return exec->config.owner->mismatch(exec->config.owner->arg, i, &run->work, offer->call_word);
        }
        open &= offer->open;
        in_place |= offer->in_place;
    }
    run->verdict = open ? RONDO_DIRECT : RONDO_NOT_DIRECT;
    if (!open) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(next_call(c, &call));
    call->run = run;
    call->rounds = in_place || spreads(&run->work) ? 2 : 1;
    for (int i = 0; i < c->nlocal; i++) {
        if (i == c->index) {
            call->in[i] = (CUdeviceptr)(uintptr_t)run->work.in;
            call->out[i] = (CUdeviceptr)(uintptr_t)run->work.out;
        } else {
            RONDO_TRY(find_buffers(exec, call, i, &place_of(exec, i)->offer[c->sequence & 1]));
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status meet(struct rondo_exec *exec, struct rondo_cuda_copies *c, struct rondo_run *run)
{
    if (!c->published) {
        RONDO_TRY(publish_offer(exec, c, &run->work));
        c->published = 1;
    }
    for (c->silent = 0; c->silent < c->nlocal; c->silent++) {
        if (LOAD(place_of(exec, c->silent)->offer[c->sequence & 1].sequence) != c->sequence) {
            return RONDO_IN_PROGRESS;
        }
    }
    c->published = 0;
    return conclude(exec, c, run);
}

rondo_status rondo_exec_cuda_meet(struct rondo_exec *exec, struct rondo_run *runs, int n)
{
    struct rondo_cuda_copies *c = exec->copies;
    if (c == NULL || !c->on) {
        return RONDO_SUCCESS;
    }
    if (!c->meeting) {
        c->meeting = 1;
        c->at = c->ncalls = 0;
    }
    for (; c->at < n; c->at++) {
        if (runs[c->at].copies) {
            RONDO_TRY(meet(exec, c, &runs[c->at]));
        }
    }
    c->meeting = 0;
    return RONDO_SUCCESS;
}

/* ---- what goes into streams ---- */

/* copied: number to publish after the meeting, since the call has ended; or NULL. */
static rondo_status put_meeting(struct rondo_exec *exec, enum meeting kind, const uint32_t *copied)
{
    struct rondo_cuda_copies *c = exec->copies;
    struct place *own = mine(exec);
    struct ops ops = { .n = 0 };
    char where[80];
    for (int d = 1; d < c->nlocal; d++) {
        add_write(c, &ops, &place_of(exec, (c->index + d) % c->nlocal)->came[c->index].word[kind], 1);
    }
    add_write(c, &ops, &own->stream.at, (uint32_t)kind + 1);
    for (int d = 1; d < c->nlocal; d++) {
        add_op(c, &ops, CU_STREAM_MEM_OP_WAIT_VALUE_32, &own->came[(c->index + d) % c->nlocal].word[kind], 1);
    }
    add_write(c, &ops, &own->stream.at, 0);
    add_write(c, &ops, &own->stream.left, 1);
    for (int d = 1; d < c->nlocal; d++) {
        add_write(c, &ops, &own->came[(c->index + d) % c->nlocal].word[kind], 0);
    }
    if (copied != NULL) {
        add_write(c, &ops, &own->stream.copied, *copied);
    }
    RONDO_CUDA_TRY(exec->cuda->StreamBatchMemOp(exec->stream, ops.n, ops.op, 0),
                   "%s: cuStreamBatchMemOp of %u words", rondo_exec_cuda_where(exec, where), ops.n);
    return RONDO_SUCCESS;
}

static rondo_status put_move(struct rondo_exec *exec, CUstream stream, const struct move *move)
{
    char where[80];
    RONDO_CUDA_TRY(exec->cuda->MemcpyAsync(move->to, move->from, move->bytes, stream),
                   "%s: cuMemcpyAsync of %zu bytes from %#llx to %#llx", rondo_exec_cuda_where(exec, where),
                   move->bytes, (unsigned long long)move->from, (unsigned long long)move->to);
    return RONDO_SUCCESS;
}

static rondo_status put_on_sides(struct rondo_exec *exec, struct rondo_cuda_copies *c,
                                 const struct move *move, int n)
{
    const struct rondo_cuda *cuda = exec->cuda;
    int sides = n - 1 < SIDES ? n - 1 : SIDES;
    char where[80];
    rondo_exec_cuda_where(exec, where);
    RONDO_CUDA_TRY(cuda->EventRecord(c->fork, exec->stream), "%s: cuEventRecord", where);
    for (int s = 0; s < sides; s++) {
        RONDO_CUDA_TRY(cuda->StreamWaitEvent(c->side[s], c->fork, 0), "%s: cuStreamWaitEvent", where);
    }
    for (int i = 0; i < n; i++) {
        RONDO_TRY(
            put_move(exec, i % (sides + 1) == 0 ? exec->stream : c->side[i % (sides + 1) - 1], &move[i]));
    }
    for (int s = 0; s < sides; s++) {
        RONDO_CUDA_TRY(cuda->EventRecord(c->join[s], c->side[s]), "%s: cuEventRecord", where);
        RONDO_CUDA_TRY(cuda->StreamWaitEvent(exec->stream, c->join[s], 0), "%s: cuStreamWaitEvent", where);
    }
    return RONDO_SUCCESS;
}

static rondo_status put_round(struct rondo_exec *exec, const struct copied *call, int round)
{
    struct move move[RONDO_DIRECT_RANKS];
    int n = moves_of(call, round, move);
    if (n > 1 && exec->capturing == NULL) { /* side streams would capture until the user's capture ends */
        return put_on_sides(exec, exec->copies, move, n);
    }
    for (int i = 0; i < n; i++) {
        RONDO_TRY(put_move(exec, exec->stream, &move[i]));
    }
    return RONDO_SUCCESS;
}

static rondo_status put_call(struct rondo_exec *exec, const struct copied *call)
{
    uint32_t copied = exec->copies->copied + 1;
    for (int round = 0; round < call->rounds; round++) {
        RONDO_TRY(put_meeting(exec, round == 0 ? COME : HALF, NULL));
        RONDO_TRY(put_round(exec, call, round));
    }
    return put_meeting(exec, LEAVE, exec->capturing == NULL ? &copied : NULL);
}

/* A call is in the streams in part. Abort, and wait until nothing of it runs, before its memory goes: not all
 * peers know that it has ended. */
static void settle(struct rondo_exec *exec)
{
    int64_t end_ns = rondo_now_ns() + rondo_params()->p2p_check;
    int busy = exec->capturing == NULL;
    CUstreamCaptureMode before;
    rondo_exec_cuda_abort(exec);
    rondo_gpu_relax(&before); /* a capture of any thread forbids to ask a stream */
    while (busy && rondo_now_ns() < end_ns) {
        busy = exec->cuda->StreamQuery(exec->stream) == CUDA_ERROR_NOT_READY;
        busy |= sides_busy(exec);
        rondo_cuda_copy_release(exec);
        sched_yield();
    }
    rondo_gpu_unrelax(before);
}

/* After the whole call is in the stream: note how the host finds out that it has ended. */
static void note(struct rondo_exec *exec, struct rondo_cuda_copies *c)
{
    uint64_t serial;
    if (exec->capturing != NULL) {
        return;
    }
    pthread_mutex_lock(&exec->lock);
    serial = exec->issued + 1;
    exec->flight[serial % RONDO_CUDA_FLIGHTS] =
        (struct rondo_cuda_flight){ .copied = ++c->copied, .copies = 1, .end = exec->head };
    STORE(exec->issued, serial);
    pthread_mutex_unlock(&exec->lock);
}

rondo_status rondo_cuda_copy_launch(struct rondo_exec *exec, const struct rondo_run *run)
{
    struct rondo_cuda_copies *c = exec->copies;
    rondo_status status;
    int k = 0;
    while (k < c->ncalls && c->call[k].run != run) {
        k++;
    }
    if (k == c->ncalls) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "rank %d: launched a call by copy engines whose hosts have not met",
                          exec->config.rank);
    }
    status = put_call(exec, &c->call[k]);
    if (status != RONDO_SUCCESS) {
        settle(exec);
        return status;
    }
    note(exec, c);
    return RONDO_SUCCESS;
}

/* ---- how far calls are ---- */

int rondo_cuda_copy_ended(const struct rondo_exec *exec, uint32_t copied)
{
    return (int32_t)(LOAD(mine(exec)->stream.copied) - copied) >= 0;
}

void rondo_cuda_copy_release(struct rondo_exec *exec)
{
    struct rondo_cuda_copies *c = LOAD(exec->copies);
    if (c == NULL || !LOAD(c->on)) {
        return;
    }
    for (int i = 0; i < c->nlocal; i++) {
        for (int kind = 0; kind < MEETINGS; kind++) {
            STORE(place_of(exec, c->index)->came[i].word[kind], (uint32_t)RELEASED);
        }
    }
}

int rondo_cuda_copy_room(const struct rondo_exec *exec)
{
    return exec->copies->copied - LOAD(mine(exec)->stream.copied) < MOST_FLYING;
}

static int stream_waits_for(const struct rondo_exec *exec)
{
    const struct rondo_cuda_copies *c = exec->copies;
    uint32_t at = LOAD(mine(exec)->stream.at);
    for (int d = 1; at > 0 && at <= MEETINGS && d < c->nlocal; d++) {
        int peer = (c->index + d) % c->nlocal;
        if (LOAD(mine(exec)->came[peer].word[at - 1]) == 0) {
            return peer;
        }
    }
    return -1;
}

int rondo_cuda_copy_waits(struct rondo_exec *exec, uint64_t *left)
{
    struct rondo_cuda_copies *c = exec->copies;
    if (!rondo_exec_cuda_copies(exec)) {
        return -1;
    }
    c->left += __atomic_exchange_n(&mine(exec)->stream.left, 0, __ATOMIC_ACQ_REL) != 0;
    *left = c->left;
    return stream_waits_for(exec);
}

int rondo_cuda_copy_silent(const struct rondo_exec *exec)
{
    const struct rondo_cuda_copies *c = exec->copies;
    return !rondo_exec_cuda_copies(exec)         ? -1
           : c->meeting && c->silent < c->nlocal ? c->silent
                                                 : stream_waits_for(exec);
}
