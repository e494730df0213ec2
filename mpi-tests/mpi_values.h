/*
 * Inputs and expected results of the tests. Inputs are a hash of (rank, index, seed) made so that every
 * partial result, in whatever order ranks are combined, is exact in the type: results are compared bit by bit
 * (average of floats: within 2 units in the last place). The pattern repeats every TEST_PERIOD elements, a
 * prime, so that data moved by any likely stride is seen as wrong.
 */
#ifndef RONDO_TESTS_MPI_VALUES_H
#define RONDO_TESTS_MPI_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "rondo.h"

#define TEST_PERIOD 4093

/* What is asked of the data besides the operations of rondo_op. */
enum { TEST_OP_PREMUL = RONDO_NUM_OPS, TEST_OP_NONE, TEST_NUM_OPS };

struct test_type {
    const char *name;
    size_t size;
    int is_float, is_signed;
};
extern const struct test_type test_types[RONDO_NUM_DTYPES];
extern const char *const test_op_names[TEST_NUM_OPS]; /* "sum" ... "avg", "premul", "none" */

/* Index of the type or operation by its name in rondo_types.def, or by nccl-tests' name for it; -1 when there
 * is none. */
int test_type_by_name(const char *name);
int test_op_by_name(const char *name);

struct test_values;
/* Cached until test_values_clear(). TEST_OP_NONE: any bits. Never NULL: ends the program when there is no
 * memory. */
const struct test_values *test_values_get(rondo_dtype type, int op, int nranks, uint64_t seed);
void test_values_clear(void);

/* Elements first .. first + count - 1 of what @a rank gives. */
void test_values_input(const struct test_values *values, int rank, size_t first, size_t count, void *dst);
/* The same elements reduced over all ranks. */
void test_values_result(const struct test_values *values, size_t first, size_t count, void *dst);
/* How many elements of @a got are not as in @a want, within the tolerance of type and operation; *index: the
 * first one. */
size_t test_values_wrong(const struct test_values *values, const void *got, const void *want, size_t count,
                         size_t *index);
/* One element as text: value and bits. */
void test_values_text(rondo_dtype type, const void *element, char *text, size_t len);

/* What rank multiplies its input with under TEST_OP_PREMUL; @a scalar has room for 8 bytes. */
void test_premul_scalar(rondo_dtype type, int rank, void *scalar);

#endif
