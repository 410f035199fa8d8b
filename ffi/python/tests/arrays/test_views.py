"""``vkgdr.device_view``, ``vkgdr.host_view`` and ``vkgdr.memory_of``: from one side's array to the other's memory."""

import ctypes

import numpy as np
import pytest
import simulator
import vkgdr
from neighbours import MAKERS, Borrowed, BorrowedBytes, ByDlpack, ByInterface, every_kind, every_visible_kind
from vkgdr.arrays import as_cuda_array, mapped_array
from vkgdr.pool import Pool


@every_visible_kind
def test_the_device_sees_what_the_cpu_writes_into_the_array(cuda, gpu, kind):
    array = MAKERS[kind]((2, 3), "f4", owner=gpu)
    array[:] = [[1, 2, 3], [4, 5, 6]]
    device = vkgdr.device_view(array)
    device.flush()
    assert cuda.read(device.device_ptr, 24) == array.tobytes()
    cuda.write(device.device_ptr, np.full(6, 9, "f4").tobytes())
    device.invalidate()
    assert (array == 9).all()


@every_visible_kind
def test_the_device_view_of_a_part_is_that_part(gpu, kind):
    array, fortran = (MAKERS[kind]((4, 5), "i4", order, owner=gpu) for order in "CF")
    row = vkgdr.device_view(array[2])
    assert (len(row), row.offset, row.host_ptr) == (20, 40, array[2].ctypes.data)
    assert row.device_ptr == vkgdr.device_view(array).device_ptr + 40
    for part, size in ((array[1, 2:4], 8), (memoryview(array), 80), (array.T, 80), (fortran, 80), (fortran[:, 1], 16)):
        assert len(vkgdr.device_view(part)) == size


def test_memory_itself_has_both_views(gpu):
    memory = vkgdr.Memory(gpu, 100)
    for part, offset in ((memory, 0), (memory[10:20], 10)):
        assert vkgdr.device_view(part).device_ptr == memory.device_ptr + offset
        view = vkgdr.host_view(part)
        assert (view.shape, view.ctypes.data) == ((len(part),), memory.host_ptr + offset)


def test_arrays_elsewhere_and_scattered_ones_have_no_device_view(gpu):
    array = np.zeros(10)
    with pytest.raises(ValueError, match=f"80 bytes at host address {array.ctypes.data:#x}"):
        vkgdr.device_view(array)
    with pytest.raises(ValueError, match="3 bytes"):
        vkgdr.device_view(b"abc")
    array = mapped_array((4, 4), owner=gpu)
    for part in (array[:, 1], array[:, :2], array[::2]):
        with pytest.raises(ValueError, match="contiguous"):
            vkgdr.device_view(part)
    with pytest.raises(TypeError, match="int"):
        vkgdr.device_view(5)


def test_an_empty_array_has_an_empty_device_view(gpu):
    view = vkgdr.device_view(mapped_array((0, 3), owner=gpu))
    assert len(view) == 0
    assert view.__cuda_array_interface__["data"][0] == 0


def test_memory_that_was_freed_by_force_has_no_device_view(gpu):
    memory = vkgdr.Memory(gpu, 10)
    array = np.asarray(memory)
    memory.free()
    # The array still keeps the memory alive.
    assert len(vkgdr.device_view(array)) == 10
    memory.free(force=True)
    with pytest.raises(ValueError, match="10 bytes"):
        vkgdr.device_view(array)


@every_visible_kind
def test_the_host_view_has_shape_and_data_type_of_the_device_array(cuda, gpu, kind):
    memory = vkgdr.Memory(gpu, 100, kind=kind)
    view = vkgdr.host_view(Borrowed(memory.device_ptr + 8, (2, 3), "<f4"))
    assert (view.shape, view.dtype) == ((2, 3), np.float32)
    assert view.ctypes.data == memory.host_ptr + 8
    cuda.write(memory.device_ptr + 8, np.arange(6, dtype="f4").tobytes())
    memory.invalidate()
    assert (view == np.arange(6).reshape(2, 3)).all()


