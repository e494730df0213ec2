/*
 * The machine this process runs on. hwloc gives NUMA nodes, caches, the PCI tree and OS devices; sysfs the
 * speed and width of PCI links, network ports and InfiniBand devices; NVML, opened at run time, NVLinks,
 * NVSwitches, C2C and P2P. Nothing here needs root, a GPU or a network card; what cannot be read is unknown,
 * not an error.
 */
#ifndef RONDO_TOPO_DETECT_DETECT_H
#define RONDO_TOPO_DETECT_DETECT_H

#include "topo/machine.h"

struct rondo_detect {
    const char *sysfs;        /* "/sys"; tests give a directory of their own */
    const char *interfaces;   /* RONDO_SOCKET_IFNAME's syntax: which network interfaces count; NULL: all that
                                 are up, no loopback unless alone, no docker */
    const char *virtual_file; /* a virtual machine's provider describes it here; NULL:
                                 /var/run/nvidia-topologyd/virtualTopology.xml */
    int no_nvml, no_nets;
};

/** options NULL: all defaults. Cores outside this process's cgroup or cpuset are seen (hwloc's whole system),
 * so that all ranks of a node see one machine. */
rondo_status rondo_machine_detect(struct rondo_machine *machine, const struct rondo_detect *options);
/** hwloc's XML as an input; HWLOC_XMLFILE and HWLOC_SYNTHETIC act on rondo_machine_detect. */
rondo_status rondo_machine_from_hwloc_xml(struct rondo_machine *machine, const char *text, size_t bytes,
                                          const char *name);

/* The parts, for tests. */
struct rondo_topo_nvml; /* table of functions, found by dlopen of libnvidia-ml.so.1 */
/** Add NVLinks, C2C, P2P masks and GPU attributes to the GPUs of a machine. No NVML: RONDO_SUCCESS and no
 * change. */
rondo_status rondo_detect_nvml(struct rondo_machine *machine);
/** Add NIC and NET items: InfiniBand devices of sysfs (ports that are active: speed, guid, link layer), and
 * interfaces. */
rondo_status rondo_detect_nets(struct rondo_machine *machine, const struct rondo_detect *options);
/** Link speed and width of PCI items from sysfs where hwloc does not say. */
rondo_status rondo_detect_pci_links(struct rondo_machine *machine, const char *sysfs);
/** Recognise virtual machines: hypervisor flag, flat or empty PCI tree; give unknown links sane values (Gen4
 * x16 for GPUs, the NIC's own rate) and fill machine->note. */
void rondo_detect_virtual(struct rondo_machine *machine, const char *sysfs);

#endif
