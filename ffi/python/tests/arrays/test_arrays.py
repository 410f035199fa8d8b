"""``vkgdr.arrays``: pyopencl's ``svm_empty`` and its relatives."""

import gc
from functools import partial

import numpy as np
import pytest
import vkgdr
from everything import refused
from neighbours import MAKERS, ByInterface, every_kind, every_visible_kind
from vkgdr.arrays import (
    Array,
    as_cuda_array,
    device_array,
    host_array,
    host_array_like,
    mapped_array,
    mapped_array_like,
    to_device,
)

LIKES = {"mapped": mapped_array_like, "host": host_array_like}

STRUCTURED = np.dtype([("time", "u8"), ("samples", "<i2", (2, 3)), ("flag", "?")])


@every_visible_kind
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


@every_visible_kind
def test_the_order_says_which_index_varies_fastest(gpu, kind):
    array = MAKERS[kind]((2, 3), "i4", "F", owner=gpu)
    assert array.strides == (4, 8)
    assert array.flags.f_contiguous
    assert MAKERS[kind]((2, 3), "i4", order="C", owner=gpu).strides == (12, 4)
    array[:] = [[1, 2, 3], [4, 5, 6]]
    device = vkgdr.device_view(array)
    device.flush()
    assert np.frombuffer(device.tobytes(), "i4").tolist() == [1, 4, 2, 5, 3, 6]


@every_visible_kind
def test_the_base_of_an_array_is_the_memory_and_keeps_it(gpu, kind, live):
    array = MAKERS[kind]((2, 3), owner=gpu)
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    memory = base.obj
    assert isinstance(memory, vkgdr.Memory)
    assert memory.kind == kind
    assert memory.owner is gpu
    assert memory.nbytes == array.nbytes == 48
    assert memory.host_ptr == array.ctypes.data
    part = array[1:, ::2].T
    array[:] = 3
    del array, memory, base
    assert live() == 1
    assert (part == 3).all()
    del part
    assert live() == 0


@every_visible_kind
@pytest.mark.parametrize("dtype", ["u1", "f8", "c16", "S3", "S100", STRUCTURED])
def test_the_default_alignment_is_the_size_of_an_element_or_more(gpu, kind, dtype):
    array = MAKERS[kind](3, dtype, owner=gpu)
    alignment = 1
    while alignment < array.itemsize:
        alignment *= 2
    assert array.ctypes.data % alignment == 0
    assert vkgdr.device_view(array).device_ptr % alignment == 0


@every_visible_kind
def test_an_alignment_is_kept_or_refused(gpu, kind, live):
    assert MAKERS[kind](3, alignment=64, owner=gpu).ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="power of two, not 48"):
        MAKERS[kind](3, alignment=48, owner=gpu)
    with pytest.raises(ValueError, match=str(1 << 62)):
        MAKERS[kind](3, alignment=1 << 62, owner=gpu)
    assert live() == 0


@every_visible_kind
def test_the_stream_is_bound(cuda, gpu, kind):
    with cuda.stream() as stream:
        array = MAKERS[kind](10, stream=stream, owner=gpu)
        assert vkgdr.device_view(array).stream == stream
        assert vkgdr.device_view(LIKES[kind](array, stream=stream, owner=gpu)).stream == stream
        del array
        gc.collect()
        cuda.synchronize_stream(stream)
        gpu.collect()


@every_visible_kind
def test_the_default_owner_is_the_gpu_of_the_current_context(context, kind):
    memories = [vkgdr.device_view(MAKERS[kind](10)), vkgdr.device_view(LIKES[kind]([1, 2]))]
    memories += [vkgdr.compat.rmm.Buffer(size=10, kind=kind), vkgdr.compat.dpctl.MemoryShared(10)]
    assert {memory.context for memory in memories} == {context.handle}
    assert vkgdr.compat.rmm.Buffer().owner.device == 0


def test_without_a_context_the_default_owner_is_the_primary_one(run_python):
    code = """
        import numpy as np, vkgdr
        from vkgdr.compat import dpctl, rmm
        array = vkgdr.arrays.mapped_array_like(np.ones((2, 3)))
        array[:] = 5
        made = [rmm.Buffer(size=3), rmm.Buffer.to_device(b"abc"), dpctl.MemoryHost(3), dpctl.MemoryDevice(3)]
        made[0].copy_from_device(made[1])
        assert made[0].tobytes() == b"abc"
        [owner] = {memory.owner for memory in made}
        assert vkgdr.device_view(array).owner == owner
        print(array.sum())
    """
    assert run_python(code).stdout == "30.0\n"


