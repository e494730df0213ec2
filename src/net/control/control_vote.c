/* Votes: numbers that each rank of a node shows the others, without waiting for them. */
#include "net/control/control_impl.h"

void rondo_control_vote(struct rondo_control *control, uint64_t number, const uint32_t word[RONDO_VOTE_WORDS])
{
    struct rondo_control_vote *vote = &control->votes[control->local_rank].bank[number % RONDO_VOTE_BANKS];
    for (int i = 0; i < RONDO_VOTE_WORDS; i++) {
        atomic_store_explicit(&vote->word[i], word[i], memory_order_relaxed);
    }
    atomic_store_explicit(&vote->number, number, memory_order_release);
}

int rondo_control_vote_of(const struct rondo_control *control, int local, uint64_t number,
                          uint32_t word[RONDO_VOTE_WORDS])
{
    struct rondo_control_vote *vote = &control->votes[local].bank[number % RONDO_VOTE_BANKS];
    if (atomic_load_explicit(&vote->number, memory_order_acquire) != number) {
        return 0;
    }
    for (int i = 0; i < RONDO_VOTE_WORDS; i++) {
        word[i] = atomic_load_explicit(&vote->word[i], memory_order_relaxed);
    }
    return 1;
}
