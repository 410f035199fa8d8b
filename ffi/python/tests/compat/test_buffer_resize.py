"""``vkgdr.compat.rmm.Buffer``: the size and capacity of RMM's ``DeviceBuffer``."""

import gc

import numpy as np
import pytest
import simulator
import vkgdr
from neighbours import every_kind, every_visible_kind, wait_at
from vkgdr.compat.rmm import Buffer

# ---- capacity(), reserve(n, stream), resize(n, stream) --------------------------------------------------------------


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
def test_what_either_side_wrote_before_a_resize_is_there_after_it(cuda, context, kind, flags):
    buffer = Buffer(vkgdr.Vkgdr(0, flags), size=100, kind=kind)
    np.asarray(buffer)[:50] = 1
    buffer.flush()
    cuda.fill(buffer.ptr + 64, 2, 36)
    gc.collect()
    buffer.resize(10_000)
    array = np.asarray(buffer)
    assert (array[:50] == 1).all()
    assert (array[64:100] == 2).all()
    assert cuda.read(buffer.ptr, 50) == b"\1" * 50


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


def test_the_stream_of_a_resize_is_bound(cuda, gpu):
    with cuda.stream() as first, cuda.stream() as second:
        buffer = Buffer.to_device(b"abc", first, owner=gpu)
        buffer.resize(2, second)
        assert buffer.stream == second
        buffer.resize(100, first)
        assert buffer.stream == first
        buffer.reserve(200, second)
        assert buffer.stream == second
        assert buffer.tobytes()[:2] == b"ab"
        buffer.free()


def test_the_stream_is_bound_where_nothing_moves(cuda, gpu):
    """As by RMM: the caller uses the buffer on it from then on, and frees it after its work."""
    with cuda.stream() as first, cuda.stream() as second:
        for change in (lambda buffer: buffer.resize(3, second), lambda buffer: buffer.reserve(2, second)):
            buffer = Buffer.to_device(b"abc", first, owner=gpu)
            change(buffer)
            assert buffer.stream == second
            buffer.free()


def test_a_resize_comes_after_the_bound_streams_work(cuda, gpu):
    with cuda.stream() as stream:
        buffer = Buffer.to_device(b"old", stream, owner=gpu, kind="device")
        with cuda.hold(stream) as gate:
            cuda.fill(buffer.ptr, ord("n"), 3, stream)
            wait_at(gate, lambda: buffer.resize(100), buffer.context)
        assert buffer.tobytes()[:3] == b"nnn"
        buffer.free()
