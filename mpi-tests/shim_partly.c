/*
 * The MPI face where it does not work in all processes: their collectives must go to MPI, on all ranks. A
 * plain MPI program.
 *
 *   shim_partly parameter | jobs
 *
 * parameter: one rank has a wrong parameter. jobs: a process is spawned without the face. Start it as mpirun
 * -n N rondo-run shim_partly, with RONDO_MPI_AFTER=2.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures;

static void check(int ok, const char *text, int round)
{
    if (!ok && failures++ < 20) {
        printf("shim_partly: %s is wrong in round %d\n", text, round);
    }
}

static void use(MPI_Comm comm)
{
    int rank, n;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &n);
    for (int i = 0; i < 12; i++) {
        int mine = rank + i, sum = -1, all[64], token = rank == i % n ? i : -1;
        MPI_Request request;
        alarm(20); /* instead of a hang */
        MPI_Bcast(&token, 1, MPI_INT, i % n, comm);
        check(token == i, "a broadcast", i);
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
        check(sum == n * i + n * (n - 1) / 2, "a sum", i);
        MPI_Iallgather(&mine, 1, MPI_INT, all, 1, MPI_INT, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check(all[n - 1] == n - 1 + i, "the last part", i);
    }
}

static void one_rank_has_a_wrong_parameter(int rank)
{
    MPI_Comm half;
    use(MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    use(half);
    MPI_Comm_free(&half);
}

/* By the spawned process and those that spawn it. */
static void use_both(MPI_Comm others, int is_high)
{
    MPI_Comm both;
    MPI_Intercomm_merge(others, is_high, &both);
    use(both);
    MPI_Comm_free(&both);
    MPI_Comm_disconnect(&others);
}

static void a_spawned_process_has_no_face(const char *program)
{
    MPI_Comm child;
    int code;
    alarm(20);
    MPI_Comm_spawn(program, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child, &code);
    use_both(child, 0);
    use(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const char *number = getenv("OMPI_COMM_WORLD_RANK");
    int rank, nranks, all = 0;
    MPI_Comm parent;
    number = number != NULL ? number : getenv("PMI_RANK");
    if (argc > 1 && strcmp(argv[1], "parameter") == 0 && number != NULL && strcmp(number, "1") == 0) {
        setenv("RONDO_MPI_COMMS", "many", 1); /* before MPI_Init, and so before the face reads it */
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        use_both(parent, 1);
    } else if (argc > 1 && strcmp(argv[1], "jobs") == 0) {
        a_spawned_process_has_no_face(argv[0]);
    } else {
        one_rank_has_a_wrong_parameter(rank);
    }
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0) {
        printf("shim_partly: %d ranks, %d wrong\n", nranks, all);
    }
    return all != 0;
}
