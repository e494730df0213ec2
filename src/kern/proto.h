/* The protocols by number: a switch that disappears where `proto` is a constant. Contract: kern/slot.h. */
#ifndef RONDO_KERN_PROTO_H
#define RONDO_KERN_PROTO_H

#include "kern/proto_ll.h"
#include "kern/proto_ll128.h"
#include "kern/proto_simple.h"

#define RONDO_PROTO_CASE_(call, name, NAME, value) \
    case RONDO_PROTO_##NAME:                       \
        return rondo_##name##_##call;
#define RONDO_PROTO_SWITCH_(proto, call)           \
    switch (proto) {                               \
        RONDO_PROTO_TABLE(RONDO_PROTO_CASE_, call) \
    default: break;                                \
    }

RONDO_FN size_t rondo_proto_capacity(enum rondo_proto proto, size_t slot_bytes)
{
    RONDO_PROTO_SWITCH_(proto, capacity(slot_bytes))
    return 0;
}
RONDO_FN size_t rondo_proto_wire_bytes(enum rondo_proto proto, size_t bytes)
{
    RONDO_PROTO_SWITCH_(proto, wire_bytes(bytes))
    return 0;
}
RONDO_FN size_t rondo_proto_wait(enum rondo_proto proto, struct rondo_conn *conn, size_t unit,
                                 size_t max_units)
{
    RONDO_PROTO_SWITCH_(proto, wait(conn, unit, max_units))
    return 0;
}
RONDO_FN uint64_t rondo_proto_get(enum rondo_proto proto, const struct rondo_conn *conn, size_t unit)
{
    RONDO_PROTO_SWITCH_(proto, get(conn, unit))
    return 0;
}
RONDO_FN void rondo_proto_put(enum rondo_proto proto, const struct rondo_conn *conn, size_t unit,
                              uint64_t word){ RONDO_PROTO_SWITCH_(proto, put(conn, unit, word)) } RONDO_FN
    void rondo_proto_post(enum rondo_proto proto, const struct rondo_conn *conn,
                          size_t nunits){ RONDO_PROTO_SWITCH_(proto, post(conn, nunits)) }
#ifndef __CUDACC__
RONDO_FN void rondo_proto_put_span(enum rondo_proto proto, const struct rondo_conn *conn, size_t unit0,
                                   const void *src, size_t bytes){
    RONDO_PROTO_SWITCH_(proto, put_span(conn, unit0, src, bytes))
} RONDO_FN void rondo_proto_get_span(enum rondo_proto proto, const struct rondo_conn *conn, size_t unit0,
                                     void *dst, size_t bytes)
{
    RONDO_PROTO_SWITCH_(proto, get_span(conn, unit0, dst, bytes))
}
#endif

#undef RONDO_PROTO_SWITCH_
#undef RONDO_PROTO_CASE_

#endif
