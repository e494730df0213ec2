/* NICs, their active and allowed ports, and the source address of a port. */
#include "net/verbs/verbs.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"

/* ---- libibverbs, opened at run time: one binary runs with it and without ---- */

static struct {
    void *handle;
    struct rondo_verbs_lib lib;
    const struct rondo_verbs_lib *replaced;
} opened; /* under the lock of the devices */

/* The header's inline function of this name asks the provider itself if possible: old entry points know a
 * shorter struct. */
typedef int (*query_port_fn)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
static query_port_fn query_port_compat;

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
    struct verbs_context *extended = verbs_get_ctx_op(context, query_port);
    memset(attr, 0, sizeof *attr);
    return extended != NULL ? extended->query_port(context, port, attr, sizeof *attr)
                            : query_port_compat(context, port, attr);
}

/* Some symbols exist in two versions; the header has version 1.1, newer functions have one version of
 * their own. */
static void *symbol(void *handle, const char *name)
{
    void *address = dlvsym(handle, name, "IBVERBS_1.1");
    return address != NULL ? address : dlsym(handle, name);
}

#define ROW_(ctx, type, name, symbol, needed, parameters) \
    { #symbol, offsetof(struct rondo_verbs_lib, name), needed },
static const struct {
    const char *name;
    size_t offset;
    int needed;
} symbols[] = { RONDO_VERBS_TABLE(ROW_, ) };
#undef ROW_

const struct rondo_verbs_lib *rondo_verbs_lib_open(char *why, size_t bytes)
{
    if (opened.replaced != NULL || opened.handle != NULL) {
        return opened.replaced != NULL ? opened.replaced : &opened.lib;
    }
    const char *name = rondo_params()->ibverbs_lib;
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL |
                                    RTLD_NODELETE); /* from ibv_fork_init on it tracks registered pages */
    if (handle == NULL) {
        snprintf(why, bytes, "the verbs library cannot be opened (%s); Debian: libibverbs1", dlerror());
        return NULL;
    }
    for (size_t i = 0; i < RONDO_COUNTOF(symbols); i++) {
        void *address = symbol(handle, symbols[i].name);
        if (address == NULL && symbols[i].needed) {
            snprintf(why, bytes, "%.80s has no %s", name, symbols[i].name);
            dlclose(handle);
            return NULL;
        }
        memcpy((char *)&opened.lib + symbols[i].offset, &address, sizeof address);
    }
    query_port_compat = opened.lib.query_port;
    opened.lib.query_port = query_port;
    opened.handle = handle;
    /*
     * A program that forks must not lose registered pages to copy-on-write, its own or the child's, on
     * kernels that do not copy them at fork. It is too late if the program's MPI has registered memory; then
     * MPI must have done it.
     */
    if (opened.lib.fork_init != NULL && opened.lib.fork_init() != 0) {
        RONDO_INFO(RONDO_SUBSYS_NET,
                   "verbs: ibv_fork_init failed (%s): after a fork, registered memory may differ from "
                   "the NIC's",
                   strerror(errno));
    }
    return &opened.lib;
}

void rondo_verbs_lib_close(void)
{
    if (opened.handle != NULL) {
        dlclose(opened.handle);
        opened.handle = NULL;
    }
}

void rondo_verbs_lib_replace(const struct rondo_verbs_lib *lib) { opened.replaced = lib; }

/* ---- the devices ---- */

enum { MAX_NICS = 64, MAX_PORTS = 128, IPV4_AT = 12, GID_BYTES = 16 };

static struct {
    const struct rondo_verbs_lib *lib;
    int open, nnics, nports;
    char why[256];
    struct rondo_verbs_range range; /* RONDO_IB_ADDR_RANGE */
    struct rondo_verbs_nic *nics[MAX_NICS];
    struct rondo_verbs_port ports[MAX_PORTS];
} found;
static pthread_mutex_t found_lock = PTHREAD_MUTEX_INITIALIZER;

/* The NICs' queues and memory are the parent's, so the child opens each NIC anew. It may not even close the
 * parent's. */
static void in_child(void)
{
    (void)rondo_fork_lock(&found_lock);
    found.open = found.nnics = found.nports = 0;
}
RONDO_AT_FORK(in_child)

/* ---- which ones are allowed ---- */

