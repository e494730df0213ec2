/*
 * Inputs and expected results of the tests. An input is a hash of (rank, index, seed), chosen so that every
 * partial result is exact in the type, whatever the order of the ranks. Results are therefore compared bit by
 * bit (averages of floats: within 2 ulp). The pattern repeats every TEST_PERIOD elements, a prime, so that
 * data shifted by any likely stride is detected.
 */
#ifndef RONDO_TESTS_MPI_VALUES_H
#define RONDO_TESTS_MPI_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "rondo.h"

#define TEST_PERIOD 4093

/* Operations besides those of rondo_op. */
enum { TEST_OP_PREMUL = RONDO_NUM_OPS, TEST_OP_NONE, TEST_NUM_OPS };

enum test_class { TEST_SIGNED, TEST_UNSIGNED, TEST_FLOAT, TEST_SMALL, TEST_COMPLEX, TEST_LOGICAL, TEST_PAIR };

struct test_type {
    const char *name;
    size_t size;
    enum test_class kind;
};
extern const struct test_type test_types[RONDO_NUM_DTYPES];
extern const char *const test_op_names[TEST_NUM_OPS]; /* "sum" ... "maxloc", "premul", "none" */

/** May a call on host memory have this type and operation? */
int test_has_op(rondo_dtype type, int op);

/** Find a type or operation by its name in rondo_types.def or in nccl-tests. @return its index, or -1. */
int test_type_by_name(const char *name);
int test_op_by_name(const char *name);
/** The name in nccl-tests; Rondo's, if nccl-tests has no such type or operation. */
const char *test_type_nccl_name(int type);
const char *test_op_nccl_name(int op);

struct test_values;
/** Cached until test_values_clear(). TEST_OP_NONE: any bits. Ends the program if there is no memory. */
const struct test_values *test_values_get(rondo_dtype type, int op, int nranks, uint64_t seed);
void test_values_clear(void);

/** Write elements first to first + count - 1 of the input of `rank`. */
void test_values_input(const struct test_values *values, int rank, size_t first, size_t count, void *dst);
/** Write the same elements reduced over all ranks. */
void test_values_result(const struct test_values *values, size_t first, size_t count, void *dst);
/** @return the number of elements of `got` that differ from `want` beyond the tolerance; *index: the
 * first. */
size_t test_values_wrong(const struct test_values *values, const void *got, const void *want, size_t count,
                         size_t *index);
/** Write one element as text: value and bits. */
void test_values_text(rondo_dtype type, const void *element, char *text, size_t len);

/** Write the scalar by which `rank` multiplies its input under TEST_OP_PREMUL (at most 8 bytes). */
void test_premul_scalar(rondo_dtype type, int rank, void *scalar);

#endif
