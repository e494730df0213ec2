#include "net/control/control_impl.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/process.h"

/* How long to wait for a reason's text: its writer copies 512 bytes, unless it is dead or stopped, or others
 * have its core. */
enum { TEXT_WAIT_NS = 500 * 1000 * 1000 };

/* Bytes before the inboxes: what every communicator uses. */
static size_t first_bytes(const struct rondo_control_config *config)
{
    return sizeof(struct rondo_control_head) + sizeof(struct rondo_control_reason) +
           sizeof(struct rondo_control_block) * (size_t)config->nlocal +
           rondo_control_boards_bytes(config->nlocal, config->nranks) +
           rondo_round_up(config->extra, RONDO_CTRL_ALIGN) +
           rondo_round_up(rondo_control_places_bytes(config->nnodes, config->nranks), RONDO_CTRL_ALIGN);
}

/* Where the rings begin: on a page of their own, for few communicators use them. */
static size_t rings_at(const struct rondo_control_config *config)
{
    enum { PAGE = 4096 };
    return rondo_round_up(first_bytes(config), PAGE);
}

static size_t control_bytes(const struct rondo_control_config *config)
{
    size_t bytes = rings_at(config) + (sizeof(struct rondo_record_rings) + sizeof(struct rondo_control_box) +
                                       RONDO_SPLIT_SLOTS * sizeof(struct rondo_split_place) +
                                       sizeof(struct rondo_control_votes)) *
                                          (size_t)config->nlocal;
    return bytes + (config->nlocal > 1 && config->mailbox_capacity > 0
                        ? rondo_mailbox_bytes(config->mailbox_capacity, config->nlocal)
                        : 0);
}

static void control_free(struct rondo_control *control)
{
    rondo_wire_free(control);
    if (!control->kept) {
        rondo_shm_close(&control->shm);
    }
    rondo_inbox_clear(&control->inbox);
    pthread_mutex_destroy(&control->early.lock);
    rondo_free(control->local_ranks);
    rondo_free(control->local_of);
    rondo_free(control->watch);
    rondo_free(control);
}

static rondo_status control_check_config(const struct rondo_control_config *config)
{
    if (config->nlocal < 1 || config->nlocal > RONDO_CONTROL_MAX_LOCAL || config->nlocal > config->nranks ||
        config->local_rank < 0 || config->local_rank >= config->nlocal) {
        return rondo_fail(
            RONDO_INTERNAL_ERROR, "control plane of %s: local rank %d of %d (%d ranks, at most %d a node)",
            config->name, config->local_rank, config->nlocal, config->nranks, RONDO_CONTROL_MAX_LOCAL);
    }
    for (int i = 0; i < config->nlocal; i++) {
        if (config->local_ranks[i] < 0 || config->local_ranks[i] >= config->nranks) {
            return rondo_fail(RONDO_INTERNAL_ERROR, "control plane of %s: local rank %d is rank %d of %d",
                              config->name, i, config->local_ranks[i], config->nranks);
        }
    }
    if (config->local_ranks[config->local_rank] != config->rank) {
        return rondo_fail(RONDO_INTERNAL_ERROR, "control plane of %s: rank %d is not local rank %d",
                          config->name, config->rank, config->local_rank);
    }
    return RONDO_SUCCESS;
}

static rondo_status control_new(struct rondo_control **control_out, const struct rondo_control_config *config)
{
    struct rondo_control *control;
    rondo_status status;
    RONDO_TRY(control_check_config(config));
    RONDO_TRY(RONDO_NEW(control, "control plane"));
    rondo_inbox_init(&control->inbox);
    pthread_mutex_init(&control->early.lock, NULL);
    control->shm.fd = -1;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(control->local_ranks, config->nlocal, "control plane's local ranks"),
                   fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(control->local_of, config->nranks, "control plane's ranks"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(control->watch, config->nlocal, "control plane's watches"), fail);
    control->rank = config->rank;
    control->nranks = config->nranks;
    control->local_rank = config->local_rank;
    control->nlocal = config->nlocal;
    control->peers = config->peers;
    control->describe = config->describe;
    control->pid = getpid();
    control->made_ns = rondo_now_ns();
    control->record = -1;
    control->nnodes = config->nnodes > 1 ? config->nnodes : 1;
    control->node = config->nnodes > 1 ? config->node_of[config->rank] : 0;
    snprintf(control->name, sizeof(control->name), "%s", config->name ? config->name : "?");
    memset(control->local_of, -1, sizeof(int) * (size_t)config->nranks);
    for (int i = 0; i < config->nlocal; i++) {
        control->local_ranks[i] = config->local_ranks[i];
        control->local_of[config->local_ranks[i]] = i;
        control->watch[i].process = -1;
    }
    RONDO_TRY_GOTO(rondo_wire_new(control, config), fail);
    *control_out = control;
    return RONDO_SUCCESS;
fail:
    control_free(control);
    return status;
}

