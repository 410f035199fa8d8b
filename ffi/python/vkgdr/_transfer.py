"""Copies between a memory object and the host, and between memory objects.

The CPU copies where it can see the memory, after the stream's work; CUDA copies where it cannot.
"""

from __future__ import annotations

import operator

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError
from vkgdr._words import in_bytes
from vkgdr.stream import NULL_STREAM, handle_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

    from vkgdr._facts import Facts
    from vkgdr._vkgdr import Block, HostBuffer
    from vkgdr.typing import StreamLike

# How much of a long pattern the host repeats; the device doubles it from there on.
_CHUNK = 64 << 10


def stream_of(block: Block, stream: StreamLike | None) -> int:
    """Give the stream to use: the one asked for, else the bound one, else the legacy default stream."""
    if stream is not None:
        return handle_of(stream)
    bound = block.bound_stream
    return NULL_STREAM if bound is None else bound


def settle(memory: Facts, stream: StreamLike | None) -> None:
    """Wait for the stream asked for, else for the bound one, so that the CPU may use the memory."""
    if stream is not None:
        _vkgdr.stream_synchronize(memory._block, handle_of(stream))
    else:
        memory._block.wait_for_stream()


def invalidate_edges(memory: Facts, offset: SupportsIndex, size: int) -> None:
    """Invalidate the atoms at both ends of a range that are only partly within it, before the CPU writes to the range.

    The flush writes whole atoms: what lies beyond the range in the first and the last must not be stale.
    """
    # Not NumPy's numbers, whose sums may overflow.
    first = operator.index(offset)
    atom, start = memory.non_coherent_atom_size, memory._block.offset + first
    if size and start % atom:
        memory.invalidate(first, 1)
    if size and (start + size) % atom:
        memory.invalidate(first + size - 1, 1)


def _saved(source: HostBuffer) -> HostBuffer:
    """Copy host bytes of memory of this package, which invalidating might change; give others back."""
    if _vkgdr.find_host(source.address, source.nbytes) is None:
        return source
    import ctypes

    return _vkgdr.HostBuffer(ctypes.string_at(source.address, source.nbytes), False)


def to_host(memory: Facts, offset: int, target: HostBuffer, size: int, stream: StreamLike | None) -> None:
    """Copy `size` bytes at `offset` to the host, and wait."""
    block = memory._block
    if memory.host_ptr is not None:
        settle(memory, stream)
        memory.invalidate(offset, size)
        block.read(offset, size, target)
    else:
        queue = stream_of(block, stream)
        _vkgdr.copy(target, (0, 0, 0), block, (offset, 0, 0), (size, 1, 1), queue, True)


def from_host(memory: Facts, offset: int, source: HostBuffer, stream: StreamLike | None) -> None:
    """Copy host bytes to `offset`, and wait."""
    block = memory._block
    if memory.host_ptr is not None:
        settle(memory, stream)
        if not memory.is_coherent:
            source = _saved(source)
            invalidate_edges(memory, offset, source.nbytes)
        block.write(offset, source)
        memory.flush(offset, source.nbytes)
    else:
        queue = stream_of(block, stream)
        _vkgdr.copy(block, (offset, 0, 0), source, (0, 0, 0), (source.nbytes, 1, 1), queue, True)


def between(memory: Facts, offset: int, source: Block, stream: int, after: int | None = None) -> None:
    """Copy all of `source` to `offset` on the device, after the work of the stream `after`, wait and invalidate."""
    to = memory._block
    if after is not None and after != stream:
        # Whose context the stream is probably of: that of memory of another library is not known.
        lead = to if source.is_foreign else source
        _vkgdr.stream_wait(to, stream, _vkgdr.record(lead, after, []))
    _vkgdr.copy(to, (offset, 0, 0), source, (0, 0, 0), (source.nbytes, 1, 1), stream, True)
    memory.invalidate(offset, source.nbytes)


def fill(memory: Facts, offset: int, size: int, pattern: bytes, stream: StreamLike | None) -> None:
    """Repeat a pattern over a range, and wait."""
    if size % len(pattern):
        raise InvalidArgumentError(f"the size, {in_bytes(size)}, is not a multiple of the pattern's {len(pattern)}")
    block = memory._block
    if memory.host_ptr is not None:
        settle(memory, stream)
        invalidate_edges(memory, offset, size)
        block.fill(offset, size, pattern)
        memory.flush(offset, size)
    elif len(pattern) in (1, 2, 4):
        queue = stream_of(block, stream)
        _vkgdr.fill(block, offset, pattern, size // len(pattern), queue, True)
    else:
        from_host(memory, offset, _vkgdr.HostBuffer(pattern * (size // len(pattern)), False), stream)


def repeat(block: Block, start: int, count: int, unit: bytes, stream: int) -> HostBuffer:
    """Repeat a pattern that CUDA has no fill for, by copies. Give the host bytes that the stream still uses."""
    chunk = _vkgdr.HostBuffer(unit * (min(count, max(_CHUNK, len(unit))) // len(unit)), False)
    _vkgdr.copy(block, (start, 0, 0), chunk, (0, 0, 0), (chunk.nbytes, 1, 1), stream)
    done = chunk.nbytes
    while done < count:
        more = min(done, count - done)
        _vkgdr.copy(block, (start + done, 0, 0), block, (start, 0, 0), (more, 1, 1), stream)
        done += more
    return chunk
