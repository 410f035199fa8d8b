"""``vkgdr.pool``: pools, and the interface of pyopencl's."""

import gc
import weakref

import numpy as np
import pytest
import simulator
import vkgdr
from neighbours import OwnStream
from vkgdr.compat import pyopencl as ops
from vkgdr.pool import Allocator, Pool, PooledMemory

MIB = 1 << 20


@pytest.fixture
def pool(gpu):
    pool = Pool(gpu)
    yield pool
    gc.collect()
    assert pool.active_blocks == 0


@pytest.mark.parametrize("by", ["free", "drop", "forced free"])
def test_the_source_of_a_pending_copy_is_not_lent_again(cuda, pool, gpu, by):
    to = vkgdr.Memory(gpu, 4096, kind="device")
    # With the pool's block: a driver may let an allocation wait for held work.
    source = pool.allocate(4096)
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        source.copy_from_host(b"\1" * 4096)
        event = ops.copy(to, source, stream=stream, is_blocking=False)
        address = source.host_ptr
        if by != "drop":
            source.free(force=by == "forced free")
        del source
        others = [pool.allocate(4096) for _ in range(8)]
        for other in others:
            assert other.host_ptr != address
            np.asarray(other)[:] = 2
            other.flush()
        gate.open()
        event.synchronize()
        assert to.tobytes() == b"\1" * 4096
        del others, other


def test_a_stream_for_each_request_is_let_go(cuda, gpu):
    ended = []
    pool = Pool(Allocator(gpu, stream=OwnStream(cuda, ended)))
    for number in range(50):
        memory = pool.allocate(4096)
        memory.bind_to_stream(OwnStream(cuda, ended))
        ops.fill(memory, bytes([number]))
        memory.free()
    gc.collect()
    # The pool keeps its own stream, the first.
    assert len(ended) == 50
    memory = pool.allocate(4096)
    memory.copy_from_host(b"\7" * 4096)
    assert memory.tobytes() == b"\7" * 4096
    memory.free()
    pool.free_held()
    del pool
    gc.collect()
    assert len(ended) == 51


def test_a_warm_pair_calls_no_driver(pool, simulated):
    pool.allocate(512)
    gc.collect()
    calls = [simulator.calls(name) for name in ("cuImportExternalMemory", "cuCtxSynchronize", "cuEventRecord")]
    before = simulator.ledger()
    for _ in range(100):
        memory = pool.allocate(512)
        memory.buf[:2] = b"ab"
        memory.free()
    assert simulator.ledger() == before
    assert calls == [simulator.calls(name) for name in ("cuImportExternalMemory", "cuCtxSynchronize", "cuEventRecord")]


def test_a_view_keeps_a_piece_that_was_freed(pool):
    memory = pool.allocate(300)
    array = np.asarray(memory)
    array[:] = 5
    memory.free()
    with pytest.raises(vkgdr.FreedError):
        memory.flush()
    others = [pool.allocate(300) for _ in range(100)]
    for other in others:
        np.asarray(other)[:] = 9
    assert (array == 5).all()
    assert pool.active_blocks == 101


