/* The machine as a tree of text. Every row is made twice: first to measure the columns, then to print. */
#include "tools/draw/text.h"

#include <string.h>
#include "base/mem.h"

enum { PIECES = 24, PIECE_BYTES = 160, NAME_BYTES = 128, MAX_GUIDE = 4 * RONDO_MACHINE_MAX_DEPTH + 16 };

struct row {
    char name[NAME_BYTES], busid[24], link[48];
    char piece[PIECES][PIECE_BYTES];
    int npieces;
    enum rondo_ink ink;
};

struct tree {
    const struct rondo_draw *draw;
    const struct rondo_topo *topo;
    const struct rondo_machine *machine;
    /* Per item; -1: none. */
    int32_t *child;   /* first child with a row of its own */
    int32_t *detail;  /* first child without one */
    int32_t *sibling; /* next in the same list */
    int32_t *point;   /* its point; for a GPU, that of its first device */
    uint64_t *shape;  /* of rondo_draw_shapes */
    int printing;     /* 0: measure, 1: print */
    int domains;      /* show bus ids with their domain */
    int name_columns, busid_columns, link_columns;
};

static char *piece_new(struct row *row)
{
    char *piece = row->piece[row->npieces < PIECES - 1 ? row->npieces++ : PIECES - 1];
    piece[0] = '\0';
    return piece;
}

#define PIECE(row, ...) rondo_text_add(piece_new(row), PIECE_BYTES, __VA_ARGS__)

/* ---- rows ---- */

static int is_row(const struct rondo_item *item)
{
    return item->kind != RONDO_ITEM_NVLINK && item->kind != RONDO_ITEM_C2C &&
           item->kind != RONDO_ITEM_PCILINK && item->kind != RONDO_ITEM_CACHE;
}

/* Walk backwards, so that children come before their parents: a bridge without children has no row. */
static void tree_index(struct tree *tree)
{
    const struct rondo_item *item = tree->machine->item;
    rondo_draw_shapes(tree->machine, tree->shape);
    for (int32_t i = 0; i < tree->machine->nitems; i++)
        tree->child[i] = tree->detail[i] = tree->sibling[i] = tree->point[i] = -1;
    for (int32_t i = tree->machine->nitems - 1; i >= 0; i--) {
        int32_t parent = item[i].parent;
        if (item[i].kind == RONDO_ITEM_PCI && item[i].pci.busid >> 20 != 0) tree->domains = 1;
        if (parent < 0 || (rondo_text_is_bridge(&item[i]) && tree->child[i] < 0)) continue;
        int32_t *list = is_row(&item[i]) ? &tree->child[parent] : &tree->detail[parent];
        tree->sibling[i] = *list;
        *list = i;
    }
    for (int p = tree->topo->npoints - 1; p >= 0; p--) {
        int32_t at = tree->topo->node[tree->topo->point[p]].item;
        if (at >= 0) tree->point[at] = p;
    }
}

/* A PCI function, its only NIC or GPU and that NIC's only port share a row. */
static int32_t only_child(const struct tree *tree, int32_t at, int kind)
{
    int32_t child = tree->child[at];
    return child >= 0 && tree->sibling[child] < 0 && tree->machine->item[child].kind == kind ? child : -1;
}

/* ---- details of a row ---- */

static void cpu_caches(struct row *row, const struct tree *tree, int32_t at)
{
    const struct rondo_machine *machine = tree->machine;
    for (int level = 2; level <= 4; level++) {
        int64_t bytes = 0;
        int n = 0;
        for (int32_t i = tree->detail[at]; i >= 0; i = tree->sibling[i]) {
            const struct rondo_item *item = &machine->item[i];
            if (item->kind != RONDO_ITEM_CACHE || item->cache.level != level) continue;
            bytes = item->cache.bytes > bytes ? item->cache.bytes : bytes;
            n++;
        }
        if (n > 0) {
            char text[24];
            char *piece = piece_new(row);
            rondo_text_add(piece, PIECE_BYTES, "L%d %s", level, rondo_text_bytes(bytes, text));
            if (n > 1) rondo_text_add(piece, PIECE_BYTES, " x %d", n);
        }
    }
}

