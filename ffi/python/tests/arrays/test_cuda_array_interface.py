"""The CUDA Array Interface: the streams that it names, and arrays of other libraries that are copied from."""

import pytest
import vkgdr
from neighbours import Foreign


@pytest.fixture
def memory(gpu):
    return vkgdr.Memory(gpu, 4096)


def test_the_interface_of_read_only_memory_says_so(gpu):
    for readonly in (False, True):
        memory = vkgdr.Memory(gpu, 10, readonly=readonly)
        assert memory.__cuda_array_interface__["data"] == (memory.device_ptr, readonly)


def test_the_interface_names_the_bound_stream_and_the_legacy_default_stream_is_1(memory, cuda):
    with cuda.stream() as stream:
        for bound, named in ((stream, stream), (0, 1), (1, 1)):
            memory.bind_to_stream(bound)
            assert memory.__cuda_array_interface__["stream"] == named
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


# ---- this package as the consumer


def test_the_shape_and_the_type_of_another_librarys_array_say_how_many_bytes(memory, cuda):
    contents = bytes(range(64))
    memory.copy_from_device(Foreign(cuda, contents, shape=(2, 4), typestr="<f8", strides=(32, 8)))
    assert memory.tobytes()[:64] == contents


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"stream": 0}, "stream"),
        ({"strides": (2,)}, "order|contiguous"),
        ({"shape": (8, 8), "strides": (1, 8)}, "order|contiguous"),
        ({"shape": (4097,)}, "4097"),
    ],
)
def test_an_array_that_cannot_be_taken_is_refused(memory, cuda, changes, text):
    with pytest.raises(vkgdr.InvalidArgumentError, match=text):
        memory.copy_from_device(Foreign(cuda, bytes(64), **changes))
