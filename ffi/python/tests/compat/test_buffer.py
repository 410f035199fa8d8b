"""``vkgdr.compat.rmm.Buffer``: RMM's ``DeviceBuffer``, row by row."""

import copy
import gc
import pickle
from functools import partial

import numpy as np
import pytest
import simulator
import vkgdr
from everything import refused
from neighbours import Foreign, Stream, every_kind, every_visible_kind, wait_at
from vkgdr.compat.rmm import Buffer


@every_kind
def test_a_buffer_has_size_and_kind(gpu, kind):
    buffer = Buffer(size=4097, owner=gpu, kind=kind)
    assert isinstance(buffer, vkgdr.Memory)
    assert len(buffer) == buffer.capacity() == 4097
    assert (buffer.kind, buffer.owner, buffer.stream) == (kind, gpu, None)
    assert buffer.prefetch() is buffer.prefetch(0, None) is buffer.prefetch(device=0, stream=1) is None
    buffer.memset(7)
    assert buffer.tobytes() == b"\7" * 4097


@every_kind
def test_an_empty_buffer_has_no_allocation(gpu, kind, live):
    buffer = Buffer(gpu, kind=kind)
    assert live() == 0
    assert len(buffer) == buffer.size == buffer.nbytes == buffer.capacity() == 0
    assert buffer.ptr == buffer.device_ptr == 0
    assert buffer.host_ptr == (None if kind == "device" else 0)
    assert (buffer.kind, buffer.device, buffer.owner, buffer.pending_views) == (kind, gpu.device, gpu, 0)
    assert "0 bytes" in repr(buffer)
    for _ in range(2):
        buffer.free()
        assert buffer.freed


@every_kind
def test_an_empty_buffer_can_be_used_as_any_other(gpu, kind):
    buffer = Buffer(gpu, kind=kind)
    assert buffer.tobytes() == bytes(buffer) == b""
    assert buffer.copy_to_host().shape == (0,)
    assert buffer.copy_to_host(bytearray(b"abc")) == b"abc"
    buffer.copy_from_host(b"")
    buffer.copy_from_device(Buffer(gpu))
    buffer.memset(1)
    buffer.flush()
    buffer.invalidate()
    buffer.flush(0, 0)
    assert len(buffer[0:0]) == 0
    for use in (lambda: buffer.copy_from_host(b"a"), lambda: buffer.copy_from_device(Buffer(gpu, size=1))):
        with pytest.raises(ValueError, match=r"too large.* 1 byte[.,]"):
            use()
    with pytest.raises(vkgdr.OutOfRangeError):
        buffer.flush(0, 1)
    if kind != "device":
        views = (np.asarray(buffer), np.frombuffer(buffer, "u1"), np.from_dlpack(buffer, device="cpu"), buffer.buf)
        assert [len(view) for view in views] == [0] * 4
        assert views[0].dtype == np.uint8
        assert buffer.get_host_array((0, 5), "f4").shape == (0, 5)
        with buffer.map() as array:
            assert array.shape == (0,)


def test_invalid_arguments_are_refused(gpu):
    for arguments, error, text in (
        ({"size": 1.5}, TypeError, "integer"),
        ({"size": "1"}, TypeError, "integer"),
        ({"ptr": 1.5, "size": 1}, TypeError, "integer"),
        ({"ptr": None, "size": 1}, TypeError, "integer"),
        ({"size": 0, "kind": "gpu"}, ValueError, "gpu"),
        ({"size": 10, "kind": "gpu"}, ValueError, "gpu"),
        ({"owner": 5, "size": 0}, TypeError, "Vkgdr, not int"),
        ({"owner": 5, "size": 10}, TypeError, "Vkgdr, not int"),
        ({"stream": "stream"}, TypeError, "stream"),
    ):
        refused(partial(Buffer, **{"owner": gpu} | arguments), error, text, arguments)
    # The arguments of RMM are keywords.
    refused(partial(Buffer, gpu, 0, 10), TypeError, "positional", "two positions")
    assert len(Buffer(ptr=0, size=10, stream=None, owner=gpu, kind="mapped")) == 10


