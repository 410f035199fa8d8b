"""``vkgdr.pycuda``: pycuda's memory, row by row of its documentation."""

import copy
import gc
import inspect
import pickle

import native
import numpy as np
import pytest
import simulator
import vkgdr

pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)

import pycuda.driver as drv
import vkgdr.pycuda
from neighbours import counter, in_threads
from pycuda._pvt_struct import pack
from pycuda.gpuarray import GPUArray, to_gpu


def launch(*arguments):
    """Call a kernel through pycuda's own code, up to the driver, and return the bytes of its arguments."""

    class Kernel:
        def _set_block_shape(self, *shape):
            pass

        def _launch_kernel(self, grid, block, packed, *options):
            self.packed = packed

    kernel = Kernel()
    drv.Function.__call__(kernel, *arguments, block=(1, 1, 1))
    return kernel.packed


@pytest.fixture
def handle(pycuda_context):
    return vkgdr.Vkgdr(hash(pycuda_context.get_device()))


@pytest.fixture
def live(handle):
    return counter(handle)


@pytest.fixture
def memory(handle):
    memory = vkgdr.pycuda.Memory(handle, 4096)
    np.asarray(memory)[:] = np.arange(4096) % 251
    memory.flush()
    return memory


def test_memory_of_another_context_than_pycudas_is_refused(pycuda_context, live):
    gpu = vkgdr.Vkgdr.open_primary_context(0)
    for source in (gpu, vkgdr.pool.Pool(gpu)):
        with pytest.raises(vkgdr.InvalidArgumentError, match="open_current_context"):
            vkgdr.pycuda.allocator(source)(64)
    with pytest.raises(vkgdr.InvalidArgumentError, match=r"pycuda\.autoprimaryctx"):
        vkgdr.pycuda.MappedArray.empty(gpu, 64, "f4")
    del source
    assert live() == 0


def test_a_subclass_may_have_a_context_of_its_own(handle):
    class Own(vkgdr.pycuda.Memory):
        context = None

    assert len(Own(handle, 8)) == 8


def test_memory_has_the_bases_and_the_signature_of_0_1():
    assert vkgdr.pycuda.Memory.__bases__ == (drv.PointerHolderBase, vkgdr.RawMemory)
    parameters = inspect.signature(vkgdr.pycuda.Memory.__init__).parameters.values()
    positional = [(p.name, p.default) for p in parameters if p.kind is not p.KEYWORD_ONLY][1:]
    assert positional == [("owner", inspect.Parameter.empty), ("size", inspect.Parameter.empty), ("flags", 0)]


def test_memory_without_a_context_says_so_and_allocates_nothing(no_context, simulated):
    drv.init()
    handle = vkgdr.Vkgdr(0)
    before = simulator.vulkan.calls("vkAllocateMemory")
    with pytest.raises(vkgdr.VkgdrError, match="no current CUDA context"):
        vkgdr.pycuda.Memory(handle, 123)
    assert simulator.vulkan.calls("vkAllocateMemory") == before


def test_memory_that_was_not_allocated_goes_quietly(handle):
    for arguments in [(handle, 0), (handle, -1), (handle, "x"), (None, 5), (handle, 5, 1), ()]:
        with pytest.raises((vkgdr.VkgdrError, TypeError, OverflowError)):
            vkgdr.pycuda.Memory(*arguments)
    gc.collect()


def test_memory_takes_the_keywords_that_are_new(handle):
    stream = drv.Stream()
    for kind in ("mapped", "host", "device"):
        memory = vkgdr.pycuda.Memory(handle, 100, kind=kind, alignment=64, stream=stream, name="mine")
        assert memory.kind == kind
        assert memory.stream == stream.handle
        assert "'mine'" in repr(memory)
        assert "vkgdr.pycuda.Memory" in repr(memory)


def test_int_and_index_are_the_device_pointer(memory):
    assert int(memory) == memory.device_ptr
    assert memory.__index__() == memory.device_ptr
    assert memory.gpudata is memory
    assert hex(memory) == hex(memory.device_ptr)


