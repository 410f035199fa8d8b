"""Copies between a memory object and the host or device memory of any library, and that memory's bytes.

The CPU copies memory with a host view, after the stream's work; CUDA copies memory without one. Device memory of other
libraries comes through the CUDA Array Interface or DLPack.
"""

from __future__ import annotations

import operator

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError, VkgdrError
from vkgdr._shapes import c_strides, read_interface
from vkgdr._stream_handle import LEGACY_STREAM, NULL_STREAM, PER_THREAD_STREAM, handle_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, SupportsIndex, TypeAlias

    from vkgdr._shapes import Interface
    from vkgdr._vkgdr import Base, Event, HostBuffer, MemoryView
    from vkgdr.typing import StreamLike, Waitable

    # Streams on which the bytes of a view are ready.
    Ready: TypeAlias = Sequence[tuple[MemoryView, StreamLike]]

# The bytes of a repeated pattern that the host writes; device copies double them from there on.
_CHUNK = 64 << 10
_DLPACK_CUDA = 2


def stream_of(view: MemoryView, stream: StreamLike | None) -> StreamLike:
    """Return the stream to use: `stream`, else the bound stream, else the legacy default stream."""
    if stream is not None:
        return stream
    bound = view.bound_stream
    return NULL_STREAM if bound is None else bound


def queue_of(view: MemoryView, stream: StreamLike | None) -> StreamLike:
    """Return the stream to use, as `stream_of`, after the work of the bound stream."""
    queue, bound = stream_of(view, stream), view.bound_stream
    if bound is not None and bound is not queue:
        _vkgdr.stream_wait(view, queue, _vkgdr.record(view, bound))
    return queue


def wait_for_all(events: Iterable[Waitable] | None) -> None:
    """Wait for events of any library."""
    for event in events or ():
        if not hasattr(event, "synchronize"):
            raise TypeError(f"{event!r} is not an event: it has no method synchronize")
        event.synchronize()


def settle(memory: Base, stream: StreamLike | None) -> None:
    """Wait for the bound stream and for `stream`, so that the CPU may use the memory."""
    if stream is not None:
        _vkgdr.stream_synchronize(memory._view, stream)
    memory._view.wait_for_stream()


def invalidate_edges(memory: Base, offset: SupportsIndex, size: int) -> None:
    """Invalidate the partial atoms at both ends of a range, before the CPU writes to the range.

    The later flush writes whole atoms, so the host's copy of the bytes beside the range must not be stale.
    """
    # A Python int: sums of NumPy integers may overflow.
    first = operator.index(offset)
    atom, start = memory.non_coherent_atom_size, memory._view.offset + first
    if size and start % atom:
        memory.invalidate(first, 1)
    if size and (start + size) % atom:
        memory.invalidate(first + size - 1, 1)


def _saved(source: HostBuffer) -> HostBuffer:
    """Save host bytes that lie in this package's memory: an invalidate may change them. Return others unchanged."""
    if _vkgdr.find_host(source.address, source.nbytes) is None:
        return source
    import ctypes

    return _vkgdr.HostBuffer(ctypes.string_at(source.address, source.nbytes), False)


def to_host(memory: Base, offset: int, target: HostBuffer, size: int, stream: StreamLike | None) -> None:
    """Copy `size` bytes at `offset` to the host and wait."""
    view = memory._view
    if memory.host_ptr is not None:
        settle(memory, stream)
        memory.invalidate(offset, size)
        view.read(offset, size, target)
    else:
        _vkgdr.copy(target, (0, 0, 0), view, (offset, 0, 0), (size, 1, 1), (stream, (), (), True))


def from_host(memory: Base, offset: int, source: HostBuffer, stream: StreamLike | None) -> None:
    """Copy host bytes to `offset` and wait."""
    view = memory._view
    if memory.host_ptr is not None:
        settle(memory, stream)
        if not memory.is_coherent:
            source = _saved(source)
            invalidate_edges(memory, offset, source.nbytes)
        view.write(offset, source)
        memory.flush(offset, source.nbytes)
    else:
        _vkgdr.copy(view, (offset, 0, 0), source, (0, 0, 0), (source.nbytes, 1, 1), (stream, (), (), True))


def between(memory: Base, offset: int, source: MemoryView, stream: StreamLike | None, ready: Ready = ()) -> None:
    """Copy all of `source` to `offset` on the device, after the streams on which it is `ready`, wait and invalidate."""
    # Not on the stream that only the source is bound to.
    extent, order = (source.nbytes, 1, 1), (stream_of(memory._view, stream), ready, (), True)
    _vkgdr.copy(memory._view, (offset, 0, 0), source, (0, 0, 0), extent, order)
    memory.invalidate(offset, source.nbytes)


