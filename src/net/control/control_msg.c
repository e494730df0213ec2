/*
 * Inboxes: per local rank a ring of RONDO_MSG_CELLS cells in the segment, many senders, one receiver.
 *
 * A cell's word goes {p, FREE} -> {p, RESERVED, owner} -> {p, FULL, owner} -> {p + RONDO_MSG_CELLS, FREE},
 * each by whoever has the right to: a sender reserves, its owner publishes, the receiver frees. The box's
 * tail is only a hint where to try: any sender moves it over a cell that is taken. An owner that died between
 * reserving and publishing is passed over at once; one that lives but does not go on (stopped) for STUCK_NS
 * loses the cell for good (POISONED: both sides step over it ever after), because it may still write into it
 * some day.
 */
#include "net/control/control_impl.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"

#define STUCK_NS (5 * INT64_C(1000000000))

static uint64_t cell_word(uint64_t position, int owner, unsigned state)
{
    return position << 16 | (uint64_t)owner << 2 | state;
}

static unsigned word_state(uint64_t word) { return word & 3; }
static uint64_t word_position(uint64_t word) { return word >> 16; }
static int word_owner(uint64_t word) { return (int)(word >> 2 & 0x3fff); }

void rondo_inbox_init(struct rondo_control_box *box)
{
    for (uint64_t i = 0; i < RONDO_MSG_CELLS; i++) {
        atomic_store_explicit(&box->cell[i].word, cell_word(i, 0, RONDO_CELL_FREE), memory_order_relaxed);
    }
}

void rondo_msg_init(struct rondo_control_msg *message)
{
    pthread_mutex_init(&message->lock, NULL);
    message->last = &message->first;
}

void rondo_msg_clear(struct rondo_control_msg *message)
{
    while (message->first) {
        struct rondo_parked *parked = message->first;
        message->first = parked->next;
        rondo_free(parked);
    }
    pthread_mutex_destroy(&message->lock);
}

/* *local = -1: the rank is on another node, and may be spoken to over the wire. */
static rondo_status local_of(struct rondo_control *control, int rank, int *local)
{
    *local = rank >= 0 && rank < control->nranks ? control->local_of[rank] : -1;
    if (*local >= 0 || (rank >= 0 && rank < control->nranks && control->wire)) {
        return RONDO_SUCCESS;
    }
    return rondo_fail(RONDO_INTERNAL_ERROR, "%s: no message between rank %d and rank %d of %d", control->name,
                      control->rank, rank, control->nranks);
}

/* Reserve a cell of a box. NULL: full. */
static struct rondo_control_cell *box_reserve(struct rondo_control_box *box, int owner, uint64_t *position)
{
    /* Each turn that does not end it is another sender's success or a cell stepped over; more of them than
     * this: let the caller come again. */
    for (int turns = 0; turns < 8 * RONDO_MSG_CELLS; turns++) {
        uint64_t tail = atomic_load_explicit(&box->tail, memory_order_acquire);
        struct rondo_control_cell *cell = &box->cell[tail % RONDO_MSG_CELLS];
        uint64_t word = atomic_load_explicit(&cell->word, memory_order_acquire);
        int mine = 0;
        if (word_state(word) == RONDO_CELL_FREE && word_position(word) == tail) {
            mine = atomic_compare_exchange_strong_explicit(&cell->word, &word,
                                                           cell_word(tail, owner, RONDO_CELL_RESERVED),
                                                           memory_order_acq_rel, memory_order_acquire);
        } else if (word_state(word) != RONDO_CELL_POISONED && word_position(word) < tail) {
            return NULL;
        }
        /* Taken, by this sender or another, or poisoned: the tail goes on. (A tail that was already moved
         * stays: the exchange fails.) */
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
        return rondo_fail(RONDO_INTERNAL_ERROR, "%s: a message of %zu bytes to rank %d (at most %d)",
                          control->name, bytes, rank, RONDO_MSG_BYTES);
    }
    if (local < 0) {
        return rondo_wire_send(control, rank, tag, data, bytes);
    }
    state = rondo_control_state_of(control, rank);
    if (state == RONDO_RANK_LEFT || state == RONDO_RANK_DEAD) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR,
                                "%s: no message to rank %d (pid %d on host %.*s): it has %s", control->name,
                                rank, control->blocks[local].life.pid, RONDO_HOST_LEN - 1,
                                control->peers[rank].host, state == RONDO_RANK_LEFT ? "left" : "exited");
    }
    cell = box_reserve(&control->blocks[local].box, control->local_rank, &position);
    if (cell == NULL) {
        return RONDO_IN_PROGRESS;
    }
    cell->tag = tag;
    cell->bytes = bytes;
    if (bytes > 0) {
        memcpy(cell->data, data, bytes);
    }
    word = cell_word(position, control->local_rank, RONDO_CELL_RESERVED);
    /* Fails when the receiver gave this sender up meanwhile: nothing was sent. */
    return atomic_compare_exchange_strong_explicit(&cell->word, &word,
                                                   cell_word(position, control->local_rank, RONDO_CELL_FULL),
                                                   memory_order_release, memory_order_relaxed)
               ? RONDO_SUCCESS
               : RONDO_IN_PROGRESS;
}

