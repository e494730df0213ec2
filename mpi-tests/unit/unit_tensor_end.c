/* The end of stores and connections, while threads are at work. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>

#include "in_child.h"
#include "tensor/answer.h"
#include "tensor_gate.h"

/* Rank 0 publishes what rank 1 pulls, and has called nothing since, so that it copies nothing itself. */
static void publish_for_gate(struct fake_rank *r, rondo_tensor_store *store)
{
    static uint8_t data[GATE_BYTES];
    rondo_tensor t = tensor_of(data, sizeof(data));
    FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
}

/* ---- copies without the lock ---- */

/* Wait for what does not come. Threads of stores block signals, so only those of the test can pass the
 * gate. */
static void *make_progress(void *store)
{
    rondo_tensor t = RONDO_TENSOR_INIT;
    (void)rondo_tensor_recv(store, "never", 0, 0, &t, NULL);
    return NULL;
}

/* Another thread of rank 1 copies when rank 2 aborts. */
static void aborted_while_copied(struct fake_rank *r)
{
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    rondo_tensor_request *request;
    pthread_t other;
    config.thread = r->rank == 0;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 0) {
        publish_for_gate(r, store);
    } else if (r->rank == 2) {
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        FAKE_OK(r, rondo_comm_abort(r->comm));
        r->comm = NULL;
        int early = await(&gate.passed, LOOK_MS);
        gate.open = 1;
        FAKE_CHECK(r, !early, "the wait has returned before the copy");
    } else {
        rondo_tensor t = tensor_of(gate.base, GATE_BYTES);
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 0, NULL, &t, &request));
        FAKE_CHECK(r, pthread_create(&other, NULL, make_progress, store) == 0);
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        FAKE_ERROR(r, rondo_tensor_wait(request, PATIENCE_MS), RONDO_REMOTE_ERROR, "rank 2");
        gate.passed = 1;
        FAKE_CHECK(r, pthread_join(other, NULL) == 0);
    }
    (void)rondo_tensor_store_destroy(store);
}

static void a_wait_returns_when_nobody_copies_any_more(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    gate_close();
    fake_ranks(3, aborted_while_copied, NULL);
    gate_remove();
    end_wire(SHARED_MEMORY);
}

static void *abort_comm(void *arg)
{
    struct fake_rank *r = arg;
    if (await(&gate.reached, PATIENCE_MS)) {
        (void)rondo_comm_abort(r->comm);
    }
    gate.passed = 1;
    return NULL;
}

static void give_back(void *arg, void *data)
{
    (void)arg, (void)data;
    gate.passed = 1;
}

/* A thread of rank 1 copies, from rank 0 or from its own memory, when another one aborts. */
static void aborted_here_while_copied(struct fake_rank *r)
{
    static const rondo_tensor_ops ops = { .size = sizeof(ops), .release = give_back };
    static uint8_t data[GATE_BYTES];
    const int from = *(int *)r->arg;
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    pthread_t other;
    config.thread = r->rank == 0;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 1 && from == 1) {
        rondo_tensor own = tensor_of(data, sizeof(data));
        own.ops = &ops;
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &own, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    }
    if (r->rank == 0) {
        publish_for_gate(r, store);
        int reached = await(&gate.reached, PATIENCE_MS), early = await(&gate.passed, LOOK_MS);
        gate.open = 1;
        FAKE_CHECK(r, reached && !early, "the communicator has ended before the copy");
        (void)rondo_tensor_store_destroy(store);
        return;
    }
    rondo_tensor t = tensor_of(gate.base, GATE_BYTES);
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_CHECK(r, pthread_create(&other, NULL, abort_comm, r) == 0);
    rondo_status status = rondo_tensor_recv(store, "w", from, 0, &t, NULL);
    FAKE_CHECK(r, status != RONDO_SUCCESS);
    FAKE_CHECK(r, pthread_join(other, NULL) == 0);
    r->comm = NULL;
    (void)rondo_tensor_store_destroy(store);
}

static void an_abort_waits_for_copies(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    for (int from = 0; from < 2; from++) {
        gate_close();
        fake_ranks(2, aborted_here_while_copied, &from);
        gate_remove();
    }
    end_wire(SHARED_MEMORY);
}

static void *pull_own(void *store)
{
    rondo_tensor t = tensor_of(gate.base, GATE_BYTES);
    (void)rondo_tensor_recv(store, "w", 0, 0, &t, NULL);
    return NULL;
}