/* Set the pointers into the mapped segment. */
static void control_place(struct rondo_control *control, const struct rondo_control_config *config)
{
    control->head = (struct rondo_control_head *)control->shm.base;
    control->reason = (struct rondo_control_reason *)(control->head + 1);
    control->blocks = (struct rondo_control_block *)(control->reason + 1);
    control->own = &control->blocks[control->local_rank];
    control->boards = (uint8_t *)(control->blocks + control->nlocal);
    control->extra = control->boards + rondo_control_boards_bytes(control->nlocal, control->nranks);
    control->places = control->extra + rondo_round_up(config->extra, RONDO_CTRL_ALIGN);
    control->rings = (struct rondo_record_rings *)(void *)(control->shm.base + rings_at(config));
    control->own_rings = &control->rings[control->local_rank];
    control->clock = (enum rondo_record_clock)control->head->clock;
    control->ring_mask = control->clock == RONDO_CLOCK_OFF ? RONDO_CALL_RING - 1 : RONDO_RECORD_CALLS - 1;
    control->boxes = (struct rondo_control_box *)(control->rings + control->nlocal);
    control->splits = (struct rondo_split_place *)(control->boxes + control->nlocal);
    control->votes = (struct rondo_control_votes *)(control->splits +
                                                    RONDO_SPLIT_SLOTS * (size_t)control->nlocal);
    if (control->nlocal > 1 && config->mailbox_capacity > 0) {
        control->mailbox.places = (uint8_t *)(control->votes + control->nlocal);
        control->mailbox.stride = rondo_mailbox_stride(config->mailbox_capacity);
        control->mailbox.capacity = config->mailbox_capacity;
        control->mailbox.index = control->local_rank;
        control->mailbox.nranks = control->nlocal;
    }
}

/* Show the other ranks that this one has attached. */
static void control_announce(struct rondo_control *control)
{
    struct rondo_control_life *life = &control->own->life;
    life->pid = control->pid;
    life->rank = control->rank;
    life->start = rondo_process_start(control->pid);
    atomic_store_explicit(&life->state, RONDO_LIFE_ATTACHED, memory_order_release);
}

/* What a reader of the record needs. */
static void head_fill(struct rondo_control_head *head, const struct rondo_control_config *config)
{
    head->record_version = RONDO_RECORD_VERSION;
    head->clock = rondo_record_clock();
    head->ticks = rondo_record_ticks((enum rondo_record_clock)head->clock);
    head->ticks_ns = rondo_now_ns();
    head->reason_at = sizeof(struct rondo_control_head);
    head->blocks_at = head->reason_at + sizeof(struct rondo_control_reason);
    head->block_bytes = sizeof(struct rondo_control_block);
    head->rings_at = rings_at(config);
    head->rings_bytes = sizeof(struct rondo_record_rings);
}

rondo_status rondo_control_create(struct rondo_control **control_out,
                                  const struct rondo_control_config *config, struct rondo_shm_name *name)
{
    struct rondo_control *control;
    size_t bytes = control_bytes(config),
           reserved = config->pinned || config->shm_mode == RONDO_SHM_MODE_FILE ? bytes : first_bytes(config);
    rondo_status status;
    RONDO_TRY(control_new(&control, config));
    RONDO_TRY_GOTO((config->pinned ? rondo_pool_take_apart : rondo_pool_take)(
                       &control->shm, bytes, reserved, config->shm_mode, RONDO_SHM_FOR_CONTROL),
                   fail);
    head_fill((struct rondo_control_head *)control->shm.base, config);
    control_place(control, config);
    control->head->comm_hash = config->comm_hash;
    control->head->bytes = bytes;
    control->head->version = RONDO_CONTROL_VERSION;
    control->head->nlocal = config->nlocal;
    control->head->arena = config->arena;
    control->head->magic = RONDO_CONTROL_MAGIC;
    control_announce(control);
    RONDO_INFO(RONDO_SUBSYS_CONTROL,
               "%s: control segment of %zu bytes for %d ranks, mailbox of %zu bytes a rank", control->name,
               bytes, config->nlocal, config->mailbox_capacity);
    *name = control->shm.name;
    *control_out = control;
    return RONDO_SUCCESS;
fail:
    control_free(control);
    return status;
}

