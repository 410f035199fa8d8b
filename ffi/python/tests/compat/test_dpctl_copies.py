"""``vkgdr.memory``: the copies and fills of dpctl.memory."""

import numpy as np
import pytest
import simulator
import vkgdr
from neighbours import ByDlpack, ByInterface, Foreign, wait_at
from vkgdr.memory import MemoryDevice, MemoryHost, MemoryShared

CLASSES = [MemoryShared, MemoryHost, MemoryDevice]

every_class = pytest.mark.parametrize("cls", CLASSES)


# ---- copy_to_host(obj=None) -----------------------------------------------------------------------------------------


@every_class
def test_copy_to_host_makes_an_array(gpu, cls):
    memory = cls(5, owner=gpu)
    memory.copy_from_host(b"hello")
    array = memory.copy_to_host()
    assert array.dtype == np.uint8
    assert array.shape == (5,)
    assert array.flags.owndata
    assert bytes(array) == b"hello"


@every_class
def test_copy_to_host_fills_and_returns_what_it_is_given(gpu, cls):
    memory = cls(5, owner=gpu)
    memory.copy_from_host(b"hello")
    for target in (bytearray(5), memoryview(bytearray(5)), np.zeros(5, "u1"), np.zeros((1, 5), "i1")):
        assert memory.copy_to_host(target) is target
        assert bytes(target) == b"hello"


@every_class
def test_copy_to_host_takes_any_contiguous_bytes(gpu, cls):
    memory = cls(8, owner=gpu)
    memory.copy_from_host(np.array([1.5], "f8"))
    assert memory.copy_to_host(np.zeros(1, "f8"))[0] == 1.5
    assert memory.copy_to_host(np.zeros((), "f8")) == 1.5


@every_class
def test_copy_to_host_leaves_the_rest_of_a_larger_target(gpu, cls):
    memory = cls(5, owner=gpu)
    memory.memset(ord("a"))
    assert memory.copy_to_host(bytearray(b"-" * 8)) == b"aaaaa---"


@every_class
def test_copy_to_host_refuses_a_smaller_target(gpu, cls):
    memory = cls(5, owner=gpu)
    target = bytearray(4)
    with pytest.raises(ValueError, match=r"Destination object is too small.*4 bytes.*5"):
        memory.copy_to_host(target)
    assert target == bytes(4)


def test_copy_to_host_refuses_read_only_and_scattered_targets(gpu):
    memory = MemoryShared(5, owner=gpu)
    with pytest.raises(ValueError, match="writable"):
        memory.copy_to_host(bytes(5))
    with pytest.raises(ValueError, match="contiguous"):
        memory.copy_to_host(np.zeros(20, "u1")[::2])
    with pytest.raises(ValueError, match="contiguous"):
        memory.copy_to_host(np.zeros((4, 4), "u1").T)


@pytest.mark.parametrize("target", [5, "hello", [0] * 5, object()])
def test_copy_to_host_refuses_what_is_no_buffer(gpu, target):
    with pytest.raises(TypeError, match=type(target).__name__):
        MemoryShared(5, owner=gpu).copy_to_host(target)


@every_class
def test_copy_to_host_waits_for_the_bound_stream(cuda, gpu, cls):
    with cuda.stream() as stream:
        memory = cls(3, queue=stream, owner=gpu)
        with cuda.hold(stream) as gate:
            cuda.fill(memory.device_ptr, ord("n"), 3, stream)
            copied = []
            wait_at(gate, lambda: copied.append(bytes(memory.copy_to_host())))
        assert copied == [b"nnn"]
        memory.free()


# ---- copy_from_host(obj) --------------------------------------------------------------------------------------------


@every_class
@pytest.mark.parametrize("source", [b"abcde", bytearray(b"abcde"), np.frombuffer(b"abcde", "u1"), memoryview(b"abcde")])
def test_copy_from_host_takes_bytes_read_only_ones_too(cuda, gpu, cls, source):
    memory = cls(5, owner=gpu)
    assert memory.copy_from_host(source) is None
    assert cuda.read(memory.device_ptr, 5) == b"abcde"


@every_class
def test_copy_from_host_of_fewer_bytes_is_a_prefix(gpu, cls):
    memory = cls(5, owner=gpu)
    memory.memset(ord("-"))
    memory.copy_from_host(b"ab")
    assert memory.tobytes() == b"ab---"
    memory.copy_from_host(b"cd", offset=3)
    assert memory.tobytes() == b"ab-cd"


@every_class
def test_copy_from_host_of_nothing_does_nothing(gpu, cls):
    memory = cls(5, owner=gpu)
    memory.memset(ord("-"))
    memory.copy_from_host(b"")
    memory.copy_from_host(b"", offset=5)
    assert memory.tobytes() == b"-----"


@every_class
def test_copy_from_host_refuses_more_bytes_than_there_is_room_for(gpu, cls):
    memory = cls(5, owner=gpu)
    memory.memset(ord("-"))
    with pytest.raises(ValueError, match=r"Source object is too large.*6 bytes.*5"):
        memory.copy_from_host(b"abcdef")
    with pytest.raises(ValueError, match=r"Source object is too large.*3 bytes.*2"):
        memory.copy_from_host(b"abc", offset=3)
    assert memory.tobytes() == b"-----"


def test_copy_from_host_refuses_what_is_no_contiguous_buffer(gpu):
    memory = MemoryShared(5, owner=gpu)
    with pytest.raises(TypeError, match="int"):
        memory.copy_from_host(5)
    with pytest.raises(TypeError, match="NoneType"):
        memory.copy_from_host(None)
    with pytest.raises(ValueError, match="contiguous"):
        memory.copy_from_host(np.zeros(10, "u1")[::2])


