"""The writes of the device and of the CPU on memory that is not coherent.

The tests pass on coherent memory too; only the profile ``non-coherent`` can make them fail.
"""

import numpy as np
import pytest
import vkgdr
import vkgdr.compat.dpctl
from neighbours import device_bytes
from vkgdr.compat import pyopencl as ops

SIZE = 4096
# Ends within an atom, and on the boundary of the largest atom: 256 bytes.
RANGES = [(0, 3), (10, 300), (255, 2), (256, 512), (300, 3796), (4090, 6)]

every_range = pytest.mark.parametrize(("offset", "size"), RANGES)


@pytest.fixture(params=["mapped", "host"])
def memory(gpu, request):
    return vkgdr.Memory(gpu, SIZE, kind=request.param)


def map_and_write(memory, offset, data):
    with memory.map_discard(offset=offset, size=len(data)) as array:
        array[:] = memoryview(data)


WRITES = {
    "copy_from_host": lambda memory, offset, data: memory.copy_from_host(data, offset=offset),
    "copy_from_host to a region": lambda memory, offset, data: memory[offset:].copy_from_host(data),
    "memset": lambda memory, offset, data: memory.memset(data[0], offset=offset, nbytes=len(data)),
    "ops.copy": lambda memory, offset, data: ops.copy(memory, data, dst_offset=offset),
    "ops.fill": lambda memory, offset, data: ops.fill(memory[offset:], data, len(data), is_blocking=True),
    "map_discard": map_and_write,
}


@pytest.mark.parametrize("how", WRITES)
@every_range
def test_what_the_device_wrote_before_and_behind_a_write_stays(cuda, memory, how, offset, size):
    cuda.fill(memory.device_ptr, ord("d"), SIZE)
    data = b"w" * size if how == "memset" else bytes(number % 251 for number in range(size))
    WRITES[how](memory, offset, data)
    assert device_bytes(cuda, memory) == b"d" * offset + data + b"d" * (SIZE - offset - size)


CUDA_WRITES = {
    "a fill": lambda memory, offset, data: ops.fill(memory[offset:], data[:1], len(data), is_blocking=True),
    "a fill by copies": lambda memory, offset, data: ops.fill(memory[offset:], data, len(data), is_blocking=True),
    "host bytes": lambda memory, offset, data: ops.copy(memory, data, dst_offset=offset, stream=0),
    "a rectangle": lambda memory, offset, data: ops.copy(
        memory, data, region=(1, len(data)), dst_origin=(0, offset), dst_pitches=(1,)
    ),
}


@pytest.mark.parametrize("how", CUDA_WRITES)
@every_range
def test_the_cpu_sees_what_a_blocking_copy_of_cuda_wrote(gpu, memory, how, offset, size):
    memory.memset(ord("d"))
    CUDA_WRITES[how](memory, offset, b"w" * size)
    assert bytes(memory.buf) == b"d" * offset + b"w" * size + b"d" * (SIZE - offset - size)


def test_dates_in_memory_are_copied_from_the_host(gpu, memory):
    dates = vkgdr.Memory(gpu, 80).get_host_array(dtype="M8[s]")
    dates[:] = np.arange(10).astype("M8[s]")
    memory.copy_from_host(dates)
    assert memory.get_host_array(10, "M8[s]").tolist() == dates.tolist()


@every_range
def test_host_bytes_of_the_memory_itself_are_copied_as_the_cpu_sees_them(cuda, memory, offset, size):
    array = memory.get_host_array()
    cuda.fill(memory.device_ptr, ord("d"), SIZE)
    array[:size] = ord("h")
    memory.copy_from_host(array[:size], offset=offset)
    assert memory.tobytes()[offset : offset + size] == b"h" * size


@pytest.mark.parametrize("end", ["release", "drop"])
@pytest.mark.parametrize("mode", ["w", "rw", "discard"])
def test_a_map_that_the_cpu_never_used_writes_nothing(cuda, memory, mode, end):
    memory.memset(0)
    cuda.fill(memory.device_ptr, ord("d"), SIZE)
    mapping = memory.map(mode, blocking=False)
    if end == "release":
        mapping.release()
    del mapping
    assert device_bytes(cuda, memory) == b"d" * SIZE


def test_a_map_whose_array_was_taken_without_a_wait_is_flushed(cuda, memory):
    mapping = memory.map("w", blocking=False)
    mapping.array[:] = ord("w")
    mapping.release()
    assert device_bytes(cuda, memory) == b"w" * SIZE


