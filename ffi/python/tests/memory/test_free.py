"""`free()` while views exist, and every method and attribute of what was freed, closed or released."""

import contextlib
import gc
import sys
import threading
import weakref
from functools import partial

import numpy as np
import pytest
import simulator
import vkgdr
from everything import SIZE, members, refused
from neighbours import in_threads
from vkgdr.compat import dpctl, pyopencl, rmm


@pytest.fixture
def memory(gpu):
    return vkgdr.Memory(gpu, 4096)


VIEWS = {
    "asarray": np.asarray,
    "array": lambda memory: np.array(memory, copy=False),
    "view": lambda memory: np.asarray(memory).view("f4").reshape(32, -1)[3:, ::2].T,
    "memoryview": memoryview,
    "slice": lambda memory: memoryview(memory)[5:9],
    "host array": lambda memory: memory.get_host_array((4,), "c8"),
    "dlpack": lambda memory: np.from_dlpack(memory, device="cpu")[7:],
    "capsule": lambda memory: memory.__dlpack__(),
    "region": lambda memory: memory[3:5][1:],
    "array of a region": lambda memory: np.asarray(memory[3:500])[4:],
    "host view": lambda memory: memory.host,
    "map": lambda memory: memory.map(),
    "array of a map": lambda memory: memory.map().array,
}
# Whether each of the frees is by force.
FREES = {"a drop": [], "a free": [False], "a forced free": [True], "a free, then one by force": [False, True]}


