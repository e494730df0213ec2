/*
 * Creations that do not block and are under way. They have no thread: each poll of another communicator and
 * each wait for a creation moves those that the calling thread has begun, because other ranks may ask for
 * theirs in another order, and wait for this rank's steps. What other threads have begun is theirs: a rank
 * that is a thread of this process does not move because another one polls.
 */
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "init/init.h"

/* A listed context exists: its end removes it first. The lock is the innermost one. */
static struct {
    pthread_mutex_t lock;
    struct rondo_ctx *first;
    int n; /* atomic */
} list = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The creations go on in the parent. */
static void in_child(void)
{
    (void)rondo_fork_lock(&list.lock);
    list.first = NULL;
    list.n = 0;
}
RONDO_AT_FORK(in_child)

/* ---- with the lock ---- */

static void append(struct rondo_ctx *ctx)
{
    struct rondo_ctx **at = &list.first;
    while (*at != NULL) {
        at = &(*at)->life.open_next;
    }
    *at = ctx;
    ctx->life.open_next = NULL;
}

static void drop(struct rondo_ctx *ctx)
{
    struct rondo_ctx **at = &list.first;
    while (*at != NULL && *at != ctx) {
        at = &(*at)->life.open_next;
    }
    if (*at != NULL) {
        *at = ctx->life.open_next;
        __atomic_sub_fetch(&list.n, 1, __ATOMIC_RELAXED);
    }
}

/* @return the first one, which becomes the last; it is visited. NULL: it is another thread's, is being ended,
 * or has ended, and is not listed any more. */
static struct rondo_ctx *take_turn(void)
{
    struct rondo_ctx *ctx = list.first, *visited;
    if (ctx == NULL) {
        return NULL;
    }
    if (__atomic_load_n(&ctx->life.state, __ATOMIC_ACQUIRE) != RONDO_COMM_INIT) {
        drop(ctx);
        return NULL;
    }
    list.first = ctx->life.open_next;
    append(ctx);
    return pthread_equal(ctx->job.thread, pthread_self()) && rondo_comm_visit_alive(ctx->shell, &visited)
               ? visited
               : NULL;
}

/* ---- the list ---- */

void rondo_open_add(struct rondo_ctx *ctx)
{
    pthread_mutex_lock(&list.lock);
    append(ctx);
    __atomic_store_n(&ctx->life.was_open, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&list.n, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&list.lock);
}

void rondo_open_remove(struct rondo_ctx *ctx)
{
    if (__atomic_load_n(&ctx->life.was_open, __ATOMIC_RELAXED)) {
        pthread_mutex_lock(&list.lock);
        drop(ctx);
        pthread_mutex_unlock(&list.lock);
    }
}

void rondo_open_step_all(void)
{
    char text[RONDO_ERROR_TEXT];
    int n = __atomic_load_n(&list.n, __ATOMIC_RELAXED);
    if (RONDO_LIKELY(n == 0)) {
        return;
    }
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    for (; n > 0 && pthread_mutex_trylock(&list.lock) == 0; n--) {
        struct rondo_ctx *ctx = take_turn();
        pthread_mutex_unlock(&list.lock);
        if (ctx != NULL) {
            const rondo_comm *shell = ctx->shell;
            (void)rondo_init_look_aside(ctx); /* an error is its own */
            rondo_comm_unvisit(shell);
        }
    }
    if (strcmp(text, rondo_error_text()) != 0) {
        rondo_fail_quiet(RONDO_SUCCESS, "%s", text);
    }
}
