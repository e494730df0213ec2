/* The net device over an external net plugin for NCCL (plugin.h): the choice of a plugin, and the life of
 * a comm. */
#include "net/plugin/plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"

_Static_assert((int)RONDO_NET_HANDLE >= (int)RONDO_PLUGIN_HANDLE, "a handle holds a plugin's");
_Static_assert((int)RONDO_NET_HOST == (int)RONDO_PLUGIN_HOST &&
                   (int)RONDO_NET_CUDA == (int)RONDO_PLUGIN_CUDA &&
                   (int)RONDO_NET_DMABUF == (int)RONDO_PLUGIN_DMABUF,
               "kinds of memory have a plugin's numbers");

enum {
    MAGIC = 0x6e67706c /* "lpgn" */,
    VERSION = 2,
    POOL = 2 * RONDO_NET_MAX_REQUESTS /* messages, and flushes */
};

/* A sender's handle. A receiver's handle is entirely the plugin's. */
struct sender_handle {
    uint32_t magic;
    uint16_t version, abi;
    uint64_t proof;  /* rondo_netdev_proof, with the nonce */
    uint64_t plugin; /* hash of the plugin's name */
    uint64_t nonce;
};
_Static_assert(sizeof(struct sender_handle) <= RONDO_NET_HANDLE, "a handle holds it");

struct region {
    struct region *next, **link;
    void *region; /* from the plugin */
};

struct comm;

struct request {
    struct comm *comm;
    void *request; /* from the plugin; NULL: free */
    int n;         /* parts of a receive, 0: other */
    size_t room[RONDO_NET_MAX_RECVS];
};

struct comm {
    struct rondo_net_peer peer;
    int device, is_send, has_handle;
    struct rondo_plugin_context *context;
    void *listener, *comm; /* from the plugin; comm NULL: not connected */
    struct region *regions;
    rondo_status status; /* the error that ended it, with its sentence */
    char text[RONDO_ERROR_TEXT];
    int nflushes, nmessages;
    struct request request[POOL];
    uint8_t handle[RONDO_PLUGIN_HANDLE] RONDO_ALIGNED(16); /* the plugin of a sender keeps its state in it */
};

/* The lock protects opening and contexts; a comm is used by one thread. */
static struct {
    pthread_mutex_t lock;
    int done;
    char why[256];
    struct rondo_plugin plugin;
} used = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void in_child(void)
{
    (void)rondo_fork_lock(&used.lock);
    memset(&used.plugin, 0, sizeof(used.plugin)); /* its contexts are the parent's */
    used.done = 0;
}
RONDO_AT_FORK(in_child)

const char *rondo_netdev_plugin_name(void) { return used.plugin.name; }

/* ---- which one ---- */

static void found_one(void)
{
    snprintf(used.why, sizeof used.why, "%s (v%d, %.160s)", used.plugin.name, used.plugin.abi->version,
             used.plugin.path);
}

/* Without RONDO_NET_PLUGIN, a missing libnccl-net.so is no error. */
static rondo_status open_default(void)
{
    if (rondo_plugin_open(&used.plugin, "libnccl-net.so") == RONDO_SUCCESS) {
        found_one();
    } else {
        const char *text = rondo_error_text();
        snprintf(used.why, sizeof used.why, "%.200s",
                 strstr(text, "libnccl-net.so: cannot open shared object file") != NULL
                     ? "there is no libnccl-net.so"
                     : text);
        rondo_error_clear();
    }
    return RONDO_SUCCESS;
}

/* Try the named plugins in turn; if none works, fail. */
static rondo_status open_asked(const char *words)
{
    char text[RONDO_ERROR_TEXT] = "it names none";
    char *copy, *save = NULL;
    rondo_status status = RONDO_INVALID_ARGUMENT;
    RONDO_TRY(rondo_calloc(&copy, 1, strlen(words) + 1, "the names of net plugins"));
    memcpy(copy, words, strlen(words));
    for (char *word = strtok_r(copy, ", ", &save); word != NULL; word = strtok_r(NULL, ", ", &save)) {
        if (strcasecmp(word, "none") == 0) {
            snprintf(used.why, sizeof used.why, "RONDO_NET_PLUGIN is none");
            status = RONDO_SUCCESS;
            break;
        }
        status = rondo_plugin_open(&used.plugin, word);
        if (status == RONDO_SUCCESS) {
            found_one();
            break;
        }
        snprintf(text, sizeof text, "%s", rondo_error_text());
        RONDO_INFO(RONDO_SUBSYS_NET, "net: %s", text);
    }
    rondo_free(copy);
    return status == RONDO_SUCCESS
               ? status
               : rondo_fail(status, "%.400s; RONDO_NET_PLUGIN=none uses verbs and sockets", text);
}

