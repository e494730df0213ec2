/* Calls on the communicators: alone, on streams and in groups; messages; barriers; calls that are refused. */
#include "storm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is under way: buffers live until the calls are complete, or their communicators aborted. */
static struct {
    struct coll_open call[STORM_BATCH];
    struct storm_slot *slot[STORM_BATCH];
    int ncalls;
    struct {
        void *mem; /* guarded */
        int from, received;
        size_t count;
        rondo_dtype type;
        const struct test_values *values;
        size_t first;
    } mail[2 * STORM_BATCH];
    int nmail;
} under_way;

static void finish(int succeeded)
{
    for (int i = 0; i < under_way.ncalls; i++) {
        coll_case_finish(&under_way.slot[i]->run, &under_way.call[i], succeeded);
    }
    under_way.ncalls = 0;
}

static void check_mail(int i)
{
    size_t count = under_way.mail[i].count, size = test_types[under_way.mail[i].type].size, at = 0, wrong;
    void *want = test_guard_alloc(count * size);
    test_values_input(under_way.mail[i].values, under_way.mail[i].from, under_way.mail[i].first, count, want);
    wrong = test_values_wrong(under_way.mail[i].values, under_way.mail[i].mem, want, count, &at);
    test_check(wrong == 0 && test_guard_intact(under_way.mail[i].mem, count * size),
               "%zu of %zu elements from rank %d wrong, first at %zu", wrong, count, under_way.mail[i].from,
               at);
    test_guard_free(want);
}

static void finish_mail(int succeeded)
{
    for (int i = 0; i < under_way.nmail; i++) {
        if (succeeded && under_way.mail[i].received) {
            check_mail(i);
        }
        test_guard_free(under_way.mail[i].mem);
    }
    under_way.nmail = 0;
}

void storm_drop(void)
{
    finish(0);
    finish_mail(0);
    for (int i = 0; i < STORM_STREAMS; i++) { /* they hold the error */
        rondo_stream_destroy(storm.stream[i]);
        TEST_MUST(rondo_stream_create(&storm.stream[i]), NULL);
    }
}

/* After a failure that is none, what was under way is over. */
static rondo_status go_on(rondo_status judged)
{
    if (judged == RONDO_SUCCESS) {
        storm_drop();
    }
    return judged;
}

/* Wait for a stream in one of two ways. */
static rondo_status wait_stream(rondo_stream stream, int poll)
{
    rondo_status status = poll ? RONDO_IN_PROGRESS : rondo_stream_synchronize(stream);
    while (status == RONDO_IN_PROGRESS) {
        status = rondo_stream_query(stream);
    }
    return status;
}

static int any_memory(uint64_t hash)
{
    static const int kinds[] = { COLL_ORDINARY, COLL_ORDINARY, COLL_HEAP, COLL_MIXED };
    return storm.scarce ? COLL_ORDINARY : kinds[hash % TEST_ARRAY_LEN(kinds)];
}

/* The batch has failed with this status: judge each of its communicators that has. */
static rondo_status judge(rondo_status status)
{
    rondo_status judged = RONDO_SUCCESS;
    int found = 0;
    for (int i = 0; i < under_way.ncalls; i++) {
        rondo_status error = RONDO_SUCCESS;
        struct storm_slot *s = under_way.slot[i];
        if (storm_is_in(s) && rondo_comm_async_error(s->run.comm, &error) == RONDO_SUCCESS &&
            error != RONDO_SUCCESS) {
            judged = storm_failed(s, 0, error, rondo_last_error(s->run.comm));
            found = 1;
        }
    }
    for (int i = 0; i < under_way.ncalls && !found; i++) { /* none has ended: all were refused */
        struct storm_slot *s = under_way.slot[i];
        if (storm_is_in(s)) {
            judged = storm_failed(s, 0, status, rondo_last_error(NULL));
        }
    }
    return go_on(judged);
}

/* Make a random call: number i of the batch. */
static rondo_status start(struct storm_slot *s, int i, int on_stream)
{
    uint64_t hash = storm_draw_of(20, i);
    struct coll_open *open = &under_way.call[under_way.ncalls];
    struct coll_case c;
    rondo_status status;
    s->run.memory = any_memory(hash >> 7);
    s->run.stream = storm.stream[hash >> 11 & 1];
    c = coll_case_random(&s->run, hash);
    c.stream = on_stream;
    under_way.slot[under_way.ncalls++] = s;
    status = coll_case_start(&s->run, &c, open);
    storm_says("communicator %d of %d: %s", (int)(s - storm.slot), s->n, open->text);
    return status;
}