static void cpu_sockets(struct row *row, const struct tree *tree, int32_t at)
{
    const struct rondo_topo *topo = tree->topo;
    if (tree->point[at] < 0) return;
    const struct rondo_topo_node *node = &topo->node[topo->point[tree->point[at]]];
    for (int i = node->first; i < node->first + node->nlinks; i++) {
        char gbs[24];
        if (topo->link[i].type != RONDO_LINK_SYS) continue;
        if (topo->link[i].mbs >= RONDO_LOC_MBS) {
            PIECE(row, "bandwidth to other NUMA nodes unknown");
        } else {
            PIECE(row, "%s GB/s to other NUMA nodes", rondo_text_gbs(topo->link[i].mbs, gbs));
        }
        return;
    }
}

static const char *cpu_model(const struct rondo_item *cpu)
{
    const char *arch = rondo_arch_name(cpu->cpu.arch);
    static const char *const vendors[RONDO_NUM_VENDORS] = { "Intel",   "AMD",    "Zhaoxin",
                                                            "Zhaoxin", "NVIDIA", "Arm" };
    if (cpu->cpu.vendor >= 0 && cpu->cpu.vendor < RONDO_NUM_VENDORS) return vendors[cpu->cpu.vendor];
    return arch ? arch : "CPU";
}

static void cpu_row(struct row *row, const struct tree *tree, int32_t at)
{
    const struct rondo_item *item = &tree->machine->item[at];
    int cores = rondo_cores_count(&item->cpu.cores);
    char text[PIECE_BYTES / 2];
    row->ink = RONDO_INK_TITLE;
    if (tree->point[at] >= 0) {
        snprintf(row->name, sizeof row->name, "CPU %d",
                 tree->point[at] - tree->topo->ndevs - tree->topo->nnets);
    } else {
        snprintf(row->name, sizeof row->name, "CPU -");
    }
    if (item->cpu.numa >= 0) PIECE(row, "NUMA node %d", item->cpu.numa);
    PIECE(row, "%s", cpu_model(item));
    if (item->cpu.family > 0 || item->cpu.model > 0)
        PIECE(row, "family %d model %d", item->cpu.family, item->cpu.model);
    if (cores > 0)
        PIECE(row, "%d core%s %s", cores, cores > 1 ? "s" : "",
              rondo_text_cores(&item->cpu.cores, text, sizeof text));
    cpu_caches(row, tree, at);
    cpu_sockets(row, tree, at);
}

/* @return the number of the GPU at the other end of an NVLink; -1: the NVSwitches. */
static int nvlink_peer(const struct tree *tree, const struct rondo_item *link)
{
    int32_t target = rondo_machine_find_pci(tree->machine, link->nvlink.target);
    int32_t gpu = target < 0 ? -1 : only_child(tree, target, RONDO_ITEM_GPU);
    if (gpu < 0) return -1;
    return tree->point[gpu] >= 0 ? tree->point[gpu] : tree->machine->item[gpu].gpu.dev;
}

/* "NVLink 2 x 20.0 GB/s to GPU 3,6": one piece for all peers with as many links. */
static void gpu_nvlinks(struct row *row, const struct tree *tree, int32_t at)
{
    const struct rondo_machine *machine = tree->machine;
    int32_t peer[64], count[64], chosen[64];
    int n = 0, to_switch = 0;
    char gbs[24], list[PIECE_BYTES / 2];
    for (int32_t i = tree->detail[at]; i >= 0; i = tree->sibling[i]) {
        if (machine->item[i].kind != RONDO_ITEM_NVLINK) continue;
        int to = nvlink_peer(tree, &machine->item[i]);
        if (to < 0) {
            to_switch += machine->item[i].nvlink.count;
        } else if (n < (int)RONDO_COUNTOF(peer)) {
            peer[n] = to;
            count[n++] = machine->item[i].nvlink.count;
        }
    }
    rondo_text_gbs(rondo_topo_nvlink_mbs(machine->item[at].gpu.sm), gbs);
    for (;;) {
        int nchosen = 0, links = 0;
        for (int k = 0; k < n; k++) links = count[k] > links ? count[k] : links;
        if (links == 0) break;
        for (int k = 0; k < n; k++) {
            if (count[k] != links) continue;
            chosen[nchosen++] = peer[k];
            count[k] = 0;
        }
        PIECE(row, "NVLink %d x %s GB/s to GPU %s", links, gbs,
              rondo_text_ranges(chosen, nchosen, list, sizeof list));
    }
    if (to_switch > 0) PIECE(row, "NVLink %d x %s GB/s to NVSwitch", to_switch, gbs);
}

