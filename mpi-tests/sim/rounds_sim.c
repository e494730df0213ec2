#include "rounds_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "event_queue.h"
#include "init/phases.h"
#include "net/control/control_wire.h"

struct message {
    struct message *next;
    int from;
    uint8_t is_note;
    union {
        struct rondo_rounds_part part;
        struct rondo_rounds_note *note;
    } u;
    uint8_t data[];
};

enum { KNOWN = 8, COARSE = 16 /* parts of a table */ };

/* Parts on their way to a rank. */
struct window {
    int to, used;
    int64_t free_ns; /* the parts that one stands for have credit again */
};

struct machine {
    struct rounds_sim *sim;
    struct rounds_sim_rank out;
    struct rondo_rounds rounds;
    struct message *first, **last; /* what has come, oldest first */
    struct window *window;
    int nwindows, round, has_come, ended;
    int64_t free_ns;    /* its wire sends until then */
    int64_t arrives_ns; /* of the last message: they keep their order */
    int64_t wake_ns, timeout_ns, deadline_ns;
    int known[KNOWN], nknown; /* ranks that it has asked about */
    uint8_t *table;
};

struct rounds_sim {
    struct rounds_sim_config config;
    struct machine *machine;
    struct event_queue queue;
    uint64_t random, events;
    int64_t now;
    int wrong;
};

static double chance(struct rounds_sim *sim)
{
    sim->random = rondo_hash(&sim->random, sizeof(sim->random), sim->config.seed);
    return (double)(sim->random >> 11) * 0x1p-53;
}

static uint8_t expected(int rank, int round, size_t i) { return (uint8_t)(rank * 31 + round * 7 + (int)i); }

static int is_dead(const struct machine *m)
{
    return m->out.fate == ROUNDS_SIM_DIES && m->sim->now >= m->out.dies_ns;
}

/* ---- the wire ---- */

static struct window *window_to(struct machine *m, int rank)
{
    for (int i = 0; i < m->nwindows; i++) {
        if (m->window[i].to == rank) {
            return &m->window[i];
        }
    }
    m->window = realloc(m->window, sizeof(*m->window) * (size_t)(m->nwindows + 1));
    m->window[m->nwindows] = (struct window){ .to = rank };
    return &m->window[m->nwindows++];
}

/* window NULL: a note, which has a window of its own that it never fills. */
static void post(struct machine *m, int to, struct message *message, size_t bytes, struct window *window)
{
    struct rounds_sim *sim = m->sim;
    int64_t at = m->free_ns > sim->now ? m->free_ns : sim->now;
    size_t parts = bytes <= RONDO_ROUNDS_PART ? 1 : (bytes + RONDO_ROUNDS_PART - 1) / RONDO_ROUNDS_PART;
    if (window) {
        at = window->free_ns > at ? window->free_ns : at;
        window->free_ns = at + (int64_t)(parts / RONDO_WIRE_WINDOW) * 2 * sim->config.latency_ns;
    }
    size_t all = bytes + parts * (sizeof(struct rondo_wire_head) + 24);
    m->out.sent += parts;
    m->out.bytes += all;
    m->free_ns = at += sim->config.bytes_per_ns > 0 ? (int64_t)((double)all / sim->config.bytes_per_ns) : 0;
    at += sim->config.latency_ns;
    while (sim->config.loss > 0 && chance(sim) < sim->config.loss) {
        at += sim->config.resend_ns;
    }
    m->arrives_ns = at = at > m->arrives_ns ? at : m->arrives_ns;
    event_push(&sim->queue, at, to, message);
}

static struct message *message_new(const struct machine *m, size_t bytes)
{
    struct message *message = calloc(1, sizeof(*message) + bytes);
    message->from = m->rounds.place.rank;
    return message;
}

static rondo_status op_send(void *arg, int rank, const struct rondo_rounds_part *part)
{
    struct machine *m = arg;
    struct window *window = window_to(m, rank);
    if (window->used == RONDO_WIRE_WINDOW) {
        return RONDO_IN_PROGRESS;
    }
    window->used++;
    m->out.flows += part->at == 0;
    struct message *message = message_new(m, m->table ? part->n : 0);
    message->u.part = *part;
    if (m->table) {
        memcpy(message->data, m->table + part->where, part->n);
    }
    post(m, rank, message, part->n, window);
    return RONDO_SUCCESS;
}

