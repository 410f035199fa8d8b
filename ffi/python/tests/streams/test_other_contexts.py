"""Work on memory by streams that it is not bound to, also of other contexts: the release waits for it."""

import pytest
import simulator
import vkgdr
from capsules import Taken
from neighbours import wait_at

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


def test_an_exported_copy_whose_wait_fails_is_noted(cuda, gpu, simulated):
    with cuda.stream() as bound, cuda.stream() as consumer:
        memory = vkgdr.Memory(gpu, SIZE, kind="device", stream=bound)
        # The first wait is that for the bound stream.
        with simulator.fail("cuStreamSynchronize", 2, OUT_OF_MEMORY), pytest.raises(vkgdr.VkgdrError):
            memory.__dlpack__(stream=consumer, copy=True)
        assert memory._view.drop_policy == "context"
        memory.free()


def test_a_context_there_may_be_destroyed_before_the_memory_goes(cuda, context, gpu):
    with cuda.stream() as own:
        memory = vkgdr.Memory(gpu, SIZE, stream=own)
        for _ in range(3):
            other = cuda.create_context()
            with cuda.stream() as consumer:
                Taken(memory.__dlpack__(stream=consumer)).end()
            other.destroy()
        memory.free()
