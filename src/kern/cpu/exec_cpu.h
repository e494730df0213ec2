/* What the parts of the CPU executor share: exec_cpu.c (lanes, conns), exec_cpu_mailbox.c (one-shot),
 * exec_cpu_direct.c (open buffers), exec_cpu_hierarchical.c (by groups). */
#ifndef RONDO_KERN_CPU_EXEC_CPU_H
#define RONDO_KERN_CPU_EXEC_CPU_H

#include "kern/exec.h"
#include "kern/reduce.h"

/* A tile is what passes from sources to several destinations while it lies in the first-level cache: whole LL
 * units, whole LL128 lines. */
enum { RONDO_TILE_BYTES = 7680, RONDO_MAX_SOURCES = RONDO_TREE_FAN + 1 };

struct rondo_lane {
    struct rondo_run *first, *last;
};

struct rondo_exec {
    const struct rondo_exec_owner *owner;
    int nlanes, nactive;
    struct rondo_lane *lane;
    int *active;          /* lanes that have runs, in the order in which they became active */
    const void **sources; /* mailbox, open buffers: a pointer per rank */
    uint8_t **targets;    /* open buffers: the same */
    int max_sources;
    int looks; /* at a mailbox's word that is not there yet, before a step counts as blocked */
    uint8_t (*tile)[RONDO_TILE_BYTES]; /* RONDO_MAX_SOURCES + 1 of them */
};

/* Steps return 1: passed, 0: blocked, -1: *status is an error. */

/* ---- the mailbox ---- */

/** Begin this rank's next post. @return its place: its payload lies behind the arrival word, or where
 * rondo_mailbox_at says. */
uint8_t *rondo_mailbox_begin(struct rondo_mailbox *mailbox);
/** It is written: everyone may see it. */
void rondo_mailbox_publish(struct rondo_mailbox *mailbox, uint32_t call_word);
/** Has everyone posted? flow->unit: ranks whose post was seen, 0 before the first look; the posts' payloads,
 * which lie at `at` in their places, are in exec->sources then. */
int rondo_mailbox_collect(struct rondo_exec *exec, const struct rondo_work *w, struct rondo_flow *flow,
                          size_t at, rondo_status *status);
/** This rank is about to touch others' buffers, for a slice. @return 0: it may not, ever: a rank has taken
 * its own back. Else rondo_mailbox_leave follows soon. */
int rondo_mailbox_enter(const struct rondo_mailbox *mailbox);
void rondo_mailbox_leave(const struct rondo_mailbox *mailbox);
/** This rank takes its buffers back, for good: once it returns nobody touches them, but for those that the
 * owner does not wait for (exec.h). */
void rondo_mailbox_revoke(const struct rondo_mailbox *mailbox, const struct rondo_exec_owner *owner);
/** The word at a place of the mailbox: as soon as it is `op`'s, or when it is looked at no more. */
static inline uint64_t rondo_mailbox_look(struct rondo_exec *exec, const uint8_t *place, uint32_t op)
{
    uint64_t word = __atomic_load_n((const uint64_t *)(const void *)place, __ATOMIC_ACQUIRE);
    while (RONDO_UNLIKELY((uint32_t)word != op && exec->looks > 0)) {
        exec->looks--;
        word = __atomic_load_n((const uint64_t *)(const void *)place, __ATOMIC_ACQUIRE);
    }
    return word;
}
/** Say how far this rank has come in the call under way, to those who look: what it wrote before is seen
 * then. 0 before OPEN's post. */
void rondo_mailbox_report(const struct rondo_mailbox *mailbox, uint32_t count);
/** Has a rank come so far? */
int rondo_mailbox_reached(const struct rondo_mailbox *mailbox, int rank, uint32_t count);
/** One-shot: POST_ALL, RECV_ALL. flow->unit: the local rank that is waited for. */
int rondo_oneshot_publish(const struct rondo_work *w, struct rondo_flow *flow);
int rondo_oneshot_collect(struct rondo_exec *exec, const struct rondo_work *w, struct rondo_flow *flow,
                          rondo_reduce_fn *reduce, rondo_status *status);
/** What a step does with posts; NULL: it copies them. */
rondo_reduce_fn *rondo_shot_reduce(const struct rondo_work *w, const struct rondo_step *step);
/** The same without steps (exec.h). */
void rondo_shot_begin(struct rondo_run *run);
int rondo_shot_publish(struct rondo_run *run);
int rondo_shot_collect(struct rondo_exec *exec, struct rondo_run *run, int looks, rondo_status *status);

/* ---- open buffers: OPEN, what lies between, CLOSE ---- */

enum { RONDO_DIRECT_ACTS = RONDO_OPEN | RONDO_CLOSE | RONDO_PULL | RONDO_PULL_ROOT | RONDO_GROUPS };
int rondo_direct_step(struct rondo_exec *exec, struct rondo_run *run, struct rondo_flow *flow,
                      rondo_status *status, int *moved);
/** Are results stored past the caches? Not in place: what was just read is in the caches already. */
static inline int rondo_past_caches(const struct rondo_work *w) { return w->stream && w->in != w->out; }
/** The work's, of n ranks' exec->sources. */
static inline struct rondo_reduction rondo_work_reduction(struct rondo_exec *exec, const struct rondo_work *w,
                                                          int n)
{
    return (struct rondo_reduction){ .type = (rondo_dtype)w->dtype,
                                     .op = (enum rondo_reduce)w->reduce,
                                     .divisor = w->divide ? w->seat.nranks : 0,
                                     .nsrcs = n,
                                     .srcs = exec->sources };
}
/** Reduce n elements of nsrcs ranks' exec->sources to the targets by other stores than usual where these are
 * faster; not in place, where the reduction has just read the lines that it writes. @return 0: nothing was
 * done. */
int rondo_reduce_apart(struct rondo_exec *exec, const struct rondo_work *w, int nsrcs, uint8_t *const *dsts,
                       int ndsts, size_t n);
/** A move with GROUPS (exec_cpu_hierarchical.c). flow->done: blocks passed; flow->unit: the local rank that
 * is waited for. */
int rondo_hierarchical_move(struct rondo_exec *exec, struct rondo_run *run, struct rondo_flow *flow,
                            rondo_status *status, int *moved);

#endif
