/* base/param.h: sources and their order, strict values, and the errors and warnings about invalid ones. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/log.h"
#include "base/param.h"
#include "own_mounts.h"

static char home[] = "/tmp/unit_param.XXXXXX";
static char conf[64], log_file[64];

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

static void write_conf(const char *text) { write_file(conf, text, strlen(text)); }

/* The log since the last reset(). */
static const char *logged(void)
{
    static char text[65536];
    FILE *file = fopen(log_file, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) {
        fclose(file);
    }
    text[n] = '\0';
    return text;
}

/* No variable, no file, an empty log. */
static int reset(void **state)
{
    (void)state;
    clearenv();
    setenv("HOME", home, 1);
    setenv("RONDO_DEBUG_FILE", log_file, 1);
    unlink(conf);
    if (access(log_file, F_OK) == 0) {
        write_file(log_file, "", 0);
    }
    return 0;
}

static struct rondo_param_info info_of(enum rondo_param_id id)
{
    struct rondo_param_info info;
    rondo_param_get_info(id, &info);
    return info;
}

static void *params_from_thread(void *arg)
{
    (void)arg;
    rondo_param_init();
    return (void *)(uintptr_t)rondo_params()->pair_size;
}

/* This test must run first: only it sees the first read. */
static void threads_may_race_for_the_first_read(void **state)
{
    pthread_t threads[8];
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, params_from_thread, NULL), 0);
    }
    for (size_t i = 0; i < RONDO_COUNTOF(threads); i++) {
        void *seen;
        pthread_join(threads[i], &seen);
        assert_int_equal((uintptr_t)seen, 128 << 10);
    }
}

static void every_default_is_allowed(void **state)
{
    char variable[64];
    (void)state;
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        struct rondo_param_info info = info_of((enum rondo_param_id)id);
        snprintf(variable, sizeof variable, "RONDO_%s", info.name);
        if (id != RONDO_PARAM_debug_file) {
            setenv(variable, info.def, 1);
        }
    }
    if (rondo_param_reload() != RONDO_SUCCESS) {
        fail_msg("%s", rondo_error_text());
    }
    assert_int_equal(rondo_params()->timeout, 0);
    assert_int_equal(rondo_params()->init_timeout, 60000000000);
    assert_int_equal(rondo_params()->spin, -1);
    assert_int_equal(rondo_params()->debug, RONDO_LOG_WARN);
    assert_string_equal(logged(), "");
}

static void an_error_names_variable_origin_value_and_what_is_allowed(void **state)
{
    (void)state;
    setenv("RONDO_TIMEOUT", "soon", 1);
    assert_int_equal(rondo_param_reload(), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_error_text(), "RONDO_TIMEOUT=\"soon\" (environment, host "));
    assert_non_null(strstr(rondo_error_text(), "a time in 0..1000000s, such as 500ms"));
    assert_non_null(strstr(logged(), rondo_error_text()));

    write_conf("\nRONDO_SHM_MODE = pigeon\n");
    unsetenv("RONDO_TIMEOUT");
    assert_int_equal(rondo_param_reload(), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_error_text(), "RONDO_SHM_MODE=\"pigeon\" (~/.rondo.conf:2, host "));
    assert_non_null(strstr(rondo_error_text(), "one of auto,memfd,socket,file"));
    rondo_error_clear();
    assert_int_equal(rondo_param_init(), RONDO_INVALID_ARGUMENT); /* on every call */
    assert_non_null(strstr(rondo_error_text(), "pigeon"));
    assert_int_equal(rondo_params()->shm_mode, 0);
    assert_string_equal(info_of(RONDO_PARAM_shm_mode).origin, "default");
}

