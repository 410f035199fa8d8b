// The kernel of the ring_echo example. scripts/compile-ptx.py --option=-Isrc/ring compiles it to ring_echo.ptx.
#include "vkgdr_ring.cuh"

// Answers each message with its bytes, until the CPU closes or aborts the ring. One block, of any number of threads.
extern "C" __global__ void echo(unsigned long long address)
{
    __shared__ struct vkgdr_device_ring ring;
    __shared__ const unsigned char *message;
    __shared__ unsigned char *answer;
    __shared__ unsigned long long size;
    bool first = threadIdx.x == 0;
    if (first)
        message = vkgdr_device_ring_open(&ring, address) ? vkgdr_device_ring_pop(&ring, &size) : 0;
    __syncthreads();
    if (!message)
        return;
    while (message) {
        if (first)
            answer = vkgdr_device_ring_reserve(&ring, size);
        __syncthreads();
        for (unsigned long long at = threadIdx.x; answer && at < size; at += blockDim.x)
            answer[at] = message[at];
        __syncthreads();
        if (first)
            message = vkgdr_device_ring_pop(&ring, &size);
        __syncthreads();
    }
    if (first)
        vkgdr_device_ring_close(&ring);
}
