/* base/heap.h: blocks, finding the region of an address, registrations, and segments mapped by peers. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/heap.h"
#include "in_child.h"

enum { MIB = 1 << 20, NBLOCKS = 60, NSTEPS = 4000, NTHREADS = 4 };

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint8_t *alloc(size_t bytes)
{
    void *ptr = NULL;
    assert_int_equal(rondo_heap_alloc(&ptr, bytes), RONDO_SUCCESS);
    assert_non_null(ptr);
    return ptr;
}

static void give(void *ptr) { assert_int_equal(rondo_heap_free(ptr), RONDO_SUCCESS); }

static int is_all(const uint8_t *at, uint8_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != value) {
            return 0;
        }
    }
    return 1;
}

struct held {
    uint8_t *at, value;
    size_t bytes;
};

/* Allocate and free blocks of all sizes in a random order: each starts zeroed and keeps what was written. */
static int churn(uint64_t seed)
{
    struct held held[NBLOCKS] = { { 0 } };
    uint64_t state = seed;
    for (int step = 0; step < NSTEPS; step++) {
        struct held *h = &held[random_next(&state) % NBLOCKS];
        if (h->at != NULL) {
            if (!is_all(h->at, h->value, h->bytes) || rondo_heap_free(h->at) != RONDO_SUCCESS) {
                return 1;
            }
            h->at = NULL;
            continue;
        }
        h->bytes = 1 + random_next(&state) % (random_next(&state) % 8 == 0 ? 300000 : 700);
        h->value = (uint8_t)(1 + random_next(&state) % 255);
        if (rondo_heap_alloc((void **)&h->at, h->bytes) != RONDO_SUCCESS ||
            (uintptr_t)h->at % RONDO_CTRL_ALIGN != 0 || !is_all(h->at, 0, h->bytes)) {
            return 1;
        }
        memset(h->at, h->value, h->bytes);
    }
    for (int i = 0; i < NBLOCKS; i++) {
        if (held[i].at != NULL && (!is_all(held[i].at, held[i].value, held[i].bytes) ||
                                   rondo_heap_free(held[i].at) != RONDO_SUCCESS)) {
            return 1;
        }
    }
    return 0;
}

static void blocks_never_overlap(void **state)
{
    (void)state;
    assert_int_equal(churn(0x9e3779b97f4a7c15ull), 0);
}

static void *churn_main(void *arg) { return churn((uintptr_t)arg) == 0 ? NULL : arg; }

static void threads_may_share_the_heap(void **state)
{
    pthread_t id[NTHREADS];
    (void)state;
    for (uintptr_t i = 0; i < NTHREADS; i++) {
        assert_int_equal(pthread_create(&id[i], NULL, churn_main, (void *)(i * 7919 + 1)), 0);
    }
    for (int i = 0; i < NTHREADS; i++) {
        void *wrong = id;
        pthread_join(id[i], &wrong);
        assert_null(wrong);
    }
}

/* Freed memory has no region, and only the beginning of a block can be freed. */
static void only_a_block_can_be_freed_and_only_once(void **state)
{
    uint8_t *a = alloc(1000), *b = alloc(100);
    int local;
    (void)state;
    assert_int_equal(rondo_heap_free(a + 128), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_heap_free(&local), RONDO_INVALID_ARGUMENT);
    give(a);
    assert_int_equal(rondo_heap_free(a), RONDO_INVALID_ARGUMENT);
    give(b);
    assert_int_equal(rondo_heap_alloc((void **)&a, (size_t)PTRDIFF_MAX), RONDO_INVALID_ARGUMENT);
}

/* All empty segments but one are unmapped, and their descriptors closed. */
static void empty_segments_are_unmapped_except_one(void **state)
{
    uint8_t *at[4];
    int before;
    (void)state;
    give(alloc(1)); /* the segment that stays */
    before = count_fds();
    for (int i = 0; i < 4; i++) {
        at[i] = alloc((size_t)100 * MIB);
    }
    assert_true(count_fds() > before);
    for (int i = 0; i < 4; i++) {
        give(at[i]);
    }
    assert_true(count_fds() <= before);
}