static void gpu_row(struct row *row, const struct tree *tree, int32_t at)
{
    const struct rondo_machine *machine = tree->machine;
    const struct rondo_item *item = &machine->item[at];
    const struct rondo_topo *topo = tree->topo;
    int point = tree->point[at];
    char text[RONDO_MACHINE_NAME], gbs[24];
    row->ink = point >= 0 ? RONDO_INK_BEST : RONDO_INK_DIM;
    if (point >= 0) {
        snprintf(row->name, sizeof row->name, "GPU %d", point);
        for (int p = point + 1; p < topo->ndevs; p++) {
            if (topo->node[topo->point[p]].item == at) rondo_text_add(row->name, sizeof row->name, ",%d", p);
        }
    } else {
        snprintf(row->name, sizeof row->name, "GPU -");
        PIECE(row, "no rank");
    }
    if (point != item->gpu.dev && item->gpu.dev >= 0) PIECE(row, "device %d", item->gpu.dev);
    if (item->gpu.name[0]) PIECE(row, "%s", rondo_text_plain(item->gpu.name, text, sizeof text));
    if (item->gpu.sm > 0) PIECE(row, "sm %d", item->gpu.sm);
    gpu_nvlinks(row, tree, at);
    for (int32_t i = tree->detail[at]; i >= 0; i = tree->sibling[i]) {
        const struct rondo_item *c2c = &machine->item[i];
        if (c2c->kind != RONDO_ITEM_C2C) continue;
        PIECE(row, "C2C %d x %s GB/s", c2c->c2c.count, rondo_text_gbs(c2c->c2c.mbs, gbs));
    }
}

static void net_row(struct row *row, const struct tree *tree, int32_t at)
{
    const struct rondo_item *item = &tree->machine->item[at];
    int point = tree->point[at], mbps = item->net.mbps > 0 ? item->net.mbps : 10000;
    char name[RONDO_MACHINE_NAME], gbs[24];
    row->ink = point >= 0 ? RONDO_INK_GOOD : RONDO_INK_DIM;
    rondo_text_plain(item->net.name, name, sizeof name);
    if (point >= 0) {
        snprintf(row->name, sizeof row->name, "NET %d %s", point - tree->topo->ndevs, name);
    } else {
        snprintf(row->name, sizeof row->name, "NET - %s", name);
    }
    char *piece = piece_new(row);
    rondo_text_add(piece, PIECE_BYTES, "%s Gbit/s", rondo_text_tenths(mbps / 100, gbs));
    rondo_text_add(piece, PIECE_BYTES, " (%s GB/s)%s", rondo_text_gbs(mbps / 8, gbs),
                   item->net.mbps > 0 ? "" : " assumed");
    if (item->net.rail >= 0) PIECE(row, "rail %d", item->net.rail);
    if (item->net.gdr == 0) PIECE(row, "no GPUDirect");
}

