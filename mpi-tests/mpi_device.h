/* GPU memory and streams for test programs, through the CUDA driver that the library opened (base/cuda.h).
 * Without RONDO_CUDA there are none. */
#ifndef RONDO_TESTS_MPI_DEVICE_H
#define RONDO_TESTS_MPI_DEVICE_H

#include <stddef.h>
#include "rondo.h"

/** Make the device `rank` modulo the number of devices current. @return its number, or -1 and the reason in
 * *why. */
int test_device_begin(int rank, const char **why);
void test_device_end(void);

/* A failure ends the program (test_die). */
void *test_device_alloc(size_t bytes);
void test_device_free(void *memory);
/** Copy in either direction; returns when the copy is complete. */
void test_device_copy(void *to, const void *from, size_t bytes);
rondo_stream test_device_stream_new(void);
void test_device_stream_free(rondo_stream stream);
/** Wait for a stream; NULL: the legacy default stream. */
void test_device_wait(rondo_stream stream);

#ifdef RONDO_CUDA
#include "base/cuda.h"
/** Check the result of a driver call. */
void test_device_must(CUresult result, const char *what);
#endif

#endif
