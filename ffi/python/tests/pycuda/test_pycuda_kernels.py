"""pycuda kernels on this package's memory, compiled by nvcc and run by a GPU or by the simulated driver.

On the simulated driver nvcc is ``sim/cli/nvcc``, which calls the real one for PTX. ``make python`` installs
the real one.
"""

import functools
import subprocess
import textwrap

import numpy as np
import pytest
import simulator
import vkgdr

pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)

import pycuda.driver as drv
import vkgdr.pycuda
from pycuda import gpuarray
from pycuda.compiler import DynamicModule, DynamicSourceModule, SourceModule
from pycuda.elementwise import ElementwiseKernel
from pycuda.reduction import ReductionKernel
from pycuda.scan import InclusiveScanKernel


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
def handle(pycuda_context):
    return vkgdr.Vkgdr(hash(pycuda_context.get_device()))


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


def test_a_module_is_linked_from_two_sources(new):
    module = DynamicModule()
    module.add_source(
        "extern __device__ int twice(int x); __global__ void f(int *x) { x[threadIdx.x] = twice(x[threadIdx.x]); }",
        nvcc_options=["-rdc=true"],
    )
    module.add_source("__device__ int twice(int x) { return 2 * x; }", nvcc_options=["-rdc=true"])
    module.link()
    array = new(np.arange(32, dtype=np.int32))
    module.get_function("f")(array, block=(32, 1, 1))
    assert np.array_equal(array.get(), 2 * np.arange(32))


def test_a_module_is_linked_with_the_device_runtime(new):
    module = DynamicSourceModule("__global__ void twice(int *x) { x[threadIdx.x] *= 2; }")
    array = new(np.arange(32, dtype=np.int32))
    module.get_function("twice")(array, block=(32, 1, 1))
    assert np.array_equal(array.get(), 2 * np.arange(32))


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


def test_a_kernel_uses_static_and_dynamic_shared_memory(new):
    source = """
    __global__ void turn(float *x)
    {
        extern __shared__ float moved[];
        __shared__ float last;
        moved[(threadIdx.x + 1) % blockDim.x] = x[threadIdx.x];
        if (threadIdx.x == blockDim.x - 1)
            last = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = moved[threadIdx.x] + 1000 * last;
    }
    """
    array = new(np.arange(96, dtype=np.float32))
    turn = SourceModule(source).get_function("turn")
    assert turn.shared_size_bytes >= 4
    turn(array, block=(96, 1, 1), shared=96 * 4)
    assert np.array_equal(array.get(), np.roll(np.arange(96), 1) + 95_000)


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


def test_division_powers_and_comparisons_are_numpys(new):
    one = np.linspace(0.5, 9, 200, dtype=np.float32)
    a = new(one)
    assert np.allclose((a / 3).get(), one / 3, rtol=1e-6)
    assert np.allclose((2 / a).get(), 2 / one, rtol=1e-6)
    assert np.allclose((a**2.5).get(), one**2.5, rtol=1e-5)
    assert np.array_equal((a > 4).get(), one > 4)
    assert np.array_equal(gpuarray.maximum(a, new(np.full_like(one, 5))).get(), np.maximum(one, 5))


@pytest.mark.parametrize("name", ["sin", "exp", "log", "sqrt", "floor"])
def test_functions_of_elements_are_numpys(new, name):
    from pycuda import cumath

    one = np.linspace(0.25, 20, 500, dtype=np.float32)
    assert np.allclose(getattr(cumath, name)(new(one)).get(), getattr(np, name)(one), rtol=2e-6, atol=2e-7)


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


@pytest.mark.parametrize("n", [1, 31, 513, 40_000])
def test_reductions_are_numpys(new, n):
    one, two = np.arange(n, dtype=np.float64) % 101, np.arange(n, dtype=np.float64) % 13
    a, b = new(one), new(two)
    assert gpuarray.dot(a, b).get() == np.dot(one, two)
    assert gpuarray.sum(a).get() == one.sum()
    assert gpuarray.max(a).get() == one.max()
    kernel = ReductionKernel(
        np.float64, neutral="0", reduce_expr="a+b", map_expr="x[i]*x[i]", arguments="const double *x"
    )
    assert kernel(a).get() == (one * one).sum()


def test_a_scan_is_numpys(new):
    numbers = np.arange(3000, dtype=np.int32) % 17
    assert np.array_equal(InclusiveScanKernel(np.int32, "a+b")(new(numbers)).get(), np.cumsum(numbers))


def test_complex_numbers_are_numpys(new):
    one = (np.arange(200) + 1j * np.arange(200)[::-1]).astype(np.complex64)
    a = new(one)
    assert np.allclose((a * a).get(), one * one, rtol=1e-6)
    assert np.allclose(a.conj().get(), one.conj())
    assert np.allclose(a.real.get(), one.real)


def run_in_a_context(run_python, code):
    """Run code whose last kernel fails in a new process, since it loses its context, and print pycuda's error."""
    before = """
        import numpy as np, pycuda.driver as drv
        from pycuda.compiler import SourceModule
        drv.init()
        context = drv.Device(0).make_context()
    """
    after = """
        try:
            context.synchronize()
        except drv.Error as error:
            print(error, flush=True)
        context.detach()
    """
    return run_python("".join(map(textwrap.dedent, (before, code, after))), expect=None)


def test_an_illegal_address_is_pycudas_error_and_names_the_instruction(run_python, simulated):
    done = run_in_a_context(
        run_python,
        """
        put = SourceModule("__global__ void put(int *to) { to[threadIdx.x] = 1; }").get_function("put")
        buffer = drv.mem_alloc(40)
        put(buffer, block=(11, 1, 1))
        """,
    )
    assert "illegal memory access" in done.stdout
    assert "illegal address in kernel put" in done.stderr
    assert "st.global" in done.stderr
    assert "thread (10, 0, 0)" in done.stderr
    assert "40 bytes at" in done.stderr


def test_a_failed_assertion_is_pycudas_error_and_says_which(run_python, simulated):
    done = run_in_a_context(
        run_python,
        r'''
        source = """
        #include <assert.h>
        #include <stdio.h>
        extern "C" __global__ void check(int limit)
        {
            printf("thread %d of %d\\n", threadIdx.x, blockDim.x);
            assert(threadIdx.x < limit);
        }
        """
        check = SourceModule(source, no_extern_c=True).get_function("check")
        check(np.int32(3), block=(3, 1, 1))
        context.synchronize()
        check(np.int32(3), block=(4, 1, 1))
        ''',
    )
    assert "thread 2 of 3\n" in done.stdout
    assert "device-side assert triggered" in done.stdout
    assert "threadIdx.x < limit" in done.stderr
    assert "thread (3, 0, 0)" in done.stderr


def test_source_that_does_not_compile_is_pycudas_error():
    with pytest.raises(drv.CompileError, match="nvcc compilation"):
        SourceModule("__global__ void broken() { this is no C; }")


def test_a_kernel_that_could_not_be_launched_leaves_nothing_behind(new, simulated):
    put = SourceModule("__global__ void put(int *to) { *to = 1; }").get_function("put")
    array = new(np.zeros(1, np.int32))
    with simulator.fail("cuLaunchKernel", 1, 701), pytest.raises(drv.LaunchError, match="too many resources"):
        put(array, block=(1, 1, 1))
    put(array, block=(1, 1, 1))
    assert array.get()[0] == 1
