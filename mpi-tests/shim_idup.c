/*
 * Collectives of the MPI face with types that it sees for the first time, while MPI_Comm_idup is under way on
 * the same communicator and on another one. Ranks may begin that after the collective, so what the face asks
 * of MPI about a type must not wait for it. A plain MPI program.
 */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 12, NTYPES = 4, INTS = 64 };
static int rank, nranks, failures;
static const char *what;

static void check(int ok, const char *text, int round)
{
    if (!ok && failures++ < 20) {
        printf("rank %d: %s: %s is wrong in round %d\n", rank, what, text, round);
    }
}

/* Types of the integers at 0, 2 and 4, and of an extent of 6, by different constructors; one without gaps. */
static MPI_Datatype new_type(int which)
{
    int places[3] = { 0, 2, 4 }, ones[3] = { 1, 1, 1 };
    MPI_Datatype made, sized;
    if (which == 0) {
        MPI_Type_contiguous(6, MPI_INT, &made);
        MPI_Type_commit(&made);
        return made;
    }
    if (which == 1) {
        MPI_Type_vector(3, 1, 2, MPI_INT, &made);
    } else if (which == 2) {
        MPI_Type_create_indexed_block(3, 1, places, MPI_INT, &made);
    } else {
        MPI_Type_indexed(3, ones, places, MPI_INT, &made);
    }
    MPI_Type_create_resized(made, 0, 6 * sizeof(int), &sized);
    MPI_Type_commit(&sized);
    MPI_Type_free(&made);
    return sized;
}

static void fill(int *data, int first)
{
    for (int i = 0; i < INTS; i++) {
        data[i] = first + i;
    }
}

/* Each call has a type that no earlier one had. is_busy: the communicator is being duplicated, when Open MPI
 * itself takes a non-blocking collective's messages for its own. */
static void use(MPI_Comm comm, int round, int is_busy)
{
    int data[INTS], all[INTS], one = rank, sum = -1;
    for (int which = 0; which < NTYPES; which++) {
        MPI_Datatype type = new_type(which), of_all = new_type((which + 1) % NTYPES);
        MPI_Request request;
        int root = (round + which) % nranks;
        fill(data, rank == root ? 1000 * round : -1000);
        MPI_Bcast(data, 2, type, root, comm);
        check(data[10] == 1000 * round + 10, "a broadcast", round);
        MPI_Type_free(&type);
        type = new_type(which);
        fill(data, 100 * rank);
        fill(all, -1000);
        MPI_Allgather(data, 1, type, all, 1, type, comm);
        check(all[6 * (nranks - 1) + 4] == 100 * (nranks - 1) + 4, "the last part", round);
        if (!is_busy) {
            fill(data, rank == root ? 1000 * round : -1000);
            MPI_Ibcast(data, 1, of_all, root, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            check(data[2] == 1000 * round + 2, "a non-blocking broadcast", round);
        }
        MPI_Type_free(&type);
        MPI_Type_free(&of_all);
    }
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    check(sum == nranks * (nranks - 1) / 2, "a sum", round);
}

/* The library has begun what it can of it, too. */
static void begin(MPI_Comm comm, MPI_Comm *made, MPI_Request *request)
{
    int ended = 0;
    MPI_Comm_idup(comm, made, request);
    for (int i = 0; i < 10 && !ended; i++) {
        MPI_Request_get_status(*request, &ended, MPI_STATUS_IGNORE);
    }
}

static void end(MPI_Request *request, MPI_Comm *made, int round)
{
    MPI_Wait(request, MPI_STATUS_IGNORE);
    use(*made, round, 0);
    MPI_Comm_free(made);
}

/* One at a time: where two are under way on a communicator, Open MPI itself may hang. */
static void while_it_is_duplicated(MPI_Comm comm)
{
    what = "while the communicator is duplicated";
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm made;
        MPI_Request request;
        alarm(20); /* instead of a hang */
        begin(comm, &made, &request);
        use(comm, round, 1);
        end(&request, &made, round);
    }
}

/* One rank begins before the collective, the others after it, which MPI allows on different communicators. */
static void while_another_one_is_duplicated(MPI_Comm comm, MPI_Comm other)
{
    what = "while another communicator is duplicated";
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm made;
        MPI_Request request;
        int begins = round % (nranks + 1) == rank || round % (nranks + 1) == nranks;
        alarm(20);
        if (begins) {
            begin(other, &made, &request);
        }
        use(comm, round, 0);
        if (!begins) {
            begin(other, &made, &request);
        }
        end(&request, &made, round);
    }
}

int main(int argc, char **argv)
{
    MPI_Comm other;
    int all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    while_another_one_is_duplicated(other, MPI_COMM_WORLD); /* the first types that the face sees */
    while_another_one_is_duplicated(MPI_COMM_WORLD, other);
    while_it_is_duplicated(MPI_COMM_WORLD);
    while_it_is_duplicated(other);
    MPI_Comm_free(&other);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0) {
        printf("shim_idup: %d ranks, %d wrong\n", nranks, all);
    }
    return all != 0;
}
