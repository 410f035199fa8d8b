"""pycuda's requirements on memory objects."""

import gc

import numpy as np
import pytest
import simulator
import vkgdr

pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)

import pycuda.driver as drv
import vkgdr.pycuda
from kernels import launch
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


def test_gpuarray_in_fortran_order_and_with_strides(memory):
    host = np.asarray(memory)
    array = GPUArray((16, 8), np.uint8, gpudata=memory, order="F")
    assert (array.get() == host[:128].reshape(8, 16).T).all()
    padded = GPUArray((16, 8), np.uint8, gpudata=memory, strides=(256, 1))
    assert padded.strides == (256, 1)
    assert padded.ptr == memory.device_ptr


def test_gpuarray_copies_and_sets_from_another_gpuarray(memory):
    array = GPUArray((4096,), np.uint8, gpudata=memory)
    copied = array.copy()
    assert (copied.get() == np.asarray(memory)).all()
    copied.set(np.full(4096, 9, np.uint8))
    drv.Context.synchronize()
    array.set(copied)
    drv.Context.synchronize()
    memory.invalidate()
    assert (np.asarray(memory) == 9).all()
    array[:100].set(np.full(100, 8, np.uint8))
    drv.Context.synchronize()
    memory.invalidate()
    assert (np.asarray(memory)[:101] == [8] * 100 + [9]).all()


# ---- allocator(nbytes)


@pytest.mark.parametrize("kind", ["mapped", "host", "device"])
def test_allocator_gives_memory_of_its_kind(handle, kind):
    allocator = vkgdr.pycuda.allocator(handle, kind)
    array = to_gpu(np.arange(50, dtype=np.int16), allocator=allocator)
    assert isinstance(array.gpudata, vkgdr.pycuda.Memory)
    assert array.gpudata.kind == kind
    assert (array.get() == np.arange(50)).all()


def test_allocator_is_passed_on_to_results(handle):
    array = to_gpu(np.arange(50, dtype=np.int16), allocator=vkgdr.pycuda.allocator(handle))
    for result in (array.copy(), array._new_like_me()):
        assert isinstance(result.gpudata, vkgdr.pycuda.Memory)


def test_allocator_is_not_called_for_an_empty_array(handle):
    array = GPUArray((0, 5), np.float32, allocator=lambda size: pytest.fail(f"called for {size} bytes"))
    assert array.size == 0


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


def test_driver_functions_copy_between_host_and_memory(memory):
    values = np.arange(4096, dtype=np.uint8)[::-1].copy()
    drv.memcpy_htod(memory, values)
    drv.Context.synchronize()
    memory.invalidate()
    assert (np.asarray(memory) == values).all()
    back = np.empty_like(values)
    drv.memcpy_dtoh(back, memory)
    assert (back == values).all()


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


def test_driver_functions_fill_memory(memory):
    host = np.asarray(memory)
    drv.memset_d8(memory, 1, 4096)
    drv.Context.synchronize()
    memory.invalidate()
    assert (host == 1).all()
    drv.memset_d16(memory, 0x0302, 2048)
    drv.Context.synchronize()
    memory.invalidate()
    assert (host.view(np.uint16) == 0x0302).all()
    drv.memset_d32(memory, 0x07060504, 1024)
    drv.Context.synchronize()
    memory.invalidate()
    assert (host.view(np.uint32) == 0x07060504).all()
    drv.memset_d2d8(memory, 64, 9, 8, 4)
    drv.Context.synchronize()
    memory.invalidate()
    assert (host.reshape(64, 64)[:4, :8] == 9).all()
    assert (host.reshape(64, 64)[:4, 8:] != 9).all()


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


def test_driver_functions_copy_boxes(memory, handle):
    target = vkgdr.pycuda.Memory(handle, 4096)
    target.memset(0)
    copy = drv.Memcpy3D()
    copy.set_src_device(memory)
    copy.src_pitch, copy.src_height = 16, 16
    copy.set_dst_device(int(target))
    copy.dst_pitch, copy.dst_height = 16, 16
    copy.width_in_bytes, copy.height, copy.depth = 4, 3, 2
    copy()
    drv.Context.synchronize()
    target.invalidate()
    source = np.asarray(memory).reshape(16, 16, 16)
    result = np.asarray(target).reshape(16, 16, 16)
    assert (result[:2, :3, :4] == source[:2, :3, :4]).all()
    assert result[2:].sum() == 0


# ---- an ndarray as argument of a kernel


def test_an_ndarray_goes_to_a_kernel_by_value_and_memory_by_address(memory):
    view = np.asarray(memory)[:16]
    packed = launch(view)
    assert packed == bytes(view)
    packed = launch(memory)
    assert packed == memory.device_ptr.to_bytes(8, "little")


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
