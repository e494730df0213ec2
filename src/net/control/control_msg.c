/*
 * Inboxes. Each local rank has a ring of RONDO_MSG_CELLS cells in the segment, with many senders and one
 * receiver.
 *
 *     {p, FREE} --sender--> {p, RESERVED, owner} --owner--> {p, FULL, owner} --receiver--> {p + CELLS, FREE}
 *
 * The inbox's tail only hints where to try: any sender moves it past a cell that is taken. When an owner
 * dies between reserving a cell and filling it, the receiver passes the cell over at once. When an owner is
 * alive but makes no progress for STUCK_NS (stopped), the cell is lost for good (POISONED: both sides skip
 * it from then on), because the owner may still write into it later.
 */
#include "net/control/control_impl.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"

#define STUCK_NS (5 * INT64_C(1000000000))

static uint64_t lap_of(uint64_t position) { return position / RONDO_MSG_CELLS; }

static uint64_t cell_word(uint64_t position, int owner, unsigned state)
{
    return lap_of(position) << 16 | (uint64_t)owner << 2 | state;
}

static unsigned word_state(uint64_t word) { return word & 3; }
static uint64_t word_lap(uint64_t word) { return word >> 16; }
static int word_owner(uint64_t word) { return (int)(word >> 2 & 0x3fff); }

void rondo_inbox_init(struct rondo_control_inbox *inbox)
{
    pthread_mutex_init(&inbox->lock, NULL);
    inbox->last = &inbox->first;
}

void rondo_inbox_clear(struct rondo_control_inbox *inbox)
{
    while (inbox->first) {
        struct rondo_parked *parked = inbox->first;
        inbox->first = parked->next;
        rondo_free(parked);
    }
    pthread_mutex_destroy(&inbox->lock);
}

/* *local = -1: the rank is on another node and can be reached. */
static rondo_status local_of(struct rondo_control *control, int rank, int *local)
{
    *local = rank >= 0 && rank < control->nranks ? control->local_of[rank] : -1;
    if (*local >= 0 || (rank >= 0 && rank < control->nranks && control->wire)) {
        return RONDO_SUCCESS;
    }
    return rondo_fail(RONDO_INTERNAL_ERROR, "%s: rank %d cannot exchange messages with rank %d of %d",
                      control->name, control->rank, rank, control->nranks);
}

/* Reserve a cell of an inbox. @return NULL: full. */
static struct rondo_control_cell *box_reserve(struct rondo_control_box *box, int owner, uint64_t *position)
{
    /* Every try that fails is another sender's success or a skipped cell; after this many the caller tries
     * again. */
    for (int tries = 0; tries < 8 * RONDO_MSG_CELLS; tries++) {
        uint64_t tail = atomic_load_explicit(&box->tail, memory_order_acquire);
        struct rondo_control_cell *cell = &box->cell[tail % RONDO_MSG_CELLS];
        uint64_t word = atomic_load_explicit(&cell->word, memory_order_acquire);
        int mine = 0;
        if (word_state(word) == RONDO_CELL_FREE && word_lap(word) == lap_of(tail)) {
            mine = atomic_compare_exchange_strong_explicit(&cell->word, &word,
                                                           cell_word(tail, owner, RONDO_CELL_RESERVED),
                                                           memory_order_acq_rel, memory_order_acquire);
        } else if (word_state(word) != RONDO_CELL_POISONED && word_lap(word) < lap_of(tail)) {
            return NULL;
        }
        /* The cell is taken, by this sender or another, or poisoned: move the tail, unless somebody has. */
        *position = tail;
        atomic_compare_exchange_strong_explicit(&box->tail, &tail, tail + 1, memory_order_acq_rel,
                                                memory_order_relaxed);
        if (mine) {
            return cell;
        }
    }
    return NULL;
}

rondo_status rondo_control_send(struct rondo_control *control, int rank, uint64_t tag, const void *data,
                                size_t bytes)
{
    struct rondo_control_cell *cell;
    uint64_t position, word;
    int local = 0, state;
    RONDO_TRY(local_of(control, rank, &local));
    if (bytes > RONDO_MSG_BYTES) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "%s: a message of %zu bytes to rank %d is too long (at most %d)", control->name,
                          bytes, rank, RONDO_MSG_BYTES);
    }
    if (local < 0) {
        return rondo_wire_send(control, rank, tag, data, bytes);
    }
    state = rondo_control_state_of(control, rank);
    if (state == RONDO_RANK_LEFT || state == RONDO_RANK_DEAD) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR,
                                "%s: cannot send to rank %d (pid %d on host %.*s): it has %s", control->name,
                                rank, control->blocks[local].life.pid, RONDO_HOST_LEN - 1,
                                control->peers[rank].host, state == RONDO_RANK_LEFT ? "left" : "exited");
    }
    cell = box_reserve(&control->boxes[local], control->local_rank, &position);
    if (cell == NULL) {
        return RONDO_IN_PROGRESS;
    }
    cell->tag = tag;
    cell->bytes = bytes;
    if (bytes > 0) {
        memcpy(cell->data, data, bytes);
    }
    word = cell_word(position, control->local_rank, RONDO_CELL_RESERVED);
    /* Fails if the receiver has given this sender up: nothing was sent. */
    return atomic_compare_exchange_strong_explicit(&cell->word, &word,
                                                   cell_word(position, control->local_rank, RONDO_CELL_FULL),
                                                   memory_order_release, memory_order_relaxed)
               ? RONDO_SUCCESS
               : RONDO_IN_PROGRESS;
}

