"""Arrays in memory that the GPU can access, and the host's view of arrays of the device.

`mapped_array` and `host_array` are NumPy's arrays. `device_array` and `to_device` make an `Array`, which has numba's
interface and lies on the device first. It has a host view where its kind of memory has one.

NumPy's arrays are ordinary ones whose ``base`` keeps the memory alive. `vkgdr.device_view` returns the device view of
such an array or of a contiguous part of it. On memory that is not coherent, call its `flush` and `invalidate`.
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
import types
from collections.abc import Iterator
from typing import Any, Self, SupportsIndex

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import byte_bounds

from vkgdr import _access, _vkgdr
from vkgdr._errors import InvalidArgumentError, VkgdrError
from vkgdr._interfaces import (
    LEGACY_STREAM,
    Interface,
    bytes_of,
    device_view_of,
    handle_of,
    interface_of,
    laid_out,
    layout_of,
    shaped,
    span_of,
    wholes,
)
from vkgdr._memory import Mapping, Memory, default_owner, device_view
from vkgdr._vkgdr import MemoryView, Vkgdr
from vkgdr.stream import call, current_context
from vkgdr.typing import DmaBuf, Kind, Kinds, Order, Shape, StreamLike

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    from vkgdr._interfaces import Layout

__all__ = [
    "Array",
    "DmaBuf",
    "as_cuda_array",
    "defer_cleanup",
    "device_array",
    "device_array_like",
    "device_view",
    "from_cuda_array_interface",
    "host_array",
    "host_array_like",
    "host_view",
    "is_cuda_array",
    "mapped_array",
    "mapped_array_like",
    "pinned",
    "to_device",
]
__dir__ = __all__.copy


# ---- NumPy's arrays -------------------------------------------------------------------------------------------------


def mapped_array(
    shape: Shape,
    dtype: npt.DTypeLike = "f8",
    order: Order = "C",
    *,
    alignment: int | None = None,
    stream: StreamLike | None = None,
    owner: Vkgdr | None = None,
) -> np.ndarray[Any, Any]:
    """Allocate an array in GPU memory mapped for the CPU through the PCIe BAR.

    CPU writes to such memory are fast, CPU reads are slow. The contents are undefined.

    Parameters
    ----------
    shape : int or tuple of int
        The extents, possibly 0.
    dtype : optional
        Any data type without Python objects, structured types included.
    order : {"C", "F"}, optional
        The memory layout: C (last index fastest) or Fortran (first index fastest).
    alignment : int, optional
        The alignment of both addresses, a power of two. By default at least the size of an element, up to 256.
    stream : object, optional
        The stream to bind to, see `vkgdr.Memory.bind_to_stream`.
    owner : Vkgdr, optional
        The GPU. By default that of the current context, or device 0 in its primary context if no context is current.

    Raises
    ------
    InvalidArgumentError
        An extent is negative, the type or the order is invalid, or the drivers align to less than `alignment`. A type
        that NumPy does not know is its `TypeError`.
    VkgdrError
        As for `vkgdr.Memory`.

    Examples
    --------
    >>> import vkgdr
    >>> from vkgdr.arrays import mapped_array
    >>> samples = mapped_array((4, 1024), "f4")
    >>> samples[:] = 0.25
    >>> device = vkgdr.device_view(samples)
    >>> device.flush()
    """
    return _array("mapped", shape, dtype, order, alignment, stream, owner)


def host_array(
    shape: Shape,
    dtype: npt.DTypeLike = "f8",
    order: Order = "C",
    *,
    alignment: int | None = None,
    stream: StreamLike | None = None,
    owner: Vkgdr | None = None,
) -> np.ndarray[Any, Any]:
    """Allocate an array, as `mapped_array` does, in cached system memory mapped for the GPU: fast for the CPU."""
    return _array("host", shape, dtype, order, alignment, stream, owner)


def mapped_array_like(
    array: npt.ArrayLike,
    *,
    alignment: int | None = None,
    stream: StreamLike | None = None,
    owner: Vkgdr | None = None,
) -> np.ndarray[Any, Any]:
    """Allocate a `mapped_array` with the shape, data type and order of another array.

    The array is contiguous, in C or Fortran order; its contents are not copied. The other parameters and the errors are
    those of `mapped_array`.
    """
    return mapped_array(*_like(array), alignment=alignment, stream=stream, owner=owner)


def host_array_like(
    array: npt.ArrayLike,
    *,
    alignment: int | None = None,
    stream: StreamLike | None = None,
    owner: Vkgdr | None = None,
) -> np.ndarray[Any, Any]:
    """Allocate a `host_array` with the shape, data type and order of another array, as `mapped_array_like` does."""
    return host_array(*_like(array), alignment=alignment, stream=stream, owner=owner)


def _array(
    kind: Kind, shape: Shape, dtype: Any, order: Order, alignment: int | None, stream: Any, owner: Vkgdr | None
) -> np.ndarray[Any, Any]:
    extents, element, size = shaped(shape, dtype)
    if alignment is None:
        alignment = _alignment(element)
    # An array may be empty, an allocation may not.
    memory = Memory(owner or default_owner(), size or 1, kind=kind, alignment=alignment, stream=stream)
    return memory.get_host_array(extents, element, order)


def _alignment(element: np.dtype[Any]) -> int:
    """Return the alignment of an array's first element in bytes, at most that of CUDA's own allocations: 256."""
    return min(1 << (element.itemsize - 1).bit_length(), 256)


def _like(array: npt.ArrayLike) -> tuple[tuple[int, ...], np.dtype[Any], Order]:
    """Return the shape, the data type and the order of a contiguous array."""
    like = np.asarray(array)
    if not like.flags.forc:
        raise InvalidArgumentError(f"the array is not contiguous: shape {like.shape}, strides {like.strides}")
    return like.shape, like.dtype, "C" if like.flags.c_contiguous else "F"


def host_view(obj: Any, *, owner: Vkgdr | None = None) -> np.ndarray[Any, Any]:
    """Return the host view of a device array, whichever library allocated it.

    Memory of this package has a host view on every GPU; on memory that is not coherent, ``vkgdr.memory_of(view)`` has
    `flush` and `invalidate`. Memory of other libraries is mapped where `Vkgdr.supports_existing` is true; CPU writes to
    such a view are fast, CPU reads are slow, as for `mapped_array`.

    Parameters
    ----------
    obj : object
        An object with ``__cuda_array_interface__``, such as an array of pycuda, CuPy, PyTorch or numba, or one in C
        order with DLPack on a CUDA device.
    owner : Vkgdr, optional
        The GPU of another library's array. By default in the current context if that is of the GPU, else in the GPU's
        primary context.

    Returns
    -------
    numpy.ndarray
        The same bytes, in the shape, strides and data type of the interface; for DLPack, one dimension of ``uint8``. It
        keeps `obj` or its memory alive. Does not wait for the device: synchronise the library's stream before reading.
        Synchronise it also before writing to a new array of an allocator that reuses memory in stream order, such as
        PyTorch's. Memory that another library frees nevertheless, as by ``cudaFree`` or a reset of the device, must not
        be used through it.

    Raises
    ------
    InvalidArgumentError
        The array is not in memory of this package, and cannot be mapped; the message names the reason. Or its bytes are
        not its values, as of PyTorch's ``conj()``: only `memory_of` takes those.
    NoHostViewError
        The kind of memory has no host view.
    """
    interface = interface_of(obj)
    if interface is None:
        view, _ = device_view_of(obj)
        return _memory_on_host(obj, view, owner).get_host_array() if view.nbytes else np.empty(0, "u1")
    array = Interface(interface, obj)
    # That of an array of our own is more than its interface tells.
    layout = obj._layout if isinstance(obj, Array) else array.layout
    if not layout.size:
        return np.empty(layout.shape, layout.dtype)
    data = memoryview(_memory_on_host(obj, bytes_of(array, obj), owner))
    return np.ndarray(layout.shape, layout.dtype, data, span_of(layout)[0], layout.strides)


def _memory_on_host(obj: Any, view: MemoryView, owner: Vkgdr | None) -> Memory:
    """Return memory with a host view of the bytes of an object, which is kept: other libraries' memory is mapped."""
    memory = Memory._over(view)
    if not view.is_foreign:
        return memory
    owner = owner or default_owner(memory.device)
    try:
        return Mapping(owner, memory.device_ptr, len(memory), keep=obj, readonly=memory.readonly)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"this {type(obj).__name__} is not in memory of vkgdr: {error}") from error