rondo_status rondo_control_attach(struct rondo_control **control_out,
                                  const struct rondo_control_config *config,
                                  const struct rondo_shm_name *name)
{
    struct rondo_control *control;
    const struct rondo_control_head *head;
    size_t bytes = control_bytes(config);
    rondo_status status;
    RONDO_TRY(control_new(&control, config));
    RONDO_TRY_GOTO(rondo_shm_open(&control->shm, name), fail);
    head = (const struct rondo_control_head *)control->shm.base;
    if (control->shm.size < bytes || head->magic != RONDO_CONTROL_MAGIC ||
        head->version != RONDO_CONTROL_VERSION || head->bytes != bytes || head->nlocal != config->nlocal ||
        head->comm_hash != config->comm_hash) {
        status = rondo_fail(RONDO_INTERNAL_ERROR,
                            "%s: the control segment of rank %d on %s belongs to another communicator (%zu "
                            "bytes mapped, %zu needed)",
                            control->name, config->local_ranks[0], rondo_log_host(), control->shm.size,
                            bytes);
        goto fail;
    }
    control_place(control, config);
    control_announce(control);
    *control_out = control;
    return RONDO_SUCCESS;
fail:
    control_free(control);
    return status;
}

const void *rondo_control_record(const struct rondo_control *control, struct rondo_record_entry *entry)
{
    *entry = (struct rondo_record_entry){ .rank = control->rank,
                                          .nranks = control->nranks,
                                          .local_rank = control->local_rank,
                                          .nlocal = control->nlocal,
                                          .node = control->node,
                                          .nnodes = control->nnodes,
                                          .comm_hash = control->head->comm_hash,
                                          .bytes = control->head->bytes };
    snprintf(entry->name, sizeof(entry->name), "%s", control->name);
    return control->head;
}

rondo_status rondo_control_start(struct rondo_control *control)
{
    struct rondo_record_entry entry;
    if (control->local_rank == 0) {
        rondo_shm_unlink(&control->shm);
    }
    RONDO_TRY(rondo_wire_join(control));
    rondo_wire_places(control);
    RONDO_TRY(rondo_control_watch(control));
    (void)rondo_control_record(control, &entry);
    control->record = rondo_record_add(&entry, &control->shm);
    atomic_store_explicit(&control->own->life.state, RONDO_LIFE_ALIVE, memory_order_release);
    rondo_control_tell_loss(control);
    return RONDO_SUCCESS;
}

void rondo_control_leave(struct rondo_control *control)
{
    if (control->pid == getpid()) {
        rondo_control_tell_loss(control);
        atomic_store_explicit(&control->own->life.state, RONDO_LIFE_LEFT, memory_order_release);
        rondo_wire_leave(control);
    }
}

void rondo_control_close(struct rondo_control *control)
{
    if (control == NULL) {
        return;
    }
    if (control->pid == getpid()) {
        rondo_control_unwatch(control);
        rondo_record_remove(control->record);
        rondo_control_leave(control); /* else its missing beats would look like a fault */
        rondo_wire_part(control);
        if (control->local_rank == 0) {
            rondo_shm_unlink(&control->shm);
        }
    }
    control_free(control);
}

void rondo_control_keep(struct rondo_control *control) { control->kept = 1; }

const struct rondo_shm_name *rondo_control_arena(const struct rondo_control *control)
{
    return &control->head->arena;
}

uint8_t *rondo_control_extra(struct rondo_control *control) { return control->extra; }

struct rondo_mailbox *rondo_control_mailbox(struct rondo_control *control)
{
    return control->mailbox.places ? &control->mailbox : NULL;
}

/* ---- the reason ---- */

