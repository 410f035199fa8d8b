"""The objects that memory keeps alive, such as its stream: until its last user is dropped, and not longer."""

import contextlib
import gc
import sys
import weakref
from functools import partial

import numpy as np
import pytest
import simulator
import vkgdr
from capsules import Taken
from neighbours import OwnStream, Stream, in_threads, wait_at
from vkgdr.compat import pyopencl as ops
from vkgdr.ring import Ring


@pytest.fixture
def stream(cuda, context):
    return OwnStream(cuda)


def test_a_freed_memory_keeps_its_stream_until_the_last_view_goes(cuda, gpu):
    stream = OwnStream(cuda)
    seen = weakref.ref(stream)
    memory = vkgdr.Memory(gpu, 64, stream=stream)
    array = np.asarray(memory)
    del stream
    memory.free()
    gc.collect()
    assert seen() is not None
    del array, memory
    gc.collect()
    assert seen() is None


def test_memory_keeps_the_stream_that_it_is_bound_to_and_no_other(cuda, gpu):
    memory = vkgdr.Memory(gpu, 64)
    seen = []
    for _ in range(3):
        stream = OwnStream(cuda)
        seen.append(weakref.ref(stream))
        memory.bind_to_stream(stream)
        del stream
        gc.collect()
        assert [one() is not None for one in seen] == [False] * (len(seen) - 1) + [True]
    memory.unbind_stream()
    gc.collect()
    assert seen[-1]() is None


@pytest.mark.parametrize(("whose", "text"), [("ours", "context"), ("another library's", "another library")])
def test_memory_does_not_keep_a_stream_of_another_context_which_it_refuses(cuda, gpu, foreign, whose, text):
    memory = vkgdr.Memory(gpu, 64) if whose == "ours" else vkgdr.arrays.as_cuda_array(foreign).memory
    other = cuda.create_context()
    stream = OwnStream(cuda)
    seen = weakref.ref(stream)
    cuda.pop()
    with pytest.raises(vkgdr.InvalidArgumentError, match=text):
        memory.bind_to_stream(stream)
    del stream
    gc.collect()
    assert seen() is None
    other.destroy()


def test_a_resized_buffer_in_a_cycle_with_its_stream_is_collected(gpu, live):
    streams = simulator.ledger().get("CUDA stream")
    stream = vkgdr.stream.stream()
    stream.owner = vkgdr.compat.rmm.Buffer(gpu, size=64, stream=stream)
    stream.owner.resize(32)
    del stream
    gc.collect()
    assert (live(), simulator.ledger().get("CUDA stream")) == (0, streams)


def test_the_collector_does_not_end_the_stream_of_a_tensor(cuda, gpu):
    stream = OwnStream(cuda)
    seen = weakref.ref(stream)
    memory = vkgdr.Memory(gpu, 64, stream=stream)
    tensor = Taken(memory.__dlpack__(stream=-1))
    del stream
    memory.cycle = memory
    memory.free()
    del memory
    gc.collect()
    assert seen() is not None
    tensor.end()
    gc.collect()
    assert seen() is None


def test_a_free_beside_a_copy_on_another_thread_does_not_end_the_stream_first(cuda, gpu, context):
    def copy(memory):
        # The call raises because the memory was freed first, or it succeeds; it never uses a destroyed stream.
        with context.pushed(), contextlib.suppress(vkgdr.FreedError):
            memory.copy_to_host(bytearray(4096), stream=other)

    def free(memory, gate):
        memory.free()
        gate.open()

    with cuda.stream() as other:
        # The free may come first, and a real driver may let it wait for the held stream until the gate gives up.
        for _ in range(100 if simulator.available() else 2):
            memory = vkgdr.Memory(gpu, 4096, kind="device", stream=OwnStream(cuda))
            with cuda.hold(other) as gate:
                in_threads(partial(copy, memory), partial(free, memory, gate))


def test_a_stream_is_kept_once_however_often_it_is_bound(cuda, gpu, stream):
    memory = vkgdr.Memory(gpu, 64, stream=stream)
    before = sys.getrefcount(stream)
    for _ in range(20):
        memory.bind_to_stream(stream)
    assert sys.getrefcount(stream) == before


