"""The methods of pyopencl's memory objects, which every memory object has.

SVM is in test_pyopencl_svm.py; the ``enqueue_*`` functions are in test_ops.py, test_ops_order.py,
test_ops_rectangles.py and test_ops_fill_map.py.
"""

import numpy as np
import pytest
import simulator
import vkgdr
from everything import live
from neighbours import wait_at
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


# ---- MemoryObject ---------------------------------------------------------------------------------------------------


def test_get_info_gives_every_fact_by_its_name(gpu, context, memory):
    memory_type = gpu.memory_type_of(memory.kind)
    assert memory.get_info("kind") == memory.kind
    assert memory.get_info("flags") == 0
    assert memory.get_info("size") == SIZE
    assert memory.get_info("map_count") == 0
    assert memory.get_info("reference_count") == 1
    assert memory.get_info("context") == context.handle
    assert memory.get_info("parent") is None
    assert memory.get_info("offset") == 0
    assert memory.get_info("memory_type_index") == memory_type.index
    assert memory.get_info("property_flags") == memory_type.flags
    assert memory.get_info("heap_index") == memory_type.heap
    region = memory[64:128]
    assert region.get_info("parent") is memory
    assert region.get_info("offset") == 64
    assert region.get_info("size") == 64
    assert region.get_info("reference_count") == memory.get_info("reference_count") == 2


def test_get_info_of_something_else_lists_what_there_is(memory):
    for name in ("host_ptr", "HOST_PTR", "_block", "", "free"):
        with pytest.raises(ValueError, match=r"kind, flags, size, .*heap_index"):
            memory.get_info(name)


def test_facts_are_attributes_too(memory):
    for name in ("kind", "flags", "size", "map_count", "context", "parent", "offset", "memory_type_index"):
        assert getattr(memory, name) == memory.get_info(name)
    assert memory.property_flags == memory.get_info("property_flags")
    assert memory.heap_index == memory.get_info("heap_index")


def test_map_count_counts_what_is_mapped(visible):
    region = visible[:64]
    with visible.map(), visible.map_ro():
        kept = region.map()
        assert (visible.map_count, region.map_count) == (2, 1)
    kept.release()
    kept.release()
    assert (visible.map_count, region.map_count) == (0, 0)


def test_memory_of_its_own_has_no_reference_object(memory):
    assert memory.reference_obj is None
    region = memory[:8]
    assert region.reference_obj is memory


def test_free_may_be_called_twice_and_everything_else_is_refused(gpu, memory):
    before = live(gpu)
    memory.free()
    memory.free()
    assert live(gpu) == before - 1
    for refused in (
        lambda: len(memory),
        lambda: memory.device_ptr,
        lambda: memory.host_ptr,
        lambda: memory.get_info("size"),
        lambda: memory.get_info("memory_type_index"),
        lambda: memory.get_info("context"),
        lambda: memory.get_sub_region(0, 1),
        lambda: memory[:1],
        lambda: memory.get_host_array(1),
        lambda: memory.flush(),
        lambda: memory.map(),
        lambda: memory.buf,
        lambda: memory.bind_to_stream(0),
        lambda: memory.record_stream(0),
        lambda: memory.free_async(0),
        lambda: memory.migrate("host"),
    ):
        with pytest.raises(vkgdr.FreedError):
            refused()


def test_a_handle_gives_another_object_over_the_same_memory(gpu, memory):
    other = vkgdr.RawMemory.from_handle(memory.handle)
    assert other == memory
    assert hash(other) == hash(memory)
    assert (other.device_ptr, len(other), other.kind) == (memory.device_ptr, SIZE, memory.kind)
    before = live(gpu)
    memory.free()
    assert live(gpu) == before, "the other object keeps the memory"
    ops.copy(other, b"abc")
    assert other.tobytes()[:3] == b"abc"
    handle = other.handle
    other.free()
    assert live(gpu) == before - 1
    with pytest.raises(vkgdr.InvalidArgumentError, match=f"no live memory has the handle {handle}"):
        vkgdr.RawMemory.from_handle(handle)


def test_handles_are_never_used_again(gpu):
    handles = [vkgdr.Memory(gpu, 16).handle for _ in range(20)]
    assert len(set(handles)) == 20


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


# ---- get_host_array -------------------------------------------------------------------------------------------------


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


def test_a_host_array_larger_than_the_memory_is_refused(visible):
    with pytest.raises(ValueError, match=r"Resulting array is larger .* 4100 bytes, there are 4096"):
        visible.get_host_array((1025,), np.float32)
    with pytest.raises(ValueError, match=r"4096 bytes, there are 4095"):
        visible.get_host_array(SIZE, offset=1)
    with pytest.raises(vkgdr.OutOfRangeError, match="4097"):
        visible.get_host_array(offset=4097)


def test_an_invalid_host_array_is_refused(visible):
    with pytest.raises(ValueError, match="negative"):
        visible.get_host_array((-1,))
    with pytest.raises(ValueError, match="Python objects"):
        visible.get_host_array(4, object)
    with pytest.raises(ValueError, match="order must be 'C' or 'F', not 'K'"):
        visible.get_host_array(4, order="K")
    with pytest.raises(ValueError, match="4095 bytes, is not a multiple of the 8"):
        visible.get_host_array(dtype="f8", offset=1)


