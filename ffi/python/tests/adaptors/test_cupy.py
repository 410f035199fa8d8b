"""CuPy's adaptor with CuPy's real memory classes.

CuPy itself allocates by the CUDA runtime that is linked into it, which the simulated driver does not support: that
needs a GPU, as its kernels and streams do.
"""

import importlib.util

import pytest


def test_cupys_arrays_over_memory_of_the_adaptor(run_python):
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("cupy is not installed")
    code = """
        import gc, warnings
        warnings.simplefilter("ignore")
        import cupy, numpy as np, vkgdr, vkgdr.cupy
        assert callable(vkgdr.cupy.allocator())

        class Functions:
            def __init__(self, *functions):
                self.malloc = functions

        vkgdr.cupy.PythonFunctionAllocator = Functions
        allocate, free = vkgdr.cupy.allocator()
        assert allocate(0, 0) == 0
        address = allocate(4000, 0)

        class Owner:
            def __del__(self):
                free(address, 0)

        memory = cupy.cuda.UnownedMemory(address, 4000, Owner(), device_id=0)
        array = cupy.ndarray(1000, "i4", memptr=cupy.cuda.MemoryPointer(memory, 0))
        found = vkgdr.memory_of(array.data.ptr)
        assert (found.device_ptr, len(found), found.kind) == (address, 4000, "mapped")
        np.asarray(found.host).view("i4")[:] = 7
        found.flush()
        part = array[10:20]
        assert vkgdr.memory_of(part.data.ptr).offset == 40
        del found, part, array, memory
        gc.collect()
        assert vkgdr.Vkgdr.open_primary_context(0).stats()["live_allocations"] == 0
        try:
            allocate(1 << 50, 0)
        except MemoryError as error:
            assert "mapped memory" in str(error)
        else:
            raise AssertionError
    """
    run_python(code, VKGDR_SIM_PRELOAD="1", VKGDR_TEST_PROFILE="none")
