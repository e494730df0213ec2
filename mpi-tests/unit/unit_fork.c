/* What a forked child may rely on, whatever other threads of its parent were doing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include "base/fork.h"
#include "base/heap_impl.h"
#include "base/param.h"
#include "in_child.h"
#include "net/control/control_wire.h"
#include "net/socket/socket.h"

enum { FORKS = 100, PATIENCE_S = 20 };

/* ---- a thread that holds a lock until it is told ---- */

struct holder {
    pthread_t thread;
    void (*lock)(void), (*unlock)(void);
    sem_t held, go;
};

static void *hold(void *arg)
{
    struct holder *holder = arg;
    holder->lock();
    sem_post(&holder->held);
    while (sem_wait(&holder->go) != 0) {
    }
    holder->unlock();
    return NULL;
}

static void holder_start(struct holder *holder, void (*lock)(void), void (*unlock)(void))
{
    holder->lock = lock;
    holder->unlock = unlock;
    assert_int_equal(sem_init(&holder->held, 0, 0) | sem_init(&holder->go, 0, 0), 0);
    assert_int_equal(pthread_create(&holder->thread, NULL, hold, holder), 0);
    while (sem_wait(&holder->held) != 0) {
    }
}

static void holder_end(struct holder *holder)
{
    sem_post(&holder->go);
    pthread_join(holder->thread, NULL);
    sem_destroy(&holder->held);
    sem_destroy(&holder->go);
}

/* ---- locks ---- */

static pthread_mutex_t some_lock = PTHREAD_MUTEX_INITIALIZER;
static int whole = -1;
static void some_in_child(void) { whole = rondo_fork_lock(&some_lock); }
RONDO_AT_FORK(some_in_child)
static void some_take(void) { pthread_mutex_lock(&some_lock); }
static void some_give(void) { pthread_mutex_unlock(&some_lock); }

static int look_at_lock(void *expected)
{
    return whole != *(int *)expected || pthread_mutex_trylock(&some_lock) != 0;
}

static void a_child_has_its_locks_and_knows_which_were_held(void **state)
{
    struct holder holder;
    int expected = 0;
    (void)state;
    holder_start(&holder, some_take, some_give);
    assert_int_equal(in_child(look_at_lock, &expected), 0);
    holder_end(&holder);
    expected = 1;
    assert_int_equal(in_child(look_at_lock, &expected), 0);
    assert_int_equal(whole, -1); /* the parent is not asked */
}

/* ---- memory that calls rely on ---- */

static uint8_t buffer[4096], kept[64];
static volatile int stop;

static void *add_and_remove(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        uint64_t id;
        if (rondo_region_add(buffer, sizeof(buffer), &id) == RONDO_SUCCESS) {
            rondo_region_remove(id);
        }
        rondo_segment_put(1);
    }
    return NULL;
}

static int use_regions(void *arg)
{
    struct rondo_region region;
    uint64_t id;
    (void)arg;
    alarm(PATIENCE_S); /* a lock that nobody gives back would be waited for without end */
    if (rondo_region_find(buffer, 1, &region) || rondo_segments_mapped() != 0 ||
        rondo_region_add(buffer, sizeof(buffer), &id) != RONDO_SUCCESS) {
        return 1;
    }
    return !rondo_region_find(buffer, 1, &region) || !rondo_region_remove(id);
}