def fill(memory: Base, offset: int, size: int, pattern: bytes, stream: StreamLike | None) -> None:
    """Fill a range with a repeated pattern, of 1, 2 or 4 bytes where there is no host view, and wait."""
    view = memory._view
    if memory.host_ptr is not None:
        settle(memory, stream)
        invalidate_edges(memory, offset, size)
        view.fill(offset, size, pattern)
        memory.flush(offset, size)
    else:
        _vkgdr.fill(view, offset, pattern, size // len(pattern), (stream, (), (), True))


def repeat(view: MemoryView, start: int, count: int, unit: bytes, order: _vkgdr._Order) -> Event:
    """Fill with a pattern by doubling copies, for patterns without a CUDA fill. Return the event of the last one."""
    stream, ready, after, wait = order
    # The same one for all.
    stream = stream_of(view, stream)
    chunk = _vkgdr.HostBuffer(unit * (min(count, max(_CHUNK, len(unit))) // len(unit)), False)
    done = chunk.nbytes
    last = stream, ready, after, wait and done == count
    event = _vkgdr.copy(view, (start, 0, 0), chunk, (0, 0, 0), (done, 1, 1), last)
    while done < count:
        first, more = start + done, min(done, count - done)
        done += more
        # The later work of all these streams comes after the last copy.
        last = stream, ready, (), wait and done == count
        event = _vkgdr.copy(view, (first, 0, 0), view, (start, 0, 0), (more, 1, 1), last)
    return event


def device_view_of(
    obj: Any, within: MemoryView | None = None, consumer: StreamLike | None = None
) -> tuple[MemoryView, Ready]:
    """Return the device bytes of an object, and the streams on which they are ready, beside the bound one.

    Bytes in memory of this package give a view of that memory, with its host view. Other addresses are looked up in
    the context of `within`, or in the current context. `consumer` is the stream that uses the bytes, if it is known.
    """
    if isinstance(obj, _vkgdr.Base):
        # Freed memory has no stream, which is an error.
        _ = obj._view.bound_stream
        return obj._view, ()
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_interface(interface, obj, within)
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return _from_dlpack(obj, consumer)
    raise InvalidArgumentError(f"{type(obj).__name__} has no device memory: no __cuda_array_interface__, no DLPack")


def found_of(array: Interface, owner: object = None) -> MemoryView | None:
    """Return the bytes of an array interface in this package's memory; None if they lie elsewhere.

    The view keeps `owner`, the array: its library may reuse the bytes once that is gone. Memory objects need no such
    care.
    """
    found = _vkgdr.find_device(*array.span)
    if found is None:
        return None
    if array.readonly:
        found = found.part(0, None, True, False)
    return found if owner is None or isinstance(owner, _vkgdr.Base) else found.keeping(owner)


def bytes_of(array: Interface, owner: object, within: MemoryView | None = None) -> MemoryView:
    """Return the bytes of an array interface, which `owner` keeps alive where they are not in this package's memory."""
    found = found_of(array, owner)
    return _vkgdr.foreign(*array.span, array.readonly, owner, within) if found is None else found


def _from_interface(interface: Any, obj: object, within: MemoryView | None) -> tuple[MemoryView, Ready]:
    array = read_interface(interface, "__cuda_array_interface__")
    # Strides of axes of extent 1 count for nothing.
    dense = zip(array.extents, array.strides, c_strides(array.extents, array.itemsize), strict=True)
    if any(extent > 1 and stride != own for extent, stride, own in dense):
        shape, strides = array.extents, array.strides
        raise InvalidArgumentError(f"only arrays in C order are supported, got shape {shape}, strides {strides}")
    found = bytes_of(array, obj, within)
    return found, () if array.stream is None else [(found, array.stream)]


def _from_dlpack(obj: Any, consumer: StreamLike | None) -> tuple[MemoryView, Ready]:
    kind, device = obj.__dlpack_device__()
    if kind != _DLPACK_CUDA:
        raise InvalidArgumentError(
            f"{type(obj).__name__} is on DLPack device ({int(kind)}, {device}), not on a CUDA device"
        )
    # The exporter makes this stream wait for its work. A default stream may be that of another context.
    handle = LEGACY_STREAM if consumer is None else handle_of(consumer)
    is_default = handle <= PER_THREAD_STREAM
    stream = LEGACY_STREAM if is_default else handle
    try:
        try:
            capsule = obj.__dlpack__(stream=stream, max_version=(1, 1))
        except TypeError:
            # An exporter from before DLPack 1.0 has no max_version.
            capsule = obj.__dlpack__(stream=stream)
        view = _vkgdr.dlpack_import(capsule)
    except BufferError as error:
        # `NoHostViewError` and its like are this package's already.
        if isinstance(error, VkgdrError):
            raise
        raise InvalidArgumentError(f"the DLPack tensor of {type(obj).__name__} cannot be taken: {error}") from error
    return view, [(view, LEGACY_STREAM)] if is_default else ()