def test_a_dlpack_tensor_has_a_host_view_of_bytes(gpu):
    memory = vkgdr.Memory(gpu, 100)
    view = vkgdr.host_view(ByDlpack(memory))
    assert (view.shape, view.dtype, view.ctypes.data) == ((100,), np.uint8, memory.host_ptr)


def test_the_host_view_of_a_read_only_array_is_read_only(gpu):
    memory = vkgdr.Memory(gpu, 100)
    assert not vkgdr.host_view(BorrowedBytes(memory.device_ptr, 100, readonly=True)).flags.writeable
    assert not vkgdr.host_view(vkgdr.Memory(gpu, 10, readonly=True)).flags.writeable
    assert vkgdr.host_view(memory).flags.writeable


def test_memory_of_other_libraries_has_no_host_view_unless_the_gpu_maps_it(gpu, foreign):
    if gpu.supports_existing():
        view = vkgdr.host_view(foreign)
        assert (view.shape, view.dtype) == ((16,), np.uint8)
    else:
        with pytest.raises(ValueError, match="not in memory of vkgdr"):
            vkgdr.host_view(foreign)
    with pytest.raises(ValueError, match="ndarray"):
        vkgdr.host_view(np.zeros(5))
    with pytest.raises(ValueError, match="int has no device memory"):
        vkgdr.host_view(5)


@pytest.mark.parametrize("order", ["C", "F"])
def test_strided_arrays_have_a_host_view(cuda, gpu, order):
    memory = vkgdr.Memory(gpu, 96)
    cuda.write(memory.device_ptr, np.arange(24, dtype="i4").tobytes())
    memory.invalidate()
    whole = np.arange(24, dtype="i4").reshape((4, 6), order=order)
    for part in (whole, whole[:, 1], whole[1:3, ::2], whole[::-1, 1:3], whole.T[2:]):
        start = memory.device_ptr + part.ctypes.data - whole.ctypes.data
        view = vkgdr.host_view(Borrowed(start, part.shape, "<i4", strides=part.strides))
        assert (view.shape, view.strides) == (part.shape, part.strides)
        assert (view == part).all()
        assert view.ctypes.data - memory.host_ptr == start - memory.device_ptr
    readonly = Borrowed(memory.device_ptr, (2, 3), "<i4", strides=(4, 8), readonly=True)
    assert not vkgdr.host_view(readonly).flags.writeable
    assert vkgdr.host_view(Borrowed(memory.device_ptr, (2, 0), "<i4", strides=(4, 8))).shape == (2, 0)


@pytest.mark.parametrize("operation", ["conj", "neg"])
def test_an_array_whose_bytes_are_not_its_values_is_refused(gpu, operation):
    memory = vkgdr.Memory(gpu, 64)

    class Tensor:
        """As PyTorch's, which negates and conjugates at the next use; its interface does not tell."""

        __cuda_array_interface__ = memory.__cuda_array_interface__

    # Another library may have an attribute of this name.
    for is_lazy, value in ((True, lambda _: True), (False, lambda _: False), (True, True), (False, False)):
        setattr(Tensor, f"is_{operation}", value)
        if is_lazy:
            text = f"this Tensor are not its values: call resolve_{operation}"
            for use in (vkgdr.host_view, as_cuda_array, vkgdr.Memory(gpu, 64).copy_from_device):
                with pytest.raises(vkgdr.InvalidArgumentError, match=text):
                    use(Tensor())
            assert vkgdr.memory_of(Tensor()) == memory
        else:
            assert vkgdr.host_view(Tensor()).nbytes == 64


@pytest.mark.parametrize("interface", [5, "shape", []])
def test_an_interface_that_is_no_dict_is_a_type_error(interface):
    for use in (vkgdr.host_view, vkgdr.memory_of, as_cuda_array):
        with pytest.raises(TypeError, match=f"__cuda_array_interface__ must be a dict, not {type(interface).__name__}"):
            use(ByInterface(interface))


