// Kernels that wait: for the CPU, for other blocks, for time.

extern "C" {

__global__ void poll(volatile unsigned *flag, unsigned *out)
{
    while (*flag == 0)
        ;
    __threadfence_system();
    *out = *flag + 1;
}

__global__ void ping_pong(volatile unsigned *flag, volatile unsigned *reply, unsigned rounds)
{
    for (unsigned round = 1; round <= rounds; round++) {
        while (*flag != round)
            ;
        __threadfence_system();
        *reply = round;
    }
}

__global__ void grid_barrier(unsigned *arrived, unsigned *out)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < gridDim.x)
            ;
    }
    __syncthreads();
    __threadfence();
    unsigned next = (blockIdx.x + 1) % gridDim.x;
    unsigned seen = *(volatile unsigned *)&out[next * blockDim.x + threadIdx.x];
    __syncthreads();
    out[(gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x] = seen;
}

__global__ void clocks(long long *out)
{
    long long start = clock64();
#if __CUDA_ARCH__ >= 700
    __nanosleep(2000);
#endif
    out[0] = clock64() - start;
    unsigned smid;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
    out[1] = smid;
}

__global__ void hand_over(volatile int *out)
{
    __shared__ volatile int turn;
    if (threadIdx.x == 0)
        turn = 0;
    __syncthreads();
    while (turn != threadIdx.x)
        ;
    out[threadIdx.x] = turn * 10;
    turn = threadIdx.x + 1;
}

}