static int filter_entry_fits(const char *entry, size_t length, int exact, const char *device, int port)
{
    const char *colon = memchr(entry, ':', length);
    size_t name = colon ? (size_t)(colon - entry) : length;
    int number = 0, digits = 0;
    for (const char *c = colon ? colon + 1 : entry + length;
         c < entry + length && *c >= '0' && *c <= '9' && digits < 4; c++, digits++) {
        number = number * 10 + (*c - '0');
    }
    return strncmp(entry, device, name) == 0 && (!exact || device[name] == '\0') &&
           (digits == 0 || number == port);
}

int rondo_verbs_filter(const char *filter, const char *device, int port)
{
    int without = *filter == '^', exact, any = 0, listed = 0;
    filter += without;
    exact = *filter == '=';
    filter += exact;
    while (*filter) {
        size_t length = strcspn(filter, ",");
        if (length > 0) {
            any = 1;
            listed |= filter_entry_fits(filter, length, exact, device, port);
        }
        filter += length + (filter[length] == ',');
    }
    return !any || listed != without;
}

int rondo_verbs_range_parse(const char *text, struct rondo_verbs_range *range)
{
    static const uint8_t mapped[IPV4_AT] = { [10] = 0xff, [11] = 0xff };
    char address[INET6_ADDRSTRLEN];
    size_t length = strcspn(text, "/");
    int64_t bits = -1;
    *range = (struct rondo_verbs_range){ .bits = 0 };
    if (*text == '\0') {
        return 0;
    }
    if (length >= sizeof address ||
        (text[length] == '/' && (rondo_parse_int(text + length + 1, &bits) != 0 || bits < 0))) {
        return -1;
    }
    memcpy(address, text, length);
    address[length] = '\0';
    int at = inet_pton(AF_INET, address, range->prefix + IPV4_AT) == 1 ? IPV4_AT : 0,
        most = 8 * (GID_BYTES - at);
    if (at > 0) {
        memcpy(range->prefix, mapped, sizeof mapped);
    } else if (inet_pton(AF_INET6, address, range->prefix) != 1) {
        return -1;
    }
    range->bits = 8 * at + (int)(bits < 0 ? most : bits);
    return bits <= most ? 0 : -1;
}

int rondo_verbs_range_has(const struct rondo_verbs_range *range, const uint8_t gid[16])
{
    int bytes = range->bits / 8, rest = range->bits % 8;
    return memcmp(gid, range->prefix, (size_t)bytes) == 0 &&
           (rest == 0 || ((gid[bytes] ^ range->prefix[bytes]) & (0xff00 >> rest)) == 0);
}

/* ---- what a NIC is ---- */

/* Gbit/s of a link lane, by the code of query_port. */
static const struct {
    int code, mbps;
} speeds[] = { { 1, 2500 },   { 2, 5000 },   { 4, 10000 },  { 8, 10000 },
               { 16, 14000 }, { 32, 25000 }, { 64, 50000 }, { 128, 100000 } };
static const struct {
    int code, lanes;
} widths[] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } };

static int32_t port_speed(const struct ibv_port_attr *attr)
{
    int mbps = speeds[0].mbps, lanes = 1;
    for (size_t i = 0; i < RONDO_COUNTOF(speeds); i++) {
        mbps = speeds[i].code == attr->active_speed ? speeds[i].mbps : mbps;
    }
    for (size_t i = 0; i < RONDO_COUNTOF(widths); i++) {
        lanes = widths[i].code == attr->active_width ? widths[i].lanes : lanes;
    }
    return mbps * lanes;
}

