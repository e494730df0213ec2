/*
 * Persistent collectives. What the program gets is a persistent receive from this rank itself, so that
 * MPI_Wait, MPI_Test and their relatives need no help of ours. MPI_Start starts both the receive and a call
 * of Rondo, and the end of that call sends the message.
 *
 * Ranks may start the persistent calls of a communicator in different orders, but Rondo's communicator takes
 * calls in one order. So each has a communicator of Rondo for itself, a child of the state of MPI's. A freed
 * request leaves its child to a later one: the ranks agree on one that all have free.
 */
#include "shim/mpi/shim.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"

enum { NBUCKETS = 64 };

struct persistent {
    struct shim_request request; /* first: the end of the call gets its address */
    struct shim_call plan;       /* what a start copies */
    int64_t *sizes;              /* the plan's counts and displacements; NULL: it has none */
    int tag;
    int told;                /* 0: if it has failed, no error handler knows */
    struct persistent *next; /* of its bucket, or of those that were freed */
};

static struct {
    pthread_mutex_t lock;
    int ntags;
    int nlive;
    struct persistent *bucket[NBUCKETS];
    struct persistent *idle; /* with tags and streams, for later ones */
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct persistent **bucket_of(MPI_Request handle)
{
    uint64_t hash = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
    return &process.bucket[hash >> 58];
}

/* With the lock held. @return the pointer to it, or to NULL */
static struct persistent **place_of(MPI_Request handle)
{
    struct persistent **at = bucket_of(handle);
    while (*at != NULL && (*at)->request.handle != handle) {
        at = &(*at)->next;
    }
    return at;
}

static struct persistent *find(MPI_Request handle)
{
    struct persistent *p = NULL;
    if (__atomic_load_n(&process.nlive, __ATOMIC_ACQUIRE) > 0) {
        pthread_mutex_lock(&process.lock);
        p = *place_of(handle);
        pthread_mutex_unlock(&process.lock);
    }
    return p;
}

/* @return one that has failed, of which no error handler knows; now one will */
static struct persistent *untold(void)
{
    struct persistent *p = NULL;
    pthread_mutex_lock(&process.lock);
    for (int i = 0; i < NBUCKETS && p == NULL; i++) {
        p = process.bucket[i];
        while (p != NULL && (__atomic_load_n(&p->request.code, __ATOMIC_ACQUIRE) == MPI_SUCCESS || p->told)) {
            p = p->next;
        }
    }
    if (p != NULL) {
        p->told = 1;
    }
    pthread_mutex_unlock(&process.lock);
    return p;
}

void shim_persistent_tell(void)
{
    for (struct persistent *p; (p = untold()) != NULL;) {
        PMPI_Comm_call_errhandler(p->plan.c->comm, MPI_ERR_OTHER);
    }
}

/* ---- the children of a communicator ---- */

/* Collective. @return NULL: MPI carries the call, on all ranks, because of *why */
static struct shim_comm *child_get(const struct shim_call *call, enum shim_reason *why)
{
    static int said; /* once a process */
    struct shim_comm *c = call->c, *spare = shim_comm_new_child(c), *child = NULL;
    /* Of the children that are free here, and of one that this rank could make; the root, and its
     * complement. */
    uint64_t mine[2] = { shim_comm_free_children(c) | (spare != NULL ? UINT64_C(1) << SHIM_MAX_CHILDREN : 0),
                         (uint32_t)call->root | (uint64_t) ~(uint32_t)call->root << 32 };
    uint64_t all[2] = { 0, 0 };
    int agreed = shim_comm_agree(mine, all, 2, MPI_UINT64_T, MPI_BAND, c->comm) == MPI_SUCCESS;
    if (agreed && (uint32_t)(all[1] | all[1] >> 32) != UINT32_MAX) {
        *why = SHIM_BY_ARGUMENTS;
        if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) {
            RONDO_WARN(
                "rank %d names root %d in a persistent MPI %s, and others another one: this is wrong, and "
                "may hang in MPI, which carries the call",
                c->rank, call->root, shim_coll_name((enum shim_coll)call->coll));
        }
    } else if (agreed && all[0] != 0) {
        int first = __builtin_ctzll(all[0]);
        if (first < SHIM_MAX_CHILDREN) {
            child = c->children[first];
        } else if (shim_comm_make_child(c, spare)) {
            child = spare;
            spare = NULL;
        }
    }
    free(spare);
    if (child != NULL) {
        shim_comm_take_child(child);
    }
    return child;
}

