/* Where the boxes stand: the tree of the machine in panels, rows and columns. */
#include "tools/draw/place.h"

#include <string.h>
#include "base/mem.h"

static const struct rondo_place_size normal = { .gpu_w = 76,
                                                .host_w = 76,
                                                .net_w = 60,
                                                .bridge_w = 44,
                                                .head_w = 150,
                                                .fold_w = 160,
                                                .head_h = 30,
                                                .bridge_h = 20,
                                                .leaf_h = 64,
                                                .nic_h = 19,
                                                .bar_h = 26,
                                                .rail_h = 10,
                                                .gap = 8,
                                                .drop = 24,
                                                .pad = 10,
                                                .panel_gap = 20,
                                                .radius = 9,
                                                .step = 6 };
static const struct rondo_place_size small = { .gpu_w = 46,
                                               .host_w = 58,
                                               .net_w = 46,
                                               .bridge_w = 30,
                                               .head_w = 88,
                                               .fold_w = 126,
                                               .head_h = 22,
                                               .bridge_h = 15,
                                               .leaf_h = 52,
                                               .nic_h = 15,
                                               .bar_h = 24,
                                               .rail_h = 10,
                                               .gap = 4,
                                               .drop = 16,
                                               .pad = 6,
                                               .panel_gap = 8,
                                               .radius = 8,
                                               .step = 5 };

enum { LABELS = 118, SPINE = 16, TITLE = 84, LEGEND = 24, ROW_GAP = 28, HOST_TOP = 18, BESIDE = 14 };

/* ---- helpers ---- */

int rondo_place_compare2(const void *a, const void *b)
{
    const int32_t *p = a, *q = b;
    if (p[0] != q[0]) return p[0] < q[0] ? -1 : 1;
    return (p[1] > q[1]) - (p[1] < q[1]);
}

int rondo_place_compare3(const void *a, const void *b)
{
    const int32_t *p = a, *q = b;
    for (int i = 0; i < 3; i++) {
        if (p[i] != q[i]) return p[i] < q[i] ? -1 : 1;
    }
    return 0;
}

void rondo_points_set(struct rondo_points *line, int n, const int32_t xy[][2])
{
    line->npoints = n;
    for (int i = 0; i < n; i++) {
        line->x[i] = xy[i][0];
        line->y[i] = xy[i][1];
    }
}

int32_t rondo_levels_take(struct rondo_levels *levels, int32_t from, int32_t to)
{
    uint32_t busy = 0;
    for (int i = 0; i < levels->n; i++) {
        const int32_t *taken = levels->taken[i];
        if (taken[0] <= to && from <= taken[1]) busy |= 1u << taken[2];
    }
    int32_t level = busy == UINT32_MAX ? RONDO_PLACE_LEVELS - 1 : __builtin_ctz(~busy);
    memcpy(levels->taken[levels->n++], (int32_t[3]){ from, to, level }, sizeof *levels->taken);
    levels->count = max32(levels->count, level + 1);
    return level;
}

/* ---- the tree ---- */

static int is_branch(int link_type, int c2c)
{
    return link_type == RONDO_LINK_PCI || link_type == RONDO_LINK_LOC || link_type == RONDO_LINK_NET ||
           (c2c && link_type == RONDO_LINK_C2C);
}

/* Walk breadth-first from the nodes in the queue. @return its new length. */
static int32_t tree_grow(struct rondo_place *place, int32_t *queue, int32_t n, int c2c)
{
    const struct rondo_topo *topo = place->topo;
    for (int32_t at = 0; at < n; at++) {
        const struct rondo_topo_node *node = &topo->node[queue[at]];
        for (int l = node->first; l < node->first + node->nlinks; l++) {
            int32_t to = topo->link[l].to;
            if (place->parent[to] == -2 && is_branch(topo->link[l].type, c2c)) {
                place->parent[to] = queue[at];
                queue[n++] = to;
            }
        }
    }
    return n;
}

/* Group the children by parent, in the machine's order. Nodes without a parent form group nnodes. */
static void tree_group(struct rondo_place *place, int32_t (*key)[3])
{
    const struct rondo_topo *topo = place->topo;
    int32_t n = 0;
    for (int i = 0; i < topo->nnodes; i++) {
        int type = type_of(place, i);
        if (type == RONDO_NODE_CPU || type == RONDO_NODE_NVS) continue;
        int32_t parent = place->parent[i] < 0 ? topo->nnodes : place->parent[i];
        memcpy(key[n++], (int32_t[3]){ parent, topo->node[i].item, i }, sizeof *key);
        place->nchildren[parent]++;
    }
    qsort(key, (size_t)n, sizeof *key, rondo_place_compare3);
    for (int32_t i = 0; i < n; i++) {
        place->child[i] = key[i][2];
        if (i == 0 || key[i][0] != key[i - 1][0]) place->first_child[key[i][0]] = i;
    }
}

