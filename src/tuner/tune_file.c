#include "tuner/tune_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/param.h"

enum { MAX_WORDS = 6, MAX_DIGITS = 15 };

/* ---- measured times ---- */

static uint32_t series_of(const struct rondo_measured_point *p)
{
    return (uint32_t)p->coll << 24 | (uint32_t)p->algo << 16 | (uint32_t)p->proto << 8 | p->nchannels;
}

static int by_series(const void *x, const void *y)
{
    const struct rondo_measured_point *a = x, *b = y;
    uint32_t s = series_of(a), t = series_of(b);
    if (s != t) {
        return s < t ? -1 : 1;
    }
    if (a->bytes != b->bytes) {
        return a->bytes < b->bytes ? -1 : 1;
    }
    return (a->line > b->line) - (a->line < b->line);
}

const struct rondo_measured_point *rondo_measured_sort(struct rondo_measured *m)
{
    if (m->npoints > 0) {
        qsort(m->point, (size_t)m->npoints, sizeof(*m->point), by_series);
    }
    for (int i = 1; i < m->npoints; i++) {
        if (series_of(&m->point[i]) == series_of(&m->point[i - 1]) &&
            m->point[i].bytes == m->point[i - 1].bytes) {
            return &m->point[i];
        }
    }
    return NULL;
}

