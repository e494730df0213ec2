/* From a kernel's text to instructions: the table, operands, names, branches. */
#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptx_impl.h"

/* ---- the table ---- */

enum {
    BITS_PRED = 1,
    BITS_U16 = 16,
    BITS_S16 = 16,
    BITS_U32 = 32,
    BITS_S32 = 32,
    BITS_F32 = 32,
    BITS_U64 = 64,
    BITS_S64 = 64,
    BITS_F64 = 64
};
#define SHAPE_1 "o"
#define SHAPE_2 "{o,o}"
#define OP1(text, D, A, ...) { text, "o,o", 1, 2, { BITS_##D, BITS_##A }, 0, 0, PTX_SPECIAL_NONE },
#define OP2(text, D, A, B, ...) \
    { text, "o,o,o", 1, 3, { BITS_##D, BITS_##A, BITS_##B }, 0, 0, PTX_SPECIAL_NONE },
#define OP3(text, D, A, B, C, ...) \
    { text, "o,o,o,o", 1, 4, { BITS_##D, BITS_##A, BITS_##B, BITS_##C }, 0, 0, PTX_SPECIAL_NONE },
#define OP4(text, D, A, B, C, E, ...) \
    { text, "o,o,o,o,o", 1, 5, { BITS_##D, BITS_##A, BITS_##B, BITS_##C, BITS_##E }, 0, 0, PTX_SPECIAL_NONE },
#define LOAD(text, space, order, type, n)                                                             \
    { text,        SHAPE_##n ",[o]", n, n + 1, { 8 * sizeof(type), n > 1 ? 8 * sizeof(type) : 0 }, 1, \
      PTX_##space, PTX_SPECIAL_NONE },
#define STORE(text, space, order, type, n)                                                            \
    { text,        "[o]," SHAPE_##n, 0, n + 1, { 8 * sizeof(type), n > 1 ? 8 * sizeof(type) : 0 }, 1, \
      PTX_##space, PTX_SPECIAL_NONE },
#define RED(text, space, type, builtin) STORE(text, space, RELAXED, type, 1)
#define SPECIAL(text, name, shape, results, ...)                             \
    { text,                                                                  \
      shape,                                                                 \
      results,                                                               \
      sizeof(shape) == 1 ? 0 : sizeof((int[]){ __VA_ARGS__ }) / sizeof(int), \
      { __VA_ARGS__ },                                                       \
      0,                                                                     \
      0,                                                                     \
      PTX_##name },
/* clang-format off */
const struct ptx_form ptx_form_table[] = {
#include "ptx.def"
};
/* clang-format on */
const int ptx_form_count = (int)RONDO_COUNTOF(ptx_form_table);

int ptx_row_of(enum ptx_special special)
{
    for (int i = 0; i < ptx_form_count; i++) {
        if (ptx_form_table[i].special == special) return i;
    }
    return -1;
}

int ptx_forms(void) { return ptx_form_count; }
const char *ptx_form(int form) { return ptx_form_table[form].text; }
size_t ptx_uses(const struct ptx_program *p, int form)
{
    size_t n = 0;
    for (uint32_t i = 0; i < p->ninsns; i++) n += p->insn[i].op == form;
    return n;
}
size_t ptx_argument_bytes(const struct ptx_program *p) { return p->argument_bytes; }
uint32_t ptx_most_threads(const struct ptx_program *p) { return p->most_threads; }
int ptx_parameters(const struct ptx_program *p, const struct ptx_parameter **parameter)
{
    *parameter = p->parameter;
    return p->nparameters;
}

/* ---- a kernel's text ---- */

enum { CLASSES = 16, VARIABLES = PTX_MOST_PARAMETERS + 8, DEPTH = 8 };

struct word {
    const char *p;
    size_t n;
};
static int word_is(struct word w, const char *text)
{
    return strlen(text) == w.n && memcmp(w.p, text, w.n) == 0;
}

struct label {
    struct word name;
    uint32_t at;
};
struct parser {
    const char *p, *end;
    uint32_t line;
    struct ptx_program *program;
    uint32_t most; /* instructions that there is room for */
    struct {
        struct word prefix; /* %rd; of one register: its name */
        uint32_t first, n, bits;
        int one;
    } class[CLASSES];
    int nclasses;
    int outside[DEPTH]; /* classes that there are outside of each brace */
    struct {
        struct word name;
        enum ptx_space space;
        uint64_t at;
    } variable[VARIABLES];
    int nvariables, braces;
    struct label *label, *target; /* target: of a branch, by instruction */
    uint32_t nlabels, ntargets;
    char *why;
    size_t whybytes;
};

static int refuse(struct parser *s, const char *what, struct word w)
{
    snprintf(s->why, s->whybytes, "line %u: %s: %.*s", s->line, what, (int)(w.n > 200 ? 200 : w.n), w.p);
    return 0;
}

static void skip_blanks(struct parser *s)
{
    for (; s->p < s->end; s->p++) {
        if (s->p[0] == '/' && s->p + 1 < s->end && s->p[1] == '/') {
            while (s->p < s->end && *s->p != '\n') s->p++;
        }
        if (s->p >= s->end || !isspace((unsigned char)*s->p)) return;
        s->line += *s->p == '\n';
    }
}

static int is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static struct word next_name(struct parser *s)
{
    struct word w = { s->p, 0 };
    while (s->p < s->end && is_name(*s->p)) s->p++;
    w.n = (size_t)(s->p - w.p);
    return w;
}

static uint32_t count_lines(struct word w)
{
    uint32_t n = 0;
    for (size_t i = 0; i < w.n; i++) n += w.p[i] == '\n';
    return n;
}

/* Up to a ';', without it. */
static struct word next_rest(struct parser *s)
{
    struct word w = { s->p, 0 };
    while (s->p < s->end && *s->p != ';') s->p++;
    w.n = (size_t)(s->p - w.p);
    s->line += count_lines(w);
    s->p += s->p < s->end;
    return w;
}

/* ---- declarations ---- */

/* .reg .b32 %r<773>, or .reg .b64 %lhs */
static int declare_registers(struct parser *s, struct word rest)
{
    char type[8], prefix[16];
    unsigned n = 1;
    int read = 0, fields;
    static const struct {
        const char *type;
        uint32_t bits;
    } types[] = { { "pred", 1 }, { "b16", 16 }, { "b32", 32 }, { "f32", 32 }, { "b64", 64 }, { "f64", 64 } };
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)rest.n, rest.p);
    fields = sscanf(text, " .%7[a-z0-9] %15[%a-z]%n<%u>%n", type, prefix, &read, &n, &read);
    if (fields < 2 || text[read] != 0 || s->nclasses == CLASSES ||
        n > PTX_MOST_REGISTERS - s->program->nregisters) {
        return refuse(s, "unknown declaration, or too many registers", rest);
    }
    for (size_t i = 0; i < RONDO_COUNTOF(types); i++) {
        const size_t bytes = strlen(prefix);
        if (strcmp(type, types[i].type) != 0) continue;
        s->class[s->nclasses].prefix =
            (struct word){ rest.p + read - bytes - (fields == 3 ? strlen(strchr(text, '<')) : 0), bytes };
        s->class[s->nclasses].bits = types[i].bits;
        s->class[s->nclasses].first = s->program->nregisters;
        s->class[s->nclasses].one = fields == 2;
        s->class[s->nclasses++].n = n;
        s->program->nregisters += n;
        return 1;
    }
    return refuse(s, "unknown type of registers", rest);
}

_Static_assert(PTX_NAME == 256, "the length of a name in the formats below");
/* .shared .align 8 .b8 name[9672], .param the same, or .param .u32 name */
static int declare_bytes(struct parser *s, enum ptx_space space, struct word rest)
{
    struct ptx_program *p = s->program;
    char text[PTX_NAME + 64], name[PTX_NAME + 16];
    unsigned align, bits;
    size_t bytes, *total = space == PTX_SHARED ? &p->shared_bytes : &p->argument_bytes;
    int read = 0;
    snprintf(text, sizeof text, "%.*s", (int)rest.n, rest.p);
    if (space == PTX_PARAM && sscanf(text, " .u%u %271[A-Za-z0-9_$] %n", &bits, name, &read) == 2) {
        align = bits / 8;
        bytes = bits % 8 == 0 ? align : 0;
    } else if (sscanf(text, " .align %u .b8 %271[A-Za-z0-9_$][%zu] %n", &align, name, &bytes, &read) != 3) {
        read = 0;
    }
    if (read == 0 || text[read] != 0 || s->nvariables == VARIABLES || align == 0 || align > 128 ||
        bytes == 0 || (space == PTX_PARAM && p->nparameters == PTX_MOST_PARAMETERS)) {
        return refuse(s, "unknown declaration", rest);
    }
    *total = rondo_round_up(*total, align);
    if (space == PTX_PARAM) p->parameter[p->nparameters++] = (struct ptx_parameter){ *total, bytes };
    s->variable[s->nvariables].name = (struct word){ memmem(rest.p, rest.n, name, strlen(name)),
                                                     strlen(name) };
    s->variable[s->nvariables].space = space;
    s->variable[s->nvariables++].at = *total;
    *total += bytes;
    return 1;
}

/* ---- operands ---- */

static int constant(struct parser *s, uint64_t v, uint16_t *number)
{
    struct ptx_program *p = s->program;
    uint32_t i = 0;
    while (i < p->nconstants && p->constant[i] != v) i++;
    if (i == PTX_MOST_CONSTANTS) return refuse(s, "too many constants", (struct word){ "", 0 });
    if (i == p->nconstants) p->constant[p->nconstants++] = v;
    *number = (uint16_t)(PTX_OTHER + PTX_FIRST_CONSTANT + i);
    return 1;
}

static int number(struct word w, uint64_t *v)
{
    char text[40], *end;
    const int minus = w.n > 0 && w.p[0] == '-';
    if (w.n == 0 || w.n >= sizeof text || !isdigit((unsigned char)w.p[minus])) return 0;
    snprintf(text, sizeof text, "%.*s", (int)w.n - minus, w.p + minus);
    if (text[0] == '0' && (text[1] == 'f' || text[1] == 'd')) {
        if (strlen(text) != (text[1] == 'f' ? 10u : 18u)) return 0;
        *v = strtoull(text + 2, &end, 16);
    } else {
        *v = strtoull(text, &end, 0);
        if (*end == 'U') end++;
    }
    if (minus) *v = 0 - *v;
    return *end == 0;
}

/* %r17: number and bits. Those of the innermost braces are found first. */
static int find_register(const struct parser *s, struct word w, uint16_t *number_of, uint32_t *bits)
{
    size_t digits = 0;
    uint32_t n = 0;
    while (digits < w.n && isdigit((unsigned char)w.p[w.n - 1 - digits])) digits++;
    if (digits > 6) return 0;
    for (size_t i = w.n - digits; i < w.n; i++) n = 10 * n + (uint32_t)(w.p[i] - '0');
    for (int c = s->nclasses; c-- > 0;) {
        const struct word prefix = s->class[c].prefix;
        if (prefix.n == w.n - digits && memcmp(prefix.p, w.p, prefix.n) == 0 && n < s->class[c].n &&
            s->class[c].one == (digits == 0)) {
            *number_of = (uint16_t)(s->class[c].first + n);
            *bits = s->class[c].bits;
            return 1;
        }
    }
    return 0;
}

/* A register, a special register, a number or a variable's address, in an operand of so many bits (0:
 * any). */
static int operand(struct parser *s, struct word w, uint32_t bits, int atleast, uint16_t *number_of,
                   enum ptx_space *space)
{
    static const struct {
        const char *name;
        int place;
    } special[] = { { "%tid.x", PTX_TID_X },
                    { "%ntid.x", PTX_NTID_X },
                    { "%ctaid.x", PTX_CTAID_X },
                    { "%nctaid.x", PTX_NCTAID_X } };
    uint32_t has = 0;
    uint64_t v;
    if (find_register(s, w, number_of, &has)) {
        if (bits != 0 && has != bits && !(atleast && has > bits)) {
            return refuse(s, "a register of another size than the instruction's", w);
        }
        return 1;
    }
    if (number(w, &v)) return constant(s, v, number_of);
    for (size_t i = 0; i < RONDO_COUNTOF(special); i++) {
        if (word_is(w, special[i].name) && bits == 32) {
            *number_of = (uint16_t)(PTX_OTHER + special[i].place);
            return 1;
        }
    }
    for (int i = 0; i < s->nvariables; i++) {
        if (s->variable[i].name.n == w.n && memcmp(s->variable[i].name.p, w.p, w.n) == 0) {
            *space = s->variable[i].space;
            return constant(s, s->variable[i].at, number_of);
        }
    }
    return refuse(s, "unknown operand", w);
}

/* Operands of a statement as words, with its shape: o for each, and what stands between them. */
struct operands {
    struct word word[PTX_OPERANDS];
    int n;
    int64_t at;  /* of the address */
    int address; /* which operand is one; -1: none */
    char shape[32];
};

static int split(struct parser *s, struct word rest, struct operands *o)
{
    const char *p = rest.p, *end = rest.p + rest.n;
    size_t shape = 0;
    *o = (struct operands){ .address = -1 };
    for (; p < end; p++) {
        struct word w = { p, 0 };
        uint64_t offset;
        if (isspace((unsigned char)*p)) continue;
        if (shape + 2 > sizeof o->shape) return refuse(s, "too many operands", rest);
        if (strchr("{}[],|", *p) != NULL) {
            if (*p == '[') o->address = o->n;
            o->shape[shape++] = *p;
            continue;
        }
        if (*p != '+' && *p != '-' && !is_name(*p)) return refuse(s, "unknown operands", rest);
        for (p += *p == '+' || *p == '-'; p < end && is_name(*p); p++) {
        }
        if (*p == '-' && p[-1] == '+') { /* [%r+-8] */
            w.p++;
            for (p++; p < end && is_name(*p); p++) {
            }
        }
        w.n = (size_t)(p - w.p);
        p--;
        if (*w.p == '+' || (*w.p == '-' && w.p[-1] == '+')) {
            w.n -= *w.p == '+';
            w.p += *w.p == '+';
            if (o->address != o->n - 1 || !number(w, &offset) || (int64_t)offset != (int32_t)offset) {
                return refuse(s, "unknown address", rest);
            }
            o->at = (int64_t)offset;
            continue;
        }
        if (o->n == PTX_OPERANDS) return refuse(s, "too many operands", rest);
        o->word[o->n++] = w;
        o->shape[shape++] = 'o';
    }
    return 1;
}

/* ---- instructions ---- */

static struct ptx_insn *emit(struct parser *s, int row)
{
    struct ptx_program *p = s->program;
    if (p->ninsns == s->most) {
        const uint32_t most = 2 * s->most + 256;
        struct ptx_insn *insns = realloc(p->insn, most * sizeof *insns);
        uint32_t *lines = insns == NULL ? NULL : realloc(p->line, most * sizeof *lines);
        p->insn = insns != NULL ? insns : p->insn;
        p->line = lines != NULL ? lines : p->line;
        if (lines == NULL) {
            refuse(s, "no memory", (struct word){ "", 0 });
            return NULL;
        }
        s->most = most;
    }
    p->line[p->ninsns] = s->line;
    p->insn[p->ninsns] = (struct ptx_insn){ .op = (uint16_t)row };
    return &p->insn[p->ninsns++];
}

static int add_label(struct label **list, uint32_t *n, struct word name, uint32_t at)
{
    struct label *more = (*n & (*n - 1)) != 0 ? *list : realloc(*list, (*n == 0 ? 1 : 2 * *n) * sizeof *more);
    if (more == NULL) return 0;
    *list = more;
    more[(*n)++] = (struct label){ name, at };
    return 1;
}

static int branch(struct parser *s, struct word guard, int wanted, struct word rest)
{
    struct ptx_insn *i = emit(s, ptx_row_of(guard.n != 0 ? PTX_BRA_IF : PTX_BRA));
    enum ptx_space space = PTX_NO_SPACE;
    while (rest.n > 0 && isspace((unsigned char)*rest.p)) rest.p++, rest.n--;
    if (i == NULL || !add_label(&s->target, &s->ntargets, rest, s->program->ninsns - 1)) return 0;
    i->at = wanted;
    return guard.n == 0 || operand(s, guard, 1, 0, &i->r[0], &space);
}

/* Numbers of operands, results first and an address last. */
static int fill(struct parser *s, const struct operands *o, struct ptx_insn *i)
{
    const struct ptx_form *f = &ptx_form_table[i->op];
    const int rotate = f->atleast && f->results == 0; /* a store has its address first */
    for (int k = 0; k < o->n; k++) {
        const int to = rotate ? (k + o->n - 1) % o->n : k, is_address = o->address == k;
        enum ptx_space space = PTX_NO_SPACE;
        if (!operand(s, o->word[k], is_address ? 0 : f->bits[to], f->atleast, &i->r[to], &space)) return 0;
        if (is_address && space != PTX_NO_SPACE && (int)space != f->space) {
            return refuse(s, "a variable of another state space", o->word[k]);
        }
        if (to < f->results && i->r[to] >= PTX_OTHER) return refuse(s, "no register", o->word[k]);
        if (is_address && space == PTX_NO_SPACE && i->r[to] < PTX_OTHER) {
            uint16_t same;
            uint32_t bits = 0;
            (void)find_register(s, o->word[k], &same, &bits);
            if (bits != 64 && !(bits == 32 && f->space == PTX_SHARED)) {
                return refuse(s, "an address of this size", o->word[k]);
            }
        }
    }
    i->at = (int32_t)o->at;
    return 1;
}

static int instruction(struct parser *s, struct word guard, int wanted, struct word text, struct word rest)
{
    struct operands o;
    struct ptx_insn *i;
    enum ptx_space space = PTX_NO_SPACE;
    if (word_is(text, "bra") || word_is(text, "bra.uni")) return branch(s, guard, wanted, rest);
    if (guard.n != 0) {
        i = emit(s, ptx_row_of(PTX_UNLESS));
        if (i == NULL || !operand(s, guard, 1, 0, &i->r[0], &space)) return 0;
        i->at = wanted;
    }
    if (!split(s, rest, &o)) return 0;
    for (int row = 0; row < ptx_form_count; row++) {
        if (word_is(text, ptx_form_table[row].text) && strcmp(o.shape, ptx_form_table[row].shape) == 0) {
            i = emit(s, row);
            return i != NULL && fill(s, &o, i);
        }
    }
    return refuse(s, "unknown instruction, or unknown operands for it",
                  (struct word){ text.p, (size_t)(rest.p + rest.n - text.p) });
}

static int statement(struct parser *s)
{
    struct word guard = { s->p, 0 }, name;
    int wanted = 1;
    if (*s->p == '@') {
        s->p++;
        wanted = *s->p != '!';
        s->p += !wanted;
        guard = next_name(s);
        skip_blanks(s);
    }
    name = next_name(s);
    if (name.n == 0) return refuse(s, "unknown text", (struct word){ s->p, 1 });
    if (s->p < s->end && *s->p == ':' && guard.n == 0) {
        s->p++;
        return add_label(&s->label, &s->nlabels, name, s->program->ninsns) || refuse(s, "no memory", name);
    }
    if (word_is(name, ".pragma")) { /* hints for the assembler */
        (void)next_rest(s);
        return 1;
    }
    if (word_is(name, ".reg")) return declare_registers(s, next_rest(s));
    if (word_is(name, ".shared")) return declare_bytes(s, PTX_SHARED, next_rest(s));
    if (name.p[0] == '.') return refuse(s, "unknown directive", name);
    return instruction(s, guard, wanted, name, next_rest(s));
}

/* Where branches go, and which go back. */
static int resolve(struct parser *s)
{
    struct ptx_program *p = s->program;
    for (uint32_t t = 0; t < s->ntargets; t++) {
        struct ptx_insn *i = &p->insn[s->target[t].at];
        const struct word name = s->target[t].name;
        uint32_t l = 0;
        while (l < s->nlabels &&
               !(s->label[l].name.n == name.n && memcmp(s->label[l].name.p, name.p, name.n) == 0)) {
            l++;
        }
        s->line = p->line[s->target[t].at];
        if (l == s->nlabels || s->label[l].at >= p->ninsns) return refuse(s, "no such label", name);
        i->to = s->label[l].at;
        if (i->to <= s->target[t].at) {
            i->op = (uint16_t)ptx_row_of(ptx_form_table[i->op].special == PTX_BRA ? PTX_BRA_BACK
                                                                                  : PTX_BRA_BACK_IF);
        }
    }
    return 1;
}

/* (.param .., .param ..) */
static int parameters(struct parser *s)
{
    struct word w;
    s->p++;
    for (skip_blanks(s); s->p < s->end && *s->p != ')'; skip_blanks(s)) {
        const struct word name = next_name(s);
        w = (struct word){ s->p, 0 };
        while (s->p < s->end && *s->p != ',' && *s->p != ')') s->p++;
        w.n = (size_t)(s->p - w.p);
        if (!word_is(name, ".param")) return refuse(s, "unknown arguments", name);
        if (!declare_bytes(s, PTX_PARAM, w)) return 0;
        s->line += count_lines(w);
        s->p += s->p < s->end && *s->p == ',';
    }
    s->p++;
    return 1;
}

/* A brace: what is declared after it is known until its end. */
static int brace(struct parser *s)
{
    if (*s->p == '{' && s->braces == DEPTH) return refuse(s, "too many braces", (struct word){ s->p, 1 });
    if (*s->p == '{') {
        s->outside[s->braces++] = s->nclasses;
    } else {
        s->nclasses = s->outside[--s->braces];
    }
    s->p++;
    return 1;
}

/* From the '(' of the arguments to the '}' of the body. */
static int kernel(struct parser *s)
{
    skip_blanks(s);
    if (!parameters(s)) return 0;
    for (skip_blanks(s); s->p < s->end && *s->p != '{'; skip_blanks(s)) {
        unsigned n = 0;
        const struct word name = next_name(s);
        const char *at = s->p;
        while (s->p < s->end && *s->p != '\n') s->p++;
        if (word_is(name, ".maxntid") && sscanf(at, " %u, 1, 1", &n) == 1) {
            s->program->most_threads = n;
        } else if (!word_is(name, ".minnctapersm")) {
            return refuse(s, "unknown directive", name);
        }
    }
    do {
        skip_blanks(s);
        if (s->p >= s->end) return refuse(s, "the text ends inside a kernel", (struct word){ s->p, 0 });
        if (!(*s->p == '{' || *s->p == '}' ? brace(s) : statement(s))) return 0;
    } while (s->braces > 0);
    if (s->program->ninsns == 0 || emit(s, ptx_row_of(PTX_RET)) == NULL) return 0;
    return resolve(s);
}

/* ---- modules ---- */

struct entry {
    char name[PTX_NAME];
    const char *p, *end; /* from after its name */
    uint32_t line;
    struct ptx_program *program;
};
struct ptx_module {
    const char *text;
    size_t mapped; /* bytes of a file's mapping, or 0 */
    struct entry *entry;
    int n;
    pthread_mutex_t lock;
};

static void program_free(struct ptx_program *p)
{
    if (p == NULL) return;
    free(p->insn);
    free(p->line);
    free(p->constant);
    free(p);
}

void ptx_close(struct ptx_module *m)
{
    if (m == NULL) return;
    for (int i = 0; i < m->n; i++) program_free(m->entry[i].program);
    free(m->entry);
    if (m->mapped != 0) munmap((void *)(uintptr_t)m->text, m->mapped);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* After the '}' that ends the braces which begin in the rest of the text; NULL: there is none. */
static const char *end_of_body(const struct parser *s)
{
    int depth = 0;
    for (const char *p = s->p; p < s->end; p++) {
        if (p[0] == '/' && p[1] == '/') {
            while (p < s->end && *p != '\n') p++;
        }
        depth += *p == '{' ? 1 : *p == '}' ? -1 : 0;
        if (*p == '}' && depth <= 0) return p + 1;
    }
    return NULL;
}

/* A kernel's place in the text. */
static int add_entry(struct ptx_module *m, struct parser *s)
{
    struct entry *more = (m->n & (m->n - 1)) != 0
                             ? m->entry
                             : realloc(m->entry, (m->n == 0 ? 1 : 2 * (size_t)m->n) * sizeof *more);
    struct word name;
    const char *end;
    skip_blanks(s);
    name = next_name(s);
    end = end_of_body(s);
    if (more != NULL) m->entry = more;
    if (more == NULL || name.n >= PTX_NAME || end == NULL) return refuse(s, "a kernel without an end", name);
    more[m->n] = (struct entry){ .p = s->p, .end = end, .line = s->line };
    memcpy(more[m->n++].name, name.p, name.n);
    s->line += count_lines((struct word){ s->p, (size_t)(end - s->p) });
    s->p = end;
    return 1;
}

static int find_entries(struct ptx_module *m, struct parser *s)
{
    for (skip_blanks(s); s->p < s->end; skip_blanks(s)) {
        const struct word name = next_name(s);
        if (word_is(name, ".version") || word_is(name, ".target") || word_is(name, ".address_size")) {
            while (s->p < s->end && *s->p != '\n') s->p++;
        } else if (word_is(name, ".global") || word_is(name, ".extern")) {
            (void)next_rest(s); /* a kernel that uses it is refused */
        } else if (word_is(name, ".entry")) {
            if (!add_entry(m, s)) return 0;
        } else if (!word_is(name, ".visible")) {
            return refuse(s, "unknown directive", name.n > 0 ? name : (struct word){ s->p, 1 });
        }
    }
    return m->n > 0 || refuse(s, "no kernel", (struct word){ "", 0 });
}

struct ptx_module *ptx_open(const char *text, char *why, size_t whybytes)
{
    struct parser s = { .p = text, .end = text + strlen(text), .line = 1, .why = why, .whybytes = whybytes };
    struct ptx_module *m = calloc(1, sizeof *m);
    if (m == NULL) {
        snprintf(why, whybytes, "no memory");
        return NULL;
    }
    m->text = text;
    pthread_mutex_init(&m->lock, NULL);
    if (!find_entries(m, &s)) {
        ptx_close(m);
        return NULL;
    }
    return m;
}

struct ptx_module *ptx_open_file(const char *path, char *why, size_t whybytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    struct ptx_module *m;
    size_t bytes;
    char *text;
    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(why, whybytes, "%s cannot be opened: %m", path);
        if (fd >= 0) close(fd);
        return NULL;
    }
    /* a byte more, which is 0; where the file fills its last page, in a page of its own */
    bytes = (size_t)st.st_size + 1;
    text = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (text != MAP_FAILED && st.st_size > 0 &&
        mmap(text, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(text, bytes);
        text = MAP_FAILED;
    }
    close(fd);
    if (text == MAP_FAILED) {
        snprintf(why, whybytes, "%s cannot be mapped: %m", path);
        return NULL;
    }
    m = ptx_open(text, why, whybytes);
    if (m == NULL) {
        munmap(text, bytes);
    } else {
        m->mapped = bytes;
    }
    return m;
}

int ptx_count(const struct ptx_module *m) { return m->n; }
const char *ptx_name(const struct ptx_module *m, int i) { return m->entry[i].name; }

uint64_t ptx_runs(const struct ptx_module *m, int i)
{
    const struct ptx_program *p = m->entry[i].program;
    return p == NULL ? 0 : __atomic_load_n(&p->runs, __ATOMIC_RELAXED);
}

static struct ptx_program *decode(const struct entry *e, char *why, size_t whybytes)
{
    struct parser s = { .p = e->p, .end = e->end, .line = e->line, .why = why, .whybytes = whybytes };
    struct ptx_program *p = s.program = calloc(1, sizeof *p);
    int fine = p != NULL && (p->constant = calloc(PTX_MOST_CONSTANTS, sizeof *p->constant)) != NULL;
    if (why != NULL) snprintf(why, whybytes, "no memory");
    if (fine) {
        memcpy(p->name, e->name, sizeof p->name);
        fine = kernel(&s) && ptx_place_registers(p);
        if (fine && p->places > PTX_MOST_PLACES)
            fine = refuse(&s, "too many registers", (struct word){ "", 0 });
    }
    free(s.label);
    free(s.target);
    if (!fine) program_free(p);
    return fine ? p : NULL;
}

static struct entry *find_entry(const struct ptx_module *m, const char *name)
{
    for (int i = 0; i < m->n; i++) {
        if (strcmp(m->entry[i].name, name) == 0) return &m->entry[i];
    }
    return NULL;
}

int ptx_has(const struct ptx_module *m, const char *name) { return find_entry(m, name) != NULL; }

struct ptx_program *ptx_find(struct ptx_module *m, const char *name, char *why, size_t whybytes)
{
    struct entry *e = find_entry(m, name);
    struct ptx_program *p;
    if (e == NULL) {
        snprintf(why, whybytes, "there is no kernel %s", name);
        return NULL;
    }
    pthread_mutex_lock(&m->lock);
    if (e->program == NULL) e->program = decode(e, why, whybytes);
    p = e->program;
    pthread_mutex_unlock(&m->lock);
    return p;
}