/* Does a kernel module pin GPU memory for NICs (an older way than DMA-BUF)? */
static int has_peer_memory(void)
{
    static const char *const files[] = { "/sys/kernel/mm/memory_peers/nv_mem/version",
                                         "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
                                         "/sys/module/nvidia_peermem/version" };
    for (size_t i = 0; i < RONDO_COUNTOF(files); i++) {
        if (access(files[i], R_OK) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Try an invalid descriptor: a kernel or NIC with DMA-BUF rejects the descriptor, others reject the
 * call. */
static int has_dmabuf(const struct rondo_verbs_nic *nic)
{
    int wanted = nic->lib->reg_dmabuf_mr != NULL && rondo_params()->dmabuf_enable;
    struct ibv_pd *pd = wanted ? nic->lib->alloc_pd(nic->context) : NULL;
    struct ibv_mr *mr;
    int error;
    if (pd == NULL) {
        return 0;
    }
    errno = 0;
    mr = nic->lib->reg_dmabuf_mr(pd, 0, 1, 0, -1, 0);
    error = errno;
    if (mr != NULL) {
        nic->lib->dereg_mr(mr);
    }
    nic->lib->dealloc_pd(pd);
    return mr == NULL && error != EOPNOTSUPP && error != EPROTONOSUPPORT;
}

static void nic_path(struct rondo_verbs_nic *nic, const struct ibv_device *device)
{
    char link[IBV_SYSFS_PATH_MAX + 8], path[PATH_MAX];
    snprintf(link, sizeof link, "%s/device", device->ibdev_path);
    if (device->ibdev_path[0] != '\0' && realpath(link, path) != NULL &&
        strlen(path) < sizeof nic->pci_path) {
        memcpy(nic->pci_path, path, strlen(path) + 1);
    }
}

static void nic_close(struct rondo_verbs_nic *nic)
{
    nic->lib->close_device(nic->context);
    pthread_mutex_destroy(&nic->lock);
    rondo_free(nic);
}

/* A device that cannot be opened gives *nic_out NULL and a line in the log, but no error: it may belong to
 * another container. */
static rondo_status nic_open(struct ibv_device *device, struct rondo_verbs_nic **nic_out)
{
    struct rondo_verbs_nic *nic;
    *nic_out = NULL;
    RONDO_TRY(RONDO_NEW(nic, "a verbs NIC"));
    nic->lib = found.lib;
    snprintf(nic->name, sizeof nic->name, "%s", found.lib->get_device_name(device));
    nic->context = found.lib->open_device(device);
    if (nic->context == NULL) {
        RONDO_INFO(RONDO_SUBSYS_NET, "verbs: %s cannot be opened: %s", nic->name, strerror(errno));
        rondo_free(nic);
        return RONDO_SUCCESS;
    }
    pthread_mutex_init(&nic->lock, NULL);
    nic->guid = be64toh(found.lib->get_device_guid(device));
    nic_path(nic, device);
    nic->memory = RONDO_NET_HOST | (has_peer_memory() ? RONDO_NET_CUDA : 0u) |
                  (has_dmabuf(nic) ? RONDO_NET_DMABUF : 0u);
    /* Events are polled, not waited for. */
    int flags = fcntl(nic->context->async_fd, F_GETFL);
    if (flags < 0 || fcntl(nic->context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        nic_close(nic);
        return rondo_fail(RONDO_SYSTEM_ERROR, "cannot read the events of %s on %s without waiting: %m",
                          device->name, rondo_log_host());
    }
    *nic_out = nic;
    return RONDO_SUCCESS;
}

static int port_is_fine(const struct rondo_verbs_nic *nic, int number, struct ibv_port_attr *attr)
{
    const struct rondo_params *params = rondo_params();
    if (nic->lib->query_port(nic->context, (uint8_t)number, attr) != 0 || attr->state != IBV_PORT_ACTIVE ||
        (attr->link_layer != IBV_LINK_LAYER_ETHERNET && attr->link_layer != IBV_LINK_LAYER_INFINIBAND)) {
        RONDO_INFO(RONDO_SUBSYS_NET, "verbs: port %d of %s is not active", number, nic->name);
        return 0;
    }
    return rondo_verbs_filter(params->ib_hca, nic->name, number) &&
           (params->ib_port == 0 || params->ib_port == number);
}

/* @return the number of ports used. */
static int nic_ports(struct rondo_verbs_nic *nic)
{
    struct ibv_device_attr device;
    struct ibv_port_attr attr;
    int before = found.nports;
    if (nic->lib->query_device(nic->context, &device) != 0) {
        return 0;
    }
    for (int number = 1; number <= device.phys_port_cnt && found.nports < MAX_PORTS; number++) {
        if (port_is_fine(nic, number, &attr)) {
            struct rondo_verbs_port *port = &found.ports[found.nports++];
            *port = (struct rondo_verbs_port){ .nic = nic,
                                               .number = (uint8_t)number,
                                               .speed_mbps = port_speed(&attr) };
            snprintf(port->name, sizeof port->name, "%.50s:%d", nic->name, number);
        }
    }
    return found.nports - before;
}

static rondo_status nics_open(struct ibv_device **list, int n)
{
    for (int i = 0; i < n && found.nnics < MAX_NICS; i++) {
        struct rondo_verbs_nic *nic;
        RONDO_TRY(nic_open(list[i], &nic));
        if (nic != NULL && nic_ports(nic) > 0) {
            found.nics[found.nnics++] = nic;
        } else if (nic != NULL) {
            nic_close(nic);
        }
    }
    if (found.nports == 0) {
        snprintf(found.why, sizeof found.why,
                 "%d RDMA NIC%s, and no port that is active and that RONDO_IB_HCA (\"%.60s\") allows", n,
                 n == 1 ? "" : "s", rondo_params()->ib_hca);
    }
    return RONDO_SUCCESS;
}

static void devices_clear(void)
{
    for (int i = 0; i < found.nnics; i++) {
        nic_close(found.nics[i]);
    }
    found.open = found.nnics = found.nports = 0;
    rondo_verbs_lib_close();
}

static rondo_status devices_open(void)
{
    struct ibv_device **list;
    rondo_status status;
    int n = 0;
    found.why[0] = '\0';
    if (rondo_params()->ib_disable) {
        snprintf(found.why, sizeof found.why, "RONDO_IB_DISABLE is set");
        return RONDO_SUCCESS;
    }
    if (rondo_verbs_range_parse(rondo_params()->ib_addr_range, &found.range) != 0) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "RONDO_IB_ADDR_RANGE=\"%.60s\" (host %s) is not a network such as 10.1.0.0/16 or fd00::/8",
            rondo_params()->ib_addr_range, rondo_log_host());
    }
    found.lib = rondo_verbs_lib_open(found.why, sizeof found.why);
    if (found.lib == NULL) {
        return RONDO_SUCCESS;
    }
    list = found.lib->get_device_list(&n);
    if (list == NULL || n <= 0) {
        snprintf(found.why, sizeof found.why, "libibverbs finds no RDMA NIC");
        status = RONDO_SUCCESS;
    } else {
        status = nics_open(list, n);
    }
    if (list != NULL) {
        found.lib->free_device_list(list);
    }
    return status;
}

rondo_status rondo_verbs_devices_open(int *n, char *why, size_t bytes)
{
    rondo_status status = RONDO_SUCCESS;
    pthread_mutex_lock(&found_lock);
    if (!found.open) {
        status = devices_open();
        if (status == RONDO_SUCCESS) {
            found.open = 1;
        } else {
            devices_clear();
        }
    }
    *n = found.nports;
    if (why != NULL && bytes > 0) {
        snprintf(why, bytes, "%s", found.why);
    }
    pthread_mutex_unlock(&found_lock);
    return status;
}

void rondo_verbs_devices_close(void)
{
    pthread_mutex_lock(&found_lock);
    devices_clear();
    pthread_mutex_unlock(&found_lock);
}

struct rondo_verbs_port *rondo_verbs_port_get(int device)
{
    return device >= 0 && device < found.nports ? &found.ports[device] : NULL;
}

void rondo_verbs_ports_set_down(const struct rondo_verbs_nic *nic, int number, int64_t down_ns)
{
    for (int i = 0; i < found.nports; i++) {
        if (found.ports[i].nic == nic && (number < 0 || found.ports[i].number == number)) {
            __atomic_store_n(&found.ports[i].down_ns, down_ns, __ATOMIC_RELEASE);
        }
    }
}

/* ---- protection domains: one a NIC, while comms use it ---- */

rondo_status rondo_verbs_pd_get(struct rondo_verbs_nic *nic)
{
    int error = 0;
    pthread_mutex_lock(&nic->lock);
    if (nic->pd == NULL) {
        nic->pd = nic->lib->alloc_pd(nic->context);
        error = nic->pd == NULL ? errno : 0;
    }
    nic->users += error == 0;
    pthread_mutex_unlock(&nic->lock);
    if (error != 0) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "cannot allocate a protection domain of %s on %s: %s; %s",
                          nic->name, rondo_log_host(), strerror(error), rondo_verbs_errno_cause(error));
    }
    return RONDO_SUCCESS;
}

