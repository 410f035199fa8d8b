"""The objects that memory and copies keep alive, such as streams and host bytes: until their last use, no longer."""

import contextlib
import gc
import sys
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest
import simulator
import vkgdr
from capsules import Taken
from neighbours import BorrowedBytes, ByDlpack, OwnStream, Pinned, Stream, every_kind, in_threads, wait_at
from vkgdr import _vkgdr
from vkgdr import stream as streams
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


# ---- what a copy was lent, while the device may use it ---------------------------------------------------------------


SIZE = 4096
STREAM_CAPTURE_UNSUPPORTED = 900
ILLEGAL_ADDRESS = 700
OUT_OF_DEVICE_MEMORY = -2


@pytest.fixture
def handle(cuda, context):
    with cuda.stream() as handle:
        yield handle


@pytest.fixture
def memory(gpu, handle):
    memory = vkgdr.Memory(gpu, SIZE, kind="device", stream=handle)
    yield memory
    memory.free()
    gpu.collect()


@pytest.fixture
def lend(cuda, context):
    """Return a function that makes host bytes, or device memory of another library."""
    with contextlib.ExitStack() as made:

        def lend(what="host bytes"):
            if what == "host bytes":
                pinned = made.enter_context(Pinned(cuda, SIZE))
                lent, pinned.bytes = pinned.bytes, None
                return lent
            pointer = cuda.allocate(SIZE)
            made.callback(cuda.free, pointer)
            return BorrowedBytes(pointer, SIZE)

        yield lend


def is_alive(seen):
    # Each use of an event lets go of what finished work was lent.
    assert vkgdr._vkgdr.complete().is_complete
    gc.collect()
    return seen() is not None


@pytest.mark.parametrize("by", ["collect", "an allocation without room"])
def test_what_a_finished_copy_was_lent_is_freed(cuda, gpu, memory, handle, lend, simulated, by):
    lent = lend()
    seen = weakref.ref(lent)
    with cuda.hold(handle) as gate:
        ops.copy(memory, lent, stream=handle, is_blocking=False)
        del lent
        gpu.collect()
        assert seen() is not None
        gate.open()
        cuda.synchronize_stream(handle)
    if by == "collect":
        gpu.collect()
    else:
        with simulator.vulkan.fail("vkAllocateMemory", 1, OUT_OF_DEVICE_MEMORY):
            vkgdr.Memory(gpu, SIZE).free()
    assert seen() is None


@pytest.mark.parametrize("copy", [vkgdr.Memory.copy_to_host, vkgdr.Memory.copy_from_host])
def test_host_bytes_outlive_a_copy_whose_wait_fails(cuda, memory, handle, lend, simulated, copy):
    lent = lend()
    seen = weakref.ref(lent)
    with cuda.hold(handle) as gate:
        with (
            simulator.fail("cuStreamSynchronize", 1, STREAM_CAPTURE_UNSUPPORTED),
            pytest.raises(vkgdr.VkgdrError, match="cuStreamSynchronize"),
        ):
            copy(memory, lent)
        del lent
        assert is_alive(seen)
        gate.open()
        cuda.synchronize_stream(handle)
        assert not is_alive(seen)


@pytest.mark.parametrize(("code", "kept"), [(STREAM_CAPTURE_UNSUPPORTED, True), (ILLEGAL_ADDRESS, False)])
def test_host_bytes_are_kept_for_ever_unless_the_device_can_be_waited_for_or_works_no_more(
    cuda, memory, handle, lend, simulated, caplog, code, kept
):
    lent = lend()
    seen = weakref.ref(lent)
    with cuda.hold(handle):
        with (
            simulator.fail("cuStreamSynchronize", 1, code),
            simulator.fail("cuEventRecord", 1, code),
            simulator.fail("cuStreamSynchronize", 2, code),
            pytest.raises(vkgdr.VkgdrError, match="cuStreamSynchronize"),
        ):
            memory.copy_from_host(lent)
        del lent
    assert is_alive(seen) is kept
    assert any("leaking" in record.getMessage() for record in caplog.records) is kept


