"""The CUDA Array Interface: the streams that it names, ranges at the edges of our memory, and malformed ones."""

import numpy as np
import pytest
import vkgdr
from capsules import versioned
from neighbours import Borrowed, BorrowedBytes, ByInterface, Foreign
from vkgdr.arrays import as_cuda_array
from vkgdr.compat.dpctl import MemoryDevice, MemoryShared, as_memory


@pytest.fixture
def memory(gpu):
    return vkgdr.Memory(gpu, 4096)


def test_the_interface_names_the_bound_stream_and_the_legacy_default_stream_is_1(memory, cuda):
    with cuda.stream() as stream:
        for bound, named in ((stream, stream), (0, 1), (1, 1)):
            memory.bind_to_stream(bound)
            assert memory.__cuda_array_interface__["stream"] == named
        memory.unbind_stream()
    assert memory.__cuda_array_interface__["stream"] is None


@pytest.mark.parametrize("context_of_own", ["the memory's", "another"])
def test_the_stream_of_an_array_comes_after_that_of_its_memory(memory, cuda, context_of_own, simulated):
    with cuda.stream() as bound, cuda.hold(bound) as gate:
        memory.bind_to_stream(bound)
        array = vkgdr.arrays.as_cuda_array(memory, sync=False)
        other = cuda.create_context() if context_of_own == "another" else None
        with cuda.stream() as own:
            assert array.bind(own).__cuda_array_interface__["stream"] == own
            waits = not cuda.is_done(own)
            gate.open()
        if other is not None:
            other.destroy()
        memory.unbind_stream()
    assert waits


def test_the_shape_and_the_type_of_another_librarys_array_say_how_many_bytes(memory, cuda):
    contents = bytes(range(64))
    memory.copy_from_device(Foreign(cuda, contents, shape=(2, 4), typestr="<f8", strides=(32, 8)))
    assert memory.tobytes()[:64] == contents


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"stream": 0}, "stream"),
        ({"strides": (2,)}, "order|contiguous"),
        ({"shape": (8, 8), "strides": (1, 8)}, "order|contiguous"),
        ({"shape": (4097,)}, "4097"),
    ],
)
def test_an_array_that_cannot_be_taken_is_refused(memory, cuda, changes, text):
    with pytest.raises(vkgdr.InvalidArgumentError, match=text):
        memory.copy_from_device(Foreign(cuda, bytes(64), **changes))


SIZE = 4096
USES = {
    "as_memory": as_memory,
    "MemoryShared": MemoryShared,
    "MemoryDevice": lambda obj: MemoryDevice(obj, copy=True),
    "copy_from_device": lambda obj: vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(), 2 * SIZE).copy_from_device(obj),
    "host_view": vkgdr.host_view,
}
every_use = pytest.mark.parametrize("use", USES.values(), ids=USES)


@pytest.mark.parametrize("offset", [0, 100, SIZE])
def test_an_empty_view_of_our_memory_is_of_our_kind(gpu, offset):
    memory = vkgdr.Memory(gpu, SIZE)
    empty = MemoryShared(BorrowedBytes(memory.device_ptr + offset, 0))
    assert empty.kind == "mapped"
    assert empty.nbytes == 0
    assert memory.pending_views == 1
    assert vkgdr.host_view(BorrowedBytes(memory.device_ptr + offset, 0)).size == 0


def test_an_empty_view_at_null_is_of_nothing(gpu):
    assert as_memory(BorrowedBytes(0, 0)).nbytes == 0


@every_use
@pytest.mark.parametrize(("offset", "size"), [(0, SIZE + 1), (1, SIZE), (SIZE - 1, 2), (0, 1 << 40)])
def test_a_view_that_ends_beyond_our_memory_is_refused(gpu, use, offset, size):
    memory = vkgdr.Memory(gpu, SIZE)
    text = rf"{size} bytes at offset {offset} are out of range: the memory has {SIZE} bytes"
    with pytest.raises(vkgdr.OutOfRangeError, match=text):
        use(BorrowedBytes(memory.device_ptr + offset, size))
    assert memory.pending_views == 0