/* @return the item whose children come below the row. */
static int32_t row_fill(struct row *row, const struct tree *tree, int32_t at)
{
    const struct rondo_item *item = &tree->machine->item[at];
    char text[24], gbs[24];
    memset(row, 0, offsetof(struct row, piece));
    row->npieces = 0;
    row->ink = RONDO_INK_PLAIN;
    if (item->kind == RONDO_ITEM_CPU) {
        cpu_row(row, tree, at);
        return at;
    }
    if (item->kind == RONDO_ITEM_PCI) {
        const char *busid = rondo_busid_text(item->pci.busid, text);
        snprintf(row->busid, sizeof row->busid, "%s",
                 tree->domains || strlen(busid) < 12 ? busid : busid + 5);
        char link[24];
        if (rondo_text_pci_link(item->pci.speed, item->pci.width, link)[0]) {
            snprintf(row->link, sizeof row->link, "%s %s GB/s", link,
                     rondo_text_gbs(rondo_topo_pci_mbs(item->pci.speed, item->pci.width), gbs));
        }
        int32_t gpu = only_child(tree, at, RONDO_ITEM_GPU), nic = only_child(tree, at, RONDO_ITEM_NIC);
        if (gpu >= 0) {
            gpu_row(row, tree, gpu);
            return gpu;
        }
        snprintf(row->name, sizeof row->name, "%s",
                 nic >= 0                              ? "NIC"
                 : item->pci.class_code >> 8 == 0x0680 ? "NVSwitch"
                 : rondo_text_is_bridge(item)          ? "PCI"
                                                       : "PCI device");
        if (nic < 0) return at;
        at = nic;
        item = &tree->machine->item[at];
    }
    if (item->kind == RONDO_ITEM_NIC) {
        int32_t net = only_child(tree, at, RONDO_ITEM_NET);
        snprintf(row->name, sizeof row->name, "NIC");
        if (net < 0) return at;
        at = net;
    }
    if (tree->machine->item[at].kind == RONDO_ITEM_NET) net_row(row, tree, at);
    if (tree->machine->item[at].kind == RONDO_ITEM_GPU) gpu_row(row, tree, at);
    return at;
}

/* ---- columns ---- */

static void measure(int *columns, int n) { *columns = n > *columns ? n : *columns; }

/* Wrap below the first piece, or further left if a piece would not fit there. */
static void pieces_put(const struct tree *tree, const struct row *row, int column, int start,
                       const char *below)
{
    const struct rondo_draw *draw = tree->draw;
    char indent[MAX_GUIDE * 3 + 256];
    int first = start, widest = 0, guide = rondo_text_columns(below);
    struct rondo_line line;
    for (int i = 0; i < row->npieces; i++) measure(&widest, rondo_text_columns(row->piece[i]) + 2);
    if (draw->width > 0 && start + widest > draw->width) start = draw->width - widest;
    if (start < guide + 2) start = guide + 2;
    snprintf(indent, sizeof indent, "%s%*s", below, start - guide, "");
    rondo_line_begin(&line, draw, indent, column, first);
    for (int i = 0; i < row->npieces; i++) rondo_line_piece(&line, ", ", RONDO_INK_PLAIN, row->piece[i]);
    rondo_line_end(&line);
}

static void row_put(struct tree *tree, const struct row *row, const char *guide, const char *below)
{
    const struct rondo_draw *draw = tree->draw;
    int name = rondo_text_columns(guide) + rondo_text_columns(row->name);
    if (!tree->printing) {
        measure(&tree->name_columns, name);
        measure(&tree->busid_columns, (int)strlen(row->busid));
        measure(&tree->link_columns, (int)strlen(row->link));
        return;
    }
    fputs(guide, draw->out);
    rondo_ink(draw, row->ink);
    fputs(row->name, draw->out);
    rondo_ink(draw, RONDO_INK_PLAIN);
    /* The pieces of a title follow it directly. */
    int column = name, title = row->ink == RONDO_INK_TITLE;
    int busid = tree->name_columns + 2, link = busid + (tree->busid_columns ? tree->busid_columns + 2 : 0);
    if (row->busid[0]) column += fprintf(draw->out, "%*s%s", busid - column, "", row->busid);
    if (row->link[0]) column += fprintf(draw->out, "%*s%s", link - column, "", row->link);
    pieces_put(tree, row, column,
               title ? column + 2 : link + (tree->link_columns ? tree->link_columns + 2 : 0), below);
}

static void guide_make(char *guide, size_t bytes, const struct tree *tree, const char *before, int last,
                       int below)
{
    static const char *const parts[2][2][2] = { { { "|-- ", "|   " }, { "`-- ", "    " } },
                                                { { "\u251c\u2500 ", "\u2502  " },
                                                  { "\u2514\u2500 ", "   " } } };
    snprintf(guide, bytes, "%s%s", before, parts[tree->draw->utf8 != 0][last != 0][below != 0]);
}

