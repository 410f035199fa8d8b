"""Loggers that raise, that use memory themselves, and that wait for other threads which do, called by destructors."""

import logging
import threading

import pytest
import simulator
import vkgdr

SIZE = 4096
LOGGER = logging.getLogger("vkgdr")


class Handler(logging.Handler):
    """Calls a function for each line."""

    def __init__(self, work):
        super().__init__()
        self.work = work
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())
        self.work()


@pytest.fixture
def logged():
    """Return a function that adds a handler to the package's logger, until the end of the test."""
    handlers = []

    def logged(work):
        handlers.append(Handler(work))
        LOGGER.addHandler(handlers[-1])
        return handlers[-1].lines

    LOGGER.propagate = False
    yield logged
    LOGGER.propagate = True
    for handler in handlers:
        LOGGER.removeHandler(handler)


@pytest.fixture
def failing(cuda, no_context):
    """Return a function that allocates memory whose drop writes a line: the stream that it is bound to has ended."""
    contexts = []

    def failing(*, bound=True):
        contexts.append(cuda.create_context())
        with cuda.stream() as stream:
            memory = vkgdr.Memory(vkgdr.Vkgdr(0), SIZE, stream=stream if bound else None)
        cuda.pop()
        return memory

    yield failing
    for context in contexts:
        context.destroy()


def use(gpu):
    """Allocate, use and free memory, of a pool too."""
    memory = vkgdr.Memory(gpu, SIZE)
    memory.copy_from_host(b"\7" * SIZE)
    assert memory.tobytes() == b"\7" * SIZE
    memory.free()
    pool = vkgdr.pool.Pool(gpu)
    pool.allocate(64).free()
    pool.free_held()
    gpu.collect()


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_the_error_of_a_drop_is_written_as_an_exception_says_it(simulated, primary, logged):
    lines = logged(lambda: None)
    memory = vkgdr.Memory(primary, SIZE)
    illegal_address = 700
    with simulator.fail("cuCtxSynchronize", 1, illegal_address):
        del memory
    assert [line for line in lines if line.startswith("freeing memory: cuCtxSynchronize failed (CUDA_ERROR_")], lines


@pytest.mark.parametrize("by", ["drop", "free", "free by force"])
def test_a_logger_that_raises_stops_no_release(primary, failing, logged, by, capfd):
    def fail():
        raise RuntimeError("a logger that fails")

    lines = logged(fail)
    memory, mine = failing(bound=by == "drop"), vkgdr.Memory(primary, SIZE)
    mine.memset(7)
    if by == "drop":
        del memory
    else:
        # A reset of the primary context is told so.
        context_is_destroyed = 709
        with (
            simulator.fail("cuCtxPushCurrent", 1, context_is_destroyed),
            simulator.fail("cuCtxPushCurrent", 2, context_is_destroyed),
        ):
            memory.free(force=by != "free")
    assert len(lines) == 1
    # The line is not lost.
    assert lines[0] in capfd.readouterr().err
    assert mine.tobytes() == b"\7" * SIZE


def test_a_logger_uses_memory_itself(primary, failing, logged):
    lines = logged(lambda: use(primary))
    memory = failing()
    del memory
    assert len(lines) == 1
    use(primary)


def test_a_logger_waits_for_a_thread_that_uses_memory(primary, failing, logged):
    lines = logged(lambda: in_thread(lambda: use(primary)))
    memory = failing()
    del memory
    assert len(lines) == 1


def test_a_logger_takes_a_lock_under_which_others_allocate_and_free(primary, failing, logged):
    lock, stop = threading.Lock(), threading.Event()
    rounds = []

    def locked():
        while not stop.is_set():
            with lock:
                use(primary)
            rounds.append(1)

    def take():
        with lock:
            pass

    lines = logged(take)
    threads = [threading.Thread(target=locked) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        memory = failing()
        del memory
    stop.set()
    for thread in threads:
        thread.join()
    assert len(lines) == 20
    assert rounds
