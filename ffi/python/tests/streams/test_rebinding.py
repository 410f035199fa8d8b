"""Binding memory to another stream, or to none, while another thread uses the stream that it was bound to."""

import gc
import threading
import time
from functools import partial

import numpy as np
import pytest
import vkgdr
from neighbours import BorrowedBytes, ByDlpack, OwnStream, every_kind, in_threads
from vkgdr import _vkgdr
from vkgdr import stream as streams
from vkgdr.compat import pyopencl as ops

SIZE = 4096


@pytest.fixture
def bound(cuda, gpu):
    """Return a function that allocates memory bound to a stream of its own, and the handles of those that ended."""
    ended = []

    def bound(kind="mapped"):
        return vkgdr.Memory(gpu, SIZE, kind=kind, stream=OwnStream(cuda, ended))

    yield bound, ended
    gpu.collect()


WAITS = {
    "map": lambda memory: memory.map("r").release(),
    "copy_to_host": lambda memory: memory.copy_to_host(bytearray(SIZE)),
    "copy_from_host": lambda memory: memory.copy_from_host(bytes(SIZE)),
    "memset": lambda memory: memory.memset(1),
    "ops.copy": lambda memory: ops.copy(bytearray(SIZE), memory),
    "unbind_stream": lambda memory: memory.unbind_stream(),
    "wait_for_stream": lambda memory: memory._view.wait_for_stream(),
    "DLPack on the CPU": lambda memory: np.from_dlpack(memory, device="cpu", copy=True),
    "a copy by DLPack": lambda memory: memory.__dlpack__(copy=True),
    "pickle": lambda memory: memory.__reduce_ex__(5),
}


@every_kind
@pytest.mark.parametrize("use", WAITS)
def test_a_stream_that_a_call_waits_for_outlives_its_binding(cuda, context, bound, kind, use):
    if kind == "device" and use == "map":
        pytest.skip("device memory is not mapped")
    allocate, ended = bound
    memory = allocate(kind)
    old = memory.stream

    def run():
        with context.pushed():
            WAITS[use](memory)

    with cuda.stream() as other, cuda.stream() as held:
        with cuda.hold(held) as gate:
            _vkgdr.stream_wait(memory._view, old, _vkgdr.record(memory._view, held))
            thread = threading.Thread(target=run)
            thread.start()
            # Too short a wait can only miss a defect.
            thread.join(0.05)
            waited = thread.is_alive()
            memory.bind_to_stream(other)
            gc.collect()
            during = list(ended)
            gate.open()
            thread.join()
        assert waited
        assert during == []
        assert ended == [old]
        memory.free()


def test_the_interface_keeps_the_stream_that_it_names(bound):
    allocate, ended = bound
    memory = allocate()
    old = memory.stream
    for array in (memory, vkgdr.arrays.as_cuda_array(memory)):
        interface = array.__cuda_array_interface__
        assert interface["stream"] == old
    memory.unbind_stream()
    gc.collect()
    assert ended == []
    del interface
    gc.collect()
    assert ended == [old]


def test_the_number_of_the_bound_stream_keeps_nothing(bound):
    allocate, ended = bound
    memory = allocate()
    number = memory.stream
    assert type(number) is int
    memory.unbind_stream()
    assert ended == [number]


def test_a_mapping_of_memory_of_this_package_shares_its_binding(gpu):
    memory = vkgdr.Memory(gpu, SIZE)
    mapping = vkgdr.Mapping(gpu, memory.device_ptr, SIZE, readonly=True)
    assert (mapping.device_ptr, mapping.host_ptr, mapping.readonly) == (memory.device_ptr, memory.host_ptr, True)
    mapping.bind_to_stream(streams.stream())
    del mapping
    gc.collect()
    memory.memset(1)
    memory.free()


class WithKeeper:
    """A stream of another library that has an attribute of the name by which ours name what keeps them."""

    _keeper = None

    def __init__(self):
        self.stream = streams.stream()

    def __cuda_stream__(self):
        return 0, int(self.stream)


def test_what_is_bound_is_a_stream_and_kept(gpu):
    memory = vkgdr.Memory(gpu, SIZE)
    memory.bind_to_stream(WithKeeper())
    gc.collect()
    memory.memset(1)
    with pytest.raises(TypeError, match="None is not a stream"):
        memory.bind_to_stream(None)
    memory.free()


def test_threads_that_bind_and_use_memory_at_once_use_live_streams(cuda, bound, gpu, context):
    allocate, ended = bound
    memory = allocate("device")
    end = time.monotonic() + 0.5

    def use(work):
        with context.pushed():
            while time.monotonic() < end:
                work()

    others = [vkgdr.Memory(gpu, SIZE, kind="device") for _ in range(3)]
    works = [
        lambda: memory.copy_to_host(bytearray(SIZE)),
        lambda: memory.copy_from_host(bytes(SIZE)),
        lambda: memory.copy_from_device(others[0]),
        lambda: ops.copy(others[1], ByDlpack(memory)),
        lambda: ops.copy(others[2], BorrowedBytes(memory.device_ptr, SIZE)),
        lambda: ops.fill(memory, bytes(range(8))),
        lambda: memory.__dlpack__(stream=1),
        lambda: memory.bind_to_stream(OwnStream(cuda, ended)),
        memory.unbind_stream,
    ]
    in_threads(*(partial(use, work) for work in works))
    last = memory.stream
    memory.free()
    assert last is None or last in ended
