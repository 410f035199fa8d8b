"""``vkgdr.stream``'s own streams and events, ``defer_cleanup``, and the streams of every library as arguments."""

import asyncio
import contextlib
import copy
import ctypes
import pickle
import threading
from types import SimpleNamespace
from unittest import mock

import libcuda
import numpy as np
import pytest
import simulator
import vkgdr
from neighbours import wait_at
from vkgdr import stream as streams
from vkgdr._vkgdr import Resource
from vkgdr.arrays import defer_cleanup


@pytest.fixture
def stream(context):
    yield streams.stream()
    # Threads of callbacks keep the stream, whose context must not be destroyed before.
    for thread in threading.enumerate():
        if thread.name == "vkgdr stream callback":
            thread.join(20)


@pytest.mark.parametrize("make", ["stream", "event"])
def test_one_is_created_and_destroyed_in_its_context(cuda, context, simulated, make):
    before = simulator.ledger()[f"CUDA {make}"]
    ours = getattr(streams, make)()
    assert simulator.ledger()[f"CUDA {make}"] == before + 1
    if make == "stream":
        assert int(ours) > 2
        assert ours.__cuda_stream__() == (0, int(ours))
        assert "created" in repr(ours)
    else:
        assert hex(ours.handle) in repr(ours)
    other = cuda.create_context()
    current = cuda.current()
    del ours
    assert simulator.ledger()[f"CUDA {make}"] == before
    assert cuda.current() == current
    other.destroy()


def test_default_streams_have_cudas_handles():
    made = streams.default_stream(), streams.legacy_default_stream(), streams.per_thread_default_stream()
    assert [int(stream) for stream in made] == [0, 1, 2]
    for stream in made:
        assert "default" in repr(stream)
        for again in (copy.copy(stream), pickle.loads(pickle.dumps(stream))):
            assert (type(again), int(again)) == (streams.Stream, int(stream))


def test_external_stream(cuda, context):
    with cuda.stream() as handle:
        stream = streams.external_stream(handle)
        assert int(stream) == handle
        stream.synchronize()
        del stream
        # Still alive.
        cuda.synchronize_stream(handle)
    for wrong in (None, "1", 1.0, True):
        with pytest.raises(TypeError, match="must be an int"):
            streams.external_stream(wrong)
    with pytest.raises(vkgdr.InvalidArgumentError):
        streams.external_stream(-1)


@pytest.mark.parametrize("auto", [False, True], ids=["synchronize", "auto_synchronize after an exception"])
def test_synchronize_waits(cuda, stream, auto, simulated):
    def fail():
        with contextlib.suppress(KeyError), stream.auto_synchronize():
            raise KeyError

    with cuda.hold(int(stream)) as gate:
        wait_at(gate, fail if auto else stream.synchronize, cuda.current())


def test_add_callback_is_called_after_the_streams_work(cuda, stream, simulated):
    called = threading.Event()
    seen = []

    def callback(*arguments):
        seen.append(arguments)
        called.set()

    with cuda.hold(int(stream)) as gate:
        stream.add_callback(callback, "argument")
        assert not called.wait(0.05)
        gate.open()
        assert called.wait(20)
    assert seen == [(stream, 0, "argument")]
    seen.clear()


def test_a_callback_that_cannot_be_called_is_refused_at_once(stream):
    for other in (None, 3, "callback"):
        with pytest.raises(TypeError, match="the callback must be callable"):
            stream.add_callback(other)


def test_async_done_is_awaited(cuda, stream, simulated):
    async def wait(gate):
        done = stream.async_done()
        await asyncio.sleep(0.02)
        assert not done.done()
        gate.open()
        assert await asyncio.wait_for(done, 20) is stream
        assert await stream.async_done() is stream
        stream.async_done().cancel()

    with cuda.hold(int(stream)) as gate:
        asyncio.run(wait(gate))


def test_async_done_raises_the_drivers_error(stream, simulated):
    async def wait():
        with simulator.fail("cuEventSynchronize"):
            await asyncio.wait_for(stream.async_done(), 20)

    with pytest.raises(vkgdr.VkgdrError, match="cuEventSynchronize") as caught:
        asyncio.run(wait())
    assert (caught.value.operation, caught.value.cu_result) == ("cuEventSynchronize", 999)


@pytest.mark.parametrize("current", ["none", "another"])
def test_a_stream_is_used_in_its_own_context(cuda, stream, current, simulated):
    context, called, own = cuda.current(), threading.Event(), streams.event()
    other = cuda.create_context() if current == "another" else None
    if other is None:
        cuda.pop()
    now = cuda.current()
    own.record(stream)
    own.wait(stream)
    stream.add_callback(lambda *_: called.set())
    assert called.wait(20)
    stream.synchronize()
    assert cuda.current() == now
    if other is None:
        cuda.push(context)
    else:
        other.destroy()


