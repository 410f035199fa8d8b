"""RMM's buffers in memory of this package.

``rmm.mr.set_current_device_resource(vkgdr.rmm.memory_resource())`` switches it on. `vkgdr.compat.rmm` is something
else: memory of this package with the shape of RMM's `DeviceBuffer`.
"""

from __future__ import annotations

from typing import Any

from vkgdr._errors import missing
from vkgdr._vkgdr import Resource
from vkgdr.typing import Kinds

try:
    from rmm.mr import CallbackMemoryResource
except ImportError as error:
    raise missing("vkgdr.rmm", "rmm", error) from error

__all__ = ["memory_resource"]
__dir__ = __all__.copy


def memory_resource(kind: Kinds = "mapped", *, pool: bool = False, device: int | None = None) -> Any:
    """Return an ``rmm.mr.CallbackMemoryResource``, a memory resource for RMM, or the upstream of its adaptors.

    `kind` is as for `vkgdr.Memory`. With `pool`, small memory is lent by a pool; RMM's own ``PoolMemoryResource`` works
    too. The device is by default that of the current context at each allocation. Allocations raise
    `vkgdr.AllocationError`, a ``MemoryError``, when memory is exhausted. What was deallocated is released after the
    work of the stream passed to RMM.
    """
    resource = Resource(kind, pool=pool)
    return CallbackMemoryResource(
        lambda size, stream: resource.allocate(size, device, stream),
        lambda address, _size, stream: resource.free(address, stream),
    )