@every_class
def test_an_offset_past_the_end_is_refused(gpu, cls):
    memory = cls(5, owner=gpu)
    with pytest.raises(vkgdr.OutOfRangeError, match="6"):
        memory.copy_from_host(b"", offset=6)
    with pytest.raises(vkgdr.OutOfRangeError, match="6"):
        memory.copy_to_host(offset=6)
    with pytest.raises(OverflowError, match="-1"):
        memory.copy_to_host(offset=-1)


# ---- copy_from_device(obj) ------------------------------------------------------------------------------------------


@every_class
@pytest.mark.parametrize("other", CLASSES)
def test_copy_from_device_copies_between_all_kinds(gpu, cls, other):
    source, memory = other(3, owner=gpu), cls(5, owner=gpu)
    source.copy_from_host(b"abc")
    memory.memset(ord("-"))
    assert memory.copy_from_device(source) is None
    assert memory.tobytes() == b"abc--"
    memory.copy_from_device(source, offset=2)
    assert memory.tobytes() == b"ababc"


@every_class
def test_copy_from_device_takes_memory_of_other_libraries(cuda, gpu, cls):
    memory = cls(3, owner=gpu)
    memory.copy_from_device(Foreign(cuda, b"abc"))
    assert memory.tobytes() == b"abc"
    memory.copy_from_device(ByDlpack(MemoryDevice(Foreign(cuda, b"xyz"))))
    assert memory.tobytes() == b"xyz"


def test_copy_from_device_of_another_context_works(cuda, gpu):
    memory = MemoryShared(4, owner=gpu)
    other = cuda.create_context()
    source = MemoryDevice(4, owner=vkgdr.Vkgdr(0))
    source.copy_from_host(b"abcd")
    assert source.context == other.handle != memory.context
    cuda.pop()
    memory.copy_from_device(source)
    assert memory.tobytes() == b"abcd"
    source.free()
    other.destroy()


@pytest.mark.parametrize("source", [None, 5, b"abc", np.zeros(3, "u1"), object()])
def test_copy_from_device_refuses_what_has_no_device_memory(gpu, source):
    with pytest.raises(ValueError, match=f"{type(source).__name__} (has no device memory|is on DLPack device)"):
        MemoryShared(3, owner=gpu).copy_from_device(source)


def test_copy_from_device_refuses_an_interface_that_is_no_dict(gpu):
    with pytest.raises(TypeError, match="must be a dict, not int"):
        MemoryShared(3, owner=gpu).copy_from_device(ByInterface(5))


def test_copy_from_device_refuses_more_bytes_than_there_is_room_for(cuda, gpu):
    memory = MemoryShared(3, owner=gpu)
    with pytest.raises(ValueError, match=r"too large: 4 bytes.*3"):
        memory.copy_from_device(Foreign(cuda, b"abcd"))
    with pytest.raises(ValueError, match=r"too large: 4 bytes.*3"):
        memory.copy_from_device(MemoryDevice(4, owner=gpu))


def test_copy_from_device_refuses_overlap(gpu):
    memory = MemoryShared(100, owner=gpu)
    with pytest.raises(ValueError, match="overlap"):
        memory.copy_from_device(memory[0:60], offset=30)
    memory.memset(1, nbytes=50)
    memory.copy_from_device(memory[0:50], offset=50)
    assert memory.tobytes() == b"\1" * 100


def test_copy_from_device_comes_after_the_interfaces_stream(cuda, gpu):
    memory = MemoryShared(3, owner=gpu)
    with cuda.stream() as stream:
        foreign = Foreign(cuda, b"old", stream=stream)
        with cuda.hold(stream) as gate:
            cuda.fill(foreign.pointer, ord("n"), 3, stream)
            wait_at(gate, lambda: memory.copy_from_device(foreign))
    assert memory.tobytes() == b"nnn"


# ---- tobytes() / bytes(m), memset(val=0) ----------------------------------------------------------------------------


@every_class
def test_tobytes_is_a_copy(gpu, cls):
    memory = cls(3, owner=gpu)
    memory.copy_from_host(b"abc")
    copied = memory.tobytes()
    assert type(copied) is bytes
    assert copied == bytes(memory) == b"abc"
    memory.memset(0)
    assert copied == b"abc"


@every_class
def test_memset_fills_bytes(cuda, gpu, cls):
    memory = cls(4097, owner=gpu)
    memory.memset(255)
    assert cuda.read(memory.device_ptr, 4097) == b"\xff" * 4097
    memory.memset()
    assert cuda.read(memory.device_ptr, 4097) == bytes(4097)


@every_class
def test_memset_fills_a_range(gpu, cls):
    memory = cls(10, owner=gpu)
    memory.memset(ord("-"))
    memory.memset(ord("a"), offset=7)
    memory.memset(val=ord("b"), offset=1, nbytes=2)
    memory.memset(ord("c"), offset=3, nbytes=0)
    assert memory.tobytes() == b"-bb----aaa"


@every_class
def test_memset_refuses_what_is_no_byte_and_no_range(gpu, cls):
    memory = cls(10, owner=gpu)
    for value in (-1, 256, 10**30):
        with pytest.raises(ValueError, match=str(value)):
            memory.memset(value)
    with pytest.raises(vkgdr.OutOfRangeError, match="11"):
        memory.memset(0, offset=11)
    with pytest.raises(vkgdr.OutOfRangeError, match="6"):
        memory.memset(0, offset=5, nbytes=6)
    with pytest.raises(TypeError, match="float"):
        memory.memset(1.5)


def test_a_memset_that_fails_is_a_runtime_error(gpu, simulated):
    memory = MemoryDevice(10, owner=gpu)
    with simulator.fail("cuMemsetD8Async", 1, 700), pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        memory.memset(1)
