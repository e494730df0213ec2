/* Process groups on GPUs, over the tests' CUDA driver: works whose group ends while they are handed to their
 * stream, and errors of the device. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "device_world.h"
#include "pgroup/pgroup.h"
#include "rondo_pgroup.h"

static struct rondo_cuda real; /* the driver's table before a test changes it */

static struct rondo_cuda *table(void) { return (struct rondo_cuda *)(uintptr_t)cu(); }

/* A rank's device, its group, and 100 integers. */
struct member {
    struct device device;
    rondo_pgroup *group;
    int32_t *data;
};

static void member_open(struct fake_rank *r, struct member *m)
{
    rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
    device_open(&m->device, r->rank);
    m->data = (int32_t *)(uintptr_t)device_new(100 * sizeof(*m->data));
    config.device = r->rank;
    if (rondo_pgroup_create(r->comm, &config, &m->group) != RONDO_SUCCESS) {
        fake_fail(r, __FILE__, __LINE__, "create", ": %s", rondo_last_error(NULL));
    }
    r->comm = NULL; /* the group's */
}

static void member_close(struct fake_rank *r, struct member *m)
{
    FAKE_OK(r, rondo_pgroup_destroy(m->group));
    CU(cu()->StreamSynchronize(m->device.stream));
    device_delete((CUdeviceptr)(uintptr_t)m->data);
    device_close(&m->device);
}

static rondo_status member_sum(const struct member *m, rondo_pgroup_work **work)
{
    rondo_pgroup_opts opts = RONDO_PGROUP_OPTS_INIT;
    opts.stream = RONDO_CUDA_STREAM(m->device.stream);
    return rondo_pgroup_all_reduce(m->group, m->data, m->data, 100, RONDO_INT32, RONDO_SUM, &opts, work);
}

/* ---- an end while a work is issued ---- */

static struct {
    pthread_t caller;
    CUstream stream;
    int held; /* atomic */
} record;
static _Thread_local CUevent latest;

static CUresult note_event(CUevent *event, unsigned flags)
{
    CUresult result = real.EventCreate(event, flags);
    latest = *event;
    return result;
}

/* The watchdog, which records an event that it has just made behind the work's call, takes its time. */
static CUresult record_slowly(CUevent event, CUstream stream)
{
    if (event == latest && stream == record.stream && !pthread_equal(record.caller, pthread_self()) &&
        !__atomic_exchange_n(&record.held, 1, __ATOMIC_SEQ_CST)) {
        fake_sleep_ms(300);
    }
    return real.EventRecord(event, stream);
}

static void ended_while_issued(struct fake_rank *r)
{
    struct member m;
    rondo_pgroup_work *work = NULL;
    double end = fake_now() + 30;
    member_open(r, &m);
    if (r->rank == 0) {
        record.caller = pthread_self();
        record.stream = m.device.stream;
        table()->EventCreate = note_event;
        table()->EventRecord = record_slowly;
        FAKE_OK(r, member_sum(&m, &work)); /* the communicator is not ready: rank 1 waits for this */
        pthread_barrier_wait(r->arg);
    } else {
        pthread_barrier_wait(r->arg);
        FAKE_OK(r, member_sum(&m, &work));
    }
    while (!__atomic_load_n(&record.held, __ATOMIC_SEQ_CST) && fake_now() < end) {
        fake_sleep_ms(1);
    }
    FAKE_OK(r, rondo_pgroup_abort(m.group));
    member_close(r, &m);
    FAKE_CHECK(r, __atomic_load_n(&record.held, __ATOMIC_SEQ_CST));
    FAKE_CHECK(r, work->state == PG_DONE && work->refs == 1, "state %d, %d references", work->state,
               work->refs);
    FAKE_OK(r, rondo_pgroup_work_free(work));
}

static void a_group_may_end_while_its_watchdog_issues_a_work(void **state)
{
    pthread_barrier_t called;
    (void)state;
    real = *table();
    fake_params(SMALL, NULL);
    record.held = 0;
    pthread_barrier_init(&called, NULL, 2);
    fake_ranks(2, ended_while_issued, &called);
    pthread_barrier_destroy(&called);
    *table() = real;
}