static rondo_status tree_make(struct rondo_place *place)
{
    int32_t n = place->topo->nnodes, queued = 0;
    int32_t(*key)[3];
    RONDO_TRY(RONDO_NEW_ARRAY(key, n, "a picture's tree"));
    int32_t *queue = &key[0][0];
    for (int i = 0; i < n; i++) {
        place->parent[i] = -2;
        place->panel_of[i] = -1;
        if (type_of(place, i) == RONDO_NODE_CPU) {
            place->parent[i] = -1;
            queue[queued++] = i;
        }
    }
    queued = tree_grow(place, queue, queued, 0);
    tree_grow(place, queue, queued, 1);
    for (int i = 0; i < n; i++) {
        place->parent[i] = max32(place->parent[i], -1);
    }
    tree_group(place, key);
    rondo_free(key);
    return RONDO_SUCCESS;
}

/* ---- columns ---- */

int32_t rondo_place_beside(const struct rondo_place *place, int node)
{
    const struct rondo_topo *topo = place->topo;
    const struct rondo_topo_node *gpu = &topo->node[node];
    int c2c = 0, other = 0;
    for (int l = gpu->first; gpu->type == RONDO_NODE_GPU && l < gpu->first + gpu->nlinks; l++) {
        c2c |= topo->link[l].type == RONDO_LINK_C2C;
        other |= topo->link[l].type != RONDO_LINK_C2C && topo->link[l].to == place->parent[node];
    }
    return c2c && other ? BESIDE : 0;
}

static int is_device(int type)
{
    return type == RONDO_NODE_GPU || type == RONDO_NODE_HOST || type == RONDO_NODE_NET;
}

static int32_t own_width(const struct rondo_place *place, int node)
{
    switch (type_of(place, node)) {
    case RONDO_NODE_GPU: return place->size->gpu_w + rondo_place_beside(place, node);
    case RONDO_NODE_HOST: return place->size->host_w;
    case RONDO_NODE_PCI: return place->size->bridge_w;
    default: return place->size->net_w;
    }
}

/* The children of a device stand beside it (a second rank on a GPU), those of a bridge below it. */
static int32_t tree_width(const struct rondo_place *place, int node)
{
    const int32_t *child = place->child + place->first_child[node];
    int32_t width = 0, own = own_width(place, node);
    for (int i = 0; i < place->nchildren[node]; i++) {
        width += tree_width(place, child[i]) + (i ? place->size->gap : 0);
    }
    if (is_device(type_of(place, node))) return own + (width ? place->size->gap + width : 0);
    return max32(own, width);
}

static void tree_columns(struct rondo_place *place, int panel, int node, int32_t x, int32_t level)
{
    const int32_t *child = place->child + place->first_child[node];
    struct rondo_box *box = &place->box[node];
    int n = place->nchildren[node], type = type_of(place, node);
    int32_t own = own_width(place, node), whole = tree_width(place, node), at = x;
    place->panel_of[node] = panel;
    *box = (struct rondo_box){ .x = x, .w = own, .y = level };
    if (type == RONDO_NODE_PCI) place->panel[panel].levels = max32(place->panel[panel].levels, ++level);
    if (is_device(type)) at += own + place->size->gap;
    for (int i = 0; i < n; i++) {
        tree_columns(place, panel, child[i], at, level);
        at += tree_width(place, child[i]) + place->size->gap;
    }
    if (!is_device(type) && n > 0) {
        int32_t left = rondo_place_beside(place, child[0]);
        box->w = max32(own, whole - left);
        box->x = x + left - max32(0, own + left - whole);
    }
}

/* ---- panels ---- */

static int32_t host_find(const int32_t *host, int32_t cpu)
{
    while (host[cpu] != cpu) cpu = host[cpu];
    return cpu;
}

/* NUMA nodes with links between them form a host. host[node]: its number, for a NUMA node. @return the number
 * of hosts. */
