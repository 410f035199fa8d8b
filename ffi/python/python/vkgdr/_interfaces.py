"""Checks of shapes, data types, strides and array interfaces; other libraries' device bytes and their streams."""

from __future__ import annotations

import math
import operator

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError, VkgdrError, in_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Self, SupportsIndex, TypeAlias

    import numpy as np
    import numpy.typing as npt

    from vkgdr._vkgdr import MemoryView
    from vkgdr.typing import Order, Shape, StreamLike

    # An array of NumPy's at an address without memory, by which shapes and strides are computed.
    Layout: TypeAlias = npt.NDArray[Any]
    # Streams on which the bytes of a view are ready.
    Ready: TypeAlias = Sequence[tuple[MemoryView, StreamLike]]

# Addresses, sizes and handles are 64-bit integers.
ADDRESSES = 1 << 64
DLPACK_CPU = 1
DLPACK_CUDA = 2


def whole(number: SupportsIndex) -> int:
    """Return an integer as a Python int: arithmetic of NumPy integers wraps, and that of subclasses may be any."""
    return int(operator.index(number))


def wholes(numbers: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Return one integer, or those of a sequence, as Python ints."""
    # A scalar of NumPy is iterable by its class, and so is an array without axes.
    if hasattr(numbers, "__iter__") and getattr(numbers, "ndim", None) != 0:
        return tuple(map(whole, numbers))  # type: ignore[arg-type]
    return (whole(numbers),)  # type: ignore[arg-type]


# ---- shapes ---------------------------------------------------------------------------------------------------------


def shaped(shape: Shape, dtype: npt.DTypeLike) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Check and normalize a shape and a data type; return them with the array's size in bytes."""
    import numpy as np

    element = np.dtype(dtype)
    if element.hasobject:
        raise InvalidArgumentError(f"dtype {element} has Python objects, which the device cannot use")
    if element.itemsize == 0:
        raise InvalidArgumentError(f"dtype {element} has size 0")
    extents = wholes(shape)
    if element.subdtype is not None:
        # As for NumPy: the element's own axes come last.
        element, inner = element.subdtype
        extents += inner
    if min(extents, default=0) < 0:
        raise InvalidArgumentError(f"shape {extents} has a negative extent")
    # NumPy has no larger arrays, not even empty ones.
    if element.itemsize * math.prod(max(extent, 1) for extent in extents) >= ADDRESSES // 2:
        raise InvalidArgumentError(f"shape {extents} of {element} exceeds the address space")
    return extents, element, element.itemsize * math.prod(extents)


def fitted(shape: Shape | None, dtype: npt.DTypeLike, room: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Check a shape and a data type of an array in `room` bytes; by default one dimension of all of them."""
    if shape is None:
        inner, element, size = shaped((), dtype)
        if room % size:
            raise InvalidArgumentError(
                f"the size, {in_bytes(room)}, is not a multiple of the {size} of dtype {element}"
            )
        return (room // size, *inner), element
    extents, element, size = shaped(shape, dtype)
    if size > room:
        text = f"shape {extents} of {element} needs {in_bytes(size)}, there are {room}"
        raise InvalidArgumentError(f"Resulting array is larger than memory object: {text}")
    return extents, element


def check_order(order: Order) -> None:
    """Check that the order is "C" or "F"."""
    if order not in ("C", "F"):
        raise InvalidArgumentError(f"order must be 'C' or 'F', not {order!r}")


def layout_of(extents: tuple[int, ...], element: np.dtype[Any], strides: tuple[int, ...] | None = None) -> Layout:
    """Return a layout; without strides, in C order."""
    import numpy as np
    from numpy.lib.stride_tricks import as_strided

    return as_strided(np.empty((), element), extents, strides)


def laid_out(extents: tuple[int, ...], element: np.dtype[Any], order: Order, strides: Shape | None) -> Layout:
    """Check an array's order or strides; return its layout."""
    check_order(order)
    if strides is None:
        return layout_of(extents, element) if order == "C" else layout_of(extents[::-1], element).T
    given = wholes(strides)
    if len(given) != len(extents):
        raise InvalidArgumentError(f"{len(given)} strides for {len(extents)} dimensions")
    if min(given, default=0) < 0:
        raise InvalidArgumentError(f"strides must not be negative, got {given}")
    return layout_of(extents, element, given)


def span_of(layout: Layout) -> tuple[int, int]:
    """Return the offset of a layout's first element from its lowest byte, and the size to its highest byte."""
    from numpy.lib.array_utils import byte_bounds

    if layout.flags.forc:
        return 0, layout.nbytes
    first, end = byte_bounds(layout)
    return layout.__array_interface__["data"][0] - int(first), int(end - first)


# ---- array interfaces -----------------------------------------------------------------------------------------------


class Interface:
    """NumPy's or CUDA's array interface, checked, of an array.

    `layout` is that of the array, and `span` the lowest address and the size to the highest byte.
    """

    def __init__(self, interface: Any, array: object = None, name: str = "__cuda_array_interface__") -> None:
        if not isinstance(interface, dict):
            raise TypeError(f"{name} must be a dict, not {type(interface).__name__}")
        if interface.get("mask") is not None:
            raise NotImplementedError("masked arrays are not supported")
        _check_values(array)
        try:
            address, readonly = interface["data"]
            strides, stream = interface.get("strides"), interface.get("stream")
            self.address, self.readonly = whole(address), bool(readonly)
            self.stream = None if stream is None else whole(stream)
            extents, element = tuple(map(whole, interface["shape"])), _element_of(interface, array)
            self.layout = layout_of(extents, element, None if strides is None else tuple(map(whole, strides)))
        except KeyError as error:
            raise InvalidArgumentError(f"{name} has no {error}") from None
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError, SyntaxError) as error:
            # NumPy's errors for what is no description are of many classes.
            text = f"{name} is malformed, or exceeds the address space ({error}): {interface}"
            raise InvalidArgumentError(text) from None
        if element.hasobject or element.itemsize == 0:
            raise InvalidArgumentError(f"{name} has Python objects, or elements without bytes: {interface}")
        before, size = span_of(self.layout)
        first = self.address - before
        self.span = first, size
        if not (0 <= self.address < ADDRESSES and first >= 0 and first + size < ADDRESSES):
            raise InvalidArgumentError(f"{name} exceeds the address space: {in_bytes(size)} at address {first:#x}")
        if self.stream is not None and not 0 < self.stream < ADDRESSES:
            raise InvalidArgumentError(f"{name}['stream'] must not be {self.stream}")


def _check_values(array: object) -> None:
    """Check that an array's bytes are its values: PyTorch conjugates and negates at the next use, and does not tell."""
    for operation in ("conj", "neg"):
        is_lazy = getattr(array, f"is_{operation}", False)
        if is_lazy() if callable(is_lazy) else is_lazy:
            text = f"the bytes of this {type(array).__name__} are not its values: call resolve_{operation}() first"
            raise InvalidArgumentError(text)


def _element_of(interface: dict[str, Any], array: object) -> np.dtype[Any]:
    """Return the data type of an array interface, which is that of an array.

    Where the interface says no more than the size of an element, the array's own data type counts: numba's interface
    has no fields.
    """
    import numpy as np
    from numpy.lib.format import descr_to_dtype

    typestr, fields = interface["typestr"], interface.get("descr")
    if typestr is None:
        raise TypeError("the array has no data type")
    plain: np.dtype[Any] = np.dtype(typestr)
    if plain.kind != "V":
        return plain
    if fields and fields != [("", typestr)]:
        # Unlike `numpy.dtype`, this takes unnamed fields for the padding that they are.
        element: np.dtype[Any] = descr_to_dtype(fields)
        if element.itemsize != plain.itemsize:
            raise ValueError(f"elements of {in_bytes(plain.itemsize)} and of {element.itemsize}")
        return element
    own = getattr(array, "dtype", None)
    if isinstance(own, np.dtype) and own.itemsize == plain.itemsize and not own.hasobject:
        return own
    return plain


# ---- device bytes ---------------------------------------------------------------------------------------------------


def interface_of(obj: object) -> Any:
    """Return the CUDA Array Interface of an object; None if it has none."""
    try:
        return getattr(obj, "__cuda_array_interface__", None)
    except KeyError as error:
        # PyTorch's, for a data type that it has no name for.
        raise InvalidArgumentError(f"no array interface has the data type {error}: view the array as uint8") from error


def device_view_of(
    obj: Any, within: MemoryView | None = None, consumer: StreamLike | None = None
) -> tuple[MemoryView, Ready]:
    """Return the device bytes of an object, and the streams on which they are ready, beside the bound one.

    The object is a memory object, or in C order. Bytes in memory of this package give a view of that memory, with its
    host view. Other addresses are looked up in the context of `within`, or in the current context. `consumer` is the
    stream that uses the bytes, if it is known.
    """
    if isinstance(obj, _vkgdr.Base):
        # Freed memory has no stream, which is an error.
        _ = obj._view.bound_stream
        return obj._view, ()
    interface = interface_of(obj)
    if interface is not None:
        array = Interface(interface, obj)
        if not array.layout.flags.c_contiguous:
            shape, strides = array.layout.shape, array.layout.strides
            raise InvalidArgumentError(f"only arrays in C order are supported, got shape {shape}, strides {strides}")
        found = bytes_of(array, obj, within)
        return found, () if array.stream is None else [(found, array.stream)]
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return _from_dlpack(obj, consumer)
    raise InvalidArgumentError(f"{type(obj).__name__} has no device memory: no __cuda_array_interface__, no DLPack")


def bytes_of(array: Interface, owner: object, within: MemoryView | None = None) -> MemoryView:
    """Return the bytes of an array interface. The view keeps `owner`, the array, unless that is a memory object."""
    first, size = array.span
    if size and not first:
        raise InvalidArgumentError(f"the null pointer is not the address of {in_bytes(size)}")
    found = _vkgdr.find(first, size, array.readonly)
    if found is not None:
        # In this package's memory, too, the array's library may reuse the bytes once the array is gone.
        return found if isinstance(owner, _vkgdr.Base) else found.keeping(owner)
    found = _vkgdr.foreign(first, size, array.readonly, owner, within)
    if found is None:
        raise InvalidArgumentError(f"{first:#x} is not the address of CUDA device memory")
    return found


def _from_dlpack(obj: Any, consumer: StreamLike | None) -> tuple[MemoryView, Ready]:
    _check_values(obj)
    kind, device = obj.__dlpack_device__()
    if kind != DLPACK_CUDA:
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


# ---- streams ---------------------------------------------------------------------------------------------------------

# The legacy default stream has two handles: null, and CU_STREAM_LEGACY of cuda.h.
NULL_STREAM = 0
LEGACY_STREAM = 1
# CU_STREAM_PER_THREAD: the last handle that is not an address.
PER_THREAD_STREAM = 2


class StreamNumber(int):
    """The ``CUstream`` of a stream as a number that keeps the stream's object alive, and lets memory keep it."""

    _keeper: object

    def __new__(cls, handle: int, keeper: object) -> Self:
        """Create the number."""
        self = super().__new__(cls, handle)
        self._keeper = keeper
        return self

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def handle_of(stream: StreamLike) -> int:
    """Return the ``CUstream`` of a stream of any library as a number.

    Raises
    ------
    TypeError
        `stream` is not a stream.
    InvalidArgumentError
        The version of ``__cuda_stream__`` is unsupported, the stream was closed, or the number is not an address.
    """
    handle = _raw_handle(stream)
    if not 0 <= handle < 1 << 64:
        raise InvalidArgumentError(f"{handle} is not a CUDA stream")
    return handle


# Objects of this package with numbers of the same names. Our own streams have `__cuda_stream__`.
_NO_STREAMS = _vkgdr.Base, _vkgdr.CudaHandle, _vkgdr.Event, _vkgdr.Semaphore


def _raw_handle(stream: Any) -> int:
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # In early versions of the protocol an attribute, not a method.
        version, handle = protocol() if callable(protocol) else protocol
        if version != 0:
            raise InvalidArgumentError(f"unsupported version {version} of __cuda_stream__: expected 0")
        if handle is None:
            raise InvalidArgumentError(f"the stream {stream!r} was closed")
        return int(handle)
    names = [] if isinstance(stream, _NO_STREAMS) else ["handle", "cuda_stream", "ptr"]
    if getattr(getattr(stream, "device", None), "type", None) == "cuda":
        # PyTorch's streams of any kind of device.
        names.append("native_handle")
    for name in names:
        value = getattr(stream, name, None)
        if value is not None and hasattr(value, "value"):
            # numba's handle is a ctypes pointer. For the default stream, its value is None.
            value = value.value or 0
        if isinstance(value, int):
            return value
    if hasattr(type(stream), "__index__") and not isinstance(stream, bool):
        # Last, after the protocols: an integer of NumPy, for example.
        return operator.index(stream)
    raise TypeError(f"{stream!r} is not a CUDA stream: neither an object with __cuda_stream__ nor a number")
