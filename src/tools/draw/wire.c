/* Where the links lie. */
#include <string.h>
#include "base/mem.h"
#include "tools/draw/place.h"

enum { ARC_BASE = 26, ARC_STEP = 13, PORT = 15, LANE_STEP = 6, BUS_TOP = 26, FREE_WIDTH = 30 };

/* The end of an arc at a node. Ports are sorted from left to right: those that go left, nearest first, then
 * those that go right, farthest first, so that arcs nest. */
struct port {
    int32_t node, up, side, key, wire, end;
};

static int32_t middle(const struct rondo_box *box) { return box->x + box->w / 2; }

/* Six times the root of GB/s, in tenths of a pixel, rounded down. */
int32_t rondo_wire_width(int type, int32_t mbs)
{
    int64_t square = (int64_t)mbs * 36 / 1000, root = 0;
    for (int64_t bit = 1 << 15; bit; bit >>= 1) {
        if ((root + bit) * (root + bit) <= square) root += bit;
    }
    if (type == RONDO_LINK_LOC) return FREE_WIDTH;
    return root < 10 ? 10 : root > 160 ? 160 : (int32_t)root;
}

/* The middle of a device, without the part left free for its C2C link. */
static int32_t core_middle(const struct rondo_place *place, int node)
{
    const struct rondo_box *box = &place->box[node];
    int32_t beside = rondo_place_beside(place, node);
    return box->x + beside + (box->w - beside) / 2;
}

/* The box over a child: for a NUMA node, its bar in the child's panel. */
static const struct rondo_box *box_over(const struct rondo_place *place, int parent, int child)
{
    return type_of(place, parent) == RONDO_NODE_CPU ? &place->panel[place->panel_of[child]].head
                                                    : &place->box[parent];
}

static const struct rondo_place_bar *bar_in(const struct rondo_place *place, int nvs, int row)
{
    for (int i = 0; i < place->nbars; i++) {
        if (place->bar[i].node == nvs && place->bar[i].box.row == row) return &place->bar[i];
    }
    return NULL;
}

static int holds_rank(int type) { return type == RONDO_NODE_GPU || type == RONDO_NODE_HOST; }

/* Does the panel of the device belong to this NUMA node? */
static int is_over(const struct rondo_place *place, int cpu, int device)
{
    return place->panel_of[device] >= 0 && place->panel[place->panel_of[device]].cpu == cpu;
}

enum route { BRANCH, BESIDE, ASIDE, TO_BAR, ACROSS, ARC_UP, ARC_DOWN, ROWS, BUS, DIRECT };

/* How to draw a link: it depends on the nodes at its ends. */
static enum route route_of(const struct rondo_place *place, int link)
{
    const struct rondo_topo_link *l = &place->topo->link[link];
    const struct rondo_box *a = &place->box[l->from], *b = &place->box[l->to];
    int from = type_of(place, l->from), to = type_of(place, l->to);
    int gpu = from == RONDO_NODE_GPU ? l->from : l->to, cpu = gpu == l->from ? l->to : l->from;
    if (l->type == RONDO_LINK_C2C && rondo_place_beside(place, gpu) &&
        type_of(place, cpu) == RONDO_NODE_CPU && is_over(place, cpu, gpu))
        return BESIDE;
    if (place->parent[l->from] == l->to || place->parent[l->to] == l->from)
        return holds_rank(from) && holds_rank(to) ? ASIDE : BRANCH;
    if (from == RONDO_NODE_NVS || to == RONDO_NODE_NVS)
        return holds_rank(from) || holds_rank(to) ? TO_BAR : DIRECT;
    if (l->type == RONDO_LINK_SYS && place->bus) return BUS;
    if (a->row != b->row) return holds_rank(from) && holds_rank(to) ? ROWS : DIRECT;
    if (from == RONDO_NODE_CPU && to == RONDO_NODE_CPU) {
        int gap = place->panel_of[l->from] - place->panel_of[l->to];
        return gap == 1 || gap == -1 ? ACROSS : ARC_UP;
    }
    return from == to ? ARC_DOWN : DIRECT;
}