@pytest.mark.parametrize("by", FREES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_keeps_the_pages_of_memory_unless_it_is_freed_by_force(gpu, view, by, simulated):
    memory = vkgdr.Memory(gpu, 4096)
    before, kept, gone = simulator.pages(), view(memory), weakref.ref(memory)
    views = memory.pending_views
    assert views >= 1
    for force in FREES[by]:
        memory.free(force=force)
        assert memory.freed
        assert memory.pending_views == (0 if force else views)
        with pytest.raises(vkgdr.FreedError):
            len(memory)
    if by == "a drop":
        memory = None
    gc.collect()
    assert simulator.pages() == before - (True in FREES[by])
    # Dropping a dangling view does not access its bytes.
    del kept
    gc.collect()
    assert simulator.pages() == before - 1
    if memory is None:
        assert gone() is None
    else:
        assert memory.pending_views == 0


def test_a_region_outlives_the_memory_that_is_freed(memory, cuda):
    region = memory[100:200]
    memory.free()
    region.memset(5)
    assert cuda.read(region.device_ptr, 100) == b"\5" * 100
    region.flush()
    assert bytes(region) == b"\5" * 100


def test_what_shows_memory_is_gone_when_that_was_freed_by_force(memory):
    region, mapping = memory[100:200], memory.map()
    inner = region[5:6]
    memory.free(force=True)
    of_memory = (len, bytes, memoryview, np.asarray, lambda m: m.device_ptr, lambda m: m.flush(), lambda m: m.map())
    for gone, uses in (
        (region, of_memory),
        (inner, of_memory),
        (mapping, (np.asarray, lambda map_: map_.array, lambda map_: map_.release())),
    ):
        for use in uses:
            with pytest.raises(vkgdr.FreedError, match="freed"):
                use(gone)
    for end in (region.free, inner.free, mapping.release):
        end()


def test_a_map_can_be_ended_after_the_memory_was_freed(memory):
    with memory.map() as array:
        memory.free()
        array[0] = 1
    assert memory.map_count == 0


def test_with_frees_at_the_end_and_lets_an_exception_pass(memory):
    assert memory.__enter__() is memory
    with pytest.raises(KeyError), memory:
        raise KeyError
    assert memory.freed


@pytest.mark.leaks("the injected error prevents the release")
def test_a_failed_free_says_so_once(memory, simulated):
    with simulator.fail("cuDestroyExternalMemory", 1, 999), pytest.raises(vkgdr.VkgdrError, match="UNKNOWN"):
        memory.free()
    assert memory.freed
    memory.free()


@pytest.mark.parametrize("force", [False, True])
def test_many_threads_free_the_same_memory(primary, force):
    for _ in range(50):
        memory = vkgdr.Memory(primary, 64)
        start = threading.Barrier(4)

        def free(memory=memory, start=start):
            start.wait()
            memory.free(force=force)

        in_threads(*[free] * 4)
        assert memory.freed


def test_a_forced_free_beside_a_copy_that_waits_for_the_interpreter(run_python):
    code = """
        import sys, threading, time, vkgdr
        gpu = vkgdr.Vkgdr.open_primary_context(0)
        memory = vkgdr.Memory(gpu, 16 << 20, kind="host")
        target, started = bytearray(memory.nbytes), threading.Event()

        def copy():
            started.set()
            memory.copy_to_host(target)

        # This thread keeps the interpreter until it lets go of it, and the copy is over by then.
        sys.setswitchinterval(1000)
        thread = threading.Thread(target=copy)
        thread.start()
        started.wait()
        time.sleep(0.001)
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            pass
        memory.free(force=True)
        thread.join()
        print("ended")
    """
    assert run_python(code).stdout == "ended\n"


def test_a_free_beside_threads_that_use_the_memory(primary):
    for _ in range(30):
        memory = vkgdr.Memory(primary, 4096)
        start = threading.Barrier(4)

        def use(memory=memory, start=start):
            start.wait()
            with contextlib.suppress(vkgdr.FreedError):
                for _ in range(40):
                    memory.flush(1, 3)
                    memory.invalidate()
                    memory[2:40].flush()
                    assert memoryview(memory).nbytes == 4096
                    with memory.map() as array:
                        array[0] = 1
                    memory.memset(3)
                    memory.__dlpack__()
                    repr(memory)

        def free(memory=memory, start=start):
            start.wait()
            memory.free()

        in_threads(use, use, use, free)
        assert memory.pending_views == 0
        assert memory.map_count == 0


def test_a_free_beside_a_thread_that_waits_in_a_map_does_not_stop_python(gpu, cuda):
    with cuda.stream() as stream:
        memory = vkgdr.Memory(gpu, 64, stream=stream)
        region = memory[:8]

        def wait():
            with memory.map() as array:
                array[0] = 1

        with cuda.hold(stream) as gate:
            thread = threading.Thread(target=wait)
            thread.start()
            # The thread has its own view before it waits.
            while memory.pending_views < 2:
                pass
            # Each of these would deadlock if it held the GIL while it waits for the other thread.
            for _ in range(100):
                memory.bind_to_stream(stream)
                memory.record_stream(stream)
                assert region.stream == stream
                region.flush()
                assert memory.pending_views >= 1
            gate.open()
            thread.join()


def test_a_region_is_freed_on_a_stream_without_binding_the_others_to_it(cuda, gpu):
    with cuda.stream() as bound, cuda.stream() as other, cuda.hold(other) as gate:
        memory = vkgdr.Memory(gpu, 4096, kind="device", stream=bound)
        region = memory[:64]
        event = region.free_async(other)
        assert (region.freed, event.is_complete) == (True, False)
        assert memory.stream == bound
        # The release waits for the region's last use, too.
        memory.free()
        gpu.collect()
        assert gpu.stats()["deferred_frees"] == 1
        gate.open()
        cuda.synchronize()
        assert event.is_complete
        gpu.collect()
        assert gpu.stats()["deferred_frees"] == 0


def test_memory_is_freed_on_another_stream_than_its_own_without_a_wait(cuda, gpu):
    with cuda.stream() as bound, cuda.stream() as other, cuda.stream() as busy, cuda.hold(busy):
        memory = vkgdr.Memory(gpu, 4096, kind="device", stream=bound)
        with cuda.hold(bound) as gate:
            # A wait for the context would not end: `busy` is held until later.
            event = memory.free_async(other)
            assert (event.is_complete, gpu.collect()) == (False, 0)
            gate.open()
        cuda.synchronize_stream(other)
        assert (event.is_complete, gpu.collect()) == (True, 1)


# Attributes of the object, not of its bytes: usable after a free.
STILL = {
    "flags",
    "freed",
    "gpudata",
    "map_count",
    "name",
    "owner",
    "parent",
    "pending_views",
    "reference_count",
    "reference_obj",
}

# Methods that do nothing once the memory is freed.
QUIET = {"free", "release"}

ARGUMENTS = {
    "as_buffer": (5,),
    "bind_to_stream": (0,),
    "copy_from_host": (b"x",),
    "free_async": (0,),
    "get_info": ("size",),
    "get_sub_region": (0, 1),
    "migrate": ("host",),
    "record_stream": (0,),
    "reserve": (2 * SIZE,),
    "resize": (10,),
}


def used(thing, name, is_method, arguments):
    """Get an attribute, or call a method."""
    value = getattr(thing, name)
    return value(*arguments) if is_method else value


def test_every_method_and_attribute_of_freed_memory_raises(anything):
    other = vkgdr.Memory(anything.owner, 10)
    anything.free()
    for name, is_method in members(anything):
        if name in STILL:
            getattr(anything, name)
        elif name in QUIET:
            getattr(anything, name)()
        else:
            arguments = (other,) if name == "copy_from_device" else ARGUMENTS.get(name, ())
            refused(partial(used, anything, name, is_method, arguments), vkgdr.FreedError, "freed", name)


def check_protocols(memory, gpu):
    """Check that every protocol of memory raises, and that it can be shown and compared."""
    assert "freed" in repr(memory)
    assert isinstance(hash(memory), int)
    assert isinstance(sys.getsizeof(memory), int)
    assert memory == memory
    assert memory.pending_views == 0
    uses = {
        "len": len,
        "bool": bool,
        "bytes": bytes,
        "bytearray": bytearray,
        "memoryview": memoryview,
        "asarray": np.asarray,
        "frombuffer": np.frombuffer,
        "from_dlpack": lambda m: np.from_dlpack(m, device="cpu"),
        "slice": lambda m: m[:1],
        "array interface": lambda m: m.__array_interface__,
        "cuda array interface": lambda m: m.__cuda_array_interface__,
        "dlpack": lambda m: m.__dlpack__(),
        "dlpack device": lambda m: m.__dlpack_device__(),
        "reduce": lambda m: m.__reduce__(),
        "map": lambda m: m.map(),
        "source": lambda m: vkgdr.Memory(gpu, SIZE).copy_from_device(m),
        "ops source": lambda m: pyopencl.copy(vkgdr.Memory(gpu, SIZE), m),
        "ops target": lambda m: pyopencl.copy(m, vkgdr.Memory(gpu, SIZE)),
        "ops fill": lambda m: pyopencl.fill(m, b"x"),
        "host view": vkgdr.host_view,
        "dpctl": dpctl.as_memory,
        "device pointer": lambda m: m.device_ptr,
    }
    for name, use in uses.items():
        refused(partial(use, memory), vkgdr.FreedError, "freed", name)


def test_every_protocol_of_freed_memory_raises(anything):
    gpu = anything.owner
    anything.free()
    check_protocols(anything, gpu)


UNFINISHED = [vkgdr.Memory, vkgdr.RawMemory, rmm.Buffer]
UNFINISHED += [dpctl.MemoryShared, dpctl.MemoryHost, dpctl.MemoryDevice]


@pytest.mark.parametrize("cls", UNFINISHED)
def test_memory_whose_init_did_not_run_is_freed_memory(gpu, cls):
    class Careless(cls):
        def __init__(self):
            pass

        def __del__(self):
            self.free()

    check_protocols(Careless(), gpu)
    assert Careless() != Careless()


def test_freed_memory_is_freed_again_in_every_way(anything):
    for _ in range(2):
        anything.free()
        anything.free(force=True)
    with anything:
        pass
    assert anything.freed


def test_every_method_and_attribute_of_a_closed_handle_raises(gpu):
    gpu.close()
    arguments = {
        "supports": ("mapped",),
        "memory_type_of": ("mapped",),
        "with_vulkan_queue": (print,),
        "set_shortage_timeout": (1,),
    }
    for name, is_method in members(gpu):
        if name in ("close", "closed"):
            continue
        refused(partial(used, gpu, name, is_method, arguments.get(name, ())), vkgdr.FreedError, "closed", name)
    for make in (vkgdr.Memory, vkgdr.RawMemory):
        with pytest.raises(vkgdr.FreedError, match="closed"):
            make(gpu, 5)
    with pytest.raises(vkgdr.FreedError, match="closed"):
        vkgdr.Memory.pitched(gpu, 1, 1, 1)


def test_a_handle_or_a_map_without_init_has_a_repr():
    for unfinished in (vkgdr.Vkgdr.__new__(vkgdr.Vkgdr), vkgdr.Map.__new__(vkgdr.Map)):
        assert "vkgdr" in repr(unfinished)
    handle = vkgdr.Vkgdr.__new__(vkgdr.Vkgdr)
    assert handle.closed
    handle.close()
    with pytest.raises(vkgdr.FreedError):
        vkgdr.Memory(handle, 5)


def test_a_released_map_is_released_again_quietly_and_gives_nothing(gpu):
    mapping = vkgdr.Memory(gpu, SIZE).map()
    mapping.release()
    mapping.release()
    mapping.wait()
    assert mapping.released
    assert mapping.event.is_complete
    for use in (lambda m: m.array, np.asarray, lambda m: m.__array_interface__, lambda m: m.__enter__()):
        with pytest.raises(vkgdr.FreedError, match="released"):
            use(mapping)
