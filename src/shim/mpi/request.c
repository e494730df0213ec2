/*
 * Non-blocking calls. A call starts on a stream of Rondo. If it ends at once, because the other ranks were
 * there before, the program gets a receive from MPI_PROC_NULL. Otherwise it gets a generalized request, which
 * MPI_Test, MPI_Wait and their relatives take together with the library's own, and what waits in MPI runs
 * shim_move (progress.c).
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"
#include "call/stream.h"
#include "shim/mpi/helper.h"
#include "shim/mpi/shim.h"

static struct {
    pthread_mutex_t lock;
    int npending;
    struct shim_request *first, **end; /* pending */
    struct shim_request *idle;         /* with streams, for later calls */
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- callbacks of a generalized request ---- */

/* Another thread may have completed it: see also what that wrote into the program's buffer. */
static int code_of(const struct shim_request *request)
{
    return __atomic_load_n(&request->code, __ATOMIC_ACQUIRE);
}

static int query(void *state, MPI_Status *status)
{
    const struct shim_request *request = state;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return code_of(request);
}

static int release(void *state)
{
    struct shim_request *request = state;
    (void)code_of(request);
    pthread_mutex_lock(&process.lock);
    request->next = process.idle;
    process.idle = request;
    pthread_mutex_unlock(&process.lock);
    return MPI_SUCCESS;
}

static void complete(struct shim_request *request)
{
    MPI_Request handle = request->handle;
    __atomic_store_n(&request->code, request->code, __ATOMIC_RELEASE);
    PMPI_Grequest_complete(handle); /* it may be released, and used again, at once */
}

/* MPI does not let a program cancel a collective. */
static int cancel(void *state, int complete)
{
    (void)state, (void)complete;
    return MPI_SUCCESS;
}

/* ---- progress ---- */

static void pending_count(int by)
{
    __atomic_add_fetch(&process.npending, by, __ATOMIC_RELEASE);
    if (shim_waits_are_taken) {
        __atomic_add_fetch(&shim_moving, by, __ATOMIC_RELEASE);
    }
}

/* @return the requests whose calls have ended, taken off the list; with the lock held */
static struct shim_request *take_ended(void)
{
    struct shim_request *ended = NULL, **last = &ended, **at = &process.first;
    if (rondo_streams_poll() != RONDO_SUCCESS) {
        return NULL; /* a signal handler, in the middle of a call */
    }
    while (*at != NULL) {
        struct shim_request *request = *at;
        rondo_status status = rondo_stream_look(request->stream);
        if (status == RONDO_IN_PROGRESS) {
            at = &request->next;
            continue;
        }
        request->code = status == RONDO_SUCCESS ? MPI_SUCCESS : MPI_ERR_OTHER;
        *at = request->next;
        *last = request;
        last = &request->next;
        request->next = NULL;
    }
    process.end = at;
    return ended;
}

/* Who waits for the request gets an error of MPI's, which does not say why. The communicator may be gone. */
static void complain(const struct shim_request *request, rondo_status status)
{
    int rank = -1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!rondo_error_logged()) {
        rondo_fail_aloud(status);
    }
    if (request->ended != complete) { /* a persistent one, which has a communicator of Rondo for itself */
        RONDO_WARN(
            "rank %d of MPI_COMM_WORLD: Rondo failed in a persistent MPI %s that was under way, so this "
            "request makes no calls any more",
            rank, shim_coll_name((enum shim_coll)request->call.coll));
        return;
    }
    RONDO_WARN(
        "rank %d of MPI_COMM_WORLD: Rondo failed in an MPI %s that was under way, so the MPI communicator "
        "has no collectives any more",
        rank, shim_coll_name((enum shim_coll)request->call.coll));
}

/* The call of Rondo has ended: the rest. */
static void clean_up(struct shim_request *request)
{
    rondo_status status = request->code == MPI_SUCCESS ? RONDO_SUCCESS : RONDO_SYSTEM_ERROR;
    if (status != RONDO_SUCCESS) {
        complain(request, status);
        if (request->ended != complete) {
            shim_comm_fail_child(request->call.c);
        }
    }
    if (shim_finish(&request->call, status) != RONDO_SUCCESS) {
        request->code = MPI_ERR_OTHER;
    }
    free(request->call.sizes);
}

int shim_nrequests(void) { return __atomic_load_n(&process.npending, __ATOMIC_ACQUIRE); }

