"""Memory with kinds to fall back on: ``kind=("mapped", "host")``."""

import pytest
import simulator
import vkgdr


def allocate(gpu, failures, kind):
    """Allocate while that many calls of the driver fail."""
    if failures > 2 and gpu.supports("host") and gpu.memory_type_of("host").index is None:
        pytest.skip("host memory is not Vulkan's on this GPU, and does not run out with it")
    with simulator.no_room(gpu, failures):
        return vkgdr.Memory(gpu, 5000, kind=kind)


@pytest.mark.parametrize("kind", [("mapped", "host"), ["device", "mapped"], ("host",)])
def test_the_first_kind_is_taken_where_there_is_some(gpu, kind):
    assert vkgdr.Memory(gpu, 5, kind=kind).kind == kind[0]


# A collection of garbage comes before the next kind.
@pytest.mark.parametrize(("failures", "kind"), [(1, "mapped"), (2, "host"), (3, "device")])
def test_the_next_kind_is_taken_where_one_is_exhausted(gpu, simulated, live, failures, kind):
    memory = allocate(gpu, failures, ("mapped", "host", "device"))
    assert (memory.kind, memory.nbytes) == (kind, 5000)
    assert live() == 1


def test_without_a_kind_that_is_left_the_error_is_the_first_ones(gpu, simulated, live):
    with pytest.raises(vkgdr.AllocationError, match=r"4\.8 KiB of mapped memory"):
        allocate(gpu, 3, ("mapped", "host"))
    assert live() == 0


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
