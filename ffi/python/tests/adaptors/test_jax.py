"""JAX on the CPU: host views that it shares by DLPack, and what it copies or refuses."""

import os

import numpy as np
import pytest
import vkgdr

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="JAX is not installed")


@pytest.fixture
def memory(gpu):
    memory = vkgdr.Memory(gpu, 4096, kind="host")
    memory.copy_from_host(np.arange(1024, dtype="f4"))
    return memory


def test_from_dlpack_shares_the_host_view_and_keeps_the_memory(memory):
    view = memory.get_host_array(dtype="f4")
    shared = jax.dlpack.from_dlpack(view)
    assert shared.unsafe_buffer_pointer() == memory.host_ptr
    assert (np.asarray(jax.jit(lambda x: x + 1)(shared)) == np.arange(1, 1025)).all()
    assert jax.dlpack.from_dlpack(memory.host).unsafe_buffer_pointer() == memory.host_ptr
    del view
    memory.free()
    assert float(shared[5]) == 5


def test_asarray_and_unaligned_arrays_are_copies(memory):
    view = memory.get_host_array(dtype="f4")
    copies = [jax.numpy.asarray(view), jax.dlpack.from_dlpack(view[1:])]
    view[:] = 7
    assert [float(copy[4]) for copy in copies] == [4, 5]


def test_read_only_arrays_are_refused(memory):
    view = memory.get_host_array(dtype="f4")
    view.flags.writeable = False
    with pytest.raises(BufferError, match="readonly"):
        jax.dlpack.from_dlpack(view)


def test_the_device_view_needs_jax_with_cuda(memory):
    with pytest.raises(RuntimeError, match="cuda"):
        jax.dlpack.from_dlpack(memory)
