/* Takes the events that net devices give to profiler plugins, for the tests of the devices. Include cmocka.h
 * first. */
#ifndef RONDO_TEST_NET_EVENTS_H
#define RONDO_TEST_NET_EVENTS_H

#include <string.h>
#include "net/netdev.h"

enum { TOLD_MOST = 16 };

static struct {
    int n, open;
    void *parent;
    int64_t kind;
    union {
        struct rondo_net_ib_event ib;
        struct rondo_net_socket_event tcp;
    } what[TOLD_MOST];
} told;

static int take_event(void **event, int what, void *parent, int64_t kind, void *more)
{
    if (what == RONDO_NET_EVENT_START) {
        size_t bytes = kind == RONDO_NET_KIND_IB ? sizeof told.what[0].ib : sizeof told.what[0].tcp;
        assert_true(told.n < TOLD_MOST);
        assert_ptr_equal(parent, &told.parent);
        memcpy(&told.what[told.n], more, bytes);
        told.kind = kind;
        *event = &told.what[told.n++];
        told.open++;
    } else {
        assert_int_equal(what, RONDO_NET_EVENT_STOP);
        assert_non_null(*event);
        told.open--;
    }
    return 0;
}

/* From here on messages are watched, until nobody_watches. */
static inline void somebody_watches(void)
{
    memset(&told, 0, sizeof told);
    rondo_net_event = take_event;
    rondo_net_parent = &told.parent;
}

static inline void nobody_watches(void) { rondo_net_parent = NULL; }

#endif