def test_a_copy_asks_about_few_of_those_that_are_pending(cuda, gpu, handle, simulated):
    class Bytes(np.ndarray):
        pass

    memory = vkgdr.Memory(gpu, 64, kind="device", stream=handle)

    def copy():
        host = np.zeros(64, "u1").view(Bytes)
        ops.copy(memory, host, stream=handle, is_blocking=False)
        return weakref.ref(host)

    with cuda.hold(handle):
        seen = [copy() for _ in range(40)]
        before = simulator.calls("cuEventQuery")
        seen.append(copy())
        assert simulator.calls("cuEventQuery") - before <= 8
        assert all(map(is_alive, seen))
    cuda.synchronize()
    assert not any(map(is_alive, seen))


def test_the_bytes_of_a_host_tensor_are_leaked_where_the_copy_cannot_be_waited_for(memory, simulated, caplog):
    with (
        simulator.fail("cuStreamSynchronize", 2, STREAM_CAPTURE_UNSUPPORTED),
        simulator.fail("cuEventRecord", 1, STREAM_CAPTURE_UNSUPPORTED),
        simulator.fail("cuStreamSynchronize", 3, STREAM_CAPTURE_UNSUPPORTED),
        pytest.raises(vkgdr.VkgdrError, match="cuStreamSynchronize"),
    ):
        memory.__dlpack__(dl_device=(1, 0))
    assert "leaking" in caplog.text


@pytest.mark.parametrize("what", ["host bytes", "another library's memory"])
@pytest.mark.parametrize("direction", ["from", "to"])
def test_what_a_captured_copy_was_lent_is_leaked_and_its_event_never_asked_for(
    cuda, gpu, handle, lend, simulated, caplog, direction, what
):
    # Bound memory is left out: the device may use it whenever the graph is launched.
    memory, lent = vkgdr.Memory(gpu, SIZE, kind="device"), lend(what)
    seen = weakref.ref(lent)
    with cuda.capture(handle):
        sides = (memory, lent) if direction == "from" else (lent, memory)
        before = simulator.calls("cuEventQuery")
        ops.copy(*sides, stream=handle, is_blocking=False)
        del lent, sides
        assert is_alive(seen)
        assert simulator.calls("cuEventQuery") == before
    assert is_alive(seen)
    assert simulator.calls("cuEventQuery") == before
    assert "leaking" in caplog.text


# ---- memory bound to another stream, or to none, while a thread uses the one that it was bound to --------------------


@pytest.fixture
def bound(cuda, gpu):
    """Return a function that allocates memory bound to a stream of its own, and the handles of those that ended."""
    ended = []

    def bound(kind="mapped"):
        return vkgdr.Memory(gpu, SIZE, kind=kind, stream=OwnStream(cuda, ended))

    yield bound, ended
    gpu.collect()


WAITS = {
    "map": lambda memory: memory.map("r").release(),
    "copy_to_host": lambda memory: memory.copy_to_host(bytearray(SIZE)),
    "copy_from_host": lambda memory: memory.copy_from_host(bytes(SIZE)),
    "memset": lambda memory: memory.memset(1),
    "ops.copy": lambda memory: ops.copy(bytearray(SIZE), memory),
    "unbind_stream": lambda memory: memory.unbind_stream(),
    "wait_for_stream": lambda memory: memory._view.wait_for_stream(),
    "DLPack on the CPU": lambda memory: np.from_dlpack(memory, device="cpu", copy=True),
    "a copy by DLPack": lambda memory: memory.__dlpack__(copy=True),
    "pickle": lambda memory: memory.__reduce_ex__(5),
}


@every_kind
@pytest.mark.parametrize("use", WAITS)
def test_a_stream_that_a_call_waits_for_outlives_its_binding(cuda, context, bound, kind, use):
    if kind == "device" and use == "map":
        pytest.skip("device memory is not mapped")
    allocate, ended = bound
    memory = allocate(kind)
    old = memory.stream

    def run():
        with context.pushed():
            WAITS[use](memory)

    with cuda.stream() as other, cuda.stream() as held:
        with cuda.hold(held) as gate:
            _vkgdr.stream_wait(memory._view, old, _vkgdr.record(memory._view, held))
            thread = threading.Thread(target=run)
            thread.start()
            # Too short a wait can only miss a defect.
            thread.join(0.05)
            waited = thread.is_alive()
            memory.bind_to_stream(other)
            gc.collect()
            during = list(ended)
            gate.open()
            thread.join()
        assert waited
        assert during == []
        assert ended == [old]
        memory.free()


