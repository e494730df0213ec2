/* ncclConfig_t of every version. */
#include "shim/nccl/face.h"

#include <limits.h>
#include <string.h>

#include "base/log.h"
#include "base/wait.h"
#include "shim/nccl/config.def"

enum { LEAST_SIZE = 24, LATE_MS = 30 * 60 * 1000 };

_Static_assert(sizeof(struct nccl_config_all) == 120 && offsetof(struct nccl_config_all, commName) == 48 &&
                   offsetof(struct nccl_config_all, maxP2pPeers) == 88,
               "NCCL's layout");

static void set_unset(struct nccl_config_all *all)
{
#define UNSET_INT(field) all->field = INT_MIN;
#define UNSET_TEXT(field) all->field = NULL;
#define UNSET_(ctx, field, type, ...) UNSET_##type(field)
    NCCL_CONFIG_TABLE(UNSET_, )
}

/* Take the fields that the caller's version has, and that its size covers. */
static void take_fields(struct nccl_config_all *all, const void *config, size_t size, unsigned version)
{
    struct nccl_config_all raw;
    memset(&raw, 0, sizeof(raw));
    memcpy(&raw, config, size < sizeof(raw) ? size : sizeof(raw));
#define TAKE_(ctx, field, type, since, ...)                                                          \
    if (version >= (since) && size >= offsetof(struct nccl_config_all, field) + sizeof(raw.field)) { \
        all->field = raw.field;                                                                      \
    }
    NCCL_CONFIG_TABLE(TAKE_, )
}

static rondo_status check_int(const char *call, const char *field, int value, int low, int high)
{
    if (value == INT_MIN || (value >= low && value <= high)) {
        return RONDO_SUCCESS;
    }
    if (high == INT_MAX) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: config.%s is %d: leave it unset, or set it to %d or more", call, field, value,
                          low);
    }
    return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: config.%s is %d: leave it unset, or set it to %d to %d",
                      call, field, value, low, high);
}

static rondo_status check_fields(const char *call, const struct nccl_config_all *all)
{
#define CHECK_INT(field, low, high) RONDO_TRY(check_int(call, #field, all->field, low, high));
#define CHECK_TEXT(field, low, high)
#define CHECK_(ctx, field, type, since, low, high) CHECK_##type(field, low, high)
    NCCL_CONFIG_TABLE(CHECK_, )
    if (all->minCTAs != INT_MIN && all->maxCTAs != INT_MIN && all->minCTAs > all->maxCTAs) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: config.minCTAs is %d, above config.maxCTAs, %d", call,
                          all->minCTAs, all->maxCTAs);
    }
    return RONDO_SUCCESS;
}

/* NCCL waits for late ranks without a limit, and programs load for minutes before they make a communicator.
 * So the default of Rondo is too short for them; what the user sets counts. */
static int64_t init_timeout(void)
{
    struct rondo_param_info info;
    rondo_param_get_info(RONDO_PARAM_init_timeout, &info);
    return strcmp(info.origin, "default") == 0 ? LATE_MS : RONDO_CONFIG_DEFAULT;
}

rondo_status nccl_config_decode(const char *call, const ncclConfig_t *config, rondo_config *to)
{
    const rondo_config defaults = RONDO_CONFIG_INIT;
    struct nccl_config_all all;
    *to = defaults;
    RONDO_TRY(rondo_param_init());
    to->init_timeout_ms = init_timeout();
    if (config == NULL) {
        return RONDO_SUCCESS;
    }
    if (config->magic != 0xcafebeef || config->size < LEAST_SIZE || config->size > 4096) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: the config has size %zu and magic 0x%x: start from NCCL_CONFIG_INITIALIZER",
                          call, config->size, config->magic);
    }
    set_unset(&all);
    take_fields(&all, config, config->size, config->version);
    RONDO_TRY(check_fields(call, &all));
    to->blocking = all.blocking == INT_MIN ? 1 : all.blocking;
    to->name = all.commName;
    if (all.maxCTAs != INT_MIN) {
        to->max_channels = all.maxCTAs < RONDO_MAX_CHANNELS ? all.maxCTAs : RONDO_MAX_CHANNELS;
    }
    if (all.netName != NULL) {
        RONDO_INFO(RONDO_SUBSYS_INIT,
                   "%s: config.netName \"%s\" is ignored: RONDO_NET says it for the process", call,
                   all.netName);
    }
    return RONDO_SUCCESS;
}
