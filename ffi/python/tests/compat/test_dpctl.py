"""``vkgdr.memory``: the classes of dpctl.memory, row by row of its documentation."""

import ctypes
import gc
import pickle
import sys
import threading
import weakref

import numpy as np
import pytest
import vkgdr
from neighbours import Foreign, Stream
from vkgdr.memory import AllocationError, MemoryDevice, MemoryHost, MemoryShared, as_memory

CLASSES = [MemoryShared, MemoryHost, MemoryDevice]
VISIBLE = [MemoryShared, MemoryHost]
WORDS = {MemoryShared: "shared", MemoryHost: "host", MemoryDevice: "device"}
KINDS = {MemoryShared: "mapped", MemoryHost: "host", MemoryDevice: "device"}

every_class = pytest.mark.parametrize("cls", CLASSES)
every_visible_class = pytest.mark.parametrize("cls", VISIBLE)


# ---- MemoryUSM{Shared,Host,Device}(nbytes, *, alignment=0, queue=None, copy=False) ----------------------------------


@every_class
def test_memory_of_each_kind_is_allocated(gpu, cls):
    memory = cls(4097, owner=gpu)
    assert isinstance(memory, vkgdr.MemoryObject)
    assert memory.kind == KINDS[cls]
    assert memory.nbytes == 4097
    assert memory.owner is gpu
    memory.memset(5)
    assert memory.tobytes() == b"\5" * 4097


@every_class
@pytest.mark.parametrize("size", [0, -1, -(10**30)])
def test_a_number_of_bytes_must_be_positive(gpu, cls, size):
    with pytest.raises(ValueError, match=r"Number of bytes of request allocation must be positive\..*" + str(size)):
        cls(size, owner=gpu)


def test_a_huge_number_of_bytes_is_an_allocation_error(gpu):
    with pytest.raises(AllocationError, match="VK_ERROR_OUT_OF_DEVICE_MEMORY") as caught:
        MemoryShared(10**15, owner=gpu)
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, vkgdr.VkgdrError)
    with pytest.raises(OverflowError, match=str(10**30)):
        MemoryShared(10**30, owner=gpu)


def test_the_allocation_error_is_that_of_the_package():
    assert vkgdr.memory.AllocationError is vkgdr.AllocationError


@pytest.mark.parametrize("size", [np.int64(10), np.uint8(10)])
def test_numbers_of_numpy_are_numbers_of_bytes(gpu, size):
    assert len(MemoryShared(size, owner=gpu)) == 10


@pytest.mark.parametrize("value", [1.5, "10", None, [10], b"10"])
def test_what_is_neither_a_number_nor_memory_is_refused(gpu, value):
    with pytest.raises(ValueError, match=f"{type(value).__name__} has no device memory"):
        MemoryShared(value, owner=gpu)


def test_all_arguments_but_the_first_are_keywords(gpu):
    with pytest.raises(TypeError, match="positional"):
        MemoryShared(10, 0)


@every_class
@pytest.mark.parametrize("alignment", [0, -1, -4096])
def test_no_alignment_is_asked_for_with_0_or_less(gpu, cls, alignment):
    assert len(cls(10, alignment=alignment, owner=gpu)) == 10


@every_class
def test_an_alignment_holds_for_both_addresses(gpu, cls):
    memory = cls(10, alignment=64, owner=gpu)
    assert memory.device_ptr % 64 == 0
    assert (memory.host_ptr or 0) % 64 == 0


def test_an_alignment_that_cannot_be_had_is_refused(gpu, live):
    with pytest.raises(ValueError, match="power of two, not 48"):
        MemoryShared(10, alignment=48, owner=gpu)
    before = live()
    with pytest.raises(ValueError, match=str(1 << 62)):
        MemoryShared(10, alignment=1 << 62, owner=gpu)
    assert live() == before


@pytest.mark.parametrize("wrap", [int, Stream])
def test_a_queue_is_the_bound_stream(cuda, gpu, wrap):
    with cuda.stream() as handle:
        memory = MemoryShared(10, queue=wrap(handle), owner=gpu)
        assert memory.stream == handle
        assert memory.__cuda_array_interface__["stream"] == handle
        memory.free()


def test_a_queue_that_is_no_stream_is_refused(gpu, live):
    before = live()
    with pytest.raises(TypeError, match="'queue'"):
        MemoryShared(10, queue="queue", owner=gpu)
    gc.collect()
    assert live() == before


def test_without_a_queue_there_is_no_stream(gpu):
    assert MemoryShared(10, owner=gpu).stream is None


def test_an_owner_is_a_handle(gpu):
    with pytest.raises(TypeError, match="Vkgdr, not str"):
        MemoryShared(10, owner="gpu")


def test_the_default_owner_is_the_gpu_of_the_current_context(context):
    memory = MemoryShared(10)
    assert memory.context == context.handle
    assert memory.device == 0


