"""Kinds of memory where the drivers do not share Vulkan's, kinds to fall back on, and the copy engine."""

import os

import pytest
import simulator
import vkgdr

OPEN = """
import os, pytest
import vkgdr
from vkgdr._vkgdr import foreign

gpu = vkgdr.Vkgdr.open_primary_context(0)
"""

USE_HOST = """
assert gpu.supports("host")
memory_type, info = gpu.memory_type_of("host"), gpu.memory_info("host")
assert (memory_type.index, memory_type.heap, info.source) == (None, None, "system"), (memory_type, info)
assert "index=None, heap=None" in repr(memory_type) and "HOST_CACHED" in memory_type.flags
assert 0 < info.free <= info.total == memory_type.heap_size
memory = vkgdr.Memory(gpu, 5000, kind="host")
assert vkgdr.Memory._over(foreign(memory.device_ptr, 5000, True, None)).device == 0
memory.copy_from_host(b"hello")
descriptor = memory.export_fd()
shared = vkgdr.Memory.import_fd(gpu, descriptor, 5000, kind="host")
os.close(descriptor)
assert shared.tobytes()[:5] == b"hello"
shared.copy_from_host(b"world", offset=4995)
assert memory.tobytes()[-5:] == b"world"
"""

USE_DEVICE = """
device = vkgdr.Memory(gpu, 5000, kind="device")
device.copy_from_device(memory)
memory.copy_from_host(bytes(5000))
memory.copy_from_device(device)
assert memory.tobytes()[-5:] == b"world"
device.free()
print("ok")
"""

WITHOUT_VULKAN = """
assert [gpu.supports(kind) for kind in ("mapped", "host", "device")] == [False, True, True]
assert gpu.memory_types() == []
assert gpu.memory_info("device").source == "cuMemGetInfo"
missing = "vkCreateInstance failed (VK_ERROR_INCOMPATIBLE_DRIVER)"
asks = [
    lambda: vkgdr.Memory(gpu, 1),
    lambda: gpu.memory_info("mapped"),
    lambda: gpu.memory_type_of("mapped"),
    lambda: vkgdr.Vkgdr(0, vkgdr.OpenFlags.REQUIRE_COHERENT_BIT),
]
for ask in asks:
    with pytest.raises(vkgdr.VkgdrError) as refused:
        ask()
    assert str(refused.value).startswith(missing) and refused.value.vk_result == -9, refused.value
with pytest.raises(vkgdr.InvalidArgumentError, match="cannot be exported"):
    vkgdr.Memory(gpu, 1, kind="device").export_fd()
"""


# On the first, host memory is registered pages; on the second, that and device memory are all that there is.
@pytest.mark.parametrize(("profile", "checks"), [("rebar", ""), ("no-vulkan", WITHOUT_VULKAN)])
def test_memory_that_is_not_from_vulkan(run_python, profile, checks):
    simulator.require()
    assert run_python(OPEN + checks + USE_HOST + USE_DEVICE, VKGDR_TEST_PROFILE=profile).stdout == "ok\n"


# ---- kinds to fall back on: ``kind=("mapped", "host")``


def allocate(gpu, failures, kind):
    """Allocate while that many calls of the driver fail."""
    if failures > 1 and gpu.supports("host") and gpu.memory_type_of("host").index is None:
        pytest.skip("host memory is not Vulkan's on this GPU, and does not run out with it")
    with simulator.no_room(gpu, failures):
        return vkgdr.Memory(gpu, 5000, kind=kind)


@pytest.mark.parametrize("kind", [("mapped", "host"), ["device", "mapped"], ("host",)])
def test_the_first_kind_is_taken_where_there_is_some(gpu, kind):
    assert vkgdr.Memory(gpu, 5, kind=kind).kind == kind[0]


# A collection of garbage comes after the last kind: it takes long in a large program.
@pytest.mark.parametrize(("failures", "kind"), [(1, "host"), (2, "device"), (3, "mapped")])
def test_the_next_kind_is_taken_where_one_is_exhausted(gpu, simulated, live, failures, kind):
    memory = allocate(gpu, failures, ("mapped", "host", "device"))
    assert (memory.kind, memory.nbytes) == (kind, 5000)
    assert live() == 1


def test_without_a_kind_that_is_left_the_error_is_the_first_ones(gpu, simulated, live):
    with pytest.raises(vkgdr.AllocationError, match=r"4\.8 KiB of mapped memory"):
        allocate(gpu, 4, ("mapped", "host"))
    assert live() == 0


@pytest.mark.parametrize("allocate", ["vkgdr.Memory(gpu, 9, kind=kinds)", "Resource(kinds, pool=True).allocate(9)"])
def test_the_error_is_that_of_the_kind_that_is_exhausted_not_of_the_one_that_is_missing(run_python, allocate):
    simulator.require()
    code = """
    import contextlib, simulator, vkgdr
    from vkgdr._vkgdr import Resource
    gpu, kinds = vkgdr.Vkgdr.open_primary_context(0), ("mapped", "device")
    with contextlib.ExitStack() as stack:
        for nth in range(1, 9):
            stack.enter_context(simulator.fail("cuMemAlloc", nth, simulator.OUT_OF_MEMORY, must_happen=False))
        try:
            ALLOCATE
        except MemoryError as error:
            print(error)
    """
    finished = run_python(code.replace("ALLOCATE", allocate), VKGDR_TEST_PROFILE="no-vulkan")
    assert finished.stdout.startswith("cuMemAlloc failed (CUDA_ERROR_OUT_OF_MEMORY)")


def test_other_errors_are_raised_at_once(gpu):
    with pytest.raises(vkgdr.InvalidArgumentError, match="0 bytes of mapped"):
        vkgdr.Memory(gpu, 0, kind=("mapped", "host"))
    with pytest.raises(vkgdr.InvalidArgumentError, match="no kind is given"):
        vkgdr.Memory(gpu, 5, kind=())
    with pytest.raises(vkgdr.InvalidArgumentError, match=r"invalid kind 'gpu': expected 'mapped', 'host' or 'device'"):
        vkgdr.Memory(gpu, 5, kind=("mapped", "gpu"))


def test_the_wait_of_a_shortage_can_be_set(gpu):
    gpu.set_shortage_timeout(0)
    gpu.set_shortage_timeout(0.5)
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(vkgdr.InvalidArgumentError, match="seconds"):
            gpu.set_shortage_timeout(seconds)


# ---- the choice between the CPU and the GPU's copy engine ------------------------------------------------------------


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
