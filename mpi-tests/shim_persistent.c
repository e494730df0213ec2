/* Cases of shim_semantics: persistent collectives. */
#include <mpi.h>
#if defined OPEN_MPI && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#endif
#include <string.h>

#include "shim_semantics.h"

#if MPI_VERSION >= 4 || (defined OPEN_MPI && OMPI_MAJOR_VERSION >= 5)
#define INIT(Name) MPI_##Name##_init
#elif defined OMPI_HAVE_MPI_EXT_PCOLLREQ
#define INIT(Name) MPIX_##Name##_init
#endif
#ifdef INIT
enum { NPERSISTENT = 5, LARGE = 30000 };
struct persistents {
    int in[LARGE], sum[LARGE], row[6], all[64 * 3], mine[3], block[3];
    int counts[64], displs[64];
    MPI_Request requests[NPERSISTENT];
};

static void persistents_make(struct persistents *p, MPI_Comm comm)
{
    MPI_Datatype gapped;
    int counts[64], displs[64];
    MPI_Type_vector(3, 1, 2, MPI_INT, &gapped);
    MPI_Type_commit(&gapped);
    for (int r = 0; r < nranks; r++) {
        counts[r] = p->counts[r] = r == 1 ? 0 : 3;
        displs[r] = p->displs[r] = 3 * (nranks - 1 - r);
    }
    INIT(Allreduce)(p->in, p->sum, LARGE, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &p->requests[0]);
    INIT(Bcast)(p->row, 1, gapped, 1, comm, MPI_INFO_NULL, &p->requests[1]);
    INIT(Gatherv)
    (p->mine, p->counts[rank], MPI_INT, p->all, counts, displs, MPI_INT, 0, comm, MPI_INFO_NULL,
     &p->requests[2]);
    INIT(Barrier)(comm, MPI_INFO_NULL, &p->requests[3]);
    INIT(Reduce_scatter)(p->in, p->block, counts, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &p->requests[4]);
    MPI_Type_free(&gapped); /* the calls keep it and the arrays */
    memset(counts, 127, sizeof counts);
    memset(displs, 127, sizeof displs);
}

static void persistents_start(struct persistents *p, int round)
{
    for (int i = 0; i < LARGE; i++) {
        p->in[i] = rank + i + round;
    }
    for (int i = 0; i < 6; i++) {
        p->row[i] = rank == 1 ? i + round : -1;
    }
    for (int i = 0; i < 3; i++) {
        p->mine[i] = 10 * rank + i + round;
    }
    if (round % 3 == 0) {
        MPI_Startall(NPERSISTENT, p->requests);
    }
    for (int i = 0; i < NPERSISTENT && round % 3 != 0; i++) {
        MPI_Start(&p->requests[(i * 3 + rank) % NPERSISTENT]); /* each rank in an order of its own */
    }
}

static void persistents_check(const struct persistents *p, int round)
{
    check(p->sum[LARGE - 1] == nranks * (LARGE - 1 + round) + nranks * (nranks - 1) / 2, "allreduce");
    check(p->row[4] == 4 + round && p->row[1] == (rank == 1 ? 1 + round : -1), "bcast");
    for (int r = 0; rank == 0 && r < nranks; r++) {
        check(p->counts[r] == 0 || p->all[p->displs[r] + 2] == 10 * r + 2 + round, "gatherv");
    }
    int at = 3 * (rank - (rank > 1)) + 2;
    check(rank == 1 || p->block[2] == nranks * (at + round) + nranks * (nranks - 1) / 2, "reduce_scatter");
}

static void persistents_free(struct persistents *p)
{
    for (int i = 0; i < NPERSISTENT; i++) {
        MPI_Request_free(&p->requests[(i + rank) % NPERSISTENT]);
        check(p->requests[(i + rank) % NPERSISTENT] == MPI_REQUEST_NULL, "MPI_Request_free");
    }
}

static int self_copies;
static int on_self_copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval, (void)extra, (void)in, (void)out;
    self_copies++;
    *flag = 0;
    return MPI_SUCCESS;
}

/* The face takes requests on a communicator of one rank. Call it before the first persistent call. */
void the_programs_attributes_are_left_alone(void)
{
    static struct persistents p;
    int keyval;
    MPI_Comm comm;
    MPI_Comm_create_keyval(on_self_copy, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &self_copies);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    warm(comm);
    persistents_make(&p, comm);
    check(self_copies == 0, "a persistent call runs no callback of the program's attributes");
    persistents_free(&p);
    MPI_Comm_free(&comm);
    MPI_Comm_delete_attr(MPI_COMM_SELF, keyval);
    MPI_Comm_free_keyval(&keyval);
}

