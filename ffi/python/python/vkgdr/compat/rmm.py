"""``Buffer``: resizable memory with the methods of RMM's ``DeviceBuffer``.

It differs from RMM in these points:

* The handle, `owner`, replaces the memory resource `mr`, and all other parameters of the constructor are keywords.
  `kind` and `hostbuf` are new, and so are the methods of `vkgdr.Memory`.
* ``stream=None`` is accepted and is the default: the bound stream, or the legacy default stream. The stream of the
  constructor, of `reserve` and of `resize` is bound, so not the per-thread one; methods take any library's streams.
* Every copy is done when the call returns, even on a stream.
* The CUDA Array Interface is version 3 and names the bound stream; RMM's is version 0.
* `to_device`, `copy_from_host` and `copy_to_host` take contiguous bytes of any shape and type, where RMM takes one
  dimension of unsigned bytes; copies have an `offset`.
* `ptr` may be a host address, and copying from it waits for the stream that memory of this package is bound to.
* `reserve` and `resize` raise ``BufferError`` while views exist. RMM has no views.
* Addresses are aligned to at least 64 bytes, where RMM promises 256.
* `prefetch` does nothing.
* Two buffers over the same bytes are equal. A pickle keeps the kind of memory, and with protocol 5 its bytes travel
  beside it.
* Errors are those of this package: exhausted memory is `vkgdr.AllocationError`, which is a ``MemoryError``, too.
"""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Self, SupportsIndex

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError, in_bytes
from vkgdr._interfaces import Interface, handle_of, interface_of
from vkgdr._memory import Memory, default_owner
from vkgdr._vkgdr import Event, MemoryView, Vkgdr
from vkgdr.typing import Kind, StreamLike

__all__ = ["Buffer"]
__dir__ = __all__.copy