void rondo_verbs_pd_put(struct rondo_verbs_nic *nic)
{
    pthread_mutex_lock(&nic->lock);
    if (--nic->users == 0) {
        nic->lib->dealloc_pd(nic->pd);
        nic->pd = NULL;
    }
    pthread_mutex_unlock(&nic->lock);
}

/* ---- addresses ---- */

static int gid_is_ipv4(const union ibv_gid *gid)
{
    static const uint8_t mapped[IPV4_AT] = { [10] = 0xff, [11] = 0xff };
    return memcmp(gid->raw, mapped, IPV4_AT) == 0;
}

/* Rank an entry of the GID table; 0: not usable. A wrong RoCE version cannot reach the peers. */
static int gid_fit(const union ibv_gid *gid, int type)
{
    static const union ibv_gid none;
    const struct rondo_params *params = rondo_params();
    int wanted = params->ib_roce_version_num == 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
    int link_local = gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
    if (memcmp(gid, &none, sizeof none) == 0 || !rondo_verbs_range_has(&found.range, gid->raw)) {
        return 0;
    }
    return 1 + 4 * (type == wanted) +
           2 * (gid_is_ipv4(gid) == (params->ib_addr_family == RONDO_IB_ADDR_FAMILY_4)) + !link_local;
}

/* @return the best index, -1: none. */
static int gid_choose(const struct rondo_verbs_port *port, int entries)
{
    const struct rondo_verbs_nic *nic = port->nic;
    int best = -1, best_fit = 0;
    for (int i = 0; i < entries; i++) {
        struct ibv_gid_entry entry = { .gid_type = UINT32_MAX };
        int fit = 0;
        if (nic->lib->query_gid_ex != NULL) {
            fit = nic->lib->query_gid_ex(nic->context, port->number, (uint32_t)i, &entry, 0, sizeof entry) ==
                          0
                      ? gid_fit(&entry.gid, (int)entry.gid_type)
                      : 0;
        } else if (nic->lib->query_gid(nic->context, port->number, i, &entry.gid) == 0) {
            fit = gid_fit(&entry.gid, -1);
        }
        if (fit > best_fit) {
            best_fit = fit;
            best = i;
        }
    }
    return best;
}

