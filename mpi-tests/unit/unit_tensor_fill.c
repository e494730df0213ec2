/* What a publisher does to answer a request takes time: to pack, and to make a checksum. Others go on
 * meanwhile, and what ends meanwhile ends when that is done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tensor_gate.h"

static _Atomic int npacks, nreleases;

static rondo_status pack_slowly(void *arg, void *out, size_t bytes)
{
    gate.reached = 1;
    int opened = await(&gate.open, 2 * PATIENCE_MS);
    pattern(out, bytes, *(uint64_t *)arg);
    npacks++;
    return opened ? RONDO_SUCCESS : rondo_fail(RONDO_INTERNAL_ERROR, "the gate stays closed");
}

static void released(void *arg, void *data)
{
    (void)arg, (void)data;
    nreleases++;
    gate.passed = 1;
}

static const rondo_tensor_ops slow = { .size = sizeof(slow), .pack = pack_slowly, .release = released };

static void publish_slow(struct fake_rank *r, rondo_tensor_store *store, size_t bytes)
{
    static uint64_t salt = 5;
    rondo_tensor t = RONDO_TENSOR_INIT;
    t.bytes = bytes;
    t.ops = &slow;
    t.arg = &salt;
    FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, 1, NULL));
}

static void *make_progress(void *store)
{
    rondo_tensor t = RONDO_TENSOR_INIT;
    (void)rondo_tensor_recv(store, "never", 0, 0, &t, NULL);
    return NULL;
}

/* ---- others go on ---- */

/* One of two threads of rank 0 packs "w", or makes its checksum. The other one answers. */
static void fills(struct fake_rank *r)
{
    const int packs = *(int *)r->arg;
    int value = r->rank, before = r->rank == 0 ? npacks : 0;
    static uint8_t got[GATE_BYTES];
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    rondo_tensor_request *request;
    rondo_tensor w = tensor_of(r->rank == 0 ? gate.base : got, GATE_BYTES),
                 x = tensor_of(&value, sizeof(value));
    pthread_t other;
    config.thread = 0;
    config.checksum = !packs;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 0) {
        if (packs) {
            publish_slow(r, store, GATE_BYTES);
        } else {
            FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &w, 1, NULL));
        }
        FAKE_OK(r, rondo_tensor_publish(store, "x", 0, &x, 1, NULL));
        FAKE_CHECK(r, pthread_create(&other, NULL, make_progress, store) == 0);
        FAKE_OK(r, rondo_tensor_recv(store, "end", 1, 0, &x, NULL));
        FAKE_CHECK(r, !packs || npacks == before + 1);
        FAKE_OK(r, rondo_comm_abort(r->comm));
        r->comm = NULL;
        FAKE_CHECK(r, pthread_join(other, NULL) == 0);
    } else {
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 0, NULL, &w, &request));
        for (int moved; !gate.reached; sched_yield()) {
            pthread_mutex_lock(&store->core->lock);
            rondo_tensor_progress(store->core, &moved);
            pthread_mutex_unlock(&store->core->lock);
        }
        rondo_tensor_request *of_x;
        FAKE_OK(r, rondo_tensor_pull(store, "x", 0, 0, NULL, &x, &of_x));
        rondo_status status = rondo_tensor_wait(of_x, PATIENCE_MS);
        gate.open = 1;
        FAKE_OK(r, status);
        FAKE_OK(r, rondo_tensor_wait(request, PATIENCE_MS));
        FAKE_CHECK(r, !packs || has_pattern(got, GATE_BYTES, 0, 5));
        FAKE_OK(r, rondo_tensor_publish(store, "end", 0, &x, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    }
    (void)rondo_tensor_store_destroy(store);
}

static void a_rank_answers_while_it_packs_or_makes_checksums(void **state)
{
    (void)state;
    for (int wire = 0; wire < WIRES; wire++) {
        for (int packs = 0; packs < 2; packs++) {
            use_wire(wire);
            gate_close();
            fake_ranks(2, fills, &packs);
            gate_remove();
            end_wire(wire);
        }
    }
}

/* ---- what ends meanwhile ---- */

enum way { CANCELLED, RETIRED, NEXT_EPOCH, BROKEN, ABORTED, WAYS };

static void end_while_packed(struct fake_rank *r, rondo_tensor_store *store, enum way way)
{
    switch (way) {
    case RETIRED: FAKE_OK(r, rondo_tensor_retire(store, 0)); break;
    case NEXT_EPOCH: FAKE_OK(r, rondo_tensor_next_epoch(store)); break;
    case BROKEN:
        pthread_mutex_lock(&store->core->lock);
        rondo_tensor_conn_break(conn_to(store, 1), rondo_fail_quiet(RONDO_REMOTE_ERROR, "the test ends it"));
        pthread_mutex_unlock(&store->core->lock);
        FAKE_OK(r, rondo_tensor_retire(store, 0));
        break;
    case ABORTED:
        FAKE_OK(r, rondo_comm_abort(r->comm));
        r->comm = NULL;
        break;
    default: FAKE_CHECK(r, await(&gate.open, PATIENCE_MS));
    }
    gate.passed = 1;
}

