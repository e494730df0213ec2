/* GPUs of works: which one, and whether a stream has come to a work's end. */
#include "base/mem.h"
#include "pgroup/pgroup.h"

#ifdef RONDO_CUDA
#include "base/cuda_mem.h"

struct pg_device {
    struct rondo_cuda_device cuda;
};

/* Others may capture a stream in global mode, which forbids every thread what polls and makes events. */
static rondo_status enter(const struct pg_device *device, CUstreamCaptureMode *before)
{
    RONDO_TRY(rondo_cuda_enter(&device->cuda));
    rondo_gpu_relax(before);
    return RONDO_SUCCESS;
}
static void leave(CUstreamCaptureMode before)
{
    rondo_gpu_unrelax(before);
    rondo_cuda_leave();
}

/* An event is the driver's. */
static CUevent event_of(struct pg_event *event) { return (CUevent)event; }

rondo_status pg_device_number(int named, int *device)
{
    if (named == RONDO_DEVICE_CURRENT) {
        return rondo_cuda_current(device);
    }
    if (named < RONDO_CONFIG_DEFAULT) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "there is no device %d", named);
    }
    *device = named;
    return RONDO_SUCCESS;
}

rondo_status pg_device_open(int number, struct pg_device **device)
{
    struct pg_device *made;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(made, "a GPU of a process group"));
    status = rondo_cuda_open(number, &made->cuda);
    if (status != RONDO_SUCCESS) {
        rondo_free(made);
        return status;
    }
    *device = made;
    return RONDO_SUCCESS;
}

void pg_device_close(struct pg_device *device)
{
    if (device != NULL) {
        rondo_cuda_close(&device->cuda);
        rondo_free(device);
    }
}

rondo_status pg_event_record(struct pg_device *device, rondo_stream stream, struct pg_event **event)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    CUstreamCaptureMode before;
    CUevent made = NULL;
    CUresult result;
    RONDO_TRY(enter(device, &before));
    result = cuda->EventCreate(&made, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) {
        result = cuda->EventRecord(made, (CUstream)stream);
    }
    if (result != CUDA_SUCCESS && made != NULL) {
        (void)cuda->EventDestroy(made);
    }
    leave(before);
    RONDO_CUDA_TRY(result, "an event behind a call of a process group on GPU %d", device->cuda.ordinal);
    *event = (struct pg_event *)made;
    return RONDO_SUCCESS;
}

rondo_status pg_event_query(struct pg_device *device, struct pg_event *event)
{
    CUstreamCaptureMode before;
    CUresult result;
    RONDO_TRY(enter(device, &before));
    result = rondo_cuda(NULL)->EventQuery(event_of(event));
    leave(before);
    if (result == CUDA_ERROR_NOT_READY) {
        return RONDO_IN_PROGRESS;
    }
    RONDO_CUDA_TRY(result, "the event behind a call of a process group on GPU %d", device->cuda.ordinal);
    return RONDO_SUCCESS;
}

void pg_event_free(struct pg_device *device, struct pg_event *event)
{
    CUstreamCaptureMode before;
    if (event != NULL && enter(device, &before) == RONDO_SUCCESS) {
        (void)rondo_cuda(NULL)->EventDestroy(event_of(event));
        leave(before);
    }
}
#else
static rondo_status no_gpu(int number)
{
    return rondo_fail(RONDO_INVALID_ARGUMENT,
                      "GPU %d: this Rondo was built without CUDA (configure --with-cuda)", number);
}

rondo_status pg_device_number(int named, int *device)
{
    if (named != RONDO_CONFIG_DEFAULT) {
        return no_gpu(named);
    }
    *device = named;
    return RONDO_SUCCESS;
}

rondo_status pg_device_open(int number, struct pg_device **device)
{
    (void)device;
    return no_gpu(number);
}

void pg_device_close(struct pg_device *device) { (void)device; }

rondo_status pg_event_record(struct pg_device *device, rondo_stream stream, struct pg_event **event)
{
    (void)device;
    (void)stream;
    (void)event;
    return no_gpu(0);
}

rondo_status pg_event_query(struct pg_device *device, struct pg_event *event)
{
    (void)device;
    (void)event;
    return no_gpu(0);
}

void pg_event_free(struct pg_device *device, struct pg_event *event)
{
    (void)device;
    (void)event;
}
#endif
