#include "net/transport/lazy.h"

#include "base/mem.h"
#include "net/control/control.h"

struct message {
    uint32_t told; /* 0: the record; 1: "I have connected" */
    struct rondo_connect record;
};
_Static_assert(sizeof(struct message) <= RONDO_MSG_BYTES, "a message");

/* A pair has one link in each direction, so the tag says which end writes: its sender or its receiver. */
static uint64_t msg_tag(int from_sender, int told)
{
    char kind[] = { 'p', '2', 'p', (char)from_sender, (char)told };
    return rondo_hash(kind, sizeof(kind), 0);
}

static rondo_status lazy_say(const struct rondo_net *net, const struct rondo_link *link,
                             const struct rondo_lazy *lazy, uint32_t told)
{
    struct message message = { .told = told };
    if (!told) {
        message.record = lazy->record;
    }
    return rondo_control_send(net->control, link->peer, msg_tag(link->is_send, (int)told), &message,
                              sizeof(message));
}

static rondo_status lazy_hear(const struct rondo_net *net, const struct rondo_link *link,
                              struct rondo_lazy *lazy, uint32_t told)
{
    struct message message;
    size_t bytes;
    RONDO_TRY(rondo_control_receive(net->control, link->peer, msg_tag(!link->is_send, (int)told), &message,
                                    sizeof(message), &bytes));
    if (bytes != sizeof(message) || message.told != told) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "rank %d got a record of %zu bytes for a connection with rank %d, expected %zu",
                          net->rank, bytes, link->peer, sizeof(message));
    }
    if (!told) {
        lazy->record = message.record;
    }
    return RONDO_SUCCESS;
}

static rondo_status lazy_step(const struct rondo_net *net, void *state, struct rondo_link *link,
                              struct rondo_lazy *lazy)
{
    switch (lazy->stage) {
    case RONDO_LAZY_ASK: return lazy_say(net, link, lazy, 0);
    case RONDO_LAZY_HEAR: return lazy_hear(net, link, lazy, 0);
    case RONDO_LAZY_CONNECT: return link->transport->connect(state, link, &lazy->record);
    case RONDO_LAZY_TELL: return lazy_say(net, link, lazy, 1);
    default:
        return lazy_hear(net, link, lazy, 1); /* the other end uses the conn only once it has
                                                    * connected */
    }
}

rondo_status rondo_lazy_move(const struct rondo_net *net, void *state, struct rondo_link *link,
                             struct rondo_lazy *lazy)
{
    for (;; lazy->stage++) {
        RONDO_TRY(lazy_step(net, state, link, lazy));
        if (lazy->stage == RONDO_LAZY_TOLD) {
            return RONDO_SUCCESS;
        }
    }
}
