/* The JSON file of the *_perf programs. */
#include "perf.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

static FILE *json;
static char json_name[PATH_MAX], json_part[PATH_MAX + 8];

void perf_json_quoted(FILE *file, const char *text)
{
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(file, "\\%c", *c);
        } else if (*c < 0x20 || *c >= 0x7f) {
            fprintf(file, "\\u%04x", *c); /* reading other bytes as Latin-1 is always valid */
        } else {
            fputc(*c, file);
        }
    }
    fputc('"', file);
}

void perf_json_text(const char *fmt, ...)
{
    va_list args;
    if (json != NULL) {
        va_start(args, fmt);
        vfprintf(json, fmt, args);
        va_end(args);
    }
}

void perf_json_number(const char *name, double value, int known)
{
    if (known && isfinite(value)) {
        perf_json_text(",\"%s\":%.9g", name, value);
    } else {
        perf_json_text(",\"%s\":null", name);
    }
}

static void placement(double one_way)
{
    if (one_way < 0) {
        perf_json_text("null");
    } else {
        perf_json_text("{\"one_way_us\":%.4f,\"cores\":\"%s\"}", one_way, perf_probe_name(one_way));
    }
}

void perf_json_placements(double at_start, double at_end)
{
    perf_json_text("\"placement\":{\"start\":");
    placement(at_start);
    perf_json_text(",\"end\":");
    placement(at_end);
    perf_json_text("}");
}

int perf_json_begin(const char *program, const char *name)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING], host[MPI_MAX_PROCESSOR_NAME];
    int len, version = 0;
    /* Rename the file when it is complete, so that readers always see valid JSON. */
    snprintf(json_part, sizeof(json_part), "%s.part", name);
    snprintf(json_name, sizeof(json_name), "%s", name);
    json = fopen(json_part, "w");
    if (json == NULL) {
        fprintf(stderr, "%s: cannot write %s: %s\n", program, json_part, strerror(errno));
        return 0;
    }
    MPI_Get_library_version(mpi, &len);
    MPI_Get_processor_name(host, &len);
    rondo_get_version(&version);
    fprintf(json, "{\"config\":{\"program\":");
    perf_json_quoted(json, program);
    fprintf(json, ",\"host\":");
    perf_json_quoted(json, host);
    fprintf(json, ",\"mpi\":");
    perf_json_quoted(json, mpi);
    fprintf(json, ",\"rondo_version\":%d,\"ranks\":%d", version, test.nranks);
    return 1;
}

int perf_json_end(void)
{
    int failed;
    if (json == NULL) {
        return 1;
    }
    failed = ferror(json);
    failed |= fclose(json) != 0;
    json = NULL;
    return !failed && rename(json_part, json_name) == 0;
}
