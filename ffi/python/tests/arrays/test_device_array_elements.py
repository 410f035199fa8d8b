"""Copies, views and elements of `vkgdr.arrays.Array`: numba's memory table. Each test is named after its row."""

import copy
import pickle

import numpy as np
import pytest
import vkgdr
from neighbours import EXAMPLE, ByInterface, every_visible_kind, wait_at
from vkgdr.arrays import Array, as_cuda_array, device_array, to_device

# ---- copies ---------------------------------------------------------------------------------------------------------


def test_copy_to_host(example):
    assert (example.copy_to_host() == EXAMPLE).all()
    assert example.T.copy_to_host().strides == EXAMPLE.T.strides
    assert (example[:, 1:].copy_to_host() == EXAMPLE[:, 1:]).all()
    target = np.empty_like(EXAMPLE)
    assert example.copy_to_host(target) is target
    assert (target == EXAMPLE).all()


def test_arrays_with_negative_strides_are_copied_to_the_host(example):
    for key in (np.s_[::-1], np.s_[:, ::-2], np.s_[::-1, 1:, ::-1]):
        part, expected = example[key], EXAMPLE[key]
        assert (part.copy_to_host() == expected).all()
        assert part.copy_to_host().strides == expected.strides
        assert (np.asarray(part) == expected).all()
        target = np.zeros_like(EXAMPLE)[key]
        assert part.copy_to_host(target) is target
        assert (target == expected).all()
    example[:] = example[::-1]
    assert (example.copy_to_host() == EXAMPLE[::-1]).all()


def test_copy_to_host_refuses_what_does_not_fit(example):
    for other in ([0] * 24, bytearray(96), "text", memoryview(EXAMPLE)):
        with pytest.raises(TypeError, match=f"must be an array of NumPy, not {type(other).__name__}"):
            example.copy_to_host(other)
    with pytest.raises(TypeError, match="incompatible dtype"):
        example.copy_to_host(np.empty((2, 3, 4), "i8"))
    with pytest.raises(ValueError, match="incompatible shape"):
        example.copy_to_host(np.empty((2, 3, 5), "i4"))
    with pytest.raises(ValueError, match="incompatible strides"):
        example.copy_to_host(np.empty((2, 3, 4), "i4", "F"))


def test_copy_to_device(example, foreign):
    example.copy_to_device(EXAMPLE + 1)
    assert (example.copy_to_host() == EXAMPLE + 1).all()
    example.T.copy_to_device(EXAMPLE.T + 2)
    assert (example.copy_to_host() == EXAMPLE + 2).all()
    example[1].copy_to_device(EXAMPLE[0])
    assert (example.copy_to_host()[1] == EXAMPLE[0]).all()
    example[0].copy_to_device(example[1])
    assert (example.copy_to_host()[0] == EXAMPLE[0]).all()
    example.view("u1").reshape(96)[:16].copy_to_device(foreign)
    assert (example.copy_to_host().ravel()[:4] == 0).all()


def test_copy_to_device_refuses_what_does_not_fit(example):
    with pytest.raises(ValueError, match="non-contiguous"):
        example[:, ::2].copy_to_device(EXAMPLE[:, ::2])
    with pytest.raises(TypeError, match="incompatible dtype"):
        example.copy_to_device(EXAMPLE.astype("f4"))
    with pytest.raises(ValueError, match="incompatible shape"):
        example.copy_to_device(EXAMPLE[0])
    with pytest.raises(ValueError, match="incompatible strides"):
        example.copy_to_device(device_array((2, 3, 4), "i4", order="F", owner=example.memory.owner))


def test_copies_come_after_the_stream(cuda, gpu, simulated):
    array = to_device(EXAMPLE, owner=gpu)
    for use in (
        lambda stream: array.copy_to_host(stream=stream),
        lambda stream: array.copy_to_device(EXAMPLE, stream=stream),
        lambda stream: array.bind(stream)[0, 0, 0],
        lambda stream: array.setitem((0, 0, 0), 5, stream=stream),
    ):
        with cuda.stream() as stream, cuda.hold(stream) as gate:
            wait_at(gate, lambda use=use, stream=stream: use(stream), cuda.current())


def test_a_copy_of_a_device_array_comes_after_the_streams_of_both(cuda, gpu, simulated):
    with cuda.stream() as own, cuda.stream() as others, cuda.stream() as third:
        array, source = to_device(EXAMPLE, owner=gpu).bind(own), to_device(EXAMPLE, owner=gpu).bind(others)
        borrowed = ByInterface(source.__cuda_array_interface__)
        for held, use in (
            (own, lambda: array.copy_to_device(source)),
            (others, lambda: array.copy_to_device(source)),
            (own, lambda: array.copy_to_device(borrowed)),
            (others, lambda: array.copy_to_device(borrowed)),
            (others, lambda: array.copy_to_device(source, stream=third)),
            (third, lambda: array.copy_to_device(source, stream=third)),
        ):
            with cuda.hold(held) as gate:
                wait_at(gate, use, cuda.current())


