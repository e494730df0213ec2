#include "base/shell.h"

#include <pthread.h>
#include <string.h>

#include "base/array.h"
#include "base/mem.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rondo_shells *kinds;

/* ---- forks ---- */

static void before_fork(void) { pthread_mutex_lock(&lock); }

static void after_fork(void) { pthread_mutex_unlock(&lock); }

/* What the shells stand for is shared with the parent: the child has only their handles. */
static void in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    for (struct rondo_shells *kind = kinds; kind != NULL; kind = kind->next) {
        for (int i = 0; i < kind->nused; i++) {
            kind->used[i]->magic = RONDO_SHELL_FORKED;
        }
        kind->nused = 0;
        if (kind->forked != NULL) {
            kind->forked();
        }
    }
}

static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

/* ---- creation and end ---- */

static void list(struct rondo_shells *kind)
{
    if (!kind->listed) {
        kind->listed = 1;
        kind->next = kinds;
        kinds = kind;
    }
}

/* With the lock held. */
static struct rondo_shell *take_oldest(struct rondo_shells *kind)
{
    struct rondo_shell *shell = kind->ndead > RONDO_SHELL_QUARANTINE ? kind->dead_first : NULL;
    if (shell != NULL) {
        kind->dead_first = shell->next;
        kind->ndead--;
    }
    return shell;
}

/* With the lock. */
static rondo_status use(struct rondo_shells *kind, struct rondo_shell *shell)
{
    RONDO_TRY(RONDO_ARRAY_GROW(kind->used, kind->nused, kind->capacity, kind->what));
    shell->index = (uint32_t)kind->nused;
    kind->used[kind->nused++] = shell;
    return RONDO_SUCCESS;
}

rondo_status rondo_shell_create(struct rondo_shells *kind, void **shell_out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct rondo_shell *shell;
    rondo_status status;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    list(kind);
    shell = take_oldest(kind);
    pthread_mutex_unlock(&lock);
    if (shell == NULL) {
        void *memory;
        RONDO_TRY(rondo_calloc(&memory, 1, kind->bytes, kind->what));
        shell = memory;
    }
    memset(shell, 0, kind->bytes);
    pthread_mutex_lock(&lock);
    status = use(kind, shell);
    pthread_mutex_unlock(&lock);
    if (status != RONDO_SUCCESS) {
        rondo_free(shell);
        return status;
    }
    *shell_out = shell;
    return RONDO_SUCCESS;
}

void rondo_shell_bury(struct rondo_shells *kind, struct rondo_shell *shell)
{
    pthread_mutex_lock(&lock);
    kind->used[shell->index] = kind->used[--kind->nused];
    kind->used[shell->index]->index = shell->index;
    shell->next = NULL;
    if (kind->dead_first == NULL) {
        kind->dead_first = shell;
    } else {
        kind->dead_last->next = shell;
    }
    kind->dead_last = shell;
    kind->ndead++;
    pthread_mutex_unlock(&lock);
}

void rondo_shells_visit(struct rondo_shells *kind, int (*visit)(void *arg, struct rondo_shell *shell),
                        void *arg)
{
    int ended = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < kind->nused && !ended; i++) {
        struct rondo_shell *shell = kind->used[i];
        if (__atomic_load_n(&shell->magic, __ATOMIC_ACQUIRE) == kind->alive_magic) {
            ended = visit(arg, shell);
        }
    }
    pthread_mutex_unlock(&lock);
}

__attribute__((destructor)) static void free_dead(void)
{
    for (struct rondo_shells *kind = kinds; kind != NULL; kind = kind->next) {
        while (kind->dead_first != NULL) {
            struct rondo_shell *next = kind->dead_first->next;
            rondo_free(kind->dead_first);
            kind->dead_first = next;
        }
        if (kind->nused == 0) {
            rondo_free(kind->used);
        }
    }
}

int rondo_shells_in_use(const struct rondo_shells *kind)
{
    int n;
    pthread_mutex_lock(&lock);
    n = kind->nused;
    pthread_mutex_unlock(&lock);
    return n;
}
