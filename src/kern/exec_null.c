/* The null executor finishes every run at once and moves nothing, so that a call's time is its own cost. */
#include "kern/exec.h"

#include "base/mem.h"

struct rondo_exec {
    int nlanes;
};

static rondo_status exec_null_open(struct rondo_exec **exec, int nlanes, int max_sources,
                                   const struct rondo_exec_owner *owner)
{
    struct rondo_exec *made;
    (void)max_sources;
    (void)owner;
    RONDO_TRY(RONDO_NEW(made, "an executor"));
    made->nlanes = nlanes;
    *exec = made;
    return RONDO_SUCCESS;
}

static int exec_null_publish(struct rondo_exec *exec, struct rondo_run *run)
{
    (void)exec;
    (void)run;
    return 1;
}

static int exec_null_collect(struct rondo_exec *exec, struct rondo_run *run, int looks, rondo_status *status)
{
    (void)exec;
    (void)run;
    (void)looks;
    (void)status;
    return 1;
}

static void exec_null_submit(struct rondo_exec *exec, struct rondo_run *runs, int n)
{
    (void)exec;
    for (int i = 0; i < n; i++) {
        rondo_prof_run_end(runs[i].prof);
        runs[i].prof = NULL;
        --*runs[i].open;
    }
}

static rondo_status exec_null_progress(struct rondo_exec *exec, int *moved)
{
    (void)exec;
    (void)moved;
    return RONDO_SUCCESS;
}

static void exec_null_drop(struct rondo_exec *exec) { (void)exec; }

static int exec_null_describe(struct rondo_exec *exec, int at, char *text, size_t size,
                              struct rondo_blocked *blocked)
{
    (void)exec, (void)at, (void)text, (void)size;
    *blocked = (struct rondo_blocked){ .peer = RONDO_NO_PEER };
    return 0;
}

static void exec_null_close(struct rondo_exec *exec) { rondo_free(exec); }

const struct rondo_exec_ops rondo_exec_null = {
    .name = "null",
    .open = exec_null_open,
    .submit = exec_null_submit,
    .publish = exec_null_publish,
    .collect = exec_null_collect,
    .progress = exec_null_progress,
    .drop = exec_null_drop,
    .describe = exec_null_describe,
    .close = exec_null_close,
};
