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