void persistent_calls_start_in_any_order(void)
{
    static struct persistents p;
    MPI_Status statuses[NPERSISTENT + 2];
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    warm(comm);
    for (int life = 0; life < 3; life++) {
        persistents_make(&p, comm);
        for (int round = 0; round < 9; round++) {
            MPI_Request all[NPERSISTENT + 2];
            int one = 1, sum = 0, token = rank, got = -1, index, left = NPERSISTENT;
            persistents_start(&p, round);
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm); /* another call beside them */
            check(sum == nranks, "a blocking call");
            if (round % 2 == 0) {
                memcpy(all, p.requests, sizeof p.requests);
                MPI_Irecv(&got, 1, MPI_INT, (rank + 1) % nranks, 6, comm, &all[NPERSISTENT]);
                MPI_Isend(&token, 1, MPI_INT, (rank + nranks - 1) % nranks, 6, comm, &all[NPERSISTENT + 1]);
                MPI_Waitall(NPERSISTENT + 2, all, statuses);
                check(got == (rank + 1) % nranks, "a message");
            }
            while (round % 2 == 1 && left > 0) {
                MPI_Waitany(NPERSISTENT, p.requests, &index, &statuses[0]);
                left -= index != MPI_UNDEFINED;
            }
            persistents_check(&p, round);
        }
        persistents_free(&p);
    }
    MPI_Comm_free(&comm);
}

void a_persistent_call_outlives_its_communicator(void)
{
    static struct persistents p;
    MPI_Status statuses[NPERSISTENT];
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    warm(comm);
    persistents_make(&p, comm);
    MPI_Comm_free(&comm);
    persistents_start(&p, 1);
    MPI_Waitall(NPERSISTENT, p.requests, statuses);
    persistents_check(&p, 1);
    persistents_free(&p);
}

static int told, told_code;
static void on_failure(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    told++;
    MPI_Error_class(*code, &told_code);
}

/* Ranks give different counts. */
static void failed_call(MPI_Comm comm)
{
    int two[2] = { 1, 1 }, sums[2], code;
    MPI_Request request;
    told = 0;
    INIT(Allreduce)(two, sums, rank == 0 ? 1 : 2, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    code = MPI_Start(&request);
    code = code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
    check(code != MPI_SUCCESS, "an error of the call with different counts");
    check(told == 1 && told_code == MPI_ERR_OTHER, "one call of the communicator's error handler");
    if (request != MPI_REQUEST_NULL) {
        MPI_Request_free(&request);
    }
}

/* Open MPI frees a request that has failed, and may use its handle again. */
static void persistent_receive(void)
{
    int token = 7, got = -1, code;
    MPI_Request request;
    MPI_Recv_init(&got, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &request);
    code = MPI_Start(&request);
    MPI_Send(&token, 1, MPI_INT, 0, 3, MPI_COMM_SELF);
    code = code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
    check(code == MPI_SUCCESS && got == token, "a persistent receive after it");
    MPI_Request_free(&request);
}

/* The handler is called at the start, or where the program waits. Other calls of the communicator go on, also
 * persistent ones that come after it. */
void a_failed_persistent_call_calls_its_error_handler(void)
{
    MPI_Errhandler handler;
    MPI_Comm comm;
    MPI_Comm_create_errhandler(on_failure, &handler);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, handler);
    warm(comm);
    for (int i = 0; i < 2; i++) {
        int one = 1, sum = 0, code;
        MPI_Request request;
        failed_call(comm);
        persistent_receive();
        INIT(Allreduce)(&one, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
        code = MPI_Start(&request);
        code = code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
        check(code == MPI_SUCCESS && sum == nranks, "a persistent call after it");
        MPI_Request_free(&request);
    }
    failed_call(comm); /* leaves a request to the end of its communicator */
    MPI_Comm_free(&comm);
    MPI_Errhandler_free(&handler);
}

/* What requests hold that outlive their communicators goes with them, in any order. */
void freed_persistent_calls_make_room(void)
{
    MPI_Comm comm;
    for (int i = 0; i < 8; i++) {
        int one = 1, sums[2];
        MPI_Request requests[2];
        MPI_Status statuses[2];
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int k = 0; k < 2; k++) {
            INIT(Allreduce)(&one, &sums[k], 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[k]);
        }
        MPI_Comm_free(&comm);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, statuses);
        check(sums[0] == nranks && sums[1] == nranks, "the sums");
        MPI_Request_free(&requests[rank % 2]);
        MPI_Request_free(&requests[1 - rank % 2]);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    warm(comm);
    MPI_Comm_free(&comm);
}
#else
void the_programs_attributes_are_left_alone(void) {}
void persistent_calls_start_in_any_order(void) {}
void a_persistent_call_outlives_its_communicator(void) {}
void a_failed_persistent_call_calls_its_error_handler(void) {}
void freed_persistent_calls_make_room(void) {}
#endif
