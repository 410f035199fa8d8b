"""Checks of array shapes, data types and strides, and the sizes that result."""

from __future__ import annotations

from vkgdr._errors import InvalidArgumentError
from vkgdr._words import in_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import numpy.typing as npt

    from vkgdr.typing import Order, Shape


def shaped(shape: Shape, dtype: npt.DTypeLike) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Check and normalize a shape and a data type; return them with the array's size in bytes."""
    import operator

    import numpy as np

    kind = np.dtype(dtype)
    if kind.hasobject:
        raise InvalidArgumentError(f"dtype {kind} has Python objects, which the device cannot use")
    if kind.itemsize == 0:
        raise InvalidArgumentError(f"dtype {kind} has size 0")
    extents = tuple(map(operator.index, shape)) if isinstance(shape, tuple | list) else (operator.index(shape),)
    size = kind.itemsize
    for extent in extents:
        if extent < 0:
            raise InvalidArgumentError(f"shape {extents} has a negative extent")
        size *= extent
    return extents, kind, size


def fitted(shape: Shape | None, dtype: npt.DTypeLike, room: int) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Like `shaped`, for an array that must fit into `room` bytes; by default one dimension of all of them."""
    if shape is not None:
        extents, kind, size = shaped(shape, dtype)
        if size > room:
            text = f"shape {extents} of {kind} needs {in_bytes(size)}, there are {room}"
            raise InvalidArgumentError(f"Resulting array is larger than memory object: {text}")
        return extents, kind, size
    _, kind, itemsize = shaped((), dtype)
    if room % itemsize:
        raise InvalidArgumentError(f"the size, {in_bytes(room)}, is not a multiple of the {itemsize} of dtype {kind}")
    return (room // itemsize,), kind, room


def checked_order(order: Order) -> Order:
    """Check that the order is "C" or "F"."""
    if order not in ("C", "F"):
        raise InvalidArgumentError(f"order must be 'C' or 'F', not {order!r}")
    return order


def fortran_strides(extents: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of an array in Fortran order, in bytes."""
    strides = []
    for extent in extents:
        strides.append(itemsize)
        itemsize *= max(extent, 1)
    return tuple(strides)


def strided_size(extents: tuple[int, ...], itemsize: int, strides: tuple[int, ...]) -> int:
    """Return the distance from the first byte of a strided array to the end of its last one."""
    if len(strides) != len(extents):
        raise InvalidArgumentError(f"{len(strides)} strides for {len(extents)} dimensions")
    if any(stride < 0 for stride in strides):
        raise InvalidArgumentError(f"strides must not be negative, got {strides}")
    if 0 in extents:
        return 0
    return itemsize + sum(stride * (extent - 1) for extent, stride in zip(extents, strides, strict=True))
