#include "fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fake_verbs fake;

enum { MAX_OBJECTS = 512, MAX_CQE = 1024, MAX_RECV = 256 };

struct fake_mr {
    struct ibv_mr ibv;
    int access;
};

struct fake_cq {
    struct ibv_cq ibv;
    struct ibv_wc wc[MAX_CQE];
    uint32_t sent[MAX_CQE]; /* how many sends of the queue pair are over with it */
    int n;
};

struct fake_qp {
    struct ibv_qp ibv;
    struct ibv_qp_attr attr;
    struct ibv_qp_cap cap;
    uint64_t recv[MAX_RECV];
    int nrecv;
    uint32_t posted, retired;
};

static struct fake_mr *mrs[MAX_OBJECTS];
static struct fake_qp *qps[MAX_OBJECTS];
static uint32_t next_key = 1000, next_qpn = 70;

/* Ranks may be threads: one of them at a time is in here, and calls may be within calls. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static int enter(void) { return pthread_mutex_lock(&lock); }
static void leave(const int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&lock);
}
#define ALONE() __attribute__((cleanup(leave), unused)) const int alone_ = enter()

static int fails(enum fake_verb call)
{
    fake.calls[call]++;
    if (fake.fail_in[call] > 0 && --fake.fail_in[call] == 0) {
        errno = fake.fail_errno;
        return 1;
    }
    return 0;
}

/* ---- completions ---- */

static void complete(struct fake_qp *qp, struct ibv_cq *ibv, struct ibv_wc wc)
{
    struct fake_cq *cq = (struct fake_cq *)ibv;
    wc.qp_num = qp->ibv.qp_num;
    if (cq->n >= cq->ibv.cqe || cq->n >= MAX_CQE) {
        fake.overruns++;
        return;
    }
    cq->sent[cq->n] = qp->posted;
    cq->wc[cq->n++] = wc;
}

static void to_error(struct fake_qp *qp)
{
    qp->attr.qp_state = IBV_QPS_ERR;
    for (int i = 0; i < qp->nrecv; i++) {
        complete(qp, qp->ibv.recv_cq, (struct ibv_wc){ .wr_id = qp->recv[i], .status = IBV_WC_WR_FLUSH_ERR });
    }
    qp->nrecv = 0;
}

static struct fake_qp *qp_find(uint32_t qpn)
{
    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (qps[i] != NULL && qps[i]->ibv.qp_num == qpn) {
            return qps[i];
        }
    }
    return NULL;
}

static void retire(const struct fake_cq *cq, int i)
{
    struct fake_qp *qp = qp_find(cq->wc[i].qp_num);
    if (qp != NULL && cq->wc[i].opcode < IBV_WC_RECV) {
        qp->retired = cq->sent[i];
    }
}

/* Stable, so that each queue pair keeps its order. */
static void newest_first(struct fake_cq *cq)
{
    for (int i = 1; i < cq->n; i++) {
        for (int k = i; k > 0 && cq->wc[k].qp_num > cq->wc[k - 1].qp_num; k--) {
            struct ibv_wc wc = cq->wc[k];
            uint32_t sent = cq->sent[k];
            cq->wc[k] = cq->wc[k - 1], cq->sent[k] = cq->sent[k - 1];
            cq->wc[k - 1] = wc, cq->sent[k - 1] = sent;
        }
    }
}

static int poll_cq(struct ibv_cq *ibv, int most, struct ibv_wc *wc)
{
    ALONE();
    struct fake_cq *cq = (struct fake_cq *)ibv;
    int n = 0, kept = 0;
    if (fails(FAKE_POLL)) {
        return -1;
    }
    if (fake.newest_first) {
        newest_first(cq);
    }
    for (int i = 0; i < cq->n; i++) {
        int is_held = fake.hold || (fake.hold_sends && cq->wc[i].opcode < IBV_WC_RECV) || cq->wc[i].qp_num == fake.hold_qpn;
        if (n < most && !is_held) {
            retire(cq, i);
            wc[n++] = cq->wc[i];
        } else {
            cq->wc[kept] = cq->wc[i];
            cq->sent[kept++] = cq->sent[i];
        }
    }
    cq->n = kept;
    return n;
}

/* ---- the network ---- */

static struct fake_mr *mr_find(uint32_t key, int remote)
{
    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (mrs[i] != NULL && (remote ? mrs[i]->ibv.rkey : mrs[i]->ibv.lkey) == key) {
            return mrs[i];
        }
    }
    return NULL;
}

