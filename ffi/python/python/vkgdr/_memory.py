"""``Memory``, ``RawMemory`` and their base class, the default handle, and the way from an address to its memory."""

from __future__ import annotations

import enum
import functools
import numbers
import operator

from vkgdr import _access, _vkgdr
from vkgdr._access import Map
from vkgdr._errors import InvalidArgumentError, VkgdrError, in_bytes
from vkgdr._interfaces import (
    ADDRESSES,
    DLPACK_CPU,
    DLPACK_CUDA,
    Interface,
    check_order,
    device_view_of,
    fitted,
    interface_of,
    laid_out,
    shaped,
    whole,
)
from vkgdr._vkgdr import MemoryView, Vkgdr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Self, SupportsIndex, TypeVar, overload

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import CapsuleType

    from vkgdr.stream import Event
    from vkgdr.typing import DmaBuf, Kind, Kinds, MapMode, Order, Shape, StreamLike, VulkanMemory

    _Init = TypeVar("_Init", bound=Callable[..., None])
    _Scalar = TypeVar("_Scalar", bound=np.generic)


class OpenFlags(enum.IntFlag):
    """Flags for opening a handle. The values are those of vkgdr 0.1; unknown bits are an error.

    Attributes
    ----------
    CURRENT_CONTEXT_BIT
        Ignore the device number and use the device of the CUDA context that is current on this thread.
    FORCE_NON_COHERENT_BIT
        Treat coherent memory as non-coherent, to test a program's calls of flush and invalidate.
    REQUIRE_COHERENT_BIT
        Use coherent memory types only; opening fails if there is none. With ``FORCE_NON_COHERENT_BIT``, choose a
        coherent type and treat it as non-coherent.
    """

    CURRENT_CONTEXT_BIT = 1
    FORCE_NON_COHERENT_BIT = 2
    REQUIRE_COHERENT_BIT = 4


_CUDA_ERROR_INVALID_CONTEXT = 201

# Keeps handles: releasing the last one of a primary context destroys the context.
_primary = _vkgdr.Resource()


def default_owner(device: int | None = None) -> Vkgdr:
    """Return a handle of the current context, if there is one of this device, else of the device's primary context.

    By default the current context may be of any device, and the primary context is that of device 0.
    """
    try:
        current = Vkgdr.open_current_context()
        if device in (None, current.device):
            return current
    except VkgdrError as error:
        if error.cu_result != _CUDA_ERROR_INVALID_CONTEXT:
            raise
    return _primary.handle(device or 0)


# dpctl's names of the kinds.
_USM_TYPES: dict[Kind, str] = {"mapped": "shared", "host": "host", "device": "device"}

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


def _explained(init: _Init) -> _Init:
    """Say what to write instead, where Python would only count arguments."""

    @functools.wraps(init)
    def checked(self: Any, *given: Any, **options: Any) -> None:
        try:
            init(self, *given, **options)
        except TypeError as error:
            if given and not isinstance(given[0], Vkgdr):
                name = type(given[0]).__name__
                text = f"owner must be a vkgdr.Vkgdr, not {name}: vkgdr.Vkgdr.open_primary_context() opens one"
            elif len(given) > 2 and isinstance(given[1], int) and str(given[2]) in ("0", "mapped", "host", "device"):
                text = "Memory takes an owner and a size; the rest are keywords, as in kind='host'"
            elif len(given) > 2 or "dtype" in options or (len(given) == 2 and isinstance(given[1], tuple | list)):
                text = "Memory takes a size in bytes; vkgdr.arrays.mapped_array(shape, dtype) makes an array"
            else:
                raise
            raise TypeError(text) from error

    return checked  # type: ignore[return-value]


