/* base/status.h and base/names.c: error sentences, and the names generated from the tables. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/log.h"
#include "base/status.h"

static void fail_stores_the_sentence_and_keeps_status_and_errno(void **state)
{
    (void)state;
    errno = ENOSPC;
    assert_int_equal(rondo_fail_quiet(RONDO_SYSTEM_ERROR, "rank %d: %m", 3), RONDO_SYSTEM_ERROR);
    assert_int_equal(errno, ENOSPC);
    assert_string_equal(rondo_error_text(), "rank 3: No space left on device");
    rondo_error_clear();
    assert_string_equal(rondo_error_text(), "");
}

static void a_sentence_may_quote_the_previous_one(void **state)
{
    (void)state;
    rondo_fail_quiet(RONDO_INTERNAL_ERROR, "inner");
    rondo_fail_quiet(RONDO_INTERNAL_ERROR, "outer: %s", rondo_error_text());
    assert_string_equal(rondo_error_text(), "outer: inner");
}

static void a_long_sentence_is_cut(void **state)
{
    char text[4 * RONDO_ERROR_TEXT];
    (void)state;
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    rondo_fail_quiet(RONDO_INTERNAL_ERROR, "%s", text);
    assert_int_equal(strlen(rondo_error_text()), RONDO_ERROR_TEXT - 1);
    assert_string_equal(rondo_error_text() + RONDO_ERROR_TEXT - 5, "x...");
}

static void *other_thread(void *text)
{
    snprintf(text, 32, "%s", rondo_error_text());
    rondo_fail_quiet(RONDO_TIMEOUT, "theirs");
    return NULL;
}

static void each_thread_has_its_own_sentence(void **state)
{
    pthread_t thread;
    char seen[32];
    (void)state;
    rondo_fail_quiet(RONDO_TIMEOUT, "mine");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, seen), 0);
    pthread_join(thread, NULL);
    assert_string_equal(seen, "");
    assert_string_equal(rondo_error_text(), "mine");
}

/* Capture what the call writes to stderr. */
static void stderr_of(rondo_status (*call)(void), char *text, size_t size)
{
    int pipes[2], saved = dup(STDERR_FILENO);
    ssize_t got;
    assert_int_equal(pipe(pipes), 0);
    dup2(pipes[1], STDERR_FILENO);
    close(pipes[1]);
    call();
    dup2(saved, STDERR_FILENO);
    close(saved);
    got = read(pipes[0], text, size - 1);
    close(pipes[0]);
    text[got > 0 ? got : 0] = '\0';
}

static rondo_status fail_aloud(void) { return rondo_fail(RONDO_REMOTE_ERROR, "rank 2 is gone"); }
static rondo_status fail_quietly(void) { return rondo_fail_quiet(RONDO_REMOTE_ERROR, "rank 2 is gone"); }

static void fail_logs_once_and_fail_quiet_does_not_log(void **state)
{
    char text[512];
    (void)state;
    rondo_log_set_rank(5);
    stderr_of(fail_aloud, text, sizeof text);
    assert_non_null(strstr(text, " [5] RONDO WARN rank 2 is gone\n"));
    stderr_of(fail_quietly, text, sizeof text);
    assert_string_equal(text, "");
    rondo_log_set_rank(-1);
}

static int unwound;
static rondo_status try_both(rondo_status given)
{
    rondo_status status;
    RONDO_TRY(RONDO_SUCCESS);
    RONDO_TRY_GOTO(given, fail);
    return RONDO_SUCCESS;
fail:
    unwound++;
    return status;
}

static void try_passes_the_status_up(void **state)
{
    (void)state;
    assert_int_equal(try_both(RONDO_SUCCESS), RONDO_SUCCESS);
    assert_int_equal(unwound, 0);
    assert_int_equal(try_both(RONDO_TIMEOUT), RONDO_TIMEOUT);
    assert_int_equal(unwound, 1);
}

