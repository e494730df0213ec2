/* Opening a net plugin: from the user's word to a library, its newest known version, and its devices. */
#include "net/plugin/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/auth.h"

/* ---- the log function that a plugin gets ---- */

static _Thread_local int quiet;

/* NCCL's subsystem bits, in their order; 0: Rondo has no such subsystem. */
static const uint32_t subsystem_of[] = {
    RONDO_SUBSYS_INIT,      RONDO_SUBSYS_COLL,  RONDO_SUBSYS_P2P,     RONDO_SUBSYS_SHM,
    RONDO_SUBSYS_NET,       RONDO_SUBSYS_GRAPH, RONDO_SUBSYS_TUNING,  RONDO_SUBSYS_ENV,
    RONDO_SUBSYS_ALLOC,     RONDO_SUBSYS_CALL,  RONDO_SUBSYS_PROXY,   0 /* NVLS */,
    RONDO_SUBSYS_BOOTSTRAP, RONDO_SUBSYS_REG,   RONDO_SUBSYS_PROFILE, 0 /* RAS */,
    RONDO_SUBSYS_DESTROY,
};

static uint32_t subsystems_of(unsigned long bits)
{
    uint32_t mask = RONDO_SUBSYS_NET; /* always NET, whatever the plugin says */
    for (size_t i = 0; i < RONDO_COUNTOF(subsystem_of); i++) {
        mask |= bits >> i & 1 ? subsystem_of[i] : 0;
    }
    return mask;
}

