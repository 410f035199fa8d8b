"""``MemoryObject``, the base class of all memory objects, and ``Region``."""

from __future__ import annotations

import operator

from vkgdr import _copies, _vkgdr
from vkgdr._device import Vkgdr, default_owner
from vkgdr._errors import FreedError, InvalidArgumentError, in_bytes
from vkgdr._shapes import check_order, fitted
from vkgdr._stream_handle import handle_of, number_of
from vkgdr._vkgdr import MemoryView

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pickle
    from typing import Any, ClassVar, NoReturn, Self, SupportsIndex

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

    from vkgdr._dma_buf import DmaBuf
    from vkgdr._map import Map
    from vkgdr._memory import Memory
    from vkgdr._vulkan_handles import VulkanMemory
    from vkgdr.stream import Event
    from vkgdr.typing import Kind, MapMode, Order, Shape, StreamLike

__all__ = ["MemoryObject", "Region"]

# dpctl's names of the kinds.
_USM_TYPES = {"mapped": "shared", "host": "host", "device": "device"}

_INFO = (
    "kind",
    "flags",
    "size",
    "map_count",
    "reference_count",
    "context",
    "parent",
    "offset",
    "memory_type_index",
    "property_flags",
    "heap_index",
)


class MemoryObject(_vkgdr.Base):
    """Bytes that the CPU and a GPU share; the base class of all memory objects.

    Not created directly: see `Memory`, `RawMemory`, `Region`, `Buffer` and the classes of `vkgdr.memory` and
    `vkgdr.pycuda`.

    The host view needs no copy in NumPy and other users of the buffer protocol, nor does the device view in CuPy,
    PyTorch, numba and other users of the CUDA Array Interface or DLPack. Views keep the bytes alive: once memory is
    freed, its methods raise `FreedError`, and the pages are released with the last view.

    ``memory[start:stop]`` is a `Region`; ``with memory:`` frees at the end. Pickling and copying allocate memory of the
    same kind with the same bytes on the default GPU: that of the current context, or device 0. With protocol 5 and a
    ``buffer_callback`` the bytes travel beside the pickle; those of "host" memory are not copied, so they must not
    change until they were sent.

    CPU and GPU may write at any time. On memory that is not coherent, `flush` after the CPU writes and `invalidate`
    before it reads, or use `map`. Copies and fills do both for the bytes that they touch. They start from the device's
    bytes, in whole atoms of `non_coherent_atom_size`: flush the CPU's earlier writes before, and do not write to the
    same atoms concurrently.

    All methods may be called from any thread, and enter the memory's context themselves. Sizes and offsets are in
    bytes.
    """

    # Attributes

    # The class of the memory that `migrate` and pickles make: `Memory`, which derives from this one and sets this.
    _new: ClassVar[type[Memory]]

    # Class defaults: an object whose `__init__` did not run counts as freed.
    _view: MemoryView = MemoryView.never()
    _maps: int = 0
    _parent: MemoryObject | None = None
    name: str | None = None

    @property
    def owner(self) -> Vkgdr | None:
        """The GPU's handle; None for freed memory and for memory of another library.

        Memory that was found by its address or its `handle` has a new handle of the same GPU.
        """
        owner = self._view.owner
        if owner is not None or self._view.freed:
            return owner
        handle = self._view.handle()
        return None if handle is None else Vkgdr._of(handle)

    @property
    def context(self) -> int | None:
        """The CUDA context as a number; None for memory of another library."""
        return self._view.context

    @property
    def stream(self) -> int | None:
        """The bound stream as a number, which does not keep it alive; None if there is none."""
        bound = self._view.bound_stream
        return None if bound is None else int(bound)

    @property
    def freed(self) -> bool:
        """Whether the memory was freed."""
        return self._view.freed

    @property
    def pending_views(self) -> int:
        """The number of other views of the allocation: arrays, tensors, regions."""
        return self._view.pending_views

    @property
    def map_count(self) -> int:
        """The number of open mappings of this object."""
        return self._maps

    @property
    def reference_count(self) -> int:
        """The number of objects and views that keep the allocation alive, including this one."""
        return self._view.pending_views + (not self._view.freed)

    @property
    def offset(self) -> int:
        """The offset of the first byte in its allocation, in bytes."""
        return self._view.offset

    @property
    def flags(self) -> int:
        """The flags of the allocation: always 0, as in vkgdr 0.1."""
        return 0

    @property
    def memory_type_index(self) -> int | None:
        """The index of the Vulkan memory type; None for memory that does not come from Vulkan."""
        return self._view.memory_type.index

    @property
    def property_flags(self) -> list[str]:
        """The Vulkan memory type's property flags, such as ``DEVICE_LOCAL``."""
        return self._view.memory_type.flags

    @property
    def heap_index(self) -> int | None:
        """The index of the Vulkan memory heap; None for memory that does not come from Vulkan."""
        return self._view.memory_type.heap

    @property
    def vulkan_memory(self) -> VulkanMemory | None:
        """The Vulkan memory object, and the offset of the first byte in it; None if Vulkan did not allocate the memory.

        For buffers and images of your own on the device of `Vkgdr.vulkan_handles`, while the memory lives. They
        must be created for export as ``VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT``.
        """
        from vkgdr._vulkan_handles import VulkanMemory

        place = self._view.vulkan_memory
        return None if place is None else VulkanMemory(*place)

    def get_info(self, name: str) -> object:
        """Return an attribute by name, as in pyopencl.

        Raises
        ------
        InvalidArgumentError
            The name is unknown. The message lists the valid ones.
        """
        if name not in _INFO:
            raise InvalidArgumentError(f"unknown name {name!r}: expected one of {', '.join(_INFO)}")
        value: object = getattr(self, name)
        return value

    def get_mem_type(self) -> str:
        """Return the kind under dpctl's name: "shared", "host" or "device"."""
        return _USM_TYPES[self.kind]

    get_usm_type = get_mem_type

    @property
    def handle(self) -> int:
        """The allocation's id, unique in the process and never reused; see `from_handle`."""
        if self._view.freed:
            raise FreedError("the memory was freed")
        return self._view.key[0]

    @property
    def __vkgdr_memory__(self) -> tuple[int, int, int]:
        """Identity of the bytes, to share them without a copy: `handle`, `offset` and `nbytes`."""
        return self.handle, self.offset, self.nbytes

    @classmethod
    def _over(cls, view: MemoryView) -> Self:
        """Wrap a view in an object."""
        self = cls.__new__(cls)
        self._view = view
        return self

    def _visible_address(self) -> int:
        """Return the host address; raise if the memory has no host view."""
        address: int = self.__array_interface__["data"][0]
        return address

    # Copies

    def _size_from(self, offset: int, size: int | None = None) -> int:
        """Check a range and return its size in bytes; by default to the end of the memory."""
        return self._view.part(offset, size, False, False).nbytes

    def copy_to_host(self, obj: Any = None, *, offset: int = 0, stream: StreamLike | None = None) -> Any:
        """Copy the bytes to the host and wait.

        The GPU's copy engine makes large copies of mapped memory once `Vkgdr.prepare_copies` has made it, and all of
        device memory. Others are the CPU's.

        Parameters
        ----------
        obj : object, optional
            A contiguous, writable object with the buffer protocol, with room for the bytes from `offset` to the end.
            A new array by default.
        offset : int, optional
            The first byte to copy.
        stream : object, optional
            A stream to wait for, beside the bound stream.

        Returns
        -------
        object
            `obj`, or the new array: one-dimensional, ``uint8``.

        Raises
        ------
        InvalidArgumentError
            `obj` is too small, not contiguous or read-only.
        TypeError
            `obj` has no buffer protocol.
        """
        size = self._size_from(offset)
        if obj is None:
            import numpy as np

            obj = np.empty(size, np.uint8)
        target = _vkgdr.HostBuffer(obj, True)
        if target.nbytes < size:
            text = f"Destination object is too small: {in_bytes(target.nbytes)}, {size} are needed"
            raise InvalidArgumentError(text)
        if size:
            _copies.to_host(self, offset, target, size, stream)
        return obj

    def copy_from_host(self, obj: Any, *, offset: int = 0, stream: StreamLike | None = None) -> None:
        """Copy bytes from the host, wait and flush.

        Parameters
        ----------
        obj : object
            A contiguous object with the buffer protocol, possibly smaller than the memory.
        offset : int, optional
            The destination of the first byte.
        stream : object, optional
            A stream to wait for first, beside the bound stream.

        Raises
        ------
        InvalidArgumentError
            `obj` is too large or not contiguous, or the memory is read-only.
        TypeError
            `obj` has no buffer protocol.
        """
        source = _vkgdr.HostBuffer(obj, False)
        room = self._size_from(offset)
        if source.nbytes > room:
            raise InvalidArgumentError(
                f"Source object is too large: {in_bytes(source.nbytes)}, there is room for {room}"
            )
        if source.nbytes:
            _copies.from_host(self, offset, source, stream)

    def copy_from_device(self, obj: Any, *, offset: int = 0, stream: StreamLike | None = None) -> None:
        """Copy bytes from device memory, wait and invalidate: CPU and GPU see them.

        Parameters
        ----------
        obj : object
            A memory object, or an object in C order with ``__cuda_array_interface__`` or DLPack on a CUDA device. The
            copy is ordered after the work of the interface's stream.
        offset : int, optional
            The destination of the first byte.
        stream : object, optional
            The stream that copies, after the work of the bound stream; by default the bound stream itself.

        Raises
        ------
        InvalidArgumentError
            `obj` has none of these protocols, is too large, is not in C order, or overlaps the destination.
        TypeError
            Its array interface is malformed.
        """
        queue = _copies.stream_of(self._view, stream)
        source, ready = _copies.device_view_of(obj, self._view, queue)
        room = self._size_from(offset)
        if source.nbytes > room:
            raise InvalidArgumentError(
                f"Source object is too large: {in_bytes(source.nbytes)}, there is room for {room}"
            )
        if source.nbytes:
            _copies.between(self, offset, source, queue, after=ready)

    def memset(self, val: int = 0, *, offset: int = 0, nbytes: int | None = None) -> None:
        """Set bytes to a value, wait and flush.

        Parameters
        ----------
        val : int, optional
            The value, 0 to 255.
        offset, nbytes : int, optional
            The range; by default to the end of the memory.
        """
        value = operator.index(val)
        if not 0 <= value <= 255:
            raise InvalidArgumentError(f"{value} is not a byte value from 0 to 255")
        size = self._size_from(offset, nbytes)
        if size:
            _copies.fill(self, offset, size, bytes([value]), None)

    def tobytes(self) -> bytes:
        """Copy the bytes to the host and wait."""
        return bytes(self.copy_to_host(bytearray(len(self))))

    def __bytes__(self) -> bytes:
        return self.tobytes()

    # Host views

    @property
    def buf(self) -> memoryview:
        """The host view as a memoryview.

        Raises
        ------
        NoHostViewError
            The kind of memory has no host view.
        """
        return memoryview(self)

    def get_host_array(
        self, shape: Shape | None = None, dtype: npt.DTypeLike = "u1", order: Order = "C", offset: int = 0
    ) -> np.ndarray[Any, Any]:
        """Return the host view as an array, without a copy.

        Neither waits nor invalidates: see `map`. The array keeps the memory alive.

        Parameters
        ----------
        shape : int or tuple of int, optional
            By default one dimension of all bytes from `offset` to the end.
        dtype : optional
            Any data type without Python objects, structured types included.
        order : {"C", "F"}, optional
            The memory layout: C (last index fastest) or Fortran (first index fastest).
        offset : int, optional
            The array's first byte.

        Raises
        ------
        InvalidArgumentError
            The array exceeds the memory, or its data type has Python objects or size 0.
        NoHostViewError
            The kind of memory has no host view.
        """
        import numpy as np

        check_order(order)
        # A Python int: sums of NumPy integers may overflow.
        offset = operator.index(offset)
        extents, kind, size = fitted(shape, dtype, self._size_from(offset))
        # Through a memoryview, which counts as a view while the array lives.
        flat = np.asarray(memoryview(self))[offset : offset + size]
        return flat.view(kind).reshape(extents, order=order)

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
        """Open a mapping, a scope in which the CPU uses the memory: ``with memory.map() as array``.

        Waits for `stream` and for the bound stream, and invalidates; the end of the scope flushes. On non-coherent
        memory both act on whole atoms, so mappings that share an atom must not be open at the same time. The array
        stays valid after the end, but later writes to it are not flushed.

        Parameters
        ----------
        mode : {"rw", "r", "w", "discard"}, optional
            The CPU's access. "r" gives a read-only array and does not flush. "discard" promises to write every byte.
        shape, dtype, order : optional
            As for `get_host_array`.
        offset, size : int, optional
            The range; by default to the end of the memory.
        stream : object, optional
            A stream to wait for, beside the bound stream. Without either, synchronize before the call.
        blocking : bool, optional
            False returns at once; ``with`` or `Map.wait` then waits.

        Returns
        -------
        Map

        Raises
        ------
        OutOfRangeError, InvalidArgumentError
            The range or the array exceeds the memory, or the mode is invalid.
        NoHostViewError
            The kind of memory has no host view.
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
        """Call `map` with mode "r" and these keywords: the array is read-only, and nothing is flushed."""
        return self.map("r", **arguments)

    def map_rw(self, **arguments: Any) -> Map:
        """Call `map` with mode "rw" and these keywords."""
        return self.map("rw", **arguments)

    def map_discard(self, **arguments: Any) -> Map:
        """Call `map` with mode "discard" and these keywords: every byte must be written, the old contents are lost."""
        return self.map("discard", **arguments)

    # Streams and release

    def dma_buf(self) -> DmaBuf:
        """Export a descriptor that a network card can register: the arguments of ``ibv_reg_dmabuf_mr``.

        For memory allocated with ``dma_buf=True``, and mapped and device memory of a GPU that was opened without
        Vulkan. Device memory needs a GPU that exports dma-bufs (device attribute 124, CUDA 11.7), mapped memory what
        `Vkgdr.supports_existing` tells. End the registration before the memory is freed.

        Returns
        -------
        DmaBuf
            Its ``fd`` is the caller's to close; the memory begins at ``offset`` in it, and has ``nbytes``.

        Raises
        ------
        InvalidArgumentError
            The memory was allocated in another way.
        """
        from vkgdr._dma_buf import DmaBuf

        return DmaBuf(*self._view.dma_buf())

    def bind_to_stream(self, stream: StreamLike) -> None:
        """Bind the memory to a stream.

        `map` and copies then wait for this stream, `free` returns at once and the memory is released after the stream's
        earlier work, and the CUDA Array Interface and DLPack name it. The new stream waits for the one bound before.
        While it is bound, the memory keeps the stream object alive. A stream given as a number is kept by the caller,
        until the memory was freed and its views were dropped, or it was bound to another stream, and until calls on
        other threads that began before have returned.

        Raises
        ------
        InvalidArgumentError
            The stream belongs to another context, or is the per-thread default stream.
        """
        handle, bound = number_of(stream), self._view.bound_stream
        if bound is not None and bound != handle:
            # Order the new stream after the work of the old one.
            _vkgdr.stream_wait(self._view, handle, _vkgdr.record(self._view, bound))
        self._view.bind_stream(handle)

    def unbind_stream(self) -> None:
        """Wait for the bound stream and remove the binding."""
        self._view.unbind_stream()

    def record_stream(self, stream: StreamLike) -> None:
        """Record that another stream uses the memory: its release waits for that use.

        The memory keeps the stream object alive until it is freed. A stream given as a number is kept by the caller.

        Raises
        ------
        InvalidArgumentError
            The memory is another library's, which releases it itself.
        """
        self._view.record_stream(number_of(stream))

    def free(self, *, force: bool = False) -> None:
        """Free the memory. A second call does nothing.

        Every method and attribute then raises `FreedError`. While arrays or other views exist (`pending_views`), the
        pages stay until the last view is dropped. Waits for the work of the memory's context; if the memory is bound to
        a stream, does not wait, and the pages are released after that stream's work.

        Parameters
        ----------
        force : bool, optional
            Release the pages although views exist, as vkgdr 0.1 does: using a view then crashes.

        Raises
        ------
        VkgdrError
            The first error of the drivers. The remaining steps are still done.
        """
        self._view.free(force)
        if self._parent is not None:
            self._parent = None

    def free_async(self, stream: StreamLike | None = None) -> Event:
        """Free the memory in stream order: after the work submitted to a stream before this call.

        Parameters
        ----------
        stream : object, optional
            The bound stream by default.

        Returns
        -------
        vkgdr.stream.Event
            Complete when that work is done. The next allocation, free or `Vkgdr.collect` then releases the pages.
            While other views exist (`pending_views`), they keep the pages and the bound stream, and the release waits
            for that work, too.

        Raises
        ------
        InvalidArgumentError
            No stream was passed, and none is bound.
        """
        last = stream
        if stream is None:
            last = self._view.bound_stream
        elif self._view.pending_views:
            # The binding is also that of the other views.
            self.record_stream(stream)
        else:
            self.bind_to_stream(stream)
        if last is None:
            raise InvalidArgumentError("no implicit stream available: bind the memory to one, or pass one")
        event = self._view.free_async(handle_of(last))
        self.free()
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.free()

    # Regions, and what every object has

    @property
    def parent(self) -> MemoryObject | None:
        """The memory object of a region; None if this is not a region."""
        return self._parent

    @property
    def reference_obj(self) -> object:
        """The object that this one shares its memory with; None if there is none."""
        return self._parent

    def _region(self, offset: int, size: int | None) -> Region:
        """Return a region, possibly empty."""
        return Region._of(self, self._view.part(offset, size, False, False))

    def get_sub_region(self, origin: int, size: int) -> Region:
        """Return a region with its own addresses. It keeps the memory alive.

        Parameters
        ----------
        origin, size : int
            The first byte and the number of bytes, at least 1. No alignment is needed.

        Raises
        ------
        OutOfRangeError
            The range exceeds the memory.
        InvalidArgumentError
            The range is empty.
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
            raise InvalidArgumentError(f"step must be 1, not {step}")
        if stop <= start:
            raise InvalidArgumentError(f"the region from {start} to {stop} is empty")
        return self.get_sub_region(start, stop - start)

    # Not iterable: iteration would call __getitem__.
    __iter__ = None

    def migrate(self, kind: Kind, *, discard: bool = False) -> Memory:
        """Move the bytes to new memory of another kind, and free this object.

        Parameters
        ----------
        kind : {"mapped", "host", "device"}
            The new kind.
        discard : bool, optional
            Do not copy the contents.

        Returns
        -------
        Memory
            In the handle's primary context, or in the current context if it has none.

        Raises
        ------
        VkgdrError
            As for `Memory`. Nothing has changed then.
        """
        new = self._new(self._require_owner(), len(self), kind=kind, name=self.name)
        if not discard:
            new.copy_from_device(self)
        self.free()
        return new

    def _require_owner(self) -> Vkgdr:
        if self._view.freed:
            raise FreedError("the memory was freed")
        owner = self.owner
        if owner is None:
            raise InvalidArgumentError("the memory was allocated by another library: it has no handle to allocate from")
        return owner

    def __int__(self) -> int:
        """Return the device address, like pycuda's pointers."""
        return self.device_ptr

    def __float__(self) -> NoReturn:
        # Without this, Python would parse the bytes as text.
        raise TypeError(f"a {type(self).__name__} is not a number; its addresses are device_ptr and host_ptr")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryObject):
            return NotImplemented
        key = self._view.key
        # Objects without memory have the id 0.
        return self is other or (key == other._view.key and key[0] != 0)

    def __hash__(self) -> int:
        return hash(self._view.key)

    def __sizeof__(self) -> int:
        return self._view.nbytes

    def _rebuild(self, contents: bytes | pickle.PickleBuffer) -> tuple[Any, ...]:
        """Return the function and the arguments that make memory with these contents, for pickle."""
        return _unpickle, (contents, self.kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._rebuild(self.tobytes())

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        # A subclass may have a `__reduce__` of its own.
        if operator.index(protocol) < 5 or type(self).__reduce__ is not MemoryObject.__reduce__:
            return self.__reduce__()
        import pickle

        # From protocol 5 on, the bytes may travel beside the pickle. The CPU reads GPU memory slowly: it is copied.
        if self.kind != "host":
            return self._rebuild(pickle.PickleBuffer(self.copy_to_host(bytearray(len(self)))))
        _copies.settle(self, None)
        self.invalidate()
        return self._rebuild(pickle.PickleBuffer(self.host))

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        named = f" {self.name!r}" if self.name is not None else ""
        if self._view.freed:
            return f"<{name}{named}: freed>"
        host = "no host view" if self.host_ptr is None else f"host_ptr={self.host_ptr:#x}"
        notes = [in_bytes(len(self)), self.kind, f"device_ptr={self.device_ptr:#x}", host]
        if not self.is_coherent:
            notes.append("not coherent")
        if self.readonly:
            notes.append("read-only")
        if self.stream is not None:
            notes.append(f"stream={self.stream:#x}")
        return f"<{name}{named}: {', '.join(notes)}>"


class Region(MemoryObject):
    """A range of memory with its own addresses.

    It keeps the memory alive, even when the parent is freed. `free` releases the region only.
    """

    def __init__(self, *_arguments: object) -> None:
        raise TypeError("regions are not created directly: use memory[start:stop] or get_sub_region")

    @classmethod
    def _of(cls, parent: MemoryObject, view: MemoryView) -> Self:
        self = cls.__new__(cls)
        self._view = view
        self._parent = parent
        return self


def _unpickle(contents: Buffer, kind: Kind) -> Memory:
    """Allocate memory of the default handle with these contents, for pickle."""
    owner, size = default_owner(), memoryview(contents).nbytes
    if size == 0:
        return MemoryObject._new._over(MemoryView.empty(owner, kind))
    memory = MemoryObject._new(owner, size, kind=kind)
    memory.copy_from_host(contents)
    return memory