/* The owner of the reserved cell at head: is it still to be waited for? If not, pass the cell over. @return
 * 1: passed over, look again. */
static int give_up_cell(struct rondo_control *control, struct rondo_control_cell *cell, uint64_t word)
{
    struct rondo_control_msg *message = &control->message;
    int owner = word_owner(word),
        dead = owner < control->nlocal &&
               rondo_control_state_of(control, control->local_ranks[owner]) == RONDO_RANK_DEAD;
    int64_t now = rondo_now_ns();
    uint64_t next = dead ? cell_word(message->head + RONDO_MSG_CELLS, 0, RONDO_CELL_FREE)
                         : cell_word(message->head, owner, RONDO_CELL_POISONED);
    if (!dead) {
        if (message->stuck_ns == 0) {
            message->stuck_ns = now;
        }
        if (now - message->stuck_ns < STUCK_NS) {
            return 0;
        }
    }
    message->stuck_ns = 0;
    if (atomic_compare_exchange_strong_explicit(&cell->word, &word, next, memory_order_acq_rel,
                                                memory_order_relaxed)) {
        RONDO_WARN("%s: a message of rank %d to rank %d was lost: its sender %s while writing it",
                   control->name, owner < control->nlocal ? control->local_ranks[owner] : -1, control->rank,
                   dead ? "died" : "was stopped");
        message->head += (uint64_t)dead; /* a poisoned cell is stepped over by the look that follows */
    }
    return 1;
}