static void a_child_of_a_busy_process_has_regions_of_its_own(void **state)
{
    pthread_t thread;
    uint64_t id;
    (void)state;
    /* With one that stays the table stays: the thread allocates nothing, as AddressSanitizer's allocator of
     * older compilers may be locked in a child for ever. */
    assert_int_equal(rondo_region_add(kept, sizeof(kept), &id), RONDO_SUCCESS);
    assert_int_equal(pthread_create(&thread, NULL, add_and_remove, NULL), 0);
    for (int i = 0; i < FORKS; i++) {
        assert_int_equal(in_child(use_regions, NULL), 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_int_equal(rondo_region_remove(id), 1);
}

/* ---- net devices ---- */

static const struct rondo_net_device *const net = &rondo_netdev_socket;
static const struct rondo_net_peer peer = { .rank = 1, .self = 1, .host = "other", .secret = { 1, 2 } };
struct pair {
    void *receiver, *sender;
    char to_sender[RONDO_NET_HANDLE], to_receiver[RONDO_NET_HANDLE];
};

static rondo_status pair_prepare(struct pair *pair)
{
    RONDO_TRY(net->prepare(0, &peer, 0, &pair->receiver, pair->to_sender));
    return net->prepare(0, &peer, 1, &pair->sender, pair->to_receiver);
}

static rondo_status pair_connect(struct pair *pair)
{
    rondo_status sends = RONDO_IN_PROGRESS, receives = RONDO_IN_PROGRESS;
    int64_t end_ns = rondo_now_ns() + PATIENCE_S * INT64_C(1000000000);
    while (rondo_now_ns() < end_ns &&
           (sends == RONDO_IN_PROGRESS || (receives == RONDO_IN_PROGRESS && sends == RONDO_SUCCESS))) {
        sends = sends == RONDO_IN_PROGRESS ? net->connect(pair->sender, pair->to_sender) : sends;
        receives = receives == RONDO_IN_PROGRESS ? net->connect(pair->receiver, pair->to_receiver) : receives;
    }
    return sends == RONDO_SUCCESS ? receives : sends;
}

static void pair_close(const struct pair *pair)
{
    net->close(pair->sender);
    net->close(pair->receiver);
}

/* The parent's listener is closed here, and the child's own pair meets at another port. */
static int listen_in_child(void *arg)
{
    const struct rondo_socket_comm *parents = ((const struct pair *)arg)->receiver;
    struct pair pair;
    int n = 0, inherited = fcntl(parents->device->listener, F_GETFD) >= 0;
    alarm(PATIENCE_S);
    if (inherited || net->init(&n, NULL, 0) != RONDO_SUCCESS || n < 1 ||
        pair_prepare(&pair) != RONDO_SUCCESS ||
        ((struct rondo_socket_comm *)pair.receiver)->device->port == parents->device->port ||
        pair_connect(&pair) != RONDO_SUCCESS) {
        return 1;
    }
    pair_close(&pair);
    net->finalize();
    return 0;
}

static void a_child_listens_for_itself(void **state)
{
    struct pair pair;
    int n;
    (void)state;
    assert_int_equal(net->init(&n, NULL, 0), RONDO_SUCCESS);
    assert_int_equal(pair_prepare(&pair), RONDO_SUCCESS);
    assert_int_equal(in_child(listen_in_child, &pair), 0);
    assert_int_equal(pair_connect(&pair), RONDO_SUCCESS);
    pair_close(&pair);
    net->finalize();
}

/* ---- the control plane between nodes ---- */

static int call_in_child(void *arg)
{
    uint8_t addr[RONDO_ADDR_BYTES];
    uint32_t number;
    alarm(PATIENCE_S);
    return rondo_control_listen(addr, &number) != RONDO_SUCCESS || memcmp(addr, arg, sizeof(addr)) == 0;
}

static int find_nothing_open(void *arg) { return rondo_wire != NULL || fcntl(*(int *)arg, F_GETFD) >= 0; }

static void a_child_is_called_at_an_address_of_its_own(void **state)
{
    uint8_t addr[RONDO_ADDR_BYTES];
    struct holder holder;
    uint32_t number;
    (void)state;
    assert_int_equal(rondo_control_listen(addr, &number), RONDO_SUCCESS);
    assert_int_equal(in_child(find_nothing_open, &rondo_wire->listener), 0);
    assert_int_equal(in_child(call_in_child, addr), 0);
    holder_start(&holder, rondo_wire_lock, rondo_wire_unlock);
    assert_int_equal(in_child(call_in_child, addr), 0);
    holder_end(&holder);
    rondo_control_unlisten();
}

static void *move(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        rondo_wire_lock();
        usleep(2000);
        rondo_wire_unlock();
        usleep(500);
    }
    return NULL;
}

static void a_child_of_a_moving_wire_holds_nothing_open(void **state)
{
    uint8_t addr[RONDO_ADDR_BYTES];
    const int64_t usual_ns = rondo_wire_fork_ns;
    pthread_t thread;
    uint32_t number;
    int open = 0;
    (void)state;
    rondo_wire_fork_ns = PATIENCE_S * INT64_C(1000000000); /* the thread may be kept from its core */
    assert_int_equal(rondo_control_listen(addr, &number), RONDO_SUCCESS);
    __atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
    assert_int_equal(pthread_create(&thread, NULL, move, NULL), 0);
    for (int i = 0; i < 20; i++) {
        open += in_child(find_nothing_open, &rondo_wire->listener);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    rondo_wire_fork_ns = usual_ns;
    rondo_control_unlisten();
    assert_int_equal(open, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_has_its_locks_and_knows_which_were_held),
        cmocka_unit_test(a_child_of_a_busy_process_has_regions_of_its_own),
        cmocka_unit_test(a_child_listens_for_itself),
        cmocka_unit_test(a_child_is_called_at_an_address_of_its_own),
        cmocka_unit_test(a_child_of_a_moving_wire_holds_nothing_open),
    };
    setenv("RONDO_SOCKET_IFNAME", "=lo", 1);
    rondo_params();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
