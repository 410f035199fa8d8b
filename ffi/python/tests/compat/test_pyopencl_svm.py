"""The methods of pyopencl's SVM allocations, which every memory object has: streams, lifetimes and mappings."""

import gc
import threading
import weakref

import numpy as np
import pytest
import simulator
import vkgdr
from everything import live
from neighbours import open_with
from vkgdr import ops

KINDS = ("mapped", "host", "device")
VISIBLE = ("mapped", "host")
SIZE = 4096


@pytest.fixture(params=KINDS)
def memory(gpu, request):
    return vkgdr.Memory(gpu, SIZE, kind=request.param)


@pytest.fixture(params=VISIBLE)
def visible(gpu, request):
    return vkgdr.Memory(gpu, SIZE, kind=request.param)


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


def test_free_async_gives_an_event_and_does_not_wait(cuda, gpu, memory):
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        cuda.fill(memory.device_ptr, 1, SIZE, stream)
        event = memory.free_async(stream)
        assert memory.freed
        assert not event.is_complete
        assert gpu.stats()["deferred_frees"] == 1
        gate.open()
        event.synchronize()
        assert event.is_complete
        assert gpu.collect() == 1


def test_free_async_takes_the_bound_stream(cuda, gpu, memory):
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        memory.bind_to_stream(stream)
        assert not memory.free_async().is_complete
        gate.open()
    assert gpu.collect() == 1


def test_free_async_without_a_stream_is_refused(memory):
    with pytest.raises(ValueError, match="no implicit stream available"):
        memory.free_async()
    assert not memory.freed
    with pytest.raises(TypeError, match="not a CUDA stream"):
        memory.free_async("stream")


def test_binding_keeps_the_stream_object(cuda, memory):
    class Stream:
        def __init__(self, handle):
            self.handle = handle

    with cuda.stream() as handle:
        stream = Stream(handle)
        alive = weakref.ref(stream)
        memory.bind_to_stream(stream)
        del stream
        gc.collect()
        assert alive() is not None
        assert memory.stream == handle
        assert memory.__cuda_array_interface__["stream"] == handle
        memory.unbind_stream()
        assert memory.stream is None
        assert memory.__cuda_array_interface__["stream"] is None
        memory.free()


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


def test_a_recorded_stream_is_waited_for_when_the_memory_goes(cuda, gpu):
    memory = vkgdr.Memory(gpu, SIZE)
    with cuda.stream() as bound, cuda.stream() as other, cuda.hold(other) as gate:
        memory.bind_to_stream(bound)
        memory.record_stream(other)
        cuda.fill(memory.device_ptr, 1, SIZE, other)
        memory.free()
        gpu.collect()
        assert gpu.stats()["deferred_frees"] == 1
        gate.open()
        cuda.synchronize()
        gpu.collect()
        assert gpu.stats()["deferred_frees"] == 0


