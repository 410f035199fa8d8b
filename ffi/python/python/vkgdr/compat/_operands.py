"""The operands of `vkgdr.compat.pyopencl`: memory of any library, layouts of copies, patterns of fills, and streams."""

from __future__ import annotations

import operator

from vkgdr import _vkgdr
from vkgdr._copies import bound_streams, device_view_of, follow, is_same_stream, stream_of
from vkgdr._errors import InvalidArgumentError, OutOfRangeError, VkgdrError, beyond, in_bytes
from vkgdr._object import MemoryObject, Region
from vkgdr._stream_handle import handle_of, number_of, order_after
from vkgdr._stream_handle import wait_for as wait_for_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, SupportsIndex

    from vkgdr._vkgdr import HostBuffer, MemoryView
    from vkgdr.stream import Event
    from vkgdr.typing import StreamLike, Waitable

    # Offset, row pitch and slice pitch of a side, in bytes.
    Layout = tuple[int, int, int]
    # Bytes per row, rows per slice, number of slices.
    Extent = tuple[int, int, int]
    Plan = tuple[Layout, Layout, Extent]

__all__ = [
    "DeviceSide",
    "HostSide",
    "Queue",
    "device_side",
    "fill_value",
    "linear",
    "natural",
    "pattern_bytes",
    "rectangle",
    "side",
]

_DLPACK_CUDA = 2


class DeviceSide:
    """Device bytes of this package or of another library, or a host array over this package's memory."""

    __slots__ = ("is_host_view", "ready", "view")

    def __init__(self, view: MemoryView, ready: tuple[int, ...], *, is_host_view: bool = False) -> None:
        self.view = view
        # The streams whose work must finish before the bytes are used.
        self.ready = ready
        self.is_host_view = is_host_view

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.view.nbytes

    def region(self) -> Region:
        """Return the bytes as a memory object."""
        return Region._over(self.view)

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
        return not self.view.is_foreign and self.region().host_ptr is not None


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


def side(what: str, obj: Any, stream: StreamLike | None, *, writable: bool) -> DeviceSide | HostSide:
    """Return `obj` as device memory or host bytes; `what` names it in errors, and `stream` will use it.

    Raises
    ------
    TypeError
        `obj` has neither device memory nor host bytes.
    InvalidArgumentError
        The bytes are not contiguous, or they are read-only and `writable` is true.
    """
    if _is_on_device(obj):
        return DeviceSide(*device_view_of(obj, None, None if stream is None else handle_of(stream)))
    try:
        buffer = _vkgdr.HostBuffer(obj, writable)
    except TypeError:
        text = f"the {what} must be device memory or a bytes-like object, not {type(obj).__name__}"
        raise TypeError(text) from None
    # A host array over this package's memory: CUDA must get its device address.
    found = _vkgdr.find_host(buffer.address, buffer.nbytes) if buffer.nbytes else None
    if found is None:
        return HostSide(obj, buffer)
    return DeviceSide(found, bound_streams(found), is_host_view=True)


def device_side(what: str, obj: Any, stream: StreamLike | None, *, writable: bool) -> DeviceSide:
    """Like `side`, for an operand that must be device memory."""
    found = side(what, obj, stream, writable=writable)
    if isinstance(found, HostSide):
        raise TypeError(f"the {what} must be device memory, not the host bytes of a {type(obj).__name__}")
    return found


class Queue:
    """The stream of an operation: `stream`, else a side's bound stream, else the legacy default stream."""

    __slots__ = ("handle", "lead", "sides")

    def __init__(self, sides: Sequence[DeviceSide], stream: StreamLike | None) -> None:
        # The operation's context is that of the first side with a known context.
        self.lead = next((side.view for side in sides if side.view.context is not None), sides[0].view)
        self.sides = sides
        if stream is not None:
            self.handle = number_of(stream)
            return
        context = self.lead.context
        same = [side.view for side in sides if side.view.context == context]
        bound = [view.bound_stream for view in (self.lead, *same)]
        self.handle = next((handle for handle in bound if handle is not None), stream_of(self.lead, None))

    def _others(self) -> Iterator[tuple[MemoryView, int]]:
        """Return the other streams on which the sides are ready."""
        for side in self.sides:
            for stream in side.ready:
                if not is_same_stream(self.lead, self.handle, side.view, stream):
                    yield side.view, stream

    def begin(self, wait_for: Iterable[Waitable] | None) -> None:
        """Order later work after the events and the sides' streams, on the device where possible."""
        order_after(self.lead, self.handle, wait_for)
        for view, stream in self._others():
            follow(self.lead, self.handle, view, (stream,))

    def settle(self, wait_for: Iterable[Waitable] | None) -> None:
        """Wait for the events and the sides' streams, before a copy by the CPU, which waits for this stream itself."""
        wait_for_all(wait_for)
        for view, stream in self._others():
            # By an event: an array may name a stream of another context.
            _vkgdr.record(view, stream).synchronize()

    def end(self, event: Event) -> None:
        """Order later work of the sides' streams after the event of the operation."""
        try:
            for view, stream in self._others():
                _vkgdr.stream_wait(view, stream, event)
        except VkgdrError:
            # Such as without a current context, which another library's stream needs.
            event.synchronize()


_NAMES = ("byte", "row", "slice")


def natural(what: str, value: SupportsIndex) -> int:
    """Check a number of bytes, rows or slices."""
    number = operator.index(value)
    if not 0 <= number < 1 << 63:
        raise OutOfRangeError(f"{what} must be from 0 to 2**63 - 1, not {number}")
    return number


