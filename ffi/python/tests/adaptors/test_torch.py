"""PyTorch's pools: the device that one serves, and what keeps its allocator."""

import os

import adaptors
import pytest
import simulator


def test_a_pool_serves_the_device_that_it_was_made_for(run_python):
    if not os.environ.get("VKGDR_TEST_TORCH"):
        pytest.skip("needs PyTorch with CUDA: `nox -s adaptors`")
    if not adaptors.can_import("torch.cuda"):
        pytest.skip("PyTorch is not installed")
    if not simulator.available():
        pytest.skip("needs a simulated GPU with two devices")
    code = """
        import warnings
        warnings.simplefilter("ignore")
        import torch, vkgdr, vkgdr.torch

        def place(tensor):
            memory = vkgdr.memory_of(tensor)
            return memory.kind, memory.device

        with vkgdr.torch.mapped(device=1):
            assert torch.cuda.current_device() == 0
            assert place(torch.empty(1000, device="cuda:1")) == ("mapped", 1)
        with torch.cuda.device(1), vkgdr.torch.mapped():
            assert place(torch.empty(1000, device="cuda")) == ("mapped", 1)
        for device in (1, "cuda:1", torch.device("cuda", 1)):
            pool = vkgdr.torch.mem_pool("host", device=device)
            with torch.cuda.use_mem_pool(pool, 1):
                assert place(torch.empty(1000, device="cuda:1")) == ("host", 1)
        with vkgdr.torch.mapped():
            assert place(torch.empty(1000, device="cuda")) == ("mapped", 0)
    """
    settings = {"VKGDR_SIM_PRELOAD": "1", "SIMCUDA_DRIVER_VERSION": "13040", "VKGDR_TEST_PROFILE": "two-gpus"}
    run_python(code, **settings)


def test_an_allocator_lives_as_long_as_the_module(run_python):
    pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
    run_python("""
        import warnings
        warnings.simplefilter("ignore")
        import gc, weakref, vkgdr, vkgdr.torch
        seen = weakref.ref(vkgdr.torch.allocator())
        gc.collect()
        assert seen() is vkgdr.torch.allocator("mapped")
        assert vkgdr.torch.allocator("host") is not seen()
        for kind in ("vram", ["mapped"]):
            try:
                vkgdr.torch.allocator(kind)
            except vkgdr.InvalidArgumentError:
                continue
            raise AssertionError(kind)
    """)


def test_a_shortage_of_memory_is_not_logged(simulated, run_python):
    # Without Vulkan, device memory is CUDA's: its shortage is another error than Vulkan's. Needs no PyTorch.
    code = """
        import native
        assert native.torch_allocator().vkgdr_torch_alloc_device(1 << 20, 0, None) is None
    """
    every = ",".join(f"cuMemAlloc:{nth}:{simulator.OUT_OF_MEMORY}" for nth in range(1, 50))
    assert run_python(code, VKGDR_TEST_PROFILE="no-vulkan", SIMCUDA_FAIL=every).stderr == ""
