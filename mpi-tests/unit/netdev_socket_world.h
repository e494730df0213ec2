/* Pairs of socket comms in one process, for the tests of the socket device. */
#ifndef RONDO_TEST_NETDEV_SOCKET_WORLD_H
#define RONDO_TEST_NETDEV_SOCKET_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include "base/log.h"
#include "base/param.h"
#include "base/wait.h"
#include "in_child.h"
#include "net/socket/socket.h"
#include "says.h"

enum { DEADLINE_S = 30 }; /* for operations that should be immediate */
static const struct rondo_net_device *const net = &rondo_netdev_socket;
static const struct rondo_net_peer some_peer = {
    .rank = 3, .self = 3, .channel = 1, .host = "hostb", .secret = { 0x0123456789abcdef, 0xfedcba9876543210 }
};

struct pair {
    void *sender, *receiver;
    char to_receiver[RONDO_NET_HANDLE], to_sender[RONDO_NET_HANDLE]; /* handles */
};

static inline void set_param(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rondo_log_mask = RONDO_LOG_NONE; /* errors are expected */
}

/* @return how many devices there are. */
static inline int use(const char *ifname, const char *family, const char *nconns, char *why, size_t bytes)
{
    int n;
    set_param("RONDO_SOCKET_IFNAME", ifname);
    set_param("RONDO_SOCKET_FAMILY", family);
    set_param("RONDO_SOCKET_NCONNS", nconns);
    net->finalize();
    assert_int_equal(net->init(&n, why, bytes), RONDO_SUCCESS);
    return n;
}

static inline void use_loop(const char *nconns) { assert_int_equal(use("=lo", "4", nconns, NULL, 0), 1); }

static inline void pair_prepare(struct pair *pair)
{
    assert_int_equal(net->prepare(0, &some_peer, 1, &pair->sender, pair->to_receiver), RONDO_SUCCESS);
    assert_int_equal(net->prepare(0, &some_peer, 0, &pair->receiver, pair->to_sender), RONDO_SUCCESS);
}

static inline void end_of_patience(int64_t start_ns)
{
    if (rondo_now_ns() - start_ns > DEADLINE_S * 1000000000ll) {
        fail_msg("nothing happens for %d s", DEADLINE_S);
    }
}

/* Call connect until it is no longer in progress. */
static inline rondo_status connect_one(void *comm, const void *handle)
{
    int64_t start = rondo_now_ns();
    rondo_status status;
    while ((status = net->connect(comm, handle)) == RONDO_IN_PROGRESS) {
        end_of_patience(start);
        sched_yield();
    }
    return status;
}

static inline void pair_connect(struct pair *pair)
{
    assert_int_equal(connect_one(pair->sender, pair->to_sender), RONDO_SUCCESS);
    assert_int_equal(connect_one(pair->receiver, pair->to_receiver), RONDO_SUCCESS);
}

static inline void pair_open(struct pair *pair)
{
    pair_prepare(pair);
    pair_connect(pair);
}

static inline void pair_close(struct pair *pair)
{
    net->close(pair->sender);
    net->close(pair->receiver);
}

static inline void *send_some(void *comm, const void *data, size_t bytes, int tag)
{
    void *request;
    assert_int_equal(net->isend(comm, data, bytes, tag, NULL, &request), RONDO_SUCCESS);
    return request;
}

static inline void *receive_one(void *comm, void *data, size_t bytes, int tag)
{
    void *request, *region = NULL;
    assert_int_equal(net->irecv(comm, 1, &data, &bytes, &tag, &region, &request), RONDO_SUCCESS);
    return request;
}

/* Test both requests until they complete. */
static inline void finish(void *sending, void *receiving, size_t *bytes)
{
    int64_t start = rondo_now_ns();
    int sent = !sending, received = !receiving;
    while (!sent || !received) {
        if (!sent) {
            assert_int_equal(net->test(sending, &sent, NULL), RONDO_SUCCESS);
        }
        if (!received) {
            assert_int_equal(net->test(receiving, &received, bytes), RONDO_SUCCESS);
        }
        end_of_patience(start);
    }
}

/* Test a request until it fails; it must fail. */
static inline rondo_status failure_of(void *request)
{
    int64_t start = rondo_now_ns();
    int done = 0;
    rondo_status status;
    while ((status = net->test(request, &done, NULL)) == RONDO_SUCCESS) {
        assert_int_equal(done, 0);
        end_of_patience(start);
    }
    return status;
}

static inline void pattern(uint8_t *data, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(i * 7 + i / 251 + seed);
    }
}

/* Connect a client that is no comm to a receiver's listener; blocks. */
static inline int stranger(const void *comm)
{
    const struct rondo_socket_device *device = ((const struct rondo_socket_comm *)comm)->device;
    struct sockaddr_in to = device->addr.in;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_port = device->port;
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static inline uint64_t dropped(const void *comm)
{
    const struct rondo_socket_device *device = ((const struct rondo_socket_comm *)comm)->device;
    uint64_t all = 0;
    for (int i = 0; i < RONDO_SOCKET_NUM_DROPS; i++) {
        all += device->dropped[i];
    }
    return all;
}

/* Count the helper threads of this process. */
static inline int count_helpers(void)
{
    int n = 0;
    struct dirent *entry;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        char path[300], name[16] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        n += file != NULL && fgets(name, sizeof name, file) != NULL && strcmp(name, "rondo-socket\n") == 0;
        if (file != NULL) {
            fclose(file);
        }
    }
    closedir(dir);
    return n;
}

/* Are there n helpers, at least soon? A joined thread is visible a moment longer, a new one has no name
 * yet. */
static inline int are_helpers(int n)
{
    int64_t start = rondo_now_ns();
    while (count_helpers() != n) {
        if (rondo_now_ns() - start > DEADLINE_S * 1000000000ll) {
            return 0;
        }
        sched_yield();
    }
    return 1;
}

static inline int remember_fds(void **state)
{
    static int fds;
    fds = count_fds();
    *state = &fds;
    return 0;
}

static inline int same_fds(void **state)
{
    net->finalize();
    return count_fds() != *(int *)*state || !are_helpers(0);
}

/* A test that must leave as many descriptors as it found, and no threads. */
#define ROW(name) cmocka_unit_test_setup_teardown(name, remember_fds, same_fds)

#endif
