/* The network of fake_verbs.h: moves what queue pairs post, and completes it. */
#include "fake_verbs_impl.h"

#include <arpa/inet.h>
#include <string.h>

/* ---- completions ---- */

static void complete(struct fake_qp *qp, struct ibv_cq *ibv, struct ibv_wc wc)
{
    struct fake_cq *cq = (struct fake_cq *)ibv;
    wc.qp_num = qp->ibv.qp_num;
    if (cq->n >= cq->ibv.cqe || cq->n >= FAKE_MAX_CQE) {
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
    for (int i = 0; i < FAKE_OBJECTS; i++) {
        if (fake_qps[i] != NULL && fake_qps[i]->ibv.qp_num == qpn) {
            return fake_qps[i];
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

/* Stable: each queue pair keeps its order. */
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

int fake_poll_cq(struct ibv_cq *ibv, int most, struct ibv_wc *wc)
{
    FAKE_ALONE();
    struct fake_cq *cq = (struct fake_cq *)ibv;
    int n = 0, kept = 0;
    if (fake_verb_fails(FAKE_POLL)) {
        return -1;
    }
    if (fake.newest_first) {
        newest_first(cq);
    }
    for (int i = 0; i < cq->n; i++) {
        int is_held = fake.hold || (fake.hold_sends && cq->wc[i].opcode < IBV_WC_RECV) ||
                      cq->wc[i].qp_num == fake.hold_qpn;
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
    for (int i = 0; i < FAKE_OBJECTS; i++) {
        if (fake_mrs[i] != NULL && (remote ? fake_mrs[i]->ibv.rkey : fake_mrs[i]->ibv.lkey) == key) {
            return fake_mrs[i];
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

/* As over PCIe: whoever sees a word sees all words before it. A write may carry several clear-to-sends, each
 * with a last word that its reader waits for. */
static void store_in_order(uint8_t *to, const uint8_t *data, size_t bytes)
{
    size_t first = -(uintptr_t)to % sizeof(uint64_t);
    uint64_t word;
    if (first > bytes) {
        first = bytes;
    }
    memcpy(to, data, first);
    for (; first + sizeof word <= bytes; first += sizeof word) {
        memcpy(&word, data + first, sizeof word);
        __atomic_store_n((uint64_t *)(void *)(to + first), word, __ATOMIC_RELEASE);
    }
    memcpy(to + first, data + first, bytes - first);
}

int fake_verbs_poke(uint64_t address, uint32_t rkey, const void *data, size_t bytes)
{
    if (!mr_covers(mr_find(rkey, 1), address, bytes, IBV_ACCESS_REMOTE_WRITE)) {
        return -1;
    }
    store_in_order((uint8_t *)(uintptr_t)address, data, bytes);
    return 0;
}

static enum ibv_wc_status write_deliver(const struct fake_qp *from, struct fake_qp *to,
                                        const struct ibv_send_wr *wr, size_t bytes)
{
    if (fake.writes < FAKE_WRITES) {
        fake.write[fake.writes] = (struct fake_write){ from->ibv.qp_num, wr->opcode, wr->wr.rdma.remote_addr,
                                                       bytes, ntohl(wr->imm_data) };
    }
    fake.writes++;
    fake.last_write = *wr;
    int refused = bytes > 0 && (to->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0;
    uint64_t at = wr->wr.rdma.remote_addr;
    for (int i = 0; i < wr->num_sge && !refused; at += wr->sg_list[i++].length) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        refused = sge->length > 0 &&
                  fake_verbs_poke(at, wr->wr.rdma.rkey, (void *)(uintptr_t)sge->addr, sge->length) != 0;
    }
    if (refused) {
        if (to->nrecv > 0) { /* as Soft-RoCE does */
            complete(to, to->ibv.recv_cq,
                     (struct ibv_wc){
                         .wr_id = to->recv[0], .status = IBV_WC_REM_ACCESS_ERR, .opcode = IBV_WC_RECV });
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
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) { /* an inline send's key is ignored */
        fake.bad_uses += bytes > qp->cap.max_inline_data || wr->opcode == IBV_WR_RDMA_READ;
        fake.inlined++;
    } else if (!is_local(wr, local)) {
        return IBV_WC_LOC_PROT_ERR;
    }
    fake.early += to != NULL && to->attr.qp_state < IBV_QPS_RTR;
    if (to == NULL || (to->attr.qp_state != IBV_QPS_RTR && to->attr.qp_state != IBV_QPS_RTS) ||
        to->attr.dest_qp_num != qp->ibv.qp_num || to->attr.rq_psn != qp->attr.sq_psn ||
        to->attr.path_mtu != qp->attr.path_mtu) {
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

int fake_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    FAKE_ALONE();
    struct fake_qp *qp = (struct fake_qp *)ibv;
    for (; wr != NULL; wr = wr->next) {
        enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
        *bad = wr;
        if (fake_verb_fails(FAKE_POST_SEND)) {
            return fake.fail_errno;
        }
        if ((qp->attr.qp_state != IBV_QPS_RTS && qp->attr.qp_state != IBV_QPS_ERR) ||
            wr->num_sge > (int)qp->cap.max_send_sge || qp->posted - qp->retired >= qp->cap.max_send_wr) {
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
                     (struct ibv_wc){
                         .wr_id = wr->wr_id, .status = status, .opcode = opcode, .vendor_err = fake.vendor });
        }
        if (status != IBV_WC_SUCCESS) {
            to_error(qp);
        }
    }
    return 0;
}

int fake_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    FAKE_ALONE();
    struct fake_qp *qp = (struct fake_qp *)ibv;
    *bad = wr;
    if (fake_verb_fails(FAKE_POST_RECV)) {
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
