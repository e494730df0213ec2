/* The profiler plugin "rondo" (prof/trace), called as NCCL calls it: other processes' operations, sizes of
 * types, a locale with a decimal comma, wrong settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prof/prof_abi.h"

extern const struct rondo_prof_plugin_table ncclProfiler_v5;

static char dir[] = "/tmp/unit_trace.XXXXXX";

static void *context_new(void)
{
    void *context = NULL;
    int mask = 0;
    assert_int_equal(ncclProfiler_v5.init.v5(&context, 0xabc, &mask, "world", 1, 2, 0, NULL), 0);
    assert_int_equal(mask & RONDO_PROF_PROXY_STEP, RONDO_PROF_PROXY_STEP);
    return context;
}

static void *event(void *context, const struct rondo_prof_descr_v4 *d)
{
    struct rondo_prof_descr_v4 copy = *d;
    void *handle = &handle;
    assert_int_equal(ncclProfiler_v5.start(context, &handle, &copy), 0);
    return handle;
}

static void *call_of(void *context, const char *func, size_t count, const char *type)
{
    return event(
        context,
        &(struct rondo_prof_descr_v4){
            .type = RONDO_PROF_COLL,
            .coll = { .func = func, .count = count, .datatype = type, .algo = "RING", .proto = "SIMPLE" } });
}

static void *call(void *context, const char *type) { return call_of(context, "AllReduce", 3, type); }

/* @return the file's text, which the caller frees. */
static char *file_text(const char *ending)
{
    char path[128], *text = calloc(1, 1 << 16);
    snprintf(path, sizeof path, "%s/t.%016x.0.%s", dir, 0xabc, ending);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    assert_int_equal(unlink(path), 0);
    return text;
}

static void end(void *context) { assert_int_equal(ncclProfiler_v5.finalize(context), 0); }

/* With PXN a proxy thread moves data for another process, whose pointers mean nothing here. */
static void an_operation_of_another_process_is_not_followed(void **state)
{
    void *context = context_new(), *own = call(context, "ncclFloat32");
    struct rondo_prof_descr_v4 op = { .type = RONDO_PROF_PROXY_OP,
                                      .parent = (void *)16,
                                      .proxy_op = { .pid = getpid() + 1, .peer = 1, .nsteps = 1 } };
    (void)state;
    assert_null(event((void *)16, &op));
    assert_null(event(context, &(struct rondo_prof_descr_v4){ .type = RONDO_PROF_PROXY_STEP }));
    assert_int_equal(ncclProfiler_v5.state(NULL, RONDO_PROF_STEP_SEND_WAIT, NULL), 0);
    assert_int_equal(ncclProfiler_v5.stop(NULL), 0);
    op.parent = own;
    op.proxy_op.pid = getpid();
    void *mine = event(context, &op);
    assert_non_null(mine);
    void *step = event(context,
                       &(struct rondo_prof_descr_v4){ .type = RONDO_PROF_PROXY_STEP, .parent = mine });
    assert_non_null(step);
    ncclProfiler_v5.stop(step);
    ncclProfiler_v5.stop(mine);
    ncclProfiler_v5.stop(own);
    end(context);
    char *text = file_text("json");
    assert_non_null(strstr(text, "\"cat\":\"conn\""));
    assert_non_null(strstr(text, "\"cat\":\"step\""));
    free(text);
    free(file_text("jsonl"));
    free(file_text("prom"));
}

static void bytes_are_those_of_the_type(void **state)
{
    static const struct {
        const char *type;
        size_t bytes;
    } known[] = { { "ncclFloat64", 8 },
                  { "ncclBfloat16", 2 },
                  { "ncclInt8", 1 },
                  { "short_int", 8 },
                  { "ld_int", 2 * sizeof(long double) },
                  { "double_int", 16 },
                  { "cld", 32 },
                  { "b16", 2 } };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        void *context = context_new();
        char expected[64];
        ncclProfiler_v5.stop(call(context, known[i].type));
        end(context);
        snprintf(expected, sizeof expected, "\"type\":\"%s\",\"bytes\":%zu,", known[i].type,
                 3 * known[i].bytes);
        char *text = file_text("jsonl");
        assert_non_null(strstr(text, expected));
        free(text);
        free(file_text("json"));
        free(file_text("prom"));
    }
}

/* @return the first number of the file, as it is written, from after `name` on. */
static const char *number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    assert_non_null(at);
    return at + strlen(name);
}

