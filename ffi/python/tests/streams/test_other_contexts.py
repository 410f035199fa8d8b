"""Work on memory by streams that it is not bound to, also of other contexts: the release waits for it."""

from functools import partial

import numpy as np
import pytest
import simulator
import vkgdr
from capsules import Taken
from neighbours import BorrowedBytes, wait_at
from vkgdr.arrays import as_cuda_array

SIZE = 4096
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