/* Only texts accept these, and ranges from -1 on accept the -1. */
static void invalid_values_are_errors_and_keep_the_default(void **state)
{
    static const char *const hostile[] = { "-1",
                                           "-9223372036854775809",
                                           "9223372036854775808",
                                           "18446744073709551616",
                                           "99999999999999999999G",
                                           "nan",
                                           "inf",
                                           "1e3",
                                           " 1",
                                           "1 ",
                                           "+1",
                                           "0x10",
                                           "1,5",
                                           "1.5",
                                           "K",
                                           "1KB",
                                           "--1",
                                           "-",
                                           "1\n",
                                           "\xff\xfe",
                                           "%s%n%s%n",
                                           "9000000000G" };
    size_t huge = 1 << 20;
    char variable[64], *long_text = malloc(huge + 1);
    (void)state;
    memset(long_text, '1', huge);
    long_text[huge] = '\0';
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        struct rondo_param_info info = info_of((enum rondo_param_id)id);
        int is_text = strcmp(info.type, "LIST") == 0;
        if (id == RONDO_PARAM_debug_file) { /* where this test's log goes */
            continue;
        }
        snprintf(variable, sizeof variable, "RONDO_%s", info.name);
        for (size_t i = 0; i <= RONDO_COUNTOF(hostile); i++) {
            const char *value = i < RONDO_COUNTOF(hostile) ? hostile[i] : long_text;
            int fine = value != long_text && (is_text || (strncmp(info.range, "-1..", 4) == 0 && i == 0));
            setenv(variable, value, 1);
            if (rondo_param_reload() != (fine ? RONDO_SUCCESS : RONDO_INVALID_ARGUMENT)) {
                fail_msg("%s=%.40s", variable, value);
            }
            if (!fine) {
                assert_non_null(strstr(rondo_error_text(), variable));
                assert_non_null(strstr(rondo_error_text(), "it must be"));
                assert_string_equal(info_of((enum rondo_param_id)id).value, info.def);
            }
        }
        unsetenv(variable);
    }
    free(long_text);
}

static void a_number_may_be_auto_only_if_the_table_says_so(void **state)
{
    (void)state;
    setenv("RONDO_STREAM_SIZE", "4M", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_params()->stream_size, 4 << 20);
    setenv("RONDO_STREAM_SIZE", "Auto", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_params()->stream_size, RONDO_PARAM_AUTO);
    setenv("RONDO_STREAM_SIZE", "-1", 1);
    assert_int_equal(rondo_param_reload(), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_error_text(), "a size in 0..1024G, such as 65536, 64K or 1G, or auto"));
    unsetenv("RONDO_STREAM_SIZE");
    setenv("RONDO_COPY_GPU", "auto", 1);
    assert_int_equal(rondo_param_reload(), RONDO_INVALID_ARGUMENT);
    rondo_error_clear();
}

static void auto_depends_on_host_or_gpu_and_an_explicit_value_does_not(void **state)
{
    (void)state;
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_param_buffer_bytes(RONDO_PROTO_SIMPLE, 0), 512 << 10);
    assert_int_equal(rondo_param_buffer_bytes(RONDO_PROTO_SIMPLE, 1), 4 << 20);
    assert_int_equal(rondo_param_buffer_bytes(RONDO_PROTO_LL, 1), 256 << 10);
    assert_int_equal(rondo_param_max_channels(RONDO_PARAM_AUTO, 0), RONDO_PARAM_CHANNELS_HOST);
    assert_int_equal(rondo_param_max_channels(RONDO_PARAM_AUTO, 1), RONDO_MAX_CHANNELS);
    assert_int_equal(rondo_param_max_channels(1, 0), 1);
    setenv("RONDO_BUFFSIZE", "1M", 1);
    setenv("RONDO_MAX_NCHANNELS", "2", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_param_buffer_bytes(RONDO_PROTO_SIMPLE, 0), 1 << 20);
    assert_int_equal(rondo_param_buffer_bytes(RONDO_PROTO_SIMPLE, 1), 1 << 20);
    assert_int_equal(rondo_param_max_channels(RONDO_PARAM_AUTO, 1), 2);
    setenv("RONDO_MIN_NCHANNELS", "4", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_param_max_channels(1, 1), 4);
}

