/* base/pool.h: parts of shared memory are zeroed, apart, reused only when nobody has them open, and cost no
 * descriptor each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/pool.h"
#include "in_child.h"

enum { KIB = 1 << 10, MIB = 1 << 20, NPARTS = 64, NSTEPS = 4000 };

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static struct rondo_shm take(size_t bytes, size_t reserved)
{
    struct rondo_shm part;
    assert_int_equal(rondo_pool_take(&part, bytes, reserved, RONDO_SHM_MODE_MEMFD, RONDO_SHM_FOR_BUFFERS),
                     RONDO_SUCCESS);
    assert_true(part.size >= bytes);
    return part;
}

static int is_all(const uint8_t *at, uint8_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != value) {
            return 0;
        }
    }
    return 1;
}

static struct rondo_pool_use use_now(void)
{
    struct rondo_pool_use use;
    rondo_pool_look(&use);
    return use;
}

static void nothing_is_left(void)
{
    struct rondo_pool_use none = { 0 }, use = use_now();
    assert_memory_equal(&use, &none, sizeof(use));
}

/* Parts of all sizes, some opened a second time, closed in any order: each starts zeroed and nobody else
 * writes into it while one of the two has it open. */
static void parts_are_zeroed_and_apart(void **state)
{
    struct held {
        struct rondo_shm taken, opened;
        uint8_t value;
    } held[NPARTS] = { 0 };
    uint64_t random = 0x9e3779b97f4a7c15;
    (void)state;
    for (int step = 0; step < NSTEPS; step++) {
        struct held *h = &held[random_next(&random) % NPARTS];
        uint64_t r = random_next(&random);
        if (h->taken.base == NULL && h->opened.base == NULL) {
            size_t bytes = 1 + r % (r % 16 == 0 ? 2 * MIB : 64 * KIB);
            h->taken = take(bytes, r & 64 ? bytes : bytes / 2);
            h->value = (uint8_t)(1 + step % 255);
            assert_true(is_all(h->taken.base, 0, h->taken.size));
            memset(h->taken.base, h->value, h->taken.size);
            if (r & 32) {
                assert_int_equal(rondo_shm_open(&h->opened, &h->taken.name), RONDO_SUCCESS);
                assert_ptr_equal(h->opened.base, h->taken.base);
            }
        } else {
            struct rondo_shm *first = (r & 1) && h->opened.base != NULL ? &h->opened : &h->taken;
            first = first->base != NULL ? first : &h->opened;
            assert_true(is_all(first->base, h->value, first->size));
            rondo_shm_close(first);
            assert_null(first->base);
        }
    }
    assert_true(use_now().segments < 8);
    for (int i = 0; i < NPARTS; i++) {
        rondo_shm_close(&held[i].taken);
        rondo_shm_close(&held[i].opened);
    }
    nothing_is_left();
}

static void parts_cost_no_descriptors(void **state)
{
    struct rondo_shm parts[1000];
    struct holdings before = holdings_now(), after;
    (void)state;
    for (int i = 0; i < 1000; i++) {
        parts[i] = take(16 * KIB, 16 * KIB);
    }
    after = holdings_now();
    assert_true(after.fds - before.fds <= 2);
    for (int i = 0; i < 1000; i++) {
        rondo_shm_close(&parts[i]);
    }
    nothing_is_left();
    assert_int_equal(holdings_now().fds, before.fds);
}

/* A part that is open elsewhere is not given to anybody, and its pages stay. */
static void a_part_waits_for_all_who_have_it_open(void **state)
{
    struct rondo_shm stays = take(4 * KIB, 4 * KIB), part = take(8 * KIB, 8 * KIB), opened, next;
    (void)state;
    assert_int_equal(rondo_shm_open(&opened, &part.name), RONDO_SUCCESS);
    memset(part.base, 7, part.size);
    rondo_shm_close(&part);
    assert_int_equal(use_now().waiting, 1);
    next = take(8 * KIB, 8 * KIB);
    assert_ptr_not_equal(next.base, opened.base);
    assert_true(is_all(opened.base, 7, opened.size));
    rondo_shm_close(&next);
    rondo_shm_close(&opened);
    assert_int_equal(use_now().waiting, 0);
    assert_int_equal(use_now().kept, 16 * KIB);
    rondo_shm_close(&stays);
    nothing_is_left();
}

