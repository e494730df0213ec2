/* Where the channels lie: tracks in the strips below the machine. */
#include <string.h>
#include "base/mem.h"
#include "tools/draw/place.h"
#include "topo/search_step.h"

/* FIRST: pixels from the edge of a stop to the first level, room for an arrow. */
enum { PORT = 4, TRACK_GAP = 12, FIRST = 12, MOST_TRACKS = 2, ARROW_ROOM = 10 };
/* A stub reaches STUB pixels from the edge of its stop, and its name is below it or above it. Together they
 * take STUB_LEVELS levels, from STUB_LEFT pixels on the left of the stop's middle to STUB_RIGHT on its
 * right. */
enum { STUB = 14, STUB_LEVELS = 4, STUB_LEFT = 20, STUB_RIGHT = 6 };

/* Scratch memory for measuring a track. */
struct work {
    struct rondo_leg *leg;
    int32_t *stop_of; /* per point; -1: the track does not stop there */
    int32_t (*order)[2];
    struct rondo_levels *above, *below; /* per strip */
    int32_t (*taken)[3];
};

static int first_channel(const struct rondo_track *track) { return __builtin_ctz(track->channels); }

static void tracks_fold(struct rondo_place *place)
{
    for (int c = 0; c < place->graph->nchannels; c++) {
        int t = 0;
        while (t < place->ntracks &&
               !rondo_graph_channels_equal(place->graph, first_channel(&place->track[t]), c))
            t++;
        place->track[t].channels |= 1u << c;
        place->ntracks = max32(place->ntracks, t + 1);
    }
}

/* ---- columns ---- */

/* Mark the devices, and the nets that a channel uses. @return their number. */
static int columns_mark(struct rondo_place *place, struct work *work)
{
    int32_t n = 0;
    for (int p = 0; p < place->topo->ndevs + place->topo->nnets; p++) {
        place->column[p].strip = p < place->topo->ndevs && place->shown[p] == p ? 0 : -1;
        n += place->column[p].strip == 0;
    }
    for (int t = 0; t < place->ntracks; t++) {
        int legs = rondo_graph_legs(place->topo, place->graph, first_channel(&place->track[t]), work->leg);
        for (int i = 0; i < 2 * legs; i++) {
            int32_t point = place->shown[i % 2 ? work->leg[i / 2].to : work->leg[i / 2].from];
            n += place->column[point].strip < 0;
            place->column[point].strip = 0;
        }
    }
    return n;
}

/* Give each point a column of its own, in the order of the picture. A strip is as wide as the machine. */
static rondo_status columns_spread(struct rondo_place *place, int32_t n)
{
    int32_t(*order)[3], at = 0, pitch = 2 * place->radius + ARROW_ROOM,
                        most = max32((place->right - place->left) / pitch, 8);
    RONDO_TRY(RONDO_NEW_ARRAY(order, n, "a picture's columns"));
    place->nstrips = (n + most - 1) / most;
    most = (n + place->nstrips - 1) / place->nstrips;
    for (int p = 0; p < place->topo->ndevs + place->topo->nnets; p++) {
        const struct rondo_box *box = &place->box[place->topo->point[p]];
        if (place->column[p].strip >= 0)
            memcpy(order[at++], (int32_t[3]){ box->row, box->x, p }, sizeof *order);
    }
    qsort(order, (size_t)n, sizeof *order, rondo_place_compare3);
    for (int32_t i = 0; i < n; i++) {
        place->column[order[i][2]] = (struct rondo_column){ i / most,
                                                            place->left + i % most * pitch + pitch / 2 };
    }
    rondo_free(order);
    return RONDO_SUCCESS;
}

static rondo_status columns_make(struct rondo_place *place, struct work *work)
{
    int32_t n = columns_mark(place, work);
    place->apart = place->nrows > 1 && place->ntracks > MOST_TRACKS;
    if (place->apart) return columns_spread(place, n);
    place->nstrips = place->nrows;
    for (int p = 0; p < place->topo->ndevs + place->topo->nnets; p++) {
        const struct rondo_box *box = &place->box[place->topo->point[p]];
        if (place->column[p].strip >= 0)
            place->column[p] = (struct rondo_column){ box->row, box->x + box->w / 2 };
    }
    return RONDO_SUCCESS;
}