def test_memory_keeps_pycudas_context_object(no_context, simulated):
    drv.init()
    context = drv.Device(0).make_context()
    memory = vkgdr.pycuda.Memory(vkgdr.Vkgdr(0), 64)
    context.pop()
    del context
    gc.collect()
    assert simulator.ledger()["CUDA context"] == 1
    memory.memset(3)
    assert memory.tobytes() == b"\3" * 64
    del memory
    gc.collect()
    assert simulator.ledger()["CUDA context"] == 0


def test_del_frees_by_hand_and_on_a_thread_without_a_context(handle, pycuda_context, simulated):
    before = simulator.ledger()
    held = [vkgdr.pycuda.Memory(handle, 64) for _ in range(2)]
    assert simulator.ledger() != before
    in_threads(held[0].__del__)
    assert held[0].freed
    held[0].__del__()

    def free_the_rest():
        held.clear()
        assert drv.Context.get_current() is None

    in_threads(free_the_rest)
    assert simulator.ledger() == before
    assert drv.Context.get_current() == pycuda_context


def test_del_frees_memory_in_a_cycle_through_a_container(handle, live):
    # A cycle through the memory's attributes is never collected: Boost.Python hides them from gc.
    holder = []
    holder.append((holder, vkgdr.pycuda.Memory(handle, 64)))
    del holder
    assert live() == 0


def test_gpudata_of_a_gpuarray_gets_and_sets(memory):
    array = GPUArray((1024,), np.float32, gpudata=memory)
    assert array.gpudata is memory
    assert array.ptr == memory.device_ptr
    assert array.__cuda_array_interface__["data"] == (memory.device_ptr, False)
    values = np.arange(1024, dtype=np.float32)
    array.set(values)
    drv.Context.synchronize()
    memory.invalidate()
    assert (np.asarray(memory).view(np.float32) == values).all()
    np.asarray(memory).view(np.float32)[:] = -values
    memory.flush()
    assert (array.get() == -values).all()


def test_gpudata_keeps_the_memory(handle, live):
    memory = vkgdr.pycuda.Memory(handle, 4096)
    part = GPUArray((64, 64), np.uint8, gpudata=memory)[5:9]
    del memory
    assert live() == 1
    drv.memset_d8(part.gpudata, 1, 4)
    drv.Context.synchronize()
    del part
    assert live() == 0


def test_as_buffer_is_a_memoryview_over_the_device_address(memory):
    for offset in (0, 128):
        view = memory.as_buffer(1000, offset) if offset else memory.as_buffer(1000)
        assert view.nbytes == 1000
        # Compares the address, does not read the bytes.
        assert np.frombuffer(view, np.uint8).__array_interface__["data"][0] == memory.device_ptr + offset


def test_memory_and_regions_are_arguments_of_a_kernel_and_freed_memory_is_none(memory):
    packed = launch(memory, np.int32(5))
    assert int.from_bytes(packed[:8], "little") == memory.device_ptr
    assert int.from_bytes(launch(memory[256:512]), "little") == memory.device_ptr + 256
    # The function by which pycuda packs the arguments of prepared kernels.
    assert pack("P", memory) == memory.device_ptr.to_bytes(8, "little")
    memory.free()
    for use in (int, launch, lambda memory: drv.memset_d8(memory, 0, 1)):
        with pytest.raises(vkgdr.FreedError, match="freed"):
            use(memory)


def test_a_mapped_array_is_made_by_its_factories(handle):
    with pytest.raises(TypeError, match=r"MappedArray.empty\(gpu, shape, dtype\)"):
        vkgdr.pycuda.MappedArray(handle, (3, 5), np.complex64)


def test_a_mapped_array_is_not_copied_into_three_memories(handle):
    array = vkgdr.pycuda.MappedArray.empty(handle, 4, np.float32)
    assert copy.copy(array) is array
    for use in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a MappedArray cannot be"):
            use(array)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_mapped_array_is_one_array_on_both_sides(handle, order):
    array = vkgdr.pycuda.MappedArray.empty(handle, (3, 5), np.complex64, order)
    assert array.host.shape == array.device.shape == (3, 5)
    assert array.host.strides == array.device.strides
    assert array.host.dtype == array.device.dtype
    array.host[:] = np.arange(15).reshape(3, 5) * 1j
    array.memory.flush()
    assert (array.device.get() == array.host).all()
    assert int(array.device.gpudata) == array.memory.device_ptr
    host = array.host
    del array
    gc.collect()
    host[2, 4] = 1


