"""``vkgdr.compat.pyopencl.copy``: the order of streams and events, kept objects, and the choice of CPU or CUDA."""

import gc
import threading
from unittest import mock

import numpy as np
import pytest
import simulator
import vkgdr
from everything import SIZE
from neighbours import BorrowedBytes, Pinned, device_bytes, wait_at
from vkgdr.compat import pyopencl as ops

DATA = bytes(range(256)) * (SIZE // 256)


def test_a_copy_that_does_not_block_happens_in_its_streams_order(cuda, memory):
    ops.fill(memory, b"\0", is_blocking=True)
    with Pinned(cuda, SIZE) as pinned, cuda.stream() as stream:
        pinned.bytes[:] = DATA
        with cuda.hold(stream) as gate:
            event = ops.copy(memory, pinned.bytes, stream=stream, is_blocking=False)
            assert not event.is_complete
            assert device_bytes(cuda, memory) == bytes(SIZE)
            gate.open()
            event.synchronize()
            assert event.is_complete
            assert device_bytes(cuda, memory) == DATA


def test_the_bound_stream_copies_by_default(cuda, gpu, memory):
    source = vkgdr.Memory(gpu, SIZE, kind="device")
    ops.copy(source, DATA)
    ops.fill(memory, b"\0", is_blocking=True)
    with cuda.stream() as stream:
        memory.bind_to_stream(stream)
        with cuda.hold(stream) as gate:
            event = ops.copy(memory, source, is_blocking=False)
            assert not event.is_complete
            assert device_bytes(cuda, memory) == bytes(SIZE)
            gate.open()
            event.synchronize()
            assert device_bytes(cuda, memory) == DATA
        memory.unbind_stream()
        source.bind_to_stream(stream)
        with cuda.hold(stream):
            assert not ops.copy(memory, source, is_blocking=False).is_complete
            assert cuda.is_done(0), "the default stream has nothing to do with it"
        source.unbind_stream()


def test_no_stream_waits_for_itself(cuda, gpu, simulated):
    a, b = (vkgdr.Memory(gpu, SIZE, kind="device") for _ in range(2))
    for handle, name in ((0, 1), (0, 0)):
        a.bind_to_stream(handle)
        before = simulator.calls("cuStreamWaitEvent")
        ops.copy(b, a, stream=name)
        ops.copy(b, a)
        assert simulator.calls("cuStreamWaitEvent") == before
    with cuda.stream() as stream:
        ops.copy(b, a, stream=stream)
        assert simulator.calls("cuStreamWaitEvent") == before + 1
        a.unbind_stream()
        a.bind_to_stream(stream)
        ops.copy(b, a)
        assert simulator.calls("cuStreamWaitEvent") == before + 1
        a.unbind_stream()


def test_the_cpu_waits_for_the_stream_that_an_interface_names(cuda, gpu):
    memory = vkgdr.Memory(gpu, SIZE, kind="host")
    back = bytearray(SIZE)
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        cuda.fill(memory.device_ptr, 8, SIZE, stream)
        wait_at(gate, lambda: ops.copy(back, BorrowedBytes(memory.device_ptr, SIZE, stream)), cuda.current())
        assert back == b"\x08" * SIZE


def test_a_copy_whose_event_fails_has_ended_when_the_error_comes(cuda, gpu, simulated):
    memory = vkgdr.Memory(gpu, SIZE)
    with Pinned(cuda, SIZE) as pinned, cuda.stream() as stream, cuda.hold(stream) as gate:
        pinned.bytes[:] = DATA
        waits = simulator.calls("cuStreamSynchronize")
        returned = threading.Event()

        def open_once_it_is_waited_for():
            while simulator.calls("cuStreamSynchronize") == waits and not returned.wait(0.001):
                pass
            if not returned.is_set():
                gate.open()

        thread = threading.Thread(target=open_once_it_is_waited_for)
        thread.start()
        with simulator.fail("cuEventRecord", 1, 999), pytest.raises(vkgdr.VkgdrError, match="cuEventRecord"):
            ops.copy(memory, pinned.bytes, stream=stream, is_blocking=False)
        returned.set()
        thread.join()
        assert cuda.is_done(stream), "the host bytes were let go of while the copy was pending"
    assert memory.tobytes() == DATA


def test_events_of_this_package_are_waited_for_on_the_device(cuda, gpu):
    memory, other = (vkgdr.Memory(gpu, SIZE, kind="device") for _ in range(2))
    with cuda.stream() as first, cuda.stream() as second, cuda.hold(first) as gate:
        filled = ops.fill(memory, b"\7", stream=first)
        copied = ops.copy(other, memory, stream=second, wait_for=[filled], is_blocking=False)
        assert not copied.is_complete
        assert not cuda.is_done(second)
        gate.open()
        copied.synchronize()
        assert device_bytes(cuda, other) == b"\7" * SIZE


def test_events_of_other_libraries_are_waited_for(gpu, memory):
    event = mock.Mock(spec=["synchronize"])
    ops.copy(memory, DATA, wait_for=[event])
    ops.copy(memory, DATA, wait_for=iter([event]), is_blocking=False).synchronize()
    for is_blocking in (True, False):
        with pytest.raises(TypeError, match="1 is not an event"):
            ops.copy(memory, DATA, wait_for=[1], is_blocking=is_blocking)
    ops.fill(memory, b"a", wait_for=(event,)).synchronize()
    ops.fill(memory, b"abcdefgh", wait_for=(event,), is_blocking=True)
    assert event.synchronize.call_count == 4
    if memory.kind != "device":
        ops.map(memory, "r", 0, 4, "u1", wait_for=[event])
        array, _ = ops.map(memory, "r", 0, 4, "u1", wait_for=[event], is_blocking=False)
        array.base.release(wait_for=[event])
        assert event.synchronize.call_count == 7
    event.reset_mock()
    ops.migrate(memory, "device", wait_for=[event])
    assert event.synchronize.call_count == 1


def test_a_blocking_copy_comes_after_a_fill_on_the_same_default_stream(cuda, memory):
    legacy = 0
    back = bytearray(SIZE)
    with cuda.hold(legacy) as gate:
        ops.fill(memory, b"\3")
        wait_at(gate, lambda: ops.copy(back, memory))
    assert back == b"\3" * SIZE


def test_a_host_copy_without_a_stream_is_made_by_the_cpu(gpu, simulated):
    functions = ("cuMemcpyHtoD", "cuMemcpyHtoDAsync", "cuMemcpyDtoH", "cuMemcpyDtoHAsync")

    def copies():
        return sum(simulator.calls(function) for function in functions)

    for kind, by_cuda in (("mapped", 0), ("host", 0), ("device", 2)):
        memory = vkgdr.Memory(gpu, SIZE, kind=kind)
        before = copies()
        ops.copy(memory, DATA)
        ops.copy(bytearray(SIZE), memory)
        assert copies() == before + by_cuda, kind


def map_and_drop(memory, _device):
    array, _ = ops.map(memory, "rw", 0, 16, "u1")
    view = array[3:5]
    del array
    assert memory.map_count == 1
    del view
    gc.collect()
    assert memory.map_count == 0


def map_in_a_scope(memory, mode):
    before = simulator.vulkan.calls("vkFlushMappedMemoryRanges")
    with memory.map(mode) as array:
        assert array.flags.writeable == (mode == "rw")
        assert simulator.vulkan.calls("vkFlushMappedMemoryRanges") == before


# What an operation does, and how often it flushes and invalidates; None is any number.
CALLS = {
    "a copy from the host": (lambda memory, _: ops.copy(memory, DATA), 1, None),
    "a copy to the host": (lambda memory, _: ops.copy(bytearray(SIZE), memory), 0, 1),
    "a copy from a host array": (lambda memory, device: ops.copy(device, np.asarray(memory)), 1, None),
    "a copy to a host array": (lambda memory, device: ops.copy(np.asarray(memory), device), None, 1),
    "a flush of a part": (lambda memory, _: memory[1:3].flush(), 1, 0),
    "a flush of the last byte": (lambda memory, _: memory[SIZE - 1 :].flush(), 1, 0),
    "an invalidate of a part": (lambda memory, _: memory[5:9].invalidate(1, 2), 0, 1),
    "a map to read": (lambda memory, _: map_in_a_scope(memory, "r"), 0, 1),
    "a map": (lambda memory, _: map_in_a_scope(memory, "rw"), 1, 1),
    "a map whose array is dropped": (map_and_drop, 1, 1),
}


@pytest.mark.parametrize(("use", "flushes", "invalidates"), CALLS.values(), ids=CALLS)
def test_memory_that_is_not_coherent_is_flushed_and_invalidated(context, simulated, use, flushes, invalidates):
    gpu = vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    memory, device = vkgdr.Memory(gpu, SIZE), vkgdr.Memory(gpu, SIZE, kind="device")
    assert memory.non_coherent_atom_size > 1
    for name, count in (("vkFlushMappedMemoryRanges", flushes), ("vkInvalidateMappedMemoryRanges", invalidates)):
        before = simulator.vulkan.calls(name)
        use(memory, device)
        assert count is None or simulator.vulkan.calls(name) == before + count, name
