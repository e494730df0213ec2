/* Which algorithm carries a call, and which one takes over where direct access fails. */
#ifndef RONDO_TUNER_SELECT_H
#define RONDO_TUNER_SELECT_H

#include "coll/algo.h"

/** All that a selection depends on. All ranks pass the same values. */
struct rondo_select_input {
    const struct rondo_layout *layout;
    const struct rondo_allowed *allowed;
    const struct rondo_choice *forced; /* run this whatever it costs; NULL: select */
    enum rondo_coll coll;
    size_t bytes;       /* of the larger user buffer of one rank */
    size_t mailbox;     /* payload bytes of one place of the mailbox; 0: no mailbox */
    int uneven;         /* blocks differ in length (v-forms) */
    int private_scalar; /* the operation multiplies by a scalar that other ranks do not know */
    int gpu;            /* GPU memory: the kernel itself falls back where direct access fails */
    int direct;         /* host memory: ranks of the node can have direct access to one another's buffers */
};

struct rondo_selection {
    struct rondo_choice primary;
    struct rondo_choice fallback; /* runs where direct access fails; nchannels 0: none */
};

/** @return RONDO_INVALID_USAGE when what the parameters allow cannot carry the call. */
rondo_status rondo_select(const struct rondo_select_input *in, struct rondo_selection *selection);

#endif