@every_kind
def test_every_address_of_memory_leads_to_the_rest_of_it(gpu, kind):
    memory = vkgdr.Memory(gpu, 4096, kind=kind)
    starts = [memory.device_ptr] if kind == "device" else [memory.device_ptr, memory.host_ptr]
    for start in starts:
        for offset in (0, 1, 4095):
            region = vkgdr.memory_of(start + offset)
            assert isinstance(region, vkgdr.Memory)
            assert (region.offset, len(region)) == (offset, 4096 - offset)
            assert region.device_ptr == memory.device_ptr + offset
            assert region.kind == kind
    assert vkgdr.memory_of(np.uint64(memory.device_ptr)) == memory[:]


def test_addresses_elsewhere_have_no_memory(gpu):
    memory = vkgdr.Memory(gpu, 4096)
    for address in (0, 1, -1, 1 << 64, memory.device_ptr - 1, memory.host_ptr + 4096, ctypes.addressof(ctypes.c_int())):
        with pytest.raises(vkgdr.InvalidArgumentError, match="not an address in memory of vkgdr"):
            vkgdr.memory_of(address)
    address = memory.device_ptr
    memory.free()
    with pytest.raises(vkgdr.InvalidArgumentError, match=f"{address:#x}"):
        vkgdr.memory_of(address)


@every_visible_kind
def test_host_arrays_lead_to_their_bytes(gpu, kind):
    memory = vkgdr.Memory(gpu, 96, kind=kind)
    whole = np.asarray(memory).view("i4").reshape(4, 6)
    parts = {
        "all": (whole, 0, 96),
        "a row": (whole[1], 24, 24),
        "a column": (whole[:, 1], 4, 76),
        "reversed": (whole[::-1, ::-1], 0, 96),
        "transposed": (whole.T, 0, 96),
        "an element": (whole[2:3, 3:4], 60, 4),
    }
    for name, (part, offset, size) in parts.items():
        region = vkgdr.memory_of(part)
        assert (region.offset, len(region)) == (offset, size), name
    for same in (memory, memory.host, memoryview(memory)):
        assert vkgdr.memory_of(same).__vkgdr_memory__ == memory.__vkgdr_memory__
    assert vkgdr.memory_of(memory[8:16]).__vkgdr_memory__ == memory[8:16].__vkgdr_memory__


def test_device_arrays_lead_to_their_bytes(gpu):
    memory = vkgdr.Memory(gpu, 96)
    for array, offset, size in (
        (Borrowed(memory.device_ptr, (4, 6), "<i4"), 0, 96),
        (Borrowed(memory.device_ptr + 4, (4,), "<i4", strides=(24,)), 4, 76),
        (Borrowed(memory.device_ptr + 92, (24,), "<i4", strides=(-4,)), 0, 96),
        (Borrowed(memory.device_ptr + 8, (4, 4), "<i4", strides=(0, 4)), 8, 16),
        (BorrowedBytes(memory.device_ptr + 1, 95), 1, 95),
        (ByDlpack(memory[16:32]), 16, 16),
    ):
        region = vkgdr.memory_of(array)
        assert (region.offset, len(region)) == (offset, size)


def test_arrays_elsewhere_have_no_memory(foreign):
    with pytest.raises(vkgdr.InvalidArgumentError, match="no memory of vkgdr contains the 16 bytes at device address"):
        vkgdr.memory_of(ByDlpack(vkgdr.arrays.as_cuda_array(foreign)))
    with pytest.raises(vkgdr.InvalidArgumentError, match="no memory of vkgdr contains the 16 bytes at device address"):
        vkgdr.memory_of(foreign)
    with pytest.raises(vkgdr.InvalidArgumentError, match="no memory of vkgdr contains the 80 bytes at host address"):
        vkgdr.memory_of(np.zeros(10))
    with pytest.raises(vkgdr.InvalidArgumentError, match="at host address"):
        vkgdr.memory_of(b"abc")


