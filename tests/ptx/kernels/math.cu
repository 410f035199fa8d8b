// Floating-point arithmetic and the mathematical functions, element by element.

extern "C" {

__global__ void f32_basic(const float *a, const float *b, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = a[i], y = b[i];
    float *o = out + 8 * i;
    o[0] = __fadd_rn(x, y);
    o[1] = __fmul_rn(x, y);
    o[2] = __fdiv_rn(x, y);
    o[3] = __fsqrt_rn(x);
    o[4] = fminf(x, y);
    o[5] = fmaxf(x, y);
    o[6] = __fmaf_rn(x, y, 0.5f);
    o[7] = fabsf(x) * (x < y ? 2.0f : -1.0f);
}

__global__ void f32_rounded(const float *a, const float *b, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = a[i], y = b[i];
    float *o = out + 8 * i;
    o[0] = __fadd_rz(x, y);
    o[1] = __fadd_ru(x, y);
    o[2] = __fmul_rd(x, y);
    o[3] = __fmul_rz(x, y);
    o[4] = floorf(x);
    o[5] = ceilf(x);
    o[6] = truncf(x);
    o[7] = rintf(x);
}

__global__ void f32_functions(const float *a, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = a[i];
    float *o = out + 16 * i;
    o[0] = sinf(x);
    o[1] = cosf(x);
    o[2] = expf(x * 0.01f);
    o[3] = logf(fabsf(x) + 1.0f);
    o[4] = powf(fabsf(x) + 0.5f, 1.5f);
    o[5] = erff(x * 0.1f);
    o[6] = tanhf(x * 0.1f);
    o[7] = atanf(x);
    o[8] = atan2f(x, 2.0f);
    o[9] = fmodf(x, 1.75f);
    o[10] = cbrtf(x);
    o[11] = rsqrtf(fabsf(x) + 1.0f);
    o[12] = exp2f(x * 0.1f);
    o[13] = log2f(fabsf(x) + 1.0f);
    o[14] = lgammaf(fabsf(x) + 1.5f);
    o[15] = hypotf(x, 3.0f);
}

__global__ void f64_functions(const double *a, double *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double x = a[i];
    double *o = out + 16 * i;
    o[0] = sin(x);
    o[1] = cos(x);
    o[2] = exp(x * 0.01);
    o[3] = log(fabs(x) + 1.0);
    o[4] = pow(fabs(x) + 0.5, 1.5);
    o[5] = erf(x * 0.1);
    o[6] = tanh(x * 0.1);
    o[7] = atan(x);
    o[8] = sqrt(fabs(x));
    o[9] = fmod(x, 1.75);
    o[10] = cbrt(x);
    o[11] = rsqrt(fabs(x) + 1.0);
    o[12] = x / (fabs(x) + 3.0);
    o[13] = fma(x, x, -1.0);
    o[14] = floor(x);
    o[15] = 1.0 / (x * x + 1.0);
}

__global__ void conversions(const double *a, long long *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double x = a[i];
    long long *o = out + 8 * i;
    o[0] = (int)x;
    o[1] = (unsigned char)(int)x;
    o[2] = (short)(int)x;
    o[3] = (long long)(float)x;
    o[4] = __float2int_rn((float)x);
    o[5] = __double_as_longlong((double)(long long)x);
    o[6] = __float_as_int((float)(int)x);
    o[7] = (long long)__double2uint_ru(fabs(x));
}

__global__ void saxpy(float factor, const float *x, float *y, unsigned n)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = factor * x[i] + y[i];
}

}
