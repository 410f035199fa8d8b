"""Memory by its device address, from which all adaptors of other libraries allocate; and their imports.

`vkgdr._vkgdr.Source` allocates in the primary context of a device, the one that these libraries use, and keeps a handle
of each device. Sizes of 0 give address 0, other addresses are multiples of 256. A free waits for the work submitted to
its stream before, in the background, or for the whole context where there is no stream. None is no stream; 0 is the
legacy default stream.
"""

from __future__ import annotations

from vkgdr import _vkgdr
from vkgdr._device import Vkgdr
from vkgdr._errors import VkgdrError
from vkgdr._stream_handle import handle_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import SupportsIndex

    from vkgdr._vkgdr import MemoryInfo
    from vkgdr.typing import Kind, StreamLike

    Kinds = Kind | Sequence[Kind]

__all__ = ["Source", "missing"]


def missing(module: str, package: str, error: ImportError) -> ImportError:
    """Return the error of an adaptor whose library cannot be imported."""
    return ImportError(f"{module} needs the package {package}, which cannot be imported: {error}", name=error.name)


class Source:
    """Allocates memory of one kind, or of the first of several that is available, and frees it by its address.

    Parameters
    ----------
    kind : {"mapped", "host", "device"} or sequence of these, optional
        As for `vkgdr.Memory`.
    pool : bool, optional
        Whether small memory is lent by a `vkgdr.pool.Pool` of each device.
    """

    def __init__(self, kind: Kinds = "mapped", *, pool: bool = False) -> None:
        self.kind: Kinds = kind
        self.pool = pool
        self._native = _vkgdr.Source(kind, pool)

    def allocate(self, size: SupportsIndex, device: int | None = None, stream: StreamLike | None = None) -> int:
        """Allocate memory and return its device address.

        Parameters
        ----------
        size : int
            The number of bytes; 0 gives address 0.
        device : int, optional
            The CUDA device number, by default that of the current context, or 0.
        stream : object, optional
            The stream that uses the memory first: a pool then lends at once what was freed on it. It must stay alive
            until the memory is freed.

        Raises
        ------
        vkgdr.AllocationError
            Memory is exhausted, even after a garbage collection.
        """
        return self._native.allocate(size, device, None if stream is None else handle_of(stream))

    def free(self, address: int, stream: StreamLike | None = None) -> None:
        """Free memory by its device address, on any thread. Arrays that view it keep it until the last one is dropped.

        Parameters
        ----------
        address : int
            From `allocate`.
        stream : object, optional
            The stream after whose earlier work the memory is released; it may be destroyed after this call. Without
            one, this waits for all work of the context.

        Raises
        ------
        vkgdr.InvalidArgumentError
            The address was not allocated here, or was freed.
        """
        self._native.free(address, None if stream is None else handle_of(stream))

    def retire(self, address: int) -> None:
        """Free memory by its device address without calling a driver, so also while a stream is captured.

        It is released after all work of the context, by a later allocation: when there is much of it, or no other
        memory.

        Raises
        ------
        vkgdr.InvalidArgumentError
            The address was not allocated here, or was freed.
        """
        self._native.retire(address)

    def record_stream(self, address: int, stream: StreamLike) -> None:
        """Record that another stream uses the memory: its release waits for that use."""
        self._native.record_stream(address, handle_of(stream))

    def memory_info(self, device: int | None = None) -> MemoryInfo:
        """Return the free and the total memory of the first kind that the device has."""
        handle = self.handle(device)
        first, *others = [self.kind] if isinstance(self.kind, str) else self.kind
        try:
            return handle.memory_info(first)
        except VkgdrError:
            for kind in others:
                if handle.supports(kind):
                    return handle.memory_info(kind)
            raise

    def handle(self, device: int | None = None) -> Vkgdr:
        """Return a handle of a device, of its primary context."""
        return Vkgdr._of(self._native.handle(device))

    def close(self) -> None:
        """Give up handles and pools. Memory in use stays valid, and the next allocation opens the device anew."""
        self._native.close()

    def __len__(self) -> int:
        """Return the number of live allocations."""
        return len(self._native)

    def __repr__(self) -> str:
        return f"<vkgdr._source.Source: {self.kind}, {len(self)} allocations>"