/* ---- the device's errors ---- */

static CUresult lost(void) { return CUDA_ERROR_ILLEGAL_ADDRESS; }

static void device_is_lost(struct fake_rank *r)
{
    struct member m;
    rondo_pgroup_work *work;
    rondo_status error = RONDO_SUCCESS, status;
    member_open(r, &m);
    FAKE_OK(r, member_sum(&m, &work));
    FAKE_OK(r, rondo_pgroup_work_wait(work, RONDO_CONFIG_DEFAULT));
    FAKE_OK(r, rondo_pgroup_work_free(work));
    table()->EventQuery = (__typeof__(real.EventQuery))(void *)lost;
    FAKE_OK(r, member_sum(&m, &work));
    status = rondo_pgroup_work_wait(work, RONDO_CONFIG_DEFAULT);
    FAKE_CHECK(r,
               status == RONDO_UNHANDLED_CUDA_ERROR &&
                   fake_has(rondo_last_error(NULL), "the event behind a call of a process group on GPU 0"),
               "%s: %s", rondo_status_string(status), rondo_last_error(NULL));
    FAKE_OK(r, rondo_pgroup_error(m.group, &error));
    FAKE_CHECK(r, error == RONDO_UNHANDLED_CUDA_ERROR, "%s", rondo_status_string(error));
    table()->EventQuery = real.EventQuery;
    FAKE_OK(r, rondo_pgroup_work_free(work));
    member_close(r, &m);
}

static void an_error_of_the_device_is_the_works_and_ends_the_group(void **state)
{
    (void)state;
    real = *table();
    fake_params(SMALL, NULL);
    fake_ranks(1, device_is_lost, NULL);
    *table() = real;
}

static CUresult refuse_new(CUevent event, CUstream stream)
{
    return event == latest && stream == record.stream ? CUDA_ERROR_OUT_OF_MEMORY
                                                      : real.EventRecord(event, stream);
}

static void no_event(struct fake_rank *r)
{
    struct member m;
    rondo_pgroup_work *work = NULL;
    rondo_status error = RONDO_SUCCESS, status;
    member_open(r, &m);
    FAKE_OK(r, member_sum(&m, &work));
    FAKE_OK(r, rondo_pgroup_work_wait(work, RONDO_CONFIG_DEFAULT));
    FAKE_OK(r, rondo_pgroup_work_free(work));
    record.stream = m.device.stream;
    table()->EventCreate = note_event;
    table()->EventRecord = refuse_new;
    work = NULL;
    status = member_sum(&m, &work);
    if (status == RONDO_SUCCESS) {
        status = rondo_pgroup_work_wait(work, RONDO_CONFIG_DEFAULT);
    }
    FAKE_CHECK(r, status == RONDO_UNHANDLED_CUDA_ERROR, "%s: %s", rondo_status_string(status),
               rondo_last_error(NULL));
    FAKE_OK(r, rondo_pgroup_error(m.group, &error));
    FAKE_CHECK(r, error == RONDO_UNHANDLED_CUDA_ERROR, "%s", rondo_status_string(error));
    table()->EventRecord = real.EventRecord;
    table()->EventCreate = real.EventCreate;
    if (work != NULL) {
        FAKE_OK(r, rondo_pgroup_work_free(work));
    }
    member_close(r, &m);
}

/* The call was launched: all ranks count it. */
static void a_call_whose_event_is_refused_ends_the_group(void **state)
{
    (void)state;
    real = *table();
    fake_params(SMALL, NULL);
    fake_ranks(1, no_event, NULL);
    *table() = real;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_may_end_while_its_watchdog_issues_a_work),
        cmocka_unit_test(an_error_of_the_device_is_the_works_and_ends_the_group),
        cmocka_unit_test(a_call_whose_event_is_refused_ends_the_group),
    };
    device_driver();
    fake_watchdog(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
