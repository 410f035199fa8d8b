"""``vkgdr.compat.rmm.Buffer``: RMM's ``DeviceBuffer``, row by row."""

import gc
import pickle
import threading

import numpy as np
import pytest
import vkgdr
from neighbours import Stream, every_kind, every_visible_kind
from vkgdr.compat.rmm import Buffer

# ---- DeviceBuffer(*, ptr=0, size=0, stream=DEFAULT_STREAM, mr=None) -------------------------------------------------


@every_kind
def test_a_buffer_has_size_and_kind(gpu, kind):
    buffer = Buffer(size=4097, owner=gpu, kind=kind)
    assert isinstance(buffer, vkgdr.MemoryObject)
    assert len(buffer) == buffer.capacity() == 4097
    assert buffer.kind == kind
    assert buffer.owner is gpu
    assert buffer.stream is None
    buffer.memset(7)
    assert buffer.tobytes() == b"\7" * 4097


@every_kind
def test_an_empty_buffer_has_no_allocation(gpu, kind, live):
    buffer = Buffer(gpu, kind=kind)
    assert live() == 0
    assert len(buffer) == buffer.size == buffer.nbytes == buffer.capacity() == 0
    assert buffer.ptr == buffer.device_ptr == 0
    assert buffer.host_ptr == (None if kind == "device" else 0)
    assert buffer.kind == kind
    assert buffer.device == gpu.device
    assert buffer.owner is gpu
    assert buffer.pending_views == 0
    assert "0 bytes" in repr(buffer)
    assert not buffer.freed


@every_kind
def test_an_empty_buffer_can_be_used_as_any_other(gpu, kind):
    buffer = Buffer(gpu, kind=kind)
    assert buffer.tobytes() == bytes(buffer) == b""
    assert buffer.copy_to_host().shape == (0,)
    target = bytearray(b"abc")
    assert buffer.copy_to_host(target) is target
    assert target == b"abc"
    buffer.copy_from_host(b"")
    buffer.copy_from_device(Buffer(gpu))
    buffer.memset(1)
    buffer.flush()
    buffer.invalidate()
    buffer.flush(0, 0)
    for use in (lambda: buffer.copy_from_host(b"a"), lambda: buffer.copy_from_device(Buffer(gpu, size=1))):
        with pytest.raises(ValueError, match=r"too large.* 1 byte[.,]"):
            use()
    with pytest.raises(vkgdr.OutOfRangeError):
        buffer.flush(0, 1)
    assert len(buffer[0:0]) == 0


@every_visible_kind
def test_numpy_sees_an_empty_buffer_as_an_empty_array(gpu, kind):
    buffer = Buffer(gpu, kind=kind)
    for array in (np.asarray(buffer), np.frombuffer(buffer, "u1"), np.from_dlpack(buffer, device="cpu"), buffer.buf):
        assert len(array) == 0
    assert np.asarray(buffer).dtype == np.uint8
    assert buffer.get_host_array((0, 5), "f4").shape == (0, 5)
    with buffer.map() as array:
        assert array.shape == (0,)


@every_kind
def test_an_empty_buffer_can_be_freed(gpu, kind, live):
    buffer = Buffer(gpu, kind=kind)
    buffer.free()
    buffer.free()
    assert buffer.freed
    for use in (len, bytes, Buffer.capacity, Buffer.copy, lambda buffer: buffer.resize(1), lambda buffer: buffer.ptr):
        with pytest.raises(vkgdr.FreedError):
            use(buffer)
    assert live() == 0


def test_the_arguments_of_rmm_are_keywords(gpu):
    with pytest.raises(TypeError, match="positional"):
        Buffer(gpu, 0, 10)
    assert len(Buffer(ptr=0, size=10, stream=None, owner=gpu, kind="mapped")) == 10


@pytest.mark.parametrize("arguments", [{"size": 1.5}, {"size": "1"}, {"ptr": 1.5, "size": 1}, {"ptr": None, "size": 1}])
def test_sizes_and_addresses_are_integers(gpu, arguments):
    with pytest.raises(TypeError, match="integer"):
        Buffer(gpu, **arguments)


@pytest.mark.parametrize("size", [0, 10])
def test_an_unknown_kind_is_refused(gpu, size):
    with pytest.raises(ValueError, match="gpu"):
        Buffer(gpu, size=size, kind="gpu")


def test_an_owner_is_a_handle():
    for size in (0, 10):
        with pytest.raises(TypeError, match="Vkgdr, not int"):
            Buffer(5, size=size)


def test_the_default_owner_is_the_gpu_of_the_current_context(context):
    assert Buffer(size=10).context == context.handle
    assert Buffer().owner.device == 0


def test_without_a_context_the_default_owner_is_the_primary_one(run_python):
    code = """
        import vkgdr
        first, second = vkgdr.compat.rmm.Buffer(size=3), vkgdr.compat.rmm.Buffer.to_device(b"abc")
        first.copy_from_device(second)
        assert first.owner is second.owner
        print(first.tobytes())
    """
    assert run_python(code).stdout == "b'abc'\n"


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


def test_an_unbound_empty_buffer_stays_unbound(cuda, gpu):
    with cuda.stream() as stream:
        buffer = Buffer(gpu, stream=stream)
        buffer.unbind_stream()
        assert buffer.stream is None
        buffer.resize(10)
        assert buffer.stream is None
        with pytest.raises(TypeError, match="stream"):
            Buffer(gpu, stream="stream")


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


# ---- prefetch, __reduce__, __cuda_array_interface__ -----------------------------------------------------------------


@every_kind
def test_prefetch_does_nothing(cuda, gpu, kind):
    buffer = Buffer.to_device(b"abc", owner=gpu, kind=kind)
    with cuda.stream() as stream:
        assert buffer.prefetch() is None
        assert buffer.prefetch(0, stream) is None
        assert buffer.prefetch(device=0, stream=stream) is None
    assert buffer.tobytes() == b"abc"


@every_kind
@pytest.mark.parametrize("contents", [b"abc", b""])
def test_pickling_copies_and_keeps_the_kind(gpu, kind, contents):
    buffer = Buffer.to_device(contents, owner=gpu, kind=kind)
    again = pickle.loads(pickle.dumps(buffer))
    assert type(again) is Buffer
    assert again.kind == kind
    assert again.tobytes() == contents
    assert again.ptr != buffer.ptr or not contents
    again.resize(10)


# ---- c_from_unique_ptr, c_release; __dealloc__ ----------------------------------------------------------------------


def test_concurrent_resizes_keep_the_buffer_whole(primary):
    gc.collect()
    before = primary.stats()["live_bytes"]
    buffer = Buffer(primary, size=10)
    buffer.memset(5)

    def work(sizes):
        for size in sizes:
            buffer.resize(size)

    threads = [threading.Thread(target=work, args=([step * 7 % 90 + 10] * 2,)) for step in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 10 <= len(buffer) <= buffer.capacity()
    assert primary.stats()["live_bytes"] - before == buffer.capacity()
    assert buffer.tobytes()[:10] == b"\5" * 10