static int mr_covers(const struct fake_mr *mr, uint64_t address, size_t bytes, int access)
{
    uintptr_t begin = mr ? (uintptr_t)mr->ibv.addr : 0;
    return mr != NULL && (mr->access & access) == access && address >= begin && bytes <= mr->ibv.length &&
           address - begin <= mr->ibv.length - bytes;
}

/* As over a bus: who sees the last word sees all before it. */
static void store_in_order(uint8_t *to, const uint8_t *data, size_t bytes)
{
    uint64_t word;
    if (bytes < sizeof word || ((uintptr_t)to + bytes) % sizeof word != 0) {
        memcpy(to, data, bytes);
        return;
    }
    memcpy(to, data, bytes - sizeof word);
    memcpy(&word, data + bytes - sizeof word, sizeof word);
    __atomic_store_n((uint64_t *)(void *)(to + bytes - sizeof word), word, __ATOMIC_RELEASE);
}

int fake_verbs_poke(uint64_t address, uint32_t rkey, const void *data, size_t bytes)
{
    if (!mr_covers(mr_find(rkey, 1), address, bytes, IBV_ACCESS_REMOTE_WRITE)) {
        return -1;
    }
    store_in_order((uint8_t *)(uintptr_t)address, data, bytes);
    return 0;
}

static enum ibv_wc_status write_deliver(const struct fake_qp *from, struct fake_qp *to, const struct ibv_send_wr *wr, size_t bytes)
{
    if (fake.writes < FAKE_WRITES) {
        fake.write[fake.writes] = (struct fake_write){ from->ibv.qp_num, wr->opcode, wr->wr.rdma.remote_addr, bytes };
    }
    fake.writes++;
    fake.last_write = *wr;
    int refused = bytes > 0 && (to->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0;
    uint64_t at = wr->wr.rdma.remote_addr;
    for (int i = 0; i < wr->num_sge && !refused; at += wr->sg_list[i++].length) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        refused = sge->length > 0 && fake_verbs_poke(at, wr->wr.rdma.rkey, (void *)(uintptr_t)sge->addr, sge->length) != 0;
    }
    if (refused) {
        if (to->nrecv > 0) { /* as Soft-RoCE does */
            complete(to, to->ibv.recv_cq, (struct ibv_wc){ .wr_id = to->recv[0], .status = IBV_WC_REM_ACCESS_ERR, .opcode = IBV_WC_RECV });
            memmove(to->recv, to->recv + 1, (size_t)--to->nrecv * sizeof *to->recv);
        }
        to_error(to);
        return IBV_WC_REM_ACCESS_ERR;
    }
    if (wr->opcode == IBV_WR_RDMA_WRITE) {
        return IBV_WC_SUCCESS;
    }
    if (to->nrecv == 0) {
        return IBV_WC_RNR_RETRY_EXC_ERR;
    }
    complete(to, to->ibv.recv_cq,
             (struct ibv_wc){ .wr_id = to->recv[0],
                              .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                              .wc_flags = IBV_WC_WITH_IMM,
                              .imm_data = wr->imm_data,
                              .byte_len = (uint32_t)bytes });
    memmove(to->recv, to->recv + 1, (size_t)--to->nrecv * sizeof *to->recv);
    return IBV_WC_SUCCESS;
}

static int is_local(const struct ibv_send_wr *wr, int access)
{
    int all = 1;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        all &= sge->length == 0 || mr_covers(mr_find(sge->lkey, 0), sge->addr, sge->length, access);
    }
    return all;
}