@every_kind
@pytest.mark.parametrize("size", [0, 10])
def test_the_stream_is_bound_and_kept(cuda, gpu, kind, size):
    with cuda.stream() as handle:
        buffer = Buffer(gpu, size=size, stream=Stream(handle), kind=kind)
        gc.collect()
        assert buffer.stream == handle
        buffer.resize(20)
        assert buffer.stream == handle
        assert buffer.__cuda_array_interface__["stream"] == handle
        buffer.unbind_stream()
        assert buffer.stream is None
        buffer.free()
        unbound = Buffer(gpu, size=size, stream=handle, kind=kind)
        unbound.unbind_stream()
        assert unbound.stream is None
        unbound.resize(20)
        assert unbound.stream is None


def test_a_slice_that_ends_the_binding_ends_it_for_moves_too(cuda, gpu):
    with cuda.stream() as handle:
        buffer = Buffer(gpu, size=64, stream=handle)
        buffer[:].unbind_stream()
        assert buffer.stream is None
    buffer.resize(128)
    assert buffer.copy().stream is None


@pytest.mark.parametrize("size", [0, 10])
def test_a_buffer_is_freed_after_a_stream(cuda, gpu, size, live):
    with cuda.stream() as stream:
        buffer = Buffer(gpu, size=size)
        with pytest.raises(ValueError, match="no implicit stream"):
            buffer.free_async()
        with cuda.hold(stream) as gate:
            event = buffer.free_async(stream)
            assert buffer.freed
            assert event.is_complete == (size == 0)
            gate.open()
            event.synchronize()
        gpu.collect()
        assert live() == 0


@every_kind
def test_pickling_copies_and_keeps_the_kind(gpu, kind):
    buffer = Buffer.to_device(b"abc", owner=gpu, kind=kind)
    again = pickle.loads(pickle.dumps(buffer))
    assert (type(again), again.kind, again.tobytes()) == (Buffer, kind, b"abc")
    assert again.ptr != buffer.ptr
    again.resize(10)


SOURCES = [("host array", ""), ("foreign", "pointer"), ("device", "device_ptr")]
SOURCES += [(kind, side) for kind in ("mapped", "host") for side in ("device_ptr", "host_ptr")]


@every_kind
@pytest.mark.parametrize(("what", "side"), SOURCES)
def test_an_address_of_every_memory_is_copied_from(cuda, gpu, kind, what, side):
    if what == "host array":
        source = np.frombuffer(b"hello world", "u1")
    elif what == "foreign":
        source = Foreign(cuda, b"hello world")
    else:
        source = vkgdr.Memory(gpu, 11, kind=what)
        source.copy_from_host(b"hello world")
    address = getattr(source, side) if side else source.ctypes.data
    assert Buffer(ptr=address + 6, size=5, owner=gpu, kind=kind).tobytes() == b"world"
    assert getattr(source, "pending_views", 0) == 0


def test_pinned_memory_of_cuda_is_copied_from(pycuda_context):
    import pycuda.driver

    source = pycuda.driver.pagelocked_zeros(5, "u1")
    source[:] = 3
    assert Buffer(ptr=source.ctypes.data, size=5).tobytes() == b"\3" * 5


def test_an_address_is_copied_from_without_a_current_context(cuda, primary):
    cuda.push(cuda.retain_primary())
    foreign = Foreign(cuda, b"abc")
    cuda.pop()
    source = np.frombuffer(b"xyz", "u1")
    try:
        assert Buffer(primary, ptr=source.ctypes.data, size=3).tobytes() == b"xyz"
        assert Buffer(primary, ptr=foreign.pointer, size=3).tobytes() == b"abc"
    finally:
        del foreign
        cuda.release_primary()


