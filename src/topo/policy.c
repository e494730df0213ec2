#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "topo/topo_build.h"

/* MB/s of network bandwidth that one channel drives */
enum { NET_CHANNEL_MBS = 14000 };

static const struct rondo_item *gpu_of(const struct rondo_topo *topo, int dev)
{
    const struct rondo_item *item = rondo_topo_item(topo, dev);
    return topo->node[dev].type == RONDO_NODE_GPU ? item : NULL;
}

static uint64_t host_of(const struct rondo_topo *topo, int dev)
{
    return rondo_topo_item(topo, topo->device_cpu[dev])->cpu.host_hash;
}

static int type_of(const struct rondo_topo *topo, int from, int to)
{
    return rondo_topo_wired(topo, from, to)->type;
}

/* ---- P2P ---- */

enum p2p { P2P_SAME, P2P_HOST, P2P_OFF, P2P_NO_PATH, P2P_OTHER_HOST, P2P_LEVEL, P2P_DRIVER, P2P_YES };

static int p2p_level(const struct rondo_topo *topo)
{
    const struct rondo_item *cpu = rondo_topo_item(topo, rondo_topo_cpu_point(topo, 0));
    int gpus = 0;
    for (int d = 0; d < topo->ndevs; d++) {
        gpus += gpu_of(topo, d) != NULL;
    }
    if (topo->options.p2p_level >= 0) {
        return topo->options.p2p_level;
    }
    return cpu->cpu.arch == RONDO_ARCH_X86 && cpu->cpu.vendor == RONDO_VENDOR_AMD && gpus <= 2
               ? RONDO_PATH_SYS
               : RONDO_PATH_PXB;
}

static int driver_forbids(const struct rondo_item *a, const struct rondo_item *b)
{
    int of_a = b->gpu.dev >= 0 && b->gpu.dev < 64 && (a->gpu.no_p2p >> b->gpu.dev & 1);
    int of_b = a->gpu.dev >= 0 && a->gpu.dev < 64 && (b->gpu.no_p2p >> a->gpu.dev & 1);
    return of_a || of_b;
}

static enum p2p p2p_decide(const struct rondo_topo *topo, int a, int b, int level)
{
    const struct rondo_item *x = gpu_of(topo, a), *y = gpu_of(topo, b);
    const struct rondo_topo_path *path = rondo_topo_wired(topo, a, b);
    if (a == b) {
        return P2P_SAME;
    }
    if (!x || !y) {
        return P2P_HOST;
    }
    if (topo->options.p2p_disable) {
        return P2P_OFF;
    }
    if (path->mbs == 0) {
        return P2P_NO_PATH;
    }
    int one_host = host_of(topo, a) == host_of(topo, b);
    if (!one_host && path->type > RONDO_PATH_NVB) {
        return P2P_OTHER_HOST;
    }
    if (path->type > level) {
        return P2P_LEVEL;
    }
    return one_host && x != y && driver_forbids(x, y) ? P2P_DRIVER : P2P_YES;
}