static struct rondo_region region_of(const void *ptr, size_t bytes)
{
    struct rondo_region region = { 0 };
    if (!rondo_region_find(ptr, bytes, &region)) {
        region.id = 0;
    }
    return region;
}

static void a_block_is_found_from_any_address_in_it(void **state)
{
    uint8_t *a = alloc(10000), *b = alloc(5 * MIB);
    uint64_t id = region_of(a, 1).id, epoch = rondo_region_epoch();
    (void)state;
    assert_true(id != 0 && region_of(a, 10000).id == id && region_of(a + 9999, 1).id == id &&
                region_of(a + 5000, 5000).id == id);
    assert_ptr_equal(region_of(a + 5000, 10).base, a);
    assert_true(region_of(a, 1).segment != 0);
    assert_true(region_of(b + MIB, 4 * MIB).id != 0 && region_of(b, 5 * MIB).id != id);
    assert_int_equal(region_of(b, 6 * MIB).id, 0);
    assert_int_equal(region_of(b + MIB, 5 * MIB).id, 0);
    assert_int_equal(region_of(a, SIZE_MAX).id, 0);
    assert_int_equal(region_of(&state, 1).id, 0);
    assert_true(rondo_region_epoch() == epoch);
    give(a);
    assert_true(rondo_region_epoch() != epoch);
    assert_int_equal(region_of(a, 1).id, 0);
    a = alloc(10000);
    assert_true(region_of(a, 1).id != id); /* the same address, but another block */
    give(a);
    give(b);
    assert_int_equal(region_of(b, 1).id, 0);
}

/* Ranges may overlap, contain one another or be equal: one that covers the address is found in any order. */
static void registrations_may_overlap(void **state)
{
    static uint8_t memory[1000];
    static const struct {
        size_t at, bytes;
    } ranges[] = { { 0, 100 }, { 50, 200 }, { 50, 20 }, { 0, 400 }, { 300, 100 }, { 600, 10 }, { 0, 100 } };
    uint64_t id[RONDO_COUNTOF(ranges)];
    (void)state;
    for (size_t end = 1; end <= RONDO_COUNTOF(ranges); end++) {
        for (size_t i = 0; i < end; i++) {
            assert_int_equal(rondo_region_add(memory + ranges[i].at, ranges[i].bytes, &id[i]), RONDO_SUCCESS);
        }
        for (size_t at = 0; at < 620; at += 10) {
            for (size_t bytes = 1; bytes < 500; bytes += 37) {
                int covered = 0;
                for (size_t i = 0; i < end; i++) {
                    covered |= at >= ranges[i].at && at + bytes <= ranges[i].at + ranges[i].bytes;
                }
                assert_int_equal(region_of(memory + at, bytes).id != 0, covered);
            }
        }
        for (size_t i = 0; i < end; i++) {
            assert_true(rondo_region_remove(id[(i + end / 2) % end]));
        }
        assert_int_equal(region_of(memory, 1).id, 0);
        assert_false(rondo_region_remove(id[0]));
    }
}

static void registrations_are_reference_counted(void **state)
{
    static uint8_t memory[100];
    uint64_t first, second;
    (void)state;
    assert_int_equal(rondo_region_add(memory, 100, &first), RONDO_SUCCESS);
    assert_int_equal(rondo_region_add(memory, 100, &second), RONDO_SUCCESS);
    assert_true(first == second && region_of(memory + 10, 90).id == first &&
                region_of(memory, 1).segment == 0);
    assert_true(rondo_region_remove(first));
    assert_int_equal(region_of(memory, 100).id, first);
    assert_true(rondo_region_remove(second));
    assert_int_equal(region_of(memory, 100).id, 0);
}

/* Count the pages in use of the file behind a segment. */
static long long used_of(uint64_t segment)
{
    struct rondo_segment_note note;
    char path[64];
    struct stat st;
    assert_int_equal(rondo_segment_note(segment, 0, &note), RONDO_SUCCESS);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", note.name.fd);
    assert_int_equal(stat(path, &st), 0);
    return st.st_blocks;
}