static void every_status_has_a_text(void **state)
{
    (void)state;
    for (int i = 0; i < RONDO_NUM_STATUSES; i++) {
        assert_string_not_equal(rondo_status_string((rondo_status)i), "unknown status");
    }
    assert_string_equal(rondo_status_string((rondo_status)-1), "unknown status");
    assert_string_equal(rondo_status_string(RONDO_NUM_STATUSES), "unknown status");
    assert_string_equal(rondo_status_string((rondo_status)0x7fffffff), "unknown status");
}

static void upper(char *to, const char *from)
{
    while ((*to++ = (char)(*from >= 'a' && *from <= 'z' ? *from - 32 : *from))) {
        from++;
    }
}

static void names_and_numbers_map_both_ways(void **state)
{
    char text[32];
    (void)state;
    for (int i = 0; i < RONDO_NUM_DTYPES; i++) {
        upper(text, rondo_dtype_name((rondo_dtype)i));
        assert_int_equal(rondo_dtype_from_name(text), i);
    }
    for (int i = 0; i < RONDO_NUM_OPS; i++) {
        upper(text, rondo_op_name((rondo_op)i));
        assert_int_equal(rondo_op_from_name(text), i);
    }
    for (int i = 0; i < RONDO_NUM_PROTOS; i++) {
        upper(text, rondo_proto_name((enum rondo_proto)i));
        assert_int_equal(rondo_proto_from_name(text), i);
    }
    assert_string_equal(rondo_dtype_name(RONDO_FLOAT8E4M3), "f8e4m3");
    assert_string_equal(rondo_op_name(RONDO_AVG), "avg");
    assert_string_equal(rondo_proto_name(RONDO_PROTO_LL128), "ll128");
}

static void unknown_names_and_numbers_are_rejected(void **state)
{
    static const char *const bad[] = { "", "f3", "f322", "summ", "ll12", " ll", NULL };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
        assert_int_equal(rondo_dtype_from_name(bad[i]), -1);
        assert_int_equal(rondo_op_from_name(bad[i]), -1);
        assert_int_equal(rondo_proto_from_name(bad[i]), -1);
    }
    assert_null(rondo_dtype_name((rondo_dtype)-1));
    assert_null(rondo_dtype_name(RONDO_NUM_DTYPES));
    assert_null(rondo_op_name(RONDO_NUM_OPS));
    assert_null(rondo_op_name((rondo_op)-1));
    assert_null(rondo_proto_name(RONDO_NUM_PROTOS));
    assert_int_equal(rondo_dtype_size((rondo_dtype)-1), 0);
    assert_int_equal(rondo_dtype_size(RONDO_NUM_DTYPES), 0);
}

static void dtype_sizes_match_the_c_types(void **state)
{
    static const size_t bytes[RONDO_NUM_DTYPES] = {
        [RONDO_INT8] = 1,
        [RONDO_UINT8] = 1,
        [RONDO_INT32] = 4,
        [RONDO_UINT32] = 4,
        [RONDO_INT64] = 8,
        [RONDO_UINT64] = 8,
        [RONDO_FLOAT16] = 2,
        [RONDO_FLOAT32] = 4,
        [RONDO_FLOAT64] = 8,
        [RONDO_BFLOAT16] = 2,
        [RONDO_FLOAT8E4M3] = 1,
        [RONDO_FLOAT8E5M2] = 1,
        [RONDO_INT16] = 2,
        [RONDO_UINT16] = 2,
        [RONDO_BOOL8] = sizeof(_Bool),
        [RONDO_BOOL16] = 2,
        [RONDO_BOOL32] = 4,
        [RONDO_BOOL64] = 8,
        [RONDO_LONG_DOUBLE] = sizeof(long double),
        [RONDO_COMPLEX_FLOAT32] = sizeof(float _Complex),
        [RONDO_COMPLEX_FLOAT64] = sizeof(double _Complex),
        [RONDO_COMPLEX_LONG_DOUBLE] = sizeof(long double _Complex),
        [RONDO_FLOAT_INT] = 8,
        [RONDO_DOUBLE_INT] = 16,
        [RONDO_LONG_INT] = 2 * sizeof(long),
        [RONDO_INT_INT] = 8,
        [RONDO_SHORT_INT] = 8,
        [RONDO_LONG_DOUBLE_INT] = 2 * sizeof(long double),
        [RONDO_FLOAT_FLOAT] = 8,
        [RONDO_DOUBLE_DOUBLE] = 16,
    };
    (void)state;
    for (int i = 0; i < RONDO_NUM_DTYPES; i++) {
        assert_int_equal(rondo_dtype_size((rondo_dtype)i), bytes[i]);
    }
}