static uint64_t reason_word(enum rondo_loss loss, rondo_status status, int writer, int rank)
{
    return (uint64_t)loss << 2 | (uint64_t)(uint8_t)status << 8 | (uint64_t)(uint16_t)writer << 16 |
           (uint64_t)(uint32_t)(rank + 1) << 32;
}

static int reason_rank(const struct rondo_control *control, uint64_t word)
{
    int rank = (int)(uint32_t)(word >> 32) - 1;
    return rank >= 0 && rank < control->nranks ? rank : -1;
}

enum rondo_loss rondo_control_loss(const struct rondo_control *control, int *rank)
{
    uint64_t word = atomic_load_explicit(&control->reason->word, memory_order_acquire);
    *rank = reason_rank(control, word);
    return *rank >= 0 ? (enum rondo_loss)(word >> 2 & 3) : RONDO_LOSS_NONE;
}

int rondo_control_end(struct rondo_control *control, rondo_status status, int rank, enum rondo_loss loss,
                      const char *text)
{
    struct rondo_control_reason *reason = control->reason;
    uint64_t word = 0, fields;
    if (status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS) {
        status = RONDO_INTERNAL_ERROR;
    }
    if (loss != RONDO_LOSS_NONE) {
        rondo_loss_learn(control, rank, loss);
    }
    fields = reason_word(loss, status, control->local_rank, rank);
    if (!atomic_compare_exchange_strong_explicit(&reason->word, &word, fields | RONDO_REASON_WRITING,
                                                 memory_order_acq_rel, memory_order_relaxed)) {
        return 0;
    }
    snprintf(reason->text, sizeof(reason->text), "%s", text ? text : "");
    /* Also if a reader has given up waiting for the text: those to come have it. */
    atomic_store_explicit(&reason->word, fields | RONDO_REASON_SET, memory_order_release);
    return 1;
}

void rondo_control_abort(struct rondo_control *control, rondo_status status, int rank, const char *text)
{
    rondo_control_tell_loss(control);
    if (rondo_control_end(control, status, rank, RONDO_LOSS_NONE, text)) {
        rondo_wire_spread(control);
    }
}

int rondo_control_aborted(const struct rondo_control *control)
{
    return atomic_load_explicit(&control->reason->word, memory_order_acquire) != 0;
}

/* @return the word, once its text is complete or given up. */
static uint64_t reason_settle(struct rondo_control_reason *reason)
{
    uint64_t word = atomic_load_explicit(&reason->word, memory_order_acquire);
    int64_t start = 0;
    while ((word & 3) == RONDO_REASON_WRITING) {
        int64_t now = rondo_now_ns();
        start = start ? start : now;
        if (now - start > TEXT_WAIT_NS) {
            /* On failure `word` holds what the writer or another reader wrote. */
            if (atomic_compare_exchange_strong_explicit(&reason->word, &word, word | RONDO_REASON_LOST,
                                                        memory_order_acq_rel, memory_order_acquire)) {
                word |= RONDO_REASON_LOST;
            }
            continue;
        }
        sched_yield();
        word = atomic_load_explicit(&reason->word, memory_order_acquire);
    }
    return word;
}

rondo_status rondo_control_reason(struct rondo_control *control, char *text, int *rank)
{
    uint64_t word = reason_settle(control->reason);
    rondo_status status = (rondo_status)(word >> 8 & 0xff);
    int writer = (int)(word >> 16 & 0xffff);
    if (word == 0) {
        text[0] = '\0';
        *rank = -1;
        return RONDO_SUCCESS;
    }
    if (status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS || status >= RONDO_NUM_STATUSES) {
        status = RONDO_INTERNAL_ERROR;
    }
    if ((word & 3) == RONDO_REASON_SET) {
        snprintf(text, RONDO_ERROR_TEXT, "%.*s", RONDO_ERROR_TEXT - 1, control->reason->text);
    } else {
        snprintf(text, RONDO_ERROR_TEXT,
                 "rank %d ended communicator %s (%s) and died or was stopped before it wrote the reason; see "
                 "that rank's own log",
                 writer < control->nlocal ? control->local_ranks[writer] : -1, control->name,
                 rondo_status_string(status));
    }
    *rank = reason_rank(control, word);
    if (*rank >= 0) { /* another process of the node may have set it */
        rondo_loss_learn(control, *rank, (enum rondo_loss)(word >> 2 & 3));
    }
    return status;
}