/* Give the sender its credit, which takes a latency. */
static void give_credit(struct machine *m, int to)
{
    struct message *message = message_new(m, 0);
    message->is_note = 2;
    event_push(&m->sim->queue, m->sim->now + m->sim->config.latency_ns, to, message);
}

static struct message *take(struct machine *m, int from, int is_note)
{
    struct message **link = &m->first, *message;
    while ((message = *link) != NULL &&
           (message->is_note != is_note || (from >= 0 && message->from != from))) {
        link = &message->next;
    }
    if (message) {
        *link = message->next;
        m->last = m->last == &message->next ? link : m->last;
    }
    return message;
}

static rondo_status op_receive(void *arg, int rank, const struct rondo_rounds_part *part)
{
    struct machine *m = arg;
    struct message *message = take(m, rank, 0);
    if (message == NULL) {
        return RONDO_IN_PROGRESS;
    }
    m->sim->wrong |= message->u.part.round != part->round || message->u.part.at != part->at ||
                     message->u.part.bytes != part->bytes || message->u.part.n != part->n;
    if (m->table) {
        memcpy(m->table + part->where, message->data, part->n);
    }
    give_credit(m, rank);
    free(message);
    return RONDO_SUCCESS;
}

static rondo_status op_say(void *arg, int rank, const struct rondo_rounds_note *note)
{
    struct machine *m = arg;
    struct message *message = message_new(m, 0);
    message->is_note = 1;
    m->out.notes++;
    message->u.note = malloc(sizeof(*note));
    *message->u.note = *note;
    message->u.note->from = message->from;
    post(m, rank, message, sizeof(*note), NULL);
    return RONDO_SUCCESS;
}

static rondo_status op_hear(void *arg, struct rondo_rounds_note *note)
{
    struct message *message = take(arg, -1, 1);
    if (message == NULL) {
        return RONDO_IN_PROGRESS;
    }
    *note = *message->u.note;
    free(message->u.note);
    free(message);
    return RONDO_SUCCESS;
}

/* A death shows to whom is connected, or has asked. */
static enum rondo_rounds_state op_state(void *arg, int rank)
{
    struct machine *m = arg, *other = &m->sim->machine[rank];
    int known = m->round > 0 &&
                (rank == m->rounds.place.parent || other->rounds.place.parent == m->rounds.place.rank);
    for (int i = 0; i < m->nknown && i < KNOWN; i++) {
        known |= m->known[i] == rank;
    }
    return known && is_dead(other) && m->sim->now >= other->out.dies_ns + m->sim->config.latency_ns
               ? RONDO_ROUNDS_LOST
               : RONDO_ROUNDS_ALIVE;
}

static void op_ask(void *arg, int rank)
{
    struct machine *m = arg;
    for (int i = 0; i < m->nknown && i < KNOWN; i++) {
        if (m->known[i] == rank) {
            return;
        }
    }
    m->known[m->nknown++ % KNOWN] = rank;
}

static rondo_status op_lost(void *arg, int rank)
{
    struct machine *m = arg;
    (void)m;
    return rondo_fail_quiet(RONDO_REMOTE_ERROR, "member rank %d has exited", rank);
}

static int kind_of(const struct machine *m)
{
    const struct rounds_sim_config *config = &m->sim->config;
    return config->kind != NULL ? config->kind[m->round] : ROUNDS_SIM_ALLGATHER;
}

static void op_merge(void *arg, uint64_t where)
{
    struct machine *m = arg;
    for (size_t i = 0; m->table && i < m->sim->config.record[m->round]; i++) {
        m->table[i] = (uint8_t)(m->table[i] + m->table[where + i]);
    }
}

static const struct rondo_rounds_ops ops = { op_send,  op_receive, op_say,  op_hear,
                                             op_state, op_ask,     op_lost, op_merge };

/* ---- a rank ---- */

static void end(struct machine *m, rondo_status status)
{
    m->ended = 1;
    m->out.status = status;
    m->out.ended_ns = m->sim->now;
    m->out.named = -1;
    if (status != RONDO_SUCCESS) {
        sscanf(rondo_error_text(), "member rank %d", &m->out.named);
        rondo_rounds_give_up(&m->rounds, status, rondo_error_text());
    }
}

