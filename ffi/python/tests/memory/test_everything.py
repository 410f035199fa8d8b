"""What memory of every class does: facts, interfaces, copies and fills, and lifetimes."""

import copy
import ctypes
import gc
import hashlib
import pickle
import sys
import weakref
from functools import partial

import numpy as np
import pytest
import vkgdr
from everything import MAKERS, SIZE
from neighbours import KINDS, BorrowedBytes, ByDlpack, Foreign, every_kind, in_threads, wait_at
from vkgdr.arrays import host_array, mapped_array
from vkgdr.compat import dpctl, rmm


@pytest.fixture
def visible(anything):
    if anything.host_ptr is None:
        pytest.skip("device memory")
    return anything


BYTES = bytes(range(256)) * (SIZE // 256)


def test_its_size_and_its_addresses(cuda, anything):
    assert isinstance(anything, vkgdr.Memory)
    assert anything.nbytes == anything.size == len(anything) == anything.__sizeof__() == SIZE
    assert sys.getsizeof(anything) >= SIZE
    assert int(anything) == anything.device_ptr
    assert anything.device_ptr % 64 == (anything.host_ptr or 0) % 64 == 0
    assert (anything.device, anything.stream, anything.context) == (anything.owner.device, None, cuda.current())


def test_the_cuda_array_interface_is_version_3(anything):
    assert anything.__cuda_array_interface__ == {
        "data": (anything.device_ptr, False),
        "shape": (SIZE,),
        "strides": None,
        "typestr": "|u1",
        "version": 3,
        "stream": None,
    }


def test_both_sides_have_the_same_bytes(cuda, visible):
    view = memoryview(visible)
    assert (view.format, view.itemsize, view.shape, view.readonly) == ("B", 1, (SIZE,), False)
    assert view.obj is visible
    view[:3] = b"abc"
    visible.flush()
    assert cuda.read(visible.device_ptr, 3) == b"abc"
    cuda.write(visible.device_ptr, b"1234")
    visible.invalidate()
    assert ctypes.string_at(visible.host_ptr, 4) == b"1234"
    assert np.array(visible, copy=False).ctypes.data == visible.host_ptr
    assert np.from_dlpack(visible, device="cpu").ctypes.data == visible.host_ptr


def test_memory_without_a_host_view_says_so(gpu):
    memory = vkgdr.Memory(gpu, SIZE, kind="device")
    uses = (memoryview, np.asarray, np.frombuffer, hashlib.sha256, lambda m: m.buf, lambda m: m.get_host_array())
    uses += (lambda m: m.map(), lambda m: m.host, lambda m: m.__array_interface__, vkgdr.host_view)
    uses += (lambda m: vkgdr.host_view(BorrowedBytes(m.device_ptr, 10)), lambda m: vkgdr.host_view(ByDlpack(m)))
    for error in (BufferError, TypeError, vkgdr.NoHostViewError):
        for use in uses:
            with pytest.raises(error, match="device memory has no host view"):
                use(memory)
    assert memory.pending_views == memory.map_count == 0


def test_bytes_go_to_the_host(anything):
    anything.copy_from_host(BYTES)
    array = anything.copy_to_host()
    assert (array.dtype, array.shape, array.flags.owndata) == (np.uint8, (SIZE,), True)
    assert array.tobytes() == anything.tobytes() == bytes(anything) == BYTES
    targets = (bytearray(SIZE), memoryview(bytearray(SIZE)), np.zeros((8, SIZE // 8), "i1"), np.zeros(SIZE // 8, "f8"))
    for target in targets:
        assert anything.copy_to_host(target) is target
        assert bytes(target) == BYTES
    # A larger target keeps its rest.
    assert anything.copy_to_host(bytearray(b"-" * 8), offset=SIZE - 5) == BYTES[-5:] + b"---"
    copied = anything.tobytes()
    anything.memset(0)
    assert copied == BYTES


def test_bytes_come_from_the_host(cuda, anything):
    anything.memset(ord("-"))
    for source in (b"abcde", bytearray(b"abcde"), np.frombuffer(b"abcde", "u1"), memoryview(b"abcde")):
        assert anything.copy_from_host(source) is None
        assert cuda.read(anything.device_ptr, 7) == b"abcde--"
    anything.copy_from_host(np.array([1.5]), offset=SIZE - 8)
    assert np.frombuffer(anything.tobytes()[-8:]) == 1.5


def test_bytes_come_from_the_device(cuda, anything):
    anything.memset(ord("-"))
    source = vkgdr.Memory(anything.owner, 3)
    source.copy_from_host(b"abc")
    assert anything.copy_from_device(source) is None
    anything.copy_from_device(source, offset=SIZE - 3)
    assert anything.tobytes() == b"abc" + b"-" * (SIZE - 6) + b"abc"
    anything.copy_from_device(Foreign(cuda, b"xyz"))
    anything.copy_from_device(ByDlpack(source), offset=3)
    assert anything.tobytes()[:7] == b"xyzabc-"


@every_kind
@pytest.mark.parametrize("other", KINDS)
def test_bytes_go_between_all_kinds_and_contexts(cuda, gpu, kind, other):
    memory = vkgdr.Memory(gpu, 5, kind=kind)
    memory.memset(ord("-"))
    elsewhere = cuda.create_context()
    for owner in (gpu, vkgdr.Vkgdr(0)):
        source = vkgdr.Memory(owner, 3, kind=other)
        source.copy_from_host(b"abc")
        memory.copy_from_device(source, offset=1)
        assert memory.tobytes() == b"-abc-"
        source.free()
    elsewhere.destroy()


def test_bytes_are_set(cuda, anything):
    anything.memset(255)
    assert cuda.read(anything.device_ptr, SIZE) == b"\xff" * SIZE
    anything.memset()
    anything.memset(ord("a"), offset=SIZE - 3)
    anything.memset(val=ord("b"), offset=1, nbytes=2)
    anything.memset(ord("c"), offset=3, nbytes=0)
    assert anything.tobytes() == b"\0bb" + bytes(SIZE - 6) + b"aaa"
    for value in (-1, 256, 10**30):
        with pytest.raises(vkgdr.InvalidArgumentError, match=str(value)):
            anything.memset(value)


ASYNCHRONOUS = {
    "copy_to_host": lambda memory: bytes(memory.copy_to_host()),
    "copy_from_host": lambda memory: memory.copy_from_host(b"x") or memory.tobytes(),
    "memset": lambda memory: memory.memset(ord("x"), nbytes=1) or memory.tobytes(),
}


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_an_operation_comes_after_the_bound_stream(cuda, anything, name):
    with cuda.stream() as stream:
        anything.bind_to_stream(stream)
        with cuda.hold(stream) as gate:
            cuda.fill(anything.device_ptr, ord("n"), SIZE, stream)
            seen = []
            wait_at(gate, lambda: seen.append(ASYNCHRONOUS[name](anything)), anything.context)
        first = b"n" if name == "copy_to_host" else b"x"
        assert seen == [first + b"n" * (SIZE - 1)]
        anything.free()


def test_a_copy_comes_after_the_stream_of_the_others_interface(cuda, anything):
    with cuda.stream() as stream:
        foreign = Foreign(cuda, b"old", stream=stream)
        with cuda.hold(stream) as gate:
            cuda.fill(foreign.pointer, ord("n"), 3, stream)
            wait_at(gate, lambda: anything.copy_from_device(foreign), anything.context)
    assert anything.tobytes()[:3] == b"nnn"


def test_a_tensor_keeps_the_allocation_and_no_python_object(gpu):
    memory = vkgdr.Memory(gpu, SIZE)
    memory.memset(9)
    gone, tensor = weakref.ref(memory), np.from_dlpack(memory, device="cpu")
    del memory
    gc.collect()
    assert gone() is None
    assert bytes(tensor) == b"\t" * SIZE


def test_memory_is_used_and_dropped_on_threads_without_a_context(gpu, live):
    held = [make(gpu) for name, make in MAKERS.items() if name not in ("RawMemory", "pycuda.Memory")]

    def use(index):
        memory = held[index]
        memory.memset(index)
        assert memory.tobytes() == bytes([index]) * SIZE
        held[index] = None

    in_threads(*(partial(use, index) for index in range(len(held))))
    assert live() == 0


def test_a_pickle_and_a_copy_have_the_kind_and_the_bytes(anything):
    anything.copy_from_host(BYTES)
    copies = [pickle.loads(pickle.dumps(anything)), copy.copy(anything), copy.deepcopy(anything)]
    anything.memset(0)
    for again in copies:
        plain = isinstance(anything, vkgdr.pool.PooledMemory) or type(anything) is vkgdr.RawMemory
        assert type(again) is (vkgdr.Memory if plain else type(anything))
        assert (again.kind, again.reference_obj, again != anything) == (anything.kind, None, True)
        assert again.device_ptr != anything.device_ptr
        assert again.tobytes() == BYTES
        again.free()


# ---- pickle with protocol 5: the bytes of memory travel beside the pickle --------------------------------------------


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


def test_a_subclass_keeps_its_own_reduce(gpu):
    class Named(vkgdr.Memory):
        def __reduce__(self):
            return str, ("named",)

    for protocol in (2, 5):
        assert pickle.loads(pickle.dumps(Named(gpu, 8), protocol)) == "named"
    assert copy.copy(Named(gpu, 8)) == "named"


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


EMPTY = {
    "a mapped array": (vkgdr.Memory, "mapped", lambda gpu: vkgdr.device_view(mapped_array((0, 3), owner=gpu))),
    "a part of an array": (vkgdr.Memory, "host", lambda gpu: vkgdr.device_view(host_array(5, owner=gpu)[3:3])),
    "dpctl's, shared": (dpctl.MemoryShared, "mapped", lambda gpu: dpctl.MemoryShared(vkgdr.Memory(gpu, 5)[:0])),
    "dpctl's, host": (dpctl.MemoryHost, "host", lambda gpu: dpctl.MemoryHost(vkgdr.Memory(gpu, 5, kind="host")[:0])),
    "dpctl's, device": (
        dpctl.MemoryDevice,
        "device",
        lambda gpu: dpctl.MemoryDevice(vkgdr.Memory(gpu, 5, kind="device")[:0]),
    ),
    **{f"a buffer, {kind}": (rmm.Buffer, kind, partial(rmm.Buffer, kind=kind)) for kind in KINDS},
}


@pytest.mark.parametrize(("cls", "kind", "make"), EMPTY.values(), ids=EMPTY)
def test_empty_memory_is_pickled_and_copied(gpu, cls, kind, make):
    empty = make(gpu)
    pickled, buffers = dumped(empty)
    copies = [copy.copy(empty), copy.deepcopy(empty), pickle.loads(pickled, buffers=buffers)]
    copies += [pickle.loads(pickle.dumps(empty, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for again in copies:
        assert (type(again), len(again), again.kind, again.tobytes()) == (cls, 0, kind, b"")
        again.free()
        assert again.freed
