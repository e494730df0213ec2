/* Private header of the CPU executor: exec_cpu.c (lanes, connections), exec_cpu_mailbox.c (one-shot),
 * exec_cpu_direct.c (direct access), exec_cpu_cma.c (copies by the kernel) and exec_cpu_hierarchical.c. */
#ifndef RONDO_KERN_CPU_EXEC_CPU_H
#define RONDO_KERN_CPU_EXEC_CPU_H

#include "kern/exec.h"
#include "kern/reduce.h"

/* A tile fits the first-level cache while it goes from its sources to several destinations. It is a multiple
 * of LL units and LL128 lines. */
enum { RONDO_TILE_BYTES = 7680, RONDO_MAX_SOURCES = RONDO_TREE_FAN + 1 };

struct rondo_lane {
    struct rondo_run *first, *last;
};

struct rondo_exec {
    const struct rondo_exec_owner *owner;
    int nlanes, nactive;
    struct rondo_lane *lane;
    int *active;          /* lanes that have runs, oldest first */
    const void **sources; /* mailbox, direct access: a pointer per rank */
    uint8_t **targets;    /* direct access: the same */
    int max_sources;
    int looks; /* how often to look at a mailbox word again before the step counts as blocked */
    uint8_t (*tile)[RONDO_TILE_BYTES]; /* the calling thread's: RONDO_MAX_SOURCES + 1 of them */
    struct rondo_evening {             /* of the ranks on the cores */
        int64_t next_ns, pause_ns;     /* the next look; the pause after the last move */
        int seen;                      /* the last look found them uneven */
    } evening;
};

/* Steps return 1: passed, 0: blocked, -1: *status is an error. */

/* ---- the mailbox ---- */

/** Begin this rank's next message. @return its place; the payload lies at rondo_mailbox_at. */
uint8_t *rondo_mailbox_begin(struct rondo_mailbox *mailbox);
/** Publish the message: everyone may read it. */
void rondo_mailbox_publish(struct rondo_mailbox *mailbox, uint32_t call_word);
/** Look for every rank's message. flow->unit counts the ranks whose message arrived; start with 0. Then
 * exec->sources points to the payloads, which lie at offset `at` of the places. @return as steps. */
int rondo_mailbox_collect(struct rondo_exec *exec, const struct rondo_work *w, struct rondo_flow *flow,
                          size_t at, rondo_status *status);
/** Announce that this rank is going to touch other ranks' buffers; call rondo_mailbox_leave after each slice.
 * @return 0: not allowed any more, because a rank has revoked access. */
int rondo_mailbox_enter(const struct rondo_mailbox *mailbox);
void rondo_mailbox_leave(const struct rondo_mailbox *mailbox);
/** Revoke access to this rank's buffers for good. Once it returns nobody touches them, except ranks that the
 * owner has given up (exec.h). */
void rondo_mailbox_revoke(const struct rondo_mailbox *mailbox, const struct rondo_exec_owner *owner);
/** The word at a place of the mailbox. Looks again, exec->looks times in all, until it is `op`'s. */
static inline uint64_t rondo_mailbox_look(struct rondo_exec *exec, const uint8_t *place, uint32_t op)
{
    uint64_t word = __atomic_load_n((const uint64_t *)(const void *)place, __ATOMIC_ACQUIRE);
    while (RONDO_UNLIKELY((uint32_t)word != op && exec->looks > 0)) {
        exec->looks--;
        word = __atomic_load_n((const uint64_t *)(const void *)place, __ATOMIC_ACQUIRE);
    }
    return word;
}
/** Announce how far this rank has come in the current call: whoever sees the count sees what was written
 * before, and nothing that was read before is read later. It is 0 before OPEN publishes. */
