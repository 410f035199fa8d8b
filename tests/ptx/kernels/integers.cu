// Integer arithmetic, element by element: each kernel writes several results for each pair of operands.

template <typename T>
__device__ void all(const T *a, const T *b, T *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    T x = a[i], y = b[i];
    T *o = out + 12 * i;
    o[0] = x + y;
    o[1] = x - y;
    o[2] = x * y;
    o[3] = y != 0 ? x / y : 0;
    o[4] = y != 0 ? x % y : 0;
    o[5] = x & y;
    o[6] = x | ~y;
    o[7] = x ^ y;
    o[8] = x << (y & (8 * sizeof(T) - 1));
    o[9] = x >> (y & (8 * sizeof(T) - 1));
    o[10] = x < y ? x : y;
    o[11] = x * 7 + (x > y);
}

extern "C" {

__global__ void u32(const unsigned *a, const unsigned *b, unsigned *out, unsigned n) { all(a, b, out, n); }
__global__ void s32(const int *a, const int *b, int *out, unsigned n) { all(a, b, out, n); }
__global__ void u64(const unsigned long long *a, const unsigned long long *b, unsigned long long *out, unsigned n) { all(a, b, out, n); }
__global__ void s64(const long long *a, const long long *b, long long *out, unsigned n) { all(a, b, out, n); }
__global__ void u16(const unsigned short *a, const unsigned short *b, unsigned short *out, unsigned n) { all(a, b, out, n); }
__global__ void s16(const short *a, const short *b, short *out, unsigned n) { all(a, b, out, n); }
__global__ void u8(const unsigned char *a, const unsigned char *b, unsigned char *out, unsigned n) { all(a, b, out, n); }

__global__ void intrinsics(const unsigned *a, const unsigned *b, unsigned *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned x = a[i], y = b[i];
    unsigned *o = out + 16 * i;
    o[0] = __popc(x);
    o[1] = __clz(x);
    o[2] = __brev(x);
    o[3] = __byte_perm(x, y, 0x5140);
    o[4] = __umulhi(x, y);
    o[5] = __mulhi((int)x, (int)y);
    o[6] = __funnelshift_l(x, y, x & 31);
    o[7] = __funnelshift_rc(x, y, y & 63);
    o[8] = __ffs(x);
    o[9] = __usad(x, y, 5);
    o[10] = __umul24(x, y);
    o[11] = __sad((int)x, (int)y, 9);
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(o[12]) : "r"(x), "r"(y), "r"(3));
    o[13] = (x & y) | (~x & 0x0f0f0f0f) ^ y;
    o[14] = abs((int)x);
    o[15] = (x >> 5) & 0x3ff;
}

__global__ void wide(const unsigned long long *a, const unsigned long long *b, unsigned long long *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long x = a[i], y = b[i];
    out[4 * i] = __umul64hi(x, y);
    out[4 * i + 1] = __mul64hi((long long)x, (long long)y);
    out[4 * i + 2] = __popcll(x) + 100 * __clzll(y);
    unsigned __int128 product = (unsigned __int128)x * y + x;
    out[4 * i + 3] = (unsigned long long)(product >> 32);
}

}
