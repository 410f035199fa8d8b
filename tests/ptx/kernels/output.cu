// What the device's runtime provides.

// NVRTC has them built in.
#ifndef __CUDACC_RTC__
#include <cassert>
#include <cstdio>
#endif

extern "C" {

__global__ void checked(const int *in)
{
    assert(in[threadIdx.x] >= 0);
}

__global__ void print(const int *in)
{
    printf("thread %d of %u: %5.2f %s %lld%%\n", threadIdx.x, blockDim.x, in[threadIdx.x] * 0.5, "half", -5000000000ll);
}

__global__ void trapped(const int *in)
{
    if (in[threadIdx.x] == 3)
        __trap();
}

}
