"""`vkgdr.arrays.Array`: numba's memory table. Each test is named after its row."""

import contextlib
import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
import simulator
import vkgdr
import vkgdr.stream
from neighbours import EXAMPLE, Borrowed, BorrowedBytes, ByDlpack, ByInterface, every_kind, every_visible_kind, wait_at
from vkgdr import arrays
from vkgdr.arrays import Array, as_cuda_array, device_array, device_array_like, is_cuda_array, to_device
from vkgdr.compat import pyopencl


@pytest.fixture(params=["mapped", "host", "device"])
def example(request, gpu):
    """Return `EXAMPLE` as an array of each kind."""
    return to_device(EXAMPLE, kind=request.param, owner=gpu)


@every_kind
@pytest.mark.parametrize("order", ["C", "F"])
def test_device_array(gpu, kind, order):
    array = device_array((2, 3), "f4", order=order, kind=kind, owner=gpu)
    like = np.empty((2, 3), "f4", order)
    assert isinstance(array, Array)
    assert (array.shape, array.strides, array.dtype, array.kind) == (like.shape, like.strides, like.dtype, kind)
    assert device_array(5, owner=gpu).dtype == np.float64
    strided = device_array((2, 3), "i4", strides=(32, 8), kind=kind, owner=gpu)
    assert (strided.strides, strided.alloc_size, strided.nbytes) == ((32, 8), 52, 24)


def test_device_array_refuses_invalid_arguments(gpu):
    for arguments in (
        {"shape": (-1,)},
        {"shape": 3, "dtype": object},
        {"shape": 3, "order": "K"},
        {"shape": (2, 3), "strides": (4,)},
        {"shape": 3, "strides": (-8,)},
        {"shape": 3, "kind": "vram"},
    ):
        with pytest.raises(vkgdr.InvalidArgumentError):
            device_array(owner=gpu, **arguments)
    with pytest.raises(TypeError):
        device_array((2, 2), strides=(16.9, 8.2), owner=gpu)
    for make in (device_array, arrays.mapped_array):
        with pytest.raises(vkgdr.InvalidArgumentError, match="exceeds the address space"):
            make((0, 1 << 62), owner=gpu)


def test_device_array_may_be_empty(gpu):
    array = device_array((0, 3), owner=gpu)
    assert (array.size, array.nbytes, array.alloc_size, array.kind, len(array)) == (0, 0, 0, None, 0)
    assert array.copy_to_host().shape == (0, 3)
    assert array.__cuda_array_interface__["data"] == (0, False)
    array.copy_to_device(np.empty((0, 3)))
    array[:] = 5
    assert np.asarray(array).shape == array.host.shape == (0, 3)


def test_an_empty_array_is_on_the_device_that_was_given_or_current_when_it_was_made(run_python, simulated):
    code = """
        import libcuda, vkgdr
        from capsules import Taken
        from vkgdr.arrays import device_array, to_device

        def device_of(array):
            taken = Taken(array.__dlpack__(max_version=(1, 0)))
            device = taken.tensor.device.kind, taken.tensor.device.id
            taken.end()
            assert array.__dlpack_device__() == device
            return device[1]

        for device in (0, 1):
            gpu = vkgdr.Vkgdr.open_primary_context(device)
            array, empty = to_device([1.0, 2.0], owner=gpu), device_array((0, 3), owner=gpu)
            for each in (array[0:0], array[0:0][0:0], array[0:0].bind(0), array[2:].reshape(3, 0), empty, empty[:, 1:]):
                assert device_of(each) == device, (device, each)
        empty = device_array(0)
        assert device_of(empty) == 0
        cuda = libcuda.Cuda()
        cuda.push(cuda.retain_primary(1))
        assert (device_of(empty), device_of(device_array(0))) == (0, 1)
    """
    run_python(code, VKGDR_TEST_PROFILE="two-gpus")


def test_device_array_like(gpu):
    for like in (EXAMPLE, EXAMPLE.T, EXAMPLE.transpose(1, 0, 2), EXAMPLE[:, ::2], np.float32(3)):
        like = np.asarray(like)
        array = device_array_like(like, owner=gpu)
        expected = np.empty_like(like, order="K")
        assert (array.shape, array.strides, array.dtype) == (expected.shape, expected.strides, expected.dtype)
        again = device_array_like(array, owner=gpu)
        assert (again.shape, again.strides) == (array.shape, array.strides)


