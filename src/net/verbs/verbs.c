/* The verbs net device: its table, and the life of a comm. */
#include "net/netdev.h"

#include <stdio.h>

#if RONDO_HAVE_VERBS

#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "net/verbs/verbs.h"

static rondo_status verbs_init(int *ndevices, char *why, size_t bytes)
{
    return rondo_verbs_devices_open(ndevices, why, bytes);
}

static rondo_status port_find(int device, struct rondo_verbs_port **port)
{
    *port = rondo_verbs_port_get(device);
    return *port != NULL ? RONDO_SUCCESS
                         : rondo_fail(RONDO_INVALID_ARGUMENT, "there is no verbs device %d on %s", device,
                                      rondo_log_host());
}

static rondo_status verbs_properties(int device, struct rondo_net_properties *properties)
{
    struct rondo_verbs_port *port;
    RONDO_TRY(port_find(device, &port));
    *properties = (struct rondo_net_properties){ .guid = port->nic->guid,
                                                 .memory = port->nic->memory | RONDO_NET_PLACES |
                                                           RONDO_NET_WRITES,
                                                 .speed_mbps = port->speed_mbps,
                                                 .port = port->number,
                                                 .max_comms = 65536,
                                                 .max_recvs = RONDO_NET_MAX_RECVS };
    memcpy(properties->name, port->name, sizeof properties->name);
    memcpy(properties->pci_path, port->nic->pci_path, sizeof properties->pci_path);
    return RONDO_SUCCESS;
}

static void verbs_stop(void *comm_in)
{
    struct rondo_verbs_comm *comm = comm_in;
    rondo_verbs_qp_close(comm);
    if (comm->error == RONDO_SUCCESS) {
        comm->error = RONDO_REMOTE_ERROR;
        snprintf(comm->text, sizeof comm->text, "the connection with rank %d was given up", comm->peer.rank);
    }
}

static void verbs_close(void *comm_in)
{
    struct rondo_verbs_comm *comm = comm_in;
    /* Queue pairs first: afterwards no peer reaches the memory. */
    rondo_verbs_qp_close(comm);
    rondo_verbs_unreg_all(comm);
    if (comm->has_pd) {
        rondo_verbs_pd_put(comm->port->nic);
    }
    rondo_free(comm);
}

/* Fill the handle for the other end. */
static rondo_status end_fill(struct rondo_verbs_comm *comm)
{
    struct rondo_verbs_end *end = &comm->mine;
    struct {
        uint64_t nonce;
        uint32_t psn;
    } random;
    RONDO_TRY(rondo_random(&random, sizeof random));
    *end = (struct rondo_verbs_end){ .magic = RONDO_VERBS_MAGIC,
                                     .version = RONDO_VERBS_VERSION,
                                     .is_send = (uint8_t)comm->is_send,
                                     .port = comm->port->number,
                                     .psn = random.psn & 0xffffff,
                                     .lid = comm->address.lid,
                                     .mtu = comm->address.mtu,
                                     .link_layer = comm->address.link_layer,
                                     .lanes = (uint8_t)comm->nlanes,
                                     .split = (uint8_t)rondo_params()->ib_split_data_on_qps,
                                     .nonce = random.nonce,
                                     .proof = rondo_netdev_proof(&comm->peer, "verbs", 1, comm->is_send,
                                                                 random.nonce) };
    memcpy(end->gid, comm->address.gid.raw, sizeof end->gid);
    snprintf(end->device, sizeof end->device, "%.25s", comm->port->nic->name);
    return RONDO_SUCCESS;
}

static rondo_status comm_open(struct rondo_verbs_comm *comm)
{
    comm->nlanes = (int)rondo_min_size((size_t)rondo_params()->ib_qps_per_connection, RONDO_VERBS_LANES);
    RONDO_TRY(rondo_verbs_address_query(comm->port, &comm->address));
    RONDO_TRY(end_fill(comm));
    RONDO_TRY(rondo_verbs_pd_get(comm->port->nic));
    comm->has_pd = 1;
    RONDO_TRY(rondo_verbs_reg_own(comm));
    comm->mine.address = (uintptr_t)comm->memory;
    comm->mine.rkey = comm->memory_mr->rkey;
    return rondo_verbs_qp_open(comm);
}

static rondo_status verbs_prepare(int device, const struct rondo_net_peer *peer, int is_send, void **comm_out,
                                  void *handle)
{
    struct rondo_verbs_port *port;
    struct rondo_verbs_comm *comm;
    rondo_status status;
    *comm_out = NULL;
    RONDO_TRY(port_find(device, &port));
    RONDO_TRY(RONDO_NEW(comm, "a verbs connection"));
    comm->port = port;
    comm->device = device;
    comm->lib = port->nic->lib;
    comm->peer = *peer;
    comm->peer.host[RONDO_HOST_LEN - 1] = '\0';
    comm->is_send = is_send != 0;
    status = comm_open(comm);
    if (status != RONDO_SUCCESS) {
        verbs_close(comm);
        return status;
    }
    memset(handle, 0, RONDO_NET_HANDLE);
    memcpy(handle, &comm->mine, sizeof comm->mine);
    *comm_out = comm;
    return RONDO_SUCCESS;
}