static rondo_status plugin_init(int *ndevices, char *why, size_t bytes)
{
    rondo_status status = RONDO_SUCCESS;
    pthread_mutex_lock(&used.lock);
    if (!used.done) {
        const char *words = rondo_params()->net_plugin;
        used.why[0] = '\0';
        status = words[0] == '\0' ? open_default() : open_asked(words);
        used.done = status == RONDO_SUCCESS;
    }
    *ndevices = used.plugin.ndevices;
    if (why != NULL && bytes > 0) {
        snprintf(why, bytes, "%s", used.why);
    }
    pthread_mutex_unlock(&used.lock);
    return status;
}

static void plugin_finalize(void)
{
    pthread_mutex_lock(&used.lock);
    rondo_plugin_close(&used.plugin);
    used.done = 0;
    pthread_mutex_unlock(&used.lock);
}

static rondo_status device_check(int device)
{
    return device >= 0 && device < used.plugin.ndevices
               ? RONDO_SUCCESS
               : rondo_fail(RONDO_INVALID_ARGUMENT,
                            "there is no device %d of a net plugin on host %s; it has %d", device,
                            rondo_log_host(), used.plugin.ndevices);
}

static rondo_status plugin_properties(int device, struct rondo_net_properties *properties)
{
    RONDO_TRY(device_check(device));
    *properties = used.plugin.device[device].properties;
    return RONDO_SUCCESS;
}

/* ---- errors ---- */

static rondo_status comm_end(struct comm *comm, rondo_status status, const char *what)
{
    rondo_fail(status, "%.340s (the other end is rank %d on %s; this one is %s of %s, channel %d)", what,
               comm->peer.rank, comm->peer.host, used.plugin.device[comm->device].properties.name,
               rondo_log_host(), comm->peer.channel);
    snprintf(comm->text, sizeof comm->text, "%s", rondo_error_text());
    comm->status = status;
    return status;
}

static rondo_status comm_ended(const struct comm *comm)
{
    return rondo_fail_quiet(comm->status, "%s", comm->text);
}

/* Convert the code of a plugin's function; an error ends the comm. */
static rondo_status after(struct comm *comm, const char *function, int code)
{
    char text[RONDO_ERROR_TEXT];
    if (code == 0) {
        return RONDO_SUCCESS;
    }
    rondo_plugin_says(&used.plugin, function, code, text, sizeof text);
    return comm_end(comm, rondo_plugin_status(code, 1), text);
}

/* A caller's mistake that the plugin does not see: the comm continues. */
static rondo_status refuse(const struct comm *comm, const char *what)
{
    return rondo_fail(RONDO_INVALID_ARGUMENT, "net plugin %s, device %s of %s: %s", used.plugin.name,
                      used.plugin.device[comm->device].properties.name, rondo_log_host(), what);
}

/* ---- the life of a comm ---- */

static void plugin_close(void *arg)
{
    struct comm *comm = arg;
    const struct rondo_plugin_net *net = used.plugin.net;
    int code = 0;
    if (comm == NULL) {
        return;
    }
    rondo_library_log_quiet(1);
    while (comm->regions != NULL) {
        struct region *region = comm->regions;
        comm->regions = region->next;
        code |= net->unreg(comm->comm, region->region);
        rondo_free(region);
    }
    if (comm->comm != NULL) {
        code |= comm->is_send ? net->close_send(comm->comm) : net->close_recv(comm->comm);
    }
    if (comm->listener != NULL) {
        code |= net->close_listen(comm->listener);
    }
    rondo_library_log_quiet(0);
    if (code != 0) { /* as after the death of a peer */
        RONDO_INFO(RONDO_SUBSYS_NET, "net plugin %s: a connection with rank %d on %s did not close cleanly",
                   used.plugin.name, comm->peer.rank, comm->peer.host);
    }
    if (comm->context != NULL) {
        pthread_mutex_lock(&used.lock);
        rondo_plugin_context_put(&used.plugin, comm->context);
        pthread_mutex_unlock(&used.lock);
    }
    rondo_free(comm);
}

static uint64_t name_hash(void) { return rondo_hash(used.plugin.name, strlen(used.plugin.name), MAGIC); }