rondo_status storm_call(void)
{
    struct storm_slot *s = storm_pick(storm_draw(1), 0);
    rondo_status status = storm_complete(s);
    int on_stream = storm_draw(2) % 4 == 0;
    if (status != RONDO_SUCCESS || !storm_is_in(s)) {
        return status;
    }
    storm_says("communicator %d of %d: a call", (int)(s - storm.slot), s->n);
    status = start(s, 0, on_stream);
    if (status == RONDO_SUCCESS && on_stream) {
        status = wait_stream(s->run.stream, (int)(storm_draw_of(3, s->place) & 1));
    }
    if (status != RONDO_SUCCESS) {
        return judge(status);
    }
    finish(1);
    return status;
}

/* Several calls on several communicators: in a group, or on streams, or both. */
rondo_status storm_batch(void)
{
    int n = 2 + (int)(storm_draw(2) % (STORM_BATCH - 1)), grouped = storm_draw(3) % 2, inner = 0,
        first = (int)(test_hash(storm.key, 4, (uint64_t)test.rank) % STORM_STREAMS);
    rondo_status status = RONDO_SUCCESS, each;
    struct storm_slot *s[STORM_BATCH];
    for (int i = 0; i < n && status == RONDO_SUCCESS; i++) {
        s[i] = storm_pick(storm_draw_of(5, i), 0);
        status = storm_complete(s[i]);
    }
    if (status != RONDO_SUCCESS) {
        return status;
    }
    storm_says("%d calls%s", n, grouped ? " in a group" : " on streams");
    if (grouped) {
        status = rondo_group_start();
    }
    for (int i = 0; i < n && status == RONDO_SUCCESS; i++) {
        if (grouped && storm_draw_of(6, i) % 5 == 0) {
            rondo_group_start();
            inner++;
        }
        if (storm_is_in(s[i])) {
            status = start(s[i], i, !grouped || storm_draw_of(7, i) % 2);
        }
        if (inner > 0 && storm_draw_of(8, i) % 2) {
            rondo_group_end();
            inner--;
        }
    }
    for (; grouped && inner >= 0; inner--) {
        each = rondo_group_end();
        status = status == RONDO_SUCCESS ? each : status;
    }
    storm_says("waiting for %d calls%s", n, grouped ? " of a group" : " on streams");
    for (int i = 0; i < STORM_STREAMS; i++) {
        each = wait_stream(storm.stream[(i + first) % STORM_STREAMS], (int)(storm_draw_of(9, test.rank) & 1));
        status = status == RONDO_SUCCESS ? each : status;
    }
    if (status != RONDO_SUCCESS) {
        return judge(status);
    }
    finish(1);
    return status;
}

/* ---- messages ---- */

struct message {
    int from, to;
    size_t count, first;
    rondo_dtype type;
};

static struct message any_message(const struct storm_slot *s, int m, int grouped)
{
    static const size_t kinds[] = { 0, 1, 50, 3000, 40000, 400000 };
    uint64_t hash = storm_draw_of(30, m), n = (uint64_t)s->n;
    struct message message = { .type = (rondo_dtype)(hash % RONDO_NUM_DTYPES),
                               .from = (int)(hash / 16 % n),
                               .first = hash >> 20 & 0xfff };
    size_t most = kinds[(hash >> 40) % TEST_ARRAY_LEN(kinds)];
    message.to = (int)((uint64_t)message.from + hash / 1024 % (n - !grouped) + !grouped) % (int)n;
    message.count = most == 0 ? 0 : coll_fit(&s->run, most / 2 + (hash >> 44) % (most / 2 + 1), 8);
    return message;
}

/* Make one end of a message. */
static rondo_status post(const struct storm_slot *s, const struct message *m, int received,
                         rondo_stream stream)
{
    int i = under_way.nmail++;
    void *mem = test_guard_alloc(m->count * test_types[m->type].size);
    under_way.mail[i].mem = mem;
    under_way.mail[i].from = m->from;
    under_way.mail[i].received = received;
    under_way.mail[i].count = m->count;
    under_way.mail[i].type = m->type;
    under_way.mail[i].first = m->first;
    under_way.mail[i].values = test_values_get(m->type, TEST_OP_NONE, s->n, storm.seed);
    if (received) {
        return rondo_recv(mem, m->count, m->type, m->from, s->run.comm, stream);
    }
    test_values_input(under_way.mail[i].values, m->from, m->first, m->count, mem);
    return rondo_send(mem, m->count, m->type, m->to, s->run.comm, stream);
}

