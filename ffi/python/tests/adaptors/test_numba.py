"""The External Memory Management plug-in of numba-cuda. Each test is named after its part of the interface."""

from pathlib import Path

import adaptors
import pytest

PRELUDE = """
import gc, os, pickle, subprocess, sys, warnings
import pytest
warnings.simplefilter("ignore")
import numpy as np
import vkgdr
from numba import cuda

def manager():
    return cuda.current_context().memory_manager
"""


@pytest.fixture
def run(run_python):
    """Return a function that runs a program in which numba allocates in memory of vkgdr."""
    manager = {"NUMBA_CUDA_MEMORY_MANAGER": "vkgdr.numba"}
    return adaptors.runner(run_python, "numba_cuda", "numba-cuda", PRELUDE, **manager)


def test_constructor_does_not_use_the_gpu(run):
    run("""
        import vkgdr.numba
        with open("/proc/self/maps") as maps:
            before = "libvulkan" in maps.read()
        manager = vkgdr.numba.VkgdrNumbaManager(context=None)
        with open("/proc/self/maps") as maps:
            assert ("libvulkan" in maps.read()) == before
        assert manager.interface_version == 1
        with pytest.raises(RuntimeError, match="context"):
            vkgdr.numba.VkgdrNumbaManager()
    """)


def test_selection_by_the_environment_and_by_set_memory_manager(run):
    run("""
        import vkgdr.numba
        assert type(manager()) is vkgdr.numba.VkgdrNumbaManager is vkgdr.numba._numba_memory_manager
    """)
    code = """
        import vkgdr.numba
        cuda.set_memory_manager(vkgdr.numba.manager(("mapped", "device"), pool=True))
        assert manager().pool
        assert vkgdr.memory_of(cuda.device_array(3)).kind == "mapped"
        with pytest.raises(ValueError, match="kind"):
            vkgdr.numba.manager("vram")
    """
    run(code, NUMBA_CUDA_MEMORY_MANAGER="default")


def test_memalloc(run):
    run("""
        array = cuda.device_array(100)
        memory = vkgdr.memory_of(array)
        assert (memory.kind, len(memory)) == ("mapped", 800)
        pointer = cuda.current_context().memalloc(10)
        assert pointer.size == 10
        pointer.free()
        for size in (0, -1):
            with pytest.raises(Exception, match="INVALID_VALUE"):
                cuda.current_context().memalloc(size)
    """)


def test_memalloc_frees_pending_memory_when_descriptors_are_exhausted(run):
    run("""
        import resource
        cuda.device_array(1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        arrays = []
        try:
            while True:
                arrays.append(cuda.device_array(1))
        except vkgdr.VkgdrError as error:
            assert "too many open files" in str(error), error
        arrays.pop()
        assert len(manager().deallocations) == 1
        cuda.device_array(1)
    """)


def test_memalloc_frees_pending_memory_and_tries_again(run):
    code = """
        size = 100 << 20
        for _ in range(10):
            array = cuda.device_array(size, "u1")
            del array
        with cuda.defer_cleanup():
            first = cuda.device_array(size, "u1")
            del first
            second = cuda.device_array(size, "u1")
            with pytest.raises(cuda.cudadrv.driver.CudaAPIError, match="OUT_OF_MEMORY"):
                cuda.device_array(size, "u1")
        cuda.device_array(size, "u1")
    """
    run(code, VKGDR_TEST_PROFILE="bar256")


def test_memhostalloc(run):
    run("""
        context = cuda.current_context()
        for wc, kind in ((False, "host"), (True, "mapped")):
            memory = context.memhostalloc(100, mapped=True, wc=wc)
            found = vkgdr.memory_of(memory.device_pointer_value)
            assert (found.kind, found.host_ptr) == (kind, memory.host_pointer)
            view = np.ndarray(100, "u1", buffer=memory)
            view[:] = 7
            found.flush()
            assert found.tobytes() == bytes([7]) * 100
            del view, memory, found
        plain = context.memhostalloc(100)
        portable = context.memhostalloc(100, mapped=True, portable=True)
        for memory in (plain, portable):
            with pytest.raises(vkgdr.InvalidArgumentError):
                vkgdr.memory_of(memory.host_pointer)
    """)


def test_mapped_array(run):
    run("""
        @cuda.jit
        def double(array):
            i = cuda.grid(1)
            if i < array.size:
                array[i] *= 2

        array = cuda.mapped_array(100, "i4")
        array[:] = np.arange(100)
        assert vkgdr.memory_of(np.asarray(array)).kind == "host"
        double[1, 128](array)
        cuda.synchronize()
        assert (array == 2 * np.arange(100)).all()
        like = cuda.mapped_array_like(array)
        like[:] = array
        assert (like == array).all()
        cuda.cudadrv.driver.device_memset(array, 0, cuda.cudadrv.driver.device_memory_size(array))
        assert not array.any()
    """)