@every_visible_kind
@pytest.mark.parametrize(
    ("shape", "dtype", "order", "text"),
    [
        (-1, "u1", "C", r"\(-1,\)"),
        ((2, -3), "u1", "C", r"\(2, -3\)"),
        (5, object, "C", "Python objects"),
        (5, [("a", object)], "C", "Python objects"),
        (5, "V0", "C", "size 0"),
        (5, "u1", "A", "'A'"),
        (5, "u1", None, "None"),
    ],
)
def test_what_is_no_array_is_refused(gpu, kind, shape, dtype, order, text, live):
    with pytest.raises(ValueError, match=text):
        MAKERS[kind](shape, dtype, order, owner=gpu)
    assert live() == 0


@every_visible_kind
def test_arguments_of_other_types_are_refused(gpu, kind):
    for arguments, text in (
        *(((shape,), "integer") for shape in (1.5, "5", None, (1, 2.5))),
        ((5, "no type"), "data type"),
        ((5, "u1", "C", 64), "positional"),
    ):
        refused(partial(MAKERS[kind], *arguments, owner=gpu), TypeError, text, arguments)
    refused(partial(MAKERS[kind], 5, owner="gpu"), TypeError, "Vkgdr, not str", "a text for an owner")


@every_visible_kind
@pytest.mark.parametrize("dtype", ["u1", "f8", STRUCTURED])
def test_an_array_like_another_has_its_shape_data_type_and_order(gpu, kind, dtype):
    for like in (np.zeros((2, 3, 4), dtype, "C"), np.zeros((2, 3, 4), dtype, "F")):
        array = LIKES[kind](like, owner=gpu)
        assert vkgdr.device_view(array).kind == kind
        assert (array.shape, array.dtype, array.strides) == (like.shape, like.dtype, like.strides)
    # Contiguous in both orders.
    for like in (np.zeros(5), np.zeros((1, 5)), np.zeros(()), np.zeros((0, 3))):
        array = LIKES[kind](like, owner=gpu)
        assert (array.shape, array.flags.c_contiguous) == (like.shape, True)


@every_visible_kind
@pytest.mark.parametrize(
    "like", [np.zeros(10)[::2], np.zeros((4, 4))[:, :2], np.zeros((2, 3, 4)).transpose(1, 0, 2), np.zeros(5)[::-1]]
)
def test_an_array_that_is_not_contiguous_is_no_model(gpu, kind, like):
    with pytest.raises(ValueError, match="contiguous") as caught:
        LIKES[kind](like, owner=gpu)
    assert str(like.strides) in str(caught.value)


def test_closing_the_owner_of_an_array_does_not_close_that_of_later_arrays(run_python):
    run_python("""
        import vkgdr
        from vkgdr.arrays import mapped_array, to_device
        array = to_device([1.0, 2.0])
        with array.memory.owner:
            pass
        assert array.copy_to_host().tolist() == to_device([1.0, 2.0]).copy_to_host().tolist()
        assert len(mapped_array(4)) == 4
    """)


def test_an_array_larger_than_every_heap_is_a_shortage_of_memory_up_to_the_largest_array_of_numpy(gpu):
    for make in (mapped_array, host_array, device_array):
        with pytest.raises(vkgdr.AllocationError, match="VK_ERROR_OUT_OF"):
            make((2**60,), "f4", owner=gpu)
        for extent in (2**61, 2**62, 2**70):
            with pytest.raises(vkgdr.InvalidArgumentError, match=f"{extent}.*exceeds the address space"):
                make((extent,), "f4", owner=gpu)


# ---- data types whose array interface says less than NumPy's type does, and those that no array can have -------------


ALIGNED = np.dtype([("a", "u1"), ("b", "f8")], align=True)
TYPES = {
    "text": np.dtype("U3"),
    "bytes": np.dtype("S3"),
    "a date": np.dtype("M8[ns]"),
    "a duration": np.dtype("m8[25s]"),
    "packed fields": np.dtype([("a", "u1"), ("b", "f8")]),
    "aligned fields": ALIGNED,
    "nested fields": np.dtype([("x", ALIGNED), ("y", "u2", (3,))]),
    "titles": np.dtype([(("title", "a"), "u1"), ("b", "f8")]),
    "fields out of order": np.dtype({"names": ["a", "b"], "formats": ["u1", "u4"], "offsets": [4, 0]}),
    "overlapping fields": np.dtype({"names": ["a", "b"], "formats": ["u4", "u1"], "offsets": [0, 0]}),
}
every_type = pytest.mark.parametrize("dtype", TYPES.values(), ids=TYPES)


def example(dtype):
    """Return 20 elements of a type, with different bytes."""
    bytes_ = np.arange(20 * dtype.itemsize, dtype="u1") % 100
    # As 4-byte characters, not all bytes are text.
    return np.array(["abc", "de"] * 10, dtype) if dtype.kind == "U" else bytes_.view(dtype)


