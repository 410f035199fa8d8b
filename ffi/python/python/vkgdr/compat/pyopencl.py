"""Copies, fills and mappings, with the arguments of pyopencl's ``enqueue_*``.

``stream`` replaces pyopencl's queue and takes a stream of any library (see `vkgdr.stream`): by default the stream that
the memory is bound to, or the legacy default stream. Operations on a stream are done in order. ``wait_for`` is an
iterable of events, of this package or of any library with ``synchronize``, to wait for first.

Device memory is a memory object, an object with ``__cuda_array_interface__``, or DLPack on a CUDA device, in C order.
Host memory is any contiguous object with the buffer protocol. A host array over memory of this package is treated as
that memory, with the CPU's version of its bytes: it is flushed first, and invalidated after a blocking operation wrote
to it. After an operation that does not block, wait for the event, and on memory that is not coherent call
``vkgdr.device_view(array).invalidate()``.

The functions differ from pyopencl's in these points:

* Copies between device memory block by default, too, and fills do not.
* A pattern may have any size, and rectangles are counted in bytes, rows and slices on both sides.
* `migrate` returns new memory and frees the old objects, where pyopencl moves the bytes of the same objects.
* An `Event` has ``wait``, and this package's ``synchronize``, ``query`` and ``is_complete``; there are no profiling
  information, callbacks and user events.
* Images, and SVM objects that are not memory of this package or of a CUDA library, are not supported.
"""

from __future__ import annotations

import operator

from vkgdr import _copies, _vkgdr
from vkgdr._copies import bound_streams, device_view_of, follow, is_same_stream
from vkgdr._errors import InvalidArgumentError, OutOfRangeError, VkgdrError, beyond, in_bytes
from vkgdr._memory import Map, Memory, MemoryObject
from vkgdr._stream_handle import NULL_STREAM, handle_of, number_of, order_after, wait_for_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, SupportsIndex, overload

    import numpy as np
    import numpy.typing as npt

    from vkgdr._vkgdr import HostBuffer, MemoryView
    from vkgdr.stream import Event
    from vkgdr.typing import Kind, MapMode, Order, Shape, StreamLike, Waitable

    # Offset, row pitch and slice pitch of a side, in bytes.
    Layout = tuple[int, int, int]
    # Bytes per row, rows per slice, number of slices.
    Extent = tuple[int, int, int]
    Plan = tuple[Layout, Layout, Extent]

__all__ = ["copy", "fill", "map", "migrate"]

_DLPACK_CUDA = 2
_NAMES = ("byte", "row", "slice")


def __dir__() -> list[str]:
    return __all__


