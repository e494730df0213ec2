/*
 * A machine as it is described: a tree of NUMA nodes, PCI devices, GPUs and network ports, before anything is
 * computed from it. Every source fills it (detection on this host, NCCL's topology XML, hwloc's XML) and
 * everything else starts from it, so that a machine that one does not have is studied exactly as the own one.
 *
 * Nesting: CPU > (PCI | NIC | CACHE), PCI > (PCI | GPU | NIC | PCILINK), GPU > (NVLINK | C2C), NIC > NET.
 * Parents stand before their children.
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
    RONDO_ITEM_CACHE, /* ours: NCCL's parser skips it */
    RONDO_NUM_ITEM_KINDS
};

/* Limits of what is read, so that a file cannot make us allocate or search for ever. Beyond them:
 * RONDO_INVALID_ARGUMENT. */
enum {
    RONDO_MACHINE_MAX_ITEMS = 65536,
    RONDO_MACHINE_MAX_DEPTH = 64,
    RONDO_MACHINE_MAX_GPUS = 1024,
    RONDO_MACHINE_MAX_NETS = 1024,
    RONDO_MACHINE_MAX_CPUS = 1024,
    RONDO_MACHINE_MAX_MBS = 100000000, /* of any link: 100 TB/s */
    RONDO_MACHINE_MAX_NVLINKS = 1024,  /* of one GPU to one target */
    RONDO_MACHINE_NAME = 64,
    RONDO_PCI_MAX_SPEED = 12800 /* GT/s x 10 */
};

/* A link's target that a virtual machine hides. */
#define RONDO_BUSID_HIDDEN INT64_C(0xfffffffffff)

/* What a PCI class stands for here. */
enum rondo_pci_kind {
    RONDO_PCI_BRIDGE,
    RONDO_PCI_GPU,
    RONDO_PCI_NIC,
    RONDO_PCI_NVSWITCH,
    RONDO_PCI_NVLINK_CPU
};

/* PCI addresses as one number: domain << 20 | bus << 12 | device << 4 | function. -1: none. */
struct rondo_item {
    int32_t kind, parent; /* parent: index, -1 for a CPU */
    union {
        struct {
            int32_t numa;    /* -1: the whole host is one node */
            int32_t package; /* -1 unknown */
            int32_t arch,
                vendor; /* enums; -1 unknown: links to other NUMA nodes are then taken as unlimited */
            int32_t family, model;
            uint64_t host_hash;       /* 0: all items are of one host */
            struct rondo_cores cores; /* all zero: unknown */
        } cpu;
        struct {
            int64_t busid;
            uint32_t class_code; /* 24 bits: 0x060400 bridge, 0x03.... GPU, 0x02.... NIC, 0x068000 NVSwitch */
            uint16_t vendor, device, subsystem_vendor, subsystem_device;
            int32_t speed, width; /* GT/s x 10 and lanes of the link upwards; 0: unknown (60 in NCCL's rate:
                                     Gen3; x16) */
        } pci;
        struct {
            int32_t dev;      /* index as NVML counts */
            int32_t sm;       /* compute capability x 10; 0 unknown */
            int32_t rank;     /* as the file says, -1 none; not believed */
            int32_t gdr;      /* 1, 0; -1 unknown */
            uint64_t no_p2p;  /* bit i: NVML says that P2P with dev i does not work */
            uint8_t uuid[16]; /* zero: unknown */
            char name[RONDO_MACHINE_NAME];
        } gpu;
        struct {
            char name[RONDO_MACHINE_NAME]; /* "mlx5_0", "eth0" */
            int32_t dev;                   /* index as the network device counts */
            int32_t mbps;                  /* Mbit/s; <= 0: unknown, taken as 10000 */
            int32_t port;
            uint64_t guid;           /* ports of equal guid and port share one wire */
            int32_t gdr, coll, keep; /* -1 unknown */
            int32_t maxconn;
            int32_t rail, plane; /* -1 unknown */
            double latency;      /* us; 0 unknown */
        } net;
        struct {
            int64_t target; /* bus id; 0xfffffffffff: hidden by a virtual machine, taken as an NVSwitch */
            int32_t count;
            uint32_t tclass; /* class of the target; 0 unknown */
        } nvlink;
        struct {
            int32_t mbs, count; /* MB/s of a link, links */
        } c2c;
        struct {
            int64_t target;
        } pcilink;
        struct {
            int32_t level;
            int64_t bytes; /* of a cache that NUMA nodes share the part of this one's cores */
            struct rondo_cores cores;
        } cache;
    };
};