def test_gpuarray_slices_views_and_reshapes_share_the_bytes(memory):
    array = GPUArray((64, 64), np.uint8, gpudata=memory)
    host = np.asarray(memory).reshape(64, 64)
    assert (array[7:9].get() == host[7:9]).all()
    assert int(array[7:9].gpudata) == memory.device_ptr + 7 * 64
    assert (array.view(np.uint16).get() == host.view(np.uint16)).all()
    assert (array.reshape(16, 256).get() == host.reshape(16, 256)).all()
    assert (array.ravel().get() == host.ravel()).all()


@pytest.mark.parametrize("kind", ["mapped", "host", "device"])
def test_allocator_gives_memory_of_its_kind(handle, kind):
    allocator = vkgdr.pycuda.allocator(handle, kind)
    array = to_gpu(np.arange(50, dtype=np.int16), allocator=allocator)
    assert isinstance(array.gpudata, vkgdr.pycuda.Memory)
    assert array.gpudata.kind == kind
    assert (array.get() == np.arange(50)).all()
    # Passed on to results.
    assert isinstance(array.copy().gpudata, vkgdr.pycuda.Memory)


def test_allocator_frees_with_the_array(handle, live):
    array = to_gpu(np.arange(50, dtype=np.int16), allocator=vkgdr.pycuda.allocator(handle))
    view = array[3:7]
    del array
    assert live() == 1
    del view
    assert live() == 0


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


def test_the_hash_of_a_pycuda_device_is_its_number(pycuda_context):
    device = pycuda_context.get_device()
    gpu = vkgdr.Vkgdr(hash(device))
    assert gpu.device == hash(device) == 0
    assert gpu.pci_bus_id.lower() == device.pci_bus_id().lower()


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


def test_handles_are_opened_with_no_context_current_as_the_correlator_does(pycuda_context, cuda):
    device = hash(pycuda_context.get_device())
    drv.Context.pop()
    try:
        for _ in range(100):
            handle = vkgdr.Vkgdr(device, vkgdr.OpenFlags.REQUIRE_COHERENT_BIT)
            assert (handle.device, cuda.current()) == (device, 0)
            pycuda_context.push()
            assert len(vkgdr.pycuda.Memory(handle, 8)) == 8
            drv.Context.pop()
    finally:
        pycuda_context.push()


def test_threads_that_push_and_pop_one_context_share_arrays_with_the_device(handle, pycuda_context):
    def engine(number):
        for _ in range(10):
            pycuda_context.push()
            memory = vkgdr.pycuda.Memory(handle, 512)
            host, device = np.asarray(memory).view(np.uint16), GPUArray(256, np.uint16, gpudata=memory)
            host[:] = number
            assert (device.get() == number).all()
            drv.Context.pop()

    in_threads(*(lambda number=number: engine(number) for number in range(4)))


def test_the_correlators_padded_array_is_one_array_on_both_sides(handle, pycuda_context):
    """A `GPUArray` with padded rows over raw memory, as katsdpsigproc makes it, and the host view of the correlator."""
    memory = vkgdr.pycuda.Memory(handle, 8 * 16 * 4)
    host = np.asarray(memory).view(np.float32).reshape(8, 16)[:5, :7]
    device = GPUArray((8, 16), np.float32, gpudata=memory)
    assert device.gpudata is memory
    assert int(device.gpudata) == device.ptr
    host[:] = np.arange(35).reshape(5, 7)
    assert (device.get()[:5, :7] == host).all()
    device.set(np.ones((8, 16), np.float32))
    pycuda_context.synchronize()
    assert (host == 1).all()
    stream = drv.Stream()
    drv.memset_d8_async(device.gpudata, 0, device.nbytes, stream)
    stream.synchronize()
    assert (host == 0).all()


def test_the_last_reference_is_dropped_on_a_thread_of_c(handle, simulated):
    """As a receiver's thread does that was handed an array."""
    before, kept = simulator.ledger(), []

    @native.FUNCTION
    def drop(_):
        kept.clear()

    for _ in range(20):
        memory = vkgdr.pycuda.Memory(handle, 4096)
        kept.append(np.array(memory, copy=False))
        del memory
        gc.collect()
        assert simulator.ledger() != before
        native.call_on_thread(drop)
        assert simulator.ledger() == before
