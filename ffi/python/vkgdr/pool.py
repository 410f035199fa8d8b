"""Pools: small memory in about a microsecond, without a call to the drivers.

The shapes are pyopencl's: an `Allocator` says what memory to make, a `Pool` makes it in blocks and hands out pieces.
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
    """Makes memory of one kind: called with a size, it gives `vkgdr.Memory`, and None for a size of 0.

    Parameters
    ----------
    owner : vkgdr.Vkgdr
        The GPU. Unless it was opened with `vkgdr.Vkgdr.open_primary_context`, a CUDA context of it must be current when
        memory is made.
    kind : {"mapped", "host", "device"}, optional
        As for `vkgdr.Memory`.
    alignment : int, optional
        As for `vkgdr.Memory`.
    stream : object, optional
        What the memory is bound to, see `vkgdr.MemoryObject.bind_to_stream`.
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
        """Make memory of `size` bytes."""
        if size == 0:
            return None
        return Memory(self.owner, size, kind=self.kind, alignment=self.alignment, stream=self.stream)

    def __repr__(self) -> str:
        return f"<vkgdr.pool.Allocator: {self.kind} memory of {self.owner!r}>"


class PooledMemory(MemoryObject):
    """Memory from a `Pool`, which goes back there when nothing uses it any more.

    It does everything that `vkgdr.Memory` does, but for being exported to other processes. It is not given out again
    while the device may still use it: see `Pool`.
    """

    def __init__(self, *_arguments: object) -> None:
        raise TypeError("pooled memory comes from a pool: use pool.allocate(size)")

    # Without the device's address: asking for it means that the device may use the memory.
    def __repr__(self) -> str:
        if self.freed:
            return "<vkgdr.pool.PooledMemory: freed>"
        host = "no host view" if self.host_ptr is None else f"host_ptr={self.host_ptr:#x}"
        return f"<vkgdr.pool.PooledMemory: {in_bytes(len(self))}, {self.kind}, {host}>"


class Pool:
    """Hands out pieces of blocks that it asked the drivers for before.

    A pool gives memory of one kind, in one CUDA context: the primary one if the owner retains that, else the one that
    is current when the pool is made. It may be used from any thread, whichever context is current there. Sizes are
    rounded up to size classes. Blocks that nobody uses are kept until `free_held` or `trim`, and go with the pool;
    memory in use keeps its block.

    **Memory that goes back is not given out again while the device may still use it.** Memory whose device address
    nobody asked for, through `device_ptr`, an interface or a copy by CUDA, is given out again at once. Memory bound to
    a stream is given out again at once for that stream, and elsewhere after an event. For all other the pool waits for
    the context, once for many pieces, before it makes a new block.

    Parameters
    ----------
    allocator : Allocator or Vkgdr
        What memory to make. A handle stands for an `Allocator` of it, of mapped memory.
    leading_bits_in_bin_id : int, optional
        How finely sizes are told apart, 0 to 6: with 4, 16 sizes for each doubling, and less than 6 % are wasted.
    block_size : int, optional
        Bytes that are asked of the drivers at a time, 64 KiB to 128 GiB. Less than 4 MiB needs a smaller
        `largest_piece`, too.
    largest_piece : int, optional
        What is larger gets an allocation of its own. In bytes, at least 256, at most a block and 1 GiB.

    Raises
    ------
    InvalidArgumentError
        An option that cannot be.
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
        # What `vkgdr.Memory` refuses, also where pieces are aligned to more.
        if allocator.alignment & (allocator.alignment - 1):
            raise InvalidArgumentError(f"the alignment must be 0 or a power of two, not {allocator.alignment}")
        # Both sides see a block in pages of 4096 bytes at least: pieces cannot be aligned to more.
        if allocator.alignment > 4096:
            raise InvalidArgumentError(f"a pool aligns to at most 4096 bytes, not {allocator.alignment}")
        alignment = max(allocator.alignment, 64)
        self._pool = _vkgdr.Pool(
            allocator.owner, allocator.kind, block_size, largest_piece, leading_bits_in_bin_id, alignment
        )
        self.allocator = allocator

    def _take(self, size: SupportsIndex) -> Block:
        """Take a piece, for pycuda's memory objects."""
        return self._pool.allocate(size, self._stream)

    def allocate(self, size: SupportsIndex) -> PooledMemory:
        """Hand out memory. What is in it is undefined.

        Parameters
        ----------
        size : int
            The number of bytes, more than 0.

        Raises
        ------
        AllocationError
            There is no room, also after everything that is held was freed.
        InvalidArgumentError
            The size is 0.
        """
        memory = PooledMemory.__new__(PooledMemory)
        # Not by `_take`: that is a tenth of all that this takes.
        memory._block = self._pool.allocate(size, self._stream)
        memory._owner = self._owner
        return memory

    __call__ = allocate

    def trim(self, keep: int = 0) -> int:
        """Give blocks that nobody uses back to the drivers, until no more than `keep` bytes are managed.

        Does not wait: what the device may still use stays.

        Returns
        -------
        int
            The bytes given back.
        """
        return self._pool.trim(keep)

    def free_held(self) -> None:
        """Wait for the context, and give every block that nobody uses back to the drivers."""
        self._pool.free_held()

    def stop_holding(self) -> None:
        """Free what is held, and from now on give a block back as soon as nobody uses it."""
        self._pool.stop_holding()

    @property
    def held_blocks(self) -> int:
        """How many free pieces are kept, those included that wait for the device."""
        return self._pool.held_blocks

    @property
    def active_blocks(self) -> int:
        """How many pieces are in use."""
        return self._pool.active_blocks

    @property
    def managed_bytes(self) -> int:
        """The bytes that the pool has from the drivers."""
        return self._pool.managed_bytes

    @property
    def active_bytes(self) -> int:
        """The bytes that are in use, as they were asked for."""
        return self._pool.active_bytes

    def bin_number(self, size: SupportsIndex) -> int:
        """Tell which size class a size falls into; classes are numbered by their sizes.

        Raises
        ------
        InvalidArgumentError
            The size is 0, or too large for a piece: such memory gets an allocation of its own.
        """
        piece = self._pool.piece_size(size)
        if piece is None:
            raise InvalidArgumentError(f"no piece of this pool has {in_bytes(operator.index(size))}")
        return piece

    def alloc_size(self, bin_number: int) -> int:
        """Give the bytes that a piece of a size class takes up."""
        return bin_number

    def __repr__(self) -> str:
        return (
            f"<vkgdr.pool.Pool: {self.active_blocks} pieces of {in_bytes(self.active_bytes)} in use, "
            f"{self.held_blocks} held, {in_bytes(self.managed_bytes)} managed>"
        )
