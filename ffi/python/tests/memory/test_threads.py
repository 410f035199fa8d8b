"""Threads that share memory, and threads without a context."""

import gc
import threading

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
