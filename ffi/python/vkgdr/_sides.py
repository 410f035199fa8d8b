"""The operands of `vkgdr.ops`, device memory of any library or host bytes, and the stream of an operation."""

from __future__ import annotations

from vkgdr import _vkgdr
from vkgdr._interop import device_block
from vkgdr._object import MemoryObject, Region
from vkgdr._transfer import stream_of
from vkgdr.stream import LEGACY_STREAM, NULL_STREAM, handle_of, order_after
from vkgdr.stream import wait_for as wait_for_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from vkgdr._vkgdr import Block, HostBuffer
    from vkgdr.stream import Event
    from vkgdr.typing import StreamLike, Waitable

__all__ = ["DeviceSide", "HostSide", "Queue", "device_side", "side"]

_DLPACK_CUDA = 2
# The two handles of the legacy default stream.
_LEGACY = frozenset({NULL_STREAM, LEGACY_STREAM})


class DeviceSide:
    """Device bytes of this package or of another library, or a host array over this package's memory."""

    __slots__ = ("block", "is_host_view", "ready")

    def __init__(self, block: Block, ready: int | None, *, is_host_view: bool = False) -> None:
        self.block = block
        # The stream whose work must finish before the bytes are used.
        self.ready = ready
        self.is_host_view = is_host_view

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.block.nbytes

    def region(self) -> Region:
        """Return the bytes as a memory object."""
        return Region._over(self.block)

    def flush_host_view(self) -> None:
        """Flush if a host array was passed: the operation uses the CPU's version of its bytes."""
        if self.is_host_view:
            self.region().flush()

    def invalidate_host_view(self) -> None:
        """Invalidate if a host array was passed, so that it shows the device's writes."""
        if self.is_host_view:
            self.region().invalidate()

    def is_visible(self) -> bool:
        """Return whether the bytes have a host view."""
        return not self.block.is_foreign and self.region().host_ptr is not None


class HostSide:
    """Host bytes."""

    __slots__ = ("buffer", "obj")

    def __init__(self, obj: Any, buffer: HostBuffer) -> None:
        self.obj = obj
        self.buffer = buffer

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.buffer.nbytes

    def part(self, offset: int, size: int, *, writable: bool) -> HostBuffer:
        """Return a range of the bytes."""
        if offset == 0 and size == self.buffer.nbytes:
            return self.buffer
        import numpy as np

        return _vkgdr.HostBuffer(np.frombuffer(self.obj, np.uint8, size, offset).data, writable)


def _is_on_device(obj: Any) -> bool:
    if isinstance(obj, MemoryObject) or getattr(obj, "__cuda_array_interface__", None) is not None:
        return True
    ask = getattr(obj, "__dlpack_device__", None)
    return ask is not None and int(ask()[0]) == _DLPACK_CUDA


def side(what: str, obj: Any, *, writable: bool) -> DeviceSide | HostSide:
    """Return `obj` as device memory or host bytes; `what` names it in errors.

    Raises
    ------
    TypeError
        `obj` has neither device memory nor host bytes.
    InvalidArgumentError
        The bytes are not contiguous, or they are read-only and `writable` is true.
    """
    if _is_on_device(obj):
        return DeviceSide(*device_block(obj))
    try:
        buffer = _vkgdr.HostBuffer(obj, writable)
    except TypeError:
        text = f"the {what} must be device memory or a bytes-like object, not {type(obj).__name__}"
        raise TypeError(text) from None
    # A host array over this package's memory: CUDA must get its device address.
    found = _vkgdr.find_host(buffer.address, buffer.nbytes) if buffer.nbytes else None
    if found is None:
        return HostSide(obj, buffer)
    return DeviceSide(found, found.bound_stream, is_host_view=True)


def device_side(what: str, obj: Any, *, writable: bool) -> DeviceSide:
    """Like `side`, for an operand that must be device memory."""
    found = side(what, obj, writable=writable)
    if isinstance(found, HostSide):
        raise TypeError(f"the {what} must be device memory, not the host bytes of a {type(obj).__name__}")
    return found


class Queue:
    """The stream of an operation: `stream`, else a side's bound stream, else the legacy default stream."""

    __slots__ = ("handle", "lead", "sides")

    def __init__(self, sides: Sequence[DeviceSide], stream: StreamLike | None) -> None:
        # The operation's context is that of the first side with a known context.
        self.lead = next((side.block for side in sides if side.block.context is not None), sides[0].block)
        self.sides = sides
        if stream is not None:
            self.handle = handle_of(stream)
            return
        context = self.lead.context
        same = [side.block for side in sides if side.block.context == context]
        bound = [block.bound_stream for block in (self.lead, *same)]
        self.handle = next((handle for handle in bound if handle is not None), stream_of(self.lead, None))

    def _others(self) -> list[DeviceSide]:
        """Return the sides that are ready on another stream."""

        def is_other(ready: int | None) -> bool:
            return ready is not None and ready != self.handle and not {ready, self.handle} <= _LEGACY

        return [side for side in self.sides if is_other(side.ready)]

    def begin(self, wait_for: Iterable[Waitable] | None) -> None:
        """Order later work after the events and the sides' streams, on the device where possible."""
        order_after(self.lead, self.handle, wait_for)
        for side in self._others():
            assert side.ready is not None
            _vkgdr.stream_wait(self.lead, self.handle, _vkgdr.record(side.block, side.ready, []))

    def settle(self, wait_for: Iterable[Waitable] | None) -> None:
        """Wait for the events and the sides' streams, before a copy by the CPU, which waits for this stream itself."""
        wait_for_all(wait_for)
        for side in self._others():
            assert side.ready is not None
            _vkgdr.stream_synchronize(side.block, side.ready)

    def synchronize(self) -> None:
        """Wait for the stream."""
        _vkgdr.stream_synchronize(self.lead, self.handle)

    def end(self, hosts: Iterable[HostBuffer], *, is_blocking: bool) -> Event:
        """Wait, or return an event; until it is complete the operands are kept alive."""
        if is_blocking:
            self.synchronize()
            return _vkgdr.complete()
        keep: list[object] = [*hosts]
        for side in self.sides:
            if side.block.is_foreign:
                # A use of its own, which outlives a free of the object.
                keep.append(side.block.part(0, None, False, False))
            elif side.block.context != self.lead.context:
                # Its release waits for its own context only: a further use defers the release.
                keep.append(side.block.part(0, None, False, False))
        try:
            return _vkgdr.record(self.lead, self.handle, keep)
        except Exception:
            # Without an event nothing keeps the operands alive.
            self.synchronize()
            raise
