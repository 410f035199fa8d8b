"""Warp's arrays in memory of this package.

``warp.set_cuda_allocator(vkgdr.warp.Allocator())`` switches it on for all devices, ``warp.set_device_allocator`` for
one. `vkgdr.host_view` is the CPU's view of an array.
"""

from __future__ import annotations

from vkgdr._errors import missing
from vkgdr._vkgdr import Resource
from vkgdr.typing import Kinds

try:
    from warp import MemoryKind
except ImportError as error:
    raise missing("vkgdr.warp", "warp-lang", error) from error

__all__ = ["Allocator"]
__dir__ = __all__.copy


class Allocator:
    """Allocates on the device whose context Warp makes current. Warp names no stream: a free waits for the context.

    `kind` is as for `vkgdr.Memory`. With `pool`, small memory is lent by a pool, where a free does not wait.
    """

    # Not of Warp's memory pool, nor managed by CUDA.
    memory_kind = MemoryKind.CUDA_DEVICE
    deallocate_requires_context_guard = False

    def __init__(self, kind: Kinds = "mapped", *, pool: bool = False) -> None:
        self._resource = Resource(kind, pool=pool)

    def allocate(self, size_in_bytes: int) -> int:
        """Allocate memory; raises `vkgdr.AllocationError` when it is exhausted."""
        return self._resource.allocate(size_in_bytes)

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:  # noqa: ARG002 - Warp's signature
        """Free memory."""
        self._resource.free(ptr)
