"""What every adaptor promises: both views, frees on any thread and after a stream, a clear shortage of memory, no leak.

Each test runs for each library that is installed, in a process of its own. `nox -s adaptors` installs them.
"""

import os
import textwrap

import adaptors
import pytest
import simulator

PRELUDE = """
import gc, sys, threading, warnings
# Libraries warn of each other's versions.
warnings.simplefilter("ignore")
import numpy as np
import adaptors, libcuda, pytest, vkgdr

def start(kind="mapped", pool=False):
    return adaptors.LIBRARIES[NAME](kind, pool=pool)

def view(array):
    return vkgdr.host_view(array).view("i4")

def live():
    gc.collect()
    gpu = vkgdr.Vkgdr.open_primary_context(0)
    gpu.collect()
    return gpu.stats()["live_allocations"]
"""

# The simulated driver's linker; a driver that knows the PTX of the newest compilers.
SETTINGS = {"VKGDR_SIM_PRELOAD": "1", "SIMCUDA_DRIVER_VERSION": "13040"}


@pytest.fixture(params=adaptors.LIBRARIES)
def run(request):
    """Return a function that runs a program with a library, and checks that none of its memory is left at its end.

    On a real driver nobody counts what is left, and programs that need a simulated GPU of their own are skipped.
    """
    name = request.param
    # The other sessions have PyTorch, too, to use it on the CPU.
    if name == "torch.cuda" and not os.environ.get("VKGDR_TEST_TORCH"):
        pytest.skip("needs PyTorch with CUDA: `nox -s adaptors`")
    if not adaptors.can_import(name):
        pytest.skip(f"{name} is not installed")
    if name == "cupy" and simulator.available():
        pytest.skip("CuPy contains a CUDA runtime of its own, which the simulated driver does not start")
    start = request.getfixturevalue("run_python_to_its_end" if simulator.available() else "run_python")

    def run(code, profile=None, **settings):
        program = f"NAME = {name!r}\n" + PRELUDE + textwrap.dedent(code)
        if not simulator.available():
            if profile or settings:
                pytest.skip("needs a simulated GPU of its own")
            return start(program).stdout
        environment = SETTINGS | settings | {"VKGDR_TEST_PROFILE": profile or "none"}
        done = start(program, **environment)
        left = {noun: count for noun, count in done.live.items() if "Vulkan" in noun or noun == "CUDA external"}
        assert not any(left.values()), left
        return done.stdout

    return run


@pytest.mark.parametrize("profile", [None, "non-coherent"])
def test_the_cpu_and_the_device_see_the_same_array(run, profile):
    code = f"""
        library = start()
        one, other = library.array(1000), library.array(1000)
        assert vkgdr.memory_of(one).kind == "mapped"
        seen = view(other)
        seen[:] = 0
        vkgdr.memory_of(seen).flush()
        view(one)[:] = np.arange(1000)
        vkgdr.memory_of(one).flush()
        library.copy(other, one)
        if {profile!r}:
            assert not vkgdr.memory_of(one).is_coherent
            assert (seen == 0).all(), "the profile is coherent"
        vkgdr.memory_of(seen).invalidate()
        assert (seen == np.arange(1000)).all()
        if library.add(other, 5):
            vkgdr.memory_of(other).invalidate()
            assert (seen == np.arange(1000) + 5).all()
        del one, other, seen
    """
    run(code, profile)


@pytest.mark.parametrize("profile", ["dma-buf", "dma-buf-cached", "dma-buf-bar256", "dma-buf-no-vulkan"])
def test_memory_of_the_librarys_own_allocator_has_a_host_view(run, profile):
    code = """
        # Warp and RMM allocate by a CUDA runtime of their own, which the simulated driver does not start.
        if NAME not in ("numba.cuda", "torch.cuda"):
            sys.exit()
        library = start(None)
        one, other = library.array(1000), library.array(1000)
        # No adaptor is in use.
        with pytest.raises(vkgdr.InvalidArgumentError):
            vkgdr.memory_of(one)
        # Written by the CPU, read by the device.
        view(one)[:] = np.arange(1000)
        library.copy(other, one)
        # Written by the device, read by the CPU.
        seen = view(other)
        assert (seen == np.arange(1000)).all()
        if library.add(one, 5):
            assert (view(one) == np.arange(1000) + 5).all()
        one = other = None
        gc.collect()
        assert (seen == np.arange(1000)).all(), "the view does not keep the array"
        del seen
    """
    run(code, profile)