/* ---- stops and hops ---- */

/* Folded devices share a stop. */
static void stop_add(struct rondo_place *place, struct rondo_track *track, int32_t *stop_of, int32_t point,
                     int32_t position)
{
    point = place->shown[point];
    if (stop_of[point] >= 0) {
        struct rondo_stop *stop = &place->stop[stop_of[point]];
        if (position >= 0) stop->last = stop->last + 1 == position ? position : -1;
        return;
    }
    const struct rondo_column *column = &place->column[point];
    stop_of[point] = place->nstops;
    place->stop[place->nstops++] = (struct rondo_stop){ .point = point,
                                                        .position = position,
                                                        .last = position,
                                                        .strip = column->strip,
                                                        .x = column->x,
                                                        .half = place->radius };
    track->nstops++;
}

/* Widen the stops of folded devices for their positions. */
static void stops_widen(struct rondo_place *place, const struct rondo_track *track)
{
    for (int i = 0; i < track->nstops; i++) {
        struct rondo_stop *stop = &place->stop[track->first_stop + i];
        if (!place->apart && stop->last > stop->position) stop->half = 3 * place->radius;
    }
}

static void track_fill(struct rondo_place *place, struct rondo_track *track, struct work *work)
{
    const struct rondo_graph *graph = place->graph;
    int channel = first_channel(track);
    for (int p = 0; p < place->topo->npoints; p++) work->stop_of[p] = -1;
    track->first_stop = place->nstops;
    track->first_hop = place->nhops;
    for (int i = 0; i < graph->ndevs; i++)
        stop_add(place, track, work->stop_of,
                 graph->order[(size_t)channel * (size_t)graph->ndevs + (size_t)i], i);
    int nlegs = rondo_graph_legs(place->topo, graph, channel, work->leg);
    for (int i = 0; i < nlegs; i++) {
        int32_t from = place->shown[work->leg[i].from], to = place->shown[work->leg[i].to];
        stop_add(place, track, work->stop_of, from, -1);
        stop_add(place, track, work->stop_of, to, -1);
        if (from != to) place->hop[place->nhops++] = (struct rondo_hop){ .from = from, .to = to };
    }
    track->nhops = place->nhops - track->first_hop;
    stops_widen(place, track);
}

/* ---- levels ---- */

static int is_next(const struct rondo_place *place, const struct rondo_track *track,
                   const struct rondo_stop *from, const struct rondo_stop *to)
{
    for (int i = 0; i < track->nstops; i++) {
        const struct rondo_stop *stop = &place->stop[track->first_stop + i];
        if (stop->strip == from->strip && stop->x > from->x && stop->x < to->x) return 0;
    }
    return from->x < to->x;
}

/* Take the levels of a stub and its name. @return the first. */
static int32_t stub_level(struct rondo_levels *levels, int32_t x)
{
    int32_t level = RONDO_PLACE_LEVELS;
    for (int i = 0; i < STUB_LEVELS; i++)
        level = min32(level, rondo_levels_take(levels, x - STUB_LEFT, x + STUB_RIGHT));
    return level;
}

static void hop_level(struct rondo_place *place, const struct rondo_track *track, struct rondo_hop *hop,
                      struct work *work)
{
    const struct rondo_stop *from = &place->stop[work->stop_of[hop->from]],
                            *to = &place->stop[work->stop_of[hop->to]];
    int32_t left = min32(from->x, to->x) + PORT, right = max32(from->x, to->x) - PORT;
    if (from->strip != to->strip) {
        hop->kind = RONDO_HOP_STUBS;
        hop->level = stub_level(&work->below[from->strip], from->x);
        hop->level_to = stub_level(&work->above[to->strip], to->x);
    } else if (is_next(place, track, from, to)) {
        hop->kind = RONDO_HOP_STRAIGHT;
    } else {
        hop->kind = from->x < to->x ? RONDO_HOP_ABOVE : RONDO_HOP_BELOW;
        hop->level = rondo_levels_take(hop->kind == RONDO_HOP_ABOVE ? &work->above[from->strip]
                                                                    : &work->below[from->strip],
                                       left, right);
    }
}

