"""CuPy's arrays in memory of this package.

``cupy.cuda.set_allocator(vkgdr.cupy.allocator())`` switches it on. `vkgdr.host_view` is the CPU's view of an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkgdr._errors import missing
from vkgdr._vkgdr import Resource
from vkgdr.typing import Kinds

try:
    from cupy.cuda import PythonFunctionAllocator, get_current_stream
except ImportError as error:
    raise missing("vkgdr.cupy", "cupy", error) from error

__all__ = ["allocator"]
__dir__ = __all__.copy


def allocator(kind: Kinds = "mapped", *, pool: bool = False) -> Callable[[int], Any]:
    """Return an allocator for ``cupy.cuda.set_allocator`` and ``cupy.cuda.using_allocator``.

    `kind` is as for `vkgdr.Memory`. With `pool`, small memory is lent by a pool, as by CuPy's own, in the order of the
    stream current when an array is allocated. Without it a free waits for the context, as ``cudaFree`` does.
    """
    resource = Resource(kind, pool=pool)
    # CuPy names no stream when it frees. The objects keep the streams alive.
    streams: dict[int, Any] = {}

    def allocate(size: int, device: int) -> int:
        stream = get_current_stream() if pool else None
        address = resource.allocate(size, device, stream)
        if address:
            streams[address] = stream
        return address

    def free(address: int, _device: int) -> None:
        # Removed first: another thread may get the address as soon as it is free.
        resource.free(address, streams.pop(address, None))

    return PythonFunctionAllocator(allocate, free).malloc  # type: ignore[no-any-return]