/* Rank 0 copies a large content from its own memory, and rank 1 does not wait for that. */
static void copies_its_own(struct fake_rank *r)
{
    static uint8_t data[GATE_BYTES];
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    rondo_tensor_request *request;
    int value = 7;
    rondo_tensor t = tensor_of(&value, sizeof(value)), w = tensor_of(data, sizeof(data));
    pthread_t other;
    config.thread = r->rank == 1;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 0) {
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &w, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_OK(r, rondo_tensor_publish(store, "x", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_CHECK(r, pthread_create(&other, NULL, pull_own, store) == 0);
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        FAKE_OK(r, rondo_tensor_recv(store, "end", 1, 0, &t, NULL));
        FAKE_CHECK(r, pthread_join(other, NULL) == 0);
    } else {
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        FAKE_OK(r, rondo_tensor_pull(store, "x", 0, 0, NULL, &t, &request));
        rondo_status status = rondo_tensor_wait(request, PATIENCE_MS);
        gate.open = 1;
        FAKE_OK(r, status);
        FAKE_OK(r, rondo_tensor_publish(store, "end", 0, &t, 1, NULL));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_rank_answers_while_it_copies_its_own(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    gate_close();
    fake_ranks(2, copies_its_own, NULL);
    gate_remove();
    end_wire(SHARED_MEMORY);
}

/* ---- creation and destruction ---- */

/* Rank 0 waits for rank 1 in store_destroy, and gives up. */
static void aborted_while_destroyed(struct fake_rank *r)
{
    rondo_tensor_store *store;
    rondo_tensor t = RONDO_TENSOR_INIT;
    pthread_t other;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    if (r->rank == 0) {
        FAKE_CHECK(r, pthread_create(&other, NULL, abort_comm, r) == 0);
        gate.reached = 1;
        FAKE_CHECK(r, rondo_tensor_store_destroy(store) != RONDO_SUCCESS);
        FAKE_CHECK(r, pthread_join(other, NULL) == 0);
        r->comm = NULL;
    } else {
        FAKE_ERROR(r, rondo_tensor_recv(store, "never", 0, 0, &t, NULL), RONDO_REMOTE_ERROR, "rank 0");
        (void)rondo_tensor_store_destroy(store);
    }
}

static void an_abort_ends_the_destruction_of_a_store(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        use_wire(i % WIRES);
        gate.reached = gate.passed = 0;
        fake_ranks(2, aborted_while_destroyed, NULL);
        end_wire(i % WIRES);
    }
}

/* Rank 1 does not destroy its end. */
static void one_stays(struct fake_rank *r)
{
    rondo_tensor_store *store;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        FAKE_ERROR(r, rondo_tensor_store_destroy(store), RONDO_TIMEOUT, "RONDO_TIMEOUT");
        gate.passed = 1;
    } else {
        int ended = await(&gate.passed, PATIENCE_MS);
        (void)rondo_tensor_store_destroy(store);
        FAKE_CHECK(r, ended, "the destruction has no deadline");
    }
}

static void the_destruction_of_a_store_has_a_deadline(void **state)
{
    (void)state;
    set_param("RONDO_TIMEOUT", "100ms");
    gate.passed = 0;
    fake_ranks(2, one_stays, NULL);
    set_param("RONDO_TIMEOUT", NULL);
}

/* ---- a rank that is pulled from waits for as long as it takes ---- */

enum { TIME_MS = 2000, ROUNDS = 4, TRIES = 10 };

static struct {
    _Atomic int64_t since; /* rank 0 has noticed rank 1 after that; INT64_MAX: it serves it */
    _Atomic int pulled;
    _Atomic int waited; /* rank 0 has waited for rank 1 */
} served;

/* It has given up too early, or succeeded, or the machine was too slow for this to be tested. */
static void destroy_while_pulled(struct fake_rank *r, rondo_tensor_store *store)
{
    rondo_status status = rondo_tensor_store_destroy(store);
    FAKE_CHECK(r,
               status == RONDO_SUCCESS ||
                   (served.since != INT64_MAX && rondo_now_ns() - served.since > rondo_ms_to_ns(TIME_MS)),
               "the time has run: %s", rondo_error_text());
    served.waited = status == RONDO_SUCCESS;
}

static void wait_for_one_that_pulls(void (*fn)(struct fake_rank *), int *arg, int pulls)
{
    served.waited = 0;
    for (int i = 0; i < TRIES && !served.waited; i++) {
        use_wire(SHARED_MEMORY);
        set_param("RONDO_TIMEOUT", "2s");
        gate_close();
        served.pulled = 0;
        served.since = INT64_MAX;
        fake_ranks(2, fn, arg);
        gate_remove();
        set_param("RONDO_TIMEOUT", NULL);
        end_wire(SHARED_MEMORY);
        assert_true(!served.waited || served.pulled == pulls);
    }
    if (!served.waited) skip();
}

static rondo_status pack_for_long(void *arg, void *out, size_t bytes)
{
    (void)arg;
    gate.reached = 1;
    int opened = await(&gate.open, 2 * PATIENCE_MS);
    memset(out, 0, bytes);
    return opened ? RONDO_SUCCESS : rondo_fail(RONDO_INTERNAL_ERROR, "the gate stays closed");
}

static void *open_late(void *arg)
{
    usleep((TIME_MS + TIME_MS / 2) * 1000);
    served.since = rondo_now_ns();
    gate.open = 1;
    return arg;
}

/* One content takes longer than the time: rank 1 copies for so long, or the thread of rank 0's store
 * packs. */
static void pulls_for_long(struct fake_rank *r)
{
    static const rondo_tensor_ops ops = { .size = sizeof(ops), .pack = pack_for_long };
    static uint8_t data[GATE_BYTES];
    const int packs = *(int *)r->arg;
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    rondo_tensor t = tensor_of(r->rank == 1 && !packs ? gate.base : data, GATE_BYTES);
    config.thread = r->rank == 0;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 0) {
        pthread_t other;
        t.ops = packs ? &ops : NULL;
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        FAKE_CHECK(r, pthread_create(&other, NULL, open_late, NULL) == 0);
        destroy_while_pulled(r, store);
        FAKE_CHECK(r, pthread_join(other, NULL) == 0);
    } else {
        served.pulled += rondo_tensor_recv(store, "w", 0, 0, &t, NULL) == RONDO_SUCCESS;
        (void)rondo_tensor_store_destroy(store);
    }
}

