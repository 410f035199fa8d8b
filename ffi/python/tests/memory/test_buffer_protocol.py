"""The buffer protocol and NumPy's array interface: the host view."""

import array
import ctypes
import gc
import hashlib
import io
import mmap
import os
import socket
import struct
import zlib

import numpy as np
import pytest
import vkgdr


@pytest.fixture(params=["mapped", "host"])
def memory(gpu, request):
    memory = vkgdr.Memory(gpu, 4096, kind=request.param)
    memory.memset(0)
    return memory


@pytest.fixture
def readonly(gpu):
    return vkgdr.Memory(gpu, 4096, readonly=True)


@pytest.fixture
def invisible(gpu):
    return vkgdr.Memory(gpu, 4096, kind="device")


# ---- Python buffer protocol


def test_the_buffer_protocol_counts_exports(memory):
    assert memory.pending_views == 0
    views = [memoryview(memory) for _ in range(5)]
    assert memory.pending_views == 5
    part = views[0][3:9]
    views[0].release()
    assert memory.pending_views == 5
    part.release()
    assert memory.pending_views == 4
    views.clear()
    gc.collect()
    assert memory.pending_views == 0


@pytest.mark.parametrize(
    "name",
    [
        "PyBUF_SIMPLE",
        "PyBUF_WRITABLE",
        "PyBUF_ND",
        "PyBUF_STRIDES",
        "PyBUF_FORMAT",
        "PyBUF_C_CONTIGUOUS",
        "PyBUF_FULL",
        "spead2",
    ],
)
def test_the_buffer_protocol_serves_every_request(memory, name):
    flags = {
        "PyBUF_SIMPLE": 0,
        "PyBUF_WRITABLE": 1,
        "PyBUF_ND": 8,
        "PyBUF_STRIDES": 0x18,
        "PyBUF_FORMAT": 4,
        "PyBUF_C_CONTIGUOUS": 0x38,
        "PyBUF_FULL": 0x11D,
        "spead2": 0x18 | 4 | 0x38 | 1,
    }[name]

    class Buffer(ctypes.Structure):
        _fields_ = (
            ("buf", ctypes.c_void_p),
            ("obj", ctypes.py_object),
            ("len", ctypes.c_ssize_t),
            ("itemsize", ctypes.c_ssize_t),
            ("readonly", ctypes.c_int),
            ("ndim", ctypes.c_int),
            ("format", ctypes.c_char_p),
            ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
            ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
            ("suboffsets", ctypes.c_void_p),
            ("internal", ctypes.c_void_p),
        )

    buffer = Buffer()
    assert ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(memory), ctypes.byref(buffer), flags) == 0
    try:
        assert buffer.buf == memory.host_ptr
        assert (buffer.len, buffer.itemsize, buffer.readonly, buffer.ndim) == (4096, 1, 0, 1)
        assert buffer.format == (b"B" if flags & 4 else None)
        assert bool(buffer.shape) == bool(flags & 8)
        assert not buffer.shape or buffer.shape[0] == 4096
        assert bool(buffer.strides) == (flags & 0x18 == 0x18)
        assert not buffer.strides or buffer.strides[0] == 1
        assert memory.pending_views == 1
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    assert memory.pending_views == 0


def test_the_buffer_protocol_of_read_only_memory_is_read_only(readonly):
    view = memoryview(readonly)
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1
    array = np.asarray(readonly)
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises((BufferError, TypeError)):
        (ctypes.c_char * 4096).from_buffer(readonly)
    with pytest.raises((BufferError, TypeError)):
        io.BytesIO(b"abc").readinto(readonly)


def test_the_buffer_protocol_of_device_memory_says_that_there_is_no_host_view(invisible):
    for use in (memoryview, np.frombuffer, np.asarray, hashlib.sha256, zlib.crc32):
        with pytest.raises(BufferError, match="device") as caught:
            use(invisible)
        assert isinstance(caught.value, vkgdr.NoHostViewError)
    assert invisible.pending_views == 0


def test_the_buffer_protocol_of_a_region_is_the_part(memory):
    memoryview(memory)[:] = bytes(range(256)) * 16
    part = memory[100:110][2:]
    assert bytes(memoryview(part)) == bytes(range(102, 110))
    memoryview(part)[0] = 0
    assert memoryview(memory)[102] == 0


# ---- its consumers


def test_struct_packs_and_unpacks_in_memory(memory):
    struct.pack_into("<IHq", memory, 5, 1, 2, -3)
    assert struct.unpack_from("<IHq", memory, 5) == (1, 2, -3)
    with pytest.raises(struct.error, match="4096"):
        struct.pack_into("<I", memory, 4094, 1)


