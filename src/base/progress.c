#include "base/progress.h"

rondo_status rondo_progress_add(struct rondo_progress *progress, struct rondo_hook hook)
{
    if (progress->nhooks == RONDO_MAX_HOOKS) {
        return rondo_fail(RONDO_INTERNAL_ERROR, "no room for progress hook %s: all %d are in use (first: %s)",
                          hook.name, RONDO_MAX_HOOKS, progress->hook[0].name);
    }
    progress->hook[progress->nhooks++] = hook;
    return RONDO_SUCCESS;
}

rondo_status rondo_progress_run(struct rondo_progress *progress, int idle, int *moved)
{
    for (int i = 0; i < progress->nhooks; i++) {
        const struct rondo_hook *hook = &progress->hook[i];
        if (hook->idle_only == idle) {
            RONDO_TRY(hook->progress(hook->arg, moved));
        }
    }
    return RONDO_SUCCESS;
}
