/* GPUDirect for the net transport: slots in GPU memory, which the NIC reads or writes itself. Contract:
 * net/transport/transport_net.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cuda_mem.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "net/transport/transport_net.h"

enum { POOL_BYTES = 2 << 20 };

/* Blocks of device memory, the newest first. Ends get pieces, which are not reused. */
struct rondo_net_pool {
    struct rondo_net_pool *older;
    struct rondo_gpu_mem mem;
    size_t used;
};

/* ---- the context ---- */

static _Thread_local const struct rondo_cuda_device *entered;

void rondo_net_enter(const struct rondo_net *net, struct rondo_net_inside *inside)
{
    CUstreamCaptureMode before;
    *inside = (struct rondo_net_inside){ .pushed = 0 };
    if (net->device == NULL || entered == net->device) {
        return;
    }
    inside->outer = entered;
    inside->pushed = rondo_cuda_enter(net->device) == RONDO_SUCCESS;
    if (inside->pushed) {
        rondo_gpu_relax(&before);
        inside->mode = (int)before;
        entered = net->device;
    }
}

void rondo_net_leave(const struct rondo_net_inside *inside)
{
    if (inside->pushed) {
        entered = inside->outer;
        rondo_gpu_unrelax((CUstreamCaptureMode)inside->mode);
        rondo_cuda_leave();
    }
}

/* ---- memory and its pieces ---- */

/* NICs register GPU memory in whole pages. */
size_t rondo_net_gdr_bytes(size_t slot_bytes) { return rondo_round_up(RONDO_SLOTS * slot_bytes, 64 << 10); }

struct rondo_gpu_mem *rondo_net_gdr_block(const struct rondo_net_state *state)
{
    return state->pool != NULL ? &state->pool->mem : NULL;
}

static const char *where(const struct rondo_net_end *end, char *text, size_t bytes)
{
    const struct rondo_link *link = end->link;
    snprintf(text, bytes, "rank %d, channel %d, %s rank %d by %s", end->owner->net->rank, link->channel,
             link->is_send ? "to" : "from", link->peer, end->via);
    return text;
}

/* Use slots in pinned memory, and log why. */
static void staged(struct rondo_net_end *end, const char *why)
{
    char text[128];
    end->gdr.on = end->gdr.flush = 0;
    end->gdr.region = NULL;
    RONDO_INFO(RONDO_SUBSYS_NET, "%s: GPU %d's data goes through host memory: %s",
               where(end, text, sizeof(text)), end->owner->net->device->ordinal, why);
}

/* ---- may it be? ---- */

static int attribute(const struct rondo_net *net, CUdevice_attribute which)
{
    int value = 0;
    return rondo_cuda(NULL)->DeviceGetAttribute(&value, which, net->device->handle) == CUDA_SUCCESS ? value
                                                                                                    : 0;
}

/* How to register the GPU's memory with the NIC: bits of rondo_net_memory. */
static uint32_t kinds_of(const struct rondo_net *net, uint32_t memory)
{
    uint32_t kinds = memory & RONDO_NET_DMABUF && net->device->dmabuf ? RONDO_NET_DMABUF : 0;
    return memory & RONDO_NET_CUDA && attribute(net, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)
               ? kinds | RONDO_NET_CUDA
               : kinds;
}

/* Does received data need a flush? The GPU reports when it does not; the topology and the NIC's device know
 * when it does. */
