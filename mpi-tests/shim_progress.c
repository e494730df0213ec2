/*
 * Progress both ways. A rank that waits in a collective of the face moves MPI's messages, even while a
 * message that it has not received yet matches every probe. And a rank that waits in any way in MPI moves a
 * non-blocking collective that it has started: rank 0 waits for the end of that before it lets the others go.
 */
#include <mpi.h>
#if defined OPEN_MPI && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#endif
#include <stdio.h>
#include <stdlib.h>

#include "mpi_common.h"

/* One of the waits may come to a tool instead of the face, which must leave the collective to MPI then. */
#if defined SHIM_TOOL && MPI_VERSION >= 4
int MPI_Allreduce_c(const void *in, void *out, MPI_Count n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return PMPI_Allreduce_c(in, out, n, type, op, comm);
}
#endif

enum { BYTES = 1 << 21, ROUNDS = 20, ELEMENTS = 200000 };
static int *mine, *sum;
static MPI_Comm fresh; /* its next call creates Rondo's communicator, where RONDO_MPI_AFTER is 2 */

/* The last rank has a message from itself and waits in Allreduce, and rank 0 sends it more than fits in MPI's
 * buffers before it calls Allreduce. */
static void a_collective_moves_messages(void)
{
    char *large = calloc(1, BYTES);
    int last = test.nranks - 1, small = 1;
    test.what = "a message beside allreduce";
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
        int total = 0, got = 0;
        test_watchdog(20);
        large[BYTES - 1] = test.rank == 0 ? (char)(round + 1) : 0;
        if (test.rank == last) {
            MPI_Isend(&small, 1, MPI_INT, last, 1, MPI_COMM_WORLD, &requests[0]);
            MPI_Irecv(large, BYTES, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[1]);
        }
        if (test.rank == 0) {
            MPI_Send(large, BYTES, MPI_BYTE, last, 2, MPI_COMM_WORLD);
        }
        MPI_Allreduce(&small, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        test_check(total == test.nranks, "round %d: the sum is %d", round, total);
        if (test.rank == last) {
            MPI_Recv(&got, 1, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Waitall(2, requests,
                        (MPI_Status[2]){ { 0 } }); /* MPICH's header warns of MPI_STATUSES_IGNORE */
            test_check(large[BYTES - 1] == (char)(round + 1), "round %d: the message is wrong", round);
        }
    }
    free(large);
}

/* ---- waits ---- */

static int token;

static void by_recv(void) { MPI_Recv(&token, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

static void by_probe(void)
{
    MPI_Probe(0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    by_recv();
}

static void by_iprobe(void)
{
    for (int flag = 0; !flag;) {
        MPI_Iprobe(0, 5, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    by_recv();
}

static void by_mprobe(void)
{
    MPI_Message message;
    MPI_Mprobe(0, 5, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(&token, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
}

static void by_sendrecv(void)
{
    MPI_Sendrecv(mine, ELEMENTS, MPI_INT, 0, 5, &token, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void by_replace(void)
{
    token = test.rank;
    MPI_Sendrecv_replace(&token, 1, MPI_INT, 0, 5, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void by_ssend(void) { MPI_Ssend(mine, ELEMENTS, MPI_INT, 0, 5, MPI_COMM_WORLD); }
static void by_send(void) { MPI_Send(mine, ELEMENTS, MPI_INT, 0, 5, MPI_COMM_WORLD); }

static MPI_Request receive(void)
{
    MPI_Request request;
    MPI_Irecv(&token, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, &request);
    return request;
}

static void by_wait(void)
{
    MPI_Request request = receive();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void by_waitall(void)
{
    MPI_Request request = receive();
    MPI_Waitall(1, &request, (MPI_Status[1]){ { 0 } });
}

static void by_waitany(void)
{
    MPI_Request request = receive();
    int index;
    MPI_Waitany(1, &request, &index, MPI_STATUS_IGNORE);
}

static void by_waitsome(void)
{
    MPI_Request request = receive();
    int n, index[1];
    MPI_Waitsome(1, &request, &n, index, (MPI_Status[1]){ { 0 } });
}

static void by_test(void)
{
    MPI_Request request = receive();
    for (int flag = 0; !flag;) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
}

static void by_testsome(void)
{
    MPI_Request request = receive();
    int n = 0, index[1];
    while (n == 0) {
        MPI_Testsome(1, &request, &n, index, (MPI_Status[1]){ { 0 } });
    }
}

#if MPI_VERSION >= 4 && !defined SHIM_TOOL /* MPICH's own collectives do not move there */
static void by_parrived(void)
{
    MPI_Request request;
    MPI_Precv_init(&token, 1, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    for (int flag = 0; !flag;) {
        MPI_Parrived(request, 0, &flag);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}

static void send_part(int to)
{
    MPI_Request request;
    MPI_Psend_init(&test.rank, 1, 1, MPI_INT, to, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    MPI_Pready(0, request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}
#else
#define by_parrived by_recv
static void send_part(int to) { MPI_Send(&test.rank, 1, MPI_INT, to, 5, MPI_COMM_WORLD); }
#endif

static void by_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
static void by_scan(void) { MPI_Scan(&test.rank, &token, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); }

#if MPI_VERSION >= 4
static void by_large(void) { MPI_Allreduce_c(&test.rank, &token, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); }
#else
#define by_large by_scan
#endif

static void by_dup(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_free(&comm);
}

/* The ranks agree on what Rondo takes over. */
static void by_creation(void) { MPI_Barrier(fresh); }

#ifndef OPEN_MPI /* which does not wait there */
static MPI_Win window;
static void by_set_info(void)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Win_set_info(window, info);
    MPI_Info_free(&info);
}
#endif

#if MPI_VERSION >= 4 || (defined OPEN_MPI && OMPI_MAJOR_VERSION >= 5)
#define BARRIER_INIT MPI_Barrier_init
#elif defined OMPI_HAVE_MPI_EXT_PCOLLREQ
#define BARRIER_INIT MPIX_Barrier_init
#endif
static void by_init_on(MPI_Comm comm)
{
#ifdef BARRIER_INIT
    MPI_Request request;
    BARRIER_INIT(comm, MPI_INFO_NULL, &request);
    MPI_Request_free(&request);
#else
    MPI_Barrier(comm);
#endif
}
static void by_creating_init(void) { by_init_on(fresh); }
static void by_init(void) { by_init_on(MPI_COMM_WORLD); }

/* What rank 0 does for each of the others. */
enum answer { SENDS, RECEIVES, BOTH, JOINS, SENDS_PART };
#define WAIT(name, answer)  \
    {                       \
#name, name, answer \
    }
static const struct {
    const char *name;
    void (*wait)(void);
    enum answer answer;
} waits[] = {
    WAIT(by_recv, SENDS),     WAIT(by_probe, SENDS),    WAIT(by_iprobe, SENDS),
    WAIT(by_mprobe, SENDS),   WAIT(by_sendrecv, BOTH),  WAIT(by_replace, BOTH),
    WAIT(by_ssend, RECEIVES), WAIT(by_send, RECEIVES),  WAIT(by_wait, SENDS),
    WAIT(by_waitall, SENDS),  WAIT(by_waitany, SENDS),  WAIT(by_waitsome, SENDS),
    WAIT(by_test, SENDS),     WAIT(by_testsome, SENDS), WAIT(by_barrier, JOINS),
    WAIT(by_scan, JOINS),     WAIT(by_dup, JOINS),      WAIT(by_parrived, SENDS_PART),
    WAIT(by_creation, JOINS), WAIT(by_init, JOINS),     WAIT(by_creating_init, JOINS),
    WAIT(by_large, JOINS),
#ifndef OPEN_MPI
    WAIT(by_set_info, JOINS),
#endif
};

static void answer(enum answer answer, void (*wait)(void), int *scratch)
{
    if (answer == JOINS) {
        wait();
        return;
    }
    for (int r = 1; r < test.nranks; r++) {
        if (answer == SENDS_PART) {
            send_part(r);
        } else if (answer != RECEIVES) {
            MPI_Send(&test.rank, 1, MPI_INT, r, 5, MPI_COMM_WORLD);
        }
        if (answer == RECEIVES || answer == BOTH) {
            MPI_Recv(scratch, ELEMENTS, MPI_INT, r, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
}

static void a_wait_moves_collectives(size_t which, int *scratch)
{
    MPI_Request request;
    test.what = waits[which].name;
    test_watchdog(20);
    for (int i = 0; i < ELEMENTS; i++) {
        mine[i] = test.rank + i;
        sum[i] = -1;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &fresh);
    MPI_Barrier(fresh);
    MPI_Iallreduce(mine, sum, ELEMENTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (test.rank == 0) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        answer(waits[which].answer, waits[which].wait, scratch);
    } else {
        waits[which].wait();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    test_check(sum[ELEMENTS - 1] == test.nranks * (ELEMENTS - 1) + test.nranks * (test.nranks - 1) / 2,
               "the sum is %d", sum[ELEMENTS - 1]);
    MPI_Comm_free(&fresh);
}

int main(void)
{
    test_init("shim_progress", MPI_THREAD_SINGLE);
    int *memory = calloc(3, ELEMENTS * sizeof(int));
    mine = memory;
    sum = memory + ELEMENTS;
    a_collective_moves_messages();
#ifndef OPEN_MPI
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
#endif
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        a_wait_moves_collectives(i, memory + 2 * ELEMENTS);
    }
#ifndef OPEN_MPI
    MPI_Win_free(&window);
#endif
    free(memory);
    return test_finish();
}
