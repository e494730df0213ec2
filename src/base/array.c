#include "base/array.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"

enum { FIRST_CAPACITY = 16 };

rondo_status rondo_array_reserve(void *array, size_t size, int n, int64_t need, int *capacity,
                                 const char *what)
{
    int64_t wanted = *capacity > 0 ? 2 * (int64_t)*capacity : FIRST_CAPACITY;
    void *old, *larger;
    if (need <= *capacity) {
        return RONDO_SUCCESS;
    }
    if (need > INT_MAX) {
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "cannot allocate %s: %lld elements are more than an array holds", what,
                          (long long)need);
    }
    wanted = wanted < need ? need : wanted > INT_MAX ? INT_MAX : wanted;
    RONDO_TRY(rondo_calloc(&larger, (size_t)wanted, size, what));
    memcpy(&old, array, sizeof(old)); /* array is the address of a pointer to any type */
    if (n > 0) {
        memcpy(larger, old, (size_t)n * size);
    }
    rondo_free(old);
    memcpy(array, &larger, sizeof(larger));
    *capacity = (int)wanted;
    return RONDO_SUCCESS;
}