def test_a_tensor_that_ends_beyond_our_memory_is_refused(gpu):
    memory = vkgdr.Memory(gpu, SIZE)
    capsule = memory.__dlpack__(max_version=(1, 0))
    versioned(capsule).tensor.shape[0] = SIZE + 1
    with pytest.raises(vkgdr.OutOfRangeError, match="out of range"):
        vkgdr.Memory.from_capsule(capsule)


@every_use
def test_a_null_pointer_is_named_without_a_context(primary, no_context, use):
    text = r"the null pointer is not the address of 4 bytes"
    with pytest.raises(vkgdr.InvalidArgumentError, match=text):
        use(BorrowedBytes(0, 4))


@every_use
@pytest.mark.parametrize(("address", "size"), [((1 << 64) - 1, 2), (1 << 63, 1 << 63)])
def test_a_range_beyond_the_address_space_is_named_without_a_context(primary, no_context, use, address, size):
    with pytest.raises(vkgdr.InvalidArgumentError, match="exceeds the address space"):
        use(BorrowedBytes(address, size))


def test_memory_found_by_its_address_has_an_owner(gpu, live):
    memory = vkgdr.Memory(gpu, SIZE)
    for found in (
        as_memory(BorrowedBytes(memory.device_ptr, SIZE)),
        vkgdr.Memory.from_capsule(memory.__dlpack__()),
        vkgdr.RawMemory.from_handle(memory.handle),
    ):
        assert (found.owner.device, found.owner.name) == (gpu.device, gpu.name)
        assert found.migrate("host").owner.device == gpu.device
        found.free()
        assert found.owner is None
    assert memory.owner is gpu


def test_a_copy_of_a_view_is_on_the_gpu_of_the_memory(run_python, simulated):
    code = """
        import vkgdr
        from vkgdr.compat.dpctl import MemoryDevice, MemoryHost, as_memory

        class View:
            def __init__(self, memory):
                self.__cuda_array_interface__ = memory.__cuda_array_interface__

        class Tensor:
            def __init__(self, memory):
                self.__dlpack__, self.__dlpack_device__ = memory.__dlpack__, memory.__dlpack_device__

        for device in (0, 1):
            gpu = vkgdr.Vkgdr.open_primary_context(device)
            memory = vkgdr.Memory(gpu, 64)
            memory.memset(7 + device)
            for obj in (memory, View(memory), Tensor(memory)):
                for cls in (MemoryDevice, MemoryHost):
                    copied = cls(obj, copy=True)
                    assert copied.device == copied.owner.device == device, (obj, copied)
                    assert copied.tobytes() == bytes([7 + device]) * 64
                assert as_memory(obj).owner.device == device
            found = vkgdr.RawMemory.from_handle(memory.handle)
            assert found.owner.device == device
            assert found.migrate("device").device == device
        print("ok")
    """
    assert run_python(code, VKGDR_TEST_PROFILE="two-gpus").stdout == "ok\n"