def test_without_a_context_the_default_owner_is_the_primary_one(run_python):
    code = """
        import vkgdr
        memory = vkgdr.memory.MemoryHost(3)
        memory.copy_from_host(b"abc")
        again = vkgdr.memory.MemoryDevice(3)
        assert memory.context == again.context
        assert memory.owner is again.owner
        print(memory.tobytes())
    """
    assert run_python(code).stdout == "b'abc'\n"


# ---- nbytes, size, len(), __sizeof__, _pointer, reference_obj -------------------------------------------------------


@every_class
def test_nbytes_size_len_and_sizeof_are_the_number_of_bytes(gpu, cls):
    memory = cls(4097, owner=gpu)
    assert memory.nbytes == memory.size == len(memory) == memory.__sizeof__() == 4097
    assert sys.getsizeof(memory) >= 4097


@every_class
def test_the_pointer_is_the_address_on_the_device(cuda, gpu, cls):
    memory = cls(4, owner=gpu)
    memory.copy_from_host(b"1234")
    assert memory._pointer == memory.device_ptr
    assert cuda.read(memory._pointer, 4) == b"1234"


def test_the_host_pointer_is_another_address_of_the_same_bytes(cuda, gpu):

    memory = MemoryShared(4, owner=gpu)
    assert memory.host_ptr != memory.device_ptr
    cuda.write(memory.device_ptr, b"1234")
    memory.invalidate()
    assert ctypes.string_at(memory.host_ptr, 4) == b"1234"
    assert MemoryDevice(4, owner=gpu).host_ptr is None


# ---- get_usm_type, get_usm_type_enum --------------------------------------------------------------------------------


@every_class
def test_get_usm_type_says_the_kind_in_dpctls_words(gpu, cls):
    memory = cls(10, owner=gpu)
    assert memory.get_usm_type() == memory.get_mem_type() == WORDS[cls]
    assert memory.get_usm_type(gpu) == WORDS[cls]


@pytest.mark.parametrize(("cls", "number"), [(MemoryDevice, 1), (MemoryShared, 2), (MemoryHost, 3)])
def test_get_usm_type_enum_says_the_kind_in_sycls_numbers(gpu, cls, number):
    assert cls(10, owner=gpu).get_usm_type_enum() == number
    assert cls(10, owner=gpu).get_usm_type_enum(gpu) == number


def test_get_usm_type_of_another_gpu_is_unknown(gpu):
    class Other(vkgdr.Vkgdr):
        device = 1

    memory = MemoryShared(10, owner=gpu)
    assert memory.get_usm_type(Other(0)) == "unknown"
    assert memory.get_usm_type_enum(Other(0)) == 0


@pytest.mark.parametrize("other", [0, "shared", object()])
def test_get_usm_type_refuses_other_types(gpu, other):
    memory = MemoryShared(10, owner=gpu)
    with pytest.raises(TypeError, match=type(other).__name__):
        memory.get_usm_type(other)
    with pytest.raises(TypeError, match=type(other).__name__):
        memory.get_usm_type_enum(other)


# ---- buffer protocol (Shared/Host) ----------------------------------------------------------------------------------


@every_visible_class
def test_the_buffer_protocol_shows_writable_bytes(cuda, gpu, cls):
    memory = cls(10, owner=gpu)
    view = memoryview(memory)
    assert (view.format, view.itemsize, view.ndim, view.shape, view.strides) == ("B", 1, 1, (10,), (1,))
    assert view.readonly is False
    assert view.c_contiguous
    assert view.obj is memory
    view[:3] = b"abc"
    memory.flush()
    assert cuda.read(memory.device_ptr, 3) == b"abc"


@every_visible_class
def test_several_buffers_may_be_had_at_once(gpu, cls):
    memory = cls(10, owner=gpu)
    first, second = memoryview(memory), memoryview(memory)
    assert memory.pending_views == 2
    first[0] = 7
    assert second[0] == 7
    first.release()
    assert memory.pending_views == 1
    assert second[0] == 7


def test_device_memory_has_no_buffer(gpu):
    with pytest.raises(BufferError, match="device memory"):
        memoryview(MemoryDevice(10, owner=gpu))


@every_visible_class
def test_numpy_sees_the_bytes_without_a_copy(cuda, gpu, cls):
    memory = cls(16, owner=gpu)
    array = np.asarray(memory).view("f4").reshape(2, 2)
    array[:] = [[1, 2], [3, 4]]
    memory.flush()
    assert cuda.read(memory.device_ptr, 16) == np.array([1, 2, 3, 4], "f4").tobytes()
    assert np.array(memory, copy=False).ctypes.data == memory.host_ptr
    assert np.from_dlpack(memory, device="cpu").ctypes.data == memory.host_ptr