static void a_value_may_have_several_spellings(void **state)
{
    static const struct {
        const char *text;
        int value;
    } cores[] = { { "near", RONDO_PROXY_CORES_NEAR },
                  { "0", RONDO_PROXY_CORES_NEAR },
                  { "any", RONDO_PROXY_CORES_ANY },
                  { "NIC", RONDO_PROXY_CORES_NIC },
                  { "1", RONDO_PROXY_CORES_NIC } };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(cores); i++) {
        setenv("RONDO_PROXY_CORES", cores[i].text, 1);
        assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
        assert_int_equal(rondo_params()->proxy_cores, cores[i].value);
    }
    setenv("RONDO_PROXY_CORES", "near/0", 1);
    assert_int_equal(rondo_param_reload(), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_error_text(), "one of near/0,any,nic/1"));
}

static void an_empty_value_is_the_default(void **state)
{
    (void)state;
    write_conf("BUFFSIZE=1M\n");
    setenv("RONDO_BUFFSIZE", "", 1);
    setenv("RONDO_DEBUG_SUBSYS", "", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_params()->buffsize, RONDO_PARAM_AUTO);
    assert_string_equal(rondo_params()->debug_subsys, "INIT,ENV,BOOTSTRAP");
    assert_string_equal(info_of(RONDO_PARAM_buffsize).origin, "environment RONDO_BUFFSIZE");
}

static void environment_overrides_file_and_name_overrides_alias(void **state)
{
    (void)state;
    write_conf("# comment = 1\nRONDO_BUFFSIZE=1M\n  LL_BUFFSIZE =\t128K \r\nNCCL_MAX_CTAS=7\nSPIN=5\nSPIN=6");
    setenv("NCCL_BUFFSIZE", "4194304", 1);
    setenv("NCCL_MIN_CTAS", "3", 1);
    setenv("NCCL_DEBUG", "warn", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_params()->buffsize, 4 << 20);
    assert_string_equal(info_of(RONDO_PARAM_buffsize).origin, "environment NCCL_BUFFSIZE");
    assert_int_equal(rondo_params()->min_nchannels, 3);
    assert_int_equal(rondo_params()->ll_buffsize, 128 << 10);
    assert_string_equal(info_of(RONDO_PARAM_ll_buffsize).origin, "~/.rondo.conf:3");
    assert_string_equal(info_of(RONDO_PARAM_ll_buffsize).value, "128K");
    assert_int_equal(rondo_params()->max_nchannels, 7);
    assert_int_equal(rondo_params()->spin, 6); /* the last line */

    setenv("RONDO_BUFFSIZE", "2M", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_params()->buffsize, 2 << 20);
    assert_string_equal(logged(), "");
}

/* As in NCCL: hexadecimal numbers, and the default where a value means nothing. */
static void values_of_nccls_names_never_fail(void **state)
{
    (void)state;
    setenv("NCCL_IB_TC", "0x68", 1);
    setenv("NCCL_DEBUG", "ABORT", 1);
    setenv("NCCL_BUFFSIZE", "many", 1);
    setenv("NCCL_MAX_CTAS", "0xfffffff", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_params()->ib_tc, 0x68);
    assert_string_equal(info_of(RONDO_PARAM_ib_tc).origin, "environment NCCL_IB_TC");
    assert_int_equal(rondo_params()->debug, RONDO_LOG_WARN);
    assert_int_equal(rondo_params()->buffsize, RONDO_PARAM_AUTO);
    assert_string_equal(info_of(RONDO_PARAM_buffsize).origin, "default");
    const char *text = logged();
    assert_non_null(strstr(text, "NCCL_DEBUG=\"ABORT\" (environment, host "));
    assert_non_null(strstr(text, "NCCL_BUFFSIZE=\"many\""));
    assert_non_null(strstr(text, "NCCL_MAX_CTAS=\"0xfffffff\""));
    assert_null(strstr(text, "NCCL_IB_TC"));
    setenv("RONDO_DEBUG", "ABORT", 1);
    assert_int_equal(rondo_param_reload(), RONDO_INVALID_ARGUMENT);
}

