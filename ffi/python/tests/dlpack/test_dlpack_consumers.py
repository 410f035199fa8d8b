"""DLPack with real consumers: NumPy, PyTorch on the CPU, and this package itself."""

import ctypes
import gc

import numpy as np
import pytest
import simulator
import vkgdr
from capsules import CUDA, DELETER, VERSIONS, Device, Legacy, Taken, Tensor, Versioned, name_of


@pytest.mark.parametrize("kind", ["mapped", "host"])
def test_numpy_shares_the_hosts_view(gpu, kind):
    memory = vkgdr.Memory(gpu, 4096, kind=kind)
    array = np.from_dlpack(memory, device="cpu")
    assert array.dtype == np.uint8
    assert array.ctypes.data == memory.host_ptr
    assert array.flags.writeable
    array[:] = 7
    memory.flush()
    assert memory.tobytes() == b"\7" * 4096
    assert np.from_dlpack(memory, device="cpu", copy=False).ctypes.data == memory.host_ptr
    assert np.from_dlpack(memory, device="cpu", copy=True).ctypes.data != memory.host_ptr


def test_numpy_has_a_copy_of_device_memory(invisible):
    assert bytes(np.from_dlpack(invisible, device="cpu")) == bytes(range(256)) * 16
    with pytest.raises(BufferError):
        np.from_dlpack(invisible, device="cpu", copy=False)


class OnTheHost:
    """Exposes the host view, for libraries that do not request a device."""

    def __init__(self, memory):
        self._memory = memory

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self._memory.__dlpack__(max_version=max_version, dl_device=(1, 0), copy=copy)


def test_torch_shares_the_hosts_view(memory, simulated):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
    tensor = torch.from_dlpack(OnTheHost(memory))
    assert tensor.data_ptr() == memory.host_ptr
    assert tensor.dtype == torch.uint8
    tensor[:] = 5
    memory.flush()
    assert memory.tobytes() == b"\5" * 4096
    before = simulator.pages()
    memory.free()
    tensor += 1
    assert int(tensor.sum()) == 6 * 4096
    del tensor
    gc.collect()
    assert simulator.pages() == before - 1


def test_torch_takes_capsules_of_the_host(memory):
    pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
    import torch.utils.dlpack

    for version in (None, (1, 0)):
        capsule = memory.__dlpack__(max_version=version, dl_device=(1, 0))
        tensor = torch.utils.dlpack.from_dlpack(capsule)
        assert tensor.data_ptr() == memory.host_ptr
        assert name_of(capsule).startswith("used_")
        del tensor, capsule
        gc.collect()
        assert memory.pending_views == 0


# ---- this package as the consumer


class Producer:
    """A tensor on the GPU whose capsule a function makes."""

    def __init__(self, capsule):
        self.__dlpack__ = capsule

    def __dlpack_device__(self):
        return CUDA, 0


@pytest.mark.parametrize("version", ["before versions", *VERSIONS])
def test_a_tensor_of_this_packages_memory_is_copied_from(gpu, memory, version):
    if version == "before versions":
        producer = Producer(lambda stream=None: memory.__dlpack__(stream=stream))
    else:
        producer = Producer(lambda stream, **_: memory.__dlpack__(stream=stream, max_version=version))
    target = vkgdr.Memory(gpu, 4096)
    target.copy_from_device(producer)
    assert target.tobytes() == memory.tobytes()
    gc.collect()
    assert memory.pending_views == 0


def test_a_tensor_on_the_host_is_refused_as_device_memory(gpu, memory):
    with pytest.raises(vkgdr.InvalidArgumentError, match="1, 0"):
        vkgdr.Memory(gpu, 4096).copy_from_device(OnTheHost(memory))
    with pytest.raises(vkgdr.InvalidArgumentError):
        vkgdr.Memory(gpu, 4096).copy_from_device(np.zeros(10))


def test_a_capsule_that_was_taken_before_is_refused(gpu, memory):
    capsule = memory.__dlpack__()
    taken = Taken(capsule)
    with pytest.raises(TypeError, match="capsule"):
        vkgdr.Memory(gpu, 4096).copy_from_device(Producer(lambda **_: capsule))
    taken.end()


NEW_CAPSULE = ctypes.pythonapi.PyCapsule_New
GET_POINTER = ctypes.pythonapi.PyCapsule_GetPointer
GET_POINTER.argtypes, GET_POINTER.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
NEW_CAPSULE.argtypes, NEW_CAPSULE.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object


@pytest.mark.parametrize(("bits", "flags", "nbytes"), [(4, 0, 32), (4, 4, 64), (6, 0, 48), (6, 4, 64), (8, 4, 64)])
def test_elements_of_less_than_a_byte_may_be_padded(gpu, bits, flags, nbytes):
    memory = vkgdr.Memory(gpu, 64)
    capsule = memory.__dlpack__(max_version=(1, 1))
    managed = Versioned.from_address(GET_POINTER(capsule, b"dltensor_versioned"))
    managed.tensor.bits, managed.flags = bits, flags
    assert vkgdr.Memory.from_capsule(capsule).nbytes == nbytes


def test_padded_vectors_are_refused(gpu):
    capsule = vkgdr.Memory(gpu, 64).__dlpack__(max_version=(1, 1))
    managed = Versioned.from_address(GET_POINTER(capsule, b"dltensor_versioned"))
    managed.tensor.bits, managed.tensor.lanes, managed.flags = 4, 2, 4
    with pytest.raises(BufferError, match="2 lanes of 4 bits"):
        vkgdr.Memory.from_capsule(capsule)


def test_a_copy_of_another_librarys_memory_is_a_buffer_error(foreign):
    with pytest.raises(BufferError, match="another library"):
        vkgdr.arrays.as_cuda_array(foreign).__dlpack__(copy=True)


def test_a_tensor_in_memory_of_this_package_is_kept_by_all_views(gpu):
    memory, deleted = vkgdr.Memory(gpu, 64), []
    shape = (ctypes.c_int64 * 1)(64)
    tensor = Tensor(memory.device_ptr, Device(CUDA, 0), 1, 1, 8, 1, shape, None, 0)
    managed = Legacy(tensor, None, DELETER(deleted.append))
    imported = vkgdr.Memory.from_capsule(NEW_CAPSULE(ctypes.addressof(managed), b"dltensor", None))
    host, part, exported = imported.host, imported[8:16], imported.__dlpack__()
    del imported
    for last in ("host", "part", "exported"):
        gc.collect()
        assert not deleted, last
        if last == "host":
            del host
        elif last == "part":
            del part
    del exported
    gc.collect()
    assert len(deleted) == 1