/* Pass over the reserved cell at head if its owner is dead or stuck. @return 1: look again; 0: wait. */
static int give_up_cell(struct rondo_control *control, struct rondo_control_cell *cell, uint64_t word)
{
    struct rondo_control_inbox *inbox = &control->inbox;
    int owner = word_owner(word),
        dead = owner < control->nlocal &&
               rondo_control_state_of(control, control->local_ranks[owner]) == RONDO_RANK_DEAD;
    int64_t now = rondo_now_ns();
    uint64_t next = dead ? cell_word(inbox->head + RONDO_MSG_CELLS, 0, RONDO_CELL_FREE)
                         : cell_word(inbox->head, owner, RONDO_CELL_POISONED);
    if (!dead) {
        if (inbox->stuck_ns == 0) {
            inbox->stuck_ns = now;
        }
        if (now - inbox->stuck_ns < STUCK_NS) {
            return 0;
        }
    }
    inbox->stuck_ns = 0;
    if (atomic_compare_exchange_strong_explicit(&cell->word, &word, next, memory_order_acq_rel,
                                                memory_order_relaxed)) {
        RONDO_WARN("%s: a message from rank %d to rank %d was lost: its sender %s while writing it",
                   control->name, owner < control->nlocal ? control->local_ranks[owner] : -1, control->rank,
                   dead ? "died" : "was stopped");
        inbox->head += (uint64_t)dead; /* box_first skips a poisoned cell */
    }
    return 1;
}

/* @return the oldest full cell of this rank's inbox; NULL: none. Called with the lock held. */
static struct rondo_control_cell *box_first(struct rondo_control *control, int *rank)
{
    struct rondo_control_inbox *inbox = &control->inbox;
    for (int tries = 0; tries < 2 * RONDO_MSG_CELLS; tries++) {
        struct rondo_control_cell *cell =
            &control->boxes[control->local_rank].cell[inbox->head % RONDO_MSG_CELLS];
        uint64_t word = atomic_load_explicit(&cell->word, memory_order_acquire);
        if (word_state(word) == RONDO_CELL_POISONED) {
            inbox->head++;
            continue;
        }
        if (word_lap(word) != lap_of(inbox->head) || word_state(word) == RONDO_CELL_FREE) {
            return NULL;
        }
        if (word_state(word) == RONDO_CELL_FULL) {
            inbox->stuck_ns = 0;
            *rank = word_owner(word) < control->nlocal ? control->local_ranks[word_owner(word)] : -1;
            return cell;
        }
        if (!give_up_cell(control, cell, word)) {
            return NULL;
        }
    }
    return NULL;
}

/* Give the cell at head back to the senders. */
static void box_pop(struct rondo_control *control, struct rondo_control_cell *cell)
{
    atomic_store_explicit(&cell->word, cell_word(control->inbox.head + RONDO_MSG_CELLS, 0, RONDO_CELL_FREE),
                          memory_order_release);
    control->inbox.head++;
}

int rondo_msg_forgotten(const struct rondo_control_inbox *inbox, uint64_t tag)
{
    for (int i = 0; i < inbox->nforgotten && i < RONDO_MSG_FORGOTTEN; i++) {
        if (inbox->forgotten[i] == tag) {
            return 1;
        }
    }
    return 0;
}

/* Park the message at head, or drop it if nobody will ask for it. When too many are parked, msg_unlock ends
 * the communicator. */
static rondo_status msg_park(struct rondo_control *control, const struct rondo_control_cell *cell, int rank)
{
    struct rondo_control_inbox *inbox = &control->inbox;
    size_t bytes = rondo_min_size(cell->bytes, RONDO_MSG_BYTES);
    struct rondo_parked *parked;
    if (rank < 0 || rondo_msg_forgotten(inbox, cell->tag)) {
        return RONDO_SUCCESS;
    }
    if (inbox->nparked >= RONDO_MSG_PARKED) {
        inbox->overflown = 1;
        return rondo_fail(
            RONDO_INTERNAL_ERROR,
            "%s: %d messages wait for rank %d, which asks for none of them; the last one is from rank %d",
            control->name, inbox->nparked, control->rank, rank);
    }
    RONDO_TRY(rondo_calloc(&parked, 1, sizeof(*parked) + bytes, "parked message"));
    parked->tag = cell->tag;
    parked->rank = rank;
    parked->bytes = bytes;
    memcpy(parked->data, cell->data, bytes);
    *inbox->last = parked;
    inbox->last = &parked->next;
    inbox->nparked++;
    return RONDO_SUCCESS;
}

/* Give the lock back, then end the communicator if too many messages are parked: telling the other nodes
 * takes the wire's lock, which comes first in the lock order. */
