/* Create and destroy communicators in a loop, with a few calls between, for valgrind --leak-check=full and
 * the sanitizers. Argument: number of rounds (default 100). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "fake_ranks.h"

static int cycles = 100;

static void a_few_calls(struct fake_rank *r)
{
    rondo_comm *child = NULL;
    rondo_stream stream;
    int x = 1, y = 0;
    FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 50);
    FAKE_CALL(r, .coll = FAKE_ALL_TO_ALLV, .type = RONDO_INT32, .count = 9);
    FAKE_OK(r, rondo_stream_create(&stream));
    FAKE_OK(r, rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, r->comm, stream));
    FAKE_OK(r, rondo_stream_destroy(stream));
    FAKE_CHECK(r, y == r->nranks);
    FAKE_OK(r, rondo_comm_split(r->comm, r->rank % 2, -r->rank, NULL, &child));
    FAKE_OK(r, rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, child, NULL));
    FAKE_CHECK(r, y == (r->rank % 2 == 0 ? (r->nranks + 1) / 2 : r->nranks / 2));
    FAKE_OK(r, rondo_comm_destroy(child));
}

static void creations_and_destructions_leak_nothing(void **state)
{
    struct holdings before;
    (void)state;
    fake_params("BUFFSIZE", "8K", NULL);
    fake_ranks(3, a_few_calls, NULL);
    before = holdings_now();
    for (int i = 1; i < cycles; i++) {
        fake_ranks(3, a_few_calls, NULL);
    }
    fake_holds(before);
}

/* The last communicator frees what the process shares as well, such as the list of net devices: valgrind
 * finds no reachable memory. */
static void the_last_communicator_frees_net_devices(void **state)
{
    struct holdings before = holdings_now();
    (void)state;
    fake_params("BUFFSIZE", "8K", "SHM_DISABLE", "1", "NET", "socket", "SOCKET_IFNAME", "=lo", NULL);
    fake_ranks(3, a_few_calls, NULL);
    fake_holds(before);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(creations_and_destructions_leak_nothing),
                                        cmocka_unit_test(the_last_communicator_frees_net_devices) };
    cycles = argc > 1 ? atoi(argv[1]) : cycles;
    fake_watchdog(600);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