def copy(
    dest: Any,
    src: Any,
    *,
    byte_count: SupportsIndex | None = None,
    src_offset: SupportsIndex = 0,
    dst_offset: SupportsIndex = 0,
    region: Sequence[SupportsIndex] | None = None,
    src_origin: Sequence[SupportsIndex] | None = None,
    dst_origin: Sequence[SupportsIndex] | None = None,
    src_pitches: Sequence[SupportsIndex] | None = None,
    dst_pitches: Sequence[SupportsIndex] | None = None,
    stream: StreamLike | None = None,
    wait_for: Iterable[Waitable] | None = None,
    is_blocking: bool = True,
) -> Event:
    """Copy bytes between device memory, or between device memory and the host.

    The CPU makes a blocking copy of a range between the host and memory with a host view, and flushes it, unless a
    stream is passed. CUDA makes all other copies, on the stream. Memory of another CUDA context can be copied, but not
    as a rectangle.

    Parameters
    ----------
    dest, src : object
        Device memory or host bytes, see the module; at least one must be device memory. They must not overlap.
    byte_count : int, optional
        The number of bytes. By default to the end of the host bytes; between device memory, that of the smaller side.
    src_offset, dst_offset : int, optional
        The first byte of the range on each side.
    region : tuple of int, optional
        Copy a rectangle of these extents: bytes per row, number of rows and, optionally, number of slices.
    src_origin, dst_origin : tuple of int, optional
        The origin of the rectangle on each side: byte in the row, row, slice. Zeros by default.
    src_pitches, dst_pitches : tuple of int, optional
        Row pitch and slice pitch of each side in bytes. 0, or a missing one, means no gaps. A slice pitch must be a
        multiple of the row pitch.
    stream, wait_for : optional
        See the module. The copy is also ordered after the streams that both sides are bound to, or that their array
        interfaces name.
    is_blocking : bool, optional
        False returns before the copy is done, though CUDA itself may wait for pageable host memory.

    Returns
    -------
    vkgdr.stream.Event
        Complete when the copy is done. Until then host bytes and other libraries' memory are kept alive, even if the
        event is dropped, which does not wait.

    Raises
    ------
    OutOfRangeError
        The range or the rectangle exceeds a side.
    InvalidArgumentError
        The sides overlap, the destination is read-only, bytes are not contiguous, or pitches are too small.
    TypeError
        Both sides are host memory, one is not memory, or arguments of ranges and rectangles are mixed.
    VkgdrError
        An error of the driver.
    """
    to, source = _side("destination", dest, stream, writable=True), _side("source", src, stream, writable=False)
    if isinstance(to, _HostSide) and isinstance(source, _HostSide):
        names = f"{type(src).__name__} to {type(dest).__name__}"
        raise TypeError(f"both sides are host memory, {names}: one must be device memory")
    rectangular = (src_origin, dst_origin, src_pitches, dst_pitches)
    if region is None:
        if any(value is not None for value in rectangular):
            raise TypeError("origins and pitches need a region")
        default = "destination" if isinstance(to, _HostSide) else "source" if isinstance(source, _HostSide) else "both"
        plan = _linear(to.nbytes, source.nbytes, (dst_offset, src_offset), byte_count, default)
    else:
        if byte_count is not None or src_offset != 0 or dst_offset != 0:
            raise TypeError("a rectangle has a region and origins, not byte_count, src_offset or dst_offset")
        plan = _rectangle(region, (dst_origin, dst_pitches), (src_origin, src_pitches))
    on_device = [each for each in (to, source) if isinstance(each, _DeviceSide)]
    queue = _Queue(on_device, stream)
    for each in on_device:
        each.flush_host_view()
    if region is None and stream is None and is_blocking and _copy_by_cpu(to, source, plan, queue, wait_for):
        return _vkgdr.complete()
    return _copy_by_device(to, source, plan, queue, wait_for, is_blocking=is_blocking)


def _copy_by_cpu(
    to: _DeviceSide | _HostSide,
    source: _DeviceSide | _HostSide,
    plan: Plan,
    queue: _Queue,
    wait_for: Iterable[Waitable] | None,
) -> bool:
    """Copy by the CPU if possible; return whether it was."""
    (dst_offset, _, _), (src_offset, _, _), (size, _, _) = plan
    if size == 0:
        return False
    if isinstance(to, _DeviceSide) and isinstance(source, _HostSide) and to.is_visible():
        part = source.part(src_offset, size, writable=False)
        queue.settle(wait_for)
        _copies.from_host(to.memory(), dst_offset, part, queue.handle)
        return True
    if isinstance(to, _HostSide) and isinstance(source, _DeviceSide) and source.is_visible():
        part = to.part(dst_offset, size, writable=True)
        queue.settle(wait_for)
        _copies.to_host(source.memory(), src_offset, part, size, queue.handle)
        return True
    return False


def _copy_by_device(
    to: _DeviceSide | _HostSide,
    source: _DeviceSide | _HostSide,
    plan: Plan,
    queue: _Queue,
    wait_for: Iterable[Waitable] | None,
    *,
    is_blocking: bool,
) -> Event:
    to_layout, from_layout, extent = plan
    queue.begin(wait_for)
    sides = [each.view if isinstance(each, _DeviceSide) else each.buffer for each in (to, source)]
    event = _vkgdr.copy(sides[0], to_layout, sides[1], from_layout, extent, queue.handle, is_blocking)
    if not is_blocking:
        queue.end(event)
    elif isinstance(to, _DeviceSide):
        to.invalidate_host_view()
    return event