static void no_time_runs_while_a_content_is_under_way(void **state)
{
    (void)state;
    for (int packs = 0; packs < 2; packs++) {
        wait_for_one_that_pulls(pulls_for_long, &packs, 1);
    }
}

static void *open_after_the_failure(void *arg)
{
    const struct fake_rank *r = arg;
    rondo_status error = RONDO_SUCCESS;
    for (int64_t end = rondo_now_ns() + rondo_ms_to_ns(PATIENCE_MS);
         error == RONDO_SUCCESS && rondo_now_ns() < end; usleep(1000)) {
        (void)rondo_comm_async_error(r->comm, &error);
    }
    gate.passed = error == RONDO_TIMEOUT;
    gate.open = 1;
    return NULL;
}

/* Rank 1 lives, and does not come to the end of its copy. */
static void takes_for_ever(struct fake_rank *r)
{
    static uint8_t data[GATE_BYTES];
    rondo_tensor_store *store;
    rondo_tensor t = tensor_of(r->rank == 1 ? gate.base : data, GATE_BYTES);
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        pthread_t other;
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        FAKE_CHECK(r, pthread_create(&other, NULL, open_after_the_failure, r) == 0);
        rondo_status status = rondo_tensor_store_destroy(store);
        FAKE_CHECK(r, pthread_join(other, NULL) == 0);
        FAKE_CHECK(r, status == RONDO_TIMEOUT && gate.passed, "%s", rondo_status_string(status));
    } else {
        (void)rondo_tensor_recv(store, "w", 0, 0, &t, NULL);
        (void)rondo_tensor_store_destroy(store);
    }
}

static void one_content_does_not_hold_the_time_for_ever(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    set_param("RONDO_TIMEOUT", "100ms");
    gate_close();
    fake_ranks(2, takes_for_ever, NULL);
    gate_remove();
    set_param("RONDO_TIMEOUT", NULL);
    end_wire(SHARED_MEMORY);
}

