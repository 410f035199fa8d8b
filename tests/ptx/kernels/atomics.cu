// Atomic operations across threads and blocks.

extern "C" {

__global__ void histogram(const unsigned char *in, unsigned *bins, unsigned n)
{
    __shared__ unsigned local[256];
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x)
        local[i] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[in[i]], 1);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x)
        atomicAdd(&bins[i], local[i]);
}

__global__ void every(unsigned *u, int *s, unsigned long long *w, float *f, double *d)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&u[0], i);
    atomicSub(&u[1], i);
    atomicMin(&u[2], i);
    atomicMax(&u[3], i);
    atomicInc(&u[4], 9);
    atomicDec(&u[5], 9);
    atomicAnd(&u[6], ~(1u << (i % 32)));
    atomicOr(&u[7], 1u << (i % 32));
    atomicXor(&u[8], i);
    atomicMin(&s[0], -(int)i);
    atomicMax(&s[1], (int)i - 5);
    atomicAdd(&w[0], (unsigned long long)i << 32);
    atomicMax(&w[1], (unsigned long long)i * 3);
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    if (atomicExch(&u[9], i) == 0xffffffff)
        atomicAdd(&u[10], 1);
    float *product = f + 1;
    int old = __float_as_int(*(volatile float *)product), seen;
    do {
        seen = old;
        old = atomicCAS((int *)product, seen, __float_as_int(__int_as_float(seen) + 1.0f));
    } while (old != seen);
}

__global__ void locked(int *lock, int *counter)
{
    while (atomicCAS(lock, 0, 1) != 0)
        ;
    __threadfence();
    *(volatile int *)counter = *(volatile int *)counter + 1;
    __threadfence();
    atomicExch(lock, 0);
}

}
