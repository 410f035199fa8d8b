// What threads of a warp and a block do together.

extern "C" {

__global__ void sum(const float *in, float *out, unsigned n)
{
    __shared__ float partial[32];
    float value = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        value += in[i];
    for (int step = 16; step > 0; step /= 2)
        value += __shfl_down_sync(0xffffffff, value, step);
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
        for (int step = 16; step > 0; step /= 2)
            value += __shfl_xor_sync(0xffffffff, value, step);
        if (threadIdx.x == 0)
            atomicAdd(out, value);
    }
}

__global__ void scan(const unsigned *in, unsigned *out, unsigned n)
{
    __shared__ unsigned buffer[2][256];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    unsigned which = 0;
    buffer[0][t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        buffer[1 - which][t] = buffer[which][t] + (t >= step ? buffer[which][t - step] : 0);
        which = 1 - which;
        __syncthreads();
    }
    if (i < n)
        out[i] = buffer[which][t];
}

__global__ void votes(const int *in, unsigned *out)
{
    int x = in[threadIdx.x];
    unsigned *o = out + 8 * threadIdx.x;
    o[0] = __ballot_sync(0xffffffff, x > 0);
    o[1] = __all_sync(0xffffffff, x > -100);
    o[2] = __any_sync(0xffffffff, x == 3);
    o[3] = __match_any_sync(0xffffffff, x % 4);
    o[4] = __shfl_sync(0xffffffff, x, threadIdx.x / 2);
    o[5] = __shfl_up_sync(0xffffffff, x, 1, 8);
    o[6] = 0;
    if (threadIdx.x % 2) {
        o[6] = __shfl_xor_sync(0xaaaaaaaa, x, 2) + __activemask() * 0;
    }
    __syncwarp();
    int all;
    o[7] = __match_all_sync(0xffffffff, 5, &all) + all;
}

__global__ void counts(const int *in, int *out)
{
    out[0] = __syncthreads_count(in[threadIdx.x] > 0);
    out[1] = __syncthreads_and(in[threadIdx.x] > -1000);
    out[2] = __syncthreads_or(in[threadIdx.x] == 12345);
}

__global__ void compact(const int *in, int *out, unsigned *used, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] > 0) {
        unsigned mask = __activemask();
        unsigned leader = __ffs(mask) - 1, lane = threadIdx.x % 32, base;
        if (lane == leader)
            base = atomicAdd(used, __popc(mask));
        base = __shfl_sync(mask, base, leader);
        out[base + __popc(mask & ((1u << lane) - 1))] = in[i];
    }
}

}
