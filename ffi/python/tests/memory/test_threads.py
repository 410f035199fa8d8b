"""Threads that share memory, and threads without a context."""

import gc
import threading

import numpy as np
import simulator
import vkgdr


def test_memory_is_used_and_dropped_on_threads_without_a_context(gpu, simulated):
    before = simulator.ledger()
    held = [vkgdr.Memory(gpu, 64) for _ in range(8)]
    errors = []

    def use(index):
        try:
            memory = held[index]
            memory.memset(index)
            assert memory.tobytes() == bytes([index]) * 64
            held[index] = None
        except Exception as error:  # noqa: BLE001 - all that comes is reported
            errors.append(error)

    threads = [threading.Thread(target=use, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    gc.collect()
    assert simulator.ledger() == before


def test_threads_allocate_and_free_at_once(primary, simulated):
    before = simulator.ledger()
    errors = []

    def use():
        try:
            for size in range(1, 60):
                memory = vkgdr.Memory(primary, size)
                part = memory[:1]
                array = np.asarray(memory)
                array[:] = 1
                memory.flush()
                memory.free()
                assert part.tobytes() == b"\1"
        except Exception as error:  # noqa: BLE001 - all that comes is reported
            errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert errors == []
    assert simulator.ledger() == before


def test_a_map_is_released_once_by_many_threads(primary):
    memory = vkgdr.Memory(primary, 64)
    for _ in range(50):
        mapping = memory.map()
        threads = [threading.Thread(target=mapping.release) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert memory.map_count == 0


def test_views_made_and_dropped_by_many_threads_are_counted_right(primary):
    memory = vkgdr.Memory(primary, 64)

    def use():
        for _ in range(300):
            view = memoryview(memory)
            part = memory[1:]
            capsule = memory.__dlpack__(stream=-1)
            del view, part, capsule

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory.pending_views == 0
    assert memory.reference_count == 1


def test_other_threads_run_while_a_copy_waits(primary, cuda, context):
    with cuda.stream() as stream:
        memory = vkgdr.Memory(vkgdr.Vkgdr(0), 64, stream=stream)
        done = threading.Event()

        def copy_out():
            memory.tobytes()
            done.set()

        with cuda.hold(stream) as gate:
            thread = threading.Thread(target=copy_out)
            thread.start()
            # Runs only if the copy releases the GIL.
            assert not done.is_set()
            gate.open()
            thread.join()
        assert done.is_set()
