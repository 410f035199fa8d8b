// Half precision, alone and in pairs, and bfloat16.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" {

__global__ void f16(const __half *a, const __half *b, __half *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __half *o = out + 8 * i;
    o[0] = __hadd(a[i], b[i]);
    o[1] = __hsub(a[i], b[i]);
    o[2] = __hmul(a[i], b[i]);
    o[3] = __hfma(a[i], b[i], a[i]);
    o[4] = __hlt(a[i], b[i]) ? a[i] : b[i];
    o[5] = __hneg(a[i]);
    o[6] = __float2half(__half2float(a[i]) * 3.0f);
    o[7] = __int2half_rn(__half2int_rz(b[i]));
}

__global__ void f16x2(const __half2 *a, const __half2 *b, __half2 *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    out[2 * i] = __hfma2(a[i], b[i], __hadd2(a[i], b[i]));
    out[2 * i + 1] = __floats2half2_rn(__low2float(a[i]) + 1.0f, __high2float(b[i]) - 1.0f);
}

__global__ void bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    out[2 * i] = __bfloat162float(a[i]) + __bfloat162float(b[i]);
    out[2 * i + 1] = __bfloat162float(__float2bfloat16(__bfloat162float(a[i]) * __bfloat162float(b[i])));
}

}
