"""The choice between the CPU and the GPU's copy engine for copies."""

import os

import pytest
import simulator
import vkgdr


def test_the_thresholds_can_be_seen_and_set(gpu):
    read, write = before = gpu.copy_thresholds
    assert 0 < read < write
    try:
        gpu.copy_thresholds = 100, 200
        assert vkgdr.Vkgdr(0).copy_thresholds == (100, 200)
    finally:
        gpu.copy_thresholds = before
    with pytest.raises(OverflowError, match="-1"):
        gpu.copy_thresholds = -1, 5


def test_copies_on_both_sides_of_the_thresholds_are_whole(run_python):
    code = """
        import vkgdr
        gpu = vkgdr.Vkgdr.open_primary_context()
        gpu.copy_thresholds = 1000, 2000
        memory = vkgdr.Memory(gpu, 4096)
        memory.copy_from_host(b"a" * 4096)
        gpu.prepare_copies()
        memory.copy_from_host(b"a" * 100)
        memory.copy_from_host(b"b" * 3000)
        assert memory[0:500].tobytes() == b"b" * 500
        assert memory.tobytes() == b"b" * 3000 + b"a" * 1096
    """
    # A profile whose mapped memory is uncached, unlike that of the CPU's Vulkan driver.
    profile = {"VKGDR_TEST_PROFILE": os.environ.get("VKGDR_TEST_PROFILE", "rebar")} if simulator.available() else {}
    run_python(code, **profile)
