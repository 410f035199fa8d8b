// Kernels as programs with pycuda and CUB have them, compiled by kernels.py.

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_reduce.cuh>

// What pycuda's ElementwiseKernel makes of "z[i] = a*x[i] + b*y[i]".
extern "C" __global__ void elementwise(float a, float *x, float b, float *y, float *z, unsigned long long n)
{
    unsigned tid = threadIdx.x;
    unsigned total_threads = gridDim.x * blockDim.x;
    unsigned cta_start = blockDim.x * blockIdx.x;
    unsigned i;
    for (i = cta_start + tid; i < n; i += total_threads)
        z[i] = a * x[i] + b * y[i];
}

// A tree in shared memory.
extern "C" __global__ void reduction(const float *in, float *out, int n)
{
    __shared__ float sums[256];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = sums[0];
}

// Hillis and Steele's scan of a block.
extern "C" __global__ void scan(const int *in, int *out)
{
    __shared__ int sums[2][256];
    int from = 0, i = blockIdx.x * blockDim.x + threadIdx.x;
    sums[0][threadIdx.x] = in[i];
    __syncthreads();
    for (int distance = 1; distance < blockDim.x; distance *= 2) {
        int sum = sums[from][threadIdx.x];
        if (threadIdx.x >= distance)
            sum += sums[from][threadIdx.x - distance];
        sums[1 - from][threadIdx.x] = sum;
        from = 1 - from;
        __syncthreads();
    }
    out[i] = sums[from][threadIdx.x];
}

extern "C" __global__ void cub_warp_reduce(const int *in, int *out, int n)
{
    using Reduce = cub::WarpReduce<int>;
    __shared__ typename Reduce::TempStorage storage[8];
    int warp = threadIdx.x / 32;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int sum = Reduce(storage[warp]).Sum(in[i]);
        if (threadIdx.x % 32 == 0)
            out[i / 32] = sum;
    }
}

extern "C" __global__ void cub_block_scan(const int *in, int *out, int n)
{
    using Scan = cub::BlockScan<int, 256>;
    using Reduce = cub::BlockReduce<int, 256>;
    __shared__ typename Scan::TempStorage scan;
    __shared__ typename Reduce::TempStorage reduce;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int value, sum = Reduce(reduce).Sum(in[i]);
        Scan(scan).InclusiveSum(in[i] + sum, value);
        out[i] = value;
        __syncthreads();
    }
}

// Lanes that go different ways.
extern "C" __global__ void collatz(const int *in, int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, steps = 0;
    for (unsigned long long n = in[i]; n != 1; steps++)
        n = n % 2 ? 3 * n + 1 : n / 2;
    out[i] = steps;
}

// A lock that the lanes of a warp fight for.
extern "C" __global__ void spin_lock(int *lock, int *count)
{
    bool done = false;
    while (!done)
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int *)count += 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
}
