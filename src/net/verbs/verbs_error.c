/* Error sentences for the NIC's completions and events, with both ends and the usual cause. */
#include "net/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/log.h"
#include "base/param.h"
#include "base/wait.h"

enum { MOST_EVENTS = 64 /* handled in one call */, LINK_TELLS_MS = 200 };

/* ---- ends ---- */

static void end_text(const struct rondo_verbs_end *end, int lane, const char *host, char *text, size_t bytes)
{
    char gid[INET6_ADDRSTRLEN] = "";
    if (end->link_layer == IBV_LINK_LAYER_INFINIBAND && end->lid != 0) {
        snprintf(gid, sizeof gid, "LID %d", end->lid);
    } else {
        inet_ntop(AF_INET6, end->gid, gid, sizeof gid);
    }
    snprintf(text, bytes, "%.40s %.20s:%d (%s, queue pair %u)", host, end->device, end->port, gid,
             rondo_verbs_qpn(end, lane));
}

void rondo_verbs_ends(const struct rondo_verbs_comm *comm, char text[RONDO_VERBS_ENDS])
{
    char mine[RONDO_VERBS_ENDS / 2 - 20], theirs[RONDO_VERBS_ENDS / 2 - 20] = "";
    end_text(&comm->mine, comm->shown, rondo_log_host(), mine, sizeof mine);
    if (comm->theirs.magic == RONDO_VERBS_MAGIC) {
        end_text(&comm->theirs, comm->shown, comm->peer.host, theirs, sizeof theirs);
    } else {
        snprintf(theirs, sizeof theirs, "%.40s", comm->peer.host);
    }
    snprintf(text, RONDO_VERBS_ENDS, "%s %s rank %d %s", mine, comm->is_send ? "to" : "from", comm->peer.rank,
             theirs);
}

/* ---- a comm's one error ---- */

static void keep(struct rondo_verbs_comm *comm, rondo_status status, const char *fmt, va_list args)
{
    if (comm->error == RONDO_SUCCESS) {
        vsnprintf(comm->text, sizeof comm->text, fmt, args);
        comm->error = status;
    }
}

rondo_status rondo_verbs_comm_fail(struct rondo_verbs_comm *comm, rondo_status status, const char *fmt, ...)
{
    int first = comm->error == RONDO_SUCCESS;
    va_list args;
    va_start(args, fmt);
    keep(comm, status, fmt, args);
    va_end(args);
    comm->gone =
        0; /* completions of a broken end no longer count, and flushes may never end on a failed NIC */
    status = rondo_verbs_comm_error(comm);
    return first ? rondo_fail_aloud(status) : status;
}

/* Fail an operation. A receiver's failure may concern nobody, because the peer has finished and left. */
static RONDO_PRINTF(3, 4) rondo_status
    operation_fail(struct rondo_verbs_comm *comm, rondo_status status, const char *fmt, ...)
{
    int first = comm->error == RONDO_SUCCESS;
    va_list args;
    va_start(args, fmt);
    keep(comm, status, fmt, args);
    va_end(args);
    status = rondo_verbs_comm_error(comm);
    comm->gone |= first;
    return first && comm->is_send ? rondo_fail_aloud(status) : status;
}

rondo_status rondo_verbs_comm_error(const struct rondo_verbs_comm *comm)
{
    return comm->error == RONDO_SUCCESS ? RONDO_SUCCESS : rondo_fail_quiet(comm->error, "%s", comm->text);
}

/* ---- errno ---- */

