/* Cases of shim_semantics: calls with a count for each rank. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "shim_semantics.h"

void one_rank_has_a_derived_type_in_a_v_collective(void)
{
    int counts[64], displs[64], in[64], out[128];
    MPI_Datatype gapped;
    MPI_Type_create_resized(MPI_INT, 0, 8, &gapped);
    MPI_Type_commit(&gapped);
    int odd = rank == nranks - 1, stride = odd ? 2 : 1;
    for (int r = 0; r < nranks; r++) {
        counts[r] = 1;
        displs[r] = r;
        out[r * stride] = rank * 100 + r;
    }
    memset(in, 255, sizeof in);
    MPI_Alltoallv(out, counts, displs, odd ? gapped : MPI_INT, in, counts, displs, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < nranks; r++) {
        check(in[r] == r * 100 + rank, "alltoallv");
    }
    MPI_Type_free(&gapped);
}

/* As an empty array of Python has it. Rank 0 alone would leave these calls to MPI. */
void one_address_has_nothing_to_send_and_receive(void)
{
    int counts[64] = { 0 }, displs[64] = { 0 }, nothing = 5;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int round = 0; round < 8; round++) {
        MPI_Gatherv(&nothing, 0, MPI_INT, &nothing, counts, displs, MPI_INT, 0, comm);
        MPI_Scatterv(&nothing, counts, displs, MPI_INT, &nothing, 0, MPI_INT, 0, comm);
    }
    check(nothing == 5, "a value beside nothing");
    warm(comm);
    MPI_Comm_free(&comm);
}

/* The program sends from and receives into disjoint parts of one buffer; a rank that took that for a mistake
 * would leave the call to MPI alone. The last rank has nothing to send. */
void one_buffer_has_disjoint_parts(void)
{
    int counts[64], displs[64], others[64], ones[64], places[64], starts[64], buf[64 * 2], value = 0,
                                                                                           n = nranks;
    MPI_Comm comm[4];
    for (int i = 0; i < 4; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
    }
    for (int r = 0; r < n; r++) {
        ones[r] = 1;
        starts[r] = r;
        places[r] = r + 1;
        counts[r] = others[r] = r < n - 1;
        displs[r] = n + r;
    }
    for (int round = 0; round < 8; round++) {
        memset(buf, 255, sizeof buf);
        buf[0] = rank + round;
        MPI_Gatherv(buf, 1, MPI_INT, rank == 0 ? buf : NULL, ones, places, MPI_INT, 0, comm[0]);
        check(rank != 0 || (buf[1] == round && buf[n] == n - 1 + round), "gatherv");
        for (int r = 0; r < n; r++) {
            buf[r + 1] = 10 * r + round;
        }
        MPI_Scatterv(buf, ones, places, MPI_INT, rank == 0 ? buf : &value, 1, MPI_INT, 0, comm[1]);
        check(rank == 0 ? buf[0] == round : value == 10 * rank + round, "scatterv");
        memset(buf, 255, sizeof buf);
        buf[0] = rank + round;
        MPI_Allgatherv(buf, counts[rank], MPI_INT, buf, counts, places, MPI_INT, comm[2]);
        check(buf[n - 1] == n - 2 + round && buf[n] == -1, "allgatherv");
        for (int r = 0; r < n; r++) {
            buf[r] = 100 * rank + r;
            others[r] = counts[rank];
            buf[n + r] = -1;
        }
        MPI_Alltoallv(buf, others, starts, MPI_INT, buf, counts, displs, MPI_INT, comm[3]);
        check(buf[n] == rank && buf[2 * n - 1] == -1, "alltoallv");
    }
    for (int i = 0; i < 4; i++) {
        MPI_Comm_free(&comm[i]);
    }
}