void rondo_topo_p2p(const struct rondo_topo *topo, int a, int b, int *read,
                    struct rondo_topo_verdict *verdict)
{
    int level = p2p_level(topo), standard = topo->options.p2p_level < 0;
    enum p2p why = p2p_decide(topo, a, b, level);
    const struct rondo_topo_path *path = rondo_topo_wired(topo, a, b);
    const char *type = rondo_path_type_name(path->type), *most = rondo_path_type_name(level);
    const struct rondo_item *x = gpu_of(topo, a), *y = gpu_of(topo, b);
    *verdict = (struct rondo_topo_verdict){ .yes = why == P2P_SAME || why == P2P_YES,
                                            .via = why == P2P_YES ? path->via : -1 };
    *read = why == P2P_YES && path->type == RONDO_PATH_NVL && x->gpu.sm == 80 && y->gpu.sm == 80;
    char *text = verdict->reason;
    size_t room = sizeof verdict->reason;
    switch (why) {
    case P2P_SAME: snprintf(text, room, "it is the same device"); break;
    case P2P_HOST: snprintf(text, room, "one of the ranks has no GPU: they use shared memory"); break;
    case P2P_OFF: snprintf(text, room, "RONDO_P2P_DISABLE=1"); break;
    case P2P_NO_PATH: snprintf(text, room, "no path connects them"); break;
    case P2P_OTHER_HOST:
        snprintf(text, room, "they are on different hosts without NVLink between them (path %s)", type);
        break;
    case P2P_LEVEL:
        snprintf(text, room, "path %s is beyond RONDO_P2P_LEVEL=%s%s", type, most,
                 standard ? " (default)" : "");
        break;
    case P2P_DRIVER:
        snprintf(text, room, "the driver (NVML) reports that P2P between GPUs %d and %d does not work",
                 (int)x->gpu.dev, (int)y->gpu.dev);
        break;
    case P2P_YES:
        snprintf(text, room, "path %s is within RONDO_P2P_LEVEL=%s%s%s", type, most,
                 standard ? " (default)" : "",
                 *read ? "; the receiver reads (NVLink between two sm 80)" : "");
        break;
    }
}

/* ---- GPUDirect ---- */

enum gdr { GDR_HOST, GDR_NO_PATH, GDR_GPU, GDR_NET, GDR_READ, GDR_READ_OFF, GDR_C2C, GDR_LEVEL, GDR_YES };

static int has_c2c(const struct rondo_topo *topo, int dev)
{
    return type_of(topo, dev, topo->device_cpu[dev]) == RONDO_PATH_C2C;
}

static int gdr_level(const struct rondo_topo *topo, int dev)
{
    if (topo->options.gdr_level >= 0) {
        return topo->options.gdr_level;
    }
    return topo->options.gdr_c2c && has_c2c(topo, dev) ? RONDO_PATH_P2C : RONDO_PATH_PXB;
}

/* Before sm 80, NIC reads slow down a GPU's other PCI traffic. @return 0 if one of its peers is on NVLink,
 * or if there are none. */
static int read_slows(const struct rondo_topo *topo, int dev)
{
    int others = 0;
    for (int d = 0; d < topo->ndevs; d++) {
        if (d != dev && gpu_of(topo, d)) {
            others++;
            if (type_of(topo, dev, d) == RONDO_PATH_NVL) {
                return 0;
            }
        }
    }
    return others > 0;
}

static enum gdr gdr_decide(const struct rondo_topo *topo, int dev, int net, int read)
{
    const struct rondo_item *gpu = gpu_of(topo, dev);
    const struct rondo_topo_path *path = rondo_topo_wired(topo, dev, net);
    if (!gpu) {
        return GDR_HOST;
    }
    if (path->mbs == 0) {
        return GDR_NO_PATH;
    }
    if (gpu->gpu.gdr == 0) {
        return GDR_GPU;
    }
    if (rondo_topo_item(topo, net)->net.gdr == 0) {
        return GDR_NET;
    }
    if (path->type == RONDO_PATH_P2C && !topo->options.gdr_c2c) {
        return GDR_C2C;
    }
    if (path->type > gdr_level(topo, dev)) {
        return GDR_LEVEL;
    }
    if (!read || topo->options.gdr_read == 1) {
        return GDR_YES;
    }
    if (topo->options.gdr_read == 0) {
        return GDR_READ_OFF;
    }
    return gpu->gpu.sm > 0 && gpu->gpu.sm < 80 && read_slows(topo, dev) ? GDR_READ : GDR_YES;
}