class Buffer(Memory):
    """Resizable memory, possibly empty, that frees itself.

    Its methods are those of RMM's ``DeviceBuffer``; `vkgdr.compat.rmm` lists the differences.

    A buffer without capacity has no allocation: both addresses are 0, and its views are empty. `reserve` and `resize`
    may move the bytes. While views exist they raise ``BufferError``, like ``bytearray``. Arrays made through
    ``__cuda_array_interface__``, or by PyTorch's ``frombuffer`` and ``asarray`` of the buffer itself, are not counted,
    and must not be used afterwards. As with RMM, a buffer that one thread resizes is not for use on others meanwhile:
    they may get either size, or an error. Equality and hash depend on the address and the size. A move and `copy` copy
    the device's bytes: on memory that is not coherent, `flush` first what the CPU wrote.

    Parameters
    ----------
    owner : Vkgdr, optional
        The GPU to allocate on, in the handle's primary context, or in the context that is current at each allocation.
        By default the GPU of the current context, or device 0 in its primary context if no context is current.
    ptr : int, optional
        The address of `size` bytes to copy: a device or host address of this package's memory, a CUDA address, or an
        address of the process. 0 copies nothing. **The behaviour is undefined if fewer bytes are readable, or if they
        are written to during the copy.** Waits only for the stream that the memory at the address is bound to, and
        invalidates memory of this package. Flush the CPU's writes to it before.
    size : int, optional
        The number of bytes. Without `ptr` and `hostbuf` their contents are undefined.
    hostbuf : object, optional
        A contiguous object with the buffer protocol, whose first `size` bytes are copied; all of them by default.
    stream : object, optional
        The stream to bind to, now and after a reallocation; see `bind_to_stream`.
    kind : {"mapped", "host", "device"}, optional
        As for `vkgdr.Memory`, and so are the errors. Allocation is not deferred: exhausted memory raises here.

    Raises
    ------
    InvalidArgumentError
        `hostbuf` is smaller than `size` or given together with `ptr`, or `kind` is invalid.
    """

    # The allocation's size in bytes. The view covers the first `len(self)` of them, and is its only user.
    _capacity: int = 0
    _bound: StreamLike | None = None
    _TOO_SMALL = "Argument `ary` is too small. Need space for {}. It has {}"
    _TOO_LARGE = "Argument `ary` is too large. Need space for {}. There are {}"

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
                raise InvalidArgumentError(f"ptr ({address:#x}) and hostbuf exclude each other")
            count = count or source.nbytes
            if count > source.nbytes:
                raise InvalidArgumentError(f"size {count} is larger than hostbuf, which has {in_bytes(source.nbytes)}")
        if not 0 <= address <= (1 << 64) - max(count, 1):
            raise InvalidArgumentError(f"range of {in_bytes(count)} at address {address:#x} exceeds the address space")
        if owner is None:
            owner = default_owner()
        elif not isinstance(owner, Vkgdr):
            raise TypeError(f"owner must be a vkgdr.Vkgdr, not {type(owner).__name__}")
        self._view = self._allocate(owner, count, kind)
        self._capacity = count
        if stream is not None:
            self.bind_to_stream(stream)
        if count and source is not None:
            super().copy_from_host((ctypes.c_char * count).from_address(source.address))
        elif count and address:
            self._copy_from_address(address, count)

    @staticmethod
    def _allocate(owner: Vkgdr, size: int, kind: Kind) -> MemoryView:
        return MemoryView.allocate(owner, size, kind, (0, False, False)) if size else MemoryView.empty(owner, kind)

    def _copy_from_address(self, address: int, size: int) -> None:
        # Queried in the buffer's context: none needs to be current.
        view = _vkgdr.find(address, size) or _vkgdr.foreign(address, size, True, None, self._view)
        if view is not None and Memory._over(view).device_ptr == address:
            super().copy_from_device(Memory._over(view))
            return
        if view is not None:
            view.wait_for_stream()
            Memory._over(view).invalidate()
        super().copy_from_host((ctypes.c_char * size).from_address(address))

    @classmethod
    def to_device(
        cls, b: Any, stream: StreamLike | None = None, *, owner: Vkgdr | None = None, kind: Kind = "mapped"
    ) -> Self:
        """Create a buffer with a copy of host bytes, of a contiguous object with the buffer protocol, possibly empty.

        The other parameters are those of the class. `TypeError` if `b` has no buffer protocol, `InvalidArgumentError`
        if it is not contiguous.
        """
        if b is None:
            raise TypeError("a bytes-like object is required, not None")
        return cls(owner, hostbuf=b, stream=stream, kind=kind)

    # Attributes

    @property
    def ptr(self) -> int:
        """The device address of the first byte; 0 without an allocation."""
        return self.device_ptr

    @property
    def stream(self) -> int | None:
        """The bound stream, as a number; None if there is none."""
        len(self)  # raises if it was freed
        kept = self._kept_stream()
        return None if kept is None else handle_of(kept)

    def capacity(self) -> int:
        """Return the number of bytes to which the buffer can grow without moving."""
        len(self)
        return self._capacity

    # Size

    def reserve(self, new_capacity: SupportsIndex, stream: StreamLike | None = None) -> None:
        """Grow the capacity to at least this many bytes, and keep size and contents; the addresses may change.

        `stream` is the one to bind to first, as by `bind_to_stream`; it then copies the contents. Where the buffer was
        bound to another one, its old memory's release waits for the context. `BufferError` while
        views exist; else the errors are those of `vkgdr.Memory`. The contents are unchanged then.
        """
        wanted, size = _count(new_capacity), len(self)
        if stream is not None:
            self.bind_to_stream(stream)
        if wanted > self._capacity:
            self._check_no_views(wanted)
            self._move(wanted, size)

    def resize(self, new_size: SupportsIndex, stream: StreamLike | None = None) -> None:
        """Change the size. Keeps the contents up to the new size; new bytes are undefined.

        Within the capacity nothing moves, and the capacity is kept. Beyond it the new size is the new capacity. The
        errors and the stream are those of `reserve`.
        """
        wanted, size = _count(new_size), len(self)
        if stream is not None:
            self.bind_to_stream(stream)
        if wanted == size:
            return
        self._check_no_views(wanted)
        if wanted > self._capacity:
            self._move(wanted, wanted)
            return
        self._view = self._view.first(wanted)

    def _check_no_views(self, wanted: int) -> None:
        views = self.pending_views
        if views:
            raise BufferError(f"cannot resize the buffer from {in_bytes(len(self))} to {wanted}: it has {views} views")

    def _kept_stream(self) -> StreamLike | None:
        """Return the bound stream: of the view, which a slice can unbind, too."""
        return self._view.bound_stream if self._capacity else self._bound

    def _move(self, capacity: int, size: int) -> None:
        before = self._view
        after = self._allocate(self._require_owner(), capacity, self.kind)
        bound = self._kept_stream()
        if bound is not None:
            after.bind_stream(bound)
        if before.nbytes:
            # Copied by the GPU, since the CPU reads GPU memory slowly.
            Memory._over(after).copy_from_device(Memory._over(before))
        self._view = after.first(size) if size < capacity else after
        self._capacity = capacity
        Memory._over(before)._free_moved()

    def copy(self) -> Buffer:
        """Create a buffer with the same owner, kind and stream and a copy of the bytes."""
        new = Buffer(self._require_owner(), size=len(self), stream=self._kept_stream(), kind=self.kind)
        if len(self):
            new.copy_from_device(self)
        return new

    __copy__ = copy

    def __deepcopy__(self, _memo: dict[int, object]) -> Buffer:
        return self.copy()

    # Copies

    def copy_to_host(self, ary: Any = None, stream: StreamLike | None = None, *, offset: int = 0) -> Any:
        """Copy the bytes to the host and wait, like `Memory.copy_to_host`."""
        return super().copy_to_host(ary, offset=offset, stream=stream)

    def copy_from_host(self, ary: Any, stream: StreamLike | None = None, *, offset: int = 0) -> None:
        """Copy bytes from the host, wait and flush, like `Memory.copy_from_host`."""
        super().copy_from_host(ary, offset=offset, stream=stream)

    def copy_from_device(self, cuda_ary: Any, stream: StreamLike | None = None, *, offset: int = 0) -> None:
        """Copy a one-dimensional array from device memory, like `Memory.copy_from_device`."""
        interface = None if isinstance(cuda_ary, Memory) else interface_of(cuda_ary)
        if interface is not None:
            extents = Interface(interface).layout.shape
            if len(extents) > 1:
                raise InvalidArgumentError(f"Only 1-D contiguous arrays are supported, got one of shape {extents}")
        super().copy_from_device(cuda_ary, offset=offset, stream=stream)

    def tobytes(self, stream: StreamLike | None = None) -> bytes:
        """Copy the bytes to the host, after the work of `stream` or of the bound stream."""
        return bytes(self.copy_to_host(bytearray(len(self)), stream))

    def prefetch(self, device: object = None, stream: object = None) -> None:  # noqa: ARG002
        """Do nothing: the place of memory is fixed at allocation. See `migrate`."""
        len(self)  # raises if it was freed

    # Streams and release

    def bind_to_stream(self, stream: StreamLike) -> None:
        """Bind the buffer to a stream, now and after a reallocation, like `Memory.bind_to_stream`."""
        if self._capacity or self.freed:
            super().bind_to_stream(stream)
        else:
            handle_of(stream)
        self._bound = stream

    def unbind_stream(self) -> None:
        """Wait for the bound stream and remove the binding."""
        if self._capacity or self.freed:
            super().unbind_stream()
        self._bound = None

    def free(self, *, force: bool = False) -> None:
        """Free the memory, like `Memory.free`. To empty a buffer that is used again, call ``resize(0)``."""
        super().free(force=force)
        self._bound = None

    def free_async(self, stream: StreamLike | None = None) -> Event:
        """Free the memory in stream order, like `Memory.free_async`."""
        if self._capacity or self.freed or (stream is None and self._bound is None):
            return super().free_async(stream)
        self.free()
        return _vkgdr.complete()

    @classmethod
    def _restored(cls, contents: Any, kind: Kind) -> Buffer:
        return Buffer.to_device(contents, kind=kind)


def _count(value: SupportsIndex) -> int:
    """Return `value` as a number of bytes."""
    count = operator.index(value)
    if not 0 <= count < 1 << 64:
        raise OverflowError(f"{count} is not a number of bytes from 0 to {(1 << 64) - 1}")
    return count