def fill(
    dest: Any,
    pattern: Any,
    size: SupportsIndex | None = None,
    *,
    offset: SupportsIndex = 0,
    stream: StreamLike | None = None,
    wait_for: Iterable[Waitable] | None = None,
    is_blocking: bool = False,
) -> Event:
    """Fill device memory with a repeated pattern.

    Parameters
    ----------
    dest : object
        Device memory, see the module.
    pattern : object
        A bytes-like object that is not empty, such as ``bytes(1)``, a NumPy scalar or an array. It may be modified as
        soon as this returns.
    size : int, optional
        The number of bytes, a multiple of the pattern's size; by default to the end of the memory.
    offset : int, optional
        The first byte, a multiple of the pattern's size.
    stream, wait_for : optional
        See the module. The fill is also ordered after the stream that the memory is bound to, or that its array
        interface names.
    is_blocking : bool, optional
        True returns when the fill is done.

    Returns
    -------
    vkgdr.stream.Event
        Complete when the fill is done.

    Raises
    ------
    OutOfRangeError
        The range exceeds the memory.
    InvalidArgumentError
        The pattern is empty, size or offset is not a multiple of its size, or the memory is read-only.
    TypeError
        The pattern is not bytes-like, for example an int, or `dest` is not device memory.
    VkgdrError
        An error of the driver.
    """
    to = _device_side("destination", dest, stream, writable=True)
    unit = _pattern_bytes(pattern)
    start = _natural("offset", offset)
    count = max(to.nbytes - start, 0) if size is None else _natural("size", size)
    _check_range("destination", start, count, to.nbytes)
    for name, number in (("size", count), ("offset", start)):
        if number % len(unit):
            raise InvalidArgumentError(f"the {name} {number} is not a multiple of the pattern's {in_bytes(len(unit))}")
    queue = _Queue([to], stream)
    to.flush_host_view()
    value = _fill_value(unit, to.memory().device_ptr + start)
    if value is None and stream is None and is_blocking and to.is_visible():
        queue.settle(wait_for)
        _copies.fill(to.memory(), start, count, unit, queue.handle)
        return _vkgdr.complete()
    queue.begin(wait_for)
    if value is None:
        event = _copies.repeat(to.view, start, count, unit, queue.handle, wait=is_blocking)
    else:
        event = _vkgdr.fill(to.view, start, value, count // len(value), queue.handle, is_blocking)
    if is_blocking:
        to.invalidate_host_view()
    else:
        queue.end(event)
    return event


def map(  # noqa: A001 - pyopencl's name
    mem: MemoryObject,
    mode: MapMode,
    offset: int,
    shape: Shape,
    dtype: npt.DTypeLike,
    order: Order = "C",
    strides: tuple[int, ...] | None = None,
    stream: StreamLike | None = None,
    wait_for: Iterable[Waitable] | None = None,
    is_blocking: bool = True,  # noqa: FBT001, FBT002 - pyopencl's signature
) -> tuple[np.ndarray[Any, Any], Event]:
    """Open a mapping, like `vkgdr.MemoryObject.map`.

    Parameters
    ----------
    mem : MemoryObject
        Memory with a host view.
    mode : {"r", "w", "rw", "discard"}
        The CPU's access, as for `vkgdr.MemoryObject.map`.
    offset : int
        The array's first byte.
    shape, dtype, order : optional
        As for `vkgdr.MemoryObject.get_host_array`.
    strides : tuple of int, optional
        In bytes, in place of `order`.
    stream, wait_for : optional
        See the module. The mapping waits for them.
    is_blocking : bool, optional
        False returns at once: wait with ``array.base.wait()``, or use ``with array.base``.

    Returns
    -------
    array, event
        The array, whose ``base`` is a `vkgdr.Map`: the end of ``with array.base:``, ``array.base.release()`` or its
        deletion ends the mapping. The event is complete when earlier work is done.

    Raises
    ------
    OutOfRangeError, InvalidArgumentError
        The array exceeds the memory, or the memory is read-only and the mode is not "r".
    NoHostViewError
        The kind of memory has no host view.
    TypeError
        `mem` is not a memory object.
    """
    if not isinstance(mem, MemoryObject):
        raise TypeError(f"only memory of vkgdr can be mapped, not {type(mem).__name__}")
    handle = _copies.queue_of(mem._view, stream)
    if is_blocking:
        wait_for_all(wait_for)
    else:
        order_after(mem._view, handle, wait_for)
    mapping = Map(
        mem,
        mode,
        shape=shape,
        dtype=dtype,
        order=order,
        strides=strides,
        offset=offset,
        stream=handle,
        blocking=is_blocking,
    )
    return mapping.array, mapping.event


if TYPE_CHECKING:

    @overload
    def migrate(
        mems: MemoryObject,
        kind: Kind,
        *,
        discard: bool = False,
        stream: StreamLike | None = None,
        wait_for: Iterable[Waitable] | None = None,
    ) -> Memory: ...

    @overload
    def migrate(
        mems: Iterable[MemoryObject],
        kind: Kind,
        *,
        discard: bool = False,
        stream: StreamLike | None = None,
        wait_for: Iterable[Waitable] | None = None,
    ) -> list[Memory]: ...


def migrate(
    mems: MemoryObject | Iterable[MemoryObject],
    kind: Kind,
    *,
    discard: bool = False,
    stream: StreamLike | None = None,
    wait_for: Iterable[Waitable] | None = None,
) -> Memory | list[Memory]:
    """Move the bytes of memory objects to new memory of another kind, wait, invalidate, and free the old objects.

    Parameters
    ----------
    mems : MemoryObject or iterable of MemoryObject
        One memory object, or several.
    kind : {"mapped", "host", "device"}
        The new kind.
    discard : bool, optional
        Do not copy the contents.
    stream, wait_for : optional
        See the module.

    Returns
    -------
    Memory or list of Memory
        The new memory in the same order, in the handle's primary context or in the current context.

    Raises
    ------
    TypeError
        An item is not a memory object.
    VkgdrError
        As for `vkgdr.Memory`. Nothing has changed then.
    """
    single = isinstance(mems, MemoryObject)
    old = [mems] if isinstance(mems, MemoryObject) else list(mems)
    for mem in old:
        if not isinstance(mem, MemoryObject):
            raise TypeError(f"only memory of vkgdr can be migrated, not {type(mem).__name__}")
    if stream is not None:
        handle_of(stream)
    wait_for_all(wait_for)
    sizes = [len(mem) for mem in old]
    new = [Memory(mem._require_owner(), size, kind=kind, name=mem.name) for mem, size in zip(old, sizes, strict=True)]
    if not discard:
        for to, mem in zip(new, old, strict=True):
            copy(to, mem, stream=stream)
            to.invalidate()
    for mem in old:
        mem.free()
    return new[0] if single else new


# ---- operands, layouts and streams -----------------------------------------------------------------------------------


class _DeviceSide:
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

    def memory(self) -> Memory:
        """Return the bytes as a memory object."""
        return Memory._over(self.view)

    def flush_host_view(self) -> None:
        """Flush if a host array was passed: the operation uses the CPU's version of its bytes."""
        if self.is_host_view:
            self.memory().flush()

    def invalidate_host_view(self) -> None:
        """Invalidate if a host array was passed, so that it shows the device's writes."""
        if self.is_host_view:
            self.memory().invalidate()

    def is_visible(self) -> bool:
        """Return whether the bytes have a host view."""
        return not self.view.is_foreign and self.memory().host_ptr is not None


class _HostSide:
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


def _side(what: str, obj: Any, stream: StreamLike | None, *, writable: bool) -> _DeviceSide | _HostSide:
    """Return `obj` as device memory or host bytes; `what` names it in errors, and `stream` will use it."""
    if _is_on_device(obj):
        return _DeviceSide(*device_view_of(obj, None, None if stream is None else handle_of(stream)))
    try:
        buffer = _vkgdr.HostBuffer(obj, writable)
    except TypeError:
        text = f"the {what} must be device memory or a bytes-like object, not {type(obj).__name__}"
        raise TypeError(text) from None
    # A host array over this package's memory: CUDA must get its device address.
    found = _vkgdr.find_host(buffer.address, buffer.nbytes) if buffer.nbytes else None
    if found is None:
        return _HostSide(obj, buffer)
    return _DeviceSide(found, bound_streams(found), is_host_view=True)


def _device_side(what: str, obj: Any, stream: StreamLike | None, *, writable: bool) -> _DeviceSide:
    """Like `_side`, for an operand that must be device memory."""
    found = _side(what, obj, stream, writable=writable)
    if isinstance(found, _HostSide):
        raise TypeError(f"the {what} must be device memory, not the host bytes of a {type(obj).__name__}")
    return found


class _Queue:
    """The stream of an operation: `stream`, else a side's bound stream, else the legacy default stream."""

    __slots__ = ("handle", "lead", "sides")

    def __init__(self, sides: Sequence[_DeviceSide], stream: StreamLike | None) -> None:
        # The operation's context is that of the first side with a known context.
        self.lead = next((side.view for side in sides if side.view.context is not None), sides[0].view)
        self.sides = sides
        if stream is not None:
            self.handle = number_of(stream)
            return
        context = self.lead.context
        bound = (side.view.bound_stream for side in sides if side.view.context == context)
        self.handle = next((handle for handle in bound if handle is not None), NULL_STREAM)

    def _others(self) -> Iterator[tuple[MemoryView, int]]:
        """Return the other streams on which the sides are ready."""
        for side in self.sides:
            for stream in side.ready:
                if not is_same_stream(self.lead, self.handle, side.view, stream):
                    yield side.view, stream

    def begin(self, wait_for: Iterable[Waitable] | None) -> None:
        """Order later work after the events and the sides' streams, on the device where possible."""
        order_after(self.lead, self.handle, wait_for)
        for side in self.sides:
            follow(self.lead, self.handle, side.view, side.ready)

    def settle(self, wait_for: Iterable[Waitable] | None) -> None:
        """Wait for the events and the sides' streams, before a copy by the CPU, which waits for this stream itself."""
        wait_for_all(wait_for)
        for view, stream in self._others():
            # By an event, which does not wait for later work of the stream.
            _vkgdr.record(view, stream).synchronize()

    def end(self, event: Event) -> None:
        """Order later work of the sides' streams after the event of the operation."""
        try:
            for view, stream in self._others():
                _vkgdr.stream_wait(view, stream, event)
        except VkgdrError:
            # Such as without a current context, which another library's stream needs.
            event.synchronize()


def _natural(what: str, value: SupportsIndex) -> int:
    """Check a number of bytes, rows or slices."""
    number = operator.index(value)
    if not 0 <= number < 1 << 63:
        raise OutOfRangeError(f"{what} must be from 0 to 2**63 - 1, not {number}")
    return number


def _linear(
    to_size: int,
    from_size: int,
    offsets: tuple[SupportsIndex, SupportsIndex],
    count: SupportsIndex | None,
    default: str,
) -> Plan:
    """Plan the copy of a range."""
    dst_offset, src_offset = _natural("dst_offset", offsets[0]), _natural("src_offset", offsets[1])
    room = {"destination": to_size - dst_offset, "source": from_size - src_offset}
    # An offset past the end is checked below.
    fallback = min(room.values()) if default == "both" else room[default]
    size = max(fallback, 0) if count is None else _natural("byte_count", count)
    _check_range("destination", dst_offset, size, to_size)
    _check_range("source", src_offset, size, from_size)
    return (dst_offset, 0, 0), (src_offset, 0, 0), (size, 1, 1)


def _check_range(what: str, offset: int, size: int, room: int) -> None:
    if offset > room or size > room - offset:
        raise OutOfRangeError(beyond(size, offset, room, what))


def _rectangle(
    region: Sequence[SupportsIndex],
    to: tuple[Sequence[SupportsIndex] | None, Sequence[SupportsIndex] | None],
    source: tuple[Sequence[SupportsIndex] | None, Sequence[SupportsIndex] | None],
) -> Plan:
    """Plan the copy of a rectangle. Its bounds are checked by the native copy."""
    width, height, depth = _triple("region", region, 1)
    for name, value in zip(("bytes", "rows", "slices"), (width, height, depth), strict=True):
        if value == 0:
            raise InvalidArgumentError(f"region {tuple(region)} has 0 {name}")
    extent = (width, height, depth)
    return _layout("dst", *to, extent), _layout("src", *source, extent), extent


def _triple(name: str, values: Sequence[SupportsIndex], missing: int) -> tuple[int, int, int]:
    if not 1 <= len(values) <= 3:
        raise InvalidArgumentError(f"{name} has {len(values)} components: expected 2 or 3, bytes first")
    numbers = [_natural(f"{name}'s {unit} component", value) for unit, value in zip(_NAMES, values, strict=False)]
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
    start = _natural(f"{side}_origin in bytes", x + y * row_pitch + z * slice_pitch)
    return start, row_pitch, _natural(f"{side}_pitches in bytes", slice_pitch)


def _pitches(name: str, pitches: Sequence[SupportsIndex] | None) -> tuple[int, int]:
    if pitches is None:
        return 0, 0
    if len(pitches) > 2:
        raise InvalidArgumentError(f"{name} has {len(pitches)} components: expected a row pitch and a slice pitch")
    given = [_natural(f"{name}' {unit} component", value) for unit, value in zip(_NAMES[1:], pitches, strict=False)]
    given += [0] * (2 - len(given))
    return given[0], given[1]


def _pattern_bytes(pattern: Any) -> bytes:
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


def _fill_value(pattern: bytes, address: int) -> bytes | None:
    """Return the shortest CUDA fill value that repeats to the pattern and suits the address; None if there is none."""
    for width in (1, 2, 4):
        if len(pattern) % width == 0 and address % width == 0 and pattern == pattern[:width] * (len(pattern) // width):
            return pattern[:width]
    return None
