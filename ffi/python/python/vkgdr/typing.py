"""The types in this package's signatures, for annotations.

A ``stream`` is an object with ``__cuda_stream__``, a stream of pycuda, numba, CuPy or PyTorch, or the ``CUstream`` as a
number, see `vkgdr.stream`.
"""

from __future__ import annotations

from typing import Literal, Protocol, SupportsIndex, TypeAlias

__all__ = ["HasCudaStream", "HasHandle", "HasPtr", "Kind", "MapMode", "Order", "Shape", "StreamLike", "Waitable"]


class HasCudaStream(Protocol):
    """A stream of cuda.core, or of another library with its protocol."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version, 0, and the ``CUstream``."""


class HasHandle(Protocol):
    """A stream of pycuda or numba."""

    @property
    def handle(self) -> object:
        """The ``CUstream``."""


class HasPtr(Protocol):
    """A stream of CuPy."""

    @property
    def ptr(self) -> int:
        """The ``CUstream``."""


class Waitable(Protocol):
    """An event of any library."""

    def synchronize(self) -> object:
        """Wait for the event."""


Kind: TypeAlias = Literal["mapped", "host", "device"]
MapMode: TypeAlias = Literal["r", "w", "rw", "discard"]
Order: TypeAlias = Literal["C", "F"]
Shape: TypeAlias = SupportsIndex | tuple[SupportsIndex, ...]
StreamLike: TypeAlias = int | SupportsIndex | HasCudaStream | HasHandle | HasPtr