def test_pieces_larger_than_the_largest_get_an_allocation_of_their_own(gpu):
    pool = Pool(gpu, block_size=MIB, largest_chunk=MIB // 4)
    assert pool.alloc_size(pool.bin_number(MIB)) == MIB
    memory = pool.allocate(MIB)
    memory.memset(3)
    assert memory.tobytes() == b"\x03" * MIB


def test_every_size_has_a_size_class_as_in_pyopencl(pool):
    assert pool.bin_number(0) == pool.bin_number(1) > 0
    assert pool.alloc_size(0) == 1
    sizes = [0, 1, 64, 65, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 5 * MIB, 1 << 40]
    numbers = [pool.bin_number(size) for size in sizes]
    assert numbers == sorted(numbers)
    for size, number in zip(sizes, numbers, strict=True):
        assert size <= pool.alloc_size(number)
    with pytest.raises(OverflowError):
        pool.bin_number(-1)


def test_held_memory_is_given_back(pool):
    # Under pyopencl's name.
    memory = pool.allocate(512)
    for _ in range(2):
        memory.release()
        assert (memory.freed, pool.active_blocks) == (True, 0)
    assert pool.managed_bytes > 0
    assert pool.held_blocks > 0
    assert pool.trim(1 << 40) == 0
    pool.free_held()
    assert (pool.held_blocks, pool.managed_bytes) == (0, 0)
    pool.allocate(512).free()
    assert pool.trim() == 32 * MIB


def test_a_pool_that_stops_holding_gives_back_what_goes(gpu):
    pool = Pool(gpu)
    memory = pool.allocate(512)
    pool.stop_holding()
    assert pool.managed_bytes > 0
    memory.free()
    assert pool.managed_bytes == 0


def test_bad_options_are_refused_with_their_numbers(gpu):
    for options, text in [
        ({"leading_bits_in_bin_id": 7}, "leading_bits_in_bin_id of 7 "),
        ({"block_size": 100}, "block_size of 100 "),
        ({"largest_chunk": 10}, "largest_chunk of 10 "),
    ]:
        with pytest.raises(vkgdr.InvalidArgumentError, match=text):
            Pool(gpu, **options)
    for alignment in (8192, 3, -64):
        with pytest.raises(vkgdr.InvalidArgumentError, match=str(alignment)):
            Pool(Allocator(gpu, alignment=alignment))
    with pytest.raises(vkgdr.InvalidArgumentError, match="kind"):
        Pool(Allocator(gpu, kind="fast"))
    with pytest.raises(TypeError, match="Vkgdr"):
        Pool("x")


def test_bad_sizes_are_refused(gpu, pool):
    with pytest.raises(vkgdr.InvalidArgumentError, match="0 bytes"):
        pool.allocate(0)
    with pytest.raises(OverflowError, match="-1"):
        pool.allocate(-1)
    with pytest.raises(TypeError):
        pool.allocate(1.5)
    with pytest.raises(TypeError, match="pool"):
        PooledMemory(5)
    allocator = Allocator(gpu, kind="host", alignment=64)
    assert allocator(0) is None
    assert (allocator(100).kind, len(allocator(100))) == ("host", 100)


def test_pycuda_takes_a_pool_for_an_allocator(gpu, pycuda_context):
    import vkgdr.pycuda
    from pycuda.gpuarray import GPUArray, to_gpu

    pool = Pool(vkgdr.Vkgdr(0))
    take = vkgdr.pycuda.allocator(pool)
    array = to_gpu(np.arange(100, dtype="f4"), allocator=take)
    assert isinstance(array.gpudata, vkgdr.pycuda.Memory)
    assert pool.active_blocks == 1
    pycuda_context.synchronize()
    array.gpudata.invalidate()
    assert np.asarray(array.gpudata).view("f4").tolist() == list(range(100))
    empty = GPUArray((10,), "f4", allocator=take)
    assert empty.gpudata.device_ptr != array.gpudata.device_ptr
    del array, empty
    gc.collect()
    assert pool.active_blocks == 0


def test_a_pool_that_was_never_created_or_is_created_twice_says_so(gpu, pool):
    with pytest.raises(vkgdr.InvalidArgumentError, match="created already"):
        pool.__init__(gpu)
    assert len(pool.allocate(10)) == 10
    pool = Pool.__new__(Pool)
    for use in (
        lambda: pool.allocate(1),
        lambda: pool(1),
        lambda: pool.trim(),
        lambda: pool.held_blocks,
        pool.free_held,
    ):
        with pytest.raises(vkgdr.FreedError, match="the pool was never created"):
            use()


def test_printing_memory_or_a_slice_of_it_is_no_use_by_the_device(gpu):
    pool = Pool(gpu)
    memory = pool.allocate(64)
    host, text = memory.host_ptr, repr(memory) + repr(memory[:5])
    assert "5 bytes" in text
    memory.free()
    assert pool.allocate(64).host_ptr == host


def test_a_subclass_of_a_pool_has_its_own_arguments_and_attributes(gpu):
    class Named(Pool):
        def __init__(self, name, owner):
            super().__init__(owner)
            self.name = name

        def allocate(self, size):
            return super().allocate(2 * size)

    pool = Named("mine", gpu)
    assert (pool.name, len(pool.allocate(10))) == ("mine", 20)
    assert pool.allocator.owner is gpu


@pytest.mark.parametrize("stream", [None, 0])
def test_a_pool_collects_garbage_when_there_is_no_room(gpu, simulated, stream):
    pool, memory = Pool(Allocator(gpu, stream=stream)), vkgdr.Memory(gpu, 64)
    memory.itself = memory
    gone = weakref.ref(memory)
    gc.disable()
    try:
        del memory
        # The first block, and a smaller one.
        with simulator.no_room(gpu, 2):
            pool.allocate(64)
        assert gone() is None
    finally:
        gc.enable()


def test_pools_and_their_memory_in_a_cycle_are_collected(gpu, live):
    pool = Pool(gpu)
    pool.itself, pool.memory = pool, pool.allocate(10)
    gpu.pool = pool
    array = np.asarray(pool.memory)
    array[:] = 3
    del pool, gpu.pool
    gc.collect()
    # The memory outlives its pool.
    assert (array == 3).all()
    del array
    gc.collect()
    assert live() == 0