def test_the_memory_of_another_library_is_neither_bound_nor_its_use_recorded_nor_exported_as_a_copy(foreign):
    array = as_cuda_array(foreign)
    for use, error in (
        (lambda: array.memory.record_stream(0), vkgdr.InvalidArgumentError),
        (lambda: vkgdr.compat.dpctl.MemoryDevice(foreign, queue=1), vkgdr.InvalidArgumentError),
        (lambda: array.__dlpack__(copy=True), BufferError),
    ):
        with pytest.raises(error, match="another library"):
            use()


def test_what_is_no_array_is_a_type_error():
    for obj in (None, "text", 1.5, object()):
        with pytest.raises(TypeError):
            vkgdr.memory_of(obj)


def test_a_chunk_of_a_pool_ends_at_its_own_end(gpu):
    pool = Pool(gpu)
    chunk = pool.allocate(100)
    assert len(vkgdr.memory_of(chunk.device_ptr + 10)) == 90
    assert vkgdr.device_view(np.asarray(chunk)[16:32]).device_ptr == chunk.device_ptr + 16
    assert vkgdr.host_view(chunk[32:64]).ctypes.data == chunk.host_ptr + 32
    with pytest.raises(vkgdr.InvalidArgumentError):
        vkgdr.memory_of(chunk.device_ptr + 100)


def test_read_only_memory_stays_read_only_by_whatever_it_is_found(gpu):
    memory = vkgdr.Memory(gpu, 64, readonly=True)
    host = np.asarray(memory)
    found = {
        "a host array": vkgdr.memory_of(host),
        "a host view": vkgdr.memory_of(memory.host),
        "a part": vkgdr.memory_of(host[8:16]),
        "a memoryview": vkgdr.memory_of(memoryview(memory)),
        "a device address": vkgdr.memory_of(memory.device_ptr),
        "a host address": vkgdr.memory_of(memory.host_ptr + 1),
        "an interface that does not say so": vkgdr.memory_of(BorrowedBytes(memory.device_ptr, 64)),
        "its device view": vkgdr.device_view(host),
        "its handle": vkgdr.RawMemory.from_handle(memory.handle),
        "DLPack": vkgdr.Memory.from_capsule(memory.__dlpack__(max_version=(1, 0))),
    }
    for name, region in found.items():
        assert region.readonly, name
        assert region.__cuda_array_interface__["data"][1], name
        assert not np.asarray(region).flags.writeable, name
        with pytest.raises(vkgdr.InvalidArgumentError, match="read-only"):
            region.memset(1)


def test_a_read_only_array_of_writable_memory_leads_to_a_read_only_region(gpu):
    memory = vkgdr.Memory(gpu, 64)
    host = np.asarray(memory)
    host.flags.writeable = False
    for region in (
        vkgdr.memory_of(host),
        vkgdr.memory_of(memoryview(memory).toreadonly()),
        vkgdr.device_view(host),
        vkgdr.device_view(memoryview(memory).toreadonly()),
        vkgdr.memory_of(BorrowedBytes(memory.device_ptr, 64, readonly=True)),
    ):
        assert region.readonly
    # An address carries no mark.
    for region in (vkgdr.memory_of(host.ctypes.data), vkgdr.RawMemory.from_handle(memory.handle)):
        assert not region.readonly


def test_strided_objects_without_an_array_interface_are_refused(gpu):
    memory = vkgdr.Memory(gpu, 64)
    part = vkgdr.arrays.to_device(np.zeros((4, 4), "u1"), owner=gpu)[:, 1]
    for strided in (memoryview(memory)[::2], ByDlpack(part)):
        with pytest.raises(vkgdr.InvalidArgumentError, match=r"contiguous|C order"):
            vkgdr.memory_of(strided)
    with pytest.raises(vkgdr.InvalidArgumentError, match="C order"):
        memory.copy_from_device(ByDlpack(part))


