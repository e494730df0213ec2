/*
 * An NCCL net plugin of any version from 8 to 12 (-DVERSION=N; 7 exports only its name) that the tests of the
 * plugin device compile and load. It moves bytes between comms of one process and checks how it is called:
 * mock_net.bad counts violations of the version's rules. It may be hostile (mock_net_hostile.h).
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mock_net_hostile.h"
#include "mock_net_plugin.h"

#define GLUE(a, b) a##b
#define PASTE(a, b) GLUE(a, b)

enum { SYSTEM = 2, INTERNAL = 3, USAGE = 5 };
enum {
    HANDLE = 128,
    STAGE = 100,
    LISTENERS = 64,
    QUEUE = 256,
    PARTS = 8,
    DEVICES = 2,
    ROOM = 40 /* most waiting sends */
};

__attribute__((visibility("default"))) struct mock_net mock_net = { .version = VERSION,
                                                                    .traffic_class = -99 };

static void bad(const char *what)
{
    if (mock_net.bad++ == 0) {
        snprintf(mock_net.text, sizeof mock_net.text, "%s", what);
    }
}

/* ---- init ---- */

#if VERSION >= 11
struct context {
    uint64_t id;
};
#define CONTEXT struct context *context,
#define CHECK_CONTEXT() (context->id != 0 ? (void)0 : bad("context")) /* 0 is not a communicator's id */
#else
#define CONTEXT
#define CHECK_CONTEXT()
#endif

static int begin(log_fn log)
{
    logger = log;
    if (number("init", 0) != 0) {
        return number("init", 0);
    }
    log(3, 16, __func__, __LINE__, "mock of version %d begins%s", VERSION, "");
    mock_net.logs++;
    mock_net.inits++;
    return 0;
}

static profile_fn tells;

__attribute__((unused)) static int profiled(profile_fn profile)
{
    void *event = &profile;
    tells = profile;
    return profile != NULL && profile(&event, 0, NULL, 0, NULL) == 0 && event == NULL;
}

#if VERSION >= 11
static int net_init(void **out, uint64_t id, const int *config, log_fn log, profile_fn profile)
{
    struct context *context;
    int code = begin(log);
    if (code != 0) {
        return code;
    }
    context = malloc(sizeof *context);
    context->id = id;
    *out = context;
    mock_net.ids[(mock_net.inits - 1) % 8] = id;
    mock_net.traffic_class = *config;
    if (!profiled(profile)) {
        bad("profile");
    }
    return 0;
}

static int net_finalize(struct context *context)
{
    mock_net.finals++;
    free(context);
    return 0;
}
#elif VERSION == 10
static int net_init(log_fn log, profile_fn profile)
{
    if (!profiled(profile)) {
        bad("profile");
    }
    return begin(log);
}
#else
static int net_init(log_fn log) { return begin(log); }
#endif

/* ---- devices ---- */

static int net_devices(int *n)
{
    *n = number("devices", DEVICES);
    return number("devicescode", 0);
}

static int net_properties(int device, struct properties *p)
{
    static char names[DEVICES][8] = { "mock0", "mock1" }, path[] = "/sys/devices/pci0000:00/0000:00:1f.0",
                odd[] = "mo\nck";
    if (device < 0 || device >= DEVICES) {
        bad("device");
        return INTERNAL;
    }
    memset(p, 0x5a, sizeof *p); /* fields not set below are not zero */
    p->name = word("nonames") != NULL ? NULL : word("badname") != NULL ? odd : names[device];
    p->pciPath = device == 0 && word("nonames") == NULL ? path : NULL;
    p->guid = 0x1122334455667700ull + (unsigned)device;
    p->ptrSupport = 7;
    p->speed = 400000;
    p->port = 1 + device;
    p->latency = 1.5f;
    p->maxComms = 1234;
    p->maxRecvs = PARTS;
    p->netDeviceType = word("offload") != NULL ? 1 : 0;
#if VERSION >= 9
    p->forceFlush = word("forceflush") != NULL ? 1 : p->forceFlush;
    p->vProps.ndevs = 1;
    p->vProps.devs[0] = device;
    p->maxP2pBytes = 8 << 20;
    p->maxCollBytes = 1 << 20;
#endif
#if VERSION >= 11
    p->maxMultiRequestSize = 1;
#endif
#if VERSION >= 12
    p->railId = p->planeId = -1;
#endif
    if (word("wild") != NULL) {
        p->speed = p->maxComms = p->maxRecvs = -7;
        p->latency = -1;
        p->ptrSupport = -1;
#if VERSION >= 9
        p->maxP2pBytes = 0;
#endif
    }
    return number("properties", 0);
}

