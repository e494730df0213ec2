/* The list of net devices, and which of them this process uses. */
#include "net/netdev.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/param.h"
#include "net/auth.h"
#include "net/netdev_fault.h"
#include "net/plugin/plugin.h"

const struct rondo_net_device *const rondo_netdevs[] = { &rondo_netdev_plugin, &rondo_netdev_verbs,
                                                         &rondo_netdev_socket };
enum { NUM_NETDEVS = RONDO_COUNTOF(rondo_netdevs), WHY_BYTES = 256 };
const int rondo_num_netdevs = NUM_NETDEVS;
_Static_assert(NUM_NETDEVS <= 32, "a mask has a bit for each");
_Static_assert((int)NUM_NETDEVS == (int)RONDO_FAULT_NETDEVS, "each has a wrapper");

__thread void *rondo_net_parent;
rondo_net_event_fn rondo_net_event;

static rondo_net_event_fn taker(void) { return __atomic_load_n(&rondo_net_event, __ATOMIC_RELAXED); }

void rondo_net_events_add(struct rondo_net_events *events, int64_t kind, void *data)
{
    if (events->parent != NULL && events->n < RONDO_NET_EVENTS) {
        events->event[events->n] = NULL;
        (void)taker()(&events->event[events->n++], RONDO_NET_EVENT_START, events->parent, kind, data);
    }
}

void rondo_net_events_end(struct rondo_net_events *events)
{
    for (int i = 0; i < events->n; i++) {
        if (events->event[i] != NULL) {
            (void)taker()(&events->event[i], RONDO_NET_EVENT_STOP, NULL, 0, NULL);
        }
    }
    events->parent = NULL;
    events->n = 0;
}

/* NCCL's names for them. */
static const struct {
    const char *name;
    const struct rondo_net_device *net;
} usual[] = { { "IB", &rondo_netdev_verbs } };

static struct {
    pthread_mutex_t lock;
    int users, done, faults, asked[NUM_NETDEVS];
    uint32_t mask;
    char why[2 * RONDO_ERROR_TEXT];
} found = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Devices, listeners and connections are the parent's: the child looks for devices anew, and so does each
 * device. */
static void in_child(void)
{
    (void)rondo_fork_lock(&found.lock);
    found.users = found.done = found.faults = 0;
    memset(found.asked, 0, sizeof(found.asked));
    found.mask = 0;
}
RONDO_AT_FORK(in_child)

static int named(const struct rondo_net_device *net, const char *name)
{
    for (size_t i = 0; i < RONDO_COUNTOF(usual); i++) {
        if (usual[i].net == net && strcasecmp(usual[i].name, name) == 0) {
            return 1;
        }
    }
    return strcasecmp(net->name, name) == 0;
}

/* An open plugin also has its own name; built-in names take precedence. */
const struct rondo_net_device *rondo_netdev_by_name(const char *name)
{
    for (int i = 0; i < NUM_NETDEVS; i++) {
        if (named(rondo_netdevs[i], name)) {
            return rondo_netdevs[i];
        }
    }
    return name[0] != '\0' && strcasecmp(rondo_netdev_plugin_name(), name) == 0 ? &rondo_netdev_plugin : NULL;
}

static void add_why(const char *name, const char *text)
{
    size_t used = strlen(found.why);
    snprintf(found.why + used, sizeof found.why - used, "%s%s: %s", used > 0 ? "; " : "", name, text);
}

static const struct rondo_net_device *device_used(int i)
{
    return found.faults ? rondo_netdev_fault_over(i) : rondo_netdevs[i];
}

static rondo_status ask(int i)
{
    char why[WHY_BYTES] = "", text[WHY_BYTES + 32];
    int n = 0;
    found.asked[i] = 1;
    RONDO_TRY(device_used(i)->init(&n, why, sizeof why));
    if (n > 0) {
        found.mask |= 1u << i;
        snprintf(text, sizeof text, "%d device%s%s%s", n, n == 1 ? "" : "s", why[0] ? ", " : "", why);
    } else {
        snprintf(text, sizeof text, "none here%s%s", why[0] ? ", " : "", why);
    }
    add_why(rondo_netdevs[i]->name, text);
    return RONDO_SUCCESS;
}