/* ---- calls ---- */

/*
 * Readers of a line detect a change by seq: the writer sets seq to 0, stores every word with release, then
 * stores seq; a reader loads the words with acquire between two loads of seq. (Fences would do too, but
 * thread sanitizers do not understand them.) On x86 all of these are plain stores and loads. The writer
 * assembles the words from the fields instead of copying them: a wide load of fields that were just stored
 * would stall.
 */
static inline void line_begin(const struct rondo_control *control, struct rondo_record_line *line,
                              const struct rondo_call *call)
{
    uint64_t kind = (uint64_t)call->coll << 32 | (uint64_t)call->dtype << 40 |
                    UINT64_C(1) << RONDO_LINE_STATE_SHIFT;
    atomic_store_explicit(&line->word[RONDO_LINE_SEQ], 0, memory_order_relaxed);
    atomic_store_explicit(&line->word[RONDO_LINE_COUNT], call->count, memory_order_release);
    atomic_store_explicit(&line->word[RONDO_LINE_OP], call->word | (uint64_t)(uint32_t)call->op << 32,
                          memory_order_release);
    atomic_store_explicit(&line->word[RONDO_LINE_KIND], (uint32_t)call->root | kind, memory_order_release);
    atomic_store_explicit(&line->word[RONDO_LINE_BEGIN], rondo_record_ticks(control->clock),
                          memory_order_release);
    atomic_store_explicit(&line->word[RONDO_LINE_END], 0, memory_order_release);
    atomic_store_explicit(&line->word[RONDO_LINE_SEQ], call->seq, memory_order_release);
}

/* ticks 0: the end is not timed. */
static inline void line_end(struct rondo_record_line *line, uint64_t seq, uint64_t ticks)
{
    if (atomic_load_explicit(&line->word[RONDO_LINE_SEQ], memory_order_relaxed) == seq) {
        uint64_t kind = atomic_load_explicit(&line->word[RONDO_LINE_KIND], memory_order_relaxed);
        if (ticks != 0) {
            atomic_store_explicit(&line->word[RONDO_LINE_END], ticks, memory_order_release);
        }
        atomic_store_explicit(&line->word[RONDO_LINE_KIND],
                              (kind & ~(UINT64_C(0xff) << RONDO_LINE_STATE_SHIFT)) |
                                  UINT64_C(2) << RONDO_LINE_STATE_SHIFT,
                              memory_order_release);
    }
}

void rondo_control_call_begin(struct rondo_control *control, const struct rondo_call *call)
{
    line_begin(control, &control->own_rings->collective[call->seq & control->ring_mask], call);
    atomic_store_explicit(&control->own->calls.begun, call->seq, memory_order_release);
}

static inline void call_end(struct rondo_control *control, uint64_t seq, uint64_t ticks)
{
    line_end(&control->own_rings->collective[seq & control->ring_mask], seq, ticks);
    atomic_store_explicit(&control->own->calls.done, seq, memory_order_release);
}

void rondo_control_call_end(struct rondo_control *control, uint64_t seq) { call_end(control, seq, 0); }

void rondo_control_call_end_timed(struct rondo_control *control, uint64_t seq)
{
    call_end(control, seq, rondo_record_ticks(control->clock));
}

void rondo_control_message_begin(struct rondo_control *control, const struct rondo_call *message)
{
    if (control->clock != RONDO_CLOCK_OFF) {
        line_begin(control, &control->own_rings->message[message->seq % RONDO_RECORD_CALLS], message);
        atomic_store_explicit(&control->own->calls.messages, message->seq, memory_order_release);
    }
}

void rondo_control_message_end(struct rondo_control *control, uint64_t seq)
{
    if (control->clock != RONDO_CLOCK_OFF) {
        line_end(&control->own_rings->message[seq % RONDO_RECORD_CALLS], seq,
                 rondo_record_ticks(control->clock));
    }
}