/* The oldest full cell of this rank's box, or NULL. With the lock held. */
static struct rondo_control_cell *box_first(struct rondo_control *control, int *rank)
{
    struct rondo_control_msg *message = &control->message;
    for (int turns = 0; turns < 2 * RONDO_MSG_CELLS; turns++) {
        struct rondo_control_cell *cell = &control->own->box.cell[message->head % RONDO_MSG_CELLS];
        uint64_t word = atomic_load_explicit(&cell->word, memory_order_acquire);
        if (word_state(word) == RONDO_CELL_POISONED) {
            message->head++;
            continue;
        }
        if (word_position(word) != message->head || word_state(word) == RONDO_CELL_FREE) {
            return NULL;
        }
        if (word_state(word) == RONDO_CELL_FULL) {
            message->stuck_ns = 0;
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
    atomic_store_explicit(&cell->word, cell_word(control->message.head + RONDO_MSG_CELLS, 0, RONDO_CELL_FREE),
                          memory_order_release);
    control->message.head++;
}

int rondo_msg_forgotten(const struct rondo_control_msg *message, uint64_t tag)
{
    for (int i = 0; i < message->nforgotten && i < RONDO_MSG_FORGOTTEN; i++) {
        if (message->forgotten[i] == tag) {
            return 1;
        }
    }
    return 0;
}

/* Copy the message at head to the parked ones, or drop it when nobody will ask for it. Too many: msg_unlock
 * ends the communicator. */
static rondo_status msg_park(struct rondo_control *control, const struct rondo_control_cell *cell, int rank)
{
    struct rondo_control_msg *message = &control->message;
    size_t bytes = rondo_min_size(cell->bytes, RONDO_MSG_BYTES);
    struct rondo_parked *parked;
    if (rank < 0 || rondo_msg_forgotten(message, cell->tag)) {
        return RONDO_SUCCESS;
    }
    if (message->nparked >= RONDO_MSG_PARKED) {
        message->overflown = 1;
        return rondo_fail(
            RONDO_INTERNAL_ERROR,
            "%s: %d messages wait for rank %d, which asks for none of them; the last one is from rank %d",
            control->name, message->nparked, control->rank, rank);
    }
    RONDO_TRY(rondo_calloc(&parked, 1, sizeof(*parked) + bytes, "parked message"));
    parked->tag = cell->tag;
    parked->rank = rank;
    parked->bytes = bytes;
    memcpy(parked->data, cell->data, bytes);
    *message->last = parked;
    message->last = &parked->next;
    message->nparked++;
    return RONDO_SUCCESS;
}

/* Give the lock back, then end the communicator if there was too much: telling the other nodes takes the
 * wire's lock, which comes first. */
static rondo_status msg_unlock(struct rondo_control *control, rondo_status status)
{
    int overflown = control->message.overflown;
    control->message.overflown = 0;
    pthread_mutex_unlock(&control->message.lock);
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
    if (pthread_mutex_trylock(&control->message.lock) != 0) {
        return RONDO_SUCCESS;
    }
    /* At most one box full, so that senders that go on and on cannot hold this rank; half of what may be
     * parked stays for message that a receive is looking through. */
    for (int i = 0; i < RONDO_MSG_CELLS && control->message.nparked < RONDO_MSG_PARKED / 2 &&
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
static struct rondo_parked *msg_unpark(struct rondo_control_msg *message, struct rondo_parked **link)
{
    struct rondo_parked *parked = *link;
    *link = parked->next;
    if (message->last == &parked->next) {
        message->last = link;
    }
    message->nparked--;
    return parked;
}

static rondo_status msg_copy(struct rondo_control *control, int rank, void *data, size_t max, size_t *bytes,
                             const uint8_t *from, size_t from_bytes)
{
    if (from_bytes > max) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "%s: a message of %zu bytes from rank %d, at most %zu expected", control->name,
                          from_bytes, rank, max);
    }
    if (from_bytes > 0) {
        memcpy(data, from, from_bytes);
    }
    *bytes = from_bytes;
    return RONDO_SUCCESS;
}

static rondo_status msg_take(struct rondo_control *control, int rank, uint64_t tag, void *data, size_t max,
                             size_t *bytes)
{
    struct rondo_control_msg *message = &control->message;
    struct rondo_control_cell *cell;
    rondo_status status;
    int from;
    for (struct rondo_parked **link = &message->first; *link; link = &(*link)->next) {
        if ((*link)->rank == rank && (*link)->tag == tag) {
            struct rondo_parked *parked = msg_unpark(message, link);
            status = msg_copy(control, rank, data, max, bytes, parked->data, parked->bytes);
            rondo_free(parked);
            return status;
        }
    }
    for (int i = 0; i < RONDO_MSG_CELLS && (cell = box_first(control, &from)) != NULL; i++) {
        if (from == rank && cell->tag == tag) {
            status = msg_copy(control, rank, data, max, bytes, cell->data,
                              rondo_min_size(cell->bytes, RONDO_MSG_BYTES));
            box_pop(control, cell);
            return status;
        }
        RONDO_TRY(msg_park(control, cell, from));
        box_pop(control, cell);
    }
    return RONDO_IN_PROGRESS;
}

rondo_status rondo_control_receive(struct rondo_control *control, int rank, uint64_t tag, void *data,
                                   size_t max, size_t *bytes)
{
    rondo_status status;
    int local;
    RONDO_TRY(local_of(control, rank, &local));
    if (local < 0) {
        return rondo_wire_receive(control, rank, tag, data, max, bytes);
    }
    pthread_mutex_lock(&control->message.lock);
    status = msg_take(control, rank, tag, data, max, bytes);
    return msg_unlock(control, status);
}

void rondo_control_forget(struct rondo_control *control, uint64_t tag)
{
    struct rondo_control_msg *message = &control->message;
    struct rondo_parked **link = &message->first;
    pthread_mutex_lock(&message->lock);
    while (*link) {
        if ((*link)->tag == tag) {
            rondo_free(msg_unpark(message, link));
        } else {
            link = &(*link)->next;
        }
    }
    message->forgotten[message->nforgotten++ % RONDO_MSG_FORGOTTEN] = tag;
    pthread_mutex_unlock(&message->lock);
    if (control->wire) {
        rondo_wire_forget(control, tag);
    }
}
