/* Places for a program's registers: which are alive where, then one pass over the program in its order. */
#include <stdlib.h>
#include <string.h>

#include "ptx_impl.h"

/* A piece of code that is entered at its first instruction and left at its last. */
struct piece {
    uint32_t first, end, next[2]; /* instructions; pieces, or NONE */
    uint64_t *in, *out, *made, *read;
};
enum { NONE = -1 };

struct liveness {
    struct ptx_program *program;
    struct piece *piece;
    uint32_t npieces, words;
    uint32_t *piece_of; /* by instruction */
    uint64_t *bits;
    uint32_t *from, *to; /* by register: the instructions between which it has a place; from > to: never */
};

static int has(const uint64_t *set, uint32_t i) { return (int)(set[i / 64] >> i % 64 & 1); }
static void add(uint64_t *set, uint32_t i) { set[i / 64] |= 1ull << i % 64; }

static int branches(const struct ptx_insn *i)
{
    const enum ptx_special s = ptx_form_table[i->op].special;
    return s == PTX_BRA || s == PTX_BRA_BACK || s == PTX_BRA_IF || s == PTX_BRA_BACK_IF;
}
/* Is it under a predicate that is an instruction of its own? */
static int is_optional(const struct ptx_program *p, uint32_t i)
{
    return i > 0 && ptx_form_table[p->insn[i - 1].op].special == PTX_UNLESS;
}
/* May the next instruction follow it? */
static int goes_on(const struct ptx_program *p, uint32_t i)
{
    const enum ptx_special s = ptx_form_table[p->insn[i].op].special;
    return is_optional(p, i) || (s != PTX_RET && s != PTX_BRA && s != PTX_BRA_BACK);
}

/* Cut the program at branches and their targets. */
static void cut(struct liveness *l)
{
    const struct ptx_program *p = l->program;
    memset(l->piece_of, 0, p->ninsns * sizeof *l->piece_of);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        if (branches(&p->insn[i])) l->piece_of[p->insn[i].to] = 1;
        if ((branches(&p->insn[i]) || !goes_on(p, i)) && i + 1 < p->ninsns) l->piece_of[i + 1] = 1;
    }
    l->piece_of[0] = 1;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        l->npieces += l->piece_of[i];
        l->piece_of[i] = l->npieces - 1;
    }
}

static void note_registers(const struct liveness *l, struct piece *b)
{
    for (uint32_t i = b->first; i < b->end; i++) {
        const struct ptx_insn *insn = &l->program->insn[i];
        const struct ptx_form *f = &ptx_form_table[insn->op];
        /* a result that is perhaps not written may keep its old value */
        for (int k = is_optional(l->program, i) ? 0 : f->results; k < f->operands; k++) {
            if (insn->r[k] < PTX_OTHER && !has(b->made, insn->r[k])) add(b->read, insn->r[k]);
        }
        for (int k = 0; k < f->results; k++) add(b->made, insn->r[k]);
    }
}

static void link_pieces(struct liveness *l)
{
    struct ptx_program *p = l->program;
    uint64_t *at = l->bits;
    for (uint32_t i = p->ninsns; i-- > 0;) l->piece[l->piece_of[i]].first = i;
    for (uint32_t k = 0; k < l->npieces; k++) {
        struct piece *b = &l->piece[k];
        uint32_t last;
        b->end = k + 1 < l->npieces ? l->piece[k + 1].first : p->ninsns;
        last = b->end - 1;
        b->next[0] = goes_on(p, last) && b->end < p->ninsns ? k + 1 : (uint32_t)NONE;
        b->next[1] = branches(&p->insn[last]) ? l->piece_of[p->insn[last].to] : (uint32_t)NONE;
        b->in = at;
        b->out = at + l->words;
        b->made = at + 2 * (size_t)l->words;
        b->read = at + 3 * (size_t)l->words;
        at += 4 * (size_t)l->words;
        note_registers(l, b);
    }
}

static void spread(struct liveness *l)
{
    for (int changed = 1; changed;) {
        changed = 0;
        for (uint32_t k = l->npieces; k-- > 0;) {
            struct piece *b = &l->piece[k];
            for (uint32_t w = 0; w < l->words; w++) {
                uint64_t out = 0, in;
                for (int n = 0; n < 2; n++)
                    out |= b->next[n] == (uint32_t)NONE ? 0 : l->piece[b->next[n]].in[w];
                in = b->read[w] | (out & ~b->made[w]);
                changed |= in != b->in[w];
                b->out[w] = out;
                b->in[w] = in;
            }
        }
    }
}

