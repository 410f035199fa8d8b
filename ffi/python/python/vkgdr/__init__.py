"""GPU memory that the CPU reads and writes through a plain pointer.

Vulkan allocates memory on an NVIDIA GPU and maps it for the CPU; CUDA imports it. The host pointer and the device
pointer address the same bytes.

* `Vkgdr` is a handle of a GPU, `Memory` frees itself, `RawMemory` is freed by hand.
* ``np.asarray(memory)`` is the host view; CuPy, PyTorch, numba and pycuda's kernels take the memory object itself.
* `vkgdr.memory_of` finds the memory in which an array or an address lies, `vkgdr.host_view` the CPU's view of it.
  Where the driver and the GPU allow it, `host_view` maps other libraries' memory too; `Mapping` does so by address.
* `vkgdr.ring` passes messages to a kernel that keeps running, and back.
* `vkgdr.vulkan` lends the Vulkan device, and has semaphores that Vulkan and CUDA share.
* `vkgdr.pool` has pools for small allocations, `vkgdr.pycuda` memory for pycuda's arrays.
* `vkgdr.numba`, `vkgdr.torch`, `vkgdr.cuda_core`, `vkgdr.rmm`, `vkgdr.warp` and `vkgdr.cupy` make these libraries
  allocate their arrays in this memory.
* `vkgdr.compat` has the shapes of dpctl, RMM and pyopencl.
* The command ``vkgdr``, also ``python -m vkgdr``, prints the GPUs; ``vkgdr doctor`` what keeps one from being used.
"""

from __future__ import annotations

from vkgdr._access import Map
from vkgdr._errors import (
    AllocationError,
    FreedError,
    InvalidArgumentError,
    NoHostViewError,
    OutOfRangeError,
    VkgdrError,
)
from vkgdr._memory import Mapping, Memory, OpenFlags, RawMemory, device_view, memory_of
from vkgdr._vkgdr import Vkgdr, __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vkgdr import arrays as arrays
    from vkgdr import compat as compat
    from vkgdr import cuda_core as cuda_core
    from vkgdr import cupy as cupy
    from vkgdr import ipc as ipc
    from vkgdr import numba as numba
    from vkgdr import pool as pool
    from vkgdr import pycuda as pycuda
    from vkgdr import ring as ring
    from vkgdr import rmm as rmm
    from vkgdr import stream as stream
    from vkgdr import torch as torch
    from vkgdr import typing as typing
    from vkgdr import vulkan as vulkan
    from vkgdr import warp as warp
    from vkgdr.arrays import host_view
    from vkgdr.typing import MemoryInfo, MemoryType

__all__ = [
    "AllocationError",
    "FreedError",
    "InvalidArgumentError",
    "Map",
    "Mapping",
    "Memory",
    "MemoryInfo",
    "MemoryType",
    "NoHostViewError",
    "OpenFlags",
    "OutOfRangeError",
    "RawMemory",
    "Vkgdr",
    "VkgdrError",
    "__version__",
    "device_view",
    "host_view",
    "memory_of",
]

# Loaded on first use: importing this package imports no other library.
_SUBMODULES = frozenset({"compat", "ipc", "pool", "ring", "stream", "typing", "vulkan"})
# What needs other libraries.
_NEEDS = {
    "arrays": ("numpy",),
    "host_view": ("numpy",),
    "cuda_core": ("cuda.core",),
    "cupy": ("cupy",),
    "numba": ("numba", "numba_cuda"),
    "pycuda": ("pycuda",),
    "rmm": ("rmm",),
    "torch": ("torch",),
    "warp": ("warp",),
}

_LAZY = {"host_view": "vkgdr.arrays", "MemoryInfo": "vkgdr.typing", "MemoryType": "vkgdr.typing"}


# Hidden from type checkers, for which any name would exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _LAZY:
            value = globals()[name] = getattr(import_module(_LAZY[name]), name)
            return value
        if name in _SUBMODULES or name in _NEEDS:
            return import_module(f"vkgdr.{name}")
        raise AttributeError(f"module 'vkgdr' has no attribute {name!r}")


def __dir__() -> list[str]:
    # Without what cannot be imported: `help` and mock look at all names.
    return sorted(filter(_has_libraries, {*globals(), *__all__, *_SUBMODULES, *_NEEDS}))


def _has_libraries(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return all(find_spec(library) is not None for library in _NEEDS.get(name, ()))
    except ImportError:
        return False