struct rondo_machine {
    struct rondo_item *item; /* owned */
    int32_t nitems, capacity;
    int32_t is_virtual;   /* the PCI tree is that of a virtual machine: flat or empty; links' values are then
                             assumed */
    int32_t is_described; /* cores are numbered as a description says: it may be of another machine than this
                             host */
    char source[256];     /* "this host", or the file it came from */
    char note[256]; /* what a person should know ("virtual machine (kvm): PCI tree is flat, ..."); "" none */
};

/** A zeroed struct is an empty machine. */
void rondo_machine_release(struct rondo_machine *machine);
/** Append a zeroed item (fields that mean "unknown" when -1 are -1) below @a parent. @return its index in
 * *index. Fails beyond the limits or with a parent that cannot have it. */
rondo_status rondo_machine_add(struct rondo_machine *machine, enum rondo_item_kind kind, int32_t parent,
                               int32_t *index);
/** Would rondo_machine_add do it? If not, why is in text[RONDO_ERROR_TEXT]; nothing is logged. */
int rondo_machine_may_add(const struct rondo_machine *machine, enum rondo_item_kind kind, int32_t parent,
                          char *text);
/**
 * Is the whole thing sound? Nesting, unique bus ids and NUMA ids, GPUs below PCI devices of a GPU's class,
 * links that lead to what can have them, ranges. The error names the item. Targets that the machine does not
 * have are allowed: they are GPUs and switches that this container does not see.
 */
rondo_status rondo_machine_check(const struct rondo_machine *machine);
/** The same without logging: the sentence in text[RONDO_ERROR_TEXT], the item that it is about in *item (-1:
 * none). */
rondo_status rondo_machine_fault(const struct rondo_machine *machine, char *text, int32_t *item);
/** "GPU 0000:17:00.0", "NUMA node 1", "NET mlx5_0": an item as people know it. @return text. */
const char *rondo_machine_item_name(const struct rondo_machine *machine, int32_t item, char *text,
                                    size_t bytes);
/** Indices of the items as a file has them: each item's subtree at once behind it. order: nitems numbers,
 * allocated, rondo_free it. */
rondo_status rondo_machine_order(const struct rondo_machine *machine, int32_t **order);
/** Bring the items themselves into that order (sources may append to any parent). Indices change. */
rondo_status rondo_machine_sort(struct rondo_machine *machine);
/** Item of a PCI address, -1: none. */
int32_t rondo_machine_find_pci(const struct rondo_machine *machine, int64_t busid);
/** Item of the n-th of a kind in document order, -1: none. */
int32_t rondo_machine_nth(const struct rondo_machine *machine, enum rondo_item_kind kind, int n);
int32_t rondo_machine_count(const struct rondo_machine *machine, enum rondo_item_kind kind);
/**
 * Hash of everything but host hash, ranks, uuids, guids, note and source: equal machines of a cluster have
 * equal hashes. Which nets share a wire counts. The order of siblings counts; that of items otherwise does
 * not. 0: no memory.
 */
uint64_t rondo_machine_hash(const struct rondo_machine *machine);

/**
 * What differs between two machines, a line each ("GPU 0000:17:00.0: link 16 GT/s x16, there 8 GT/s x8"),
 * items matched by bus id, NUMA id and name.
 * @return number of differences in *n; text is allocated, free() it.
 */
rondo_status rondo_machine_diff(const struct rondo_machine *a, const struct rondo_machine *b, char **text,
                                int *n);

/** "0000:17:00.0" ("17:00.0" is of domain 0) to a number, -1: not an address. Domains of up to 8 digits;
 * "fffffff:ffff:ff" is RONDO_BUSID_HIDDEN. And back, 24 bytes suffice. */
int64_t rondo_busid_parse(const char *text);
const char *rondo_busid_text(int64_t busid, char text[24]);

int rondo_busid_valid(int64_t busid); /* an address that exists: neither -1 nor the hidden target */

/** By class: 0x03 GPU, 0x02 NIC, 0x068000 NVSwitch, 0x068001 a CPU with NVLinks; all else is a bridge. */
enum rondo_pci_kind rondo_pci_kind(uint32_t class_code);
/** "16 GT/s", "16.0 GT/s PCIe", "16GT/s" to GT/s x 10; "", "Unknown ..." and "0": 0; -1: not a speed. And
 * back, as sysfs and NCCL write it; 24 bytes suffice. */
int32_t rondo_pci_speed_parse(const char *text);
const char *rondo_pci_speed_text(int32_t speed, char text[24]);
/* Names as files have them; NULL and -1: unknown. */
const char *rondo_arch_name(int arch);
const char *rondo_vendor_name(int vendor);
int rondo_arch_from_name(const char *name);
int rondo_vendor_from_name(const char *name);

const char *rondo_item_kind_name(
    enum rondo_item_kind kind); /* the element's name in XML: "cpu", "pci", ... */

#endif
