"""Pools: small allocations in less than a microsecond, without a driver call.

The interface is pyopencl's: an `Allocator` describes the memory; a `Pool` allocates blocks of it and lends chunks of
them. It differs from pyopencl's in these points:

* A pool allocates blocks and lends chunks of them, so that `Pool.managed_bytes` grows by blocks. Its `Allocator` only
  describes the memory, and is not called.
* `Pool.allocate` refuses a size of 0, for which pyopencl's lends a block of 1 byte. `Allocator` returns None for it, as
  pyopencl's does.
* Size classes are numbered by their sizes in bytes, and memory larger than the largest chunk by its own size.
* A second `PooledMemory.release` does nothing, where pyopencl's raises.
"""

from __future__ import annotations

import operator
from typing import SupportsIndex

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError, in_bytes
from vkgdr._memory import Memory
from vkgdr._vkgdr import Vkgdr
from vkgdr.typing import Kind, StreamLike

__all__ = ["Allocator", "Pool", "PooledMemory"]
__dir__ = __all__.copy


_MIB = 1 << 20


class Allocator:
    """Allocates memory of one kind: called with a size, returns `vkgdr.Memory`, or None for a size of 0.

    The parameters are those of `vkgdr.Memory`, with one kind. Unless `owner` was opened with
    `vkgdr.Vkgdr.open_primary_context`, a CUDA context of it must be current at each call.
    """

    def __init__(
        self,
        owner: Vkgdr,
        *,
        kind: Kind = "mapped",
        alignment: SupportsIndex = 0,
        stream: StreamLike | None = None,
    ) -> None:
        self.owner = owner
        self.kind: Kind = kind
        self.alignment = operator.index(alignment)
        self.stream = stream

    def __call__(self, size: int) -> Memory | None:
        """Allocate `size` bytes."""
        if size == 0:
            return None
        return Memory(self.owner, size, kind=self.kind, alignment=self.alignment, stream=self.stream)

    def __repr__(self) -> str:
        return f"<vkgdr.pool.Allocator: {self.kind} memory of {self.owner!r}>"


class PooledMemory(Memory):
    """Memory lent by a `Pool`, which returns there when its last user is dropped.

    A `vkgdr.Memory` that cannot be exported to other processes. It is not reused while the device may still use it:
    for that the pool waits, later and for many chunks at once, see `Pool`. Memory longer than the pool's
    ``largest_chunk`` is an allocation of its own, and is released as `vkgdr.Memory` is. Unless it is bound to a stream,
    its release waits for all work of the context.
    """

    def __init__(self, *_arguments: object) -> None:
        raise TypeError("pooled memory comes from a pool: use pool.allocate(size)")

    def release(self) -> None:
        """Return the memory to its pool, like `free`, under pyopencl's name."""
        self.free()

    def _part(self, offset: SupportsIndex, size: SupportsIndex | None) -> PooledMemory:
        part = self._over(self._view.part(offset, size, False))
        part._parent = self
        return part

    # Omits the device address: reading it marks the memory as possibly used by the device.
    def __repr__(self) -> str:
        if self.freed:
            return "<vkgdr.pool.PooledMemory: freed>"
        host = "no host view" if self.host_ptr is None else f"host_ptr={self.host_ptr:#x}"
        return f"<vkgdr.pool.PooledMemory: {in_bytes(len(self))}, {self.kind}, {host}>"


class Pool(_vkgdr.Pool):
    """Lends chunks of large blocks that it allocates from the drivers.

    A pool's memory is of one kind and in one CUDA context. That is the owner's primary context if it retains one, else
    the context that is current when the pool is created. A pool may be used from any thread, with any current context.
    Sizes are rounded up to size classes. Unused blocks are kept until `free_held` or `trim`, and freed with the pool;
    memory in use keeps its block alive.

    **Freed memory is not reused while the device may still use it.** Memory whose device address was never read,
    through `device_ptr`, an array interface or a copy by CUDA, can be reused at once. Host memory can only if its host
    address was not read either, as by a buffer. Memory bound to a stream can be reused at once on that stream, and
    elsewhere after an event. For all other memory the pool waits for the context, once for many chunks, before it
    allocates a new block.

    Parameters
    ----------
    allocator : Allocator or Vkgdr
        The memory to allocate. A handle is short for an `Allocator` of its mapped memory.
    leading_bits_in_bin_id : int, optional
        The resolution of size classes, 0 to 6. With 4 there are 16 for each doubling of the size, and from 1 KiB on
        less than 6 % is wasted.
    block_size : int, optional
        The size of a block in bytes, 64 KiB to 128 GiB. A size below 4 MiB needs a smaller `largest_chunk`, too.
    largest_chunk : int, optional
        The largest chunk in bytes, from 256 to the smaller of a block and 1 GiB. Larger memory is a dedicated
        allocation.

    Raises
    ------
    InvalidArgumentError
        An option is invalid.
    VkgdrError
        As for `vkgdr.Memory`.

    Examples
    --------
    >>> import vkgdr, vkgdr.pool
    >>> pool = vkgdr.pool.Pool(vkgdr.Vkgdr.open_primary_context())
    >>> with pool.allocate(512) as memory:
    ...     memory.buf[:4] = b"gain"
    """

    def __init__(
        self,
        allocator: Allocator | Vkgdr,
        *,
        leading_bits_in_bin_id: int = 4,
        block_size: int = 32 * _MIB,
        largest_chunk: int = 4 * _MIB,
    ) -> None:
        if not isinstance(allocator, Allocator):
            allocator = Allocator(allocator)
        # Invalid for `vkgdr.Memory` too; an alignment below 64 would not reach the native check.
        if allocator.alignment & (allocator.alignment - 1):
            raise InvalidArgumentError(f"alignment must be 0 or a power of two, not {allocator.alignment}")
        options = allocator.kind, block_size, largest_chunk, leading_bits_in_bin_id, max(allocator.alignment, 64)
        self._open(allocator.owner, options, allocator.stream, PooledMemory)
        self.allocator = allocator

    # `allocate`, `trim` and the counts are methods and attributes of the native base class.
    __call__ = _vkgdr.Pool.allocate

    def bin_number(self, size: SupportsIndex) -> int:
        """Return the size class of a size; classes are numbered by their sizes, and larger memory by its own size."""
        size = operator.index(size) or 1
        number = self._piece_size(size)
        return size if number is None else number

    def alloc_size(self, bin_number: int) -> int:
        """Return the bytes that memory of a size class occupies: as pyopencl's, at least 1."""
        return max(bin_number, 1)

    def __repr__(self) -> str:
        return (
            f"<vkgdr.pool.Pool: {self.active_blocks} chunks of {in_bytes(self.active_bytes)} in use, "
            f"{self.held_blocks} held, {in_bytes(self.managed_bytes)} managed>"
        )