/* Find the first point that is not below the key. */
static int lower_bound(const struct rondo_measured *m, const struct rondo_measured_point *key)
{
    int from = 0, to = m->npoints;
    while (from < to) {
        int middle = from + (to - from) / 2;
        if (by_series(&m->point[middle], key) < 0) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

double rondo_measured_us(const struct rondo_measured *m, enum rondo_coll coll, enum rondo_algo algo,
                         enum rondo_proto proto, int nchannels, size_t bytes)
{
    struct rondo_measured_point key = { .coll = (uint8_t)rondo_coll_scheduled_as(coll),
                                        .algo = (uint8_t)algo,
                                        .proto = (uint8_t)proto,
                                        .nchannels = (uint8_t)nchannels,
                                        .bytes = bytes };
    int at = lower_bound(m, &key);
    const struct rondo_measured_point *above = at < m->npoints && series_of(&m->point[at]) == series_of(&key)
                                                   ? &m->point[at]
                                                   : NULL;
    const struct rondo_measured_point *below = at > 0 && series_of(&m->point[at - 1]) == series_of(&key)
                                                   ? &m->point[at - 1]
                                                   : NULL;
    if (above == NULL) {
        return below == NULL ? -1 : below->us * ((double)bytes / (double)below->bytes);
    }
    if (below == NULL || above->bytes == bytes) {
        return above->us;
    }
    return below->us +
           (above->us - below->us) * (double)(bytes - below->bytes) / (double)(above->bytes - below->bytes);
}

/* ---- shapes ---- */

struct rondo_tune_shape rondo_tune_shape_of(const struct rondo_layout *layout)
{
    return (struct rondo_tune_shape){ .machine = layout->machine,
                                      .nodes = layout->nnodes,
                                      .ranks = layout->nranks,
                                      .per_node = layout->max_local,
                                      .gpu = rondo_is_gpu_model(layout) };
}

void rondo_tune_shape_text(const struct rondo_tune_shape *s, char *text, size_t size)
{
    snprintf(text, size, "%d node%s, %d rank%s, at most %d a node, of machine %016llx, %s memory", s->nodes,
             s->nodes == 1 ? "" : "s", s->ranks, s->ranks == 1 ? "" : "s", s->per_node,
             (unsigned long long)s->machine, s->gpu ? "GPU" : "host");
}

static int same_shape(const struct rondo_tune_shape *a, const struct rondo_tune_shape *b)
{
    return a->machine == b->machine && a->nodes == b->nodes && a->ranks == b->ranks &&
           a->per_node == b->per_node && a->gpu == b->gpu;
}

const struct rondo_measured *rondo_tune_find(const struct rondo_tune *tune,
                                             const struct rondo_tune_shape *shape, char *why, size_t size)
{
    char first[160];
    for (int i = 0; i < tune->nsections; i++) {
        if (same_shape(&tune->section[i].shape, shape)) {
            return &tune->section[i].measured;
        }
    }
    rondo_tune_shape_text(&tune->section[0].shape, first, sizeof(first));
    snprintf(why, size, "it has %d shape%s (%s%s)", tune->nsections, tune->nsections == 1 ? "" : "s", first,
             tune->nsections > 1 ? ", ..." : "");
    return NULL;
}

/* ---- reading ---- */

/* State of the parser. */
struct reader {
    const char *file, *at, *end;
    int line, nwords;
    char *word[MAX_WORDS];
    char text[256]; /* the line */
    struct rondo_tune *tune;
    int nsections, npoints; /* allocated */
};

static rondo_status bad(const struct reader *r, const char *what, const char *expected)
{
    return rondo_fail(RONDO_INVALID_ARGUMENT,
                      "%s:%d: %s; expected %s (rondo-explain --measure writes such files)", r->file, r->line,
                      what, expected);
}

/* Cut the next line into words. @return 0 at the end of the file; -1: too long, or too many words. */
static int next_line(struct reader *r)
{
    const char *end;
    size_t n;
    if (r->at >= r->end) {
        return 0;
    }
    end = memchr(r->at, '\n', (size_t)(r->end - r->at));
    end = end != NULL ? end : r->end;
    n = (size_t)(end - r->at);
    r->line++;
    if (n >= sizeof(r->text) || memchr(r->at, '\0', n) != NULL) {
        return -1;
    }
    memcpy(r->text, r->at, n);
    r->text[n] = '\0';
    r->text[strcspn(r->text, "#")] = '\0';
    r->at = end + 1;
    r->nwords = 0;
    for (char *save, *w = strtok_r(r->text, " \t\r", &save); w != NULL; w = strtok_r(NULL, " \t\r", &save)) {
        if (r->nwords == MAX_WORDS) {
            return -1;
        }
        r->word[r->nwords++] = w;
    }
    return 1;
}

/* Parse digits and nothing else, at most `most`. @return -1: invalid. */
static int64_t whole(const char *text, int64_t most)
{
    size_t n = strspn(text, "0123456789");
    int64_t value;
    if (n == 0 || n > MAX_DIGITS || text[n] != '\0') {
        return -1;
    }
    value = strtoll(text, NULL, 10);
    return value <= most ? value : -1;
}

/* Parse "31.25" in any locale, down to nanoseconds. @return -1: invalid, or 0. */
static double decimal(const char *text)
{
    enum { DIGITS = 9, FRACTION = 3 };
    char digits[DIGITS + FRACTION + 1];
    size_t n = strspn(text, "0123456789"), fraction;
    if (n == 0 || n > DIGITS || (text[n] != '.' && text[n] != '\0')) {
        return -1;
    }
    memset(digits, '0', sizeof(digits));
    memcpy(digits, text, n);
    fraction = text[n] == '.' ? strspn(text + n + 1, "0123456789") : 0;
    if (text[n] == '.' && (fraction == 0 || fraction > MAX_DIGITS || text[n + 1 + fraction] != '\0')) {
        return -1;
    }
    memcpy(digits + n, text + n + (text[n] == '.'), fraction < FRACTION ? fraction : FRACTION);
    digits[n + FRACTION] = '\0';
    double us = (double)strtoll(digits, NULL, 10) / 1000;
    return us > 0 ? us : -1;
}

/* @return the text after "name=" in a word, or NULL. */
static const char *value_of(const char *word, const char *name)
{
    size_t n = strlen(name);
    return strncmp(word, name, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
}

static int number_field(const char *word, const char *name, int32_t *number)
{
    const char *text = value_of(word, name);
    *number = text != NULL ? (int32_t)whole(text, INT32_MAX) : -1;
    return *number > 0;
}

static int shape_fields(char *const word[MAX_WORDS], struct rondo_tune_shape *s)
{
    const char *machine = value_of(word[1], "machine"), *memory = value_of(word[5], "memory");
    if (machine == NULL || strlen(machine) != 16 || strspn(machine, "0123456789abcdef") != 16 ||
        memory == NULL) {
        return 0;
    }
    s->machine = strtoull(machine, NULL, 16);
    s->gpu = strcmp(memory, "gpu") == 0;
    return (s->gpu || strcmp(memory, "host") == 0) && number_field(word[2], "nodes", &s->nodes) &&
           number_field(word[3], "ranks", &s->ranks) && number_field(word[4], "per_node", &s->per_node) &&
           s->nodes <= s->ranks && s->per_node <= s->ranks;
}

static const char shape_form[] =
    "\"shape machine=<16 hex digits> nodes=N ranks=N per_node=N memory=host|gpu\"";

static rondo_status add_shape(struct reader *r)
{
    struct rondo_tune *tune = r->tune;
    struct rondo_tune_shape shape;
    if (r->nwords != MAX_WORDS || !shape_fields(r->word, &shape)) {
        return bad(r, "invalid shape", shape_form);
    }
    if (tune->nsections == RONDO_TUNE_MAX_SHAPES) {
        return bad(r, "too many shapes", "at most 1024");
    }
    if (tune->nsections == r->nsections) {
        struct rondo_tune_section *more;
        int n = 2 * r->nsections + 1;
        RONDO_TRY(RONDO_NEW_ARRAY(more, n, "the shapes of a tuning file"));
        if (tune->nsections > 0) {
            memcpy(more, tune->section, sizeof(*more) * (size_t)tune->nsections);
        }
        rondo_free(tune->section);
        tune->section = more;
        r->nsections = n;
    }
    r->npoints = 0;
    tune->section[tune->nsections++].shape = shape;
    return RONDO_SUCCESS;
}

static int point_fields(char *const word[MAX_WORDS], struct rondo_measured_point *p)
{
    int coll = rondo_coll_from_name(word[0]), algo = rondo_algo_from_name(word[1]),
        proto = rondo_proto_from_name(word[2]);
    int64_t channels = whole(word[3], RONDO_MAX_CHANNELS), bytes = whole(word[4], INT64_MAX / 4);
    const struct rondo_schedule *schedule =
        coll >= 0 && algo >= 0 ? rondo_schedule_find((enum rondo_coll)coll, (enum rondo_algo)algo) : NULL;
    if (schedule == NULL || proto < 0 || (schedule->protos >> proto & 1) == 0 || schedule->coll != coll ||
        channels < 1 || bytes < 1) {
        return 0;
    }
    p->coll = (uint8_t)coll;
    p->algo = (uint8_t)algo;
    p->proto = (uint8_t)proto;
    p->nchannels = (uint8_t)channels;
    p->bytes = (uint64_t)bytes;
    p->us = decimal(word[5]);
    return p->us > 0;
}

static rondo_status add_point(struct reader *r)
{
    struct rondo_measured_point point = { .line = (uint32_t)r->line };
    struct rondo_measured *m;
    if (r->tune->nsections == 0) {
        return bad(r, "a measurement before the first shape", shape_form);
    }
    if (r->nwords != MAX_WORDS || !point_fields(r->word, &point)) {
        return bad(r, "invalid measurement",
                   "\"collective algorithm protocol channels bytes microseconds\" of an existing schedule");
    }
    m = &r->tune->section[r->tune->nsections - 1].measured;
    if (m->npoints == r->npoints) {
        struct rondo_measured_point *more;
        int n = 2 * r->npoints + 64;
        RONDO_TRY(RONDO_NEW_ARRAY(more, n, "the times of a tuning file"));
        if (m->npoints > 0) {
            memcpy(more, m->point, sizeof(*more) * (size_t)m->npoints);
        }
        rondo_free(m->point);
        m->point = more;
        r->npoints = n;
    }
    m->point[m->npoints++] = point;
    return RONDO_SUCCESS;
}

static rondo_status read_line(struct reader *r, int *seen_head)
{
    if (r->nwords == 0) {
        return RONDO_SUCCESS;
    }
    if (strcmp(r->word[0], "rondo-tune") == 0) {
        *seen_head = 1;
        return r->nwords == 2 && whole(r->word[1], RONDO_TUNE_VERSION) == RONDO_TUNE_VERSION
                   ? RONDO_SUCCESS
                   : bad(r, "unknown version of the format", "\"rondo-tune 1\"");
    }
    if (!*seen_head) {
        return bad(r, "this is not a tuning file", "\"rondo-tune 1\" first");
    }
    return strcmp(r->word[0], "shape") == 0 ? add_shape(r) : add_point(r);
}

static rondo_status read_all(struct reader *r)
{
    int seen_head = 0, more;
    while ((more = next_line(r)) != 0) {
        if (more < 0) {
            return bad(r, "line too long", "at most six words and 255 characters");
        }
        RONDO_TRY(read_line(r, &seen_head));
    }
    if (r->tune->nsections == 0) {
        return bad(r, "the file ends without a shape", shape_form);
    }
    for (int i = 0; i < r->tune->nsections; i++) {
        const struct rondo_measured_point *twice = rondo_measured_sort(&r->tune->section[i].measured);
        if (twice != NULL) {
            r->line = (int)twice->line;
            return bad(r, "the same size of the same choice is measured twice for one shape",
                       "one line for each");
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_tune_parse(struct rondo_tune **tune, const char *text, size_t n, const char *file)
{
    struct reader r = { .file = file, .at = text, .end = text + n };
    rondo_status status;
    *tune = NULL;
    RONDO_TRY(RONDO_NEW(r.tune, "a tuning file"));
    r.tune->hash = rondo_hash(text, n, RONDO_TUNE_VERSION);
    status = read_all(&r);
    if (status != RONDO_SUCCESS) {
        rondo_tune_free(r.tune);
        return status;
    }
    *tune = r.tune;
    return RONDO_SUCCESS;
}

static rondo_status cannot_read(const char *name)
{
    return rondo_fail(RONDO_INVALID_ARGUMENT, "the tuning file %s cannot be read: %m; correct or unset it",
                      name);
}

static rondo_status read_stream(struct rondo_tune **tune, FILE *in, size_t bytes, const char *name)
{
    char *text;
    rondo_status status;
    RONDO_TRY(rondo_calloc(&text, 1, bytes, "a tuning file"));
    bytes = fread(text, 1, bytes, in);
    status = ferror(in) ? cannot_read(name) : rondo_tune_parse(tune, text, bytes, name);
    rondo_free(text);
    return status;
}

rondo_status rondo_tune_read(struct rondo_tune **tune, const char *file)
{
    char label[RONDO_FILE_LABEL];
    const char *name = rondo_param_file_label(file, label);
    FILE *in = fopen(file, "re");
    struct stat st;
    rondo_status status;
    *tune = NULL;
    if (in == NULL) {
        return cannot_read(name);
    }
    if (fstat(fileno(in), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > RONDO_TUNE_MAX_BYTES) {
        status = rondo_fail(RONDO_INVALID_ARGUMENT,
                            "the tuning file %s is no file of at most %d bytes; correct or unset it", name,
                            RONDO_TUNE_MAX_BYTES);
    } else {
        status = read_stream(tune, in, (size_t)st.st_size, name);
    }
    fclose(in);
    return status;
}

void rondo_tune_free(struct rondo_tune *tune)
{
    for (int i = 0; tune != NULL && i < tune->nsections; i++) {
        rondo_free(tune->section[i].measured.point);
    }
    if (tune != NULL) {
        rondo_free(tune->section);
    }
    rondo_free(tune);
}

/* ---- writing ---- */

rondo_status rondo_tune_write(FILE *out, const struct rondo_tune_section *section, int head)
{
    const struct rondo_tune_shape *s = &section->shape;
    if (head) {
        fprintf(out, "rondo-tune %d\n", RONDO_TUNE_VERSION);
    }
    fprintf(out, "shape machine=%016llx nodes=%d ranks=%d per_node=%d memory=%s\n",
            (unsigned long long)s->machine, s->nodes, s->ranks, s->per_node, s->gpu ? "gpu" : "host");
    for (int i = 0; i < section->measured.npoints; i++) {
        const struct rondo_measured_point *p = &section->measured.point[i];
        long long ns = (long long)(p->us * 1000 + 0.5);
        fprintf(out, "%s %s %s %d %llu %lld.%03lld\n", rondo_coll_name((enum rondo_coll)p->coll),
                rondo_algo_name((enum rondo_algo)p->algo), rondo_proto_name((enum rondo_proto)p->proto),
                p->nchannels, (unsigned long long)p->bytes, ns / 1000, ns % 1000);
    }
    return ferror(out) ? rondo_fail(RONDO_SYSTEM_ERROR, "the tuning file could not be written: %m")
                       : RONDO_SUCCESS;
}