static rondo_status msg_unlock(struct rondo_control *control, rondo_status status)
{
    int overflown = control->inbox.overflown;
    control->inbox.overflown = 0;
    pthread_mutex_unlock(&control->inbox.lock);
    if (overflown) {
        rondo_control_abort(control, status, control->rank, rondo_error_text());
    }
    return status;
}

rondo_status rondo_msg_drain(struct rondo_control *control, int *moved)
{
    struct rondo_control_cell *cell;
    rondo_status status = RONDO_SUCCESS;
    int rank;
    if (pthread_mutex_trylock(&control->inbox.lock) != 0) {
        return RONDO_SUCCESS;
    }
    /* At most one ring, so that busy senders cannot keep this rank here. Half of the parking space stays
     * free for a receive that looks through the inbox. */
    for (int i = 0; i < RONDO_MSG_CELLS && control->inbox.nparked < RONDO_MSG_PARKED / 2 &&
                    (cell = box_first(control, &rank)) != NULL;
         i++) {
        status = msg_park(control, cell, rank);
        if (status != RONDO_SUCCESS) {
            break;
        }
        box_pop(control, cell);
        if (moved) {
            *moved = 1;
        }
    }
    return msg_unlock(control, status);
}

/* Unlink the parked message that *link points at. */
static struct rondo_parked *msg_unpark(struct rondo_control_inbox *inbox, struct rondo_parked **link)
{
    struct rondo_parked *parked = *link;
    *link = parked->next;
    if (inbox->last == &parked->next) {
        inbox->last = link;
    }
    inbox->nparked--;
    return parked;
}

static rondo_status msg_copy(struct rondo_control *control, int rank, void *data, size_t max, size_t *bytes,
                             const uint8_t *from, size_t from_bytes)
{
    if (from_bytes > max) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "%s: a message of %zu bytes came from rank %d, at most %zu expected", control->name,
                          from_bytes, rank, max);
    }
    if (from_bytes > 0) {
        memcpy(data, from, from_bytes);
    }
    *bytes = from_bytes;
    return RONDO_SUCCESS;
}

/* *rank -1: from any; it is the sender's then. */
static rondo_status msg_take(struct rondo_control *control, int *rank, uint64_t tag, void *data, size_t max,
                             size_t *bytes)
{
    struct rondo_control_inbox *inbox = &control->inbox;
    struct rondo_control_cell *cell;
    rondo_status status;
    int from;
    for (struct rondo_parked **link = &inbox->first; *link; link = &(*link)->next) {
        if ((*rank < 0 || (*link)->rank == *rank) && (*link)->tag == tag) {
            struct rondo_parked *parked = msg_unpark(inbox, link);
            *rank = parked->rank;
            status = msg_copy(control, *rank, data, max, bytes, parked->data, parked->bytes);
            rondo_free(parked);
            return status;
        }
    }
    for (int i = 0; i < RONDO_MSG_CELLS && (cell = box_first(control, &from)) != NULL; i++) {
        if (from >= 0 && (*rank < 0 || from == *rank) && cell->tag == tag) {
            *rank = from;
            status = msg_copy(control, from, data, max, bytes, cell->data,
                              rondo_min_size(cell->bytes, RONDO_MSG_BYTES));
            box_pop(control, cell);
            return status;
        }
        RONDO_TRY(msg_park(control, cell, from));
        box_pop(control, cell);
    }
    return RONDO_IN_PROGRESS;
}

static rondo_status receive_here(struct rondo_control *control, int *rank, uint64_t tag, void *data,
                                 size_t max, size_t *bytes)
{
    pthread_mutex_lock(&control->inbox.lock);
    rondo_status status = msg_take(control, rank, tag, data, max, bytes);
    return msg_unlock(control, status);
}

rondo_status rondo_control_receive(struct rondo_control *control, int rank, uint64_t tag, void *data,
                                   size_t max, size_t *bytes)
{
    int local;
    RONDO_TRY(local_of(control, rank, &local));
    return local < 0 ? rondo_wire_receive(control, rank, tag, data, max, bytes)
                     : receive_here(control, &rank, tag, data, max, bytes);
}

rondo_status rondo_control_receive_any(struct rondo_control *control, uint64_t tag, int *rank, void *data,
                                       size_t max, size_t *bytes)
{
    *rank = -1;
    rondo_status status = receive_here(control, rank, tag, data, max, bytes);
    return status == RONDO_IN_PROGRESS && control->wire
               ? rondo_wire_receive_any(control, tag, rank, data, max, bytes)
               : status;
}

void rondo_control_forget(struct rondo_control *control, uint64_t tag)
{
    struct rondo_control_inbox *inbox = &control->inbox;
    struct rondo_parked **link = &inbox->first;
    pthread_mutex_lock(&inbox->lock);
    while (*link) {
        if ((*link)->tag == tag) {
            rondo_free(msg_unpark(inbox, link));
        } else {
            link = &(*link)->next;
        }
    }
    inbox->forgotten[inbox->nforgotten++ % RONDO_MSG_FORGOTTEN] = tag;
    pthread_mutex_unlock(&inbox->lock);
    if (control->wire) {
        rondo_wire_forget(control, tag);
    }
}
