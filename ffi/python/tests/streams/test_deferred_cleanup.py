"""`defer_cleanup` and streams: memory freed after a stream's work does not use the stream at the end of the block."""

import pytest
import vkgdr
from vkgdr.arrays import defer_cleanup
from vkgdr.pool import Source


@pytest.fixture
def current(cuda, no_context):
    """Make the primary context current, and return a handle of it."""
    cuda.push(cuda.retain_primary())
    yield vkgdr.Vkgdr.open_primary_context()
    cuda.pop()
    cuda.release_primary()


def test_bound_memory_waits_for_its_streams_work(cuda, current, caplog):
    with defer_cleanup():
        with cuda.stream() as stream:
            memory = vkgdr.Memory(current, 64, stream=stream)
            with cuda.hold(stream):
                memory.free()
                current.collect()
                assert current.stats()["deferred_frees"] == 1
        current.collect()
        assert current.stats()["deferred_frees"] == 0
    assert caplog.records == []


@pytest.mark.parametrize("pool", [False, True])
def test_memory_freed_on_a_stream_does_not_use_it_later(cuda, current, caplog, pool):
    source = Source(pool=pool)
    with defer_cleanup():
        with cuda.stream() as stream:
            address = source.allocate(100, 0, stream)
            source.free(address, stream)
        current.collect()
    source.close()
    assert caplog.records == []
