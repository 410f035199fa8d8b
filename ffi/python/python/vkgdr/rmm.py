"""RMM's buffers in memory of this package.

``rmm.mr.set_current_device_resource(vkgdr.rmm.memory_resource())`` switches it on. `vkgdr.compat.rmm` is something
else: memory of this package with the shape of RMM's `DeviceBuffer`.
"""

from __future__ import annotations

from typing import Any

from vkgdr._errors import missing
from vkgdr.pool import Source
from vkgdr.typing import Kinds, StreamLike

try:
    from rmm.mr import CallbackMemoryResource
except ImportError as error:
    raise missing("vkgdr.rmm", "rmm", error) from error

__all__ = ["memory_resource"]


def __dir__() -> list[str]:
    return __all__


def memory_resource(kind: Kinds = "mapped", *, pool: bool = False, device: int | None = None) -> Any:
    """Return a memory resource for RMM, or the upstream of its adaptors.

    Parameters
    ----------
    kind : {"mapped", "host", "device"} or sequence of these, optional
        As for `vkgdr.Memory`.
    pool : bool, optional
        Lend small memory from a pool. RMM's own ``PoolMemoryResource`` works too.
    device : int, optional
        The device's number, by default that of the current context at each allocation.

    Returns
    -------
    rmm.mr.CallbackMemoryResource
        Its allocations raise `vkgdr.AllocationError`, a ``MemoryError``, when memory is exhausted. What was deallocated
        is released after the work of the stream passed to RMM.
    """
    source = Source(kind, pool=pool)

    def allocate(size: int, stream: StreamLike) -> int:
        return source.allocate(size, device, stream)

    def deallocate(address: int, _size: int, stream: StreamLike) -> None:
        source.free(address, stream)

    return CallbackMemoryResource(allocate, deallocate)
