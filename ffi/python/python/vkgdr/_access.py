"""The order in which the CPU and the device access memory: waits, copies, fills, and `Map`, the CPU's turn.

The CPU copies memory with a host view, after the stream's work; CUDA copies memory without one.
"""

from __future__ import annotations

from vkgdr import _vkgdr
from vkgdr._errors import FreedError, InvalidArgumentError, VkgdrError, in_bytes
from vkgdr._interfaces import NULL_STREAM, handle_of, span_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NoReturn

    import numpy as np

    from vkgdr._interfaces import Layout, Ready
    from vkgdr._memory import Memory
    from vkgdr._vkgdr import Event, MemoryView
    from vkgdr.typing import MapMode, StreamLike, Waitable


def stream_of(view: MemoryView, stream: StreamLike | None) -> StreamLike:
    """Return the stream to use: `stream`, else the bound stream, else the legacy default stream."""
    if stream is not None:
        return stream
    bound = view.bound_stream
    return NULL_STREAM if bound is None else bound


def queue_of(view: MemoryView, stream: StreamLike | None) -> StreamLike:
    """Return the stream to use, as `stream_of`, after the work of the bound stream."""
    if stream is None:
        return stream_of(view, None)
    bound = view.bound_stream
    if bound is not None and handle_of(stream) != bound:
        _vkgdr.stream_wait(view, stream, _vkgdr.record(view, bound))
    return stream


def wait_for_all(events: Iterable[Waitable] | None) -> None:
    """Wait for events of any library."""
    for event in events or ():
        if not hasattr(event, "synchronize"):
            raise TypeError(f"{event!r} is not an event: it has no method synchronize")
        event.synchronize()


def settle(memory: Memory, stream: StreamLike | None) -> None:
    """Wait for the bound stream and for `stream`, so that the CPU may use the memory."""
    if stream is not None:
        _vkgdr.stream_synchronize(memory._view, stream)
    memory._view.wait_for_stream()


def between(memory: Memory, offset: int, source: MemoryView, stream: StreamLike | None, ready: Ready = ()) -> None:
    """Copy all of `source` to `offset` on the device, after the streams on which it is `ready`, wait and invalidate."""
    # Not on the stream that only the source is bound to.
    extent, order = (source.nbytes, 1, 1), (stream_of(memory._view, stream), ready, (), True)
    _vkgdr.copy(memory._view, (offset, 0, 0), source, (0, 0, 0), extent, order)
    memory.invalidate(offset, source.nbytes)


def fill(memory: Memory, offset: int, size: int, pattern: bytes, stream: StreamLike | None) -> None:
    """Fill a range with a repeated pattern, of one byte where there is no host view, and wait."""
    view = memory._view
    if memory.host_ptr is None:
        _vkgdr.fill(view, offset, pattern, size, (stream, (), (), True))
        return
    settle(memory, stream)
    if not memory.is_coherent:
        # The flush writes whole atoms: the host's copy of the bytes beside the range must not be stale.
        memory.invalidate(offset, size)
    view.fill(offset, size, pattern)
    memory.flush(offset, size)


_MODES = ("r", "w", "rw", "discard")
_RELEASED = "the mapping was released"


class Map:
    """A mapping of a range of memory, from `Memory.map` to `release` or the end of ``with``.

    Opening waits for the stream and invalidates; the end flushes unless the mode is "r". ``with`` returns the array.
    The array's base is this object, which keeps the memory alive even after the end. For record classes, and structured
    types whose fields are not side by side in their order, it is the base of its base.
    """

    _open = False
    _waited = False
    _used = False
    # Class defaults: an object whose `__init__` did not run counts as released.
    _event: Event | None = None
    _mode: MapMode = "r"
    _size = 0
    _layout: Layout
    _region: Memory

    def __init__(
        self,
        memory: Memory,
        room: Memory,
        layout: Layout,
        mode: MapMode,
        stream: StreamLike | None,
        *,
        blocking: bool,
    ) -> None:
        if mode not in _MODES:
            raise InvalidArgumentError(f"mode must be one of {', '.join(map(repr, _MODES))}, not {mode!r}")
        if memory.readonly and mode != "r":
            raise InvalidArgumentError(f"the memory is read-only: it cannot be mapped with mode {mode!r}")
        self._memory, self._mode, self._layout, self._size = memory, mode, layout, span_of(layout)[1]
        # A use of its own: keeps the memory alive even when `memory` is freed.
        self._region = room._over(room._view.part(0, self._size, False))
        # Raises if there is no host view.
        _ = self._region.__array_interface__
        if blocking:
            settle(self._region, stream)
            self._event = _vkgdr.complete()
            self._invalidate()
        else:
            self._event = _vkgdr.record(self._region._view, queue_of(self._region._view, stream))
        self._open = True
        # In one step each, without a lock: the garbage collector ends mappings at any moment.
        vars(memory).setdefault("_maps", set()).add(id(self))

    @property
    def event(self) -> Event:
        """An event that is complete once the device's earlier work is done."""
        if self._event is None:
            raise FreedError(_RELEASED)
        return self._event

    @property
    def released(self) -> bool:
        """Whether the scope has ended."""
        return not self._open

    @property
    def __array_interface__(self) -> dict[str, object]:
        if not self._open:
            raise FreedError(_RELEASED)
        self._used = True
        # Raises if the memory was freed with force=True.
        address, _ = self._region.__array_interface__["data"]
        return {**self._layout.__array_interface__, "data": (address, self._mode == "r")}

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The memory as an array; `FreedError` if the scope has ended."""
        import numpy as np

        array = np.asarray(self)
        # Padding is a field in the interface, and fields that overlap are none.
        dtype = self._layout.dtype
        return array if array.dtype == dtype and array.dtype.type is dtype.type else array.view(dtype)

    def _invalidate(self) -> None:
        self._waited = True
        self._region.invalidate()

    def wait(self) -> None:
        """Wait until the CPU may use the array; only needed with ``blocking=False`` and without ``with``."""
        if not self._waited:
            self.event.synchronize()
            self._invalidate()

    def release(self, stream: StreamLike | None = None, wait_for: Iterable[Waitable] | None = None) -> Event:
        """Wait for events, end the scope, and flush if the CPU may have written; return a complete event.

        A second call does nothing. `stream` is pyopencl's, and not used: later work on any stream sees the writes.
        """
        if stream is not None:
            handle_of(stream)
        wait_for_all(wait_for)
        self._end()
        return _vkgdr.complete()

    def _end(self) -> None:
        if not self._open:
            return
        self._open = False
        vars(self._memory).get("_maps", set()).discard(id(self))
        # Without a wait nothing was invalidated: a flush would write old bytes over the device's.
        if self._mode != "r" and (self._waited or self._used):
            self._region.flush()

    def __enter__(self) -> np.ndarray[Any, Any]:
        self.wait()
        return self.array

    def __exit__(self, *_exception: object) -> None:
        self._end()

    def __del__(self) -> None:
        try:
            self._end()
        except VkgdrError as error:
            # A destructor cannot raise.
            import logging

            logging.getLogger("vkgdr").error("the end of a mapping: %s", error)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a mapping cannot be copied or pickled")

    def __repr__(self) -> str:
        state = "mapped" if self._open else "released"
        return f"<vkgdr.Map: {state}, mode {self._mode!r}, {in_bytes(self._size)}>"


# Messages show the public name, not that of the private module.
Map.__module__ = "vkgdr"