/* ---- connections ---- */

struct request;

/* Both ends of a direction. */
struct channel {
    int refs, nsends, nreceives;
    struct request *send[QUEUE], *receive[QUEUE];
};

struct end {
    uint32_t magic;
    int is_send;
    struct channel *channel;
    struct request *requests; /* not yet ended by test */
};

struct listener {
    int used, device;
    struct channel *arrived;
};
static struct listener listeners[LISTENERS];

struct request {
    uint32_t magic;
    int n, done, filled;
    struct end *end;
    struct request *next;
    void *data[PARTS];
    size_t size[PARTS];
    int tag[PARTS], arrived[PARTS], got[PARTS];
    void *event; /* of the first part */
};

static struct end *end_new(struct channel *channel, int is_send)
{
    struct end *end = calloc(1, sizeof *end);
    end->magic = 0xe17d;
    end->is_send = is_send;
    end->channel = channel;
    channel->refs++;
    mock_net.comms++;
    return end;
}

static struct channel *channel_of(void *comm, int is_send)
{
    struct end *end = comm;
    if (end == NULL || end->magic != 0xe17d || end->is_send != is_send) {
        bad("comm");
        abort();
    }
    return end->channel;
}

static int net_listen(CONTEXT int device, unsigned char *handle, void **listener)
{
    int code = fails("listen");
    CHECK_CONTEXT();
    if (code != 0 || word("nolisten") != NULL) {
        return code;
    }
    for (int i = 0; i < LISTENERS; i++) {
        if (!listeners[i].used) {
            listeners[i] = (struct listener){ .used = 1, .device = device };
            mock_net.listeners++;
            for (int k = 0; k < HANDLE; k++) { /* all of it */
                handle[k] = (unsigned char)(i + 3 * k);
            }
            handle[STAGE] = 0;
            *listener = &listeners[i];
            return 0;
        }
    }
    return SYSTEM;
}

static int connect_to(unsigned char *handle, void **comm, void **offload)
{
    struct listener *listener = &listeners[handle[0] % LISTENERS];
    int code = fails("connect");
    if (code != 0) {
        return code;
    }
    if (offload == NULL || *offload != NULL || ((uintptr_t)handle & 7) != 0) {
        bad("connect");
    }
    for (int k = 0; k < HANDLE; k++) {
        if (k != STAGE && handle[k] != (unsigned char)(handle[0] + 3 * k)) {
            bad("handle");
        }
    }
    *comm = NULL;
    if (word("silent") != NULL || handle[STAGE]++ < 2) { /* in progress; the handle keeps the stage */
        return 0;
    }
    if (handle[STAGE] != 3 || !listener->used || listener->arrived != NULL) {
        bad("stage");
    }
    listener->arrived = calloc(1, sizeof *listener->arrived);
    *comm = end_new(listener->arrived, 1);
    return 0;
}

#if VERSION == 10
static int net_connect(int device, const int *config, unsigned char *handle, void **comm, void **offload)
{
    mock_net.traffic_class = *config;
    return device >= 0 && device < DEVICES ? connect_to(handle, comm, offload) : INTERNAL;
}
#else
static int net_connect(CONTEXT int device, unsigned char *handle, void **comm, void **offload)
{
    CHECK_CONTEXT();
    return device >= 0 && device < DEVICES ? connect_to(handle, comm, offload) : INTERNAL;
}
#endif

static int net_accept(struct listener *listener, void **comm, void **offload)
{
    int code = fails("accept");
    if (offload == NULL || *offload != NULL || !listener->used) {
        bad("accept");
    }
    *comm = code == 0 && listener->arrived != NULL && word("silent") == NULL ? end_new(listener->arrived, 0)
                                                                             : NULL;
    return code;
}

static void request_free(struct request *request)
{
    struct request **link = &request->end->requests;
    while (*link != request) {
        link = &(*link)->next;
    }
    *link = request->next;
    request->magic = 0;
    mock_net.requests--;
    free(request);
}

