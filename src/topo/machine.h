/*
 * The description of a machine: a tree of NUMA nodes, PCI devices, GPUs and network ports. Detection on this
 * host, NCCL's topology XML and hwloc's XML all produce it, and everything else starts from it, so a machine
 * read from a file is treated exactly like this host.
 *
 * Nesting: CPU > (PCI | NIC | CACHE), PCI > (PCI | GPU | NIC | PCILINK), GPU > (NVLINK | C2C), NIC > NET.
 * Parents come before their children.
 */
#ifndef RONDO_TOPO_MACHINE_H
#define RONDO_TOPO_MACHINE_H

#include "base/cores.h"
#include "base/status.h"
#include "topo/topo.def"

#define RONDO_ENUM_ROW_(ctx, NAME, name) RONDO_ARCH_##NAME,
enum rondo_arch { RONDO_TOPO_ARCH_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_ARCHS };
#undef RONDO_ENUM_ROW_
#define RONDO_ENUM_ROW_(ctx, NAME, name) RONDO_VENDOR_##NAME,
enum rondo_vendor { RONDO_TOPO_VENDOR_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_VENDORS };
#undef RONDO_ENUM_ROW_

enum rondo_item_kind {
    RONDO_ITEM_CPU,
    RONDO_ITEM_PCI,
    RONDO_ITEM_GPU,
    RONDO_ITEM_NIC,
    RONDO_ITEM_NET,
    RONDO_ITEM_NVLINK,
    RONDO_ITEM_C2C,
    RONDO_ITEM_PCILINK,
    RONDO_ITEM_CACHE, /* Rondo's own; NCCL's parser skips it */
    RONDO_NUM_ITEM_KINDS
};

/* Limits on input, so that no file can make Rondo allocate or search without bound. Larger input fails
 * with RONDO_INVALID_ARGUMENT. */
enum {
    RONDO_MACHINE_MAX_ITEMS = 65536,
    RONDO_MACHINE_MAX_DEPTH = 64,
    RONDO_MACHINE_MAX_GPUS = 1024,
    RONDO_MACHINE_MAX_NETS = 1024,
    RONDO_MACHINE_MAX_CPUS = 1024,
    RONDO_MACHINE_MAX_MBS = 100000000, /* per link: 100 TB/s */
    RONDO_MACHINE_MAX_NVLINKS = 1024,  /* from one GPU to one target */
    RONDO_MACHINE_NAME = 64,
    RONDO_PCI_MAX_SPEED = 12800 /* GT/s x 10 */
};

/* The target of a link that a virtual machine hides. */
#define RONDO_BUSID_HIDDEN INT64_C(0xfffffffffff)

/* What a PCI class means to the topology engine. */
enum rondo_pci_kind {
    RONDO_PCI_BRIDGE,
    RONDO_PCI_GPU,
    RONDO_PCI_NIC,
    RONDO_PCI_NVSWITCH,
    RONDO_PCI_NVLINK_CPU
};

/* PCI addresses are one number: domain << 20 | bus << 12 | device << 4 | function. -1: none. */
struct rondo_item {
    int32_t kind, parent; /* parent: index, -1 for a CPU */
    union {
        struct {
            int32_t numa;         /* -1: one node for the whole host */
            int32_t package;      /* -1 unknown */
            int32_t arch, vendor; /* enums; -1 unknown: links to other NUMA nodes then count as unlimited */
            int32_t family, model;
            uint64_t host_hash;       /* 0: all items belong to one host */
            struct rondo_cores cores; /* all zero: unknown */
        } cpu;
        struct {
            int64_t busid;
            uint32_t class_code; /* 24 bits: 0x060400 bridge, 0x03.... GPU, 0x02.... NIC, 0x068000 NVSwitch */
            uint16_t vendor, device, subsystem_vendor, subsystem_device;
            /* upstream link, GT/s x 10 and lanes; 0: unknown, assumed Gen3 (60 in NCCL's units) and x16 */
            int32_t speed, width;
        } pci;
        struct {
            int32_t dev;      /* NVML's index */
            int32_t sm;       /* compute capability x 10; 0 unknown */
            int32_t rank;     /* as the file says, -1 none; informational only */
            int32_t gdr;      /* 1, 0; -1 unknown */
            uint64_t no_p2p;  /* bit i: NVML reports that P2P with dev i does not work */
            uint8_t uuid[16]; /* zero: unknown */
            char name[RONDO_MACHINE_NAME];
        } gpu;
        struct {
            char name[RONDO_MACHINE_NAME]; /* "mlx5_0", "eth0" */
            int32_t dev;                   /* the network device's index */
            int32_t mbps;                  /* Mbit/s; <= 0: unknown, assumed 10000 */
            int32_t port;
            uint64_t guid;           /* nets with equal guid and port share one wire */
            int32_t gdr, coll, keep; /* -1 unknown */
            int32_t maxconn;
            int32_t rail, plane; /* -1 unknown */
            double latency;      /* us; 0 unknown */
        } net;
        struct {
            /* bus id; 0xfffffffffff: hidden by a virtual machine, assumed to be an NVSwitch */
            int64_t target;
            int32_t count;
            uint32_t tclass; /* PCI class of the target; 0 unknown */
        } nvlink;
        struct {
            int32_t mbs, count; /* MB/s per link, number of links */
        } c2c;
        struct {
            int64_t target;
        } pcilink;
        struct {
            int32_t level;
            int64_t bytes; /* if NUMA nodes share the cache, the share of this node's cores */
            struct rondo_cores cores;
        } cache;
    };
};