/* As the MPI standard's table of its predefined operations has it. */
static void types_have_the_operations_of_mpi(void **state)
{
    static const struct {
        rondo_dtype first, last;
        const char *ops;
    } rows[] = {
        { RONDO_INT8, RONDO_UINT64, "sum prod max min avg land lor lxor band bor bxor" },
        { RONDO_FLOAT16, RONDO_FLOAT8E5M2, "sum prod max min avg" },
        { RONDO_INT16, RONDO_UINT16, "sum prod max min avg land lor lxor band bor bxor" },
        { RONDO_BOOL8, RONDO_BOOL64, "land lor lxor" },
        { RONDO_LONG_DOUBLE, RONDO_LONG_DOUBLE, "sum prod max min avg" },
        { RONDO_COMPLEX_FLOAT32, RONDO_COMPLEX_LONG_DOUBLE, "sum prod avg" },
        { RONDO_FLOAT_INT, RONDO_DOUBLE_DOUBLE, "minloc maxloc" },
    };
    int types = 0;
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        for (int type = rows[i].first; type <= (int)rows[i].last; type++, types++) {
            for (int op = 0; op < RONDO_NUM_OPS; op++) {
                char text[16], all[80];
                snprintf(text, sizeof(text), " %s ", rondo_op_name((rondo_op)op));
                snprintf(all, sizeof(all), " %s ", rows[i].ops);
                assert_int_equal(rondo_dtype_allows((rondo_dtype)type, (rondo_op)op),
                                 strstr(all, text) != NULL);
            }
        }
    }
    assert_int_equal(types, RONDO_NUM_DTYPES);
    assert_int_equal(rondo_dtype_allows(RONDO_NUM_DTYPES, RONDO_SUM), 0);
    assert_int_equal(rondo_dtype_allows((rondo_dtype)-1, RONDO_SUM), 0);
    assert_int_equal(rondo_dtype_allows(RONDO_INT8, RONDO_NUM_OPS), 0);
    assert_int_equal(rondo_dtype_allows(RONDO_INT8, (rondo_op)-1), 0);
}

static void version_matches_the_header(void **state)
{
    int version = -1;
    (void)state;
    assert_int_equal(rondo_get_version(&version), RONDO_SUCCESS);
    assert_int_equal(version, RONDO_VERSION_CODE);
    assert_int_equal(rondo_get_version(NULL), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_error_text(), "version is NULL"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_stores_the_sentence_and_keeps_status_and_errno),
        cmocka_unit_test(a_sentence_may_quote_the_previous_one),
        cmocka_unit_test(a_long_sentence_is_cut),
        cmocka_unit_test(each_thread_has_its_own_sentence),
        cmocka_unit_test(fail_logs_once_and_fail_quiet_does_not_log),
        cmocka_unit_test(try_passes_the_status_up),
        cmocka_unit_test(every_status_has_a_text),
        cmocka_unit_test(names_and_numbers_map_both_ways),
        cmocka_unit_test(unknown_names_and_numbers_are_rejected),
        cmocka_unit_test(dtype_sizes_match_the_c_types),
        cmocka_unit_test(types_have_the_operations_of_mpi),
        cmocka_unit_test(version_matches_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
