"""The methods of pyopencl's SVM allocations, which every memory object has: streams, lifetimes and mappings."""

import threading

import numpy as np
import pytest
import simulator
import vkgdr
from everything import SIZE, live
from vkgdr.compat import pyopencl as ops

# ---- order of release -----------------------------------------------------------------------------------------------


def test_memory_that_is_dropped_waits_for_its_context(cuda, gpu):
    source, target = (vkgdr.Memory(gpu, SIZE, kind="device") for _ in range(2))
    ops.fill(source, b"\x05", is_blocking=True)
    before = live(gpu)
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        cuda.copy(target.device_ptr, source.device_ptr, SIZE, stream)
        order = []
        thread = threading.Thread(target=lambda: (order.append("opened"), gate.open()))
        thread.start()
        # This memory is not bound to the stream.
        del source
        assert order == ["opened"]
        assert cuda.is_done(stream)
        thread.join()
    assert target.tobytes() == b"\x05" * SIZE
    assert live(gpu) == before - 1


def test_memory_that_is_bound_goes_after_its_stream_and_does_not_wait(cuda, gpu):
    source, target = (vkgdr.Memory(gpu, SIZE, kind="device") for _ in range(2))
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        source.bind_to_stream(stream)
        target.bind_to_stream(stream)
        ops.fill(source, b"\x05")
        ops.copy(target, source, is_blocking=False)
        del source
        assert not cuda.is_done(stream)
        assert gpu.stats()["deferred_frees"] == 1
        gate.open()
        cuda.synchronize_stream(stream)
        assert gpu.collect() == 1
        assert target.tobytes() == b"\x05" * SIZE
        target.unbind_stream()


@pytest.mark.parametrize("bound", [False, True])
def test_free_async_gives_an_event_of_a_stream_or_the_bound_one_and_does_not_wait(cuda, gpu, memory, bound):
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        cuda.fill(memory.device_ptr, 1, SIZE, stream)
        if bound:
            memory.bind_to_stream(stream)
        event = memory.free_async(None if bound else stream)
        assert memory.freed
        assert not event.is_complete
        assert gpu.stats()["deferred_frees"] == 1
        gate.open()
        event.synchronize()
        assert event.is_complete
        assert gpu.collect() == 1


def test_the_work_of_another_stream_that_is_bound_comes_after_that_of_the_first(cuda, gpu):
    memory = vkgdr.Memory(gpu, SIZE, kind="device")
    with cuda.stream() as first, cuda.stream() as second, cuda.hold(first) as gate:
        memory.bind_to_stream(first)
        ops.fill(memory, b"1")
        memory.bind_to_stream(second)
        event = ops.fill(memory, b"2", SIZE // 2)
        assert not event.is_complete
        gate.open()
        event.synchronize()
        assert memory.tobytes() == b"2" * (SIZE // 2) + b"1" * (SIZE // 2)
        memory.unbind_stream()


def test_unbinding_waits_for_the_stream(cuda, memory):
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        memory.bind_to_stream(stream)
        ops.fill(memory, b"\x07")
        thread = threading.Thread(target=gate.open)
        thread.start()
        memory.unbind_stream()
        assert cuda.is_done(stream)
        thread.join()
    memory.unbind_stream()
    assert memory.tobytes() == b"\x07" * SIZE


# ---- SVM ------------------------------------------------------------------------------------------------------------


def test_map_is_a_scope_that_gives_an_array(visible):
    with visible.map(shape=(4, 4), dtype="u2", offset=32) as array:
        assert (array.shape, array.dtype) == ((4, 4), np.dtype("u2"))
        array[:] = 0x0101
    assert visible.tobytes()[32:64] == b"\x01" * 32


def test_a_map_has_an_event_an_array_and_a_release(cuda, visible):
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        mapping = visible.map(stream=stream, blocking=False)
        assert not mapping.event.is_complete
        gate.open()
        mapping.wait()
        assert mapping.event.is_complete
        mapping.array[:] = 1
        event = mapping.release(stream)
        assert event.is_complete
        assert mapping.released
    with pytest.raises(vkgdr.FreedError, match="released"):
        _ = mapping.array


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_a_map_invalidates_before_and_flushes_after_unless_its_array_is_read_only(context, simulated, mode):
    def calls():
        names = ("vkInvalidateMappedMemoryRanges", "vkFlushMappedMemoryRanges")
        return [simulator.vulkan.calls(name) - first for name, first in zip(names, before, strict=True)]

    memory = vkgdr.Memory(vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT), SIZE)
    before = [0, 0]
    before = calls()
    with memory.map_ro() if mode == "ro" else memory.map_rw() as array:
        assert calls() == [1, 0]
        assert array.flags.writeable == (mode == "rw")
    assert calls() == [1, mode == "rw"]


# ---- images ---------------------------------------------------------------------------------------------------------


def test_pitched_memory_has_rows_that_cuda_likes(gpu):
    memory, pitch = vkgdr.Memory.pitched(gpu, 100, 7, 4)
    assert pitch == 512
    assert len(memory) == 7 * pitch
    assert memory.device_ptr % 64 == 0
    image = np.arange(700, dtype="f4").reshape(7, 100)
    ops.copy(memory, image, region=(400, 7), dst_pitches=(pitch,))
    back = np.zeros_like(image)
    ops.copy(back, memory, region=(400, 7), src_pitches=(pitch,))
    assert (back == image).all()
    assert vkgdr.Memory.pitched(gpu, 513, 1, 1)[1] == 1024
    with pytest.raises(vkgdr.InvalidArgumentError, match="0 rows"):
        vkgdr.Memory.pitched(gpu, 1, 0, 1)