def test_a_tensor_that_its_library_refuses_is_an_invalid_argument(gpu):
    class Refusing:
        """A tensor that needs a gradient, for example."""

        def __init__(self, device):
            self.__dlpack_device__ = lambda: device

        def __dlpack__(self, **_arguments):
            raise BufferError("not today")

    for device in ((1, 0), (2, 0)):
        with pytest.raises(vkgdr.InvalidArgumentError, match="not today"):
            vkgdr.memory_of(Refusing(device))


# ---- arrays that other libraries allocated, `vkgdr.Mapping`, and memory for network cards ----------------------------


SETUP = """
import gc, os, pytest, weakref
import libcuda
import numpy as np
import vkgdr
from neighbours import Borrowed, Foreign

cuda = libcuda.Cuda()
gpu = vkgdr.Vkgdr.open_primary_context()
cuda.push(cuda.retain_primary())

def foreign(shape, typestr, readonly=False):
    contents = bytes(np.dtype(typestr).itemsize * np.prod(shape, dtype=int) or 1)
    array = Foreign(cuda, contents, shape=shape, typestr=typestr)
    array.__cuda_array_interface__["data"] = (array.pointer, readonly)
    return array
"""


@pytest.fixture
def under(run_python):
    """Run a program under a profile of the simulated GPU."""
    simulator.require()

    def run(profile, program, **variables):
        done = run_python(SETUP + program + "\nprint('ok')\n", VKGDR_TEST_PROFILE=profile, **variables)
        assert done.stdout == "ok\n", done

    return run


MAP = """
assert gpu.supports_existing()
array = foreign((20, 30), "<f4")
view = vkgdr.host_view(array)
assert (view.shape, view.dtype, view.flags.writeable) == ((20, 30), np.float32, True)
view[3] = np.arange(30)
assert cuda.read(array.pointer, 2400) == view.tobytes()
cuda.fill(array.pointer, 1, 2400)
assert (view.view("u1") == 1).all()
assert vkgdr.host_view(array).ctypes.data == vkgdr.host_view(array, owner=gpu).ctypes.data == view.ctypes.data
assert not vkgdr.host_view(foreign((5,), "|u1", readonly=True)).flags.writeable
cuda.fill(array.pointer, 0, 2400)
strided = vkgdr.host_view(Borrowed(array.pointer, (10, 15), "<f4", strides=(240, 8)))
strided[:] = 3
assert (view[::2, ::2] == 3).all() and view.sum() == 450
backwards = vkgdr.host_view(Borrowed(array.pointer + 4 * 599, (600,), "<f4", strides=(-4,), readonly=True))
assert (backwards[::-1] == view.ravel()).all() and not backwards.flags.writeable
for shape in ((), (0, 3)):
    assert vkgdr.host_view(foreign(shape, "<i8")).shape == shape
# The view keeps the array.
seen = weakref.ref(array)
del array
gc.collect()
assert seen() is not None
del view
gc.collect()
assert seen() is None
"""


@pytest.mark.parametrize("profile", ["dma-buf", "dma-buf-cached", "dma-buf-no-vulkan"])
def test_an_array_of_another_library_has_a_host_view(under, profile):
    under(profile, MAP)


def test_without_a_current_context_the_primary_one_is_used(under):
    under(
        "dma-buf",
        "array = foreign((9,), '|u1')\nview = vkgdr.host_view(array, owner=gpu)\n"
        "cuda.pop()\nassert vkgdr.host_view(array).ctypes.data == view.ctypes.data",
    )


REFUSED = """
assert not gpu.supports_existing()
with pytest.raises(ValueError, match="this Foreign is not in memory of vkgdr") as refused:
    vkgdr.host_view(foreign((5,), "|u1"))
assert isinstance(refused.value, vkgdr.VkgdrError)
for text in (os.environ["REASON"], "allocate mapped memory with this library"):
    assert text in str(refused.value), refused.value
"""


