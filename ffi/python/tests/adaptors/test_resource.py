"""The allocator by address under all adaptors: `vkgdr._vkgdr.Resource`."""

import gc
from functools import partial

import numpy as np
import pytest
import simulator
import vkgdr
from libcuda import NON_BLOCKING
from neighbours import Stream, counter, every_kind, in_threads, wait_at
from vkgdr._vkgdr import Resource

LEGACY, PER_THREAD = 1, 2
both = pytest.mark.parametrize("pool", [False, True], ids=["dedicated", "pool"])


@both
@every_kind
def test_the_address_is_that_of_the_memory(current_primary, kind, pool):
    resource = Resource(kind, pool=pool)
    addresses = [resource.allocate(size) for size in (1, 300, 5_000_000)]
    assert len(resource) == 3
    for address, size in zip(addresses, (1, 300, 5_000_000), strict=True):
        assert address % 256 == 0
        memory = vkgdr.memory_of(address)
        assert (memory.kind, len(memory), memory.device_ptr) == (kind, size, address)
        resource.free(address)
        del memory
        with pytest.raises(vkgdr.InvalidArgumentError, match="not an address"):
            vkgdr.memory_of(address)
    assert len(resource) == 0


def test_any_allocation_that_finds_no_room_releases_what_was_retired(primary, simulated):
    live, resource = counter(primary), Resource()
    resource.retire(resource.allocate(4096))
    assert live() == 1
    with simulator.no_room(primary):
        memory = vkgdr.Memory(primary, 64)
    assert live() == 1
    memory.free()


@both
def test_a_size_of_0_is_address_0(pool):
    resource = Resource(pool=pool)
    assert resource.allocate(0) == 0
    resource.free(0)
    resource.free(0, 0)
    resource.record_stream(0, 0)
    assert len(resource) == 0


@both
def test_a_capture_survives_what_is_retired_meanwhile(current_primary, cuda, pool):
    resource = Resource(pool=pool)
    addresses = [resource.allocate(1000) for _ in range(30)]
    with cuda.stream(NON_BLOCKING) as stream, cuda.capture(stream):
        for address in addresses:
            resource.retire(address)
        kept = resource.allocate(1000)
    assert len(resource) == 1
    with pytest.raises(vkgdr.InvalidArgumentError, match=f"{addresses[0]:#x}"):
        resource.retire(addresses[0])
    resource.free(kept)
    resource.close()


def test_retired_memory_is_released_when_there_is_much_of_it_and_at_the_close(current_primary):
    resource, live = Resource(), counter(current_primary)
    for address in [resource.allocate(1 << 20) for _ in range(40)]:
        resource.retire(address)
    assert (len(resource), live()) == (0, 40)
    resource.retire(resource.allocate(1))
    assert live() == 1
    current_primary.collect()
    assert live() == 0
    resource.retire(resource.allocate(1))
    resource.close()
    assert live() == 0


def test_an_address_is_freed_once(primary):
    resource = Resource()
    address = resource.allocate(100)
    resource.free(address)
    for wrong in (address, address + 1, 12345):
        with pytest.raises(vkgdr.InvalidArgumentError, match=f"{wrong:#x}"):
            resource.free(wrong)
        with pytest.raises(vkgdr.InvalidArgumentError, match=f"{wrong:#x}"):
            resource.record_stream(wrong, 0)


def test_invalid_arguments_are_refused(primary):
    with pytest.raises(vkgdr.InvalidArgumentError, match="kind"):
        Resource("vram")
    with pytest.raises(vkgdr.InvalidArgumentError, match="kind"):
        Resource(())
    resource = Resource()
    for size in (-1, 1 << 64):
        with pytest.raises(OverflowError, match="number of bytes"):
            resource.allocate(size)
    with pytest.raises(vkgdr.VkgdrError, match="CUDA_ERROR_INVALID_DEVICE"):
        resource.allocate(1, 99)
    with pytest.raises(TypeError, match="not a CUDA stream"):
        resource.free(1, "stream")


