"""The methods of pyopencl's memory objects and SVM allocations, which every memory object has."""

import numpy as np
import pytest
import vkgdr
from everything import SIZE
from vkgdr.compat import pyopencl as ops


def test_get_info_gives_every_fact_by_its_name(gpu, context, memory):
    memory_type = gpu.memory_type_of(memory.kind)
    infos = {
        "kind": memory.kind,
        "flags": 0,
        "size": SIZE,
        "map_count": 0,
        "reference_count": 1,
        "context": context.handle,
        "parent": None,
        "offset": 0,
        "memory_type_index": memory_type.index,
        "property_flags": list(memory_type.flags),
        "heap_index": memory_type.heap,
    }
    assert {name: memory.get_info(name) for name in infos} == infos
    region = memory[64:128]
    assert region.get_info("parent") is region.reference_obj is memory
    assert memory.reference_obj is None
    assert region.get_info("offset") == 64
    assert region.get_info("size") == 64
    assert region.get_info("reference_count") == memory.get_info("reference_count") == 2


def test_get_info_of_something_else_lists_what_there_is(memory):
    for name in ("host_ptr", "HOST_PTR", "_block", "", "free"):
        with pytest.raises(ValueError, match=r"kind, flags, size, .*heap_index"):
            memory.get_info(name)


def test_map_count_counts_what_is_mapped(visible):
    region = visible[:64]
    with visible.map(), visible.map_ro():
        kept = region.map()
        assert (visible.map_count, region.map_count) == (2, 1)
    kept.release()
    kept.release()
    assert (visible.map_count, region.map_count) == (0, 0)


def test_a_handle_gives_another_object_over_the_same_memory(gpu, memory, live):
    other = vkgdr.RawMemory.from_handle(memory.handle)
    assert other == memory
    assert hash(other) == hash(memory)
    assert (other.device_ptr, len(other), other.kind) == (memory.device_ptr, SIZE, memory.kind)
    memory.free()
    assert live() == 0, "the other object keeps the memory"
    ops.copy(other, b"abc")
    assert other.tobytes()[:3] == b"abc"
    handle = other.handle
    other.free()
    assert live() == -1
    with pytest.raises(vkgdr.InvalidArgumentError, match=f"no live memory has the handle {handle}"):
        vkgdr.RawMemory.from_handle(handle)


def test_memory_objects_are_equal_when_they_are_the_same_bytes(gpu, memory):
    other = vkgdr.Memory(gpu, SIZE, kind=memory.kind)
    assert memory == memory[:]
    assert memory[8:16] == memory[4:][4:12]
    assert memory[8:16] != memory[8:17]
    assert memory != other
    assert memory != memory.device_ptr
    assert len({memory, memory[:], other, memory[1:]}) == 3
    identity = hash(memory)
    memory.free()
    assert hash(memory) == identity


def test_get_host_array_is_a_view_of_any_shape_and_type(visible):
    ops.copy(visible, bytes(range(32)))
    whole = visible.get_host_array()
    assert (whole.shape, whole.dtype) == ((SIZE,), np.uint8)
    array = visible.get_host_array((2, 3), "<u2", offset=4)
    assert array.tolist() == [[0x0504, 0x0706, 0x0908], [0x0B0A, 0x0D0C, 0x0F0E]]
    fortran = visible.get_host_array((2, 3), np.uint8, "F")
    assert fortran.tolist() == [[0, 2, 4], [1, 3, 5]]
    assert visible.get_host_array(3, [("a", "u1"), ("b", ">u2")])["b"].tolist() == [0x0102, 0x0405, 0x0708]
    array[0, 0] = 0xFFFF
    assert whole[4:6].tolist() == [255, 255]
    assert visible.get_host_array((), "u1", offset=7).item() == 7
    assert visible.get_host_array((0, 4)).size == 0


def test_a_region_has_pointers_of_its_own(memory):
    region = memory.get_sub_region(100, 33)
    assert isinstance(region, vkgdr.Memory)
    assert region.device_ptr == memory.device_ptr + 100
    assert region.host_ptr == (None if memory.host_ptr is None else memory.host_ptr + 100)
    assert len(region) == 33
    interface = region.__cuda_array_interface__
    assert interface["shape"] == (33,)
    assert interface["data"] == (memory.device_ptr + 100, False)
    inner = region[1:5]
    assert (inner.offset, inner.parent) == (101, region)


def test_a_region_needs_no_alignment(cuda, memory):
    for origin, size in ((0, 1), (1, 1), (3, 7), (SIZE - 1, 1), (0, SIZE)):
        ops.copy(memory.get_sub_region(origin, size), bytes([origin % 251]) * size)
        assert cuda.read(memory.device_ptr + origin, size) == bytes([origin % 251]) * size


def test_a_region_beyond_the_memory_and_an_empty_one_are_refused(memory):
    for origin, size in ((SIZE, 1), (1, SIZE), (0, SIZE + 1), (SIZE + 1, 0)):
        with pytest.raises(vkgdr.OutOfRangeError, match=rf"{size} bytes? at offset {origin} .* 4096"):
            memory.get_sub_region(origin, size)
    region = memory[10:20]
    with pytest.raises(vkgdr.OutOfRangeError, match=r"11 bytes at offset 0 .* 10 bytes"):
        region.get_sub_region(0, 11)
    with pytest.raises(ValueError, match="the region of 0 bytes at 7 is empty"):
        memory.get_sub_region(7, 0)


@pytest.mark.parametrize("part", [slice(4, 4), slice(8, 4), slice(SIZE, None), slice(SIZE + 1, -1)])
def test_an_empty_slice_is_empty_memory(memory, part):
    empty = memory[part]
    assert isinstance(empty, vkgdr.Memory)
    assert (len(empty), empty.tobytes()) == (0, b"")
    empty.memset(1)
    ops.copy(empty, b"")


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
        # As pyopencl calls it.
        event.wait()
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
