"""A small project with numba: what `pytest --vkgdr-sim` is for."""

import numpy as np
import vkgdr
from numba import cuda


@cuda.jit
def double(values):
    at = cuda.grid(1)
    if at < values.size:
        values[at] *= 2


def mapped():
    """Allocate memory that the CPU writes through a plain pointer; return it with its host view."""
    cuda.current_context()
    memory = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(), 4096)
    return memory, np.asarray(memory).view(np.float32)


def double_on_the_gpu(memory):
    double[8, 128](cuda.as_cuda_array(memory).view(np.float32))
    cuda.synchronize()
    memory.invalidate()


def test_a_kernel_doubles_an_array():
    values = cuda.to_device(np.arange(1000, dtype=np.float32))
    double[8, 128](values)
    assert (values.copy_to_host() == 2 * np.arange(1000)).all()


def test_the_gpu_sees_what_the_cpu_wrote_and_flushed():
    memory, samples = mapped()
    samples[:] = 0.25
    memory.flush()
    double_on_the_gpu(memory)
    assert (samples == 0.5).all()


def test_with_a_forgotten_flush():
    memory, samples = mapped()
    samples[:] = 0.25
    double_on_the_gpu(memory)
    assert (samples == 0.5).all()
