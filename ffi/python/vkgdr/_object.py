"""``MemoryObject``: what every memory object can do; and ``Region``, a part of one."""

from __future__ import annotations

import operator

from vkgdr import _vkgdr
from vkgdr._copies import Copies
from vkgdr._errors import FreedError, InvalidArgumentError
from vkgdr._layout import checked_order, fitted
from vkgdr.stream import handle_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    import numpy as np
    import numpy.typing as npt

    from vkgdr._handle import Kind, Vkgdr
    from vkgdr._layout import Order, Shape
    from vkgdr._map import Map, MapMode
    from vkgdr._owned import Memory
    from vkgdr._vkgdr import Block
    from vkgdr.stream import Event, StreamLike

__all__ = ["MemoryObject", "Region"]


class MemoryObject(Copies):
    """Bytes that the CPU and a GPU share.

    Not made directly: see `Memory`, `RawMemory`, `Region`, `Buffer` and the classes of `vkgdr.memory` and
    `vkgdr.pycuda`.

    NumPy and everything else that knows the buffer protocol sees the host's bytes, without a copy; CuPy, PyTorch,
    numba and everything else that knows the CUDA Array Interface or DLPack sees the device's. Such a view keeps the
    bytes: when memory is freed, what is done with it raises `FreedError` from then on, and the pages go with the last
    view.

    Both sides may write at any time. Where the memory is not coherent, `flush` after the CPU wrote and `invalidate`
    before it reads, or use `map`. All methods may be called from any thread, and enter the memory's context themselves.
    Sizes and offsets are in bytes.
    """

    # Views

    @property
    def buf(self) -> memoryview:
        """The host's bytes as a memoryview.

        Raises
        ------
        NoHostViewError
            The CPU cannot see memory of this kind.
        """
        return memoryview(self)

    def get_host_array(
        self, shape: Shape | None = None, dtype: npt.DTypeLike = "u1", order: Order = "C", offset: int = 0
    ) -> np.ndarray[Any, Any]:
        """Give the host's view of the memory as an array, without a copy.

        Nothing is waited for or invalidated: see `map`. The array keeps the memory.

        Parameters
        ----------
        shape : int or tuple of int, optional
            All bytes in one dimension by default.
        dtype : optional
            Any data type without Python objects; structured ones too.
        order : {"C", "F"}, optional
            Which index varies fastest: the last, or the first.
        offset : int, optional
            Where the array begins, in bytes.

        Raises
        ------
        InvalidArgumentError
            The array does not fit into the memory, or its data type cannot lie there.
        NoHostViewError
            The CPU cannot see memory of this kind.
        """
        import numpy as np

        # Not NumPy's numbers, whose sums may overflow.
        offset = operator.index(offset)
        room = self._region(offset, None)
        extents, kind, size = fitted(shape, dtype, len(room))
        # By way of a memoryview, which counts as a view until the array goes.
        flat = np.asarray(memoryview(self))[offset : offset + size]
        return flat.view(kind).reshape(extents, order=checked_order(order))

    def map(
        self,
        mode: MapMode = "rw",
        *,
        shape: Shape | None = None,
        dtype: npt.DTypeLike = "u1",
        order: Order = "C",
        offset: int = 0,
        size: int | None = None,
        stream: StreamLike | None = None,
        blocking: bool = True,
    ) -> Map:
        """Begin a scope in which the CPU uses the memory: ``with memory.map() as array``.

        Waits for `stream`, or for the bound stream, and invalidates; the end of the scope flushes. On non-coherent
        memory both do whole atoms, so that mappings that share an atom must not be open together.

        Parameters
        ----------
        mode : {"rw", "r", "w", "discard"}, optional
            What the CPU does. "r" gives a read-only array and does not flush. "discard" promises to write every byte.
        shape, dtype, order : optional
            As for `get_host_array`.
        offset, size : int, optional
            The range; all from `offset` on by default.
        stream : object, optional
            Waited for in place of the bound stream. Without either, synchronise before.
        blocking : bool, optional
            False returns at once; the wait is made by ``with``, or `Map.wait`.

        Returns
        -------
        Map

        Raises
        ------
        OutOfRangeError, InvalidArgumentError
            The range or the array does not fit.
        NoHostViewError
            The CPU cannot see memory of this kind.
        """
        from vkgdr._map import Map

        return Map(
            self,
            mode,
            shape=shape,
            dtype=dtype,
            order=order,
            offset=offset,
            size=size,
            stream=stream,
            blocking=blocking,
        )

    def map_ro(self, **arguments: Any) -> Map:
        """As `map` with mode "r"."""
        return self.map("r", **arguments)

    def map_rw(self, **arguments: Any) -> Map:
        """As `map` with mode "rw"."""
        return self.map("rw", **arguments)

    def map_discard(self, **arguments: Any) -> Map:
        """As `map` with mode "discard"."""
        return self.map("discard", **arguments)

    def _region(self, offset: int, size: int | None) -> Region:
        """Give a region, which may be empty."""
        return Region._of(self, self._block.part(offset, size, False, False))

    def _visible_address(self) -> int:
        """Give the host address, or raise that there is none."""
        address: int = self.__array_interface__["data"][0]
        return address

    def get_sub_region(self, origin: int, size: int) -> Region:
        """Give a part, with pointers of its own. It keeps the memory.

        Parameters
        ----------
        origin, size : int
            The first byte and the number of bytes, which must not be 0. No alignment is needed.

        Raises
        ------
        OutOfRangeError
            The part does not lie within the memory.
        InvalidArgumentError
            The part is empty.
        OverflowError
            A number is negative.
        """
        region = self._region(origin, operator.index(size))
        if len(region) == 0:
            raise InvalidArgumentError(f"the region of 0 bytes at {origin} is empty")
        return region

    def __getitem__(self, part: slice) -> Region:
        if not isinstance(part, slice):
            raise TypeError(
                f"memory is indexed with slices, not {type(part).__name__}; np.asarray(memory) has elements"
            )
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise InvalidArgumentError(f"the step must be 1, not {step}")
        if stop <= start:
            raise InvalidArgumentError(f"the part from {start} to {stop} is empty")
        return self.get_sub_region(start, stop - start)

    # No sequence: iterating would go through __getitem__.
    __iter__ = None

    def migrate(self, kind: Kind, *, discard: bool = False) -> Memory:
        """Move the bytes to new memory of another kind, and free this.

        Parameters
        ----------
        kind : {"mapped", "host", "device"}
            The new kind.
        discard : bool, optional
            Leave the contents behind.

        Returns
        -------
        Memory
            In the current context, or the handle's primary one.

        Raises
        ------
        VkgdrError
            As for `Memory`. Then nothing has changed.
        """
        from vkgdr._owned import Memory

        new = Memory(self._require_owner(), len(self), kind=kind, name=self.name)
        if not discard:
            new.copy_from_device(self)
        self.free()
        return new

    def _require_owner(self) -> Vkgdr:
        if self._block.freed:
            raise FreedError("the memory was freed")
        if self._owner is None:
            raise InvalidArgumentError(
                "this memory was allocated by another library: it has no handle to allocate from"
            )
        return self._owner

    # Streams

    def bind_to_stream(self, stream: StreamLike) -> None:
        """Bind the memory to a stream.

        `map` and the copies then wait for it, a free returns at once with the memory going after what the stream was
        given before, and the CUDA Array Interface and DLPack name it. A stream that the memory was bound to before is
        waited for by the new one. The stream object is kept alive; whoever passes a number keeps that stream alive.

        Raises
        ------
        InvalidArgumentError
            The stream belongs to another context, or is the per-thread default stream.
        """
        handle, bound = handle_of(stream), self._block.bound_stream
        if bound is not None and bound != handle:
            # The new stream comes after the old one's work.
            _vkgdr.stream_wait(self._block, handle, _vkgdr.record(self._block, bound, []))
        self._block.bind_stream(handle, stream)

    def unbind_stream(self) -> None:
        """Wait for the bound stream, and forget it."""
        self._block.unbind_stream()

    def record_stream(self, stream: StreamLike) -> None:
        """Note that another stream uses the memory, so that it is not freed before that has finished."""
        self._block.record_stream(handle_of(stream))

    # Ends

    def free(self, *, force: bool = False) -> None:
        """Free the memory. A second call does nothing.

        From then on every method and attribute raises `FreedError`. While arrays or other views live, the pages stay
        until the last of them goes (`pending_views`). Waits for the work of the memory's context, or, if the memory is
        bound to a stream, leaves the pages until that stream's work is done.

        Parameters
        ----------
        force : bool, optional
            Take the pages away from under the views, as vkgdr 0.1 does: using one is a crash.

        Raises
        ------
        VkgdrError
            The drivers' first error. Nothing leaks.
        """
        self._block.free(force)
        self._owner = None
        if self._parent is not None:
            self._parent = None

    def free_async(self, stream: StreamLike | None = None) -> Event:
        """Free the memory once a stream has done the work that it was given before this call.

        Parameters
        ----------
        stream : object, optional
            The bound stream by default.

        Returns
        -------
        vkgdr.stream.Event
            Complete when that work is done. The pages go at the next allocation, free or `Vkgdr.collect` after that.

        Raises
        ------
        InvalidArgumentError
            No stream was given, and none is bound.
        """
        if stream is not None:
            self.bind_to_stream(stream)
        bound = self._block.bound_stream
        if bound is None:
            raise InvalidArgumentError("no implicit stream available: bind the memory to one, or pass one")
        event = self._block.free_async(bound)
        self.free()
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.free()

    # Python's own protocols

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryObject):
            return NotImplemented
        key = self._block.key
        # Objects without memory have the number 0.
        return self is other or (key == other._block.key and key[0] != 0)

    def __hash__(self) -> int:
        return hash(self._block.key)

    def __sizeof__(self) -> int:
        return self._block.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.tobytes(), self.kind)

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        named = f" {self.name!r}" if self.name is not None else ""
        if self._block.freed:
            return f"<{name}{named}: freed>"
        host = "no host view" if self.host_ptr is None else f"host_ptr={self.host_ptr:#x}"
        return f"<{name}{named}: {len(self)} bytes, {self.kind}, device_ptr={self.device_ptr:#x}, {host}>"


def _unpickle(contents: bytes, kind: Kind) -> Memory:
    """Make memory of the default handle with these contents."""
    from vkgdr._default import default_owner
    from vkgdr._owned import Memory

    memory = Memory(default_owner(), len(contents), kind=kind)
    memory.copy_from_host(contents)
    return memory


class Region(MemoryObject):
    """A part of memory, with pointers of its own.

    It keeps the memory, also when that is freed. `free` gives up the part only.
    """

    def __init__(self, *_arguments: object) -> None:
        raise TypeError("a region is a part of memory: use memory[start:stop] or get_sub_region")

    @classmethod
    def _of(cls, parent: MemoryObject, block: Block) -> Self:
        self = cls.__new__(cls)
        self._block = block
        self._parent = parent
        self._owner = parent._owner
        return self

    @classmethod
    def _found(cls, block: Block) -> Self:
        self = cls.__new__(cls)
        self._block = block
        return self