def linear(
    to_size: int,
    from_size: int,
    offsets: tuple[SupportsIndex, SupportsIndex],
    count: SupportsIndex | None,
    default: str,
) -> Plan:
    """Plan the copy of a range.

    Parameters
    ----------
    to_size, from_size : int
        The size of each side in bytes.
    offsets : tuple of int
        The first byte on each side, the destination first.
    count : int or None
        The number of bytes to copy.
    default : {"destination", "source", "both"}
        The side that determines the number of bytes if `count` is None; "both" for the smaller one.
    """
    dst_offset, src_offset = natural("dst_offset", offsets[0]), natural("src_offset", offsets[1])
    room = {"destination": to_size - dst_offset, "source": from_size - src_offset}
    # An offset past the end is checked below.
    fallback = min(room.values()) if default == "both" else room[default]
    size = max(fallback, 0) if count is None else natural("byte_count", count)
    _check_range("destination", dst_offset, size, to_size)
    _check_range("source", src_offset, size, from_size)
    return (dst_offset, 0, 0), (src_offset, 0, 0), (size, 1, 1)


def _check_range(what: str, offset: int, size: int, room: int) -> None:
    if offset > room or size > room - offset:
        raise OutOfRangeError(beyond(size, offset, room, what))


def rectangle(
    region: Sequence[SupportsIndex],
    to: tuple[Sequence[SupportsIndex] | None, Sequence[SupportsIndex] | None],
    source: tuple[Sequence[SupportsIndex] | None, Sequence[SupportsIndex] | None],
) -> Plan:
    """Plan the copy of a rectangle. Its bounds are checked by the native copy.

    Parameters
    ----------
    region : sequence of int
        Bytes per row, rows per slice, number of slices.
    to, source : tuple
        The origin of a side, in the same units, and its pitches.
    """
    width, height, depth = _triple("region", region, 1)
    for name, value in zip(("bytes", "rows", "slices"), (width, height, depth), strict=True):
        if value == 0:
            raise InvalidArgumentError(f"region {tuple(region)} has 0 {name}")
    extent = (width, height, depth)
    return _layout("dst", *to, extent), _layout("src", *source, extent), extent


def _triple(name: str, values: Sequence[SupportsIndex], missing: int) -> tuple[int, int, int]:
    if not 1 <= len(values) <= 3:
        raise InvalidArgumentError(f"{name} has {len(values)} components: expected 2 or 3, bytes first")
    numbers = [natural(f"{name}'s {unit} component", value) for unit, value in zip(_NAMES, values, strict=False)]
    numbers += [missing] * (3 - len(numbers))
    return numbers[0], numbers[1], numbers[2]


def _layout(
    side: str, origin: Sequence[SupportsIndex] | None, pitches: Sequence[SupportsIndex] | None, extent: Extent
) -> Layout:
    width, height, _ = extent
    row_pitch, slice_pitch = _pitches(f"{side}_pitches", pitches)
    row_pitch = row_pitch or width
    if row_pitch < width:
        raise InvalidArgumentError(f"{side}_pitches: rows of {in_bytes(width)} do not fit the row pitch {row_pitch}")
    slice_pitch = slice_pitch or row_pitch * height
    if slice_pitch < row_pitch * height:
        need = f"{height} rows at the row pitch {row_pitch} need {row_pitch * height} bytes"
        raise InvalidArgumentError(f"{side}_pitches: {need}, more than the slice pitch {slice_pitch}")
    if slice_pitch % row_pitch:
        text = f"the slice pitch {slice_pitch} is not a multiple of the row pitch {row_pitch}"
        raise InvalidArgumentError(f"{side}_pitches: {text}")
    x, y, z = (0, 0, 0) if origin is None else _triple(f"{side}_origin", origin, 0)
    start = natural(f"{side}_origin in bytes", x + y * row_pitch + z * slice_pitch)
    return start, row_pitch, natural(f"{side}_pitches in bytes", slice_pitch)


def _pitches(name: str, pitches: Sequence[SupportsIndex] | None) -> tuple[int, int]:
    if pitches is None:
        return 0, 0
    if len(pitches) > 2:
        raise InvalidArgumentError(f"{name} has {len(pitches)} components: expected a row pitch and a slice pitch")
    given = [natural(f"{name}' {unit} component", value) for unit, value in zip(_NAMES[1:], pitches, strict=False)]
    given += [0] * (2 - len(given))
    return given[0], given[1]


def pattern_bytes(pattern: Any) -> bytes:
    """Return the bytes of a fill's pattern; there is at least one."""
    try:
        view = memoryview(pattern)
    except TypeError:
        text = f"the pattern must be bytes-like, such as bytes(1) or np.float32(1), not {type(pattern).__name__}"
        raise TypeError(text) from None
    if "O" in view.format:
        raise TypeError("the pattern has Python objects, which the device cannot use")
    unit = view.tobytes()
    if not unit:
        raise InvalidArgumentError("the pattern has 0 bytes")
    return unit


def fill_value(pattern: bytes, address: int) -> bytes | None:
    """Return the shortest CUDA fill value that repeats to the pattern and suits the address; None if there is none."""
    for width in (1, 2, 4):
        if len(pattern) % width == 0 and address % width == 0 and pattern == pattern[:width] * (len(pattern) // width):
            return pattern[:width]
    return None
