/* Names of kernels, threads of their blocks, and their library: beside the engine, named by a parameter, or
 * missing, with a remedy. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/param.h"
#include "coll/step.h"
#include "in_child.h"
#include "kern/cuda/kernel_list.h"
#include "kern/cuda/kernels.h"

#define NAME(name, proto, body) #name,
#define NAMES_OF_TYPE(ctx, type, ...) RONDO_KERNELS_OF_TYPE(NAME, type)
static const char *const reductions[] = { RONDO_DEVICE_DTYPE_TABLE(NAMES_OF_TYPE, ) };
static const char *const moves[] = { RONDO_KERNELS_THAT_MOVE(NAME) };

static struct rondo_work work_of(enum rondo_coll coll, int dtype, int reduce, int proto)
{
    return (struct rondo_work){
        .coll = (uint8_t)coll, .dtype = (uint8_t)dtype, .reduce = (uint8_t)reduce, .proto = (uint8_t)proto
    };
}

static struct rondo_work direct_of(enum rondo_coll coll, int dtype, int reduce, enum rondo_algo algo)
{
    struct rondo_work work = work_of(coll, dtype, reduce, RONDO_PROTO_SIMPLE);
    work.algo = (uint8_t)algo;
    return work;
}

static void assert_name(struct rondo_work work, const char *expected)
{
    char name[RONDO_KERNEL_NAME];
    rondo_kernel_name(name, &work);
    assert_string_equal(name, expected);
}

static void every_work_names_its_kernel(void **state)
{
    int i = 0;
    (void)state;
    for (int dtype = 0; dtype < RONDO_DEVICE_DTYPES; dtype++) {
        for (int reduce = 0; reduce < RONDO_DEVICE_REDUCES; reduce++) {
            for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++, i++) {
                assert_name(work_of(RONDO_COLL_REDUCE_SCATTER, dtype, reduce, proto), reductions[i]);
            }
            assert_name(direct_of(RONDO_COLL_ALL_REDUCE, dtype, reduce, RONDO_ALGO_ONESHOT), reductions[i]);
            assert_name(direct_of(RONDO_COLL_REDUCE, dtype, reduce, RONDO_ALGO_TWOSHOT), reductions[i++]);
        }
    }
    assert_int_equal(i, RONDO_COUNTOF(reductions));
    for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
        assert_name(work_of(RONDO_COLL_BROADCAST, RONDO_FLOAT32, 0, proto), moves[proto]);
    }
    assert_name(direct_of(RONDO_COLL_ALL_GATHER, RONDO_FLOAT32, 0, RONDO_ALGO_TWOSHOT),
                moves[RONDO_NUM_PROTOS]);
    assert_name(work_of(RONDO_COLL_SEND, RONDO_FLOAT32, 0, RONDO_PROTO_LL), moves[RONDO_NUM_PROTOS + 1]);
    assert_name(work_of(RONDO_COLL_RECV, RONDO_FLOAT32, 0, RONDO_PROTO_SIMPLE), "rondo_p2p");
    assert_name(work_of(RONDO_COLL_BARRIER, RONDO_UINT8, RONDO_REDUCE_MAX, RONDO_PROTO_LL),
                "rondo_u8_max_ll");
}

static uint32_t threads_with(const char *value)
{
    struct rondo_work work = work_of(RONDO_COLL_ALL_REDUCE, RONDO_FLOAT32, 0, RONDO_PROTO_SIMPLE);
    setenv("RONDO_NTHREADS", value, 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    return rondo_kernel_threads(&work);
}

static void threads_are_whole_warps(void **state)
{
    (void)state;
    assert_int_equal(threads_with("0"), RONDO_THREADS_simple);
    assert_int_equal(threads_with("512"), RONDO_THREADS_simple);
    assert_int_equal(threads_with("100"), 96);
    assert_int_equal(threads_with("33"), 64);
    unsetenv("RONDO_NTHREADS");
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
}

/* @return 0: the image came from there, or the error contains `part`. */
static int image_of(const char *library, const char *part)
{
    const char *why = NULL;
    const void *image;
    setenv("RONDO_KERNELS_LIB", library, 1);
    if (rondo_param_reload() != RONDO_SUCCESS) {
        return 2;
    }
    image = rondo_kernels_image(&why);
    if (part != NULL) {
        return image != NULL || why == NULL || strstr(why, part) == NULL ||
               strstr(why, "RONDO_KERNELS_LIB") == NULL;
    }
    return image == NULL || why != NULL || rondo_kernels_image(&why) != image;
}

static int no_library(void *arg) { return image_of("/nonexistent/kernels.so", (const char *)arg); }
static int another_library(void *arg) { return image_of("libc.so.6", (const char *)arg); }

static void a_missing_library_is_an_error_with_a_remedy(void **state)
{
    char file[] = "/nonexistent/kernels.so", symbol[] = RONDO_KERNELS_SYMBOL;
    (void)state;
    assert_int_equal(in_child(no_library, file), 0);
    assert_int_equal(in_child(another_library, symbol), 0);
}

/* nvcc's output begins with the magic number of a fat binary. */
static int own_library(void *arg)
{
    const char *why = NULL;
    const uint32_t *image;
    (void)arg;
    unsetenv("RONDO_KERNELS_LIB");
    if (rondo_param_reload() != RONDO_SUCCESS) {
        return 2;
    }
    image = rondo_kernels_image(&why);
    return image == NULL || why != NULL || *image != 0xba55ed50u ||
           rondo_kernels_image(&why) != (const void *)image;
}

/* A program of the build tree lies in another folder than the library: the loader finds it by
 * LD_LIBRARY_PATH. */
static void the_image_is_a_fat_binary(void **state)
{
    const char *build = getenv("builddir");
    char path[4096];
    (void)state;
    snprintf(path, sizeof path, "%s/.libs/" RONDO_KERNELS_LIBRARY, build == NULL ? "." : build);
    if (access(path, R_OK) != 0) {
        print_message("skipped: %s was not built\n", path);
        skip();
    }
    assert_non_null(dlopen(path, RTLD_NOW | RTLD_LOCAL)); /* from now on the loader knows it by name */
    assert_int_equal(in_child(own_library, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_work_names_its_kernel),
        cmocka_unit_test(threads_are_whole_warps),
        cmocka_unit_test(a_missing_library_is_an_error_with_a_remedy),
        cmocka_unit_test(the_image_is_a_fat_binary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