/* Of a part of which little was reserved, that little stays; the next one finds nothing of the rest. */
static void a_part_keeps_what_was_reserved(void **state)
{
    struct rondo_shm stays = take(4 * KIB, 4 * KIB), part = take(512 * KIB, 8 * KIB);
    uint8_t *place = part.base;
    (void)state;
    memset(part.base, 7, part.size);
    rondo_shm_close(&part);
    assert_int_equal(use_now().kept, 8 * KIB);
    part = take(512 * KIB, 16 * KIB); /* not enough of it is reserved */
    assert_ptr_not_equal(part.base, place);
    rondo_shm_close(&part);
    part = take(512 * KIB, 8 * KIB);
    assert_ptr_equal(part.base, place);
    assert_true(is_all(part.base, 0, part.size));
    rondo_shm_close(&part);
    rondo_shm_close(&stays);
    nothing_is_left();
}

/* Pages that were reserved later and never touched do not show as such; they go back. */
static void a_part_keeps_no_page_that_nobody_touched(void **state)
{
    struct rondo_shm stays = take(4 * KIB, 4 * KIB), part = take(512 * KIB, 8 * KIB);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct stat before, reserved, after;
    (void)state;
    assert_int_equal(fstat(stays.fd, &before), 0);
    assert_int_equal(rondo_shm_reserve(&part, 64 * KIB, 64 * KIB), RONDO_SUCCESS);
    assert_int_equal(rondo_shm_reserve(&part, 300 * KIB, 40 * KIB), RONDO_SUCCESS);
    assert_int_equal(fstat(stays.fd, &reserved), 0);
    assert_true(reserved.st_blocks >= before.st_blocks + (off_t)(104 * KIB / 512));
    part.base[100 * KIB] = part.base[320 * KIB] = part.base[400 * KIB] = 7;
    rondo_shm_close(&part);
    assert_int_equal(use_now().kept, 8 * KIB + 3 * page);
    assert_int_equal(fstat(stays.fd, &after), 0);
    assert_int_equal(after.st_blocks, before.st_blocks + (off_t)(3 * page / 512));
    rondo_shm_close(&stays);
    nothing_is_left();
}

/* Of what was touched behind that, few pages stay as well, cleared. */
static void a_part_keeps_few_pages(void **state)
{
    struct rondo_shm stays = take(4 * KIB, 4 * KIB), part = take(512 * KIB, 8 * KIB), opened;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *place = part.base;
    struct stat before, after;
    (void)state;
    assert_int_equal(rondo_shm_open(&opened, &part.name), RONDO_SUCCESS);
    memset(part.base, 7, 8 * KIB);
    part.base[100 * KIB] = opened.base[100 * KIB + page] = part.base[512 * KIB - 1] = 7;
    rondo_shm_close(&opened);
    assert_int_equal(fstat(stays.fd, &before), 0);
    rondo_shm_close(&part);
    assert_int_equal(use_now().kept, 8 * KIB + 3 * page);
    part = take(512 * KIB, 8 * KIB);
    assert_ptr_equal(part.base, place);
    assert_int_equal(fstat(stays.fd, &after), 0);
    assert_int_equal(after.st_blocks, before.st_blocks);
    assert_true(is_all(part.base, 0, part.size));
    rondo_shm_close(&part);
    rondo_shm_close(&stays);
    nothing_is_left();
}

static void a_name_of_a_closed_part_is_refused(void **state)
{
    struct rondo_shm stays = take(4 * KIB, 4 * KIB), part = take(8 * KIB, 0), opened = { .fd = -1 };
    struct rondo_shm_name name = part.name, bad;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    (void)state;
    for (int k = 0; k < 6; k++) {
        bad = name;
        bad.offset = k == 0 ? page / 2 : k == 1 ? bad.size : k == 2 ? 0 : bad.offset;
        bad.bytes = k == 3 ? UINT64_MAX - page + 1 : k == 4 ? page / 2 : k == 5 ? bad.size : bad.bytes;
        assert_int_equal(rondo_shm_open(&opened, &bad), RONDO_SYSTEM_ERROR);
        assert_null(opened.base);
    }
    rondo_shm_close(&part);
    assert_int_equal(rondo_shm_open(&opened, &name), RONDO_REMOTE_ERROR);
    part = take(8 * KIB, 0); /* in the same place */
    assert_int_equal(part.name.offset, name.offset);
    assert_int_equal(rondo_shm_open(&opened, &name), RONDO_REMOTE_ERROR);
    assert_int_equal(rondo_shm_open(&opened, &part.name), RONDO_SUCCESS);
    rondo_shm_close(&opened);
    rondo_shm_close(&part);
    rondo_shm_close(&stays);
    assert_int_equal(rondo_shm_open(&opened, &name), RONDO_SYSTEM_ERROR); /* the segment has ended */
    nothing_is_left();
}

