"""The libraries that have an adaptor, each behind the same few functions, for tests of all adaptors.

A library's allocator is chosen for a whole process, so tests use each library in a process of its own.
"""

import contextlib
import importlib.util
import textwrap
from collections.abc import Callable
from typing import Any

import libcuda
import neighbours
import numpy as np
import pytest
import simulator


def can_import(module: str) -> bool:
    """Return whether a module is installed, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


class Library:
    """What tests do with a library: make arrays of 32-bit integers, copy and add on the device.

    The arrays are in memory of vkgdr of a kind, or in the library's own where the kind is None.
    """

    # The errors for a shortage of memory.
    shortage: tuple[type[Exception], ...] = (MemoryError,)

    def __init__(self, kind: Any = "mapped", *, pool: bool = False) -> None:
        raise NotImplementedError

    def array(self, count: int) -> Any:
        raise NotImplementedError

    def copy(self, to: Any, source: Any) -> None:
        """Copy on the device, and wait."""
        raise NotImplementedError

    def add(self, array: Any, value: int) -> bool:
        """Add a number to all elements in a kernel, and wait; False for a library that has no kernels."""
        return False

    def stream(self, array: Any) -> int | None:
        """Return the stream after which the array will be freed; None if the library names none."""
        return None


class Numba(Library):
    def __init__(self, kind: Any = "mapped", *, pool: bool = False) -> None:
        from numba import cuda
        from numba.cuda.cudadrv.driver import CudaAPIError

        if kind is not None:
            import vkgdr.numba

            cuda.set_memory_manager(vkgdr.numba.manager(kind, pool=pool))
        cuda.current_context()
        self.cuda, self.shortage = cuda, (CudaAPIError,)

        @cuda.jit
        def add(array, value):
            i = cuda.grid(1)
            if i < array.size:
                array[i] += value

        self._add = add

    def array(self, count: int) -> Any:
        return self.cuda.device_array(count, "i4")

    def copy(self, to: Any, source: Any) -> None:
        to.copy_to_device(source)

    def add(self, array: Any, value: int) -> bool:
        self._add.forall(array.size)(array, value)
        self.cuda.synchronize()
        return True


class CudaCore(Library):
    def __init__(self, kind: Any = "mapped", *, pool: bool = False) -> None:
        import vkgdr.cuda_core
        from cuda.core import Device

        self.device = Device(0)
        self.device.set_current()
        self.resource = vkgdr.cuda_core.MappedMemoryResource(self.device, kind=kind, pool=pool)
        self.device.memory_resource = self.resource
        self.queue = self.device.create_stream()

    def array(self, count: int) -> Any:
        return self.device.allocate(4 * count, stream=self.queue)

    def copy(self, to: Any, source: Any) -> None:
        to.copy_from(source, stream=self.queue)
        self.queue.sync()

    def add(self, array: Any, value: int) -> bool:
        from cuda.core import LaunchConfig, Program, ProgramOptions, launch

        code = 'extern "C" __global__ void add(int *a, int n, int v) {'
        code += " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] += v; }"
        program = Program(code, code_type="c++", options=ProgramOptions(arch="sm_80"))
        kernel = program.compile("ptx").get_kernel("add")
        count = array.size // 4
        config = LaunchConfig(grid=(count + 127) // 128, block=128)
        launch(self.queue, config, kernel, array, np.int32(count), np.int32(value))
        self.queue.sync()
        return True

    def stream(self, array: Any) -> int | None:
        return int(self.queue.handle)


class Rmm(Library):
    def __init__(self, kind: Any = "mapped", *, pool: bool = False) -> None:
        import rmm
        import vkgdr.rmm

        self.rmm, self.driver = rmm, libcuda.Cuda()
        self.driver.push(self.driver.retain_primary())
        # Statistics are one of RMM's adaptors, which take our resource as their upstream.
        self.resource = rmm.mr.StatisticsResourceAdaptor(vkgdr.rmm.memory_resource(kind, pool=pool))
        self.queue = rmm.pylibrmm.stream.Stream(neighbours.Stream(self.driver.create_stream()))

    def array(self, count: int) -> Any:
        return self.rmm.DeviceBuffer(size=4 * count, mr=self.resource, stream=self.queue)

    def copy(self, to: Any, source: Any) -> None:
        self.driver.copy(to.ptr, source.ptr, source.size)
        self.driver.synchronize()

    def stream(self, array: Any) -> int | None:
        return int(self.queue.__cuda_stream__()[1])


class Warp(Library):
    def __init__(self, kind: Any = "mapped", *, pool: bool = False) -> None:
        import warp

        warp.config.quiet = True
        # Any other output needs a part of the CUDA runtime that is linked into Warp.
        warp.config.cuda_output = "ptx"
        warp.init()
        if kind is not None:
            import vkgdr.warp

            warp.set_cuda_allocator(vkgdr.warp.Allocator(kind, pool=pool))
        self.warp, self.driver = warp, libcuda.Cuda()

        @warp.kernel
        def add(array: warp.array(dtype=warp.int32), value: warp.int32):  # type: ignore[valid-type]
            i = warp.tid()
            array[i] = array[i] + value

        self._add = add

    def array(self, count: int) -> Any:
        return self.warp.empty(count, dtype=self.warp.int32, device="cuda:0")

    def copy(self, to: Any, source: Any) -> None:
        self.driver.push(self.driver.retain_primary())
        self.driver.copy(to.ptr, source.ptr, 4 * source.size)
        self.driver.synchronize()
        self.driver.pop()
        self.driver.release_primary()

    def add(self, array: Any, value: int) -> bool:
        self.warp.launch(self._add, dim=array.size, inputs=[array, value], device="cuda:0")
        self.warp.synchronize_device("cuda:0")
        return True


class Torch(Library):
    def __init__(self, kind: Any = "mapped", *, pool: bool = False) -> None:
        import torch

        self.torch, self.pool = torch, None
        if kind is not None:
            import vkgdr.torch

            self.pool = vkgdr.torch.mem_pool(kind)
        self.shortage = (torch.OutOfMemoryError,)

    def array(self, count: int) -> Any:
        with contextlib.nullcontext() if self.pool is None else self.torch.cuda.use_mem_pool(self.pool):
            return self.torch.empty(count, dtype=self.torch.int32, device="cuda")

    def copy(self, to: Any, source: Any) -> None:
        to.copy_(source)
        self.torch.cuda.synchronize()

    def add(self, array: Any, value: int) -> bool:
        if simulator.available():
            return False  # PyTorch's kernels are machine code
        array.add_(value)
        self.torch.cuda.synchronize()
        return True


class Cupy(Library):
    """Only on a real GPU: CuPy contains a CUDA runtime of its own."""

    def __init__(self, kind: Any = "mapped", *, pool: bool = False) -> None:
        import cupy

        self.cupy = cupy
        if kind is not None:
            import vkgdr.cupy

            cupy.cuda.set_allocator(vkgdr.cupy.allocator(kind, pool=pool))

    def array(self, count: int) -> Any:
        return self.cupy.empty(count, dtype="i4")

    def copy(self, to: Any, source: Any) -> None:
        to[...] = source
        self.cupy.cuda.Device().synchronize()

    def add(self, array: Any, value: int) -> bool:
        array += value
        self.cupy.cuda.Device().synchronize()
        return True


# By the module to import.
LIBRARIES: dict[str, type[Library]] = {
    "numba.cuda": Numba,
    "cuda.core": CudaCore,
    "rmm": Rmm,
    "warp": Warp,
    "torch.cuda": Torch,
    "cupy": Cupy,
}


def runner(
    run_python: Callable[..., Any], module: str, package: str, prelude: str, **settings: str
) -> Callable[..., str]:
    """Return a function that runs a program with a library on the simulated GPU, and returns what it prints."""
    if not can_import(module):
        pytest.skip(f"{package} is not installed")
    if not simulator.available():
        pytest.skip("uses settings of the simulated driver")
    defaults = {"VKGDR_SIM_PRELOAD": "1", "VKGDR_TEST_PROFILE": "none"} | settings

    def run(code: str, **others: str) -> str:
        return run_python(prelude + textwrap.dedent(code), **(defaults | others)).stdout

    return run
