/* Rounds after a deadline: who is missing? rounds.h says how ranks find out. */
#include "net/bootstrap/rounds.h"

#include <string.h>

#include "base/mem.h"

enum { PROBES = RONDO_ROUNDS_NAMES + 4 * RONDO_SUBTREE_ARITY };

/* A rank below this one that was asked, or that asked. */
struct probe {
    int32_t rank;
    uint8_t blamed; /* the round waits for it: if it is silent, it is missing */
    uint8_t has_list;
    enum { PROBE_NEW, PROBE_ASKED, PROBE_HERE, PROBE_DONE, PROBE_SILENT } state;
    int64_t since_ns;
};

struct rondo_rounds_late {
    int64_t begin_ns, report_ns, tell_ns; /* report_ns: when to report at the latest */
    int up, is_up; /* whom this rank asks above itself: -1: nobody is left; it answered */
    int64_t up_ns; /* when it was asked; 0: not yet */
    int parent_silent;
    int guardian; /* who wants a report: -1: nobody yet */
    int reported, final, listed;
    int nprobes, nmissing;
    struct probe probe[PROBES];
    int32_t missing[RONDO_ROUNDS_NAMES]; /* ascending */
};

/* ---- the list ---- */

static void add_missing(struct rondo_rounds_late *late, int rank)
{
    int at = late->nmissing;
    while (at > 0 && late->missing[at - 1] > rank) {
        at--;
    }
    if (late->nmissing == RONDO_ROUNDS_NAMES || (at > 0 && late->missing[at - 1] == rank)) {
        return;
    }
    memmove(&late->missing[at + 1], &late->missing[at], sizeof(int32_t) * (size_t)(late->nmissing - at));
    late->missing[at] = rank;
    late->nmissing++;
}

static void drop_missing(struct rondo_rounds_late *late, int rank)
{
    for (int i = 0; i < late->nmissing; i++) {
        if (late->missing[i] == rank) {
            late->nmissing--;
            memmove(&late->missing[i], &late->missing[i + 1], sizeof(int32_t) * (size_t)(late->nmissing - i));
            return;
        }
    }
}

/* The note comes from a peer, and its ranks index tables. */
static void take_list(struct rondo_rounds *r, const struct rondo_rounds_note *note)
{
    for (uint32_t i = 0; i < note->value && i < RONDO_ROUNDS_NAMES; i++) {
        if (note->u.ranks[i] >= 0 && note->u.ranks[i] < r->n) {
            add_missing(r->late, note->u.ranks[i]);
        }
    }
}

/* ---- beginning ---- */

static struct probe *probe_of(struct rondo_rounds_late *late, int rank)
{
    for (int i = 0; i < late->nprobes; i++) {
        if (late->probe[i].rank == rank) {
            return &late->probe[i];
        }
    }
    return NULL;
}

static struct probe *add_probe(struct rondo_rounds_late *late, int rank, int blamed)
{
    struct probe *probe = probe_of(late, rank);
    if (probe == NULL && late->nprobes < PROBES) {
        probe = &late->probe[late->nprobes++];
        *probe = (struct probe){ .rank = rank, .blamed = (uint8_t)blamed };
    }
    return probe;
}

/* Does this round wait for a child? Either its piece has not come, or it takes none of what there is. */
static int waits_for(struct rondo_rounds *r, int child)
{
    const struct rondo_rounds_flow *out = rondo_rounds_open_flow(r->out, r->nout, child);
    if (r->phase == RONDO_ROUNDS_GATHER) {
        return rondo_rounds_open_flow(r->in, r->nin, child) != NULL;
    }
    return out != NULL && (!out->follows || r->in[0].finished || out->done < r->in[0].done);
}

static rondo_status late_begin(struct rondo_rounds *r, int64_t now)
{
    struct rondo_rounds_late *late;
    RONDO_TRY(RONDO_NEW(late, "the search for missing ranks"));
    r->late = late;
    late->begin_ns = now;
    late->report_ns = now + RONDO_ROUNDS_DOWN;
    late->up = r->place.parent;
    late->guardian = -1;
    if (r->phase == RONDO_ROUNDS_EXCHANGE) {
        for (int i = 0; i < r->nin; i++) {
            if (!r->in[i].finished) {
                add_missing(late, r->in[i].rank);
            }
        }
        late->final = late->listed = 1;
        return RONDO_SUCCESS;
    }
    for (int i = 0; i < r->place.nchildren; i++) {
        add_probe(late, r->place.child[i], waits_for(r, r->place.child[i]));
    }
    return RONDO_SUCCESS;
}

/* ---- notes ---- */