static int compare_ports(const void *a, const void *b)
{
    const struct port *p = a, *q = b;
    const int32_t left[] = { p->node, p->up, p->side, p->key, p->wire, p->end },
                  right[] = { q->node, q->up, q->side, q->key, q->wire, q->end };
    for (size_t i = 0; i < RONDO_COUNTOF(left); i++) {
        if (left[i] != right[i]) return left[i] < right[i] ? -1 : 1;
    }
    return 0;
}

static void port_add(const struct rondo_place *place, struct port *port, int wire, int end, enum route route)
{
    const struct rondo_topo_link *link = &place->topo->link[place->wire[wire].link];
    int32_t node = end ? link->to : link->from, other = end ? link->from : link->to;
    int32_t distance = middle(&place->box[other]) - middle(&place->box[node]);
    int32_t right = route == ROWS || distance > 0;
    *port = (struct port){ node, route == ARC_UP, right, right ? -distance : -distance, wire, end };
    if (route == ROWS) port->key = INT32_MIN;
}

/* Spread a node's ports along its side. */
static void ports_spread(struct rondo_place *place, const struct port *port, int n)
{
    const struct rondo_box *box = &place->box[port->node];
    int32_t span = min32(box->w - 12, n * PORT);
    for (int i = 0; i < n; i++) {
        place->wire[port[i].wire].line.x[port[i].end] = middle(box) - span / 2 + span * (2 * i + 1) / (2 * n);
    }
}

static void ports_place(struct rondo_place *place, struct port *ports, int n)
{
    qsort(ports, (size_t)n, sizeof *ports, compare_ports);
    for (int i = 0, first = 0; i <= n; i++) {
        if (i < n && ports[i].node == ports[first].node && ports[i].up == ports[first].up) continue;
        ports_spread(place, ports + first, i - first);
        first = i;
    }
}

/* Height of an arc's control points. The arc itself reaches three quarters of it. */
static int32_t arc_height(const struct rondo_wire *wire) { return ARC_BASE + wire->level * ARC_STEP; }

/* Give overlapping arcs different heights, short ones the lowest. */
static rondo_status arcs_measure(struct rondo_place *place)
{
    int32_t(*taken)[3], (*order)[2], n = 0;
    struct rondo_levels *levels;
    size_t rows = (size_t)place->nrows, room = (size_t)place->nwires + 1;
    rondo_status status;
    RONDO_TRY(RONDO_NEW_ARRAY(taken, room * 2 * rows, "a picture's arcs"));
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(order, room, "a picture's arcs"), out_taken);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(levels, 2 * rows, "a picture's arcs"), out_order);
    for (size_t i = 0; i < 2 * rows; i++) levels[i].taken = taken + i * room;
    for (int i = 0; i < place->nwires; i++) {
        if (place->wire[i].shape != RONDO_WIRE_ARC) continue;
        int32_t distance = place->wire[i].line.x[1] - place->wire[i].line.x[0];
        memcpy(order[n++], (int32_t[2]){ distance < 0 ? -distance : distance, i }, sizeof *order);
    }
    qsort(order, (size_t)n, sizeof *order, rondo_place_compare2);
    for (int i = 0; i < n; i++) {
        struct rondo_wire *wire = &place->wire[order[i][1]];
        const struct rondo_topo_link *link = &place->topo->link[wire->link];
        struct rondo_place_row *row = &place->row[place->box[link->from].row];
        int up = route_of(place, wire->link) == ARC_UP;
        if (!up && !holds_rank(type_of(place, link->from))) continue;
        wire->level = rondo_levels_take(&levels[2 * place->box[link->from].row + up],
                                        min32(wire->line.x[0], wire->line.x[1]),
                                        max32(wire->line.x[0], wire->line.x[1]));
        int32_t reach = arc_height(wire) * 3 / 4 + wire->width / 20 + 4;
        if (up) {
            row->above = max32(row->above, reach);
        } else {
            row->below = max32(row->below, reach - place->size->pad + 6);
        }
    }
    rondo_free(levels);