static const struct {
    int error;
    const char *cause;
} errno_causes[] = {
    { ENOMEM, "a limit of locked memory (ulimit -l) or of the NIC's resources is reached" },
    { ETIMEDOUT,
      "the other end's address was not found: are both GIDs of one network (RONDO_IB_GID_INDEX), is it up?" },
    { EINVAL, "the NIC refuses a value: check RONDO_IB_GID_INDEX, RONDO_IB_PKEY, RONDO_IB_SL, RONDO_IB_MTU, "
              "RONDO_IB_QUEUE_DEPTH" },
    { ENODEV, "the NIC was removed" },
    { EIO, "the NIC or its driver has failed: see the kernel's log" },
    { EPERM, "permission denied: check the permissions of /dev/infiniband" },
    { EACCES, "permission denied: check the permissions of /dev/infiniband" },
    { EFAULT, "the memory is not this process's, or is GPU memory that the NIC cannot reach" },
    { EOPNOTSUPP, "the NIC or its driver does not support it" },
    { ENETUNREACH,
      "no route to the other end's address: are both GIDs of one network (RONDO_IB_GID_INDEX)?" },
    { EHOSTUNREACH,
      "no route to the other end's address: are both GIDs of one network (RONDO_IB_GID_INDEX)?" },
};

const char *rondo_verbs_errno_cause(int error)
{
    for (size_t i = 0; i < RONDO_COUNTOF(errno_causes); i++) {
        if (errno_causes[i].error == error) {
            return errno_causes[i].cause;
        }
    }
    return "see the kernel's log";
}

/* ---- completions ---- */

static const struct {
    enum ibv_wc_status code;
    rondo_status status;
    const char *words, *cause;
} completions[] = {
    { IBV_WC_LOC_LEN_ERR, RONDO_SYSTEM_ERROR, "local length error", "a message longer than the NIC allows" },
    { IBV_WC_LOC_QP_OP_ERR, RONDO_SYSTEM_ERROR, "local queue pair operation error",
      "a bug in Rondo or in the driver" },
    { IBV_WC_LOC_PROT_ERR, RONDO_SYSTEM_ERROR, "local protection error",
      "a buffer was freed or deregistered while in use" },
    { IBV_WC_WR_FLUSH_ERR, RONDO_REMOTE_ERROR, "work request flushed",
      "the queue pair had failed before; look for an earlier error at the other end" },
    { IBV_WC_BAD_RESP_ERR, RONDO_REMOTE_ERROR, "bad response",
      "a packet that does not belong to this connection" },
    { IBV_WC_LOC_ACCESS_ERR, RONDO_SYSTEM_ERROR, "local access error",
      "the other end wrote outside of what it was given, or a buffer was freed or deregistered here while in "
      "use" },
    { IBV_WC_REM_INV_REQ_ERR, RONDO_REMOTE_ERROR, "invalid request at the other end",
      "the two ends disagree about operations or sizes" },
    { IBV_WC_REM_ACCESS_ERR, RONDO_REMOTE_ERROR, "access error at the other end",
      "a buffer that was freed or deregistered there while in use" },
    { IBV_WC_REM_OP_ERR, RONDO_REMOTE_ERROR, "operation error at the other end",
      "its NIC or its memory failed: see its kernel's log" },
    { IBV_WC_RETRY_EXC_ERR, RONDO_REMOTE_ERROR, "transport retry count exceeded",
      "the other process died, the link, cable or switch between is down, or lets no packets of the ports' "
      "MTU pass (RONDO_IB_MTU); "
      "RONDO_IB_TIMEOUT and RONDO_IB_RETRY_CNT set how long to retry" },
    { IBV_WC_RNR_RETRY_EXC_ERR, RONDO_REMOTE_ERROR, "receiver-not-ready retry count exceeded",
      "the other end does not receive" },
    { IBV_WC_REM_ABORT_ERR, RONDO_REMOTE_ERROR, "aborted by the other end", "its queue pair ended" },
    { IBV_WC_FATAL_ERR, RONDO_SYSTEM_ERROR, "fatal error of the NIC", "see the kernel's log" },
    { IBV_WC_RESP_TIMEOUT_ERR, RONDO_REMOTE_ERROR, "response timeout",
      "the other process died, or the link between is down" },
    { IBV_WC_GENERAL_ERR, RONDO_SYSTEM_ERROR, "general error of the NIC", "see the kernel's log" },
};

static void nic_events(struct rondo_verbs_nic *nic);

static const char *const kind_words[] = { [RONDO_VERBS_SEND] = "RDMA write of a message",
                                          [RONDO_VERBS_RECV] = "receive of a message",
                                          [RONDO_VERBS_CTS] = "RDMA write of a clear-to-send",
                                          [RONDO_VERBS_FLUSH] = "RDMA read that flushes GPU memory" };

