/* The ranks of p2p_world.h, each with a GPU, over the NICs of fake_verbs.h. */
#ifndef NIC_WORLD_H
#define NIC_WORLD_H

#include "p2p_world.h"

#include "base/param.h"
#include "fake_verbs.h"

enum { FEW = 60 /* slices: several times around the slots */ };

/* NULL: unset. */
static inline void set(const char *name, const char *value)
{
    assert_int_equal(value != NULL ? setenv(name, value, 1) : unsetenv(name), 0);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rondo_netdev_finalize(); /* read it again */
}

static inline void all_is_given_back(void)
{
    check_nothing_left();
    assert_int_equal(fake_verbs_objects(), 0);
    assert_int_equal(fake.bad_uses, 0);
    assert_int_equal(fake.overruns, 0);
}

/* Fail each driver call in turn: connecting must continue without the feature, or fail and leave nothing
 * behind. */
static inline void fail_each_call(struct world *(*make)(void),
                                  rondo_status (*try_to_connect)(struct world *w),
                                  void (*close)(struct world *w))
{
    int goes_on = 0, ends = 0, n = 0, called = 1;
    uint32_t mask = rondo_log_mask;
    rondo_log_mask = RONDO_LOG_NONE;
    while (called) {
        struct world *w = make();
        driver.calls = 0;
        driver.fail_at = ++n;
        rondo_status status = try_to_connect(w);
        driver.fail_at = 0;
        called = driver.calls >= n;
        goes_on += called && status == RONDO_SUCCESS;
        ends += called && status != RONDO_SUCCESS;
        close(w);
        all_is_given_back();
    }
    rondo_log_mask = mask;
    assert_true(goes_on > 0 && ends > 0);
}

static inline int setup(void **state)
{
    (void)state;
    fake_verbs_reset();
    rondo_verbs_lib_replace(&fake_verbs_lib);
    setenv("FAKE_CUDA_DMABUF", "1", 1);
    setenv("RONDO_NET", "verbs", 1);
    set("RONDO_IB_HCA", "=fake0:2");
    return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

#endif