static void freeing_a_block_returns_its_pages(void **state)
{
    uint8_t *keep = alloc(100), *large = alloc(8 * MIB);
    uint64_t segment = region_of(keep, 1).segment;
    long long with;
    (void)state;
    keep[0] = keep[99] = 7;
    assert_true(region_of(large, 1).segment == segment);
    with = used_of(segment);
    give(large);
    assert_true(used_of(segment) <= with - 8 * MIB / 512);
    assert_true(keep[0] == 7 && keep[99] == 7);
    give(keep);
}

static void reaching_a_memory_limit_is_an_error(void **state)
{
    struct rlimit old, low = { 0 };
    void *ptr = NULL;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low.rlim_cur = 32 * MIB;
    low.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    assert_int_equal(rondo_heap_alloc(&ptr, (size_t)200 * MIB), RONDO_SYSTEM_ERROR);
    assert_non_null(strstr(rondo_error_text(), "ulimit -f"));
    assert_null(ptr);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

/* Where a segment of the usual size is too large, a smaller one does, and nobody hears of an error. */
static int take_little(void *arg)
{
    const struct rlimit limit = { 32 * MIB, 32 * MIB };
    void *ptr = NULL;
    (void)arg;
    rondo_error_clear();
    return setrlimit(RLIMIT_FSIZE, &limit) == 0 && rondo_heap_alloc(&ptr, (size_t)8 * MIB) == RONDO_SUCCESS &&
                   rondo_error_text()[0] == '\0' && rondo_heap_free(ptr) == RONDO_SUCCESS
               ? 0
               : 1;
}

static void a_small_segment_within_a_limit_is_no_error(void **state)
{
    (void)state;
    assert_int_equal(in_child(take_little, NULL), 0);
}

/* ---- another process ---- */

struct talk {
    int in, out;
    int serve;
};

static int hear(int fd, void *data, size_t bytes) { return read(fd, data, bytes) == (ssize_t)bytes; }
static int say(int fd, const void *data, size_t bytes) { return write(fd, data, bytes) == (ssize_t)bytes; }

/* A peer maps a block twice, reads, writes, and reads again after the block, then the segment, was freed. Its
 * exit code is the line that failed. */
#define EXPECT(condition)              \
    do {                               \
        if (!(condition)) {            \
            return __LINE__ % 250 + 1; \
        }                              \
    } while (0)
static int peer_main(void *arg)
{
    struct talk *talk = arg;
    struct rondo_segment_note note, wrong;
    uint8_t *base = NULL, *again = NULL;
    size_t bytes, offset;
    char word = 0;
    EXPECT(hear(talk->in, &note, sizeof(note)) && hear(talk->in, &offset, sizeof(offset)));
    wrong = note;
    wrong.id++;
    EXPECT(rondo_segment_get(&wrong, &base, &bytes) == RONDO_SYSTEM_ERROR && rondo_segments_mapped() == 0);
    EXPECT(rondo_segment_get(&note, &base, &bytes) == RONDO_SUCCESS &&
           rondo_segment_get(&note, &again, &bytes) == RONDO_SUCCESS);
    EXPECT(base == again && rondo_segments_mapped() == 1 && rondo_segment_alive(note.id));
    EXPECT(strcmp((char *)base + offset, "from the owner") == 0);
    snprintf((char *)base + offset, 32, "from the peer");
    EXPECT(say(talk->out, &word, 1) &&
           hear(talk->in, &word, 1)); /* the block is freed, and another one took its place */
    EXPECT(rondo_segment_alive(note.id) && base[offset] == 0);
    EXPECT(say(talk->out, &word, 1) && hear(talk->in, &word, 1)); /* the segment has ended */
    EXPECT(!rondo_segment_alive(note.id) && is_all(base, 0, bytes));
    rondo_segment_put(note.id);
    EXPECT(rondo_segments_mapped() == 1);
    rondo_segment_put(note.id);
    EXPECT(rondo_segments_mapped() == 0);
    EXPECT(rondo_segment_get(&note, &base, &bytes) == RONDO_SYSTEM_ERROR);
    return 0;
}

static void peer_sees_what_lives(int serve)
{
    int to[2], from[2], status;
    struct talk peer = { 0 };
    struct rondo_segment_note note;
    struct rondo_region region;
    uint8_t *stays, *at, *after;
    size_t offset;
    char word = 0;
    pid_t child;
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    peer.in = to[0];
    peer.out = from[1];
    fflush(NULL);
    child = fork(); /* before there is a segment, so that the child has none */
    if (child == 0) {
        _exit(peer_main(&peer));
    }
    stays = alloc((size_t)70 * MIB); /* so that another empty segment is kept */
    at = alloc((size_t)80 * MIB);
    snprintf((char *)at, 32, "from the owner");
    region = region_of(at, 100);
    assert_true(region.segment != 0 && region.segment != region_of(stays, 1).segment);
    assert_int_equal(rondo_segment_note(region.segment, serve, &note), RONDO_SUCCESS);
    assert_int_equal(note.name.mode, serve ? RONDO_SHM_MODE_SOCKET : RONDO_SHM_MODE_MEMFD);
    offset = (size_t)((uintptr_t)at - note.base);
    assert_true(say(to[1], &note, sizeof(note)) && say(to[1], &offset, sizeof(offset)));
    assert_true(hear(from[0], &word, 1));
    assert_string_equal((char *)at, "from the peer");
    give(at);
    after = alloc((size_t)80 * MIB);
    assert_ptr_equal(after, at);
    assert_true(say(to[1], &word, 1) && hear(from[0], &word, 1));
    give(stays);
    give(after);
    assert_int_equal(rondo_segment_note(region.segment, 0, &note), RONDO_INVALID_ARGUMENT);
    assert_true(say(to[1], &word, 1));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) {
        close(to[i]);
        close(from[i]);
    }
}

