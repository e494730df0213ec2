/* RONDO_DETERMINISM=strict on one node, with threads as ranks: strict_case.h says what it promises. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/types.h"
#include "fake_ranks.h"
#include "strict_case.h"

struct asked {
    size_t most;
    int expect_rank_order;
};

static void all_calls(struct fake_rank *r)
{
    const struct asked *asked = r->arg;
    char text[STRICT_TEXT] = "";
    size_t apart = 0;
    int good = strict_all(r->comm, r->rank, r->nranks, asked->most, &apart, text);
    if (asked->expect_rank_order) {
        FAKE_CHECK(r, good, "%s", text);
        FAKE_CHECK(r, r->nranks < 3 || apart > 1000, "the inputs do not tell orders apart: %zu elements",
                   apart);
    }
}

static void bits_are_those_of_rank_order_for_every_size_and_1_to_8_ranks(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n++) {
        fake_params("DETERMINISM", "strict", NULL);
        fake_ranks(n, all_calls, &(struct asked){ n == 3 ? 60000 : 5000, 1 });
    }
}

static void bits_are_those_of_rank_order_with_each_protocol_and_several_channels(void **state)
{
    static const char *const protos[] = { "ll", "ll128", "simple" };
    (void)state;
    for (size_t p = 0; p < RONDO_COUNTOF(protos); p++) {
        fake_params("DETERMINISM", "strict", "ALGO", "^oneshot", "PROTO", protos[p], "MIN_NCHANNELS", "3",
                    "BUFFSIZE", "16K", "LL_BUFFSIZE", "8K", "LL128_BUFFSIZE", "16K", NULL);
        fake_ranks(5, all_calls, &(struct asked){ 10000, 1 });
    }
}

/* Rings follow the machine, except in strict mode. */
static void bits_are_those_of_rank_order_on_a_machine_of_two_packages(void **state)
{
    char file[512];
    const char *root = getenv("srcdir");
    (void)state;
    snprintf(file, sizeof(file), "%s/mpi-tests/unit/machines/cpu_dual.xml", root != NULL ? root : ".");
    fake_params("DETERMINISM", "strict", "TOPO_FILE", file, NULL);
    fake_ranks(6, all_calls, &(struct asked){ 10000, 1 });
}

/* A rank in the middle gets a result that fast rings compute in another order. */
static void one_sum(struct fake_rank *r)
{
    struct strict_case c = {
        .coll = STRICT_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 4000, .rank = r->rank, .nranks = r->nranks
    };
    char text[STRICT_TEXT] = "";
    size_t apart = 0;
    FAKE_CHECK(r, !strict_call(&c, r->comm, &apart, text), "a ring has the order of ranks for every element");
}

static void fast_mode_has_other_orders(void **state)
{
    (void)state;
    fake_params("ALGO", "ring", NULL);
    fake_ranks(5, one_sum, NULL);
}

static void forbidden(struct fake_rank *r)
{
    float x[4] = { 1 }, y[16];
    FAKE_ERROR(r, rondo_all_reduce(x, y, 4, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL), RONDO_INVALID_USAGE,
               "RONDO_DETERMINISM");
    FAKE_OK(
        r, rondo_broadcast(x, y, 4, RONDO_FLOAT32, 1, r->comm, NULL)); /* what does not reduce has no order */
}

static void an_algorithm_of_another_order_is_an_error_that_names_the_parameter(void **state)
{
    (void)state;
    fake_params("DETERMINISM", "strict", "ALGO", "ring,tree", NULL);
    fake_ranks(3, forbidden, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_rank_order_for_every_size_and_1_to_8_ranks),
        cmocka_unit_test(bits_are_those_of_rank_order_with_each_protocol_and_several_channels),
        cmocka_unit_test(bits_are_those_of_rank_order_on_a_machine_of_two_packages),
        cmocka_unit_test(fast_mode_has_other_orders),
        cmocka_unit_test(an_algorithm_of_another_order_is_an_error_that_names_the_parameter),
    };
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
