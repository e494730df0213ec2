/* Calls that are alike, counted (trace.h). */
#include <string.h>

#include "prof/trace/trace.h"

static int same(const struct trace_what *a, const struct trace_what *b)
{
    return a->bytes == b->bytes && strcmp(a->func, b->func) == 0 && strcmp(a->datatype, b->datatype) == 0 &&
           strcmp(a->algo, b->algo) == 0 && strcmp(a->proto, b->proto) == 0;
}

static int bucket_of(uint64_t ns)
{
    int bit = ns > 0 ? 63 - __builtin_clzll(ns) : 0;
    return bit < TRACE_BUCKETS ? bit : TRACE_BUCKETS - 1;
}

void trace_summary_add(struct trace_context *c, const struct trace_what *what, uint64_t ns)
{
    struct trace_row *row = NULL;
    for (int i = 0; i < c->nrows && row == NULL; i++) {
        row = same(&c->row[i].what, what) ? &c->row[i] : NULL;
    }
    if (row == NULL && c->nrows < TRACE_ROWS) {
        row = &c->row[c->nrows++];
        row->what = *what;
        row->least = UINT64_MAX;
    }
    if (row == NULL) {
        c->rows_lost++;
        return;
    }
    row->count++;
    row->total += ns;
    row->least = ns < row->least ? ns : row->least;
    row->most = ns > row->most ? ns : row->most;
    row->bucket[bucket_of(ns)]++;
}

double trace_quantile(const struct trace_row *row, double q)
{
    uint64_t wanted = (uint64_t)(q * (double)row->count), seen = 0;
    for (int i = 0; i < TRACE_BUCKETS; i++) {
        seen += row->bucket[i];
        if (seen > wanted || seen == row->count) {
            double middle = 1.5 * (double)(1ull << i);
            return middle < (double)row->least  ? (double)row->least
                   : middle > (double)row->most ? (double)row->most
                                                : middle;
        }
    }
    return 0;
}

/* With counts per rank, too: AllGatherV. */
static int is_of(const char *func, const char *name)
{
    size_t n = strlen(name);
    return strncmp(func, name, n) == 0 && (func[n] == '\0' || strcmp(func + n, "V") == 0);
}

double trace_bus_factor(const char *func, int nranks)
{
    double n = nranks;
    if (is_of(func, "AllReduce")) {
        return 2 * (n - 1) / n;
    }
    /* Of GatherV and ScatterV a rank that is not the root may know its own part alone. */
    return is_of(func, "AllGather") || is_of(func, "ReduceScatter") || is_of(func, "AlltoAll") ||
                   strcmp(func, "Gather") == 0 || strcmp(func, "Scatter") == 0
               ? (n - 1) / n
               : 1;
}
