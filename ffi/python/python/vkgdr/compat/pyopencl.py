"""Copies, fills and mappings, with the arguments of pyopencl's ``enqueue_*``.

``stream`` replaces pyopencl's queue and takes a stream of any library (see `vkgdr.stream`). The default is the stream
that the memory is bound to, or the legacy default stream. Operations on a stream are done in order, and after the
streams that their memory is bound to, or that array interfaces name. ``wait_for`` is an iterable of events, of this
package or of any library with ``synchronize``, to wait for first.

Device memory is a memory object, an object with ``__cuda_array_interface__``, or DLPack on a CUDA device, in C order.
Host memory is any contiguous object with the buffer protocol. A host array over memory of this package is treated as
that memory, with the CPU's version of its bytes: it is flushed first. After a blocking operation the CPU sees what the
device wrote to memory of this package. On memory that is not coherent, flush before what the CPU wrote to the same
atoms of a memory object. After an operation that does not block, wait for the event and call ``invalidate``, for an
array ``vkgdr.device_view(array).invalidate()``.

The functions differ from pyopencl's in these points:

* Copies between device memory block by default, too, and fills do not.
* `fill` has the arguments of ``enqueue_fill``, not those of ``enqueue_fill_buffer``.
* A pattern may have any size, and rectangles are counted in bytes, rows and slices on both sides. Those of host arrays
  have the arguments of device memory: ``src_`` and ``dst_``, not ``buffer_`` and ``host_``.
* Maps take a ``mode``, such as ``"r"``, and no ``map_flags``.
* `migrate` returns new memory and frees the old objects, where pyopencl moves the bytes of the same objects.
* An `Event` has ``wait``, and this package's ``synchronize``, ``query`` and ``is_complete``; there are no profiling
  information, callbacks and user events.
* Images, and SVM objects that are not memory of this package or of a CUDA library, are not supported.
"""

from __future__ import annotations

import ctypes
import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

from vkgdr import _access, _vkgdr
from vkgdr._errors import InvalidArgumentError, OutOfRangeError, in_bytes
from vkgdr._interfaces import DLPACK_CUDA, device_view_of, handle_of, interface_of
from vkgdr._memory import Memory
from vkgdr._vkgdr import Event, HostBuffer, MemoryView
from vkgdr.typing import Kind, MapMode, Order, Shape, StreamLike, Waitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from vkgdr._interfaces import Ready

    # Offset, row pitch and slice pitch of a side, in bytes.
    Layout = tuple[int, int, int]
    # That of both sides, and the extent: bytes per row, rows per slice, number of slices.
    Plan = tuple[Layout, Layout, tuple[int, int, int]]

__all__ = ["copy", "fill", "map", "migrate"]
__dir__ = __all__.copy

