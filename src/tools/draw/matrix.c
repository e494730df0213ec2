/* Path types between all points: a table, or, for large machines, a list of what each kind of point reaches
 * by which type of path. */
#include "tools/draw/text.h"

#include <string.h>
#include "base/mem.h"

enum {
    MOST_COLUMNS = 48, /* larger machines get the list */
    MOST_ROUNDS = 16,
    AFFINITY_HEAD = 11 /* columns of "NUMA  cores" */
};

struct matrix {
    const struct rondo_draw *draw;
    const struct rondo_topo *topo;
    int n;          /* devices, nets, CPUs */
    int cell;       /* columns of a cell, with the gap after it */
    int label;      /* columns of a row's label, with the gap after it */
    int otherwise;  /* 1: data between some points does not take the wired path */
    unsigned types; /* mask of types that occur */
};

static const char *point_label(const struct rondo_topo *topo, int point, char text[24])
{
    const struct rondo_topo_node *node = &topo->node[topo->point[point]];
    int index = point;
    if (point >= topo->ndevs + topo->nnets) {
        index = point - topo->ndevs - topo->nnets;
    } else if (point >= topo->ndevs) {
        index = point - topo->ndevs;
    }
    snprintf(text, 24, "%s%d", rondo_node_type_name(node->type), index);
    return text;
}

/* @return 1 if data does not take the wired path. The table marks it with a star. */
static int is_otherwise(const struct rondo_topo *topo, int from, int to)
{
    const struct rondo_topo_path *wired = rondo_topo_wired(topo, from, to),
                                 *taken = rondo_topo_path(topo, from, to);
    return wired->type != taken->type || wired->mbs != taken->mbs;
}

static void cell_text(const struct matrix *m, int from, int to, char text[40])
{
    const struct rondo_topo_path *path = rondo_topo_wired(m->topo, from, to);
    char gbs[24];
    if (from == to) {
        snprintf(text, 40, "-");
        return;
    }
    snprintf(text, 40, "%s%s", rondo_path_type_name(path->type), is_otherwise(m->topo, from, to) ? "*" : "");
    if (m->draw->bandwidth && path->type != RONDO_PATH_DIS) {
        rondo_text_add(text, 40, " %s", path->mbs >= RONDO_LOC_MBS ? "max" : rondo_text_gbs(path->mbs, gbs));
    }
}

static void matrix_measure(struct matrix *m)
{
    char text[40];
    for (int from = 0; from < m->n; from++) {
        int columns = (int)strlen(point_label(m->topo, from, text));
        if (columns > m->label) m->label = columns;
        for (int to = 0; to < m->n; to++) {
            if (from == to) continue;
            cell_text(m, from, to, text);
            columns = (int)strlen(text);
            if (columns > m->cell) m->cell = columns;
            m->types |= 1u << rondo_topo_wired(m->topo, from, to)->type;
            m->otherwise |= is_otherwise(m->topo, from, to);
        }
    }
    if (m->label > m->cell) m->cell = m->label;
    int gap = m->draw->width == 0 || m->label + 2 + m->n * (m->cell + 2) < m->draw->width ? 2 : 1;
    m->cell += gap;
    m->label += gap;
}

static const struct rondo_item *cpu_of(const struct rondo_topo *topo, int point)
{
    int best = -1;
    if (point < topo->ndevs) {
        best = topo->device_cpu[point];
    } else {
        for (int c = rondo_topo_cpu_point(topo, 0); c < rondo_topo_cpu_point(topo, topo->ncpus); c++) {
            const struct rondo_topo_path *path = rondo_topo_wired(topo, point, c);
            if (best < 0 || path->type < rondo_topo_wired(topo, point, best)->type) best = c;
        }
    }
    return best < 0 ? NULL : rondo_topo_item(topo, best);
}

static void affinity_text(const struct rondo_topo *topo, int point, char *text, size_t bytes)
{
    const struct rondo_item *cpu = cpu_of(topo, point);
    char cores[64];
    text[0] = '\0';
    if (!cpu) return;
    const struct rondo_cores *set = &cpu->cpu.cores;
    if (point < topo->ndevs && topo->rank[point].busid < 0 && rondo_cores_count(&topo->rank[point].cores) > 0)
        set = &topo->rank[point].cores;
    rondo_text_cores(set, cores, sizeof cores);
    if (cpu->cpu.numa >= 0) {
        snprintf(text, bytes, "%4d  %s", cpu->cpu.numa, cores);
    } else {
        snprintf(text, bytes, "   -  %s", cores);
    }
}

