"""``vkgdr.compat.dpctl``: the classes of dpctl.memory, row by row of its documentation."""

import gc
import pickle
import weakref
from functools import partial

import numpy as np
import pytest
import vkgdr
from everything import refused
from neighbours import ByDlpack, ByInterface, ByProtocol, Foreign, Stream, wait_at
from vkgdr.compat.dpctl import MemoryDevice, MemoryHost, MemoryShared, as_memory

KINDS = {MemoryShared: "mapped", MemoryHost: "host", MemoryDevice: "device"}

every_class = pytest.mark.parametrize("cls", KINDS)


# Each class with its kind in dpctl's words, and the number of SYCL.
@pytest.mark.parametrize(
    ("cls", "word", "number"), [(MemoryShared, "shared", 2), (MemoryHost, "host", 3), (MemoryDevice, "device", 1)]
)
def test_memory_of_each_kind_is_allocated(cuda, gpu, cls, word, number):
    memory = cls(4097, owner=gpu)
    assert (memory.kind, memory.nbytes, memory.owner) == (KINDS[cls], 4097, gpu)
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
    for cls in KINDS:
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


def test_get_usm_type_of_another_gpu_is_unknown_and_of_other_types_refused(gpu):
    class Other(vkgdr.Vkgdr):
        device = 1

    memory = MemoryShared(10, owner=gpu)
    assert memory.get_usm_type(Other(0)) == "unknown"
    assert memory.get_usm_type_enum(Other(0)) == 0
    for other in (0, "shared", object()):
        for use in (memory.get_usm_type, memory.get_usm_type_enum):
            refused(partial(use, other), TypeError, type(other).__name__, f"{use.__name__} of {other!r}")


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
    assert kind == "mapped"
    for kind, error in (("unknown", ValueError), ("", ValueError), (5, TypeError)):
        refused(partial(rebuild, contents, kind), error, repr(kind), f"a pickle of the kind {kind!r}")


@every_class
@pytest.mark.parametrize("make", ["of its class", vkgdr.Memory, vkgdr.RawMemory])
def test_memory_of_this_package_is_shared_until_both_are_freed(gpu, cls, make, live):
    memory = cls(100, owner=gpu) if make == "of its class" else make(gpu, 100, kind=KINDS[cls])
    memory.memset(1)
    shared = cls(memory)
    assert (shared.device_ptr, shared.host_ptr, shared.owner) == (memory.device_ptr, memory.host_ptr, gpu)
    assert shared == memory
    assert shared.reference_obj is cls(memory[10:20]).reference_obj is None
    assert (live(), memory.pending_views) == (1, 1)
    shared.memset(2)
    assert memory.tobytes() == b"\2" * 100
    # To free a share leaves the memory.
    cls(memory).free()
    assert len(memory) == 100
    memory.free()
    with pytest.raises(vkgdr.FreedError):
        len(memory)
    assert shared.tobytes() == b"\2" * 100
    assert live() == 1
    shared.free()
    assert live() == 0


def test_a_share_of_read_only_memory_is_read_only(gpu):
    shared = MemoryShared(vkgdr.Memory(gpu, 10, readonly=True))
    assert shared.readonly
    with pytest.raises(ValueError, match="read-only"):
        shared.memset(1)


@every_class
@pytest.mark.parametrize("other", KINDS)
def test_a_mismatch_of_kinds_needs_a_copy(gpu, cls, other):
    source = other(10, owner=gpu)
    source.memset(4)
    if other is cls:
        assert cls(source, copy=True).device_ptr == source.device_ptr
        return
    with pytest.raises(ValueError, match="Zero-copy operation is not possible with copy=False") as caught:
        cls(source)
    assert repr(KINDS[cls]) in str(caught.value)
    assert repr(KINDS[other]) in str(caught.value)
    copied = cls(source, copy=True)
    assert copied.kind == KINDS[cls]
    assert copied.owner is gpu
    assert copied.reference_obj is None
    source.memset(0)
    assert copied.tobytes() == b"\4" * 10


@pytest.mark.parametrize("share", [MemoryDevice, as_memory])
def test_an_object_with_the_cuda_array_interface_is_shared(cuda, gpu, share):
    foreign = Foreign(cuda, b"0123456789")
    memory = share(foreign)
    assert type(memory) is MemoryDevice
    assert memory.device_ptr == foreign.pointer
    assert len(memory) == 10
    assert memory.reference_obj is foreign
    assert memory.owner is memory.memory_type_index is memory.heap_index is None
    assert memory.property_flags == []
    assert memory.tobytes() == b"0123456789"
    memory.memset(ord("x"), offset=2, nbytes=3)
    assert cuda.read(foreign.pointer, 10) == b"01xxx56789"


def test_a_shared_object_is_kept(cuda, gpu):
    foreign = Foreign(cuda, b"0123456789")
    alive = weakref.ref(foreign)
    memory = MemoryDevice(foreign)
    view = memory[5:7]
    del foreign
    gc.collect()
    assert alive() is not None
    memory.free()
    assert memory.reference_obj is None
    assert view.tobytes() == b"56"
    del memory, view
    gc.collect()
    assert alive() is None


def test_a_shared_object_in_memory_of_this_package_has_its_kind_and_host_view(gpu, live):
    memory = vkgdr.Memory(gpu, 100)
    wrapper = ByInterface(memory[20:40].__cuda_array_interface__)
    shared = MemoryShared(wrapper)
    assert shared.host_ptr == memory.host_ptr + 20
    assert shared.reference_obj is wrapper
    memory.free()
    assert live() == 1
    np.asarray(shared)[:] = 1
    shared.flush()
    assert shared.tobytes() == b"\1" * 20


