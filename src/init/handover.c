/* How long a cache line takes from core to core, measured at creation. */
#include <pthread.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"
#include "init/phases.h"
#include "tuner/model.h"

/*
 * Local rank 0 writes numbers and local rank 1 echoes them, in places of the mailbox that no operation has
 * used yet. The fastest of several batches counts, since other threads may use the cores. Neither rank
 * blocks: one that sees nothing for LISTEN_NS returns and tries again in the next step, and local rank 0
 * gives up after GIVE_UP_NS.
 */
enum {
    BATCH = 8,
    BATCHES = 8,
    LAST = BATCH * BATCHES + 1,
    LISTEN_NS = 20000,
    GIVE_UP_NS = 2000000,
    LOOKS = 64
};

/* What this process has measured with others of its node. Ranks may move to other cores, so it is forgotten
 * after a while. */
enum { MOST_KNOWN = 64 };
static const int64_t forget_ns = 10 * INT64_C(1000000000);
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct known {
    uint64_t process;
    int64_t at_ns;
    uint32_t ns;
} known[MOST_KNOWN];

static void in_child(void)
{
    if (!rondo_fork_lock(&known_lock)) {
        memset(known, 0, sizeof(known));
    }
}
RONDO_AT_FORK(in_child)

/* The process of the other rank; 0: this rank measures nothing, or both are threads of one process, which may
 * run on any pair of cores. */
static uint64_t other_process(const struct rondo_ctx *ctx)
{
    const struct rondo_layout *l = &ctx->wiring.layout;
    uint64_t self = ctx->wiring.peers[ctx->job.rank].process_hash, other;
    if (l->nlocal < 2 || l->local_rank > 1) {
        return 0;
    }
    other = ctx->wiring.peers[l->local_ranks[1 - l->local_rank]].process_hash;
    return other == self ? 0 : other;
}

/* A child whose local ranks 0 and 1 are the parent's has its number, so that both choose alike. @return as
 * rondo_init_known_handover. */
static uint32_t inherited(const struct rondo_init *init)
{
    const struct rondo_ctx *parent = init->split.parent;
    const struct rondo_layout *l = &init->ctx->wiring.layout;
    int same = parent != NULL && parent->wiring.handover_ns > 0 && l->nlocal > 1;
    for (int i = 0; same && i < 2; i++) {
        uint64_t process = init->ctx->wiring.peers[l->local_ranks[i]].process_hash;
        same = process == parent->wiring.peers[parent->wiring.layout.local_ranks[0]].process_hash ||
               process == parent->wiring.peers[parent->wiring.layout.local_ranks[1]].process_hash;
    }
    return same ? 1 + parent->wiring.handover_ns : 0;
}

uint32_t rondo_init_known_handover(const struct rondo_init *init)
{
    const struct rondo_ctx *ctx = init->ctx;
    uint64_t process = other_process(ctx);
    int64_t now = rondo_now_ns();
    uint32_t ns = inherited(init);
    pthread_mutex_lock(&known_lock);
    for (int i = 0; process != 0 && i < MOST_KNOWN; i++) {
        ns = known[i].process == process && now - known[i].at_ns < forget_ns ? 1 + known[i].ns : ns;
    }
    pthread_mutex_unlock(&known_lock);
    return ns;
}

/* Keep it in place of what is known of that process, or of what is oldest. */
static void remember(const struct rondo_ctx *ctx, uint32_t ns)
{
    uint64_t process = other_process(ctx);
    struct known *k = known;
    if (process == 0) {
        return;
    }
    pthread_mutex_lock(&known_lock);
    for (int i = 1; i < MOST_KNOWN && k->process != process; i++) {
        k = known[i].process == process || known[i].at_ns < k->at_ns ? &known[i] : k;
    }
    *k = (struct known){ process, rondo_now_ns(), ns };
    pthread_mutex_unlock(&known_lock);
}

static uint64_t *word_of(const struct rondo_ctx *ctx, int local)
{
    return (uint64_t *)(void *)(rondo_mailbox_place(ctx->wiring.mailbox, 0, local) + 8);
}