/* Print columns first to end - 1; affinity: and each row's NUMA node and cores. */
static void block_put(const struct matrix *m, int first, int end, int affinity)
{
    FILE *out = m->draw->out;
    char text[96];
    fprintf(out, "%*s", m->label, "");
    rondo_ink(m->draw, RONDO_INK_TITLE);
    for (int to = first; to < end; to++) {
        point_label(m->topo, to, text);
        fprintf(out, "%s%*s", text, to + 1 < end || affinity ? m->cell - (int)strlen(text) : 0, "");
    }
    fputs(affinity ? "NUMA  cores" : "", out);
    rondo_ink(m->draw, RONDO_INK_PLAIN);
    for (int from = 0; from < m->n; from++) {
        rondo_ink(m->draw, RONDO_INK_TITLE);
        fprintf(out, "\n%-*s", m->label, point_label(m->topo, from, text));
        rondo_ink(m->draw, RONDO_INK_PLAIN);
        affinity_text(m->topo, from, text, sizeof text);
        int tail = affinity && text[0];
        for (int to = first; to < end; to++) {
            char cell[40];
            cell_text(m, from, to, cell);
            rondo_ink(m->draw, from == to ? RONDO_INK_DIM
                                          : rondo_ink_of_path(rondo_topo_wired(m->topo, from, to)->type));
            fputs(cell, out);
            rondo_ink(m->draw, RONDO_INK_PLAIN);
            fprintf(out, "%*s", to + 1 < end || tail ? m->cell - (int)strlen(cell) : 0, "");
        }
        fputs(tail ? text : "", out);
    }
    fputc('\n', out);
}

/* @return the end of a block of columns. It falls between kinds of points if that needs no more blocks. */
static int block_end(const struct matrix *m, int first, int fits)
{
    const int kinds[] = { m->topo->ndevs + m->topo->nnets, m->topo->ndevs };
    int blocks = (m->n - first + fits - 1) / fits;
    for (size_t i = 0; i < RONDO_COUNTOF(kinds) && blocks > 1; i++) {
        int end = kinds[i];
        if (end > first && end - first <= fits && (m->n - end + fits - 1) / fits < blocks) return end;
    }
    return first + fits < m->n ? first + fits : m->n;
}

static void table_put(const struct matrix *m)
{
    int affinity = 0, fits = m->n, done = 0;
    char text[96];
    for (int p = 0; p < m->n; p++) {
        affinity_text(m->topo, p, text, sizeof text);
        if ((int)strlen(text) > affinity) affinity = (int)strlen(text);
    }
    if (affinity > 0 && affinity < AFFINITY_HEAD) affinity = AFFINITY_HEAD;
    if (m->draw->width > 0) fits = (m->draw->width - m->label - 1) / m->cell;
    if (fits < 1) fits = 1;
    for (int first = 0, end; first < m->n; first = end) {
        end = block_end(m, first, fits);
        int room = m->draw->width ? m->draw->width - m->label - (end - first) * m->cell : affinity + 1;
        int with = affinity > 0 && !done && affinity < room;
        fputs(first ? "\n" : "", m->draw->out);
        block_put(m, first, end, with);
        done |= with;
    }
    if (affinity > 0 && !done) {
        fputc('\n', m->draw->out);
        block_put(m, m->n, m->n, 1);
    }
}

/* ---- classes of equal points ---- */

/* Points stay in one class as long as they reach as many points of each class by each type of path. Classes
 * are numbered by their first point. */
static int classes_refine(const struct matrix *m, int32_t *class, uint64_t *sum)
{
    for (int from = 0; from < m->n; from++) {
        sum[from] = rondo_hash(&class[from], sizeof class[from], 0);
        for (int to = 0; to < m->n; to++) {
            int32_t v[3] = { class[to], rondo_topo_wired(m->topo, from, to) -> type,
                             rondo_topo_wired(m->topo, from, to) -> mbs };
            if (from != to) sum[from] += rondo_hash(v, sizeof v, 1);
        }
    }
    int n = 0;
    for (int from = 0; from < m->n; from++) {
        int same = 0;
        while (same < from && sum[same] != sum[from]) same++;
        class[from] = same < from ? class[same] : n++;
    }
    return n;
}