/* Print the ranks in host memory, first below their NUMA node. */
static void hosts_put(struct tree *tree, int32_t cpu, const char *before, int last)
{
    const struct rondo_topo *topo = tree->topo;
    struct row row = { .ink = RONDO_INK_BEST };
    struct rondo_cores cores = { { 0 } };
    char guide[MAX_GUIDE * 3], below[MAX_GUIDE * 3], text[PIECE_BYTES / 2];
    int32_t list[RONDO_TOPO_MAX_LOCAL];
    int n = 0;
    for (int d = 0; d < topo->ndevs && n < RONDO_TOPO_MAX_LOCAL; d++) {
        if (topo->rank[d].busid >= 0 || tree->point[cpu] < 0 || topo->device_cpu[d] != tree->point[cpu])
            continue;
        rondo_cores_unite(&cores, &topo->rank[d].cores);
        list[n++] = d;
    }
    if (n == 0) return;
    snprintf(row.name, sizeof row.name, "HOST %s", rondo_text_ranges(list, n, text, sizeof text));
    PIECE(&row, "%d rank%s in host memory", n, n > 1 ? "s" : "");
    int ncores = rondo_cores_count(&cores);
    if (ncores > 0)
        PIECE(&row, "core%s %s", ncores > 1 ? "s" : "", rondo_text_cores(&cores, text, sizeof text));
    guide_make(guide, sizeof guide, tree, before, last, 0);
    guide_make(below, sizeof below, tree, before, last, 1);
    row_put(tree, &row, guide, below);
}

static void children_put(struct tree *tree, int32_t at, const char *before, int depth);

static void item_put(struct tree *tree, int32_t at, const char *before, int last, int depth)
{
    struct row row;
    char guide[MAX_GUIDE * 3], below[MAX_GUIDE * 3], more[MAX_GUIDE * 3];
    int32_t inner = row_fill(&row, tree, at);
    guide_make(guide, sizeof guide, tree, before, last, 0);
    guide_make(below, sizeof below, tree, before, last, 1);
    if (tree->child[inner] >= 0) {
        guide_make(more, sizeof more, tree, below, 0, 1);
    } else {
        snprintf(more, sizeof more, "%s", below);
    }
    row_put(tree, &row, guide, more);
    children_put(tree, inner, below, depth + 1);
}

static void children_put(struct tree *tree, int32_t at, const char *before, int depth)
{
    if (depth > RONDO_MACHINE_MAX_DEPTH) return;
    for (int32_t child = tree->child[at]; child >= 0; child = tree->sibling[child]) {
        item_put(tree, child, before, tree->sibling[child] < 0, depth);
    }
}

static void cpu_put(struct tree *tree, int32_t at)
{
    struct row row;
    row_fill(&row, tree, at);
    row_put(tree, &row, "", "");
    hosts_put(tree, at, "", tree->child[at] < 0);
    children_put(tree, at, "", 0);
}

/* ---- hosts: a machine file may describe several ---- */

static uint64_t host_shape(const struct tree *tree, uint64_t host)
{
    const struct rondo_machine *machine = tree->machine;
    uint64_t shape = 0;
    for (int32_t i = 0; i < machine->nitems; i++) {
        if (machine->item[i].kind == RONDO_ITEM_CPU && machine->item[i].cpu.host_hash == host) {
            shape = rondo_hash(&tree->shape[i], sizeof tree->shape[i], shape);
        }
    }
    return shape;
}

static uint64_t host_of(const struct rondo_machine *machine, int32_t at)
{
    while (machine->item[at].parent >= 0) at = machine->item[at].parent;
    return machine->item[at].cpu.host_hash;
}

/* @return 1 if this is the first CPU of its host. */
static int host_starts(const struct rondo_machine *machine, int32_t at)
{
    for (int32_t i = 0; i < at; i++) {
        if (machine->item[i].kind == RONDO_ITEM_CPU &&
            machine->item[i].cpu.host_hash == machine->item[at].cpu.host_hash)
            return 0;
    }
    return 1;
}

