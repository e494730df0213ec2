/* The fake CUDA driver: capture of streams, graphs and their launches. */
#include "fake_cuda.h"

#include <stdlib.h>
#include <string.h>

struct node {
    struct fake_op op;
    int before[FAKE_TAILS], nbefore;
    int has_next;
};
struct retained {
    CUuserObject object;
    unsigned count;
};

struct CUgraph_st {
    struct node *node;
    int n, capacity;
    struct retained retained[FAKE_TAILS];
    int nretained;
};
struct CUgraphExec_st {
    CUgraph graph; /* a copy of its own */
};
struct CUuserObject_st {
    unsigned refs;
    CUhostFn destroy;
    void *arg;
};

static struct fake_capture *captures;
static uint64_t last_id;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* ---- user objects ---- */

static void *destroy_object(void *arg)
{
    CUuserObject object = arg;
    object->destroy(object->arg);
    free(object);
    fake_count(FAKE_OBJECT, -1);
    return NULL;
}

/* The driver calls destructors in a thread of its own, where they must make no CUDA call. Call with the lock
 * held. */
static void object_release(CUuserObject object, unsigned count)
{
    pthread_t thread;
    object->refs -= count;
    if (object->refs == 0 && pthread_create(&thread, NULL, destroy_object, object) == 0) {
        pthread_detach(thread);
    }
}

