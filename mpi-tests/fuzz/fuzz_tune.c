/* Fuzz tuning files. Those that are accepted stay the same when they are written and read again, and their
 * times are valid. */
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "tuner/tune_file.h"

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static char *written(const struct rondo_tune *tune, size_t *n)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, n);
    require(out != NULL);
    for (int i = 0; i < tune->nsections; i++) {
        require(rondo_tune_write(out, &tune->section[i], i == 0) == RONDO_SUCCESS);
    }
    require(fclose(out) == 0);
    return text;
}

static void look_up(const struct rondo_measured *m)
{
    for (int i = 0; i < m->npoints; i++) {
        const struct rondo_measured_point *p = &m->point[i];
        for (uint64_t bytes = p->bytes / 2 + 1; bytes <= p->bytes * 2; bytes += p->bytes / 2 + 1) {
            require(rondo_measured_us(m, (enum rondo_coll)p->coll, (enum rondo_algo)p->algo,
                                      (enum rondo_proto)p->proto, p->nchannels, (size_t)bytes) > 0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rondo_tune *tune, *again;
    size_t n, m;
    rondo_log_mask = RONDO_LOG_NONE;
    if (rondo_tune_parse(&tune, (const char *)data, bytes, "fuzz") != RONDO_SUCCESS) {
        require(tune == NULL);
        return 0;
    }
    char *text = written(tune, &n);
    require(rondo_tune_parse(&again, text, n, "written") == RONDO_SUCCESS &&
            again->nsections == tune->nsections);
    char *second = written(again, &m);
    require(n == m && memcmp(text, second, n) == 0);
    for (int i = 0; i < tune->nsections; i++) {
        look_up(&tune->section[i].measured);
    }
    free(text);
    free(second);
    rondo_tune_free(tune);
    rondo_tune_free(again);
    return 0;
}