def values(array):
    """Return the elements, without the padding between fields."""
    return str(array.tolist())


@every_type
@every_kind
def test_arrays_of_every_type_are_copied_whole(gpu, dtype, kind):
    host = example(dtype)
    array = to_device(host, kind=kind, owner=gpu)
    assert len(vkgdr.memory_of(array)) == host.nbytes
    copies = [device_array(20, dtype, owner=gpu) for _ in range(2)]
    copies[0].copy_to_device(array)
    copies[1][:] = array
    for copied in (array, *copies, as_cuda_array(array)):
        assert copied.dtype == dtype
        assert values(copied.copy_to_host()) == values(host)
    memory = vkgdr.Memory(gpu, host.nbytes)
    memory.copy_from_device(array)
    assert values(np.frombuffer(memory.tobytes(), dtype)) == values(host)


@every_type
def test_host_views_of_every_type_are_whole(gpu, dtype):
    host = example(dtype)
    array = to_device(host, owner=gpu)
    mapped = mapped_array(20, dtype, owner=gpu)
    mapped[...] = host
    assert len(vkgdr.memory_of(mapped)) == len(vkgdr.device_view(mapped)) == host.nbytes
    with array.memory.map(dtype=dtype) as map_:
        for view in (array.host, vkgdr.host_view(array), mapped, map_):
            assert view.dtype == dtype
            assert values(view) == values(host)


@every_type
@every_kind
def test_numpy_sees_an_array_with_its_type(gpu, dtype, kind):
    """NumPy prefers an array interface, in which padding is a field and overlapping fields are none."""
    host = example(dtype)
    array = to_device(host, kind=kind, owner=gpu)
    assert np.asarray(array).dtype == np.array(array).dtype == mapped_array_like(array, owner=gpu).dtype == dtype
    assert values(np.asarray(array)) == values(host)
    if kind != "device":
        assert np.asarray(array).ctypes.data == array.memory.host_ptr


@pytest.mark.parametrize("name", ["text", "a date", "aligned fields", "nested fields"])
def test_the_interface_of_another_library_has_the_type(gpu, name):
    host = example(TYPES[name])
    array = to_device(host, owner=gpu)
    other = ByInterface(array.__cuda_array_interface__)
    assert len(vkgdr.memory_of(other)) == host.nbytes
    for view in (as_cuda_array(other).copy_to_host(), vkgdr.host_view(other)):
        assert view.dtype == host.dtype
        assert values(view) == values(host)


@pytest.mark.parametrize("strided", [False, True])
def test_an_array_whose_interface_has_no_fields_has_its_own_type(gpu, strided):
    """As numba's records."""
    array = to_device(example(ALIGNED), owner=gpu)
    interface = {"shape": (20,), "typestr": "|V16", "data": array.__cuda_array_interface__["data"], "version": 3}
    other = ByInterface(interface | ({"strides": (16,)} if strided else {}))
    for own, expected in [
        (ALIGNED, ALIGNED),
        (None, np.dtype("V16")),
        ("float32", np.dtype("V16")),
        (np.dtype("f4"), np.dtype("V16")),
        (np.dtype([("a", "O"), ("b", "O")]), np.dtype("V16")),
    ]:
        other.dtype = own
        for view in (as_cuda_array(other), vkgdr.host_view(other)):
            assert view.dtype == expected


def test_the_axes_of_a_subarray_are_the_arrays_last(gpu):
    pairs = np.dtype(("f4", (2,)))
    for make in (device_array, mapped_array, host_array):
        array = make(4, pairs, owner=gpu)
        assert (array.shape, array.dtype, array.nbytes) == ((4, 2), np.dtype("f4"), 32)
    memory = vkgdr.Memory(gpu, 24)
    assert memory.map(dtype=pairs).array.shape == memory.get_host_array(3, pairs).shape == (3, 2)


def test_a_read_only_interface_stays_read_only(gpu):
    array = to_device(np.arange(4.0), owner=gpu)
    other = ByInterface(array.__cuda_array_interface__ | {"data": (array.memory.device_ptr, True)})
    assert vkgdr.memory_of(other).readonly
    again = as_cuda_array(other)
    assert isinstance(again, Array)
    assert not again.host.flags.writeable
    with pytest.raises(vkgdr.InvalidArgumentError, match="read-only"):
        again[0] = 1


@pytest.mark.parametrize("dtype", ["g", "G"])
def test_long_doubles_have_no_dlpack(gpu, dtype):
    array = to_device(np.ones(2, dtype), owner=gpu)
    for device in (None, (1, 0)):
        with pytest.raises(BufferError, match="no data type"):
            array.__dlpack__(dl_device=device, max_version=(1, 0))