void rondo_topo_gdr(const struct rondo_topo *topo, int dev, int net, int read,
                    struct rondo_topo_verdict *verdict)
{
    int point = rondo_topo_net_point(topo, net);
    enum gdr why = gdr_decide(topo, dev, point, read);
    const char *type = rondo_path_type_name(type_of(topo, dev, point)),
               *most = rondo_path_type_name(gdr_level(topo, dev));
    const char *standard = topo->options.gdr_level < 0 ? " (default)" : "";
    char name[RONDO_MACHINE_NAME + 32], *text = verdict->reason;
    size_t room = sizeof verdict->reason;
    *verdict = (struct rondo_topo_verdict){ .yes = why == GDR_YES, .via = -1 };
    switch (why) {
    case GDR_HOST:
        snprintf(text, room, "the rank has no GPU: the NIC accesses host memory without it");
        break;
    case GDR_NO_PATH: snprintf(text, room, "no path connects them"); break;
    case GDR_GPU:
        snprintf(text, room, "the GPU's driver does not support GPUDirect RDMA (nvidia-peermem or DMA-BUF)");
        break;
    case GDR_NET:
        snprintf(text, room, "%s does not support GPUDirect RDMA",
                 rondo_topo_point_name(topo, point, name, sizeof name));
        break;
    case GDR_READ:
        snprintf(text, room, "before sm 80 a NIC reads only GPUs whose peers are on NVLink");
        break;
    case GDR_READ_OFF: snprintf(text, room, "RONDO_NET_GDR_READ=0"); break;
    case GDR_C2C: snprintf(text, room, "RONDO_NET_GDR_C2C=0 and path %s uses C2C", type); break;
    case GDR_LEVEL:
        snprintf(text, room, "path %s is beyond RONDO_NET_GDR_LEVEL=%s%s", type, most, standard);
        break;
    case GDR_YES:
        snprintf(text, room, "path %s is within RONDO_NET_GDR_LEVEL=%s%s", type, most, standard);
        break;
    }
}

int rondo_topo_flush(const struct rondo_topo *topo, int dev)
{
    const struct rondo_item *gpu = gpu_of(topo, dev);
    if (!gpu || gpu->gpu.sm < 90) {
        return gpu != NULL;
    }
    for (int n = 0; n < topo->nnets && has_c2c(topo, dev); n++) {
        int net = rondo_topo_net_point(topo, n);
        if (type_of(topo, dev, net) <=
            RONDO_PATH_PXB) { /* data arrives over PCI and flags over C2C, in no order */
            return 1;
        }
    }
    return 0;
}

/* ---- a device's own nets ---- */

static int path_better(const struct rondo_topo_path *a, const struct rondo_topo_path *b)
{
    return a->mbs != b->mbs ? a->mbs > b->mbs : a->type < b->type;
}

/* List the points with the best path from `from` among [first, first + n). */
static int best_points(const struct rondo_topo *topo, int from, int first, int n, int32_t *list)
{
    const struct rondo_topo_path *best = NULL;
    int count = 0;
    for (int p = first; p < first + n; p++) {
        const struct rondo_topo_path *path = rondo_topo_wired(topo, from, p);
        if (path->mbs == 0 || (best && path_better(best, path))) {
            continue;
        }
        count = best && !path_better(path, best) ? count : 0;
        best = path;
        list[count++] = p;
    }
    return count;
}

static int bits_reversed(int value, int below)
{
    int reversed = 0;
    for (int bit = 1; bit < below; bit <<= 1) {
        reversed = reversed << 1 | (value & 1);
        value >>= 1;
    }
    return reversed;
}

struct share {
    int32_t nets[RONDO_MACHINE_MAX_NETS]; /* points with the best path */
    int nnets, each, start;               /* this device uses `each` of them, beginning at `start` */
};

static void share_of(const struct rondo_topo *topo, int dev, struct share *share)
{
    int32_t near[RONDO_TOPO_MAX_LOCAL];
    share->nnets = best_points(topo, dev, topo->ndevs, topo->nnets, share->nets);
    share->each = share->start = 0;
    if (share->nnets == 0) {
        return;
    }
    int n = best_points(topo, share->nets[0], 0, topo->ndevs, near), place = dev;
    for (int i = 0; i < n; i++) {
        place = near[i] == dev ? i : place;
    }
    place %= n;
    share->each = (share->nnets + n - 1) / n;
    int power = (share->nnets & (share->nnets - 1)) == 0;
    share->start = power ? bits_reversed(place % share->nnets, share->nnets)
                         : place * share->each % share->nnets;
}