static void begin_exchange(struct machine *m, int kind, size_t record)
{
    int n = m->sim->config.n, rank = m->rounds.place.rank, peer[2], npeers = 0;
    if (kind == ROUNDS_SIM_RING) {
        peer[npeers++] = (rank + 1) % n;
        peer[npeers] = (rank + n - 1) % n;
        npeers += n > 2;
    } else {
        peer[0] = rondo_shape_partner(n, rank, 0, kind - ROUNDS_SIM_SHAPE);
        npeers = peer[0] >= 0;
    }
    m->rounds.part = RONDO_ROUNDS_PART;
    if (rondo_rounds_exchange(&m->rounds, npeers, peer, record, m->sim->now) != RONDO_SUCCESS) {
        abort();
    }
}

static void begin_round(struct machine *m)
{
    const struct rounds_sim_config *config = &m->sim->config;
    size_t record = config->record[m->round];
    int kind = kind_of(m);
    if (config->carry) {
        size_t at = kind == ROUNDS_SIM_REDUCE ? 0 : (size_t)m->rounds.place.rank * record;
        free(m->table);
        m->table = calloc((size_t)config->n + RONDO_ROUNDS_REDUCED, record + 1);
        for (size_t i = 0; i < record; i++) {
            m->table[at + i] = expected(m->rounds.place.rank, m->round, i);
        }
    }
    if (kind == ROUNDS_SIM_REDUCE) {
        m->rounds.part = config->part ? config->part : RONDO_ROUNDS_PART;
        rondo_rounds_reduce(&m->rounds, record, m->sim->now);
    } else if (kind != ROUNDS_SIM_ALLGATHER) {
        begin_exchange(m, kind, record);
    } else {
        size_t coarse = config->coarse ? record * (size_t)config->n / COARSE : 0;
        m->rounds.part = config->part ? config->part : RONDO_ROUNDS_PART;
        m->rounds.part = coarse > m->rounds.part ? coarse : m->rounds.part;
        rondo_rounds_allgather(&m->rounds, record, m->sim->now);
    }
}

static void check_sum(struct machine *m)
{
    size_t record = m->sim->config.record[m->round];
    for (size_t i = 0; m->table && i < record; i++) {
        uint8_t sum = 0;
        for (int rank = 0; rank < m->sim->config.n; rank++) {
            sum = (uint8_t)(sum + expected(rank, m->round, i));
        }
        m->sim->wrong |= m->table[i] != sum;
    }
}

static void check_table(struct machine *m)
{
    size_t record = m->sim->config.record[m->round];
    if (kind_of(m) == ROUNDS_SIM_REDUCE) {
        check_sum(m);
        return;
    }
    for (int rank = 0; m->table && rank < m->sim->config.n; rank++) {
        for (size_t i = 0; i < record; i++) {
            m->sim->wrong |= m->table[(size_t)rank * record + i] != expected(rank, m->round, i);
        }
    }
}

/* Begin the search for missing ranks, or go on with it. */
static void search(struct machine *m)
{
    rondo_status status = rondo_rounds_missing(&m->rounds, m->sim->now, m->out.missing, ROUNDS_SIM_NAMES,
                                               &m->out.nmissing);
    if (status != RONDO_IN_PROGRESS) {
        end(m, status == RONDO_SUCCESS ? RONDO_TIMEOUT : status);
    }
}

static void step_rounds(struct machine *m)
{
    while (!m->ended && m->rounds.late == NULL) {
        rondo_status status = rondo_rounds_test(&m->rounds, m->sim->now);
        if (status == RONDO_SUCCESS) {
            check_table(m);
            if (++m->round == m->sim->config.nrounds) {
                end(m, RONDO_SUCCESS);
            } else {
                begin_round(m);
            }
        } else if (status == RONDO_TIMEOUT ||
                   (status == RONDO_IN_PROGRESS && m->sim->now >= m->deadline_ns)) {
            search(m);
            return;
        } else if (status == RONDO_IN_PROGRESS) {
            return;
        } else {
            end(m, status);
        }
    }
    if (!m->ended) {
        search(m);
    }
}

/* Has a rank died that this one has asked about? */
static int may_learn(const struct machine *m)
{
    int dead = 0;
    for (int i = 0; i < m->nknown && i < KNOWN; i++) {
        dead |= is_dead(&m->sim->machine[m->known[i]]);
    }
    return dead;
}

