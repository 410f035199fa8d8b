"""``vkgdr.compat.dpctl``: the classes of dpctl.memory, row by row of its documentation."""

import gc
import pickle
from functools import partial

import numpy as np
import pytest
import vkgdr
from everything import refused
from neighbours import Foreign, Stream
from vkgdr.compat.dpctl import MemoryDevice, MemoryHost, MemoryShared

# Each class with its kind, in our words and in dpctl's, and the number of SYCL.
CLASSES = [
    (MemoryShared, "mapped", "shared", 2),
    (MemoryHost, "host", "host", 3),
    (MemoryDevice, "device", "device", 1),
]


# ---- MemoryUSM{Shared,Host,Device}(nbytes, *, alignment=0, queue=None, copy=False) ----------------------------------


@pytest.mark.parametrize(("cls", "kind", "word", "number"), CLASSES)
def test_memory_of_each_kind_is_allocated(cuda, gpu, cls, kind, word, number):
    memory = cls(4097, owner=gpu)
    assert isinstance(memory, vkgdr.MemoryObject)
    assert (memory.kind, memory.nbytes, memory.owner) == (kind, 4097, gpu)
    assert memory.get_usm_type() == memory.get_mem_type() == memory.get_usm_type(gpu) == word
    assert memory.get_usm_type_enum() == memory.get_usm_type_enum(gpu) == number
    memory.memset(5)
    assert memory._pointer == memory.device_ptr
    assert cuda.read(memory._pointer, 4097) == memory.tobytes() == b"\5" * 4097
    for size in (np.int64(10), np.uint8(10)):
        assert len(cls(size, owner=gpu)) == 10
    # None asks for an alignment.
    for alignment in (0, -1, -4096):
        assert len(cls(10, alignment=alignment, owner=gpu)) == 10


def test_invalid_arguments_are_refused(gpu, live):
    text = r"Number of bytes of request allocation must be positive\..*"
    for cls, *_ in CLASSES:
        for size in (0, -1, -(10**30)):
            refused(partial(cls, size, owner=gpu), ValueError, text + str(size), f"{size} bytes")
        for value in (1.5, "10", None, [10], b"10"):
            named = f"{type(value).__name__} has no device memory"
            refused(partial(cls, value, owner=gpu), ValueError, named, f"{value!r} bytes")
        refused(partial(cls, 10, 0), TypeError, "positional", "two positions")
        refused(partial(cls, 10, queue="queue", owner=gpu), TypeError, "'queue'", "a text for a queue")
    gc.collect()
    assert live() == 0


@pytest.mark.parametrize("wrap", [int, Stream])
def test_a_queue_is_the_bound_stream(cuda, gpu, wrap):
    with cuda.stream() as handle:
        memory = MemoryShared(10, queue=wrap(handle), owner=gpu)
        assert memory.stream == handle
        assert memory.__cuda_array_interface__["stream"] == handle
        memory.free()


# ---- get_usm_type, get_usm_type_enum --------------------------------------------------------------------------------


def test_get_usm_type_of_another_gpu_is_unknown_and_of_other_types_refused(gpu):
    class Other(vkgdr.Vkgdr):
        device = 1

    memory = MemoryShared(10, owner=gpu)
    assert memory.get_usm_type(Other(0)) == "unknown"
    assert memory.get_usm_type_enum(Other(0)) == 0
    for other in (0, "shared", object()):
        for use in (memory.get_usm_type, memory.get_usm_type_enum):
            refused(partial(use, other), TypeError, type(other).__name__, f"{use.__name__} of {other!r}")


# ---- __reduce__ -----------------------------------------------------------------------------------------------------


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


def test_a_pickle_of_an_unknown_kind_is_refused(gpu):
    rebuild, (contents, kind) = MemoryShared(5, owner=gpu).__reduce__()
    assert kind == "shared"
    for kind in ("unknown", "", 5):
        refused(partial(rebuild, contents, kind), ValueError, repr(kind), f"a pickle of the kind {kind!r}")
