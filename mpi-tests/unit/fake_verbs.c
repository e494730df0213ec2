#include "fake_verbs_impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fake_verbs fake;
struct fake_mr *fake_mrs[FAKE_OBJECTS];
struct fake_qp *fake_qps[FAKE_OBJECTS];
pthread_mutex_t fake_verbs_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static uint32_t next_key = 1000, next_qpn = 70;

/* ---- objects ---- */

static struct ibv_cq *create_cq(struct ibv_context *context, int entries, void *arg,
                                struct ibv_comp_channel *channel, int vector)
{
    FAKE_ALONE();
    (void)channel, (void)vector;
    struct fake_cq *cq = fake_verb_fails(FAKE_CQ) ? NULL : calloc(1, sizeof *cq);
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
    FAKE_ALONE();
    for (int i = 0; i < FAKE_OBJECTS; i++) {
        fake.bad_uses += fake_qps[i] != NULL && fake_qps[i]->ibv.send_cq == cq;
    }
    free(cq);
    fake.live[FAKE_CQ]--;
    return 0;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    FAKE_ALONE();
    struct fake_qp *qp = fake_verb_fails(FAKE_QP) ? NULL : calloc(1, sizeof *qp);
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
    while (fake_qps[slot] != NULL) {
        slot++;
    }
    fake_qps[slot] = qp;
    return &qp->ibv;
}

/* Keep the attributes that the mask names, as a NIC does. */
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
    FAKE_ALONE();
    struct fake_qp *qp = (struct fake_qp *)ibv;
    if (fake_verb_fails(FAKE_MODIFY)) {
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
    FAKE_ALONE();
    for (int i = 0; i < FAKE_OBJECTS; i++) {
        if (fake_qps[i] == (struct fake_qp *)ibv) {
            fake_qps[i] = NULL;
        }
    }
    free(ibv);
    fake.live[FAKE_QP]--;
    return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *data, size_t bytes, int access)
{
    FAKE_ALONE();
    struct fake_mr *mr = fake_verb_fails(FAKE_MR) ? NULL : calloc(1, sizeof *mr);
    int slot = 0;
    if (mr == NULL) {
        return NULL;
    }
    mr->ibv = (struct ibv_mr){ .context = pd->context,
                               .pd = pd,
                               .addr = data,
                               .length = bytes,
                               .lkey = next_key++,
                               .rkey = next_key++ };
    mr->access = access;
    while (fake_mrs[slot] != NULL) {
        slot++;
    }
    fake_mrs[slot] = mr;
    fake.last_mr_begin = (uintptr_t)data;
    fake.last_mr_bytes = bytes;
    fake.last_mr_access = access;
    fake.last_mr_call = 1;
    fake.live[FAKE_MR]++;
    return &mr->ibv;
}

static struct ibv_mr *reg_mr_iova2(struct ibv_pd *pd, void *data, size_t bytes, uint64_t iova,
                                   unsigned access)
{
    FAKE_ALONE();
    struct ibv_mr *mr = reg_mr(pd, data, bytes, (int)access);
    fake.bad_uses += iova != (uintptr_t)data;
    fake.last_mr_call = 2;
    return mr;
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd,
                                    int access)
{
    FAKE_ALONE();
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
    FAKE_ALONE();
    for (int i = 0; i < FAKE_OBJECTS; i++) {
        if (fake_mrs[i] == (struct fake_mr *)mr) {
            fake_mrs[i] = NULL;
        }
    }
    free(mr);
    fake.live[FAKE_MR]--;
    return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
    FAKE_ALONE();
    struct ibv_pd *pd = fake_verb_fails(FAKE_PD) ? NULL : calloc(1, sizeof *pd);
    if (pd != NULL) {
        pd->context = context;
        fake.live[FAKE_PD]++;
    }
    return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
    FAKE_ALONE();
    for (int i = 0; i < FAKE_OBJECTS; i++) {
        fake.bad_uses += (fake_mrs[i] != NULL && fake_mrs[i]->ibv.pd == pd) +
                         (fake_qps[i] != NULL && fake_qps[i]->ibv.pd == pd);
    }
    free(pd);
    fake.live[FAKE_PD]--;
    return 0;
}

/* ---- devices ---- */

static struct ibv_device **get_device_list(int *n)
{
    FAKE_ALONE();
    struct ibv_device **list = calloc((size_t)fake.nnics + 1, sizeof *list);
    for (int i = 0; i < fake.nnics; i++) {
        list[i] = &fake.nic[i].device;
    }
    *n = fake.nnics;
    return list;
}

static void free_device_list(struct ibv_device **list) { free(list); }
static const char *get_device_name(struct ibv_device *device) { return device->name; }
static __be64 get_device_guid(struct ibv_device *device)
{
    return htobe64(0xfeed0000u + (uint64_t)(uint8_t)device->name[4]);
}

