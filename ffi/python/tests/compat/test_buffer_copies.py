"""``vkgdr.compat.rmm.Buffer``: the copies of RMM's ``DeviceBuffer``."""

import copy

import numpy as np
import pytest
import vkgdr
from neighbours import Foreign, every_kind, wait_at
from vkgdr.compat.rmm import Buffer

# ---- DeviceBuffer.to_device(b, stream) ------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(
    "source", [b"abc", bytearray(b"abc"), memoryview(b"abc"), np.frombuffer(b"abc", "u1"), np.frombuffer(b"abc", "i1")]
)
def test_to_device_copies_bytes(cuda, gpu, kind, source):
    buffer = Buffer.to_device(source, owner=gpu, kind=kind)
    assert buffer.kind == kind
    assert cuda.read(buffer.ptr, 3) == b"abc"


@every_kind
@pytest.mark.parametrize("source", [b"", bytearray(), np.zeros(0, "u1"), np.zeros((0, 5))])
def test_to_device_of_nothing_is_an_empty_buffer(gpu, kind, source, live):
    buffer = Buffer.to_device(source, owner=gpu, kind=kind)
    assert len(buffer) == buffer.ptr == 0
    assert live() == 0


def test_to_device_refuses_what_is_no_contiguous_buffer(gpu):
    for source in (None, 5, "abc", [1, 2, 3]):
        with pytest.raises(TypeError, match=type(source).__name__ if source is not None else "None"):
            Buffer.to_device(source, owner=gpu)
    with pytest.raises(ValueError, match="contiguous"):
        Buffer.to_device(np.zeros(10, "u1")[::2], owner=gpu)
    with pytest.raises(ValueError, match="contiguous"):
        Buffer.to_device(np.zeros((2, 3)).T, owner=gpu)


def test_to_device_of_a_subclass_gives_the_subclass(gpu):
    class Mine(Buffer):
        pass

    assert type(Mine.to_device(b"abc", owner=gpu)) is Mine


# ---- copy_to_host(ary=None, stream) ---------------------------------------------------------------------------------


@every_kind
def test_copy_to_host_refuses_a_smaller_array(gpu, kind):
    buffer = Buffer(gpu, size=10, kind=kind)
    with pytest.raises(ValueError, match=r"Argument `ary` is too small\. Need space for 10 bytes\."):
        buffer.copy_to_host(np.empty(9, "u1"))
    with pytest.raises(ValueError, match=r"Argument `ary` is too small\. Need space for 8 bytes\."):
        buffer.copy_to_host(bytearray(7), offset=2)


@every_kind
def test_copies_are_finished_when_they_return_also_on_a_stream(cuda, gpu, kind):
    buffer = Buffer.to_device(b"abc", owner=gpu, kind=kind)
    with cuda.stream() as stream:
        target = bytearray(3)
        with cuda.hold(stream) as gate:
            cuda.fill(buffer.ptr, ord("n"), 3, stream)
            wait_at(gate, lambda: buffer.copy_to_host(target, stream))
        assert target == b"nnn"
        with cuda.hold(stream) as gate:
            cuda.fill(buffer.ptr, ord("-"), 3, stream)
            wait_at(gate, lambda: buffer.copy_from_host(b"xy", stream))
        assert buffer.tobytes() == b"xy-"
        assert buffer.stream is None
        buffer.free()


# ---- copy_from_host(ary, stream) ------------------------------------------------------------------------------------


@every_kind
def test_copy_from_host_refuses_more_bytes_than_there_is_room_for(gpu, kind):
    buffer = Buffer.to_device(b"---", owner=gpu, kind=kind)
    with pytest.raises(ValueError, match=r"Argument `ary` is too large\. Need space for 4 bytes\."):
        buffer.copy_from_host(b"abcd")
    assert buffer.tobytes() == b"---"
    with pytest.raises(TypeError, match="NoneType"):
        buffer.copy_from_host(None)


@every_kind
def test_bytes_beyond_the_size_are_out_of_reach(gpu, kind):
    buffer = Buffer.to_device(b"abcdef", owner=gpu, kind=kind)
    buffer.resize(3)
    with pytest.raises(ValueError, match="4 bytes"):
        buffer.copy_from_host(b"wxyz")
    with pytest.raises(vkgdr.OutOfRangeError):
        buffer.memset(1, nbytes=4)
    with pytest.raises(vkgdr.OutOfRangeError):
        buffer.get_sub_region(0, 4)
    assert len(buffer[0:10]) == 3
    assert buffer.tobytes() == b"abc"


# ---- copy_from_device(cuda_ary, stream) -----------------------------------------------------------------------------


@every_kind
def test_copy_from_device_takes_arrays_of_one_dimension(cuda, gpu, kind):
    buffer = Buffer.to_device(b"-----", owner=gpu, kind=kind)
    assert buffer.copy_from_device(Foreign(cuda, b"ab")) is None
    buffer.copy_from_device(cuda_ary=Buffer.to_device(b"c", owner=gpu), offset=4)
    assert buffer.tobytes() == b"ab--c"
    buffer.copy_from_device(Foreign(cuda, b"wxyz", shape=(2,), typestr="<u2", strides=(2,)))
    assert buffer.tobytes() == b"wxyzc"


def test_copy_from_device_refuses_what_rmm_refuses(cuda, gpu):
    buffer = Buffer(gpu, size=6)
    for source in (None, b"abc", np.zeros(3, "u1")):
        with pytest.raises(ValueError, match=f"{type(source).__name__} (has no device memory|is on DLPack device)"):
            buffer.copy_from_device(source)
    with pytest.raises(ValueError, match=r"Only 1-D contiguous arrays are supported.*\(2, 3\)"):
        buffer.copy_from_device(Foreign(cuda, b"abcdef", shape=(2, 3)))
    with pytest.raises(ValueError, match=r"strides \(2,\)"):
        buffer.copy_from_device(Foreign(cuda, b"abcdef", shape=(3,), strides=(2,)))
    with pytest.raises(ValueError, match=r"too large.* 7 bytes.*6"):
        buffer.copy_from_device(Foreign(cuda, b"abcdefg"))


# ---- tobytes(stream), bytes(); size, nbytes, len, ptr, __sizeof__ ---------------------------------------------------


# ---- copy(), __copy__ -----------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("contents", [b"abc", b""])
@pytest.mark.parametrize("make", [Buffer.copy, copy.copy, copy.deepcopy])
def test_a_copy_has_bytes_of_its_own(cuda, gpu, kind, contents, make):
    with cuda.stream() as stream:
        buffer = Buffer.to_device(contents, stream, owner=gpu, kind=kind)
        buffer.reserve(100)
        copied = make(buffer)
        assert type(copied) is Buffer
        assert (copied.kind, copied.owner, copied.stream) == (kind, gpu, stream)
        assert copied.capacity() == len(contents)
        assert copied.ptr != buffer.ptr or not contents
        buffer.memset(0)
        assert copied.tobytes() == contents
        buffer.free()
        copied.free()


def test_a_copy_has_what_the_cpu_wrote(context):
    gpu = vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    buffer = Buffer(gpu, size=10)
    np.asarray(buffer)[:] = 5
    buffer.flush()
    assert bytes(np.asarray(buffer.copy())) == b"\5" * 10
