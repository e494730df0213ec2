#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "topo/topo.h"

#define NAME_ROW_(ctx, NAME, name, ...) name,
static const char *const node_name[] = { RONDO_TOPO_NODE_TABLE(NAME_ROW_, ) };
static const char *const link_name[] = { RONDO_TOPO_LINK_TABLE(NAME_ROW_, ) };
static const char *const path_name[] = { RONDO_TOPO_PATH_TABLE(NAME_ROW_, ) };
#undef NAME_ROW_
#define LEGEND_ROW_(ctx, NAME, name, legend) legend,
static const char *const path_legend[] = { RONDO_TOPO_PATH_TABLE(LEGEND_ROW_, ) };
#undef LEGEND_ROW_

const char *rondo_node_type_name(int type)
{
    return type < 0 || type >= RONDO_NUM_NODE_TYPES ? "?" : node_name[type];
}
const char *rondo_link_type_name(int type)
{
    return type < 0 || type >= RONDO_NUM_LINK_TYPES ? "?" : link_name[type];
}
const char *rondo_path_type_name(int type)
{
    return type < 0 || type >= RONDO_NUM_PATH_TYPES ? "?" : path_name[type];
}
const char *rondo_path_type_legend(int type)
{
    return type < 0 || type >= RONDO_NUM_PATH_TYPES ? "?" : path_legend[type];
}

int rondo_path_type_from_name(const char *name)
{
    static const int old[] = { RONDO_PATH_LOC, RONDO_PATH_PIX, RONDO_PATH_PXB,
                               RONDO_PATH_PHB, RONDO_PATH_SYS, RONDO_PATH_SYS };
    if (name[0] >= '0' && name[0] <= '5' && !name[1]) {
        return old[name[0] - '0'];
    }
    for (int i = 0; i < RONDO_NUM_PATH_TYPES; i++) {
        if (strcasecmp(name, path_name[i]) == 0) {
            return i;
        }
    }
    return -1;
}

/* ---- bandwidths ---- */

int rondo_topo_sys_mbs(int arch, int vendor, int model)
{
    enum { RONDO_VENDOR_ANY = -1 };
    static const struct {
        int arch, vendor, model, mbs;
    } row[] = {
#define ROW_(ctx, ARCH, VENDOR, model_, mbs_) { RONDO_ARCH_##ARCH, RONDO_VENDOR_##VENDOR, model_, mbs_ },
        RONDO_TOPO_SYS_TABLE(ROW_, )
#undef ROW_
    };
    if (vendor == RONDO_VENDOR_ZHAOXIN2) {
        vendor = RONDO_VENDOR_ZHAOXIN;
    }
    for (size_t i = 0; i < RONDO_COUNTOF(row); i++) {
        if (arch == row[i].arch && (row[i].vendor == RONDO_VENDOR_ANY || vendor == row[i].vendor) &&
            model >= row[i].model) {
            return row[i].mbs;
        }
    }
    return RONDO_LOC_MBS;
}

int rondo_topo_nvlink_mbs(int sm)
{
    int mbs = 0;
#define ROW_(ctx, sm_, mbs_) mbs = sm >= (sm_) ? (mbs_) : mbs;
    RONDO_TOPO_NVLINK_TABLE(ROW_, )
#undef ROW_
    return mbs;
}

int rondo_topo_pci_mbs(int speed, int width)
{
    static const struct {
        int speed, x16;
    } row[] = {
#define ROW_(ctx, name, speed_, lane) { speed_, (int)((lane)*16) },
        RONDO_TOPO_PCI_TABLE(ROW_, )
#undef ROW_
    };
    enum { GEN3 = 2, WIDTH = 16, MAX_WIDTH = 1024 };
    int best = GEN3;
    for (size_t i = 0; speed > 0 && i < RONDO_COUNTOF(row); i++) {
        best = i == 0 || speed >= row[i].speed ? (int)i : best;
    }
    width = width <= 0 ? WIDTH : width > MAX_WIDTH ? MAX_WIDTH : width;
    return row[best].x16 * width / 16;
}

/* ---- points ---- */

const char *rondo_topo_point_name(const struct rondo_topo *topo, int point, char *text, size_t bytes)
{
    if (point < 0 || point >= topo->npoints) {
        snprintf(text, bytes, "no point");
        return text;
    }
    const struct rondo_topo_node *node = &topo->node[topo->point[point]];
    if (node->type == RONDO_NODE_NET) {
        const char *name = rondo_topo_item(topo, point)->net.name;
        snprintf(text, bytes, name[0] ? "NET %d (%.*s)" : "NET %d", (int)node->index, RONDO_MACHINE_NAME,
                 name);
    } else if (node->type == RONDO_NODE_NVS) {
        snprintf(text, bytes, "%s", node_name[node->type]);
    } else {
        snprintf(text, bytes, "%s %d", node_name[node->type], (int)node->index);
    }
    return text;
}

/* Parse a kind and a number: "GPU 3", "gpu3". */
static int find_number(const struct rondo_topo *topo, const char *name)
{
    for (int p = 0; p < topo->npoints; p++) {
        const struct rondo_topo_node *node = &topo->node[topo->point[p]];
        const char *kind = node_name[node->type], *digits = name + strlen(kind);
        char *end;
        if (strncasecmp(name, kind, strlen(kind)) != 0) {
            continue;
        }
        digits += strspn(digits, " ");
        if (isdigit((unsigned char)*digits) && strtol(digits, &end, 10) == node->index && !*end) {
            return p;
        }
        if (node->type == RONDO_NODE_NVS && !*digits) {
            return p;
        }
    }
    return -1;
}

static int find_busid(const struct rondo_topo *topo, int64_t busid)
{
    for (int p = 0; p < topo->ndevs + topo->nnets; p++) {
        const struct rondo_item *item = rondo_topo_item(topo, p);
        int up = item && item->kind == RONDO_ITEM_NET ? topo->machine->item[item->parent].parent
                 : item                               ? item->parent
                                                      : -1;
        if (up >= 0 && topo->machine->item[up].kind == RONDO_ITEM_PCI &&
            topo->machine->item[up].pci.busid == busid) {
            return p;
        }
    }
    return -1;
}

int rondo_topo_point_find(const struct rondo_topo *topo, const char *name)
{
    for (int n = 0; n < topo->nnets; n++) {
        int point = rondo_topo_net_point(topo, n);
        if (name[0] && strcmp(rondo_topo_item(topo, point)->net.name, name) == 0) {
            return point;
        }
    }
    int point = find_number(topo, name);
    if (point < 0) {
        int64_t busid = rondo_busid_parse(name);
        point = busid < 0 ? -1 : find_busid(topo, busid);
    }
    return point;
}