# ---- device arrays --------------------------------------------------------------------------------------------------

# DLPack's codes of the data types, by NumPy's letters.
_DLPACK_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
# The types without a code: x86's long double has 80 bits, and only NumPy pads them to 128.
_LONG_DOUBLES = ("g", "G")


def _keys_of(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _part(layout: Layout, key: Any) -> Layout:
    """Return the layout of ``array[key]``, a view also of one element."""
    keys = _keys_of(key)
    # A bool is an int, but NumPy's index by one copies.
    plain = (item is None or item is ... or isinstance(item, slice | int | np.integer) for item in keys)
    if not all(plain) or any(isinstance(item, bool) for item in keys):
        raise TypeError("an array is indexed with integers, slices, ... and None; NumPy's `host` takes other arrays")
    return layout[keys] if ... in keys else layout[*keys, ...]


def _check_alike(one: Layout, other: Layout) -> None:
    """Check that two arrays have the same data type, shape and strides, apart from axes of extent 1."""
    if one.dtype != other.dtype:
        raise TypeError(f"incompatible dtype: {one.dtype} vs. {other.dtype}")
    ours, others = np.squeeze(one), np.squeeze(np.asarray(other))
    if ours.shape != others.shape:
        raise ValueError(f"incompatible shape: {one.shape} vs. {other.shape}")
    if one.size and ours.strides != others.strides:
        raise ValueError(f"incompatible strides: {one.strides} vs. {other.strides}")


class Array:
    """An array over memory of this package, or over device memory of another library.

    Made by `device_array`, `to_device` and `as_cuda_array`. Slices, `reshape`, `ravel`, `view`, `squeeze`, `split` and
    `transpose` are views of the same bytes. Arithmetic is left to NumPy (`host`) and to CuPy, PyTorch or numba, which
    take the array itself. So is iteration, which would copy every element by itself: iterate over `host`, or over the
    result of `copy_to_host`. ``copy.copy`` makes a view, ``copy.deepcopy`` and pickle copy the bytes.

    Copies, elements and assignments come after the array's stream and wait, and flush and invalidate. ``stream=`` names
    a stream to come after instead of the array's own, which is then not waited for. None and 0 stand for the array's
    own, and for the default stream if it has none. The stream that the memory is bound to is always waited for.

    Attributes
    ----------
    stream : object
        The array's own stream; 0 if it has none, in which case the stream that the memory is bound to is used.
    """

    _layout: Layout
    _memory: Memory
    stream: Any

    def __init__(self, *_arguments: object) -> None:
        raise TypeError("arrays are not created directly: use device_array, to_device or as_cuda_array")

    @classmethod
    def _over(cls, layout: Layout, memory: Memory, stream: StreamLike = 0) -> Self:
        """Return the array of a layout whose bytes, from the lowest to the highest one, are all of the memory."""
        self = cls.__new__(cls)
        # Nothing checks again. So the attributes that follow from it cannot be assigned.
        self._layout = layout
        self._memory = memory
        self.stream = stream
        return self

    def _like(self, layout: Layout, stream: StreamLike | None = None) -> Array:
        """Return an array over a part of this one's bytes."""
        first, end = byte_bounds(layout)
        part = (first - byte_bounds(self._layout)[0], end - first) if layout.size else (0, 0)
        return Array._over(layout, self._memory._part(*part), stream or self.stream)

    # Attributes

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances of neighbours in bytes."""
        return self._layout.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type."""
        return self._layout.dtype

    @property
    def memory(self) -> Memory | None:
        """The bytes from the lowest to the highest one of the array; None for an empty array."""
        return self._memory if self.size else None

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._layout.size

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def alloc_size(self) -> int:
        """The bytes from the lowest to the highest one."""
        return len(self._memory) if self.size else 0

    @property
    def flags(self) -> dict[str, bool]:
        """``C_CONTIGUOUS`` and ``F_CONTIGUOUS``."""
        return {"C_CONTIGUOUS": self.is_c_contiguous(), "F_CONTIGUOUS": self.is_f_contiguous()}

    @property
    def T(self) -> Array:  # noqa: N802 - NumPy's name
        """The transposed view."""
        return self.transpose()

    @property
    def kind(self) -> Kind | None:
        """The kind of memory; None for an empty array."""
        return self._memory.kind if self.size else None

    @property
    def host(self) -> np.ndarray[Any, Any]:
        """The host view as a NumPy array, without a copy. Neither waits nor invalidates.

        `NoHostViewError` if the kind of memory has none.
        """
        return self._on_host(np.asarray(memoryview(self._memory))) if self.size else np.empty(self.shape, self.dtype)

    def _on_host(self, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the array over the host's bytes of its memory."""
        return np.ndarray(self.shape, self.dtype, data.data, span_of(self._layout)[0], self.strides)

    def is_c_contiguous(self) -> bool:
        """Return whether the elements are contiguous in C order."""
        return self._layout.flags.c_contiguous

    def is_f_contiguous(self) -> bool:
        """Return whether the elements are contiguous in Fortran order."""
        return self._layout.flags.f_contiguous

    # Protocols

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        view = self._memory._view
        stream = view.bound_stream
        if self.stream:
            # The consumer waits for the stream that is named, and so for the work on both.
            stream = handle_of(_access.queue_of(view, self.stream) if self.size else self.stream)
        if stream is not None:
            stream = stream or LEGACY_STREAM
        address = self._memory.device_ptr + span_of(self._layout)[0] if self.size else 0
        return {**self._layout.__array_interface__, "data": (address, self._memory.readonly), "stream": stream}

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        has_view = not self.size or self._memory.host_ptr is not None
        if not has_view and copy is False:
            raise ValueError("memory without a host view cannot be an array of NumPy without a copy")
        converts = dtype is not None and np.dtype(dtype) != self.dtype
        if copy is False and converts:
            raise ValueError(f"an array of {self.dtype} cannot be one of {np.dtype(dtype)} without a copy")
        array = self.host if has_view and not (copy or converts) else self.copy_to_host()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        code, size, view = _DLPACK_CODES.get(self.dtype.kind), self.dtype.itemsize, self._memory._view
        if code is None or self.dtype.char in _LONG_DOUBLES or not self.dtype.isnative:
            raise BufferError(f"DLPack has no data type {self.dtype}")
        if any(stride % size for stride in self.strides):
            raise BufferError(f"DLPack counts strides in elements, got {self.strides} bytes for {self.dtype}")
        stream = None if stream is None else operator.index(stream)
        if self.stream and self.size:
            if copy or dl_device == (1, 0):
                _vkgdr.stream_synchronize(view, self.stream)
            elif stream is None or stream > 0:
                # The consumer's stream waits for the array's, and by the export for that of the memory.
                ready = _vkgdr.record(view, self.stream)
                _vkgdr.stream_wait(view, LEGACY_STREAM if stream is None else stream, ready)
        strides = [stride // size for stride in self.strides]
        layout = (code, 8 * size), self.shape, strides, span_of(self._layout)[0]
        return _vkgdr.dlpack_export(view, layout, stream, max_version, dl_device, copy)

    # Copies

    def _queue(self, stream: StreamLike | None) -> StreamLike | None:
        """Return the stream to copy on: None, which is the memory's, for one of another context once that is done."""
        queue, view = stream or self.stream or None, self._memory._view
        if queue is None or view.has_stream(queue):
            return queue
        _vkgdr.stream_synchronize(view, queue)
        return None

    def copy_to_host(
        self, ary: np.ndarray[Any, Any] | None = None, stream: StreamLike | None = None
    ) -> np.ndarray[Any, Any]:
        """Copy to an array of NumPy, of the same data type, shape and strides, by default a new one, and return it."""
        if ary is not None:
            if not isinstance(ary, np.ndarray):
                raise TypeError(f"the destination must be an array of NumPy, not {type(ary).__name__}")
            _check_alike(self._layout, ary)
        if not self.size:
            return np.empty(self.shape, self.dtype) if ary is None else ary
        if ary is not None and ary.flags.forc and self._layout.flags.forc:
            self._memory.copy_to_host(ary.reshape(-1, order="A").view(np.uint8), stream=self._queue(stream))
            return ary
        array = self._on_host(self._memory.copy_to_host(stream=self._queue(stream)))
        if ary is None:
            return array
        ary[...] = array
        return ary

    def copy_to_device(self, ary: Any, stream: StreamLike | None = None) -> None:
        """Copy a host array, or a device array of any library, into this one, after the other's stream, too.

        This array is contiguous. The other has the same shape and data type, and on the device the same strides.
        """
        if not self._layout.flags.forc:
            raise ValueError("Array contains non-contiguous buffer and cannot be transferred as a single memory region")
        if _is_on_device(ary):
            source = _as_array(ary)
            _check_alike(self._layout, source._layout)
            if self.size:
                # Of the same strides, and dense: its bytes are in the same order.
                view = source._memory._view
                ready = [(view, source.stream)] if source.stream else []
                _access.between(self._memory, 0, view, self._queue(stream), ready)
            return
        host = np.asarray(ary, order="C" if self.is_c_contiguous() else "F")
        _check_alike(self._layout, host)
        if self.size:
            self._memory.copy_from_host(host.reshape(-1, order="A").view(np.uint8), stream=self._queue(stream))

    def bind(self, stream: StreamLike = 0) -> Array:
        """Return a view whose stream is another one."""
        return Array._over(self._layout, self._memory, stream)

    # Views

    def reshape(self, *newshape: Any, order: Order = "C") -> Array:
        """Return a view with another shape of the same size; `NotImplementedError` if it needs a copy."""
        if order not in ("C", "F", "A"):
            raise InvalidArgumentError(f"order must be 'C', 'F' or 'A', not {order!r}")
        shape = wholes(newshape[0] if len(newshape) == 1 else newshape)
        if min(shape, default=0) < -1:
            raise ValueError(f"negative extents other than -1 in the shape {shape}")
        # Raises if the sizes differ: in C order no copy is needed.
        shape = layout_of(self.shape, self.dtype).reshape(shape).shape
        try:
            view = np.reshape(self._layout, shape, order=order, copy=False)
        except ValueError:
            raise NotImplementedError("operation requires copying") from None
        return self._like(view)

    def ravel(self, order: Order = "C", stream: StreamLike | None = None) -> Array:
        """Return a one-dimensional view; `NotImplementedError` if it needs a copy."""
        return self.reshape(self.size, order=order).bind(stream or self.stream)

    def view(self, dtype: npt.DTypeLike) -> Array:
        """Return a view with another data type, of another size only if NumPy can: else `ValueError`."""
        element = np.dtype(dtype)
        if element.hasobject or element.itemsize == 0:
            raise InvalidArgumentError(f"dtype {element} has Python objects or size 0")
        return self._like(self._layout.view(element))

    def squeeze(self, axis: int | tuple[int, ...] | None = None, stream: StreamLike | None = None) -> Array:
        """Return a view without axes of extent 1; `ValueError` if a named axis has another extent."""
        return self._like(np.squeeze(self._layout, axis), stream)

    def transpose(self, axes: tuple[int, ...] | None = None) -> Array:
        """Return a view with permuted axes; `ValueError` if `axes` is no permutation."""
        return self._like(self._layout.transpose(axes))

    def split(self, section: SupportsIndex, stream: StreamLike | None = None) -> Iterator[Array]:
        """Yield views of `section` elements each, of one contiguous dimension; the last one may be shorter."""
        size = operator.index(section)
        if self.ndim != 1:
            raise ValueError("only support 1d array")
        if self.strides[0] != self.dtype.itemsize:
            raise ValueError("only support unit stride")
        if size < 1:
            raise ValueError(f"a section has at least 1 element, not {size}")
        return (self._like(self._layout[start : start + size], stream) for start in range(0, self.size, size))

    # Copies of the object

    def __copy__(self) -> Array:
        return self.bind(self.stream)

    def __reduce__(self) -> tuple[Any, ...]:
        # With its bytes, which `__deepcopy__` and pickle copy, and without its stream, which they cannot.
        if self.stream and self.size:
            _vkgdr.stream_synchronize(self._memory._view, self.stream)
        return _rebuilt, (self._memory, self.shape, self.strides, self.dtype)

    # Elements

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def getitem(self, item: Any, stream: StreamLike | None = None) -> Any:
        """Return ``self[item]``, after the work of a stream: a view, or the value of one element.

        A record's fields cannot be assigned, since it is a copy: assign the whole element, or use `host`.
        """
        view = self._like(_part(self._layout, item))
        if view.shape or any(key is None or key is ... for key in _keys_of(item)):
            return view
        copied = view.copy_to_host(stream=self._queue(stream))
        # A record is a view of the copy: an assignment to its fields would be lost.
        copied.flags.writeable = False
        return copied[()]

    __getitem__ = getitem

    def setitem(self, key: Any, value: Any, stream: StreamLike | None = None) -> None:
        """Assign ``self[key] = value``, after the work of a stream. The value may be an array of either side.

        Of memory without a host view, the bytes between the elements are copied there and back, too.
        """
        to = self._like(_part(self._layout, key))
        if _is_on_device(value):
            value = _as_array(value).copy_to_host()
        source = np.asarray(value, dtype=None if self.dtype.names is None else self.dtype)
        if source.ndim > to.ndim:
            raise ValueError(f"Can't assign {source.ndim}-D array to {to.ndim}-D self")
        # From the last axis on, as NumPy broadcasts.
        for axis in range(-1, -1 - source.ndim, -1):
            there, here = source.shape[axis], to.shape[axis]
            if there not in (1, here):
                at = f"array axis {to.ndim + axis} with dimension {here}"
                raise ValueError(f"Can't copy sequence with size {there} to {at}")
        memory = to._memory
        if not to.size:
            return
        queue = self._queue(stream)
        if memory.host_ptr is not None:
            with memory.map("rw", stream=queue) as data:
                to._on_host(data)[...] = source
            return
        data = memory.copy_to_host(stream=queue)
        to._on_host(data)[...] = source
        memory.copy_from_host(data, stream=queue)

    __setitem__ = setitem
    __iter__ = None

    def __repr__(self) -> str:
        return f"<vkgdr.arrays.Array: {self.shape} of {self.dtype}, {self.memory!r}>"


def _rebuilt(memory: Memory, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the array of a pickle."""
    return Array._over(layout_of(shape, dtype, strides), memory._part(0, None))


def _as_array(obj: Any) -> Array:
    """Return an array over the device memory of an object with the CUDA Array Interface."""
    if isinstance(obj, Array):
        # The interface does not have every data type.
        return obj.bind(obj.stream)
    array = Interface(interface_of(obj), obj)
    memory = Memory._over(bytes_of(array, obj))
    stream, bound = array.stream or 0, memory.stream
    if bound is not None and stream == (bound or LEGACY_STREAM):
        # The memory's own stream is asked for at each use: it keeps that only while it is bound to it.
        stream = 0
    return Array._over(array.layout, memory, stream)


def device_array(
    shape: Shape,
    dtype: npt.DTypeLike = np.float64,
    strides: Shape | None = None,
    order: Order = "C",
    stream: StreamLike = 0,
    *,
    kind: Kinds = "device",
    owner: Vkgdr | None = None,
) -> Array:
    """Allocate an array whose contents are undefined.

    `shape`, `dtype`, `order` and `owner` are those of `mapped_array`, and so are the errors. `strides`, in bytes and
    not negative, take the place of `order`. `stream` is the array's own, 0 for none; the memory is not bound to it. The
    kind of memory is that of `vkgdr.Memory`, but ``"device"`` by default: the array then has no host view.
    """
    extents, element, _ = shaped(shape, dtype)
    layout = laid_out(extents, element, order, strides)
    owner = owner or default_owner()
    if layout.size:
        memory = Memory(owner, span_of(layout)[1], kind=kind, alignment=_alignment(element))
    else:
        memory = Memory._over(_vkgdr.MemoryView.empty(owner, "mapped"))
    return Array._over(layout, memory, stream)


def device_array_like(ary: Any, stream: StreamLike = 0, *, kind: Kinds = "device", owner: Vkgdr | None = None) -> Array:
    """Allocate an array with the shape and the data type of another one, of the host or of the device.

    It has the other array's order of axes, and is contiguous. Its kind of memory is ``"device"`` by default.
    """
    layout = _as_array(ary)._layout if _is_on_device(ary) else np.asarray(ary)
    axes = sorted(range(layout.ndim), key=lambda axis: -abs(layout.strides[axis]))
    dense = layout_of(tuple(layout.shape[axis] for axis in axes), layout.dtype).transpose(np.argsort(axes))
    return device_array(dense.shape, dense.dtype, dense.strides, stream=stream, kind=kind, owner=owner)


def to_device(
    obj: Any,
    stream: StreamLike = 0,
    copy: bool = True,
    to: Any = None,
    *,
    kind: Kinds = "mapped",
    owner: Vkgdr | None = None,
) -> Array:
    """Copy a host array to the device, and return the device array.

    `obj` is contiguous; a device array is returned as it is. With `to`, an array of the same shape and data type, `obj`
    is copied there instead, also from the device. `stream` is the one to come after, and that of a new array. With a
    false `copy` the contents are undefined. `kind` and `owner` are those of `device_array`, but the kind is
    ``"mapped"`` by default, which the CPU writes itself.
    """
    if to is not None:
        if copy:
            to.copy_to_device(obj, stream=stream)
        return to  # type: ignore[no-any-return]
    if isinstance(obj, Array):
        return obj
    if _is_on_device(obj):
        return as_cuda_array(obj)
    host = np.asarray(obj)
    if not host.flags.forc:
        raise ValueError("Array contains non-contiguous buffer and cannot be transferred as a single memory region")
    array = device_array_like(host, stream, kind=kind, owner=owner)
    if copy:
        array.copy_to_device(host, stream=stream)
    return array


def as_cuda_array(obj: Any, sync: bool = True) -> Array:
    """Return an array over the device memory of any object with ``__cuda_array_interface__``, without a copy.

    It keeps the object alive, waits for the interface's stream if `sync` says so, and has a host view if the memory is
    this package's. An object without the interface is a `TypeError`, a masked array a `NotImplementedError`.
    """
    if not is_cuda_array(obj):
        raise TypeError("*obj* doesn't implement the cuda array interface.")
    array = _as_array(obj)
    if sync and array.size:
        array._memory._view.wait_for_stream()
        if array.stream:
            # By an event, which does not wait for later work of the stream.
            _vkgdr.record(array._memory._view, array.stream).synchronize()
    return array


def from_cuda_array_interface(desc: dict[str, Any], owner: Any = None, sync: bool = True) -> Array:
    """Return an array by a dictionary of the CUDA Array Interface; `owner` is kept alive."""
    return as_cuda_array(types.SimpleNamespace(__cuda_array_interface__=desc, owner=owner), sync)


def is_cuda_array(obj: object) -> bool:
    """Return whether an object has ``__cuda_array_interface__``."""
    return interface_of(obj) is not None


def _is_on_device(obj: object) -> bool:
    """Return whether an array lies on the device; one of NumPy's does not, whatever it offers."""
    return is_cuda_array(obj) and not isinstance(obj, np.ndarray)


@contextlib.contextmanager
def pinned(*arylist: Any) -> Iterator[None]:
    """Page-lock contiguous, writable host arrays within the block, so that CUDA copies them without staging.

    If pages are page-locked already, it raises ``CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED``, and locks no array.
    """
    buffers = [buffer for buffer in (_vkgdr.HostBuffer(ary, True, True) for ary in arylist) if buffer.nbytes]
    with current_context(), contextlib.ExitStack() as stack:
        for buffer in buffers:
            address = ctypes.c_void_p(buffer.address)
            try:
                call("cuMemHostRegister_v2", address, ctypes.c_size_t(buffer.nbytes), 0)
                stack.callback(call, "cuMemHostUnregister", address, allowed=713)
            except BaseException as error:
                # A signal handler's, once the pages are locked. 713: they are not, or no more.
                if not isinstance(error, VkgdrError):
                    call("cuMemHostUnregister", address, allowed=713)
                raise
        yield


@contextlib.contextmanager
def defer_cleanup() -> Iterator[None]:
    """Keep the memory that is freed within the block, on any thread, and release it at the end.

    The release of memory waits for the device; within the block nothing waits. Blocks may be nested: the end of the
    last one releases. Memory that runs out within the block is not released earlier. Memory bound to a stream is freed
    as outside of a block, which does not wait either.
    """
    try:
        # Here, since a signal handler may raise as soon as it has returned.
        _vkgdr.defer_cleanup(True)
        yield
    finally:
        _vkgdr.defer_cleanup(False)