_NAMES = ("byte", "row", "slice")
# The bytes of a repeated pattern that the host writes; device copies double them from there on.
_CHUNK = 64 << 10


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

    Unless a stream is passed, the CPU makes a blocking copy of a range between host and memory with a host view, and
    flushes it. CUDA makes all other copies, on the stream. Memory of another CUDA context can be copied, but not as a
    rectangle.

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
    is_blocking : bool, optional
        False returns before the copy is done, though CUDA itself may wait for pageable host memory.

    Returns
    -------
    vkgdr.stream.Event
        Complete when the copy is done. Until then host bytes and other libraries' memory are kept alive, even if the
        event is dropped, which does not wait. The next wait for an event, or `Vkgdr.collect`, lets go of them.

    Raises
    ------
    OutOfRangeError
        The range or the rectangle exceeds a side.
    InvalidArgumentError
        The sides overlap, the destination is read-only, bytes are not contiguous, or pitches are too small.
    TypeError
        Both sides are host memory, one is not memory, or arguments of ranges and rectangles are mixed.
    """
    to, source = _Side("destination", dest, stream, writable=True), _Side("source", src, stream, writable=False)
    if to.memory is source.memory is None:
        names = f"{type(src).__name__} to {type(dest).__name__}"
        raise TypeError(f"both sides are host memory, {names}: one must be device memory")
    rectangular = (src_origin, dst_origin, src_pitches, dst_pitches)
    if region is None:
        if any(value is not None for value in rectangular):
            raise TypeError("origins and pitches need a region")
        plan = _linear(to, source, _natural("dst_offset", dst_offset), _natural("src_offset", src_offset), byte_count)
    else:
        if byte_count is not None or src_offset != 0 or dst_offset != 0:
            raise TypeError("a rectangle has a region and origins, not byte_count, src_offset or dst_offset")
        width, height, depth = counts = _numbers("region", region, 1)
        if 0 in counts:
            raise InvalidArgumentError(f"region {tuple(region)} has 0 {_NAMES[counts.index(0)]}s")
        sides = _layout("dst", dst_origin, dst_pitches, counts), _layout("src", src_origin, src_pitches, counts)
        # Bounds are checked by the native copy.
        plan = *sides, (width, height, depth)
    if region is None and stream is None and is_blocking and _copy_by_cpu(to, source, plan, wait_for):
        return _vkgdr.complete()
    order = (stream, [*to.ready, *source.ready], _on_device(wait_for), is_blocking)
    to_layout, from_layout, extent = plan
    event = _vkgdr.copy(to.native, to_layout, source.native, from_layout, extent, order)
    if is_blocking:
        to.invalidate(to_layout, extent)
    return event


def _copy_by_cpu(to: _Side, source: _Side, plan: Plan, wait_for: Iterable[Waitable] | None) -> bool:
    """Copy by the CPU if possible; return whether it was."""
    (dst_offset, _, _), (src_offset, _, _), (size, _, _) = plan
    if size and source.memory is None and to.memory is not None and to.memory.host_ptr is not None:
        part = source.part(src_offset, size)
        to.memory.copy_from_host(part, offset=dst_offset, stream=to.settled(wait_for))
        return True
    if size and to.memory is None and source.memory is not None and source.memory.host_ptr is not None:
        part = to.part(dst_offset, size)
        source.memory._part(src_offset, size).copy_to_host(part, stream=source.settled(wait_for))
        return True
    return False


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
    is_blocking : bool, optional
        True returns when the fill is done, and an event that is complete.

    Raises
    ------
    OutOfRangeError
        The range exceeds the memory.
    InvalidArgumentError
        The pattern is empty, size or offset is not a multiple of its size, or the memory is read-only.
    TypeError
        The pattern is not bytes-like, for example an int, or `dest` is not device memory.
    """
    to = _Side("destination", dest, stream, writable=True)
    memory = to.memory
    if memory is None:
        raise TypeError(f"the destination must be device memory, not the host bytes of a {type(dest).__name__}")
    try:
        view = memoryview(pattern)
        # Names of fields stand between colons.
        has_objects, unit = "O" in re.sub(":.*?:", "", view.format), view.tobytes()
    except TypeError:
        text = f"the pattern must be bytes-like, such as bytes(1) or np.float32(1), not {type(pattern).__name__}"
        raise TypeError(text) from None
    except ValueError:
        # NumPy's dates have no format.
        if not hasattr(pattern, "dtype"):
            raise
        has_objects, unit = pattern.dtype.hasobject, pattern.tobytes()
    if has_objects:
        raise TypeError("the pattern has Python objects, which the device cannot use")
    if not unit:
        raise InvalidArgumentError("the pattern has 0 bytes")
    start = _natural("offset", offset)
    count = max(to.nbytes - start, 0) if size is None else _natural("size", size)
    _check_range("destination", start, count, to.nbytes)
    for name, number in (("size", count), ("offset", start)):
        if number % len(unit):
            raise InvalidArgumentError(f"the {name} {number} is not a multiple of the pattern's {in_bytes(len(unit))}")
    after = _on_device(wait_for)
    order = (stream, to.ready, after, is_blocking)
    event = _vkgdr.fill(memory._view, start, unit, count, order)
    if event is None:
        if stream is None and is_blocking and memory.host_ptr is not None:
            _access.fill(memory, start, count, unit, to.settled(after))
            return _vkgdr.complete()
        event = _repeat(memory._view, start, count, unit, order)
    if is_blocking:
        to.invalidate((start, 0, 0), (count, 1, 1))
    return event


