/* Named tensors when something goes wrong: each fault is a clear error on the right rank; nothing hangs,
 * nothing leaks, and what is not at fault goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <cmocka.h>

#include "base/fault.h"
#include "faults.h"
#include "tensor_world.h"
#include "tensor/store.h"

enum { SHORT_MS = 300 }; /* a deadline that is meant to pass */

static void use_fault(const char *fault)
{
    set_param("RONDO_FAULT", fault);
    assert_int_equal(rondo_fault_init(), RONDO_SUCCESS);
}

/* ---- pulls that get nothing ---- */

static void never_published(struct fake_rank *r)
{
    rondo_tensor_store *store;
    rondo_tensor t = RONDO_TENSOR_INIT;
    rondo_tensor_request *request;
    int one = 1, got = 0;
    rondo_tensor here = tensor_of(r->rank == 0 ? &one : &got, sizeof(int));
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    /* Connect first: on a busy machine that may take longer than the deadline below. */
    FAKE_OK(r, r->rank == 0 ? rondo_tensor_publish(store, "here", 0, &here, RONDO_TENSOR_UNTIL_RETIRED, NULL)
                            : rondo_tensor_recv(store, "here", 0, 0, &here, NULL));
    if (r->rank == 1) {
        FAKE_OK(r, rondo_tensor_pull(store, "ghost", 0, 42, NULL, &t, &request));
        FAKE_ERROR(r, rondo_tensor_wait(request, SHORT_MS), RONDO_TIMEOUT,
                   "tensor \"ghost\" at step 42: rank 0 on");
        FAKE_CHECK(r, fake_has(rondo_last_error(NULL), "has not published it"), "%s", rondo_last_error(NULL));
        FAKE_OK(r,
                rondo_tensor_pull(store, "ghost", RONDO_TENSOR_ANY, RONDO_TENSOR_LATEST, NULL, &t, &request));
        FAKE_ERROR(r, rondo_tensor_wait(request, SHORT_MS), RONDO_TIMEOUT,
                   "at the latest step: any rank has not");
        FAKE_CHECK(r, t.data == NULL && t.bytes == 0);
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    if (r->rank == 0) { /* a pull that was given up takes nothing of a publication */
        int value = 1;
        rondo_tensor own = tensor_of(&value, sizeof(value));
        FAKE_OK(r, rondo_tensor_publish(store, "ghost", 42, &own, 1, &request));
        FAKE_ERROR(r, rondo_tensor_wait(request, SHORT_MS), RONDO_TIMEOUT,
                   "not all pulls of a published tensor");
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_deadline_names_key_step_and_peer, 2, never_published)

static rondo_status bad_pack(void *arg, void *out, size_t bytes)
{
    (void)arg, (void)out, (void)bytes;
    return rondo_fail_quiet(RONDO_SYSTEM_ERROR, "the table is on fire");
}

static rondo_status nosy_pack(void *arg, void *out, size_t bytes)
{
    void *more;
    memset(out, 1, bytes);
    return rondo_tensor_alloc(arg, 10, &more);
}

static void publishers_errors(struct fake_rank *r)
{
    static const rondo_tensor_ops bad = { sizeof(bad), bad_pack, NULL, NULL },
                                  nosy = { sizeof(nosy), nosy_pack, NULL, NULL };
    rondo_tensor_store *store;
    rondo_tensor t = RONDO_TENSOR_INIT;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        rondo_tensor packed = tensor_of(NULL, 100);
        packed.ops = &bad;
        FAKE_OK(r, rondo_tensor_publish_error(store, "loss", 7, RONDO_INTERNAL_ERROR, "gradient is NaN\n"));
        FAKE_OK(r, rondo_tensor_publish(store, "bad", 7, &packed, 1, NULL));
        packed.ops = &nosy;
        packed.arg = store;
        FAKE_OK(r, rondo_tensor_publish(store, "nosy", 7, &packed, 1, NULL));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    } else {
        FAKE_ERROR(r, rondo_tensor_recv(store, "loss", 0, 7, &t, NULL), RONDO_INTERNAL_ERROR,
                   "says: gradient is NaN?");
        FAKE_ERROR(r, rondo_tensor_recv(store, "bad", 0, 7, &t, NULL), RONDO_SYSTEM_ERROR,
                   "the table is on fire");
        FAKE_CHECK(r, fake_has(rondo_last_error(NULL), "did not get tensor \"bad\" of rank 0: rank 0"), "%s",
                   rondo_last_error(NULL));
        FAKE_ERROR(r, rondo_tensor_recv(store, "nosy", 0, 7, &t, NULL), RONDO_INVALID_USAGE,
                   "rondo_tensor_alloc");
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(the_publishers_error_reaches_the_puller, 2, publishers_errors)

/* ---- steps and epochs ---- */

/* Rank 1 has no thread, so that it stands still between its request and its re-request. */
static void retired_during_a_pull(struct fake_rank *r)
{
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    rondo_tensor_request *request = NULL;
    rondo_tensor t = RONDO_TENSOR_INIT;
    static uint8_t data[70000];
    static int asked;
    config.thread = r->rank == 0;
    if (r->rank == 0) {
        __atomic_store_n(&asked, 0, __ATOMIC_RELEASE);
        pattern(data, sizeof(data), 9);
    }
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 0) {
        rondo_tensor own = tensor_of(data, sizeof(data));
        FAKE_OK(r, rondo_tensor_publish(store, "w", 1, &own, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        UNTIL(r, store, now.meta_data == 1);
        __atomic_store_n(&asked, 1, __ATOMIC_RELEASE);
        FAKE_OK(r, rondo_tensor_retire(store, 1));
        FAKE_CHECK(r, stats_of(store).cloned_bytes == sizeof(data));
        memset(data, 0, sizeof(data)); /* ours again */
        FAKE_ERROR(r, rondo_tensor_publish(store, "w", 0, &own, 1, NULL), RONDO_INVALID_USAGE, "was retired");
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    } else {
        int done;
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 1, NULL, &t, &request));
        while (!__atomic_load_n(&asked, __ATOMIC_ACQUIRE) && stats_of(store).message_writes == 0) {
            FAKE_OK(r, rondo_tensor_test(request, &done)); /* until the request has gone out */
            FAKE_CHECK(r, !done);
        }
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        FAKE_OK(r, rondo_tensor_wait(request, PATIENCE_MS));
        FAKE_CHECK(r, t.bytes == sizeof(data) && has_pattern(t.data, t.bytes, 0, 9));
        FAKE_ERROR(r, rondo_tensor_recv(store, "w", 0, 1, &t, NULL), RONDO_INVALID_USAGE,
                   "step 1 was retired");
        FAKE_ERROR(r, rondo_tensor_recv(store, "other", 0, 0, &t, NULL), RONDO_INVALID_USAGE,
                   "step 0 was retired");
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_tensor_that_is_retired_during_a_pull_is_cloned, 2, retired_during_a_pull)

static void waits_for_retired(struct fake_rank *r)
{
    rondo_tensor_store *store;
    rondo_tensor t = RONDO_TENSOR_INIT;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        FAKE_OK(r,
                rondo_tensor_store_stats(store, &(rondo_tensor_stats){ .size = sizeof(rondo_tensor_stats) }));
        FAKE_OK(r, rondo_tensor_retire(store, 3));
    } else {
        FAKE_ERROR(r, rondo_tensor_recv(store, "w", 0, 3, &t, NULL), RONDO_INVALID_USAGE,
                   "step 3 was retired");
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_pull_that_waits_ends_when_its_step_is_retired, 2, waits_for_retired)

/* Rank 1 goes to the next epoch first: its pull waits for rank 0's publication there, and does not take the
 * one of the old epoch. */
static void epochs(struct fake_rank *r)
{
    rondo_tensor_store *store;
    rondo_tensor_request *old, *request;
    static int value[2] = { 1, 2 };
    static int went;
    int got = 0;
    rondo_tensor t = tensor_of(&got, sizeof(got));
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        rondo_tensor own = tensor_of(&value[0], sizeof(int));
        FAKE_OK(r, rondo_tensor_publish(store, "x", 0, &own, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        UNTIL(r, store, __atomic_load_n(&went, __ATOMIC_ACQUIRE) > 0);
        FAKE_OK(r, rondo_tensor_next_epoch(store));
        own.data = &value[1];
        FAKE_OK(r, rondo_tensor_publish(store, "x", 0, &own, 1, &request));
        FAKE_OK(r, rondo_tensor_wait(request, PATIENCE_MS));
    } else {
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        FAKE_OK(r, rondo_tensor_recv(store, "x", 0, 0, &t, NULL));
        FAKE_CHECK(r, got == 1);
        FAKE_OK(r, rondo_tensor_pull(store, "never", 0, 0, NULL, &t, &old));
        FAKE_OK(r, rondo_tensor_next_epoch(store));
        FAKE_ERROR(r, rondo_tensor_wait(old, 0), RONDO_INVALID_USAGE, "the epoch has ended");
        FAKE_OK(r, rondo_tensor_pull(store, "x", 0, 0, NULL, &t, &request));
        uint64_t writes = stats_of(store).message_writes;
        UNTIL(r, store, now.message_writes >= writes && rondo_now_ns() - begun_ > 20000000);
        FAKE_CHECK(r, got == 1); /* not served from the old epoch */
        __atomic_store_n(&went, 1, __ATOMIC_RELEASE);
        FAKE_OK(r, rondo_tensor_wait(request, PATIENCE_MS));
        FAKE_CHECK(r, got == 2);
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    __atomic_store_n(&went, 0, __ATOMIC_RELEASE);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(an_epoch_separates_equal_steps, 2, epochs)

static void cancels(struct fake_rank *r)
{
    rondo_tensor_store *store;
    rondo_tensor_request *request;
    rondo_tensor_item items[2];
    rondo_tensor t[2] = { RONDO_TENSOR_INIT, RONDO_TENSOR_INIT };
    static int value = 3;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        rondo_tensor own = tensor_of(&value, sizeof(value));
        FAKE_OK(r, rondo_tensor_publish(store, "there", 0, &own, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_OK(r, rondo_tensor_publish(store, "spare", 0, &own, 1, &request));
        FAKE_OK(r, rondo_tensor_cancel(request));
        FAKE_ERROR(r, rondo_tensor_wait(request, 0), RONDO_INVALID_USAGE, "was cancelled");
    } else {
        int done = 0;
        items[0] = (rondo_tensor_item){ .key = "there", .peer = 0, .step = 0, .tensor = &t[0] };
        items[1] = (rondo_tensor_item){ .key = "absent", .peer = 0, .step = 0, .tensor = &t[1] };
        FAKE_OK(r, rondo_tensor_pull_many(store, items, 2, &request));
        for (int64_t begun = rondo_now_ns();
             __atomic_load_n(&items[0].status, __ATOMIC_ACQUIRE) == RONDO_IN_PROGRESS;) {
            FAKE_OK(r, rondo_tensor_test(request, &done));
            FAKE_CHECK(r, !done && rondo_now_ns() - begun < rondo_ms_to_ns(PATIENCE_MS));
        }
        FAKE_OK(r, rondo_tensor_cancel(request));
        FAKE_ERROR(r, rondo_tensor_wait(request, PATIENCE_MS), RONDO_INVALID_USAGE, "was cancelled");
        FAKE_CHECK(r, items[0].status == RONDO_SUCCESS && items[1].status == RONDO_INVALID_USAGE);
        FAKE_CHECK(r, *(int *)t[0].data == 3 && t[1].data == NULL);
        FAKE_OK(r, rondo_tensor_recv(store, "spare", 0, 0, &t[1], NULL)); /* still published */
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_cancelled_request_ends_and_the_rest_goes_on, 2, cancels)

/* Rank 1 has no thread: it gives a pull up when the content is on its way, and finds it when it looks
 * again. */
static void late_content(struct fake_rank *r)
{
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    rondo_tensor_request *request;
    static uint8_t data[70000], got[70000];
    static int sent;
    config.thread = r->rank == 0;
    if (r->rank == 0) {
        __atomic_store_n(&sent, 0, __ATOMIC_RELEASE);
        pattern(data, sizeof(data), 5);
    }
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    rondo_tensor t = tensor_of(r->rank == 0 ? data : got, sizeof(data));
    if (r->rank == 0) {
        FAKE_OK(r, rondo_tensor_publish(store, "w", 1, &t, 1, &request));
        FAKE_OK(r, rondo_tensor_wait(request, PATIENCE_MS));
        FAKE_OK(r, rondo_tensor_publish(store, "w", 2, &t, 1, &request));
        UNTIL(r, store, now.contents == 2);
        __atomic_store_n(&sent, 1, __ATOMIC_RELEASE);
        FAKE_OK(r, rondo_tensor_wait(request, PATIENCE_MS)); /* by the third content */
        FAKE_CHECK(r, stats_of(store).contents == 3);
    } else {
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 1, &t, NULL));
        memset(got, 0, sizeof(got));
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 2, NULL, &t, &request));
        for (int done = 0, queued = 1; queued;) { /* until the request has gone out, and not longer */
            pthread_mutex_lock(&store->core->lock);
            queued = store->core->conn_of[0]->queue_end > 0;
            pthread_mutex_unlock(&store->core->lock);
            if (queued) FAKE_OK(r, rondo_tensor_test(request, &done));
            FAKE_CHECK(r, !done);
        }
        while (!__atomic_load_n(&sent, __ATOMIC_ACQUIRE)) sched_yield();
        FAKE_OK(r, rondo_tensor_cancel(request));
        FAKE_ERROR(r, rondo_tensor_wait(request, PATIENCE_MS), RONDO_INVALID_USAGE, "was cancelled");
        int dropped = 0;
        if (over_writes()) { /* it came before the wait returned, and nothing is written afterwards */
            FAKE_CHECK(r, stats_of(store).dropped == 1);
            memset(got, 0, sizeof(got));
        }
        while (!dropped) { /* a pull of what does not come makes progress */
            rondo_tensor none = RONDO_TENSOR_INIT;
            FAKE_OK(r, rondo_tensor_pull(store, "never", 0, 9, NULL, &none, &request));
            FAKE_ERROR(r, rondo_tensor_wait(request, 20), RONDO_TIMEOUT, "never");
            dropped = stats_of(store).dropped == 1;
        }
        FAKE_CHECK(r, got[0] == 0 && memcmp(got, got + 1, sizeof(got) - 1) == 0,
                   "it was written all the same");
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 2, &t, NULL));
        FAKE_CHECK(r, has_pattern(got, sizeof(got), 0, 5));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_content_that_comes_too_late_is_dropped_and_not_counted, 2, late_content)

/* ---- arguments ---- */

static void misuse(struct fake_rank *r)
{
    rondo_tensor_store *store, *gone;
    char *name = calloc(1, 65537);
    static int data[4];
    int small = 0;
    rondo_tensor t = tensor_of(data, sizeof(data)), got = tensor_of(&small, sizeof(small));
    rondo_tensor_slice slice = { (enum rondo_tensor_part)7, 0, 0 };
    memset(name, 'n', 65536);
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &gone));
    FAKE_OK(r, rondo_tensor_store_destroy(gone));
    FAKE_ERROR(r, rondo_tensor_publish(gone, "k", 0, &t, 1, NULL), RONDO_INVALID_ARGUMENT,
               "was destroyed before");
    FAKE_ERROR(r, rondo_tensor_publish(store, name, 0, &t, 1, NULL), RONDO_INVALID_ARGUMENT,
               "is too long; a key has 1 to 512 bytes");
    FAKE_ERROR(r, rondo_tensor_recv(store, "", 0, 0, &t, NULL), RONDO_INVALID_ARGUMENT, "is empty");
    FAKE_ERROR(r, rondo_tensor_recv(store, "k", 9, 0, &t, NULL), RONDO_INVALID_ARGUMENT,
               "there is no rank 9");
    FAKE_ERROR(r, rondo_tensor_pull(store, "k", 0, 0, &slice, &t, NULL), RONDO_INVALID_ARGUMENT,
               "no known kind");
    t.ndims = 2;
    t.shape[0] = t.shape[1] = INT64_MAX / 2;
    FAKE_ERROR(r, rondo_tensor_publish(store, "k", 0, &t, 1, NULL), RONDO_INVALID_ARGUMENT,
               "overflow at dimension");
    t.ndims = 0;
    FAKE_OK(r, rondo_tensor_publish(store, "k", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    FAKE_ERROR(r, rondo_tensor_publish(store, "k", 0, &t, 1, NULL), RONDO_INVALID_USAGE,
               "is published at step 0");
    FAKE_ERROR(r, rondo_tensor_recv(store, "k", 1 - r->rank, 0, &got, NULL), RONDO_INVALID_ARGUMENT,
               "it has 16 bytes, and the place for it 4");
    FAKE_ERROR(r, rondo_tensor_recv(store, "k", 1 - r->rank, 0, &got, NULL), RONDO_INVALID_ARGUMENT,
               "it has 16 bytes, and the place for it 4");
    FAKE_CHECK(r, got.bytes == sizeof(small) && got.data == &small && small == 0);
    FAKE_ERROR(r, rondo_tensor_free(store, data), RONDO_INVALID_ARGUMENT, "is not memory of this store");
    FAKE_OK(r, rondo_tensor_store_destroy(store));
    free(name);
}

ALL_WIRES(bad_arguments_are_errors_that_say_why, 2, misuse)

/* ---- the transfer ---- */

static void corrupted(struct fake_rank *r)
{
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    static uint8_t data[20000];
    config.checksum = 1;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 0) {
        rondo_tensor t = tensor_of(data, sizeof(data));
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    } else {
        for (int i = 0; i < 2; i++) {
            rondo_tensor t = RONDO_TENSOR_INIT;
            if (i == 1) { /* the content of the second pull is changed on its way */
                FAKE_ERROR(
                    r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL), RONDO_REMOTE_ERROR,
                    "its 20000 bytes of step 0 were changed on their way from rank 0: the checksum differs");
                FAKE_CHECK(r, t.data == NULL);
            } else {
                FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
            }
        }
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_changed_content_is_noticed_in_checksum_mode(void **state)
{
    (void)state;
    needs_faults();
    for (int wire = 0; wire < WIRES; wire++) {
        use_wire(wire);
        use_fault("rank=1,phase=tensor_content,op=2,act=fail");
        fake_ranks(2, corrupted, NULL);
        use_fault(NULL);
        end_wire(wire);
    }
}

static void lost_ack(struct fake_rank *r)
{
    rondo_tensor_store *store;
    static int value = 8;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 0) {
        rondo_tensor t = tensor_of(&value, sizeof(value));
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    } else {
        rondo_tensor t = RONDO_TENSOR_INIT;
        rondo_tensor_request *request;
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 0, NULL, &t, &request));
        UNTIL(r, store, now.message_writes > 0); /* the request has gone out */
        FAKE_ERROR(r, rondo_tensor_wait(request, SHORT_MS), RONDO_TIMEOUT, "rank 0 on");
        FAKE_CHECK(r, fake_has(rondo_last_error(NULL), "has not acknowledged a message"), "%s",
                   rondo_last_error(NULL));
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_lost_acknowledgement_ends_at_the_deadline(void **state)
{
    (void)state;
    needs_faults();
    for (int wire = 0; wire < WIRES; wire++) {
        use_wire(wire);
        use_fault("rank=0,phase=tensor_ack,op=1,act=fail");
        fake_ranks(2, lost_ack, NULL);
        use_fault(NULL);
        end_wire(wire);
    }
}

/* Pulls go well until the device fails, if it does; then they are errors that name the other rank. */
static void bad_device(struct fake_rank *r)
{
    int fails = *(int *)r->arg, bad = 0;
    rondo_tensor_store *store;
    static uint8_t data[2][60000];
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    rondo_tensor own = tensor_of(data[r->rank], sizeof(data[0]));
    pattern(own.data, own.bytes, (uint64_t)r->rank);
    FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &own, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    for (int i = 0; i < 40 && !bad; i++) {
        rondo_tensor t = RONDO_TENSOR_INIT;
        rondo_status status = rondo_tensor_recv(store, "w", 1 - r->rank, 0, &t, NULL);
        bad = status != RONDO_SUCCESS;
        if (bad) {
            FAKE_CHECK(r, fails && (status == RONDO_REMOTE_ERROR || status == RONDO_SYSTEM_ERROR));
            FAKE_CHECK(r, fake_has(rondo_last_error(NULL), "did not get tensor \"w\" of rank"), "%s",
                       rondo_last_error(NULL));
            continue;
        }
        FAKE_CHECK(r, has_pattern(t.data, sizeof(data[0]), 0, (uint64_t)(1 - r->rank)));
        FAKE_OK(r, rondo_tensor_free(store, t.data));
    }
    FAKE_CHECK(r, bad == fails, "%d errors", bad);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_device_that_is_slow_is_waited_for_and_one_that_fails_is_an_error(void **state)
{
    static const struct {
        const char *fault;
        int fails;
    } devices[] = { { "seed=7,late=3,again=2,connect=5", 0 },
                    { "seed=3,delay=200us", 0 },
                    { "die=30", 1 },
                    { "fail=connect:3", 1 },
                    { "fail=isend:25:remote", 1 },
                    { "fail=irecv:25", 1 },
                    { "fail=test:150:remote", 1 } };
    (void)state;
    needs_faults();
    for (int wire = SOCKETS; wire < WIRES; wire++) {
        for (size_t i = 0; i < RONDO_COUNTOF(devices); i++) {
            setenv("RONDO_NET_FAULT", devices[i].fault, 1);
            use_wire(wire);
            fake_ranks(2, bad_device, (void *)&devices[i].fails);
            end_wire(wire);
        }
    }
    set_param("RONDO_NET_FAULT", NULL);
}

/* Rank 1 sends rank 0 what no rank sends. Rank 0 ends their connection; rank 2 goes on with both. */
static void hostile(struct fake_rank *r)
{
    const struct rondo_tensor_message *bad = r->arg;
    rondo_tensor_store *store;
    static int value = 8;
    rondo_tensor t = RONDO_TENSOR_INIT, own = tensor_of(&value, sizeof(value));
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &own, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    if (r->rank == 1) {
        struct rondo_tensor_conn *conn;
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        pthread_mutex_lock(&store->core->lock);
        rondo_status status = rondo_tensor_conn_get(store->core, 0, &conn);
        if (status == RONDO_SUCCESS && bad != NULL) {
            struct rondo_tensor_message message = *bad;
            status = rondo_tensor_say(conn, &message);
        } else if (status == RONDO_SUCCESS) { /* no message at all */
            struct rondo_tensor_message message = { .type = RONDO_TENSOR_CANCEL };
            status = rondo_tensor_say(conn, &message);
            conn->queue[conn->queue_end - 12] = 200;
        }
        pthread_mutex_unlock(&store->core->lock);
        FAKE_OK(r, status);
    }
    if (r->rank == 0) {
        for (int64_t begun = rondo_now_ns();;) {
            pthread_mutex_lock(&store->core->lock);
            const struct rondo_tensor_conn *conn = store->core->conn_of[1];
            int broken = conn != NULL && conn->state == RONDO_TENSOR_CONN_BROKEN;
            pthread_mutex_unlock(&store->core->lock);
            if (broken) break;
            FAKE_CHECK(r, rondo_now_ns() - begun < rondo_ms_to_ns(PATIENCE_MS));
            sched_yield();
        }
        FAKE_ERROR(r, rondo_tensor_recv(store, "w", 1, 0, &t, NULL), RONDO_REMOTE_ERROR,
                   "got from rank 1 on");
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    if (r->rank == 2) {
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        FAKE_OK(r, rondo_tensor_recv(store, "w", 1, 0, &t, NULL));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_hostile_peer_loses_its_connection_and_nobody_elses(void **state)
{
    struct rondo_tensor_message bad[] = {
        { .type = RONDO_TENSOR_TENSOR_RE_REQUEST, .index = 77, .name = "w", .name_bytes = 1 },
        { .type = RONDO_TENSOR_LOCATION, .rank = 99 }, /* for no request: ignored, then */
        { .type = RONDO_TENSOR_TENSOR_REQUEST, .index = 5, .name = "a\0b", .name_bytes = 3 },
    };
    (void)state;
    bad[1] = (struct rondo_tensor_message){ .type = RONDO_TENSOR_TENSOR_REQUEST,
                                            .index = 5,
                                            .name = "w",
                                            .name_bytes = 1,
                                            .meta = { .type = RONDO_FLOAT64, .ndims = 1, .shape = { -5 } } };
    for (int wire = 0; wire < WIRES; wire++) {
        use_wire(wire);
        for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
            fake_ranks(3, hostile, &bad[i]);
        }
        fake_ranks(3, hostile, NULL);
        end_wire(wire);
    }
}

/* ---- the communicator ends ---- */

static void comm_first(struct fake_rank *r)
{
    rondo_tensor_store *store;
    rondo_tensor t = RONDO_TENSOR_INIT;
    rondo_tensor_request *request;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_tensor_pull(store, "w", 1 - r->rank, 0, NULL, &t, &request));
    FAKE_OK(r, rondo_comm_destroy(r->comm));
    r->comm = NULL;
    rondo_status status = rondo_tensor_wait(request, PATIENCE_MS);
    FAKE_CHECK(r, status == RONDO_INVALID_USAGE || status == RONDO_REMOTE_ERROR, "%s",
               rondo_last_error(NULL));
    FAKE_ERROR(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL), RONDO_INVALID_USAGE,
               "the communicator of the tensor store was destroyed before the store");
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_store_outlives_its_communicator_as_errors, 2, comm_first)

static _Atomic int nready; /* ranks that have their store: an abort would end its creation, too */

static void aborted(struct fake_rank *r)
{
    rondo_tensor_store *store;
    rondo_tensor t = RONDO_TENSOR_INIT;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    nready += r->rank != 0;
    if (r->rank == 0) {
        int64_t end = rondo_now_ns() + rondo_ms_to_ns(PATIENCE_MS);
        while (nready < r->nranks - 1 && rondo_now_ns() < end) {
            usleep(1000);
        }
        nready = 0;
        FAKE_OK(r, rondo_comm_abort(r->comm));
        r->comm = NULL;
        FAKE_OK(r, rondo_tensor_store_destroy(store));
    } else {
        FAKE_ERROR(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL), RONDO_REMOTE_ERROR, "rank 0");
        FAKE_ERROR(r, rondo_tensor_store_destroy(store), RONDO_REMOTE_ERROR, "rank 0");
    }
}

ALL_WIRES(an_abort_ends_pulls_on_all_ranks, 3, aborted)

static void nothing_is_left_behind(void **state)
{
    (void)state;
    use_transport("net");
    fake_ranks(2, waits_for_retired, NULL);
    use_transport("shm");
    fake_ranks(2, waits_for_retired, NULL);
    struct holdings before = holdings_now();
    for (int i = 0; i < 5; i++) {
        use_transport(i % 2 ? "net" : "shm");
        fake_ranks(2, cancels, NULL);
        fake_ranks(2, waits_for_retired, NULL);
    }
    struct holdings after = holdings_now();
    assert_int_equal(after.fds, before.fds);
    assert_int_equal(after.threads, before.threads);
    assert_true(after.shared <= before.shared + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_names_key_step_and_peer),
        cmocka_unit_test(the_publishers_error_reaches_the_puller),
        cmocka_unit_test(a_tensor_that_is_retired_during_a_pull_is_cloned),
        cmocka_unit_test(a_pull_that_waits_ends_when_its_step_is_retired),
        cmocka_unit_test(an_epoch_separates_equal_steps),
        cmocka_unit_test(a_cancelled_request_ends_and_the_rest_goes_on),
        cmocka_unit_test(a_content_that_comes_too_late_is_dropped_and_not_counted),
        cmocka_unit_test(bad_arguments_are_errors_that_say_why),
        cmocka_unit_test(a_changed_content_is_noticed_in_checksum_mode),
        cmocka_unit_test(a_lost_acknowledgement_ends_at_the_deadline),
        cmocka_unit_test(a_device_that_is_slow_is_waited_for_and_one_that_fails_is_an_error),
        cmocka_unit_test(a_hostile_peer_loses_its_connection_and_nobody_elses),
        cmocka_unit_test(a_store_outlives_its_communicator_as_errors),
        cmocka_unit_test(an_abort_ends_pulls_on_all_ranks),
        cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