LEFT_OUT = object()
MALFORMED = {
    "without a shape": {"shape": LEFT_OUT},
    "without a type": {"typestr": LEFT_OUT},
    "without a pointer": {"data": LEFT_OUT},
    "a number for a pointer": {"data": 4096},
    "a negative pointer": {"data": (-1, False)},
    "a pointer too large": {"data": (1 << 70, False)},
    "a pointer without its flag": {"data": (1,)},
    "three pointers": {"data": (1, False, 2)},
    "no pointer": {"data": None},
    "a pointer that is no number": {"data": ("x", False)},
    "a list as a type": {"typestr": ["<f4"]},
    "a type of no size": {"typestr": "<f0"},
    "a negative size": {"typestr": "|u-1"},
    "a size that is no number": {"typestr": "|ux"},
    "a negative extent": {"shape": (-10,)},
    "an empty type": {"typestr": ""},
    "None as a type": {"typestr": None},
    "an extent too large": {"shape": (0, 2**63)},
    "a size too large": {"shape": (2**62, 0, 2), "strides": (0, 0, 0)},
    "a stride too large": {"strides": (2**63,)},
    "a stride too small": {"shape": (0,), "strides": (-(2**64),)},
    "a shape that is a number": {"shape": 4},
    "an extent that is none": {"shape": ("4",)},
    "strides of other dimensions": {"strides": (4, 4)},
    "strides that are a number": {"strides": 4},
    "a stream that is none": {"stream": "x"},
    "a negative stream": {"stream": -1},
    "the stream 0, which is ambiguous": {"stream": 0},
}
MALFORMED_ELEMENTS = {
    "objects": {"typestr": "|O8"},
    "objects without a size": {"typestr": "|O"},
    "fields of objects": {"typestr": "|V8", "descr": [("a", "|O8")]},
    "elements longer than the interface's bytes": {"typestr": "|V4", "descr": [("a", "<f8")]},
    "elements of no size": {"typestr": "|V0"},
    "a type that NumPy does not have": {"typestr": "<f3"},
    "fields that are a number": {"typestr": "|V4", "descr": 5},
    "a field without a type": {"typestr": "|V4", "descr": [("a",)]},
    "a field that is a number": {"typestr": "|V4", "descr": [5]},
    "a field of an unknown type": {"typestr": "|V4", "descr": [("a", "<f3")]},
}


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_interface_is_refused_everywhere(gpu, change):
    memory = vkgdr.Memory(gpu, SIZE)
    good = {"shape": (4,), "typestr": "<f4", "data": (memory.device_ptr, False), "version": 3}
    malformed = {key: value for key, value in (good | change).items() if value is not LEFT_OUT}
    for use in (
        *USES.values(),
        vkgdr.memory_of,
        as_cuda_array,
        vkgdr.compat.rmm.Buffer(gpu, size=SIZE).copy_from_device,
    ):
        with pytest.raises(vkgdr.InvalidArgumentError):
            use(ByInterface(malformed))
    assert memory.pending_views == 0


@pytest.mark.parametrize("change", MALFORMED_ELEMENTS.values(), ids=MALFORMED_ELEMENTS)
def test_malformed_elements_are_refused(gpu, change):
    memory = vkgdr.Memory(gpu, SIZE)
    good = {"shape": (4,), "data": (memory.device_ptr, False), "version": 3}
    for strides in ({}, {"strides": (8,)}):
        for use in (vkgdr.host_view, as_cuda_array):
            with pytest.raises(vkgdr.InvalidArgumentError):
                use(ByInterface(good | change | strides))


def test_the_numbers_of_an_interface_may_be_those_of_numpy(gpu):
    memory = vkgdr.Memory(gpu, SIZE)
    # 3 * 100 does not fit into uint8.
    wide = {"shape": (np.uint8(4), np.uint8(1)), "typestr": "<f4", "strides": (np.uint8(100), np.uint8(4))}
    array = ByInterface(wide | {"data": (np.uint64(memory.device_ptr), np.False_), "version": 3})
    assert len(vkgdr.memory_of(array)) == 304
    assert (as_cuda_array(array).alloc_size, vkgdr.host_view(array).strides) == (304, (100, 4))
    array.__cuda_array_interface__["data"] = (memory.device_ptr + SIZE - 300, False)
    # Its rows end beyond the memory, and begin before their first elements.
    backwards = Borrowed(memory.device_ptr + SIZE - 4, (2, 24), "<i4", strides=(4, -4))
    for beyond in (array, backwards):
        for use in (vkgdr.memory_of, as_cuda_array, vkgdr.host_view):
            with pytest.raises(vkgdr.OutOfRangeError):
                use(beyond)
