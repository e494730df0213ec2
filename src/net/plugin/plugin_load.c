/* Opening a net plugin: from the user's word to a library, its newest known version, and its devices. */
#include "net/plugin/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/auth.h"

static const struct rondo_library_kind net_kind = { "net", "RONDO_NET_PLUGIN", RONDO_SUBSYS_NET };

void rondo_plugin_log(int level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    rondo_library_log(&net_kind, level, subsystems, file, line, fmt, args);
    va_end(args);
}

int rondo_plugin_profile(void **event, int what, void *parent, int64_t kind, void *more)
{
    rondo_net_event_fn take = __atomic_load_n(&rondo_net_event, __ATOMIC_RELAXED);
    int is_watched = what == RONDO_NET_EVENT_START ? parent != NULL : event != NULL && *event != NULL;
    if (is_watched && take != NULL) {
        return take(event, what, parent, kind, more);
    }
    if (event != NULL) {
        *event = NULL;
    }
    return 0;
}

/* ---- errors ---- */

rondo_status rondo_plugin_status(int code, int remote)
{
    static const rondo_status known[] = { RONDO_SUCCESS,        RONDO_UNHANDLED_CUDA_ERROR,
                                          RONDO_SYSTEM_ERROR,   RONDO_INTERNAL_ERROR,
                                          RONDO_INTERNAL_ERROR, RONDO_INVALID_USAGE,
                                          RONDO_REMOTE_ERROR };
    rondo_status status = code >= 0 && code < (int)RONDO_COUNTOF(known) ? known[code] : RONDO_INTERNAL_ERROR;
    return remote && status == RONDO_SYSTEM_ERROR ? RONDO_REMOTE_ERROR : status;
}

void rondo_plugin_says(const struct rondo_plugin *plugin, const char *function, int code, char *text,
                       size_t bytes)
{
    const char *warning = rondo_library_warning();
    snprintf(text, bytes, "net plugin %s (v%d, %.120s): %s gave %d (%s)%s%s", plugin->name,
             plugin->abi->version, plugin->path, function, code,
             code >= 0 && code < RONDO_NUM_STATUSES ? rondo_status_string((rondo_status)code)
                                                    : "unknown code",
             warning[0] ? "; its last warning: " : "", warning);
}

static rondo_status failed(const struct rondo_plugin *plugin, const char *function, int code)
{
    char text[RONDO_ERROR_TEXT];
    rondo_plugin_says(plugin, function, code, text, sizeof text);
    return rondo_fail_quiet(rondo_plugin_status(code, 0), "%s on host %s", text, rondo_log_host());
}

/* ---- the struct of functions ---- */

#define ROW(member, function, version)                               \
    {                                                                \
        offsetof(struct rondo_plugin_net, member), function, version \
    }
static const struct {
    size_t offset;
    const char *function; /* name in the plugin interface */
    int version;          /* first version that has it */
} needed[] = {
    ROW(init, "init", 8),
    ROW(devices, "devices", 8),
    ROW(properties, "getProperties", 8),
    ROW(listen, "listen", 8),
    ROW(connect, "connect", 8),
    ROW(accept, "accept", 8),
    ROW(reg, "regMr", 8),
    ROW(unreg, "deregMr", 8),
    ROW(isend, "isend", 8),
    ROW(irecv, "irecv", 8),
    ROW(test, "test", 8),
    ROW(close_send, "closeSend", 8),
    ROW(close_recv, "closeRecv", 8),
    ROW(close_listen, "closeListen", 8),
    ROW(finalize, "finalize", 11),
};
#undef ROW

