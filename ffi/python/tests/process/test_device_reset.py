"""Programs that reset the device (``cuDevicePrimaryCtxReset``) and go on: what this package keeps is opened again."""

import textwrap

import pytest
from neighbours import every_kind

PRELUDE = """
import libcuda, vkgdr
from vkgdr._vkgdr import Resource
cuda = libcuda.Cuda()

def enter():
    cuda.push(cuda.retain_primary())

def reset():
    cuda.reset_primary()
    while cuda.current():
        cuda.pop()

def use(address):
    enter()
    cuda.call("cuMemsetD8_v2", address, 7, 1000)
    cuda.synchronize()
    assert bytes(vkgdr.memory_of(address).copy_to_host())[:1000] == bytes([7]) * 1000
    cuda.pop()
"""

both = pytest.mark.parametrize("pool", [False, True], ids=["dedicated", "pool"])


@pytest.fixture
def run(run_python, simulated):
    """Return a function that runs code after `PRELUDE` in a new process."""

    def run(code, **environment):
        return run_python(PRELUDE + textwrap.dedent(code), **environment)

    return run


@every_kind
@both
@pytest.mark.parametrize("current", [False, True], ids=["no context", "its context"])
def test_a_source_allocates_in_the_new_context(run, kind, pool, current):
    run(f"""
        source = Resource({kind!r}, pool={pool})
        old = []
        for _ in range(3):
            if {current}:
                enter()
            # What a pool keeps is gone with the context.
            source.free(source.allocate(100_000))
            addresses = [source.allocate(size, 0) for size in (1000, 1 << 20)]
            for address in addresses:
                use(address)
            source.free(addresses[0])
            source.handle(0).memory_info("device")
            reset()
        assert len(source) <= 3
        source.close()
    """)


@both
def test_a_source_allocates_where_the_old_context_is_still_current(run, pool):
    run(f"""
        source = Resource(pool={pool})
        enter()
        old = source.allocate(1000)
        cuda.reset_primary()
        for _ in range(2):
            new = source.allocate(1000, 0)
            use(new)
            source.free(new)
        source.free(old)
        assert len(source) == 0
    """)


def test_the_default_handle_is_opened_again(run):
    run("""
        from vkgdr import arrays
        before = vkgdr.compat.rmm.Buffer(size=1000)
        for _ in range(3):
            array = arrays.mapped_array((1000,), "u1")
            array[:] = 7
            assert array.sum() == 7000
            del array
            assert not cuda.current()
            reset()
        owner = vkgdr.compat.rmm.Buffer(size=1000).owner
        before.free()
        stats = owner.stats()
        assert stats["live_allocations"] == stats["deferred_frees"] == 0, stats
    """)


@both
def test_memory_of_before_is_freed(run, pool):
    run(f"""
        source = Resource(pool={pool})
        enter()
        stream = cuda.create_stream()
        old = [source.allocate(1000, 0, stream) for _ in range(3)]
        reset()
        enter()
        new = source.allocate(1000, 0)
        source.free(old[0])
        source.free(old[1], 0)
        source.free(old[2], cuda.create_stream())
        cuda.call("cuMemsetD8_v2", new, 7, 1000)
        assert len(source) == 1
        source.free(new)
        assert len(source) == 0
    """)


def test_memory_of_before_is_freed_first_where_its_address_was_given_out_again(run):
    # Without Vulkan the device's memory comes from CUDA.
    run(
        """
        source = Resource("device")
        enter()
        old = source.allocate(1 << 21)
        reset()
        enter()
        others = []
        while (new := source.allocate(1 << 21)) != old:
            others.append(new)
            assert len(others) < 100
        source.free(old)
        assert len(source) == 1 + len(others)
        cuda.call("cuMemsetD8_v2", new, 7, 1 << 21)
        source.free(new)
        assert cuda.code("cuMemsetD8_v2", new, 7, 1 << 21) != 0
        """,
        VKGDR_TEST_PROFILE="no-vulkan",
    )


def test_memory_of_before_is_neither_found_nor_used_and_is_freed_in_every_way(run):
    run("""
        import gc, pytest
        gpu = vkgdr.Vkgdr.open_primary_context(0)
        freed, dropped, forced = (vkgdr.Memory(gpu, 64, kind="device") for _ in range(3))
        shown, raw = vkgdr.Memory(gpu, 64), vkgdr.RawMemory(gpu, 64)
        address, view = freed.device_ptr, memoryview(shown)
        vkgdr.memory_of(address)
        reset()
        uses = freed.tobytes, lambda: freed.memset(1), lambda: freed[:3].copy_from_host(b"x")
        for use, text in ((lambda: vkgdr.memory_of(address), "not an address"), *((use, "context") for use in uses)):
            with pytest.raises(vkgdr.VkgdrError, match=f"(?i){text}"):
                use()
        assert "device" in repr(freed)
        freed.free()
        shown.free()
        del view
        forced.free(force=True)
        raw.free()
        del dropped, use, uses
        gc.collect()
        assert gpu.stats()["live_allocations"] == 0, gpu.stats()
    """)
