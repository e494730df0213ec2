/* Queue pairs: RESET, INIT, RTR, RTS; every attribute is set here. */
#include "net/verbs/verbs.h"

#include <errno.h>
#include <string.h>
#include "base/log.h"
#include "base/param.h"
#include "base/wait.h"

enum { MIN_RNR_TIMER = 12, HOP_LIMIT = 255, SUBNET_BYTES = 8, PSN_STEP = 0x9e3779, PSN_MASK = 0xffffff };

#define SECOND_NS 1000000000ll

static rondo_status modify_failed(const struct rondo_verbs_comm *comm, const struct ibv_qp *qp,
                                  const char *state, int error)
{
    char ends[RONDO_VERBS_ENDS];
    rondo_verbs_ends(comm, ends);
    return rondo_fail(RONDO_SYSTEM_ERROR, "cannot bring queue pair %u (%s) into state %s: %s; %s", qp->qp_num,
                      ends, state, strerror(error), rondo_verbs_errno_cause(error));
}

static rondo_status create_failed(const struct rondo_verbs_comm *comm, const char *what, int error)
{
    return rondo_fail(RONDO_SYSTEM_ERROR, "cannot create a %s of %s on %s for rank %d on %s: %s; %s", what,
                      comm->port->name, rondo_log_host(), comm->peer.rank, comm->peer.host, strerror(error),
                      rondo_verbs_errno_cause(error));
}

static rondo_status to_init(struct rondo_verbs_comm *comm, struct ibv_qp *qp, unsigned access)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
                                .pkey_index = (uint16_t)rondo_params()->ib_pkey,
                                .port_num = comm->port->number,
                                .qp_access_flags = access };
    int rc = comm->lib->modify_qp(qp, &attr,
                                  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    return rc == 0 ? RONDO_SUCCESS : modify_failed(comm, qp, "INIT", rc);
}

/* Within an InfiniBand subnet a LID is enough; Ethernet, other subnets, and ports without a LID need the
 * GID. */
static int needs_gid(const struct rondo_verbs_comm *comm, const struct rondo_verbs_end *to)
{
    return comm->address.link_layer == IBV_LINK_LAYER_ETHERNET || to->lid == 0 || comm->address.lid == 0 ||
           memcmp(comm->address.gid.raw, to->gid, SUBNET_BYTES) != 0;
}

/* Packet numbers start at a random value, a different one on each lane. */
static uint32_t psn_of(const struct rondo_verbs_end *end, int lane)
{
    return (end->psn + (uint32_t)lane * PSN_STEP) & PSN_MASK;
}

/* Receivers send only clear-to-sends. */
static uint8_t traffic_class(const struct rondo_verbs_comm *comm)
{
    const struct rondo_params *params = rondo_params();
    int64_t class = !comm->is_send && params->ib_fifo_tc >= 0 ? params->ib_fifo_tc : params->ib_tc;
    return class >= 0 ? (uint8_t) class : 0;
}

