#include "net/bootstrap/bootstrap_node.h"

#include <string.h>

#include "net/bootstrap/bootstrap.h"

static struct rondo_split_place *place_of(const struct rondo_control *parent, uint64_t serial, int local)
{
    return &parent->splits[serial % RONDO_SPLIT_SLOTS * (uint64_t)parent->nlocal + (uint64_t)local];
}

/* What a bank holds: split, round (0: the colours), bytes. */
static uint64_t stamp_of(const struct rondo_node_rounds *rounds)
{
    return rounds->serial << 32 | (uint64_t)(rounds->of_child ? rounds->round & 0xffff : 0) << 16 |
           (uint64_t)rounds->bytes;
}

static struct rondo_split_bank *bank_of(const struct rondo_node_rounds *rounds,
                                        const struct rondo_control *parent, int rank)
{
    struct rondo_split_place *place = place_of(parent, rounds->serial, parent->local_of[rank]);
    return &place->bank[rounds->of_child ? 1 + rounds->round % 2 : 0];
}

void rondo_node_round_start(struct rondo_node_rounds *rounds, const void *mine, size_t bytes)
{
    rounds->bytes = rounds->serial != 0 && bytes <= RONDO_SPLIT_BYTES ? bytes : 0;
    rounds->round += rounds->bytes > 0;
    rounds->mine = mine;
    rounds->written = 0;
}

/* Have all of the parent's ranks ended the split that had this place before? */
static int is_free(const struct rondo_node_rounds *rounds, const struct rondo_control *parent)
{
    for (int i = 0; rounds->serial > RONDO_SPLIT_SLOTS && i < parent->nlocal; i++) {
        const struct rondo_split_place *place = place_of(parent, rounds->serial, i);
        if (atomic_load_explicit(&place->ended, memory_order_acquire) < rounds->serial - RONDO_SPLIT_SLOTS) {
            return 0;
        }
    }
    return 1;
}

void rondo_node_round_write(struct rondo_node_rounds *rounds, struct rondo_control *parent)
{
    struct rondo_split_bank *bank = bank_of(rounds, parent, parent->rank);
    if (rounds->bytes > 0 && !rounds->written && (rounds->of_child || is_free(rounds, parent))) {
        memcpy(bank->data, rounds->mine, rounds->bytes);
        atomic_store_explicit(&bank->stamp, stamp_of(rounds), memory_order_release);
        rounds->written = 1;
    }
}

static int has_come(const struct rondo_node_rounds *rounds, const struct rondo_control *parent, int rank)
{
    return atomic_load_explicit(&bank_of(rounds, parent, rank)->stamp, memory_order_acquire) ==
           stamp_of(rounds);
}

rondo_status rondo_node_round_read(const struct rondo_node_rounds *rounds, const struct rondo_control *parent,
                                   const int *members, uint64_t where, size_t n, uint8_t *table)
{
    uint64_t end = where + n;
    for (uint64_t i = where / rounds->bytes; i * rounds->bytes < end; i++) {
        if (!has_come(rounds, parent, members[i])) {
            return RONDO_IN_PROGRESS;
        }
    }
    while (where < end) {
        uint64_t i = where / rounds->bytes, at = where % rounds->bytes;
        size_t part = rondo_min_size(rounds->bytes - at, end - where);
        memcpy(table + where, bank_of(rounds, parent, members[i])->data + at, part);
        where += part;
    }
    return RONDO_SUCCESS;
}

/* Splits may end in any order, but a place is told only that all up to one have. If this rank ends 512 of them
 * before an earlier one, those after them find no place. */
void rondo_control_split_end(struct rondo_control *parent, uint64_t serial)
{
    struct rondo_split_place *place = place_of(parent, serial, parent->local_rank);
    uint64_t *early = &parent->early.places[serial % RONDO_SPLIT_SLOTS], ended, next;
    pthread_mutex_lock(&parent->early.lock);
    ended = atomic_load_explicit(&place->ended, memory_order_relaxed);
    next = ended > 0 ? ended + RONDO_SPLIT_SLOTS : 1 + (serial - 1) % RONDO_SPLIT_SLOTS;
    if (serial >= next && (serial - next) / RONDO_SPLIT_SLOTS < 64) {
        *early |= UINT64_C(1) << (serial - next) / RONDO_SPLIT_SLOTS;
    }
    while (*early & 1) {
        *early >>= 1;
        ended = next;
        next += RONDO_SPLIT_SLOTS;
    }
    atomic_store_explicit(&place->ended, ended, memory_order_release);
    pthread_mutex_unlock(&parent->early.lock);
}