@pytest.mark.parametrize("side", ["device_ptr", "host_ptr"])
def test_a_copy_from_bound_memory_waits_for_its_stream(cuda, gpu, side):
    with cuda.stream() as stream:
        source = vkgdr.Memory(gpu, 3, stream=stream)
        with cuda.hold(stream) as gate:
            cuda.fill(source.device_ptr, ord("n"), 3, stream)
            made = []
            wait_at(gate, lambda: made.append(Buffer(gpu, ptr=getattr(source, side), size=3).tobytes()), source.context)
        assert made == [b"nnn"]
        source.free()


@pytest.mark.parametrize(
    ("ptr", "size"), [(-1, 0), (-1, 10), (1 << 64, 1), ((1 << 64) - 5, 6), (1 << 200, 1), ((1 << 64) - 1, 2)]
)
def test_an_address_out_of_range_is_refused(gpu, ptr, size, live):
    with pytest.raises(ValueError, match=rf"{size} bytes? at address"):
        Buffer(gpu, ptr=ptr, size=size)
    # Without a size nothing is copied.
    assert len(Buffer(gpu, ptr=1)) == 0
    assert live() == 0


@every_kind
def test_hostbuf_is_copied_and_a_size_limits_how_much(gpu, kind):
    source = bytearray(b"hello")
    buffer = Buffer(gpu, hostbuf=source, kind=kind)
    source[:] = b"-----"
    assert buffer.tobytes() == b"hello"
    assert buffer.reference_obj is None
    assert Buffer(gpu, size=3, hostbuf=b"hello", kind=kind).tobytes() == b"hel"
    pairs = np.array([(1, 2), (3, 4)], [("a", "u1"), ("b", "u1")])
    assert Buffer(gpu, size=3, hostbuf=pairs, kind=kind).tobytes() == b"\1\2\3"


def test_hostbuf_that_does_not_fit_is_refused(gpu, live):
    with pytest.raises(ValueError, match=r"size 6 is larger than hostbuf.* 5 bytes"):
        Buffer(gpu, size=6, hostbuf=b"hello")
    with pytest.raises(ValueError, match="size 1 is larger than hostbuf"):
        Buffer(gpu, size=1, hostbuf=b"")
    with pytest.raises(ValueError, match="0x1000"):
        Buffer(gpu, hostbuf=b"hello", ptr=0x1000, size=5)
    with pytest.raises(TypeError, match="int"):
        Buffer(gpu, hostbuf=5)
    assert live() == 0


@every_kind
def test_to_device_copies_bytes(cuda, gpu, kind, live):
    for source in (b"abc", bytearray(b"abc"), memoryview(b"abc"), np.frombuffer(b"abc", "i1")):
        buffer = Buffer.to_device(source, owner=gpu, kind=kind)
        assert (buffer.kind, cuda.read(buffer.ptr, 3)) == (kind, b"abc")
    del buffer
    for source in (b"", bytearray(), np.zeros(0, "u1"), np.zeros((0, 5))):
        buffer = Buffer.to_device(source, owner=gpu, kind=kind)
        assert len(buffer) == buffer.ptr == live() == 0

    class Mine(Buffer):
        pass

    assert type(Mine.to_device(b"abc", owner=gpu)) is Mine


def test_to_device_refuses_what_is_no_contiguous_buffer(gpu):
    for source in (None, 5, "abc", [1, 2, 3]):
        with pytest.raises(TypeError, match=type(source).__name__ if source is not None else "None"):
            Buffer.to_device(source, owner=gpu)
    for source in (np.zeros(10, "u1")[::2], np.zeros((2, 3)).T):
        with pytest.raises(ValueError, match="contiguous"):
            Buffer.to_device(source, owner=gpu)


@every_kind
def test_copies_are_finished_when_they_return_also_on_a_stream(cuda, gpu, kind):
    buffer = Buffer.to_device(b"abc", owner=gpu, kind=kind)
    with cuda.stream() as stream:
        target = bytearray(3)
        with cuda.hold(stream) as gate:
            cuda.fill(buffer.ptr, ord("n"), 3, stream)
            wait_at(gate, lambda: buffer.copy_to_host(target, stream))
        assert target == b"nnn"
        with cuda.hold(stream) as gate:
            cuda.fill(buffer.ptr, ord("-"), 3, stream)
            wait_at(gate, lambda: buffer.copy_from_host(b"xy", stream))
        assert buffer.tobytes() == b"xy-"
        assert buffer.stream is None
        buffer.free()