static void values_outlive_the_environment(void **state)
{
    (void)state;
    setenv("RONDO_ALGO", "ring,tree", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    setenv("RONDO_ALGO", "overwritten", 1);
    assert_string_equal(rondo_params()->algo, "ring,tree");
}

/* Runs in a child with an /etc of its own. @return its exit code; 77: not permitted; 1: wrong values. */
static int etc_child(void)
{
    if (own_mounts_enter("/etc") != 0) {
        return 77;
    }
    if (own_mounts_write("/etc/rondo.conf", "SPIN=11\nMAILBOX_SIZE=8K\n") != 0 ||
        own_mounts_write(conf, "SPIN=22\n") != 0 || rondo_param_reload() != RONDO_SUCCESS) {
        return 1;
    }
    return rondo_params()->spin != 22 || rondo_params()->mailbox_size != 8192 ||
           strcmp(info_of(RONDO_PARAM_mailbox_size).origin, "/etc/rondo.conf:2") != 0;
}

static void the_users_file_overrides_the_hosts(void **state)
{
    int status;
    pid_t child = fork();
    (void)state;
    if (child == 0) {
        _exit(etc_child());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("skipped: no permission for a mount namespace with its own /etc\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_remedy_names_only_what_can_be_lower(void **state)
{
    char text[RONDO_LOWER_TEXT];
    (void)state;
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_string_equal(
        rondo_param_lower_buffers(0, text),
        "lower RONDO_BUFFSIZE or RONDO_LL_BUFFSIZE or RONDO_LL128_BUFFSIZE or RONDO_MAX_NCHANNELS");
    setenv("RONDO_BUFFSIZE", "4K", 1);
    setenv("RONDO_LL128_BUFFSIZE", "8K", 1);
    setenv("RONDO_MIN_NCHANNELS", "2", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_string_equal(rondo_param_lower_buffers(0, text), "lower RONDO_LL_BUFFSIZE");
    setenv("RONDO_LL_BUFFSIZE", "4K", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_string_equal(rondo_param_lower_buffers(0, text), "use fewer ranks on this host");
}

static void a_line_without_an_assignment_is_an_error(void **state)
{
    static const char nul[] = "SPIN=1\n\0SPIN=2\n";
    (void)state;
    write_conf("SPIN=1\nwhat is this\n");
    assert_int_equal(rondo_param_reload(), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_error_text(), "~/.rondo.conf:2"));
    write_file(conf, nul, sizeof nul - 1);
    assert_int_equal(rondo_param_reload(), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_error_text(), "NUL"));
}

static void a_file_that_cannot_be_read_is_ignored_with_a_warning(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(conf, 0600), 0);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_non_null(strstr(logged(), "~/.rondo.conf is not a regular file"));
    unlink(conf);
}

static void a_warning_about_an_unknown_name_suggests_the_nearest(void **state)
{
    (void)state;
    setenv("RONDO_TIMOUT", "5", 1);
    setenv("RONDO_TEST_ISA", "c", 1);
    setenv("RONDO_XYZZYPLUGH", "secret", 1);
    setenv("NCCL_IB_HCA", "mlx5", 1);
    write_conf("DEBUGFILE=x\n");
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_non_null(
        strstr(logged(),
               "RONDO_TIMOUT (environment) is not a parameter and is ignored; did you mean RONDO_TIMEOUT?"));
    assert_non_null(strstr(
        logged(), "RONDO_XYZZYPLUGH (environment) is not a parameter and is ignored; rondo-info lists all"));
    assert_non_null(strstr(
        logged(),
        "DEBUGFILE (~/.rondo.conf:1) is not a parameter and is ignored; did you mean RONDO_DEBUG_FILE?"));
    assert_null(strstr(logged(), "RONDO_TEST_ISA"));
    assert_null(strstr(logged(), "NCCL_IB_HCA"));
    assert_null(strstr(logged(), "secret"));
}

static const char *ignored_origin(const char *name)
{
    struct rondo_param_ignored ignored;
    int i = rondo_param_find_ignored(name);
    assert_true(i >= 0);
    rondo_param_get_ignored(i, &ignored);
    return ignored.origin;
}

static void one_line_names_all_that_are_set_without_effect(void **state)
{
    (void)state;
    setenv("RONDO_DEBUG", "INFO", 1);
    setenv("RONDO_DEBUG_SUBSYS", "ENV", 1);
    setenv("NCCL_IB_MERGE_NICS", "1", 1);
    setenv("NCCL_NVLS_ENABLE", "secret", 1);
    setenv("NCCL_OF_A_LATER_VERSION", "1", 1);
    setenv("NCCL_IB_HCA", "mlx5", 1); /* has an effect */
    setenv("RONDO_IB_RESILIENCY_PORT_FAILOVER", "1", 1);
    setenv("IB_ECE_ENABLE", "1", 1); /* somebody else's */
    setenv("RONDO_IB_OOO_RQX", "1", 1);
    write_conf("IB_OOO_RQ=1\n");
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    const char *line = strstr(logged(), "set, but without effect in Rondo: ");
    assert_non_null(line);
    char text[600];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
    assert_non_null(strstr(text, "NCCL_IB_MERGE_NICS"));
    assert_non_null(strstr(text, "NCCL_NVLS_ENABLE"));
    assert_non_null(strstr(text, "NCCL_OF_A_LATER_VERSION"));
    assert_non_null(strstr(text, "RONDO_IB_RESILIENCY_PORT_FAILOVER"));
    assert_non_null(strstr(text, "IB_OOO_RQ; rondo-info lists those that Rondo knows"));
    assert_null(strstr(text, "RONDO_IB_OOO_RQX"));
    assert_null(strstr(text, "IB_ECE_ENABLE"));
    assert_null(strstr(text, "IB_HCA"));
    assert_null(strstr(logged(), "secret"));
    assert_null(strstr(line + 1, "set, but without effect"));
    assert_non_null(strstr(logged(), "RONDO_IB_OOO_RQX (environment) is not a parameter"));
    assert_string_equal(ignored_origin("NCCL_IB_MERGE_NICS"), "environment NCCL_IB_MERGE_NICS");
    assert_string_equal(ignored_origin("IB_RESILIENCY_PORT_RECOVERY"),
                        "environment RONDO_IB_RESILIENCY_PORT_FAILOVER");
    assert_string_equal(ignored_origin("RONDO_IB_OOO_RQ"), "~/.rondo.conf:1");
    assert_string_equal(ignored_origin("RONDO_IB_ECE_ENABLE"), "");
    assert_int_equal(rondo_param_find_ignored("NCCL_IB_HCA"), -1);
    assert_int_equal(rondo_param_find_ignored(""), -1);
    reset(NULL);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_string_equal(ignored_origin("NCCL_IB_MERGE_NICS"), "");
}

static void a_long_list_of_names_without_effect_is_cut(void **state)
{
    char name[32];
    (void)state;
    setenv("RONDO_DEBUG", "INFO", 1);
    setenv("RONDO_DEBUG_SUBSYS", "ENV", 1);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "NCCL_LATER_%d", i);
        setenv(name, "1", 1);
    }
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_non_null(strstr(logged(), " more; rondo-info lists those that Rondo knows"));
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "NCCL_LATER_%d", i);
        unsetenv(name);
    }
}

