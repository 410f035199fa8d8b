// Parameters by value, constants and variables of the module.

struct Shape {
    float scale[4];
    char tag;
    short kind;
    unsigned long long big;
};

__constant__ float table[5] = {1.0f, -2.5f, 3.25f, 0.0f, 1e-3f};
__constant__ struct { unsigned char a; unsigned short b; int c[3]; } mixed = {200, 60000, {-1, 2, -3}};
__device__ int counter = 40;
__device__ unsigned long long words[3] = {1, 0xffffffffffffffffull, 3};
__device__ int *pointer = &counter;
__device__ const char *text = "hello";

extern "C" {

__device__ int visible[4] = {10, 20, 30, 40};

__global__ void by_value(Shape shape, float *out, unsigned index)
{
    out[0] = shape.scale[index];
    out[1] = shape.tag;
    out[2] = shape.kind;
    out[3] = (float)(shape.big >> 32);
}

__global__ void constants(float *out)
{
    unsigned i = threadIdx.x;
    out[i] = table[i % 5] + mixed.a + mixed.b + mixed.c[i % 3];
}

__global__ void variables(long long *out)
{
    atomicAdd(&counter, 2);
    out[0] = *pointer;
    out[1] = words[1];
    out[2] = text[1];
    visible[2] += 5;
    out[3] = visible[2];
}

__global__ void small(const signed char *bytes, const unsigned short *shorts, int *out)
{
    unsigned i = threadIdx.x;
    out[i] = bytes[i] * 1000 + shorts[i];
}

__global__ void vectors(const float4 *in, float2 *out)
{
    float4 v = in[threadIdx.x];
    out[threadIdx.x] = make_float2(v.x + v.y, v.z * v.w);
}

}