@every_kind
def test_bytes_beyond_the_size_are_out_of_reach(gpu, kind):
    buffer = Buffer.to_device(b"abcdef", owner=gpu, kind=kind)
    buffer.resize(3)
    with pytest.raises(ValueError, match=r"Argument `ary` is too large\. Need space for 4 bytes\."):
        buffer.copy_from_host(b"wxyz")
    with pytest.raises(ValueError, match=r"Argument `ary` is too small\. Need space for 2 bytes\."):
        buffer.copy_to_host(bytearray(1), offset=1)
    with pytest.raises(vkgdr.OutOfRangeError):
        buffer.memset(1, nbytes=4)
    with pytest.raises(vkgdr.OutOfRangeError):
        buffer.get_sub_region(0, 4)
    assert len(buffer[0:10]) == 3
    assert buffer.tobytes() == b"abc"


@every_kind
def test_copy_from_device_takes_arrays_of_one_dimension(cuda, gpu, kind):
    buffer = Buffer.to_device(b"-----", owner=gpu, kind=kind)
    buffer.copy_from_device(cuda_ary=Buffer.to_device(b"c", owner=gpu), offset=4)
    assert buffer.tobytes() == b"----c"
    buffer.copy_from_device(Foreign(cuda, b"wxyz", shape=(2,), typestr="<u2", strides=(2,)))
    assert buffer.tobytes() == b"wxyzc"


def test_copy_from_device_refuses_what_rmm_refuses(cuda, gpu):
    buffer = Buffer(gpu, size=6)
    for source in (None, b"abc", np.zeros(3, "u1")):
        with pytest.raises(ValueError, match=f"{type(source).__name__} (has no device memory|is on DLPack device)"):
            buffer.copy_from_device(source)
    for text, interface in (
        (r"Only 1-D contiguous arrays are supported.*\(2, 3\)", {"shape": (2, 3)}),
        (r"strides \(2,\)", {"shape": (3,), "strides": (2,)}),
        (r"too large.* 7 bytes.*6", {"shape": (7,)}),
    ):
        with pytest.raises(ValueError, match=text):
            buffer.copy_from_device(Foreign(cuda, b"abcdefg", **interface))


def test_a_gpuarray_is_copied_from_and_lies_over_a_buffer(pycuda_context):
    from pycuda import gpuarray

    array = gpuarray.to_gpu(np.arange(5, dtype="f4"))
    buffer = Buffer(size=20)
    buffer.copy_from_device(array)
    assert buffer.tobytes() == np.arange(5, dtype="f4").tobytes()
    view = gpuarray.GPUArray(5, "f4", gpudata=buffer.ptr, base=buffer)
    view.set(np.ones(5, "f4"))
    pycuda_context.synchronize()
    assert buffer.tobytes() == np.ones(5, "f4").tobytes()
    assert Buffer(ptr=array.ptr, size=array.nbytes).tobytes() == np.arange(5, dtype="f4").tobytes()


@every_kind
@pytest.mark.parametrize("contents", [b"abc", b""])
@pytest.mark.parametrize("make", [Buffer.copy, copy.copy, copy.deepcopy])
def test_a_copy_has_bytes_of_its_own(cuda, gpu, kind, contents, make):
    with cuda.stream() as stream:
        buffer = Buffer.to_device(contents, stream, owner=gpu, kind=kind)
        buffer.reserve(100)
        copied = make(buffer)
        assert type(copied) is Buffer
        assert (copied.kind, copied.owner, copied.stream) == (kind, gpu, stream)
        assert copied.capacity() == len(contents)
        assert copied.ptr != buffer.ptr or not contents
        buffer.memset(0)
        assert copied.tobytes() == contents
        buffer.free()
        copied.free()