# ---- views ----------------------------------------------------------------------------------------------------------


def test_reshape(example):
    for shape in ((6, 4), (24,), (4, -1), (2, 1, 12)):
        assert (example.reshape(shape).copy_to_host() == EXAMPLE.reshape(shape)).all()
        assert (example.reshape(*shape).copy_to_host() == EXAMPLE.reshape(shape)).all()
    assert (example.T.reshape(24, order="F").copy_to_host() == np.arange(24)).all()
    with pytest.raises(vkgdr.InvalidArgumentError, match="'Z'"):
        example.reshape(24, order="Z")
    assert example.reshape(24, order="A").shape == (24,)
    with pytest.raises(NotImplementedError, match="requires copying"):
        example.T.reshape(24)
    for shape in ((5, 5), (-1, -1), (7, -1)):
        with pytest.raises(ValueError, match="cannot reshape"):
            example.reshape(shape)


def test_ravel(example):
    assert (example.ravel().copy_to_host() == np.arange(24)).all()
    assert (example.T.ravel(order="F").copy_to_host() == np.arange(24)).all()
    with pytest.raises(NotImplementedError, match="requires copying"):
        example.ravel(order="F")


def test_view(example):
    for dtype in ("u1", "i2", "f4", "i8", "c16"):
        assert (example.view(dtype).copy_to_host() == EXAMPLE.view(dtype)).all()
    assert (example.T.view("u4").copy_to_host() == EXAMPLE.T).all()
    with pytest.raises(ValueError, match="C-contiguous"):
        example.T.view("u1")
    with pytest.raises(ValueError, match="larger dtype"):
        example.view("V3")
    scalar = to_device(np.float32(3), owner=example.memory.owner)
    assert scalar.view("i4").dtype == np.int32
    for dtype in ("u1", "f8"):
        with pytest.raises(ValueError, match="without axes cannot change its size, 4 bytes"):
            scalar.view(dtype)


def test_squeeze(gpu):
    array = to_device(EXAMPLE.reshape(1, 6, 1, 4), owner=gpu)
    assert array.squeeze().shape == (6, 4)
    assert array.squeeze(0).shape == (6, 1, 4)
    assert array.squeeze((0, 2)).shape == (6, 4)
    assert (array.squeeze().copy_to_host() == EXAMPLE.reshape(6, 4)).all()
    with pytest.raises(ValueError, match="size not equal to one"):
        array.squeeze(1)


