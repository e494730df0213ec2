/* Buffers with known contents. */
#include "gpu_bench.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20, PIECES = 16 };

static void *host_memory(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) {
        test_die("no memory for %zu bytes", bytes);
    }
    return memory;
}

void bench_fill(const struct test_values *values, size_t size, int rank, void *there, size_t count,
                rondo_stream stream)
{
    size_t done = count < TEST_PERIOD ? count : TEST_PERIOD;
    unsigned char *to = there, *host = host_memory(done * size);
    test_values_input(values, rank, 0, done, host);
    test_device_copy(to, host, done * size);
    while (done < count) {
        size_t part = done < count - done ? done : count - done;
        test_device_must(gpu_cuda()->MemcpyAsync(gpu_address(to + done * size), gpu_address(to), part * size,
                                                 (CUstream)stream),
                         "cuMemcpyAsync on the device");
        done += part;
    }
    test_device_wait(stream);
    free(host);
}

static int piece_is_right(const struct test_values *values, size_t size, int rank, const unsigned char *there,
                          size_t first, size_t count)
{
    size_t at = 0, wrong;
    unsigned char *got = host_memory(count * size), *want = host_memory(count * size);
    test_device_copy(got, there + first * size, count * size);
    test_values_result(values, first, count, want);
    wrong = test_values_wrong(values, got, want, count, &at);
    test_check(wrong == 0, "rank %d: %zu of elements %zu .. %zu are wrong, first %zu", rank, wrong, first,
               first + count - 1, first + at);
    free(got);
    free(want);
    return wrong == 0;
}

void bench_check(const struct test_values *values, size_t size, int rank, const void *there, size_t count)
{
    size_t piece = PIECE / size, last = count > piece ? count - piece : 0;
    for (size_t i = 0; i < PIECES; i++) {
        size_t first = last / (PIECES - 1) * i, n = count < piece ? count : piece;
        if (i == PIECES - 1) {
            first = last;
        }
        if (!piece_is_right(values, size, rank, there, first, n) || count <= piece) {
            return;
        }
    }
}