static rondo_status comm_open(struct comm *comm, void *handle)
{
    char text[RONDO_ERROR_TEXT];
    rondo_status status;
    pthread_mutex_lock(&used.lock);
    status = rondo_plugin_context_get(&used.plugin, comm->peer.secret, &comm->context);
    pthread_mutex_unlock(&used.lock);
    if (status != RONDO_SUCCESS) {
        snprintf(text, sizeof text, "%s", rondo_error_text());
        return comm_end(comm, status, text);
    }
    if (comm->is_send) {
        struct sender_handle mine = { .magic = MAGIC,
                                      .version = VERSION,
                                      .abi = (uint16_t)used.plugin.abi->version,
                                      .plugin = name_hash() };
        RONDO_TRY(rondo_random(&mine.nonce, sizeof mine.nonce));
        mine.proof = rondo_netdev_proof(&comm->peer, "plugin", 1, 1, mine.nonce);
        memcpy(handle, &mine, sizeof mine);
        return RONDO_SUCCESS;
    }
    rondo_library_call();
    RONDO_TRY(after(comm, "listen",
                    used.plugin.abi->listen(used.plugin.net, comm->context, comm->device, comm->handle,
                                            &comm->listener)));
    memcpy(handle, comm->handle, sizeof comm->handle);
    return comm->listener != NULL ? RONDO_SUCCESS
                                  : comm_end(comm, RONDO_INTERNAL_ERROR,
                                             "the net plugin's listen gave success, but no listener");
}

static rondo_status plugin_prepare(int device, const struct rondo_net_peer *peer, int is_send, void **comm,
                                   void *handle)
{
    struct comm *new;
    rondo_status status;
    *comm = NULL;
    RONDO_TRY(device_check(device));
    RONDO_TRY(RONDO_NEW(new, "a comm of a net plugin"));
    new->device = device;
    new->peer = *peer;
    new->peer.host[sizeof new->peer.host - 1] = '\0';
    new->is_send = is_send != 0;
    memset(handle, 0, RONDO_NET_HANDLE);
    status = comm_open(new, handle);
    if (status != RONDO_SUCCESS) {
        plugin_close(new);
        return status;
    }
    *comm = new;
    return RONDO_SUCCESS;
}

/* The sender's handle tells whether both ends agree; only the plugin can check the receiver's. */
static rondo_status handle_take(struct comm *comm, const void *handle)
{
    struct sender_handle other;
    comm->has_handle = 1;
    if (comm->is_send) {
        memcpy(comm->handle, handle, sizeof comm->handle);
        return RONDO_SUCCESS;
    }
    memcpy(&other, handle, sizeof other);
    if (other.magic != MAGIC || other.version != VERSION ||
        other.proof != rondo_netdev_proof(&comm->peer, "plugin", 0, 1, other.nonce)) {
        return comm_end(comm, RONDO_REMOTE_ERROR,
                        "the other end's handle is not a sender's handle of a net plugin of this "
                        "communicator");
    }
    if (other.plugin != name_hash()) {
        return comm_end(
            comm, RONDO_INVALID_USAGE,
            "the two ends have loaded different net plugins; set RONDO_NET_PLUGIN the same on all hosts");
    }
    return RONDO_SUCCESS;
}

static rondo_status plugin_connect(void *arg, const void *handle)
{
    struct comm *comm = arg;
    const struct rondo_plugin_net *net = used.plugin.net;
    void *offload = NULL;
    if (comm->status != RONDO_SUCCESS) {
        return comm_ended(comm);
    }
    if (comm->comm != NULL) {
        return RONDO_SUCCESS;
    }
    if (!comm->has_handle) {
        RONDO_TRY(handle_take(comm, handle));
    }
    rondo_library_call();
    if (comm->is_send) {
        RONDO_TRY(
            after(comm, "connect",
                  used.plugin.abi->connect(net, comm->context, comm->device, comm->handle, &comm->comm)));
    } else {
        RONDO_TRY(after(comm, "accept", net->accept(comm->listener, &comm->comm, &offload)));
    }
    if (comm->comm == NULL) {
        return RONDO_IN_PROGRESS;
    }
    if (comm->listener != NULL) {
        void *listener = comm->listener;
        comm->listener = NULL;
        RONDO_TRY(after(comm, "closeListen", net->close_listen(listener)));
    }
    RONDO_INFO(RONDO_SUBSYS_NET, "net: plugin %s, device %s: %s rank %d on %s, channel %d", used.plugin.name,
               used.plugin.device[comm->device].properties.name, comm->is_send ? "sends to" : "receives from",
               comm->peer.rank, comm->peer.host, comm->peer.channel);
    return RONDO_SUCCESS;
}

/* ---- memory ---- */

