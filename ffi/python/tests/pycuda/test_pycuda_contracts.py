"""pycuda's requirements on memory objects."""

import gc

import numpy as np
import pytest
import simulator
import vkgdr

pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)

import pycuda.driver as drv
import vkgdr.pycuda
from pycuda.gpuarray import GPUArray, to_gpu


@pytest.fixture
def memory(handle):
    memory = vkgdr.pycuda.Memory(handle, 4096)
    np.asarray(memory)[:] = np.arange(4096) % 251
    memory.flush()
    return memory


# ---- GPUArray(shape, dtype, gpudata=)


def test_gpuarray_stores_gpudata_as_it_is(memory):
    array = GPUArray((32, 32), np.float32, gpudata=memory)
    assert array.gpudata is memory
    assert array.ptr == memory.device_ptr
    assert array.__cuda_array_interface__["data"] == (memory.device_ptr, False)


def test_gpuarray_slices_views_and_reshapes_share_the_bytes(memory):
    array = GPUArray((64, 64), np.uint8, gpudata=memory)
    host = np.asarray(memory).reshape(64, 64)
    assert (array[7:9].get() == host[7:9]).all()
    assert int(array[7:9].gpudata) == memory.device_ptr + 7 * 64
    assert (array.view(np.uint16).get() == host.view(np.uint16)).all()
    assert (array.reshape(16, 256).get() == host.reshape(16, 256)).all()
    assert (array.ravel().get() == host.ravel()).all()


# ---- allocator(nbytes)


@pytest.mark.parametrize("kind", ["mapped", "host", "device"])
def test_allocator_gives_memory_of_its_kind(handle, kind):
    allocator = vkgdr.pycuda.allocator(handle, kind)
    array = to_gpu(np.arange(50, dtype=np.int16), allocator=allocator)
    assert isinstance(array.gpudata, vkgdr.pycuda.Memory)
    assert array.gpudata.kind == kind
    assert (array.get() == np.arange(50)).all()
    # Passed on to results.
    assert isinstance(array.copy().gpudata, vkgdr.pycuda.Memory)


def test_allocator_frees_with_the_array(handle, simulated):
    before = simulator.ledger()
    array = to_gpu(np.arange(50, dtype=np.int16), allocator=vkgdr.pycuda.allocator(handle))
    view = array[3:7]
    del array
    gc.collect()
    assert simulator.ledger() != before
    del view
    gc.collect()
    assert simulator.ledger() == before


# ---- driver functions take a CUdeviceptr


def test_driver_functions_copy_asynchronously(memory):
    stream = drv.Stream()
    values = drv.pagelocked_empty(4096, np.uint8)
    values[:] = 3
    back = drv.pagelocked_empty(4096, np.uint8)
    other = drv.mem_alloc(4096)
    drv.memcpy_htod_async(memory, values, stream)
    drv.memcpy_dtod_async(other, memory, 4096, stream)
    drv.memset_d8_async(memory, 4, 4096, stream)
    drv.memcpy_dtod_async(memory, other, 2048, stream)
    drv.memcpy_dtoh_async(back, memory, stream)
    stream.synchronize()
    assert (back == [3] * 2048 + [4] * 2048).all()


def test_driver_functions_copy_rectangles(memory, handle):
    target = vkgdr.pycuda.Memory(handle, 4096)
    target.memset(0)
    copy = drv.Memcpy2D()
    copy.set_src_device(memory)
    copy.src_pitch = 64
    copy.src_x_in_bytes = 3
    copy.set_dst_device(target)
    copy.dst_pitch = 32
    copy.width_in_bytes = 7
    copy.height = 5
    copy(aligned=False)
    drv.Context.synchronize()
    target.invalidate()
    expected = np.zeros((128, 32), np.uint8)
    expected[:5, :7] = np.asarray(memory).reshape(64, 64)[:5, 3:10]
    assert (np.asarray(target).reshape(128, 32) == expected).all()


# ---- hash(pycuda.driver.Device)


def test_the_hash_of_a_pycuda_device_is_its_number(pycuda_context):
    device = pycuda_context.get_device()
    gpu = vkgdr.Vkgdr(hash(device))
    assert gpu.device == hash(device) == 0
    assert gpu.pci_bus_id.lower() == device.pci_bus_id().lower()


# ---- arrays whose base owns memory


def test_the_host_side_of_a_gpuarray_is_found_again(memory):
    array = GPUArray((4, 8), np.float32, gpudata=memory)
    view = vkgdr.host_view(array)
    assert view.shape == (4, 8)
    view[:] = 3
    memory.flush()
    assert (array.get() == 3).all()


def test_a_pycuda_stream_is_a_stream(memory):
    stream = drv.Stream()
    memory.bind_to_stream(stream)
    assert memory.stream == stream.handle
    assert memory.__cuda_array_interface__["stream"] == stream.handle
    memory.unbind_stream()
    memory.record_stream(stream)
