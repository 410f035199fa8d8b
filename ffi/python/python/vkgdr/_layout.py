"""Layouts: arrays of NumPy's at an address without memory, by which `Array` computes shapes and strides.

NumPy never touches a byte of a layout.
"""

from __future__ import annotations

import math
import operator

import numpy as np
from numpy.lib.stride_tricks import as_strided

from vkgdr._errors import InvalidArgumentError
from vkgdr._shapes import c_strides

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    import numpy.typing as npt

    from vkgdr.typing import Order

    Layout: TypeAlias = np.ndarray[Any, Any]

__all__ = [
    "bytes_of",
    "check_alike",
    "check_assignable",
    "dlpack_type",
    "first",
    "is_dense",
    "layout_of",
    "part",
    "reach",
    "reinterpreted",
    "reshaped",
    "start",
]

# DLPack's codes of the data types, by NumPy's letters.
_DLPACK_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
# The types without a code: x86's long double has 80 bits, and only NumPy pads them to 128.
_LONG_DOUBLES = ("g", "G")


def layout_of(shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: np.dtype[Any]) -> Layout:
    """Return a layout; without strides, in C order."""
    if strides is None:
        strides = c_strides(shape, dtype.itemsize)
    return as_strided(np.empty((), dtype), shape, strides)


def start(layout: Layout) -> int:
    """Return the offset of the first element from the lowest byte."""
    pairs = zip(layout.shape, layout.strides, strict=True)
    return -sum(min(stride * (extent - 1), 0) for extent, stride in pairs) if layout.size else 0


def first(layout: Layout) -> int:
    """Return the address of the lowest byte."""
    return int(layout.__array_interface__["data"][0]) - start(layout)


def reach(layout: Layout) -> int:
    """Return the number of bytes from the lowest to the end of the highest one."""
    if not layout.size:
        return 0
    pairs = zip(layout.shape, layout.strides, strict=True)
    size: int = layout.itemsize + sum(abs(stride) * (extent - 1) for extent, stride in pairs)
    return size


def is_dense(layout: Layout) -> bool:
    """Return whether the elements are contiguous, in C or Fortran order."""
    return layout.flags.c_contiguous or layout.flags.f_contiguous


def part(layout: Layout, key: Any) -> Layout:
    """Return the layout of ``array[key]``, a view also of one element.

    Raises
    ------
    TypeError
        The key has other parts than integers, slices, ... and None.
    """
    keys = key if isinstance(key, tuple) else (key,)
    # A bool is an int, but NumPy's index by one copies.
    plain = (item is None or item is ... or isinstance(item, slice | int | np.integer) for item in keys)
    if not all(plain) or any(isinstance(item, bool) for item in keys):
        raise TypeError("an array is indexed with integers, slices, ... and None; NumPy's `host` takes other arrays")
    view: Layout = layout[*keys, ...] if ... not in keys else layout[keys]
    return view


def reshaped(layout: Layout, shape: tuple[Any, ...], order: Order) -> Layout:
    """Return the layout of a view with another shape, in which -1 stands for one missing extent.

    Raises
    ------
    NotImplementedError
        It needs a copy.
    ValueError
        The sizes differ, or the order is none of NumPy's.
    """
    if order not in ("C", "F", "A"):
        raise InvalidArgumentError(f"order must be 'C', 'F' or 'A', not {order!r}")
    extents = tuple(map(operator.index, shape))
    known = math.prod(extent for extent in extents if extent >= 0)
    if extents.count(-1) == 1 and known and layout.size % known == 0:
        extents = tuple(layout.size // known if extent == -1 else extent for extent in extents)
    if any(extent < 0 for extent in extents) or math.prod(extents) != layout.size:
        raise ValueError(f"cannot reshape array of size {layout.size} into shape {extents}")
    try:
        return np.reshape(layout, extents, order=order, copy=False)
    except ValueError:
        raise NotImplementedError("operation requires copying") from None


def reinterpreted(layout: Layout, dtype: npt.DTypeLike) -> Layout:
    """Return the layout of a view with another data type.

    Raises
    ------
    InvalidArgumentError
        The data type has Python objects or size 0.
    ValueError
        The sizes of the data types differ and the array is not C-contiguous, or its last axis does not fit.
    """
    element = np.dtype(dtype)
    if element.hasobject or element.itemsize == 0:
        raise InvalidArgumentError(f"dtype {element} has Python objects or size 0")
    if element.itemsize != layout.itemsize:
        if not layout.shape:
            raise ValueError(f"the data type of an array without axes cannot change its size, {layout.itemsize} bytes")
        if not layout.flags.c_contiguous:
            raise ValueError("To change to a dtype of a different size, the array must be C-contiguous")
        if layout.shape[-1] * layout.itemsize % element.itemsize:
            text = "its size must be a divisor of the total size in bytes of the last axis of the array"
            raise ValueError(f"When changing to a larger dtype, {text}")
    return layout.view(element)


def dlpack_type(layout: Layout) -> tuple[tuple[int, int], list[int]]:
    """Return DLPack's code and bits of the data type, and the strides in elements.

    Raises
    ------
    BufferError
        DLPack has no such data type, or no such strides.
    """
    code, size = _DLPACK_CODES.get(layout.dtype.kind), layout.itemsize
    if code is None or layout.dtype.char in _LONG_DOUBLES or not layout.dtype.isnative:
        raise BufferError(f"DLPack has no data type {layout.dtype}")
    if any(stride % size for stride in layout.strides):
        raise BufferError(f"DLPack counts strides in elements, got {layout.strides} bytes for {layout.dtype}")
    return (code, 8 * size), [stride // size for stride in layout.strides]


def bytes_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bytes of a contiguous array, in C or Fortran order."""
    rows = array if array.flags.c_contiguous else array.T
    return rows.reshape(-1).view(np.uint8)


def check_alike(one: Any, other: Any) -> None:
    """Check that two arrays have the same data type, shape and strides, apart from axes of extent 1."""
    if one.dtype != other.dtype:
        raise TypeError(f"incompatible dtype: {one.dtype} vs. {other.dtype}")
    ours, others = (
        [(extent, stride) for extent, stride in zip(array.shape, array.strides, strict=True) if extent != 1]
        for array in (one, other)
    )
    if [extent for extent, _ in ours] != [extent for extent, _ in others]:
        raise ValueError(f"incompatible shape: {one.shape} vs. {other.shape}")
    if one.size and ours != others:
        raise ValueError(f"incompatible strides: {one.strides} vs. {other.strides}")


def check_assignable(value: np.ndarray[Any, Any], shape: tuple[int, ...]) -> None:
    """Check that a value can be broadcast to a shape."""
    if value.ndim > len(shape):
        raise ValueError(f"Can't assign {value.ndim}-D array to {len(shape)}-D self")
    for axis, (there, here) in enumerate(zip(value.shape[::-1], shape[::-1], strict=False)):
        if there not in (1, here):
            axis = len(shape) - 1 - axis
            text = f"Can't copy sequence with size {there} to array axis {axis} with dimension {here}"
            raise ValueError(text)