def test_a_host_array_keeps_the_memory(gpu, visible):
    array = visible.get_host_array(16, "u1")
    before = live(gpu)
    visible.free()
    array[:] = 3
    assert live(gpu) == before
    del array
    assert live(gpu) == before - 1


def test_device_memory_has_no_host_array(gpu):
    memory = vkgdr.Memory(gpu, 16, kind="device")
    for refused in (memory.get_host_array, memory.map, lambda: memory.buf, lambda: memoryview(memory)):
        with pytest.raises(vkgdr.NoHostViewError, match="device"):
            refused()


# ---- kinds for mem_flags --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mem_flag", "kind", "has_host_view"),
    [
        ("ALLOC_HOST_PTR", "host", True),
        ("HOST_READ_ONLY", "host", True),
        ("HOST_WRITE_ONLY", "mapped", True),
        ("HOST_NO_ACCESS", "device", False),
    ],
)
def test_every_mem_flag_has_a_kind(gpu, mem_flag, kind, has_host_view):
    memory = vkgdr.Memory(gpu, 16, kind=kind)
    assert (memory.host_ptr is not None) == has_host_view, mem_flag
    assert memory.device_ptr != 0


def test_read_only_is_a_mark_on_both_sides(gpu):
    memory = vkgdr.Memory(gpu, 16, readonly=True)
    assert memory.readonly
    assert not np.asarray(memory).flags.writeable
    assert memory.__cuda_array_interface__["data"] == (memory.device_ptr, True)
    assert memory.__array_interface__["data"] == (memory.host_ptr, True)
    assert memory[4:8].readonly
    with pytest.raises(vkgdr.InvalidArgumentError, match="read-only"):
        memory.map()
    with memory.map_ro() as array:
        assert not array.flags.writeable


# ---- get_sub_region and slices --------------------------------------------------------------------------------------


def test_a_region_has_pointers_of_its_own(memory):
    region = memory.get_sub_region(100, 33)
    assert isinstance(region, vkgdr.Region)
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


def test_a_region_beyond_the_memory_is_refused(memory):
    for origin, size in ((SIZE, 1), (1, SIZE), (0, SIZE + 1), (SIZE + 1, 0)):
        with pytest.raises(vkgdr.OutOfRangeError, match=rf"{size} bytes? at offset {origin} .* 4096"):
            memory.get_sub_region(origin, size)
    region = memory[10:20]
    with pytest.raises(vkgdr.OutOfRangeError, match=r"11 bytes at offset 0 .* 10 bytes"):
        region.get_sub_region(0, 11)
    with pytest.raises((vkgdr.OutOfRangeError, OverflowError)):
        memory.get_sub_region(-1, 1)
    with pytest.raises(TypeError):
        memory.get_sub_region(0.5, 1)


def test_an_empty_region_is_refused(memory):
    with pytest.raises(ValueError, match="the region of 0 bytes at 7 is empty"):
        memory.get_sub_region(7, 0)


def test_a_region_keeps_its_memory(gpu, memory):
    region = memory[8:16]
    before = live(gpu)
    memory.free()
    del memory
    assert live(gpu) == before
    ops.copy(region, b"01234567")
    assert region.tobytes() == b"01234567"
    region.free()
    assert live(gpu) == before - 1


def test_freeing_a_region_leaves_the_memory(memory):
    region = memory[8:16]
    region.free()
    with pytest.raises(vkgdr.FreedError):
        _ = region.device_ptr
    ops.fill(memory, b"a", is_blocking=True)
    assert memory.tobytes() == b"a" * SIZE


def test_a_region_of_non_coherent_memory_flushes_whole_atoms_of_its_parent(context, simulated):
    gpu = vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    memory = vkgdr.Memory(gpu, SIZE)
    assert memory.non_coherent_atom_size > 1
    before = simulator.vulkan.calls("vkFlushMappedMemoryRanges")
    memory[1:3].flush()
    memory[SIZE - 1 :].flush()
    memory[5:9].invalidate(1, 2)
    assert simulator.vulkan.calls("vkFlushMappedMemoryRanges") == before + 2
    with pytest.raises(vkgdr.OutOfRangeError, match="4"):
        memory[5:9].flush(2, 3)


def test_slices_give_regions(memory):
    assert len(memory[:]) == SIZE
    assert (memory[-8:].offset, len(memory[-8:])) == (SIZE - 8, 8)
    assert len(memory[10 : SIZE + 50]) == SIZE - 10
    assert len(memory[np.int64(1) : np.uint8(3) : 1]) == 2


@pytest.mark.parametrize("part", [3, "a", (0, 1), None, slice("a", None)])
def test_an_index_that_is_no_slice_is_refused(memory, part):
    with pytest.raises(TypeError):
        memory[part]


@pytest.mark.parametrize("part", [slice(0, 8, 2), slice(8, 0, -1), slice(4, 4), slice(8, 4), slice(SIZE, None)])
def test_a_slice_with_a_step_or_without_bytes_is_refused(memory, part):
    with pytest.raises(ValueError, match=r"step must be 1, not -?\d|is empty"):
        memory[part]


def test_an_event_is_waited_for_under_pyopencls_name(cuda, memory):
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        event = ops.fill(memory, b"\7", stream=stream)
        assert not event.is_complete
        wait_at(gate, event.wait)
        assert event.is_complete
        event.wait()