def test_migrate_gives_memory_of_another_kind_and_frees_the_old(gpu, memory):
    ops.fill(memory, b"abcd", is_blocking=True)
    before = live(gpu)
    for kind in KINDS:
        new = memory.migrate(kind)
        assert memory.freed
        assert (new.kind, new.tobytes()) == (kind, b"abcd" * (SIZE // 4))
        assert live(gpu) == before
        memory = new
    assert len(memory.migrate("host", discard=True)) == SIZE


# ---- SVM ------------------------------------------------------------------------------------------------------------


def test_coherent_memory_is_fine_grained(context):
    fine = vkgdr.Memory(open_with(vkgdr.OpenFlags.REQUIRE_COHERENT_BIT), 16)
    assert fine.is_coherent
    assert fine.non_coherent_atom_size == 1


def test_memory_that_is_not_coherent_is_coarse_grained(context):
    coarse = vkgdr.Memory(vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT), 16)
    assert not coarse.is_coherent
    assert coarse.non_coherent_atom_size > 1


def test_buf_is_the_hosts_bytes(visible):
    with visible.buf as view:
        assert (view.format, view.ndim, view.nbytes, view.readonly) == ("B", 1, SIZE, False)
        view[:3] = b"abc"
    visible.flush()
    assert visible.tobytes()[:3] == b"abc"


def test_when_there_is_no_room_garbage_is_collected_and_tried_again(gpu, simulated):
    class Cycle:
        pass

    cycle = Cycle()
    cycle.me, cycle.memory = cycle, vkgdr.Memory(gpu, 16)
    gone = weakref.ref(cycle)
    del cycle
    with simulator.no_room(gpu):
        vkgdr.Memory(gpu, 16).free()
    assert gone() is None, "nothing was collected"


def test_when_there_is_still_no_room_it_is_an_allocation_error(gpu):
    with pytest.raises(vkgdr.AllocationError, match="VK_ERROR_OUT_OF_DEVICE_MEMORY") as error:
        vkgdr.Memory(gpu, 10**15)
    assert isinstance(error.value, MemoryError)
    with pytest.raises(vkgdr.InvalidArgumentError, match="0"):
        vkgdr.Memory(gpu, 0)


def test_an_alignment_holds_for_both_pointers_or_is_refused(gpu):
    memory = vkgdr.Memory(gpu, 100, alignment=64)
    assert memory.device_ptr % 64 == memory.host_ptr % 64 == 0
    with pytest.raises(vkgdr.InvalidArgumentError, match="power of two, not 48"):
        vkgdr.Memory(gpu, 100, alignment=48)


def test_an_array_over_memory_leads_back_to_it(visible):
    array = visible.get_host_array((16, 64), "u4")
    assert vkgdr.device_view(array) == visible
    row = vkgdr.device_view(array[3])
    assert row.device_ptr == visible.device_ptr + 3 * 256
    assert len(row) == 256
    with pytest.raises(vkgdr.InvalidArgumentError, match="no memory of vkgdr"):
        vkgdr.device_view(np.zeros(4))
    with pytest.raises(vkgdr.InvalidArgumentError, match="contiguous"):
        vkgdr.device_view(array[:, 0])


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


def test_map_ro_gives_a_read_only_array_and_does_not_flush(context, simulated):
    memory = vkgdr.Memory(vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT), SIZE)
    flushes = simulator.vulkan.calls("vkFlushMappedMemoryRanges")
    invalidates = simulator.vulkan.calls("vkInvalidateMappedMemoryRanges")
    with memory.map_ro() as array, pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    assert simulator.vulkan.calls("vkFlushMappedMemoryRanges") == flushes
    assert simulator.vulkan.calls("vkInvalidateMappedMemoryRanges") == invalidates + 1


def test_map_rw_invalidates_before_and_flushes_after(context, simulated):
    memory = vkgdr.Memory(vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT), SIZE)
    flushes = simulator.vulkan.calls("vkFlushMappedMemoryRanges")
    invalidates = simulator.vulkan.calls("vkInvalidateMappedMemoryRanges")
    with memory.map_rw() as array:
        assert simulator.vulkan.calls("vkInvalidateMappedMemoryRanges") == invalidates + 1
        assert simulator.vulkan.calls("vkFlushMappedMemoryRanges") == flushes
        array[0] = 1
    assert simulator.vulkan.calls("vkFlushMappedMemoryRanges") == flushes + 1


def test_map_discard_is_for_writing(visible):
    with visible.map_discard(offset=8, size=8) as array:
        array[:] = range(8)
    assert visible.tobytes()[8:16] == bytes(range(8))


def test_map_waits_for_the_bound_stream(cuda, visible):
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        visible.bind_to_stream(stream)
        ops.fill(visible, b"\x09")
        thread = threading.Thread(target=gate.open)
        thread.start()
        with visible.map_ro() as array:
            assert array.tobytes() == b"\x09" * SIZE
        thread.join()
        visible.unbind_stream()


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