static int lane_of_qpn(const struct rondo_verbs_comm *comm, uint32_t qpn)
{
    int lane = comm->nlanes - 1;
    while (lane > 0 && rondo_verbs_qpn(&comm->mine, lane) != qpn) {
        lane--;
    }
    return lane;
}

static int port_is_down(const struct rondo_verbs_port *port)
{
    struct ibv_port_attr attr;
    return __atomic_load_n(&port->down_ns, __ATOMIC_ACQUIRE) != 0 ||
           (port->nic->lib->query_port(port->nic->context, port->number, &attr) == 0 &&
            attr.state != IBV_PORT_ACTIVE);
}

/* Soft-RoCE's sends fail a moment before the port is down and its event arrives: give that moment to
 * errors of this end's operations. */
static int link_is_down(struct rondo_verbs_comm *comm, enum ibv_wc_status status)
{
    const struct timespec ms = { 0, 1000000 };
    int64_t until = rondo_now_ns() +
                    (status == IBV_WC_LOC_QP_OP_ERR ? LINK_TELLS_MS * (int64_t)ms.tv_nsec : 0);
    for (;;) {
        nic_events(comm->port->nic);
        if (port_is_down(comm->port)) {
            return 1;
        }
        if (rondo_now_ns() >= until) {
            return 0;
        }
        nanosleep(&ms, NULL);
    }
}

rondo_status rondo_verbs_fail_wc(struct rondo_verbs_comm *comm, const struct ibv_wc *wc)
{
    char ends[RONDO_VERBS_ENDS];
    uint64_t kind = wc->wr_id >> 32;
    const char *words = "unknown error", *cause = "see the kernel's log";
    rondo_status status = RONDO_SYSTEM_ERROR;
    /* For the end that is written to, the memory is its own (Soft-RoCE). */
    enum ibv_wc_status code = kind == RONDO_VERBS_RECV && wc->status == IBV_WC_REM_ACCESS_ERR
                                  ? IBV_WC_LOC_ACCESS_ERR
                                  : wc->status;
    for (size_t i = 0; i < RONDO_COUNTOF(completions); i++) {
        if (completions[i].code == code) {
            words = completions[i].words;
            cause = completions[i].cause;
            status = completions[i].status;
        }
    }
    comm->shown = lane_of_qpn(comm, wc->qp_num);
    rondo_verbs_ends(comm, ends);
    if (link_is_down(comm, wc->status)) { /* NICs report it differently */
        return operation_fail(comm, RONDO_REMOTE_ERROR,
                              "%s failed, %s: the link of %s is down (status %d, %s); check cable and switch",
                              kind < RONDO_COUNTOF(kind_words) ? kind_words[kind] : "work request", ends,
                              comm->port->name, (int)wc->status, words);
    }
    return operation_fail(comm, status, "%s failed, %s: %s (status %d, vendor code %#x); usual cause: %s",
                          kind < RONDO_COUNTOF(kind_words) ? kind_words[kind] : "work request", ends, words,
                          (int)wc->status, wc->vendor_err, cause);
}

/* ---- events ---- */

enum scope { OF_QP, OF_CQ, OF_NIC, PORT_DOWN, PORT_UP };

/* Events that matter; others are acknowledged and ignored. */
static const struct {
    enum ibv_event_type type;
    enum scope scope;
    const char *words;
} events[] = {
    { IBV_EVENT_CQ_ERR, OF_CQ, "its completion queue has overrun or failed" },
    { IBV_EVENT_QP_FATAL, OF_QP, "the NIC reports a fatal error of the queue pair" },
    { IBV_EVENT_QP_REQ_ERR, OF_QP, "the NIC got an invalid request from the other end" },
    { IBV_EVENT_QP_ACCESS_ERR, OF_QP,
      "the other end wrote to memory that it was not given, or that was freed here" },
    { IBV_EVENT_DEVICE_FATAL, OF_NIC, "the NIC reports a fatal error: see the kernel's log" },
    { IBV_EVENT_PORT_ERR, PORT_DOWN, "" },
    { IBV_EVENT_PORT_ACTIVE, PORT_UP, "" },
};