@every_kind
def test_reserve_makes_room_and_keeps_size_and_contents(gpu, kind, live):
    buffer = Buffer.to_device(b"abc", owner=gpu, kind=kind)
    buffer.reserve(5000)
    assert buffer.capacity() == 5000
    assert len(buffer) == 3
    assert buffer.tobytes() == b"abc"
    assert live() == 1
    place = buffer.ptr
    buffer.resize(5000)
    assert buffer.ptr == place
    assert buffer.tobytes()[:3] == b"abc"


@every_kind
def test_resize_within_the_capacity_does_not_move(gpu, kind, live):
    buffer = Buffer.to_device(b"abcdef", owner=gpu, kind=kind)
    place, host = buffer.ptr, buffer.host_ptr
    buffer.resize(3)
    assert (len(buffer), buffer.capacity(), buffer.ptr, buffer.host_ptr) == (3, 6, place, host)
    assert buffer.tobytes() == b"abc"
    assert buffer.__cuda_array_interface__["shape"] == (3,)
    buffer.resize(0)
    assert (len(buffer), buffer.capacity(), buffer.tobytes()) == (0, 6, b"")
    assert buffer.__cuda_array_interface__["data"] == (0, False)
    if kind != "device":
        assert np.asarray(buffer).shape == np.from_dlpack(buffer, device="cpu").shape == (0,)
    buffer.resize(6)
    assert (buffer.ptr, buffer.tobytes()) == (place, b"abcdef")
    assert live() == 1


@every_kind
def test_resize_follows_a_vector(gpu, kind, live):
    sizes = np.random.default_rng(1).integers(0, 40, 60)
    buffer, model, capacity = Buffer(gpu, kind=kind), b"", 0
    for step, size in enumerate(sizes.tolist()):
        if step % 5 == 4:
            buffer.reserve(size)
        else:
            kept = min(len(model), size)
            buffer.resize(size)
            assert buffer.tobytes()[:kept] == model[:kept]
            model = bytes([step]) * size
            buffer.copy_from_host(model)
        capacity = max(capacity, size)
        assert (buffer.tobytes(), len(buffer), buffer.capacity()) == (model, len(model), capacity)
        assert live() == (capacity > 0)
        assert live("bytes") == capacity


@pytest.mark.parametrize("size", [-1, 1 << 64])
def test_resize_and_reserve_refuse_sizes_out_of_range(gpu, size):
    for buffer in (Buffer(gpu, size=10), Buffer(gpu)):
        with pytest.raises(OverflowError, match=str(size)):
            buffer.resize(size)
        with pytest.raises(OverflowError, match=str(size)):
            buffer.reserve(size)
        with pytest.raises(TypeError, match="float"):
            buffer.resize(1.5)


@every_kind
def test_a_resize_for_which_there_is_no_room_changes_nothing(gpu, kind, live):
    buffer = Buffer.to_device(b"abc", owner=gpu, kind=kind)
    place = buffer.ptr
    for change in (buffer.resize, buffer.reserve):
        with pytest.raises(vkgdr.AllocationError, match="VK_ERROR_OUT_OF"):
            change(10**15)
        assert (len(buffer), buffer.capacity(), buffer.ptr) == (3, 3, place)
    assert buffer.tobytes() == b"abc"
    assert live() == 1


@pytest.mark.parametrize("function", ["cuMemcpyDtoDAsync", "cuStreamSynchronize", "vkInvalidateMappedMemoryRanges"])
def test_a_resize_whose_copy_or_invalidation_fails_changes_nothing(context, simulated, function):
    gpu = vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    buffer = Buffer.to_device(b"abc", owner=gpu, kind="mapped" if function.startswith("vk") else "device")
    place, before = buffer.ptr, gpu.stats()["live_allocations"]
    fails = simulator.vulkan.fail(function, 1, -1) if function.startswith("vk") else simulator.fail(function, 1, 999)
    with fails, pytest.raises(vkgdr.VkgdrError, match=function.removesuffix("Async")):
        buffer.resize(1000)
    assert (len(buffer), buffer.capacity(), buffer.ptr) == (3, 3, place)
    assert buffer.tobytes() == b"abc"
    assert gpu.stats()["live_allocations"] == before