static void host_put(struct tree *tree, int32_t first)
{
    const struct rondo_machine *machine = tree->machine;
    for (int32_t i = first; i < machine->nitems; i++) {
        if (machine->item[i].kind == RONDO_ITEM_CPU &&
            machine->item[i].cpu.host_hash == machine->item[first].cpu.host_hash)
            cpu_put(tree, i);
    }
}

/* "hosts 1-17 are like host 0: GPU 4-71, NET 4-71" */
static void alike_put(struct tree *tree, const uint64_t *host, int from, int n, int like)
{
    const struct rondo_topo *topo = tree->topo;
    int32_t devices[RONDO_TOPO_MAX_LOCAL], nets[RONDO_MACHINE_MAX_NETS];
    int ndevices = 0, nnets = 0;
    char text[160], which[48];
    if (!tree->printing) return;
    for (int p = 0; p < topo->ndevs + topo->nnets; p++) {
        int32_t item = topo->node[topo->point[p]].item;
        int k = from;
        while (item >= 0 && k < from + n && host[k] != host_of(tree->machine, item)) k++;
        if (item < 0 || k == from + n) continue;
        if (p < topo->ndevs) devices[ndevices++] = p;
        if (p >= topo->ndevs) nets[nnets++] = p - topo->ndevs;
    }
    snprintf(which, sizeof which, n > 1 ? "hosts %d-%d are" : "host %d is", from, from + n - 1);
    fprintf(tree->draw->out, "%s like host %d", which, like);
    if (ndevices > 0)
        fprintf(tree->draw->out, ": GPU %s", rondo_text_ranges(devices, ndevices, text, sizeof text));
    if (nnets > 0)
        fprintf(tree->draw->out, "%s NET %s", ndevices ? "," : ":",
                rondo_text_ranges(nets, nnets, text, sizeof text));
    fputc('\n', tree->draw->out);
}

static void hosts_walk(struct tree *tree, const uint64_t *host, const uint64_t *shape, const int32_t *first,
                       int n)
{
    for (int i = 0; i < n;) {
        int like = 0, end = i + 1;
        while (like < i && (tree->draw->all || shape[like] != shape[i])) like++;
        if (like < i) {
            while (end < n && shape[end] == shape[i]) end++;
            alike_put(tree, host, i, end - i, like);
        } else {
            if (n > 1 && tree->printing) fprintf(tree->draw->out, "%shost %d\n", i ? "\n" : "", i);
            host_put(tree, first[i]);
        }
        i = end;
    }
}

static rondo_status tree_draw(struct tree *tree)
{
    const struct rondo_machine *machine = tree->machine;
    uint64_t host[RONDO_MACHINE_MAX_CPUS], shape[RONDO_MACHINE_MAX_CPUS];
    int32_t first[RONDO_MACHINE_MAX_CPUS];
    int n = 0;
    tree_index(tree);
    for (int32_t i = 0; i < machine->nitems && n < RONDO_MACHINE_MAX_CPUS; i++) {
        if (machine->item[i].kind != RONDO_ITEM_CPU || !host_starts(machine, i)) continue;
        host[n] = machine->item[i].cpu.host_hash;
        shape[n] = host_shape(tree, host[n]);
        first[n++] = i;
    }
    for (tree->printing = 0; tree->printing < 2; tree->printing++) hosts_walk(tree, host, shape, first, n);
    return rondo_draw_finish(tree->draw->out);
}

rondo_status rondo_draw_tree(const struct rondo_draw *draw, const struct rondo_topo *topo)
{
    struct tree tree = { .draw = draw, .topo = topo, .machine = topo->machine };
    size_t n = (size_t)topo->machine->nitems;
    int32_t *memory = NULL;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(memory, 4 * n, "tree of the machine"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(tree.shape, n, "tree of the machine"), out);
    tree.child = memory;
    tree.detail = memory + n;
    tree.sibling = memory + 2 * n;
    tree.point = memory + 3 * n;
    status = tree_draw(&tree);
out:
    rondo_free(memory);
    rondo_free(tree.shape);
    return status;
}