def test_device_array_like_an_array_of_the_device(gpu):
    memory = vkgdr.Memory(gpu, 24, kind="device")
    array = device_array_like(Borrowed(memory.device_ptr, (2, 3), "<i4", strides=(4, 8)), owner=gpu)
    assert (array.shape, array.strides, array.dtype) == ((2, 3), (4, 8), np.int32)
    assert device_array_like(memory, owner=gpu).shape == (24,)


@every_kind
def test_to_device(gpu, kind):
    for host in (EXAMPLE, EXAMPLE.T, np.float32(3), np.zeros(0)):
        array = to_device(host, kind=kind, owner=gpu)
        assert (array.copy_to_host() == host).all()
    assert to_device([1, 2, 3], owner=gpu).copy_to_host().tolist() == [1, 2, 3]
    times = np.array(["2026-11-22", "2026-11-23"], "M8[D]")
    assert (to_device(times, kind=kind, owner=gpu).copy_to_host() == times).all()
    assert to_device(EXAMPLE, owner=gpu).kind == "mapped"
    with pytest.raises(ValueError, match="non-contiguous"):
        to_device(EXAMPLE[:, ::2], owner=gpu)
    assert to_device(EXAMPLE, copy=False, owner=gpu).shape == EXAMPLE.shape


@every_kind
def test_to_device_with_to_copies_there(gpu, kind):
    target = device_array_like(EXAMPLE, kind=kind, owner=gpu)
    assert to_device(EXAMPLE, to=target) is target
    assert (target.copy_to_host() == EXAMPLE).all()
    other = device_array_like(EXAMPLE, kind=kind, owner=gpu)
    to_device(target, to=other)
    assert (other.copy_to_host() == EXAMPLE).all()
    to_device(EXAMPLE + 1, to=other, copy=False)
    assert (other.copy_to_host() == EXAMPLE).all()
    assert to_device(target) is target


def test_as_cuda_array(cuda, gpu, foreign):
    memory = vkgdr.Memory(gpu, 96)
    array = as_cuda_array(BorrowedBytes(memory.device_ptr + 8, 16))
    array.host[:] = 7
    array.memory.flush()
    assert cuda.read(memory.device_ptr + 8, 16) == b"\7" * 16
    other = as_cuda_array(foreign)
    other[:] = np.arange(16)
    assert other.copy_to_host().tolist() == list(range(16))
    with pytest.raises(vkgdr.VkgdrError):
        _ = other.host
    assert [is_cuda_array(obj) for obj in (other, memory, EXAMPLE)] == [True, True, False]
    with pytest.raises(TypeError, match="cuda array interface"):
        as_cuda_array(EXAMPLE)


@pytest.mark.parametrize("whose", ["its own", "another"])
def test_as_cuda_array_waits_for_a_stream_of_any_context(cuda, context, simulated, whose):
    other = cuda.create_context()
    memory = vkgdr.Memory(vkgdr.Vkgdr(0), 16)
    if whose == "another":
        cuda.pop()
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        borrowed = BorrowedBytes(memory.device_ptr, 16, stream)
        assert as_cuda_array(borrowed, sync=False).stream == stream
        wait_at(gate, lambda: as_cuda_array(borrowed), cuda.current())
    memory.free()
    other.destroy()


