/* A sender and a receiver over any net device, in one process, for the tests of the device list, fault
 * injection and plugins. Include cmocka.h first. */
#ifndef RONDO_TEST_NETDEV_PAIR_H
#define RONDO_TEST_NETDEV_PAIR_H

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/param.h"
#include "base/wait.h"
#include "net/netdev.h"

enum { PATIENCE_S = 30 }; /* for operations that should be immediate */

static const struct rondo_net_peer far_peer = {
    .rank = 3, .self = 3, .channel = 1, .host = "hostb", .secret = { 0x0123456789abcdef, 0xfedcba9876543210 }
};

struct pair {
    const struct rondo_net_device *net;
    void *sender, *receiver;
    uint8_t to_receiver[RONDO_NET_HANDLE], to_sender[RONDO_NET_HANDLE]; /* handles */
};

/* NULL: unset. */
static inline void set_param(const char *name, const char *value)
{
    assert_int_equal(value != NULL ? setenv(name, value, 1) : unsetenv(name), 0);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rondo_log_mask = RONDO_LOG_NONE; /* errors are expected */
}

static inline void end_of_patience(int64_t start_ns)
{
    if (rondo_now_ns() - start_ns > PATIENCE_S * 1000000000ll) {
        fail_msg("nothing happens for %d s", PATIENCE_S);
    }
}

static inline void pair_prepare(struct pair *pair, const struct rondo_net_device *net, int device,
                                const struct rondo_net_peer *peer)
{
    *pair = (struct pair){ .net = net };
    assert_int_equal(net->prepare(device, peer, 0, &pair->receiver, pair->to_sender), RONDO_SUCCESS);
    assert_int_equal(net->prepare(device, peer, 1, &pair->sender, pair->to_receiver), RONDO_SUCCESS);
}

/* Connect both ends in turn until neither is in progress. @return the number of calls. */
static inline int pair_connect(struct pair *pair)
{
    int64_t start = rondo_now_ns();
    rondo_status sender = RONDO_IN_PROGRESS, receiver = RONDO_IN_PROGRESS;
    int rounds = 0;
    while (sender == RONDO_IN_PROGRESS || receiver == RONDO_IN_PROGRESS) {
        sender = sender == RONDO_IN_PROGRESS ? pair->net->connect(pair->sender, pair->to_sender) : sender;
        receiver = receiver == RONDO_IN_PROGRESS ? pair->net->connect(pair->receiver, pair->to_receiver)
                                                 : receiver;
        rounds++;
        end_of_patience(start);
    }
    assert_int_equal(sender, RONDO_SUCCESS);
    assert_int_equal(receiver, RONDO_SUCCESS);
    return rounds;
}

static inline void pair_open(struct pair *pair, const struct rondo_net_device *net)
{
    pair_prepare(pair, net, 0, &far_peer);
    pair_connect(pair);
}

static inline void pair_close(struct pair *pair)
{
    pair->net->close(pair->sender);
    pair->net->close(pair->receiver);
}

/* Send until the device accepts or fails. */
static inline rondo_status pair_send(struct pair *pair, const void *data, size_t bytes, int tag, void *region,
                                     void **request)
{
    int64_t start = rondo_now_ns();
    rondo_status status;
    while ((status = pair->net->isend(pair->sender, data, bytes, tag, region, request)) == RONDO_SUCCESS &&
           *request == NULL) {
        end_of_patience(start);
    }
    return status;
}

static inline rondo_status pair_receive(struct pair *pair, void *data, size_t bytes, int tag, void *region,
                                        void **request)
{
    int64_t start = rondo_now_ns();
    rondo_status status;
    while ((status = pair->net->irecv(pair->receiver, 1, &data, &bytes, &tag, &region, request)) ==
               RONDO_SUCCESS &&
           *request == NULL) {
        end_of_patience(start);
    }
    return status;
}

/* Test both requests until they complete. */
static inline void pair_finish(struct pair *pair, void *sending, void *receiving, size_t *bytes)
{
    int64_t start = rondo_now_ns();
    int sent = 0, received = 0;
    while (!sent || !received) {
        if (!sent) {
            assert_int_equal(pair->net->test(sending, &sent, NULL), RONDO_SUCCESS);
        }
        if (!received) {
            assert_int_equal(pair->net->test(receiving, &received, bytes), RONDO_SUCCESS);
        }
        end_of_patience(start);
    }
}

static inline void pair_pattern(uint8_t *data, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(i * 7 + i / 251 + seed);
    }
}

/* Send, receive and check one message of a pattern. */
static inline void pair_message(struct pair *pair, size_t bytes, void *from_region, void *to_region,
                                uint8_t *from, uint8_t *to)
{
    void *sending, *receiving;
    size_t arrived = 99;
    memset(to, 0xee, bytes + 1);
    pair_pattern(from, bytes, (unsigned)bytes);
    assert_int_equal(pair_receive(pair, to, bytes, 5, to_region, &receiving), RONDO_SUCCESS);
    assert_int_equal(pair_send(pair, from, bytes, 5, from_region, &sending), RONDO_SUCCESS);
    pair_finish(pair, sending, receiving, &arrived);
    assert_int_equal(arrived, bytes);
    assert_memory_equal(from, to, bytes);
    assert_int_equal(to[bytes], 0xee);
}

#endif