static int call_reg(struct comm *comm, void *data, size_t bytes, int kind, int fd, void **region)
{
    const struct rondo_plugin_net *net = used.plugin.net;
    return kind == RONDO_NET_DMABUF
               ? net->reg_dmabuf(comm->comm, data, bytes, RONDO_PLUGIN_CUDA, 0, fd, region)
               : net->reg(comm->comm, data, bytes, kind, region);
}

static rondo_status plugin_reg(void *arg, void *data, size_t bytes, int kind, int fd, void **region)
{
    struct comm *comm = arg;
    uint32_t memory = used.plugin.device[comm->device].properties.memory;
    const char *function = kind == RONDO_NET_DMABUF ? "regMrDmaBuf" : "regMr";
    char text[RONDO_ERROR_TEXT], what[RONDO_ERROR_TEXT];
    struct region *new;
    int code;
    *region = NULL;
    if (comm->status != RONDO_SUCCESS) {
        return comm_ended(comm);
    }
    if ((kind != RONDO_NET_HOST && kind != RONDO_NET_CUDA && kind != RONDO_NET_DMABUF) ||
        ((uint32_t)kind & memory) == 0 || (kind == RONDO_NET_DMABUF && used.plugin.net->reg_dmabuf == NULL)) {
        return refuse(comm, "it takes no memory of this kind");
    }
    if (comm->comm == NULL) {
        return refuse(comm, "memory can be registered only after connecting");
    }
    RONDO_TRY(RONDO_NEW(new, "a region of a net plugin"));
    rondo_library_call();
    code = call_reg(comm, data, bytes, kind, fd, &new->region);
    if (code != 0) { /* another region may work */
        rondo_free(new);
        rondo_plugin_says(&used.plugin, function, code, text, sizeof text);
        snprintf(what, sizeof what, "%.380s; %zu bytes at %p on %s; check ulimit -l", text, bytes, data,
                 rondo_log_host());
        return rondo_fail(rondo_plugin_status(code, 0), "%s", what);
    }
    new->next = comm->regions;
    new->link = &comm->regions;
    if (new->next != NULL) {
        new->next->link = &new->next;
    }
    comm->regions = new;
    *region = new;
    return RONDO_SUCCESS;
}

static rondo_status plugin_unreg(void *arg, void *region)
{
    struct comm *comm = arg;
    struct region *old = region;
    int code;
    if (old == NULL) {
        return RONDO_SUCCESS;
    }
    *old->link = old->next;
    if (old->next != NULL) {
        old->next->link = old->link;
    }
    rondo_library_call();
    code = used.plugin.net->unreg(comm->comm, old->region);
    rondo_free(old);
    return after(comm, "deregMr", code);
}

static void *region_of(const struct region *region) { return region != NULL ? region->region : NULL; }

/* ---- messages ---- */

/* @return NULL: the promised number is in flight. */
static struct request *request_free(struct comm *comm, int *count)
{
    for (int i = 0; *count < RONDO_NET_MAX_REQUESTS && i < POOL; i++) {
        if (comm->request[i].request == NULL) {
            return &comm->request[i];
        }
    }
    return NULL;
}

/* The plugin accepted it, had no room, or failed. */
static rondo_status request_begun(struct comm *comm, struct request *new, int *count, const char *function,
                                  int code, void **request)
{
    if (code != 0) {
        new->request = NULL;
        return after(comm, function, code);
    }
    if (new->request != NULL) {
        new->comm = comm;
        ++*count;
        *request = new;
    }
    return RONDO_SUCCESS;
}

/* Before it is called. */
static rondo_status comm_ready(const struct comm *comm)
{
    rondo_library_call();
    if (comm->status != RONDO_SUCCESS) {
        return comm_ended(comm);
    }
    return comm->comm != NULL ? RONDO_SUCCESS : refuse(comm, "it is not connected");
}

static rondo_status plugin_isend(void *arg, const void *data, size_t bytes, int tag, void *region,
                                 void **request)
{
    struct comm *comm = arg;
    struct request *new = request_free(comm, &comm->nmessages);
    *request = NULL;
    RONDO_TRY(comm_ready(comm));
    if (bytes > used.plugin.device[comm->device].max_bytes) {
        return refuse(comm, "a message is longer than it takes");
    }
    if (new == NULL) {
        return RONDO_SUCCESS;
    }
    new->n = 0;
    return request_begun(comm, new, &comm->nmessages, "isend",
                         used.plugin.abi->isend(used.plugin.net, comm->comm, (void *)(uintptr_t)data, bytes,
                                                tag, region_of(region), &new->request),
                         request);
}

