#include "base/inside.h"

_Thread_local int rondo_inside RONDO_FAST_TLS;

rondo_status rondo_inside_refuse(const char *what)
{
    return rondo_fail(
        RONDO_INVALID_USAGE,
        "%s is called inside another call of Rondo, by a signal handler of the same thread: let "
        "the handler set a flag, or call from another thread (rondo_comm_abort works there)",
        what);
}
