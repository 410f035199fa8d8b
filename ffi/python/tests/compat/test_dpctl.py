"""``vkgdr.compat.dpctl``: the classes of dpctl.memory, row by row of its documentation."""

import gc
import pickle

import numpy as np
import pytest
import vkgdr
from neighbours import Foreign, Stream
from vkgdr.compat.dpctl import MemoryDevice, MemoryHost, MemoryShared

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


def test_the_default_owner_is_the_gpu_of_the_current_context(context):
    memory = MemoryShared(10)
    assert memory.context == context.handle
    assert memory.device == 0


def test_without_a_context_the_default_owner_is_the_primary_one(run_python):
    code = """
        import vkgdr
        memory = vkgdr.compat.dpctl.MemoryHost(3)
        memory.copy_from_host(b"abc")
        again = vkgdr.compat.dpctl.MemoryDevice(3)
        assert memory.context == again.context
        assert memory.owner is again.owner
        print(memory.tobytes())
    """
    assert run_python(code).stdout == "b'abc'\n"


# ---- nbytes, size, len(), __sizeof__, _pointer, reference_obj -------------------------------------------------------


@every_class
def test_the_pointer_is_the_address_on_the_device(cuda, gpu, cls):
    memory = cls(4, owner=gpu)
    memory.copy_from_host(b"1234")
    assert memory._pointer == memory.device_ptr
    assert cuda.read(memory._pointer, 4) == b"1234"


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