def test_split(gpu):
    array = to_device(np.arange(10), owner=gpu)
    parts = list(array.split(4))
    assert [part.copy_to_host().tolist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    parts[0][:] = 9
    assert array[2] == 9
    for wrong in (array.reshape(2, 5), array[::2]):
        with pytest.raises(ValueError, match="only support"):
            wrong.split(2)
    with pytest.raises(ValueError, match="at least 1"):
        array.split(0)


def test_transpose(example):
    assert (example.T.copy_to_host() == EXAMPLE.T).all()
    assert (example.transpose((1, 0, 2)).copy_to_host() == EXAMPLE.transpose(1, 0, 2)).all()
    for axes in ((0, 0, 1), (0, 1), (0, 1, 3)):
        with pytest.raises(ValueError, match="invalid axes"):
            example.transpose(axes)


# ---- elements -------------------------------------------------------------------------------------------------------


def test_getitem_of_slices_and_elements(example):
    for key in (0, -1, (1, 2), slice(1, None), (slice(None), 1), (..., 2), (0, ..., slice(None, None, 2)), (None, 1)):
        part, flags = example[key], EXAMPLE[key].flags
        assert (part.shape, part.strides) == (EXAMPLE[key].shape, EXAMPLE[key].strides)
        assert (part.is_c_contiguous(), part.is_f_contiguous()) == (flags.c_contiguous, flags.f_contiguous)
        assert (part.copy_to_host() == EXAMPLE[key]).all()
    element = example[1, 2, 3]
    assert isinstance(element, np.int32)
    assert element == 23
    assert example[:, ::-1].reshape is not None
    assert example[1, ::-1][0, 0] == EXAMPLE[1, ::-1][0, 0]
    assert example[1, 2, 3, ...].shape == ()
    for wrong in (5, (0, 0, 0, 0), (0, 3)):
        with pytest.raises(IndexError):
            example[wrong]
    for wrong in ([0, 1], np.array([0]), EXAMPLE > 3, "a", 1.5):
        with pytest.raises(TypeError, match="indexed with"):
            example[wrong]
    # A bool is an int, but no index.
    for wrong in (True, (False, 1), (slice(None), True), np.True_):
        with pytest.raises(TypeError, match="indexed with integers"):
            _ = example[wrong]
        with pytest.raises(TypeError, match="indexed with integers"):
            example[wrong] = 1
    with pytest.raises(TypeError):
        iter(example)


def test_setitem_of_elements_and_slices(example):
    expected = EXAMPLE.copy()
    for key, value in (
        ((0, 0, 0), 5),
        (1, 7),
        ((slice(None), 1), np.arange(4)),
        ((..., slice(None, None, 2)), np.float64(3.7)),
        ((slice(None, None, -1), 2), [[1, 2, 3, 4], [5, 6, 7, 8]]),
        ((1, slice(0, 2)), example[0, 1:]),
        (..., 1),
    ):
        expected[key] = value.copy_to_host() if isinstance(value, Array) else value
        example[key] = value
        assert (example.copy_to_host() == expected).all(), key


def test_setitem_refuses_shapes_that_do_not_fit(example):
    with pytest.raises(ValueError, match="Can't assign 2-D array to 1-D self"):
        example[0, 0] = np.zeros((2, 4))
    with pytest.raises(ValueError, match="Can't copy sequence with size 3 to array axis 0 with dimension 4"):
        example[0, 0] = [1, 2, 3]
    with pytest.raises(ValueError, match="size 4 to array axis 1 with dimension 3"):
        example[:, :, 0] = np.zeros((2, 4))
    assert (example.copy_to_host() == EXAMPLE).all()


@pytest.mark.parametrize("kind", ["mapped", "device"])
def test_records_are_assigned_whole(gpu, kind):
    values = np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")])
    array = to_device(values, kind=kind, owner=gpu)
    assert (array[1], array[0]["b"]) == (values[1], 2.5)
    with pytest.raises(ValueError, match="read-only"):
        array[0]["b"] = 5
    array[0] = (7, 8.5)
    assert array.copy_to_host().tolist() == [(7, 8.5), (3, 4.5)]
    assert as_cuda_array(array).dtype == values.dtype
    # A field of a copy can be assigned.
    array.copy_to_host()[0]["a"] = 5


@every_visible_kind
def test_memory_that_is_not_coherent_is_flushed_and_invalidated(cuda, context, kind):
    owner = vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    array = to_device(EXAMPLE, kind=kind, owner=owner)
    assert cuda.read(array.memory.device_ptr, 96) == EXAMPLE.tobytes()
    array[0, 1] = 9
    assert cuda.read(array.memory.device_ptr + 16, 16) == np.full(4, 9, "i4").tobytes()
    cuda.write(array.memory.device_ptr, np.full(24, 3, "i4").tobytes())
    assert array[1, 2, 3] == 3
    assert (array.copy_to_host() == 3).all()


# ---- copies of the object -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [copy.deepcopy, lambda array: pickle.loads(pickle.dumps(array))])
def test_a_deep_copy_has_memory_of_its_own_with_the_same_bytes(example, again):
    for array in (example, example.T, example[:, ::2], example[1, 1:, 3], example[:0]):
        copied = again(array)
        assert (copied.shape, copied.strides, copied.dtype, copied.kind) == (
            array.shape,
            array.strides,
            array.dtype,
            array.kind,
        )
        assert (copied.copy_to_host() == array.copy_to_host()).all()
        copied[...] = 99
        assert not (array.copy_to_host() == 99).any()
        assert (copied.copy_to_host() == 99).all()
    reversed_ = again(example[::-1])
    assert (reversed_[::-1].copy_to_host() == EXAMPLE).all()


def test_a_pickle_has_no_other_bytes_than_the_arrays(gpu):
    array = to_device(np.zeros(100_000), owner=gpu)
    assert len(pickle.dumps(array)) < array.nbytes + 1000


def test_a_copy_comes_after_the_arrays_stream_and_has_none(gpu, cuda):
    with cuda.stream() as stream:
        array = to_device(np.zeros(1000, "u1"), owner=gpu).bind(stream)
        cuda.fill(array.memory.device_ptr, 7, 1000, stream)
        copied = copy.deepcopy(array)
        assert copied.stream == 0
        assert (copied.copy_to_host() == 7).all()


def test_a_shallow_copy_is_a_view(example):
    view = copy.copy(example)
    view[0, 0, 0] = 99
    assert example[0, 0, 0] == 99
