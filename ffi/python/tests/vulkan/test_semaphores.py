"""`vkgdr.vulkan.Semaphore`: values that Vulkan's queue, CUDA's streams and the CPU raise and wait for."""

import gc
import threading

import libvulkan
import numpy as np
import pytest
import vkgdr
from vkgdr.vulkan import Semaphore


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
        assert libvulkan.Device(shares.vulkan_handles).value_of(semaphore.handle) == semaphore.value == 2
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


@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_values_are_64_bit_numbers(shares, value):
    with pytest.raises(OverflowError):
        Semaphore(shares, value)
    with Semaphore(shares) as semaphore, pytest.raises(OverflowError):
        semaphore.signal(value)
    for owner in (None, 5):
        with pytest.raises(TypeError, match="owner"):
            Semaphore(owner)
