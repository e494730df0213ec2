/*
 * Detection of the machine this process runs on. hwloc provides NUMA nodes, caches, the PCI tree and OS
 * devices; sysfs provides PCI link speed and width, network ports and InfiniBand devices; NVML, opened at run
 * time, provides NVLinks, NVSwitches, C2C and P2P. Needs neither root nor a GPU nor a NIC. What cannot be
 * read is unknown, not an error.
 */
#ifndef RONDO_TOPO_DETECT_DETECT_H
#define RONDO_TOPO_DETECT_DETECT_H

#include "topo/machine.h"

struct rondo_detect {
    const char *sysfs; /* "/sys"; tests pass their own directory */
    /* network interfaces to use, in RONDO_SOCKET_IFNAME's syntax; NULL: all that are up, without docker,
     * and loopback only if there is nothing else */
    const char *interfaces;
    /* where the provider of a virtual machine describes it; NULL:
     * /var/run/nvidia-topologyd/virtualTopology.xml */
    const char *virtual_file;
    int no_nvml, no_nets;
};

/**
 * Detect this host. options NULL: defaults. Includes cores outside this process's cgroup or cpuset (hwloc's
 * whole system), so that all ranks of a node see the same machine. HWLOC_XMLFILE and HWLOC_SYNTHETIC replace
 * the host.
 */
rondo_status rondo_machine_detect(struct rondo_machine *machine, const struct rondo_detect *options);
/** Read a machine from hwloc's XML. */
rondo_status rondo_machine_from_hwloc_xml(struct rondo_machine *machine, const char *text, size_t bytes,
                                          const char *name);

/* The steps of detection, for tests. */
struct rondo_topo_nvml; /* table of functions from libnvidia-ml.so.1, found by dlopen */
/** Add NVLinks, C2C, P2P masks and GPU attributes to a machine's GPUs. Succeeds without changes if there
 * is no NVML. */
rondo_status rondo_detect_nvml(struct rondo_machine *machine);
/** Add NIC and NET items: the active ports of InfiniBand devices in sysfs (speed, guid, link layer), and
 * interfaces. */
rondo_status rondo_detect_nets(struct rondo_machine *machine, const struct rondo_detect *options);
/** Set link speed and width of PCI items from sysfs where hwloc does not know them. */
rondo_status rondo_detect_pci_links(struct rondo_machine *machine, const char *sysfs);
/** Recognize a virtual machine by its hypervisor flag and its flat or empty PCI tree. Gives unknown links
 * plausible values (Gen4 x16 for GPUs, the NIC's own rate) and fills machine->note. */
void rondo_detect_virtual(struct rondo_machine *machine, const char *sysfs);

#endif