static int end_close(void *comm, int is_send)
{
    struct channel *channel = channel_of(comm, is_send);
    struct end *end = comm;
    while (end->requests != NULL) { /* given up */
        request_free(end->requests);
    }
    *(is_send ? &channel->nsends : &channel->nreceives) = 0;
    if (--channel->refs == 0) {
        free(channel);
    }
    mock_net.comms--;
    free(end);
    return 0;
}

static int net_close_send(void *comm) { return end_close(comm, 1); }
static int net_close_recv(void *comm) { return end_close(comm, 0); }

static int net_close_listen(struct listener *listener)
{
    listener->used = 0;
    listener->arrived = NULL;
    mock_net.listeners--;
    return fails("closeListen");
}

/* ---- memory ---- */

struct region {
    uint32_t magic;
    char *data;
    size_t size;
};

static int region_new(struct end *comm, void *data, size_t size, void **out)
{
    struct region *region = malloc(sizeof *region);
    if (comm->magic != 0xe17d) {
        bad("reg");
    }
    *region = (struct region){ 0x4e6, data, size };
    *out = region;
    mock_net.regions++;
    return 0;
}

static int net_reg(void *comm, void *data, size_t size, int type, void **out)
{
    if (type != 1 && type != 2) {
        bad("regMr");
    }
    return fails("regMr") != 0 ? fails("regMr") : region_new(comm, data, size, out);
}

static int net_reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **out)
{
    if (type != 2 || offset != 0 || fd != 77) {
        bad("regMrDmaBuf");
    }
    return region_new(comm, data, size, out);
}

static int net_unreg(void *comm, struct region *region)
{
    if (((struct end *)comm)->magic != 0xe17d || region->magic != 0x4e6) {
        bad("deregMr");
    }
    region->magic = 0;
    mock_net.regions--;
    free(region);
    return 0;
}

static void region_check(const struct region *region, const void *data, size_t size)
{
    const char *begin = data;
    if (region == NULL || region->magic != 0x4e6 || begin < region->data ||
        begin + size > region->data + region->size) {
        bad("region");
    }
}

/* ---- messages ---- */

static struct request *request_new(void *comm, int n)
{
    struct request *request = calloc(1, sizeof *request);
    request->magic = 0x4ec;
    request->n = n;
    request->end = comm;
    request->next = request->end->requests;
    request->end->requests = request;
    mock_net.requests++;
    return request;
}

/* Move the first send into the part with its tag of the first receive. */
static int move(struct channel *channel)
{
    while (channel->nsends > 0 && channel->nreceives > 0 && word("never") == NULL) {
        struct request *send = channel->send[0], *receive = channel->receive[0];
        int i = 0;
        while (i < receive->n && (receive->got[i] || receive->tag[i] != send->tag[0])) {
            i++;
        }
        if (i == receive->n || send->size[0] > receive->size[i]) {
            return USAGE;
        }
        memcpy(receive->data[i], send->data[0], send->size[0]);
        receive->got[i] = 1;
        receive->arrived[i] = word("oversize") != NULL ? (int)receive->size[i] + 1 : (int)send->size[0];
        send->done = 1;
        memmove(channel->send, channel->send + 1, (size_t)--channel->nsends * sizeof channel->send[0]);
        if (++receive->filled == receive->n) {
            receive->done = 1;
            memmove(channel->receive, channel->receive + 1,
                    (size_t)--channel->nreceives * sizeof channel->receive[0]);
        }
    }
    return 0;
}

static int send_begin(void *comm, void *data, size_t size, int tag, void *region, void **out)
{
    struct channel *channel = channel_of(comm, 1);
    int code = fails("isend");
    *out = NULL;
    region_check(region, data, size);
    if (code != 0 || channel->nsends == ROOM) {
        return code;
    }
    struct request *request = request_new(comm, 0);
    request->data[0] = data;
    request->size[0] = size;
    request->tag[0] = tag;
    channel->send[channel->nsends++] = request;
    *out = request;
    return 0;
}

