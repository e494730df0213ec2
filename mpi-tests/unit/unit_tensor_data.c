/* Memory is the user's again when nobody reads or writes it any more: of publications, and places of
 * pulls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tensor_gate.h"

/* Wait for what does not come. Threads of stores block signals, so only those of the test can pass the
 * gate. */
static void *make_progress(void *store)
{
    rondo_tensor t = RONDO_TENSOR_INIT;
    (void)rondo_tensor_recv(store, "never", 0, 0, &t, NULL);
    return NULL;
}

static void *pull_to_gate(void *store)
{
    rondo_tensor t = tensor_of(gate.base, GATE_BYTES);
    (void)rondo_tensor_recv(store, "w", 0, 0, &t, NULL);
    return NULL;
}

static void break_conn(rondo_tensor_store *store, int peer)
{
    pthread_mutex_lock(&store->core->lock);
    rondo_tensor_conn_break(conn_to(store, peer), rondo_fail_quiet(RONDO_REMOTE_ERROR, "the test ends it"));
    pthread_mutex_unlock(&store->core->lock);
}

/* The last one of a test: somebody is at the gate, and what must come later waits for it. */
static void open_gate_late(struct fake_rank *r)
{
    FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
    int early = await(&gate.passed, LOOK_MS);
    gate.open = 1;
    FAKE_CHECK(r, !early, "memory was given back that is in use");
}

/* ---- the end of a store ---- */

enum way { BY_WAIT, BY_TEST, BY_RETIRE, BY_EPOCH, BY_LATER_CALL, WAYS };

static void until_failed(struct fake_rank *r, rondo_tensor_store *store)
{
    int64_t begun_ns = rondo_now_ns();
    for (int failed = 0, moved; !failed; sched_yield()) {
        pthread_mutex_lock(&store->core->lock);
        rondo_tensor_progress(store->core, &moved);
        failed = store->core->failure != RONDO_SUCCESS;
        pthread_mutex_unlock(&store->core->lock);
        FAKE_CHECK(r, rondo_now_ns() - begun_ns < rondo_ms_to_ns(PATIENCE_MS));
    }
}

static void learn_of_the_end(struct fake_rank *r, rondo_tensor_store *store, rondo_tensor_request *request,
                             enum way way)
{
    rondo_status status = RONDO_SUCCESS;
    switch (way) {
    case BY_WAIT: status = rondo_tensor_wait(request, PATIENCE_MS); break;
    case BY_TEST:
        for (int done = 0; !done; sched_yield()) {
            status = rondo_tensor_test(request, &done);
        }
        break;
    case BY_RETIRE: status = rondo_tensor_retire(store, 0); break;
    case BY_EPOCH: status = rondo_tensor_next_epoch(store); break;
    default: until_failed(r, store); status = rondo_tensor_retire(store, 0);
    }
    gate.passed = 1;
    FAKE_CHECK(r, status == RONDO_REMOTE_ERROR, "%s", rondo_status_string(status));
}

/* A thread of rank 0 copies from its own memory when rank 1 aborts. */
static void failed_while_copied(struct fake_rank *r)
{
    static uint8_t data[GATE_BYTES];
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    rondo_tensor_request *request;
    pthread_t other;
    config.thread = 0;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 0) {
        rondo_tensor t = tensor_of(data, sizeof(data));
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, &request));
        FAKE_CHECK(r, pthread_create(&other, NULL, pull_to_gate, store) == 0);
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        learn_of_the_end(r, store, request, *(enum way *)r->arg);
        FAKE_CHECK(r, pthread_join(other, NULL) == 0);
    } else {
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        FAKE_OK(r, rondo_comm_abort(r->comm));
        r->comm = NULL;
        open_gate_late(r);
    }
    (void)rondo_tensor_store_destroy(store);
}

static void a_store_that_has_failed_says_so_when_its_data_is_free(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    for (enum way way = 0; way < WAYS; way++) {
        gate_close();
        fake_ranks(2, failed_while_copied, &way);
        gate_remove();
    }
    end_wire(SHARED_MEMORY);
}