int rondo_topo_net_for(const struct rondo_topo *topo, int dev, int channel)
{
    struct share share;
    share_of(topo, dev, &share);
    if (share.nnets == 0 || channel < 0) {
        return -1;
    }
    return share.nets[(share.start + channel % share.each) % share.nnets] - topo->ndevs;
}

/* Is a net among those that a device's channels use in turn? */
static int is_own(const struct rondo_topo *topo, int dev, int net)
{
    struct share share;
    share_of(topo, dev, &share);
    for (int i = 0; i < share.each; i++) {
        if (share.nets[(share.start + i) % share.nnets] == rondo_topo_net_point(topo, net)) {
            return 1;
        }
    }
    return 0;
}

/* Is the net an RDMA NIC, so far as is known? */
static int is_rdma_nic(const struct rondo_topo *topo, int net)
{
    const struct rondo_item *item = rondo_topo_item(topo, rondo_topo_net_point(topo, net));
    return item != NULL && (item->net.port > 0 || item->net.gdr == 1);
}

void rondo_topo_gdr_masks(const struct rondo_topo *topo, int net, uint64_t gdr[RONDO_NUM_GDR])
{
    int point = rondo_topo_net_point(topo, net);
    memset(gdr, 0, sizeof(*gdr) * RONDO_NUM_GDR);
    for (int d = 0; is_rdma_nic(topo, net) && topo->all_gpus && d < topo->ndevs && d < 64; d++) {
        int write = gdr_decide(topo, d, point, 0) == GDR_YES, read = gdr_decide(topo, d, point, 1) == GDR_YES;
        gdr[RONDO_GDR_WRITE] |= (uint64_t)write << d;
        gdr[RONDO_GDR_READ] |= (uint64_t)read << d;
        gdr[RONDO_GDR_FLUSH] |= (uint64_t)(write && rondo_topo_flush(topo, d)) << d;
        gdr[RONDO_GDR_OWN] |= (uint64_t)is_own(topo, d, net) << d;
    }
}

static int power_up(int n)
{
    int power = 1;
    while (power < n) {
        power *= 2;
    }
    return power > RONDO_MAX_CHANNELS ? RONDO_MAX_CHANNELS : power;
}

int rondo_topo_p2p_channels(const struct rondo_topo *topo, int dev, int peer)
{
    enum { LEAST = 2 };
    if (peer == dev) {
        return 1;
    }
    if (peer >= 0) {
        const struct rondo_topo_path *path = rondo_topo_path(topo, dev, peer);
        const struct rondo_item *gpu = gpu_of(topo, dev);
        int links = gpu && path->type == RONDO_PATH_NVL ? path->mbs / rondo_topo_nvlink_mbs(gpu->gpu.sm) : 1;
        return power_up(LEAST * (links > 1 ? links : 1));
    }
    struct share share;
    int64_t mbs = 0;
    share_of(topo, dev, &share);
    for (int i = 0; i < share.each; i++) {
        mbs += rondo_topo_wired(topo, dev, share.nets[(share.start + i) % share.nnets])->mbs;
    }
    int64_t n = mbs / NET_CHANNEL_MBS > share.each ? mbs / NET_CHANNEL_MBS : share.each;
    return power_up((int)(n < LEAST ? LEAST : n > RONDO_MAX_CHANNELS ? RONDO_MAX_CHANNELS : n));
}

/* ---- PXN ---- */

struct own_path {
    int mbs, type;
};

