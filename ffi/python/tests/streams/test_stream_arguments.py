"""Streams of every library, and invalid ones: closed, of another context, of another protocol version."""

import ctypes
from unittest import mock

import numpy as np
import pytest
import vkgdr

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
    ["x", 1.5, object(), b"", [], True, np.True_],
    ids=["str", "float", "object", "bytes", "list", "bool", "np.bool"],
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