out_order:
    rondo_free(order);
out_taken:
    rondo_free(taken);
    return status;
}

/* Links between devices in different rows run down to a level below the arcs, and through the gutter. */
static rondo_status rows_measure(struct rondo_place *place)
{
    int32_t(*taken)[3];
    struct rondo_levels *levels, gutter = { 0 };
    rondo_status status;
    size_t n = (size_t)place->nwires + 1, rows = (size_t)place->nrows;
    RONDO_TRY(RONDO_NEW_ARRAY(taken, n * (rows + 1), "a picture's lanes"));
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(levels, rows, "a picture's lanes"), out);
    for (size_t r = 0; r < rows; r++) levels[r].taken = taken + r * n;
    gutter.taken = taken + rows * n;
    for (int i = 0; i < place->nwires; i++) {
        struct rondo_wire *wire = &place->wire[i];
        if (wire->link < 0 || route_of(place, wire->link) != ROWS) continue;
        int32_t a = place->box[place->topo->link[wire->link].from].row,
                b = place->box[place->topo->link[wire->link].to].row;
        wire->level = rondo_levels_take(&levels[a], wire->line.x[0], INT32_MAX);
        wire->level_to = rondo_levels_take(&levels[b], wire->line.x[1], INT32_MAX);
        wire->gutter = place->gutter + 12 + LANE_STEP * rondo_levels_take(&gutter, min32(a, b), max32(a, b));
    }
    for (size_t r = 0; r < rows; r++) {
        if (levels[r].count == 0) continue;
        int32_t base = place->row[r].below;
        place->row[r].below += 8 + LANE_STEP * levels[r].count;
        for (int i = 0; i < place->nwires; i++) {
            struct rondo_wire *wire = &place->wire[i];
            if (wire->link < 0 || route_of(place, wire->link) != ROWS) continue;
            if (place->box[place->topo->link[wire->link].from].row == (int32_t)r)
                wire->level = base + 4 + LANE_STEP * wire->level;
            if (place->box[place->topo->link[wire->link].to].row == (int32_t)r)
                wire->level_to = base + 4 + LANE_STEP * wire->level_to;
        }
    }
    if (gutter.count) place->gutter += 12 + LANE_STEP * gutter.count;
    rondo_free(levels);
out:
    rondo_free(taken);
    return status;
}

static struct rondo_wire *wire_add(struct rondo_place *place, int link, int type, int32_t mbs, int npoints)
{
    struct rondo_wire *wire = &place->wire[place->nwires++];
    *wire = (struct rondo_wire){
        .link = link, .type = type, .mbs = mbs, .width = rondo_wire_width(type, mbs), .line.npoints = npoints
    };
    return wire;
}

static int32_t faster(const struct rondo_topo *topo, int link)
{
    int32_t reverse = topo->link[link].reverse;
    return max32(topo->link[link].mbs, reverse >= 0 ? topo->link[reverse].mbs : 0);
}