/* A device's path to a net without PXN. */
static struct own_path own_path(const struct rondo_topo *topo, int dev, int net)
{
    const struct rondo_topo_path *path = rondo_topo_wired(topo, dev, net);
    if (gdr_decide(topo, dev, net, 0) == GDR_YES) {
        return (struct own_path){ path->mbs, path->type };
    }
    const struct rondo_topo_path *a = rondo_topo_wired(topo, dev, topo->device_cpu[dev]);
    const struct rondo_topo_path *b = rondo_topo_wired(topo, topo->device_cpu[dev], net);
    int type = b->type > RONDO_PATH_PHB ? b->type : RONDO_PATH_PHB;
    if (path->type == RONDO_PATH_P2C) { /* this path uses the CPU anyway */
        return (struct own_path){ path->mbs, path->type };
    }
    return (struct own_path){ a->mbs < b->mbs ? a->mbs : b->mbs, type };
}

static int relay_pick(const struct rondo_topo *topo, int dev, int net, const int32_t *list, int n, int level);

/* Drop devices that should themselves send through another one: a relay sends directly to its net. */
static int relays_last(const struct rondo_topo *topo, int net, int32_t *list, int n, int level)
{
    int32_t all[RONDO_TOPO_MAX_LOCAL];
    int left = 0;
    memcpy(all, list, sizeof *all * (size_t)n);
    for (int i = 0; i < n; i++) {
        if (relay_pick(topo, all[i], net, all, n, level) < 0) {
            list[left++] = all[i];
        }
    }
    return left;
}

/* List the devices that can relay to a net, best first: by path, then whose own net it is, then by device.
 * first_net: rondo_topo_net_for of channel 0. */
static int relays_find(const struct rondo_topo *topo, int net, const int32_t *first_net, int32_t *list)
{
    int level = topo->options.gdr_c2c ? RONDO_PATH_P2C : RONDO_PATH_PXB, n = 0;
    for (int d = 0; d < topo->ndevs; d++) {
        const struct rondo_topo_path *path = rondo_topo_wired(topo, d, net);
        if (path->type > level || gdr_decide(topo, d, net, 0) != GDR_YES) {
            continue;
        }
        int at = n++;
        for (; at > 0; at--) {
            const struct rondo_topo_path *other = rondo_topo_wired(topo, list[at - 1], net);
            int same = path->type == other->type && path->mbs == other->mbs;
            int own = first_net[d] == net - topo->ndevs,
                own_other = first_net[list[at - 1]] == net - topo->ndevs;
            if (same                        ? own <= own_other
                : path->type != other->type ? path->type > other->type
                                            : path->mbs < other->mbs) {
                break;
            }
            list[at] = list[at - 1];
        }
        list[at] = d;
    }
    return n > 0 ? relays_last(topo, net, list, n, p2p_level(topo)) : 0;
}

/* @return the first relay that dev may and should use; -1: none. */
static int relay_pick(const struct rondo_topo *topo, int dev, int net, const int32_t *list, int n, int level)
{
    if (topo->options.pxn_disable || !gpu_of(topo, dev) || n == 0) {
        return -1;
    }
    struct own_path own = own_path(topo, dev, net);
    for (int i = 0; i < n; i++) {
        const struct rondo_topo_path *near = rondo_topo_wired(topo, dev, list[i]),
                                     *far = rondo_topo_wired(topo, list[i], net);
        int mbs = near->mbs < far->mbs ? near->mbs : far->mbs;
        if (list[i] != dev && near->type == RONDO_PATH_NVL && (mbs > own.mbs || own.type > RONDO_PATH_PXN) &&
            host_of(topo, dev) == host_of(topo, list[i]) &&
            p2p_decide(topo, dev, list[i], level) == P2P_YES) {
            return list[i];
        }
    }
    return -1;
}

static void first_nets(const struct rondo_topo *topo, int32_t *first_net)
{
    for (int d = 0; d < topo->ndevs; d++) {
        first_net[d] = rondo_topo_net_for(topo, d, 0);
    }
}