/* Another process opens a part: it sees what was written, and the owner keeps the part until it closes. */
static int open_and_answer(void *arg)
{
    const struct rondo_shm_name *name = arg;
    struct rondo_shm part;
    struct rondo_pool_use use;
    if (rondo_shm_open(&part, name) != RONDO_SUCCESS || part.base[0] != 42) {
        return 1;
    }
    part.base[1] = 43;
    use = use_now();
    if (use.segments != 0 || use.mapped != 1 || use.parts != 1) {
        return 2;
    }
    rondo_shm_close(&part);
    use = use_now();
    return use.mapped == 0 && use.parts == 0 ? 0 : 3;
}

static void other_processes_open_parts(void **state)
{
    struct rondo_shm stays = take(4 * KIB, 4 * KIB), part;
    (void)state;
    for (int mode = RONDO_SHM_MODE_MEMFD; mode <= RONDO_SHM_MODE_FILE; mode++) {
        assert_int_equal(
            rondo_pool_take(&part, 64 * KIB, 4 * KIB, (enum rondo_shm_mode)mode, RONDO_SHM_FOR_BUFFERS),
            RONDO_SUCCESS);
        part.base[0] = 42;
        assert_int_equal(in_child(open_and_answer, &part.name), mode == RONDO_SHM_MODE_FILE ? 2 : 0);
        assert_int_equal(part.base[1], 43);
        rondo_shm_unlink(&part);
        rondo_shm_close(&part);
        assert_int_equal(use_now().waiting, 0);
    }
    rondo_shm_close(&stays);
    nothing_is_left();
}

/* Communicators of both modes share segments: a name says how its own part is found, however parts before it
 * were found, and it holds until that part is unlinked. */
static struct rondo_shm take_served(void)
{
    struct rondo_shm part;
    assert_int_equal(rondo_pool_take(&part, 4 * KIB, 0, RONDO_SHM_MODE_SOCKET, RONDO_SHM_FOR_BUFFERS),
                     RONDO_SUCCESS);
    assert_int_equal(part.name.mode, RONDO_SHM_MODE_SOCKET);
    part.base[0] = 42;
    return part;
}

static void a_part_is_found_in_its_own_mode(void **state)
{
    struct rondo_shm stays = take_served(), part, opened, served;
    (void)state;
    part = take(4 * KIB, 0);
    assert_int_equal(part.name.inode, stays.name.inode);
    assert_int_equal(part.name.mode, RONDO_SHM_MODE_MEMFD);
    assert_string_equal(part.name.path, "");
    rondo_shm_unlink(&part); /* of no part that is offered */
    rondo_shm_close(&part);
    assert_int_equal(in_child(open_and_answer, &stays.name), 0);
    rondo_shm_unlink(&stays);
    assert_int_equal(in_child(open_and_answer, &stays.name), 1);

    part = take(4 * KIB, 0);
    assert_int_equal(part.name.mode, RONDO_SHM_MODE_MEMFD);
    part.base[0] = 42;
    assert_int_equal(rondo_shm_open(&opened, &part.name), RONDO_SUCCESS);
    rondo_shm_close(&opened);
    assert_int_equal(in_child(open_and_answer, &part.name), 0);
    rondo_shm_close(&part);

    served = take_served();
    part = take_served();
    assert_string_equal(part.name.path, served.name.path);
    rondo_shm_close(&part);
    assert_int_equal(in_child(open_and_answer, &served.name), 0);
    rondo_shm_close(&served);
    rondo_shm_close(&stays);
    nothing_is_left();
}

/* A segment that cannot be offered, because descriptors are short, does not stay without a part. */
static int take_one_that_cannot_be_served(void *arg)
{
    struct rondo_shm part;
    int next = dup(0);
    struct rlimit limit = { (rlim_t)next + 1, (rlim_t)next + 1 };
    struct rondo_pool_use use;
    (void)arg;
    close(next);
    if (next < 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return SKIPPED;
    }
    if (rondo_pool_take(&part, 4 * KIB, 0, RONDO_SHM_MODE_SOCKET, RONDO_SHM_FOR_BUFFERS) == RONDO_SUCCESS) {
        return 1;
    }
    use = use_now();
    return use.segments == 0 && use.bytes == 0 && dup(0) == next ? 0 : 2;
}

static void a_segment_that_cannot_be_offered_ends(void **state)
{
    (void)state;
    assert_int_equal(in_child(take_one_that_cannot_be_served, NULL), 0);
}

/* A part that a process had open when it was killed is not used again before the segment ends. */
static int open_and_die(void *arg)
{
    struct rondo_shm part;
    return rondo_shm_open(&part, arg) == RONDO_SUCCESS ? 0 : 1;
}

