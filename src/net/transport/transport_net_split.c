/* The net transport with slots in GPU memory at one end or both: a slice is two messages, and received
 * data is flushed. Contract: net/transport/transport_net.h. */
#include "net/transport/transport_net.h"

static struct rondo_net_header *header_at(const struct rondo_net_end *end, uint64_t step)
{
    return (struct rondo_net_header *)(void *)rondo_net_slot(end, step) - 1;
}

static uint8_t *place_of(const struct rondo_net_end *end, uint64_t step)
{
    return end->gdr.on ? end->gdr.slots + (step % RONDO_SLOTS) * end->gdr.stride : rondo_net_slot(end, step);
}

static void *region_of(const struct rondo_net_end *end)
{
    return end->gdr.on ? end->gdr.region : end->region;
}

static size_t room_of(const struct rondo_net_end *end)
{
    return end->gdr.on ? end->gdr.stride : end->stride - RONDO_CTRL_ALIGN;
}

rondo_status rondo_net_split_send(struct rondo_net_end *end, size_t bytes, void **request)
{
    void **head = &end->head[end->posted % RONDO_SLOTS];
    *request = NULL;
    if (*head == NULL) {
        RONDO_TRY(end->device->isend(end->comm, header_at(end, end->posted), sizeof(struct rondo_net_header),
                                     0, end->region, head));
    }
    return *head == NULL
               ? RONDO_SUCCESS
               : end->device->isend(end->comm, place_of(end, end->posted), bytes, 0, region_of(end), request);
}

rondo_status rondo_net_split_receive(struct rondo_net_end *end, void **request)
{
    void **head = &end->head[end->posted % RONDO_SLOTS], *header = header_at(end, end->posted),
         *place = place_of(end, end->posted);
    const size_t header_bytes = sizeof(struct rondo_net_header), room = room_of(end);
    void *region = region_of(end);
    const int tag = 0;
    *request = NULL;
    if (*head == NULL) {
        RONDO_TRY(end->device->irecv(end->comm, 1, &header, &header_bytes, &tag, &end->region, head));
    }
    return *head == NULL ? RONDO_SUCCESS
                         : end->device->irecv(end->comm, 1, &place, &room, &tag, &region, request);
}

rondo_status rondo_net_split_test(struct rondo_net_end *end, int *done, size_t *bytes)
{
    uint32_t slot = (uint32_t)(end->done % RONDO_SLOTS);
    size_t header_bytes = sizeof(struct rondo_net_header);
    if (end->head[slot] != NULL) {
        RONDO_TRY(end->device->test(end->head[slot], done, bytes != NULL ? &header_bytes : NULL));
        if (!*done) {
            return RONDO_SUCCESS;
        }
        end->head[slot] = NULL;
        if (header_bytes != sizeof(struct rondo_net_header)) { /* receiver: a message without a header is
                                                                * not a slice */
            *bytes = 0;
            return RONDO_SUCCESS;
        }
    }
    RONDO_TRY(end->device->test(end->request[slot], done, bytes));
    if (*done && bytes != NULL) {
        *bytes += sizeof(struct rondo_net_header);
    }
    return RONDO_SUCCESS;
}

/* ---- flushes ---- */

static rondo_status flush_start(struct rondo_net_end *end)
{
    struct rondo_net_gdr *gdr = &end->gdr;
    void *place = place_of(end, end->done - 1);
    gdr->flushing = end->done;
    if (gdr->dirty) {
        RONDO_TRY(end->device->iflush(end->comm, 1, &place, &gdr->stride, &gdr->region, &gdr->request));
        gdr->flushes += gdr->request != NULL;
        gdr->dirty = 0;
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_net_flush(struct rondo_net_end *end, int *moved)
{
    struct rondo_net_gdr *gdr = &end->gdr;
    int done = 1;
    if (gdr->request == NULL && gdr->told < end->done) {
        RONDO_TRY(flush_start(end));
    }
    if (gdr->request != NULL) {
        RONDO_TRY(end->device->test(gdr->request, &done, NULL));
    }
    if (done && gdr->told < gdr->flushing) {
        gdr->request = NULL;
        gdr->told = gdr->flushing;
        /* Pairs with the acquire of the receiver, as in the proxy: now the GPU sees the slots. */
        __atomic_store_n(&end->link->tail->tail, gdr->told, __ATOMIC_RELEASE);
        *moved = 1;
    }
    return RONDO_SUCCESS;
}
