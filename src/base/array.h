/* Arrays that grow by doubling. The owner keeps a pointer, the number of elements in use and a capacity, all
 * zero for an empty array, and frees the memory with rondo_free. */
#ifndef RONDO_BASE_ARRAY_H
#define RONDO_BASE_ARRAY_H

#include "base/status.h"

/**
 * Make room for at least @a need elements; the first @a n are kept, the others are zero where memory is new.
 * @param array address of the pointer to the elements, which may move
 * @param what what the array holds, for the error: "the works of a group"
 * @return RONDO_SYSTEM_ERROR if there is no memory or @a need is beyond an int; then nothing has changed.
 */
rondo_status rondo_array_reserve(void *array, size_t size, int n, int64_t need, int *capacity,
                                 const char *what);

/* The macros take lvalues, and evaluate their arguments more than once. */
#define RONDO_ARRAY_RESERVE(array, n, need, capacity, what) \
    (RONDO_LIKELY((need) <= (capacity))                     \
         ? RONDO_SUCCESS                                    \
         : rondo_array_reserve(&(array), sizeof(*(array)), (n), (need), &(capacity), (what)))
/** Make room for one more element after the @a n in use. */
#define RONDO_ARRAY_GROW(array, n, capacity, what) \
    RONDO_ARRAY_RESERVE(array, n, (int64_t)(n) + 1, capacity, what)

#endif