@pytest.mark.parametrize(("profile", "reason"), [("rebar", "CUDA 13.3"), ("dma-buf-no-mmap", "device attribute 152")])
def test_where_it_cannot_be_mapped_the_error_names_the_reason(under, profile, reason):
    under(profile, REFUSED, REASON=reason)


STREAM_ORDERED = """
address = ctypes.c_uint64()
cuda.call("cuMemAllocAsync", ctypes.byref(address), 4096, None)
array = Borrowed(address.value, (9,), "|u1")
for view in (lambda: vkgdr.host_view(array), lambda: vkgdr.Mapping(gpu, address.value, 9)):
    with pytest.raises(vkgdr.InvalidArgumentError, match="exports memory of cuMemAlloc"):
        view()
cuda.call("cuMemFreeAsync", address, None)
"""


def test_stream_ordered_memory_has_no_host_view(under):
    under("dma-buf", "import ctypes\n" + STREAM_ORDERED)


MAPPING = """
pointer, small = cuda.allocate(1 << 20), foreign((4,), "|u1")
mapping = vkgdr.Mapping(gpu, pointer + 10, 80)
assert (len(mapping), mapping.nbytes, mapping.device_ptr) == (80, 80, pointer + 10)
assert not mapping.is_cached and not mapping.readonly
assert repr(mapping).startswith("<vkgdr.Mapping: 80 bytes, ")
np.asarray(mapping)[:] = 7
mapping.flush()
mapping.invalidate()
assert cuda.read(pointer + 10, 80) == bytes([7]) * 80
fd, offset, nbytes = mapping.dma_buf()
os.close(fd)
assert nbytes == 80 and offset >= 10
assert mapping.is_current()
cuda.free(pointer)
assert not mapping.is_current()
assert (np.asarray(mapping) == 7).all()
for arguments, error, text in [
    ((gpu, 0, 1), vkgdr.InvalidArgumentError, "no memory there"),
    ((gpu, pointer, 1), vkgdr.InvalidArgumentError, "no memory there"),
    ((gpu, small.pointer, 0), vkgdr.InvalidArgumentError, "empty"),
    ((gpu, small.pointer, 1 << 40), vkgdr.OutOfRangeError, None),
    ((gpu, -1, 1), OverflowError, None),
    ((gpu, 1, -1), OverflowError, None),
    ((gpu, 1 << 64, 1), OverflowError, None),
    ((5, 1, 1), TypeError, None),
]:
    with pytest.raises(error, match=text):
        vkgdr.Mapping(*arguments)
kept = weakref.ref(small)
mapping = vkgdr.Mapping(gpu, small.pointer, 4, keep=small)
del small
assert kept() is not None
"""


def test_a_mapping_has_both_addresses_and_knows_that_its_memory_was_freed(under):
    under("dma-buf", MAPPING)


CARDS = """
from vkgdr.arrays import DmaBuf
for kind in ("mapped", "device"):
    memory = vkgdr.Memory(gpu, 5000, kind=kind, dma_buf=True)
    whole, part = memory.dma_buf(), memory[100:200].dma_buf()
    assert isinstance(whole, DmaBuf) and whole.nbytes == 5000
    assert (part.offset - whole.offset, part.nbytes) == (100, 100)
    os.close(whole.fd)
    os.close(part.fd)
    memory.copy_from_host(bytes(range(256)))
    assert memory.tobytes()[:256] == bytes(range(256))
for memory in (lambda: vkgdr.Memory(gpu, 1, kind="host", dma_buf=True), lambda: vkgdr.Memory(gpu, 1).dma_buf()):
    with pytest.raises(vkgdr.InvalidArgumentError, match="dma-buf"):
        memory()
"""


def test_a_card_can_register_memory(under):
    under("dma-buf", CARDS)