static int hosts_make(const struct rondo_topo *topo, int32_t *host)
{
    int n = 0;
    for (int i = 0; i < topo->nnodes; i++) host[i] = i;
    for (int l = 0; l < topo->nlinks; l++) {
        if (topo->link[l].type != RONDO_LINK_SYS) continue;
        int32_t a = host_find(host, topo->link[l].from), b = host_find(host, topo->link[l].to);
        host[max32(a, b)] = min32(a, b);
    }
    for (int i = 0; i < topo->nnodes; i++) host[i] = host_find(host, i);
    for (int i = 0; i < topo->nnodes; i++) {
        /* The lowest node comes first and has got its number when the others look for it. */
        if (topo->node[i].type == RONDO_NODE_CPU) host[i] = host[i] == i ? -1 - n++ : host[host[i]];
    }
    for (int i = 0; i < topo->nnodes; i++) host[i] = -1 - host[i];
    return n;
}

/* Break the children into panels of at most `limit` pixels. count: only count them. */
static void panels_of(struct rondo_place *place, int group, int cpu, int32_t host, int32_t limit, int count)
{
    const int32_t *child = place->child + place->first_child[group];
    int n = place->nchildren[group], start = place->npanels;
    for (int i = 0; i < n || i == 0;) {
        int32_t width = 0, first = i;
        for (; i < n; i++) {
            int32_t more = tree_width(place, child[i]) + (width ? place->size->gap : 0);
            if (width && width + more > limit) break;
            width += more;
        }
        if (!count) {
            place->panel[place->npanels] = (struct rondo_place_panel){ .cpu = cpu,
                                                                       .part = place->npanels - start,
                                                                       .host = host,
                                                                       .fold = -1,
                                                                       .first = place->first_child[group] +
                                                                                first,
                                                                       .nchildren = i - first };
            place->panel[place->npanels].frame.w = max32(width, place->size->head_w) + 2 * place->size->pad;
        }
        place->npanels++;
        if (n == 0) break;
    }
    for (int p = start; !count && p < place->npanels; p++) place->panel[p].nparts = place->npanels - start;
}

/* One panel for the hosts of a fold. */
static void panel_of_fold(struct rondo_place *place, int fold, int count)
{
    if (!count) {
        place->panel[place->npanels] = (struct rondo_place_panel){
            .cpu = -1, .nparts = 1, .host = place->fold[fold].first, .fold = fold
        };
        place->panel[place->npanels].frame.w = place->size->fold_w + 2 * place->size->pad;
    }
    place->npanels++;
}

static void panels_walk(struct rondo_place *place, const int32_t *host, int32_t limit, int count)
{
    const struct rondo_topo *topo = place->topo;
    int32_t nhosts = place->nhosts;
    place->npanels = 0;
    for (int h = 0; h < nhosts; h++) {
        int fold = rondo_fold_of_host(place, h);
        if (fold >= 0 && place->fold[fold].first == h) panel_of_fold(place, fold, count);
        for (int i = 0; i < topo->nnodes && fold < 0; i++) {
            if (type_of(place, i) == RONDO_NODE_CPU && host[i] == h) panels_of(place, i, i, h, limit, count);
        }
    }
    if (place->nchildren[topo->nnodes] > 0) panels_of(place, topo->nnodes, -1, nhosts, limit, count);
}

static rondo_status panels_make(struct rondo_place *place, const int32_t *host)
{
    int32_t limit = place->limit - 2 * place->size->pad;
    panels_walk(place, host, limit, 1);
    rondo_free(place->panel);
    RONDO_TRY(RONDO_NEW_ARRAY(place->panel, place->npanels, "a picture's panels"));
    panels_walk(place, host, limit, 0);
    return RONDO_SUCCESS;
}

/* ---- rows ---- */

static int32_t gap_before(const struct rondo_place *place, int panel)
{
    return place->size->panel_gap +
           (place->panel[panel].host != place->panel[panel - 1].host ? place->size->panel_gap + 4 : 0);
}

/* Count the panels from `first` on that stay together: those of a host, if they fit in a row. @return their
 * width. */
static int32_t unit_width(const struct rondo_place *place, int first, int *n)
{
    int32_t width = place->panel[first].frame.w;
    *n = 1;
    int32_t whole = width;
    for (int p = first + 1; p < place->npanels && place->panel[p].host == place->panel[first].host; p++) {
        whole += place->size->panel_gap + place->panel[p].frame.w;
        if (whole > place->limit) {
            *n = 1;
            return width;
        }
        *n = p - first + 1;
    }
    return whole;
}