/* @return 0 or errno. */
static int to_rtr(struct rondo_verbs_comm *comm, struct ibv_qp *qp, const struct rondo_verbs_end *to,
                  uint32_t qpn, uint32_t psn)
{
    const struct rondo_params *params = rondo_params();
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
                                .path_mtu = (enum ibv_mtu)rondo_min_size(comm->address.mtu, to->mtu),
                                .dest_qp_num = qpn,
                                .rq_psn = psn,
                                .max_dest_rd_atomic = 1,
                                .min_rnr_timer = MIN_RNR_TIMER,
                                .ah_attr = { .sl = params->ib_sl >= 0 ? (uint8_t)params->ib_sl : 0,
                                             .port_num = comm->port->number } };
    if (needs_gid(comm, to)) {
        attr.ah_attr.is_global = 1;
        memcpy(attr.ah_attr.grh.dgid.raw, to->gid, sizeof attr.ah_attr.grh.dgid.raw);
        attr.ah_attr.grh.sgid_index = (uint8_t)comm->address.gid_index;
        attr.ah_attr.grh.hop_limit = HOP_LIMIT;
        attr.ah_attr.grh.traffic_class = traffic_class(comm);
    }
    if (comm->address.link_layer == IBV_LINK_LAYER_INFINIBAND) {
        attr.ah_attr.dlid = to->lid;
    }
    return comm->lib->modify_qp(qp, &attr,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static rondo_status rtr_failed(const struct rondo_verbs_comm *comm, const struct ibv_qp *qp, int error)
{
    return modify_failed(comm, qp, "RTR (ready to receive)", error);
}

static rondo_status to_rts(struct rondo_verbs_comm *comm, struct ibv_qp *qp, uint32_t psn)
{
    const struct rondo_params *params = rondo_params();
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
                                .timeout = (uint8_t)params->ib_timeout,
                                .retry_cnt = (uint8_t)params->ib_retry_cnt,
                                .rnr_retry = RONDO_VERBS_RNR_RETRY,
                                .sq_psn = psn,
                                .max_rd_atomic = 1 };
    int rc = comm->lib->modify_qp(qp, &attr,
                                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return rc == 0 ? RONDO_SUCCESS : modify_failed(comm, qp, "RTS (ready to send)", rc);
}

int64_t rondo_verbs_retry_window_ns(void)
{
    const struct rondo_params *params = rondo_params();
    return (params->ib_retry_cnt + 1) * (4096ll << params->ib_timeout) + SECOND_NS;
}

static struct ibv_qp *qp_try(struct rondo_verbs_comm *comm, uint32_t sends, uint32_t receives,
                             uint32_t *inline_bytes)
{
    struct ibv_qp_init_attr attr = { .qp_context = comm,
                                     .send_cq = comm->cq,
                                     .recv_cq = comm->cq,
                                     .cap = { .max_send_wr = sends,
                                              .max_recv_wr = receives,
                                              .max_send_sge = RONDO_VERBS_PIECES,
                                              .max_recv_sge = 1,
                                              .max_inline_data = *inline_bytes },
                                     .qp_type = IBV_QPT_RC };
    struct ibv_qp *qp = comm->lib->create_qp(comm->port->nic->pd, &attr);
    *inline_bytes = *inline_bytes > 0 ? attr.cap.max_inline_data
                                      : 0; /* granted by the NIC; may be more than requested */
    return qp;
}

/* *inline_bytes: the size requested; set to 0 if the NIC supports none. */
static rondo_status qp_create(struct rondo_verbs_comm *comm, uint32_t sends, uint32_t receives,
                              unsigned access, uint32_t *inline_bytes, struct ibv_qp **qp)
{
    uint32_t asked = *inline_bytes;
    *qp = qp_try(comm, sends, receives, inline_bytes);
    if (*qp == NULL && asked > 0 && (errno == EINVAL || errno == EOPNOTSUPP)) {
        *inline_bytes = 0;
        *qp = qp_try(comm, sends, receives, inline_bytes);
    }
    return *qp != NULL ? to_init(comm, *qp, access) : create_failed(comm, "queue pair", errno);
}

static rondo_status lane_open(struct rondo_verbs_comm *comm, int i)
{
    const struct rondo_params *params = rondo_params();
    struct rondo_verbs_lane *lane = &comm->lane[i];
    uint32_t sends = (uint32_t)rondo_max_size((size_t)params->ib_queue_depth, RONDO_VERBS_SEND_WR);
    uint32_t receives = (uint32_t)rondo_max_size((size_t)params->ib_queue_depth, RONDO_VERBS_RECV_WR);
    lane->inline_bytes = params->ib_use_inline ? RONDO_VERBS_INLINE : 0;
    RONDO_TRY(qp_create(comm, sends, receives, IBV_ACCESS_REMOTE_WRITE, &lane->inline_bytes, &lane->qp));
    for (int byte = 0; byte < 3; byte++) {
        comm->mine.qpn[i][byte] = (uint8_t)(lane->qp->qp_num >> 8 * byte);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_verbs_qp_open(struct rondo_verbs_comm *comm)
{
    comm->cq = comm->lib->create_cq(comm->port->nic->context, rondo_verbs_cqe(comm->nlanes), comm, NULL, 0);
    if (comm->cq == NULL) {
        return create_failed(comm, "completion queue", errno);
    }
    for (int i = 0; i < comm->nlanes; i++) {
        RONDO_TRY(lane_open(comm, i));
    }
    return RONDO_SUCCESS;
}

/* Retry: address resolution for the other end may be in progress. */
static int is_worth_another(const struct rondo_verbs_comm *comm, int error)
{
    const struct rondo_params *params = rondo_params();
    return comm->attempts < params->ib_mqp_retry_cnt && (error == ETIMEDOUT || params->ib_mqp_retry_all);
}

static rondo_status lane_connect(struct rondo_verbs_comm *comm, int i)
{
    struct ibv_qp *qp = comm->lane[i].qp;
    int error = to_rtr(comm, qp, &comm->theirs, rondo_verbs_qpn(&comm->theirs, i), psn_of(&comm->theirs, i));
    if (error != 0 && is_worth_another(comm, error)) {
        comm->attempts++;
        comm->attempt_ns = rondo_now_ns();
        return RONDO_IN_PROGRESS;
    }
    return error == 0 ? to_rts(comm, qp, psn_of(&comm->mine, i)) : rtr_failed(comm, qp, error);
}

rondo_status rondo_verbs_qp_connect(struct rondo_verbs_comm *comm)
{
    if (comm->attempts > 0 &&
        rondo_now_ns() - comm->attempt_ns < rondo_ms_to_ns(rondo_params()->ib_mqp_retry_sleep_msec)) {
        return RONDO_IN_PROGRESS;
    }
    while (comm->nready < comm->nlanes) {
        RONDO_TRY(lane_connect(comm, comm->nready));
        comm->nready++;
    }
    return RONDO_SUCCESS;
}

static void qp_destroy(struct rondo_verbs_comm *comm, struct ibv_qp **qp)
{
    if (*qp != NULL) {
        comm->lib->destroy_qp(*qp);
        *qp = NULL;
    }
}

void rondo_verbs_qp_keep(struct rondo_verbs_comm *comm, int n)
{
    for (; comm->nlanes > n; comm->nlanes--) {
        qp_destroy(comm, &comm->lane[comm->nlanes - 1].qp);
    }
}

rondo_status rondo_verbs_qp_open_flush(struct rondo_verbs_comm *comm)
{
    uint32_t inline_bytes = 0, psn = psn_of(&comm->mine, RONDO_VERBS_LANES);
    rondo_status status;
    if (comm->flush_qp != NULL) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY_GOTO(
        qp_create(comm, RONDO_VERBS_FLUSHES, 1, IBV_ACCESS_REMOTE_READ, &inline_bytes, &comm->flush_qp),
        failed);
    int error = to_rtr(comm, comm->flush_qp, &comm->mine, comm->flush_qp->qp_num, psn);
    RONDO_TRY_GOTO(error == 0 ? RONDO_SUCCESS : rtr_failed(comm, comm->flush_qp, error), failed);
    RONDO_TRY_GOTO(to_rts(comm, comm->flush_qp, psn), failed);
    return RONDO_SUCCESS;
failed:
    qp_destroy(comm, &comm->flush_qp);
    return status;
}

void rondo_verbs_qp_close(struct rondo_verbs_comm *comm)
{
    qp_destroy(comm, &comm->flush_qp);
    rondo_verbs_qp_keep(comm, 0);
    if (comm->cq != NULL) {
        comm->lib->destroy_cq(comm->cq);
        comm->cq = NULL;
    }
}
