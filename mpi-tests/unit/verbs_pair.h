/* Two ends of a verbs connection in one process, over the NICs of fake_verbs.h. */
#ifndef RONDO_UNIT_VERBS_PAIR_H
#define RONDO_UNIT_VERBS_PAIR_H

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/param.h"
#include "fake_verbs.h"
#include "says.h"

enum { IB, ROCE, PAGE = 4096, POLLS = 4 * RONDO_VERBS_IDLE, BUFFER = 1 << 20 };

static const struct rondo_net_device *const dev = &rondo_netdev_verbs;
static const struct rondo_net_peer peer_a = { .rank = 3, .self = 5, .host = "hostA", .secret = { 1, 2 } };
static const struct rondo_net_peer peer_b = { .rank = 5, .self = 3, .host = "hostB", .secret = { 1, 2 } };
static RONDO_ALIGNED(PAGE) uint8_t source[BUFFER], target[BUFFER];

struct pair {
    void *send, *recv, *from, *to; /* comms, and regions of source and target */
};

/* ---- helpers ---- */

static inline void begin(void)
{
    int n;
    rondo_netdev_verbs.finalize();
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(dev->init(&n, NULL, 0), RONDO_SUCCESS);
}

static inline void set(const char *name, const char *value)
{
    setenv(name, value, 1);
    begin();
    unsetenv(name);
}

static inline int setup(void **state)
{
    (void)state;
    fake_verbs_reset();
    rondo_verbs_lib_replace(&fake_verbs_lib);
    begin();
    for (size_t i = 0; i < BUFFER; i++) {
        source[i] = (uint8_t)(1 + i * 7 + i / 251);
    }
    memset(target, 0, sizeof target);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    dev->finalize();
    for (int i = 0; i < FAKE_MODIFY; i++) {
        assert_int_equal(fake.live[i], 0);
    }
    assert_int_equal(fake.bad_uses, 0);
    assert_int_equal(fake.overruns, 0);
    assert_int_equal(fake.events, 0);
    return 0;
}

static inline void pair_close(struct pair *pair)
{
    if (pair->send != NULL) {
        dev->close(pair->send);
    }
    if (pair->recv != NULL) {
        dev->close(pair->recv);
    }
    assert_int_equal(fake_verbs_objects(), 0);
}

/* Do all steps until the first error. The receiver connects first. */
static inline rondo_status pair_try(struct pair *pair, int device, int kind)
{
    uint8_t sender[RONDO_NET_HANDLE], receiver[RONDO_NET_HANDLE];
    memset(pair, 0, sizeof *pair);
    RONDO_TRY(dev->prepare(device, &peer_a, 0, &pair->recv, receiver));
    RONDO_TRY(dev->prepare(device, &peer_b, 1, &pair->send, sender));
    RONDO_TRY(dev->connect(pair->recv, sender));
    RONDO_TRY(dev->connect(pair->send, receiver));
    RONDO_TRY(dev->reg(pair->send, source, BUFFER, RONDO_NET_HOST, -1, &pair->from));
    RONDO_TRY(dev->reg(pair->recv, target, BUFFER, kind, kind == RONDO_NET_DMABUF ? 0 : -1, &pair->to));
    return RONDO_SUCCESS;
}

static inline void pair_open(struct pair *pair, int device)
{
    if (pair_try(pair, device, RONDO_NET_HOST) != RONDO_SUCCESS) {
        fail_msg("%s", rondo_error_text());
    }
}

static inline rondo_status wait_for(void *request, size_t *bytes)
{
    int done = 0;
    for (int i = 0; i < POLLS && !done; i++) {
        RONDO_TRY(dev->test(request, &done, bytes));
    }
    return done ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
}

static inline void *receive(struct pair *pair, size_t at, size_t bytes, int tag)
{
    void *data = target + at, *request;
    assert_int_equal(dev->irecv(pair->recv, 1, &data, &bytes, &tag, &pair->to, &request), RONDO_SUCCESS);
    return request;
}

static inline void *give(struct pair *pair, size_t at, size_t bytes, int tag)
{
    void *request;
    assert_int_equal(dev->isend(pair->send, source + at, bytes, tag, pair->from, &request), RONDO_SUCCESS);
    return request;
}

static inline rondo_status move(struct pair *pair, size_t bytes)
{
    size_t room = bytes, got = SIZE_MAX;
    int tag = 4;
    void *data = target, *request[2];
    RONDO_TRY(dev->irecv(pair->recv, 1, &data, &room, &tag, &pair->to, &request[0]));
    RONDO_TRY(dev->isend(pair->send, source, bytes, tag, pair->from, &request[1]));
    assert_non_null(request[1]);
    RONDO_TRY(wait_for(request[1], NULL));
    RONDO_TRY(wait_for(request[0], &got));
    assert_int_equal(got, bytes);
    assert_memory_equal(source, target, bytes);
    return RONDO_SUCCESS;
}

static inline const struct fake_modify *modified(uint32_t qpn, enum ibv_qp_state state)
{
    for (int i = 0; i < fake.nmodifies; i++) {
        if (fake.modify[i].qpn == qpn && fake.modify[i].attr.qp_state == state) {
            return &fake.modify[i];
        }
    }
    fail_msg("queue pair %u was not brought into state %d", qpn, state);
    return NULL;
}

static inline const struct rondo_verbs_comm *end_of(void *comm) { return comm; }

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