/* @return what is wrong with the other end's handle; NULL: nothing. */
static const char *end_fault(const struct rondo_verbs_comm *comm, const struct rondo_verbs_end *end)
{
    if (end->magic != RONDO_VERBS_MAGIC || end->version != RONDO_VERBS_VERSION) {
        return "it is not a verbs record of this version; run the same version and the same RONDO_IB_DISABLE "
               "everywhere";
    }
    if (end->proof != rondo_netdev_proof(&comm->peer, "verbs", 0, !comm->is_send, end->nonce)) {
        return "it belongs to another communicator or another pair of ranks";
    }
    if (end->is_send == comm->mine.is_send || end->mtu < IBV_MTU_256 || end->mtu > IBV_MTU_4096 ||
        end->lanes < 1 || end->lanes > RONDO_VERBS_LANES || end->split > 1) {
        return "its values are invalid";
    }
    if (end->link_layer != comm->mine.link_layer) {
        return "one port is InfiniBand and the other one is Ethernet; choose ports of one kind by "
               "RONDO_IB_HCA";
    }
    return NULL;
}

/* Both ends use the lower number of lanes; the sender decides how data is spread over them. */
static rondo_status end_take(struct rondo_verbs_comm *comm, const void *handle)
{
    struct rondo_verbs_end end;
    const char *fault;
    memcpy(&end, handle, sizeof end);
    end.device[sizeof end.device - 1] = '\0';
    fault = comm->connected ? "it is connected already" : end_fault(comm, &end);
    if (fault != NULL) {
        return rondo_fail(RONDO_REMOTE_ERROR, "the verbs record of rank %d on %s cannot be used on %s: %s",
                          comm->peer.rank, comm->peer.host, rondo_log_host(), fault);
    }
    comm->theirs = end;
    comm->split = comm->is_send ? comm->mine.split : end.split;
    rondo_verbs_qp_keep(comm, end.lanes);
    return RONDO_SUCCESS;
}

/* Log what a comm costs, so that users can tell which of the NIC's limits they would reach. */
static void tell(const struct rondo_verbs_comm *comm)
{
    char ends[RONDO_VERBS_ENDS];
    if (rondo_log_on(RONDO_LOG_INFO, RONDO_SUBSYS_NET)) {
        rondo_verbs_ends(comm, ends);
        rondo_log_print(RONDO_LOG_INFO,
                        "verbs: channel %d %s: %d queue pairs of %d+%d work requests, 1 completion queue of "
                        "%d, 1 memory registration of its "
                        "own, %zu bytes, no descriptor; path MTU %d, %s",
                        comm->peer.channel, ends, comm->nlanes, RONDO_VERBS_SEND_WR, RONDO_VERBS_RECV_WR,
                        rondo_verbs_cqe(comm->nlanes), sizeof *comm + sizeof *comm->memory,
                        128 << rondo_min_size(comm->address.mtu, comm->theirs.mtu),
                        comm->split ? "messages are split" : "messages go in turn");
    }
}

static rondo_status verbs_connect(void *comm_in, const void *handle)
{
    struct rondo_verbs_comm *comm = comm_in;
    if (comm->theirs.magic == 0 || comm->connected) {
        RONDO_TRY(end_take(comm, handle));
    }
    RONDO_TRY(rondo_verbs_qp_connect(comm));
    comm->connected = 1;
    tell(comm);
    return RONDO_SUCCESS;
}

const struct rondo_net_device rondo_netdev_verbs = {
    .name = "verbs",
    .init = verbs_init,
    .properties = verbs_properties,
    .prepare = verbs_prepare,
    .connect = verbs_connect,
    .reg = rondo_verbs_reg,
    .unreg = rondo_verbs_unreg,
    .isend = rondo_verbs_isend,
    .irecv = rondo_verbs_irecv,
    .isend_from = rondo_verbs_isend_from,
    .irecv_into = rondo_verbs_irecv_into,
    .iwrite = rondo_verbs_iwrite,
    .irecv_word = rondo_verbs_irecv_word,
    .key = rondo_verbs_key,
    .iflush = rondo_verbs_iflush,
    .test = rondo_verbs_test,
    .stop = verbs_stop,
    .close = verbs_close,
    .finalize = rondo_verbs_devices_close,
};

#else

static rondo_status none_init(int *ndevices, char *why, size_t bytes)
{
    *ndevices = 0;
    if (why != NULL && bytes > 0) {
        snprintf(why, bytes, "this library was built without infiniband/verbs.h");
    }
    return RONDO_SUCCESS;
}

static void none_finalize(void) {}

/* No device: nothing else is called. */
const struct rondo_net_device rondo_netdev_verbs = { .name = "verbs",
                                                     .init = none_init,
                                                     .finalize = none_finalize };

#endif
