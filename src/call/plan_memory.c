/* The memory of a plan's works, kept from call to call. Contract: call/plan.h. */
#include <string.h>

#include "base/mem.h"
#include "call/plan.h"

enum { MIN_RUNS = 16 };

/* Move pointers between runs of the array to its new place. */
static void runs_moved(struct rondo_run *runs, const struct rondo_run *from, int n)
{
    for (int i = 0; i < n; i++) {
        struct rondo_run *run = &runs[i];
        run->fallback_of = run->fallback_of != NULL ? runs + (run->fallback_of - from) : NULL;
        run->arrives_after = run->arrives_after != NULL ? runs + (run->arrives_after - from) : NULL;
    }
}

rondo_status rondo_plan_next_run(struct rondo_plan *plan, struct rondo_run **run)
{
    if (plan->nruns == plan->capacity) {
        int capacity = plan->capacity == 0 ? MIN_RUNS : 2 * plan->capacity;
        struct rondo_run *runs;
        RONDO_TRY(RONDO_NEW_ARRAY(runs, capacity, "the works of a group"));
        if (plan->nruns > 0) {
            memcpy(runs, plan->runs, sizeof(*runs) * (size_t)plan->nruns);
            runs_moved(runs, plan->runs, plan->nruns);
        }
        rondo_free(plan->runs);
        plan->runs = runs;
        plan->capacity = capacity;
    }
    *run = &plan->runs[plan->nruns++];
    memset(*run, 0, sizeof(**run));
    (*run)->open = &plan->open;
    return RONDO_SUCCESS;
}

struct temp {
    struct temp *next;
    size_t bytes;
} RONDO_ALIGNED(RONDO_CACHE_LINE);

static const size_t most_spared = 64 << 20;

rondo_status rondo_plan_temp(struct rondo_plan *plan, size_t bytes, void **memory)
{
    struct temp *block = plan->spare;
    plan->spare = NULL;
    if (block == NULL || block->bytes < bytes) {
        rondo_free(block);
        RONDO_TRY(rondo_calloc(&block, 1, rondo_round_up(sizeof(*block) + bytes, RONDO_CACHE_LINE),
                               "a copy of the arguments")); /* aligned, as the sanitizer checks */
        block->bytes = bytes;
    }
    block->next = plan->temp;
    plan->temp = block;
    *memory = block + 1;
    return RONDO_SUCCESS;
}

/* Keep the largest block of moderate size. */
static void temp_release(struct rondo_plan *plan, struct temp *block)
{
    struct temp *spare = plan->spare;
    if (block->bytes > most_spared || (spare != NULL && spare->bytes >= block->bytes)) {
        rondo_free(block);
        return;
    }
    rondo_free(spare);
    plan->spare = block;
}

void rondo_plan_reset(struct rondo_plan *plan)
{
    while (RONDO_UNLIKELY(plan->temp != NULL)) {
        struct temp *block = plan->temp;
        plan->temp = block->next;
        temp_release(plan, block);
    }
    plan->nruns = plan->nself = 0;
    plan->scratch = 0;
    plan->extra = NULL;
    plan->open = 0;
    plan->first_seq = plan->last_seq = 0;
    plan->first_message = plan->last_message = 0;
}

void rondo_plan_release(struct rondo_plan *plan)
{
    rondo_plan_reset(plan);
    rondo_free(plan->runs);
    rondo_free(plan->self);
    rondo_free(plan->spare);
    plan->spare = NULL;
    plan->runs = NULL;
    plan->self = NULL;
    plan->capacity = plan->self_capacity = 0;
}
