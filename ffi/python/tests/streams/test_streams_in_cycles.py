"""Streams of other libraries in garbage cycles with what is bound to them: finalizers run before any drop."""

import gc
import weakref

import pytest
import vkgdr
from neighbours import OwnStream, Stream
from vkgdr.ring import Ring


class EndsByFinalize(Stream):
    """A stream that a ``weakref.finalize`` destroys."""

    def __init__(self, cuda, ended):
        super().__init__(cuda.create_stream())
        weakref.finalize(self, self._end, cuda, ended, self._handle)

    @staticmethod
    def _end(cuda, ended, handle):
        ended.append(handle)
        cuda.destroy_stream(handle)


def bound_ring(gpu, stream):
    ring = Ring(gpu, 64, 64)
    ring.bind_stream(stream)
    return ring


def bound_chunk(gpu, stream, size=64):
    pool = vkgdr.pool.Pool(vkgdr.pool.Allocator(gpu, stream=stream))
    memory = pool.allocate(size)
    # Memory whose device address was never asked for returns to its pool without an event: ask for it.
    assert memory.device_ptr
    return pool, memory


BOUND = {
    "memory": lambda gpu, stream: vkgdr.Memory(gpu, 64, stream=stream),
    "a pool's memory": bound_chunk,
    "a pool's large memory": lambda gpu, stream: bound_chunk(gpu, stream, 1 << 26),
    "a region": lambda gpu, stream: vkgdr.Memory(gpu, 64, stream=stream)[:5],
    "a ring": bound_ring,
}


@pytest.mark.parametrize("kind", [OwnStream, EndsByFinalize])
@pytest.mark.parametrize("bind", BOUND.values(), ids=BOUND)
def test_a_stream_of_another_library_outlives_what_is_bound_to_it(cuda, gpu, caplog, bind, kind):
    class Worker:
        def __init__(self):
            self.stream = kind(cuda, ended)
            self.bound = bind(gpu, self.stream)
            self.itself = self

    ended = []
    Worker()
    gc.collect()
    # The release did not fail to record an event on the stream.
    assert caplog.records == []
    assert len(ended) == 1