/* In a group receives may come first; the messages of a pair keep their order. */
static rondo_status post_all(const struct storm_slot *s, int n, int grouped, rondo_stream stream)
{
    rondo_status status = grouped ? rondo_group_start() : RONDO_SUCCESS, ended;
    int receive_first = (int)(storm_draw_of(31, s->place) & 1);
    for (int k = 0; k < 2 * n && status == RONDO_SUCCESS; k++) {
        int m = grouped ? k % n : k / 2, received = grouped ? (k / n) ^ receive_first : k % 2;
        struct message message = any_message(s, m, grouped);
        if (s->place == (received ? message.to : message.from)) {
            status = post(s, &message, received, stream);
        }
    }
    ended = grouped ? rondo_group_end() : RONDO_SUCCESS;
    status = status == RONDO_SUCCESS ? ended : status;
    return status == RONDO_SUCCESS && stream != NULL ? wait_stream(stream, 0) : status;
}

rondo_status storm_messages(void)
{
    struct storm_slot *s = storm_pick(storm_draw(1), 0);
    rondo_status status = storm_complete(s);
    int n = 1 + (int)(storm_draw(2) % STORM_BATCH), grouped = s->n == 1 || storm_draw(3) % 3 > 0;
    rondo_stream stream = storm_draw(4) % 3 == 0 ? storm.stream[0] : NULL;
    if (status != RONDO_SUCCESS || !storm_is_in(s)) {
        return status;
    }
    storm_says("communicator %d of %d: %d messages%s%s", (int)(s - storm.slot), s->n, n,
               grouped ? " in a group" : "", stream != NULL ? " on a stream" : "");
    status = post_all(s, n, grouped, stream);
    if (status != RONDO_SUCCESS) {
        return go_on(storm_failed(s, 0, status, rondo_last_error(s->run.comm)));
    }
    finish_mail(1);
    return status;
}

/* ---- the rest ---- */

rondo_status storm_barrier(void)
{
    struct storm_slot *s = storm_pick(storm_draw(1), 0);
    rondo_status status = storm_complete(s);
    rondo_stream stream = storm_draw(2) % 4 == 0 ? storm.stream[1] : NULL;
    if (status != RONDO_SUCCESS || !storm_is_in(s)) {
        return status;
    }
    storm_says("communicator %d of %d: a barrier", (int)(s - storm.slot), s->n);
    status = rondo_barrier(s->run.comm, stream);
    if (status == RONDO_SUCCESS && stream != NULL) {
        status = wait_stream(stream, 1);
    }
    return status == RONDO_SUCCESS ? status : storm_failed(s, 0, status, rondo_last_error(s->run.comm));
}

/* Bad arguments, on some ranks only: they are refused at once, and disturb nothing. */
rondo_status storm_misuse(void)
{
    struct storm_slot *s = storm_pick(storm_draw(1), 0);
    rondo_status status = storm_complete(s);
    rondo_comm *comm = s->run.comm;
    int32_t x[2] = { 1, 2 };
    if (status != RONDO_SUCCESS || !storm_is_in(s) || storm_draw_of(3, s->place) % 2) {
        return status;
    }
    storm_says("communicator %d of %d: a call that is refused", (int)(s - storm.slot), s->n);
    switch (storm_draw(2) % 5) {
    case 0: status = rondo_all_reduce(NULL, x, 2, RONDO_INT32, RONDO_SUM, comm, NULL); break;
    case 1: status = rondo_broadcast(x, x, 2, RONDO_INT32, s->n, comm, NULL); break;
    case 2: status = rondo_send(x, 2, RONDO_INT32, -1, comm, NULL); break;
    case 3: status = rondo_all_reduce(x, x + 1, 2, RONDO_INT32, RONDO_SUM, comm, NULL); break;
    default: status = rondo_all_gather(x, x, 1, (rondo_dtype)99, comm, NULL); break;
    }
    if (status == RONDO_REMOTE_ERROR) {
        return storm_failed(s, 0, status, rondo_last_error(comm));
    }
    test_check(status == RONDO_INVALID_ARGUMENT, "a bad call gave %s", rondo_status_string(status));
    return RONDO_SUCCESS;
}

/* Memory of the library's: zeroed, and the whole of it can be used; or there is too little, and it says
 * so. */
rondo_status storm_memory(void)
{
    uint64_t hash = test_hash(storm.key, 1, (uint64_t)test.rank);
    size_t bytes = 1 + hash % ((size_t)1 << (hash >> 32) % (storm.scarce ? 28 : 24));
    unsigned char *mem = NULL;
    rondo_status status;
    storm_says("allocating %zu bytes", bytes);
    status = rondo_mem_alloc((void **)&mem, bytes);
    if (status != RONDO_SUCCESS) {
        return storm_failed(NULL, 0, status, rondo_last_error(NULL));
    }
    test_check((uintptr_t)mem % 64 == 0, "%p is not aligned", (void *)mem);
    test_check(mem[0] == 0 && memcmp(mem, mem + 1, bytes - 1) == 0, "memory is not zeroed");
    memset(mem, 0x5a, bytes);
    test_check(rondo_mem_free(mem) == RONDO_SUCCESS, "freeing memory");
    return RONDO_SUCCESS;
}
