"""Checks of shapes, data types, strides and array interfaces, and the sizes and ranges that result."""

from __future__ import annotations

import functools
import math
import operator

from vkgdr._errors import InvalidArgumentError, in_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, SupportsIndex

    import numpy as np
    import numpy.typing as npt

    from vkgdr.typing import Order, Shape

# Addresses, sizes and handles are 64-bit integers.
ADDRESSES = 1 << 64


def whole(number: SupportsIndex) -> int:
    """Return an integer as a Python int: arithmetic of NumPy integers wraps, and that of subclasses may be any."""
    return int(operator.index(number))


def wholes(numbers: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Return one integer, or those of a sequence, as Python ints."""
    # A scalar of NumPy is iterable by its class, and so is an array without axes.
    if hasattr(numbers, "__iter__") and getattr(numbers, "ndim", None) != 0:
        return tuple(map(whole, numbers))  # type: ignore[arg-type]
    return (whole(numbers),)  # type: ignore[arg-type]


def element_alignment(element: np.dtype[Any]) -> int:
    """Return the alignment of an array's first element in bytes, at most that of CUDA's own allocations: 256."""
    return min(1 << (element.itemsize - 1).bit_length(), 256)


def shaped(shape: Shape, dtype: npt.DTypeLike) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Check and normalize a shape and a data type; return them with the array's size in bytes."""
    import numpy as np

    kind = np.dtype(dtype)
    if kind.hasobject:
        raise InvalidArgumentError(f"dtype {kind} has Python objects, which the device cannot use")
    if kind.itemsize == 0:
        raise InvalidArgumentError(f"dtype {kind} has size 0")
    extents = wholes(shape)
    if kind.subdtype is not None:
        # As for NumPy: the element's own axes come last.
        kind, inner = kind.subdtype
        extents += inner
    if any(extent < 0 for extent in extents):
        raise InvalidArgumentError(f"shape {extents} has a negative extent")
    size = kind.itemsize * math.prod(extents)
    if not size and kind.itemsize * math.prod(max(extent, 1) for extent in extents) >= ADDRESSES // 2:
        # NumPy has no such array, although it is empty.
        raise InvalidArgumentError(f"shape {extents} of {kind} exceeds the address space")
    return extents, kind, size


def allocatable(size: int) -> int:
    """Return the size of an allocation for an array of `size` bytes.

    It is not 0: an array may be empty, an allocation may not. It is an address at most, and refused as the array's own
    size would be: no heap has that many bytes.
    """
    return min(max(size, 1), ADDRESSES - 1)


def fitted(shape: Shape | None, dtype: npt.DTypeLike, room: int) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Like `shaped`, for an array that must fit into `room` bytes; by default one dimension of all of them."""
    if shape is not None:
        extents, kind, size = shaped(shape, dtype)
        if size > room:
            text = f"shape {extents} of {kind} needs {in_bytes(size)}, there are {room}"
            raise InvalidArgumentError(f"Resulting array is larger than memory object: {text}")
        return extents, kind, size
    inner, kind, itemsize = shaped((), dtype)
    if room % itemsize:
        raise InvalidArgumentError(f"the size, {in_bytes(room)}, is not a multiple of the {itemsize} of dtype {kind}")
    return (room // itemsize, *inner), kind, room


def check_order(order: Order) -> None:
    """Check that the order is "C" or "F"."""
    if order not in ("C", "F"):
        raise InvalidArgumentError(f"order must be 'C' or 'F', not {order!r}")


def c_strides(extents: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of an array in C order, in bytes."""
    strides = []
    for extent in reversed(extents):
        strides.append(itemsize)
        itemsize *= max(extent, 1)
    return tuple(reversed(strides))


def laid_out(
    extents: tuple[int, ...], itemsize: int, order: Order, strides: Shape | None
) -> tuple[tuple[int, ...] | None, int]:
    """Check an array's order and strides; return the strides, None in C order, and the size to the last byte."""
    check_order(order)
    if strides is None:
        dense = None if order == "C" else c_strides(extents[::-1], itemsize)[::-1]
        return dense, itemsize * math.prod(extents)
    given = wholes(strides)
    if len(given) != len(extents):
        raise InvalidArgumentError(f"{len(given)} strides for {len(extents)} dimensions")
    if any(stride < 0 for stride in given):
        raise InvalidArgumentError(f"strides must not be negative, got {given}")
    reach = itemsize + sum(stride * (extent - 1) for extent, stride in zip(extents, given, strict=True))
    return given, 0 if 0 in extents else reach


# No `NamedTuple`: `typing` would double the time of `import vkgdr`.
class Interface:
    """NumPy's or CUDA's array interface, apart from the fields of its elements, which `element_of` checks."""

    def __init__(self, interface: Any) -> None:
        address, readonly = interface["data"]
        strides, stream = interface.get("strides"), interface.get("stream")
        self.address, self.readonly = whole(address), bool(readonly)
        self.extents, self.itemsize = tuple(map(whole, interface["shape"])), item_size(interface["typestr"])
        dense = c_strides(self.extents, self.itemsize)
        self.strides = dense if strides is None else tuple(map(whole, strides))
        self.stream = None if stream is None else whole(stream)

    @functools.cached_property
    def span(self) -> tuple[int, int]:
        """The lowest address of the array, and the size to its highest byte."""
        if 0 in self.extents:
            return self.address, 0
        reaches = [stride * (extent - 1) for extent, stride in zip(self.extents, self.strides, strict=True)]
        low = sum(min(reach, 0) for reach in reaches)
        return self.address + low, self.itemsize + sum(map(abs, reaches))


def read_interface(interface: Any, name: str = "__cuda_array_interface__") -> Interface:
    """Check an array interface."""
    if not isinstance(interface, dict):
        raise TypeError(f"{name} must be a dict, not {type(interface).__name__}")
    if interface.get("mask") is not None:
        raise NotImplementedError("masked arrays are not supported")
    try:
        read = Interface(interface)
    except InvalidArgumentError:
        raise
    except KeyError as error:
        raise InvalidArgumentError(f"{name} has no {error}") from None
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name} is malformed ({error}): {interface}") from None
    if len(read.strides) != len(read.extents):
        raise InvalidArgumentError(f"{name} has {len(read.strides)} strides for {len(read.extents)} dimensions")
    if read.itemsize == 0 or any(extent < 0 for extent in read.extents):
        raise InvalidArgumentError(f"{name} is malformed: shape {read.extents} of {interface['typestr']}")
    # NumPy has no larger arrays, not even empty ones.
    elements = math.prod(max(extent, 1) for extent in read.extents)
    if read.itemsize * elements >= ADDRESSES // 2 or any(abs(s) >= ADDRESSES // 2 for s in read.strides):
        raise InvalidArgumentError(f"{name} exceeds the address space: {interface}")
    first, size = read.span
    if not (0 <= read.address < ADDRESSES and first >= 0 and size < ADDRESSES):
        raise InvalidArgumentError(f"{name} is malformed: {in_bytes(size)} at address {first}")
    if read.stream is not None and not 0 < read.stream < ADDRESSES:
        raise InvalidArgumentError(f"{name}['stream'] must not be {read.stream}")
    return read