/* The others have no arrays, and one of them has nothing: neither type nor buffer. */
void only_the_root_knows_the_counts(void)
{
    int counts[64], displs[64], in[64 * 2], mine[2] = { rank, rank + 100 }, leaf = rank == nranks - 1 ? 0 : 2;
    for (int round = 0; round < 8; round++) {
        int root = round % (nranks - 1), is_root = rank == root;
        for (int r = 0; r < nranks; r++) {
            counts[r] = r == nranks - 1 ? 0 : 2;
            displs[r] = 2 * (nranks - 1 - r);
        }
        memset(in, 255, sizeof in);
        MPI_Gatherv(leaf ? mine : NULL, leaf, MPI_INT, is_root ? in : NULL, is_root ? counts : NULL,
                    is_root ? displs : NULL, is_root ? MPI_INT : MPI_DATATYPE_NULL, root, MPI_COMM_WORLD);
        check(!is_root || (in[displs[0]] == 0 && in[displs[0] + 1] == 100 && in[0] == -1), "gatherv");
        memset(mine, 0, sizeof mine);
        MPI_Scatterv(is_root ? in : NULL, is_root ? counts : NULL, is_root ? displs : NULL,
                     is_root ? MPI_INT : MPI_DATATYPE_NULL, leaf ? mine : NULL, leaf, MPI_INT, root,
                     MPI_COMM_WORLD);
        check(leaf == 0 || (mine[0] == rank && mine[1] == rank + 100), "scatterv");
        mine[0] = rank;
        mine[1] = rank + 100;
    }
}

/* From rank 1 one element of gaps to the root, which has one of other gaps. */
void an_element_may_be_larger_than_1_gib(void)
{
    enum { N = (1 << 27) + 1 };
    static const int counts[64] = { 0, 1 }, displs[64];
    long value = 7, *in = rank == 0 ? malloc(2 * (size_t)N * sizeof *in) : NULL;
    MPI_Datatype same, gapped;
    MPI_Comm comm;
    check(rank != 0 || in != NULL, "memory");
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    warm(comm);
    MPI_Type_create_hvector(N, 1, 0, MPI_LONG, &same);
    MPI_Type_vector(N, 1, 2, MPI_LONG, &gapped);
    MPI_Type_commit(&same);
    MPI_Type_commit(&gapped);
    if (rank == 0) {
        in[1] = in[2 * (size_t)N - 2] = 5;
    }
    MPI_Gatherv(&value, rank == 1, same, in, counts, displs, gapped, 0, comm);
    check(rank != 0 || (in[0] == 7 && in[1] == 5 && in[2 * (size_t)N - 2] == 7 && in[N + 1] == 7),
          "the elements");
    MPI_Type_free(&same);
    MPI_Type_free(&gapped);
    MPI_Comm_free(&comm);
    free(in);
}

/* What such a call keeps of its communicator is needed when the communicator has gone. */
void blocks_with_gaps_outlive_their_communicator(void)
{
    enum { N = 20000 };
    int counts[64], displs[64], token = 0, is_last = rank == nranks - 1;
    int *in = malloc((size_t)nranks * 2 * N * sizeof *in), *out = malloc((size_t)nranks * N * sizeof *out);
    MPI_Datatype gapped;
    MPI_Type_create_resized(MPI_INT, 0, 8, &gapped);
    MPI_Type_commit(&gapped);
    for (int r = 0; r < nranks; r++) {
        counts[r] = N;
        displs[r] = r * N;
        out[r * N] = out[r * N + N - 1] = rank * 100 + r;
    }
    for (int kind = 0; kind < 3; kind++) {
        MPI_Comm comm;
        MPI_Request request;
        memset(in, 255, (size_t)nranks * 2 * N * sizeof *in);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        warm(comm);
        for (int r = 0; is_last && r < nranks - 1; r++) { /* the others have started theirs */
            MPI_Recv(&token, 1, MPI_INT, r, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (kind == 0) {
            MPI_Ialltoallv(out, counts, displs, MPI_INT, in, counts, displs, gapped, comm, &request);
        } else if (kind == 1) {
            MPI_Iallgatherv(&out[rank * N], N, MPI_INT, in, counts, displs, gapped, comm, &request);
        } else {
            MPI_Igatherv(&out[0], N, MPI_INT, in, counts, displs, gapped, 0, comm, &request);
        }
        if (!is_last) {
            MPI_Send(&token, 1, MPI_INT, nranks - 1, 9, MPI_COMM_WORLD);
        }
        MPI_Comm_free(&comm);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int r = 0; r < nranks && (kind < 2 || rank == 0); r++) {
            int expected = r * 100 + (kind == 0 ? rank : kind == 1 ? r : 0);
            const int *block = &in[2 * r * N];
            check(block[0] == expected && block[2 * (N - 1)] == expected && block[1] == -1, "a block");
        }
    }
    MPI_Type_free(&gapped);
    free(in);
    free(out);
}
