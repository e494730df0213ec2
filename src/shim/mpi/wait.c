/*
 * Waits of MPI that Rondo's non-blocking calls need to move in, where the library has no hook of its own
 * (progress.c): while such a call is under way, MPI is asked again and again instead. Open MPI has a hook.
 */
#include "shim/mpi/shim.h"

#ifndef OPEN_MPI
#include "shim/mpi/helper.h"

/* Optional in older libraries. */
#pragma weak PMPI_Recv_c
#pragma weak PMPI_Irecv_c
#pragma weak PMPI_Send_c
#pragma weak PMPI_Isend_c
#pragma weak PMPI_Ssend_c
#pragma weak PMPI_Issend_c
#pragma weak PMPI_Rsend_c
#pragma weak PMPI_Irsend_c
#pragma weak PMPI_Mrecv_c
#pragma weak PMPI_Imrecv_c
#pragma weak PMPI_Sendrecv_c

static int is_idle(void) { return RONDO_LIKELY(__atomic_load_n(&shim_moving, __ATOMIC_RELAXED) == 0); }

/* Ranks may have no cores of their own, so a long loop yields. */
static const struct rondo_wait_policy policy = { .spins = 200 };

/* Ask until `done` says that there is nothing to wait for, or MPI fails. Sets code. */
#define ASK_(call, done)                         \
    do {                                         \
        struct rondo_wait wait_;                 \
        rondo_wait_begin(&wait_, &policy);       \
        for (;;) {                               \
            shim_move();                         \
            code = (call);                       \
            if (code != MPI_SUCCESS || (done)) { \
                break;                           \
            }                                    \
            rondo_wait_once(&wait_);             \
        }                                        \
    } while (0)

static int wait_for(MPI_Request *request, MPI_Status *status)
{
    int code, flag = 0;
    ASK_(PMPI_Test(request, &flag, status), flag);
    return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    return is_idle() ? PMPI_Wait(request, status) : wait_for(request, status);
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
    int code, flag = 0;
    if (RONDO_LIKELY(shim_nrequests() == 0)) {
        return PMPI_Waitall(count, requests, statuses);
    }
    ASK_(PMPI_Testall(count, requests, &flag, statuses), flag);
    return code;
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
    int code, flag = 0;
    if (is_idle()) {
        return PMPI_Waitany(count, requests, index, status);
    }
    ASK_(PMPI_Testany(count, requests, index, &flag, status), flag);
    return code;
}

int MPI_Waitsome(int count, MPI_Request requests[], int *ndone, int indices[], MPI_Status statuses[])
{
    int code;
    if (is_idle()) {
        return PMPI_Waitsome(count, requests, ndone, indices, statuses);
    }
    ASK_(PMPI_Testsome(count, requests, ndone, indices, statuses), *ndone != 0); /* or MPI_UNDEFINED */
    return code;
}

static void move_if_any(void)
{
    if (!is_idle()) {
        shim_move();
    }
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    move_if_any();
    return PMPI_Test(request, flag, status);
}

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[])
{
    move_if_any();
    return PMPI_Testall(count, requests, flag, statuses);
}

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    move_if_any();
    return PMPI_Testany(count, requests, index, flag, status);
}

int MPI_Testsome(int count, MPI_Request requests[], int *ndone, int indices[], MPI_Status statuses[])
{
    move_if_any();
    return PMPI_Testsome(count, requests, ndone, indices, statuses);
}

int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    move_if_any();
    return PMPI_Request_get_status(request, flag, status);
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    move_if_any();
    return PMPI_Iprobe(source, tag, comm, flag, status);
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status)
{
    move_if_any();
    return PMPI_Improbe(source, tag, comm, flag, message, status);
}

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    int code, flag = 0;
    if (is_idle()) {
        return PMPI_Probe(source, tag, comm, status);
    }
    ASK_(PMPI_Iprobe(source, tag, comm, &flag, status), flag);
    return code;
}

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status)
{
    int code, flag = 0;
    if (is_idle()) {
        return PMPI_Mprobe(source, tag, comm, message, status);
    }
    ASK_(PMPI_Improbe(source, tag, comm, &flag, message, status), flag);
    return code;
}

/* ---- messages, with counts of both widths ---- */

