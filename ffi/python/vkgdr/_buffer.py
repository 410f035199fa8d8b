"""``Buffer``: memory that can be empty and can grow, with the methods of RMM's ``DeviceBuffer``."""

from __future__ import annotations

import operator
import threading

from vkgdr import _transfer, _vkgdr
from vkgdr._errors import InvalidArgumentError
from vkgdr._handle import Vkgdr
from vkgdr._object import MemoryObject, Region
from vkgdr._words import in_bytes
from vkgdr.stream import handle_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, SupportsIndex

    from vkgdr._vkgdr import Block
    from vkgdr.stream import Event
    from vkgdr.typing import Kind, StreamLike

__all__ = ["Buffer"]


class Buffer(MemoryObject):
    """Memory of any size, 0 too, that grows and shrinks as a vector does, and frees itself.

    Its methods are those of RMM's ``DeviceBuffer``, with two differences: every copy is finished when the call returns,
    also on a stream, and the CUDA Array Interface is of version 3 and names the bound stream.

    A buffer without capacity has no allocation: both addresses are 0, and arrays over it are empty. `reserve` and
    `resize` may move the bytes. While arrays or other views of them live they raise ``BufferError``, as for a
    ``bytearray``; arrays that were made by way of ``__cuda_array_interface__`` cannot be counted, and must not be used
    afterwards. Meanwhile what uses the buffer on another thread may raise `FreedError`. Equality and hash change with
    the size and the place. What moves, and what `copy` copies, is what the device has: on memory that is not coherent,
    `flush` before what the CPU wrote.

    Parameters
    ----------
    owner : Vkgdr, optional
        The GPU that allocates now and later, in the context that is current then or in the handle's primary one. By
        default that of the current context, else that of device 0's primary context.
    ptr : int, optional
        An address from which `size` bytes are copied: of memory of this package, on either side, or of CUDA, or of the
        process. 0 copies nothing. **Where fewer bytes can be read, or where something else writes to them meanwhile,
        the behaviour is undefined.** Work of streams on memory that is not bound to them is not waited for.
    size : int, optional
        The number of bytes. Without `ptr` and `hostbuf` the contents are undefined.
    hostbuf : object, optional
        Contiguous bytes, any object with the buffer protocol, of which the first `size` are copied; all by default.
    stream : object, optional
        Bound, see `bind_to_stream`; also what is allocated later.
    kind : {"mapped", "host", "device"}, optional
        As for `vkgdr.Memory`.

    Raises
    ------
    InvalidArgumentError
        `hostbuf` is smaller than `size`, or given together with `ptr`; the kind does not exist.
    VkgdrError
        As for `vkgdr.Memory`. There is no deferred allocation: when there is no room, it is said here.
    """

    # In bytes: what the allocation has. The block shows the first `len(self)` of them, and is the one use of it.
    _capacity: int = 0
    _bound: StreamLike | None = None
    _kind: Kind

    def __init__(
        self,
        owner: Vkgdr | None = None,
        *,
        ptr: SupportsIndex = 0,
        size: SupportsIndex = 0,
        hostbuf: Any = None,
        stream: StreamLike | None = None,
        kind: Kind = "mapped",
    ) -> None:
        address, count = operator.index(ptr), _count(size)
        source = None
        if hostbuf is not None:
            source = _vkgdr.HostBuffer(hostbuf, False)
            if address:
                raise InvalidArgumentError(f"the contents are to come from address {address:#x}, and from hostbuf")
            count = count or source.nbytes
            if count > source.nbytes:
                raise InvalidArgumentError(
                    f"the size {count} is larger than hostbuf, which has {in_bytes(source.nbytes)}"
                )
        if not 0 <= address <= (1 << 64) - max(count, 1):
            raise InvalidArgumentError(f"the address space does not hold {in_bytes(count)} at address {address:#x}")
        if owner is None:
            from vkgdr._default import default_owner

            owner = default_owner()
        if not isinstance(owner, Vkgdr):
            raise TypeError(f"owner must be a vkgdr.Vkgdr, not {type(owner).__name__}")
        self._owner = owner
        self._kind = kind
        self._changing = threading.RLock()
        self._block = self._allocate(owner, count)
        self._capacity = count
        if stream is not None:
            self.bind_to_stream(stream)
        if count and source is not None:
            self._copy_from_address(source.address, count)
        elif count and address:
            self._copy_from_anywhere(address, count)

    def _allocate(self, owner: Vkgdr, size: int) -> Block:
        if size == 0:
            return _vkgdr.Block.empty(owner, self._kind)
        return _vkgdr.Block.allocate(owner, size, self._kind, 0, False, False)

    def _copy_from_anywhere(self, address: int, size: int) -> None:
        block = _vkgdr.find_device(address, size)
        ours = block is not None or _vkgdr.find_host(address, size) is not None
        # CUDA is asked in the buffer's context: none needs to be current.
        if not ours and _vkgdr.pointer_device(address, self._block) is not None:
            block = _vkgdr.foreign(address, size, True, None, self._block)
        if block is None:
            self._copy_from_address(address, size)
        else:
            super().copy_from_device(Region._over(block))

    def _copy_from_address(self, address: int, size: int) -> None:
        import ctypes

        view = (ctypes.c_char * size).from_address(address)
        _transfer.from_host(self, 0, _vkgdr.HostBuffer(view, False), None)

    @classmethod
    def to_device(
        cls, b: Any, stream: StreamLike | None = None, *, owner: Vkgdr | None = None, kind: Kind = "mapped"
    ) -> Self:
        """Make a buffer with a copy of host bytes.

        Parameters
        ----------
        b : object
            Contiguous bytes: any object with the buffer protocol. They may be none.
        stream, owner, kind : optional
            As for the class.

        Raises
        ------
        TypeError
            `b` has no buffer protocol.
        InvalidArgumentError
            `b` is not contiguous.
        """
        if b is None:
            raise TypeError("a bytes-like object is required, not None")
        return cls(owner, hostbuf=b, stream=stream, kind=kind)

    # What there is to know

    @property
    def ptr(self) -> int:
        """The first byte's address on the device; 0 without an allocation."""
        return self.device_ptr

    @property
    def stream(self) -> int | None:
        """The bound stream, as a number; None if there is none."""
        bound = self._block.bound_stream
        return handle_of(self._bound) if bound is None and self._bound is not None else bound

    def capacity(self) -> int:
        """Give the number of bytes that the buffer can grow to without moving."""
        len(self)
        return self._capacity

    # Size

    def reserve(self, new_capacity: SupportsIndex, stream: StreamLike | None = None) -> None:
        """Make room for growth. The size and the contents stay, the addresses may not.

        Parameters
        ----------
        new_capacity : int
            The number of bytes for which there is to be room. No more than there is already: nothing is done.
        stream : object, optional
            Bound first, as by `bind_to_stream`; then it copies the contents.

        Raises
        ------
        BufferError
            Views exist.
        VkgdrError
            As for `vkgdr.Memory`. Then nothing has moved.
        """
        wanted = _count(new_capacity)
        with self._lock():
            size = len(self)
            if wanted > self._capacity:
                self._check_no_views(wanted)
                self._move(wanted, size, stream)

    def resize(self, new_size: SupportsIndex, stream: StreamLike | None = None) -> None:
        """Change the size. The contents stay as far as there is room, what is new is undefined.

        Within the capacity nothing moves, and the capacity stays. Beyond it, the new size is the new capacity.

        Parameters
        ----------
        new_size : int
            The number of bytes, which may be 0.
        stream : object, optional
            As for `reserve`.

        Raises
        ------
        BufferError
            Views exist.
        VkgdrError
            As for `vkgdr.Memory`. Then nothing has moved.
        """
        wanted = _count(new_size)
        with self._lock():
            if wanted == len(self):
                return
            self._check_no_views(wanted)
            if wanted > self._capacity:
                self._move(wanted, wanted, stream)
                return
            if stream is not None:
                self.bind_to_stream(stream)
            self._show(wanted)

    def _lock(self) -> threading.RLock:
        """Give the lock under which the size changes; refuse where there is no memory."""
        len(self)
        return self._changing

    def _check_no_views(self, wanted: int) -> None:
        views = self.pending_views
        if views:
            text = f"the buffer of {in_bytes(len(self))} cannot become one of {wanted}: there are {views} views of it"
            raise BufferError(text)

    def _show(self, size: int) -> None:
        """Make the first `size` bytes of the allocation the buffer's."""
        whole = _vkgdr.find_id(self._block.key[0])
        if whole is None:
            raise AssertionError("a live buffer's allocation is registered")
        before, self._block = self._block, whole.part(0, size, False, False)
        before.drop()
        whole.drop()

    def _move(self, capacity: int, size: int, stream: StreamLike | None) -> None:
        if stream is not None:
            self.bind_to_stream(stream)
        before = self._block
        after = self._allocate(self._require_owner(), capacity)
        if self._bound is not None:
            after.bind_stream(handle_of(self._bound), self._bound)
        if before.nbytes:
            # The CPU reads GPU memory slowly, so the GPU copies.
            _transfer.between(Region._over(after), 0, before, _transfer.stream_of(after, None))
        self._block, self._capacity = after, capacity
        if size < capacity:
            self._show(size)
        before.free(False)

    def copy(self) -> Self:
        """Make a buffer of the same owner, kind and stream with a copy of the bytes."""
        size = len(self)
        new = type(self)(self._require_owner(), size=size, stream=self._bound, kind=self._kind)
        if size:
            new.copy_from_device(self)
        return new

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, _memo: dict[int, object]) -> Self:
        return self.copy()

    # Copies

    def copy_to_host(self, ary: Any = None, stream: StreamLike | None = None, *, offset: int = 0) -> Any:
        """Copy the bytes to the host, and wait. As `MemoryObject.copy_to_host`.

        Raises
        ------
        InvalidArgumentError
            `ary` is too small, not contiguous or read-only.
        TypeError
            `ary` has no buffer protocol.
        """
        size = self._size_from(offset)
        if ary is None:
            import numpy as np

            ary = np.empty(size, np.uint8)
        room = _vkgdr.HostBuffer(ary, True).nbytes
        if room < size:
            raise InvalidArgumentError(f"Argument `ary` is too small. Need space for {in_bytes(size)}. It has {room}")
        return super().copy_to_host(ary, offset=offset, stream=stream) if size else ary

    def copy_from_host(self, ary: Any, stream: StreamLike | None = None, *, offset: int = 0) -> None:
        """Copy bytes from the host, wait and flush. As `MemoryObject.copy_from_host`.

        Raises
        ------
        InvalidArgumentError
            `ary` is too large or not contiguous.
        TypeError
            `ary` has no buffer protocol.
        """
        room, size = self._size_from(offset), _vkgdr.HostBuffer(ary, False).nbytes
        if size > room:
            raise InvalidArgumentError(
                f"Argument `ary` is too large. Need space for {in_bytes(size)}. There are {room}"
            )
        super().copy_from_host(ary, offset=offset, stream=stream)

    def copy_from_device(self, cuda_ary: Any, stream: StreamLike | None = None, *, offset: int = 0) -> None:
        """Copy bytes of one dimension from memory of a device, as `MemoryObject.copy_from_device`: wait and invalidate.

        Raises
        ------
        InvalidArgumentError
            `cuda_ary` has no device memory, more than one dimension, or gaps; or is too large, or overlaps.
        TypeError
            Its interface is malformed.
        """
        interface = getattr(cuda_ary, "__cuda_array_interface__", None)
        if isinstance(interface, dict) and len(interface.get("shape", ())) > 1:
            text = f"Only 1-D contiguous arrays are supported, got one of shape {interface['shape']}"
            raise InvalidArgumentError(text)
        super().copy_from_device(cuda_ary, offset=offset, stream=stream)

    def tobytes(self, stream: StreamLike | None = None) -> bytes:
        """Copy the bytes to the host, and wait for the stream, or for the bound one."""
        return bytes(self.copy_to_host(bytearray(len(self)), stream))

    def prefetch(self, device: object = None, stream: object = None) -> None:  # noqa: ARG002
        """Do nothing: where memory lies is fixed when it is allocated. See `migrate`."""
        len(self)  # raises if it was freed

    # Streams and ends

    def bind_to_stream(self, stream: StreamLike) -> None:
        """Bind the buffer to a stream, as `MemoryObject.bind_to_stream`; also what is allocated later."""
        if self._capacity or self.freed:
            super().bind_to_stream(stream)
        else:
            handle_of(stream)
        self._bound = stream

    def unbind_stream(self) -> None:
        """Wait for the bound stream, and forget it."""
        if self._capacity or self.freed:
            super().unbind_stream()
        self._bound = None

    def free(self, *, force: bool = False) -> None:
        """Free the memory, as `MemoryObject.free`. An empty buffer, which can grow again, is had by ``resize(0)``."""
        super().free(force=force)
        self._bound = None

    def free_async(self, stream: StreamLike | None = None) -> Event:
        """Free the memory once a stream has done its work, as `MemoryObject.free_async`."""
        if self._capacity or self.freed or (stream is None and self._bound is None):
            return super().free_async(stream)
        self.free()
        return _vkgdr.complete()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.tobytes(), self._kind)


def _restore(cls: type[Buffer], contents: bytes, kind: Kind) -> Buffer:
    """Make a buffer of the default handle with these contents, for pickle."""
    return cls.to_device(contents, kind=kind)


def _count(value: SupportsIndex) -> int:
    """Give a number of bytes."""
    count = operator.index(value)
    if not 0 <= count < 1 << 64:
        raise OverflowError(f"{count} is not a number of bytes from 0 to {(1 << 64) - 1}")
    return count


# What users read in messages is what they import.
Buffer.__module__ = "vkgdr"
