"""The host view: the buffer protocol, NumPy's array interface, and ``memory.host``."""

import ctypes
import gc
import io
import os

import numpy as np
import pytest
import vkgdr
from capsules import READ_ONLY, Taken
from neighbours import every_visible_kind


@pytest.fixture(params=["mapped", "host"])
def memory(gpu, request):
    memory = vkgdr.Memory(gpu, 4096, kind=request.param)
    memory.memset(0)
    return memory


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


REQUESTS = {
    "PyBUF_SIMPLE": 0,
    "PyBUF_WRITABLE": 1,
    "PyBUF_ND": 8,
    "PyBUF_STRIDES": 0x18,
    "PyBUF_FORMAT": 4,
    "PyBUF_C_CONTIGUOUS": 0x38,
    "PyBUF_FULL": 0x11D,
    "spead2": 0x18 | 4 | 0x38 | 1,
}


@pytest.mark.parametrize("flags", REQUESTS.values(), ids=REQUESTS)
def test_the_buffer_protocol_serves_every_request(memory, flags):
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


def test_the_buffer_protocol_of_read_only_memory_is_read_only(gpu):
    memory = vkgdr.Memory(gpu, 4096, readonly=True)
    assert memoryview(memory).readonly
    assert not memory.host.flags.writeable
    for write in ((ctypes.c_char * 4096).from_buffer, io.BytesIO(b"abc").readinto):
        with pytest.raises((BufferError, TypeError)):
            write(memory)
    tensor = Taken(memory.__dlpack__(max_version=(1, 0)))
    assert tensor.flags & READ_ONLY
    tensor.end()


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


def test_the_array_interface_is_that_of_0_1(memory):
    assert memory.__array_interface__ == {
        "shape": (4096,),
        "typestr": "|V1",
        "data": (memory.host_ptr, False),
        "version": 3,
    }


@pytest.mark.parametrize(
    "convert", [np.asarray, lambda m: np.array(m, copy=False), np.asanyarray, np.ascontiguousarray]
)
def test_numpy_takes_memory_without_a_copy(memory, convert):
    array = convert(memory)
    assert (array.shape, array.itemsize, array.flags.writeable) == ((4096,), 1, True)
    assert array.ctypes.data == memory.host_ptr
    array.view(np.complex64).reshape(16, 32)[3, 5] = 1 + 2j
    assert memoryview(memory).cast("f")[2 * (3 * 32 + 5) :][:2].tolist() == [1, 2]


def test_numpy_copies_when_it_is_asked_to(memory):
    array = np.array(memory)
    array[:] = 1
    assert memory.tobytes() == bytes(4096)
    assert memory.pending_views == 0


# ---- ``memory.host``: an array, for libraries that would take the device view ----------------------------------------


@every_visible_kind
def test_it_is_an_array_of_the_same_bytes(gpu, kind):
    memory = vkgdr.Memory(gpu, 100, kind=kind)
    for array, size, offset in ((memory.host, 100, 0), (memory[10:20].host, 10, 10), (memory[5:5].host, 0, None)):
        assert (array.dtype, array.shape, array.flags.writeable) == (np.uint8, (size,), True)
        assert offset is None or array.ctypes.data == memory.host_ptr + offset


def test_records_have_their_fields_as_attributes(memory):
    dtype = np.dtype((np.record, [("a", "i4"), ("b", "u1")]))
    memory.get_host_array(2, dtype)[0].a = 7
    mapping = memory.map(shape=2, dtype=dtype)
    assert (mapping.array[0].a, mapping.array.dtype.type) == (7, np.record)
    mapping.release()


def test_it_counts_as_a_view_and_outlives_a_free(gpu):
    memory = vkgdr.Memory(gpu, 100)
    memory.memset(7)
    host = memory.host
    assert memory.pending_views == 1
    memory.free()
    assert bytes(host) == b"\7" * 100
    with pytest.raises(vkgdr.FreedError):
        _ = memory.host


def test_pytorch_takes_it_for_a_cpu_tensor(gpu):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    memory = vkgdr.Memory(gpu, 100)
    tensor = torch.as_tensor(memory.host, device="cpu")
    assert tensor.data_ptr() == memory.host_ptr
    assert tensor.shape == (100,)


def test_a_copy_to_memory_from_itself_without_room_is_a_memory_error(run_python):
    code = """
        import pathlib, resource, vkgdr
        memory = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(0), 512 << 20, kind="host")
        view = memoryview(memory)
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 20),) * 2)
        for copy in (lambda: memory.copy_to_host(view), lambda: memory[1:].copy_from_host(view[:-1])):
            try:
                copy()
            except MemoryError as error:
                print(type(error).__name__)
    """
    assert run_python(code).stdout.split() == ["AllocationError"] * 2