def test_mempin(run):
    run("""
        array = np.zeros(1000)
        with cuda.pinned(array), cuda.mapped(np.zeros(1000)) as mapped:
            cuda.to_device(array)
            mapped.copy_to_device(np.ones(1000))
    """)


def test_reset(run):
    run("""
        gpu = vkgdr.Vkgdr.open_primary_context(0)
        array = cuda.to_device(np.arange(5))
        view = vkgdr.host_view(array)
        assert gpu.stats()["live_allocations"] >= 1
        gone = cuda.to_device(np.arange(7))
        before = gpu.stats()["live_allocations"]
        cuda.current_context().reset()
        assert gpu.stats()["live_allocations"] == before - 1
        assert (view == np.arange(5)).all()
        del view
        again = cuda.to_device(np.arange(5))
        assert (again.copy_to_host() == np.arange(5)).all()
        cuda.current_context().reset()
        manager().reset()
    """)


def test_get_memory_info(run):
    code = """
        info = cuda.current_context().get_memory_info()
        assert 0 < info.free <= info.total == vkgdr.Vkgdr.open_primary_context(0).memory_info("mapped").total
        assert info.total < 256 << 20
    """
    run(code, VKGDR_TEST_PROFILE="bar256")


# Opens the handle in another process, with its own manager and with numba's.
OPEN = """
import pickle, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, vkgdr
from numba import cuda
with pickle.loads(bytes.fromhex(sys.argv[1])) as array:
    assert (array.copy_to_host() == np.arange(5)).all()
    vkgdr.host_view(array)[0] = 7
    vkgdr.memory_of(array).flush()
"""


OPEN_BYTES = """
import sys, numpy as np, vkgdr.numba
with vkgdr.numba.open_ipc_array(bytes.fromhex(sys.argv[1]), 5, np.int64, offset=16) as array:
    assert array.copy_to_host().tolist() == [2, 3, 4, 5, 6]
"""


@pytest.mark.parametrize("other", ["vkgdr.numba", "default"])
def test_get_ipc_handle(run, other):
    code = f"""
        array = cuda.to_device(np.arange(10))
        handle = array[0:5].get_ipc_handle()
        data = pickle.dumps(handle).hex()
        environment = os.environ | {{"NUMBA_CUDA_MEMORY_MANAGER": {other!r}}}
        for value in (0, 0):
            subprocess.run([sys.executable, "-c", os.environ["OPEN"], data], env=environment, check=True)
            assert array.copy_to_host().tolist() == [7, *range(1, 10)]
            array[0] = value
        import vkgdr.numba
        array.copy_to_device(np.arange(10))
        offer = array.get_ipc_handle()._ipc_handle.handle.reserved.hex()
        subprocess.run([sys.executable, "-c", os.environ["OPEN_BYTES"], offer], env=environment, check=True)
    """
    run(code, OPEN=OPEN, OPEN_BYTES=OPEN_BYTES)


def test_get_ipc_handle_of_a_pool_is_refused(run):
    code = """
        import vkgdr.numba
        cuda.set_memory_manager(vkgdr.numba.manager(pool=True))
        with pytest.raises(vkgdr.InvalidArgumentError, match="pool"):
            cuda.device_array(3).get_ipc_handle()
    """
    run(code, NUMBA_CUDA_MEMORY_MANAGER="default")


def test_device_memory_size_of_a_pool_is_exact(run):
    code = """
        import vkgdr.numba
        from numba.cuda.cudadrv import driver
        cuda.set_memory_manager(vkgdr.numba.manager(pool=True))
        one, other = cuda.to_device(np.arange(10)), cuda.to_device(np.arange(20))
        assert (driver.device_memory_size(one), driver.device_memory_size(other)) == (80, 160)
        first, end = driver.device_extents(one[5:])
        assert (first, end - first) == (one.device_ctypes_pointer.value, 80)
    """
    run(code, NUMBA_CUDA_MEMORY_MANAGER="default")


def test_defer_cleanup(run):
    run("""
        cuda.to_device(np.arange(3))
        manager().deallocations.clear()
        before = len(manager()._resource)
        with cuda.defer_cleanup(), cuda.defer_cleanup():
            for _ in range(20):
                cuda.to_device(np.arange(3))
            manager().deallocations.clear()
            assert len(manager()._resource) == before + 20
        manager().deallocations.clear()
        assert len(manager()._resource) == before
    """)


def test_the_program_of_the_readme_prints_what_the_kernel_wrote(run):
    readme = (Path(__file__).parents[4] / "README.md").read_text(encoding="utf-8")
    printed = run(readme.partition("```python\n")[2].partition("```")[0])
    assert printed.startswith("the GPU wrote ["), printed
    assert "2.62142e+05" in printed, printed
