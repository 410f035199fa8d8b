"""Copies come after the work of every stream that they know of, and a release after that of any stream or context."""

import contextlib
from functools import partial

import numpy as np
import pytest
import simulator
import vkgdr
from capsules import Taken
from neighbours import BorrowedBytes, ByDlpack, device_bytes, every_kind, wait_at
from vkgdr.arrays import as_cuda_array
from vkgdr.compat import pyopencl as ops

SIZE = 4096
OLD, NEW = b"\1" * SIZE, b"\2" * SIZE

every_copy = pytest.mark.parametrize("copy", [vkgdr.Memory.copy_from_device, ops.copy], ids=["memory", "ops"])


@pytest.fixture
def bound(cuda, context):
    """Return a function that allocates memory bound to a stream of its own; the streams end after the test."""
    with contextlib.ExitStack() as streams:

        def bound(gpu, kind="device"):
            memory = vkgdr.Memory(gpu, SIZE, kind=kind)
            memory.copy_from_host(bytes(SIZE))
            memory.bind_to_stream(streams.enter_context(cuda.stream()))
            made.append(memory)
            return memory

        made = []
        yield bound
        for memory in made:
            memory.free()
        made.clear()


def read_by_map(memory, stream, *, blocking=True):
    with memory.map("r", stream=stream, blocking=blocking) as array:
        return bytes(array)


def read_by_ops(memory, stream):
    target = bytearray(SIZE)
    ops.copy(target, memory, stream=stream)
    return bytes(target)


READS = {
    "copy_to_host": lambda memory, stream: bytes(memory.copy_to_host(stream=stream)),
    "map": read_by_map,
    "map later": partial(read_by_map, blocking=False),
    "ops.copy to the host": read_by_ops,
}
WRITES = {
    "copy_from_host": lambda memory, stream: memory.copy_from_host(NEW, stream=stream),
    "ops.copy": lambda memory, stream: ops.copy(memory, NEW, stream=stream),
    "ops.fill": lambda memory, stream: ops.fill(memory, b"\2", stream=stream, is_blocking=True),
    "ops.fill by a pattern": lambda memory, stream: ops.fill(memory, b"\2" * 64, stream=stream, is_blocking=True),
}


@every_kind
@pytest.mark.parametrize("name", READS | WRITES)
def test_a_use_on_a_stream_comes_after_the_bound_streams_writes(cuda, gpu, bound, kind, name):
    if kind == "device" and "map" in name:
        pytest.skip("memory without a host view is not mapped")
    memory, read = bound(gpu, kind), []
    with cuda.stream() as other, cuda.hold(memory.stream) as gate:
        cuda.fill(memory.device_ptr, 1, SIZE, memory.stream)
        wait_at(gate, lambda: read.append((READS | WRITES)[name](memory, other)))
    if name in READS:
        assert read == [OLD]
    else:
        assert device_bytes(cuda, memory) == NEW


@pytest.mark.parametrize("held", ["source", "destination", "stream"])
@every_copy
def test_a_copy_comes_after_the_streams_of_both_sides_and_its_own(cuda, gpu, bound, held, copy):
    source, to = bound(gpu), bound(gpu)
    source.copy_from_host(OLD)
    with cuda.stream() as stream:
        late = {"source": source.stream, "destination": to.stream, "stream": stream}[held]
        with cuda.hold(late) as gate:
            changed = to if held == "destination" else source
            cuda.fill(changed.device_ptr, 2, SIZE, late)
            wait_at(gate, lambda: copy(to, source, stream=stream))
    assert to.tobytes() == (OLD if held == "destination" else NEW)


def test_a_copy_into_unbound_memory_comes_after_the_default_stream(cuda, gpu, bound):
    source, to = bound(gpu), vkgdr.Memory(gpu, SIZE, kind="device")
    source.copy_from_host(OLD)
    with cuda.hold(0) as gate:
        cuda.fill(to.device_ptr, 2, SIZE, 0)
        wait_at(gate, lambda: to.copy_from_device(source))
    assert device_bytes(cuda, to) == OLD