def test_the_interface_keeps_the_stream_that_it_names(bound):
    allocate, ended = bound
    memory = allocate()
    old = memory.stream
    for array in (memory, vkgdr.arrays.as_cuda_array(memory)):
        interface = array.__cuda_array_interface__
        assert interface["stream"] == old
    memory.unbind_stream()
    gc.collect()
    assert ended == []
    del interface
    gc.collect()
    assert ended == [old]


def test_the_number_of_the_bound_stream_keeps_nothing(bound):
    allocate, ended = bound
    memory = allocate()
    number = memory.stream
    assert type(number) is int
    memory.unbind_stream()
    assert ended == [number]


def test_a_mapping_of_memory_of_this_package_shares_its_binding(gpu):
    memory = vkgdr.Memory(gpu, SIZE)
    mapping = vkgdr.Mapping(gpu, memory.device_ptr, SIZE, readonly=True)
    assert (mapping.device_ptr, mapping.host_ptr, mapping.readonly) == (memory.device_ptr, memory.host_ptr, True)
    mapping.bind_to_stream(streams.stream())
    del mapping
    gc.collect()
    memory.memset(1)
    memory.free()


class WithKeeper:
    """A stream of another library that has an attribute of the name by which ours name what keeps them."""

    _keeper = None

    def __init__(self):
        self.stream = streams.stream()

    def __cuda_stream__(self):
        return 0, int(self.stream)


def test_what_is_bound_is_a_stream_and_kept(gpu):
    memory = vkgdr.Memory(gpu, SIZE)
    memory.bind_to_stream(WithKeeper())
    gc.collect()
    memory.memset(1)
    with pytest.raises(TypeError, match="None is not a stream"):
        memory.bind_to_stream(None)
    memory.free()


def test_threads_that_bind_and_use_memory_at_once_use_live_streams(cuda, bound, gpu, context):
    allocate, ended = bound
    memory = allocate("device")
    end = time.monotonic() + 0.5

    def use(work):
        with context.pushed():
            while time.monotonic() < end:
                work()

    others = [vkgdr.Memory(gpu, SIZE, kind="device") for _ in range(3)]
    works = [
        lambda: memory.copy_to_host(bytearray(SIZE)),
        lambda: memory.copy_from_host(bytes(SIZE)),
        lambda: memory.copy_from_device(others[0]),
        lambda: ops.copy(others[1], ByDlpack(memory)),
        lambda: ops.copy(others[2], BorrowedBytes(memory.device_ptr, SIZE)),
        lambda: ops.fill(memory, bytes(range(8))),
        lambda: memory.__dlpack__(stream=1),
        lambda: memory.bind_to_stream(OwnStream(cuda, ended)),
        memory.unbind_stream,
    ]
    in_threads(*(partial(use, work) for work in works))
    last = memory.stream
    memory.free()
    assert last is None or last in ended


def test_objects_go_after_a_free_by_a_library_that_has_let_go_of_the_interpreter(run_python):
    """As PyTorch does when a tensor is dropped within a call of ours. PyO3 takes the thread for attached then."""
    code = """
        import native, weakref, vkgdr, vkgdr.stream
        library = native.torch_allocator()

        class Tensor:
            def __init__(self):
                data = library.vkgdr_torch_alloc_mapped(64, 0, None)
                self.__cuda_array_interface__ = {"shape": (64,), "typestr": "|u1", "data": (data, False), "version": 3}

            def __del__(self):
                library.vkgdr_torch_free(self.__cuda_array_interface__["data"][0], 64, 0, None)

        tensor, stream = Tensor(), vkgdr.stream.stream()
        vkgdr.memory_of(tensor).record_stream(stream)
        gone = weakref.ref(stream)
        del stream
        view = vkgdr.host_view(tensor)
        del tensor
        assert gone() is not None
        del view
        vkgdr.Vkgdr.open_primary_context(0).collect()
        assert gone() is None
    """
    run_python(code)
