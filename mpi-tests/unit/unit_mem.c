/* base/mem.h and base/array.h: allocation, growing arrays, hash and random bytes. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "base/array.h"
#include "base/mem.h"
#include "base/memo.h"

/* Pieces are filled before they are freed, and there are many, so that the allocator reuses some. */
static void memory_is_zeroed_and_aligned(void **state)
{
    struct line {
        uint8_t byte[RONDO_CACHE_LINE];
    } RONDO_ALIGNED(RONDO_CACHE_LINE) * line;
    (void)state;
    for (size_t n = 1; n < 5000; n = n * 3 + 1) {
        size_t alignment = n < RONDO_MEM_ALIGN_FROM ? _Alignof(max_align_t) : RONDO_CACHE_LINE;
        for (int pass = 0; pass < 2; pass++) {
            uint8_t *piece[64] = { NULL };
            size_t set = 0;
            for (size_t i = 0; i < RONDO_COUNTOF(piece); i++) {
                assert_int_equal(RONDO_NEW_ARRAY(piece[i], n, "bytes"), RONDO_SUCCESS);
                assert_int_equal((uintptr_t)piece[i] % alignment, 0);
                for (size_t k = 0; k < n; k++) {
                    set += piece[i][k] != 0;
                }
            }
            assert_int_equal(set, 0);
            for (size_t i = 0; i < RONDO_COUNTOF(piece); i++) {
                memset(piece[i], 0xff, n);
                rondo_free(piece[i]);
            }
        }
        assert_int_equal(RONDO_NEW_ARRAY(line, n, "lines"), RONDO_SUCCESS);
        assert_int_equal((uintptr_t)line % RONDO_CACHE_LINE, 0);
        rondo_free(line);
    }
}

static void zero_bytes_are_a_unique_pointer(void **state)
{
    char *a = NULL, *b = NULL;
    (void)state;
    assert_int_equal(rondo_calloc(&a, 0, 8, "a"), RONDO_SUCCESS);
    assert_int_equal(rondo_calloc(&b, 8, 0, "b"), RONDO_SUCCESS);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    rondo_free(a);
    rondo_free(b);
    rondo_free(NULL);
}