static enum ibv_wc_status deliver(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
    size_t bytes = rondo_verbs_wr_bytes(wr);
    struct fake_qp *to = qp_find(qp->attr.dest_qp_num);
    int local = wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
    if (fake.send_status != IBV_WC_SUCCESS) {
        enum ibv_wc_status status = fake.send_status;
        fake.send_status = IBV_WC_SUCCESS;
        return status;
    }
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) { /* its key means nothing */
        fake.bad_uses += bytes > qp->cap.max_inline_data || wr->opcode == IBV_WR_RDMA_READ;
        fake.inlined++;
    } else if (!is_local(wr, local)) {
        return IBV_WC_LOC_PROT_ERR;
    }
    fake.early += to != NULL && to->attr.qp_state < IBV_QPS_RTR;
    if (to == NULL || (to->attr.qp_state != IBV_QPS_RTR && to->attr.qp_state != IBV_QPS_RTS) || to->attr.dest_qp_num != qp->ibv.qp_num ||
        to->attr.rq_psn != qp->attr.sq_psn || to->attr.path_mtu != qp->attr.path_mtu) {
        return IBV_WC_RETRY_EXC_ERR;
    }
    if (wr->opcode != IBV_WR_RDMA_READ) {
        return write_deliver(qp, to, wr, bytes);
    }
    fake.reads++;
    if ((to->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0 ||
        !mr_covers(mr_find(wr->wr.rdma.rkey, 1), wr->wr.rdma.remote_addr, bytes, IBV_ACCESS_REMOTE_READ)) {
        return IBV_WC_REM_ACCESS_ERR;
    }
    memcpy((void *)(uintptr_t)wr->sg_list->addr, (void *)(uintptr_t)wr->wr.rdma.remote_addr, bytes);
    return IBV_WC_SUCCESS;
}

static int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    ALONE();
    struct fake_qp *qp = (struct fake_qp *)ibv;
    for (; wr != NULL; wr = wr->next) {
        enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
        *bad = wr;
        if (fails(FAKE_POST_SEND)) {
            return fake.fail_errno;
        }
        if ((qp->attr.qp_state != IBV_QPS_RTS && qp->attr.qp_state != IBV_QPS_ERR) || wr->num_sge > (int)qp->cap.max_send_sge ||
            qp->posted - qp->retired >= qp->cap.max_send_wr) {
            fake.bad_uses++;
            return EINVAL;
        }
        qp->posted++;
        if (qp->attr.qp_state == IBV_QPS_RTS) {
            status = deliver(qp, wr);
        }
        if (status != IBV_WC_SUCCESS || (wr->send_flags & IBV_SEND_SIGNALED) != 0) {
            enum ibv_wc_opcode opcode = wr->opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
            complete(qp, ibv->send_cq,
                     (struct ibv_wc){ .wr_id = wr->wr_id, .status = status, .opcode = opcode, .vendor_err = fake.vendor });
        }
        if (status != IBV_WC_SUCCESS) {
            to_error(qp);
        }
    }
    return 0;
}

static int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    ALONE();
    struct fake_qp *qp = (struct fake_qp *)ibv;
    *bad = wr;
    if (fails(FAKE_POST_RECV)) {
        return fake.fail_errno;
    }
    if (qp->nrecv >= (int)qp->cap.max_recv_wr || wr->next != NULL) {
        fake.bad_uses++;
        return ENOMEM;
    }
    qp->recv[qp->nrecv++] = wr->wr_id;
    if (qp->attr.qp_state == IBV_QPS_ERR) {
        to_error(qp);
    }
    return 0;
}

/* ---- objects ---- */

static struct ibv_cq *create_cq(struct ibv_context *context, int entries, void *arg, struct ibv_comp_channel *channel, int vector)
{
    ALONE();
    (void)channel, (void)vector;
    struct fake_cq *cq = fails(FAKE_CQ) ? NULL : calloc(1, sizeof *cq);
    if (cq == NULL) {
        return NULL;
    }
    cq->ibv = (struct ibv_cq){ .context = context, .cq_context = arg, .cqe = entries };
    fake.last_cqe = entries;
    fake.live[FAKE_CQ]++;
    return &cq->ibv;
}

static int destroy_cq(struct ibv_cq *cq)
{
    ALONE();
    for (int i = 0; i < MAX_OBJECTS; i++) {
        fake.bad_uses += qps[i] != NULL && qps[i]->ibv.send_cq == cq;
    }
    free(cq);
    fake.live[FAKE_CQ]--;
    return 0;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    ALONE();
    struct fake_qp *qp = fails(FAKE_QP) ? NULL : calloc(1, sizeof *qp);
    int slot = 0;
    fake.last_qp = *attr;
    if (qp == NULL || attr->cap.max_inline_data > fake.most_inline) {
        errno = qp != NULL ? EINVAL : errno;
        free(qp);
        return NULL;
    }
    attr->cap.max_inline_data = attr->cap.max_inline_data > 0 ? (uint32_t)fake.inline_given : 0;
    qp->ibv = (struct ibv_qp){ .context = pd->context,
                               .qp_context = attr->qp_context,
                               .pd = pd,
                               .send_cq = attr->send_cq,
                               .recv_cq = attr->recv_cq,
                               .qp_num = next_qpn++,
                               .qp_type = attr->qp_type };
    qp->cap = attr->cap;
    fake.live[FAKE_QP]++;
    while (qps[slot] != NULL) {
        slot++;
    }
    qps[slot] = qp;
    return &qp->ibv;
}