static void parts_of_dead_processes_are_left_alone(void **state)
{
    struct rondo_shm stays = take(4 * KIB, 4 * KIB), part = take(4 * KIB, 4 * KIB);
    (void)state;
    assert_int_equal(in_child(open_and_die, &part.name), 0);
    rondo_shm_close(&part);
    assert_int_equal(use_now().waiting, 1);
    rondo_shm_close(&stays);
    nothing_is_left();
}

/* A forked child closes what it inherited, and takes parts of its own: the parent's stay as they are. */
static int child_lives_alone(void *arg)
{
    struct rondo_shm *inherited = arg, part;
    struct rondo_shm_name name = inherited->name;
    rondo_shm_close(inherited);
    nothing_is_left();
    part = take(4 * KIB, 4 * KIB);
    if (part.name.inode == name.inode) {
        return 1;
    }
    memset(part.base, 9, part.size);
    rondo_shm_close(&part);
    nothing_is_left();
    return 0;
}

static void a_forked_child_leaves_its_parent_alone(void **state)
{
    struct rondo_shm part = take(4 * KIB, 4 * KIB), copy = part, opened;
    (void)state;
    memset(part.base, 5, part.size);
    assert_int_equal(in_child(child_lives_alone, &copy), 0);
    assert_true(is_all(part.base, 5, part.size));
    assert_int_equal(rondo_shm_open(&opened, &part.name), RONDO_SUCCESS);
    rondo_shm_close(&opened);
    rondo_shm_close(&part);
    nothing_is_left();
}

static int warnings(int log)
{
    char text[1 << 16];
    ssize_t bytes = pread(log, text, sizeof(text) - 1, 0);
    int n = 0;
    text[bytes > 0 ? bytes : 0] = '\0';
    for (const char *at = text; (at = strstr(at, " WARN ")) != NULL; at++) {
        n++;
    }
    return n;
}

/* Where addresses are limited, segments are only as large as needed; where they are used up, it is an error,
 * and only that is logged. */
static int take_within_limits(void *arg)
{
    int log = fileno(tmpfile());
    struct rondo_shm parts[64];
    unsigned long pages = 0;
    int n = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    (void)arg;
    if (file == NULL || fscanf(file, "%lu", &pages) != 1) {
        return SKIPPED;
    }
    fclose(file);
    rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + 64 * MIB;
    struct rlimit limit = { bytes, bytes };
    if (dup2(log, STDERR_FILENO) < 0 || setrlimit(RLIMIT_AS, &limit) != 0) {
        return SKIPPED;
    }
    while (n < 64 && rondo_pool_take(&parts[n], 2 * MIB, 4 * KIB, RONDO_SHM_MODE_MEMFD,
                                     RONDO_SHM_FOR_BUFFERS) == RONDO_SUCCESS) {
        n++;
    }
    for (int i = 0; i < n; i++) {
        rondo_shm_close(&parts[i]);
    }
    return n > 8 && n < 64 && use_now().segments == 0 && warnings(log) == 1 ? 0 : 1;
}

static void limited_addresses_are_an_error(void **state)
{
    int code = in_child(take_within_limits, NULL);
    (void)state;
    if (code == SKIPPED) {
        skip();
    }
    assert_int_equal(code, 0);
}

static void wrong_sizes_are_errors(void **state)
{
    struct rondo_shm part;
    (void)state;
    assert_int_equal(rondo_pool_take(&part, 0, 0, RONDO_SHM_MODE_MEMFD, RONDO_SHM_FOR_BUFFERS),
                     RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_pool_take(&part, SIZE_MAX, 0, RONDO_SHM_MODE_MEMFD, RONDO_SHM_FOR_BUFFERS),
                     RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_pool_take(&part, 1, 2, RONDO_SHM_MODE_MEMFD, RONDO_SHM_FOR_BUFFERS),
                     RONDO_INVALID_ARGUMENT);
    nothing_is_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_zeroed_and_apart),
        cmocka_unit_test(parts_cost_no_descriptors),
        cmocka_unit_test(a_part_waits_for_all_who_have_it_open),
        cmocka_unit_test(a_part_keeps_what_was_reserved),
        cmocka_unit_test(a_part_keeps_few_pages),
        cmocka_unit_test(a_part_keeps_no_page_that_nobody_touched),
        cmocka_unit_test(a_name_of_a_closed_part_is_refused),
        cmocka_unit_test(other_processes_open_parts),
        cmocka_unit_test(a_part_is_found_in_its_own_mode),
        cmocka_unit_test(a_segment_that_cannot_be_offered_ends),
        cmocka_unit_test(parts_of_dead_processes_are_left_alone),
        cmocka_unit_test(a_forked_child_leaves_its_parent_alone),
        cmocka_unit_test(limited_addresses_are_an_error),
        cmocka_unit_test(wrong_sizes_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