/* RONDO_NET names one of our devices, which is then asked alone; any other name may be the plugin's. */
static rondo_status ask_only(const char *name)
{
    const struct rondo_net_device *net = rondo_netdev_by_name(name);
    for (int i = 0; i < NUM_NETDEVS; i++) {
        if (rondo_netdevs[i] == net || (net == NULL && rondo_netdevs[i] == &rondo_netdev_plugin)) {
            RONDO_TRY(ask(i));
        }
    }
    if (net == NULL && rondo_netdev_by_name(name) == NULL) {
        const char *plugin = rondo_netdev_plugin_name();
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "RONDO_NET=%.100s is not a net device on %s; there are verbs (or IB), socket, and the "
            "name of a plugin (%s%s)",
            name, rondo_log_host(), plugin[0] ? "here " : "none here; see RONDO_NET_PLUGIN", plugin);
    }
    return found.mask != 0 ? RONDO_SUCCESS
                           : rondo_fail(RONDO_INVALID_USAGE, "RONDO_NET=%.100s, but there is none on %s: %s",
                                        name, rondo_log_host(), found.why);
}

static rondo_status ask_all(void)
{
    const char *only = rondo_params()->net;
    found.mask = 0;
    found.why[0] = '\0';
    RONDO_TRY(rondo_netdev_fault_init(&found.faults));
    if (only[0] != '\0') {
        return ask_only(only);
    }
    for (int i = 0; i < NUM_NETDEVS; i++) {
        RONDO_TRY(ask(i));
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_netdev_mask(uint32_t *mask, char *why, size_t bytes)
{
    rondo_status status = RONDO_SUCCESS;
    *mask = 0;
    RONDO_TRY(rondo_param_init());
    pthread_mutex_lock(&found.lock);
    if (!found.done) {
        status = ask_all();
        found.done = status == RONDO_SUCCESS;
        if (found.done) {
            RONDO_INFO(RONDO_SUBSYS_NET, "net: %s", found.why);
        }
    }
    if (status == RONDO_SUCCESS) {
        *mask = found.mask;
    }
    if (why != NULL && bytes > 0) {
        snprintf(why, bytes, "%s", status == RONDO_SUCCESS ? found.why : rondo_error_text());
    }
    pthread_mutex_unlock(&found.lock);
    return status;
}

const struct rondo_net_device *rondo_netdev_common(uint32_t mask_a, uint32_t mask_b)
{
    for (int i = 0; i < NUM_NETDEVS; i++) {
        if ((mask_a & mask_b) >> i & 1) {
            return device_used(i);
        }
    }
    return NULL;
}

void rondo_netdev_hold(void)
{
    pthread_mutex_lock(&found.lock);
    found.users++;
    pthread_mutex_unlock(&found.lock);
}

void rondo_netdev_finalize(void)
{
    pthread_mutex_lock(&found.lock);
    found.users -= found.users > 0;
    for (int i = 0; i < NUM_NETDEVS && found.users == 0; i++) {
        if (found.asked[i]) {
            rondo_netdevs[i]->finalize();
        }
        found.asked[i] = 0;
    }
    if (found.users == 0) {
        found.done = found.faults = 0;
        found.mask = 0;
    }
    pthread_mutex_unlock(&found.lock);
}

uint64_t rondo_netdev_proof(const struct rondo_net_peer *peer, const char *device, int mine, int is_send,
                            uint64_t random)
{
    struct {
        char device[16];
        int32_t maker, taker, channel, is_send;
        uint64_t random;
    } names = { .maker = mine ? peer->self : peer->rank,
                .taker = mine ? peer->rank : peer->self,
                .channel = peer->channel,
                .is_send = is_send,
                .random = random };
    uint64_t proof;
    snprintf(names.device, sizeof(names.device), "%s", device);
    rondo_auth_derive(peer->secret, "rondo handle", &names, sizeof(names), &proof, sizeof(proof));
    return proof;
}