static int fork_init(void) { return 0; }

static struct ibv_context *open_device(struct ibv_device *device)
{
    FAKE_ALONE();
    struct ibv_context *context = fake_verb_fails(FAKE_OPEN) ? NULL : calloc(1, sizeof *context);
    if (context != NULL) {
        context->device = device;
        context->ops.post_send = fake_post_send;
        context->ops.post_recv = fake_post_recv;
        context->ops.poll_cq = fake_poll_cq;
        context->async_fd = eventfd(0, EFD_CLOEXEC);
        fake.live[FAKE_OPEN]++;
    }
    return context;
}

static int close_device(struct ibv_context *context)
{
    FAKE_ALONE();
    close(context->async_fd);
    free(context);
    fake.live[FAKE_OPEN]--;
    return 0;
}

static struct fake_nic *nic_of(struct ibv_context *context) { return (struct fake_nic *)context->device; }

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    memset(attr, 0, sizeof *attr);
    attr->phys_port_cnt = (uint8_t)nic_of(context)->ports;
    return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
    FAKE_ALONE();
    *attr = nic_of(context)->port[port - 1].attr;
    return 0;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    *gid = nic_of(context)->port[port - 1].gid[index];
    return 0;
}

static int query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                        struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
    (void)flags, (void)bytes;
    entry->gid = nic_of(context)->port[port - 1].gid[index];
    entry->gid_type = nic_of(context)->port[port - 1].gid_type[index];
    return 0;
}

static int get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    FAKE_ALONE();
    eventfd_t count;
    if (eventfd_read(context->async_fd, &count) != 0) { /* would block if the descriptor were blocking */
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
    for (int i = 0; i < FAKE_OBJECTS; i++) {
        if (fake_qps[i] != NULL) {
            fake.event = event;
            fake.events++;
            eventfd_write(fake_qps[i]->ibv.context->async_fd, 1);
            return;
        }
    }
}

#define ROW_(ctx, type, name, symbol, needed, parameters) .name = name,
const struct rondo_verbs_lib fake_verbs_lib = { RONDO_VERBS_TABLE(ROW_, ) };
#undef ROW_

int fake_verbs_objects(void)
{
    FAKE_ALONE();
    return fake.live[FAKE_PD] + fake.live[FAKE_MR] + fake.live[FAKE_CQ] + fake.live[FAKE_QP];
}

void fake_verbs_hold_sends(int hold)
{
    FAKE_ALONE();
    fake.hold_sends = hold;
}

int fake_verbs_live(enum fake_verb kind)
{
    FAKE_ALONE();
    return fake.live[kind];
}

int fake_verbs_take_writes(struct fake_write out[FAKE_WRITES])
{
    FAKE_ALONE();
    int n = fake.writes < FAKE_WRITES ? fake.writes : FAKE_WRITES;
    memcpy(out, fake.write, (size_t)n * sizeof *out);
    fake.writes = 0;
    return n;
}

void fake_verbs_reset(void)
{
    static const uint8_t ipv4[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 5 };
    struct fake_nic *nic = fake.nic;
    memset(&fake, 0, sizeof fake);
    fake.nnics = 1;
    fake.most_inline = 64;
    fake.inline_given = 96;
    fake.dmabuf_errno = EBADF;
    snprintf(nic->device.name, sizeof nic->device.name, "fake0");
    nic->ports = FAKE_PORTS;
    for (int i = 0; i < FAKE_PORTS; i++) {
        struct ibv_port_attr *attr = &nic->port[i].attr;
        *attr = (struct ibv_port_attr){
            .state = IBV_PORT_ACTIVE, .gid_tbl_len = FAKE_GIDS, .max_msg_sz = 1u << 30, .active_width = 2
        };
        attr->active_mtu = i == 0 ? IBV_MTU_4096 : IBV_MTU_1024;
        attr->link_layer = i == 0 ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
        attr->lid = i == 0 ? 17 : 0;
        attr->active_speed = i == 0 ? 128 : 32;
        nic->port[i].gid[0].raw[0] = 0xfe; /* link-local */
        nic->port[i].gid[0].raw[1] = 0x80;
        nic->port[i].gid[0].raw[15] = (uint8_t)(1 + i);
    }
    nic->port[1].gid[1] = nic->port[1].gid[0];
    memcpy(nic->port[1].gid[2].raw, ipv4, sizeof ipv4);
    memcpy(nic->port[1].gid[3].raw, ipv4, sizeof ipv4);
    nic->port[1].gid_type[0] = nic->port[1].gid_type[2] = IBV_GID_TYPE_ROCE_V1;
    nic->port[1].gid_type[1] = nic->port[1].gid_type[3] = IBV_GID_TYPE_ROCE_V2;
}