@pytest.mark.parametrize("by", ["as_cuda_array", "owner", "host_view"])
def test_an_array_in_memory_of_this_package_is_kept_by_its_views(gpu, by):
    memory = vkgdr.Memory(gpu, 16)
    obj = BorrowedBytes(memory.device_ptr, 16)
    seen = weakref.ref(obj)
    if by == "as_cuda_array":
        view = as_cuda_array(obj)
    elif by == "owner":
        view = arrays.from_cuda_array_interface(obj.__cuda_array_interface__, owner=obj)
        with pytest.raises(NotImplementedError, match="masked"):
            arrays.from_cuda_array_interface(obj.__cuda_array_interface__ | {"mask": 1})
    else:
        obj.__cuda_array_interface__ |= {"strides": (2,), "shape": (8,)}
        view = arrays.host_view(obj)
    del obj
    gc.collect()
    assert seen() is not None
    part = view[4:]
    del view
    gc.collect()
    assert seen() is not None, "a part keeps it, too"
    del part
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("use", ["copy_to_host", "__dlpack__", "pickle"])
@pytest.mark.parametrize("to", ["none", "another"])
def test_as_cuda_array_does_not_use_a_stream_that_the_memory_is_no_longer_bound_to(gpu, simulated, use, to):
    memory = vkgdr.Memory(gpu, 16)
    memory.memset(3)
    memory.bind_to_stream(vkgdr.stream.stream())
    array = as_cuda_array(memory)
    assert array.__cuda_array_interface__["stream"] == memory.stream
    if to == "none":
        memory.unbind_stream()
    else:
        memory.bind_to_stream(vkgdr.stream.stream())
    gc.collect()
    assert array.__cuda_array_interface__["stream"] == memory.stream
    if use == "copy_to_host":
        assert array.copy_to_host().tolist() == [3] * 16
    elif use == "__dlpack__":
        array.__dlpack__(stream=1)
    else:
        assert pickle.loads(pickle.dumps(array)).copy_to_host().tolist() == [3] * 16
    array = None
    memory.free()


def test_attributes(gpu):
    array = to_device(EXAMPLE, owner=gpu)
    assert (array.shape, array.strides, array.dtype, array.ndim) == ((2, 3, 4), (48, 16, 4), np.int32, 3)
    assert (array.size, array.nbytes, array.alloc_size, len(array)) == (24, 96, 96, 2)
    assert array.flags == {"C_CONTIGUOUS": True, "F_CONTIGUOUS": False}
    assert array.T.flags == {"C_CONTIGUOUS": False, "F_CONTIGUOUS": True}
    assert array.stream == 0
    assert (array.is_c_contiguous(), array.is_f_contiguous()) == (True, False)
    assert isinstance(array.memory, vkgdr.Memory)
    assert "(2, 3, 4) of int32" in repr(array)


def test_bind_and_the_stream_of_the_interface(cuda, gpu):
    array = to_device(EXAMPLE, owner=gpu)
    assert array.__cuda_array_interface__["stream"] is None
    with cuda.stream() as stream:
        bound = array.bind(stream)
        assert bound.__cuda_array_interface__["stream"] == stream
        assert bound[1].stream == stream
        assert (bound.copy_to_host() == EXAMPLE).all()
        assert array.bind(1).__cuda_array_interface__["stream"] == 1


def test_the_host_view_is_the_same_bytes(gpu):
    for kind in ("mapped", "host"):
        array = to_device(EXAMPLE.T, kind=kind, owner=gpu)
        assert (array.host == EXAMPLE.T).all()
        assert array.host.strides == array.strides
        assert np.asarray(array).ctypes.data == array.host.ctypes.data
        assert (array[1:, ::-1].host == EXAMPLE.T[1:, ::-1]).all()
    with pytest.raises(vkgdr.NoHostViewError):
        _ = to_device(EXAMPLE, kind="device", owner=gpu).host


def test_array_of_numpy(example):
    array = np.array(example, copy=True)
    assert (array == EXAMPLE).all()
    assert (np.asarray(example, "f8") == EXAMPLE).all()
    with pytest.raises(ValueError, match="without a copy"):
        example.__array__("f4", copy=False)
    if example.kind == "device":
        with pytest.raises(ValueError, match="without a copy"):
            example.__array__(copy=False)
    else:
        assert np.shares_memory(np.asarray(example), example.host)


@every_kind
def test_cuda_array_interface(cuda, gpu, kind):
    array = to_device(EXAMPLE, kind=kind, owner=gpu)
    for part, expected in ((array, EXAMPLE), (array[1, ::-1], EXAMPLE[1, ::-1]), (array.T[2:], EXAMPLE.T[2:])):
        again = as_cuda_array(part)
        assert (again.shape, again.strides) == (expected.shape, expected.strides)
        assert again.__cuda_array_interface__["data"] == part.__cuda_array_interface__["data"]
        if all(stride >= 0 for stride in expected.strides):
            assert (again.copy_to_host() == expected).all()


