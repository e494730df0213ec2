/* The socket net device with helper threads: how many there are and when, ends that differ, peers that die,
 * memory after an error. unit_netdev_socket tests the data they carry. */
#include "netdev_socket_world.h"
#include <poll.h>
#include <time.h>

enum { BYTES = 300000 };

static uint8_t from[BYTES], to[BYTES];

static void use_helpers(const char *threads, const char *nconns)
{
    set_param("RONDO_SOCKET_NTHREADS", threads);
    use_loop(nconns);
}

static const struct rondo_socket_comm *end_of(const void *comm) { return comm; }

static void pass(const struct pair *pair, unsigned seed)
{
    size_t arrived;
    pattern(from, BYTES, seed);
    memset(to, 0, BYTES);
    finish(send_some(pair->sender, from, BYTES, 1), receive_one(pair->receiver, to, BYTES, 1), &arrived);
    assert_int_equal(arrived, BYTES);
    assert_memory_equal(from, to, BYTES);
}

static void there_are_as_many_threads_as_asked_for(void **state)
{
    static const struct {
        const char *threads, *nconns;
        int conns, helpers; /* of one end */
    } rows[] = { { "0", "1", 1, 0 }, { "0", "4", 4, 0 },     { "1", "1", 2, 1 },
                 { "2", "3", 7, 2 }, { "16", "64", 65, 16 }, { "3", "64", 64, 3 } };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        struct pair pair;
        use_helpers(rows[i].threads, rows[i].nconns);
        pair_prepare(&pair);
        assert_true(are_helpers(0)); /* they start with the first message */
        pair_connect(&pair);
        assert_true(are_helpers(2 * rows[i].helpers));
        assert_int_equal(end_of(pair.sender)->nconns, rows[i].conns);
        pass(&pair, (unsigned)i);
        pair_close(&pair);
        assert_true(are_helpers(0));
    }
}

/* Each end has its own number of helpers. The end that wants less decides the number of connections and how
 * messages are cut. */
static void ends_may_differ(void **state)
{
    static const char *const rows[][4] = {
        { "2", "2", "0", "1" }, { "0", "1", "2", "2" }, { "3", "1", "0", "3" }, { "1", "2", "4", "1" }
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        struct pair pair;
        use_helpers(rows[i][0], rows[i][1]);
        pair_prepare(&pair);
        net->close(pair.receiver);
        set_param("RONDO_SOCKET_NTHREADS", rows[i][2]);
        set_param("RONDO_SOCKET_NCONNS", rows[i][3]);
        assert_int_equal(net->prepare(0, &some_peer, 0, &pair.receiver, pair.to_sender), RONDO_SUCCESS);
        pair_connect(&pair);
        assert_int_equal(end_of(pair.sender)->nconns, end_of(pair.receiver)->nconns);
        assert_int_equal(end_of(pair.sender)->least_part, RONDO_SOCKET_HELPED_PART);
        for (unsigned k = 0; k < 5; k++) {
            pass(&pair, k);
        }
        pair_close(&pair);
    }
}

/* Send messages until one fails. */
static rondo_status failure_of_sending(void *comm)
{
    int64_t start = rondo_now_ns();
    rondo_status status = RONDO_SUCCESS;
    while (status == RONDO_SUCCESS) {
        void *request = NULL;
        int done = 0;
        status = net->isend(comm, from, BYTES, 1, NULL, &request);
        while (status == RONDO_SUCCESS && request != NULL && !done) {
            status = net->test(request, &done, NULL);
            end_of_patience(start);
        }
    }
    return status;
}

/* An error that a helper finds ends the comm and its helpers, so the memory of messages belongs to the caller
 * again. */
static void a_lost_connection_is_an_error_and_ends_the_threads(void **state)
{
    struct pair pair;
    (void)state;
    use_helpers("2", "1");
    pair_open(&pair);
    pass(&pair, 7);
    shutdown(end_of(pair.receiver)->conn[1].fd, SHUT_RDWR);
    shutdown(end_of(pair.receiver)->conn[2].fd, SHUT_RDWR);
    assert_int_equal(failure_of_sending(pair.sender), RONDO_REMOTE_ERROR);
    assert_says("sending failed");
    assert_true(are_helpers(2)); /* those of the other end */
    pair_close(&pair);
}

/* The sender has no helpers. It sends the frame, and then finds that it cannot send more. */
static void a_connection_lost_at_the_receiver_is_an_error_too(void **state)
{
    struct pair pair;
    void *request;
    (void)state;
    use_helpers("2", "1");
    pair_prepare(&pair);
    net->close(pair.sender);
    set_param("RONDO_SOCKET_NTHREADS", "0");
    set_param("RONDO_SOCKET_NCONNS", "3");
    assert_int_equal(net->prepare(0, &some_peer, 1, &pair.sender, pair.to_receiver), RONDO_SUCCESS);
    assert_int_equal(connect_one(pair.sender, pair.to_sender), RONDO_SUCCESS);
    set_param("RONDO_SOCKET_NTHREADS", "2");
    assert_int_equal(connect_one(pair.receiver, pair.to_receiver), RONDO_SUCCESS);
    assert_true(are_helpers(2));
    pass(&pair, 8);
    shutdown(end_of(pair.sender)->conn[1].fd, SHUT_WR);
    request = receive_one(pair.receiver, to, BYTES, 1);
    assert_int_equal(failure_of_sending(pair.sender), RONDO_REMOTE_ERROR);
    assert_int_equal(failure_of(request), RONDO_REMOTE_ERROR);
    assert_says("receiving failed");
    assert_true(are_helpers(0));
    pair_close(&pair);
}

static void after_a_stop_no_thread_touches_the_memory(void **state)
{
    struct pair pair;
    void *request;
    int done;
    (void)state;
    use_helpers("2", "1");
    pair_open(&pair);
    pass(&pair, 1);
    receive_one(pair.receiver, to, BYTES, 1);
    net->stop(pair.receiver);
    assert_true(are_helpers(2));
    memset(to, 0xee, BYTES);
    request = send_some(pair.sender, from, BYTES, 1);
    for (int i = 0; i < 1000; i++) {
        if (net->test(request, &done, NULL) != RONDO_SUCCESS || done) {
            break;
        }
    }
    for (size_t i = 0; i < BYTES; i++) {
        assert_int_equal(to[i], 0xee);
    }
    assert_int_equal(net->irecv(pair.receiver, 1, (void *[]){ to }, &(size_t){ 1 }, &(int){ 1 },
                                (void *[]){ NULL }, &request),
                     RONDO_REMOTE_ERROR);
    assert_says("given up");
    pair_close(&pair);
}

/* An idle helper polls for a few microseconds and then sleeps until its event. */
static void idle_threads_sleep(void **state)
{
    struct pair pair;
    struct timespec before, after;
    int64_t start;
    (void)state;
    use_helpers("4", "1");
    pair_open(&pair);
    pass(&pair, 3);
    start = rondo_now_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    poll(NULL, 0, 100);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t used = (after.tv_sec - before.tv_sec) * 1000000000ll + after.tv_nsec - before.tv_nsec;
    assert_true(used < (rondo_now_ns() - start) / 10);
    pass(&pair, 4);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(there_are_as_many_threads_as_asked_for),
        ROW(ends_may_differ),
        ROW(a_lost_connection_is_an_error_and_ends_the_threads),
        ROW(a_connection_lost_at_the_receiver_is_an_error_too),
        ROW(after_a_stop_no_thread_touches_the_memory),
        ROW(idle_threads_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