def test_a_file_is_read_into_memory_and_written_from_it(memory, tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(256)) * 16)
    with path.open("rb", buffering=0) as file:
        assert file.readinto(memory) == 4096
    memory.flush()
    assert memory.tobytes() == path.read_bytes()
    with path.open("wb") as file:
        assert file.write(memory) == 4096
    assert path.read_bytes() == memory.tobytes()
    with path.open("rb") as file:
        assert os.preadv(file.fileno(), [memory[:100], memory[200:]], 0) == 3996


def test_a_socket_receives_into_memory_and_sends_from_it(memory):
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"hello")
        assert right.recv_into(memory, 5) == 5
        assert memoryview(memory)[:5] == b"hello"
        right.sendmsg([memory[1:3], memory[3:5]])
        assert left.recv(10) == b"ello"
        left.send(b"12345")
        assert right.recvmsg_into([memory[10:12], memory[20:30]])[0] == 5
        assert memoryview(memory)[20:23] == b"345"


def test_ctypes_lies_over_memory(memory):
    class Header(ctypes.LittleEndianStructure):
        _fields_ = (("count", ctypes.c_uint32), ("value", ctypes.c_double))

    header = Header.from_buffer(memory, 64)
    header.count, header.value = 7, 1.5
    assert struct.unpack_from("<I4xd", memory, 64) == (7, 1.5)
    assert ctypes.addressof(header) == memory.host_ptr + 64
    assert memory.pending_views == 1


def test_bytes_like_functions_take_memory(memory):
    memoryview(memory)[:] = b"ab" * 2048
    memory.flush()
    assert hashlib.sha256(memory).digest() == hashlib.sha256(b"ab" * 2048).digest()
    assert zlib.decompress(zlib.compress(memory)) == b"ab" * 2048
    assert bytearray(memory) == b"ab" * 2048
    assert b"".join([memory[:2], memory[2:4]]) == b"abab"
    assert array.array("B", bytes(memory[:4])).tolist() == [97, 98, 97, 98]
    with mmap.mmap(-1, 4096) as anonymous:
        anonymous[:] = memory
        assert anonymous[:4] == b"abab"


def test_a_memoryview_is_cast_and_reshaped(memory):
    view = memoryview(memory).cast("I", (32, 32))
    view[3, 4] = 0xDEADBEEF
    assert struct.unpack_from("=I", memory, 4 * (3 * 32 + 4)) == (0xDEADBEEF,)
    assert memory.pending_views == 1


# ---- NumPy's __array_interface__


def test_the_array_interface_is_that_of_0_1(memory):
    assert memory.__array_interface__ == {
        "shape": (4096,),
        "typestr": "|V1",
        "data": (memory.host_ptr, False),
        "version": 3,
    }


def test_the_array_interface_alone_serves_numpy(memory):
    class OnlyInterface:
        def __init__(self, memory):
            self.memory = memory

        @property
        def __array_interface__(self):
            return self.memory.__array_interface__

    array = np.asarray(OnlyInterface(memory))
    assert array.dtype == "V1"
    array.view(np.uint8)[5] = 9
    assert memoryview(memory)[5] == 9
    memory.free()
    with pytest.raises(ValueError, match="freed"):
        np.asarray(OnlyInterface(memory))


def test_the_array_interface_of_device_memory_says_that_there_is_no_host_view(invisible):
    with pytest.raises(vkgdr.NoHostViewError, match="device"):
        _ = invisible.__array_interface__


@pytest.mark.parametrize(
    "convert", [np.asarray, lambda m: np.array(m, copy=False), np.asanyarray, np.ascontiguousarray]
)
def test_numpy_takes_memory_without_a_copy(memory, convert):
    array = convert(memory)
    assert array.shape == (4096,)
    assert array.itemsize == 1
    assert array.flags.writeable
    assert array.flags.c_contiguous
    assert array.ctypes.data == memory.host_ptr
    assert array.ctypes.data % 64 == 0
    typed = array.view(np.complex64).reshape(16, 32)
    typed[3, 5] = 1 + 2j
    assert struct.unpack_from("=ff", memory, 8 * (3 * 32 + 5)) == (1, 2)


def test_numpy_copies_when_it_is_asked_to(memory):
    array = np.array(memory)
    array[:] = 1
    assert memory.tobytes() == bytes(4096)
    assert memory.pending_views == 0


@pytest.mark.parametrize("dtype", ["u1", "<i8", "c16", "?", "S7", "M8[s]", [("a", "u1"), ("b", "<f8", (3,))]])
def test_a_host_array_has_any_data_type(memory, dtype):
    array = memory.get_host_array((3, 5), dtype, "F", 8)
    assert array.dtype == np.dtype(dtype)
    assert array.ctypes.data == memory.host_ptr + 8
    assert array.flags.f_contiguous
    array[:] = np.zeros((3, 5), dtype)
