/* Compiled and not run: the protocols build as device code, one kernel each that forwards a slice. */
#include "kern/proto.h"

#define RONDO_FORWARD_(ctx, name, NAME, value)                                                                      \
    extern "C" __global__ void rondo_forward_##name(struct rondo_conn *from, struct rondo_conn *to, size_t nunits)  \
    {                                                                                                               \
        if (rondo_ll_clean_due(to->step)) rondo_ll_clean(to);                                                       \
        for (size_t i = RONDO_TID(); i < nunits; i += RONDO_NTHREADS()) {                                           \
            while (rondo_proto_wait(RONDO_PROTO_##NAME, from, i, 1) == 0) RONDO_RELAX();                            \
            rondo_##name##_put(to, i, rondo_##name##_get(from, i));                                                 \
        }                                                                                                           \
        RONDO_SYNC();                                                                                               \
        for (size_t n = (RONDO_TID() + 1) * RONDO_LL128_DATA; n < nunits; n += RONDO_NTHREADS() * RONDO_LL128_DATA) \
            rondo_##name##_post(to, n);                                                                             \
        if (RONDO_TID() == 0) {                                                                                     \
            rondo_##name##_post(to, nunits);                                                                        \
            rondo_conn_sent(to);                                                                                    \
            rondo_conn_consumed(from);                                                                              \
        }                                                                                                           \
    }
RONDO_PROTO_TABLE(RONDO_FORWARD_, )