/* Break the panels into rows of at most `limit` pixels. count: only count them. @return the number of
 * rows. */
static int rows_fill(struct rondo_place *place, int32_t limit, int count)
{
    int rows = 0, n;
    int32_t used = 0;
    for (int p = 0; p < place->npanels; p += n) {
        int32_t width = unit_width(place, p, &n);
        int32_t more = used ? gap_before(place, p) + width : width;
        if (used == 0 || used + more > limit) {
            rows++;
            used = width;
            if (!count) place->row[rows - 1] = (struct rondo_place_row){ .first = p };
        } else {
            used += more;
        }
        if (!count) place->row[rows - 1].npanels += n;
    }
    return rows;
}

/* Find the least width that needs no more rows, so that rows are about equally long. */
static rondo_status rows_make(struct rondo_place *place)
{
    int32_t low = 1, high = place->limit;
    place->nrows = rows_fill(place, high, 1);
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (rows_fill(place, middle, 1) <= place->nrows) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    RONDO_TRY(RONDO_NEW_ARRAY(place->row, place->nrows, "a picture's rows"));
    rows_fill(place, high, 0);
    return RONDO_SUCCESS;
}

static void panel_columns(struct rondo_place *place, int p, int32_t x, int32_t row)
{
    struct rondo_place_panel *panel = &place->panel[p];
    int32_t inside = panel->frame.w - 2 * place->size->pad, used = -place->size->gap;
    for (int i = 0; i < panel->nchildren; i++)
        used += tree_width(place, place->child[panel->first + i]) + place->size->gap;
    int32_t at = x + place->size->pad + max32(0, (inside - used) / 2);
    panel->frame.x = x;
    panel->head = (struct rondo_box){ .x = x + place->size->pad, .w = inside, .row = row };
    panel->frame.row = row;
    for (int i = 0; i < panel->nchildren; i++) {
        int node = place->child[panel->first + i];
        tree_columns(place, p, node, at, 0);
        at += tree_width(place, node) + place->size->gap;
    }
    if (panel->fold >= 0) {
        int node = place->topo->point[place->fold[panel->fold].point];
        place->box[node] = (struct rondo_box){ .x = panel->head.x + inside / 4, .w = inside / 2 };
        place->panel_of[node] = p;
    }
    if (panel->cpu >= 0 && panel->part == 0) {
        place->box[panel->cpu] = panel->head;
        place->panel_of[panel->cpu] = p;
    }
    place->row[row].levels = max32(place->row[row].levels, panel->levels);
}

static void rows_columns(struct rondo_place *place)
{
    for (int r = 0; r < place->nrows; r++) {
        const struct rondo_place_row *row = &place->row[r];
        int32_t x = place->left;
        for (int p = row->first; p < row->first + row->npanels; p++) {
            x += p > row->first ? gap_before(place, p) : 0;
            panel_columns(place, p, x, r);
            x += place->panel[p].frame.w;
        }
        place->right = max32(place->right, x);
    }
    for (int i = 0; i < place->topo->nnodes; i++) {
        if (place->panel_of[i] >= 0) place->box[i].row = place->panel[place->panel_of[i]].frame.row;
    }
}

/* ---- NVSwitches ---- */

/* Find the columns of the GPUs in one row that hang on an NVSwitch node. */
static int bar_span(const struct rondo_place *place, int node, int row, int32_t *from, int32_t *to)
{
    const struct rondo_topo *topo = place->topo;
    const struct rondo_topo_node *nvs = &topo->node[node];
    *from = INT32_MAX, *to = 0;
    for (int l = nvs->first; l < nvs->first + nvs->nlinks; l++) {
        const struct rondo_box *box = &place->box[topo->link[l].to];
        if (box->w == 0 || box->row != row) continue;
        *from = min32(*from, box->x);
        *to = max32(*to, box->x + box->w);
    }
    return *to > 0;
}

static void bars_of(struct rondo_place *place, int node, int nth, struct rondo_levels *levels)
{
    int32_t from, to, first = place->nbars, spine = place->left - SPINE * (1 + nth % 2);
    for (int r = 0; r < place->nrows; r++) {
        if (!bar_span(place, node, r, &from, &to)) continue;
        if (place->nrows > 1) from = spine;
        int32_t level = rondo_levels_take(&levels[r], from, to);
        place->bar[place->nbars++] = (struct rondo_place_bar){
            node, level, { .x = from, .w = to - from, .h = place->size->rail_h, .row = r }
        };
    }
    if (place->nbars == first) return;
    struct rondo_place_bar *main = &place->bar[first + (place->nbars - first - 1) / 2];
    main->box.h = place->size->bar_h;
    place->box[node] = main->box;
    if (place->nbars > first + 1)
        place->bar[place->nbars++] = (struct rondo_place_bar){ node, 0, { .x = spine, .w = 8, .row = -1 } };
}