static int say(struct rondo_rounds *r, int rank, enum rondo_rounds_kind kind, uint32_t value)
{
    struct rondo_rounds_note note = { .kind = kind, .round = r->round, .value = value };
    if (kind == RONDO_ROUNDS_LIST || kind == RONDO_ROUNDS_REPORT) {
        note.value = (uint32_t)r->late->nmissing;
        memcpy(note.u.ranks, r->late->missing, sizeof(int32_t) * note.value);
    }
    rondo_status status = r->ops->say(r->arg, rank, &note);
    r->nnotes += status == RONDO_SUCCESS;
    return status != RONDO_IN_PROGRESS;
}

static void on_query(struct rondo_rounds *r, const struct rondo_rounds_note *note, int64_t now)
{
    int64_t until = now + (int64_t)note->value * 1000000;
    say(r, note->from, RONDO_ROUNDS_HERE, 0);
    r->late->report_ns = until < r->late->report_ns ? until : r->late->report_ns;
    r->late->guardian = note->from;
    r->late->reported = 0;
    if (r->phase == RONDO_ROUNDS_EXCHANGE) { /* no rank waits for those below it */
        struct rondo_rounds_note none = { .kind = RONDO_ROUNDS_REPORT, .round = r->round };
        r->ops->say(r->arg, note->from, &none);
        r->late->reported = 1;
    }
    r->late->is_up = 1;
}

static void on_who(struct rondo_rounds *r, const struct rondo_rounds_note *note)
{
    struct probe *probe = add_probe(r->late, note->from, 0);
    say(r, note->from, RONDO_ROUNDS_HERE, 0);
    if (probe && probe->state == PROBE_SILENT) {
        drop_missing(r->late, note->from);
        probe->state = PROBE_NEW;
    }
}

static void on_answer(struct rondo_rounds *r, const struct rondo_rounds_note *note)
{
    struct rondo_rounds_late *late = r->late;
    struct probe *probe = probe_of(late, note->from);
    if (note->from < r->place.rank && note->kind == RONDO_ROUNDS_HERE) {
        late->is_up = 1;
        late->parent_silent = late->parent_silent && note->from != r->place.parent;
    }
    if (probe && probe->state != PROBE_DONE) {
        if (probe->state == PROBE_SILENT) {
            drop_missing(late, note->from);
        }
        probe->state = note->kind == RONDO_ROUNDS_REPORT ? PROBE_DONE : PROBE_HERE;
        if (note->kind == RONDO_ROUNDS_REPORT) {
            take_list(r, note);
        }
    }
}

/* The sender may be a round ahead or behind: whose deadline has passed ends the rounds of all. */
rondo_status rondo_rounds_on_note(struct rondo_rounds *r, const struct rondo_rounds_note *note, int64_t now)
{
    int from_above = rondo_subtree_is_above(note->from, r->place.rank, r->n);
    if (note->from < 0 || note->from >= r->n ||
        (!from_above && !rondo_subtree_has_below(&r->place, note->from))) {
        return RONDO_SUCCESS; /* no such rank has a say */
    }
    if (r->late == NULL) {
        RONDO_TRY(late_begin(r, now));
    }
    if (note->kind == RONDO_ROUNDS_LIST && from_above && !r->late->final) {
        r->late->nmissing = 0;
        take_list(r, note);
        r->late->final = r->told = 1;
        r->late->tell_ns = now;
    } else if (note->kind == RONDO_ROUNDS_QUERY && from_above) {
        on_query(r, note, now);
    } else if (note->kind == RONDO_ROUNDS_WHO && !from_above) {
        on_who(r, note);
    } else if (note->kind == RONDO_ROUNDS_HERE || note->kind == RONDO_ROUNDS_REPORT) {
        on_answer(r, note);
    }
    return RONDO_TIMEOUT; /* the caller calls `missing`, which asks and answers */
}

/* ---- asking ---- */

/* A rank is silent: it is missing if the round waits for it, and its children are asked in its place. */
static void call_silent(struct rondo_rounds *r, struct probe *probe)
{
    struct rondo_subtree place = rondo_subtree_of(probe->rank, r->n);
    probe->state = PROBE_SILENT;
    if (!probe->blamed) {
        return;
    }
    add_missing(r->late, probe->rank);
    for (int i = 0; i < place.nchildren; i++) {
        add_probe(r->late, place.child[i], 1);
    }
}

