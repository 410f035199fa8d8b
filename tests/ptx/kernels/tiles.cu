// Tiles in shared memory.

#define TILE 16

extern "C" {

__global__ void transpose(const float *in, float *out, unsigned width, unsigned height)
{
    __shared__ float tile[TILE][TILE + 1];
    unsigned x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x < width && y < height)
        tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < height && y < width)
        out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void multiply(const float *a, const float *b, float *c, unsigned n)
{
    __shared__ float at[TILE][TILE], bt[TILE][TILE];
    unsigned column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    float sum = 0;
    for (unsigned k = 0; k < n; k += TILE) {
        at[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        bt[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (unsigned j = 0; j < TILE; j++)
            sum += at[threadIdx.y][j] * bt[j][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void reverse(int *data, unsigned n)
{
    extern __shared__ int copy[];
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
        copy[i] = data[i];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
        data[i] = copy[n - 1 - i];
}

__global__ void places(uint4 *out)
{
    unsigned i = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[b * blockDim.x * blockDim.y * blockDim.z + i] = make_uint4(threadIdx.x, threadIdx.y, threadIdx.z, b);
}

}