int shim_move(void)
{
    struct shim_request *ended;
    int n = 0;
    if (RONDO_LIKELY(shim_nrequests() == 0)) {
        return 0;
    }
    if (shim_thread
            .inside) { /* MPI runs inside of Rondo's wait, which moves all streams; a creation does not */
        if (shim_thread.inside == SHIM_CREATES) {
            rondo_streams_progress(&n);
        }
        return 0;
    }
    if (rondo_is_inside_call() || pthread_mutex_trylock(&process.lock) != 0) {
        return 0; /* the program's own call of Rondo, or a signal handler in one */
    }
    struct shim_outer outer = shim_enter(SHIM_CALLS);
    ended = take_ended();
    shim_exit(outer);
    pthread_mutex_unlock(&process.lock);
    for (struct shim_request *next; ended != NULL; ended = next, n++) {
        next = ended->next;
        clean_up(ended);
        ended->ended(ended);
        pending_count(-1); /* not before: MPI_Waitall is MPICH's own where none is pending */
    }
    return n;
}

/* ---- start ---- */

rondo_status shim_request_renew(struct shim_request *request)
{
    if (request->stream != NULL && request->code == MPI_SUCCESS) {
        return RONDO_SUCCESS;
    }
    if (request->stream != NULL) {
        (void)rondo_stream_destroy(request->stream); /* its error was reported by the call that failed */
        request->stream = NULL;
    }
    request->code = MPI_SUCCESS;
    return rondo_stream_create(&request->stream);
}

static rondo_status request_new(struct shim_request **made)
{
    struct shim_request *request;
    rondo_status status;
    pthread_mutex_lock(&process.lock);
    request = process.idle;
    if (request != NULL) {
        process.idle = request->next;
    }
    pthread_mutex_unlock(&process.lock);
    if (request == NULL && (request = calloc(1, sizeof *request)) == NULL) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "no memory for a request on %s", rondo_log_host());
    }
    status = shim_request_renew(request);
    if (status != RONDO_SUCCESS) {
        free(request);
        return status;
    }
    *made = request;
    return RONDO_SUCCESS;
}

void shim_request_add(struct shim_request *request)
{
    request->next = NULL;
    pthread_mutex_lock(&process.lock);
    if (process.first == NULL) {
        process.end = &process.first;
    }
    *process.end = request;
    process.end = &request->next;
    pending_count(1);
    pthread_mutex_unlock(&process.lock);
    shim_progress_begin();
}

rondo_status shim_request_issue(struct shim_request *request)
{
    struct shim_call *call = &request->call;
    rondo_status status = RONDO_SUCCESS;
    request->code = MPI_SUCCESS;
    if (call->moves) {
        status = shim_prepare(call, 1);
    }
    if (status == RONDO_SUCCESS) {
        struct shim_outer outer = shim_enter(SHIM_CALLS);
        status = shim_issue(call, request->stream);
        shim_exit(outer);
    }
    if (status != RONDO_SUCCESS) {
        request->code = MPI_ERR_OTHER;
        shim_finish(call, status);
        free(call->sizes);
        return status;
    }
    status = rondo_stream_look(request->stream);
    if (status == RONDO_IN_PROGRESS) {
        return status;
    }
    request->code = status == RONDO_SUCCESS ? MPI_SUCCESS : MPI_ERR_OTHER;
    clean_up(request);
    return RONDO_SUCCESS;
}

static void request_fill(struct shim_request *request, const struct shim_call *call)
{
    request->call = *call;
    request->call.sizes = NULL;
    if (!call->moves) {
        request->call.has_in = request->call.has_out = 0;
    }
    request->call.in.packed = request->call.out.packed = NULL;
    request->call.in.held = request->call.out.held = MPI_DATATYPE_NULL;
    request->ended = complete;
}

/* Give the program its handle. @return MPI's code */
static int request_show(struct shim_request *request, rondo_status issued, MPI_Request *handle)
{
    int code;
    if (issued == RONDO_SUCCESS && request->code == MPI_SUCCESS) {
        release(request);
        return PMPI_Irecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, handle);
    }
    code = PMPI_Grequest_start(query, release, cancel, request, &request->handle);
    if (code != MPI_SUCCESS) {
        if (issued == RONDO_SUCCESS) {
            release(request);
        } /* a call under way keeps the memory */
        return code;
    }
    *handle = request->handle;
    if (issued == RONDO_SUCCESS) {
        complete(request);
    } else {
        shim_request_add(request);
    }
    return MPI_SUCCESS;
}

int shim_request_start(struct shim_call *call, MPI_Request *handle)
{
    struct shim_request *request = NULL;
    rondo_status status = call->c->failed ? RONDO_INVALID_USAGE : request_new(&request);
    if (status != RONDO_SUCCESS) {
        return shim_error(call, status);
    }
    request_fill(request, call);
    status = shim_request_issue(request);
    if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
        release(request);
        return shim_error(call, status);
    }
    if (request_show(request, status, handle) != MPI_SUCCESS) {
        return shim_error(
            call, rondo_fail(RONDO_SYSTEM_ERROR, "MPI has no request for a call on %s", rondo_log_host()));
    }
    if (shim_reporting) {
        shim_report_add(call, 1, 0);
    }
    return MPI_SUCCESS;
}
