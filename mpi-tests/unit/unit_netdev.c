/* The list of net devices and the choice among them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include "netdev_pair.h"
#include "says.h"

enum { PLUGIN, VERBS, SOCKET };

/* Ask all devices again, with this RONDO_NET. */
static rondo_status mask_with(const char *net, uint32_t *mask, char *why, size_t bytes)
{
    rondo_netdev_finalize();
    set_param("RONDO_NET", net);
    return rondo_netdev_mask(mask, why, bytes);
}

static void devices_are_in_the_order_plugin_verbs_socket(void **state)
{
    (void)state;
    assert_int_equal(rondo_num_netdevs, 3);
    assert_ptr_equal(rondo_netdevs[PLUGIN], &rondo_netdev_plugin);
    assert_ptr_equal(rondo_netdevs[VERBS], &rondo_netdev_verbs);
    assert_ptr_equal(rondo_netdevs[SOCKET], &rondo_netdev_socket);
}

static void the_first_device_that_both_ends_have_is_used(void **state)
{
    (void)state;
    rondo_netdev_finalize();
    for (uint32_t a = 0; a < 8; a++) {
        for (uint32_t b = 0; b < 8; b++) {
            const struct rondo_net_device *net = rondo_netdev_common(a, b);
            assert_ptr_equal(net, (a & b) ? rondo_netdevs[__builtin_ctz(a & b)] : NULL);
            assert_ptr_equal(net, rondo_netdev_common(b, a));
        }
    }
    assert_null(rondo_netdev_common(0xfffffff8, 0xfffffff8)); /* devices of a newer version */
}

static void devices_have_our_and_nccls_names(void **state)
{
    static const struct {
        const char *name;
        int index;
    } rows[] = { { "socket", SOCKET }, { "Socket", SOCKET }, { "SOCKET", SOCKET }, { "verbs", VERBS },
                 { "IB", VERBS },      { "ib", VERBS },      { "plugin", PLUGIN }, { "", -1 },
                 { "sock", -1 },       { "sockets", -1 } };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        assert_ptr_equal(rondo_netdev_by_name(rows[i].name),
                         rows[i].index < 0 ? NULL : rondo_netdevs[rows[i].index]);
    }
}

static void the_mask_says_which_devices_are_here_and_why(void **state)
{
    uint32_t mask, again;
    char why[600] = "";
    (void)state;
    assert_int_equal(mask_with(NULL, &mask, why, sizeof why), RONDO_SUCCESS);
    assert_true(mask >> SOCKET & 1);
    assert_false(mask >> PLUGIN & 1);
    assert_non_null(strstr(why, "plugin: none here, RONDO_NET_PLUGIN is none"));
    assert_non_null(strstr(why, "socket: 1 device"));
    assert_non_null(strstr(why, "verbs: "));
    set_param("RONDO_SOCKET_IFNAME", "=nothing"); /* the devices are not asked again */
    assert_int_equal(rondo_netdev_mask(&again, NULL, 0), RONDO_SUCCESS);
    assert_int_equal(mask, again);
    assert_int_equal(mask_with(NULL, &mask, why, sizeof why), RONDO_SUCCESS);
    assert_false(mask >> SOCKET & 1);
    assert_non_null(strstr(why, "socket: none here, no network interface"));
    set_param("RONDO_SOCKET_IFNAME", "=lo");
}

static void a_device_can_be_chosen(void **state)
{
    uint32_t mask;
    char why[600] = "";
    (void)state;
    assert_int_equal(mask_with("Socket", &mask, why, sizeof why), RONDO_SUCCESS);
    assert_int_equal(mask, 1u << SOCKET);
    assert_null(strstr(why, "verbs"));
    set_param("RONDO_IB_DISABLE", "1");
    assert_int_equal(mask_with("IB", &mask, why, sizeof why), RONDO_INVALID_USAGE);
    assert_int_equal(mask, 0);
    assert_says("RONDO_NET=IB, but there is none on ");
    assert_string_equal(why, rondo_error_text());
    set_param("RONDO_IB_DISABLE", NULL);
    assert_int_equal(mask_with("sockets", &mask, NULL, 0), RONDO_INVALID_ARGUMENT);
    assert_says("RONDO_NET=sockets is not a net device on ");
    assert_int_equal(rondo_netdev_mask(&mask, NULL, 0), RONDO_INVALID_ARGUMENT); /* the error stays */
    assert_int_equal(mask_with("plugin", &mask, NULL, 0), RONDO_INVALID_USAGE);
    assert_says("RONDO_NET_PLUGIN is none");
    assert_int_equal(mask_with(NULL, &mask, NULL, 0), RONDO_SUCCESS);
    set_param("NCCL_NET", "IB"); /* used because RONDO_NET is not set */
    set_param("RONDO_IB_DISABLE", "1");
    assert_int_equal(mask_with(NULL, &mask, NULL, 0), RONDO_INVALID_USAGE);
    set_param("RONDO_IB_DISABLE", NULL);
    set_param("NCCL_NET", NULL);
}

static void *ask(void *mask)
{
    assert_int_equal(rondo_netdev_mask(mask, NULL, 0), RONDO_SUCCESS);
    return NULL;
}

static void many_threads_get_one_answer(void **state)
{
    enum { N = 8 };
    pthread_t thread[N];
    uint32_t mask[N];
    (void)state;
    rondo_netdev_finalize();
    set_param("RONDO_NET", NULL);
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, ask, &mask[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(mask[i], mask[0]);
        assert_true(mask[i] >> SOCKET & 1);
    }
    rondo_netdev_finalize();
}

/* While anybody holds the devices, they are not asked again. When the last user releases them, the answers
 * are forgotten. */
static void the_last_user_finalizes(void **state)
{
    uint32_t first, mask;
    (void)state;
    set_param("RONDO_NET", "socket");
    rondo_netdev_hold();
    rondo_netdev_hold();
    assert_int_equal(rondo_netdev_mask(&first, NULL, 0), RONDO_SUCCESS);
    set_param("RONDO_NET", "sockets"); /* an error as soon as devices are asked again */
    rondo_netdev_finalize();
    assert_int_equal(rondo_netdev_mask(&mask, NULL, 0), RONDO_SUCCESS);
    assert_int_equal(mask, first);
    rondo_netdev_finalize();
    assert_int_equal(rondo_netdev_mask(&mask, NULL, 0), RONDO_INVALID_ARGUMENT);
    set_param("RONDO_NET", NULL);
    rondo_netdev_finalize();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_in_the_order_plugin_verbs_socket),
        cmocka_unit_test(the_first_device_that_both_ends_have_is_used),
        cmocka_unit_test(devices_have_our_and_nccls_names),
        cmocka_unit_test(the_mask_says_which_devices_are_here_and_why),
        cmocka_unit_test(a_device_can_be_chosen),
        cmocka_unit_test(many_threads_get_one_answer),
        cmocka_unit_test(the_last_user_finalizes),
    };
    setenv("RONDO_NET_PLUGIN", "none", 1);
    setenv("RONDO_SOCKET_IFNAME", "=lo", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