void rondo_control_waiting(struct rondo_control *control, const struct rondo_blocked *blocked, int n,
                           const char *text)
{
    struct rondo_record_wait *wait = &control->own->wait;
    uint64_t stamp = atomic_load_explicit(&wait->stamp, memory_order_relaxed);
    if ((stamp & 1) != 0 ||
        !atomic_compare_exchange_strong_explicit(&wait->stamp, &stamp, stamp + 1, memory_order_acq_rel,
                                                 memory_order_relaxed)) {
        return; /* another thread of this rank writes it */
    }
    if (n == 0) {
        wait->since_ns = 0;
    } else if (wait->since_ns == 0 || (uint32_t)n != wait->nlanes ||
               memcmp(wait->lane, blocked, sizeof(*blocked) * (size_t)n) != 0) {
        wait->since_ns = rondo_now_ns();
        memcpy(wait->lane, blocked, sizeof(*blocked) * (size_t)n);
        snprintf(wait->text, sizeof(wait->text), "%s", text);
    }
    wait->nlanes = (uint32_t)n;
    wait->begun = atomic_load_explicit(&control->own->calls.begun, memory_order_relaxed);
    atomic_store_explicit(&wait->stamp, stamp + 2, memory_order_release);
}

int rondo_control_claim_report(struct rondo_control *control)
{
    return atomic_exchange_explicit(&control->head->reported, 1, memory_order_acq_rel) == 0;
}

static void line_unpack(const uint64_t *word, struct rondo_call *call)
{
    *call = (struct rondo_call){ .seq = word[RONDO_LINE_SEQ],
                                 .count = word[RONDO_LINE_COUNT],
                                 .word = (uint32_t)word[RONDO_LINE_OP],
                                 .op = (int32_t)(word[RONDO_LINE_OP] >> 32),
                                 .root = (int32_t)(uint32_t)word[RONDO_LINE_KIND],
                                 .coll = (uint8_t)(word[RONDO_LINE_KIND] >> 32),
                                 .dtype = (uint8_t)(word[RONDO_LINE_KIND] >> 40),
                                 .state = (uint8_t)(word[RONDO_LINE_KIND] >> RONDO_LINE_STATE_SHIFT) };
}

int rondo_control_last_call(struct rondo_control *control, int rank, int64_t since_ns,
                            struct rondo_call *call)
{
    if (rank >= 0 && rank < control->nranks && control->local_of[rank] < 0) {
        return control->wire ? rondo_wire_call_of(control, rank, 0, since_ns, call) : -1;
    }
    return rondo_control_call_of(control, rank, 0, call);
}

int rondo_control_call_of(struct rondo_control *control, int rank, uint64_t seq, struct rondo_call *call)
{
    int local = rank >= 0 && rank < control->nranks ? control->local_of[rank] : -1;
    if (local < 0) {
        return rank >= 0 && rank < control->nranks && control->wire &&
               rondo_wire_call_of(control, rank, seq, 0, call) > 0;
    }
    /* A rank that keeps calling may overwrite the line on every try: give up in the end. */
    for (int tries = 0; tries < 64; tries++) {
        uint64_t want = seq ? seq
                            : atomic_load_explicit(&control->blocks[local].calls.begun, memory_order_acquire);
        struct rondo_record_line *line = &control->rings[local].collective[want & control->ring_mask];
        uint64_t word[RONDO_LINE_BEGIN];
        for (int i = 0; i < RONDO_LINE_BEGIN; i++) {
            word[i] = atomic_load_explicit(&line->word[i], memory_order_acquire);
        }
        if (want == 0) {
            return 0;
        }
        if (word[RONDO_LINE_SEQ] == want &&
            atomic_load_explicit(&line->word[RONDO_LINE_SEQ], memory_order_relaxed) == want) {
            line_unpack(word, call);
            return 1;
        }
        if (seq && word[RONDO_LINE_SEQ] != 0 && word[RONDO_LINE_SEQ] != seq) {
            return 0; /* not in the ring; seq 0 would mean that the line is being written */
        }
    }
    return 0;
}

enum { MESSAGE_SET = 1, MESSAGE_SEND = 2, MESSAGE_DTYPE = 8, MESSAGE_PEER = 32, STUCK_RANK_BITS = 24 };