# ---- __reduce__ -----------------------------------------------------------------------------------------------------


@every_class
def test_pickling_copies_and_keeps_the_class(gpu, cls):
    memory = cls(5, owner=gpu)
    memory.copy_from_host(b"hello")
    again = pickle.loads(pickle.dumps(memory))
    assert type(again) is cls
    assert again.kind == memory.kind
    assert again.tobytes() == b"hello"
    assert again.device_ptr != memory.device_ptr
    assert again.reference_obj is None
    memory.memset(0)
    assert again.tobytes() == b"hello"


def test_a_pickle_is_read_in_another_process(gpu, run_python):
    memory = MemoryHost(5, owner=gpu)
    memory.copy_from_host(b"hello")
    code = f"""
        import pickle
        memory = pickle.loads({pickle.dumps(memory)!r})
        print(type(memory).__name__, memory.kind, memory.tobytes())
    """
    assert run_python(code).stdout == "MemoryHost host b'hello'\n"


def test_a_pickle_of_a_shared_object_is_memory_of_its_own(cuda, gpu):
    again = pickle.loads(pickle.dumps(MemoryDevice(Foreign(cuda, b"abc"))))
    assert type(again) is MemoryDevice
    assert again.owner is not None
    assert again.tobytes() == b"abc"


@pytest.mark.parametrize("kind", ["unknown", "", 5])
def test_a_pickle_of_an_unknown_kind_is_refused(gpu, kind):
    rebuild, arguments = MemoryShared(5, owner=gpu).__reduce__()
    assert arguments == (arguments[0], "shared")
    with pytest.raises(ValueError, match=repr(kind)):
        rebuild(arguments[0], kind)


def test_freed_memory_is_not_pickled(gpu):
    memory = MemoryShared(5, owner=gpu)
    memory.free()
    with pytest.raises(vkgdr.FreedError):
        pickle.dumps(memory)


# ---- sycl_context, sycl_device, sycl_queue; __sycl_usm_array_interface__ --------------------------------------------


@every_class
def test_owner_context_device_and_stream_stand_for_sycls_objects(cuda, context, gpu, cls):
    with cuda.stream() as stream:
        memory = cls(5, queue=stream, owner=gpu)
        assert memory.owner is gpu
        assert memory.context == context.handle
        assert memory.device == gpu.device == 0
        assert memory.stream == stream
        memory.free()


@every_class
def test_the_cuda_array_interface_stands_for_sycls(gpu, cls):
    memory = cls(5, owner=gpu)
    assert memory.__cuda_array_interface__ == {
        "data": (memory.device_ptr, False),
        "shape": (5,),
        "strides": None,
        "typestr": "|u1",
        "version": 3,
        "stream": None,
    }
    assert not hasattr(memory, "__sycl_usm_array_interface__")


# ---- lifetime -------------------------------------------------------------------------------------------------------


@every_visible_class
def test_a_view_keeps_the_memory_without_any_other_reference(gpu, cls, live):
    array = np.asarray(cls(100, owner=gpu))
    array[:] = 9
    gc.collect()
    assert live() == 1
    assert bytes(array) == b"\t" * 100
    del array
    gc.collect()
    assert live() == 0


@every_visible_class
def test_a_tensor_keeps_the_allocation_and_no_python_object(gpu, cls, live):
    memory = cls(100, owner=gpu)
    gone = weakref.ref(memory)
    memory.memset(9)
    array = np.from_dlpack(memory, device="cpu")
    del memory
    gc.collect()
    assert gone() is None
    assert live() == 1
    assert bytes(array) == b"\t" * 100
    del array
    gc.collect()
    assert live() == 0


@every_class
def test_memory_may_go_on_another_thread(gpu, cls, live):
    held = [cls(100, owner=gpu)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert live() == 0


@every_class
def test_freed_memory_raises_for_everything(gpu, cls):
    memory = cls(100, owner=gpu)
    memory.free()
    memory.free()
    assert memory.freed
    for use in (
        len,
        bytes,
        lambda memory: memory._pointer,
        lambda memory: memory.get_usm_type(),
        lambda memory: memory.get_usm_type_enum(),
        lambda memory: memory.copy_to_host(),
        lambda memory: memory.copy_from_host(b"a"),
        lambda memory: memory.copy_from_device(memory),
        lambda memory: memory.memset(),
        memoryview,
    ):
        with pytest.raises(vkgdr.FreedError):
            use(memory)


@every_class
def test_memory_that_was_never_allocated_raises_too(cls):
    class Careless(cls):
        def __init__(self):
            pass

    memory = Careless()
    assert memory.freed
    memory.free()
    for use in (len, bytes, lambda memory: memory._pointer, lambda memory: memory.get_usm_type(), cls, as_memory):
        with pytest.raises(vkgdr.FreedError):
            use(memory)