class Memory(_vkgdr.Base):
    """Bytes that the CPU and a GPU share; they are freed when their last user is dropped, but for `RawMemory`.

    The host view needs no copy in NumPy and other users of the buffer protocol. Nor does the device view in CuPy,
    PyTorch, numba and other users of the CUDA Array Interface or DLPack. Views keep the bytes alive: once memory is
    freed, its methods raise `FreedError`, and the pages are released with the last view. Views by the interface do not:
    ``cupy.asarray``, ``torch.as_tensor(memory, device="cuda")`` and numba's ``as_cuda_array`` are valid until `free`.
    So are ``torch.frombuffer(memory)`` and ``torch.asarray(memory)``: give PyTorch `host`, or use DLPack.

    ``memory[start:stop]`` is a `Memory` with its own addresses, possibly empty. It keeps the bytes alive even when the
    memory that it was cut from is freed, and its own `free` without `force` ends this use alone. ``with memory:`` frees
    at the end. Pickling and copying allocate memory of the same kind with the same bytes on the default GPU: that of
    the current context, or device 0. With protocol 5 and a ``buffer_callback`` the bytes travel beside the pickle.
    Those of "host" memory are not copied, so they must not change until they were sent.

    CPU and GPU may write at any time. On memory that is not coherent, `flush` after the CPU writes and `invalidate`
    before it reads, or use `map`. Copies and fills do both for the bytes that they touch. They start from the device's
    bytes, in whole atoms of `non_coherent_atom_size`. Flush the CPU's earlier writes before, and do not write to the
    same atoms concurrently.

    All methods may be called from any thread, and enter the context of the allocation themselves. Sizes and offsets are
    in bytes. ``int(memory)`` is the device address; ``np.uintp(memory)`` and ``np.intp(memory)`` are arrays of the
    bytes, since NumPy asks for an array first.

    The release waits for the work of that context; memory bound to a stream is released after that stream's work
    instead, without blocking. The garbage collector frees memory in a cycle of references only while it has no other
    views, parts or maps. A handle that has a part of its own memory as an attribute is never collected.

    A context that another library created (``cuCtxCreate``, pycuda's ``make_context``) must outlive it: what the CUDA
    driver does with a destroyed context is undefined. Before such a context is destroyed, wait for its work, and let
    `Vkgdr.collect` release what was bound to streams. Only at the interpreter's end, when ``pycuda.autoinit`` destroys
    its own, what is left there goes with the process. With `Vkgdr.open_primary_context` only a reset of the device ends
    the context; then Vulkan's side alone is freed.

    Parameters
    ----------
    owner : Vkgdr
        The GPU. Unless it was opened with `Vkgdr.open_primary_context`, a CUDA context of it must be current.
    size : int
        The number of bytes, more than 0. The contents are undefined.
    kind : {"mapped", "host", "device"} or sequence of these, optional
        GPU memory mapped for the CPU through the PCIe BAR; cached system memory mapped for the GPU; GPU memory without
        a host view. With a sequence, such as ``("mapped", "host")``, the next kind is taken where one is missing or
        exhausted; the attribute `kind` says which it is.
    alignment : int, optional
        The alignment of both addresses, a power of two or 0. The drivers align to at least 64 bytes; it is an error if
        they align to less than `alignment`.
    stream : object, optional
        The stream to bind to, see `bind_to_stream`.
    readonly : bool, optional
        Whether host and device views are marked read-only, also those that are found by an address or a `handle`. CUDA
        does not enforce it, and another process that the memory is sent to does not learn of it.
    name : str, optional
        A name that ``repr`` shows.
    dma_buf : bool, optional
        Whether network cards shall be able to register the memory, by `dma_buf`: for mapped and device memory. CUDA
        allocates it. Device memory needs a GPU that exports dma-bufs (device attribute 124, CUDA 11.7), mapped memory
        what `Vkgdr.supports_existing` tells.

    Raises
    ------
    VkgdrError
        ``CUDA_ERROR_INVALID_CONTEXT`` if no context is current, `AllocationError` if memory is exhausted, by Vulkan's
        or CUDA's code, and other errors of the drivers.
    InvalidArgumentError
        The size is 0, or another argument is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> import vkgdr
    >>> gpu = vkgdr.Vkgdr.open_primary_context()
    >>> memory = vkgdr.Memory(gpu, 4096)
    >>> samples = np.asarray(memory).view(np.float32)
    >>> samples[:] = 0.25
    >>> memory.flush()
    """

    # Class defaults: an object whose `__init__` did not run counts as freed.
    _view: MemoryView = _vkgdr.foreign(0, 0, False, None)  # type: ignore[assignment]
    _view.free(False)
    _maps: frozenset[int] = frozenset()
    # Whether `release_raw` gave the bytes to a `RawMemory`, from which a forced free must not take them.
    _given = False
    _parent: Memory | None = None
    name: str | None = None
    # The words for host bytes that do not fit, with the number that is copied and the room.
    _TOO_SMALL = "Destination object is too small: {} are needed, there are {}"
    _TOO_LARGE = "Source object is too large: {}, there is room for {}"

    @property
    def stream(self) -> int | None:
        """The bound stream as a number, which does not keep it alive; None if there is none."""
        bound = self._view.bound_stream
        return None if bound is None else int(bound)

    @property
    def map_count(self) -> int:
        """The number of open mappings of this object."""
        return len(self._maps)

    @property
    def reference_count(self) -> int:
        """The number of objects and views that keep the allocation alive, including this one."""
        return self.pending_views + (not self.freed)

    @property
    def flags(self) -> int:
        """The flags of the allocation: always 0, as in vkgdr 0.1."""
        return 0

    @property
    def vulkan_memory(self) -> VulkanMemory | None:
        """The Vulkan memory object, and the offset of the first byte in it; None if Vulkan did not allocate the memory.

        For buffers and images of your own on the device of `Vkgdr.vulkan_handles`, while the memory lives. They
        must be created for export as ``VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT``.
        """
        from vkgdr.typing import VulkanMemory

        place = self._view.vulkan_memory
        return None if place is None else VulkanMemory(*place)

    def get_info(self, name: str) -> object:
        """Return an attribute by name, as in pyopencl; the error for an unknown one lists the names."""
        if name not in _INFO:
            raise InvalidArgumentError(f"unknown name {name!r}: expected one of {', '.join(_INFO)}")
        value: object = getattr(self, name)
        return value

    def get_mem_type(self) -> str:
        """Return the kind under dpctl's name: "shared", "host" or "device"."""
        return _USM_TYPES[self.kind]

    get_usm_type = get_mem_type

    @classmethod
    def _over(cls, view: MemoryView) -> Self:
        """Wrap a view in an object."""
        self = cls.__new__(cls)
        self._view = view
        return self

    @_explained
    def __init__(
        self,
        owner: Vkgdr,
        size: SupportsIndex,
        *,
        kind: Kinds = "mapped",
        alignment: SupportsIndex = 0,
        stream: StreamLike | None = None,
        readonly: bool = False,
        name: str | None = None,
        dma_buf: bool = False,
    ) -> None:
        self._view = MemoryView.allocate(owner, size, kind, (alignment, readonly, dma_buf))
        self.name = name
        if stream is not None:
            self.bind_to_stream(stream)

    # Copies

    def _size_from(self, offset: int, size: int | None = None) -> int:
        """Check a range and return its size in bytes; by default to the end of the memory."""
        return self._view.part(offset, size, False).nbytes

    def _fitting(self, source: _vkgdr.HostBuffer | MemoryView, offset: int) -> int:
        """Check that a source fits behind an offset, and return its size in bytes."""
        room = self._size_from(offset)
        if source.nbytes > room:
            raise InvalidArgumentError(self._TOO_LARGE.format(in_bytes(source.nbytes), room))
        return source.nbytes

    def copy_to_host(self, obj: Any = None, *, offset: int = 0, stream: StreamLike | None = None) -> Any:
        """Copy the bytes from `offset` to the end to the host, wait, and return `obj`.

        `obj` is a contiguous, writable object with the buffer protocol and enough room, by default a new array of
        ``uint8``. Any other buffer is an `InvalidArgumentError`, and an object without one a `TypeError`. `stream` is
        one to wait for, beside the bound stream. The GPU's copy engine makes all copies of device memory, and those
        that `Vkgdr.copy_thresholds` selects. Others are the CPU's.
        """
        size = self._size_from(offset)
        if obj is None:
            import numpy as np

            obj = np.empty(size, np.uint8)
        target = _vkgdr.HostBuffer(obj, True)
        if target.nbytes < size:
            raise InvalidArgumentError(self._TOO_SMALL.format(in_bytes(size), in_bytes(target.nbytes)))
        if size and self.host_ptr is not None:
            _access.settle(self, stream)
            self.invalidate(offset, size)
            self._view.read(offset, size, target)
        elif size:
            _vkgdr.copy(target, (0, 0, 0), self._view, (offset, 0, 0), (size, 1, 1), (stream, (), (), True))
        return obj

    def copy_from_host(self, obj: Any, *, offset: int = 0, stream: StreamLike | None = None) -> None:
        """Copy all bytes of a contiguous object with the buffer protocol to `offset`, wait and flush.

        `stream` is one to wait for first, beside the bound stream; `copy_from_device` also waits for those of `obj`.
        `InvalidArgumentError` if `obj` is too large or not contiguous, or the memory is read-only.
        """
        source = _vkgdr.HostBuffer(obj, False)
        size = self._fitting(source, offset)
        if size and self.host_ptr is not None:
            _access.settle(self, stream)
            if not self.is_coherent:
                if _vkgdr.find(source.address, size) is not None:
                    # They lie in memory of this package, where an invalidate may change them.
                    import ctypes

                    source = _vkgdr.HostBuffer(bytes((ctypes.c_char * size).from_address(source.address)), False)
                self.invalidate(offset, size)
            self._view.write(offset, source)
            self.flush(offset, size)
        elif size:
            _vkgdr.copy(self._view, (offset, 0, 0), source, (0, 0, 0), (size, 1, 1), (stream, (), (), True))

    def copy_from_device(self, obj: Any, *, offset: int = 0, stream: StreamLike | None = None) -> None:
        """Copy bytes from device memory to `offset`, wait and invalidate: CPU and GPU see them.

        `obj` is a memory object, or an object in C order with ``__cuda_array_interface__`` or DLPack on a CUDA device.
        The copy is ordered after the work of the interface's stream and of the bound stream. `stream` is the one that
        copies, by default the bound stream itself. `InvalidArgumentError` if `obj` has none of these protocols, is too
        large, is not in C order, or overlaps the destination. `TypeError` if its array interface is no dictionary.
        """
        source, ready = device_view_of(obj, self._view, _access.stream_of(self._view, stream))
        if self._fitting(source, offset):
            _access.between(self, offset, source, stream, ready)

    def memset(self, val: int = 0, *, offset: int = 0, nbytes: int | None = None) -> None:
        """Set a range, by default to the end of the memory, to a byte value, wait and flush."""
        value = operator.index(val)
        if not 0 <= value <= 255:
            raise InvalidArgumentError(f"{value} is not a byte value from 0 to 255")
        size = self._size_from(offset, nbytes)
        if size:
            _access.fill(self, offset, size, bytes([value]), None)

    def tobytes(self) -> bytes:
        """Copy the bytes to the host and wait."""
        return bytes(self.copy_to_host(bytearray(self.nbytes)))

    def __bytes__(self) -> bytes:
        return self.tobytes()

    # Views

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CUDA, self.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """Return the bytes as a DLPack capsule.

        The device view by default; ``dl_device=(1, 0)`` gives the host view, or a host copy of memory that has none.
        Those come after the bound stream's work, and discard what the CPU has not flushed.
        """
        layout = (1, 8), (self._view.nbytes,), (1,), 0
        return _vkgdr.dlpack_export(self._view, layout, stream, max_version, dl_device, copy)

    @property
    def host(self) -> npt.NDArray[np.uint8]:
        """The host view as an array of bytes, for libraries that would take the device view of the memory object.

        Such as ``torch.as_tensor(memory.host)`` and ``jax.numpy.asarray(memory.host)``. Needs NumPy, and neither waits
        nor invalidates, as `get_host_array`, which describes the errors. `buf` needs nothing.
        """
        return self.get_host_array()

    @property
    def buf(self) -> memoryview:
        """The host view as a memoryview; `NoHostViewError` if the kind of memory has none."""
        return memoryview(self)

    if TYPE_CHECKING:

        @overload
        def get_host_array(
            self, shape: Shape | None, dtype: type[_Scalar] | np.dtype[_Scalar], order: Order = "C", offset: int = 0
        ) -> npt.NDArray[_Scalar]: ...

        @overload
        def get_host_array(
            self, shape: Shape | None = None, dtype: npt.DTypeLike = "u1", order: Order = "C", offset: int = 0
        ) -> npt.NDArray[Any]: ...

    def get_host_array(
        self, shape: Shape | None = None, dtype: npt.DTypeLike = "u1", order: Order = "C", offset: int = 0
    ) -> npt.NDArray[Any]:
        """Return the host view from `offset` on as an array, without a copy.

        Neither waits nor invalidates: see `map`. The array keeps the memory alive.

        Parameters
        ----------
        shape : int or tuple of int, optional
            By default one dimension of all bytes from `offset` to the end.
        dtype : optional
            Any data type without Python objects, structured types included.
        order : {"C", "F"}, optional
            The memory layout: C (last index fastest) or Fortran (first index fastest).

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
        extents, element = fitted(shape, dtype, self._size_from(offset))
        # Through a memoryview, which counts as a view while the array lives.
        return np.ndarray(extents, element, np.asarray(memoryview(self)), offset, order=order)

    def map(
        self,
        mode: MapMode = "rw",
        *,
        shape: Shape | None = None,
        dtype: npt.DTypeLike = "u1",
        order: Order = "C",
        strides: Shape | None = None,
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
            As for `get_host_array`, and so are the errors.
        strides : tuple of int, optional
            In bytes, not negative, in place of `order`. `OutOfRangeError` if they leave the range.
        offset, size : int, optional
            The range; by default to the end of the memory.
        stream : object, optional
            A stream to wait for, beside the bound stream. Without either, synchronize before the call.
        blocking : bool, optional
            False returns at once; ``with`` or `Map.wait` then waits.
        """
        room = self._part(offset, size)
        if shape is None or strides is None:
            extents, element = fitted(shape, dtype, room.nbytes)
        else:
            # Elements may share bytes: the range is checked below.
            extents, element, _ = shaped(shape, dtype)
        layout = laid_out(extents, element, order, strides)
        return Map(self, room, layout, mode, stream, blocking=blocking)

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

        For memory allocated with ``dma_buf=True``, mapped and device memory of a GPU that was opened without Vulkan,
        and a `Mapping`; `InvalidArgumentError` for other memory. The ``fd`` is the caller's to close; the memory begins
        at ``offset`` in it, and has ``nbytes``. End the registration before the memory is freed.
        """
        from vkgdr.typing import DmaBuf

        return DmaBuf(*self._view.dma_buf())

    def bind_to_stream(self, stream: StreamLike) -> None:
        """Bind the memory to a stream, all of it: a slice's binding is that of the whole memory.

        `map` and copies then wait for this stream, and the CUDA Array Interface and DLPack name it. `free` returns at
        once, and the memory is released after the stream's earlier work. The new stream waits for the one bound before.
        `free` waits for the context after a second binding, and after uses on a stream known by its number alone, such
        as a DLPack consumer's. While it is bound, the memory keeps the stream object alive. The caller must keep a
        stream given as a number until the memory was freed and its views were dropped, or another stream was bound. It
        must also be kept until calls on other threads that began before have returned. `InvalidArgumentError` if the
        stream belongs to another context, or is the per-thread default stream.
        """
        if stream is None:
            raise TypeError("None is not a stream: unbind_stream ends a binding")
        self._view.bind_stream(_access.queue_of(self._view, stream))

    def record_stream(self, stream: StreamLike) -> None:
        """Record that another stream uses the memory: its release waits for that use.

        The memory keeps the stream object alive until it is freed. Pass the same object each time: each is kept. A
        stream given as a number is kept by the caller. `InvalidArgumentError` for a stream of another context, and for
        memory of another library, which releases it itself.
        """
        self._view.record_stream(stream)

    def free_async(self, stream: StreamLike | None = None) -> Event:
        """Free the memory after the work submitted to a stream before this call; by default to the bound stream.

        Another stream waits for the bound one first. The event is complete when that work is done. The next free of
        memory that is not a pool's, or `Vkgdr.collect`, then releases the pages. While other views exist
        (`pending_views`), they keep the pages and the bound stream, and the release waits for that work, too.
        `InvalidArgumentError` if no stream was passed, and none is bound, and for the per-thread default stream, unless
        one is bound.
        """
        last = stream
        if stream is None:
            last = self._view.bound_stream
        elif self.pending_views or self._view.bound_stream is not None:
            # The binding is also that of the other views, and a second one would wait for the context.
            self.record_stream(_access.queue_of(self._view, stream))
        else:
            self.bind_to_stream(stream)
        if last is None:
            raise InvalidArgumentError("no implicit stream available: bind the memory to one, or pass one")
        event = self._view.free_async(last)
        self.free()
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.free()

    # Slices, migration, comparison, pickling and repr

    @property
    def parent(self) -> Memory | None:
        """The memory object that this one is a slice of; None if it is none."""
        return self._parent

    @property
    def reference_obj(self) -> object:
        """The object that this one shares its memory with, as `parent`."""
        return self._parent

    def _part(self, offset: SupportsIndex, size: SupportsIndex | None) -> Memory:
        """Return a slice, possibly empty."""
        part = Memory._over(self._view.part(offset, size, False))
        part._parent = self
        return part

    def get_sub_region(self, origin: int, size: int) -> Memory:
        """Return a slice by its first byte and its size, which is not 0 and lies in the memory; of any alignment."""
        part = self._part(origin, operator.index(size))
        if not len(part):
            raise InvalidArgumentError(f"the region of 0 bytes at {origin} is empty")
        return part

    def __getitem__(self, part: slice) -> Memory:
        if not isinstance(part, slice):
            raise TypeError(
                f"memory is indexed with slices, not {type(part).__name__}; np.asarray(memory) has elements"
            )
        start, stop, step = part.indices(self.nbytes)
        if step != 1:
            raise InvalidArgumentError(f"step must be 1, not {step}")
        return self._part(start, max(stop - start, 0))

    # Not iterable: iteration would call __getitem__.
    __iter__ = None

    def migrate(self, kind: Kind, *, discard: bool = False) -> Memory:
        """Move the bytes, unless `discard` says otherwise, to new memory of another kind, and free this object.

        The new memory is in the handle's primary context, or in the current context if it has none. It is bound to no
        stream, and writable. The errors are those of `Memory`; nothing has changed then. One of the free is logged.
        """
        new = Memory(self._require_owner(), self.nbytes, kind=kind, name=self.name)
        if not discard:
            new.copy_from_device(self)
        self._free_moved()
        return new

    def _free_moved(self) -> None:
        """Free memory whose bytes are elsewhere by now: an error is logged, as that of a destructor."""
        try:
            self.free()
        except VkgdrError as error:
            import logging

            # A handler may keep the record, but not the frames of the error.
            logging.getLogger("vkgdr").warning("freeing memory: %s", str(error))

    def _require_owner(self) -> Vkgdr:
        _ = self.nbytes  # raises if it was freed
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
        if not isinstance(other, Memory):
            return NotImplemented
        # Objects without memory share the class's view.
        return self is other or (self._view.key == other._view.key and self._view is not Memory._view)

    def __hash__(self) -> int:
        return hash(self._view.key)

    def __sizeof__(self) -> int:
        return self._view.nbytes

    @classmethod
    def _restored(cls, contents: Any, kind: Kind) -> Memory:
        """Allocate memory of the default handle with these contents, for pickle."""
        owner, size = default_owner(), memoryview(contents).nbytes
        if size == 0:
            return Memory._over(MemoryView.empty(owner, kind))
        memory = Memory(owner, size, kind=kind)
        memory.copy_from_host(contents)
        return memory

    def __reduce__(self) -> tuple[Any, ...]:
        return self._restored, (self.tobytes(), self.kind)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        # A subclass may have a `__reduce__` of its own.
        if operator.index(protocol) < 5 or type(self).__reduce__ is not Memory.__reduce__:
            return self.__reduce__()
        import pickle

        # From protocol 5 on, the bytes may travel beside the pickle. The CPU reads GPU memory slowly: it is copied.
        # Through a memoryview, which a free leaves valid.
        contents: Any = memoryview(self) if self.kind == "host" else self.copy_to_host(bytearray(self.nbytes))
        _access.settle(self, None)
        self.invalidate()
        return self._restored, (pickle.PickleBuffer(contents), self.kind)

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        named = f" {self.name!r}" if self.name is not None else ""
        if self.freed:
            return f"<{name}{named}: freed>"
        host = "no host view" if self.host_ptr is None else f"host_ptr={self.host_ptr:#x}"
        notes = [in_bytes(self.nbytes), self.kind, f"device_ptr={self.device_ptr:#x}", host]
        if not self.is_coherent:
            notes.append("not coherent")
        if self.readonly:
            notes.append("read-only")
        if (stream := self.stream) is not None:
            notes.append(f"stream={stream:#x}")
        return f"<{name}{named}: {', '.join(notes)}>"

    # Other ways to memory

    @staticmethod
    def pitched(
        owner: Vkgdr,
        width: SupportsIndex,
        height: SupportsIndex,
        itemsize: SupportsIndex,
        *,
        kind: Kind = "mapped",
    ) -> tuple[Memory, int]:
        """Allocate rows with an aligned pitch, like ``mem_alloc_pitch``.

        Returns a `vkgdr.Memory` of `height` rows of `width` elements of `itemsize` bytes, and the distance between rows
        in bytes. That is a multiple of 512, the largest pitch alignment of CUDA textures
        (``CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT`` is at most that on every NVIDIA GPU so far).
        """
        width, height, itemsize = whole(width), whole(height), whole(itemsize)
        if width <= 0 or height <= 0 or itemsize <= 0:
            raise InvalidArgumentError(f"{height} rows of {width} elements of {in_bytes(itemsize)} are empty")
        alignment = 512
        pitch = -(-width * itemsize // alignment) * alignment
        return Memory(owner, pitch * height, kind=kind), pitch

    def release_raw(self) -> RawMemory:
        """Transfer the memory to a `RawMemory`, which leaks unless it is freed by hand."""
        raw = RawMemory._over(self._view.part(0, None, False))
        raw._view.leak()
        raw.name = self.name
        self._given = True
        self.free()
        return raw

    @staticmethod
    def from_capsule(capsule: object) -> Memory:
        """Take the tensor of a DLPack capsule as device memory, a `vkgdr.Memory`, without a copy.

        It has a host view if the bytes lie in memory of this package. `TypeError` if `capsule` is not a DLPack capsule,
        or was consumed. `BufferError` if the tensor is not on a CUDA device, or not in C order.
        """
        return Memory._over(_vkgdr.dlpack_import(capsule))

    def export_fd(self) -> int:
        """Export a file descriptor of a whole allocation for `import_fd` in another process. The caller closes it."""
        return self._view.export_fd()

    @staticmethod
    def import_fd(owner: Vkgdr, fd: int, size: int, *, kind: Kind = "mapped") -> Memory:
        """Import memory that another process exported as a `vkgdr.Memory`: the same bytes on both sides.

        `owner` is the same GPU, opened with the same flags. `fd` is from `export_fd` of memory of this size and kind,
        sent with ``socket.send_fds``, for example. It is duplicated; the caller closes it. **With any other descriptor
        the drivers' behaviour is undefined.**
        """
        return Memory._over(MemoryView.import_fd(owner, fd, size, kind))


class RawMemory(Memory):
    """Memory that leaks unless it is freed by hand.

    Use `Memory`, or `vkgdr.pycuda.Memory`, for memory that frees itself. `flags` must be 0. The other parameters and
    the errors are those of `Memory`, with one kind.
    """

    _by_hand = True

    def __init__(
        self,
        owner: Vkgdr,
        size: SupportsIndex,
        flags: SupportsIndex = 0,
        *,
        kind: Kind = "mapped",
        alignment: SupportsIndex = 0,
        name: str | None = None,
    ) -> None:
        if bits := operator.index(flags):
            raise InvalidArgumentError(f"unknown flag bits {bits:#x}: flags must be 0")
        self._view = MemoryView.allocate(owner, size, kind, (alignment, False, False))
        if self._by_hand:
            self._view.leak()
        if name is not None:
            self.name = name

    @classmethod
    def from_handle(cls, handle: int) -> Memory:
        """Return a view of a live allocation of this process, by its `handle`; not of another library's memory.

        Like a slice, it keeps the memory alive and does not own it: the owner frees the memory.
        """
        view = _vkgdr.find_id(handle)
        if view is None:
            raise InvalidArgumentError(f"no live memory has the handle {handle}")
        return Memory._over(view)


class Mapping(Memory):
    """CUDA memory of another library, mapped for the CPU; a memory object, and unmapped with its last view.

    Where `Vkgdr.supports_existing` is true. The other library must not free the memory before. `device_ptr` and `size`
    are the device address and the number of bytes, `owner` is the GPU. `keep` is an object that keeps the memory alive,
    and is kept until it is unmapped; `readonly` is as for `Memory`. `InvalidArgumentError` if the memory cannot be
    mapped; the message names the reason.
    """

    def __init__(
        self,
        owner: Vkgdr,
        device_ptr: SupportsIndex,
        size: SupportsIndex,
        *,
        keep: object = None,
        readonly: bool = False,
    ) -> None:
        self._view = MemoryView.map_existing(owner, device_ptr, size, keep, readonly)

    @property
    def is_cached(self) -> bool:
        """Whether the CPU caches the bytes."""
        return self._view.is_cached

    def is_current(self) -> bool:
        """Return whether the memory is still the one that was mapped: False once it was freed."""
        return self._view.is_current()


def memory_of(obj: Any) -> Memory:
    """Return the slice of this package's memory in which an array or an address lies.

    Parameters
    ----------
    obj : object or int
        An array of any library: an object with ``__cuda_array_interface__``, ``__array_interface__`` or DLPack on the
        host, contiguous or strided. Or a contiguous object with the buffer protocol, or one with DLPack on the device,
        in C order. Or an address, of the device or of the host.

    Returns
    -------
    Memory
        From the array's first byte to its last, with those between that it skips; for an address, from there to the end
        of its allocation. It keeps the memory alive, even when the library that allocated it frees it. ``offset`` is
        the place in the allocation. It is read-only if the array or the memory is; an address carries no mark of its
        own.

    Raises
    ------
    InvalidArgumentError
        The bytes do not lie in live memory of this package, or not in one allocation. Or `obj` is strided, but has
        neither of the array interfaces, or its interface is malformed.
    TypeError
        `obj` is neither an array nor an address.

    Examples
    --------
    >>> import vkgdr
    >>> from vkgdr.arrays import mapped_array
    >>> samples = mapped_array(1024, "f4")
    >>> samples[:] = 0.25
    >>> vkgdr.memory_of(samples).flush()
    """
    if isinstance(obj, Memory):
        return Memory._over(obj._view.part(0, None, False))
    # NumPy's integers have an array interface too, but are not the arrays that are meant.
    interface = interface_of(obj)
    is_array = interface is not None or hasattr(obj, "__array_interface__") or hasattr(obj, "__dlpack__")
    is_array = is_array and not isinstance(obj, numbers.Integral)
    found: MemoryView | None = None
    if hasattr(type(obj), "__index__") and not is_array:
        address = operator.index(obj)
        found = _vkgdr.find(address) if 0 <= address < ADDRESSES else None
        if found is None:
            raise InvalidArgumentError(f"{address:#x} is not an address in memory of vkgdr")
        return Memory._over(found)
    if interface is not None:
        array = Interface(interface)
        return _found("device", array.span, _vkgdr.find(*array.span, array.readonly))
    if hasattr(obj, "__dlpack_device__") and obj.__dlpack_device__()[0] != DLPACK_CPU:
        view, _ = device_view_of(obj)
        return _found("device", (Memory._over(view).device_ptr, view.nbytes), None if view.is_foreign else view)
    span, readonly = _on_host(obj)
    return _found("host", span, _vkgdr.find(*span, readonly))


def _found(side: str, span: tuple[int, int], found: MemoryView | None) -> Memory:
    if found is None:
        text = f"the {in_bytes(span[1])} at {side} address {span[0]:#x}"
        raise InvalidArgumentError(f"no memory of vkgdr contains {text}")
    return Memory._over(found)


def _on_host(obj: Any) -> tuple[tuple[int, int], bool]:
    """Return the first address and the size of a host array, and whether it is read-only."""
    interface = getattr(obj, "__array_interface__", None)
    if interface is None and hasattr(obj, "__dlpack__"):
        import numpy as np

        try:
            interface = np.from_dlpack(obj).__array_interface__
        except (BufferError, RuntimeError) as error:  # The second for types that NumPy lacks.
            text = f"the DLPack tensor of {type(obj).__name__} cannot be taken: {error}"
            raise InvalidArgumentError(text) from error
    if interface is not None:
        array = Interface(interface, obj, "__array_interface__")
        return array.span, array.readonly
    buffer = _vkgdr.HostBuffer(obj, False, True)
    return (buffer.address, buffer.nbytes), buffer.readonly


def device_view(array: Any) -> Memory:
    """Return the device view of a host array that lies in this package's memory.

    The array is contiguous, in C or Fortran order; so is another object with the buffer protocol. The view is read-only
    if the array or the memory is, and keeps the memory alive. `InvalidArgumentError` if the bytes do not lie in live
    memory of this package, or are not contiguous.
    """
    buffer = _vkgdr.HostBuffer(array, False, True)
    span = buffer.address, buffer.nbytes
    return _found("host", span, _vkgdr.find(*span, buffer.readonly))


# Messages show the public name, not that of the private module.
OpenFlags.__module__ = Memory.__module__ = RawMemory.__module__ = Mapping.__module__ = "vkgdr"
memory_of.__module__ = device_view.__module__ = "vkgdr"