void rondo_mailbox_report(const struct rondo_mailbox *mailbox, uint32_t count);
/** Has a rank reached this count? */
int rondo_mailbox_reached(const struct rondo_mailbox *mailbox, int rank, uint32_t count);
/** The acts PUBLISH and COLLECT. flow->unit is the local rank that the step waits for. */
int rondo_oneshot_publish(const struct rondo_work *w, struct rondo_flow *flow);
int rondo_oneshot_collect(struct rondo_exec *exec, const struct rondo_work *w, struct rondo_flow *flow,
                          rondo_reduce_fn *reduce, rondo_status *status);
/** The same where each rank reduces a share of the elements (two-shot). */
int rondo_mail_twoshot_publish(const struct rondo_run *run, const struct rondo_flow *flow);
int rondo_mail_twoshot_collect(struct rondo_exec *exec, const struct rondo_run *run, struct rondo_flow *flow,
                               rondo_reduce_fn *reduce, rondo_status *status);
/** Do the ranks whose messages the step waits for run on other cores than this thread? If not, and its core
 * has two ranks more than another that it may use, it moves there. @return 0 also on a core with more ranks
 * than the others: it should yield. */
int rondo_mailbox_elsewhere(struct rondo_exec *exec, const struct rondo_work *w,
                            const struct rondo_flow *flow);
/** The reduction of a step; NULL: it copies. */
rondo_reduce_fn *rondo_shot_reduce(const struct rondo_work *w, const struct rondo_step *step);
/** The same without steps (exec.h). */
void rondo_shot_begin(struct rondo_run *run);
int rondo_shot_publish(struct rondo_run *run);
int rondo_shot_collect(struct rondo_exec *exec, struct rondo_run *run, int looks, rondo_status *status);

/* ---- direct access: OPEN, the moves, CLOSE ---- */

enum { RONDO_DIRECT_ACTS = RONDO_OPEN | RONDO_CLOSE | RONDO_PULL | RONDO_PULL_ROOT | RONDO_GROUPS };
int rondo_direct_step(struct rondo_exec *exec, struct rondo_run *run, struct rondo_flow *flow,
                      rondo_status *status, int *moved);
/** Are results stored past the caches? Not in place: the caches hold the lines that were just read. */
static inline int rondo_past_caches(const struct rondo_work *w) { return w->stream && w->in != w->out; }
/** The work's reduction of n ranks' exec->sources. */
static inline struct rondo_reduction rondo_work_reduction(struct rondo_exec *exec, const struct rondo_work *w,
                                                          int n)
{
    return (struct rondo_reduction){ .type = (rondo_dtype)w->dtype,
                                     .op = (enum rondo_reduce)w->reduce,
                                     .divisor = w->divide ? w->seat.nranks : 0,
                                     .nsrcs = n,
                                     .srcs = exec->sources };
}
/** Reduce n elements of exec->sources to the targets with non-temporal stores, where these are faster: not in
 * place. @return 0: nothing was done. */
int rondo_reduce_apart(struct rondo_exec *exec, const struct rondo_work *w, int nsrcs, uint8_t *const *dsts,
                       int ndsts, size_t n);
/** A move with GROUPS (exec_cpu_hierarchical.c). flow->done counts blocks; flow->unit is the local rank that
 * it waits for. */
int rondo_hierarchical_move(struct rondo_exec *exec, struct rondo_run *run, struct rondo_flow *flow,
                            rondo_status *status, int *moved);

/* ---- profiles (exec_cpu_profile.c): of runs whose `prof` is not NULL ---- */

/** The run is about to advance: it begins, unless direct access is not decided yet. */
void rondo_profile_advance(const struct rondo_exec *exec, struct rondo_run *run);
/** The run has ended, or is dropped. */
void rondo_profile_end(const struct rondo_exec *exec, struct rondo_run *run, int given_up);
/** Tell the stage of the slice that passes in this step. */
void rondo_profile_slice(const struct rondo_exec *exec, const struct rondo_run *run,
                         const struct rondo_step *step, enum rondo_prof_stage stage, size_t bytes);

#endif
