// Streams, events, host functions and captures.
#include "runtime.h"

CALL(cudaStreamCreate, (void **out), driver.cuStreamCreateWithPriority(out, 0, 0))
CALL(cudaStreamCreateWithFlags, (void **out, unsigned flags), driver.cuStreamCreateWithPriority(out, flags, 0))
CALL(cudaStreamCreateWithPriority, (void **out, unsigned flags, int priority),
     driver.cuStreamCreateWithPriority(out, flags, priority))
CALL(cudaStreamDestroy, (void *stream), driver.cuStreamDestroy_v2(stream))
ON_STREAM(cudaStreamSynchronize, (void *stream), driver.cuStreamSynchronize(stream))
ON_STREAM(cudaStreamQuery, (void *stream), driver.cuStreamQuery(stream))
ON_STREAM(cudaStreamWaitEvent, (void *stream, void *event, unsigned flags), driver.cuStreamWaitEvent(stream, event, flags))
ON_STREAM(cudaStreamAddCallback, (void *stream, StreamCallback callback, void *argument, unsigned flags),
          driver.cuStreamAddCallback(stream, callback, argument, flags))
ON_STREAM(cudaLaunchHostFunc, (void *stream, HostFunction function, void *argument),
          driver.cuLaunchHostFunc(stream, function, argument))
#if MAJOR > 12
// The mode is how the stream waits: by blocking or by spinning.
ON_STREAM(cudaLaunchHostFunc_v2, (void *stream, HostFunction function, void *argument, unsigned mode),
          mode > 1 ? INVALID_VALUE : driver.cuLaunchHostFunc(stream, function, argument))
#endif
ON_STREAM(cudaStreamGetFlags, (void *stream, unsigned *out), driver.cuStreamGetFlags(stream, out))
ON_STREAM(cudaStreamGetPriority, (void *stream, int *out), driver.cuStreamGetPriority(stream, out))
ON_STREAM(cudaStreamGetId, (void *stream, unsigned long long *out), driver.cuStreamGetId(stream, out))
ON_STREAM(cudaStreamGetDevice, (void *stream, int *out), driver.cuStreamGetDevice(stream, out))
ON_STREAM(cudaStreamAttachMemAsync, (void *stream, void *pointer, size_t size, unsigned flags),
          driver.cuStreamAttachMemAsync(stream, ADDRESS(pointer), size, flags))

CALL(cudaEventCreate, (void **out), driver.cuEventCreate(out, 0))
CALL(cudaEventCreateWithFlags, (void **out, unsigned flags), driver.cuEventCreate(out, flags))
ON_STREAM(cudaEventRecord, (void *event, void *stream), driver.cuEventRecordWithFlags(event, stream, 0))
ON_STREAM(cudaEventRecordWithFlags, (void *event, void *stream, unsigned flags),
          driver.cuEventRecordWithFlags(event, stream, flags))
CALL(cudaEventQuery, (void *event), driver.cuEventQuery(event))
CALL(cudaEventSynchronize, (void *event), driver.cuEventSynchronize(event))
CALL(cudaEventElapsedTime, (float *out, void *start, void *end), driver.cuEventElapsedTime(out, start, end))
#if MAJOR == 12
CALL(cudaEventElapsedTime_v2, (float *out, void *start, void *end), driver.cuEventElapsedTime(out, start, end))
#endif
CALL(cudaEventDestroy, (void *event), driver.cuEventDestroy_v2(event))

CALL(cudaThreadExchangeStreamCaptureMode, (int *mode), driver.cuThreadExchangeStreamCaptureMode(mode))
ON_STREAM(cudaStreamIsCapturing, (void *stream, int *out), driver.cuStreamIsCapturing(stream, out))
ON_STREAM(cudaStreamBeginCapture, (void *stream, int mode), driver.cuStreamBeginCapture_v2(stream, mode))
ON_STREAM(cudaStreamEndCapture, (void *stream, void **graph), driver.cuStreamEndCapture(stream, graph))

// What only a capture has is asked of the driver where there is one.
static int capture(void *stream, int *status, unsigned long long *id, void **graph, const void **nodes, const void **edges,
                   size_t *count) {
    int code = status == NULL ? INVALID_VALUE : driver.cuStreamIsCapturing(stream, status);
    if (code != SUCCESS || *status == 0) return code;
    return driver.cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, count);
}

#if MAJOR == 12
ON_STREAM(cudaStreamGetCaptureInfo, (void *stream, int *status, unsigned long long *id),
          capture(stream, status, id, NULL, NULL, NULL, NULL))
ON_STREAM(cudaStreamGetCaptureInfo_v2,
          (void *stream, int *status, unsigned long long *id, void **graph, const void **nodes, size_t *count),
          capture(stream, status, id, graph, nodes, NULL, count))
ON_STREAM(cudaStreamGetCaptureInfo_v3,
          (void *stream, int *status, unsigned long long *id, void **graph, const void **nodes, const void **edges,
           size_t *count),
          capture(stream, status, id, graph, nodes, edges, count))
#else
ON_STREAM(cudaStreamGetCaptureInfo,
          (void *stream, int *status, unsigned long long *id, void **graph, const void **nodes, const void **edges,
           size_t *count),
          capture(stream, status, id, graph, nodes, edges, count))
#endif
