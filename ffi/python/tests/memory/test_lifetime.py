"""Lifetimes: garbage collection, finalizers, threads, handles, and drops that wait for the device."""

import copy
import gc
import pickle
import textwrap
import weakref

import numpy as np
import pytest
import simulator
import vkgdr
from neighbours import Stream, in_threads


def test_memory_in_a_cycle_is_collected(gpu):
    memory = vkgdr.Memory(gpu, 64)
    memory.itself, memory.view, memory.part, memory.mapping = memory, memoryview(memory), memory[:5], memory.map()
    # NumPy arrays do not support garbage collection: a cycle through one is never collected.
    gone = weakref.ref(memory)
    del memory
    gc.collect()
    gc.collect()
    assert gone() is None


def test_a_handle_in_a_cycle_is_collected(context):
    handle = vkgdr.Vkgdr(0)
    handle.memory = vkgdr.Memory(handle, 64)
    gone = weakref.ref(handle)
    del handle
    gc.collect()
    assert gone() is None


def test_a_stream_that_knows_its_memory_is_collected(gpu):
    stream = vkgdr.stream.stream()
    stream.memory = vkgdr.Memory(gpu, 64, stream=stream)
    stream.ring = vkgdr.ring.Ring(gpu, 64, 64)
    stream.ring.bind_stream(stream)
    gone = weakref.ref(stream)
    del stream
    gc.collect()
    assert gone() is None


def test_a_stream_of_another_library_that_knows_its_memory_lives_until_that_is_freed(gpu, cuda):
    with cuda.stream() as handle:
        stream = Stream(handle)
        stream.memory = vkgdr.Memory(gpu, 64, stream=stream)
        gone = weakref.ref(stream)
        del stream
        gc.collect()
        # Its finalizer, if it had one, would run before the memory is released, which names it.
        gone().memory.free()
        gc.collect()
        assert gone() is None


def test_memory_is_tracked_by_gc_and_has_weak_references(gpu):
    memory = vkgdr.Memory(gpu, 64)
    assert gc.is_tracked(memory)
    for thing in (memory, memory[:5], memory.map(), gpu):
        assert weakref.ref(thing)() is thing
    called = []
    weakref.finalize(memory, called.append, 1)
    del memory, thing
    gc.collect()
    assert called == [1]


def test_del_may_use_memory_allocate_and_free(gpu):
    done = []

    class Mine(vkgdr.Memory):
        depth = 3

        def __del__(self):
            self.memset(1)
            assert self.tobytes() == b"\1" * 64
            if self.depth:
                inner = type(self)(self.owner, 64)
                inner.depth = self.depth - 1
                del inner
            self.free()
            self.free()
            done.append(self.depth)

    memory = Mine(gpu, 64)
    memory.itself = memory
    del memory
    gc.collect()
    assert done == [0, 1, 2, 3]


def test_del_may_bring_memory_back_to_life(gpu):
    saved = []

    class Mine(vkgdr.Memory):
        def __del__(self):
            saved.append(self)

    memory = Mine(gpu, 64)
    del memory
    gc.collect()
    (again,) = saved
    again.memset(2)
    assert again.tobytes() == b"\2" * 64
    saved.clear()
    again.free()


def test_an_allocation_collects_garbage_when_there_is_no_room(gpu, simulated):
    memory = vkgdr.Memory(gpu, 64)
    memory.itself = memory
    gone = weakref.ref(memory)
    gc.disable()
    try:
        del memory
        assert gone() is not None
        with simulator.no_room(gpu):
            again = vkgdr.Memory(gpu, 64)
        assert gone() is None
        again.free()
    finally:
        gc.enable()


def test_handles_maps_events_and_freed_memory_are_not_pickled(gpu):
    memory = vkgdr.Memory(gpu, 64)
    mapping = memory.map()
    for thing in (gpu, mapping, mapping.release()):
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=r"pickle|copied"):
                use(thing)
    memory.free()
    with pytest.raises(vkgdr.FreedError):
        pickle.dumps(memory)
    assert memory.map_count == 0


def test_a_subclass_that_fails_in_its_init_goes_quietly(gpu):
    class Fails(vkgdr.Memory):
        def __init__(self, owner):
            super().__init__(owner, 64)
            raise KeyError

    with pytest.raises(KeyError):
        Fails(gpu)
    gc.collect()


def test_handles_of_the_same_gpu_context_and_flags_are_equal(context):
    primary, again = vkgdr.Vkgdr.open_primary_context(), vkgdr.Vkgdr.open_primary_context()
    current, flagged = vkgdr.Vkgdr(0), vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    assert primary == again
    assert current == vkgdr.Vkgdr(0)
    assert len({primary, again, current, vkgdr.Vkgdr(0), flagged}) == 3
    memory = vkgdr.Memory(primary, 64)
    assert vkgdr.memory_of(memory.device_ptr).owner == primary
    again.close()
    assert primary == again
    assert primary != 0
    unfinished = vkgdr.Vkgdr.__new__(vkgdr.Vkgdr)
    assert unfinished == unfinished
    assert unfinished != vkgdr.Vkgdr.__new__(vkgdr.Vkgdr)


def test_init_may_be_called_twice(gpu):
    memory = vkgdr.Memory(gpu, 64)
    view = memoryview(memory)
    memory.__init__(gpu, 128)
    assert len(memory) == 128
    view[:] = bytes(64)


