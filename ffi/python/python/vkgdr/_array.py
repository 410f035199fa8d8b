"""``Array``: a typed, shaped and strided array over memory, with the views of both sides and numba's interface."""

from __future__ import annotations

import math
import operator

import numpy as np

from vkgdr import _copies, _layout, _vkgdr
from vkgdr._device import default_owner, owner_of_device
from vkgdr._errors import InvalidArgumentError, NoHostViewError
from vkgdr._object import Region
from vkgdr._shapes import described, element_of, read_interface
from vkgdr._stream_handle import LEGACY_STREAM, handle_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, SupportsIndex

    import numpy.typing as npt
    from typing_extensions import CapsuleType

    from vkgdr._device import Vkgdr
    from vkgdr._object import MemoryObject
    from vkgdr.typing import Order, StreamLike

__all__ = ["Array", "as_array"]


class Array:
    """An array over memory of this package, or over device memory of another library.

    Made by `device_array`, `to_device` and `as_cuda_array`. Slices, `reshape`, `ravel`, `view`, `squeeze`, `split` and
    `transpose` are views of the same bytes. Arithmetic is left to NumPy (`host`) and to CuPy, PyTorch or numba, which
    take the array itself. So is iteration, which would copy every element by itself: iterate over `host`, or over the
    result of `copy_to_host`. ``copy.copy`` makes a view, ``copy.deepcopy`` and pickle copy the bytes.

    Copies, elements and assignments come after the array's stream and wait, and flush and invalidate. ``stream=`` names
    a stream to come after instead of the array's own, which is then not waited for; None and 0 stand for the array's
    own, and for the default stream if it has none. The stream that the memory is bound to is always waited for.

    Attributes
    ----------
    stream : object
        The array's own stream; 0 if it has none, in which case the stream that the memory is bound to is used.
    """

    def __init__(
        self, layout: np.ndarray[Any, Any], memory: Region | None, stream: StreamLike = 0, device: int | None = None
    ) -> None:
        # Within the memory: nothing checks again. So the attributes that follow from it cannot be assigned.
        self._layout = layout
        self._memory = memory
        # Of an empty array: it has no memory. None is that of the default handle.
        self._device = device
        self.stream = stream

    def _like(self, layout: np.ndarray[Any, Any], stream: StreamLike | None = None) -> Array:
        """Return an array over a part of this one's bytes."""
        memory, device = self.memory, self._device
        if memory is not None:
            device = memory.device
            first = _layout.first(layout) - _layout.first(self._layout)
            memory = memory._region(first, _layout.reach(layout)) if layout.size else None
        return Array(layout, memory, stream or self.stream, device)

    # Attributes

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        shape: tuple[int, ...] = self._layout.shape
        return shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances of neighbours in bytes."""
        return self._layout.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type."""
        dtype: np.dtype[Any] = self._layout.dtype
        return dtype

    @property
    def memory(self) -> Region | None:
        """The bytes from the lowest to the highest one of the array; None for an empty array."""
        return self._memory

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def alloc_size(self) -> int:
        """The bytes from the lowest to the highest one."""
        return 0 if self.memory is None else len(self.memory)

    @property
    def flags(self) -> dict[str, bool]:
        """``C_CONTIGUOUS`` and ``F_CONTIGUOUS``."""
        flags = self._layout.flags
        return {"C_CONTIGUOUS": flags.c_contiguous, "F_CONTIGUOUS": flags.f_contiguous}

    @property
    def T(self) -> Array:  # noqa: N802 - NumPy's name
        """The transposed view."""
        return self.transpose()

    @property
    def kind(self) -> str | None:
        """The kind of memory; None for an empty array."""
        return None if self.memory is None else self.memory.kind

    @property
    def host(self) -> np.ndarray[Any, Any]:
        """The host view as a NumPy array, without a copy. Neither waits nor invalidates.

        Raises
        ------
        vkgdr.NoHostViewError
            The kind of memory has no host view.
        """
        if self.memory is None:
            return np.empty(self.shape, self.dtype)
        return self._over(np.asarray(memoryview(self.memory)))

    def _over(self, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the array over the host's bytes of its memory."""
        return np.ndarray(self.shape, self.dtype, data.data, _layout.start(self._layout), self.strides)

    def is_c_contiguous(self) -> bool:
        """Return whether the elements are contiguous in C order."""
        return self._layout.flags.c_contiguous

    def is_f_contiguous(self) -> bool:
        """Return whether the elements are contiguous in Fortran order."""
        return self._layout.flags.f_contiguous

    # Protocols

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        memory = self.memory
        stream = None if memory is None else memory._view.bound_stream
        if self.stream:
            own = handle_of(self.stream)
            if memory is not None and stream is not None:
                # The consumer waits for the stream that is named, and so for the work on both.
                _copies.follow(memory._view, own, memory._view, (stream,))
            stream = own
        if stream is not None:
            stream = stream or LEGACY_STREAM
        address = 0 if memory is None else memory.device_ptr + _layout.start(self._layout)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": described(self.dtype),
            "data": (address, memory is not None and memory.readonly),
            "strides": None if self.is_c_contiguous() else self.strides,
            "stream": stream,
            "version": 3,
        }

    @property
    def __array_interface__(self) -> dict[str, Any]:
        try:
            interface: dict[str, Any] = self.host.__array_interface__
        except NoHostViewError as error:
            # NumPy then calls `__array__`, which copies.
            raise AttributeError(str(error)) from None
        return interface

    def __array__(
        self,
        dtype: npt.DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001 - NumPy's signature
    ) -> np.ndarray[Any, Any]:
        has_view = self.memory is None or self.memory.host_ptr is not None
        if not has_view and copy is False:
            raise ValueError("memory without a host view cannot be an array of NumPy without a copy")
        if copy is False and dtype is not None and np.dtype(dtype) != self.dtype:
            raise ValueError(f"an array of {self.dtype} cannot be one of {np.dtype(dtype)} without a copy")
        array = self.host if has_view and not copy else self.copy_to_host()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        memory = self.memory
        return (2, self._owner_of_empty().device) if memory is None else memory.__dlpack_device__()

    def _owner_of_empty(self) -> Vkgdr:
        return default_owner() if self._device is None else owner_of_device(self._device)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        element, strides = _layout.dlpack_type(self._layout)
        memory = self.memory
        view = _vkgdr.MemoryView.empty(self._owner_of_empty(), "mapped") if memory is None else memory._view
        own = handle_of(self.stream) if self.stream else None
        is_ordered = dl_device != (1, 0) and (stream is None or stream > 0)
        if own is not None and memory is not None and is_ordered:
            # The consumer's stream waits for the array's, and by the export for that of the memory.
            consumer = LEGACY_STREAM if stream is None else stream
            _vkgdr.dlpack_order(view, consumer, own)
        elif own is not None and memory is not None and dl_device == (1, 0):
            _vkgdr.stream_synchronize(view, own)
        return _vkgdr.dlpack_export(
            view,
            element,
            self.shape,
            strides,
            0 if memory is None else _layout.start(self._layout),
            stream,
            max_version,
            dl_device,
            copy,
        )

    # Copies

    def _queue(self, stream: StreamLike | None) -> StreamLike | None:
        """Return the stream to copy on: None, which is the memory's, for one of another context once that is done."""
        queue, memory = stream or self.stream or None, self.memory
        if queue is None or memory is None or memory._view.has_stream(handle_of(queue)):
            return queue
        _vkgdr.stream_synchronize(memory._view, handle_of(queue))
        return None

    def copy_to_host(
        self, ary: np.ndarray[Any, Any] | None = None, stream: StreamLike | None = None
    ) -> np.ndarray[Any, Any]:
        """Copy to a host array, by default a new one with the same strides, and return it.

        Raises
        ------
        TypeError
            `ary` has another data type, or is no array of NumPy.
        ValueError
            `ary` has another shape or other strides.
        """
        if ary is not None:
            if not isinstance(ary, np.ndarray):
                raise TypeError(f"the destination must be an array of NumPy, not {type(ary).__name__}")
            _layout.check_alike(self, ary)
        memory = self.memory
        if memory is None:
            return np.empty(self.shape, self.dtype) if ary is None else ary
        if ary is not None and _layout.is_dense(ary) and _layout.is_dense(self._layout):
            memory.copy_to_host(_layout.bytes_of(ary), stream=self._queue(stream))
            return ary
        copied = memory.copy_to_host(stream=self._queue(stream))
        array = self._over(copied)
        if ary is None:
            return array
        ary[...] = array
        return ary

    def copy_to_device(self, ary: Any, stream: StreamLike | None = None) -> None:
        """Copy a host array, or a device array of any library, into this one. Comes after the other's stream, too.

        Raises
        ------
        ValueError
            This array is not contiguous, or `ary` has another shape, or, on the device, other strides.
        TypeError
            `ary` has another data type.
        """
        memory = self.memory
        if not _layout.is_dense(self._layout):
            raise ValueError("Array contains non-contiguous buffer and cannot be transferred as a single memory region")
        if hasattr(ary, "__cuda_array_interface__") and not isinstance(ary, np.ndarray):
            source = as_array(ary)
            _layout.check_alike(self, source)
            if memory is not None and source.memory is not None:
                # Of the same strides, and dense: its bytes are in the same order.
                view = source.memory._view
                queue = _copies.stream_of(memory._view, self._queue(stream))
                own = (handle_of(source.stream),) if source.stream else ()
                _copies.between(memory, 0, view, queue, after=own + _copies.bound_streams(view))
            return
        host = np.asarray(ary)
        host = np.asarray(host, order="C" if self.is_c_contiguous() else "F")
        _layout.check_alike(self, host)
        if memory is not None:
            memory.copy_from_host(_layout.bytes_of(host), stream=self._queue(stream))

    def bind(self, stream: StreamLike = 0) -> Array:
        """Return a view whose stream is another one."""
        return Array(self._layout, self.memory, stream, self._device)

    # Views

    def reshape(self, *newshape: Any, order: Order = "C") -> Array:
        """Return a view with another shape.

        Raises
        ------
        NotImplementedError
            It needs a copy.
        ValueError
            The sizes differ.
        """
        shape = newshape[0] if len(newshape) == 1 and isinstance(newshape[0], tuple | list) else newshape
        return self._like(_layout.reshaped(self._layout, tuple(shape), order))

    def ravel(self, order: Order = "C", stream: StreamLike | None = None) -> Array:
        """Return a one-dimensional view; `NotImplementedError` if it needs a copy."""
        return self.reshape(self.size, order=order).bind(stream or self.stream)

    def view(self, dtype: npt.DTypeLike) -> Array:
        """Return a view with another data type.

        Raises
        ------
        ValueError
            The sizes of the data types differ and the array is not C-contiguous, or its last axis does not fit.
        """
        return self._like(_layout.reinterpreted(self._layout, dtype))

    def squeeze(self, axis: int | tuple[int, ...] | None = None, stream: StreamLike | None = None) -> Array:
        """Return a view without axes of extent 1; `ValueError` if a named axis has another extent."""
        return self._like(np.squeeze(self._layout, axis), stream)

    def transpose(self, axes: tuple[int, ...] | None = None) -> Array:
        """Return a view with permuted axes; `ValueError` if `axes` is no permutation."""
        if axes is not None and sorted(axes) != list(range(self.ndim)):
            raise ValueError(f"invalid axes list {axes!r}")
        return self._like(self._layout.transpose(axes))

    def split(self, section: SupportsIndex, stream: StreamLike | None = None) -> Iterator[Array]:
        """Yield views of `section` elements each; the last one may be shorter.

        Raises
        ------
        ValueError
            The array is not one-dimensional, or not contiguous.
        """
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
        memory = self.memory
        if memory is not None and self.stream:
            _vkgdr.stream_synchronize(memory._view, handle_of(self.stream))
        return _rebuilt, (memory, self.shape, self.strides, self.dtype)

    # Elements

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def getitem(self, item: Any, stream: StreamLike | None = None) -> Any:
        """Return ``self[item]``, after the work of a stream: a view, or the value of one element.

        A record's fields cannot be assigned, since it is a copy: assign the whole element, or use `host`.
        """
        view = self._like(_layout.part(self._layout, item))
        keys = item if isinstance(item, tuple) else (item,)
        if view.shape or any(key is None or key is ... for key in keys):
            return view
        copied = view.copy_to_host(stream=self._queue(stream))
        # A record is a view of the copy: an assignment to its fields would be lost.
        copied.flags.writeable = False
        return copied[()]

    def __getitem__(self, item: Any) -> Any:
        return self.getitem(item)

    def setitem(self, key: Any, value: Any, stream: StreamLike | None = None) -> None:
        """Assign ``self[key] = value``, after the work of a stream. The value may be an array of either side.

        Raises
        ------
        ValueError
            The value's shape does not fit.
        """
        to = self._like(_layout.part(self._layout, key))
        if hasattr(value, "__cuda_array_interface__") and not isinstance(value, np.ndarray):
            value = as_array(value).copy_to_host()
        source = np.asarray(value, dtype=None if self.dtype.names is None else self.dtype)
        _layout.check_assignable(source, to.shape)
        memory = to.memory
        if memory is None:
            return
        if memory.readonly:
            raise InvalidArgumentError("the memory is read-only")
        queue = self._queue(stream)
        if memory.host_ptr is not None:
            with memory.map("rw", stream=queue) as data:
                to._over(data)[...] = source
            return
        # The bytes between the elements are copied there and back.
        data = memory.copy_to_host(stream=queue)
        to._over(data)[...] = source
        memory.copy_from_host(data, stream=queue)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.setitem(key, value)

    __iter__ = None

    def __repr__(self) -> str:
        return f"<vkgdr.arrays.Array: {self.shape} of {self.dtype}, {self.memory!r}>"


Array.__module__ = "vkgdr.arrays"


def _rebuilt(
    memory: MemoryObject | None, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
) -> Array:
    """Return the array of a pickle."""
    region = None if memory is None else memory._region(0, len(memory))
    return Array(_layout.layout_of(shape, strides, dtype), region)


def as_array(obj: Any) -> Array:
    """Return an array over the device memory of an object with the CUDA Array Interface."""
    if isinstance(obj, Array):
        # The interface does not have every data type.
        return obj.bind(obj.stream)
    interface = obj.__cuda_array_interface__
    array = read_interface(interface, "__cuda_array_interface__")
    layout = _layout.layout_of(array.extents, array.strides, element_of(interface, obj))
    memory: Region | None = None
    if layout.size:
        found = _copies.found_of(array, obj)
        memory = Region._over(_vkgdr.foreign(*array.span(), array.readonly, obj) if found is None else found)
    stream = array.stream or 0
    bound = None if memory is None else memory.stream
    if bound is not None and stream == (bound or LEGACY_STREAM):
        # The memory's own stream is asked for at each use: it keeps that only while it is bound to it.
        stream = 0
    return Array(layout, memory, stream)
