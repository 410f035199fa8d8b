"""``vkgdr.arrays``: pyopencl's ``svm_empty`` and its relatives; and the ways from one side's array to the other's."""

import gc
import threading

import numpy as np
import pytest
import vkgdr
from neighbours import ByDlpack, counter
from vkgdr.arrays import host_array, host_array_like, mapped_array, mapped_array_like

MAKERS = {"mapped": mapped_array, "host": host_array}
LIKES = {"mapped": mapped_array_like, "host": host_array_like}

every_kind = pytest.mark.parametrize("kind", MAKERS)
STRUCTURED = np.dtype([("time", "u8"), ("samples", "<i2", (2, 3)), ("flag", "?")])


def memory_of(array):
    """Follow the bases of an array to the memory."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, memoryview)
    return base.obj


@pytest.fixture
def live(gpu):
    return counter(gpu)


# ---- svm_empty(ctx, flags, shape, dtype, order="C", alignment=None, queue=None), csvm_empty, fsvm_empty -------------


@every_kind
@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (5, (5,)),
        ((5,), (5,)),
        ((), ()),
        ((2, 3, 4), (2, 3, 4)),
        ([2, 3], (2, 3)),
        (np.int64(5), (5,)),
        ((np.uint8(2), 3), (2, 3)),
        (0, (0,)),
        ((3, 0, 2), (3, 0, 2)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, "f4", complex, STRUCTURED])
def test_an_array_has_its_shape_and_data_type(gpu, kind, shape, expected, dtype):
    array = MAKERS[kind](shape, dtype, owner=gpu)
    assert type(array) is np.ndarray
    assert array.shape == expected
    assert array.dtype == np.dtype(dtype)
    assert array.flags.writeable
    assert array.flags.c_contiguous
    assert array.flags.aligned
    array[...] = np.zeros((), dtype)
    assert array.tobytes() == bytes(array.nbytes)


@every_kind
def test_the_default_data_type_is_float64(gpu, kind):
    assert MAKERS[kind](5, owner=gpu).dtype == np.float64


@every_kind
def test_the_order_says_which_index_varies_fastest(gpu, kind):
    array = MAKERS[kind]((2, 3), "i4", "F", owner=gpu)
    assert array.strides == (4, 8)
    assert array.flags.f_contiguous
    assert MAKERS[kind]((2, 3), "i4", order="C", owner=gpu).strides == (12, 4)
    array[:] = [[1, 2, 3], [4, 5, 6]]
    device = vkgdr.device_view(array)
    device.flush()
    assert np.frombuffer(device.tobytes(), "i4").tolist() == [1, 4, 2, 5, 3, 6]


@every_kind
def test_the_base_of_an_array_is_the_memory(gpu, kind):
    array = MAKERS[kind]((2, 3), owner=gpu)
    memory = memory_of(array)
    assert isinstance(memory, vkgdr.Memory)
    assert memory.kind == kind
    assert memory.owner is gpu
    assert memory.nbytes == array.nbytes == 48
    assert memory.host_ptr == array.ctypes.data


@every_kind
def test_an_array_keeps_its_memory_and_frees_it(gpu, kind, live):
    array = MAKERS[kind]((100, 100), owner=gpu)
    part = array[10:20, ::3].T
    array[:] = 3
    del array
    assert live() == 1
    assert (part == 3).all()
    del part
    assert live() == 0


@every_kind
def test_an_array_may_go_on_another_thread(gpu, kind, live):
    held = [MAKERS[kind](10, owner=gpu)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert live() == 0


@every_kind
@pytest.mark.parametrize("dtype", ["u1", "f8", "c16", "S3", "S100", STRUCTURED])
def test_the_default_alignment_is_the_size_of_an_element_or_more(gpu, kind, dtype):
    array = MAKERS[kind](3, dtype, owner=gpu)
    alignment = 1
    while alignment < array.itemsize:
        alignment *= 2
    assert array.ctypes.data % alignment == 0
    assert vkgdr.device_view(array).device_ptr % alignment == 0


@every_kind
def test_elements_larger_than_any_alignment_are_no_error(gpu, kind):
    assert MAKERS[kind](2, "S1000000", owner=gpu).itemsize == 1_000_000


@every_kind
def test_an_alignment_is_kept_or_refused(gpu, kind, live):
    assert MAKERS[kind](3, alignment=64, owner=gpu).ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="power of two, not 48"):
        MAKERS[kind](3, alignment=48, owner=gpu)
    with pytest.raises(ValueError, match=str(1 << 62)):
        MAKERS[kind](3, alignment=1 << 62, owner=gpu)
    assert live() == 0


@every_kind
def test_the_stream_is_bound(cuda, gpu, kind):
    with cuda.stream() as stream:
        array = MAKERS[kind](10, stream=stream, owner=gpu)
        assert memory_of(array).stream == stream
        assert memory_of(LIKES[kind](array, stream=stream, owner=gpu)).stream == stream
        del array
        gc.collect()
        cuda.synchronize_stream(stream)
        gpu.collect()


@every_kind
def test_the_default_owner_is_the_gpu_of_the_current_context(context, kind):
    assert memory_of(MAKERS[kind](10)).context == context.handle
    assert memory_of(LIKES[kind]([1, 2])).context == context.handle


def test_without_a_context_the_default_owner_is_the_primary_one(run_python):
    code = """
        import numpy as np, vkgdr
        array = vkgdr.arrays.mapped_array_like(np.ones((2, 3)))
        array[:] = 5
        print(array.sum(), vkgdr.device_view(array).owner)
    """
    assert run_python(code).stdout.startswith("30.0")


@every_kind
@pytest.mark.parametrize(
    ("shape", "dtype", "order", "text"),
    [
        (-1, "u1", "C", r"\(-1,\)"),
        ((2, -3), "u1", "C", r"\(2, -3\)"),
        (5, object, "C", "Python objects"),
        (5, [("a", object)], "C", "Python objects"),
        (5, "V0", "C", "no size"),
        (5, "u1", "A", "'A'"),
        (5, "u1", None, "None"),
    ],
)
def test_what_is_no_array_is_refused(gpu, kind, shape, dtype, order, text, live):
    with pytest.raises(ValueError, match=text):
        MAKERS[kind](shape, dtype, order, owner=gpu)
    assert live() == 0


@every_kind
def test_shapes_and_data_types_of_other_types_are_refused(gpu, kind):
    for shape in (1.5, "5", None, (1, 2.5)):
        with pytest.raises(TypeError, match="integer"):
            MAKERS[kind](shape, owner=gpu)
    with pytest.raises(TypeError, match="data type"):
        MAKERS[kind](5, "no type", owner=gpu)
    with pytest.raises(TypeError, match="Vkgdr, not str"):
        MAKERS[kind](5, owner="gpu")
    with pytest.raises(TypeError, match="positional"):
        MAKERS[kind](5, "u1", "C", 64)


@every_kind
def test_an_array_for_which_there_is_no_room_is_an_allocation_error(gpu, kind):
    with pytest.raises(vkgdr.AllocationError, match="VK_ERROR_OUT_OF"):
        MAKERS[kind](10**15, "u1", owner=gpu)
    with pytest.raises(OverflowError, match=str(8 * 10**30)):
        MAKERS[kind]((10**15, 10**15), owner=gpu)


# ---- svm_empty_like, csvm_empty_like, fsvm_empty_like ---------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["u1", "f8", STRUCTURED])
def test_an_array_like_another_has_its_shape_data_type_and_order(gpu, kind, order, dtype):
    like = np.zeros((2, 3, 4), dtype, order)
    array = LIKES[kind](like, owner=gpu)
    assert memory_of(array).kind == kind
    assert (array.shape, array.dtype, array.strides) == (like.shape, like.dtype, like.strides)


@every_kind
def test_arrays_contiguous_in_both_orders_are_in_c_order(gpu, kind):
    for like in (np.zeros(5), np.zeros((1, 5)), np.zeros(()), np.zeros((0, 3))):
        array = LIKES[kind](like, owner=gpu)
        assert array.shape == like.shape
        assert array.flags.c_contiguous


@every_kind
def test_an_array_like_one_of_these_is_another(gpu, kind):
    first = MAKERS[kind]((2, 3), "f4", "F", owner=gpu)
    second = LIKES[kind](first, owner=gpu)
    assert second.strides == first.strides
    assert memory_of(second) != memory_of(first)


@every_kind
@pytest.mark.parametrize(
    "like", [np.zeros(10)[::2], np.zeros((4, 4))[:, :2], np.zeros((2, 3, 4)).transpose(1, 0, 2), np.zeros(5)[::-1]]
)
def test_an_array_that_is_not_contiguous_is_no_model(gpu, kind, like):
    with pytest.raises(ValueError, match="contiguous") as caught:
        LIKES[kind](like, owner=gpu)
    assert str(like.strides) in str(caught.value)


@every_kind
def test_what_numpy_takes_for_an_array_is_a_model(gpu, kind):
    assert LIKES[kind]([[1.5, 2.5]], owner=gpu).shape == (1, 2)
    with pytest.raises(ValueError, match="Python objects"):
        LIKES[kind]([None], owner=gpu)


# ---- vkgdr.device_view ----------------------------------------------------------------------------------------------


@every_kind
def test_the_device_sees_what_the_cpu_writes_into_the_array(cuda, gpu, kind):
    array = MAKERS[kind]((2, 3), "f4", owner=gpu)
    array[:] = [[1, 2, 3], [4, 5, 6]]
    device = vkgdr.device_view(array)
    device.flush()
    assert cuda.read(device.device_ptr, 24) == array.tobytes()
    cuda.write(device.device_ptr, np.full(6, 9, "f4").tobytes())
    device.invalidate()
    assert (array == 9).all()


@every_kind
def test_the_device_view_of_a_part_is_that_part(gpu, kind):
    array = MAKERS[kind]((4, 5), "i4", owner=gpu)
    row = vkgdr.device_view(array[2])
    assert len(row) == 20
    assert row.device_ptr == memory_of(array).device_ptr + 40
    assert row.offset == 40
    assert row.host_ptr == array[2].ctypes.data
    assert len(vkgdr.device_view(array[1, 2:4])) == 8
    assert len(vkgdr.device_view(memoryview(array))) == 80


def test_the_device_view_keeps_the_memory(gpu, live):
    array = mapped_array(10, "u1", owner=gpu)
    array[:] = 7
    view = vkgdr.device_view(array)
    assert isinstance(view, vkgdr.Region)
    del array
    assert live() == 1
    view.flush()
    assert view.tobytes() == b"\7" * 10
    del view
    assert live() == 0


def test_memory_itself_has_a_device_view(gpu):
    memory = vkgdr.Memory(gpu, 10)
    assert vkgdr.device_view(memory).device_ptr == memory.device_ptr
    assert vkgdr.device_view(memory[2:5]).device_ptr == memory.device_ptr + 2


def test_arrays_elsewhere_have_no_device_view(gpu):
    array = np.zeros(10)
    with pytest.raises(ValueError, match=f"80 bytes at host address {array.ctypes.data:#x}"):
        vkgdr.device_view(array)
    with pytest.raises(ValueError, match="3 bytes"):
        vkgdr.device_view(b"abc")


def test_scattered_arrays_have_no_device_view(gpu):
    array = mapped_array((4, 4), owner=gpu)
    for part in (array[:, 1], array[:, :2], array[::2]):
        with pytest.raises(ValueError, match="contiguous"):
            vkgdr.device_view(part)
    with pytest.raises(TypeError, match="int"):
        vkgdr.device_view(5)


@every_kind
def test_arrays_in_fortran_order_have_a_device_view(gpu, kind):
    array = MAKERS[kind]((2, 3), "f4", "F", owner=gpu)
    assert len(vkgdr.device_view(array)) == 24
    assert len(vkgdr.device_view(array[:, 1])) == 8
    assert len(vkgdr.device_view(MAKERS[kind]((2, 3), "f4", owner=gpu).T)) == 24


def test_an_empty_array_has_an_empty_device_view(gpu):
    view = vkgdr.device_view(mapped_array((0, 3), owner=gpu))
    assert len(view) == 0
    assert view.__cuda_array_interface__["data"][0] == 0


def test_memory_that_was_freed_by_force_has_no_device_view(gpu):
    memory = vkgdr.Memory(gpu, 10)
    array = np.asarray(memory)
    memory.free()
    # The array still keeps it.
    assert len(vkgdr.device_view(array)) == 10
    memory.free(force=True)
    with pytest.raises(ValueError, match="10 bytes"):
        vkgdr.device_view(array)


# ---- vkgdr.host_view ------------------------------------------------------------------------------------------------


class OnDevice:
    """A device array of another library, by the CUDA Array Interface."""

    def __init__(self, pointer, shape, typestr, strides=None, *, readonly=False):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (pointer, readonly),
            "strides": strides,
            "version": 3,
        }


@pytest.mark.parametrize("kind", ["mapped", "host"])
def test_the_host_view_has_shape_and_data_type_of_the_device_array(cuda, gpu, kind):
    memory = vkgdr.Memory(gpu, 100, kind=kind)
    view = vkgdr.host_view(OnDevice(memory.device_ptr + 8, (2, 3), "<f4"))
    assert (view.shape, view.dtype) == ((2, 3), np.float32)
    assert view.ctypes.data == memory.host_ptr + 8
    cuda.write(memory.device_ptr + 8, np.arange(6, dtype="f4").tobytes())
    memory.invalidate()
    assert (view == np.arange(6).reshape(2, 3)).all()


def test_the_host_view_keeps_the_memory(gpu, live):
    memory = vkgdr.Memory(gpu, 100)
    view = vkgdr.host_view(OnDevice(memory.device_ptr, (100,), "|u1"))
    view[:] = 5
    memory.free()
    del memory
    assert live() == 1
    assert (view == 5).all()
    del view
    assert live() == 0


def test_memory_itself_has_a_host_view(gpu):
    memory = vkgdr.Memory(gpu, 100)
    assert vkgdr.host_view(memory).ctypes.data == memory.host_ptr
    assert vkgdr.host_view(memory).shape == (100,)
    assert vkgdr.host_view(memory[10:20]).ctypes.data == memory.host_ptr + 10


def test_a_dlpack_tensor_has_a_host_view_of_bytes(gpu):
    memory = vkgdr.Memory(gpu, 100)
    view = vkgdr.host_view(ByDlpack(memory))
    assert (view.shape, view.dtype, view.ctypes.data) == ((100,), np.uint8, memory.host_ptr)


def test_the_host_view_of_a_read_only_array_is_read_only(gpu):
    memory = vkgdr.Memory(gpu, 100)
    assert not vkgdr.host_view(OnDevice(memory.device_ptr, (100,), "|u1", readonly=True)).flags.writeable
    assert not vkgdr.host_view(vkgdr.Memory(gpu, 10, readonly=True)).flags.writeable
    assert vkgdr.host_view(memory).flags.writeable


def test_memory_of_other_libraries_has_no_host_view(cuda, gpu):
    pointer = cuda.allocate(10)
    with pytest.raises(ValueError, match="not in memory of vkgdr"):
        vkgdr.host_view(OnDevice(pointer, (10,), "|u1"))
    cuda.free(pointer)
    with pytest.raises(ValueError, match="ndarray"):
        vkgdr.host_view(np.zeros(5))
    with pytest.raises(ValueError, match="int has no device memory"):
        vkgdr.host_view(5)


def test_device_memory_has_no_host_view(gpu):
    memory = vkgdr.Memory(gpu, 10, kind="device")
    for obj in (memory, OnDevice(memory.device_ptr, (10,), "|u1"), ByDlpack(memory)):
        with pytest.raises(vkgdr.NoHostViewError, match="device"):
            vkgdr.host_view(obj)


def test_an_array_that_ends_beyond_the_memory_has_no_host_view(gpu):
    memory = vkgdr.Memory(gpu, 10)
    with pytest.raises(ValueError, match="not in memory of vkgdr"):
        vkgdr.host_view(OnDevice(memory.device_ptr, (11,), "|u1"))


def test_an_array_in_fortran_order_has_no_host_view(gpu):
    memory = vkgdr.Memory(gpu, 100)
    with pytest.raises(ValueError, match=r"strides \(4, 8\)"):
        vkgdr.host_view(OnDevice(memory.device_ptr, (2, 3), "<f4", (4, 8)))


def test_the_two_views_lead_to_each_other(gpu):
    array = mapped_array((2, 3), "f4", owner=gpu)
    device = vkgdr.device_view(array)
    again = vkgdr.host_view(OnDevice(device.device_ptr, (2, 3), "<f4"))
    again[:] = 4
    assert (array == 4).all()


# ---- pycuda ---------------------------------------------------------------------------------------------------------


def test_pycuda_takes_the_device_view(pycuda_context):
    from pycuda import gpuarray

    array = mapped_array((2, 3), "f4")
    array[:] = 5
    device = vkgdr.device_view(array)
    device.flush()
    on_device = gpuarray.GPUArray((2, 3), "f4", gpudata=device.device_ptr, base=device)
    assert (on_device.get() == 5).all()
    on_device.set(np.full((2, 3), 6, "f4"))
    device.invalidate()
    assert (array == 6).all()
    assert vkgdr.host_view(on_device).ctypes.data == array.ctypes.data


def test_a_gpuarray_over_this_memory_has_a_host_view(pycuda_context):
    import vkgdr.pycuda
    from pycuda import gpuarray

    gpu = vkgdr.Vkgdr(0)
    array = gpuarray.to_gpu(np.arange(6, dtype="f4"), allocator=vkgdr.pycuda.allocator(gpu))
    array.gpudata.invalidate()
    assert (vkgdr.host_view(array) == np.arange(6)).all()
    assert (vkgdr.host_view(array[2:5]) == [2, 3, 4]).all()
