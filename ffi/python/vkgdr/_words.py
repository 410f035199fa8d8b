"""How messages spell numbers."""

from __future__ import annotations

__all__ = ["beyond", "in_bytes"]


def in_bytes(count: int) -> str:
    """Write a number of bytes."""
    return f"{count} byte" if count == 1 else f"{count} bytes"


def beyond(size: int, offset: int, room: int, what: str) -> str:
    """Say that a range does not lie within the `room` bytes of what it is a range of."""
    do = "does" if size == 1 else "do"
    return f"{in_bytes(size)} at {offset} {do} not lie within the {in_bytes(room)} of the {what}"