static rondo_status bars_make(struct rondo_place *place)
{
    const struct rondo_topo *topo = place->topo;
    int32_t nnvs = 0;
    int32_t(*taken)[3];
    struct rondo_levels *levels;
    for (int i = 0; i < topo->nnodes; i++) nnvs += type_of(place, i) == RONDO_NODE_NVS;
    if (nnvs == 0) return RONDO_SUCCESS;
    RONDO_TRY(RONDO_NEW_ARRAY(place->bar, nnvs * (place->nrows + 1), "a picture's bars"));
    RONDO_TRY(RONDO_NEW_ARRAY(taken, nnvs * place->nrows, "a picture's bars"));
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(levels, place->nrows, "a picture's bars"), out);
    for (int r = 0; r < place->nrows; r++) levels[r].taken = taken + (size_t)r * (size_t)nnvs;
    for (int i = 0, nth = 0; i < topo->nnodes; i++) {
        if (type_of(place, i) == RONDO_NODE_NVS) bars_of(place, i, nth++, levels);
    }
    for (int i = 0; i < place->nbars; i++) {
        const struct rondo_place_bar *bar = &place->bar[i];
        if (bar->box.row >= 0)
            place->row[bar->box.row].bars = max32(place->row[bar->box.row].bars,
                                                  (bar->level + 1) * (bar->box.h + 6) + 10);
    }
    rondo_free(levels);
out:
    rondo_free(taken);
    return status;
}

/* ---- the picture ---- */

static int32_t one_row(const struct rondo_place *place)
{
    int32_t width = 0;
    for (int p = 0; p < place->npanels; p++)
        width += place->panel[p].frame.w + (p ? gap_before(place, p) : 0);
    return width;
}

rondo_status rondo_place_columns(struct rondo_place *place, int all)
{
    int32_t *host;
    rondo_status status;
    RONDO_TRY(tree_make(place));
    RONDO_TRY(RONDO_NEW_ARRAY(host, place->topo->nnodes, "a picture's hosts"));
    place->nhosts = hosts_make(place->topo, host);
    RONDO_TRY_GOTO(rondo_folds_make(place, host, place->nhosts, all), out);
    place->size = &normal;
    RONDO_TRY_GOTO(panels_make(place, host), out);
    if (one_row(place) > RONDO_PLACE_WIDTH) {
        place->size = &small;
        place->compact = 1;
        RONDO_TRY_GOTO(panels_make(place, host), out);
    }
    place->nhosts += place->nchildren[place->topo->nnodes] > 0; /* a frame for what has no NUMA node */
out:
    rondo_free(host);
    RONDO_TRY(status);
    RONDO_TRY(rows_make(place));
    place->left = LABELS + (place->nrows > 1 ? 4 * SPINE : 0);
    rows_columns(place);
    return bars_make(place);
}

static void box_heights(const struct rondo_place *place, int node)
{
    const struct rondo_place_size *size = place->size;
    struct rondo_box *box = &place->box[node];
    if (box->w == 0 || type_of(place, node) == RONDO_NODE_NVS) return;
    const struct rondo_place_row *row = &place->row[box->row];
    int32_t level = box->y;
    switch (type_of(place, node)) {
    case RONDO_NODE_CPU:
        box->y = row->head_y;
        box->h = size->head_h;
        break;
    case RONDO_NODE_PCI:
        box->y = row->head_y + size->head_h + size->drop + level * (size->bridge_h + size->drop);
        box->h = size->bridge_h;
        break;
    case RONDO_NODE_NIC:
        box->y = row->leaf_y;
        box->h = size->nic_h;
        break;
    case RONDO_NODE_NET:
        box->h = place->parent[node] >= 0 && type_of(place, place->parent[node]) == RONDO_NODE_NIC
                     ? size->leaf_h - size->nic_h - size->drop / 2
                     : size->leaf_h;
        box->y = row->leaf_y + size->leaf_h - box->h;
        break;
    default: box->y = row->leaf_y; box->h = size->leaf_h;
    }
}

