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
    """A memory object's copies. All of them wait."""

    def _size_from(self, offset: int, size: int | None = None) -> int:
        """Check a range, and give its number of bytes; all from `offset` on by default."""
        return self._block.part(offset, size, False, False).nbytes

    def copy_to_host(self, obj: Any = None, *, offset: int = 0, stream: StreamLike | None = None) -> Any:
        """Copy the bytes to the host, and wait.

        Parameters
        ----------
        obj : object, optional
            Contiguous and writable bytes, any object with the buffer protocol, with room for all bytes from `offset`
            on. A new array by default.
        offset : int, optional
            Where to begin.
        stream : object, optional
            Whose work to wait for, in place of the bound stream's.

        Returns
        -------
        object
            `obj`, or the new array: one dimension, ``uint8``.

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
            Contiguous bytes: any object with the buffer protocol. They may be fewer than there is room for.
        offset : int, optional
            Where they go.
        stream : object, optional
            Whose work to wait for first, in place of the bound stream's.

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
        """Copy bytes from memory of a device, wait and invalidate: both sides see them.

        Parameters
        ----------
        obj : object
            A memory object, or anything with ``__cuda_array_interface__`` or DLPack on a CUDA device, in C order. The
            copy begins after the work of the interface's stream.
        offset : int, optional
            Where they go.
        stream : object, optional
            The stream that copies, in place of the bound one.

        Raises
        ------
        InvalidArgumentError
            `obj` has none of these protocols, is too large, or not in C order; or the two overlap.
        TypeError
            Its interface is malformed.
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
            From 0 to 255.
        offset, nbytes : int, optional
            The range; all from `offset` on by default.
        """
        value = operator.index(val)
        if not 0 <= value <= 255:
            raise InvalidArgumentError(f"{value} is not the value of a byte")
        size = self._size_from(offset, nbytes)
        if size:
            _transfer.fill(self, offset, size, bytes([value]), None)

    def tobytes(self) -> bytes:
        """Copy the bytes to the host, and wait."""
        return bytes(self.copy_to_host(bytearray(len(self))))

    def __bytes__(self) -> bytes:
        return self.tobytes()
