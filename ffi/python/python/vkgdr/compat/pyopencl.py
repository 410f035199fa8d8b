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

from vkgdr import _copies, _vkgdr
from vkgdr._errors import InvalidArgumentError, OutOfRangeError, beyond, in_bytes
from vkgdr._map import Map
from vkgdr._memory import Memory
from vkgdr._object import MemoryObject
from vkgdr._stream_handle import handle_of, order_after
from vkgdr._stream_handle import wait_for as wait_for_all
from vkgdr.compat._operands import (
    DeviceSide,
    HostSide,
    Queue,
    device_side,
    fill_value,
    linear,
    natural,
    pattern_bytes,
    rectangle,
    side,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, SupportsIndex, overload

    import numpy as np
    import numpy.typing as npt

    from vkgdr.compat._operands import Plan
    from vkgdr.stream import Event
    from vkgdr.typing import Kind, MapMode, Order, Shape, StreamLike, Waitable

__all__ = ["copy", "fill", "map", "migrate"]


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
    to, source = side("destination", dest, stream, writable=True), side("source", src, stream, writable=False)
    if isinstance(to, HostSide) and isinstance(source, HostSide):
        names = f"{type(src).__name__} to {type(dest).__name__}"
        raise TypeError(f"both sides are host memory, {names}: one must be device memory")
    rectangular = (src_origin, dst_origin, src_pitches, dst_pitches)
    if region is None:
        if any(value is not None for value in rectangular):
            raise TypeError("origins and pitches need a region")
        default = "destination" if isinstance(to, HostSide) else "source" if isinstance(source, HostSide) else "both"
        plan = linear(to.nbytes, source.nbytes, (dst_offset, src_offset), byte_count, default)
    else:
        if byte_count is not None or src_offset != 0 or dst_offset != 0:
            raise TypeError("a rectangle has a region and origins, not byte_count, src_offset or dst_offset")
        plan = rectangle(region, (dst_origin, dst_pitches), (src_origin, src_pitches))
    on_device = [each for each in (to, source) if isinstance(each, DeviceSide)]
    queue = Queue(on_device, stream)
    for each in on_device:
        each.flush_host_view()
    if region is None and stream is None and is_blocking and _copy_by_cpu(to, source, plan, queue, wait_for):
        return _vkgdr.complete()
    return _copy_by_device(to, source, plan, queue, wait_for, is_blocking=is_blocking)


def _copy_by_cpu(
    to: DeviceSide | HostSide,
    source: DeviceSide | HostSide,
    plan: Plan,
    queue: Queue,
    wait_for: Iterable[Waitable] | None,
) -> bool:
    """Copy by the CPU if possible; return whether it was."""
    (dst_offset, _, _), (src_offset, _, _), (size, _, _) = plan
    if size == 0:
        return False
    if isinstance(to, DeviceSide) and isinstance(source, HostSide) and to.is_visible():
        part = source.part(src_offset, size, writable=False)
        queue.settle(wait_for)
        _copies.from_host(to.region(), dst_offset, part, queue.handle)
        return True
    if isinstance(to, HostSide) and isinstance(source, DeviceSide) and source.is_visible():
        part = to.part(dst_offset, size, writable=True)
        queue.settle(wait_for)
        _copies.to_host(source.region(), src_offset, part, size, queue.handle)
        return True
    return False


def _copy_by_device(
    to: DeviceSide | HostSide,
    source: DeviceSide | HostSide,
    plan: Plan,
    queue: Queue,
    wait_for: Iterable[Waitable] | None,
    *,
    is_blocking: bool,
) -> Event:
    to_layout, from_layout, extent = plan
    queue.begin(wait_for)
    sides = [each.view if isinstance(each, DeviceSide) else each.buffer for each in (to, source)]
    event = _vkgdr.copy(sides[0], to_layout, sides[1], from_layout, extent, queue.handle, is_blocking)
    if not is_blocking:
        queue.end(event)
    elif isinstance(to, DeviceSide):
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
    to = device_side("destination", dest, stream, writable=True)
    unit = pattern_bytes(pattern)
    start = natural("offset", offset)
    count = max(to.nbytes - start, 0) if size is None else natural("size", size)
    if start > to.nbytes or count > to.nbytes - start:
        raise OutOfRangeError(beyond(count, start, to.nbytes, "destination"))
    for name, number in (("size", count), ("offset", start)):
        if number % len(unit):
            raise InvalidArgumentError(f"the {name} {number} is not a multiple of the pattern's {in_bytes(len(unit))}")
    queue = Queue([to], stream)
    to.flush_host_view()
    value = fill_value(unit, to.region().device_ptr + start)
    if value is None and stream is None and is_blocking and to.is_visible():
        queue.settle(wait_for)
        _copies.fill(to.region(), start, count, unit, queue.handle)
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