EVERY_ALLOCATION = ",".join(f"cuMemAlloc:{nth}:{simulator.OUT_OF_MEMORY}" for nth in range(1, 50))
# The kind that is missing or exhausted, the settings for that, a size, and the error without another kind.
SHORTAGES = {
    "a full BAR": ("mapped", {"VKGDR_TEST_PROFILE": "bar256"}, 512 << 20, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
    "no Vulkan": ("mapped", {"VKGDR_TEST_PROFILE": "no-vulkan"}, 100, "Vulkan"),
    "a full GPU": (
        "device",
        {"VKGDR_TEST_PROFILE": "no-vulkan", "SIMCUDA_FAIL": EVERY_ALLOCATION},
        16 << 20,
        "CUDA_ERROR_OUT_OF_MEMORY",
    ),
}


@both
@pytest.mark.parametrize("shortage", SHORTAGES)
def test_the_next_kind_is_taken_where_one_is_missing_or_exhausted(run_python, simulated, pool, shortage):
    kind, settings, size, text = SHORTAGES[shortage]
    code = f"""
        import pytest, vkgdr
        from vkgdr._vkgdr import Resource
        resource = Resource(({kind!r}, "host"), pool={pool})
        assert 0 < resource.memory_info()[0] <= resource.memory_info()[1]
        for size in ({size}, {size}, 16 << 20):
            address = resource.allocate(size)
            expected = "mapped" if {shortage!r} == "a full BAR" and size == 16 << 20 else "host"
            assert vkgdr.memory_of(address).kind == expected
            resource.free(address)
        alone = Resource({kind!r}, pool={pool})
        for use in (lambda: alone.allocate({size}), *([alone.memory_info] if {shortage!r} == "no Vulkan" else [])):
            with pytest.raises(vkgdr.VkgdrError, match={text!r}):
                use()
    """
    run_python(code, **settings)


@both
def test_memory_is_released_after_the_streams_work(cuda, current_primary, simulated, pool):
    resource = Resource(pool=pool)
    gpu = resource.handle(0)
    for streams in (0, LEGACY, None):
        with cuda.stream() as stream:
            address = resource.allocate(6_000_000)
            with cuda.hold(stream) as gate:
                resource.free(address, Stream(stream))
                gpu.collect()
                assert gpu.stats()["deferred_frees"] == 1, streams
                gate.open()
                cuda.synchronize_stream(stream)
                gpu.collect()
                assert gpu.stats()["deferred_frees"] == 0
    for stream in (0, LEGACY, PER_THREAD):
        resource.free(resource.allocate(100, stream=stream), stream)
    del gpu


def test_without_a_stream_a_free_waits_for_the_context(cuda, current_primary, simulated):
    resource = Resource()
    address = resource.allocate(100)
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        wait_at(gate, lambda: resource.free(address), cuda.current())


def test_a_recorded_stream_is_waited_for(cuda, current_primary, simulated):
    resource = Resource()
    address = resource.allocate(100)
    with cuda.stream() as stream, cuda.stream() as other, cuda.hold(other) as gate:
        gpu = resource.handle(0)
        resource.record_stream(address, other)
        # The free does not wait, but the release does.
        resource.free(address, stream)
        gpu.collect()
        assert gpu.stats()["deferred_frees"] == 1
        gate.open()
        cuda.synchronize()
        gpu.collect()
        assert gpu.stats()["deferred_frees"] == 0


def test_a_stream_may_be_destroyed_after_the_free(cuda, current_primary):
    resource = Resource(pool=True)
    view = None
    for _ in range(3):
        stream = cuda.create_stream()
        address = resource.allocate(300, stream=stream)
        # A view outlives the free: it must not use the stream later.
        view = vkgdr.memory_of(address)
        resource.free(address, stream)
        cuda.destroy_stream(stream)
        view.memset(7)
        assert view.tobytes() == b"\7" * 300
    del view
    gc.collect()


def test_a_stream_of_another_context_means_the_whole_context(cuda, primary):
    resource = Resource(pool=True)
    context = cuda.create_context()
    with cuda.stream() as stream:
        address = resource.allocate(300, 0, stream)
        resource.free(address, stream)
    gc.collect()
    context.destroy()


@both
def test_memory_is_freed_on_another_thread(cuda, current_primary, primary, pool):
    resource = Resource(pool=pool)
    addresses = [resource.allocate(1000) for _ in range(50)]

    def free(part):
        for address in part:
            resource.free(address, 0)

    in_threads(*(partial(free, addresses[first::4]) for first in range(4)))
    assert len(resource) == 0
    # Threads that record events on one stream find it busy: those frees wait for the next call on the GPU.
    cuda.synchronize()
    primary.collect()
    assert primary.stats()["deferred_frees"] == 0


@both
def test_a_view_keeps_freed_memory(primary, pool):
    resource = Resource(pool=pool)
    address = resource.allocate(100)
    memory = vkgdr.memory_of(address)
    array = np.asarray(memory)
    resource.free(address, 0)
    del memory
    array[:] = 5
    assert bytes(array) == b"\5" * 100


@both
def test_a_closed_source_opens_again_and_a_dropped_one_frees_its_memory(primary, pool):
    live = counter(primary)
    resource = Resource(pool=pool)
    address = resource.allocate(100)
    resource.close()
    resource.close()
    again = resource.allocate(100)
    resource.free(address)
    resource.free(again)
    assert resource.memory_info()[1] > 0
    resource.allocate(100)
    resource.allocate(5_000_000)
    assert live() >= 2
    del resource
    assert live() == 0


def test_the_device_is_that_of_the_current_context(run_python, simulated):
    code = """
        import libcuda, vkgdr
        from vkgdr._vkgdr import Resource
        cuda, resource = libcuda.Cuda(), Resource()
        assert vkgdr.memory_of(resource.allocate(10)).device == 0
        cuda.push(cuda.retain_primary(1))
        assert vkgdr.memory_of(resource.allocate(10)).device == 1
        assert vkgdr.memory_of(resource.allocate(10, 0)).device == 0
    """
    run_python(code, VKGDR_TEST_PROFILE="two-gpus")