def test_async_done_needs_a_loop(stream):
    with pytest.raises(RuntimeError, match="event loop"):
        stream.async_done()


def test_events_order_streams(cuda, stream, simulated):
    event = streams.event()
    other = streams.stream()
    assert event.query()
    with cuda.hold(int(stream)) as gate:
        event.record(stream)
        assert not event.query()
        event.wait(other)
        assert not cuda.is_done(int(other))
        wait_at(gate, event.synchronize)
        other.synchronize()
    assert event.query()


def test_elapsed_time_is_in_milliseconds(stream):
    first, second = streams.event(), streams.event()
    first.record(stream)
    second.record(stream)
    stream.synchronize()
    assert first.elapsed_time(second) >= 0.0
    untimed = streams.event(timing=False)
    untimed.record(stream)
    untimed.synchronize()
    with pytest.raises(vkgdr.VkgdrError, match="cuEventElapsedTime"):
        first.elapsed_time(untimed)
    with pytest.raises(TypeError, match="not int"):
        first.elapsed_time(3)


@pytest.mark.parametrize("make", [streams.stream, streams.event])
def test_streams_and_events_cannot_be_copied(context, make):
    owner = make()
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"cannot (be copied or )?pickle"):
            attempt(owner)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.copy(streams.external_stream(int(streams.stream())))


def test_without_a_context_the_primary_one_is_used(run_python):
    run_python("""
        import vkgdr
        from vkgdr import stream as streams
        stream = streams.stream()
        event = streams.event()
        event.record(stream)
        stream.synchronize()
        assert event.query()
        streams.default_stream().synchronize()
        with vkgdr.arrays.pinned(bytearray(100)):
            pass
        array = vkgdr.arrays.to_device([1.0, 2.0], stream)
        assert array.copy_to_host(stream=stream).tolist() == [1.0, 2.0]
        del stream, event, array
    """)


@pytest.mark.parametrize("make", [streams.stream, streams.event])
def test_one_is_created_during_a_capture(cuda, context, make):
    with cuda.stream() as captured, cuda.capture(captured, libcuda.GLOBAL):
        ours = make()
    del ours


CLOSED = {
    "the default handle": "vkgdr._memory._primary.close()",
    "a buffer's owner": "b = vkgdr.compat.rmm.Buffer(size=1); b.owner.close(); del b",
    "nothing": "pass",
}


@pytest.mark.parametrize("make", ["stream", "event"])
@pytest.mark.parametrize("close", CLOSED.values(), ids=CLOSED)
def test_without_a_context_one_keeps_the_primary_context_alive(run_python_to_its_end, simulated, close, make):
    code = f"""
        import vkgdr, vkgdr.compat.rmm
        from vkgdr import stream as streams
        ours = streams.{make}()
        {close}
        ours.synchronize()
        if {close != "pass"}:
            del ours
        else:
            # Goes after the module that has the default handle.
            import builtins; builtins.ours = ours
    """
    assert not any(run_python_to_its_end(code).live.values())


# ---- `vkgdr.arrays.defer_cleanup`: memory freed after a stream's work does not use the stream at the end of the block


def test_bound_memory_waits_for_its_streams_work(cuda, current_primary, caplog):
    with defer_cleanup():
        with cuda.stream() as stream:
            memory = vkgdr.Memory(current_primary, 64, stream=stream)
            with cuda.hold(stream):
                memory.free()
                current_primary.collect()
                assert current_primary.stats()["deferred_frees"] == 1
        current_primary.collect()
        assert current_primary.stats()["deferred_frees"] == 0
    assert caplog.records == []


@pytest.mark.parametrize("pool", [False, True])
def test_memory_freed_on_a_stream_does_not_use_it_later(cuda, current_primary, caplog, pool):
    source = Resource(pool=pool)
    with defer_cleanup():
        with cuda.stream() as stream:
            address = source.allocate(100, 0, stream)
            source.free(address, stream)
        current_primary.collect()
    source.close()
    assert caplog.records == []


# ---- streams as arguments, and invalid ones: closed, of another context, of another protocol version -----------------


SIZE = 4096


@pytest.fixture
def memory(gpu):
    return vkgdr.Memory(gpu, SIZE)


def as_attribute(name, value):
    """Return an object with one attribute."""
    return type("Stream", (), {name: value})()


