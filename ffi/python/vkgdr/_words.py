"""Wording of numbers and ranges in error messages."""

from __future__ import annotations

__all__ = ["beyond", "in_bytes"]


def in_bytes(count: int) -> str:
    """Format a number of bytes."""
    return f"{count} byte" if count == 1 else f"{count} bytes"


def beyond(size: int, offset: int, room: int, what: str) -> str:
    """Format the message for a range that exceeds the `room` bytes of `what`."""
    do = "does" if size == 1 else "do"
    return f"{in_bytes(size)} at {offset} {do} not lie within the {in_bytes(room)} of the {what}"
