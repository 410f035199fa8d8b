"""Loggers that raise, and that use memory themselves or wait for a thread which does, called by destructors."""

import logging
from functools import partial

import pytest
import simulator
import vkgdr
from neighbours import in_threads

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


def test_the_error_of_a_drop_is_written_as_an_exception_says_it(simulated, primary, logged):
    lines = logged(lambda: None)
    unknown, illegal_address = 999, 700
    for code in unknown, unknown, illegal_address, illegal_address:
        memory = vkgdr.Memory(primary, SIZE)
        with simulator.fail("cuCtxSynchronize", 1, code):
            del memory
    failed = "freeing memory: cuCtxSynchronize failed (CUDA_ERROR_"
    assert sum(line.startswith(f"{failed}UNKNOWN)") for line in lines) == 2, lines
    # All memory of a broken context has the same error: once for the process, in which another test may have logged it.
    assert sum(line.startswith(f"{failed}ILLEGAL_ADDRESS)") for line in lines) <= 1, lines


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


@pytest.mark.parametrize("run", [lambda work: work(), in_threads], ids=["itself", "on a thread that it waits for"])
def test_a_logger_uses_memory(primary, failing, logged, run):
    lines = logged(lambda: run(partial(use, primary)))
    memory = failing()
    del memory
    assert len(lines) == 1
    use(primary)
