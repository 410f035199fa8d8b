"""The layout of a copy on each side, from pyopencl's arguments: a range, or a rectangle of rows and slices."""

from __future__ import annotations

import operator

from vkgdr._errors import InvalidArgumentError, OutOfRangeError
from vkgdr._words import beyond, in_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import SupportsIndex

    # Offset, row pitch and slice pitch of a side, in bytes.
    Layout = tuple[int, int, int]
    # Bytes per row, rows per slice, number of slices.
    Extent = tuple[int, int, int]
    Plan = tuple[Layout, Layout, Extent]

__all__ = ["linear", "natural", "rectangle"]

_NAMES = ("byte", "row", "slice")


def natural(what: str, value: SupportsIndex) -> int:
    """Check a number of bytes, rows or slices."""
    number = operator.index(value)
    if not 0 <= number < 1 << 63:
        raise OutOfRangeError(f"{what} must be from 0 to 2**63 - 1, not {number}")
    return number


def linear(
    to_size: int,
    from_size: int,
    offsets: tuple[SupportsIndex, SupportsIndex],
    count: SupportsIndex | None,
    default: str,
) -> Plan:
    """Plan the copy of a range.

    Parameters
    ----------
    to_size, from_size : int
        The size of each side in bytes.
    offsets : tuple of int
        The first byte on each side, the destination first.
    count : int or None
        The number of bytes to copy.
    default : {"destination", "source", "both"}
        The side that determines the number of bytes if `count` is None; "both" for the smaller one.
    """
    dst_offset, src_offset = natural("dst_offset", offsets[0]), natural("src_offset", offsets[1])
    room = {"destination": to_size - dst_offset, "source": from_size - src_offset}
    # An offset past the end is checked below.
    fallback = min(room.values()) if default == "both" else room[default]
    size = max(fallback, 0) if count is None else natural("byte_count", count)
    _check_range("destination", dst_offset, size, to_size)
    _check_range("source", src_offset, size, from_size)
    return (dst_offset, 0, 0), (src_offset, 0, 0), (size, 1, 1)


def _check_range(what: str, offset: int, size: int, room: int) -> None:
    if offset > room or size > room - offset:
        raise OutOfRangeError(beyond(size, offset, room, what))


def rectangle(
    region: Sequence[SupportsIndex],
    to: tuple[Sequence[SupportsIndex] | None, Sequence[SupportsIndex] | None],
    source: tuple[Sequence[SupportsIndex] | None, Sequence[SupportsIndex] | None],
) -> Plan:
    """Plan the copy of a rectangle. Its bounds are checked by the native copy.

    Parameters
    ----------
    region : sequence of int
        Bytes per row, rows per slice, number of slices.
    to, source : tuple
        The origin of a side, in the same units, and its pitches.
    """
    width, height, depth = _triple("region", region, 1)
    for name, value in zip(("bytes", "rows", "slices"), (width, height, depth), strict=True):
        if value == 0:
            raise InvalidArgumentError(f"region {tuple(region)} has 0 {name}")
    extent = (width, height, depth)
    return _layout("dst", *to, extent), _layout("src", *source, extent), extent


def _triple(name: str, values: Sequence[SupportsIndex], missing: int) -> tuple[int, int, int]:
    if not 1 <= len(values) <= 3:
        raise InvalidArgumentError(f"{name} has {len(values)} components: expected 2 or 3, bytes first")
    numbers = [natural(f"{name}'s {unit} component", value) for unit, value in zip(_NAMES, values, strict=False)]
    numbers += [missing] * (3 - len(numbers))
    return numbers[0], numbers[1], numbers[2]


def _layout(
    side: str, origin: Sequence[SupportsIndex] | None, pitches: Sequence[SupportsIndex] | None, extent: Extent
) -> Layout:
    width, height, _ = extent
    row_pitch, slice_pitch = _pitches(f"{side}_pitches", pitches)
    row_pitch = row_pitch or width
    if row_pitch < width:
        raise InvalidArgumentError(f"{side}_pitches: rows of {in_bytes(width)} do not fit the row pitch {row_pitch}")
    slice_pitch = slice_pitch or row_pitch * height
    if slice_pitch < row_pitch * height:
        need = f"{height} rows at the row pitch {row_pitch} need {row_pitch * height} bytes"
        raise InvalidArgumentError(f"{side}_pitches: {need}, more than the slice pitch {slice_pitch}")
    if slice_pitch % row_pitch:
        text = f"the slice pitch {slice_pitch} is not a multiple of the row pitch {row_pitch}"
        raise InvalidArgumentError(f"{side}_pitches: {text}")
    x, y, z = (0, 0, 0) if origin is None else _triple(f"{side}_origin", origin, 0)
    start = natural(f"{side}_origin in bytes", x + y * row_pitch + z * slice_pitch)
    return start, row_pitch, natural(f"{side}_pitches in bytes", slice_pitch)


def _pitches(name: str, pitches: Sequence[SupportsIndex] | None) -> tuple[int, int]:
    if pitches is None:
        return 0, 0
    if len(pitches) > 2:
        raise InvalidArgumentError(f"{name} has {len(pitches)} components: expected a row pitch and a slice pitch")
    given = [natural(f"{name}' {unit} component", value) for unit, value in zip(_NAMES[1:], pitches, strict=False)]
    given += [0] * (2 - len(given))
    return given[0], given[1]