struct rondo_machine {
    struct rondo_item *item; /* owned */
    int32_t nitems, capacity;
    int32_t is_virtual;   /* the PCI tree is a virtual machine's, flat or empty: link values are assumed */
    int32_t is_described; /* cores are numbered as in the description, which may be of another machine */
    char source[256];     /* "this host", or the file it came from */
    char note[256]; /* a remark for the user ("virtual machine (kvm): PCI tree is flat, ..."); "" none */
};

/** Free the items. A zeroed struct is an empty machine. */
void rondo_machine_release(struct rondo_machine *machine);
/** Append an item below @a parent and store its index in *index. All fields are zero, except that those
 * where -1 means "unknown" are -1. Fails beyond the limits or if @a parent cannot have such a child. */
rondo_status rondo_machine_add(struct rondo_machine *machine, enum rondo_item_kind kind, int32_t parent,
                               int32_t *index);
/** @return 1 if rondo_machine_add would succeed. If not, text[RONDO_ERROR_TEXT] gets the reason. Logs
 * nothing. */
int rondo_machine_may_add(const struct rondo_machine *machine, enum rondo_item_kind kind, int32_t parent,
                          char *text);
/**
 * Check the whole machine: nesting, unique bus ids and NUMA ids, GPUs below PCI devices of a GPU class, link
 * targets that can have links, ranges. The error names the item. Link targets may be missing from the
 * machine: they are GPUs and switches that this container cannot see.
 */
rondo_status rondo_machine_check(const struct rondo_machine *machine);
/** Like rondo_machine_check but without logging: text[RONDO_ERROR_TEXT] gets the error and *item the item
 * at fault (-1: none). */
rondo_status rondo_machine_fault(const struct rondo_machine *machine, char *text, int32_t *item);
/** Where the machine came from, as the subject of an error. */
static inline const char *rondo_machine_source(const struct rondo_machine *machine)
{
    return machine->source[0] ? machine->source : "the machine";
}
/** Name an item for people: "GPU 0000:17:00.0", "NUMA node 1", "NET mlx5_0". @return text. */
const char *rondo_machine_item_name(const struct rondo_machine *machine, int32_t item, char *text,
                                    size_t bytes);
/** List the items in document order, each followed by its subtree. *order gets nitems indices; free it
 * with rondo_free. */
rondo_status rondo_machine_order(const struct rondo_machine *machine, int32_t **order);
/** Sort the items into document order, since sources may append to any parent. Indices change. */
rondo_status rondo_machine_sort(struct rondo_machine *machine);
/** @return the item at a PCI address, -1: none. */
int32_t rondo_machine_find_pci(const struct rondo_machine *machine, int64_t busid);
/** @return the n-th item of a kind in document order, -1: none. */
int32_t rondo_machine_nth(const struct rondo_machine *machine, enum rondo_item_kind kind, int n);
int32_t rondo_machine_count(const struct rondo_machine *machine, enum rondo_item_kind kind);
/**
 * Hash everything but host hash, ranks, uuids, guids, note and source, so that equal machines of a cluster
 * have equal hashes. Which nets share a wire is included, and so is the order of siblings; the order of items
 * is not otherwise. @return 0 when out of memory.
 */
uint64_t rondo_machine_hash(const struct rondo_machine *machine);

/**
 * Describe the differences between two machines, one per line ("GPU 0000:17:00.0: link 16 GT/s x16, there 8
 * GT/s x8"). Items are matched by bus id, NUMA id and name. *n gets the number of differences; *text is
 * allocated, free it with free().
 */
rondo_status rondo_machine_diff(const struct rondo_machine *a, const struct rondo_machine *b, char **text,
                                int *n);

/** Convert "0000:17:00.0" to a number, -1: not an address. "17:00.0" is in domain 0; domains have up to 8
 * digits; "fffffff:ffff:ff" is RONDO_BUSID_HIDDEN. rondo_busid_text converts back. */
int64_t rondo_busid_parse(const char *text);
const char *rondo_busid_text(int64_t busid, char text[24]);

int rondo_busid_valid(int64_t busid); /* 1 for the address of a device: neither -1 nor the hidden target */

/** Classify a PCI class: 0x03 GPU, 0x02 NIC, 0x068000 NVSwitch, 0x068001 a CPU with NVLinks; the rest are
 * bridges. */
enum rondo_pci_kind rondo_pci_kind(uint32_t class_code);
/** Convert "16 GT/s", "16.0 GT/s PCIe" or "16GT/s" to GT/s x 10. @return 0 for "", "Unknown ..." and "0",
 * -1 if it is not a speed. rondo_pci_speed_text writes it as sysfs and NCCL do. */
int32_t rondo_pci_speed_parse(const char *text);
const char *rondo_pci_speed_text(int32_t speed, char text[24]);
/* Names as used in files; NULL and -1: unknown. */
const char *rondo_arch_name(int arch);
const char *rondo_vendor_name(int vendor);
int rondo_arch_from_name(const char *name);
int rondo_vendor_from_name(const char *name);

const char *rondo_item_kind_name(enum rondo_item_kind kind); /* the XML element: "cpu", "pci", ... */

#endif
