/* The table of schedules, made from coll.def, names, and seats. */
#include "coll/algo.h"

#include <ctype.h>
#include <strings.h>

#include "coll/flows.h"

/* Schedules are inline; the table needs functions to point to. */
#define FLOW_FUNCTIONS(COLL, ALGO, i, flow)                                                         \
    static uint32_t nsteps##i##_##COLL##_##ALGO(const struct rondo_seat *seat)                      \
    {                                                                                               \
        return rondo_##flow##_nsteps(seat);                                                         \
    }                                                                                               \
    static struct rondo_step step##i##_##COLL##_##ALGO(const struct rondo_seat *seat, uint32_t k) { \
        return rondo_##flow##_step(seat, k);                                                        \
    }
#define ROW_FUNCTIONS(ctx, COLL, ALGO, protos, MAP, flow0, flow1, cost) \
    FLOW_FUNCTIONS(COLL, ALGO, 0, flow0)                                \
    FLOW_FUNCTIONS(COLL, ALGO, 1, flow1)
RONDO_SCHEDULE_TABLE(ROW_FUNCTIONS, )

#define FLOW(COLL, ALGO, i)                                    \
    {                                                          \
        nsteps##i##_##COLL##_##ALGO, step##i##_##COLL##_##ALGO \
    }
#define SCHEDULE_ROW(ctx, COLL, ALGO, protos, MAP, flow0, flow1, cost) \
    { RONDO_COLL_##COLL, RONDO_ALGO_##ALGO, protos,                    \
      RONDO_MAP_##MAP,   #COLL " " #ALGO,   { FLOW(COLL, ALGO, 0), FLOW(COLL, ALGO, 1) } },
const struct rondo_schedule rondo_schedules[] = { RONDO_SCHEDULE_TABLE(SCHEDULE_ROW, ) };
const int rondo_num_schedules = (int)RONDO_COUNTOF(rondo_schedules);

struct coll_row {
    const char *name;
    uint8_t scheduled_as, reduces, has_root;
};
#define COLL_ROW(ctx, name, NAME, AS, reduces, has_root) { #name, RONDO_COLL_##AS, reduces, has_root },
static const struct coll_row colls[] = { RONDO_COLL_TABLE(COLL_ROW, ) };

#define NAME_ROW(ctx, name, ...) #name,
static const char *const algo_names[] = { RONDO_ALGO_TABLE(NAME_ROW, ) };

#define ORDER_ROW(ctx, name, NAME, medium, seating, rank_order, ...) rank_order,
static const uint8_t algo_rank_order[] = { RONDO_ALGO_TABLE(ORDER_ROW, ) };

#define STAYS_ROW(ctx, name, NAME, medium, seating, rank_order, stays) stays,
static const uint8_t algo_stays[] = { RONDO_ALGO_TABLE(STAYS_ROW, ) };

const struct rondo_schedule *rondo_schedule_find(enum rondo_coll coll, enum rondo_algo algo)
{
    if ((unsigned)coll >= RONDO_NUM_COLLS) {
        return NULL;
    }
    for (int i = 0; i < rondo_num_schedules; i++) {
        if (rondo_schedules[i].coll == colls[coll].scheduled_as && rondo_schedules[i].algo == algo) {
            return &rondo_schedules[i];
        }
    }
    return NULL;
}

const struct rondo_schedule *rondo_schedule_first(enum rondo_coll coll, enum rondo_medium medium)
{
    for (int i = 0; i < rondo_num_schedules; i++) {
        if (rondo_schedules[i].coll == rondo_coll_scheduled_as(coll) &&
            rondo_algo_medium(rondo_schedules[i].algo) == medium) {
            return &rondo_schedules[i];
        }
    }
    return NULL;
}

const char *rondo_coll_name(enum rondo_coll coll)
{
    return (unsigned)coll < RONDO_NUM_COLLS ? colls[coll].name : NULL;
}
int rondo_algo_in_rank_order(enum rondo_algo algo) { return algo_rank_order[algo]; }
int rondo_algo_sent_stays(enum rondo_algo algo) { return algo_stays[algo]; }
const char *rondo_algo_name(enum rondo_algo algo)
{
    return (unsigned)algo < RONDO_NUM_ALGOS ? algo_names[algo] : NULL;
}
int rondo_coll_reduces(enum rondo_coll coll) { return colls[coll].reduces; }
int rondo_coll_has_root(enum rondo_coll coll) { return colls[coll].has_root; }
enum rondo_coll rondo_coll_scheduled_as(enum rondo_coll coll)
{
    return (enum rondo_coll)colls[coll].scheduled_as;
}

/* Equal, ignoring case and underscores. */
static int same_coll_name(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a == '_') {
            a++;
        }
        while (*b == '_') {
            b++;
        }
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) {
            return 0;
        }
        if (*a == '\0') {
            return 1;
        }
    }
}

