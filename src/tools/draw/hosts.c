/* Lists of host names as resource managers write them: n[001-003,007],login. */
#include "tools/draw/text.h"

#include <ctype.h>
#include <string.h>
#include "base/mem.h"

enum { MOST_DIGITS = 15 };

/* A name, split around the last number before its first dot. */
struct host {
    const char *name;
    size_t prefix, width; /* bytes before the number, digits of the number; width 0: no number */
    int64_t number;
};

static struct host host_split(const char *name)
{
    struct host host = { .name = name, .prefix = strlen(name) };
    size_t end = strcspn(name, ".");
    while (end > 0 && !isdigit((unsigned char)name[end - 1])) end--;
    size_t first = end;
    while (first > 0 && isdigit((unsigned char)name[first - 1])) first--;
    if (first == end || end - first > MOST_DIGITS) return host;
    host.prefix = first;
    host.width = end - first;
    for (size_t i = first; i < end; i++) host.number = host.number * 10 + (name[i] - '0');
    return host;
}

static const char *suffix_of(const struct host *host) { return host->name + host->prefix + host->width; }

/* Order by prefix, suffix, number and digits. */
static int host_compare(const void *left, const void *right)
{
    const struct host *a = left, *b = right;
    size_t n = a->prefix < b->prefix ? a->prefix : b->prefix;
    int order = memcmp(a->name, b->name, n);
    if (order == 0 && a->prefix != b->prefix) order = a->prefix < b->prefix ? -1 : 1;
    if (order == 0) order = strcmp(suffix_of(a), suffix_of(b));
    if (order == 0 && a->number != b->number) order = a->number < b->number ? -1 : 1;
    if (order == 0 && a->width != b->width) order = a->width < b->width ? -1 : 1;
    return order;
}

static int same_words(const struct host *a, const struct host *b)
{
    return a->width > 0 && b->width > 0 && a->prefix == b->prefix &&
           memcmp(a->name, b->name, a->prefix) == 0 && strcmp(suffix_of(a), suffix_of(b)) == 0;
}

/* @return 1 if b is a's number plus one, written with as many leading zeros as `first`. */
static int follows(const struct host *first, const struct host *a, const struct host *b)
{
    char text[32];
    snprintf(text, sizeof text, "%0*lld", (int)first->width, (long long)b->number);
    return same_words(a, b) && b->number == a->number + 1 && strlen(text) == b->width;
}

static size_t drop_doubles(struct host *host, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || host_compare(&host[kept - 1], &host[i]) != 0) host[kept++] = host[i];
    }
    return kept;
}

static void group_put(FILE *out, const struct host *host, size_t n)
{
    const struct host *h = &host[0];
    int brackets = n > 1;
    fprintf(out, "%.*s%s", (int)h->prefix, h->name, brackets ? "[" : "");
    for (size_t i = 0; i < n;) {
        size_t end = i + 1;
        while (end < n && follows(&host[i], &host[end - 1], &host[end])) end++;
        fprintf(out, "%s%.*s", i ? "," : "", (int)host[i].width, host[i].name + host[i].prefix);
        if (end - i > 1)
            fprintf(out, "-%.*s", (int)host[end - 1].width, host[end - 1].name + host[end - 1].prefix);
        i = end;
    }
    fprintf(out, "%s%s", brackets ? "]" : "", suffix_of(h));
}

rondo_status rondo_draw_hosts(FILE *out, const char *const *names, int n)
{
    struct host *host = NULL;
    RONDO_TRY(RONDO_NEW_ARRAY(host, n, "names of hosts"));
    for (int i = 0; i < n; i++) host[i] = host_split(names[i]);
    qsort(host, (size_t)n, sizeof *host, host_compare);
    size_t kept = drop_doubles(host, (size_t)n);
    for (size_t i = 0; i < kept;) {
        size_t end = i + 1;
        while (end < kept && same_words(&host[i], &host[end])) end++;
        fputs(i ? "," : "", out);
        group_put(out, &host[i], end - i);
        i = end;
    }
    rondo_free(host);
    return RONDO_SUCCESS;
}
