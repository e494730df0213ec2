#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "topo/topo.h"

static int64_t gpu_busid(const struct rondo_machine *machine, int32_t gpu)
{
    int32_t parent = machine->item[gpu].parent;
    return parent >= 0 && machine->item[parent].kind == RONDO_ITEM_PCI ? machine->item[parent].pci.busid : -1;
}

/* ---- GPUs ---- */

static rondo_status ranks_all(const struct rondo_machine *machine, struct rondo_topo_rank *rank, int *n)
{
    for (int32_t i = 0; i < machine->nitems; i++) {
        if (machine->item[i].kind == RONDO_ITEM_GPU) {
            rank[*n] = (struct rondo_topo_rank){ .rank = *n, .busid = gpu_busid(machine, i) };
            (*n)++;
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status rank_add(const struct rondo_machine *machine, const char *list, long dev,
                             struct rondo_topo_rank *rank, int *n)
{
    for (int32_t i = 0; i < machine->nitems; i++) {
        if (machine->item[i].kind == RONDO_ITEM_GPU && machine->item[i].gpu.dev == dev) {
            if (*n == RONDO_TOPO_MAX_LOCAL) {
                return rondo_fail(RONDO_INVALID_ARGUMENT, "\"%.64s\": more than %d GPUs", list,
                                  RONDO_TOPO_MAX_LOCAL);
            }
            rank[*n] = (struct rondo_topo_rank){ .rank = *n, .busid = gpu_busid(machine, i) };
            (*n)++;
            return RONDO_SUCCESS;
        }
    }
    return rondo_fail(RONDO_INVALID_ARGUMENT,
                      "\"%.64s\": %s has no GPU %ld (it has %d); give NVML indices such as \"0,2,5-7\"", list,
                      rondo_machine_source(machine), dev, (int)rondo_machine_count(machine, RONDO_ITEM_GPU));
}

static rondo_status list_bad(const char *list, const char *at)
{
    return rondo_fail(
        RONDO_INVALID_ARGUMENT,
        "\"%.64s\" is not a list of GPUs (at \"%.16s\"); expected NVML indices such as \"0,2,5-7\"", list,
        at);
}

/* Read a number of at most four digits at *at and move past it. @return -1 if there is none. */
static long number_at(const char **at)
{
    long n = 0;
    int digits = 0;
    while (isdigit((unsigned char)**at) && digits < 5) {
        n = 10 * n + (*(*at)++ - '0');
        digits++;
    }
    return digits == 0 || digits == 5 ? -1 : n;
}

static rondo_status ranks_listed(const struct rondo_machine *machine, const char *list,
                                 struct rondo_topo_rank *rank, int *n)
{
    for (const char *at = list;;) {
        const char *part = at;
        long first = number_at(&at), last = first;
        if (first >= 0 && *at == '-') {
            at++;
            last = number_at(&at);
        }
        if (first < 0 || last < first || (*at && *at != ',')) {
            return list_bad(list, part);
        }
        for (long dev = first; dev <= last; dev++) {
            RONDO_TRY(rank_add(machine, list, dev, rank, n));
        }
        if (!*at++) {
            return RONDO_SUCCESS;
        }
    }
}

/* ---- host memory ---- */

/* The cores of the i-th of n ranks on one NUMA node: a contiguous share; all of them if there are more
 * ranks than cores. */
static void cores_part(const struct rondo_cores *all, int i, int n, struct rondo_cores *part)
{
    int total = rondo_cores_count(all), first = (int)((int64_t)total * i / n),
        last = (int)((int64_t)total * (i + 1) / n);
    memset(part, 0, sizeof *part);
    if (total < n) {
        *part = *all;
        return;
    }
    for (int core = 0, at = 0; core < RONDO_MAX_CORES; core++) {
        if (all->bits[core / 64] >> (core % 64) & 1) {
            if (at >= first && at < last) {
                part->bits[core / 64] |= UINT64_C(1) << (core % 64);
            }
            at++;
        }
    }
}

/* Spread n ranks in blocks over the NUMA nodes with cores, or over all of them if none lists its cores. */
static rondo_status ranks_hosts(const struct rondo_machine *machine, int n, struct rondo_topo_rank *rank)
{
    int32_t cpu[RONDO_MACHINE_MAX_CPUS];
    int ncpus = 0, with_cores = 0;
    for (int32_t i = 0; i < machine->nitems; i++) {
        with_cores += machine->item[i].kind == RONDO_ITEM_CPU &&
                      rondo_cores_count(&machine->item[i].cpu.cores) > 0;
    }
    for (int32_t i = 0; i < machine->nitems && ncpus < RONDO_MACHINE_MAX_CPUS; i++) {
        const struct rondo_item *item = &machine->item[i];
        if (item->kind == RONDO_ITEM_CPU && (with_cores == 0 || rondo_cores_count(&item->cpu.cores) > 0)) {
            cpu[ncpus++] = i;
        }
    }
    if (ncpus == 0) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s has neither a GPU nor a NUMA node (<cpu>)",
                          rondo_machine_source(machine));
    }
    for (int i = 0; i < n; i++) {
        int c = (int)((int64_t)i * ncpus / n), first = (int)(((int64_t)c * n + ncpus - 1) / ncpus);
        int next = (int)(((int64_t)(c + 1) * n + ncpus - 1) / ncpus);
        rank[i] = (struct rondo_topo_rank){ .rank = i, .busid = -1 };
        cores_part(&machine->item[cpu[c]].cpu.cores, i - first, next - first, &rank[i].cores);
    }
    return RONDO_SUCCESS;
}

static rondo_status hosts_count(const struct rondo_machine *machine, const char *list, int *n)
{
    if (!list) {
        int ncpus = 0, with_cores = 0;
        for (int32_t i = 0; i < machine->nitems; i++) {
            int is_cpu = machine->item[i].kind == RONDO_ITEM_CPU;
            ncpus += is_cpu;
            with_cores += is_cpu && rondo_cores_count(&machine->item[i].cpu.cores) > 0;
        }
        *n = with_cores ? with_cores : ncpus;
        return *n > 0 ? RONDO_SUCCESS
                      : rondo_fail(RONDO_INVALID_ARGUMENT, "%s has neither a GPU nor a NUMA node (<cpu>)",
                                   rondo_machine_source(machine));
    }
    const char *at = list + 1;
    long ranks = list[0] == 'n' ? number_at(&at) : -1;
    if (ranks < 1 || ranks > RONDO_TOPO_MAX_LOCAL || *at) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "\"%.64s\": %s; for ranks on host memory give their number, such as \"n4\", at most %d", list,
            list[0] == 'n' ? "not a number of ranks" : "the machine has no GPU", RONDO_TOPO_MAX_LOCAL);
    }
    *n = (int)ranks;
    return RONDO_SUCCESS;
}

rondo_status rondo_topo_ranks(const struct rondo_machine *machine, const char *list,
                              struct rondo_topo_rank **ranks, int *n)
{
    int gpus = rondo_machine_count(machine, RONDO_ITEM_GPU), hosts = gpus == 0 || (list && list[0] == 'n');
    struct rondo_topo_rank *rank = NULL;
    rondo_status status;
    *ranks = NULL;
    *n = 0;
    if (hosts) {
        RONDO_TRY(hosts_count(machine, list, n));
    }
    int room = hosts ? *n : list ? RONDO_TOPO_MAX_LOCAL : gpus;
    RONDO_TRY(RONDO_NEW_ARRAY(rank, room, "ranks of a machine"));
    if (hosts) {
        RONDO_TRY_GOTO(ranks_hosts(machine, *n, rank), fail);
    } else if (list) {
        RONDO_TRY_GOTO(ranks_listed(machine, list, rank, n), fail);
    } else {
        RONDO_TRY_GOTO(ranks_all(machine, rank, n), fail);
    }
    *ranks = rank;
    return RONDO_SUCCESS;
fail:
    rondo_free(rank);
    *n = 0;
    return status;
}
