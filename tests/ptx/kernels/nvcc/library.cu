// Kernels over CUDA's own libraries: what they expand to is larger and more varied than hand-written code.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/cub.cuh>
#include <cuda/atomic>

namespace groups = cooperative_groups;

struct Shape {
    __device__ virtual int area(int x) { return x; }
};

struct Square : Shape {
    __device__ int area(int x) override { return x * x; }
};

struct Double : Shape {
    __device__ int area(int x) override { return 2 * x; }
};

extern "C" {

__global__ void sort(unsigned *data)
{
    using Sort = cub::BlockRadixSort<unsigned, 128, 4>;
    __shared__ typename Sort::TempStorage storage;
    unsigned keys[4];
    for (int i = 0; i < 4; i++)
        keys[i] = data[threadIdx.x * 4 + i];
    Sort(storage).Sort(keys);
    for (int i = 0; i < 4; i++)
        data[threadIdx.x * 4 + i] = keys[i];
}

__global__ void scan(int *data)
{
    using Scan = cub::BlockScan<int, 128>;
    __shared__ typename Scan::TempStorage storage;
    int sum;
    Scan(storage).InclusiveSum(data[threadIdx.x], sum);
    data[threadIdx.x] = sum;
}

__global__ void tiles(const int *data, int *sums)
{
    auto tile = groups::tiled_partition<16>(groups::this_thread_block());
    int sum = groups::reduce(tile, data[threadIdx.x], groups::plus<int>());
    if (tile.thread_rank() == 0)
        sums[threadIdx.x / 16] = sum;
}

__global__ void rendezvous(int *arrived)
{
    cuda::atomic_ref<int, cuda::thread_scope_device> count(*arrived);
    count.fetch_add(1, cuda::std::memory_order_acq_rel);
    while (count.load(cuda::std::memory_order_acquire) < (int)(gridDim.x * blockDim.x))
        ;
    cuda::atomic_thread_fence(cuda::std::memory_order_seq_cst, cuda::thread_scope_system);
}

__global__ void shapes(int *out)
{
    Shape shape;
    Square square;
    Double twice;
    Shape *all[3] = {&shape, &square, &twice};
    out[threadIdx.x] = all[threadIdx.x % 3]->area(threadIdx.x);
}

__global__ void quotients(__int128 *values)
{
    __int128 *v = values + 3 * threadIdx.x;
    v[2] = v[0] / v[1];
}

}