/* On 2 ranks: (n - 1) / n, with counts per rank, too, where all ranks know them. */
static void bandwidths_are_those_of_nccl_tests(void **state)
{
    static const struct {
        const char *func;
        double factor;
    } known[] = { { "AllReduce", 1 },    { "Broadcast", 1 },        { "AllGather", 0.5 },
                  { "AllGatherV", 0.5 }, { "ReduceScatterV", 0.5 }, { "AlltoAllV", 0.5 },
                  { "GatherV", 1 },      { "ScatterV", 1 },         { "Send", 1 } };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        void *context = context_new();
        ncclProfiler_v5.stop(call_of(context, known[i].func, 1 << 26, "ncclFloat32"));
        end(context);
        char *text = file_text("jsonl");
        double algbw = strtod(number_after(text, "\"algbw_GBs\":"), NULL);
        double ratio = strtod(number_after(text, "\"busbw_GBs\":"), NULL) / algbw;
        assert_true(algbw > 0 && ratio > 0.99 * known[i].factor && ratio < 1.01 * known[i].factor);
        free(text);
        free(file_text("json"));
        free(file_text("prom"));
    }
}

static void numbers_have_a_point_in_every_locale(void **state)
{
    char command[200], shown[8];
    (void)state;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", dir);
    if (system(command) != 0 || setenv("LOCPATH", dir, 1) != 0 || setlocale(LC_ALL, "de_DE.UTF-8") == NULL) {
        print_message("no locale with a decimal comma can be made (localedef, the package locales)\n");
        skip();
    }
    void *context = context_new();
    ncclProfiler_v5.stop(call(context, "ncclFloat32"));
    end(context);
    snprintf(shown, sizeof shown, "%.1f", 0.5);
    setlocale(LC_ALL, "C");
    assert_string_equal(shown, "0,5"); /* the thread has its locale again */
    char *json = file_text("json"), *lines = file_text("jsonl"), *prom = file_text("prom");
    assert_int_equal(number_after(json, "\"dur\":")[strspn(number_after(json, "\"dur\":"), "0123456789")],
                     '.');
    assert_int_equal(
        number_after(lines, "\"mean_us\":")[strspn(number_after(lines, "\"mean_us\":"), "0123456789")], '.');
    assert_null(strstr(prom, "le=\"0,"));
    free(json);
    free(lines);
    free(prom);
}

/* @return what the plugin says with this setting, in a process of its own; the caller frees it. */
static char *said(const char *name, const char *value)
{
    char *text = calloc(1, 4096);
    size_t used = 0;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        void *context;
        int mask;
        setenv(name, value, 1);
        dup2(pipes[1], STDERR_FILENO);
        _exit(ncclProfiler_v5.init.v5(&context, 0xabc, &mask, "world", 1, 2, 0, NULL));
    }
    close(pipes[1]);
    for (ssize_t n; (n = read(pipes[0], text + used, 4095 - used)) > 0;) {
        used += (size_t)n;
    }
    close(pipes[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return text;
}

/* It is the first: settings are read once in a process. */
static void wrong_settings_are_named(void **state)
{
    static const char *const wrong[][2] = { { "RONDO_TRACE_LEVEL", "step" },
                                            { "RONDO_TRACE_MAX", "1e6" },
                                            { "RONDO_TRACE_MAX", "-1" },
                                            { "RONDO_TRACE_FILE", NULL } };
    static const char *const right[][2] = { { "RONDO_TRACE_LEVEL", "CALLS" }, { "RONDO_TRACE_MAX", "0" } };
    char longest[300];
    (void)state;
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char *text = said(wrong[i][0], wrong[i][1] != NULL ? wrong[i][1] : longest);
        assert_non_null(strstr(text, wrong[i][0]));
        assert_non_null(strstr(text, "is not allowed"));
        free(text);
    }
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        char *text = said(right[i][0], right[i][1]);
        assert_string_equal(text, "");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_settings_are_named),
        cmocka_unit_test(an_operation_of_another_process_is_not_followed),
        cmocka_unit_test(bytes_are_those_of_the_type),
        cmocka_unit_test(bandwidths_are_those_of_nccl_tests),
        cmocka_unit_test(numbers_have_a_point_in_every_locale),
    };
    char prefix[64], remove[96];
    if (mkdtemp(dir) == NULL) {
        return 1;
    }
    snprintf(prefix, sizeof prefix, "%s/t", dir);
    setenv("RONDO_TRACE_FILE", prefix, 1);
    setenv("RONDO_TRACE_LEVEL", "steps", 1);
    setenv("RONDO_TRACE_SUMMARY", "json,prometheus", 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(remove, sizeof remove, "rm -rf %s", dir);
    return system(remove) != 0 || failed;
}
