"""Memory of other copies of the crate in the process: another extension module, and the C library."""

import ctypes
import gc
import os
import shutil

import numpy as np
import pytest
import vkgdr
from neighbours import ByInterface
from vkgdr import _vkgdr

SIZE = 10_000


class Extension:
    """A second copy of the extension module, by its C functions for PyTorch."""

    def __init__(self, folder):
        path = folder / "another_copy.so"
        shutil.copy(_vkgdr.__file__, path)
        self._library = ctypes.CDLL(str(path))
        self._library.vkgdr_torch_alloc_mapped.restype = ctypes.c_void_p
        self._library.vkgdr_torch_alloc_mapped.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        arguments = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self._library.vkgdr_torch_free.argtypes = arguments

    def allocate(self):
        return self._library.vkgdr_torch_alloc_mapped(SIZE, 0, None)

    def free(self, address):
        # A free on the per-thread default stream waits for the context; on another one, for the next call of this copy.
        per_thread = 2
        self._library.vkgdr_torch_free(address, SIZE, 0, per_thread)


class CLibrary:
    """`libvkgdr.so.1`."""

    def __init__(self):
        self._library = ctypes.CDLL(os.environ["VKGDR_C_LIBRARY"])
        handle = ctypes.c_void_p()
        assert self._library.vkgdr_open_primary_context(0, 0, ctypes.byref(handle)) == 0
        self._handle = handle
        self._library.vkgdr_memory_alloc.restype = ctypes.c_void_p
        self._library.vkgdr_memory_alloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32]
        self._library.vkgdr_memory_get_device_ptr.restype = ctypes.c_uint64
        self._library.vkgdr_memory_get_device_ptr.argtypes = [ctypes.c_void_p]
        self._library.vkgdr_memory_free_at.argtypes = [ctypes.c_uint64]

    def allocate(self):
        memory = self._library.vkgdr_memory_alloc(self._handle, SIZE, 0)
        assert memory
        return self._library.vkgdr_memory_get_device_ptr(memory)

    def free(self, address):
        assert self._library.vkgdr_memory_free_at(address) == 0


@pytest.fixture(scope="session", params=["another extension", "libvkgdr"])
def other(request, tmp_path_factory):
    if request.param == "libvkgdr" and not os.environ.get("VKGDR_C_LIBRARY"):
        pytest.skip("VKGDR_C_LIBRARY does not name the C library")
    other = CLibrary() if request.param == "libvkgdr" else Extension(tmp_path_factory.mktemp("copies"))
    # It keeps its handle of the GPU from the first allocation on.
    other.free(other.allocate())
    return other


@pytest.fixture
def address(other):
    address = other.allocate()
    assert address
    yield address
    other.free(address)


def on_device(pointer, count):
    return ByInterface({"shape": (count,), "typestr": "<i4", "data": (pointer, False), "version": 3})


def test_both_addresses_lead_to_it(address):
    found = vkgdr.memory_of(address + 5)
    assert (found.kind, found.offset, len(found)) == ("mapped", 5, SIZE - 5)
    assert found.device_ptr == address + 5
    whole = vkgdr.memory_of(address)
    assert vkgdr.memory_of(whole.host_ptr + 7).offset == 7
    assert vkgdr.memory_of(whole.host_ptr) == whole
    assert vkgdr.memory_of(on_device(address + 8, 100)).__vkgdr_memory__ == (whole.handle, 8, 400)


def test_the_host_and_the_device_see_the_same_bytes(address, cuda, context):
    view = vkgdr.host_view(on_device(address, SIZE // 4))
    assert view.dtype == np.int32
    view[:] = np.arange(SIZE // 4)
    region = vkgdr.device_view(view)
    assert region.device_ptr == address
    region.flush()
    assert cuda.read(address, SIZE) == view.tobytes()
    cuda.write(address, bytes(SIZE))
    region.invalidate()
    assert not view.any()


def test_copies_fills_and_maps(address, cuda, context):
    found = vkgdr.memory_of(address)
    found.copy_from_host(np.arange(SIZE // 4, dtype="i4"))
    assert cuda.read(address, SIZE) == found.tobytes() == np.arange(SIZE // 4, dtype="i4").tobytes()
    found.memset(7, offset=1, nbytes=SIZE - 2)
    with found.map(dtype="u1") as array:
        assert (array[0], array[1], array[-2], array[-1]) == (0, 7, 7, 0)
        array[:] = 9
    assert cuda.read(address, SIZE) == b"\t" * SIZE
    ours = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(0), SIZE)
    ours.copy_from_device(found)
    assert ours.tobytes() == b"\t" * SIZE


def test_a_region_keeps_it(other):
    address = other.allocate()
    region = vkgdr.memory_of(address)
    region.memset(3)
    other.free(address)
    assert region.tobytes() == b"\3" * SIZE
    del region
    gc.collect()
    with pytest.raises(vkgdr.InvalidArgumentError, match="not an address in memory of vkgdr"):
        vkgdr.memory_of(address)


def test_what_only_its_owner_can_do_is_refused(address):
    found = vkgdr.memory_of(address)
    for refused in (
        lambda: found._view.export_fd(),
        lambda: found.bind_to_stream(0),
        lambda: found.unbind_stream(),
        lambda: found.record_stream(0),
        lambda: found[:10].free_async(0),
        lambda: found.memory_type_index,
    ):
        with pytest.raises(vkgdr.InvalidArgumentError, match="another copy of vkgdr in this process"):
            refused()
    assert found.owner is None
    found.free()
    assert vkgdr.memory_of(address).nbytes == SIZE


def test_the_use_of_another_librarys_memory_is_not_recorded(foreign):
    with pytest.raises(vkgdr.InvalidArgumentError, match="another library"):
        vkgdr.arrays.as_cuda_array(foreign).memory.record_stream(0)


def test_beyond_its_end_there_is_nothing(address):
    with pytest.raises(vkgdr.InvalidArgumentError):
        vkgdr.memory_of(on_device(address + SIZE - 4, 2))
    with pytest.raises(vkgdr.InvalidArgumentError):
        vkgdr.host_view(on_device(address - 4, 2))