CUresult cuUserObjectCreate(CUuserObject *object, void *arg, CUhostFn destroy, unsigned refs, unsigned flags)
{
    FAKE_ENTER("cuUserObjectCreate");
    if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC || refs == 0) return CUDA_ERROR_INVALID_VALUE;
    *object = malloc(sizeof(**object));
    if (*object == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    **object = (struct CUuserObject_st){ refs, destroy, arg };
    fake_count(FAKE_OBJECT, 1);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count)
{
    FAKE_ENTER("cuUserObjectRelease");
    pthread_mutex_lock(&fake.lock);
    object_release(object, count);
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    FAKE_ENTER("cuGraphRetainUserObject");
    pthread_mutex_lock(&fake.lock);
    if (graph->nretained < FAKE_TAILS) {
        if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) object->refs += count;
        graph->retained[graph->nretained++] = (struct retained){ object, count };
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* ---- graphs ---- */

CUgraph fake_graph_new(void) { return calloc(1, sizeof(struct CUgraph_st)); }

void fake_graph_free(CUgraph graph)
{
    for (int i = 0; i < graph->n; i++) {
        free(graph->node[i].op.parameter);
    }
    for (int i = 0; i < graph->nretained; i++) {
        object_release(graph->retained[i].object, graph->retained[i].count);
    }
    free(graph->node);
    free(graph);
}

static int graph_grow(CUgraph graph)
{
    struct node *more;
    if (graph->n < graph->capacity) return 1;
    more = realloc(graph->node, sizeof(*more) * (size_t)(graph->capacity + 64));
    if (more == NULL) return 0;
    graph->node = more;
    graph->capacity += 64;
    return 1;
}

CUresult fake_graph_add(CUgraph graph, const struct fake_op *op, int *tail, int *ntails)
{
    struct node *node;
    if (!graph_grow(graph)) return CUDA_ERROR_OUT_OF_MEMORY;
    node = &graph->node[graph->n];
    memset(node, 0, sizeof(*node));
    node->op = *op;
    node->nbefore = *ntails;
    memcpy(node->before, tail, sizeof node->before);
    for (int i = 0; i < *ntails; i++) {
        graph->node[tail[i]].has_next = 1;
    }
    tail[0] = graph->n++;
    *ntails = 1;
    return CUDA_SUCCESS;
}

int fake_graph_is_joined(const struct CUgraph_st *graph, const int *tail, int ntails)
{
    for (int i = 0; i < graph->n; i++) {
        int joined = graph->node[i].has_next;
        for (int t = 0; t < ntails; t++) {
            joined |= tail[t] == i;
        }
        if (!joined) return 0;
    }
    return 1;
}

static CUgraph graph_copy(const struct CUgraph_st *graph)
{
    CUgraph copy = fake_graph_new();
    for (int i = 0; copy != NULL && i < graph->n; i++) {
        struct node *node;
        if (!graph_grow(copy)) {
            fake_graph_free(copy);
            return NULL;
        }
        node = &copy->node[copy->n++];
        *node = graph->node[i];
        if (node->op.parameter != NULL && (node->op.parameter = malloc(FAKE_PARAMETER)) != NULL) {
            memcpy(node->op.parameter, graph->node[i].op.parameter, FAKE_PARAMETER);
        }
    }
    for (int i = 0; copy != NULL && i < graph->nretained; i++) {
        copy->retained[copy->nretained++] = graph->retained[i];
        graph->retained[i].object->refs += graph->retained[i].count;
    }
    return copy;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    FAKE_ENTER("cuGraphInstantiate");
    (void)flags;
    *exec = calloc(1, sizeof(**exec));
    if (*exec == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake.lock);
    (*exec)->graph = graph_copy(graph);
    pthread_mutex_unlock(&fake.lock);
    if ((*exec)->graph == NULL) {
        free(*exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_count(FAKE_EXEC, 1);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    FAKE_ENTER("cuGraphDestroy");
    pthread_mutex_lock(&fake.lock);
    fake_graph_free(graph);
    fake_count(FAKE_GRAPH, -1);
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    FAKE_ENTER("cuGraphExecDestroy");
    pthread_mutex_lock(&fake.lock);
    fake_graph_free(exec->graph);
    fake_count(FAKE_EXEC, -1);
    pthread_mutex_unlock(&fake.lock);
    free(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    const struct fake_op op = { .kind = FAKE_OP_GRAPH, .graph = exec };
    CUcontext ctx;
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    CUstream s;
    FAKE_ENTER_CTX("cuGraphLaunch", ctx);
    pthread_mutex_lock(&fake.lock);
    s = fake_stream(stream, ctx);
    if (s != NULL) result = fake_issue(s, &op);
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* ---- launches: nodes without open dependencies run concurrently ---- */

struct running {
    const struct CUgraph_st *graph;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    uint8_t *state; /* 0: waits, 1: runs, 2: has ended */
    CUresult result;
};
struct running_node {
    struct running *run;
    int index;
    pthread_t thread;
};

static void run_node(struct running *run, int index)
{
    CUresult result = fake_run(&run->graph->node[index].op);
    pthread_mutex_lock(&run->lock);
    run->state[index] = 2;
    run->result = run->result == CUDA_SUCCESS ? result : run->result;
    pthread_cond_broadcast(&run->ended);
    pthread_mutex_unlock(&run->lock);
}

static void *node_main(void *arg)
{
    struct running_node *node = arg;
    fake_open_memory();
    run_node(node->run, node->index);
    return NULL;
}

static int is_ready(const struct running *run, int i)
{
    const struct node *node = &run->graph->node[i];
    for (int k = 0; k < node->nbefore; k++) {
        if (run->state[node->before[k]] != 2) return 0;
    }
    return run->state[i] == 0;
}

/* The next node that can run; -1: all have ended. Call with the lock held. */
static int next_node(struct running *run)
{
    for (;;) {
        int left = 0;
        for (int i = 0; i < run->graph->n; i++) {
            left += run->state[i] != 2;
            if (is_ready(run, i)) {
                run->state[i] = 1;
                return i;
            }
        }
        if (left == 0) return -1;
        pthread_cond_wait(&run->ended, &run->lock);
    }
}

/* Is node i the only one that runs or could run? */
static int alone(const struct running *run, int i)
{
    for (int k = 0; k < run->graph->n; k++) {
        if (k != i && (run->state[k] == 1 || is_ready(run, k))) return 0;
    }
    return 1;
}

CUresult fake_run_graph(CUgraphExec exec)
{
    struct running run = { .graph = exec->graph,
                           .lock = PTHREAD_MUTEX_INITIALIZER,
                           .ended = PTHREAD_COND_INITIALIZER };
    struct running_node *node = calloc((size_t)exec->graph->n + 1, sizeof(*node));
    int started = 0, i;
    run.state = calloc((size_t)exec->graph->n + 1, 1);
    if (node == NULL || run.state == NULL) {
        free(node);
        free(run.state);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&run.lock);
    while ((i = next_node(&run)) >= 0) {
        const int by_itself = alone(&run, i);
        pthread_mutex_unlock(&run.lock);
        node[started] = (struct running_node){ .run = &run, .index = i };
        if (by_itself || pthread_create(&node[started].thread, NULL, node_main, &node[started]) != 0) {
            run_node(&run, i);
        } else {
            started++;
        }
        pthread_mutex_lock(&run.lock);
    }
    pthread_mutex_unlock(&run.lock);
    for (int k = 0; k < started; k++) {
        pthread_join(node[k].thread, NULL);
    }
    free(node);
    free(run.state);
    return run.result;
}

/* ---- capturing ---- */

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = thread_mode;
    FAKE_ENTER("cuThreadExchangeStreamCaptureMode");
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

CUresult fake_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    for (struct fake_capture *c = captures; c != NULL && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
         c = c->next) {
        const int own = pthread_equal(c->owner, pthread_self());
        if ((own && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
            (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
            c->invalid = 1;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    CUcontext ctx;
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    struct fake_capture *c;
    CUstream s;
    FAKE_ENTER_CTX("cuStreamBeginCapture", ctx);
    c = calloc(1, sizeof(*c));
    if (c == NULL || (c->graph = fake_graph_new()) == NULL) {
        free(c);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&fake.lock);
    s = fake_stream(stream, ctx);
    if (s != NULL && (s->legacy || s->capture != NULL)) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (s != NULL) {
        c->id = ++last_id;
        c->origin = s;
        c->mode = mode;
        c->owner = pthread_self();
        c->next = captures;
        captures = c;
        s->capture = c;
        s->ntails = 0;
        fake_count(FAKE_GRAPH, 1);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    if (result != CUDA_SUCCESS) {
        fake_graph_free(c->graph);
        free(c);
    }
    return result;
}

static CUresult end_capture(struct fake_capture *c, CUgraph *graph)
{
    struct fake_capture **at = &captures;
    CUresult result = CUDA_SUCCESS;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->owner, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (!fake_graph_is_joined(c->graph, c->origin->tail, c->origin->ntails))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (c->invalid) result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    fake_capture_leave(c);
    *graph = result == CUDA_SUCCESS ? c->graph : NULL;
    if (result != CUDA_SUCCESS) {
        fake_graph_free(c->graph);
        fake_count(FAKE_GRAPH, -1);
    }
    free(c);
    return result;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    CUcontext ctx;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    CUstream s;
    FAKE_ENTER_CTX("cuStreamEndCapture", ctx);
    pthread_mutex_lock(&fake.lock);
    s = fake_stream(stream, ctx);
    if (s != NULL && s->capture != NULL && s->capture->origin == s) result = end_capture(s->capture, graph);
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static CUstreamCaptureStatus status_of(CUstream s)
{
    if (s->capture == NULL) return CU_STREAM_CAPTURE_STATUS_NONE;
    return s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    CUstream s;
    FAKE_ENTER("cuStreamIsCapturing");
    pthread_mutex_lock(&fake.lock);
    s = fake_stream(stream, fake_current());
    if (s != NULL) {
        *status = status_of(s);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                CUgraph *graph, const CUgraphNode **nodes, const CUgraphEdgeData **edges,
                                size_t *n)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    CUstream s;
    FAKE_ENTER("cuStreamGetCaptureInfo");
    pthread_mutex_lock(&fake.lock);
    s = fake_stream(stream, fake_current());
    if (s != NULL) {
        *status = status_of(s);
        if (id != NULL) *id = s->capture != NULL ? s->capture->id : 0;
        if (graph != NULL) *graph = s->capture != NULL ? s->capture->graph : NULL;
        if (nodes != NULL) *nodes = NULL;
        if (edges != NULL) *edges = NULL;
        if (n != NULL) *n = 0;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}
