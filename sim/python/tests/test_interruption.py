"""Kernels that never end, and signals to the program that waits for them."""

import sys
from pathlib import Path

import pytest
from programs import Run

# Sends this process a signal after half a second, while a kernel runs that never ends.
SPIN = """
import os, signal, threading
from spin import cuda, launch, synchronize

def spin_and_send(number):
    launch("spin")
    threading.Timer(0.5, os.kill, (os.getpid(), number)).start()
"""

ENDED = "in kernel spin, block (0, 0, 0), thread (0, 0, 0): the program was interrupted while it waited for it"


@pytest.fixture
def simulate(run: Run) -> Run:
    """Return a function that runs a program after `SPIN`, on the simulated GPU."""

    def simulate(code: str, **variables: str):
        support = str(Path(__file__).with_name("support"))
        command = ("vkgdr-sim", "-p", "no-vulkan", "--", sys.executable, "-c", SPIN + code)
        return run(*command, PYTHONPATH=support, **variables)

    return simulate


@pytest.mark.parametrize("late", ["0", "1"])
def test_ctrl_c_ends_all_kernels_that_are_waited_for_and_the_context_goes_on(simulate: Run, late: str):
    code = """
spin_and_send(signal.SIGINT)
launch("spin")
try:
    synchronize()
    raise SystemExit("no exception")
except KeyboardInterrupt:
    print("interrupted")
launch("nothing")
synchronize()
print("goes on")
"""
    done = simulate(code, SIMCUDA_LATE=late)
    assert (done.stdout, done.returncode) == ("interrupted\ngoes on\n", 0), done.stderr
    assert done.stderr.count(ENDED) == 2


def test_ctrl_c_that_nobody_catches_ends_the_program(simulate: Run):
    done = simulate("spin_and_send(signal.SIGINT)\nsynchronize()")
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode == -2


def test_a_handler_that_returns_runs_during_the_wait_and_the_kernel_goes_on(simulate: Run):
    code = """
calls = []

def handler(number, frame):
    calls.append(number)
    if len(calls) == 2:
        raise TimeoutError("the second", number)

for number in (signal.SIGINT, signal.SIGALRM):
    signal.signal(number, handler)
spin_and_send(signal.SIGINT)
signal.setitimer(signal.ITIMER_REAL, 1.5)
try:
    synchronize()
except TimeoutError as error:
    print(error.args == ("the second", signal.SIGALRM), calls == [signal.SIGINT, signal.SIGALRM])
"""
    assert simulate(code).stdout == "True True\n"


def test_an_ignored_signal_and_one_with_a_handler_in_c_change_nothing(simulate: Run):
    code = """
import faulthandler
signal.signal(signal.SIGINT, signal.SIG_IGN)
# Only the frames of the thread that takes the signal: others may run meanwhile.
faulthandler.register(signal.SIGUSR1, all_threads=False)
spin_and_send(signal.SIGINT)
spin_and_send(signal.SIGUSR1)
def stop(number, frame):
    raise TimeoutError
signal.signal(signal.SIGALRM, stop)
signal.alarm(2)
try:
    synchronize()
except TimeoutError:
    print("only the last")
"""
    done = simulate(code)
    assert done.stdout == "only the last\n", done.stderr
    assert "most recent call first" in done.stderr


def test_a_signal_is_left_to_the_threads_of_the_program(simulate: Run):
    code = """
launch("spin")
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
os.kill(os.getpid(), signal.SIGUSR2)
print(signal.sigpending() == {signal.SIGUSR2}, flush=True)
os._exit(0)
"""
    done = simulate(code)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_a_wait_on_another_thread_is_ended_by_nothing_and_the_main_thread_is_free(simulate: Run):
    code = """
from spin import enter
spin_and_send(signal.SIGINT)
ended = []
thread = threading.Thread(target=lambda: (enter(), synchronize(), ended.append(True)), daemon=True)
try:
    thread.start()
    thread.join()
except KeyboardInterrupt:
    print("interrupted", ended, flush=True)
os._exit(0)
"""
    assert simulate(code).stdout == "interrupted []\n"


@pytest.mark.parametrize(
    "wait",
    [
        "cuStreamSynchronize(None)",
        "cuMemFree_v2(address)",
        "cuMemcpyDtoH_v2(ctypes.create_string_buffer(8), address, ctypes.c_size_t(8))",
    ],
)
def test_other_calls_that_wait_are_interrupted(simulate: Run, wait: str):
    code = f"""
import ctypes
launch("nothing")
address = ctypes.c_uint64()
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8)) == 0
spin_and_send(signal.SIGINT)
try:
    cuda.{wait}
except KeyboardInterrupt:
    print("interrupted")
"""
    done = simulate(code)
    assert done.stdout == "interrupted\n", done.stderr


def test_a_free_behind_a_kernel_that_never_ends_says_so_once(simulate: Run):
    code = """
import ctypes
launch("nothing")
address = ctypes.c_uint64()
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8)) == 0
launch("spin")
threading.Timer(8, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    cuda.cuMemFree_v2(address)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = simulate(code)
    assert done.stdout == "interrupted\n", done.stderr
    assert done.stderr.count("simcuda: cuMemFree_v2 waits for a kernel that runs, as on a GPU\n") == 1


def test_a_wait_for_a_value_is_interrupted(simulate: Run):
    code = """
import ctypes
launch("nothing")
address = ctypes.c_uint64()
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8)) == 0
assert cuda.cuMemsetD8_v2(address, 0, ctypes.c_size_t(8)) == 0
assert cuda.cuStreamWaitValue32_v2(None, address, 1, 1) == 0
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    synchronize()
except KeyboardInterrupt:
    print("interrupted")
"""
    done = simulate(code)
    assert done.stdout == "interrupted\n", done.stderr


def test_the_time_out_of_a_test_ends_its_kernel_and_the_next_test_runs(session: Run, tmp_path: Path):
    (tmp_path / "test_spin.py").write_text("""
import pytest
from spin import launch, synchronize

@pytest.mark.timeout(1, method="signal")
def test_that_never_ends():
    launch("spin")
    synchronize()

def test_after_it():
    launch("nothing")
    synchronize()
""")
    done = session("--vkgdr-sim=no-vulkan", PYTHONPATH=str(Path(__file__).with_name("support")))
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "Failed: Timeout (>1.0s) from pytest-timeout." in done.stdout
    assert "synchronize()" in done.stdout