def map(  # noqa: A001 - pyopencl's name
    mem: Memory,
    mode: MapMode,
    offset: int,
    shape: Shape,
    dtype: npt.DTypeLike,
    order: Order = "C",
    strides: tuple[int, ...] | None = None,
    stream: StreamLike | None = None,
    wait_for: Iterable[Waitable] | None = None,
    is_blocking: bool = True,
) -> tuple[np.ndarray[Any, Any], Event]:
    """Open a mapping, like `vkgdr.Memory.map`, which describes the parameters and the errors, after `wait_for`.

    Returns the array, and an event that is complete when earlier work is done. The array's ``base`` is a `vkgdr.Map`:
    the end of ``with array.base:``, ``array.base.release()`` or its deletion ends the mapping. For record classes,
    and fields that are not side by side in order, the map is ``array.base.base``. A false `is_blocking` returns at
    once: wait with ``array.base.wait()``, or use ``with array.base``.
    """
    if not isinstance(mem, Memory):
        raise TypeError(f"only memory of vkgdr can be mapped, not {type(mem).__name__}")
    handle = _access.queue_of(mem._view, stream)
    for event in _on_device(wait_for):
        _vkgdr.stream_wait(mem._view, handle, event)
    layout: dict[str, Any] = {"shape": shape, "dtype": dtype, "order": order, "strides": strides, "offset": offset}
    mapping = mem.map(mode, **layout, stream=handle, blocking=is_blocking)
    return mapping.array, mapping.event


def migrate(
    mems: Memory | Iterable[Memory],
    kind: Kind,
    *,
    discard: bool = False,
    stream: StreamLike | None = None,
    wait_for: Iterable[Waitable] | None = None,
) -> Any:
    """Move the bytes of one or several memory objects to new memory, as `vkgdr.Memory.migrate`, and wait.

    Returns the new memory, or a list in the same order. If an allocation or a copy fails, nothing has changed.
    """
    single = isinstance(mems, Memory)
    old = [mems] if isinstance(mems, Memory) else list(mems)
    for mem in old:
        if not isinstance(mem, Memory):
            raise TypeError(f"only memory of vkgdr can be migrated, not {type(mem).__name__}")
    if stream is not None:
        handle_of(stream)
    _access.wait_for_all(wait_for)
    new = [Memory(mem._require_owner(), len(mem), kind=kind, name=mem.name) for mem in old]
    if not discard:
        for to, mem in zip(new, old, strict=True):
            copy(to, mem, stream=stream)
    for mem in old:
        mem._free_moved()
    return new[0] if single else new


# ---- operands and layouts --------------------------------------------------------------------------------------------


class _Side:
    """Device bytes, or host bytes, for which `memory` is None."""

    memory: Memory | None = None
    # The argument for the native copy.
    native: Any
    # The streams on which device bytes are ready, beside the bound one.
    ready: Ready = ()

    def __init__(self, what: str, obj: Any, stream: StreamLike | None, *, writable: bool) -> None:
        self.obj = obj
        if _is_on_device(obj):
            view, self.ready = device_view_of(obj, None, stream)
            self.memory, self.native, self.nbytes = Memory._over(view), view, view.nbytes
            return
        try:
            buffer = self.native = HostBuffer(obj, writable)
        except TypeError:
            text = f"the {what} must be device memory or a bytes-like object, not {type(obj).__name__}"
            raise TypeError(text) from None
        self.nbytes = buffer.nbytes
        # A host array over this package's memory: CUDA must get its device address.
        found = _vkgdr.find(buffer.address, buffer.nbytes) if buffer.nbytes else None
        if found is not None:
            self.memory, self.native = Memory._over(found), found
            self.memory.flush()

    def invalidate(self, layout: Layout, extent: tuple[int, int, int]) -> None:
        """Let the CPU see what the device wrote to a rectangle, row by row: between rows may be what the CPU wrote."""
        if self.memory is None or self.memory.is_coherent:
            return
        (start, row_pitch, slice_pitch), (width, height, depth) = layout, extent
        for number in range(height * depth):
            first = start + number // height * slice_pitch + number % height * row_pitch
            self.memory.invalidate(first, width)

    def settled(self, wait_for: Iterable[Waitable] | None) -> StreamLike:
        """Wait until the CPU may use device bytes, but for the work of the stream that is returned."""
        _access.wait_for_all(wait_for)
        for view, stream in self.ready:
            # By an event, which does not wait for later work of the stream.
            _vkgdr.record(view, stream).synchronize()
        return _access.stream_of(self.native, None)

    def part(self, offset: int, size: int) -> Any:
        """Return a range of host bytes."""
        if offset == 0 and size == self.nbytes:
            return self.obj
        part: Any = (ctypes.c_char * size).from_address(self.native.address + offset)
        part.whole = self.native
        return part