int shim_takes_persistent(struct shim_call *call)
{
    struct shim_comm *c = call->c;
    enum shim_reason why = SHIM_BY_MANY;
    if (c->cells == NULL) {
        shim_comm_make(c);
    }
    if (c->cells == NULL) {
        return shim_leave(call, c->leaves);
    }
    if (!c->starts_requests) {
        return shim_leave(call, SHIM_BY_REQUEST);
    }
    if (!shim_takes_request(call)) {
        return 0;
    }
    c = child_get(call, &why);
    call->c = c != NULL ? c : call->c;
    return c != NULL || shim_leave(call, why);
}

/* ---- making one ---- */

/* With the lock held. */
static rondo_status persistent_new(struct persistent **made)
{
    struct persistent *p = process.idle;
    if (p != NULL) {
        process.idle = p->next;
    } else if ((p = calloc(1, sizeof *p)) == NULL) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "no memory for a persistent request on %s", rondo_log_host());
    } else {
        p->tag = process.ntags++;
    }
    rondo_status status = shim_request_renew(&p->request);
    if (status != RONDO_SUCCESS) {
        p->next = process.idle;
        process.idle = p;
        return status;
    }
    *made = p;
    return RONDO_SUCCESS;
}

/* The program may free its types before it starts the request. */
static int side_keep(struct shim_side *s, int has)
{
    return has && !s->is_plain ? shim_type_hold(s->type, &s->type) : MPI_SUCCESS;
}

static void side_drop(struct shim_side *s, int has)
{
    if (has && !s->is_plain) {
        PMPI_Type_free(&s->type);
    }
}

/* @return where the next array's copy goes */
static int64_t *sizes_copy(struct shim_ints *from, int n, int64_t *to)
{
    for (int i = 0; i < n; i++) {
        to[i] = shim_int(*from, i);
    }
    *from = (struct shim_ints){ to, sizeof *to };
    return to + n;
}

/* MPI libraries read counts and displacements when the request is made, and programs reuse the memory. */
static int sizes_keep(struct persistent *p)
{
    struct shim_call *plan = &p->plan;
    int n = plan->c->n, in = plan->has_in && plan->in.blocks, out = plan->has_out && plan->out.blocks,
        counts = plan->coll == SHIM_REDUCE_SCATTER && plan->moves;
    int64_t *at;
    if (!in && !out && !counts) {
        return MPI_SUCCESS;
    }
    at = p->sizes = malloc(4 * (size_t)n * sizeof *at);
    if (at == NULL) {
        return MPI_ERR_OTHER;
    }
    if (in) {
        at = sizes_copy(&plan->in.displs, n, sizes_copy(&plan->in.counts, n, at));
    }
    if (out) {
        at = sizes_copy(&plan->out.displs, n, sizes_copy(&plan->out.counts, n, at));
    }
    if (counts) {
        sizes_copy(&plan->out.counts, n, at);
    }
    return MPI_SUCCESS;
}

/* The call of Rondo has ended: send the message. One that does not fit is an error, for which MPI calls the
 * error handler of the receive's communicator (shim_comm_self), and that shim_persistent_tell. */
static void persistent_ended(struct shim_request *request)
{
    const struct persistent *p = (const struct persistent *)request;
    MPI_Comm self;
    MPI_Request sent;
    char byte = 0;
    if (shim_comm_self(&self) == MPI_SUCCESS &&
        PMPI_Isend(&byte, request->code != MPI_SUCCESS, MPI_BYTE, 0, p->tag, self, &sent) == MPI_SUCCESS) {
        PMPI_Request_free(&sent);
    }
}

/* With the lock held. */
static void bucket_add(struct persistent *p)
{
    struct persistent **first = bucket_of(p->request.handle);
    p->next = *first;
    *first = p;
}

