"""A chunk of a pool is not lent again while another stream or context still uses it."""

import gc
import weakref

import numpy as np
import pytest
import vkgdr
from neighbours import Stream
from vkgdr.compat import pyopencl as ops
from vkgdr.pool import Allocator, Pool

SIZE = 4096


@pytest.mark.parametrize("by", ["free", "drop", "forced free"])
def test_the_source_of_a_pending_copy_is_not_lent_again(cuda, gpu, by):
    pool = Pool(gpu)
    to = vkgdr.Memory(gpu, SIZE, kind="device")
    # With the pool's block: a driver may let an allocation wait for held work.
    source = pool.allocate(SIZE)
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        source.copy_from_host(b"\1" * SIZE)
        event = ops.copy(to, source, stream=stream, is_blocking=False)
        address = source.host_ptr
        if by == "drop":
            del source
        else:
            source.free(force=by == "forced free")
        others = [pool.allocate(SIZE) for _ in range(8)]
        for other in others:
            assert other.host_ptr != address
            np.asarray(other)[:] = 2
            other.flush()
        gate.open()
        event.synchronize()
        assert to.tobytes() == b"\1" * SIZE
        del others, other


def test_the_source_of_a_copy_by_another_context_is_not_lent_again(cuda, gpu, context):
    pool = Pool(gpu)
    source = pool.allocate(SIZE)
    source.copy_from_host(b"\1" * SIZE)
    other = cuda.create_context()
    to = vkgdr.Memory(vkgdr.Vkgdr(0), SIZE, kind="device")
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        event = ops.copy(to, source, stream=stream, is_blocking=False)
        address = source.host_ptr
        source.free()
        with context.pushed():
            again = pool.allocate(SIZE)
            assert again.host_ptr != address
            again.free()
        gate.open()
        event.synchronize()
        assert to.tobytes() == b"\1" * SIZE
        del event
    to.free()
    other.destroy()
    # The copy's use of the memory ends with the next event.
    gpu.collect()
    ops.fill(vkgdr.Memory(gpu, SIZE), b"\0").synchronize()
    gc.collect()


def test_a_stream_for_each_request_is_let_go(cuda, gpu):
    alive = []

    def stream():
        handle = cuda.create_stream()
        made = Stream(handle)
        alive.append(weakref.ref(made, lambda _: cuda.destroy_stream(handle)))
        return made

    pool = Pool(Allocator(gpu, stream=stream()))
    for number in range(50):
        memory = pool.allocate(SIZE)
        memory.bind_to_stream(stream())
        ops.fill(memory, bytes([number]))
        memory.free()
        del memory
        gc.collect()
    # The pool keeps its own stream, the first.
    assert sum(made() is not None for made in alive) == 1
    memory = pool.allocate(SIZE)
    memory.copy_from_host(b"\7" * SIZE)
    assert memory.tobytes() == b"\7" * SIZE
    memory.free()
    pool.free_held()
    del pool
    gc.collect()
    assert not any(made() for made in alive)
