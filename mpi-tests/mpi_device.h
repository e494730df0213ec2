/* Memory and streams of a GPU for programs that test the library: by the driver that the library itself has
 * opened (base/cuda.h). Without RONDO_CUDA there are none. */
#ifndef RONDO_TESTS_MPI_DEVICE_H
#define RONDO_TESTS_MPI_DEVICE_H

#include <stddef.h>
#include "rondo.h"

/* Take a device for this rank, its MPI rank modulo their number; from here on it is current. @return its
 * number; -1: there is none, *why says why. */
int test_device_begin(int rank, const char **why);
void test_device_end(void);

/* Failures end the program, as test_die does. */
void *test_device_alloc(size_t bytes);
void test_device_free(void *memory);
/* Either way; done when it returns. */
void test_device_copy(void *to, const void *from, size_t bytes);
rondo_stream test_device_stream_new(void);
void test_device_stream_free(rondo_stream stream);
/* NULL: the legacy default stream. */
void test_device_wait(rondo_stream stream);

#ifdef RONDO_CUDA
#include "base/cuda.h"
/* A call of the driver that must succeed. */
void test_device_must(CUresult result, const char *what);
#endif

#endif