int rondo_init_hears(const uint64_t *word, uint64_t wanted)
{
    int64_t end = 0, now = 0; /* read the clock only when the number is late */
    while (now <= end) {
        for (int i = 0; i < LOOKS; i++) {
            if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == wanted) {
                return 1;
            }
        }
        now = rondo_now_ns();
        end = end == 0 ? now + LISTEN_NS : end;
    }
    return 0;
}

static rondo_status ask(struct rondo_init *init)
{
    struct rondo_handover *h = &init->handover;
    uint64_t *mine = word_of(init->ctx, 0);
    const uint64_t *other = word_of(init->ctx, 1);
    int64_t now = rondo_now_ns();
    h->begin_ns = h->begin_ns == 0 ? now : h->begin_ns;
    if (h->said > 0 && !rondo_init_hears(other, h->said)) {
        h->batch_ns = 0; /* interrupted: this batch does not count */
    }
    if (h->said > 0 && __atomic_load_n(other, __ATOMIC_ACQUIRE) != h->said) {
        if (now - h->begin_ns < GIVE_UP_NS) {
            return RONDO_IN_PROGRESS;
        }
        h->said = LAST - 1;
    }
    while (h->said < LAST - 1) {
        if (h->said % BATCH == 0) {
            h->batch_ns = rondo_now_ns();
        }
        __atomic_store_n(mine, ++h->said, __ATOMIC_RELEASE);
        if (!rondo_init_hears(other, h->said)) {
            h->batch_ns = 0;
            return RONDO_IN_PROGRESS;
        }
        if (h->said % BATCH == 0 && h->batch_ns != 0) {
            uint32_t one_way = (uint32_t)((rondo_now_ns() - h->batch_ns) / (2 * BATCH));
            h->best_ns = h->best_ns == 0 || one_way < h->best_ns ? one_way : h->best_ns;
        }
    }
    __atomic_store_n(mine, LAST, __ATOMIC_RELEASE);
    return RONDO_SUCCESS;
}

static rondo_status answer(struct rondo_init *init)
{
    uint64_t *mine = word_of(init->ctx, 1);
    const uint64_t *other = word_of(init->ctx, 0);
    int64_t end = rondo_now_ns() + LISTEN_NS;
    do {
        for (int i = 0; i < LOOKS; i++) {
            uint64_t heard = __atomic_load_n(other, __ATOMIC_ACQUIRE);
            if (heard >= LAST) {
                return RONDO_SUCCESS;
            }
            if (heard != init->handover.said) {
                init->handover.said = heard;
                __atomic_store_n(mine, heard, __ATOMIC_RELEASE);
                end = rondo_now_ns() + LISTEN_NS;
            }
        }
    } while (rondo_now_ns() < end);
    return RONDO_IN_PROGRESS;
}

rondo_status rondo_init_measure_handover(struct rondo_init *init, int *silent)
{
    struct rondo_ctx *ctx = init->ctx;
    rondo_status status;
    if (init->handover.known || ctx->wiring.direct == NULL || ctx->wiring.layout.model.ranks_per_core > 1 ||
        ctx->wiring.layout.local_rank > 1) {
        return RONDO_SUCCESS;
    }
    status = ctx->wiring.layout.local_rank == 0 ? ask(init) : answer(init);
    *silent = status == RONDO_IN_PROGRESS ? ctx->wiring.layout.local_ranks[1 - ctx->wiring.layout.local_rank]
                                          : *silent;
    return status;
}

void rondo_init_use_handover(struct rondo_init *init, uint32_t ns)
{
    struct rondo_ctx *ctx = init->ctx;
    ctx->wiring.handover_ns = ns;
    if (!init->handover.known) {
        remember(ctx, ns);
    }
    if (ctx->wiring.direct == NULL) {
        return;
    }
    rondo_model_handover(&ctx->wiring.layout.model, ns);
    if (ctx->job.rank == 0 && ns > 0) {
        RONDO_INFO(RONDO_SUBSYS_INIT,
                   "%s: a cache line takes %.2f us from core to core (ranks 0 and 1): cores %s",
                   ctx->job.name, ns * 1e-3, rondo_model_handover_name(ns));
    }
}
