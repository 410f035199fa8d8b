"""`vkgdr.vulkan`: the handles that are lent, used by Vulkan's own functions, and semaphores."""

import ctypes
import gc
import threading
from ctypes import byref, c_int, c_uint64, c_void_p
from functools import partial
from typing import Any

import numpy as np
import pytest
import vkgdr
import vkgdr.vulkan
from neighbours import in_threads
from vkgdr.pool import Pool
from vkgdr.vulkan import Handles, Semaphore


class Device:
    """Vulkan's functions by ctypes, on the handles of a lent device, as another library would call them."""

    def __init__(self, handles: Handles) -> None:
        self.handle = c_void_p(handles.device)
        self._find = ctypes.CDLL("libvulkan.so.1").vkGetDeviceProcAddr
        self._find.restype = c_void_p

    def call(self, name: str, first: c_void_p, *arguments: Any) -> None:
        """Call a function that returns a ``VkResult``, which must be ``VK_SUCCESS``."""
        address = self._find(self.handle, name.encode())
        assert address, name
        result = ctypes.CFUNCTYPE(c_int)(address)
        assert result(first, *arguments) == 0, name

    def value_of(self, semaphore: int) -> int:
        """Return the value of a timeline semaphore."""
        value = c_uint64()
        self.call("vkGetSemaphoreCounterValueKHR", self.handle, c_uint64(semaphore), byref(value))
        return value.value

    def finish(self, queue: int) -> None:
        """Wait for the queue."""
        self.call("vkQueueWaitIdle", c_void_p(queue))


@pytest.fixture
def device(gpu):
    try:
        return Device(gpu.vulkan_handles)
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


# ---- `vkgdr.vulkan.Semaphore`: values that Vulkan's queue, CUDA's streams and the CPU raise and wait for -------------


@pytest.fixture
def shares(gpu):
    """Return a handle of the current context, if the drivers share semaphores."""
    if not gpu.supports_semaphores():
        pytest.skip("the drivers share no semaphores")
    return gpu


def test_the_cpu_raises_the_value_and_waits_for_it(shares):
    with Semaphore(shares, 3) as semaphore:
        # No wait succeeds before the signal: validation layers of Vulkan 1.3.239 take the value of a shared semaphore
        # that was waited for for that of a pending signal.
        assert not semaphore.wait(4, 0.01)
        assert not semaphore.wait(4, -1)
        semaphore.signal(7)
        assert semaphore.wait(7, 0)
        assert semaphore.wait(2)
        assert semaphore.value == 7
    with Semaphore(shares, 3) as semaphore:
        assert semaphore.value == 3


def test_a_stream_waits_for_the_cpu_and_the_cpu_for_a_stream(cuda, shares):
    memory = vkgdr.Memory(shares, 64)
    memory.memset(1)
    with Semaphore(shares) as semaphore, cuda.stream() as stream:
        semaphore.wait_on(stream, 1)
        vkgdr.compat.pyopencl.fill(memory, b"\2", stream=stream)
        semaphore.signal_on(stream, 2)
        assert not semaphore.wait(2, 0.02)
        assert (np.asarray(memory) == 1).all()
        semaphore.signal(1)
        assert semaphore.wait(2, 20)
        assert Device(shares.vulkan_handles).value_of(semaphore.handle) == semaphore.value == 2
        memory.invalidate()
        assert (np.asarray(memory) == 2).all()


def test_a_primary_context_need_not_be_current(primary, cuda):
    if not primary.supports_semaphores():
        pytest.skip("the drivers share no semaphores")
    with Semaphore(primary) as semaphore:
        semaphore.signal_on(0, 1)
        semaphore.wait_on(1, 1)
        assert semaphore.wait(1, 20)
        assert cuda.current() == 0


def test_a_stream_of_another_context_is_refused(shares, cuda):
    with Semaphore(shares) as semaphore:
        other = cuda.create_context()
        try:
            with cuda.stream() as stream, pytest.raises(vkgdr.InvalidArgumentError, match="context"):
                semaphore.wait_on(stream, 0)
        finally:
            other.destroy()


def test_another_thread_runs_during_a_wait(shares):
    with Semaphore(shares) as semaphore:
        thread = threading.Timer(0.05, semaphore.signal, (1,))
        thread.start()
        assert semaphore.wait(1)
        thread.join()


def test_a_closed_semaphore_raises_and_a_dropped_one_leaves_nothing(shares):
    semaphore = Semaphore(shares)
    semaphore.close()
    semaphore.close()
    for use in (lambda: semaphore.value, lambda: semaphore.handle, lambda: semaphore.signal(1)):
        with pytest.raises(vkgdr.FreedError):
            use()
    Semaphore(shares)
    gc.collect()


def test_the_cpu_cannot_lower_the_value(shares):
    with Semaphore(shares, 5) as semaphore:
        for value in (0, 3, 5):
            with pytest.raises(vkgdr.InvalidArgumentError, match=f"{value} is not more than the present one, 5"):
                semaphore.signal(value)
        semaphore.signal(6)
        assert semaphore.value == 6


@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_values_are_64_bit_numbers(shares, value):
    with pytest.raises(OverflowError):
        Semaphore(shares, value)
    with Semaphore(shares) as semaphore, pytest.raises(OverflowError):
        semaphore.signal(value)
    for owner in (None, 5):
        with pytest.raises(TypeError, match="owner"):
            Semaphore(owner)