static rondo_status persistent_make(const struct shim_call *call, struct persistent **made)
{
    MPI_Comm self;
    RONDO_TRY(persistent_new(made));
    struct persistent *p = *made;
    p->plan = *call;
    if (!call->moves) {
        p->plan.has_in = p->plan.has_out = 0;
    }
    p->plan.in.packed = p->plan.out.packed = NULL;
    p->plan.in.held = p->plan.out.held = MPI_DATATYPE_NULL;
    p->plan.sizes = NULL;
    p->sizes = NULL;
    p->request.ended = persistent_ended;
    p->told = 1;
    if (side_keep(&p->plan.out, p->plan.has_out) != MPI_SUCCESS ||
        side_keep(&p->plan.in, p->plan.has_in) != MPI_SUCCESS || sizes_keep(p) != MPI_SUCCESS ||
        shim_comm_self(&self) != MPI_SUCCESS ||
        PMPI_Recv_init(NULL, 0, MPI_BYTE, 0, p->tag, self, &p->request.handle) != MPI_SUCCESS) {
        free(p->sizes);
        p->next = process.idle;
        process.idle = p;
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "no memory, or MPI cannot keep a type or a receive, for a persistent call on %s",
                          rondo_log_host());
    }
    bucket_add(p);
    __atomic_add_fetch(&process.nlive, 1, __ATOMIC_RELEASE);
    return RONDO_SUCCESS;
}

int shim_persistent_make(struct shim_call *call, MPI_Request *handle)
{
    struct persistent *p = NULL;
    pthread_mutex_lock(&process.lock);
    rondo_status status = persistent_make(call, &p);
    pthread_mutex_unlock(&process.lock);
    if (status != RONDO_SUCCESS) {
        return shim_error(call, status);
    }
    *handle = p->request.handle;
    return MPI_SUCCESS;
}

/* ---- start and free ---- */

static int persistent_start(struct persistent *p, MPI_Request *handle)
{
    struct shim_call *call = &p->request.call;
    int code = PMPI_Start(handle);
    if (code != MPI_SUCCESS) {
        return code;
    }
    if (*handle != p->request.handle) { /* MPI may give another one */
        pthread_mutex_lock(&process.lock);
        *place_of(p->request.handle) = p->next;
        p->request.handle = *handle;
        bucket_add(p);
        pthread_mutex_unlock(&process.lock);
    }
    *call = p->plan;
    p->told = 1; /* what fails here is said below */
    rondo_status status = call->c->failed ? RONDO_INVALID_USAGE : shim_request_issue(&p->request);
    if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
        p->request.code = MPI_ERR_OTHER;
        persistent_ended(&p->request);
        return shim_error(call, status);
    }
    p->told = 0;
    if (shim_reporting && !call->c->orphan) {
        shim_report_add(call, 1, 0);
    }
    if (status == RONDO_SUCCESS) {
        persistent_ended(&p->request);
    } else {
        shim_request_add(&p->request);
    }
    return MPI_SUCCESS;
}

/* The request is freed. */
static void persistent_drop(struct persistent *p)
{
    struct shim_comm *child = p->plan.c;
    side_drop(&p->plan.in, p->plan.has_in);
    side_drop(&p->plan.out, p->plan.has_out);
    free(p->sizes);
    pthread_mutex_lock(&process.lock);
    *place_of(p->request.handle) = p->next;
    __atomic_sub_fetch(&process.nlive, 1, __ATOMIC_RELEASE);
    p->next = process.idle;
    process.idle = p;
    pthread_mutex_unlock(&process.lock);
    shim_comm_leave_child(child);
}

/* Open MPI itself frees a request whose error the program has got, so this handle is another request's. */
static int is_gone(const struct persistent *p)
{
#ifdef OPEN_MPI
    return __atomic_load_n(&p->request.code, __ATOMIC_ACQUIRE) != MPI_SUCCESS;
#else
    return (void)p, 0;
#endif
}

int MPI_Start(MPI_Request *request)
{
    struct persistent *p = request != NULL ? find(*request) : NULL;
    if (p != NULL && is_gone(p)) {
        persistent_drop(p);
        p = NULL;
    }
    return p != NULL ? persistent_start(p, request) : PMPI_Start(request);
}

int MPI_Startall(int count, MPI_Request requests[])
{
    if (RONDO_LIKELY(__atomic_load_n(&process.nlive, __ATOMIC_ACQUIRE) == 0) || count < 0 ||
        requests == NULL) {
        return PMPI_Startall(count, requests);
    }
    for (int i = 0; i < count; i++) {
        int code = MPI_Start(&requests[i]);
        if (code != MPI_SUCCESS) {
            return code;
        }
    }
    return MPI_SUCCESS;
}

int MPI_Request_free(MPI_Request *request)
{
    struct persistent *p = request != NULL ? find(*request) : NULL;
    if (p != NULL) {
        persistent_drop(p);
    }
    return PMPI_Request_free(request);
}