void rondo_topo_pxn(const struct rondo_topo *topo, int dev, int net, struct rondo_topo_verdict *verdict)
{
    int32_t first_net[RONDO_TOPO_MAX_LOCAL], list[RONDO_TOPO_MAX_LOCAL];
    int point = rondo_topo_net_point(topo, net);
    struct own_path own = own_path(topo, dev, point);
    first_nets(topo, first_net);
    int n = relays_find(topo, point, first_net, list),
        via = relay_pick(topo, dev, point, list, n, p2p_level(topo));
    char name[RONDO_MACHINE_NAME + 32];
    *verdict = (struct rondo_topo_verdict){ .yes = via >= 0, .via = via };
    if (topo->options.pxn_disable) {
        snprintf(verdict->reason, sizeof verdict->reason, "RONDO_PXN_DISABLE=1");
    } else if (via >= 0) {
        const struct rondo_topo_path *far = rondo_topo_wired(topo, via, point);
        snprintf(verdict->reason, sizeof verdict->reason,
                 "%s is on NVLink and has path %s to it at %d MB/s; its own path is %s at %d MB/s",
                 rondo_topo_point_name(topo, via, name, sizeof name), rondo_path_type_name(far->type),
                 (int)far->mbs, rondo_path_type_name(own.type), own.mbs);
    } else if (!gpu_of(topo, dev)) {
        snprintf(verdict->reason, sizeof verdict->reason, "the rank has no GPU");
    } else if (own.mbs > 0 && own.type <= RONDO_PATH_PXN) {
        snprintf(verdict->reason, sizeof verdict->reason,
                 "its own path is %s at %d MB/s and no other GPU's is wider", rondo_path_type_name(own.type),
                 own.mbs);
    } else {
        snprintf(verdict->reason, sizeof verdict->reason,
                 "no GPU next to the net has both GPUDirect and NVLink to this one");
    }
}

void rondo_topo_relays(const struct rondo_topo *topo, int net, uint8_t *relay, int n)
{
    int32_t first_net[RONDO_TOPO_MAX_LOCAL], list[RONDO_TOPO_MAX_LOCAL];
    int point = rondo_topo_net_point(topo, net), nlist;
    memset(relay, 0, (size_t)n);
    if (!is_rdma_nic(topo, net) || !topo->all_gpus) {
        return;
    }
    first_nets(topo, first_net);
    nlist = relays_find(topo, point, first_net, list);
    for (int d = 0; d < topo->ndevs && d < n && nlist > 0; d++) {
        int via = relay_pick(topo, d, point, list, nlist, p2p_level(topo));
        relay[d] = (uint8_t)(via >= 0 && via < n ? via + 1 : 0);
    }
}

/* ---- paths after policy ---- */

static struct rondo_topo_path *path_of(struct rondo_topo *topo, int from, int to)
{
    return &topo->path[(size_t)from * (size_t)topo->npoints + (size_t)to];
}

/* Set path(from, to) to a followed by b. *joined is 0 if one of them is not connected. */
static rondo_status path_join(struct rondo_topo *topo, int from, int to, const struct rondo_topo_path *a,
                              const struct rondo_topo_path *b, int least, int via, int *joined)
{
    struct rondo_topo_path *path = path_of(topo, from, to), made;
    *joined = a->mbs > 0 && b->mbs > 0;
    if (!*joined) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_topo_hops_reserve(topo, a->nhops + b->nhops));
    made = (struct rondo_topo_path){ .first = topo->nhops,
                                     .via = via,
                                     .latency_ns = a->latency_ns + b->latency_ns };
    made.type = a->type > b->type ? a->type : b->type;
    made.type = made.type > least ? made.type : least;
    memcpy(&topo->hop[topo->nhops], &topo->hop[a->first], (size_t)a->nhops * sizeof *topo->hop);
    memcpy(&topo->hop[topo->nhops + a->nhops], &topo->hop[b->first], (size_t)b->nhops * sizeof *topo->hop);
    topo->nhops += made.nhops = a->nhops + b->nhops;
    rondo_topo_path_settle(topo, from, to, &made);
    *path = made;
    return RONDO_SUCCESS;
}

