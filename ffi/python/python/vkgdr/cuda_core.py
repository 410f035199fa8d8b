"""cuda.core's buffers in memory of this package.

``device.memory_resource = vkgdr.cuda_core.MappedMemoryResource(device)`` switches it on for `Device.allocate` of this
device. `vkgdr.host_view` and `vkgdr.memory_of` take the buffers.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any

from vkgdr import ipc
from vkgdr._errors import InvalidArgumentError, missing
from vkgdr._memory import memory_of
from vkgdr._vkgdr import Resource
from vkgdr.typing import Kinds, StreamLike

try:
    from cuda.core import Buffer, Device, MemoryResource
except ImportError as error:
    raise missing("vkgdr.cuda_core", "cuda-core", error) from error

__all__ = ["MappedMemoryResource"]
__dir__ = __all__.copy


class MappedMemoryResource(MemoryResource):  # type: ignore[misc]
    """Allocates cuda.core's buffers on a device, by default the current one, in its primary context.

    `kind` is as for `vkgdr.Memory`. With `pool`, small buffers are lent by a pool, and cannot be shared with other
    processes. Allocate and close buffers outside of graphs: an allocation with a graph builder is a
    `vkgdr.InvalidArgumentError`.
    """

    # The CPU has an address of its own, see `vkgdr.host_view`, and must not use the device's.
    is_device_accessible, is_host_accessible = True, False
    # cuda.core cannot send buffers to other processes, `export_handle` does.
    is_managed = is_ipc_enabled = False

    def __init__(self, device: Any = None, *, kind: Kinds = "mapped", pool: bool = False) -> None:
        device = Device() if device is None else device
        self._device = operator.index(getattr(device, "device_id", device))
        self._resource = Resource(kind, pool=pool)

    def allocate(self, size: int, *, stream: StreamLike) -> Any:
        """Allocate a buffer. Its memory is released after the work of the stream with which it is closed.

        `vkgdr.AllocationError` if memory is exhausted.
        """
        _refuse_graph(stream)
        address = self._resource.allocate(size, self._device, stream)
        try:
            return Buffer.from_handle(address, size, self, stream=stream)
        except BaseException:
            # Its error is raised, and no other: it may have freed the memory already, and no driver is called here.
            with contextlib.suppress(InvalidArgumentError):
                self._resource.retire(address)
            raise

    def deallocate(self, ptr: Any, size: int, *, stream: StreamLike) -> None:  # noqa: ARG002 - cuda.core's signature
        """Free a buffer's memory after the earlier work of a stream; called by ``Buffer.close``.

        After an error the memory stays until the resource is dropped.
        """
        _refuse_graph(stream)
        self._resource.free(int(ptr), stream)

    def export_handle(self, buffer: Any) -> bytes:
        """Return 64 bytes under which other processes open the buffer's memory, any number of times.

        They must be of the same user and in the same network namespace.
        """
        found = memory_of(int(buffer.handle))
        if found.offset:
            raise InvalidArgumentError(
                f"the buffer begins {found.offset} bytes after its memory: export the whole buffer"
            )
        return ipc.offer(found.handle)

    def open_handle(self, handle: bytes) -> Any:
        """Open memory of another process, from its `export_handle`, as a buffer that keeps it alive."""
        memory = ipc.take(handle, self._resource.handle(self._device))
        return Buffer.from_handle(memory.device_ptr, len(memory), owner=memory)

    @property
    def device_id(self) -> int:
        """The device's number."""
        return self._device


def _refuse_graph(stream: object) -> None:
    # An event of a capture never passes, and asking for it would end the capture with an error.
    if getattr(stream, "is_building", False):
        raise InvalidArgumentError("memory of vkgdr is not allocated or freed in a graph: use a stream outside of it")
