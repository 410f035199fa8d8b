"""The methods of pyopencl's memory objects, which every memory object has, and its fills, maps and migration."""

import contextlib
import ctypes

import numpy as np
import pytest
import simulator
import vkgdr
from everything import SIZE
from libcuda import CudaError
from neighbours import KINDS, device_bytes, wait_at
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


def test_a_handle_gives_another_object_over_the_same_memory(live, memory):
    other = vkgdr.RawMemory.from_handle(memory.handle)
    assert other == memory
    assert hash(other) == hash(memory)
    assert (other.device_ptr, len(other), other.kind) == (memory.device_ptr, SIZE, memory.kind)
    memory.free()
    assert live() == 1, "the other object keeps the memory"
    ops.copy(other, b"abc")
    assert other.tobytes()[:3] == b"abc"
    handle = other.handle
    other.free()
    assert live() == 0
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


# ---- fills, maps and migration, of memory that is full of dots -------------------------------------------------------


@pytest.fixture
def memory(memory):
    ops.fill(memory, b".", is_blocking=True)
    return memory


PATTERNS = [
    b"a",
    b"ab",
    b"abc",
    b"abcd",
    b"abcdefgh",
    bytes(range(128)),
    bytes(8),
    b"xyxyxyxy",
    np.float32(1.5),
    np.float64(-2.25),
    np.arange(5, dtype="<i4"),
    np.asfortranarray(np.arange(6, dtype="u2").reshape(2, 3)),
    np.array([(1, 2.0)], [("a", "u1"), ("OFFSET", "f8")]),
    np.array(["2026-11-29"], "M8[s]"),
    memoryview(b"-a-b-c")[1::2],
    bytearray(b"12345"),
]


def bytes_of(pattern):
    return pattern.tobytes() if hasattr(pattern, "tobytes") else bytes(pattern)


@pytest.mark.parametrize("is_blocking", [False, True])
def test_a_fill_repeats_a_pattern_of_any_size(cuda, memory, is_blocking):
    for pattern in PATTERNS:
        unit = bytes_of(pattern)
        count = SIZE // len(unit)
        ops.fill(memory, b".", is_blocking=True)
        event = ops.fill(memory, pattern, count * len(unit), is_blocking=is_blocking)
        event.synchronize()
        assert device_bytes(cuda, memory) == unit * count + b"." * (SIZE % len(unit)), pattern