int rondo_coll_from_name(const char *name)
{
    for (int i = 0; name != NULL && i < RONDO_NUM_COLLS; i++) {
        if (same_coll_name(colls[i].name, name)) {
            return i;
        }
    }
    return -1;
}

int rondo_algo_from_name(const char *name)
{
    for (int i = 0; name != NULL && i < RONDO_NUM_ALGOS; i++) {
        if (strcasecmp(algo_names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

int rondo_doubling_dims(const struct rondo_layout *layout)
{
    int dims = layout->nnodes > 1 ? (int)rondo_doubling_ports(layout->nranks) : 0;
    return dims <= RONDO_MAX_DIMS ? dims : 0;
}

/* Over several nodes the layout has the tree, and positions are ranks. */
static void seat_over_nodes(const struct rondo_layout *layout, int channel, int root, struct rondo_seat *seat)
{
    const struct rondo_tree *tree = &layout->channel[channel].tree;
    seat->index = layout->rank;
    seat->parent = tree->parent;
    seat->nchildren = tree->nchildren;
    for (int i = 0; i < RONDO_TREE_FAN; i++) {
        seat->child[i] = tree->child[i];
    }
    if (root < 0) {
        seat->toward = seat->parent < 0 ? -1 : 0;
    } else {
        seat->root = root;
        seat->toward = layout->toward(layout->stitch, layout->rank, channel, root);
    }
}

static void seat_in_tree(const struct rondo_layout *layout, int channel, int root, struct rondo_seat *seat)
{
    const struct rondo_ring *order = &layout->channel[0].ring;
    int which = channel & 1, child[2];
    if (layout->stitch != NULL) {
        seat_over_nodes(layout, channel, root, seat);
        return;
    }
    seat->index = order->index;
    rondo_tree_place(layout, which, seat->index, &seat->parent, child, &seat->nchildren);
    seat->child[0] = child[0];
    seat->child[1] = child[1];
    if (root < 0) {
        seat->toward = seat->parent < 0 ? -1 : 0;
    } else {
        seat->root = order->index_of[root];
        seat->toward = layout->grouped[which].link != NULL
                           ? rondo_group_tree_toward(&layout->grouped[which], seat->index, seat->root)
                           : rondo_double_tree_toward(layout->nranks, which, seat->index, seat->root);
    }
}

void rondo_seat_of(const struct rondo_layout *layout, int channel, enum rondo_algo algo, enum rondo_coll coll,
                   int root, struct rondo_seat *seat)
{
    const struct rondo_ring *ring = &layout->channel[channel].ring;
    root = rondo_coll_has_root(coll) ? root : -1;
    seat->nranks = layout->nranks;
    seat->root = 0;
    seat->parent = seat->toward = -1;
    seat->nchildren = 0;
    seat->nlevels = 0;
    for (int i = 0; i < RONDO_TREE_FAN; i++) {
        seat->child[i] = -1;
    }
    switch (rondo_algo_seating(algo)) {
    case RONDO_SEATING_RING:
        seat->index = ring->index;
        seat->root = root < 0 ? 0 : ring->index_of[root];
        break;
    case RONDO_SEATING_TREE: seat_in_tree(layout, channel, root, seat); break;
    case RONDO_SEATING_GROUPS:
        seat->nlevels = layout->nest != NULL ? layout->nest->nlevels : 0; /* fall through */
    case RONDO_SEATING_DIMS:
    case RONDO_SEATING_PEER:
    case RONDO_SEATING_RANKS:
        seat->index = layout->rank;
        seat->root = root < 0 ? 0 : root;
        break;
    }
}