def test_dlpack_of_both_sides(gpu):
    for kind in ("mapped", "host"):
        array = to_device(EXAMPLE, kind=kind, owner=gpu)
        for part, expected in (
            (array, EXAMPLE),
            (array[:, 1], EXAMPLE[:, 1]),
            (array.T, EXAMPLE.T),
            (array[0, 0, 0:1], [0]),
        ):
            tensor = np.from_dlpack(part, device="cpu")
            assert (tensor.dtype, tensor.shape) == (np.int32, part.shape)
            assert (tensor == expected).all()
            assert np.shares_memory(tensor, part.host)
        assert array.__dlpack_device__() == (2, 0)
        assert vkgdr.memory_of(ByDlpack(array)).nbytes == 96
    on_device = to_device(EXAMPLE, kind="device", owner=gpu)
    assert (np.from_dlpack(on_device[:, 1], device="cpu") == EXAMPLE[:, 1]).all()
    for dtype in ("?", "c8", "u2", "f8"):
        values = np.arange(5).astype(dtype)
        assert (np.from_dlpack(to_device(values, owner=gpu), device="cpu") == values).all()
    with pytest.raises(BufferError, match="data type"):
        to_device(np.zeros(3, "i4,f4"), owner=gpu).__dlpack__()
    with pytest.raises(BufferError, match="data type"):
        to_device(np.zeros(3, ">i4"), owner=gpu).__dlpack__()


@pytest.mark.parametrize("view", [lambda array: np.from_dlpack(array, device="cpu"), lambda array: array[:, :]])
def test_a_tensor_and_a_slice_keep_the_memory(gpu, live, view):
    kept = view(to_device(EXAMPLE, owner=gpu))
    gc.collect()
    assert live() == 1
    assert (np.asarray(kept) == EXAMPLE).all()
    del kept
    gc.collect()
    assert live() == 0


def test_pinned(gpu, simulated):
    array, other = np.zeros(1000), np.zeros(5000)
    before = simulator.calls("cuMemHostRegister")
    with arrays.pinned(array, other, np.zeros(0)):
        assert simulator.calls("cuMemHostRegister") == before + 2
        with pytest.raises(vkgdr.VkgdrError, match="page-locked already") as raised, arrays.pinned(array):
            pass
        assert raised.value.cu_result == 712
    with arrays.pinned(array):
        pass
    with pytest.raises(KeyError), arrays.pinned(array):
        raise KeyError
    with arrays.pinned(array):
        pass
    readonly = np.zeros(10)
    readonly.flags.writeable = False
    with pytest.raises(vkgdr.VkgdrError), arrays.pinned(readonly):
        pass


def test_an_interrupt_right_after_pages_were_locked_unlocks_them(gpu, simulated, monkeypatch):
    def interrupted(function, *arguments, call=arrays.call, **options):
        call(function, *arguments, **options)
        if function == "cuMemHostRegister_v2":
            raise KeyboardInterrupt

    array = np.zeros(1000)
    with monkeypatch.context() as patch:
        patch.setattr(arrays, "call", interrupted)
        with pytest.raises(KeyboardInterrupt), arrays.pinned(array):
            pass
    with arrays.pinned(array):
        pass


def test_defer_cleanup(cuda, gpu, live):
    with arrays.defer_cleanup():
        memory = vkgdr.Memory(gpu, 100)
        address = memory.device_ptr
        with cuda.stream() as stream, cuda.hold(stream):
            # Does not wait.
            memory.free()
        with pytest.raises(vkgdr.FreedError):
            _ = memory.device_ptr
        with pytest.raises(vkgdr.InvalidArgumentError):
            vkgdr.memory_of(address)
        with contextlib.suppress(KeyError), arrays.defer_cleanup():
            to_device(EXAMPLE, owner=gpu)
            raise KeyError
        # A second allocation cannot have the pages.
        assert vkgdr.Memory(gpu, 100).device_ptr != address
        gc.collect()
    assert live() == 0