/* No name is in both tables. */
static void no_parameter_is_listed_as_without_effect(void **state)
{
    (void)state;
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        assert_int_equal(rondo_param_find_ignored(info_of((enum rondo_param_id)id).name), -1);
    }
}

static void a_very_long_unknown_name_is_cut(void **state)
{
    size_t huge = 1 << 20;
    char *name = malloc(huge + 1);
    (void)state;
    memset(name, 'A', huge);
    memcpy(name, "RONDO_", 6);
    name[huge] = '\0';
    setenv(name, "1", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_non_null(strstr(logged(), "RONDO_AAAA"));
    assert_in_range(strlen(logged()), 1, 400);
    free(name);
}

static void agree_hash_depends_on_values_and_not_on_spelling(void **state)
{
    uint64_t base, other;
    (void)state;
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    base = rondo_param_agree_hash();
    setenv("RONDO_PAIR_SIZE", "131072", 1);
    setenv("RONDO_SPIN", "9", 1); /* each rank its own */
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_true(rondo_param_agree_hash() == base);
    setenv("RONDO_PAIR_SIZE", "131073", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    other = rondo_param_agree_hash();
    assert_true(other != base);
    unsetenv("RONDO_BUFFSIZE");
    setenv("RONDO_ALGO", "ring", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_true(rondo_param_agree_hash() != base && rondo_param_agree_hash() != other);
}

struct parsed {
    const char *text;
    int64_t value;
};

static void parsers_accept_their_units(void **state)
{
    static const struct parsed ints[] = {
        { "0", 0 }, { "-7", -7 }, { "9223372036854775807", INT64_MAX }, { "-9223372036854775808", INT64_MIN }
    };
    static const struct parsed sizes[] = {
        { "0", 0 }, { "4k", 4096 }, { "3M", 3 << 20 }, { "8G", 8ll << 30 }
    };
    static const struct parsed times[] = {
        { "2", 2000000000 }, { "5ns", 5 },         { "5us", 5000 },
        { "5MS", 5000000 },  { "1s", 1000000000 }, { "2m", 120000000000 }
    };
    int64_t value;
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(ints); i++) {
        assert_int_equal(rondo_parse_int(ints[i].text, &value), 0);
        assert_true(value == ints[i].value);
    }
    for (size_t i = 0; i < RONDO_COUNTOF(sizes); i++) {
        assert_int_equal(rondo_parse_size(sizes[i].text, &value), 0);
        assert_true(value == sizes[i].value);
    }
    for (size_t i = 0; i < RONDO_COUNTOF(times); i++) {
        assert_int_equal(rondo_parse_time(times[i].text, &value), 0);
        assert_true(value == times[i].value);
    }
}

static void parsers_reject_without_storing(void **state)
{
    static const char *const bad[] = { "",    "-",    "x", "9223372036854775808", "1 s", "1kk", "-1s",
                                       "-1K", "yess", NULL };
    int64_t value = 42;
    int truth = 42;
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
        assert_int_equal(rondo_parse_int(bad[i], &value), -1);
        assert_int_equal(rondo_parse_size(bad[i], &value), -1);
        assert_int_equal(rondo_parse_time(bad[i], &value), -1);
        assert_int_equal(rondo_parse_bool(bad[i], &truth), -1);
    }
    assert_int_equal(value, 42);
    assert_int_equal(truth, 42);
    assert_int_equal(rondo_parse_bool("Yes", &truth), 0);
    assert_int_equal(truth, 1);
    assert_int_equal(rondo_parse_bool("OFF", &truth), 0);
    assert_int_equal(truth, 0);
}

static int make_home(void **state)
{
    if (!mkdtemp(home)) {
        return -1;
    }
    snprintf(conf, sizeof conf, "%s/.rondo.conf", home);
    snprintf(log_file, sizeof log_file, "%s/log", home);
    return reset(state);
}

static int remove_home(void **state)
{
    (void)state;
    unlink(conf);
    unlink(log_file);
    return rmdir(home);
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(threads_may_race_for_the_first_read),
        TEST(every_default_is_allowed),
        TEST(an_error_names_variable_origin_value_and_what_is_allowed),
        TEST(invalid_values_are_errors_and_keep_the_default),
        TEST(a_number_may_be_auto_only_if_the_table_says_so),
        TEST(auto_depends_on_host_or_gpu_and_an_explicit_value_does_not),
        TEST(a_value_may_have_several_spellings),
        TEST(an_empty_value_is_the_default),
        TEST(environment_overrides_file_and_name_overrides_alias),
        TEST(values_of_nccls_names_never_fail),
        TEST(values_outlive_the_environment),
        TEST(the_users_file_overrides_the_hosts),
        TEST(a_line_without_an_assignment_is_an_error),
        TEST(a_file_that_cannot_be_read_is_ignored_with_a_warning),
        TEST(a_warning_about_an_unknown_name_suggests_the_nearest),
        TEST(one_line_names_all_that_are_set_without_effect),
        TEST(a_long_list_of_names_without_effect_is_cut),
        TEST(no_parameter_is_listed_as_without_effect),
        TEST(a_very_long_unknown_name_is_cut),
        TEST(agree_hash_depends_on_values_and_not_on_spelling),
        TEST(a_remedy_names_only_what_can_be_lower),
        TEST(parsers_accept_their_units),
        TEST(parsers_reject_without_storing),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
