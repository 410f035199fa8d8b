"""``vkgdr.compat.pyopencl``: fills, mappings and migration."""

import numpy as np
import pytest
import simulator
import vkgdr
from everything import SIZE
from neighbours import KINDS, device_bytes, wait_at
from vkgdr.compat import pyopencl as ops


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
    np.array([(1, 2.0)], [("a", "u1"), ("b", "f8")]),
    memoryview(b"-a-b-c")[1::2],
    bytearray(b"12345"),
]


def bytes_of(pattern):
    return memoryview(pattern).tobytes()


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
    ((np.array([None]),), TypeError, "Python objects"),
    ((b"",), vkgdr.InvalidArgumentError, "0 bytes"),
    *(((value,), TypeError, f"bytes-like.* not {type(value).__name__}") for value in (0, None, "text", [1, 2])),
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