def test_what_describes_an_array_cannot_be_assigned(gpu):
    array = to_device(EXAMPLE, owner=gpu)
    for name in ("shape", "strides", "dtype", "memory", "ndim", "size", "nbytes", "flags", "kind"):
        with pytest.raises(AttributeError):
            setattr(array, name, getattr(array, name))
    # Nor is one made by hand.
    for layout in (np.empty(5000), np.empty(2, object)):
        with pytest.raises(TypeError, match="as_cuda_array"):
            arrays.Array(layout, array.memory)
    # The interface of a map is a copy.
    mapping = vkgdr.Memory(gpu, 16).map()
    mapping.__array_interface__["shape"] = (1 << 40,)
    assert mapping.array.shape == (16,)


SEQUENCES = [(2, 3), [2, 3], np.array([2, 3]), range(2, 4), (np.int8(2), np.uint64(3))]


@pytest.mark.parametrize("shape", SEQUENCES, ids=repr)
def test_a_shape_and_strides_are_any_sequence(gpu, shape):
    memory = vkgdr.Memory(gpu, 4096)
    assert memory.get_host_array(shape, "f4").shape == (2, 3)
    with memory.map(shape=shape, dtype="f4") as array:
        assert array.shape == (2, 3)
    assert arrays.mapped_array(shape, "f4", owner=gpu).shape == (2, 3)
    strides = type(shape)(s * 12 for s in shape) if isinstance(shape, tuple | list) else np.asarray(shape) * 12
    assert arrays.device_array(shape, "f4", strides, owner=gpu).strides == (24, 36)
    assert arrays.device_array((3, 2), "f4", owner=gpu).reshape(shape).shape == (2, 3)
    assert arrays.device_array(np.array(6), "f4", owner=gpu).reshape(np.int8(3), np.int64(-1)).shape == (3, 2)


def test_copy_to_host(example):
    assert example.T.copy_to_host().strides == EXAMPLE.T.strides
    for key in (..., np.s_[:, 1:], np.s_[::-1], np.s_[:, ::-2], np.s_[::-1, 1:, ::-1]):
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
    for shape in ((5, 5), (-1, -1), (7, -1), (-2,), (-2, -1)):
        with pytest.raises(ValueError, match=r"cannot reshape|one unknown dimension|negative extents"):
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
    with pytest.raises(ValueError, match="last axis must be contiguous"):
        example.T.view("u1")
    with pytest.raises(ValueError, match="must be a divisor"):
        example.view("V3")
    scalar = to_device(np.float32(3), owner=example.memory.owner)
    assert scalar.view("i4").dtype == np.int32
    for dtype in ("u1", "f8"):
        with pytest.raises(ValueError, match="dtype of a 0d array"):
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
        with pytest.raises(ValueError, match=r"axes|axis"):
            example.transpose(axes)


def test_getitem_of_slices_and_elements(example):
    for key in (0, -1, (1, 2), slice(1, None), (slice(None), 1), (..., 2), (0, ..., slice(None, None, 2)), (None, 1)):
        part, flags = example[key], EXAMPLE[key].flags
        assert (part.shape, part.strides) == (EXAMPLE[key].shape, EXAMPLE[key].strides)
        assert (part.is_c_contiguous(), part.is_f_contiguous()) == (flags.c_contiguous, flags.f_contiguous)
        assert (part.copy_to_host() == EXAMPLE[key]).all()
    element = example[1, 2, 3]
    assert isinstance(element, np.int32)
    assert element == 23
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


@pytest.mark.parametrize("again", [copy.deepcopy, lambda array: pickle.loads(pickle.dumps(array))])
def test_a_deep_copy_has_memory_of_its_own_with_the_same_bytes(example, again):
    for array in (example, example.T, example[:, ::2], example[1, 1:, 3], example[:0]):
        copied = again(array)
        for name in ("shape", "strides", "dtype", "kind"):
            assert getattr(copied, name) == getattr(array, name)
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


@every_visible_kind
def test_a_conversion_by_numpy_comes_after_the_streams_work(gpu, kind):
    stream = vkgdr.stream.stream()
    array = device_array(4, "f4", stream=stream, kind=kind, owner=gpu)
    array[:] = 0
    pyopencl.fill(array, np.float32(7), stream=stream)
    # On the profile `late` the CPU sees the fill only after a wait and an invalidate.
    assert np.asarray(array, "f8").tolist() == [7] * 4