def test_a_fill_takes_all_of_the_memory_by_default(cuda, memory):
    ops.fill(memory, b"abcd").synchronize()
    assert device_bytes(cuda, memory) == b"abcd" * (SIZE // 4)
    ops.fill(memory, b"0123456789abcdef", offset=SIZE - 32).synchronize()
    assert device_bytes(cuda, memory) == b"abcd" * (SIZE // 4 - 8) + b"0123456789abcdef" * 2


@pytest.mark.parametrize("is_blocking", [False, True])
def test_a_fill_may_begin_at_any_address(cuda, memory, is_blocking):
    for pattern in (b"ab", b"abc", b"abcd", b"abcdefgh"):
        for origin in range(1, 5):
            ops.fill(memory, b".", is_blocking=True)
            region = memory[origin:]
            event = ops.fill(region, pattern, 3 * len(pattern), offset=len(pattern), is_blocking=is_blocking)
            event.synchronize()
            begin, end = origin + len(pattern), origin + 4 * len(pattern)
            expected = bytearray(b"." * SIZE)
            expected[begin:end] = pattern * 3
            assert device_bytes(cuda, memory) == expected, (pattern, origin)


# The second is longer than what the host repeats.
@pytest.mark.parametrize(("length", "count"), [(7, 50_000), (100_000, 3)])
def test_a_long_fill_is_whole(cuda, gpu, length, count):
    pattern = np.random.default_rng(1).bytes(length)
    memory = vkgdr.Memory(gpu, length * count, kind="device")
    ops.fill(memory, pattern).synchronize()
    assert device_bytes(cuda, memory) == pattern * count


def test_values_of_one_two_and_four_bytes_are_filled_by_cuda(memory, simulated):
    for pattern, function in ((b"a", "cuMemsetD8Async"), (b"ab", "cuMemsetD16Async"), (b"abcd", "cuMemsetD32Async")):
        before = simulator.calls(function)
        ops.fill(memory, pattern, is_blocking=True)
        assert simulator.calls(function) == before + 1, function
    before = simulator.calls("cuMemsetD8Async")
    ops.fill(memory, np.zeros(4), is_blocking=True)
    assert simulator.calls("cuMemsetD8Async") == before + 1


def test_a_fill_of_nothing_is_allowed(cuda, memory):
    for pattern in (b"a", b"abcdefgh"):
        ops.fill(memory, pattern, 0).synchronize()
        ops.fill(memory, pattern, offset=SIZE, is_blocking=True)
    assert device_bytes(cuda, memory) == b"." * SIZE


REFUSED_FILLS = [
    ((b"abc",), vkgdr.InvalidArgumentError, "the size 4096 is not a multiple of the pattern's 3 bytes"),
    ((b"abcd", 6), vkgdr.InvalidArgumentError, "the size 6 is not a multiple of the pattern's 4 bytes"),
    ((b"abcd", 8, 2), vkgdr.InvalidArgumentError, "the offset 2 is not a multiple of the pattern's 4 bytes"),
    ((b"a", 4097), vkgdr.OutOfRangeError, "4097 bytes at 0 .* 4096 bytes"),
    ((b"abcd", None, 4100), vkgdr.OutOfRangeError, "0 bytes at 4100 .* 4096 bytes"),
    ((b"abcd", None, -4), vkgdr.OutOfRangeError, "offset must be .* not -4"),
    ((b"abcd", -4), vkgdr.OutOfRangeError, "size must be .* not -4"),
    *(((value,), TypeError, "Python objects") for value in (np.array([None]), (ctypes.py_object * 1)(None))),
    ((b"",), vkgdr.InvalidArgumentError, "0 bytes"),
    *(
        ((value,), TypeError, f"bytes-like.* not {type(value).__name__}")
        for value in (0, None, "text", [1, 2], np.int8)
    ),
]


@pytest.mark.parametrize(("arguments", "error", "text"), REFUSED_FILLS)
def test_a_fill_that_cannot_be_is_refused(memory, arguments, error, text):
    pattern, size, offset = (*arguments, None, None)[:3]
    with pytest.raises(error, match=text):
        ops.fill(memory, pattern, size, offset=offset or 0)
    with pytest.raises(TypeError, match="the host bytes of a bytearray"):
        ops.fill(bytearray(4), b"a")
    with pytest.raises(TypeError, match="not a CUDA stream"):
        ops.fill(memory, b"a", stream="default")


def test_a_mapping_is_an_array_and_an_event(cuda, visible):
    ops.fill(visible, np.arange(8, dtype="<u2"), is_blocking=True)
    array, event = ops.map(visible, "rw", 4, (2, 3), "<u2")
    assert event.is_complete
    assert array.tolist() == [[2, 3, 4], [5, 6, 7]]
    assert visible.map_count == 1
    array[1, 2] = 99
    # The array's base is a scope.
    with array.base as inner:
        assert inner.__array_interface__["data"] == array.__array_interface__["data"]
    assert array.base.released
    array.base.release()
    assert visible.map_count == 0
    assert cuda.read(visible.device_ptr + 14, 2) == b"c\0"


def test_a_mapping_has_an_order_or_strides(visible):
    ops.copy(visible, bytes(range(24)))
    fortran, _ = ops.map(visible, "r", 0, (2, 3), "u1", "F")
    assert fortran.tolist() == [[0, 2, 4], [1, 3, 5]]
    strided, _ = ops.map(visible, "r", 1, (2, 3), "u1", strides=(8, 2))
    assert strided.tolist() == [[1, 3, 5], [9, 11, 13]]
    assert not strided.flags.writeable
    shared, _ = ops.map(visible, "r", SIZE - 4, (3, 2), "u1", strides=(1, 1))
    assert shared.shape == (3, 2), "elements share bytes: these are 4"
    with pytest.raises(vkgdr.OutOfRangeError, match="4097"):
        ops.map(visible, "r", 0, (2, 2), "u1", strides=(4095, 1))
    with pytest.raises(vkgdr.InvalidArgumentError, match="1 strides for 2 dimensions"):
        ops.map(visible, "r", 0, (2, 2), "u1", strides=(1,))


@pytest.mark.parametrize("after", ["its stream", "an event"])
def test_a_mapping_that_does_not_block_comes_after_its_stream_and_events(cuda, visible, after):
    with cuda.stream() as first, cuda.stream() as second, cuda.hold(first) as gate:
        filled = ops.fill(visible, b"\4", stream=first)
        order = {"stream": first} if after == "its stream" else {"stream": second, "wait_for": [filled]}
        array, event = ops.map(visible, "r", 0, SIZE, "u1", **order, is_blocking=False)
        assert not event.is_complete
        gate.open()
        with array.base as ready:
            assert event.is_complete
            assert ready.tobytes() == b"\4" * SIZE


def test_what_cannot_be_mapped_is_refused(gpu, visible):
    with pytest.raises(TypeError, match="not bytearray"):
        ops.map(bytearray(4), "r", 0, 4, "u1")
    with pytest.raises(vkgdr.InvalidArgumentError, match="'x'"):
        ops.map(visible, "x", 0, 4, "u1")
    with pytest.raises(vkgdr.InvalidArgumentError, match="8192 bytes, there are 4096"):
        ops.map(visible, "r", 0, 2048, "f4")
    with pytest.raises(vkgdr.OutOfRangeError, match="5000"):
        ops.map(visible, "r", 5000, 1, "u1")
    with pytest.raises(vkgdr.NoHostViewError):
        ops.map(vkgdr.Memory(gpu, 4, kind="device"), "r", 0, 4, "u1")
    assert visible.map_count == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("migrate", [ops.migrate, vkgdr.Memory.migrate])
def test_one_memory_moves_to_another_kind(gpu, memory, kind, migrate, live):
    ops.fill(memory, b"abc", 4095, is_blocking=True)
    contents = memory.tobytes()
    new = migrate(memory, kind)
    assert memory.freed
    assert (new.kind, new.tobytes()) == (kind, contents)
    assert len(migrate(new, "host", discard=True)) == SIZE
    assert new.freed


def test_several_move_together(gpu):
    old = [vkgdr.Memory(gpu, 16, kind=kind, name=kind) for kind in KINDS]
    for number, memory in enumerate(old):
        ops.fill(memory, bytes([number]))
    new = ops.migrate(iter(old), "host")
    assert [memory.tobytes() for memory in new] == [bytes([number]) * 16 for number in range(3)]
    assert [memory.name for memory in new] == KINDS
    assert all(memory.freed for memory in old)
    assert ops.migrate([], "host") == []


def test_a_failed_migration_changes_nothing(gpu, simulated):
    old = [vkgdr.Memory(gpu, 16) for _ in range(3)]
    for number, memory in enumerate(old):
        ops.fill(memory, bytes([number]), is_blocking=True)
    live = gpu.stats()["live_allocations"]
    # The allocation is tried again after a garbage collection.
    with simulator.vulkan.fail("vkAllocateMemory", 2, -4), pytest.raises(vkgdr.VkgdrError, match="DEVICE_LOST"):
        ops.migrate(old, "device")
    with simulator.fail("cuMemcpyDtoDAsync", 2, 999), pytest.raises(vkgdr.VkgdrError, match="UNKNOWN"):
        ops.migrate(old, "device")
    assert gpu.stats()["live_allocations"] == live
    assert [memory.tobytes()[0] for memory in old] == [0, 1, 2]


@pytest.mark.parametrize("migrate", [ops.migrate, vkgdr.Memory.migrate])
def test_the_bytes_stay_where_the_old_memory_cannot_be_freed_now(cuda, gpu, migrate, caplog):
    memory = vkgdr.Memory(gpu, 5, kind="host")
    memory.copy_from_host(b"bytes")
    with cuda.stream() as stream, contextlib.suppress(CudaError), cuda.capture(stream):
        new = migrate(memory, "mapped")
    assert (memory.freed, new.tobytes()) == (True, b"bytes")
    assert "CAPTURE" in caplog.text


def test_contents_may_be_left_behind(memory, simulated):
    before = simulator.calls("cuMemcpyDtoDAsync")
    new = ops.migrate(memory, "host", discard=True)
    assert len(new) == SIZE
    assert memory.freed
    assert simulator.calls("cuMemcpyDtoDAsync") == before


def test_a_migration_comes_after_its_stream(cuda, gpu):
    memory, moved = vkgdr.Memory(gpu, SIZE, kind="device"), []
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        cuda.fill(memory.device_ptr, 1, SIZE, stream)
        wait_at(gate, lambda: moved.append(ops.migrate(memory, "mapped", stream=stream)), cuda.current())
        assert moved[0].tobytes() == b"\1" * SIZE


def test_what_is_no_memory_does_not_move(memory):
    with pytest.raises(TypeError, match="not bytearray"):
        ops.migrate([memory, bytearray(4)], "host")
    with pytest.raises(vkgdr.InvalidArgumentError, match="'fast'"):
        ops.migrate(memory, "fast")
    with pytest.raises(TypeError, match="not a CUDA stream"):
        ops.migrate(memory, "host", stream="default", discard=True)
    assert not memory.freed