static int has_note(const struct machine *m)
{
    const struct message *message = m->first;
    while (message && message->is_note != 1) {
        message = message->next;
    }
    return message != NULL;
}

static void sleep_until(struct machine *m)
{
    int64_t wake = rondo_rounds_wake(&m->rounds), look = m->rounds.looked_ns + RONDO_ROUNDS_LOOK;
    wake = m->rounds.late == NULL && m->deadline_ns < wake ? m->deadline_ns : wake;
    /* A rank looks for notes, and for ends that it may know of, every 10 ms. */
    wake = (has_note(m) || may_learn(m)) && look < wake ? look : wake;
    wake = wake > m->sim->now ? wake : m->sim->now + 1;
    if (!m->ended && (m->wake_ns <= m->sim->now || wake < m->wake_ns)) {
        m->wake_ns = wake;
        event_push(&m->sim->queue, wake, m->rounds.place.rank, NULL);
    }
}

static int is_silent(const struct machine *m)
{
    return m->out.fate == ROUNDS_SIM_ABSENT || m->sim->now < m->out.comes_ns ||
           (m->out.fate != ROUNDS_SIM_COMES && m->sim->now >= m->out.dies_ns);
}

static void step(struct machine *m)
{
    if (m->ended || is_silent(m)) {
        return;
    }
    if (!m->has_come) {
        m->has_come = 1;
        m->deadline_ns = m->sim->now + m->timeout_ns;
        begin_round(m);
    }
    step_rounds(m);
    sleep_until(m);
}

/* ---- the simulator ---- */

struct rounds_sim *rounds_sim_new(const struct rounds_sim_config *config)
{
    struct rounds_sim *sim = calloc(1, sizeof(*sim));
    sim->config = *config;
    sim->machine = calloc((size_t)config->n, sizeof(*sim->machine));
    for (int rank = 0; rank < config->n; rank++) {
        struct machine *m = &sim->machine[rank];
        m->sim = sim;
        m->timeout_ns = config->timeout_ns;
        m->last = &m->first;
        m->out.status = RONDO_IN_PROGRESS;
        m->out.named = -1;
        if (rondo_rounds_init(&m->rounds, rank, config->n, &ops, m) != RONDO_SUCCESS) {
            abort();
        }
    }
    return sim;
}

struct rounds_sim_rank *rounds_sim_rank(struct rounds_sim *sim, int rank) { return &sim->machine[rank].out; }
void rounds_sim_impatient(struct rounds_sim *sim, int rank, int64_t timeout_ns)
{
    sim->machine[rank].timeout_ns = timeout_ns;
}

uint64_t rounds_sim_events(const struct rounds_sim *sim) { return sim->events; }
int rounds_sim_is_right(const struct rounds_sim *sim) { return !sim->wrong; }

static void deliver(struct machine *m, struct message *message)
{
    if (message->is_note == 2) { /* credit */
        window_to(m, message->from)->used--;
        free(message);
        return;
    }
    if (m->ended || is_dead(m)) {
        if (message->is_note) {
            free(message->u.note);
        }
        free(message);
        return;
    }
    *m->last = message;
    m->last = &message->next;
}

int64_t rounds_sim_run(struct rounds_sim *sim)
{
    struct event event;
    int64_t last = 0;
    for (int rank = 0; rank < sim->config.n; rank++) {
        event_push(&sim->queue, sim->machine[rank].out.comes_ns, rank, NULL);
    }
    while (event_pop(&sim->queue, &event)) {
        struct machine *m = &sim->machine[event.rank];
        sim->now = event.at_ns;
        sim->events++;
        if (event.what) {
            deliver(m, event.what);
        }
        step(m);
        last = m->ended && m->out.ended_ns > last ? m->out.ended_ns : last;
    }
    return last;
}

void rounds_sim_free(struct rounds_sim *sim)
{
    for (int rank = 0; rank < sim->config.n; rank++) {
        struct machine *m = &sim->machine[rank];
        for (struct message *message = m->first, *next; message; message = next) {
            next = message->next;
            if (message->is_note) {
                free(message->u.note);
            }
            free(message);
        }
        rondo_rounds_release(&m->rounds);
        free(m->window);
        free(m->table);
    }
    event_free(&sim->queue);
    free(sim->machine);
    free(sim);
}