@pytest.mark.parametrize("pattern", [b"\1", b"\1\2\3" * 43])
def test_the_stream_of_an_interface_comes_after_all_of_a_fill(cuda, gpu, context, pattern):
    size = len(pattern) * (1 << 20 >> len(pattern).bit_length())
    memory, seen = (vkgdr.Memory(gpu, size, kind="device") for _ in range(2))
    with cuda.stream() as own, cuda.stream() as other:
        for _ in range(10):
            cuda.fill(memory.device_ptr, 0, size)
            with cuda.hold(other) as gate:
                ops.fill(BorrowedBytes(memory.device_ptr, size, own), pattern, stream=other)
                cuda.copy(seen.device_ptr, memory.device_ptr, size, own)
                gate.open()
                cuda.synchronize_stream(own)
            assert device_bytes(cuda, seen) == pattern * (size // len(pattern))


@every_kind
def test_the_bound_streams_of_both_sides_wait_for_a_copy_that_does_not_block(cuda, gpu, bound, kind):
    source, to = bound(gpu, kind), bound(gpu, kind)
    source.copy_from_host(OLD)
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        event = ops.copy(to, source, stream=stream, is_blocking=False)
        # Later work on the sides' own streams: the source is overwritten, the destination is read.
        cuda.fill(source.device_ptr, 9, SIZE, source.stream)
        wait_at(gate, lambda: cuda.synchronize_stream(source.stream), cuda.current())
        assert to.tobytes() == OLD
        event.synchronize()
    assert device_bytes(cuda, source) == b"\x09" * SIZE


@every_kind
def test_a_read_comes_after_a_fill_that_does_not_block(cuda, gpu, bound, kind):
    memory = bound(gpu, kind)
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        ops.fill(memory, b"\1", stream=stream)
        read = []
        wait_at(gate, lambda: read.append(memory.tobytes()))
    assert read == [OLD]


@every_copy
def test_an_array_over_bound_memory_is_read_after_the_bound_stream(cuda, gpu, bound, copy):
    # The array's library knows nothing of the stream that the memory is bound to.
    source, to = bound(gpu), vkgdr.Memory(gpu, SIZE)
    array = BorrowedBytes(source.device_ptr, SIZE, None)
    with cuda.stream() as stream, cuda.hold(source.stream) as gate:
        cuda.fill(source.device_ptr, 1, SIZE, source.stream)
        wait_at(gate, lambda: copy(to, array, stream=stream))
    assert to.tobytes() == OLD


@pytest.mark.parametrize("over", ["ours", "foreign"])
def test_the_stream_of_an_array_that_is_written_waits_for_the_copy(cuda, gpu, bound, over):
    source = bound(gpu)
    source.copy_from_host(OLD)
    ours = vkgdr.Memory(gpu, SIZE)
    pointer = ours.device_ptr if over == "ours" else cuda.allocate(SIZE)
    with cuda.stream() as stream, cuda.stream() as its_own, cuda.hold(stream) as gate:
        array = BorrowedBytes(pointer, SIZE, its_own)
        event = ops.copy(array, source, stream=stream, is_blocking=False)
        wait_at(gate, lambda: cuda.synchronize_stream(its_own), cuda.current())
        assert cuda.read(pointer, SIZE) == OLD
        event.synchronize()
    if over == "foreign":
        cuda.free(pointer)


@every_copy
@pytest.mark.parametrize("key", [1, "a stream"])
def test_an_array_of_another_context_is_read_after_its_stream(cuda, gpu, copy, key):
    to = vkgdr.Memory(gpu, SIZE)
    other = cuda.create_context()
    with cuda.stream() as own:
        stream = own if key == "a stream" else key
        pointer = cuda.allocate(SIZE)
        array = BorrowedBytes(pointer, SIZE, stream)
        with cuda.hold(stream) as gate:
            cuda.fill(pointer, 1, SIZE, stream)
            wait_at(gate, lambda: copy(to, array), other.handle)
        cuda.free(pointer)
    other.destroy()
    assert to.tobytes() == OLD


@pytest.mark.parametrize("handle", [0, 1])
@every_copy
def test_default_streams_of_two_contexts_are_two_streams(cuda, gpu, copy, handle):
    to = vkgdr.Memory(gpu, SIZE, stream=handle)
    other = cuda.create_context()
    source = vkgdr.Memory(vkgdr.Vkgdr(0), SIZE, stream=handle)
    with cuda.hold(handle) as gate:
        cuda.fill(source.device_ptr, 1, SIZE, handle)
        wait_at(gate, lambda: copy(to, source))
    source.free()
    # Memory that is bound to a stream may still be there.
    cuda.synchronize()
    gpu.collect()
    other.destroy()
    assert to.tobytes() == OLD
    to.free()


class Consumed(ByDlpack):
    """Exposes only DLPack of an object, and remembers the consumers' streams."""

    def __init__(self, obj):
        super().__init__(obj)
        self.streams = []

    def __dlpack__(self, **arguments):
        self.streams.append(arguments["stream"])
        return super().__dlpack__(**arguments)


def test_the_exporter_of_a_tensor_gets_the_stream_that_copies(cuda, gpu, bound):
    source, to = Consumed(bound(gpu)), bound(gpu)
    with cuda.stream() as stream:
        for copy in (vkgdr.Memory.copy_from_device, ops.copy):
            source.streams.clear()
            copy(to, source, stream=stream)
            assert source.streams == [stream]
            # The default streams' handles may mean those of another context to the exporter: the copy waits for them.
            copy(to, source, stream=0)
            assert source.streams == [stream, 1]
    source.streams.clear()
    to.copy_from_device(source)
    assert source.streams == [to.stream]
    vkgdr.Memory(gpu, SIZE).copy_from_device(source)
    assert source.streams == [to.stream, 1]


@pytest.mark.parametrize("given", [True, False], ids=["on a stream", "on the default stream"])
def test_a_tensor_is_read_after_the_exporters_work(cuda, gpu, bound, given):
    source, to = bound(gpu), vkgdr.Memory(gpu, SIZE)
    with cuda.stream() as stream, cuda.hold(source.stream) as gate:
        cuda.fill(source.device_ptr, 1, SIZE, source.stream)
        wait_at(gate, lambda: to.copy_from_device(ByDlpack(source), stream=stream if given else None))
    assert to.tobytes() == OLD


@pytest.mark.parametrize("consumer", [None, 1, 2, "a stream"])
def test_a_consumers_stream_waits_for_the_bound_stream(cuda, gpu, bound, consumer):
    memory = bound(gpu)
    copied = cuda.allocate(SIZE)
    with cuda.stream() as stream, cuda.hold(memory.stream) as gate:
        handle = stream if consumer == "a stream" else consumer
        cuda.fill(memory.device_ptr, 1, SIZE, memory.stream)
        capsule = memory.__dlpack__(stream=handle)
        queue = 1 if handle is None else handle
        cuda.copy(copied, memory.device_ptr, SIZE, queue)
        if queue == 2:
            # The per-thread default stream is this thread's: another one cannot wait for it.
            assert not cuda.is_done(queue)
            gate.open()
            cuda.synchronize_stream(queue)
        else:
            wait_at(gate, lambda: cuda.synchronize_stream(queue), cuda.current())
        assert cuda.read(copied, SIZE) == OLD
        del capsule
    cuda.free(copied)


def test_a_host_tensor_waits_for_the_bound_stream(cuda, gpu, bound):
    memory = bound(gpu, "mapped")
    for byte, export in enumerate(
        (
            lambda: np.from_dlpack(memory, device="cpu"),
            lambda: np.from_dlpack(memory, device="cpu", copy=True),
        )
    ):
        with cuda.hold(memory.stream) as gate:
            cuda.fill(memory.device_ptr, byte + 1, SIZE, memory.stream)
            arrays = []
            wait_at(gate, lambda export=export, arrays=arrays: arrays.append(bytes(export())))
        assert arrays == [bytes([byte + 1]) * SIZE]


# ---- streams that memory is not bound to, also of other contexts: the release waits for their work -------------------


OUT_OF_MEMORY = 2


@pytest.mark.parametrize("bound", [None, 0, "a stream"])
def test_a_tensor_of_a_consumer_there_is_waited_for(cuda, context, gpu, bound):
    with cuda.stream() as own:
        memory = vkgdr.Memory(gpu, SIZE, kind="device", stream=own if bound == "a stream" else bound)
        other = cuda.create_context()
        with cuda.stream() as consumer:
            pointer = cuda.allocate(SIZE)
            with cuda.hold(consumer) as gate:
                tensor = Taken(memory.__dlpack__(stream=consumer))
                cuda.copy(pointer, tensor.tensor.data, SIZE, consumer)
                tensor.end()
                wait_at(gate, memory.free, context.handle)
            cuda.free(pointer)
        other.destroy()


@pytest.mark.parametrize("bound", [None, 0])
@pytest.mark.parametrize("use", ["a stream", 0])
def test_a_copy_to_there_whose_wait_fails_is_waited_for(cuda, context, gpu, bound, use, simulated):
    source = vkgdr.Memory(gpu, SIZE, kind="device", stream=bound)
    other = cuda.create_context()
    to = vkgdr.Memory(vkgdr.Vkgdr(0), SIZE, kind="device")
    with cuda.stream() as own:
        stream = own if use == "a stream" else use
        with cuda.hold(stream) as gate:
            with simulator.fail("cuStreamSynchronize", 1, OUT_OF_MEMORY), pytest.raises(vkgdr.VkgdrError):
                to.copy_from_device(source, stream=stream)
            wait_at(gate, source.free, context.handle)
    to.free()
    other.destroy()


@pytest.mark.parametrize("consumer", [None, 1, 2])
@pytest.mark.parametrize("ready_on", ["the bound stream", "the array's stream"])
def test_a_consumers_default_stream_is_also_that_of_its_current_context(cuda, gpu, ready_on, consumer):
    memory = vkgdr.Memory(gpu, SIZE, kind="device")
    copied, queue = bytes(SIZE), consumer or 1
    with cuda.stream() as ready, cuda.hold(ready) as gate:
        if ready_on == "the bound stream":
            memory.bind_to_stream(ready)
            exporter = memory
        else:
            exporter = vkgdr.arrays.as_cuda_array(BorrowedBytes(memory.device_ptr, SIZE, ready), sync=False)
        cuda.fill(memory.device_ptr, 1, SIZE, ready)
        other = cuda.create_context()
        pointer = cuda.allocate(SIZE)
        tensor = Taken(exporter.__dlpack__(stream=consumer))
        cuda.copy(pointer, tensor.tensor.data, SIZE, queue)
        waits = not cuda.is_done(queue)
        gate.open()
        cuda.synchronize_stream(queue)
        copied = cuda.read(pointer, SIZE)
        cuda.free(pointer)
        cuda.pop()
        tensor.end()
        del exporter
        memory.unbind_stream()
    assert waits
    assert copied == b"\1" * SIZE
    memory.free()
    other.destroy()


@pytest.mark.parametrize("stream", [None, -1, 1])
def test_a_copy_waits_for_an_arrays_own_stream(cuda, gpu, simulated, stream):
    with cuda.stream() as own, cuda.hold(own) as gate:
        array = vkgdr.arrays.device_array(SIZE, "u1", owner=gpu).bind(own)
        wait_at(gate, lambda: array.__dlpack__(stream=stream, copy=True), cuda.current())


@pytest.mark.parametrize("copy", [None, True])
def test_a_consumer_waits_for_an_arrays_own_stream_beside_that_of_its_memory(cuda, gpu, simulated, copy):
    with cuda.stream() as bound, cuda.stream() as own, cuda.stream() as consumer, cuda.hold(own) as gate:
        memory = vkgdr.Memory(gpu, SIZE, kind="device", stream=bound)
        array = vkgdr.arrays.as_cuda_array(memory).bind(own)
        taken = []
        if copy:
            wait_at(gate, lambda: taken.append(Taken(array.__dlpack__(stream=consumer, copy=copy))), cuda.current())
        else:
            taken.append(Taken(array.__dlpack__(stream=consumer)))
            assert not cuda.is_done(consumer)
            gate.open()
        cuda.synchronize_stream(consumer)
        taken.pop().end()
        memory.unbind_stream()


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("consumer", [None, 1])
def test_the_work_of_a_consumers_default_stream_is_waited_for(cuda, primary, consumer, copy):
    memory = vkgdr.Memory(primary, SIZE, kind="device")
    other = cuda.create_context()
    pointer = cuda.allocate(SIZE)
    with cuda.hold(1) as gate:
        tensor = Taken(memory.__dlpack__(stream=consumer, copy=copy))
        cuda.copy(pointer, tensor.tensor.data, SIZE, 1)
        if copy:
            wait_at(gate, tensor.end)
        else:
            tensor.end()
            wait_at(gate, memory.free)
    cuda.free(pointer)
    memory.free()
    other.destroy()


USES = {
    "copy_to_host": lambda array: array.copy_to_host(),
    "copy_to_host, that stream": lambda array: array.bind(0).copy_to_host(stream=array.stream),
    "copy_to_device": lambda array: array.copy_to_device(bytearray(SIZE)),
    "copy_to_device of a device array": lambda array: array[:64].copy_to_device(array[64:128].bind(0)),
    "an element": lambda array: array[0],
    "an assignment": lambda array: array.setitem(slice(3, 9, 2), 5),
    "DLPack on the CPU": lambda array: np.from_dlpack(array, device="cpu"),
    "pickle": lambda array: array.__reduce__(),
}


@pytest.mark.parametrize("kind", ["mapped", "device"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_an_array_is_used_after_its_stream_of_another_context(cuda, context, kind, use, simulated):
    other = cuda.create_context()
    memory = vkgdr.Memory(vkgdr.Vkgdr(0), SIZE, kind=kind)
    cuda.pop()
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        array = as_cuda_array(BorrowedBytes(memory.device_ptr, SIZE, stream), sync=False)
        wait_at(gate, partial(use, array), cuda.current())
        del array
    memory.free()
    other.destroy()


@pytest.mark.parametrize("current", ["none", "another"])
def test_an_exported_copy_is_in_the_context_of_the_memory(cuda, context, gpu, current, simulated):
    memory = vkgdr.Memory(gpu, SIZE, kind="device")
    memory.memset(7)
    before = cuda.pop()
    other = cuda.create_context() if current == "another" else None
    now = cuda.current()
    tensor = Taken(memory.__dlpack__(copy=True))
    assert cuda.current() == now
    copied = vkgdr.memory_of(tensor.tensor.data)
    assert copied.context == memory.context == before
    cuda.push(before)
    assert copied.tobytes() == b"\7" * SIZE
    del copied
    tensor.end()
    memory.free()
    cuda.pop()
    if other is not None:
        other.destroy()
    cuda.push(before)