void rondo_control_message(struct rondo_control *control, const struct rondo_message *message)
{
    struct rondo_control_calls *calls = &control->own->calls;
    uint64_t word = 0;
    atomic_store_explicit(&calls->message, 0, memory_order_relaxed);
    if (message != NULL) {
        word = MESSAGE_SET | (message->is_send ? MESSAGE_SEND : 0) |
               (uint64_t)message->dtype << MESSAGE_DTYPE | (uint64_t)(uint32_t)message->peer << MESSAGE_PEER;
        atomic_store_explicit(&calls->message_count, message->count, memory_order_release);
    }
    atomic_store_explicit(&calls->message, word, memory_order_release);
}

int rondo_control_message_of(struct rondo_control *control, int rank, struct rondo_message *message)
{
    int local = rank >= 0 && rank < control->nranks ? control->local_of[rank] : -1;
    const struct rondo_control_calls *calls = local >= 0 ? &control->blocks[local].calls : NULL;
    uint64_t word = calls ? atomic_load_explicit(&calls->message, memory_order_acquire) : 0;
    if (word == 0) {
        return 0;
    }
    *message = (struct rondo_message){
        .count = atomic_load_explicit(&calls->message_count, memory_order_acquire),
        .peer = (int32_t)(uint32_t)(word >> MESSAGE_PEER),
        .is_send = (word & MESSAGE_SEND) != 0,
        .dtype = (uint8_t)(word >> MESSAGE_DTYPE),
    };
    return message->peer >= 0 && message->peer < control->nranks &&
           atomic_load_explicit(&calls->message, memory_order_relaxed) == word;
}

void rondo_control_stuck(struct rondo_control *control, uint64_t seq, int rank)
{
    atomic_store_explicit(&control->own->calls.stuck, seq << STUCK_RANK_BITS | (uint64_t)rank,
                          memory_order_release);
}

uint64_t rondo_control_stuck_of(struct rondo_control *control, int rank, int waited_for)
{
    int local = rank >= 0 && rank < control->nranks ? control->local_of[rank] : -1;
    uint64_t stuck = local >= 0
                         ? atomic_load_explicit(&control->blocks[local].calls.stuck, memory_order_acquire)
                         : 0;
    return (int)(stuck & ((1u << STUCK_RANK_BITS) - 1)) == waited_for ? stuck >> STUCK_RANK_BITS : 0;
}

/* ---- looking ---- */

/* Did this rank's death end the communicator? Others may have found it, on other nodes. Of a rank of this
 * node only its process tells: while it lives it may write into this one's memory. */
static int is_the_dead(const struct rondo_control *control, int rank)
{
    int lost;
    return rondo_control_loss(control, &lost) == RONDO_LOSS_DEAD && lost == rank;
}

enum rondo_rank_state rondo_control_state_of(struct rondo_control *control, int rank)
{
    int local = rank >= 0 && rank < control->nranks ? control->local_of[rank] : -1;
    if (local < 0) {
        int remote = rank >= 0 && rank < control->nranks && control->wire ? rondo_wire_state_of(control, rank)
                                                                          : RONDO_RANK_ALIVE;
        return remote == RONDO_RANK_LEFT    ? RONDO_RANK_LEFT
               : is_the_dead(control, rank) ? RONDO_RANK_DEAD
               : remote == RONDO_RANK_GONE  ? RONDO_RANK_LEFT
                                            : remote;
    }
    /* Load the watch's state first: a rank that left before it died has left. */
    int state = atomic_load_explicit(&control->watch[local].state, memory_order_acquire);
    return atomic_load_explicit(&control->blocks[local].life.state, memory_order_acquire) == RONDO_LIFE_LEFT
               ? RONDO_RANK_LEFT
               : state;
}

rondo_status rondo_control_progress(struct rondo_control *control, int *moved)
{
    enum { LOOK_NS = 10 * 1000 * 1000 };
    struct rondo_control_calls *calls = &control->own->calls;
    int64_t now = rondo_now_ns(), looked = atomic_load_explicit(&control->looked_ns, memory_order_relaxed);
    /* Not atomic: two threads that wait at once may lose a count. */
    atomic_store_explicit(&calls->waits, atomic_load_explicit(&calls->waits, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    if (now - looked >= LOOK_NS &&
        atomic_compare_exchange_strong_explicit(&control->looked_ns, &looked, now, memory_order_relaxed,
                                                memory_order_relaxed)) {
        rondo_control_look(control);
        if (control->wire) {
            rondo_wire_poll();
        }
    }
    return rondo_msg_drain(control, moved);
}