static int receive_begin(void *comm, int n, void **data, const size_t *sizes, const int *tags, void **regions,
                         void **out)
{
    struct channel *channel = channel_of(comm, 0);
    int code = fails("irecv");
    if (n < 1 || n > PARTS || *out != NULL) {
        bad("irecv");
    }
    *out = NULL;
    if (code != 0 || channel->nreceives == ROOM) {
        return code;
    }
    struct request *request = request_new(comm, n);
    for (int i = 0; i < n; i++) {
        region_check(regions[i], data[i], sizes[i]);
        request->data[i] = data[i];
        request->size[i] = sizes[i];
        request->tag[i] = tags[i];
    }
    channel->receive[channel->nreceives++] = request;
    *out = request;
    return 0;
}

#if VERSION >= 10
/* Whoever watches the message learns of it. */
static int watched(int code, void *parent, void **out)
{
    struct request *request = code == 0 ? *out : NULL;
    if (request != NULL && parent != NULL) {
        (void)tells(&request->event, 0, parent, MOCK_KIND, &request->n);
    }
    return code;
}

static int net_isend(void *comm, void *data, size_t size, int tag, void *region, void *parent, void **out)
{
    return watched(send_begin(comm, data, size, tag, region, out), parent, out);
}

static int net_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **regions, void **parents,
                     void **out)
{
    for (int i = 1; i < n; i++) {
        if (parents[i] != parents[0]) {
            bad("phandles");
        }
    }
    return watched(receive_begin(comm, n, data, sizes, tags, regions, out), parents[0], out);
}
#elif VERSION == 9
#define net_isend send_begin
static int net_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **regions, void **out)
{
    return receive_begin(comm, n, data, sizes, tags, regions, out);
}
#else
static int net_isend(void *comm, void *data, int size, int tag, void *region, void **out)
{
    return send_begin(comm, data, (size_t)size, tag, region, out);
}

static int net_irecv(void *comm, int n, void **data, int *sizes, int *tags, void **regions, void **out)
{
    size_t wide[PARTS];
    for (int i = 0; i < n; i++) {
        wide[i] = (size_t)sizes[i];
    }
    return receive_begin(comm, n, data, wide, tags, regions, out);
}
#endif

static int net_iflush(void *comm, int n, void **data, int *sizes, void **regions, void **out)
{
    int code = fails("iflush");
    channel_of(comm, 0);
    for (int i = 0; i < n; i++) {
        region_check(regions[i], data[i], (size_t)sizes[i]);
    }
    if (code != 0) {
        return code;
    }
    *out = NULL;
    if (n > 1) { /* one is there at once */
        *out = request_new(comm, 0);
        ((struct request *)*out)->done = 1;
    }
    return 0;
}

static int net_test(struct request *request, int *done, int *sizes)
{
    int code = fails("test");
    *done = 0;
    if (request == NULL || request->magic != 0x4ec) {
        bad("test");
        return INTERNAL;
    }
    code = code != 0 ? code : move(request->end->channel);
    if (code != 0 || !request->done) {
        return code;
    }
    for (int i = 0; sizes != NULL && i < request->n; i++) {
        sizes[i] = request->arrived[i];
    }
    *done = 1;
    if (request->event != NULL) {
        (void)tells(&request->event, 1, NULL, 0, NULL);
    }
    request_free(request);
    return 0;
}

/* ---- what is exported ---- */

#define ANY(function) ((any_fn)(void *)(function))
__attribute__((visibility("default"))) struct functions PASTE(ncclNetPlugin_v, VERSION) = {
    .name = "Mock Net",
    .init = ANY(net_init),
    .devices = ANY(net_devices),
    .getProperties = ANY(net_properties),
    .listen = ANY(net_listen),
    .connect = ANY(net_connect),
    .accept = ANY(net_accept),
    .regMr = ANY(net_reg),
    .regMrDmaBuf = ANY(net_reg_dmabuf),
    .deregMr = ANY(net_unreg),
    .isend = ANY(net_isend),
    .irecv = ANY(net_irecv),
    .iflush = ANY(net_iflush),
    .test = ANY(net_test),
    .closeSend = ANY(net_close_send),
    .closeRecv = ANY(net_close_recv),
    .closeListen = ANY(net_close_listen),
#if VERSION >= 11
    .finalize = ANY(net_finalize),
#endif
};

#if VERSION == 12 /* older ones are not looked at when there is a newer one */
__attribute__((visibility("default"))) struct functions ncclNetPlugin_v11, ncclNetPlugin_v8;
#endif

__attribute__((constructor)) static void loaded(void) { become_hostile(&PASTE(ncclNetPlugin_v, VERSION)); }