def item_size(typestr: Any) -> int:
    """Return the bytes of an element of an array interface.

    The number is that of characters of 4 bytes for "U", and has a unit behind it for "m" and "M" (NumPy's manual, "The
    array interface protocol").
    """
    if not isinstance(typestr, str):
        raise TypeError(f"typestr must be a str, not {type(typestr).__name__}")
    if typestr[1:2] == "O":
        raise InvalidArgumentError(f"typestr {typestr!r} has Python objects, which the device cannot use")
    number = typestr[2:].partition("[")[0]
    if not number.isdecimal():
        raise ValueError(f"typestr {typestr!r} has no size")
    return 4 * int(number) if typestr[1:2] == "U" else int(number)


def described(dtype: np.dtype[Any]) -> list[Any]:
    """Return "descr" of an array interface; that of plain bytes where fields overlap or are out of order."""
    try:
        return dtype.descr
    except ValueError:
        return [("", dtype.str)]


def element_of(interface: dict[str, Any], array: object = None) -> np.dtype[Any]:
    """Return the data type of an array interface, which is that of an array.

    Where the interface says no more than the size of an element, the array's own data type counts: numba's interface
    has no fields.
    """
    import numpy as np
    from numpy.lib.format import descr_to_dtype

    typestr, fields = interface["typestr"], interface.get("descr")
    text = f"typestr {typestr!r}, descr {fields!r}"
    try:
        size = item_size(typestr)
        has_fields = typestr[1] == "V" and fields and fields != [("", typestr)]
        description: Any = fields if has_fields else typestr
        # Unlike `numpy.dtype`, this takes unnamed fields for the padding that they are.
        element: np.dtype[Any] = descr_to_dtype(description)
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError, SyntaxError) as error:
        # NumPy's errors for what is no description are of many classes.
        raise InvalidArgumentError(f"an array interface is malformed ({error}): {text}") from None
    if element.hasobject or element.itemsize != size:
        raise InvalidArgumentError(f"an array interface has Python objects, or elements of two sizes: {text}")
    own = getattr(array, "dtype", None)
    is_opaque = element.kind == "V" and element.names is None
    if is_opaque and isinstance(own, np.dtype) and own.itemsize == element.itemsize and not own.hasobject:
        return own
    return element