static void bar_heights(struct rondo_place *place)
{
    int32_t top = 0;
    for (int i = 0; i < place->nbars; i++) {
        struct rondo_place_bar *bar = &place->bar[i];
        if (i == 0 || bar->node != bar[-1].node) top = -1;
        if (bar->box.row < 0) {
            bar->box.y = top;
            bar->box.h = bar[-1].box.y + bar[-1].box.h - top;
            continue;
        }
        bar->box.y = place->row[bar->box.row].bar_y + bar->level * (bar->box.h + 6);
        top = top < 0 ? bar->box.y : top;
        if (bar->box.h == place->size->bar_h) place->box[bar->node] = bar->box;
    }
}

static void row_heights(struct rondo_place *place, struct rondo_place_row *row, int32_t y)
{
    const struct rondo_place_size *size = place->size;
    row->head_y = y + (place->nhosts > 1 ? HOST_TOP : 0) + row->above + size->pad;
    row->leaf_y = row->head_y + size->head_h + size->drop + row->levels * (size->bridge_h + size->drop);
    row->lane_y = row->leaf_y + size->leaf_h + size->pad;
    row->bar_y = row->lane_y + row->below + (row->bars ? 14 : 0);
    row->strip_y = row->bar_y + row->bars;
    for (int p = row->first; p < row->first + row->npanels; p++) {
        struct rondo_place_panel *panel = &place->panel[p];
        panel->frame.y = row->head_y - size->pad;
        panel->frame.h = row->lane_y - panel->frame.y;
        panel->head.y = row->head_y;
        panel->head.h = size->head_h;
    }
}

/* @return where the next strip may begin. */
static int32_t strip_height(struct rondo_place *place, int strip, int32_t y)
{
    if (place->strip[strip].height == 0) return y;
    place->strip[strip].y = y + RONDO_PLACE_STRIP_TOP;
    return place->strip[strip].y + place->strip[strip].height;
}

void rondo_place_heights(struct rondo_place *place)
{
    int32_t y = TITLE + (place->limit == RONDO_PLACE_NARROW ? RONDO_PLACE_TITLE_MORE : 0);
    for (int r = 0; r < place->nrows; r++) {
        row_heights(place, &place->row[r], y);
        y = ROW_GAP + (place->nstrips && !place->apart ? strip_height(place, r, place->row[r].strip_y)
                                                       : place->row[r].strip_y);
    }
    for (int s = 0; s < place->nstrips && place->apart; s++) y = strip_height(place, s, y) + ROW_GAP / 2;
    for (int i = 0; i < place->topo->nnodes; i++) box_heights(place, i);
    bar_heights(place);
    place->legend_y = y - ROW_GAP + LEGEND;
    place->height = place->legend_y;
    place->width = max32(place->right + place->gutter + 16, 720);
}

rondo_status rondo_place_create(struct rondo_place **out, const struct rondo_topo *topo,
                                const struct rondo_graph *graph, int32_t limit, int all)
{
    struct rondo_place *place;
    size_t nodes = (size_t)topo->nnodes;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(place, "a picture"));
    place->topo = topo;
    place->limit = limit;
    place->graph = graph && graph->nchannels > 0 ? graph : NULL;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(place->parent, nodes, "a picture's tree"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(place->child, nodes, "a picture's tree"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(place->first_child, nodes + 1, "a picture's tree"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(place->nchildren, nodes + 1, "a picture's tree"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(place->panel_of, nodes, "a picture's tree"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(place->box, nodes, "a picture's boxes"), fail);
    RONDO_TRY_GOTO(rondo_place_columns(place, all), fail);
    RONDO_TRY_GOTO(rondo_wires_measure(place), fail);
    RONDO_TRY_GOTO(rondo_tracks_measure(place), fail);
    rondo_place_heights(place);
    rondo_wires_place(place);
    rondo_tracks_place(place);
    *out = place;
    return RONDO_SUCCESS;
fail:
    rondo_place_destroy(place);
    return status;
}

void rondo_place_destroy(struct rondo_place *place)
{
    if (!place) return;
    for (int t = 0; t < place->ntracks; t++) rondo_free(place->track[t].above);
    void *all[] = { place->parent,   place->child,  place->first_child, place->nchildren,
                    place->panel_of, place->box,    place->panel,       place->row,
                    place->bar,      place->wire,   place->track,       place->stop,
                    place->strip,    place->column, place->hop,         place->shown,
                    place->fold,     place };
    for (size_t i = 0; i < RONDO_COUNTOF(all); i++) rondo_free(all[i]);
}
