/* Tuning files: what is accepted, the errors of bad files, interpolation, and measured times that decide,
 * also through creation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "comm/comm.h"
#include "fake_ranks.h"
#include "tuner/tune_file.h"

static const char good[] = "rondo-tune 1\n"
                           "# a remark\n"
                           "\n"
                           "shape machine=00000000000000ab nodes=1 ranks=4 per_node=4 memory=host  # behind\n"
                           "all_reduce ring simple 1 1024 10.5\r\n"
                           "\tall_reduce ring   simple 1 4096 22.5\n"
                           "all_reduce ring simple 2 1024 9\n"
                           "broadcast tree ll 1 8 0.001\n"
                           "rondo-tune 1\n"
                           "shape machine=00000000000000ab nodes=2 ranks=4 per_node=3 memory=gpu\n";

static struct rondo_tune *parsed(const char *text)
{
    struct rondo_tune *tune;
    if (rondo_tune_parse(&tune, text, strlen(text), "f") != RONDO_SUCCESS) {
        fail_msg("%s", rondo_error_text());
    }
    return tune;
}

static void a_file_is_read_and_written_back(void **state)
{
    struct rondo_tune *tune = parsed(good), *again;
    char text[2048] = "";
    FILE *out = fmemopen(text, sizeof(text) - 1, "w");
    (void)state;
    assert_int_equal(tune->nsections, 2);
    assert_true(tune->section[0].shape.machine == 0xab && tune->section[0].shape.ranks == 4 &&
                !tune->section[0].shape.gpu);
    assert_true(tune->section[1].shape.nodes == 2 && tune->section[1].shape.per_node == 3 &&
                tune->section[1].shape.gpu);
    assert_true(tune->section[0].measured.npoints == 4 && tune->section[1].measured.npoints == 0);
    for (int i = 0; i < tune->nsections; i++) {
        assert_int_equal(rondo_tune_write(out, &tune->section[i], i == 0), RONDO_SUCCESS);
    }
    fclose(out);
    again = parsed(text);
    assert_int_equal(again->nsections, 2);
    assert_memory_equal(&again->section[0].shape, &tune->section[0].shape, sizeof(tune->section[0].shape));
    assert_true(rondo_measured_us(&again->section[0].measured, RONDO_COLL_BROADCAST, RONDO_ALGO_TREE,
                                  RONDO_PROTO_LL, 1, 8) == 0.001);
    assert_true(again->hash != tune->hash);
    rondo_tune_free(again);
    rondo_tune_free(tune);
}

#define SHAPE "shape machine=00000000000000ab nodes=1 ranks=4 per_node=4 memory=host\n"
static const struct {
    const char *text, *says;
} refused[] = {
    { "", "f:0: the file ends without a shape" },
    { "rondo-tune 1\n", "f:1: the file ends without a shape" },
    { SHAPE, "f:1: this is not a tuning file" },
    { "rondo-tune 2\n" SHAPE, "f:1: unknown version" },
    { "rondo-tune\n" SHAPE, "f:1: unknown version" },
    { "rondo-tune 1\nall_reduce ring simple 1 8 1\n", "f:2: a measurement before the first shape" },
    { "rondo-tune 1\nshape machine=ab nodes=1 ranks=4 per_node=4 memory=host\n", "f:2: invalid shape" },
    { "rondo-tune 1\nshape machine=00000000000000AB nodes=1 ranks=4 per_node=4 memory=host\n",
      "f:2: invalid shape" },
    { "rondo-tune 1\nshape machine=00000000000000ab nodes=5 ranks=4 per_node=4 memory=host\n",
      "f:2: invalid shape" },
    { "rondo-tune 1\nshape machine=00000000000000ab nodes=1 ranks=0 per_node=0 memory=host\n",
      "f:2: invalid shape" },
    { "rondo-tune 1\nshape machine=00000000000000ab nodes=1 ranks=4 per_node=4 memory=disk\n",
      "f:2: invalid shape" },
    { "rondo-tune 1\nshape machine=00000000000000ab ranks=4 nodes=1 per_node=4 memory=host\n",
      "f:2: invalid shape" },
    { "rondo-tune 1\n" SHAPE "all_reduce ring simple 1 8\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_redoce ring simple 1 8 1\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_gather tree simple 1 8 1\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "barrier ring simple 1 8 1\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_reduce oneshot ll 1 8 1\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_reduce ring simple 0 8 1\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_reduce ring simple 65 8 1\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_reduce ring simple 1 0 1\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_reduce ring simple 1 99999999999999999999 1\n",
      "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_reduce ring simple 1 8 -1\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_reduce ring simple 1 8 0.0004\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_reduce ring simple 1 8 1,5\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_reduce ring simple 1 8 1.\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_reduce ring simple 1 8 nan\n", "f:3: invalid measurement" },
    { "rondo-tune 1\n" SHAPE "all_reduce ring simple 1 8 1 2\n", "f:3: line too long" },
    { "rondo-tune 1\n" SHAPE
      "all_reduce ring simple 1 8 1\nall_reduce ring ll 1 8 1\nall_reduce ring simple 1 8 2\n",
      "f:5: the same size" },
};

static void errors_name_file_and_line(void **state)
{
    static const char nul[] = "rondo-tune 1\n\0";
    struct rondo_tune *tune;
    char longest[400];
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(refused); i++) {
        assert_int_equal(rondo_tune_parse(&tune, refused[i].text, strlen(refused[i].text), "f"),
                         RONDO_INVALID_ARGUMENT);
        assert_null(tune);
        if (strstr(rondo_error_text(), refused[i].says) == NULL) {
            fail_msg("\"%s\" gave: %s", refused[i].text, rondo_error_text());
        }
    }
    assert_int_equal(rondo_tune_parse(&tune, nul, sizeof(nul) - 1, "f"), RONDO_INVALID_ARGUMENT);
    memset(longest, 'x', sizeof(longest));
    assert_int_equal(rondo_tune_parse(&tune, longest, sizeof(longest), "f"), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_tune_read(&tune, "/no/such/file"), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_error_text(), "the tuning file /no/such/file cannot be read"));
    setenv("RONDO_TUNE_FILE", "/no/such/tune", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_tune_read(&tune, rondo_params()->tune_file), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_error_text(), "the tuning file RONDO_TUNE_FILE=/no/such/tune cannot be"));
    unsetenv("RONDO_TUNE_FILE");
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_tune_read(&tune, "/"), RONDO_INVALID_ARGUMENT);
}

/* ---- use ---- */

