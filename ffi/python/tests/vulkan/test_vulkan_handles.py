"""`Vkgdr.vulkan_handles`, `with_vulkan_queue` and `MemoryObject.vulkan_memory`, used by Vulkan's own functions."""

import threading
from functools import partial

import libvulkan
import pytest
import vkgdr
import vkgdr.vulkan
from neighbours import in_threads
from vkgdr.pool import Pool


@pytest.fixture
def device(gpu):
    try:
        return libvulkan.Device(gpu.vulkan_handles)
    except vkgdr.VkgdrError as error:
        pytest.skip(f"there is no Vulkan device: {error}")


def test_memory_parts_and_chunks_have_their_offsets(gpu, device):
    memory = vkgdr.Memory(gpu, 1000)
    place = memory.vulkan_memory
    assert isinstance(place, vkgdr.vulkan.VulkanMemory)
    assert (place.memory != 0, place.offset) == (True, 0)
    assert memory[300:400].vulkan_memory == (place.memory, 300)
    one, two = map(Pool(gpu).allocate, (64, 64))
    distance = two.device_ptr - one.device_ptr
    assert one.vulkan_memory.memory == two.vulkan_memory.memory != place.memory
    assert two.vulkan_memory.offset - one.vulkan_memory.offset == distance


def test_memory_that_vulkan_did_not_allocate_has_no_place(gpu, foreign):
    assert vkgdr.compat.dpctl.as_memory(foreign).vulkan_memory is None
    memory = vkgdr.Memory(gpu, 64)
    memory.free()
    with pytest.raises(vkgdr.FreedError):
        _ = memory.vulkan_memory


def test_the_handles_are_the_same_for_all_handles_of_a_gpu(gpu, device):
    handles = gpu.vulkan_handles
    assert isinstance(handles, vkgdr.vulkan.Handles)
    assert handles == vkgdr.Vkgdr(0).vulkan_handles
    assert all(handles[:3])
    gpu.close()
    with pytest.raises(vkgdr.FreedError):
        _ = gpu.vulkan_handles


def test_with_vulkan_queue_returns_what_its_function_returns(gpu, device):
    queue = gpu.with_vulkan_queue(lambda queue: queue)
    assert queue != 0
    gpu.with_vulkan_queue(device.finish)
    with pytest.raises(KeyError):
        gpu.with_vulkan_queue({}.__getitem__)
    assert gpu.with_vulkan_queue(lambda again: again == queue)


def test_threads_take_turns_with_the_queue(gpu, device):
    inside, most = 0, 0
    ready = threading.Event()

    def work(_queue):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        # Long enough for the other threads to arrive.
        ready.wait(0.02)
        inside -= 1

    in_threads(*[partial(gpu.with_vulkan_queue, work)] * 4)
    assert (inside, most) == (0, 1)
