"""``vkgdr.compat.pyopencl.copy``: copies of ranges, and their errors.

Order is in test_pyopencl_order.py, rectangles are in test_pyopencl_rectangles.py, other functions in
test_pyopencl_fill_map.py.
"""

import gc

import numpy as np
import pytest
import simulator
import vkgdr
from everything import SIZE
from neighbours import KINDS, BorrowedBytes, ByDlpack, device_bytes
from vkgdr.compat import pyopencl as ops

DATA = bytes(range(256)) * (SIZE // 256)


@pytest.fixture
def mapped(gpu):
    return vkgdr.Memory(gpu, SIZE)


# ---- copies: contents -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_blocking", [True, False])
def test_bytes_go_to_memory_and_back(cuda, memory, is_blocking):
    ops.copy(memory, DATA, is_blocking=is_blocking).synchronize()
    assert device_bytes(cuda, memory) == DATA
    back = bytearray(SIZE)
    ops.copy(back, memory, is_blocking=is_blocking).synchronize()
    assert back == DATA
    for kind in KINDS:
        other = vkgdr.Memory(memory.owner, SIZE, kind=kind)
        event = ops.copy(other, memory, is_blocking=is_blocking)
        assert event.is_complete or not is_blocking
        event.synchronize()
        assert device_bytes(cuda, other) == DATA


def test_the_host_the_shorter_memory_or_byte_count_says_how_much_is_copied(gpu, memory):
    ops.fill(memory, b"\0", is_blocking=True)
    ops.copy(memory, b"abcdef", src_offset=1, dst_offset=10)
    assert memory.tobytes()[8:18] == b"\0\0bcdef\0\0\0"
    back = bytearray(b"........")
    ops.copy(back, memory, src_offset=10, dst_offset=2)
    assert back == b"..bcdef\0"
    small = vkgdr.Memory(gpu, 8)
    ops.copy(small, b"12345678")
    ops.fill(memory, b".", is_blocking=True)
    ops.copy(memory, small, src_offset=6, dst_offset=1)
    assert memory.tobytes()[:4] == b".78."
    ops.copy(small, memory, dst_offset=7)
    assert small.tobytes() == b"1234567."
    for stream in (None, 0):
        ops.fill(memory, b".", is_blocking=True)
        ops.copy(memory, b"abcdef", byte_count=2, src_offset=3, dst_offset=4, stream=stream)
        assert memory.tobytes()[:8] == b"....de.."
        back = bytearray(6)
        ops.copy(back, memory, byte_count=2, src_offset=4, dst_offset=1, stream=stream)
        assert back == b"\0de\0\0\0"


def test_copies_of_nothing_are_allowed(memory):
    ops.copy(memory, DATA)
    assert ops.copy(memory, b"").is_complete
    assert ops.copy(bytearray(), memory, src_offset=SIZE).is_complete
    ops.copy(memory, memory, byte_count=0, is_blocking=False).synchronize()
    ops.copy(memory, b"abc", byte_count=0, dst_offset=SIZE, src_offset=3)
    assert memory.tobytes() == DATA


def test_regions_and_host_arrays_of_any_type_are_sides(cuda, memory):
    ops.fill(memory, b"\0", is_blocking=True)
    region = memory[100:200]
    numbers = np.arange(6, dtype=">f4").reshape(2, 3)
    ops.copy(region, numbers, dst_offset=4)
    assert device_bytes(cuda, memory)[104:128] == numbers.tobytes()
    back = np.zeros((3, 2), np.complex64)[:, :1].copy()
    ops.copy(back, region, src_offset=4)
    assert back.tobytes() == numbers.tobytes()
    part = np.zeros(8, [("a", "u2"), ("b", "f8")])
    ops.copy(part, region, byte_count=5, src_offset=4, dst_offset=3)
    assert part.tobytes()[3:8] == numbers.tobytes()[:5]


def test_a_cuda_array_of_another_library_is_a_side(cuda, memory, foreign):
    pointer = foreign.__cuda_array_interface__["data"][0]
    ops.copy(foreign, b"0123456789abcdef")
    assert cuda.read(pointer, 16) == b"0123456789abcdef"
    ops.copy(memory, foreign, src_offset=10)
    assert memory.tobytes()[:6] == b"abcdef"
    back = bytearray(16)
    ops.copy(back, foreign, is_blocking=False).synchronize()
    assert back == b"0123456789abcdef"


def test_a_dlpack_tensor_is_a_side(memory):
    ops.copy(ByDlpack(memory), DATA)
    assert memory.tobytes() == DATA
    back = bytearray(SIZE)
    ops.copy(back, ByDlpack(memory))
    assert back == DATA


@pytest.mark.parametrize("flags", [0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT])
def test_a_host_array_over_memory_stands_for_the_memory(cuda, context, flags):
    gpu = vkgdr.Vkgdr(0, flags)
    a, b = vkgdr.Memory(gpu, 64), vkgdr.Memory(gpu, 64)
    x, y = np.asarray(a), np.asarray(b)
    x[:] = range(64)
    ops.copy(y[10:20], x[20:30])
    assert y[10:20].tolist() == list(range(20, 30))
    ops.fill(y[:4], b"z", is_blocking=True)
    assert y[:4].tobytes() == b"zzzz"
    back = bytearray(10)
    ops.copy(back, x[20:30])
    assert back == bytes(range(20, 30))
    with pytest.raises(vkgdr.InvalidArgumentError, match="overlap"):
        ops.copy(x[:10], a, byte_count=10)


def test_memory_of_another_context_is_copied_too(cuda, gpu, context):
    a = vkgdr.Memory(gpu, SIZE)
    ops.copy(a, DATA)
    other = cuda.create_context()
    try:
        b = vkgdr.Memory(gpu, SIZE)
        assert b.context != a.context
        ops.copy(b, a)
        assert b.tobytes() == DATA
        with context.pushed(), cuda.stream() as stream:
            a.bind_to_stream(stream)
            ops.fill(a, b"5")
            ops.copy(b, a)
            a.unbind_stream()
        assert b.tobytes() == b"5" * SIZE
        with pytest.raises(vkgdr.InvalidArgumentError, match="one CUDA context"):
            ops.copy(b, a, region=(8, 2))
        del b
        gc.collect()
    finally:
        other.destroy()


def test_memory_of_another_context_waits_for_a_copy_when_it_goes(cuda, gpu, context):
    a = vkgdr.Memory(gpu, SIZE, kind="device")
    ops.copy(a, DATA)
    other = cuda.create_context()
    try:
        b = vkgdr.Memory(gpu, SIZE, kind="device")
        with cuda.stream() as stream, cuda.hold(stream) as gate:
            event = ops.copy(b, a, stream=stream, is_blocking=False)
            before = gpu.stats()["live_allocations"]
            del a
            assert gpu.stats()["live_allocations"] == before, "freed while the copy was pending"
            gate.open()
            event.synchronize()
        assert b.tobytes() == DATA
        assert gpu.stats()["live_allocations"] == before - 1
        # Before their context.
        del b, event
    finally:
        other.destroy()


# ---- copies: errors -------------------------------------------------------------------------------------------------


MEMORY = object()
# Both sides, keywords, the error and its text.
REFUSED = [
    (bytearray(4), b"abcd", {}, TypeError, "both sides are host memory, bytes to bytearray"),
    (MEMORY, 5, {}, TypeError, "the source must be device memory or a bytes-like object, not int"),
    ([1], MEMORY, {}, TypeError, "the destination must be .* not list"),
    (MEMORY, DATA, {"src_origin": (0, 0)}, TypeError, "region"),
    (MEMORY, DATA, {"dst_pitches": (8,)}, TypeError, "region"),
    (MEMORY, DATA, {"stream": "default"}, TypeError, "not a CUDA stream"),
    (MEMORY, bytes(4097), {}, vkgdr.OutOfRangeError, "4097 bytes at 0 .* 4096 bytes of the destination"),
    (bytearray(4), MEMORY, {"src_offset": 4093}, vkgdr.OutOfRangeError, "4 bytes at 4093 .* 4096 bytes of the source"),
    (MEMORY, bytes(4), {"src_offset": 9}, vkgdr.OutOfRangeError, "0 bytes at 9 .* 4 bytes of the source"),
    (bytearray(4), MEMORY, {"byte_count": 5}, vkgdr.OutOfRangeError, "5 bytes at 0 .* 4 bytes of the destination"),
]
for name in ("byte_count", "src_offset", "dst_offset"):
    REFUSED.append((MEMORY, DATA, {"region": (2, 2), name: 4}, TypeError, "not byte_count"))
    REFUSED.append((MEMORY, DATA, {name: 1.5}, TypeError, "float"))
    for value in (-1, 1 << 64, 10**30):
        REFUSED.append((MEMORY, DATA, {name: value}, vkgdr.OutOfRangeError, f"{name} must be .* not {value}"))


@pytest.mark.parametrize(("dest", "src", "arguments", "error", "text"), REFUSED)
def test_what_cannot_be_copied_is_refused_with_the_numbers(mapped, dest, src, arguments, error, text):
    dest, src = (mapped if side is MEMORY else side for side in (dest, src))
    for stream in ({}, {"stream": 0}):
        with pytest.raises(error, match=text):
            ops.copy(dest, src, **stream | arguments)


def test_overlapping_ranges_are_refused_and_touching_ones_are_not(mapped):
    ops.copy(mapped, DATA)
    with pytest.raises(vkgdr.InvalidArgumentError, match=r"from byte 0 on, .* from byte 99 on, overlap"):
        ops.copy(mapped, mapped, byte_count=100, dst_offset=99)
    with pytest.raises(vkgdr.InvalidArgumentError, match="overlap"):
        ops.copy(mapped[50:150], mapped[149:249])
    assert mapped.tobytes() == DATA
    ops.copy(mapped, mapped, byte_count=100, dst_offset=100)
    assert mapped.tobytes()[:200] == DATA[:100] * 2


def test_a_read_only_destination_is_refused(gpu, foreign):
    readonly = vkgdr.Memory(gpu, 16, readonly=True)
    interface = foreign.__cuda_array_interface__
    foreign_readonly = BorrowedBytes(interface["data"][0], 16, readonly=True)
    for destination in (readonly, foreign_readonly):
        for stream in (None, 0):
            with pytest.raises(vkgdr.InvalidArgumentError, match="read-only"):
                ops.copy(destination, bytes(16), stream=stream)
    with pytest.raises(vkgdr.InvalidArgumentError, match="writable"):
        ops.copy(bytes(16), readonly)
    with pytest.raises(vkgdr.InvalidArgumentError, match="read-only"):
        ops.fill(readonly, b"a")
    ops.copy(bytearray(16), readonly)


def test_a_failure_of_the_driver_is_reported(mapped, simulated):
    with simulator.fail("cuMemcpyHtoDAsync", 1, 999), pytest.raises(vkgdr.VkgdrError, match="CUDA_ERROR_UNKNOWN"):
        ops.copy(mapped, DATA, stream=0)