static double ring_us(const struct rondo_measured *m, int nchannels, size_t bytes)
{
    return rondo_measured_us(m, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, nchannels, bytes);
}

static void times_between_sizes_are_interpolated(void **state)
{
    struct rondo_tune *tune = parsed(good);
    const struct rondo_measured *m = &tune->section[0].measured;
    (void)state;
    assert_true(ring_us(m, 1, 1024) == 10.5 && ring_us(m, 1, 4096) == 22.5);
    assert_true(ring_us(m, 1, 2560) == 16.5);
    assert_true(ring_us(m, 1, 1) == 10.5);
    assert_true(ring_us(m, 1, 8192) == 45);
    assert_true(ring_us(m, 2, 2048) == 18);
    assert_true(ring_us(m, 3, 1024) < 0);
    assert_true(rondo_measured_us(m, RONDO_COLL_BARRIER, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 1, 1) ==
                10.5); /* as all_reduce */
    assert_true(rondo_measured_us(m, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_TREE, RONDO_PROTO_LL, 1, 8) < 0);
    rondo_tune_free(tune);
}

static void only_exactly_the_same_shape_fits(void **state)
{
    struct rondo_tune *tune = parsed(good);
    const struct rondo_tune_shape here = tune->section[0].shape;
    struct rondo_tune_shape other[] = { here, here, here, here, here };
    char why[256];
    (void)state;
    assert_ptr_equal(rondo_tune_find(tune, &here, why, sizeof(why)), &tune->section[0].measured);
    assert_ptr_equal(rondo_tune_find(tune, &tune->section[1].shape, why, sizeof(why)),
                     &tune->section[1].measured);
    other[0].machine++, other[1].nodes++, other[2].ranks++, other[3].per_node--, other[4].gpu = 1;
    for (size_t i = 0; i < RONDO_COUNTOF(other); i++) {
        assert_null(rondo_tune_find(tune, &other[i], why, sizeof(why)));
        assert_non_null(strstr(
            why,
            "2 shapes (1 node, 4 ranks, at most 4 a node, of machine 00000000000000ab, host memory, ...)"));
    }
    rondo_tune_free(tune);
}

static struct rondo_layout four_ranks(const struct rondo_measured *measured)
{
    struct rondo_layout l = { .nranks = 4,
                              .nnodes = 1,
                              .nlocal = 4,
                              .max_local = 4,
                              .nchannels = 2,
                              .least_channels = 1,
                              .protos = RONDO_ALL_PROTOS };
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        l.model.hop_us[p] = 1;
        l.model.bw[p] = 1;
    }
    l.measured = measured;
    return l;
}

