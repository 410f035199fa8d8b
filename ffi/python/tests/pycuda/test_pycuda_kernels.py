"""pycuda kernels on this package's memory, compiled by nvcc and run by a GPU or by the simulated driver.

On the simulated driver nvcc is ``sim/cli/nvcc``, which calls the real one for PTX. ``make python`` installs
the real one.
"""

import functools
import subprocess

import numpy as np
import pytest
import vkgdr

pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)

import pycuda.driver as drv
import vkgdr.pycuda
from pycuda import gpuarray
from pycuda.compiler import SourceModule
from pycuda.elementwise import ElementwiseKernel


@functools.cache
def compiler_works():
    """Return whether nvcc can be called."""
    try:
        return subprocess.run(["nvcc", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.fixture(autouse=True)
def compiler():
    """Skip without nvcc."""
    if not compiler_works():
        pytest.skip("nvcc is not installed: run `make python`")


@pytest.fixture
def new(handle):
    """Create a `GPUArray` in this package's memory with these elements."""

    def new(elements, kind="mapped"):
        elements = np.asarray(elements)
        memory = vkgdr.pycuda.Memory(handle, max(elements.nbytes, 1), kind=kind)
        array = gpuarray.GPUArray(elements.shape, elements.dtype, gpudata=memory)
        array.set(elements)
        return array

    return new


SAXPY = """
__constant__ float offset[2];
__device__ unsigned int launches;

__global__ void saxpy(float a, const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i] + offset[0];
    if (i == 0)
        launches++;
}
"""


def test_a_source_module_computes_on_our_memory(handle):
    n = 5000
    x = vkgdr.pycuda.MappedArray.empty(handle, n, np.float32)
    y = vkgdr.pycuda.MappedArray.empty(handle, n, np.float32, kind="host")
    x.host[:] = np.arange(n)
    y.host[:] = 1
    x.memory.flush()
    y.memory.flush()
    module = SourceModule(SAXPY)
    offset, size = module.get_global("offset")
    assert size == 8
    drv.memcpy_htod(offset, np.array([0.5, 0], np.float32))
    saxpy = module.get_function("saxpy")
    for _ in range(3):
        saxpy(np.float32(2), x.device, y.device, np.int32(n), block=(128, 1, 1), grid=(-(-n // 128), 1))
    drv.Context.synchronize()
    y.memory.invalidate()
    assert np.array_equal(y.host, 1 + 3 * (2 * x.host + np.float32(0.5)))
    launches = np.empty(1, np.uint32)
    drv.memcpy_dtoh(launches, module.get_global("launches")[0])
    assert launches[0] == 3


def test_a_kernel_takes_memory_and_regions_themselves(handle):
    memory = vkgdr.pycuda.Memory(handle, 4096)
    memory.memset(0)
    module = SourceModule("__global__ void put(int *to, int what) { to[threadIdx.x] = what + threadIdx.x; }")
    function = module.get_function("put")
    function(memory[400:], np.int32(7), block=(50, 1, 1))
    prepared = function.prepare("Pi")
    prepared.prepared_call((1, 1), (10, 1, 1), memory.device_ptr, 90)
    expected = np.zeros(1024, np.int32)
    expected[100:150] = np.arange(7, 57)
    expected[:10] = np.arange(90, 100)
    seen = np.empty_like(expected)
    drv.memcpy_dtoh(seen, memory)
    assert np.array_equal(seen, expected)


def test_kernels_and_copies_are_in_the_streams_order(new):
    function = SourceModule("__global__ void twice(int *x) { x[threadIdx.x] *= 2; }").get_function("twice")
    stream, array = drv.Stream(), new(np.zeros(64, np.int32))
    source = drv.pagelocked_empty(64, np.int32)
    source[:] = np.arange(64)
    drv.memcpy_htod_async(array.gpudata, source, stream)
    for _ in range(5):
        function(array, block=(64, 1, 1), stream=stream)
    target = drv.pagelocked_empty(64, np.int32)
    drv.memcpy_dtoh_async(target, array.gpudata, stream)
    stream.synchronize()
    assert np.array_equal(target, 32 * np.arange(64))


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_arithmetic_of_arrays_is_numpys(new, dtype):
    one, two = np.arange(1, 301).astype(dtype), (np.arange(300) % 7 + 1).astype(dtype)
    a, b = new(one), new(two, kind="host")
    assert np.array_equal((a + b).get(), one + two)
    assert np.array_equal((a - b).get(), one - two)
    assert np.array_equal((a * b).get(), one * two)
    a += b
    assert np.array_equal(a.get(), one + two)
    assert np.array_equal(abs(new(-two)).get(), two)


def test_fill_and_zeros_write_every_element(new, handle):
    array = new(np.ones(1000, np.float32))
    assert (array.fill(2.5).get() == 2.5).all()
    zeros = gpuarray.zeros(1000, np.int64, allocator=vkgdr.pycuda.allocator(handle))
    assert isinstance(zeros.gpudata, vkgdr.pycuda.Memory)
    assert not zeros.get().any()
    assert np.array_equal(gpuarray.arange(5, 500, 3, dtype=np.float32).get(), np.arange(5, 500, 3))


def test_a_temporary_array_lives_as_long_as_the_work_on_it(new):
    numbers = np.arange(100_000, dtype=np.float32)
    array = new(numbers)
    assert np.array_equal((array + array).copy().get(), 2 * numbers)


def test_an_elementwise_kernel_of_ones_own_runs(new):
    kernel = ElementwiseKernel("float a, float *x, float *y", "y[i] = a * x[i] - y[i]", "axmy")
    x, y = np.arange(777, dtype=np.float32), np.full(777, 3, np.float32)
    device_y = new(y, kind="host")
    kernel(np.float32(1.5), new(x), device_y)
    assert np.array_equal(device_y.get(), np.float32(1.5) * x - y)