/* Join the NUMA nodes of several rows by a rail in each row and a spine. */
static void bus_add(struct rondo_place *place)
{
    const struct rondo_topo *topo = place->topo;
    int32_t widest = 0;
    for (int i = 0; i < topo->nnodes; i++) {
        const struct rondo_topo_node *node = &topo->node[i];
        int32_t mbs = 0;
        for (int l = node->first;
             node->type == RONDO_NODE_CPU && place->box[i].w > 0 && l < node->first + node->nlinks; l++) {
            if (topo->link[l].type == RONDO_LINK_SYS) mbs = max32(mbs, topo->link[l].mbs);
        }
        if (mbs > 0) {
            struct rondo_wire *wire = wire_add(place, -1, RONDO_LINK_SYS, mbs, 2);
            wire->line.x[0] = middle(&place->box[i]);
            wire->gutter = place->box[i].row;
        }
        widest = max32(widest, mbs);
    }
    for (int r = 0; r < place->nrows; r++) {
        int32_t last = 0;
        for (int i = 0; i < topo->nnodes; i++) {
            if (type_of(place, i) == RONDO_NODE_CPU && place->box[i].row == r)
                last = max32(last, middle(&place->box[i]));
        }
        if (!last) continue;
        place->row[r].above = max32(place->row[r].above, BUS_TOP);
        struct rondo_wire *rail = wire_add(place, -1, RONDO_LINK_SYS, widest, 2);
        rail->line.x[1] = last;
        rail->gutter = r;
    }
    wire_add(place, -1, RONDO_LINK_SYS, widest, 0);
}

rondo_status rondo_wires_measure(struct rondo_place *place)
{
    const struct rondo_topo *topo = place->topo;
    struct port *ports;
    int nports = 0;
    for (int l = 0; l < topo->nlinks; l++) {
        if (topo->link[l].type == RONDO_LINK_SYS && place->box[topo->link[l].from].w > 0 &&
            place->box[topo->link[l].from].row != place->box[topo->link[l].to].row)
            place->bus = 1;
    }
    RONDO_TRY(
        RONDO_NEW_ARRAY(place->wire, topo->nlinks + topo->nnodes + place->nrows + 1, "a picture's links"));
    RONDO_TRY(RONDO_NEW_ARRAY(ports, 2 * topo->nlinks, "a picture's links"));
    for (int l = 0; l < topo->nlinks; l++) {
        const struct rondo_topo_link *link = &topo->link[l];
        enum route route = route_of(place, l);
        if ((link->reverse >= 0 && link->reverse < l) || route == BUS || place->box[link->from].w == 0 ||
            place->box[link->to].w == 0)
            continue;
        struct rondo_wire *wire = wire_add(place, l, link->type, faster(topo, l), 2);
        if (route != ARC_UP && route != ARC_DOWN && route != ROWS) continue;
        wire->shape = route == ROWS ? RONDO_WIRE_LINE : RONDO_WIRE_ARC;
        for (int end = 0; end < 2; end++) port_add(place, &ports[nports++], place->nwires - 1, end, route);
    }
    ports_place(place, ports, nports);
    rondo_free(ports);
    RONDO_TRY(arcs_measure(place));
    if (place->bus) bus_add(place);
    return rows_measure(place);
}

/* ---- placing: the heights are known ---- */

static void branch_place(const struct rondo_place *place, struct rondo_wire *wire, int parent, int child,
                         int32_t x)
{
    const struct rondo_box *over = box_over(place, parent, child);
    rondo_points_set(&wire->line, 2,
                     (const int32_t[][2]){ { x, over->y + over->h }, { x, place->box[child].y } });
}

/* Join two boxes that stand side by side. */
static void across_place(struct rondo_wire *wire, const struct rondo_box *a, const struct rondo_box *b)
{
    const struct rondo_box *left = a->x < b->x ? a : b, *right = a->x < b->x ? b : a;
    int32_t y = left->y + left->h / 2;
    rondo_points_set(&wire->line, 2, (const int32_t[][2]){ { left->x + left->w, y }, { right->x, y } });
}

static void rows_place(const struct rondo_place *place, struct rondo_wire *wire, const struct rondo_box *a,
                       const struct rondo_box *b)
{
    int32_t gutter = place->right + wire->gutter, ya = place->row[a->row].lane_y + wire->level,
            yb = place->row[b->row].lane_y + wire->level_to;
    int32_t xa = wire->line.x[0], xb = wire->line.x[1];
    rondo_points_set(&wire->line, 6,
                     (const int32_t[][2]){ { xa, a->y + a->h },
                                           { xa, ya },
                                           { gutter, ya },
                                           { gutter, yb },
                                           { xb, yb },
                                           { xb, b->y + b->h } });
}

