/*
 * The counts of calls with counts per rank, for errors that say where two ranks differ. A rank keeps those of
 * its last RONDO_CONTROL_BOARDS such calls in the segment, where the ranks of the node read them; a rank of
 * another node asks. Readers detect a change by seq, as of a call's line (control.c).
 */
#include "net/control/control_wire.h"

#include <string.h>

#include "base/mem.h"

/* What an answer carries, from `first` on. */
struct told {
    int32_t rank, first, n;
    int32_t reserved;
    uint64_t count[RONDO_CONTROL_TOLD];
};
_Static_assert(sizeof(struct told) <= RONDO_MSG_BYTES, "an answer is a message");

static int kept(int nranks) { return nranks < RONDO_CONTROL_COUNTS ? nranks : RONDO_CONTROL_COUNTS; }

static size_t board_bytes(int nranks)
{
    return rondo_round_up(sizeof(struct rondo_control_board) + sizeof(uint64_t) * (size_t)kept(nranks),
                          RONDO_CTRL_ALIGN);
}

size_t rondo_control_boards_bytes(int nlocal, int nranks)
{
    return board_bytes(nranks) * RONDO_CONTROL_BOARDS * (size_t)nlocal;
}

static struct rondo_control_board *board_of(const struct rondo_control *control, int local, unsigned which)
{
    size_t at = (size_t)local * RONDO_CONTROL_BOARDS + which % RONDO_CONTROL_BOARDS;
    return (struct rondo_control_board *)(void *)(control->boards + at * board_bytes(control->nranks));
}

void rondo_control_counts_put(struct rondo_control *control, uint64_t seq, const size_t *counts)
{
    struct rondo_control_board *board = board_of(control, control->local_rank, control->nboards++);
    int n = kept(control->nranks);
    atomic_store_explicit(&board->seq, 0, memory_order_relaxed);
    for (int i = 0; i < n; i++) {
        atomic_store_explicit(&board->count[i], counts[i], memory_order_release);
    }
    atomic_store_explicit(&board->seq, seq, memory_order_release);
}

/* @return the number of counts that were read, or -1: this call is not kept. */
static int read_boards(const struct rondo_control *control, int local, uint64_t seq, int first,
                       uint64_t *counts, int n)
{
    int most = kept(control->nranks) - first;
    n = n < most ? n : most;
    for (unsigned which = 0; which < RONDO_CONTROL_BOARDS; which++) {
        struct rondo_control_board *board = board_of(control, local, which);
        if (atomic_load_explicit(&board->seq, memory_order_acquire) != seq) {
            continue;
        }
        for (int i = 0; i < n; i++) {
            counts[i] = atomic_load_explicit(&board->count[first + i], memory_order_acquire);
        }
        if (atomic_load_explicit(&board->seq, memory_order_relaxed) == seq) {
            return n > 0 ? n : 0;
        }
    }
    return -1;
}

/* ---- ranks of other nodes ---- */

int rondo_wire_on_ask_counts(struct rondo_control *control, const struct rondo_wire_head *head,
                             const void *data)
{
    struct told told;
    int32_t first;
    if (head->bytes != sizeof(first)) {
        return 0;
    }
    memcpy(&first, data, sizeof(first));
    if (first < 0) {
        return 0;
    }
    memset(&told, 0, sizeof(told));
    told.rank = control->rank;
    told.first = first;
    told.n = read_boards(control, control->local_rank, head->tag, first, told.count, RONDO_CONTROL_TOLD);
    rondo_wire_say(control, head->from, RONDO_WIRE_TELL_COUNTS, head->tag, &told, sizeof(told));
    return 1;
}

int rondo_wire_on_tell_counts(struct rondo_control *control, const struct rondo_wire_head *head,
                              const void *data)
{
    struct rondo_wire_counts *asked = &control->wire->counts;
    struct told told;
    if (head->bytes != sizeof(told)) {
        return 0;
    }
    memcpy(&told, data, sizeof(told));
    if (told.n < -1 || told.n > RONDO_CONTROL_TOLD) {
        return 0;
    }
    if (asked->rank == head->from && asked->seq == head->tag && asked->first == told.first) {
        asked->answered = 1;
        asked->n = told.n;
        memcpy(asked->count, told.count, sizeof(told.count));
    }
    return 1;
}

/* As rondo_control_counts_of. */
static int counts_afar(struct rondo_control *control, int rank, uint64_t seq, int first, uint64_t *counts,
                       int n)
{
    struct rondo_wire_counts *asked;
    int got = RONDO_COUNTS_LATER;
    if (control->wire == NULL || !control->wire->joined || !rondo_wire_trylock()) {
        return got;
    }
    asked = &control->wire->counts;
    if (asked->seq != seq || asked->rank != rank || asked->first != first) {
        int32_t from = first;
        *asked = (struct rondo_wire_counts){ .rank = rank, .seq = seq, .first = first };
        if (!rondo_wire_say(control, rank, RONDO_WIRE_ASK_COUNTS, seq, &from, sizeof(from))) {
            asked->seq = 0; /* ask again */
        }
    } else if (asked->answered) {
        got = asked->n < n ? asked->n : n;
        memcpy(counts, asked->count, got > 0 ? sizeof(*counts) * (size_t)got : 0);
    }
    rondo_wire_unlock();
    return got;
}

int rondo_control_counts_of(struct rondo_control *control, int rank, uint64_t seq, int first,
                            uint64_t *counts, int n)
{
    if (rank < 0 || rank >= control->nranks || seq == 0 || first < 0) {
        return RONDO_COUNTS_UNKNOWN;
    }
    return control->local_of[rank] >= 0 ? read_boards(control, control->local_of[rank], seq, first, counts, n)
                                        : counts_afar(control, rank, seq, first, counts,
                                                      n < RONDO_CONTROL_TOLD ? n : RONDO_CONTROL_TOLD);
}