/* Mostly the thread of rank 0's store is there first, and the one that destroys it finds nothing. */
static void pulls_now_and_then(struct fake_rank *r)
{
    int value = 7;
    rondo_tensor_store *store;
    rondo_tensor t = tensor_of(&value, sizeof(value));
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        served.since = rondo_now_ns();
        destroy_while_pulled(r, store);
        return;
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    for (int i = 0; i < ROUNDS; i++) {
        usleep(TIME_MS / ROUNDS * 1500);
        int64_t now = rondo_now_ns();
        if (rondo_tensor_recv(store, "w", 0, 0, &t, NULL) == RONDO_SUCCESS) {
            served.since = now;
            served.pulled++;
        }
    }
    (void)rondo_tensor_store_destroy(store);
}

static void no_time_runs_while_others_pull(void **state)
{
    (void)state;
    wait_for_one_that_pulls(pulls_now_and_then, NULL, ROUNDS);
}

/* Rank 1 fails once; then all ranks succeed, and know each other's. */
static void one_fails(struct fake_rank *r)
{
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store = NULL;
    int value = r->rank, got = -1;
    rondo_tensor own = tensor_of(&value, sizeof(value)), t = tensor_of(&got, sizeof(got));
    config.thread = r->rank == 1 ? 7 : 1;
    rondo_status wanted = r->rank == 1 ? RONDO_INVALID_ARGUMENT : RONDO_REMOTE_ERROR;
    FAKE_ERROR(r, rondo_tensor_store_create(r->comm, &config, &store), wanted,
               r->rank == 1 ? "thread 7" : "another rank could not create its end of the tensor store");
    FAKE_CHECK(r, store == NULL);
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &own, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    FAKE_OK(r, rondo_tensor_recv(store, "w", (r->rank + 1) % r->nranks, 0, &t, NULL));
    FAKE_CHECK(r, got == (r->rank + 1) % r->nranks);
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_store_that_one_rank_cannot_create_is_an_error_on_all, 3, one_fails)

/* ---- the end of connections ---- */

static void break_conn(rondo_tensor_store *store, int peer)
{
    pthread_mutex_lock(&store->core->lock);
    rondo_tensor_conn_break(conn_to(store, peer), rondo_fail_quiet(RONDO_REMOTE_ERROR, "the test ends it"));
    pthread_mutex_unlock(&store->core->lock);
}

/* Make progress until the next message can be written at once. @return 0: it took too long */
static int settle(rondo_tensor_store *store, int peer)
{
    int64_t end = rondo_now_ns() + rondo_ms_to_ns(PATIENCE_MS);
    for (int settled = 0; rondo_now_ns() < end; usleep(100)) {
        struct rondo_tensor_conn *conn = conn_to(store, peer);
        int moved = 0;
        pthread_mutex_lock(&store->core->lock);
        rondo_status status = rondo_tensor_conn_progress(conn, &moved);
        settled = !conn->remote_busy && conn->queue_first == conn->queue_end;
        pthread_mutex_unlock(&store->core->lock);
        if (settled || status != RONDO_SUCCESS) {
            return settled;
        }
    }
    return 0;
}

/* Rank 0 ends the connection when its content is in rank 1's ring, and changes its data, which is its own
 * again. Rank 1 has no thread, and finds the content before it is told. */
