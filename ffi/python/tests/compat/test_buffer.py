"""``vkgdr.compat.rmm.Buffer``: RMM's ``DeviceBuffer``, row by row."""

import gc
import pickle
from functools import partial

import numpy as np
import pytest
import vkgdr
from everything import refused
from neighbours import Stream, every_kind, in_threads
from vkgdr.compat.rmm import Buffer

# ---- DeviceBuffer(*, ptr=0, size=0, stream=DEFAULT_STREAM, mr=None) -------------------------------------------------


@every_kind
def test_a_buffer_has_size_and_kind(gpu, kind):
    buffer = Buffer(size=4097, owner=gpu, kind=kind)
    assert isinstance(buffer, vkgdr.MemoryObject)
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
@pytest.mark.parametrize("contents", [b"abc", b""])
def test_pickling_copies_and_keeps_the_kind(gpu, kind, contents):
    buffer = Buffer.to_device(contents, owner=gpu, kind=kind)
    again = pickle.loads(pickle.dumps(buffer))
    assert (type(again), again.kind, again.tobytes()) == (Buffer, kind, contents)
    assert again.ptr != buffer.ptr or not contents
    again.resize(10)


def test_concurrent_resizes_keep_the_buffer_whole(primary):
    gc.collect()
    before = primary.stats()["live_bytes"]
    buffer = Buffer(primary, size=10)
    buffer.memset(5)

    def work(size):
        for _ in range(2):
            buffer.resize(size)

    in_threads(*(partial(work, step * 7 % 90 + 10) for step in range(40)))
    assert 10 <= len(buffer) <= buffer.capacity()
    assert primary.stats()["live_bytes"] - before == buffer.capacity()
    assert buffer.tobytes()[:10] == b"\5" * 10
