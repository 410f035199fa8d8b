"""Data types whose array interface says less than NumPy's type does, and those that no array can have."""

import numpy as np
import pytest
import vkgdr
from neighbours import ByInterface, every_kind
from vkgdr.arrays import (
    Array,
    as_cuda_array,
    device_array,
    host_array,
    mapped_array,
    mapped_array_like,
    to_device,
)

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