static void pulls_while_packed(struct fake_rank *r, rondo_tensor_store *store, rondo_tensor_request *request,
                               rondo_tensor *t, enum way way)
{
    if (way == CANCELLED) {
        FAKE_OK(r, rondo_tensor_cancel(request));
        FAKE_ERROR(r, rondo_tensor_wait(request, PATIENCE_MS), RONDO_INVALID_USAGE, "was cancelled");
    }
    int early = await(&gate.passed, LOOK_MS);
    gate.open = 1;
    FAKE_CHECK(r, !early, "memory was given back that is in use");
    if (way == NEXT_EPOCH) {
        FAKE_OK(r, rondo_tensor_next_epoch(store));
    }
    if (way == CANCELLED) { /* the publication has its pull again */
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 0, NULL, t, &request));
    }
    rondo_status status = rondo_tensor_wait(request, PATIENCE_MS);
    rondo_status wanted = way == CANCELLED || way == RETIRED ? RONDO_SUCCESS
                          : way == NEXT_EPOCH                ? RONDO_INVALID_USAGE
                                                             : RONDO_REMOTE_ERROR;
    FAKE_CHECK(r, status == wanted, "way %d: %s", (int)way, rondo_status_string(status));
    FAKE_CHECK(r, status != RONDO_SUCCESS || has_pattern(t->data, t->bytes, 0, 5));
}

static void ended_while_packed(struct fake_rank *r)
{
    enum { BYTES = 3000 };
    static uint8_t got[BYTES];
    const enum way way = *(enum way *)r->arg;
    rondo_tensor_store *store;
    rondo_tensor_request *request;
    rondo_tensor t = tensor_of(got, BYTES);
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        publish_slow(r, store, BYTES);
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        end_while_packed(r, store, way);
    } else {
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 0, NULL, &t, &request));
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        pulls_while_packed(r, store, request, &t, way);
    }
    (void)rondo_tensor_store_destroy(store);
}

static void what_ends_while_it_is_packed_ends_then(void **state)
{
    (void)state;
    for (int i = 0; i < WIRES * WAYS; i++) {
        enum way way = i / WIRES;
        use_wire(i % WIRES);
        gate.reached = gate.open = gate.passed = 0;
        npacks = nreleases = 0;
        fake_ranks(2, ended_while_packed, &way);
        assert_int_equal(npacks, way == CANCELLED ? 2 : 1);
        assert_int_equal(nreleases, 1);
        end_wire(i % WIRES);
    }
}

/* Rank 0 retires what it makes a checksum of. It is cloned then, and given back before the call returns,
 * although rank 1 does not take it yet. */
static void retired_while_checked(struct fake_rank *r)
{
    static const rondo_tensor_ops ops = { .size = sizeof(ops), .release = released };
    static uint8_t got[GATE_BYTES];
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    rondo_tensor_request *request;
    rondo_tensor t = tensor_of(r->rank == 0 ? gate.base : got, GATE_BYTES);
    config.thread = 0; /* threads of stores block signals, and do not stop at the gate */
    config.checksum = 1;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 0) {
        pthread_t other;
        t.ops = &ops;
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_CHECK(r, pthread_create(&other, NULL, make_progress, store) == 0);
        FAKE_CHECK(r, await(&gate.reached, PATIENCE_MS));
        FAKE_OK(r, rondo_tensor_retire(store, 0)); /* "never", too */
        FAKE_CHECK(r, nreleases == 1, "%d releases before rondo_tensor_retire has returned", nreleases);
        FAKE_CHECK(r, pthread_join(other, NULL) == 0);
    } else {
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 0, NULL, &t, &request));
        for (int moved; !gate.reached; sched_yield()) {
            pthread_mutex_lock(&store->core->lock);
            rondo_tensor_progress(store->core, &moved);
            pthread_mutex_unlock(&store->core->lock);
        }
        int early = await(&gate.passed, LOOK_MS);
        gate.open = 1;
        FAKE_CHECK(r, !early, "memory was given back that is in use");
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    if (r->rank == 1) {
        FAKE_OK(r, rondo_tensor_wait(request, PATIENCE_MS));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void what_is_retired_while_it_is_checked_is_given_back(void **state)
{
    (void)state;
    for (int wire = 0; wire < WIRES; wire++) {
        use_wire(wire);
        gate_close();
        nreleases = 0;
        fake_ranks(2, retired_while_checked, NULL);
        assert_int_equal(nreleases, 1);
        gate_remove();
        end_wire(wire);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_answers_while_it_packs_or_makes_checksums),
        cmocka_unit_test(what_ends_while_it_is_packed_ends_then),
        cmocka_unit_test(what_is_retired_while_it_is_checked_is_given_back),
    };
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
