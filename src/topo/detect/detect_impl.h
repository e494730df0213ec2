/* What the files of detection share. Functions that need no hardware are here so that tests reach them. */
#ifndef RONDO_TOPO_DETECT_DETECT_IMPL_H
#define RONDO_TOPO_DETECT_DETECT_IMPL_H

#include <limits.h>
#include "topo/detect/detect.h"

enum {
    RONDO_CLASS_BRIDGE = 0x060400, /* of PCI devices */
    RONDO_CLASS_GPU = 0x030200,
    RONDO_CLASS_NIC = 0x020000,
    RONDO_CLASS_INFINIBAND = 0x020700,
    RONDO_CLASS_NVSWITCH = 0x068000,
    RONDO_CLASS_NVLINK_CPU = 0x068001,
    RONDO_VENDOR_ID_NVIDIA = 0x10de
};

/* Classes as the engine knows them: old InfiniBand adapters call themselves a serial bus. */
static inline uint32_t rondo_detect_class(uint32_t class_code)
{
    return class_code >> 8 == 0x0c06 ? RONDO_CLASS_INFINIBAND : class_code;
}
/* What a device is; only NVIDIA's displays and "other bridges" are GPUs and NVSwitches. Everything else is a
 * bridge. */
static inline enum rondo_pci_kind rondo_detect_kind(uint32_t class_code, uint16_t vendor)
{
    enum rondo_pci_kind kind = rondo_pci_kind(class_code);
    return (kind == RONDO_PCI_GPU || kind == RONDO_PCI_NVSWITCH) && vendor != RONDO_VENDOR_ID_NVIDIA
               ? RONDO_PCI_BRIDGE
               : kind;
}
/* "0000:17:00.0" exactly: a part of a path in sysfs that is a PCI device; -1 otherwise. */
int64_t rondo_sysfs_busid(const char *text);

/* ---- the tree (detect_tree.c) ---- */

/** Append a sentence to machine->note; cut when it is full. */
void rondo_detect_note(struct rondo_machine *machine, const char *fmt, ...) RONDO_PRINTF(2, 3);
/** Copy a name as an item can have it: cut, and what a file could not hold becomes '_'. */
void rondo_detect_name(char name[RONDO_MACHINE_NAME], const char *text);
/** CPU item of a NUMA node; unknown: the first one, -1: there is none. */
int32_t rondo_detect_cpu(const struct rondo_machine *machine, int numa);
/** The one child of a kind, -1: none. */
int32_t rondo_detect_child(const struct rondo_machine *machine, int32_t parent, enum rondo_item_kind kind);
/**
 * Item of the PCI device that a path of sysfs leads to
 * ("/sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0/infiniband/mlx5_0"), made with its switches when it is
 * not there. As in NCCL a switch is one item, its upstream port: root ports and downstream ports are none.
 * -1: no PCI device in the path.
 */
rondo_status rondo_detect_pci_path(struct rondo_machine *machine, const char *path, int32_t *item);
/** Is the n-th bridge from the root (0: the root port) an item? */
static inline int rondo_detect_bridge_kept(int depth) { return depth % 2 == 1; }
/** The PCI item that stands for a whole card: function 0, when that is a function of the same card. */
int32_t rondo_detect_card(const struct rondo_machine *machine, int32_t pci);
/** The NIC item below a PCI item (made when there is none), or a new one below the first CPU (pci -1). */
rondo_status rondo_detect_nic(struct rondo_machine *machine, int32_t pci, int32_t *nic);
/** Compute capability x 10 by device id; 0 unknown. */
int32_t rondo_detect_gpu_sm(int device);
/** Number GPUs 0, 1, ... by bus id, as NVML does. */
void rondo_detect_number_gpus(struct rondo_machine *machine);
/**
 * Sort: depth first, children by kind and bus id, so that the result does not depend on the order in which
 * things were found. Indices change. drop: items with drop[i] != 0 go, with all below them; NULL: PCI items
 * and NICs that lead to no GPU, NVSwitch or NET go.
 */
rondo_status rondo_detect_arrange(struct rondo_machine *machine, const uint8_t *drop);

/* ---- sysfs (detect_pci.c) ---- */

enum { RONDO_SYSFS_TEXT = 128 };

/** First line of a file, without spaces around; "" and -1 when it cannot be read. */
int rondo_sysfs_read(char text[RONDO_SYSFS_TEXT], const char *fmt, ...) RONDO_PRINTF(2, 3);
/** The number in a file (decimal, or hexadecimal with 0x); @a otherwise when it cannot be read. */
long long rondo_sysfs_number(long long otherwise, const char *fmt, ...) RONDO_PRINTF(2, 3);
/** realpath(3) of a formatted path. @return 0, or -1 when there is no such file. */
int rondo_sysfs_real(char path[PATH_MAX], const char *fmt, ...) RONDO_PRINTF(2, 3);
/** Names in a directory, in the order of bytes, those that begin with a point left out. Free with
 * rondo_sysfs_list_free. None: 0. */
int rondo_sysfs_list(char ***names, const char *fmt, ...) RONDO_PRINTF(2, 3);
void rondo_sysfs_list_free(char **names, int n);
/**
 * Set speed and width of a PCI item to the least of what the device and the port above can do (not what they
 * do now: idle devices go slow); a virtual function's are its card's.
 * @return 0, and no change, when sysfs does not tell.
 */
int rondo_detect_pci_link(struct rondo_item *item, const char *sysfs);
/** Speed and width whose raw bandwidth is nearest to GB/s as hwloc tells it. */
void rondo_detect_link_from_gbs(double gbs, int32_t *speed, int32_t *width);
/** Name of the hypervisor below this kernel ("kvm"); NULL: none seen. The processor is asked only when sysfs
 * is the real one. */
const char *rondo_detect_hypervisor(const char *sysfs, char name[32]);

/* ---- hwloc's XML (detect_xml.c) ---- */

/** Is it XML, not too large, of hwloc 2, with all that hwloc relies on? The error names file and line. */
rondo_status rondo_detect_xml_check(const char *text, size_t bytes, const char *name);

/* ---- networks (detect_net.c) ---- */

/** "100 Gb/sec (4X EDR)": 100000 Mbit/s; 0: unknown. */
int32_t rondo_detect_ib_rate(const char *text);
/** "0c42:a103:0065:bc2e" to a number; 0: none. */
uint64_t rondo_detect_guid(const char *text);

/* ---- NVML (detect_nvml.c) ---- */

/** rondo_detect_nvml from a library of another name. */
rondo_status rondo_detect_nvml_from(struct rondo_machine *machine, const char *library);
/** Set a GPU's UUID from "GPU-5b5a..."; zero when it is not one. */
void rondo_detect_uuid(struct rondo_item *gpu, const char *text);

#endif
