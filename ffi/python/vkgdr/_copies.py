"""A memory object's copies to and from the host, and from other memory."""

from __future__ import annotations

import operator

from vkgdr import _transfer, _vkgdr
from vkgdr._errors import InvalidArgumentError
from vkgdr._facts import Facts
from vkgdr._words import in_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vkgdr.typing import StreamLike


class Copies(Facts):
    """A memory object's copies. Every copy is done when the call returns."""

    def _size_from(self, offset: int, size: int | None = None) -> int:
        """Check a range and return its size in bytes; by default to the end of the memory."""
        return self._block.part(offset, size, False, False).nbytes

    def copy_to_host(self, obj: Any = None, *, offset: int = 0, stream: StreamLike | None = None) -> Any:
        """Copy the bytes to the host and wait.

        Parameters
        ----------
        obj : object, optional
            A contiguous, writable object with the buffer protocol, with room for the bytes from `offset` to the end.
            A new array by default.
        offset : int, optional
            The first byte to copy.
        stream : object, optional
            The stream to wait for, in place of the bound stream.

        Returns
        -------
        object
            `obj`, or the new array: one-dimensional, ``uint8``.

        Raises
        ------
        InvalidArgumentError
            `obj` is too small, not contiguous or read-only.
        TypeError
            `obj` has no buffer protocol.
        """
        size = self._size_from(offset)
        if obj is None:
            import numpy as np

            obj = np.empty(size, np.uint8)
        target = _vkgdr.HostBuffer(obj, True)
        if target.nbytes < size:
            text = f"Destination object is too small: {in_bytes(target.nbytes)}, {size} are needed"
            raise InvalidArgumentError(text)
        _transfer.to_host(self, offset, target, size, stream)
        return obj

    def copy_from_host(self, obj: Any, *, offset: int = 0, stream: StreamLike | None = None) -> None:
        """Copy bytes from the host, wait and flush.

        Parameters
        ----------
        obj : object
            A contiguous object with the buffer protocol, possibly smaller than the memory.
        offset : int, optional
            The destination of the first byte.
        stream : object, optional
            The stream to wait for first, in place of the bound stream.

        Raises
        ------
        InvalidArgumentError
            `obj` is too large or not contiguous, or the memory is read-only.
        TypeError
            `obj` has no buffer protocol.
        """
        source = _vkgdr.HostBuffer(obj, False)
        room = self._size_from(offset)
        if source.nbytes > room:
            raise InvalidArgumentError(
                f"Source object is too large: {in_bytes(source.nbytes)}, there is room for {room}"
            )
        if source.nbytes:
            _transfer.from_host(self, offset, source, stream)

    def copy_from_device(self, obj: Any, *, offset: int = 0, stream: StreamLike | None = None) -> None:
        """Copy bytes from device memory, wait and invalidate: CPU and GPU see them.

        Parameters
        ----------
        obj : object
            A memory object, or an object in C order with ``__cuda_array_interface__`` or DLPack on a CUDA device. The
            copy is ordered after the work of the interface's stream.
        offset : int, optional
            The destination of the first byte.
        stream : object, optional
            The stream that copies, in place of the bound stream.

        Raises
        ------
        InvalidArgumentError
            `obj` has none of these protocols, is too large, is not in C order, or overlaps the destination.
        TypeError
            Its array interface is malformed.
        """
        from vkgdr._interop import device_block

        source, ready = device_block(obj, self._block)
        room = self._size_from(offset)
        if source.nbytes > room:
            raise InvalidArgumentError(
                f"Source object is too large: {in_bytes(source.nbytes)}, there is room for {room}"
            )
        if source.nbytes:
            queue = _transfer.stream_of(self._block, stream)
            _transfer.between(self, offset, source, queue, after=ready)

    def memset(self, val: int = 0, *, offset: int = 0, nbytes: int | None = None) -> None:
        """Set bytes to a value, wait and flush.

        Parameters
        ----------
        val : int, optional
            The value, 0 to 255.
        offset, nbytes : int, optional
            The range; by default to the end of the memory.
        """
        value = operator.index(val)
        if not 0 <= value <= 255:
            raise InvalidArgumentError(f"{value} is not a byte value from 0 to 255")
        size = self._size_from(offset, nbytes)
        if size:
            _transfer.fill(self, offset, size, bytes([value]), None)

    def tobytes(self) -> bytes:
        """Copy the bytes to the host and wait."""
        return bytes(self.copy_to_host(bytearray(len(self))))

    def __bytes__(self) -> bytes:
        return self.tobytes()