/* A card keeps what the mask names. */
static void modify_apply(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
    to->qp_state = from->qp_state;
    to->qp_access_flags = mask & IBV_QP_ACCESS_FLAGS ? from->qp_access_flags : to->qp_access_flags;
    to->dest_qp_num = mask & IBV_QP_DEST_QPN ? from->dest_qp_num : to->dest_qp_num;
    to->path_mtu = mask & IBV_QP_PATH_MTU ? from->path_mtu : to->path_mtu;
    to->rq_psn = mask & IBV_QP_RQ_PSN ? from->rq_psn : to->rq_psn;
    to->sq_psn = mask & IBV_QP_SQ_PSN ? from->sq_psn : to->sq_psn;
}

static int modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    ALONE();
    struct fake_qp *qp = (struct fake_qp *)ibv;
    if (fails(FAKE_MODIFY)) {
        return fake.fail_errno;
    }
    if (fake.nmodifies < FAKE_MODIFIES) {
        fake.modify[fake.nmodifies++] = (struct fake_modify){ ibv->qp_num, mask, *attr };
    }
    if ((mask & IBV_QP_STATE) == 0 || attr->qp_state != qp->attr.qp_state + 1) {
        return EINVAL;
    }
    modify_apply(&qp->attr, attr, mask);
    return 0;
}

static int destroy_qp(struct ibv_qp *ibv)
{
    ALONE();
    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (qps[i] == (struct fake_qp *)ibv) {
            qps[i] = NULL;
        }
    }
    free(ibv);
    fake.live[FAKE_QP]--;
    return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *data, size_t bytes, int access)
{
    ALONE();
    struct fake_mr *mr = fails(FAKE_MR) ? NULL : calloc(1, sizeof *mr);
    int slot = 0;
    if (mr == NULL) {
        return NULL;
    }
    mr->ibv = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = data, .length = bytes, .lkey = next_key++, .rkey = next_key++ };
    mr->access = access;
    while (mrs[slot] != NULL) {
        slot++;
    }
    mrs[slot] = mr;
    fake.last_mr_begin = (uintptr_t)data;
    fake.last_mr_bytes = bytes;
    fake.last_mr_access = access;
    fake.last_mr_call = 1;
    fake.live[FAKE_MR]++;
    return &mr->ibv;
}

static struct ibv_mr *reg_mr_iova2(struct ibv_pd *pd, void *data, size_t bytes, uint64_t iova, unsigned access)
{
    ALONE();
    struct ibv_mr *mr = reg_mr(pd, data, bytes, (int)access);
    fake.bad_uses += iova != (uintptr_t)data;
    fake.last_mr_call = 2;
    return mr;
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access)
{
    ALONE();
    if (fd < 0) {
        errno = fake.dmabuf_errno;
        return NULL;
    }
    if (fake.fail_dmabuf_in > 0 && --fake.fail_dmabuf_in == 0) {
        errno = fake.fail_errno;
        return NULL;
    }
    struct ibv_mr *mr = reg_mr(pd, (void *)(uintptr_t)iova, bytes, access);
    fake.bad_uses += offset != 0;
    fake.last_mr_call = 3;
    return mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
    ALONE();
    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (mrs[i] == (struct fake_mr *)mr) {
            mrs[i] = NULL;
        }
    }
    free(mr);
    fake.live[FAKE_MR]--;
    return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
    ALONE();
    struct ibv_pd *pd = fails(FAKE_PD) ? NULL : calloc(1, sizeof *pd);
    if (pd != NULL) {
        pd->context = context;
        fake.live[FAKE_PD]++;
    }
    return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
    ALONE();
    for (int i = 0; i < MAX_OBJECTS; i++) {
        fake.bad_uses += (mrs[i] != NULL && mrs[i]->ibv.pd == pd) + (qps[i] != NULL && qps[i]->ibv.pd == pd);
    }
    free(pd);
    fake.live[FAKE_PD]--;
    return 0;
}

/* ---- devices ---- */

static struct ibv_device **get_device_list(int *n)
{
    ALONE();
    struct ibv_device **list = calloc((size_t)fake.ncards + 1, sizeof *list);
    for (int i = 0; i < fake.ncards; i++) {
        list[i] = &fake.card[i].device;
    }
    *n = fake.ncards;
    return list;
}