/* The ring with two channels was measured as the fastest; the model alone takes another for so few bytes. */
static void measured_choices_go_before_predicted_ones(void **state)
{
    struct rondo_tune *tune = parsed(good);
    struct rondo_layout l = four_ranks(NULL), tuned = four_ranks(&tune->section[0].measured);
    struct rondo_choice choice;
    struct rondo_allowed allowed;
    (void)state;
    assert_int_equal(rondo_cost_choose(&l, NULL, RONDO_COLL_ALL_REDUCE, 1024, 0, &choice), RONDO_SUCCESS);
    assert_true(choice.algo == RONDO_ALGO_TREE && !choice.measured);
    assert_int_equal(rondo_cost_choose(&tuned, NULL, RONDO_COLL_ALL_REDUCE, 1024, 0, &choice), RONDO_SUCCESS);
    assert_true(choice.algo == RONDO_ALGO_RING && choice.proto == RONDO_PROTO_SIMPLE &&
                choice.nchannels == 2);
    assert_true(choice.measured && choice.us == 9);
    assert_int_equal(rondo_cost_choose(&tuned, NULL, RONDO_COLL_ALL_REDUCE, 4096, 0, &choice), RONDO_SUCCESS);
    assert_true(choice.nchannels == 1 && choice.us == 22.5);
    /* What is allowed but not measured still runs. */
    assert_int_equal(rondo_allowed_parse(&allowed, "tree", NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_cost_choose(&tuned, &allowed, RONDO_COLL_ALL_REDUCE, 1024, 0, &choice),
                     RONDO_SUCCESS);
    assert_true(choice.algo == RONDO_ALGO_TREE && !choice.measured);
    /* What was measured but cannot run here does not run. */
    tuned.protos &= ~(1u << RONDO_PROTO_SIMPLE);
    assert_int_equal(rondo_cost_choose(&tuned, NULL, RONDO_COLL_ALL_REDUCE, 1024, 0, &choice), RONDO_SUCCESS);
    assert_true(choice.proto != RONDO_PROTO_SIMPLE && !choice.measured);
    rondo_tune_free(tune);
}

/* ---- through creation ---- */

static char file[] = "/tmp/rondo-tune.XXXXXX";
static uint64_t machine;

static void file_write(const char *text)
{
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void learn_machine(struct fake_rank *r)
{
    if (r->rank == 0) {
        machine = r->comm->ctx->wiring.layout.machine;
    }
}

static void uses_it(struct fake_rank *r)
{
    const struct rondo_layout *l = &r->comm->ctx->wiring.layout;
    struct rondo_choice choice;
    int fits = *(const int *)r->arg;
    FAKE_CHECK(r, (l->measured != NULL) == fits);
    FAKE_CHECK(r, rondo_cost_choose(l, NULL, RONDO_COLL_ALL_REDUCE, 8, 0, &choice) == RONDO_SUCCESS);
    FAKE_CHECK(r, choice.measured == fits &&
                      (!fits || (choice.algo == RONDO_ALGO_RING && choice.proto == RONDO_PROTO_LL128)));
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 300);
}

static void refuses(struct fake_rank *r)
{
    rondo_comm *comm = NULL;
    FAKE_ERROR(r, rondo_comm_create_local(r->local, r->rank, NULL, &comm), RONDO_INVALID_ARGUMENT,
               ":2: invalid shape");
}

static void communicators_use_a_file_of_their_shape_and_no_other(void **state)
{
    char text[512];
    (void)state;
    fake_params(NULL);
    fake_ranks(3, learn_machine, NULL);
    assert_true(machine != 0);
    snprintf(text, sizeof(text),
             "rondo-tune 1\nshape machine=%016llx nodes=1 ranks=3 per_node=3 memory=host\nall_reduce ring "
             "ll128 1 8 0.5\nall_reduce tree "
             "simple 1 8 0.7\n",
             (unsigned long long)machine);
    file_write(text);
    fake_params("TUNE_FILE", file, NULL);
    fake_ranks(3, uses_it, &(int){ 1 });
    fake_ranks(2, uses_it, &(int){ 0 });
    file_write("rondo-tune 1\nshape\n");
    fake_ranks_bare(3, refuses, NULL);
    fake_params(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_and_written_back),
        cmocka_unit_test(errors_name_file_and_line),
        cmocka_unit_test(times_between_sizes_are_interpolated),
        cmocka_unit_test(only_exactly_the_same_shape_fits),
        cmocka_unit_test(measured_choices_go_before_predicted_ones),
        cmocka_unit_test(communicators_use_a_file_of_their_shape_and_no_other),
    };
    int fd = mkstemp(file), failed;
    rondo_log_mask = RONDO_LOG_NONE; /* errors are expected */
    fake_watchdog(120);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    close(fd);
    return failed;
}