static void a_peer_can_map_live_blocks_only(void **state)
{
    (void)state;
    peer_sees_what_lives(0);
}

static void a_peer_can_map_blocks_over_a_socket(void **state)
{
    (void)state;
    peer_sees_what_lives(1);
}

/* An owner is stopped while a thread maps its segment over a socket: other threads go on. Here one of them
 * has the owner continue. */
static int owner_main(void *arg)
{
    const struct talk *talk = arg;
    struct rondo_segment_note note;
    char word;
    EXPECT(rondo_segment_note(region_of(alloc(MIB), 1).segment, 1, &note) == RONDO_SUCCESS);
    EXPECT(say(talk->out, &note, sizeof(note)));
    (void)hear(talk->in, &word, 1);
    return 0;
}

static void *get_main(void *arg)
{
    const struct rondo_segment_note *note = arg;
    uint8_t *base;
    size_t bytes;
    return rondo_segment_get(note, &base, &bytes) == RONDO_SUCCESS ? NULL : arg;
}

static void a_stopped_owner_makes_one_thread_wait(void **state)
{
    int to[2], from[2], status;
    struct rondo_segment_note note;
    pthread_t thread;
    void *failed;
    pid_t child;
    (void)state;
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    struct talk owner = { .in = to[0], .out = from[1] };
    fflush(NULL);
    child = fork();
    if (child == 0) {
        close(to[1]);
        _exit(owner_main(&owner));
    }
    assert_true(hear(from[0], &note, sizeof(note)));
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(pthread_create(&thread, NULL, get_main, &note), 0);
    usleep(200000); /* else the test proves nothing */
    assert_false(rondo_segment_alive(note.id));
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_true(rondo_segment_alive(note.id));
    rondo_segment_put(note.id);
    assert_int_equal(rondo_segments_mapped(), 0);
    for (int i = 0; i < 2; i++) {
        close(to[i]);
        close(from[i]);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_can_map_live_blocks_only), /* first: the children have no segments */
        cmocka_unit_test(a_peer_can_map_blocks_over_a_socket),
        cmocka_unit_test(a_stopped_owner_makes_one_thread_wait),
        cmocka_unit_test(blocks_never_overlap),
        cmocka_unit_test(threads_may_share_the_heap),
        cmocka_unit_test(only_a_block_can_be_freed_and_only_once),
        cmocka_unit_test(empty_segments_are_unmapped_except_one),
        cmocka_unit_test(a_block_is_found_from_any_address_in_it),
        cmocka_unit_test(registrations_may_overlap),
        cmocka_unit_test(registrations_are_reference_counted),
        cmocka_unit_test(freeing_a_block_returns_its_pages),
        cmocka_unit_test(reaching_a_memory_limit_is_an_error),
        cmocka_unit_test(a_small_segment_within_a_limit_is_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
