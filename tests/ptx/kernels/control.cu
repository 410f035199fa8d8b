// Branches, calls and memory of a thread's own.

extern "C" {

__global__ void choose(const int *in, int *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int x = in[i], y;
    switch (x) {
    case 0: y = x + i; break;
    case 1: y = x * i; break;
    case 2: y = i - x; break;
    case 3: y = i ^ 0x55; break;
    case 4: y = i / 3; break;
    case 5: y = in[0] + 1; break;
    case 6: y = -x; break;
    case 7: y = i % 7; break;
    case 8: y = i << 3; break;
    default: y = -1;
    }
    out[i] = y;
}

__device__ __noinline__ unsigned factorial(unsigned n)
{
    return n < 2 ? 1 : n * factorial(n - 1);
}

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n)
{
    if (m == 0)
        return n + 1;
    return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

__global__ void recurse(unsigned *out)
{
    out[2 * threadIdx.x] = factorial(threadIdx.x);
    out[2 * threadIdx.x + 1] = ackermann(2, threadIdx.x % 4);
}

struct Pair {
    double first;
    int second;
};

__device__ __noinline__ Pair swapped(Pair pair, int by)
{
    Pair result = {pair.second + 0.5, (int)pair.first + by};
    return result;
}

__global__ void structs(double *out)
{
    Pair pair = {(double)threadIdx.x, 7};
    pair = swapped(pair, 10);
    out[2 * threadIdx.x] = pair.first;
    out[2 * threadIdx.x + 1] = pair.second;
}

__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int thrice(int x) { return 3 * x; }
__device__ __noinline__ int square(int x) { return x * x; }

typedef int (*Function)(int);
__device__ Function functions[3] = {twice, thrice, square};

__global__ void pointers(int *out)
{
    out[threadIdx.x] = functions[threadIdx.x % 3](threadIdx.x);
}

__global__ void local(const int *in, int *out)
{
    int values[32];
    for (int i = 0; i < 32; i++)
        values[i] = in[(i * 7 + threadIdx.x) % 32];
    // Insertion sort: the indices are known only now.
    for (int i = 1; i < 32; i++)
        for (int j = i; j > 0 && values[j - 1] > values[j]; j--) {
            int t = values[j];
            values[j] = values[j - 1];
            values[j - 1] = t;
        }
    for (int i = 0; i < 32; i++)
        out[32 * threadIdx.x + i] = values[i];
}

__global__ void collatz(unsigned *out)
{
    unsigned long long x = blockIdx.x * blockDim.x + threadIdx.x + 1;
    unsigned steps = 0;
    while (x != 1) {
        x = x % 2 ? 3 * x + 1 : x / 2;
        steps++;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = steps;
}

}
