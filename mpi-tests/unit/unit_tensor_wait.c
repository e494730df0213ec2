/* Pulls that wait, or are given up, and contents that cannot be had. */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tensor/answer.h"
#include "tensor/wire_write.h"
#include "tensor_world.h"

/* A peer says how many questions wait at a home: nobody may walk along them to take one back. The key that
 * stays leads nowhere meanwhile; what nobody asks for any more is forgotten. */
static void questions(struct fake_rank *r)
{
    static const char *const keys[] = { "one", "other" };
    rondo_tensor_store *store;
    struct rondo_tensor_conn *conn;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    struct rondo_tensor_core *core = store->core;
    pthread_mutex_lock(&core->lock);
    FAKE_OK(r, rondo_tensor_conn_get(core, 0, &conn)); /* to itself */
    for (uint32_t i = 0; i < 2; i++) {
        const struct rondo_tensor_message m = {
            .type = RONDO_TENSOR_LOCATE, .index = i, .name = keys[i], .name_bytes = strlen(keys[i])
        };
        FAKE_OK(r, rondo_tensor_on_locate(conn, &m));
    }
    FAKE_CHECK(r, core->homes.n == 2);
    struct rondo_tensor_home *stays = NULL;
    for (size_t i = 0; i < core->homes.nbuckets; i++) {
        for (struct rondo_tensor_node *node = core->homes.bucket[i]; node != NULL; node = node->next) {
            struct rondo_tensor_home *home = (struct rondo_tensor_home *)(void *)node;
            stays = memcmp(home->key, "one", 3) == 0 ? home : stays;
        }
    }
    struct rondo_tensor_locate *asking = stays->asking;
    stays->asking = (struct rondo_tensor_locate *)(uintptr_t)64;
    const struct rondo_tensor_message cancel = { .type = RONDO_TENSOR_CANCEL, .index = 1 };
    rondo_status status = rondo_tensor_on_cancel(conn, &cancel);
    stays->asking = asking;
    pthread_mutex_unlock(&core->lock);
    FAKE_OK(r, status);
    FAKE_CHECK(r, core->homes.n == 1, "%zu homes", core->homes.n);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_question_is_taken_back_without_walking_along_others(void **state)
{
    (void)state;
    fake_ranks(1, questions, NULL);
}

/* A key moves from rank 1 to rank 2. Rank 0 looks there after it has asked rank 1 in vain. */
static uint64_t have_waited(struct rondo_tensor_core *core)
{
    pthread_mutex_lock(&core->lock);
    uint64_t n = core->nwaited;
    pthread_mutex_unlock(&core->lock);
    return n;
}

/* Those that wait for a step get it, and those for the latest one, the oldest first; those that wait for
 * other steps lead nowhere meanwhile: nobody may walk along them. */
static void waits_by_step(struct fake_rank *r)
{
    enum { N = 8 };
    static const uint64_t steps[N] = { 5, 3, RONDO_TENSOR_LATEST, 3, 4, 5, RONDO_TENSOR_LATEST, 3 };
    rondo_tensor_store *store;
    rondo_tensor_request *request[N], *sent;
    rondo_tensor t[N];
    int value[N] = { 0 };
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    if (r->rank == 1) {
        for (int i = 0; i < N; i++) {
            t[i] = tensor_of(&value[i], sizeof(value[i]));
            FAKE_OK(r, rondo_tensor_pull(store, "w", 0, steps[i], NULL, &t[i], &request[i]));
        }
        for (int i = 0; i < N; i++) { /* all but the last: step 3 has three pulls */
            static const uint64_t given[N] = { 5, 3, 3, 3, 4, 5, 4, 0 };
            if (i < N - 1) FAKE_OK(r, rondo_tensor_wait(request[i], PATIENCE_MS));
            FAKE_CHECK(r, i == N - 1 || (t[i].step == given[i] && value[i] == (int)given[i]), "%d", i);
        }
        FAKE_ERROR(r, rondo_tensor_wait(request[N - 1], PATIENCE_MS), RONDO_INVALID_USAGE, "was retired");
    } else {
        struct rondo_tensor_core *core = store->core;
        UNTIL(r, store, have_waited(core) == N);
        for (int i = 3; i <= 5; i++) {
            rondo_tensor own = tensor_of(&i, sizeof(i));
            uint64_t pulls = i == 3 ? 3 : 2;
            struct rondo_tensor_response *other = NULL, *next = NULL;
            pthread_mutex_lock(&core->lock);
            struct rondo_tensor_key *key = NULL;
            FAKE_OK(r, rondo_tensor_key_get(core, "w", 1, &key));
            for (struct rondo_tensor_waits *waits = key->waiting; waits != NULL; waits = waits->next) {
                if (waits->step == 5 && i < 5) other = waits->queue.first;
            }
            if (other != NULL) {
                next = other->next;
                other->next = (struct rondo_tensor_response *)(uintptr_t)8;
            }
            pthread_mutex_unlock(&core->lock);
            FAKE_OK(r, rondo_tensor_publish(store, "w", (uint64_t)i, &own, pulls, &sent));
            FAKE_OK(r, rondo_tensor_wait(sent, PATIENCE_MS));
            pthread_mutex_lock(&core->lock);
            if (other != NULL) other->next = next;
            pthread_mutex_unlock(&core->lock);
        }
        FAKE_OK(r, rondo_tensor_retire(store, 5));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_publication_looks_at_those_that_wait_for_its_step, 2, waits_by_step)

static void key_moves(struct fake_rank *r)
{
    rondo_tensor_store *store;
    rondo_tensor_request *request;
    int value = r->rank;
    rondo_tensor t = tensor_of(&value, sizeof(value));
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    for (int step = 0; step < 2; step++) {
        if (r->rank == step + 1) {
            FAKE_OK(r,
                    rondo_tensor_announce(store, "w", (uint64_t)step, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
            rondo_tensor here = RONDO_TENSOR_INIT; /* its home has heard of it */
            FAKE_OK(r, rondo_tensor_recv(store, "w", RONDO_TENSOR_ANY, (uint64_t)step, &here, NULL));
        }
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        if (r->rank == 0 && step == 1) {
            FAKE_OK(r, rondo_tensor_pull(store, "w", RONDO_TENSOR_ANY, 1, NULL, &t, &request));
            FAKE_ERROR(r, rondo_tensor_wait(request, LOOK_MS), RONDO_TIMEOUT, "rank 1 on");
        }
        if (r->rank == 0) {
            FAKE_OK(r, rondo_tensor_pull(store, "w", RONDO_TENSOR_ANY, (uint64_t)step, NULL, &t, &request));
            FAKE_OK(r, rondo_tensor_wait(request, PATIENCE_MS));
            FAKE_CHECK(r, value == step + 1 && t.peer == step + 1, "%d", value);
        }
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(a_key_that_has_moved_is_found_again, 3, key_moves)

static struct rondo_tensor_core *waits; /* of rank 0 */

/* The longest deadline is none: rank 1 publishes when it sees that rank 0 waits. */
static void the_longest_deadline(struct fake_rank *r)
{
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    int value = r->rank;
    rondo_tensor t = tensor_of(&value, sizeof(value));
    config.timeout_ms = INT64_MAX;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    if (r->rank == 0) {
        waits = store->core;
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    if (r->rank == 0) {
        FAKE_OK(r, rondo_tensor_recv(store, "w", 1, 0, &t, NULL));
        FAKE_CHECK(r, value == 1);
    } else {
        UNTIL(r, store, __atomic_load_n(&waits->drivers, __ATOMIC_SEQ_CST) > 0);
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    }
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ALL_WIRES(the_longest_deadline_is_not_the_shortest, 2, the_longest_deadline)

#if RONDO_HAVE_VERBS
enum { LARGE = 100000 };

/* A large tensor: data of rank 0, which is in no registered memory, and a place of the store at rank 1. */
struct large {
    rondo_tensor_store *store;
    uint8_t *got;
    rondo_tensor t;
};

/* @return 0: the rank has failed. */
static int open_large(struct fake_rank *r, struct large *large)
{
    static uint8_t data[LARGE];
    rondo_status status = rondo_tensor_store_create(r->comm, NULL, &large->store);
    if (status == RONDO_SUCCESS) {
        status = rondo_tensor_alloc(large->store, LARGE, (void **)&large->got);
    }
    if (status != RONDO_SUCCESS) {
        fake_fail(r, __FILE__, __LINE__, "a store", ": %s", rondo_last_error(NULL));
        return 0;
    }
    large->t = tensor_of(r->rank == 0 ? data : large->got, LARGE);
    if (r->rank == 0) {
        pattern(data, LARGE, 3);
    }
    return 1;
}

static void close_large(struct fake_rank *r, const struct large *large)
{
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_free(large->store, large->got));
    FAKE_OK(r, rondo_tensor_store_destroy(large->store));
}

/* The NIC refuses the memory of one content, once. */
static void no_registration(struct fake_rank *r)
{
    rondo_tensor_request *request;
    struct large large;
    if (!open_large(r, &large)) return;
    rondo_tensor_store *store = large.store;
    rondo_tensor t = large.t;
    if (r->rank == 0) {
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_OK(r, rondo_barrier(r->comm, NULL)); /* rank 1's place is registered */
        fake.fail_errno = ENOMEM;
        fake.fail_in[FAKE_MR] = 1;
        FAKE_OK(r, rondo_tensor_publish(store, "w", 1, &t, 1, &request));
        FAKE_OK(r, rondo_tensor_wait(request, PATIENCE_MS)); /* by the second pull */
        FAKE_CHECK(r, stats_of(store).contents == 2 && stats_of(store).content_bytes == 2 * LARGE);
    } else {
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        memset(large.got, 0, LARGE);
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        FAKE_ERROR(r, rondo_tensor_recv(store, "w", 0, 1, &t, NULL), RONDO_SYSTEM_ERROR, "rank 0 on");
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 1, &t, NULL));
        FAKE_CHECK(r, has_pattern(large.got, LARGE, 0, 3));
    }
    close_large(r, &large);
}

ON_WIRE(a_content_that_cannot_be_registered_is_an_error_of_its_pull, VERBS, 2, no_registration)

/* The same for the first of two that go out at once, at a rank that makes no call afterwards. */
static void no_registration_nor_call(struct fake_rank *r)
{
    static uint8_t data[LARGE];
    uint8_t *got[2];
    rondo_tensor_config config = RONDO_TENSOR_CONFIG_INIT;
    rondo_tensor_store *store;
    rondo_tensor_request *request[2];
    config.thread = r->rank == 1;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, &config, &store));
    FAKE_OK(r, rondo_tensor_alloc(store, LARGE, (void **)&got[0]));
    FAKE_OK(r, rondo_tensor_alloc(store, LARGE, (void **)&got[1]));
    if (r->rank == 0) {
        rondo_tensor t = tensor_of(data, LARGE);
        for (uint64_t step = 0; step < 2; step++) { /* the second one: the requests below have come, too */
            FAKE_OK(r, rondo_tensor_publish(store, "w", step, &t, 1, &request[0]));
            FAKE_OK(r, rondo_tensor_wait(request[0], PATIENCE_MS));
        }
        fake.fail_errno = ENOMEM;
        fake.fail_in[FAKE_MR] = 1;
        FAKE_OK(r, rondo_tensor_publish(store, "w", 2, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    } else {
        rondo_tensor t = tensor_of(got[0], LARGE),
                     w[2] = { tensor_of(got[0], LARGE), tensor_of(got[1], LARGE) };
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 2, NULL, &w[0], &request[0]));
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 2, NULL, &w[1], &request[1]));
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 1, &t, NULL));
        FAKE_ERROR(r, rondo_tensor_wait(request[0], PATIENCE_MS), RONDO_SYSTEM_ERROR, "rank 0 on");
        FAKE_OK(r, rondo_tensor_wait(request[1], PATIENCE_MS));
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_free(store, got[0]));
    FAKE_OK(r, rondo_tensor_free(store, got[1]));
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