/* Print what a point reaches by one type of path: "  NVL  GPU 1-71". */
static void reach_put(const struct matrix *m, int from, int type, int otherwise)
{
    static const char indent[] = "       ";
    const int begin[] = { 0, m->topo->ndevs, m->topo->ndevs + m->topo->nnets, m->n };
    const char *const kinds[] = { rondo_node_type_name(m->topo->node[m->topo->point[0]].type), "NET", "CPU" };
    struct rondo_line line;
    char head[24], list[120], piece[160];
    rondo_line_begin(&line, m->draw, indent, 0, 0);
    for (int kind = 0; kind < 3; kind++) {
        int32_t to[RONDO_TOPO_MAX_LOCAL + RONDO_MACHINE_MAX_NETS];
        int n = 0;
        for (int p = begin[kind]; p < begin[kind + 1] && n < (int)RONDO_COUNTOF(to); p++) {
            if (p == from || rondo_topo_wired(m->topo, from, p)->type != type ||
                is_otherwise(m->topo, from, p) != otherwise)
                continue;
            to[n++] = p - begin[kind];
        }
        if (n == 0) continue;
        if (line.pieces == 0) {
            snprintf(head, sizeof head, "  %s%s", rondo_path_type_name(type), otherwise ? "* " : "  ");
            rondo_line_piece(&line, "", rondo_ink_of_path(type), head);
        }
        snprintf(piece, sizeof piece, "%s %s", kinds[kind], rondo_text_ranges(to, n, list, sizeof list));
        rondo_line_piece(&line, line.pieces > 1 ? ", " : "", RONDO_INK_PLAIN, piece);
    }
    if (line.pieces > 0) rondo_line_end(&line);
}

static void class_put(const struct matrix *m, const int32_t *class, int first, int32_t *members)
{
    char label[24], list[160], text[96];
    int n = 0, base = 0;
    const struct rondo_topo *topo = m->topo;
    if (first >= topo->ndevs)
        base = first >= topo->ndevs + topo->nnets ? topo->ndevs + topo->nnets : topo->ndevs;
    for (int p = first + 1; p < m->n; p++) {
        if (class[p] == class[first]) members[n++] = p - base;
    }
    rondo_ink(m->draw, RONDO_INK_TITLE);
    fputs(point_label(topo, first, label), m->draw->out);
    rondo_ink(m->draw, RONDO_INK_PLAIN);
    if (n > 0) fprintf(m->draw->out, ", like %s", rondo_text_ranges(members, n, list, sizeof list));
    affinity_text(topo, first, text, sizeof text);
    if (text[0] && first < topo->ndevs)
        fprintf(m->draw->out, "   (NUMA node, cores: %s)", text + strspn(text, " "));
    fputc('\n', m->draw->out);
    for (int type = RONDO_PATH_LOC; type < RONDO_NUM_PATH_TYPES; type++) {
        for (int otherwise = 0; otherwise < 2; otherwise++) reach_put(m, first, type, otherwise);
    }
}

static rondo_status classes_put(const struct matrix *m)
{
    int32_t *class = NULL, *members = NULL;
    uint64_t *sum = NULL;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(class, m->n, "classes of points"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(members, m->n, "classes of points"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(sum, m->n, "classes of points"), out);
    for (int p = 0; p < m->n; p++) class[p] = m->topo->node[m->topo->point[p]].type;
    int nclasses = 0, before = -1;
    for (int round = 0; round < MOST_ROUNDS && nclasses != before; round++) {
        before = nclasses;
        nclasses = classes_refine(m, class, sum);
    }
    for (int c = 0; c < nclasses; c++) {
        int first = 0;
        while (class[first] != c) first++;
        class_put(m, class, first, members);
    }
out:
    rondo_free(class);
    rondo_free(members);
    rondo_free(sum);
    return status;
}

static void legend_put(const struct matrix *m)
{
    fputc('\n', m->draw->out);
    for (int type = 0; type < RONDO_NUM_PATH_TYPES; type++) {
        if (!(m->types >> type & 1)) continue;
        rondo_ink(m->draw, rondo_ink_of_path(type));
        fprintf(m->draw->out, "  %-4s", rondo_path_type_name(type));
        rondo_ink(m->draw, RONDO_INK_PLAIN);
        fprintf(m->draw->out, " %s\n", rondo_path_type_legend(type));
    }
    if (m->otherwise)
        fputs("  *    data takes another path; 'rondo-topo --why A B' shows it\n", m->draw->out);
    if (m->draw->bandwidth) fputs("  Numbers are GB/s of the narrowest link; max: no limit\n", m->draw->out);
}

rondo_status rondo_draw_matrix(const struct rondo_draw *draw, const struct rondo_topo *topo)
{
    struct matrix m = { .draw = draw, .topo = topo, .n = topo->ndevs + topo->nnets + topo->ncpus };
    if (m.n == 0) return RONDO_SUCCESS;
    matrix_measure(&m);
    if (m.n <= MOST_COLUMNS || draw->all) {
        table_put(&m);
    } else {
        RONDO_TRY(classes_put(&m));
    }
    legend_put(&m);
    return rondo_draw_finish(draw->out);
}