static int needs_flush(const struct rondo_net *net, uint32_t nic, uint32_t memory)
{
    int ordered = attribute(net, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
                  CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
    return (!ordered || (nic >> RONDO_GDR_FLUSH & 1) || (memory & RONDO_NET_FLUSH)) &&
           !rondo_params()->gdr_flush_disable;
}

void rondo_net_gdr_choose(struct rondo_net_end *end, const struct rondo_net_properties *properties)
{
    const struct rondo_net *net = end->owner->net;
    const struct rondo_nic *known = rondo_net_nic(net, properties->name);
    uint32_t nic = known != NULL ? known->gdr : 0;
    int is_send = end->link->is_send;
    if (net->device == NULL || !(nic >> (is_send ? RONDO_GDR_READ : RONDO_GDR_WRITE) & 1)) {
        return; /* node.c has logged why */
    }
    end->gdr.kinds = kinds_of(net, properties->memory);
    if (end->gdr.kinds == 0) {
        staged(end, "the NIC and the GPU support neither DMA-BUF nor the module nvidia_peermem");
        return;
    }
    if (end->owner->no_gdr >> end->number % 64 & 1) {
        staged(end, "the NIC refused this GPU's memory before");
        return;
    }
    end->gdr.flush = !is_send && needs_flush(net, nic, properties->memory);
    if (end->gdr.flush && properties->memory & RONDO_NET_NO_FLUSH) {
        staged(end, "the NIC's plugin has no iflush, which this GPU or NIC needs");
        return;
    }
    end->gdr.wanted = 1;
}

/* ---- memory ---- */

/* Call with the device's memory calls allowed. */
static rondo_status piece(struct rondo_net_end *end)
{
    struct rondo_net_state *state = end->owner;
    struct rondo_net_pool *pool = state->pool;
    if (pool == NULL || pool->mem.bytes - pool->used < end->gdr.bytes) {
        size_t least = state->segment != NULL ? state->expected : POOL_BYTES;
        rondo_status status;
        RONDO_TRY(RONDO_NEW(pool, "a block of device memory"));
        status = rondo_gpu_mem_create(&pool->mem, state->net->device, rondo_max_size(end->gdr.bytes, least),
                                      state->segment != NULL);
        if (status != RONDO_SUCCESS) {
            rondo_free(pool);
            return status;
        }
        pool->older = state->pool;
        state->pool = pool;
        state->bytes += pool->mem.bytes;
    }
    end->gdr.slots = pool->mem.base + pool->used;
    pool->used += end->gdr.bytes;
    return RONDO_SUCCESS;
}

void rondo_net_gdr_memory(struct rondo_net_end *end, size_t slot_bytes)
{
    CUstreamCaptureMode before;
    rondo_status status;
    if (!end->gdr.wanted) {
        return;
    }
    end->gdr.stride = slot_bytes;
    end->gdr.bytes = rondo_net_gdr_bytes(slot_bytes);
    rondo_gpu_relax(&before);
    status = piece(end);
    rondo_gpu_unrelax(before);
    end->gdr.on = 1;
    if (status != RONDO_SUCCESS) {
        staged(end, rondo_error_text());
    }
}

/* ---- registration ---- */

static rondo_status reg_dmabuf(struct rondo_net_end *end)
{
    const struct rondo_net *net = end->owner->net;
    CUstreamCaptureMode before;
    rondo_status status;
    rondo_gpu_relax(&before);
    int fd = rondo_gpu_dmabuf(net->device, end->gdr.slots, end->gdr.bytes);
    rondo_gpu_unrelax(before);
    if (fd < 0) {
        return rondo_fail_quiet(RONDO_UNHANDLED_CUDA_ERROR,
                                "GPU %d (%s) cannot export a DMA-BUF of %zu bytes", net->device->ordinal,
                                net->device->bus_id, end->gdr.bytes);
    }
    status = end->device->reg(end->comm, end->gdr.slots, end->gdr.bytes, RONDO_NET_DMABUF, fd,
                              &end->gdr.region);
    close(fd); /* the registration keeps the buffer alive */
    return status;
}

static rondo_status reg_any(struct rondo_net_end *end)
{
    rondo_status status = end->gdr.kinds & RONDO_NET_DMABUF ? reg_dmabuf(end) : RONDO_UNHANDLED_CUDA_ERROR;
    if (status != RONDO_SUCCESS && end->gdr.kinds & RONDO_NET_CUDA) {
        status = end->device->reg(end->comm, end->gdr.slots, end->gdr.bytes, RONDO_NET_CUDA, -1,
                                  &end->gdr.region);
    }
    return status;
}

void rondo_net_gdr_register(struct rondo_net_end *end)
{
    if (end->gdr.on && end->owner->no_gdr >> end->number % 64 & 1) {
        staged(end, "the NIC refused this GPU's memory before");
    } else if (end->gdr.on && reg_any(end) != RONDO_SUCCESS) {
        end->owner->no_gdr |= (uint64_t)1 << end->number % 64;
        staged(end, rondo_error_text());
    }
}

void rondo_net_gdr_close(struct rondo_net_state *state)
{
    CUstreamCaptureMode before;
    while (state->pool != NULL) {
        struct rondo_net_pool *pool = state->pool;
        state->pool = pool->older;
        if (!state->net->kept) {
            rondo_gpu_relax(&before);
            rondo_gpu_mem_close(&pool->mem);
            rondo_gpu_unrelax(before);
        }
        rondo_free(pool);
    }
}