static int event_row(int type)
{
    int row = (int)RONDO_COUNTOF(events) - 1;
    while (row >= 0 && (int)events[row].type != type) {
        row--;
    }
    return row;
}

static void comm_event(struct rondo_verbs_comm *comm, int type)
{
    __atomic_store_n(&comm->event, type + 1, __ATOMIC_RELEASE);
}

/* RONDO_IB_RETURN_ASYNC_EVENTS=0: log fatal events and rely on the errors of the work requests. */
static int is_only_said(const struct rondo_verbs_nic *nic, int row)
{
    int is_link = events[row].scope == PORT_DOWN || events[row].scope == PORT_UP;
    if (is_link || rondo_params()->ib_return_async_events) {
        return 0;
    }
    RONDO_WARN("%s on %s, ignored by RONDO_IB_RETURN_ASYNC_EVENTS=0: %s", nic->name, rondo_log_host(),
               events[row].words);
    return 1;
}

/* Call with the NIC's lock. Its queue pairs cannot disappear before the event is acknowledged. */
static void event_take(struct rondo_verbs_nic *nic, const struct ibv_async_event *event)
{
    int row = event_row((int)event->event_type);
    if (row < 0 || is_only_said(nic, row)) {
        return;
    }
    switch (events[row].scope) {
    case OF_QP: comm_event(event->element.qp->qp_context, (int)event->event_type); break;
    case OF_CQ: comm_event(event->element.cq->cq_context, (int)event->event_type); break;
    case OF_NIC: __atomic_store_n(&nic->failed, 1, __ATOMIC_RELEASE); break;
    case PORT_DOWN:
        RONDO_WARN("the link of %s:%d on %s is down", nic->name, event->element.port_num, rondo_log_host());
        rondo_verbs_ports_set_down(nic, event->element.port_num, rondo_now_ns());
        break;
    case PORT_UP: rondo_verbs_ports_set_down(nic, event->element.port_num, 0); break;
    }
}

static void nic_events(struct rondo_verbs_nic *nic)
{
    struct ibv_async_event event;
    if (pthread_mutex_trylock(&nic->lock) != 0) {
        return; /* another comm's thread reads the events */
    }
    for (int i = 0; i < MOST_EVENTS && nic->lib->get_async_event(nic->context, &event) == 0; i++) {
        event_take(nic, &event);
        nic->lib->ack_async_event(&event);
    }
    pthread_mutex_unlock(&nic->lock);
}

/* A link that comes back while the NIC still retries loses nothing. */
rondo_status rondo_verbs_events(struct rondo_verbs_comm *comm)
{
    char ends[RONDO_VERBS_ENDS];
    nic_events(comm->port->nic);
    int event = __atomic_load_n(&comm->event, __ATOMIC_ACQUIRE);
    int failed = __atomic_load_n(&comm->port->nic->failed, __ATOMIC_ACQUIRE);
    int64_t down_ns = __atomic_load_n(&comm->port->down_ns, __ATOMIC_ACQUIRE);
    if (event == 0 && !failed && down_ns == 0) {
        return RONDO_SUCCESS;
    }
    rondo_verbs_ends(comm, ends);
    if (event != 0 || failed) {
        int row = event_row(event != 0 ? event - 1 : IBV_EVENT_DEVICE_FATAL);
        return rondo_verbs_comm_fail(comm, RONDO_SYSTEM_ERROR, "the connection %s has failed: %s", ends,
                                     events[row].words);
    }
    if (rondo_now_ns() - down_ns > rondo_verbs_retry_window_ns()) {
        return rondo_verbs_comm_fail(
            comm, RONDO_REMOTE_ERROR,
            "the connection %s has failed: the link of %s has been down for longer than "
            "the NIC retries; check cable and switch",
            ends, comm->port->name);
    }
    return RONDO_SUCCESS;
}