def copied_to_a_buffer(memory):
    buffer = vkgdr.compat.rmm.Buffer(memory.owner, size=SIZE)
    buffer.copy_from_device(memory)
    return buffer


COPIES = {
    "MemoryHost(copy=True)": lambda memory: vkgdr.compat.dpctl.MemoryHost(memory[:], copy=True),
    "migrate": lambda memory: memory.migrate("host"),
    "copy_from_device": copied_to_a_buffer,
    "a buffer of an address": lambda memory: vkgdr.compat.rmm.Buffer(memory.owner, ptr=memory.device_ptr, size=SIZE),
}


@pytest.mark.parametrize("kind", ["mapped", "device"])
@pytest.mark.parametrize("how", COPIES)
def test_the_cpu_sees_what_the_device_has_copied(cuda, gpu, how, kind):
    memory = vkgdr.Memory(gpu, SIZE, kind=kind)
    cuda.fill(memory.device_ptr, ord("d"), SIZE)
    copied = COPIES[how](memory)
    assert copied.get_host_array().tobytes() == b"d" * SIZE


@every_range
def test_the_cpu_sees_a_part_that_the_device_has_copied(cuda, gpu, memory, offset, size):
    memory.copy_from_host(b"h" * SIZE)
    source = vkgdr.Memory(gpu, size, kind="device")
    source.copy_from_host(b"s" * size)
    memory.copy_from_device(source, offset=offset)
    assert memory.get_host_array().tobytes() == b"h" * offset + b"s" * size + b"h" * (SIZE - offset - size)


@pytest.fixture
def array(cuda, memory):
    """Return a host array over memory to which the device wrote `d`s, and then the CPU unflushed `h`s."""
    cuda.fill(memory.device_ptr, ord("d"), SIZE)
    array = memory.get_host_array()
    array[:] = ord("h")
    return array


@pytest.mark.parametrize("is_blocking", [True, False])
@pytest.mark.parametrize("stream", [None, 0])
def test_a_host_array_is_copied_as_the_cpu_sees_it(gpu, memory, array, stream, is_blocking):
    other, device = vkgdr.Memory(gpu, 100), vkgdr.Memory(gpu, 100, kind="device")
    # A host array sees what does not block after an invalidate.
    for target in (bytearray(100), other, device, *([np.asarray(other)] if is_blocking else [])):
        array[:] += 1
        ops.copy(target, array[10:110], stream=stream, is_blocking=is_blocking).synchronize()
        assert bytes(target) == array[10:110].tobytes()
    with pytest.raises(vkgdr.InvalidArgumentError, match="overlap"):
        ops.copy(array[:10], memory, byte_count=10)


@pytest.mark.parametrize("stream", [None, 0])
@pytest.mark.parametrize("kind", ["mapped", "device", "bytes"])
def test_a_host_array_sees_what_is_copied_to_it_and_keeps_the_rest(cuda, gpu, memory, array, kind, stream):
    source = b"abc" if kind == "bytes" else vkgdr.Memory(gpu, 3, kind=kind)
    if kind != "bytes":
        source.copy_from_host(b"abc")
    ops.copy(array[:1000], source, dst_offset=500, stream=stream)
    expected = b"h" * 500 + b"abc" + b"h" * 497
    assert array[:1000].tobytes() == expected
    assert device_bytes(cuda, memory)[:1000] == expected


@pytest.mark.parametrize("stream", [None, 0])
@pytest.mark.parametrize("pattern", [b"z", b"abc"])
def test_a_host_array_sees_what_fills_it_and_keeps_the_rest(cuda, memory, array, pattern, stream):
    ops.fill(array[:1000], pattern, 300, offset=30, stream=stream, is_blocking=True)
    expected = b"h" * 30 + pattern * (300 // len(pattern)) + b"h" * 670
    assert array[:1000].tobytes() == expected
    assert device_bytes(cuda, memory)[:1000] == expected


def test_a_host_array_has_what_does_not_block_after_an_invalidate(gpu, array):
    source = vkgdr.Memory(gpu, SIZE)
    source.copy_from_host(b"s" * SIZE)
    for start in (
        lambda: ops.copy(array, source, is_blocking=False),
        lambda: ops.fill(array, b"s"),
        lambda: ops.fill(array[:-1], b"sssss", stream=0),
    ):
        array[:] = 0
        start().synchronize()
        vkgdr.device_view(array).invalidate()
        assert array.tobytes()[:-1] == b"s" * (SIZE - 1)