static rondo_status address_gid(const struct rondo_verbs_port *port, const struct ibv_port_attr *attr,
                                struct rondo_verbs_address *address)
{
    static const union ibv_gid none;
    int64_t asked = rondo_params()->ib_gid_index;
    int is_ethernet = attr->link_layer == IBV_LINK_LAYER_ETHERNET;
    address->gid_index = asked >= 0 ? (int)asked : is_ethernet ? gid_choose(port, attr->gid_tbl_len) : 0;
    if (address->gid_index < 0) {
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "port %s on %s has no GID%s%.60s: its network interface has no address; give it "
                          "one (ip addr), or take another port "
                          "by RONDO_IB_HCA",
                          port->name, rondo_log_host(),
                          found.range.bits > 0 ? " in RONDO_IB_ADDR_RANGE=" : "",
                          rondo_params()->ib_addr_range);
    }
    if (address->gid_index >= attr->gid_tbl_len ||
        port->nic->lib->query_gid(port->nic->context, port->number, address->gid_index, &address->gid) != 0 ||
        memcmp(&address->gid, &none, sizeof none) == 0) {
        return rondo_fail(
            RONDO_SYSTEM_ERROR,
            "port %s on %s has no GID of index %d (its table has %d entries); see RONDO_IB_GID_INDEX",
            port->name, rondo_log_host(), address->gid_index, attr->gid_tbl_len);
    }
    return RONDO_SUCCESS;
}

_Static_assert((int)RONDO_IB_MTU_256 == (int)IBV_MTU_256 && (int)RONDO_IB_MTU_4096 == (int)IBV_MTU_4096,
               "RONDO_IB_MTU has the values of enum ibv_mtu");

rondo_status rondo_verbs_address_query(const struct rondo_verbs_port *port,
                                       struct rondo_verbs_address *address)
{
    struct ibv_port_attr attr;
    int mtu = rondo_params()->ib_mtu;
    int rc = port->nic->lib->query_port(port->nic->context, port->number, &attr);
    if (rc != 0) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "cannot query port %s on %s: %s", port->name, rondo_log_host(),
                          strerror(rc));
    }
    if (attr.state != IBV_PORT_ACTIVE) {
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "port %s on %s is not active: check cable, switch and subnet manager", port->name,
                          rondo_log_host());
    }
    *address = (struct rondo_verbs_address){ .lid = attr.lid,
                                             .mtu = (uint8_t)attr.active_mtu,
                                             .link_layer = attr.link_layer };
    address->max_message = attr.max_msg_sz > 0 ? (uint32_t)rondo_min_size(attr.max_msg_sz, INT32_MAX)
                                               : INT32_MAX;
    if (mtu != RONDO_IB_MTU_PORT && mtu < (int)attr.active_mtu) {
        address->mtu = (uint8_t)mtu;
    }
    /* A LID is enough within a subnet; the GID then only distinguishes subnets. */
    if (attr.link_layer == IBV_LINK_LAYER_INFINIBAND && attr.lid != 0 && rondo_params()->ib_gid_index < 0) {
        if (port->nic->lib->query_gid(port->nic->context, port->number, 0, &address->gid) != 0) {
            memset(&address->gid, 0, sizeof address->gid);
        }
        return RONDO_SUCCESS;
    }
    return address_gid(port, &attr, address);
}