static void given_back(struct fake_rank *r)
{
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    rondo_tensor_request *request;
    static uint8_t data[2000], got[2000];
    config.thread = r->rank == 0;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    rondo_tensor t = tensor_of(r->rank == 0 ? data : got, sizeof(data));
    if (r->rank == 0) {
        pattern(data, sizeof(data), 1);
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_OK(r, rondo_tensor_publish(store, "w", 1, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        UNTIL(r, store, now.contents == 2);
        break_conn(store, 1);
        memset(data, 0, sizeof(data));
        gate.reached = 1;
    } else {
        int moved = 0;
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        FAKE_CHECK(r, settle(store, 0)); /* what it said of that content is acknowledged */
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 1, NULL, &t, &request));
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        pthread_mutex_lock(&store->core->lock);
        rondo_status status = rondo_tensor_conn_progress(conn_to(store, 0), &moved);
        pthread_mutex_unlock(&store->core->lock);
        FAKE_OK(r, status);
        FAKE_ERROR(r, rondo_tensor_wait(request, PATIENCE_MS), RONDO_REMOTE_ERROR,
                   "has ended the connection for tensors");
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_content_that_was_given_back_is_no_success(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    gate.reached = 0;
    fake_ranks(2, given_back, NULL);
    end_wire(SHARED_MEMORY);
}

/* There is no room for the letter of the end when rank 0 breaks the connection. */
static void no_room_for_the_end(struct fake_rank *r)
{
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    rondo_tensor_request *request;
    int value = 0;
    rondo_tensor t = tensor_of(&value, sizeof(value));
    config.thread = r->rank == 0;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    if (r->rank == 0) {
        struct rondo_control *control = store->core->ctx->wiring.control;
        rondo_status status = RONDO_SUCCESS;
        FAKE_CHECK(r, await(&gate.passed, PATIENCE_MS)); /* from now on rank 1 empties nothing */
        for (int i = 0; i < 1000 && status == RONDO_SUCCESS; i++) {
            status = rondo_control_send(control, 1, 99, &i, sizeof(i));
        }
        FAKE_CHECK(r, status == RONDO_IN_PROGRESS, "%s", rondo_status_string(status));
        break_conn(store, 1);
        gate.reached = 1;
    } else {
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        FAKE_OK(r, rondo_tensor_pull(store, "never", 0, 0, NULL, &t, &request));
        gate.passed = 1;
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        FAKE_ERROR(r, rondo_tensor_wait(request, PATIENCE_MS), RONDO_REMOTE_ERROR,
                   "has ended the connection for tensors: the test ends it");
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void the_end_of_a_connection_is_said_until_it_is_heard(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    gate.reached = gate.passed = 0;
    fake_ranks(2, no_room_for_the_end, NULL);
    end_wire(SHARED_MEMORY);
}

/* ---- what is refused ---- */

static void grouped(struct fake_rank *r)
{
    rondo_tensor_store *store = NULL;
    FAKE_OK(r, rondo_group_start());
    FAKE_ERROR(r, rondo_tensor_store_create(r->comm, NULL, &store), RONDO_INVALID_USAGE, "rondo_group_start");
    FAKE_OK(r, rondo_group_end());
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_group_start());
    FAKE_ERROR(r, rondo_tensor_store_destroy(store), RONDO_INVALID_USAGE, "rondo_group_start");
    FAKE_OK(r, rondo_group_end());
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_group_keeps_no_creation_or_destruction_of_a_store(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    fake_ranks(2, grouped, NULL);
    end_wire(SHARED_MEMORY);
}

static int use_request(void *request)
{
    int done = 0;
    alarm(20); /* it may wait for ever */
    return rondo_tensor_test(request, &done) != RONDO_INVALID_USAGE ||
           rondo_tensor_cancel(request) != RONDO_INVALID_USAGE ||
           rondo_tensor_wait(request, PATIENCE_MS) != RONDO_INVALID_USAGE;
}

/* A thread of the parent has the store's lock. */
static void forked(struct fake_rank *r)
{
    static uint8_t data[8];
    rondo_tensor_store *store;
    rondo_tensor t = RONDO_TENSOR_INIT;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 1) {
        rondo_tensor_request *request;
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 0, NULL, &t, &request));
        pthread_mutex_lock(&store->core->lock);
        int wrong = in_child(use_request, request);
        pthread_mutex_unlock(&store->core->lock);
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        FAKE_OK(r, rondo_tensor_wait(request, PATIENCE_MS));
        FAKE_CHECK(r, !wrong, "the child's code is %d", wrong);
    } else {
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        t = tensor_of(data, sizeof(data));
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void requests_of_the_parent_are_refused_in_a_child(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    fake_ranks(2, forked, NULL);
    end_wire(SHARED_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_returns_when_nobody_copies_any_more),
        cmocka_unit_test(an_abort_waits_for_copies),
        cmocka_unit_test(a_rank_answers_while_it_copies_its_own),
        cmocka_unit_test(an_abort_ends_the_destruction_of_a_store),
        cmocka_unit_test(the_destruction_of_a_store_has_a_deadline),
        cmocka_unit_test(no_time_runs_while_a_content_is_under_way),
        cmocka_unit_test(one_content_does_not_hold_the_time_for_ever),
        cmocka_unit_test(no_time_runs_while_others_pull),
        cmocka_unit_test(a_store_that_one_rank_cannot_create_is_an_error_on_all),
        cmocka_unit_test(a_content_that_was_given_back_is_no_success),
        cmocka_unit_test(the_end_of_a_connection_is_said_until_it_is_heard),
        cmocka_unit_test(a_group_keeps_no_creation_or_destruction_of_a_store),
        cmocka_unit_test(requests_of_the_parent_are_refused_in_a_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
