// The kernel of the vulkan_compute example. scripts/compile-ptx.py compiles it to step.ptx.
extern "C" __global__ void add_index(float *numbers, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        numbers[i] += (float)i;
}