static void overflowing_sizes_are_errors_and_keep_the_pointer(void **state)
{
    char here, *ptr = &here;
    (void)state;
    assert_int_equal(rondo_calloc(&ptr, SIZE_MAX / 4, 8, "the plan"), RONDO_SYSTEM_ERROR);
    assert_non_null(strstr(rondo_error_text(), "the plan"));
    assert_int_equal(rondo_calloc(&ptr, 1, SIZE_MAX - 10, "x"), RONDO_SYSTEM_ERROR);
    assert_int_equal(rondo_calloc(&ptr, 1, PTRDIFF_MAX, "x"), RONDO_SYSTEM_ERROR);
    assert_ptr_equal(ptr, &here);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static void out_of_memory_is_an_error_that_names_the_purpose(void **state)
{
    char here, *ptr = &here;
    (void)state;
    if (SANITIZED) {
        print_message("skipped: a sanitizer ends the program when an allocation fails\n");
        skip();
    }
    assert_int_equal(rondo_calloc(&ptr, 1024, (size_t)1 << 50, "slots"),
                     RONDO_SYSTEM_ERROR); /* more than 64-bit processors address */
    assert_ptr_equal(ptr, &here);
    assert_non_null(strstr(rondo_error_text(), "slots: no memory for 1152921504606846976 bytes"));
}

static void an_array_keeps_its_elements_and_its_new_memory_is_zero(void **state)
{
    int *number = NULL, n = 0, capacity = 0, moved = 0;
    (void)state;
    while (n < 1000) {
        const int *before = number;
        assert_int_equal(RONDO_ARRAY_GROW(number, n, capacity, "numbers"), RONDO_SUCCESS);
        assert_true(capacity > n);
        moved += number != before;
        for (int i = n; number != before && i < capacity; i++) {
            assert_int_equal(number[i], 0);
        }
        number[n] = 7 * n;
        n++;
    }
    assert_in_range(moved, 1, 8); /* by doubling */
    for (int i = 0; i < n; i++) {
        assert_int_equal(number[i], 7 * i);
    }
    assert_int_equal(RONDO_ARRAY_RESERVE(number, n, 123456, capacity, "numbers"), RONDO_SUCCESS);
    assert_true(capacity >= 123456 && number[n - 1] == 7 * (n - 1));
    rondo_free(number);
}

static void an_array_that_cannot_grow_is_unchanged(void **state)
{
    char here, *text = &here;
    int64_t need = (int64_t)INT_MAX + 1;
    int capacity = 1;
    (void)state;
    assert_int_equal(RONDO_ARRAY_RESERVE(text, 1, need, capacity, "the names"), RONDO_SYSTEM_ERROR);
    assert_non_null(strstr(rondo_error_text(), "the names"));
    assert_ptr_equal(text, &here);
    assert_int_equal(capacity, 1);
}

static void hash_depends_on_every_bit_and_on_the_seed(void **state)
{
    uint8_t data[32] = { 0 };
    uint64_t base = rondo_hash(data, sizeof data, 0);
    (void)state;
    for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
        uint64_t other;
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        other = rondo_hash(data, sizeof data, 0);
        assert_in_range(__builtin_popcountll(base ^ other), 10, 54); /* about half of the bits */
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(rondo_hash(data, sizeof data, 0) == base);
    assert_true(rondo_hash(data, sizeof data, 1) != base);
    assert_true(rondo_hash(data, sizeof data - 1, 0) != base);
    assert_true(rondo_hash("b", 1, rondo_hash("a", 1, 0)) != rondo_hash("a", 1, rondo_hash("b", 1, 0)));
}

static void random_bytes_fill_everything_and_differ(void **state)
{
    static uint8_t a[5000], b[5000];
    int seen[256] = { 0 }, missing = 0;
    (void)state;
    assert_int_equal(rondo_random(a, sizeof a), RONDO_SUCCESS);
    assert_int_equal(rondo_random(b, sizeof b), RONDO_SUCCESS);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a + sizeof a - 32, b + sizeof b - 32, 32);
    for (size_t i = 0; i < sizeof a; i++) {
        seen[a[i]]++;
    }
    for (int i = 0; i < 256; i++) {
        missing += seen[i] == 0;
    }
    assert_in_range(missing, 0, 8);
    assert_int_equal(rondo_random(NULL, 0), RONDO_SUCCESS);
}

/* ---- memo ---- */

static int dropped;
static void drop(void *result) { dropped += *(int *)result; }

static void a_memo_keeps_the_results_that_were_used_last(void **state)
{
    enum { MORE = 3, ALL = RONDO_MEMO_RESULTS + MORE };
    static uint8_t long_input[RONDO_MEMO_MOST + 1];
    struct rondo_memo memo = { .drop = drop };
    int result[ALL];
    (void)state;
    for (int i = 0; i < ALL; i++) {
        result[i] = 1 << i;
        assert_null(rondo_memo_find(&memo, &i, sizeof(i)));
        assert_int_equal(rondo_memo_keep(&memo, &i, sizeof(i), &result[i]), 1);
        assert_ptr_equal(rondo_memo_find(&memo, &(int){ 0 }, sizeof(int)), &result[0]);
    }
    assert_int_equal(dropped, (1 << (MORE + 1)) - 2); /* all but the first, which was used all the time */
    assert_null(rondo_memo_find(&memo, &(int){ 1 }, sizeof(int)));
    assert_null(rondo_memo_find(&memo, &(int){ 0 }, 1)); /* the same first byte */
    assert_int_equal(rondo_memo_keep(&memo, long_input, sizeof(long_input), &result[1]), 0);
    rondo_memo_clear(&memo);
    assert_int_equal(dropped, (1 << ALL) - 1);
    assert_null(rondo_memo_find(&memo, &(int){ 0 }, sizeof(int)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(zero_bytes_are_a_unique_pointer),
        cmocka_unit_test(overflowing_sizes_are_errors_and_keep_the_pointer),
        cmocka_unit_test(out_of_memory_is_an_error_that_names_the_purpose),
        cmocka_unit_test(an_array_keeps_its_elements_and_its_new_memory_is_zero),
        cmocka_unit_test(an_array_that_cannot_grow_is_unchanged),
        cmocka_unit_test(hash_depends_on_every_bit_and_on_the_seed),
        cmocka_unit_test(random_bytes_fill_everything_and_differ),
        cmocka_unit_test(a_memo_keeps_the_results_that_were_used_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
