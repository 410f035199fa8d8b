"""The CUDA Array Interface: the device view."""

import numpy as np
import pytest
import vkgdr


@pytest.fixture
def memory(gpu):
    return vkgdr.Memory(gpu, 4096)


class Consumer:
    """A consumer like a library's: reads the interface, keeps the object, waits for the stream on the device."""

    def __init__(self, cuda, obj):
        interface = obj.__cuda_array_interface__
        assert interface["version"] == 3
        assert interface["stream"] != 0
        self._cuda, self._obj = cuda, obj
        self.address, self.readonly = interface["data"]
        (self.count,) = interface["shape"]
        assert np.dtype(interface["typestr"]) == np.uint8
        assert interface.get("strides") is None
        assert interface.get("mask") is None
        if interface["stream"] is not None:
            # 1 is the legacy default stream in the CUDA Array Interface and in the driver API.
            cuda.synchronize_stream(interface["stream"])

    def read(self):
        return self._cuda.read(self.address, self.count)

    def fill(self, value):
        assert not self.readonly
        self._cuda.fill(self.address, value, self.count)
        self._cuda.synchronize()


@pytest.mark.parametrize("kind", ["mapped", "host", "device"])
def test_a_consumer_reads_and_writes_memory_of_every_kind(gpu, cuda, kind):
    memory = vkgdr.Memory(gpu, 100, kind=kind)
    memory.copy_from_host(bytes(range(100)))
    consumer = Consumer(cuda, memory)
    assert consumer.read() == bytes(range(100))
    consumer.fill(7)
    assert memory.tobytes() == b"\7" * 100


def test_the_interface_of_read_only_memory_says_so(gpu, cuda):
    assert Consumer(cuda, vkgdr.Memory(gpu, 10, readonly=True)).readonly
    assert not Consumer(cuda, vkgdr.Memory(gpu, 10)).readonly


def test_a_consumer_that_waits_for_the_stream_sees_the_work_on_it(memory, cuda):
    memory.memset(0)
    with cuda.stream() as stream:
        memory.bind_to_stream(stream)
        assert memory.__cuda_array_interface__["stream"] == stream
        with cuda.hold(stream) as gate:
            cuda.fill(memory.device_ptr, 5, 4096, stream)
            gate.open()
            assert Consumer(cuda, memory).read() == b"\5" * 4096
        memory.unbind_stream()
    assert memory.__cuda_array_interface__["stream"] is None


@pytest.mark.parametrize("context_of_own", ["the memory's", "another"])
def test_the_stream_of_an_array_comes_after_that_of_its_memory(memory, cuda, context_of_own, simulated):
    with cuda.stream() as bound, cuda.hold(bound) as gate:
        memory.bind_to_stream(bound)
        array = vkgdr.arrays.as_cuda_array(memory, sync=False)
        other = cuda.create_context() if context_of_own == "another" else None
        with cuda.stream() as own:
            assert array.bind(own).__cuda_array_interface__["stream"] == own
            waits = not cuda.is_done(own)
            gate.open()
        if other is not None:
            other.destroy()
        memory.unbind_stream()
    assert waits


def test_the_legacy_default_stream_is_1_and_never_0(memory, cuda):
    memory.bind_to_stream(0)
    assert memory.__cuda_array_interface__["stream"] == 1
    cuda.fill(memory.device_ptr, 5, 4096)
    assert Consumer(cuda, memory).read() == b"\5" * 4096


# ---- this package as the consumer


class Producer:
    """Device memory of another library."""

    def __init__(self, cuda, size, **changes):
        self._cuda = cuda
        self.pointer = cuda.allocate(size)
        self.interface = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (self.pointer, False),
            "version": 3,
            "stream": None,
            **changes,
        }

    @property
    def __cuda_array_interface__(self):
        return self.interface

    def free(self):
        self._cuda.free(self.pointer)


@pytest.fixture
def producer(cuda, context):
    producers = []

    def produce(size, **changes):
        producers.append(Producer(cuda, size, **changes))
        return producers[-1]

    yield produce
    for made in producers:
        made.free()


def test_the_shape_and_the_type_of_another_librarys_array_say_how_many_bytes(memory, cuda, producer):
    other = producer(64, shape=(2, 4), typestr="<f8", strides=(32, 8))
    cuda.write(other.pointer, bytes(range(64)))
    cuda.synchronize()
    memory.copy_from_device(other)
    assert memory.tobytes()[:64] == bytes(range(64))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"stream": 0}, "stream"),
        ({"strides": (2,)}, "order|contiguous"),
        ({"shape": (8, 8), "strides": (1, 8)}, "order|contiguous"),
        ({"shape": (4097,)}, "4097"),
    ],
)
def test_an_array_that_cannot_be_taken_is_refused(memory, producer, changes, text):
    with pytest.raises(vkgdr.InvalidArgumentError, match=text):
        memory.copy_from_device(producer(64, **changes))
