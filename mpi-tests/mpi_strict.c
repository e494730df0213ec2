/*
 * mpi_strict: with RONDO_DETERMINISM=strict, on one host or several, every reduction gives the bits of the
 * sequential reduction from rank 0 to the last rank.
 *
 *   RONDO_DETERMINISM=strict mpirun -n N mpi_strict
 */
#include <mpi.h>

#include "mpi_common.h"
#include "unit/strict_case.h"

int main(int argc, char **argv)
{
    char text[STRICT_TEXT] = "";
    rondo_comm *comm = NULL;
    size_t apart = 0;
    (void)argc, (void)argv;
    test_init("mpi_strict", MPI_THREAD_FUNNELED);
    test_watchdog(200);
    test.what = "strict";
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm), comm);
    test_check(strict_all(comm, test.rank, test.nranks, 200000, &apart, text), "%s", text);
    test_check(test.nranks < 3 || apart > 1000, "the inputs do not distinguish orders: %zu elements", apart);
    TEST_MUST(rondo_comm_destroy(comm), NULL);
    return test_finish();
}