#define SEND_(Name, Begin, C)                                                                   \
    int MPI_##Name(const void *buf, C count, MPI_Datatype type, int to, int tag, MPI_Comm comm) \
    {                                                                                           \
        MPI_Request request;                                                                    \
        int code;                                                                               \
        if (is_idle()) {                                                                        \
            return PMPI_##Name(buf, count, type, to, tag, comm);                                \
        }                                                                                       \
        code = PMPI_##Begin(buf, count, type, to, tag, comm, &request);                         \
        return code != MPI_SUCCESS ? code : wait_for(&request, MPI_STATUS_IGNORE);              \
    }

#define RECV_(Name, Begin, C)                                                               \
    int MPI_##Name(void *buf, C count, MPI_Datatype type, int from, int tag, MPI_Comm comm, \
                   MPI_Status *status)                                                      \
    {                                                                                       \
        MPI_Request request;                                                                \
        int code;                                                                           \
        if (is_idle()) {                                                                    \
            return PMPI_##Name(buf, count, type, from, tag, comm, status);                  \
        }                                                                                   \
        code = PMPI_##Begin(buf, count, type, from, tag, comm, &request);                   \
        return code != MPI_SUCCESS ? code : wait_for(&request, status);                     \
    }

#define MRECV_(Name, Begin, C)                                                                      \
    int MPI_##Name(void *buf, C count, MPI_Datatype type, MPI_Message *message, MPI_Status *status) \
    {                                                                                               \
        MPI_Request request;                                                                        \
        int code;                                                                                   \
        if (is_idle()) {                                                                            \
            return PMPI_##Name(buf, count, type, message, status);                                  \
        }                                                                                           \
        code = PMPI_##Begin(buf, count, type, message, &request);                                   \
        return code != MPI_SUCCESS ? code : wait_for(&request, status);                             \
    }

/* Both are under way before one is waited for. */
#define SENDRECV_(Name, Irecv_, Isend_, C)                                                                  \
    int MPI_##Name(const void *sendbuf, C sendcount, MPI_Datatype sendtype, int to, int sendtag,            \
                   void *recvbuf, C recvcount, MPI_Datatype recvtype, int from, int recvtag, MPI_Comm comm, \
                   MPI_Status *status)                                                                      \
    {                                                                                                       \
        MPI_Request receive, send;                                                                          \
        int code, sent;                                                                                     \
        if (is_idle()) {                                                                                    \
            return PMPI_##Name(sendbuf, sendcount, sendtype, to, sendtag, recvbuf, recvcount, recvtype,     \
                               from, recvtag, comm, status);                                                \
        }                                                                                                   \
        code = PMPI_##Irecv_(recvbuf, recvcount, recvtype, from, recvtag, comm, &receive);                  \
        if (code != MPI_SUCCESS) {                                                                          \
            return code;                                                                                    \
        }                                                                                                   \
        code = PMPI_##Isend_(sendbuf, sendcount, sendtype, to, sendtag, comm, &send);                       \
        if (code != MPI_SUCCESS) {                                                                          \
            PMPI_Cancel(&receive);                                                                          \
            PMPI_Request_free(&receive);                                                                    \
            return code;                                                                                    \
        }                                                                                                   \
        code = wait_for(&receive, status);                                                                  \
        sent = wait_for(&send, MPI_STATUS_IGNORE);                                                          \
        return code != MPI_SUCCESS ? code : sent;                                                           \
    }

SEND_(Send, Isend, int)
SEND_(Ssend, Issend, int)
SEND_(Rsend, Irsend, int)
RECV_(Recv, Irecv, int)
MRECV_(Mrecv, Imrecv, int)
SENDRECV_(Sendrecv, Irecv, Isend, int)
#if MPI_VERSION >= 4
SEND_(Send_c, Isend_c, MPI_Count)
SEND_(Ssend_c, Issend_c, MPI_Count)
SEND_(Rsend_c, Irsend_c, MPI_Count)
RECV_(Recv_c, Irecv_c, MPI_Count)
MRECV_(Mrecv_c, Imrecv_c, MPI_Count)
SENDRECV_(Sendrecv_c, Irecv_c, Isend_c, MPI_Count)
#endif
#endif