static void to_bar_place(const struct rondo_place *place, struct rondo_wire *wire, int nvs, int device)
{
    const struct rondo_box *box = &place->box[device];
    const struct rondo_place_bar *bar = bar_in(place, nvs, box->row);
    rondo_points_set(
        &wire->line, 2,
        (const int32_t[][2]){ { core_middle(place, device), box->y + box->h },
                              { core_middle(place, device), bar ? bar->box.y : box->y + box->h } });
}

static void link_place(const struct rondo_place *place, struct rondo_wire *wire)
{
    const struct rondo_topo_link *link = &place->topo->link[wire->link];
    const struct rondo_box *a = &place->box[link->from], *b = &place->box[link->to];
    int parent = place->parent[link->to] == link->from ? link->from : link->to,
        child = parent == link->from ? link->to : link->from;
    switch (route_of(place, wire->link)) {
    case BRANCH:
        branch_place(place, wire, parent, child,
                     holds_rank(type_of(place, child)) ? core_middle(place, child)
                                                       : middle(&place->box[child]));
        break;
    case BESIDE: {
        int cpu = type_of(place, link->from) == RONDO_NODE_CPU ? link->from : link->to,
            gpu = cpu == link->from ? link->to : link->from;
        int32_t beside = rondo_place_beside(place, gpu);
        branch_place(place, wire, cpu, gpu,
                     place->box[gpu].x + (beside ? beside / 2 + 2 : place->box[gpu].w / 4));
        break;
    }
    case ASIDE:
    case ACROSS: across_place(wire, a, b); break;
    case TO_BAR:
        to_bar_place(place, wire, type_of(place, link->from) == RONDO_NODE_NVS ? link->from : link->to,
                     type_of(place, link->from) == RONDO_NODE_NVS ? link->to : link->from);
        break;
    case ARC_UP:
        wire->line.y[0] = wire->line.y[1] = a->y;
        wire->line.y[2] = a->y - arc_height(wire);
        break;
    case ARC_DOWN:
        wire->line.y[0] = a->y + a->h;
        wire->line.y[1] = b->y + b->h;
        wire->line.y[2] = max32(wire->line.y[0], wire->line.y[1]) + arc_height(wire);
        break;
    case ROWS: rows_place(place, wire, a, b); break;
    default:
        rondo_points_set(
            &wire->line, 2,
            (const int32_t[][2]){ { middle(a), a->y + a->h / 2 }, { middle(b), b->y + b->h / 2 } });
    }
}

static void bus_place(const struct rondo_place *place, struct rondo_wire *wire, int32_t *top, int32_t *bottom)
{
    int32_t spine = place->left - 54;
    if (wire->line.npoints == 0) {
        rondo_points_set(&wire->line, 2, (const int32_t[][2]){ { spine, *top }, { spine, *bottom } });
        return;
    }
    const struct rondo_place_row *row = &place->row[wire->gutter];
    int32_t y = row->head_y - place->size->pad - BUS_TOP + 12;
    if (wire->line.x[0]) {
        rondo_points_set(&wire->line, 2,
                         (const int32_t[][2]){ { wire->line.x[0], y }, { wire->line.x[0], row->head_y } });
    } else {
        rondo_points_set(&wire->line, 2, (const int32_t[][2]){ { spine, y }, { wire->line.x[1], y } });
    }
    *top = min32(*top, y);
    *bottom = max32(*bottom, y);
}

void rondo_wires_place(struct rondo_place *place)
{
    int32_t top = INT32_MAX, bottom = 0;
    for (int i = 0; i < place->nwires; i++) {
        if (place->wire[i].link >= 0) {
            link_place(place, &place->wire[i]);
        } else {
            bus_place(place, &place->wire[i], &top, &bottom);
        }
    }
}