static void free_device_list(struct ibv_device **list) { free(list); }
static const char *get_device_name(struct ibv_device *device) { return device->name; }
static __be64 get_device_guid(struct ibv_device *device) { return htobe64(0xfeed0000u + (uint64_t)(uint8_t)device->name[4]); }

static struct ibv_context *open_device(struct ibv_device *device)
{
    ALONE();
    struct ibv_context *context = fails(FAKE_OPEN) ? NULL : calloc(1, sizeof *context);
    if (context != NULL) {
        context->device = device;
        context->ops.post_send = post_send;
        context->ops.post_recv = post_recv;
        context->ops.poll_cq = poll_cq;
        context->async_fd = eventfd(0, EFD_CLOEXEC);
        fake.live[FAKE_OPEN]++;
    }
    return context;
}

static int close_device(struct ibv_context *context)
{
    ALONE();
    close(context->async_fd);
    free(context);
    fake.live[FAKE_OPEN]--;
    return 0;
}

static struct fake_card *card_of(struct ibv_context *context) { return (struct fake_card *)context->device; }

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    memset(attr, 0, sizeof *attr);
    attr->phys_port_cnt = (uint8_t)card_of(context)->ports;
    return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
    ALONE();
    *attr = card_of(context)->port[port - 1].attr;
    return 0;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    *gid = card_of(context)->port[port - 1].gid[index];
    return 0;
}

static int query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
                        size_t bytes)
{
    (void)flags, (void)bytes;
    entry->gid = card_of(context)->port[port - 1].gid[index];
    entry->gid_type = card_of(context)->port[port - 1].gid_type[index];
    return 0;
}

static int get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    ALONE();
    eventfd_t count;
    if (eventfd_read(context->async_fd, &count) != 0) { /* waits when nobody made it not wait */
        return -1;
    }
    *event = fake.event;
    return 0;
}

static void ack_async_event(struct ibv_async_event *event)
{
    (void)event;
    fake.events--;
}

void fake_verbs_event(struct ibv_async_event event)
{
    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (qps[i] != NULL) {
            fake.event = event;
            fake.events++;
            eventfd_write(qps[i]->ibv.context->async_fd, 1);
            return;
        }
    }
}

#define ROW_(ctx, type, name, symbol, needed, parameters) .name = name,
const struct rondo_verbs_lib fake_verbs_lib = { RONDO_VERBS_TABLE(ROW_, ) };
#undef ROW_

int fake_verbs_objects(void) { return fake.live[FAKE_PD] + fake.live[FAKE_MR] + fake.live[FAKE_CQ] + fake.live[FAKE_QP]; }

void fake_verbs_reset(void)
{
    static const uint8_t ipv4[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 5 };
    struct fake_card *card = fake.card;
    memset(&fake, 0, sizeof fake);
    fake.ncards = 1;
    fake.most_inline = 64;
    fake.inline_given = 96;
    fake.dmabuf_errno = EBADF;
    snprintf(card->device.name, sizeof card->device.name, "fake0");
    card->ports = FAKE_PORTS;
    for (int i = 0; i < FAKE_PORTS; i++) {
        struct ibv_port_attr *attr = &card->port[i].attr;
        *attr = (struct ibv_port_attr){ .state = IBV_PORT_ACTIVE, .gid_tbl_len = FAKE_GIDS, .max_msg_sz = 1u << 30, .active_width = 2 };
        attr->active_mtu = i == 0 ? IBV_MTU_4096 : IBV_MTU_1024;
        attr->link_layer = i == 0 ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
        attr->lid = i == 0 ? 17 : 0;
        attr->active_speed = i == 0 ? 128 : 32;
        card->port[i].gid[0].raw[0] = 0xfe; /* link-local */
        card->port[i].gid[0].raw[1] = 0x80;
        card->port[i].gid[0].raw[15] = (uint8_t)(1 + i);
    }
    card->port[1].gid[1] = card->port[1].gid[0];
    memcpy(card->port[1].gid[2].raw, ipv4, sizeof ipv4);
    memcpy(card->port[1].gid[3].raw, ipv4, sizeof ipv4);
    card->port[1].gid_type[0] = card->port[1].gid_type[2] = IBV_GID_TYPE_ROCE_V1;
    card->port[1].gid_type[1] = card->port[1].gid_type[3] = IBV_GID_TYPE_ROCE_V2;
}