static rondo_status plugin_irecv(void *arg, int n, void *const *data, const size_t *bytes, const int *tags,
                                 void *const *regions, void **request)
{
    struct comm *comm = arg;
    struct request *new = request_free(comm, &comm->nmessages);
    void *where[RONDO_NET_MAX_RECVS], *region[RONDO_NET_MAX_RECVS];
    int tag[RONDO_NET_MAX_RECVS];
    *request = NULL;
    RONDO_TRY(comm_ready(comm));
    if (n < 1 || n > used.plugin.device[comm->device].properties.max_recvs) {
        return refuse(comm, "a receive has more parts than it takes");
    }
    if (new == NULL) {
        return RONDO_SUCCESS;
    }
    new->n = n;
    for (int i = 0; i < n; i++) {
        where[i] = data[i];
        new->room[i] = rondo_min_size(bytes[i], RONDO_PLUGIN_BYTES); /* no message is longer */
        tag[i] = tags[i];
        region[i] = region_of(regions[i]);
    }
    return request_begun(
        comm, new, &comm->nmessages, "irecv",
        used.plugin.abi->irecv(used.plugin.net, comm->comm, n, where, new->room, tag, region, &new->request),
        request);
}

static rondo_status plugin_iflush(void *arg, int n, void *const *data, const size_t *bytes,
                                  void *const *regions, void **request)
{
    struct comm *comm = arg;
    struct request *new = request_free(comm, &comm->nflushes);
    const struct rondo_plugin_net *net = used.plugin.net;
    void *where[RONDO_NET_MAX_RECVS], *region[RONDO_NET_MAX_RECVS];
    int sizes[RONDO_NET_MAX_RECVS];
    *request = NULL;
    RONDO_TRY(comm_ready(comm));
    if (n < 1 || n > RONDO_NET_MAX_RECVS || net->iflush == NULL) {
        return refuse(comm, net->iflush == NULL ? "it cannot flush" : "a flush has more parts than it takes");
    }
    if (new == NULL) {
        return rondo_fail(RONDO_INVALID_USAGE, "net plugin %s: more than %d flushes are in flight",
                          used.plugin.name, RONDO_NET_MAX_REQUESTS);
    }
    new->n = -1;
    for (int i = 0; i < n; i++) {
        where[i] = data[i];
        sizes[i] = (int)rondo_min_size(bytes[i], RONDO_PLUGIN_BYTES);
        region[i] = region_of(regions[i]);
    }
    return request_begun(comm, new, &comm->nflushes, "iflush",
                         net->iflush(comm->comm, n, where, sizes, region, &new->request), request);
}

/* The plugin reports the sizes. Writes past the room cannot be undone, but are detected. */
static rondo_status sizes_take(const struct request *request, const int *sizes, size_t *bytes)
{
    for (int i = 0; i < request->n; i++) {
        if (sizes[i] < 0 || (size_t)sizes[i] > request->room[i]) {
            char text[160];
            snprintf(text, sizeof text, "net plugin %s reports a message of %d bytes in a buffer of %zu",
                     used.plugin.name, sizes[i], request->room[i]);
            return comm_end(request->comm, RONDO_INVALID_USAGE, text);
        }
        if (bytes != NULL) {
            bytes[i] = (size_t)sizes[i];
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status plugin_test(void *arg, int *done, size_t *bytes)
{
    struct request *request = arg;
    struct comm *comm = request->comm;
    int sizes[RONDO_NET_MAX_RECVS] = { 0 }, finished = 0;
    *done = 0;
    if (comm->status != RONDO_SUCCESS) {
        return comm_ended(comm);
    }
    rondo_library_call();
    RONDO_TRY(after(comm, "test", used.plugin.net->test(request->request, &finished, sizes)));
    if (!finished) {
        return RONDO_SUCCESS;
    }
    request->request = NULL;
    if (request->n < 0) {
        comm->nflushes--;
    } else {
        comm->nmessages--;
    }
    RONDO_TRY(sizes_take(request, sizes, bytes));
    *done = 1;
    return RONDO_SUCCESS;
}

const struct rondo_net_device rondo_netdev_plugin = {
    .name = "plugin",
    .init = plugin_init,
    .properties = plugin_properties,
    .prepare = plugin_prepare,
    .connect = plugin_connect,
    .reg = plugin_reg,
    .unreg = plugin_unreg,
    .isend = plugin_isend,
    .irecv = plugin_irecv,
    .iflush = plugin_iflush,
    .test = plugin_test,
    .close = plugin_close,
    .finalize = plugin_finalize,
};