ON_WIRE(an_error_is_said_before_the_call_ends, VERBS, 2, no_registration_nor_call)

/* An arena that is freed does not stay registered until something else is. */
static void frees_arena(struct fake_rank *r)
{
    enum { MORE = 1 << 20 };
    static int before;
    rondo_tensor_store *store;
    uint8_t *data, *other;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_OK(r, rondo_tensor_alloc(store, 100, (void **)&other));
    FAKE_OK(r, rondo_tensor_alloc(store, MORE, (void **)&data));
    FAKE_OK(r, rondo_tensor_free(store, other)); /* one empty arena is kept */
    rondo_tensor t = tensor_of(data, MORE);
    if (r->rank == 0) {
        pattern(data, MORE, 5);
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    } else {
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        before = fake_verbs_live(FAKE_MR);
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_retire(store, 0));
    FAKE_OK(r, rondo_tensor_free(store, data));
    UNTIL(r, store, fake_verbs_live(FAKE_MR) <= before - 2);
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void what_was_freed_is_not_registered_any_more(void **state)
{
    (void)state;
    use_wire(VERBS);
    set_param("RONDO_TENSOR_ARENA", "64K");
    fake_ranks(2, frees_arena, NULL);
    set_param("RONDO_TENSOR_ARENA", NULL);
    end_wire(VERBS);
}

static struct {
    uint32_t index;
    uint64_t address;
    uint32_t key;
} offered;

/* Half of the content that rank 1 has asked for, to where it wants it. */
static void write_half(struct fake_rank *r, rondo_tensor_store *store, size_t from, size_t bytes)
{
    struct rondo_tensor_write_link *link = conn_to(store, 1)->link;
    struct rondo_tensor_write_port *port = &link->port[0];
    struct rondo_net_span data = { link->out + store->core->message_bytes, port->out_region, bytes };
    struct rondo_net_target target = { offered.address + from, offered.key };
    const struct rondo_tensor_note note = { .bytes = htobe64(2 * bytes), .step = htobe64(1) };
    void *request = NULL;
    pthread_mutex_lock(&store->core->lock);
    rondo_status status = link->device->iwrite(port->out, &data, &target, offered.index, &note, &request);
    port->written++;
    for (int done = 0; status == RONDO_SUCCESS && request != NULL && !done;) {
        status = link->device->test(request, &done, NULL);
    }
    pthread_mutex_unlock(&store->core->lock);
    FAKE_CHECK(r, status == RONDO_SUCCESS && request != NULL);
}

static int placing(const rondo_tensor_request *request)
{
    pthread_mutex_lock(&request->core->lock);
    int is = request->pull[0].state == RONDO_TENSOR_PULL_PLACING;
    pthread_mutex_unlock(&request->core->lock);
    return is;
}

static uint32_t messages_from(rondo_tensor_store *store, int peer)
{
    pthread_mutex_lock(&store->core->lock);
    uint32_t came = conn_to(store, peer)->came;
    pthread_mutex_unlock(&store->core->lock);
    return came;
}

/* Rank 1 gives a pull up when half of its content has come. CANCELLED overtakes the other half: the place is
 * in use until that has come, too. */
static void cancelled_in_the_middle(struct fake_rank *r)
{
    rondo_tensor_request *request;
    struct large large;
    if (!open_large(r, &large)) return;
    rondo_tensor_store *store = large.store;
    rondo_tensor t = large.t;
    if (r->rank == 0) {
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    } else {
        FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
        FAKE_OK(r, rondo_tensor_pull(store, "w", 0, 1, NULL, &t, &request));
        UNTIL(r, store, has_been_read(store));
        offered.index = request->pull[0].index;
        offered.address = request->pull[0].offer.address;
        offered.key = request->pull[0].offer.key[0];
    }
    FAKE_OK(r, rondo_barrier(r->comm, NULL));
    if (r->rank == 0) {
        write_half(r, store, 0, LARGE / 2);
        FAKE_OK(r, rondo_barrier(r->comm, NULL)); /* it was cancelled, and that was answered */
        write_half(r, store, LARGE / 2, LARGE / 2);
    } else {
        UNTIL(r, store, placing(request));
        uint32_t came = messages_from(store, 0);
        FAKE_OK(r, rondo_tensor_cancel(request));
        UNTIL(r, store, messages_from(store, 0) > came);
        int still = placing(request);
        FAKE_OK(r, rondo_barrier(r->comm, NULL));
        FAKE_CHECK(r, still);
        FAKE_ERROR(r, rondo_tensor_wait(request, PATIENCE_MS), RONDO_INVALID_USAGE, "was cancelled");
    }
    close_large(r, &large);
}

ON_WIRE(a_cancelled_pull_ends_when_all_of_its_content_has_come, VERBS, 2, cancelled_in_the_middle)
#endif

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Two ranks that could have a core each, and are on one: the puller notices and tries to leave. Where other
 * processes have a part of that core, it cannot tell them from interruptions. */
static void on_one_core(struct fake_rank *r)
{
    enum { MOST_PULLS = 20000 };
    cpu_set_t own, one;
    uint8_t data[64] = { 0 };
    rondo_tensor_store *store;
    uint32_t moves = 0;
    int core = 0;
    FAKE_OK(r, rondo_tensor_store_create(r->comm, NULL, &store));
    FAKE_CHECK(r, sched_getaffinity(0, sizeof(own), &own) == 0);
    while (!CPU_ISSET(core, &own)) core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    FAKE_CHECK(r, sched_setaffinity(0, sizeof(one), &one) == 0);
    rondo_tensor t = tensor_of(data, sizeof(data));
    if (r->rank == 0) {
        FAKE_OK(r, rondo_tensor_publish(store, "w", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
        FAKE_OK(r, rondo_tensor_recv(store, "done", 1, 0, &t, NULL)); /* serves the other one meanwhile */
    } else {
        int64_t begin = rondo_now_ns(), used = cpu_ns();
        for (int i = 0; i < MOST_PULLS && moves == 0; i++) {
            FAKE_OK(r, rondo_tensor_recv(store, "w", 0, 0, &t, NULL));
            pthread_mutex_lock(&store->core->lock);
            moves = store->core->moves;
            pthread_mutex_unlock(&store->core->lock);
        }
        int alone = (cpu_ns() - used) * 20 > (rondo_now_ns() - begin) * 19;
        FAKE_CHECK(r, moves > 0 || !alone || store->core->ctx->running.policy.spins == 0);
        FAKE_OK(r, rondo_tensor_publish(store, "done", 0, &t, RONDO_TENSOR_UNTIL_RETIRED, NULL));
    }
    FAKE_CHECK(r, sched_setaffinity(0, sizeof(own), &own) == 0);
    FAKE_OK(r, rondo_tensor_store_destroy(store));
}

static void a_rank_leaves_the_core_of_the_other_one(void **state)
{
    (void)state;
    use_wire(SHARED_MEMORY);
    fake_ranks(2, on_one_core, NULL);
    end_wire(SHARED_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_is_taken_back_without_walking_along_others),
        cmocka_unit_test(a_publication_looks_at_those_that_wait_for_its_step),
        cmocka_unit_test(a_key_that_has_moved_is_found_again),
        cmocka_unit_test(the_longest_deadline_is_not_the_shortest),
        cmocka_unit_test(a_rank_leaves_the_core_of_the_other_one),
#if RONDO_HAVE_VERBS
        cmocka_unit_test(a_content_that_cannot_be_registered_is_an_error_of_its_pull),
        cmocka_unit_test(an_error_is_said_before_the_call_ends),
        cmocka_unit_test(what_was_freed_is_not_registered_any_more),
        cmocka_unit_test(a_cancelled_pull_ends_when_all_of_its_content_has_come),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
