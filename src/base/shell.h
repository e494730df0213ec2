/*
 * Shells: the handles of communicators and streams. A shell outlives what it stands for, so that a use after
 * the end is an error and not a crash, and a forked child's use of the parent's handle as well. The oldest
 * dead shell is reused first, after RONDO_SHELL_QUARANTINE others, so that a stale handle is recognised for a
 * long time. Shells stay valid until the library is unloaded.
 */
#ifndef RONDO_BASE_SHELL_H
#define RONDO_BASE_SHELL_H

#include "base/status.h"

enum { RONDO_SHELL_DEAD = 0x64656164, RONDO_SHELL_FORKED = 0x666f726b, RONDO_SHELL_QUARANTINE = 1024 };

/* The first member of a shell. */
struct rondo_shell {
    uint32_t magic;           /* atomic; the kind's own value: alive; 0: not yet; RONDO_SHELL_... */
    uint32_t index;           /* in the kind's `used` */
    struct rondo_shell *next; /* in quarantine */
};

/* All shells of a kind. */
struct rondo_shells {
    size_t bytes;
    const char *what;          /* for an error of allocation */
    uint32_t alive_magic;      /* differs from that of other kinds */
    void (*forked)(void);      /* NULL, or called in a forked child */
    struct rondo_shell **used; /* not in quarantine */
    int nused, capacity;
    struct rondo_shell *dead_first, *dead_last;
    int ndead;
    struct rondo_shells *next; /* of all kinds */
    int listed;
};

/** A new shell of the kind's bytes: zeros, and not alive yet. */
rondo_status rondo_shell_create(struct rondo_shells *kind, void **shell);
/** Put a dead shell in quarantine. */
void rondo_shell_bury(struct rondo_shells *kind, struct rondo_shell *shell);
/** Count the shells of this process that are not in quarantine. */
int rondo_shells_in_use(const struct rondo_shells *kind);
/** Call visit for the shells that are alive until it returns 1. None is buried meanwhile; visit must not
 * wait. */
void rondo_shells_visit(struct rondo_shells *kind, int (*visit)(void *arg, struct rondo_shell *shell),
                        void *arg);
/** Make the shell alive: the user gets it. */
static inline void rondo_shell_publish(const struct rondo_shells *kind, struct rondo_shell *shell)
{
    __atomic_store_n(&shell->magic, kind->alive_magic, __ATOMIC_RELEASE);
}
/** Turn the shell from alive to dead. @return 1: for one caller only. */
static inline int rondo_shell_kill(const struct rondo_shells *kind, struct rondo_shell *shell)
{
    uint32_t alive = kind->alive_magic;
    return __atomic_compare_exchange_n(&shell->magic, &alive, RONDO_SHELL_DEAD, 0, __ATOMIC_SEQ_CST,
                                       __ATOMIC_ACQUIRE);
}

#endif