# Each library's kind of stream object, made from the handle.
KINDS = {
    "a number": lambda number: number,
    "a number of NumPy": np.uint64,
    "cuda.core": lambda number: as_attribute("__cuda_stream__", lambda _self: (0, number)),
    "the protocol as an attribute": lambda number: as_attribute("__cuda_stream__", (0, number)),
    "pycuda": lambda number: as_attribute("handle", number),
    "numba": lambda number: as_attribute("handle", ctypes.c_void_p(number)),
    "PyTorch": lambda number: as_attribute("cuda_stream", number),
    "PyTorch for any device": lambda number: SimpleNamespace(native_handle=number, device=SimpleNamespace(type="cuda")),
    "CuPy": lambda number: as_attribute("ptr", number),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_stream_of_every_library_is_taken(memory, cuda, kind):
    with cuda.stream() as number:
        stream = KINDS[kind](number)
        memory.bind_to_stream(stream)
        assert memory.stream == number
        memory.record_stream(stream)
        with cuda.hold(number) as gate:
            cuda.fill(memory.device_ptr, 5, SIZE, number)
            gate.open()
            assert bytes(memory.copy_to_host(stream=stream)) == b"\5" * SIZE
        memory.copy_from_host(b"x", stream=stream)
        memory.map(stream=stream).release(stream)
        memory.unbind_stream()


def test_a_null_pointer_is_the_default_stream_of_numba(memory):
    memory.bind_to_stream(as_attribute("handle", ctypes.c_void_p(0)))
    assert memory.stream == 0


USES_STREAM = {
    "bind": lambda m, s: m.bind_to_stream(s),
    "record": lambda m, s: m.record_stream(s),
    "map": lambda m, s: m.map(stream=s),
    "copy_to_host": lambda m, s: m.copy_to_host(stream=s),
    "copy_from_host": lambda m, s: m.copy_from_host(b"x", stream=s),
    "free_async": lambda m, s: m.free_async(s),
    "release": lambda m, s: m.map().release(s),
}


@pytest.mark.parametrize("use", USES_STREAM)
@pytest.mark.parametrize(
    "stream",
    ["x", 1.5, object(), b"", [], True, np.True_, SimpleNamespace(native_handle=1, device=SimpleNamespace(type="xpu"))],
    ids=["str", "float", "object", "bytes", "list", "bool", "np.bool", "of another kind of device"],
)
def test_what_is_no_stream_is_a_type_error(memory, use, stream):
    with pytest.raises(TypeError, match="stream"):
        USES_STREAM[use](memory, stream)
    assert not memory.freed


@pytest.mark.parametrize("use", USES_STREAM)
def test_a_closed_or_unknown_stream_is_refused(memory, use):
    closed, newer = (as_attribute("__cuda_stream__", protocol) for protocol in ((0, None), (1, 5)))
    for stream, text in ((closed, "closed"), (newer, "version 1"), (-1, "-1"), (2**64, str(2**64))):
        with pytest.raises(vkgdr.InvalidArgumentError, match=text):
            USES_STREAM[use](memory, stream)
    # What the protocol raises is passed on.
    broken = as_attribute("__cuda_stream__", mock.Mock(side_effect=KeyError("mine")))
    with pytest.raises(KeyError, match="mine"):
        USES_STREAM[use](memory, broken)
    assert not memory.freed


@pytest.mark.parametrize("use", [name for name in USES_STREAM if name != "release"])
@pytest.mark.parametrize("kind", ["mapped", "device"])
def test_a_stream_that_frees_the_memory_is_no_danger(gpu, use, kind):
    memory = vkgdr.Memory(gpu, SIZE, kind=kind)

    class Frees:
        def __cuda_stream__(self):
            memory.free(force=True)
            return 0, 1

    with pytest.raises((vkgdr.FreedError, vkgdr.NoHostViewError)):
        USES_STREAM[use](memory, Frees())
    memory.free()


def test_a_free_for_a_stream_without_one_is_refused(memory):
    with pytest.raises(vkgdr.InvalidArgumentError, match="stream"):
        memory.free_async()
    assert not memory.freed


def test_a_signal_while_a_context_is_made_current_leaves_it_as_it_was(cuda, context):
    ours, call = streams.stream(), streams.call

    def interrupted(function, *arguments, **options):
        call(function, *arguments, **options)
        if function == "cuCtxSetCurrent":
            raise KeyboardInterrupt

    popped = cuda.pop()
    try:
        with mock.patch.object(streams, "call", interrupted), pytest.raises(KeyboardInterrupt):
            ours.synchronize()
        assert cuda.current() == 0
    finally:
        cuda.push(popped)


def test_other_objects_with_a_handle_are_no_streams(gpu):
    memory, other = vkgdr.Memory(gpu, 64), vkgdr.Memory(gpu, 64)
    with memory.map_ro(blocking=False) as _, pytest.raises(TypeError, match="not a CUDA stream"):
        memory.record_stream(other)
    for wrong in (memory, other, other[:], streams.event(), vkgdr.arrays.device_array(4, owner=gpu)):
        with pytest.raises(TypeError, match="not a CUDA stream"):
            memory.copy_to_host(stream=wrong)
