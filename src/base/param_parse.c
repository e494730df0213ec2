#include "base/param.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name;
    int64_t factor;
};

/* Parse a decimal number without blanks or plus sign. @return the text after it, or NULL. */
static const char *number(const char *text, int64_t *value)
{
    char *end;
    long long parsed;
    if (!text || !isdigit((unsigned char)text[*text == '-'])) {
        return NULL;
    }
    errno = 0;
    parsed = strtoll(text, &end, 10);
    if (errno != 0) {
        return NULL;
    }
    *value = parsed;
    return end;
}

/* Parse a number, alone or followed by a unit. */
static int number_with_unit(const char *text, int64_t plain, const struct unit *units, size_t nunits,
                            int64_t *value)
{
    int saved = errno;
    int64_t parsed, factor = 0;
    const char *rest = number(text, &parsed);
    errno = saved;
    if (!rest) {
        return -1;
    }
    if (*rest == '\0') {
        factor = plain;
    }
    for (size_t i = 0; i < nunits && factor == 0; i++) {
        factor = strcasecmp(rest, units[i].name) == 0 ? units[i].factor : 0;
    }
    if (factor == 0 || __builtin_mul_overflow(parsed, factor, &parsed)) {
        return -1;
    }
    *value = parsed;
    return 0;
}

int rondo_parse_int(const char *text, int64_t *value) { return number_with_unit(text, 1, NULL, 0, value); }

int rondo_parse_size(const char *text, int64_t *bytes)
{
    static const struct unit units[] = { { "K", 1 << 10 }, { "M", 1 << 20 }, { "G", 1 << 30 } };
    int64_t parsed;
    if (number_with_unit(text, 1, units, RONDO_COUNTOF(units), &parsed) != 0 || parsed < 0) {
        return -1;
    }
    *bytes = parsed;
    return 0;
}

int rondo_parse_time(const char *text, int64_t *ns)
{
    static const struct unit units[] = {
        { "ns", 1 }, { "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 }, { "m", 60000000000 }
    };
    int64_t parsed;
    if (number_with_unit(text, 1000000000, units, RONDO_COUNTOF(units), &parsed) != 0 || parsed < 0) {
        return -1;
    }
    *ns = parsed;
    return 0;
}

int rondo_parse_bool(const char *text, int *value)
{
    static const char *const words[2][4] = { { "0", "no", "false", "off" }, { "1", "yes", "true", "on" } };
    for (int truth = 0; truth < 2; truth++) {
        for (size_t i = 0; text && i < RONDO_COUNTOF(words[0]); i++) {
            if (strcasecmp(text, words[truth][i]) == 0) {
                *value = truth;
                return 0;
            }
        }
    }
    return -1;
}
