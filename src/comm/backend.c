#include "comm/backend.h"

rondo_status rondo_no_gpu(void)
{
    return rondo_fail(RONDO_INVALID_USAGE, "config.device asks for a GPU, but this library was built without "
                                           "CUDA: configure it --with-cuda=DIR, or leave "
                                           "RONDO_CONFIG_DEFAULT there for host memory");
}
