// The kernel of the vector_add example. scripts/compile-ptx.py compiles it to vector_add.ptx.
extern "C" __global__ void vector_add(const float *a, const float *b, float *sum, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        sum[i] = a[i] + b[i];
}