@pytest.mark.leaks("raw memory that is not freed leaks, by its contract")
def test_the_collector_does_not_free_what_is_freed_by_hand(gpu, simulated):
    before = gpu.stats()["live_allocations"]
    raw = vkgdr.Memory(gpu, 64).release_raw()
    raw.cycle = raw
    del raw
    gc.collect()
    assert gpu.stats()["live_allocations"] == before + 1


def test_a_query_that_fails_for_a_while_lets_go_of_nothing(cuda, gpu, simulated):
    class Bytes(np.ndarray):
        pass

    with cuda.stream() as stream:
        memory = vkgdr.Memory(gpu, 4096, kind="device")
        with cuda.hold(stream) as gate:
            host = np.zeros(4096, "u1").view(Bytes)
            seen = weakref.ref(host)
            event = ops.copy(memory, host, stream=stream, is_blocking=False)
            del host
            stream_capture_unsupported = 900
            with simulator.fail("cuEventQuery", 1, stream_capture_unsupported):
                try:
                    assert event.is_complete is False
                except vkgdr.VkgdrError as error:
                    assert error.cu_result == stream_capture_unsupported  # noqa: PT017
            gc.collect()
            assert seen() is not None
            gate.open()
        event.synchronize()
        gc.collect()
        assert seen() is None
        memory.unbind_stream()


STREAM_USES = {
    "a copy": lambda memory, stream: ops.copy(memory, bytes(4096), stream=stream, is_blocking=False),
    "record_stream": lambda memory, stream: memory.record_stream(stream),
    "bind_to_stream": lambda memory, stream: memory.bind_to_stream(stream),
}


@pytest.mark.parametrize("use", ["a copy", "record_stream"])
def test_memory_keeps_another_stream_that_uses_it_until_it_is_freed(cuda, gpu, stream, caplog, use):
    memory = vkgdr.Memory(gpu, 4096, kind="device", stream=stream)
    other = OwnStream(cuda)
    seen = weakref.ref(other)
    for _ in range(2):
        STREAM_USES[use](memory, other)
    del other
    gc.collect()
    assert seen() is not None
    with cuda.stream() as third, cuda.hold(third):
        # Waits for the two streams that it knows, not for the context.
        memory.free()
    gc.collect()
    assert seen() is None
    cuda.synchronize()
    gpu.collect()
    assert gpu.stats()["deferred_frees"] == 0
    assert caplog.records == []


@pytest.mark.parametrize("use", STREAM_USES)
@pytest.mark.parametrize("kind", ["PyTorch's", "external"])
def test_objects_for_one_stream_do_not_pile_up(cuda, gpu, kind, use):
    class OfTorch(Stream):
        """As of ``torch.cuda.current_stream()``, which makes an object at each call."""

        @property
        def cuda_stream(self):
            return self._handle

    make = OfTorch if kind == "PyTorch's" else vkgdr.stream.external_stream
    memory = vkgdr.Memory(gpu, 4096, kind="device")
    with cuda.stream() as handle:
        seen = []
        for _ in range(4):
            stream = make(handle)
            seen.append(weakref.ref(stream))
            STREAM_USES[use](memory, stream)
        del stream
        gc.collect()
        # A binding keeps the last one.
        assert sum(one() is not None for one in seen) == (use == "bind_to_stream")
        memory.free()
        cuda.synchronize()


@pytest.mark.parametrize("use", ["a copy", "DLPack"])
def test_a_stream_that_only_a_number_names_may_end_before_the_memory_that_it_used(cuda, gpu, stream, caplog, use):
    memory = vkgdr.Memory(gpu, 4096, kind="device", stream=stream)
    with cuda.stream() as other:
        if use == "a copy":
            ops.copy(memory, bytes(4096), stream=other, is_blocking=False)
        else:
            Taken(memory.__dlpack__(stream=other)).end()
    memory.free()
    assert gpu.stats()["deferred_frees"] == 0
    assert caplog.records == []


def test_work_on_another_stream_is_noted(cuda, gpu):
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        memory = vkgdr.Memory(gpu, 4096, kind="device", stream=1)
        ops.fill(memory, b"\x07", stream=stream)
        wait_at(gate, memory.free, cuda.current())


# ---- streams of other libraries in garbage cycles with what is bound to them: finalizers run before any drop


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