/* Stubs take the levels nearest to the stops, then short hops. */
static void track_levels(struct rondo_place *place, struct rondo_track *track, struct work *work)
{
    size_t rows = (size_t)place->nstrips, room = STUB_LEVELS * ((size_t)track->nhops + 1);
    for (size_t r = 0; r < rows; r++) {
        work->above[r] = (struct rondo_levels){ .taken = work->taken + (2 * r) * room };
        work->below[r] = (struct rondo_levels){ .taken = work->taken + (2 * r + 1) * room };
    }
    for (int i = 0; i < track->nhops; i++) {
        const struct rondo_hop *hop = &place->hop[track->first_hop + i];
        const struct rondo_stop *from = &place->stop[work->stop_of[hop->from]],
                                *to = &place->stop[work->stop_of[hop->to]];
        int32_t span = from->strip != to->strip ? 0 : from->x < to->x ? to->x - from->x : from->x - to->x;
        work->order[i][0] = span;
        work->order[i][1] = i;
    }
    qsort(work->order, (size_t)track->nhops, sizeof *work->order, rondo_place_compare2);
    for (int i = 0; i < track->nhops; i++)
        hop_level(place, track, &place->hop[track->first_hop + work->order[i][1]], work);
    for (size_t r = 0; r < rows; r++) {
        track->above[r] = work->above[r].count;
        track->below[r] = work->below[r].count;
        track->y[r] = -1;
    }
    for (int i = 0; i < track->nstops; i++) track->y[place->stop[track->first_stop + i].strip] = 0;
}

static int32_t levels_height(const struct rondo_place *place, int32_t levels)
{
    return levels ? FIRST + (levels - 1) * place->size->step : 0;
}

static int32_t track_height(const struct rondo_place *place, const struct rondo_track *track, int row)
{
    if (track->y[row] < 0) return 0;
    return levels_height(place, track->above[row]) + levels_height(place, track->below[row]) +
           2 * place->radius + TRACK_GAP;
}

/* ---- measuring ---- */

static rondo_status work_init(struct work *work, struct rondo_place *place)
{
    size_t hops = (size_t)place->graph->ndevs + 3;
    RONDO_TRY(RONDO_NEW_ARRAY(work->leg, hops, "a picture's channels"));
    RONDO_TRY(columns_make(place, work));
    size_t rows = (size_t)place->nstrips;
    RONDO_TRY(RONDO_NEW_ARRAY(place->strip, rows, "a picture's channels"));
    RONDO_TRY(RONDO_NEW_ARRAY(work->stop_of, place->topo->npoints, "a picture's channels"));
    RONDO_TRY(RONDO_NEW_ARRAY(work->order, hops, "a picture's channels"));
    RONDO_TRY(RONDO_NEW_ARRAY(work->above, rows, "a picture's channels"));
    RONDO_TRY(RONDO_NEW_ARRAY(work->below, rows, "a picture's channels"));
    return RONDO_NEW_ARRAY(work->taken, 2 * rows * STUB_LEVELS * (hops + 1), "a picture's channels");
}

static rondo_status tracks_alloc(struct rondo_place *place)
{
    size_t n = (size_t)place->graph->nchannels, devs = (size_t)place->graph->ndevs;
    RONDO_TRY(RONDO_NEW_ARRAY(place->track, n, "a picture's channels"));
    RONDO_TRY(RONDO_NEW_ARRAY(place->column, place->topo->ndevs + place->topo->nnets, "a picture's columns"));
    place->radius = place->size->radius + (devs > 100 ? 2 : 0) + (devs > 1000 ? 3 : 0);
    RONDO_TRY(RONDO_NEW_ARRAY(place->stop, n * (devs + 2), "a picture's channels"));
    return RONDO_NEW_ARRAY(place->hop, n * (devs + 3), "a picture's channels");
}