def _is_on_device(obj: Any) -> bool:
    if isinstance(obj, Memory) or interface_of(obj) is not None:
        return True
    ask = getattr(obj, "__dlpack_device__", None)
    return ask is not None and int(ask()[0]) == DLPACK_CUDA


def _on_device(events: Iterable[Waitable] | None) -> list[Event]:
    """Return this package's events, for which a stream can wait; wait for others on the calling thread."""
    given = list(events or ())
    _access.wait_for_all(event for event in given if not isinstance(event, Event))
    return [event for event in given if isinstance(event, Event)]


def _natural(what: str, value: SupportsIndex) -> int:
    """Check a number of bytes, rows or slices."""
    number = operator.index(value)
    if not 0 <= number < 1 << 63:
        raise OutOfRangeError(f"{what} must be from 0 to 2**63 - 1, not {number}")
    return number


def _linear(to: _Side, source: _Side, dst_offset: int, src_offset: int, count: SupportsIndex | None) -> Plan:
    """Plan the copy of a range."""
    if count is None:
        # Host bytes count where there is device memory, too. An offset past the end is found below.
        sides = [(to, dst_offset), (source, src_offset)]
        rooms = [side.nbytes - offset for side, offset in sides if side.memory is None]
        size = max(min(rooms or [side.nbytes - offset for side, offset in sides]), 0)
    else:
        size = _natural("byte_count", count)
    _check_range("destination", dst_offset, size, to.nbytes)
    _check_range("source", src_offset, size, source.nbytes)
    return (dst_offset, 0, 0), (src_offset, 0, 0), (size, 1, 1)


def _check_range(what: str, offset: int, size: int, room: int) -> None:
    if offset > room or size > room - offset:
        do = "does" if size == 1 else "do"
        raise OutOfRangeError(f"{in_bytes(size)} at {offset} {do} not lie within the {in_bytes(room)} of the {what}")


def _numbers(
    name: str, values: Sequence[SupportsIndex] | None, missing: int, units: Sequence[str] = _NAMES
) -> list[int]:
    """Check a number for each unit, of which the last ones may be missing."""
    values = () if values is None else values
    if len(values) > len(units) or (missing and not len(values)):
        raise InvalidArgumentError(f"{name} has {len(values)} components: expected at most {', '.join(units)}")
    numbers = [_natural(f"{name}'s {unit} component", value) for unit, value in zip(units, values, strict=False)]
    return numbers + [missing] * (len(units) - len(numbers))


def _layout(
    side: str, origin: Sequence[SupportsIndex] | None, pitches: Sequence[SupportsIndex] | None, region: Sequence[int]
) -> Layout:
    width, height, _ = region
    row_pitch, slice_pitch = _numbers(f"{side}_pitches", pitches, 0, _NAMES[1:])
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
    x, y, z = _numbers(f"{side}_origin", origin, 0)
    start = _natural(f"{side}_origin in bytes", x + y * row_pitch + z * slice_pitch)
    return start, row_pitch, _natural(f"{side}_pitches in bytes", slice_pitch)


def _repeat(view: MemoryView, start: int, count: int, unit: bytes, order: _vkgdr._Order) -> Event:
    """Fill with a pattern by doubling copies, for patterns without a CUDA fill. Return the event of the last one."""
    stream, ready, after, wait = order
    chunk = HostBuffer(unit * (min(count, max(_CHUNK, len(unit))) // len(unit)), False)
    # The same stream for all copies. Its later work, and that of the others, comes after the last one.
    order, done = (_access.stream_of(view, stream), ready, after, False), chunk.nbytes
    event = _vkgdr.copy(view, (start, 0, 0), chunk, (0, 0, 0), (done, 1, 1), order)
    while done < count:
        more = min(done, count - done)
        event = _vkgdr.copy(view, (start + done, 0, 0), view, (start, 0, 0), (more, 1, 1), order)
        done += more
    if wait:
        event.synchronize()
    return event
