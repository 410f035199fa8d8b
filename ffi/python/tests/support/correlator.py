"""A context and arrays as the correlator and its library katsdpsigproc have them; skips tests without pycuda."""

import numpy as np
import pytest
import vkgdr

drv = pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
gpuarray = pytest.importorskip("pycuda.gpuarray", reason="pycuda is not installed", exc_type=ImportError)


class Context:
    """A context that is current only within ``with``, like katsdpsigproc's."""

    def __init__(self):
        drv.init()
        self._device = drv.Device(0)
        self._context = self._device.make_context()
        drv.Context.pop()

    @property
    def device(self):
        return self._device

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