def test_memory_that_was_made_raw_keeps_its_hash_and_cannot_free_the_bytes(gpu, live):
    memory = vkgdr.Memory(gpu, 64)
    key = hash(memory)
    raw = memory.release_raw()
    memory.free(force=True)
    assert (hash(memory), memory.freed, raw.freed, live()) == (key, True, False, 1)
    raw.memset(3)
    assert raw.tobytes() == b"\3" * 64
    raw.free()
    assert live() == 0


def test_a_map_is_released_once_by_many_threads(primary):
    memory = vkgdr.Memory(primary, 64)
    for _ in range(50):
        in_threads(*[memory.map().release] * 4)
        assert memory.map_count == 0


def test_views_made_and_dropped_by_many_threads_are_counted_right(primary):
    memory = vkgdr.Memory(primary, 64)

    def use():
        for _ in range(300):
            view = memoryview(memory)
            part = memory[1:]
            capsule = memory.__dlpack__(stream=-1)
            del view, part, capsule

    in_threads(*[use] * 4)
    assert memory.pending_views == 0
    assert memory.reference_count == 1


# ---- a drop that waits lets other Python threads run: one may be what the device waits for ---------------------------


MAKE = {
    "memory": "one = vkgdr.Memory(gpu, 64)",
    "a map": "one = vkgdr.Memory(gpu, 64).map()",
    "a capsule": "one = vkgdr.Memory(gpu, 64).__dlpack__()",
    "a mapping": "memory = vkgdr.Memory(gpu, 64); one = vkgdr.Mapping(gpu, memory.device_ptr, 64); del memory",
    "a ring": "one = vkgdr.ring.Ring(gpu, 64, 64)",
    "a pool": "one = vkgdr.pool.Pool(gpu); memory = one.allocate(100); memory.device_ptr; del memory",
    "memory of a pool that is gone": "pool = vkgdr.pool.Pool(gpu); one = pool.allocate(100); one.device_ptr; del pool",
    "a resource with a pool": "one = Resource(pool=True); one.free(one.allocate(100))",
    "memory of a resource that is gone": """
        lends = Resource(pool=True); one = vkgdr.memory_of(lends.allocate(100)); lends.free(one.device_ptr); del lends
    """,
}

PROGRAM = """
import faulthandler, gc, threading, time
import libcuda
import vkgdr
from vkgdr._vkgdr import Resource
cuda = libcuda.Cuda()
cuda.push(cuda.retain_primary())
gpu = vkgdr.Vkgdr.open_primary_context()
stream = cuda.create_stream()
MAKE
# Ends the program by a thread that needs no interpreter.
faulthandler.dump_traceback_later(20, exit=True)
with cuda.hold(stream) as gate:
    opened = threading.Event()
    def let_go():
        # Too short a sleep can only miss a defect.
        time.sleep(0.1)
        opened.set()
        gate.open()
    threading.Thread(target=let_go).start()
    del one
    gc.collect()
    assert opened.is_set(), "the drop did not wait"
faulthandler.cancel_dump_traceback_later()
"""


@pytest.mark.parametrize("make", MAKE)
def test_other_threads_run_while_a_drop_waits(run_python, make):
    run_python(PROGRAM.replace("MAKE", textwrap.dedent(MAKE[make]).strip()))


def test_memory_of_a_closed_handle_is_moved_and_copied():
    gpu = vkgdr.Vkgdr.open_primary_context(0)
    memory, buffer = vkgdr.Memory(gpu, 64), vkgdr.compat.rmm.Buffer(gpu, size=64)
    assert memory.owner is gpu
    gpu.close()
    assert memory.owner == gpu
    assert memory.migrate("host").kind == "host"
    buffer.resize(100)
    assert len(buffer.copy()) == 100


@pytest.mark.parametrize("make", [vkgdr.RawMemory, lambda gpu, size: vkgdr.pool.Pool(gpu).allocate(size)])
def test_memory_of_any_class_can_be_left_to_be_freed_by_hand(gpu, make):
    memory = make(gpu, 64)
    raw = memory.release_raw()
    del memory
    gc.collect()
    assert type(raw) is vkgdr.RawMemory
    raw.memset(7)
    assert raw.tobytes() == b"\7" * 64
    raw.free()


def test_a_subclass_that_counts_otherwise_shows_and_copies_its_bytes(gpu):
    class Bits(vkgdr.Memory):
        def __len__(self):
            return 8 * self.nbytes

    memory = Bits(gpu, 64)
    memory.memset(3)
    assert np.from_dlpack(memory, device="cpu").shape == (64,)
    assert memory.tobytes() == copy.copy(memory).tobytes() == b"\3" * 64
    assert memory.migrate("host").nbytes == 64


def test_slices_that_are_freed_by_hand_leave_nothing_behind(gpu):
    def views():
        return sum(type(one).__name__ == "MemoryView" for one in gc.get_objects())

    memory = vkgdr.Memory(gpu, 4096)
    before = views()
    for _ in range(10):
        memory[:64].release_raw().free()
    # The last one goes with the next.
    assert views() <= before + 1
    assert memory.pending_views == 0


def test_frees_without_the_interpreter_leave_nothing_behind(run_python):
    code = """
        import native, resource
        library = native.torch_allocator()

        def size():
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * resource.getpagesize()

        def pairs(count):
            for _ in range(count):
                library.vkgdr_torch_free(library.vkgdr_torch_alloc_mapped(64, 0, None), 64, 0, None)
            return size()

        before = pairs(5000)
        assert pairs(20000) - before < 1 << 20
    """
    run_python(code)
