"""The choice between the CPU and the GPU's copy engine for copies."""

import os

import pytest
import simulator
import vkgdr

COUNTERS = ("cpu_reads", "cpu_writes", "dma_reads", "dma_writes")


def test_the_thresholds_can_be_seen_and_set(gpu):
    before = gpu.copy_thresholds
    read, write = before
    assert 0 < read < write
    try:
        gpu.copy_thresholds = 100, 200
        assert vkgdr.Vkgdr(0).copy_thresholds == (100, 200)
    finally:
        gpu.copy_thresholds = before
    with pytest.raises(OverflowError, match="-1"):
        gpu.copy_thresholds = -1, 5


def test_calibrating_gives_the_thresholds_that_are_used(gpu):
    before = gpu.copy_thresholds
    try:
        assert gpu.calibrate() == gpu.copy_thresholds
    finally:
        gpu.copy_thresholds = before


def test_stats_count_which_way_copies_took(run_python):
    code = """
        import vkgdr
        gpu = vkgdr.Vkgdr.open_primary_context()
        gpu.copy_thresholds = 1000, 2000
        memory = vkgdr.Memory(gpu, 4096)
        memory.copy_from_host(b"a" * 4096)
        assert gpu.stats()["dma_writes"] == 0
        gpu.prepare_copies()
        memory.copy_from_host(b"a" * 100)
        memory.copy_from_host(b"b" * 3000)
        assert memory[0:500].tobytes() == b"b" * 500
        assert memory.tobytes()[:3000] == b"b" * 3000
        stats = gpu.stats()
        flags = [flag for flag in ("HOST_COHERENT", "HOST_CACHED") if flag in memory.property_flags]
        print(flags, [stats[name] for name in COUNTERS], stats["dma_written_bytes"])
    """.replace("COUNTERS", repr(COUNTERS))
    # The CPU copies memory that is not coherent; copies of memory that it caches are not counted.
    expected = (
        "['HOST_COHERENT'] [1, 2, 1, 1] 3000\n",
        "[] [2, 3, 0, 0] 0\n",
        "['HOST_COHERENT', 'HOST_CACHED'] [0, 0, 0, 0] 0\n",
    )
    # A profile whose mapped memory is uncached, unlike that of the CPU's Vulkan driver.
    profile = {"VKGDR_TEST_PROFILE": os.environ.get("VKGDR_TEST_PROFILE", "rebar")} if simulator.available() else {}
    assert run_python(code, **profile).stdout in expected