/* @return the number of ranks below whose answers are still to come. */
static int ask_below(struct rondo_rounds *r, int64_t now)
{
    struct rondo_rounds_late *late = r->late;
    int64_t ms = (late->report_ns - now - RONDO_ROUNDS_GAP) / 1000000;
    int open = 0;
    for (int i = 0; i < late->nprobes; i++) { /* call_silent adds to the end */
        struct probe *probe = &late->probe[i];
        if (probe->state == PROBE_NEW && say(r, probe->rank, RONDO_ROUNDS_QUERY, ms > 0 ? (uint32_t)ms : 0)) {
            probe->state = PROBE_ASKED;
            probe->since_ns = now;
        } else if (probe->state == PROBE_NEW && now - late->begin_ns >= RONDO_ROUNDS_STEP) {
            call_silent(r, probe); /* its inbox has no room: it has not looked into it for long */
        } else if (probe->state == PROBE_ASKED && now - probe->since_ns >= RONDO_ROUNDS_STEP) {
            call_silent(r, probe);
        }
        open += probe->state != PROBE_DONE && probe->state != PROBE_SILENT;
    }
    return open;
}

static void ask_above(struct rondo_rounds *r, int64_t now)
{
    struct rondo_rounds_late *late = r->late;
    if (late->is_up || late->up < 0) {
        return;
    }
    if (late->up_ns == 0) {
        late->up_ns = now;
        say(r, late->up, RONDO_ROUNDS_WHO, 0);
    } else if (now - late->up_ns >= RONDO_ROUNDS_STEP) {
        late->parent_silent |= late->up == r->place.parent;
        late->up = rondo_subtree_of(late->up, r->n).parent;
        late->up_ns = 0;
        ask_above(r, now);
    }
}

/* Make the list here: nobody above does. */
static void finish_alone(struct rondo_rounds *r, int64_t now)
{
    if (r->late->parent_silent) {
        add_missing(r->late, r->place.parent);
    }
    r->late->final = r->told = 1;
    r->late->tell_ns = now;
}

/* @return 1: all who answered have the list. */
static int tell_list(struct rondo_rounds *r)
{
    int open = 0;
    for (int i = 0; i < r->late->nprobes; i++) {
        struct probe *probe = &r->late->probe[i];
        probe->has_list = probe->has_list || say(r, probe->rank, RONDO_ROUNDS_LIST, 0);
        open += !probe->has_list;
    }
    return !open;
}

static void search(struct rondo_rounds *r, int64_t now)
{
    struct rondo_rounds_late *late = r->late;
    int top = !late->is_up && late->up < 0, open = ask_below(r, now),
        done = open == 0 || now >= late->report_ns;
    ask_above(r, now);
    if ((top && done) || now - late->begin_ns >= RONDO_ROUNDS_LIMIT) {
        finish_alone(r, now);
    } else if (done && late->guardian >= 0 && !late->reported) {
        late->reported = say(r, late->guardian, RONDO_ROUNDS_REPORT, 0);
    }
}

rondo_status rondo_rounds_missing(struct rondo_rounds *r, int64_t now, int *ranks, int max, int *n)
{
    rondo_status status;
    if (r->heard != NULL) {
        return rondo_rounds_heard(r);
    }
    if (r->late == NULL) {
        RONDO_TRY(late_begin(r, now));
    }
    r->ended = r->ended == RONDO_SUCCESS ? RONDO_TIMEOUT : r->ended;
    do {
        status = r->late->final ? RONDO_SUCCESS : rondo_rounds_listen(r, now);
    } while (status == RONDO_TIMEOUT && r->heard == NULL);
    RONDO_TRY(status);
    if (!r->late->final) {
        search(r, now);
    }
    if (r->late->final && !r->late->listed) {
        r->late->listed = tell_list(r) || now - r->late->tell_ns >= RONDO_ROUNDS_TELL;
    }
    if (!r->late->listed) {
        return RONDO_IN_PROGRESS;
    }
    *n = 0;
    for (int i = 0; i < r->late->nmissing && *n < max; i++) {
        ranks[(*n)++] = r->late->missing[i];
    }
    return RONDO_SUCCESS;
}

int64_t rondo_rounds_late_wake(const struct rondo_rounds *r)
{
    const struct rondo_rounds_late *late = r->late;
    int64_t wake = late->begin_ns + RONDO_ROUNDS_LIMIT, at;
    if (late->final) {
        return late->tell_ns;
    }
    for (int i = 0; i < late->nprobes; i++) {
        at = (late->probe[i].state == PROBE_ASKED ? late->probe[i].since_ns : late->begin_ns) +
             RONDO_ROUNDS_STEP;
        wake = late->probe[i].state <= PROBE_ASKED && at < wake ? at : wake;
    }
    if (!late->is_up && late->up >= 0 && late->up_ns + RONDO_ROUNDS_STEP < wake) {
        wake = late->up_ns + RONDO_ROUNDS_STEP;
    }
    int reports = late->up < 0 || (late->guardian >= 0 && !late->reported);
    return reports && late->report_ns < wake ? late->report_ns : wake;
}