rondo_status rondo_tracks_measure(struct rondo_place *place)
{
    struct work work = { 0 };
    rondo_status status;
    if (!place->graph) return RONDO_SUCCESS;
    RONDO_TRY(tracks_alloc(place));
    tracks_fold(place);
    RONDO_TRY_GOTO(work_init(&work, place), out);
    for (int t = 0; t < place->ntracks; t++) {
        struct rondo_track *track = &place->track[t];
        RONDO_TRY_GOTO(RONDO_NEW_ARRAY(track->above, 3 * (size_t)place->nstrips, "a picture's channels"),
                       out);
        track->below = track->above + place->nstrips;
        track->y = track->below + place->nstrips;
        track_fill(place, track, &work);
        track_levels(place, track, &work);
        for (int r = 0; r < place->nstrips; r++) place->strip[r].height += track_height(place, track, r);
    }
out:
    rondo_free(work.leg);
    rondo_free(work.stop_of);
    rondo_free(work.order);
    rondo_free(work.above);
    rondo_free(work.below);
    rondo_free(work.taken);
    return status;
}

/* ---- placing: the heights are known ---- */

static const struct rondo_stop *stop_at(const struct rondo_place *place, const struct rondo_track *track,
                                        int32_t point)
{
    const struct rondo_stop *stop = &place->stop[track->first_stop];
    while (stop->point != point) stop++;
    return stop;
}

/* Hops leave and enter a stop PORT pixels beside its middle, on opposite sides above and below it, so that no
 * two coincide. */
static void hop_place(const struct rondo_place *place, const struct rondo_track *track, struct rondo_hop *hop)
{
    const struct rondo_stop *from = stop_at(place, track, hop->from), *to = stop_at(place, track, hop->to);
    int32_t radius = place->radius, edge = radius - 1, step = place->size->step, out = from->x - PORT,
            in = to->x + PORT;
    int32_t first = radius + FIRST, y = from->y - first - step * hop->level,
            below = from->y + first + step * hop->level;
    switch (hop->kind) {
    case RONDO_HOP_STRAIGHT:
        rondo_points_set(
            &hop->line, 2,
            (const int32_t[][2]){ { from->x + from->half, from->y }, { to->x - to->half, to->y } });
        break;
    case RONDO_HOP_ABOVE:
        rondo_points_set(&hop->line, 4,
                         (const int32_t[][2]){ { from->x + PORT, from->y - edge },
                                               { from->x + PORT, y },
                                               { to->x - PORT, y },
                                               { to->x - PORT, to->y - edge } });
        break;
    case RONDO_HOP_BELOW:
        rondo_points_set(&hop->line, 4,
                         (const int32_t[][2]){
                             { out, from->y + edge }, { out, below }, { in, below }, { in, to->y + edge } });
        break;
    default:
        rondo_points_set(&hop->line, 2,
                         (const int32_t[][2]){ { from->x, from->y + edge },
                                               { from->x, from->y + radius + STUB + step * hop->level } });
        rondo_points_set(&hop->end, 2,
                         (const int32_t[][2]){ { to->x, to->y - radius - STUB - step * hop->level_to },
                                               { to->x, to->y - edge } });
    }
}

void rondo_tracks_place(struct rondo_place *place)
{
    for (int r = 0; r < place->nstrips; r++) {
        int32_t y = place->strip[r].y;
        for (int t = 0; t < place->ntracks; t++) {
            struct rondo_track *track = &place->track[t];
            if (track->y[r] < 0) continue;
            track->y[r] = y + TRACK_GAP / 2 + levels_height(place, track->above[r]) + place->radius;
            y += track_height(place, track, r);
        }
    }
    for (int t = 0; t < place->ntracks; t++) {
        const struct rondo_track *track = &place->track[t];
        for (int i = 0; i < track->nstops; i++) {
            struct rondo_stop *stop = &place->stop[track->first_stop + i];
            stop->y = track->y[stop->strip];
        }
        for (int i = 0; i < track->nhops; i++) hop_place(place, track, &place->hop[track->first_hop + i]);
    }
}
