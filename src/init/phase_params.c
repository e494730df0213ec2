/* Phase "params", only when the peers' hashes of their parameters differ: find which one, and on which
 * rank. */
#include "base/param.h"
#include "init/phases.h"

enum { PARAM_TEXT = 8192 };

struct param_record {
    struct rondo_round_head head;
    char text[PARAM_TEXT];
};

static rondo_status start_params(struct rondo_init *init)
{
    struct param_record *mine;
    if (!init->params_differ) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_init_new_round(init, sizeof(*mine), init->ctx->job.nranks));
    mine = init->mine;
    rondo_params_pack(mine->text, sizeof(mine->text));
    return rondo_init_allgather(init);
}

static rondo_status test_params(struct rondo_init *init)
{
    return init->params_differ ? rondo_init_test_round(init) : RONDO_SUCCESS;
}

static rondo_status finish_params(struct rondo_init *init)
{
    const struct rondo_peer *peers = init->ctx->wiring.peers;
    struct param_record *root, *other;
    int r;
    if (!init->params_differ) {
        return RONDO_SUCCESS;
    }
    r = rondo_peers_param_differs(peers, init->ctx->job.nranks);
    root = rondo_init_record(init, 0);
    other = rondo_init_record(init, r);
    root->text[sizeof(root->text) - 1] = other->text[sizeof(other->text) - 1] = '\0';
    RONDO_TRY(rondo_params_compare(root->text, other->text, r, peers[r].host));
    return rondo_peers_check(peers,
                             init->ctx->job.nranks); /* the texts were cut off: name the rank at least */
}

const struct rondo_phase rondo_phase_params = {
    .name = "params",
    .start = start_params,
    .test = test_params,
    .finish = finish_params,
};