@pytest.mark.parametrize("kind", ["mapped", "host", "device"])
def test_every_kind_of_memory(run, kind):
    run(f"""
        library = start({kind!r})
        array = library.array(1000)
        memory = vkgdr.memory_of(array)
        assert (memory.kind, memory.device_ptr % 256) == ({kind!r}, 0)
        try:
            view(array)
        except vkgdr.NoHostViewError:
            assert {kind!r} == "device"
        del array, memory
    """)


def test_arrays_of_a_pool(run):
    run("""
        library = start(pool=True)
        if NAME == "torch.cuda":
            sys.exit()
        arrays = [library.array(10 + i) for i in range(100)]
        addresses = [vkgdr.memory_of(array).device_ptr for array in arrays]
        assert max(addresses) - min(addresses) < 32 << 20, "more than one block"
        for i, array in enumerate(arrays):
            assert vkgdr.memory_of(array).device_ptr % 256 == 0
            view(array)[:] = i
            vkgdr.memory_of(array).flush()
        assert all((view(array) == i).all() for i, array in enumerate(arrays))
        assert len(vkgdr.memory_of(arrays[3])) == 52
        del array, arrays
    """)


def test_an_array_is_freed_on_another_thread(run):
    run("""
        library = start()
        library.array(1000)
        before = live()
        arrays = [library.array(3_000_000) for _ in range(8)]
        assert live() > before
        threads = [threading.Thread(target=arrays.clear) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if NAME == "numba.cuda":
            manager = library.cuda.current_context().memory_manager
            manager.deallocations.clear()
            # A later allocation releases what numba has freed; closing the source does, too.
            manager._resource.close()
        if NAME == "torch.cuda":
            # A pool keeps its segments.
            library.pool = None
            library.torch.cuda.empty_cache()
        assert live() <= before, (live(), before)
    """)


def test_an_array_is_released_after_its_streams_work(run):
    run("""
        library = start()
        cuda = libcuda.Cuda()
        array = library.array(1000)
        gpu = vkgdr.Vkgdr.open_primary_context(0)
        stream = library.stream(array)
        if stream is None:
            del array
        else:
            with cuda.hold(stream) as gate:
                del array
                gc.collect()
                gpu.collect()
                assert gpu.stats()["deferred_frees"] == 1
                gate.open()
                cuda.synchronize_stream(stream)
            gpu.collect()
            assert gpu.stats()["deferred_frees"] == 0
    """)


def test_a_view_outlives_the_array(run):
    run("""
        library = start()
        array = library.array(1000)
        seen = view(array)
        seen[:] = 7
        del array
        gc.collect()
        assert (seen == 7).all()
        vkgdr.memory_of(seen).flush()
        del seen
    """)


def test_a_shortage_of_memory_is_the_librarys_error(run):
    code = """
        library = start()
        arrays = []
        try:
            while len(arrays) < 100:
                arrays.append(library.array(8 << 20))
        except library.shortage as error:
            text = str(error)
        assert 1 <= len(arrays) <= 8, len(arrays)
        if NAME != "torch.cuda":
            assert "32 MiB of mapped memory" in text, text
        arrays.pop()
        if NAME == "torch.cuda":
            library.torch.cuda.empty_cache()
        arrays.append(library.array(8 << 20))
        arrays.clear()
    """
    run(code, "bar256")


def test_the_next_kind_where_the_bar_is_full(run):
    code = """
        library = start(("mapped", "device")) if NAME != "torch.cuda" else sys.exit()
        arrays = [library.array(8 << 20) for _ in range(12)]
        kinds = [vkgdr.memory_of(array).kind for array in arrays]
        assert kinds[0] == "mapped" and kinds[-1] == "device", kinds
        arrays.clear()
    """
    run(code, "bar256")