static rondo_status net_check(struct rondo_plugin *plugin)
{
    const char *name = plugin->net->name;
    if (name == NULL || name[0] == '\0' || strnlen(name, sizeof plugin->name) == sizeof plugin->name) {
        return rondo_fail_quiet(RONDO_INVALID_USAGE,
                                "the net plugin %s (v%d) has no name, or one of more than %zu bytes",
                                plugin->path, plugin->abi->version, sizeof plugin->name - 1);
    }
    for (size_t i = 0; i < strlen(name); i++) { /* it appears in messages */
        plugin->name[i] = name[i];
        if (name[i] < ' ' || name[i] == 127) {
            plugin->name[i] = '?';
        }
    }
    for (size_t i = 0; i < RONDO_COUNTOF(needed); i++) {
        void *function;
        memcpy(&function, (const char *)plugin->net + needed[i].offset, sizeof function);
        if (function == NULL && plugin->abi->version >= needed[i].version) {
            return rondo_fail_quiet(RONDO_INVALID_USAGE, "net plugin %s (v%d, %.120s) has no function %s",
                                    plugin->name, plugin->abi->version, plugin->path, needed[i].function);
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status net_find(struct rondo_plugin *plugin)
{
    char older[32];
    for (int i = 0; i < rondo_num_plugin_abis; i++) {
        plugin->net = dlsym(plugin->library, rondo_plugin_abis[i].symbol);
        if (plugin->net != NULL) {
            plugin->abi = &rondo_plugin_abis[i];
            return net_check(plugin);
        }
    }
    for (int version = rondo_plugin_abis[rondo_num_plugin_abis - 1].version - 1; version >= 2; version--) {
        snprintf(older, sizeof older, "ncclNetPlugin_v%d", version);
        if (dlsym(plugin->library, older) != NULL) {
            return rondo_fail_quiet(
                RONDO_INVALID_USAGE,
                "the net plugin %s has only version %d, which is too old; Rondo supports versions 8 to 12",
                plugin->path, version);
        }
    }
    return rondo_fail_quiet(
        RONDO_INVALID_USAGE, "%s is not a net plugin of a supported version: it has none of %s to %s",
        plugin->path, rondo_plugin_abis[0].symbol, rondo_plugin_abis[rondo_num_plugin_abis - 1].symbol);
}

/* ---- contexts ---- */

static rondo_status context_new(struct rondo_plugin *plugin, uint64_t id,
                                struct rondo_plugin_context **context)
{
    struct rondo_plugin_context *new;
    int code;
    RONDO_TRY(RONDO_NEW(new, "a context of a net plugin"));
    new->id = id;
    new->config.traffic_class = -1;
    rondo_library_call();
    code = plugin->abi->init(plugin->net, new);
    if (code != 0) {
        rondo_free(new);
        return failed(plugin, "init", code);
    }
    new->next = plugin->contexts;
    plugin->contexts = new;
    *context = new;
    return RONDO_SUCCESS;
}

static void context_free(struct rondo_plugin *plugin, struct rondo_plugin_context *context)
{
    int code = plugin->abi->has_contexts ? plugin->net->finalize(context->context) : 0;
    if (code != 0) {
        RONDO_WARN("net plugin %s (v%d, %s): finalize gave %d", plugin->name, plugin->abi->version,
                   plugin->path, code);
    }
    rondo_free(context);
}

rondo_status rondo_plugin_context_get(struct rondo_plugin *plugin, const uint64_t secret[2],
                                      struct rondo_plugin_context **context)
{
    uint64_t id = 0;
    if (plugin->abi->has_contexts) { /* plugins may send it */
        rondo_auth_derive(secret, "rondo plugin", "", 0, &id, sizeof id);
        id |= 1;
    }
    *context = plugin->contexts;
    while (*context != NULL && (*context)->id != id) {
        *context = (*context)->next;
    }
    if (*context == NULL) {
        RONDO_TRY(context_new(plugin, id, context));
    }
    (*context)->refs++;
    return RONDO_SUCCESS;
}

void rondo_plugin_context_put(struct rondo_plugin *plugin, struct rondo_plugin_context *context)
{
    struct rondo_plugin_context **link = &plugin->contexts;
    if (--context->refs > 0 || context->id == 0) {
        return;
    }
    while (*link != context) {
        link = &(*link)->next;
    }
    *link = context->next;
    context_free(plugin, context);
}

/* ---- devices ---- */

/* The kinds of memory that its functions can handle, whatever it says. */
static uint32_t memory_of(const struct rondo_plugin *plugin, const struct rondo_net_properties *device,
                          uint32_t says)
{
    uint32_t flush = plugin->net->iflush == NULL ? RONDO_NET_NO_FLUSH : 0;
    if ((says & RONDO_NET_DMABUF) != 0 && plugin->net->reg_dmabuf == NULL) {
        says &= ~(uint32_t)RONDO_NET_DMABUF;
        RONDO_INFO(RONDO_SUBSYS_NET,
                   "net plugin %s, device %s: no GPUDirect by DMA-BUF, because it has no regMrDmaBuf",
                   plugin->name, device->name);
    }
    return says | flush;
}

static rondo_status device_ask(const struct rondo_plugin *plugin, int i)
{
    struct rondo_plugin_properties_v12 found;
    struct rondo_plugin_device *device = &plugin->device[i];
    struct rondo_net_properties *properties = &device->properties;
    int code;
    memset(&found, 0, sizeof found);
    rondo_library_call();
    code = plugin->abi->properties(plugin->net, i, &found);
    if (code != 0) {
        return failed(plugin, "getProperties", code);
    }
    if (found.offload != 0) {
        return rondo_fail_quiet(RONDO_INVALID_USAGE,
                                "net plugin %s (v%d, %.120s) needs NCCL kernels (device offload of type %d)",
                                plugin->name, plugin->abi->version, plugin->path, found.offload);
    }
    rondo_library_text(properties->name, sizeof properties->name, found.name);
    rondo_library_text(properties->pci_path, sizeof properties->pci_path, found.pci_path);
    if (properties->name[0] == '\0') {
        snprintf(properties->name, sizeof properties->name, "%.40s:%d", plugin->name, i);
    }
    properties->guid = found.guid;
    properties->memory = memory_of(
        plugin, properties, (uint32_t)found.pointers & (RONDO_NET_HOST | RONDO_NET_CUDA | RONDO_NET_DMABUF));
    properties->memory |= found.force_flush == 1 ? RONDO_NET_FLUSH : 0; /* another value: NCCL ignores it */
    properties->speed_mbps = found.speed_mbps > 0 ? found.speed_mbps : 10000;
    properties->port = found.port;
    properties->max_comms = found.max_comms > 0 ? found.max_comms : 1;
    properties->max_recvs = found.max_recvs < 1                     ? 1
                            : found.max_recvs > RONDO_NET_MAX_RECVS ? RONDO_NET_MAX_RECVS
                                                                    : found.max_recvs;
    properties->latency_us = found.latency_us > 0 && found.latency_us < 1e6f ? (double)found.latency_us : 0;
    device->max_bytes = found.max_bytes > 0 && found.max_bytes < RONDO_PLUGIN_BYTES ? found.max_bytes
                                                                                    : RONDO_PLUGIN_BYTES;
    return RONDO_SUCCESS;
}

static rondo_status devices_ask(struct rondo_plugin *plugin)
{
    int n = 0, code;
    rondo_library_call();
    code = plugin->net->devices(&n);
    if (code != 0) {
        return failed(plugin, "devices", code);
    }
    if (n < 1 || n > RONDO_PLUGIN_DEVICES) {
        return rondo_fail_quiet(RONDO_INVALID_USAGE,
                                "net plugin %s (v%d, %.120s) reports %d devices on host %s", plugin->name,
                                plugin->abi->version, plugin->path, n, rondo_log_host());
    }
    RONDO_TRY(RONDO_NEW_ARRAY(plugin->device, n, "the devices of a net plugin"));
    for (int i = 0; i < n; i++) {
        RONDO_TRY(device_ask(plugin, i));
    }
    plugin->ndevices = n;
    return RONDO_SUCCESS;
}

/* ---- all of it ---- */

rondo_status rondo_plugin_open(struct rondo_plugin *plugin, const char *word)
{
    struct rondo_plugin_context *own;
    rondo_status status;
    *plugin = (struct rondo_plugin){ .library = NULL };
    RONDO_TRY_GOTO(rondo_library_open(&net_kind, word, &plugin->library, plugin->path), fail);
    RONDO_TRY_GOTO(net_find(plugin), fail);
    RONDO_TRY_GOTO(context_new(plugin, 0, &own), fail);
    RONDO_TRY_GOTO(devices_ask(plugin), fail);
    return RONDO_SUCCESS;
fail:
    rondo_plugin_close(plugin);
    return status;
}

void rondo_plugin_close(struct rondo_plugin *plugin)
{
    while (plugin->contexts != NULL) {
        struct rondo_plugin_context *context = plugin->contexts;
        plugin->contexts = context->next;
        context_free(plugin, context);
    }
    rondo_free(plugin->device);
    if (plugin->library != NULL) {
        dlclose(plugin->library);
    }
    *plugin = (struct rondo_plugin){ .library = NULL };
}
