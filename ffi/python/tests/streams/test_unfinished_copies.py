"""What a copy was lent stays alive while the device may use it: host bytes, and memory of other libraries."""

import contextlib
import gc
import weakref

import pytest
import simulator
import vkgdr
from neighbours import BorrowedBytes, Pinned
from vkgdr.compat import pyopencl as ops

SIZE = 4096
STREAM_CAPTURE_UNSUPPORTED = 900
ILLEGAL_ADDRESS = 700
OUT_OF_DEVICE_MEMORY = -2


@pytest.fixture
def stream(cuda, context):
    with cuda.stream() as stream:
        yield stream


@pytest.fixture
def memory(gpu, stream):
    memory = vkgdr.Memory(gpu, SIZE, kind="device", stream=stream)
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
def test_what_a_finished_copy_was_lent_is_freed(cuda, gpu, memory, stream, lend, simulated, by):
    lent = lend()
    seen = weakref.ref(lent)
    with cuda.hold(stream) as gate:
        ops.copy(memory, lent, stream=stream, is_blocking=False)
        del lent
        gpu.collect()
        assert seen() is not None
        gate.open()
        cuda.synchronize_stream(stream)
    if by == "collect":
        gpu.collect()
    else:
        with simulator.vulkan.fail("vkAllocateMemory", 1, OUT_OF_DEVICE_MEMORY):
            vkgdr.Memory(gpu, SIZE).free()
    assert seen() is None


@pytest.mark.parametrize("copy", [vkgdr.Memory.copy_to_host, vkgdr.Memory.copy_from_host])
def test_host_bytes_outlive_a_copy_whose_wait_fails(cuda, memory, stream, lend, simulated, copy):
    lent = lend()
    seen = weakref.ref(lent)
    with cuda.hold(stream) as gate:
        with (
            simulator.fail("cuStreamSynchronize", 1, STREAM_CAPTURE_UNSUPPORTED),
            pytest.raises(vkgdr.VkgdrError, match="cuStreamSynchronize"),
        ):
            copy(memory, lent)
        del lent
        assert is_alive(seen)
        gate.open()
        cuda.synchronize_stream(stream)
        assert not is_alive(seen)


@pytest.mark.parametrize(("code", "kept"), [(STREAM_CAPTURE_UNSUPPORTED, True), (ILLEGAL_ADDRESS, False)])
def test_host_bytes_are_kept_for_ever_unless_the_device_can_be_waited_for_or_works_no_more(
    cuda, memory, stream, lend, simulated, caplog, code, kept
):
    lent = lend()
    seen = weakref.ref(lent)
    with cuda.hold(stream):
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
    cuda, gpu, stream, lend, simulated, caplog, direction, what
):
    # Bound memory is left out: the device may use it whenever the graph is launched.
    memory, lent = vkgdr.Memory(gpu, SIZE, kind="device"), lend(what)
    seen = weakref.ref(lent)
    with cuda.capture(stream):
        sides = (memory, lent) if direction == "from" else (lent, memory)
        before = simulator.calls("cuEventQuery")
        ops.copy(*sides, stream=stream, is_blocking=False)
        del lent, sides
        assert is_alive(seen)
        assert simulator.calls("cuEventQuery") == before
    assert is_alive(seen)
    assert simulator.calls("cuEventQuery") == before
    assert "leaking" in caplog.text
