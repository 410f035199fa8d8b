"""Pickle with protocol 5: the bytes of memory travel beside the pickle."""

import copy
import pickle

import numpy as np
import pytest
import vkgdr
from neighbours import every_kind, wait_at

SIZE = 1 << 16


def dumped(memory):
    """Return the pickle, and the buffers beside it."""
    buffers = []
    return pickle.dumps(memory, 5, buffer_callback=buffers.append), buffers


def test_the_bytes_of_every_class_travel_beside_the_pickle(anything):
    anything.copy_from_host(bytes(range(256)) * (len(anything) // 256))
    contents = anything.tobytes()
    pickled, buffers = dumped(anything)
    assert len(pickled) < 300
    assert [buffer.raw().nbytes for buffer in buffers] == [len(anything)]
    # What arrives elsewhere may be any object with the buffer protocol.
    for receive in (bytes, bytearray, memoryview, np.array):
        again = pickle.loads(pickled, buffers=[receive(buffer.raw()) for buffer in buffers])
        assert again.tobytes() == contents
        assert again.kind == anything.kind
        assert again != anything
        again.free()


def test_host_memory_is_not_copied(gpu):
    memory = vkgdr.Memory(gpu, SIZE, kind="host")
    _, [buffer] = dumped(memory)
    assert np.asarray(buffer.raw()).__array_interface__["data"][0] == memory.host_ptr
    assert memory.pending_views > 0
    buffer.release()
    del buffer
    assert memory.pending_views == 0


@every_kind
def test_the_buffer_outlives_the_memory(gpu, kind):
    memory = vkgdr.Memory(gpu, SIZE, kind=kind)
    memory.memset(7)
    pickled, buffers = dumped(memory)
    memory.free()
    assert pickle.loads(pickled, buffers=buffers).tobytes() == b"\7" * SIZE


@every_kind
def test_a_pickle_waits_for_the_bound_stream(gpu, cuda, kind):
    with cuda.stream() as stream:
        memory = vkgdr.Memory(gpu, SIZE, kind=kind, stream=stream)
        with cuda.hold(stream) as gate:
            cuda.fill(memory.device_ptr, 7, SIZE, stream)
            made = []
            wait_at(gate, lambda: made.append(dumped(memory)), cuda.current())
        pickled, buffers = made.pop()
        assert buffers[0].raw().tobytes() == b"\7" * SIZE
        assert pickle.loads(pickled, buffers=buffers).tobytes() == b"\7" * SIZE
        memory.unbind_stream()


def test_a_subclass_keeps_its_own_reduce(gpu):
    class Named(vkgdr.Memory):
        def __reduce__(self):
            return str, ("named",)

    for protocol in (2, 5):
        assert pickle.loads(pickle.dumps(Named(gpu, 8), protocol)) == "named"
    assert copy.copy(Named(gpu, 8)) == "named"


@pytest.mark.parametrize("kind", ["mapped", "host"])
def test_empty_memory_is_copied(gpu, kind):
    make = {"mapped": vkgdr.arrays.mapped_array, "host": vkgdr.arrays.host_array}[kind]
    for array in (make((0, 3), owner=gpu), make(5, owner=gpu)[3:3]):
        empty = vkgdr.device_view(array)
        pickled, buffers = dumped(empty)
        copies = [copy.copy(empty), copy.deepcopy(empty), pickle.loads(pickled, buffers=buffers)]
        copies += [pickle.loads(pickle.dumps(empty, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
        for again in copies:
            assert (len(again), again.kind, again.tobytes()) == (0, kind, b"")
            again.free()
            assert again.freed


def test_infos_of_memory_are_compared_hashed_and_pickled_by_value(gpu):
    for info in (gpu.memory_info("host"), gpu.memory_type_of("host")):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            again = pickle.loads(pickle.dumps(info, protocol))
            assert again == info
            assert hash(again) == hash(info)
            assert repr(again) == repr(info)
        assert copy.copy(info) == info == copy.deepcopy(info)
        assert info != 5
    assert gpu.memory_info("host") != vkgdr.MemoryInfo(1, 2, "a budget")