/* ---- within a process ---- */

enum end { END_OF_STORE, END_OF_CONNECTION };

/* A thread of rank 1 copies from memory of rank 0, which ends that. */
static void ended_while_read(struct fake_rank *r)
{
    static uint8_t data[GATE_BYTES];
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    pthread_t other;
    config.thread = r->rank == 0;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 0) {
        rondo_tensor t = tensor_of(data, sizeof(data));
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        if (*(enum end *)r->arg == END_OF_STORE) {
            FAKE_OK(r, rondo_comm_abort(r->comm));
            r->comm = NULL;
        } else {
            break_conn(store, 1);
            FAKE_OK(r, rondo_tensor_retire(store, 0));
        }
        gate.passed = 1;
    } else {
        FAKE_CHECK(r, pthread_create(&other, NULL, pull_to_gate, store) == 0);
        open_gate_late(r);
        FAKE_CHECK(r, pthread_join(other, NULL) == 0);
    }
    (void)rondo_tensor_store_destroy(store);
}

static void data_is_free_when_ranks_of_the_process_have_copied_it(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    for (enum end end = 0; end <= END_OF_CONNECTION; end++) {
        gate_close();
        fake_ranks(2, ended_while_read, &end);
        gate_remove();
    }
    end_wire(SHARED_MEMORY);
}

/* ---- what NICs read and write ---- */

#if RONDO_HAVE_VERBS

/* Make progress. @return 1: all messages to a rank have been read. */
static int is_quiet(rondo_tensor_store *store, int peer)
{
    int moved;
    pthread_mutex_lock(&store->core->lock);
    rondo_tensor_progress(store->core, &moved);
    const struct rondo_tensor_conn *conn = conn_to(store, peer);
    int quiet = !conn->remote_busy && !conn->local_busy && conn->queue_first == conn->queue_end;
    pthread_mutex_unlock(&store->core->lock);
    return quiet;
}

/* Rank 0 has asked rank 1 for "w" and "later", where it knows them, and rank 1 has asked it for "x". The
 * content of "w" has come to the gate, but rank 0 has not looked at it. */
struct pulls {
    rondo_tensor_store *store;
    rondo_tensor w, later, x;
    rondo_tensor_request *of_w, *of_later, *of_x;
};

