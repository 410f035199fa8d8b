"""``Map``: a scope in which the CPU uses memory."""

from __future__ import annotations

from vkgdr import _vkgdr
from vkgdr._copies import invalidate_edges, queue_of, settle
from vkgdr._errors import FreedError, InvalidArgumentError, VkgdrError, in_bytes
from vkgdr._shapes import check_order, described, fitted, fortran_strides, strided_size, wholes
from vkgdr._stream_handle import handle_of
from vkgdr._stream_handle import wait_for as wait_for_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Any, NoReturn

    import numpy as np
    import numpy.typing as npt

    from vkgdr._object import MemoryObject
    from vkgdr.stream import Event
    from vkgdr.typing import MapMode, Order, Shape, StreamLike, Waitable


__all__ = ["Map"]

_MODES = ("r", "w", "rw", "discard")
_RELEASED = "the mapping was released"


class Map:
    """A mapping of a range of memory, from `MemoryObject.map` to `release` or the end of ``with``.

    Opening waits for the stream and invalidates; the end flushes unless the mode is "r". ``with`` returns the array.
    The array's base is this object, which keeps the memory alive even after the end.
    """

    _open = False
    _waited = False
    _used = False
    # Class defaults: an object whose `__init__` did not run counts as released.
    _event: Event | None = None
    _mode: MapMode = "r"
    _size = 0

    def __init__(
        self,
        memory: MemoryObject,
        mode: MapMode = "rw",
        *,
        shape: Shape | None = None,
        dtype: npt.DTypeLike = "u1",
        order: Order = "C",
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        size: int | None = None,
        stream: StreamLike | None = None,
        blocking: bool = True,
    ) -> None:
        if mode not in _MODES:
            raise InvalidArgumentError(f"mode must be one of {', '.join(map(repr, _MODES))}, not {mode!r}")
        if memory.readonly and mode != "r":
            raise InvalidArgumentError(f"the memory is read-only: it cannot be mapped with mode {mode!r}")
        check_order(order)
        room = memory._region(offset, size)
        extents, kind, used = fitted(shape, dtype, room.nbytes)
        if strides is not None:
            strides = wholes(strides)
            used = strided_size(extents, kind.itemsize, strides)
        elif order == "F":
            strides = fortran_strides(extents, kind.itemsize)
        # A use of its own: keeps the memory alive even when `memory` is freed.
        self._region = room._over(room._view.part(0, used, False, False))
        self._mode = mode
        self._size = used
        self._memory = memory
        self._dtype = kind
        self._interface: dict[str, object] = {
            "shape": extents,
            "typestr": kind.str,
            "data": (self._region._visible_address(), mode == "r"),
            "strides": strides,
            "version": 3,
        }
        if kind.fields is not None:
            self._interface["descr"] = described(kind)
        view = self._region._view
        if blocking:
            settle(self._region, stream)
            self._event = _vkgdr.complete()
            self._invalidate()
        else:
            self._event = _vkgdr.record(view, queue_of(view, stream))
        self._open = True
        memory._maps += 1

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
        self._region._visible_address()
        # A copy: the one here was checked against the memory.
        return self._interface.copy()

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The memory as an array.

        Raises
        ------
        FreedError
            The scope has ended.
        """
        import numpy as np

        array = np.asarray(self)
        # Padding is a field in the interface, and fields that overlap are none.
        return array if array.dtype == self._dtype else array.view(self._dtype)

    def _invalidate(self) -> None:
        self._waited = True
        if self._mode != "discard":
            self._region.invalidate()
        else:
            invalidate_edges(self._region, 0, len(self._region))

    def wait(self) -> None:
        """Wait until the CPU may use the array; only needed with ``blocking=False`` and without ``with``."""
        if not self._waited:
            self.event.synchronize()
            self._invalidate()

    def release(self, stream: StreamLike | None = None, wait_for: Iterable[Waitable] | None = None) -> Event:
        """End the scope, and flush if the CPU may have written. A second call does nothing.

        Parameters
        ----------
        stream : object, optional
            Accepted for pyopencl's signature, and not used: later work on any stream sees the CPU's writes.
        wait_for : iterable of events, optional
            Events to wait for first.

        Returns
        -------
        vkgdr.stream.Event
            Complete.
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
        self._memory._maps -= 1
        # Without a wait nothing was invalidated: a flush would write old bytes over the device's.
        if self._mode != "r" and (self._waited or self._used):
            self._region.flush()

    def __enter__(self) -> np.ndarray[Any, Any]:
        self.wait()
        return self.array

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
