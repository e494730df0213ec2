/* Registrations of tensors' memory: regions.h. */
#include "tensor/regions.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"

static struct rondo_tensor_kept *kept_find(struct rondo_tensor_regions *regions, uint64_t id, int on_gpu)
{
    for (int i = 0; i < RONDO_TENSOR_REGIONS; i++) {
        if (regions->kept[i].id == id && (id == 0 || regions->kept[i].on_gpu == on_gpu)) {
            return &regions->kept[i];
        }
    }
    return NULL;
}

static void kept_end(struct rondo_tensor_regions *regions, struct rondo_tensor_kept *kept)
{
    regions->device->unreg(regions->comm, kept->region);
    regions->ngpu -= kept->on_gpu;
    memset(kept, 0, sizeof(*kept));
}

/* Is the memory of a registration gone? */
static int is_gone(const struct rondo_tensor_kept *kept)
{
    struct rondo_tensor_gpu_region gpu;
    struct rondo_region region;
    if (kept->on_gpu) {
        return !rondo_tensor_gpu_region(kept->base, kept->bytes, &gpu) || gpu.id != kept->id;
    }
    return !rondo_region_find(kept->base, kept->bytes, &region) || region.id != kept->id;
}

/* Make room: end registrations of memory that is gone, else the first that is not in use. */
static struct rondo_tensor_kept *kept_room(struct rondo_tensor_regions *regions)
{
    struct rondo_tensor_kept *idle = NULL;
    for (int i = 0; i < RONDO_TENSOR_REGIONS; i++) {
        struct rondo_tensor_kept *kept = &regions->kept[i];
        if (kept->id != 0 && kept->uses == 0) {
            if (is_gone(kept)) {
                kept_end(regions, kept);
            } else if (idle == NULL) {
                idle = kept;
            }
        }
    }
    struct rondo_tensor_kept *room = kept_find(regions, 0, 0);
    if (room == NULL && idle != NULL) {
        kept_end(regions, idle);
        room = idle;
    }
    return room;
}

void rondo_tensor_regions_end_gone(struct rondo_tensor_regions *regions)
{
    regions->epoch = rondo_region_epoch() + rondo_tensor_gpu_epoch(); /* both only grow */
    for (int i = 0; i < RONDO_TENSOR_REGIONS; i++) {
        struct rondo_tensor_kept *kept = &regions->kept[i];
        if (kept->id != 0 && !kept->gone && is_gone(kept)) {
            kept->gone = 1;
            if (kept->uses == 0) {
                kept_end(regions, kept);
            }
        }
    }
}

static rondo_status no_gpu(struct rondo_tensor_regions *regions, const char *why)
{
    regions->no_gpu = 1;
    return rondo_fail_quiet(RONDO_UNHANDLED_CUDA_ERROR, "%s", why);
}

/* The NIC reads or writes the GPU's memory itself. */
static rondo_status hold_gpu(struct rondo_tensor_conn *conn, struct rondo_tensor_regions *regions, void *data,
                             size_t bytes, int gpu, struct rondo_tensor_hold *hold)
{
    struct rondo_tensor_gpu_region region;
    struct rondo_tensor_kept *kept;
    if (regions->no_gpu || !rondo_params()->tensor_gpudirect ||
        !rondo_tensor_gpu_region(data, bytes, &region)) {
        return no_gpu(regions, "the NIC does not register the GPU's memory");
    }
    kept = kept_find(regions, region.id, 1);
    if (kept == NULL) {
        if ((kept = kept_room(regions)) == NULL) {
            return rondo_fail_quiet(RONDO_UNHANDLED_CUDA_ERROR, "all registrations are in use");
        }
        rondo_status status = rondo_tensor_gpu_register(
            &conn->core->gpus, gpu, regions->device, regions->comm, regions->memory, &region, &kept->region);
        if (status != RONDO_SUCCESS) {
            RONDO_INFO(RONDO_SUBSYS_NET,
                       "rank %d: tensors of GPU %d to and from rank %d go through host memory: %s",
                       conn->core->rank, gpu, conn->peer, rondo_error_text());
            regions->no_gpu = 1;
            return status;
        }
        kept->id = region.id;
        kept->base = region.base;
        kept->bytes = region.bytes;
        kept->on_gpu = 1;
        regions->ngpu++;
        conn->core->stats.registrations++;
    }
    kept->uses++;
    *hold = (struct rondo_tensor_hold){ .region = kept->region, .kept = kept };
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_hold(struct rondo_tensor_conn *conn, struct rondo_tensor_regions *regions,
                               void *data, size_t bytes, int gpu, struct rondo_tensor_hold *hold)
{
    if (gpu != RONDO_TENSOR_NO_GPU) {
        return hold_gpu(conn, regions, data, bytes, gpu, hold);
    }
    const struct rondo_net_device *device = regions->device;
    struct rondo_tensor_kept *kept = NULL;
    struct rondo_region region;
    if (rondo_region_find(data, bytes, &region)) {
        kept = kept_find(regions, region.id, 0);
        if (kept == NULL && (kept = kept_room(regions)) != NULL) {
            RONDO_TRY(
                device->reg(regions->comm, region.base, region.bytes, RONDO_NET_HOST, -1, &kept->region));
            kept->id = region.id;
            kept->base = region.base;
            kept->bytes = region.bytes;
            conn->core->stats.registrations++;
        }
    }
    if (kept != NULL) {
        kept->uses++;
        *hold = (struct rondo_tensor_hold){ .region = kept->region, .kept = kept };
        return RONDO_SUCCESS;
    }
    conn->core->stats.registrations += !regions->apart;
    return device->reg(regions->comm, data, bytes, RONDO_NET_HOST, -1, &hold->region);
}

void rondo_tensor_unhold(struct rondo_tensor_regions *regions, struct rondo_tensor_hold *hold)
{
    if (hold->kept != NULL) {
        if (--hold->kept->uses == 0 && hold->kept->gone) {
            kept_end(regions, hold->kept);
        }
    } else if (hold->region != NULL) {
        regions->device->unreg(regions->comm, hold->region);
    }
    memset(hold, 0, sizeof(*hold));
}

void rondo_tensor_regions_close(struct rondo_tensor_regions *regions)
{
    for (int i = 0; i < RONDO_TENSOR_REGIONS; i++) {
        if (regions->kept[i].id != 0) {
            kept_end(regions, &regions->kept[i]);
        }
    }
}

/* ---- for the wires ---- */

rondo_status rondo_tensor_pages_map(size_t *bytes, uint8_t **memory)
{
    *bytes = rondo_round_up(*bytes, (size_t)sysconf(_SC_PAGESIZE));
    void *mapped = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "no %zu bytes for a connection for tensors on %s: %m", *bytes,
                          rondo_log_host());
    }
    *memory = mapped;
    return RONDO_SUCCESS;
}

struct rondo_net_peer rondo_tensor_net_peer(const struct rondo_tensor_conn *conn, int channel)
{
    const struct rondo_tensor_core *core = conn->core;
    const struct rondo_peer *peers = core->ctx->wiring.peers;
    struct rondo_net_peer peer = { .rank = conn->peer, .channel = channel, .self = core->rank };
    snprintf(peer.host, sizeof(peer.host), "%s", peers[conn->peer].host);
    memcpy(peer.secret, peers[0].id.nonce, sizeof(peer.secret));
    return peer;
}
