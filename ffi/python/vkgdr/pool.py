"""Pools: small allocations in about a microsecond, without a driver call.

The interface is pyopencl's: an `Allocator` describes the memory; a `Pool` allocates blocks of it and lends chunks of
them.
"""

from __future__ import annotations

import operator

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError
from vkgdr._object import Memory, MemoryObject
from vkgdr._words import in_bytes
from vkgdr.stream import handle_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

    from vkgdr._handle import Vkgdr
    from vkgdr._vkgdr import Block
    from vkgdr.typing import Kind, StreamLike

__all__ = ["Allocator", "Pool", "PooledMemory"]

_MIB = 1 << 20


class Allocator:
    """Allocates memory of one kind: called with a size, returns `vkgdr.Memory`, or None for a size of 0.

    Parameters
    ----------
    owner : vkgdr.Vkgdr
        The GPU. Unless it was opened with `vkgdr.Vkgdr.open_primary_context`, a CUDA context of it must be current at
        each call.
    kind : {"mapped", "host", "device"}, optional
        As for `vkgdr.Memory`.
    alignment : int, optional
        As for `vkgdr.Memory`.
    stream : object, optional
        The stream to bind memory to, see `vkgdr.MemoryObject.bind_to_stream`.
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
        self.alignment = int(alignment)
        self.stream = stream

    def __call__(self, size: int) -> Memory | None:
        """Allocate `size` bytes."""
        if size == 0:
            return None
        return Memory(self.owner, size, kind=self.kind, alignment=self.alignment, stream=self.stream)

    def __repr__(self) -> str:
        return f"<vkgdr.pool.Allocator: {self.kind} memory of {self.owner!r}>"


class PooledMemory(MemoryObject):
    """Memory lent by a `Pool`, which returns there when its last user is dropped.

    It has the methods of `vkgdr.Memory`, except export to other processes. It is not reused while the device may still
    use it: see `Pool`.
    """

    def __init__(self, *_arguments: object) -> None:
        raise TypeError("pooled memory comes from a pool: use pool.allocate(size)")

    # Omits the device address: reading it marks the memory as possibly used by the device.
    def __repr__(self) -> str:
        if self.freed:
            return "<vkgdr.pool.PooledMemory: freed>"
        host = "no host view" if self.host_ptr is None else f"host_ptr={self.host_ptr:#x}"
        return f"<vkgdr.pool.PooledMemory: {in_bytes(len(self))}, {self.kind}, {host}>"


class Pool:
    """Lends chunks of large blocks that it allocates from the drivers.

    A pool's memory is of one kind and in one CUDA context: the owner's primary context if it retains one, else the
    context that is current when the pool is created. A pool may be used from any thread, with any current context.
    Sizes are rounded up to size classes. Unused blocks are kept until `free_held` or `trim`, and freed with the pool;
    memory in use keeps its block alive.

    **Freed memory is not reused while the device may still use it.** Memory whose device address was never read,
    through `device_ptr`, an array interface or a copy by CUDA, can be reused at once. Memory bound to a stream can be
    reused at once on that stream, and elsewhere after an event. For all other memory the pool waits for the context,
    once for many chunks, before it allocates a new block.

    Parameters
    ----------
    allocator : Allocator or Vkgdr
        The memory to allocate. A handle is short for an `Allocator` of its mapped memory.
    leading_bits_in_bin_id : int, optional
        The resolution of size classes, 0 to 6: with 4 there are 16 for each doubling of the size, and less than 6 % is
        wasted.
    block_size : int, optional
        The size of a block in bytes, 64 KiB to 128 GiB. A size below 4 MiB needs a smaller `largest_piece`, too.
    largest_piece : int, optional
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
        largest_piece: int = 4 * _MIB,
    ) -> None:
        if not isinstance(allocator, Allocator):
            allocator = Allocator(allocator)
        self._owner = allocator.owner
        self._stream = None if allocator.stream is None else (handle_of(allocator.stream), allocator.stream)
        # Invalid for `vkgdr.Memory` too; an alignment below 64 would not reach the native check.
        if allocator.alignment & (allocator.alignment - 1):
            raise InvalidArgumentError(f"alignment must be 0 or a power of two, not {allocator.alignment}")
        # Blocks are aligned to pages of at least 4096 bytes, so chunks cannot be aligned to more.
        if allocator.alignment > 4096:
            raise InvalidArgumentError(f"a pool aligns to at most 4096 bytes, not {allocator.alignment}")
        alignment = max(allocator.alignment, 64)
        self._pool = _vkgdr.Pool(
            allocator.owner, allocator.kind, block_size, largest_piece, leading_bits_in_bin_id, alignment
        )
        self.allocator = allocator

    def _take(self, size: SupportsIndex) -> Block:
        """Allocate a chunk, for pycuda's memory objects."""
        return self._pool.allocate(size, self._stream)

    def allocate(self, size: SupportsIndex) -> PooledMemory:
        """Allocate memory. Its contents are undefined.

        Parameters
        ----------
        size : int
            The number of bytes, at least 1.

        Raises
        ------
        AllocationError
            Memory is exhausted, even after unused blocks were freed.
        InvalidArgumentError
            The size is 0.
        """
        memory = PooledMemory.__new__(PooledMemory)
        # Not through `_take`: that call would cost a tenth of the time.
        memory._block = self._pool.allocate(size, self._stream)
        memory._owner = self._owner
        return memory

    __call__ = allocate

    def trim(self, keep: int = 0) -> int:
        """Return unused blocks to the drivers until at most `keep` bytes are managed.

        Does not wait: memory that the device may still use is kept.

        Returns
        -------
        int
            The number of bytes returned.
        """
        return self._pool.trim(keep)

    def free_held(self) -> None:
        """Wait for the context, and return all unused blocks to the drivers."""
        self._pool.free_held()

    def stop_holding(self) -> None:
        """Return all unused blocks, and from now on return each block as soon as it is unused."""
        self._pool.stop_holding()

    @property
    def held_blocks(self) -> int:
        """The number of free chunks, including pending ones that wait for the device."""
        return self._pool.held_blocks

    @property
    def active_blocks(self) -> int:
        """The number of chunks in use."""
        return self._pool.active_blocks

    @property
    def managed_bytes(self) -> int:
        """The bytes that the pool has allocated from the drivers."""
        return self._pool.managed_bytes

    @property
    def active_bytes(self) -> int:
        """The bytes in use, as requested."""
        return self._pool.active_bytes

    def bin_number(self, size: SupportsIndex) -> int:
        """Return the size class of a size; classes are numbered by their sizes.

        Raises
        ------
        InvalidArgumentError
            The size is 0, or larger than the largest chunk.
        """
        piece = self._pool.piece_size(size)
        if piece is None:
            raise InvalidArgumentError(f"no chunk of this pool has {in_bytes(operator.index(size))}")
        return piece

    def alloc_size(self, bin_number: int) -> int:
        """Return the bytes that a chunk of a size class occupies."""
        return bin_number

    def __repr__(self) -> str:
        return (
            f"<vkgdr.pool.Pool: {self.active_blocks} chunks of {in_bytes(self.active_bytes)} in use, "
            f"{self.held_blocks} held, {in_bytes(self.managed_bytes)} managed>"
        )