void rondo_plugin_log(int level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
{
    static const enum rondo_log_level levels[] = {
        [RONDO_PLUGIN_LOG_NONE] = RONDO_LOG_TRACE, [RONDO_PLUGIN_LOG_VERSION] = RONDO_LOG_INFO,
        [RONDO_PLUGIN_LOG_WARN] = RONDO_LOG_WARN,  [RONDO_PLUGIN_LOG_INFO] = RONDO_LOG_INFO,
        [RONDO_PLUGIN_LOG_ABORT] = RONDO_LOG_INFO, [RONDO_PLUGIN_LOG_TRACE] = RONDO_LOG_TRACE
    };
    enum rondo_log_level ours = level >= 0 && level < (int)RONDO_COUNTOF(levels) ? levels[level]
                                                                                 : RONDO_LOG_TRACE;
    char text[RONDO_ERROR_TEXT];
    va_list args;
    ours = quiet && ours == RONDO_LOG_WARN ? RONDO_LOG_INFO : ours;
    if (ours != RONDO_LOG_WARN && !rondo_log_on(ours, subsystems_of(subsystems))) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    text[strcspn(text, "\n")] = '\0';
    if (ours == RONDO_LOG_WARN) {
        struct rondo_thread_texts *texts = rondo_thread_texts_get();
        snprintf(texts->plugin_warning, sizeof texts->plugin_warning, "%.*s",
                 (int)sizeof texts->plugin_warning - 1, text);
    }
    if (rondo_log_on(ours, subsystems_of(subsystems))) {
        rondo_log_print(ours, "net plugin: %s (%s:%d)", text, file != NULL ? file : "", line);
    }
}

void rondo_plugin_log_quiet(int on) { quiet = on; }

int rondo_plugin_profile(void **event, int what, void *parent, int64_t kind, void *more)
{
    (void)what, (void)parent, (void)kind, (void)more;
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
    const char *warning = rondo_thread_texts_get()->plugin_warning;
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

/* ---- the library ---- */

/* "aws-ofi" is libnccl-net-aws-ofi.so; a word with a slash or ".so" is used unchanged. */
static rondo_status file_of(const char *word, char *file, size_t bytes)
{
    const char *format = strchr(word, '/') != NULL || strstr(word, ".so") != NULL ? "%s"
                                                                                  : "libnccl-net-%s.so";
    int n = snprintf(file, bytes, format, word);
    return n > 0 && (size_t)n < bytes
               ? RONDO_SUCCESS
               : rondo_fail_quiet(
                     RONDO_INVALID_ARGUMENT,
                     "the name of a net plugin in RONDO_NET_PLUGIN is longer than %zu bytes: %.40s...",
                     bytes - 1, word);
}

static int others_write(const struct stat *info)
{
    return (info->st_mode & S_IWOTH) != 0 && (info->st_mode & S_ISVTX) == 0;
}

/* The user chose a path: check that nobody else can put code there. */
static rondo_status path_check(const char *path)
{
    struct stat file, folder;
    char parent[256];
    if (strchr(path, '/') == NULL) {
        return RONDO_SUCCESS; /* found on the loader's path: whoever can write there can do anything anyway */
    }
    snprintf(parent, sizeof parent, "%.*s/.", (int)(strrchr(path, '/') - path), path);
    if (stat(path, &file) != 0 || stat(parent, &folder) != 0) {
        return rondo_fail_quiet(RONDO_INVALID_ARGUMENT,
                                "the net plugin %s of RONDO_NET_PLUGIN cannot be read on %s: %m", path,
                                rondo_log_host());
    }
    if (!S_ISREG(file.st_mode) || (file.st_mode & S_IWOTH) != 0 || others_write(&folder) ||
        (file.st_uid != 0 && file.st_uid != geteuid())) {
        return rondo_fail_quiet(RONDO_INVALID_ARGUMENT,
                                "the net plugin %s of RONDO_NET_PLUGIN is not loaded on %s: it must be a "
                                "file of yours or root's that others "
                                "cannot write, in a folder that others cannot write (chmod o-w)",
                                path, rondo_log_host());
    }
    return RONDO_SUCCESS;
}

static rondo_status library_open(struct rondo_plugin *plugin, const char *word)
{
    char file[sizeof plugin->path];
    struct link_map *map;
    RONDO_TRY(file_of(word, file, sizeof file));
    RONDO_TRY(path_check(file));
    plugin->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (plugin->library == NULL) {
        return rondo_fail_quiet(
            RONDO_SYSTEM_ERROR,
            "the net plugin %s cannot be opened on %s (%s); check LD_LIBRARY_PATH and RONDO_NET_PLUGIN", file,
            rondo_log_host(), dlerror());
    }
    snprintf(plugin->path, sizeof plugin->path, "%s",
             dlinfo(plugin->library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : file);
    return RONDO_SUCCESS;
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

static void text_copy(char *to, size_t bytes, const char *from)
{
    snprintf(to, bytes, "%s", from != NULL ? from : "");
    for (char *c = to; *c != '\0'; c++) {
        *c = *c < ' ' || *c == 127 ? '?' : *c;
    }
}

static rondo_status device_ask(const struct rondo_plugin *plugin, int i)
{
    struct rondo_plugin_properties_v12 found;
    struct rondo_plugin_device *device = &plugin->device[i];
    struct rondo_net_properties *properties = &device->properties;
    int code;
    memset(&found, 0, sizeof found);
    code = plugin->abi->properties(plugin->net, i, &found);
    if (code != 0) {
        return failed(plugin, "getProperties", code);
    }
    if (found.offload != 0) {
        return rondo_fail_quiet(RONDO_INVALID_USAGE,
                                "net plugin %s (v%d, %.120s) needs NCCL kernels (device offload of type %d)",
                                plugin->name, plugin->abi->version, plugin->path, found.offload);
    }
    text_copy(properties->name, sizeof properties->name, found.name);
    text_copy(properties->pci_path, sizeof properties->pci_path, found.pci_path);
    if (properties->name[0] == '\0') {
        snprintf(properties->name, sizeof properties->name, "%.40s:%d", plugin->name, i);
    }
    properties->guid = found.guid;
    properties->memory = (uint32_t)found.pointers & (RONDO_NET_HOST | RONDO_NET_CUDA | RONDO_NET_DMABUF);
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
    int n = 0, code = plugin->net->devices(&n);
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
    RONDO_TRY_GOTO(library_open(plugin, word), fail);
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