@pytest.mark.parametrize("cls", [MemoryShared, MemoryHost])
def test_memory_of_another_library_is_of_kind_device(cuda, gpu, cls):
    foreign = Foreign(cuda, b"abc")
    with pytest.raises(ValueError, match="Zero-copy operation is not possible with copy=False"):
        cls(foreign)
    copied = cls(foreign, copy=True, owner=gpu)
    assert copied.reference_obj is None
    assert copied.device_ptr != foreign.pointer
    assert bytes(np.asarray(copied)) == b"abc"


def test_an_object_with_dlpack_is_shared(cuda, gpu):
    foreign = ByDlpack(MemoryDevice(Foreign(cuda, b"abcdef")))
    memory = MemoryDevice(foreign)
    assert memory.reference_obj is foreign
    del foreign
    gc.collect()
    assert memory.tobytes() == b"abcdef"


def test_dlpack_on_the_cpu_is_refused(gpu):
    with pytest.raises(ValueError, match=r"\(1, 0\)"):
        MemoryShared(ByDlpack(np.zeros(10, "u1")))


@pytest.mark.parametrize(
    ("protocol", "text"),
    [
        ((), "a handle, an offset and a size"),
        (5, "a handle, an offset and a size"),
        (("a", 0, 1), "a handle, an offset and a size"),
        ((1 << 63, 0, 1), f"no live memory has the handle {1 << 63}"),
        ((-1, 0, 1), "not .-1, 0, 1"),
        ((1 << 70, 0, 1), f"not .{1 << 70}, 0, 1"),
        ((None, 0, 101), "101"),
        ((None, 101, 0), "101"),
        ((None, -1, 1), "not .*, -1, 1"),
        ((None, 0, -1), "not .*, 0, -1"),
        ((None, 0, 1 << 70), str(1 << 70)),
    ],
)
def test_a_malformed_protocol_of_this_package_is_refused(gpu, protocol, text):
    memory = vkgdr.Memory(gpu, 100)
    if isinstance(protocol, tuple) and protocol and protocol[0] is None:
        protocol = (memory.handle, *protocol[1:])
    with pytest.raises(ValueError, match=text):
        MemoryShared(ByProtocol(protocol))


@pytest.mark.parametrize(
    "use", [MemoryDevice, as_memory, lambda foreign: MemoryHost(foreign, copy=True)], ids=["share", "as_memory", "copy"]
)
def test_the_stream_of_an_object_is_waited_for(cuda, gpu, use):
    foreign = Foreign(cuda, b"old")
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        foreign.__cuda_array_interface__ |= {"stream": stream}
        cuda.fill(foreign.pointer, ord("n"), 3, stream)
        made = []
        wait_at(gate, lambda: made.append(use(foreign).tobytes()), foreign.context)
        assert made == [b"nnn"]


@every_class
def test_as_memory_picks_the_class_by_the_kind(gpu, cls):
    memory = vkgdr.Memory(gpu, 20, kind=KINDS[cls])
    interface, protocol = memory.__cuda_array_interface__, memory[5:10].__vkgdr_memory__
    for obj in (memory, memory[5:10], ByDlpack(memory), ByInterface(interface), ByProtocol(protocol)):
        shared = as_memory(obj)
        assert type(shared) is cls
        assert (len(shared), shared.device_ptr - memory.device_ptr) in ((5, 5), (20, 0))
        assert (shared.host_ptr is None) == (KINDS[cls] == "device")
        assert shared.reference_obj is (None if isinstance(obj, vkgdr.Memory) else obj)


def test_as_memory_refuses_what_has_no_device_memory(gpu):
    for interface in (5, (), {}):
        with pytest.raises(ValueError, match="__cuda_array_interface__"):
            as_memory(ByInterface(interface))
    with pytest.raises(ValueError, match="int has no device memory"):
        as_memory(5)
    with pytest.raises(ValueError, match="ndarray"):
        as_memory(np.zeros(5))


def test_a_gpuarray_is_shared(pycuda_context):
    from pycuda import gpuarray

    array = gpuarray.to_gpu(np.arange(6, dtype="f4").reshape(2, 3))
    memory = as_memory(array)
    assert memory.reference_obj is array
    assert memory.device_ptr == array.ptr
    assert memory.tobytes() == array.get().tobytes()
    del array
    gc.collect()
    memory.memset(0)
    assert not memory.reference_obj.get().any()


def test_memory_that_pycuda_holds_is_not_taken_for_a_number(pycuda_context):
    import vkgdr.pycuda

    memory = vkgdr.pycuda.Memory(vkgdr.Vkgdr(0), 100)
    assert int(memory) > 100
    shared = MemoryShared(memory)
    assert len(shared) == 100
    assert shared.device_ptr == memory.device_ptr


def test_a_pointer_of_pycuda_is_not_taken_for_a_number(pycuda_context):
    import pycuda.driver

    pointer = pycuda.driver.mem_alloc(16)
    with pytest.raises(ValueError, match="no device memory"):
        MemoryDevice(pointer)


def test_a_forced_free_leaves_the_other_views_of_another_librarys_memory(foreign):
    memory = as_memory(foreign)
    part, address = memory[2:5], memory.device_ptr
    memory.free(force=True)
    assert memory.freed
    assert part.device_ptr == address + 2