static rondo_status join_at(struct rondo_topo *topo, int from, int to, int mid, int least, int *joined)
{
    struct rondo_topo_path a = *rondo_topo_wired(topo, from, mid), b = *rondo_topo_wired(topo, mid, to);
    return path_join(topo, from, to, &a, &b, least, mid, joined);
}

static rondo_status net_paths(struct rondo_topo *topo, int net, const int32_t *list, int n, int level)
{
    int joined;
    for (int d = 0; d < topo->ndevs; d++) {
        enum gdr why = gdr_decide(topo, d, net, 0);
        int relay = relay_pick(topo, d, net, list, n, level);
        /* A P2C path uses the device's CPU anyway. */
        int staged = why != GDR_YES && why != GDR_HOST && why != GDR_NO_PATH &&
                     rondo_topo_wired(topo, d, net)->type != RONDO_PATH_P2C;
        if (staged) {
            RONDO_TRY(join_at(topo, net, d, topo->device_cpu[d], RONDO_PATH_PHB, &joined));
        }
        if (relay >= 0) {
            RONDO_TRY(join_at(topo, d, net, relay, RONDO_PATH_PXN, &joined));
        } else if (staged) {
            RONDO_TRY(join_at(topo, d, net, topo->device_cpu[d], RONDO_PATH_PHB, &joined));
        }
    }
    return RONDO_SUCCESS;
}

/* Neither P2P nor shared memory: leave through a net and enter through the peer's. Without nets, sockets
 * connect them, that is, the CPUs. */
static rondo_status net_between(struct rondo_topo *topo, int a, int b, const int32_t *first_net)
{
    int joined = 0, out = first_net[a], in = first_net[b];
    if (out >= 0 && in >= 0) {
        struct rondo_topo_path there = *rondo_topo_path(topo, a, rondo_topo_net_point(topo, out));
        struct rondo_topo_path here = *rondo_topo_path(topo, rondo_topo_net_point(topo, in), b);
        RONDO_TRY(
            path_join(topo, a, b, &there, &here, RONDO_PATH_NET, rondo_topo_net_point(topo, out), &joined));
    }
    if (!joined) {
        RONDO_TRY(join_at(topo, a, b, topo->device_cpu[b], RONDO_PATH_NET, &joined));
    }
    if (!joined) {
        *path_of(topo, a, b) = (struct rondo_topo_path){ .type = RONDO_PATH_DIS, .via = -1 };
    }
    return RONDO_SUCCESS;
}

static rondo_status device_paths(struct rondo_topo *topo, int a, int level, const int32_t *first_net)
{
    for (int b = 0; b < topo->ndevs; b++) {
        enum p2p why = p2p_decide(topo, a, b, level);
        int joined = 1;
        if (why == P2P_SAME || why == P2P_YES) {
            continue;
        }
        if (topo->options.shm_disable || host_of(topo, a) != host_of(topo, b)) {
            RONDO_TRY(net_between(topo, a, b, first_net));
        } else if (why != P2P_HOST) {
            RONDO_TRY(join_at(topo, a, b, topo->device_cpu[b], RONDO_PATH_PHB, &joined));
        }
        if (!joined) {
            RONDO_TRY(net_between(topo, a, b, first_net));
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_topo_policy(struct rondo_topo *topo)
{
    int32_t first_net[RONDO_TOPO_MAX_LOCAL], list[RONDO_TOPO_MAX_LOCAL];
    int level = p2p_level(topo);
    memcpy(topo->path, topo->wired, (size_t)topo->npoints * (size_t)topo->npoints * sizeof *topo->path);
    first_nets(topo, first_net);
    for (int n = 0; n < topo->nnets; n++) {
        int net = rondo_topo_net_point(topo, n), relays = relays_find(topo, net, first_net, list);
        RONDO_TRY(net_paths(topo, net, list, relays, level));
    }
    for (int a = 0; a < topo->ndevs; a++) {
        RONDO_TRY(device_paths(topo, a, level, first_net));
    }
    return RONDO_SUCCESS;
}