static void extend(struct liveness *l, uint32_t reg, uint32_t at)
{
    l->from[reg] = at < l->from[reg] ? at : l->from[reg];
    l->to[reg] = at > l->to[reg] ? at : l->to[reg];
}

static void find_spans(struct liveness *l)
{
    const struct ptx_program *p = l->program;
    for (uint32_t k = 0; k < l->npieces; k++) {
        const struct piece *b = &l->piece[k];
        for (uint32_t reg = 0; reg < p->nregisters; reg++) {
            if (has(b->in, reg)) extend(l, reg, b->first);
            if (has(b->out, reg)) extend(l, reg, b->end);
        }
    }
    for (uint32_t i = 0; i < p->ninsns; i++) {
        for (int k = 0; k < ptx_form_table[p->insn[i].op].operands; k++) {
            if (p->insn[i].r[k] < PTX_OTHER) extend(l, p->insn[i].r[k], i);
        }
    }
}

/* Give each register a place that no other has between its first and last instruction. */
static void place(struct liveness *l, uint16_t *place_of, uint16_t *free_places)
{
    struct ptx_program *p = l->program;
    uint32_t nfree = 0, next = PTX_FIRST_CONSTANT + p->nconstants;
    uint32_t *starts = calloc(p->ninsns + 2, sizeof *starts), *ends = calloc(p->ninsns + 2, sizeof *ends),
             *chain = calloc(2 * (size_t)p->nregisters + 2, sizeof *chain);
    if (starts != NULL && ends != NULL && chain != NULL) {
        for (uint32_t reg = 0; reg < p->nregisters; reg++) { /* lists by instruction; 0: the end */
            if (l->from[reg] > l->to[reg]) continue;
            chain[2 * reg] = starts[l->from[reg]];
            starts[l->from[reg]] = reg + 1;
            chain[2 * reg + 1] = ends[l->to[reg]];
            ends[l->to[reg]] = reg + 1;
        }
        for (uint32_t i = 0; i <= p->ninsns; i++) {
            for (uint32_t reg = starts[i]; reg != 0; reg = chain[2 * (reg - 1)]) {
                place_of[reg - 1] = nfree > 0 ? free_places[--nfree] : (uint16_t)next++;
            }
            for (uint32_t reg = ends[i]; reg != 0; reg = chain[2 * (reg - 1) + 1]) {
                free_places[nfree++] = place_of[reg - 1];
            }
        }
        p->places = next;
    }
    free(starts);
    free(ends);
    free(chain);
}

static void replace(struct ptx_program *p, const uint16_t *place_of)
{
    for (uint32_t i = 0; i < p->ninsns; i++) {
        struct ptx_insn *insn = &p->insn[i];
        for (int k = 0; k < ptx_form_table[insn->op].operands; k++) {
            insn->r[k] = insn->r[k] < PTX_OTHER ? place_of[insn->r[k]] : (uint16_t)(insn->r[k] - PTX_OTHER);
        }
    }
}

int ptx_place_registers(struct ptx_program *program)
{
    struct liveness l = { .program = program, .words = (program->nregisters + 63) / 64 };
    const size_t nregs = program->nregisters + 1u;
    uint16_t *place_of = calloc(2 * nregs, sizeof *place_of);
    l.piece_of = calloc(program->ninsns, sizeof *l.piece_of);
    l.from = malloc(nregs * sizeof *l.from);
    l.to = calloc(nregs, sizeof *l.to);
    if (l.piece_of != NULL) cut(&l);
    l.piece = calloc(l.npieces + 1, sizeof *l.piece);
    l.bits = calloc(4 * (size_t)l.npieces * l.words + 1, sizeof *l.bits);
    if (place_of != NULL && l.piece_of != NULL && l.from != NULL && l.to != NULL && l.piece != NULL &&
        l.bits != NULL) {
        memset(l.from, 0xff, nregs * sizeof *l.from);
        link_pieces(&l);
        spread(&l);
        find_spans(&l);
        place(&l, place_of, place_of + nregs);
        if (program->places != 0) replace(program, place_of);
    }
    free(place_of);
    free(l.piece_of);
    free(l.from);
    free(l.to);
    free(l.piece);
    free(l.bits);
    return program->places != 0;
}
