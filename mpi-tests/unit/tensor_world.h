/* Stores of ranks that are threads, for the tests of named tensors. Include cmocka.h first. */
#ifndef RONDO_TEST_TENSOR_WORLD_H
#define RONDO_TEST_TENSOR_WORLD_H

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/wait.h"
#include "base/mem.h"
#include "fake_ranks.h"
#if RONDO_HAVE_VERBS
#include "fake_verbs.h"
#endif
#include "rondo_tensor.h"
#include "tensor/store.h"

enum {
    PATIENCE_MS = 60000, /* for what should be immediate */
    LOOK_MS = 100        /* for what must not happen; if it does, it is soon */
};

static inline void set_param(const char *name, const char *value)
{
    assert_int_equal(value != NULL ? setenv(name, value, 1) : unsetenv(name), 0);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rondo_log_mask = RONDO_LOG_NONE; /* errors are expected */
}

/* transport: shm, net */
static inline void use_transport(const char *transport)
{
    setenv("RONDO_NET", "socket", 1);
    setenv("RONDO_SOCKET_IFNAME", "=lo", 1);
    set_param("RONDO_TENSOR_TRANSPORT", transport);
}

#if RONDO_HAVE_VERBS
/* Writes over simulated NICs, of two ports of one kind. */
static inline void use_verbs(void)
{
    fake_verbs_reset();
    fake.nic[0].port[0] = fake.nic[0].port[1];
    rondo_verbs_lib_replace(&fake_verbs_lib);
    setenv("RONDO_NET", "verbs", 1);
    set_param("RONDO_TENSOR_TRANSPORT", "net");
}

static inline void end_verbs(void)
{
    assert_int_equal(fake_verbs_objects(), 0);
    assert_int_equal(fake.bad_uses, 0);
    assert_int_equal(fake.overruns, 0);
    rondo_verbs_lib_replace(NULL);
}
#else
static inline void use_verbs(void) { use_transport("net"); }
static inline void end_verbs(void) {}
#endif

/* Is the wire one of net devices? Of those that write into memory of the other end? */
static inline int over_net(void) { return strcmp(getenv("RONDO_TENSOR_TRANSPORT"), "net") == 0; }
static inline int over_writes(void) { return over_net() && strcmp(getenv("RONDO_NET"), "verbs") == 0; }

enum { SHARED_MEMORY, SOCKETS, VERBS, WIRES };

static inline void use_wire(int wire)
{
    wire == VERBS ? use_verbs() : use_transport(wire == SOCKETS ? "net" : "shm");
}

static inline void end_wire(int wire)
{
    if (wire == VERBS) end_verbs();
    set_param("RONDO_NET", NULL);
}

/* A test that runs over one of them. */
#define ON_WIRE(name, wire, n, fn) \
    static void name(void **state) \
    {                              \
        (void)state;               \
        use_wire(wire);            \
        fake_ranks(n, fn, NULL);   \
        end_wire(wire);            \
    }

/* Each test runs over all of them. */
#define ALL_WIRES(name, n, fn)                     \
    static void name(void **state)                 \
    {                                              \
        (void)state;                               \
        for (int wire = 0; wire < WIRES; wire++) { \
            use_wire(wire);                        \
            fake_ranks(n, fn, NULL);               \
            end_wire(wire);                        \
        }                                          \
    }

static inline void pattern(void *data, size_t bytes, uint64_t salt)
{
    uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t)((i * 7 + i / 251) ^ (salt * 31 + (salt >> 8)));
    }
}

/* @return 1: data holds the bytes of a pattern from `first` on. */
static inline int has_pattern(const void *data, size_t bytes, size_t first, uint64_t salt)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) {
        size_t k = first + i;
        if (at[i] != (uint8_t)((k * 7 + k / 251) ^ (salt * 31 + (salt >> 8)))) {
            return 0;
        }
    }
    return 1;
}

static inline rondo_tensor tensor_of(void *data, size_t bytes)
{
    rondo_tensor t = RONDO_TENSOR_INIT;
    t.data = data;
    t.bytes = bytes;
    return t;
}

static inline rondo_tensor_stats stats_of(rondo_tensor_store *store)
{
    rondo_tensor_stats stats = { .size = sizeof(stats) };
    if (rondo_tensor_store_stats(store, &stats) != RONDO_SUCCESS) {
        memset(&stats, 0xff, sizeof(stats));
    }
    return stats;
}

static inline struct rondo_tensor_conn *conn_to(rondo_tensor_store *store, int peer)
{
    return store->core->conn_of[peer];
}

/* Has rank 0 acknowledged all messages? */
static inline int has_been_read(rondo_tensor_store *store)
{
    pthread_mutex_lock(&store->core->lock);
    int busy = store->core->conn_of[0]->remote_busy;
    pthread_mutex_unlock(&store->core->lock);
    return !busy;
}

/* Wait until a condition on a store's counts holds. */
#define UNTIL(r, store, condition)                                                \
    for (int64_t begun_ = rondo_now_ns();;) {                                     \
        rondo_tensor_stats now = stats_of(store);                                 \
        (void)now;                                                                \
        if (condition) break;                                                     \
        FAKE_CHECK(r, rondo_now_ns() - begun_ < rondo_ms_to_ns(PATIENCE_MS), ""); \
        sched_yield();                                                            \
    }

#endif