static void pull_first(struct fake_rank *r, struct pulls *p)
{
    static uint8_t w[GATE_BYTES], later[2][GATE_BYTES], x[2][GATE_BYTES];
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    config.thread = r->rank == 1;
    config.checksum = r->rank == 0;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &p->store));
    p->w = tensor_of(r->rank == 0 ? gate.base : w, GATE_BYTES);
    p->later = tensor_of(later[r->rank], GATE_BYTES);
    p->x = tensor_of(x[r->rank], GATE_BYTES);
    if (r->rank == 0) {
        FAKE_OK(r, rondo_tensor_publish(p->store, "x", 0, &p->x, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_OK(r, rondo_tensor_recv(p->store, "w", 1, 0, &p->w, NULL));
        FAKE_OK(r, rondo_tensor_recv(p->store, "later", 1, 0, &p->later, NULL));
        FAKE_OK(r, rondo_tensor_pull(p->store, "w", 1, 1, NULL, &p->w, &p->of_w));
        FAKE_OK(r, rondo_tensor_pull(p->store, "later", 1, 1, NULL, &p->later, &p->of_later));
        rondo_tensor end = RONDO_TENSOR_INIT;
        FAKE_OK(r, rondo_tensor_recv(p->store, "end", 1, 0, &end, NULL)); /* rank 1 has asked */
        FAKE_OK(r, rondo_tensor_free(p->store, end.data));
        UNTIL(r, p->store, is_quiet(p->store, 1));
    } else {
        static int value;
        rondo_tensor t = tensor_of(&value, sizeof(value));
        FAKE_OK(r, rondo_tensor_publish(p->store, "w", 0, &p->w, 1, NULL));
        FAKE_OK(r, rondo_tensor_publish(p->store, "later", 0, &p->later, 1, NULL));
        FAKE_OK(r, rondo_tensor_recv(p->store, "x", 0, 0, &p->x, NULL));
        FAKE_OK(r, rondo_tensor_pull(p->store, "x", 0, 1, NULL, &p->x, &p->of_x));
        FAKE_OK(r, rondo_tensor_publish(p->store, "end", 0, &t, 1, NULL));
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    if (r->rank == 1) {
        uint64_t before = stats_of(p->store).contents;
        FAKE_OK(r, rondo_tensor_publish(p->store, "w", 1, &p->w, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        UNTIL(r, p->store, now.contents == before + 1);
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
}

/* A thread of rank 0 checks what has come over a connection that another one breaks, while a NIC reads a
 * content that goes out over it. */
static void broken_while_sent(struct fake_rank *r)
{
    struct pulls p = { 0 };
    pthread_t other;
    pull_first(r, &p);
    if (r->failure[0] != '\0') return;
    if (r->rank == 0) {
        fake_verbs_hold_sends(1);
        FAKE_OK(r, rondo_tensor_publish(p.store, "x", 1, &p.x, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_CHECK(r, stats_of(p.store).contents == 2);
        FAKE_CHECK(r, mprotect(gate.base, GATE_BYTES, PROT_NONE) == 0);
        FAKE_CHECK(r, pthread_create(&other, NULL, make_progress, p.store) == 0);
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        break_conn(p.store, 1);
        FAKE_OK(r, rondo_tensor_retire(p.store, 1));
        gate.passed = 1;
        fake_verbs_hold_sends(0);
        FAKE_OK(r, rondo_comm_abort(r->comm));
        r->comm = NULL;
        FAKE_CHECK(r, pthread_join(other, NULL) == 0);
    } else {
        open_gate_late(r);
    }
    (void)rondo_tensor_store_destroy(p.store);
}

/* The same; the publisher may still write to the place of another pull. */
static void broken_while_offered(struct fake_rank *r)
{
    struct pulls p = { 0 };
    pthread_t other;
    int done = 0;
    pull_first(r, &p);
    if (r->failure[0] != '\0') return;
    if (r->rank == 0) {
        FAKE_CHECK(r, mprotect(gate.base, GATE_BYTES, PROT_NONE) == 0);
        FAKE_CHECK(r, pthread_create(&other, NULL, make_progress, p.store) == 0);
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        break_conn(p.store, 1);
        (void)rondo_tensor_test(p.of_later, &done);
        gate.passed = done;
        if (!done) {
            FAKE_ERROR(r, rondo_tensor_wait(p.of_later, PATIENCE_MS), RONDO_REMOTE_ERROR, "the test ends it");
        }
        FAKE_ERROR(r, rondo_tensor_wait(p.of_w, PATIENCE_MS), RONDO_REMOTE_ERROR, "the test ends it");
        FAKE_OK(r, rondo_comm_abort(r->comm));
        r->comm = NULL;
        FAKE_CHECK(r, pthread_join(other, NULL) == 0);
    } else {
        open_gate_late(r);
    }
    (void)rondo_tensor_store_destroy(p.store);
}

static void over_verbs(fake_rank_fn *fn)
{
    use_wire(VERBS);
    gate_close();
    assert_int_equal(mprotect(gate.base, GATE_BYTES, PROT_READ | PROT_WRITE), 0);
    fake_ranks(2, fn, NULL);
    gate_remove();
    end_wire(VERBS);
}

static void data_is_free_when_no_nic_reads_it(void **state)
{
    (void)state;
    over_verbs(broken_while_sent);
}

static void a_place_is_free_when_no_peer_writes_to_it(void **state)
{
    (void)state;
    over_verbs(broken_while_offered);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_that_has_failed_says_so_when_its_data_is_free),
        cmocka_unit_test(data_is_free_when_ranks_of_the_process_have_copied_it),
#if RONDO_HAVE_VERBS
        cmocka_unit_test(data_is_free_when_no_nic_reads_it),
        cmocka_unit_test(a_place_is_free_when_no_peer_writes_to_it),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
