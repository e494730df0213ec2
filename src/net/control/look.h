/*
 * How rondo-doctor asks the ranks of another node what they do: through the control plane's listeners, which
 * answer while the ranks hang.
 *
 *     rondo-doctor                                     a process of another node
 *     hello: a communicator and a rank of it in
 *            that process, what to look at       --->
 *                                                <---  welcome
 *     proof                                      --->
 *                                                <---  what is seen there (a stack: its text), end of stream
 *
 * The first three are the handshake of net/auth.h. Addresses and the secret are in the control segment of a
 * rank of the doctor's own host (struct rondo_control_place), which this user alone can read. So who proves
 * the secret may see what the ranks of this user do.
 *
 * The listener only judges the handshake; a thread of its own answers, for heartbeats must go on meanwhile.
 * It ends with the process's last communicator, and when the doctor does not read for RONDO_LOOK_NS.
 */
#ifndef RONDO_NET_CONTROL_LOOK_H
#define RONDO_NET_CONTROL_LOOK_H

#include "net/auth.h"

enum {
    RONDO_LOOK_MAGIC = 0x6b6c7772,
    RONDO_LOOK_VERSION = 1,
    RONDO_LOOKS = 4,         /* questions that a process answers at a time */
    RONDO_LOOK_WELCOMED = 8, /* connections that have yet to prove themselves */
    RONDO_LOOK_SAMPLE_MS = 60000
};
#define RONDO_LOOK_NS (5 * INT64_C(1000000000))

/* What to look at. */
struct rondo_look {
    int sample_ms; /* how long to watch what the ranks use of a core */
    int all;      /* all ranks of this user there; 0: those that share communicators with the process asked */
    int stacks;   /* and at their stacks */
    int stack_of; /* at nothing but the stack of this process; 0: none */
    const _Atomic int *ended; /* for the answer: nobody wants it any more */
};

/** Write the question into a hello, which has the ends and the nonce besides. */
void rondo_look_ask(const struct rondo_look *look, struct rondo_auth_hello *hello);
/** Get it back. @return 0: no question. */
int rondo_look_asked(const struct rondo_auth_hello *hello, struct rondo_look *look);

/** Have this function write the answers, in a thread of its own, to a blocking descriptor that is not its to
 * close. Without one every question is refused. */
void rondo_control_on_look(void (*function)(int fd, const struct rondo_look *look));

#endif
