"""Copies between a memory object and the host, and between memory objects.

The CPU copies memory with a host view, after the stream's work; CUDA copies memory without one.
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

# The bytes of a repeated pattern that the host writes; device copies double them from there on.
_CHUNK = 64 << 10


def stream_of(block: Block, stream: StreamLike | None) -> int:
    """Return the stream to use: `stream`, else the bound stream, else the legacy default stream."""
    if stream is not None:
        return handle_of(stream)
    bound = block.bound_stream
    return NULL_STREAM if bound is None else bound


def settle(memory: Facts, stream: StreamLike | None) -> None:
    """Wait for `stream`, else for the bound stream, so that the CPU may use the memory."""
    if stream is not None:
        _vkgdr.stream_synchronize(memory._block, handle_of(stream))
    else:
        memory._block.wait_for_stream()


def invalidate_edges(memory: Facts, offset: SupportsIndex, size: int) -> None:
    """Invalidate the partial atoms at both ends of a range, before the CPU writes to the range.

    The later flush writes whole atoms, so the host's copy of the bytes beside the range must not be stale.
    """
    # A Python int: sums of NumPy integers may overflow.
    first = operator.index(offset)
    atom, start = memory.non_coherent_atom_size, memory._block.offset + first
    if size and start % atom:
        memory.invalidate(first, 1)
    if size and (start + size) % atom:
        memory.invalidate(first + size - 1, 1)


def _saved(source: HostBuffer) -> HostBuffer:
    """Save host bytes that lie in this package's memory: an invalidate may change them. Return others unchanged."""
    if _vkgdr.find_host(source.address, source.nbytes) is None:
        return source
    import ctypes

    return _vkgdr.HostBuffer(ctypes.string_at(source.address, source.nbytes), False)


def to_host(memory: Facts, offset: int, target: HostBuffer, size: int, stream: StreamLike | None) -> None:
    """Copy `size` bytes at `offset` to the host and wait."""
    block = memory._block
    if memory.host_ptr is not None:
        settle(memory, stream)
        memory.invalidate(offset, size)
        block.read(offset, size, target)
    else:
        queue = stream_of(block, stream)
        _vkgdr.copy(target, (0, 0, 0), block, (offset, 0, 0), (size, 1, 1), queue, True)


def from_host(memory: Facts, offset: int, source: HostBuffer, stream: StreamLike | None) -> None:
    """Copy host bytes to `offset` and wait."""
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
        # The stream's context is taken to be the source's; that of another library's memory is unknown.
        lead = to if source.is_foreign else source
        _vkgdr.stream_wait(to, stream, _vkgdr.record(lead, after, []))
    _vkgdr.copy(to, (offset, 0, 0), source, (0, 0, 0), (source.nbytes, 1, 1), stream, True)
    memory.invalidate(offset, source.nbytes)


def fill(memory: Facts, offset: int, size: int, pattern: bytes, stream: StreamLike | None) -> None:
    """Fill a range with a repeated pattern and wait."""
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
    """Fill with a pattern by doubling copies, for patterns without a CUDA fill. Return the host bytes still in use."""
    chunk = _vkgdr.HostBuffer(unit * (min(count, max(_CHUNK, len(unit))) // len(unit)), False)
    _vkgdr.copy(block, (start, 0, 0), chunk, (0, 0, 0), (chunk.nbytes, 1, 1), stream)
    done = chunk.nbytes
    while done < count:
        more = min(done, count - done)
        _vkgdr.copy(block, (start + done, 0, 0), block, (start, 0, 0), (more, 1, 1), stream)
        done += more
    return chunk
