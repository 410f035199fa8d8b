"""The package as the correlator and its libraries use it; the numbers are rows of the list of call sites."""

import ctypes
import gc
from functools import partial

import native
import numpy as np
import pytest
import simulator
import vkgdr
from neighbours import in_threads, open_with

drv = pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
gpuarray = pytest.importorskip("pycuda.gpuarray", reason="pycuda is not installed", exc_type=ImportError)


class Context:
    """A context that is current only within ``with``, like katsdpsigproc's."""

    def __init__(self):
        drv.init()
        self.device = drv.Device(0)
        self._context = self.device.make_context()
        drv.Context.pop()

    def __enter__(self):
        self._context.push()
        return self

    def __exit__(self, *exception):
        drv.Context.pop()

    def close(self):
        self._context.detach()


class DeviceArray:
    """An array with padded rows over memory from another allocator, like katsdpsigproc's."""

    def __init__(self, context, shape, dtype, padded_shape=None, raw=None):
        self.context = context
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.padded_shape = tuple(padded_shape or shape)
        with context:
            self.buffer = gpuarray.GPUArray(self.padded_shape, self.dtype, gpudata=raw)

    def get(self):
        with self.context:
            whole = self.buffer.get()
        return whole[tuple(slice(extent) for extent in self.shape)]

    def set(self, values):
        whole = np.zeros(self.padded_shape, self.dtype)
        whole[tuple(slice(extent) for extent in self.shape)] = values
        with self.context:
            self.buffer.set(whole)
            drv.Context.synchronize()

    def zero_async(self, stream):
        with self.context:
            drv.memset_d8_async(self.buffer.gpudata, 0, self.buffer.mem_size * self.dtype.itemsize, stream)


class MappedArray:
    """A host view and a device array of the same bytes, as in the correlator."""

    def __init__(self, handle, context, shape, dtype, padded_shape=None):
        padded_shape = padded_shape or shape
        size = int(np.prod(padded_shape)) * np.dtype(dtype).itemsize
        with context:
            memory = vkgdr.pycuda.Memory(handle, size)
        index = tuple(slice(extent) for extent in shape)
        self.host = np.asarray(memory).view(dtype).reshape(padded_shape)[index]
        self.device = DeviceArray(context, shape, dtype, padded_shape, raw=memory)


@pytest.fixture
def context(no_context):
    context = Context()
    yield context
    gc.collect()
    context.close()


def open_coherent(context):
    """Open the GPU like the correlator, which never flushes."""
    assert hash(context.device) == 0
    return open_with(vkgdr.OpenFlags.REQUIRE_COHERENT_BIT)


@pytest.fixture
def handle(context):
    return open_coherent(context)


def test_rows_1_and_14_handles_are_opened_with_no_context_and_a_flag_again_and_again(context, cuda):
    for _ in range(100):
        assert cuda.current() == 0
        handle = open_coherent(context)
        assert handle.device == 0
        assert cuda.current() == 0
        with context:
            assert len(vkgdr.pycuda.Memory(handle, 8)) == 8


def test_row_5_a_padded_device_array_lies_over_raw_memory(handle, context):
    array = MappedArray(handle, context, (5, 7), np.float32, (8, 16))
    assert array.host.shape == (5, 7)
    assert not array.host.flags.c_contiguous
    array.host[:] = np.arange(35).reshape(5, 7)
    assert (array.device.get() == np.arange(35).reshape(5, 7)).all()
    array.device.set(np.ones((5, 7), np.float32))
    assert (array.host == 1).all()
    with context:
        stream = drv.Stream()
    array.device.zero_async(stream)
    with context:
        stream.synchronize()
    assert (array.host == 0).all()
    assert int(array.device.buffer.gpudata) == array.device.buffer.ptr


def test_row_10_receive_chunks_are_one_object_on_both_sides(handle, context):
    polarisations, stride = 2, 50 << 20
    with context:
        memory = vkgdr.pycuda.Memory(handle, polarisations * stride)
    buffer = np.array(memory, copy=False).view(np.uint8).reshape(polarisations, stride)
    array = DeviceArray(context, (polarisations, stride), np.uint8, raw=memory)
    assert buffer.ctypes.data == memory.host_ptr
    assert array.buffer.gpudata is memory
    buffer[1, -3:] = (1, 2, 3)
    with context:
        tail = np.empty(3, np.uint8)
        drv.memcpy_dtoh(tail, int(array.buffer.gpudata) + polarisations * stride - 3)
    assert tail.tolist() == [1, 2, 3]


def test_row_11_the_last_reference_is_dropped_on_a_thread_of_c(handle, context, simulated):
    library = native.library()
    before = simulator.ledger()
    for _ in range(20):
        with context:
            memory = vkgdr.pycuda.Memory(handle, 4096)
        array = np.array(memory, copy=False)
        reference = ctypes.py_object(array)
        ctypes.pythonapi.Py_IncRef(reference)
        address = id(array)
        del array, memory, reference
        gc.collect()
        assert simulator.ledger() != before
        assert library.drop_on_thread(address) == 0
        assert simulator.ledger() == before


def test_a_pipeline_of_threads_as_the_correlator_runs_one(handle, context):
    def engine(number):
        for _ in range(10):
            with context:
                pass
            chunk = MappedArray(handle, context, (16, 16), np.uint16, (16, 32))
            chunk.host[:] = number
            assert (chunk.device.get() == number).all()

    in_threads(*(partial(engine, number) for number in range(4)))