VIEWS = {
    "a memoryview": memoryview,
    "an array": np.asarray,
    "a tensor": lambda buffer: np.from_dlpack(buffer, device="cpu"),
    "a region": lambda buffer: buffer[1:3],
    "a mapping": lambda buffer: buffer.map(),
    "a host array": lambda buffer: buffer.get_host_array(),
    "shared memory": lambda buffer: vkgdr.compat.dpctl.MemoryShared(buffer),
}


@pytest.mark.parametrize("what", VIEWS)
def test_a_buffer_with_views_is_not_resized(gpu, what):
    buffer = Buffer.to_device(b"abcdef", owner=gpu)
    view = VIEWS[what](buffer)
    for change in (lambda: buffer.resize(3), lambda: buffer.resize(100), lambda: buffer.reserve(100)):
        with pytest.raises(BufferError, match=r"6 bytes.* [1-9] views"):
            change()
    assert (len(buffer), buffer.capacity()) == (6, 6)
    # Like bytearray, a call that changes nothing is allowed.
    buffer.resize(6)
    buffer.reserve(2)
    del view
    gc.collect()
    buffer.resize(100)
    assert buffer.tobytes()[:6] == b"abcdef"


@every_visible_kind
@pytest.mark.parametrize("flags", [0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT])
@pytest.mark.parametrize("change", ["resize", "reserve", "copy"])
def test_what_either_side_wrote_is_there_after_a_resize_and_in_a_copy(cuda, context, kind, flags, change):
    buffer = Buffer(vkgdr.Vkgdr(0, flags), size=100, kind=kind)
    np.asarray(buffer)[:50] = 1
    buffer.flush()
    cuda.fill(buffer.ptr + 64, 2, 36)
    gc.collect()
    changed = buffer.copy() if change == "copy" else buffer
    if change != "copy":
        getattr(buffer, change)(10_000)
    array = np.asarray(changed)
    assert array[:50].tobytes() == cuda.read(changed.ptr, 50) == b"\1" * 50
    assert array[64:100].tobytes() == cuda.read(changed.ptr + 64, 36) == b"\2" * 36


@every_visible_kind
def test_a_resize_invalidates_what_is_not_coherent(context, simulated, kind):
    gpu = vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    buffer = Buffer(gpu, size=100, kind=kind)
    if gpu.memory_type_of(kind).index is None:
        pytest.skip("memory that is not Vulkan's is invalidated without a call")
    for change in (lambda: buffer.resize(1000), lambda: buffer.reserve(2000), lambda: buffer.copy().free()):
        calls = simulator.vulkan.calls("vkInvalidateMappedMemoryRanges")
        change()
        assert simulator.vulkan.calls("vkInvalidateMappedMemoryRanges") > calls


def test_the_stream_of_a_resize_is_bound_also_where_nothing_moves(cuda, gpu):
    """As by RMM: the caller uses the buffer on it from then on, and frees it after its work."""
    with cuda.stream() as first, cuda.stream() as second:
        buffer = Buffer.to_device(b"abc", first, owner=gpu)
        for change, size, stream in (
            (buffer.resize, 3, second),
            (buffer.reserve, 2, first),
            (buffer.resize, 2, second),
            (buffer.resize, 100, first),
            (buffer.reserve, 200, second),
        ):
            change(size, stream)
            assert buffer.stream == stream
        assert buffer.tobytes()[:2] == b"ab"
        del change
        buffer.free()


def test_a_resize_comes_after_the_bound_streams_work(cuda, gpu):
    with cuda.stream() as stream:
        buffer = Buffer.to_device(b"old", stream, owner=gpu, kind="device")
        with cuda.hold(stream) as gate:
            cuda.fill(buffer.ptr, ord("n"), 3, stream)
            wait_at(gate, lambda: buffer.resize(100), buffer.context)
        assert buffer.tobytes()[:3] == b"nnn"
        buffer.free()
