/* Private to detection. Functions that need no hardware are here so that tests can call them. */
#ifndef RONDO_TOPO_DETECT_DETECT_IMPL_H
#define RONDO_TOPO_DETECT_DETECT_IMPL_H

#include <limits.h>
#include "topo/detect/detect.h"

enum {
    RONDO_CLASS_BRIDGE = 0x060400, /* PCI classes */
    RONDO_CLASS_GPU = 0x030200,
    RONDO_CLASS_NIC = 0x020000,
    RONDO_CLASS_INFINIBAND = 0x020700,
    RONDO_CLASS_NVSWITCH = 0x068000,
    RONDO_CLASS_NVLINK_CPU = 0x068001,
    RONDO_VENDOR_ID_NVIDIA = 0x10de
};

/* @return the class to use: old InfiniBand NICs claim to be a serial bus. */
static inline uint32_t rondo_detect_class(uint32_t class_code)
{
    return class_code >> 8 == 0x0c06 ? RONDO_CLASS_INFINIBAND : class_code;
}
/* Classify a PCI device. Displays and "other bridges" are GPUs and NVSwitches only if NVIDIA made them;
 * everything else is a bridge. */
static inline enum rondo_pci_kind rondo_detect_kind(uint32_t class_code, uint16_t vendor)
{
    enum rondo_pci_kind kind = rondo_pci_kind(class_code);
    return (kind == RONDO_PCI_GPU || kind == RONDO_PCI_NVSWITCH) && vendor != RONDO_VENDOR_ID_NVIDIA
               ? RONDO_PCI_BRIDGE
               : kind;
}
/* Parse a path component of sysfs if it is exactly a PCI address, "0000:17:00.0"; -1 otherwise. */
int64_t rondo_sysfs_busid(const char *text);

/* ---- the tree (detect_tree.c) ---- */

/** Append a sentence to machine->note, truncated when it is full. */
void rondo_detect_note(struct rondo_machine *machine, const char *fmt, ...) RONDO_PRINTF(2, 3);
/** Copy a name into an item: truncates it and replaces what files cannot hold by '_'. */
void rondo_detect_name(char name[RONDO_MACHINE_NAME], const char *text);
/** @return the CPU item of a NUMA node; for an unknown node the first one; -1: there is none. */
int32_t rondo_detect_cpu(const struct rondo_machine *machine, int numa);
/** @return the only child of a kind, -1: none. */
int32_t rondo_detect_child(const struct rondo_machine *machine, int32_t parent, enum rondo_item_kind kind);
/**
 * Find the item of the PCI device on a sysfs path
 * ("/sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0/infiniband/mlx5_0"), and create it with the switches
 * above it if it is missing. As in NCCL a switch is one item, its upstream port; root ports and downstream
 * ports have none. *item is -1 if the path has no PCI device.
 */
rondo_status rondo_detect_pci_path(struct rondo_machine *machine, const char *path, int32_t *item);
/** @return 1 if the n-th bridge from the root (0: the root port) is an item. */
static inline int rondo_detect_bridge_kept(int depth) { return depth % 2 == 1; }
/** @return the PCI item that represents the whole NIC: its function 0, if that belongs to the same NIC. */
int32_t rondo_detect_nic_pci(const struct rondo_machine *machine, int32_t pci);
/** Find or create the NIC item below a PCI item; with pci -1 create a new one below the first CPU. */
rondo_status rondo_detect_nic(struct rondo_machine *machine, int32_t pci, int32_t *nic);
/** @return the compute capability x 10 for a PCI device id; 0 unknown. */
int32_t rondo_detect_gpu_sm(int device);
/** Number the GPUs 0, 1, ... by bus id, as NVML does. */
void rondo_detect_number_gpus(struct rondo_machine *machine);
/**
 * Sort the machine depth first, children by kind and bus id, so that the result does not depend on the order
 * of discovery. Indices change. Removes items with drop[i] != 0 and everything below them; drop NULL: removes
 * PCI items and NICs that lead to no GPU, NVSwitch or NET.
 */
rondo_status rondo_detect_arrange(struct rondo_machine *machine, const uint8_t *drop);

/* ---- sysfs (detect_pci.c) ---- */

enum { RONDO_SYSFS_TEXT = 128 };

/** Read the first line of a file, without surrounding spaces. @return -1, with text "", if it cannot be
 * read. */
int rondo_sysfs_read(char text[RONDO_SYSFS_TEXT], const char *fmt, ...) RONDO_PRINTF(2, 3);
/** Read a decimal number, or a hexadecimal one with 0x. @return @a otherwise if it cannot be read. */
long long rondo_sysfs_number(long long otherwise, const char *fmt, ...) RONDO_PRINTF(2, 3);
/** realpath(3) of a formatted path. @return 0, or -1 if there is no such file. */
int rondo_sysfs_real(char path[PATH_MAX], const char *fmt, ...) RONDO_PRINTF(2, 3);
/** List the names in a directory, sorted bytewise, without those that begin with a dot. @return their
 * number. Free them with rondo_sysfs_list_free. */
int rondo_sysfs_list(char ***names, const char *fmt, ...) RONDO_PRINTF(2, 3);
void rondo_sysfs_list_free(char **names, int n);
/**
 * Set a PCI item's link to the lower of what the device and the port above it can do, not to the current
 * state: idle devices slow down. A virtual function gets its physical function's link.
 * @return 0, without changes, if sysfs does not say.
 */
int rondo_detect_pci_link(struct rondo_item *item, const char *sysfs);
/** Find the speed and width whose raw bandwidth is closest to hwloc's GB/s. */
void rondo_detect_link_from_gbs(double gbs, int32_t *speed, int32_t *width);
/** @return the name of the hypervisor below this kernel ("kvm"); NULL: none found. Asks the processor only
 * if sysfs is the real one. */
const char *rondo_detect_hypervisor(const char *sysfs, char name[32]);

/* ---- networks (detect_net.c) ---- */

/** Parse "100 Gb/sec (4X EDR)" as 100000 Mbit/s; 0: unknown. */
int32_t rondo_detect_ib_rate(const char *text);
/** Parse "0c42:a103:0065:bc2e"; 0: none. */
uint64_t rondo_detect_guid(const char *text);

/* ---- NVML (detect_nvml.c) ---- */

/** rondo_detect_nvml with another library name. */
rondo_status rondo_detect_nvml_from(struct rondo_machine *machine, const char *library);
/** Set a GPU's UUID from "GPU-5b5a..."; zero if the text is not one. */
void rondo_detect_uuid(struct rondo_item *gpu, const char *text);

#endif
