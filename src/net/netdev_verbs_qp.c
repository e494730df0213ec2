/* Queue pairs: RESET, INIT, RTR, RTS; every attribute is set here. */
#include "net/netdev_verbs.h"

#include <errno.h>
#include <string.h>
#include "base/log.h"
#include "base/param.h"

enum { MIN_RNR_TIMER = 12, HOP_LIMIT = 255, SUBNET_BYTES = 8 };

#define SECOND_NS 1000000000ll

static rondo_status modify_failed(const struct rondo_verbs_comm *comm, const struct ibv_qp *qp, const char *state, int error)
{
    char ends[RONDO_VERBS_ENDS];
    rondo_verbs_ends(comm, ends);
    return rondo_fail(RONDO_SYSTEM_ERROR, "cannot bring queue pair %u (%s) into state %s: %s; %s", qp->qp_num, ends, state, strerror(error),
                      rondo_verbs_errno_cause(error));
}

static rondo_status create_failed(const struct rondo_verbs_comm *comm, const char *what, int error)
{
    return rondo_fail(RONDO_SYSTEM_ERROR, "cannot create a %s of %s on %s for rank %d on %s: %s; %s", what, comm->port->name,
                      rondo_log_host(), comm->peer.rank, comm->peer.host, strerror(error), rondo_verbs_errno_cause(error));
}

static rondo_status to_init(struct rondo_verbs_comm *comm, struct ibv_qp *qp, unsigned access)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .pkey_index = (uint16_t)rondo_params()->ib_pkey, .port_num = comm->port->number, .qp_access_flags = access
    };
    int rc = comm->lib->modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    return rc == 0 ? RONDO_SUCCESS : modify_failed(comm, qp, "INIT", rc);
}

/* Within a subnet of InfiniBand a LID is enough; Ethernet, other subnets, and ports without one need the GID. */
static int needs_gid(const struct rondo_verbs_comm *comm, const struct rondo_verbs_end *to)
{
    return comm->address.link_layer == IBV_LINK_LAYER_ETHERNET || to->lid == 0 || comm->address.lid == 0 ||
           memcmp(comm->address.gid.raw, to->gid, SUBNET_BYTES) != 0;
}

static rondo_status to_rtr(struct rondo_verbs_comm *comm, struct ibv_qp *qp, const struct rondo_verbs_end *to)
{
    const struct rondo_params *params = rondo_params();
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
                                .path_mtu = (enum ibv_mtu)rondo_min_size(comm->address.mtu, to->mtu),
                                .dest_qp_num = to->qpn,
                                .rq_psn = to->psn,
                                .max_dest_rd_atomic = 1,
                                .min_rnr_timer = MIN_RNR_TIMER,
                                .ah_attr = { .sl = (uint8_t)params->ib_sl, .port_num = comm->port->number } };
    if (needs_gid(comm, to)) {
        attr.ah_attr.is_global = 1;
        memcpy(attr.ah_attr.grh.dgid.raw, to->gid, sizeof attr.ah_attr.grh.dgid.raw);
        attr.ah_attr.grh.sgid_index = (uint8_t)comm->address.gid_index;
        attr.ah_attr.grh.hop_limit = HOP_LIMIT;
        attr.ah_attr.grh.traffic_class = (uint8_t)params->ib_tc;
    }
    if (comm->address.link_layer == IBV_LINK_LAYER_INFINIBAND) {
        attr.ah_attr.dlid = to->lid;
    }
    int rc = comm->lib->modify_qp(qp, &attr,
                                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                      IBV_QP_MIN_RNR_TIMER);
    return rc == 0 ? RONDO_SUCCESS : modify_failed(comm, qp, "RTR (ready to receive)", rc);
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
    int rc = comm->lib->modify_qp(
        qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return rc == 0 ? RONDO_SUCCESS : modify_failed(comm, qp, "RTS (ready to send)", rc);
}

int64_t rondo_verbs_retry_window_ns(void)
{
    const struct rondo_params *params = rondo_params();
    return (params->ib_retry_cnt + 1) * (4096ll << params->ib_timeout) + SECOND_NS;
}

static rondo_status qp_create(struct rondo_verbs_comm *comm, uint32_t sends, uint32_t receives, unsigned access, struct ibv_qp **qp)
{
    struct ibv_qp_init_attr attr = { .qp_context = comm,
                                     .send_cq = comm->cq,
                                     .recv_cq = comm->cq,
                                     .cap = { .max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1 },
                                     .qp_type = IBV_QPT_RC };
    *qp = comm->lib->create_qp(comm->port->card->pd, &attr);
    if (*qp == NULL) {
        return create_failed(comm, "queue pair", errno);
    }
    return to_init(comm, *qp, access);
}

/* Every work request that can be under way completes with an error when the queue pair ends, signalled or not: the queue has room for all. */
rondo_status rondo_verbs_qp_open(struct rondo_verbs_comm *comm)
{
    int entries = RONDO_VERBS_SEND_WR + RONDO_VERBS_RECV_WR + RONDO_VERBS_FLUSHES;
    comm->cq = comm->lib->create_cq(comm->port->card->context, entries, comm, NULL, 0);
    if (comm->cq == NULL) {
        return create_failed(comm, "completion queue", errno);
    }
    return qp_create(comm, RONDO_VERBS_SEND_WR, RONDO_VERBS_RECV_WR, IBV_ACCESS_REMOTE_WRITE, &comm->qp);
}

rondo_status rondo_verbs_qp_connect(struct rondo_verbs_comm *comm)
{
    RONDO_TRY(to_rtr(comm, comm->qp, &comm->theirs));
    return to_rts(comm, comm->qp, comm->mine.psn);
}

static void qp_destroy(struct rondo_verbs_comm *comm, struct ibv_qp **qp)
{
    if (*qp != NULL) {
        comm->lib->destroy_qp(*qp);
        *qp = NULL;
    }
}

rondo_status rondo_verbs_qp_open_flush(struct rondo_verbs_comm *comm)
{
    struct rondo_verbs_end self = comm->mine;
    rondo_status status;
    if (comm->flush_qp != NULL) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY_GOTO(qp_create(comm, RONDO_VERBS_FLUSHES, 1, IBV_ACCESS_REMOTE_READ, &comm->flush_qp), failed);
    self.qpn = comm->flush_qp->qp_num;
    RONDO_TRY_GOTO(to_rtr(comm, comm->flush_qp, &self), failed);
    RONDO_TRY_GOTO(to_rts(comm, comm->flush_qp, self.psn), failed);
    return RONDO_SUCCESS;
failed:
    qp_destroy(comm, &comm->flush_qp);
    return status;
}

void rondo_verbs_qp_close(struct rondo_verbs_comm *comm)
{
    qp_destroy(comm, &comm->flush_qp);
    qp_destroy(comm, &comm->qp);
    if (comm->cq != NULL) {
        comm->lib->destroy_cq(comm->cq);
        comm->cq = NULL;
    }
}
