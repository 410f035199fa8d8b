"""Shapes, data types and strides of arrays over a number of bytes."""

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
    """Check a shape and a data type, and give them with the number of bytes that an array of them needs."""
    import operator

    import numpy as np

    kind = np.dtype(dtype)
    if kind.hasobject:
        raise InvalidArgumentError(f"dtype {kind} has Python objects, which the device cannot use")
    if kind.itemsize == 0:
        raise InvalidArgumentError(f"dtype {kind} has no size")
    extents = tuple(map(operator.index, shape)) if isinstance(shape, tuple | list) else (operator.index(shape),)
    size = kind.itemsize
    for extent in extents:
        if extent < 0:
            raise InvalidArgumentError(f"the shape {extents} has a negative extent")
        size *= extent
    return extents, kind, size


def fitted(shape: Shape | None, dtype: npt.DTypeLike, room: int) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """As `shaped`, for an array that must fit into `room` bytes; one dimension that takes all of them by default."""
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
    """Refuse everything but C and F."""
    if order not in ("C", "F"):
        raise InvalidArgumentError(f"the order must be 'C' or 'F', not {order!r}")
    return order


def fortran_strides(extents: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Give the strides, in bytes, of an array whose first index varies fastest."""
    strides = []
    for extent in extents:
        strides.append(itemsize)
        itemsize *= max(extent, 1)
    return tuple(strides)


def strided_size(extents: tuple[int, ...], itemsize: int, strides: tuple[int, ...]) -> int:
    """Give the bytes from the first to the last that a strided array touches."""
    if len(strides) != len(extents):
        raise InvalidArgumentError(f"{len(strides)} strides for {len(extents)} dimensions")
    if any(stride < 0 for stride in strides):
        raise InvalidArgumentError(f"the strides {strides} must not be negative")
    if 0 in extents:
        return 0
    return itemsize + sum(stride * (extent - 1) for extent, stride in zip(extents, strides, strict=True))
