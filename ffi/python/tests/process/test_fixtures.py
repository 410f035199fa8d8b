"""The fixtures themselves."""

import os
import subprocess
import sys
from pathlib import Path

import libcuda
import pytest
import simulator


def test_a_context_is_current_and_memory_works_in_it(cuda, context):
    assert cuda.current() == context.handle
    pointer = cuda.allocate(64)
    cuda.write(pointer, bytes(range(64)))
    cuda.copy(pointer + 32, pointer, 32)
    assert cuda.read(pointer, 64) == bytes(range(32)) * 2
    cuda.fill(pointer, 7, 64)
    assert cuda.read(pointer, 64) == b"\7" * 64
    cuda.free(pointer)


def test_no_context_is_current_without_one(cuda, no_context):
    assert cuda.current() == 0
    with pytest.raises(libcuda.CudaError, match="CUDA_ERROR_INVALID_CONTEXT"):
        cuda.allocate(1)


def test_a_test_may_destroy_its_context(cuda, context):
    context.destroy()
    context.destroy()
    assert cuda.current() == 0


def test_a_gate_holds_a_stream(cuda, context):
    pointer = cuda.allocate(4)
    cuda.fill(pointer, 0, 4)
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        cuda.fill(pointer, 1, 4, stream)
        assert not cuda.is_done(stream)
        gate.open()
        cuda.synchronize_stream(stream)
        assert cuda.read(pointer, 4) == b"\1" * 4
    cuda.free(pointer)


def test_a_call_fails_when_it_is_told_to(cuda, context, simulated):
    before = simulator.live()
    with simulator.fail("cuMemAlloc", 2, 2):
        pointer = cuda.allocate(1)
        with pytest.raises(libcuda.CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
            cuda.allocate(1)
    assert simulator.cuda.last_fault() is None
    assert simulator.live()["memory"] == before["memory"] + 1
    cuda.free(pointer)
    assert simulator.live() == before


def test_a_failure_that_does_not_happen_is_an_error(simulated):
    with pytest.raises(AssertionError, match="cuMemAlloc was called 0 times"), simulator.fail("cuMemAlloc"):
        pass
    with simulator.fail("cuMemAlloc", must_happen=False):
        pass
    with pytest.raises(ValueError, match="refused"), simulator.fail("cuNoSuchFunction"):
        pass


@pytest.mark.leaks("tests the mark itself")
def test_a_leak_on_purpose_is_let_pass(cuda, simulated):
    cuda.retain_primary()


def test_after_the_leak_the_ledger_starts_anew(cuda, simulated):
    assert simulator.live()["primary"] >= 1
    cuda.retain_primary()
    cuda.release_primary()


def test_pycuda_has_a_context(cuda, pycuda_context):
    import pycuda.driver

    assert cuda.current() == pycuda_context.handle
    memory = pycuda.driver.mem_alloc(16)
    pycuda.driver.memcpy_htod(memory, b"x" * 16)
    assert cuda.read(int(memory), 16) == b"x" * 16


def test_a_program_is_told_apart_from_one_that_fails(run_python):
    assert run_python("import sys; print(sys.flags.dev_mode)").stdout == "True\n"
    assert run_python("import sys; sys.exit(3)", expect=3).returncode == 3
    assert run_python("import os; print(os.environ['A'])", A="1").stdout == "1\n"
    with pytest.raises(AssertionError, match="signal 11"):
        run_python("import ctypes; ctypes.string_at(0)", expect=None)
    with pytest.raises(AssertionError, match="exit code 1"):
        run_python("raise OSError")
    with pytest.raises(AssertionError, match="destructor"):
        run_python("class A:\n    def __del__(self): raise OSError('destructor')\na = A()")


@pytest.mark.parametrize("words", ["in: <function A.__del__>", "while calling deallocator <function A.__del__>:"])
def test_a_failing_destructor_is_seen_in_the_words_of_every_python(run_python, words):
    with pytest.raises(AssertionError, match="the program's errors"):
        run_python(f"import sys; print('Exception ignored {words}', file=sys.stderr)")


@pytest.mark.parametrize("category", ["DeprecationWarning", "RuntimeWarning"])
def test_a_warning_of_a_fork_with_threads_is_no_error(run_python, category):
    text = "This process (pid=1) is multi-threaded, use of fork() may lead to deadlocks in the child."
    run_python(f"import warnings; warnings.warn({text!r}, {category})")
    with pytest.raises(AssertionError, match="exit code 1"):
        run_python(f"import warnings; warnings.warn('another', {category})")


def test_without_a_c_compiler_tests_that_need_one_are_skipped(tmp_path):
    tests = Path(__file__).parents[1] / "dlpack" / "test_dlpack.py"
    # Where plug-ins are not found by themselves, pytest must be told of the one that the settings name.
    plugin = ["-p", "pytest_timeout"] if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD") else []
    names = "that_python_does_not_know or without_the_gil"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-q", "-k", names, str(tests)],
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "6 skipped" in done.stdout


def test_what_is_alive_at_the_end_of_a_program_is_seen(run_python_to_its_end, simulated):
    assert not any(run_python_to_its_end("print('nothing')").live.values())
    code = """
        import libcuda
        cuda = libcuda.Cuda()
        cuda.create_context()
        class Late:
            free = cuda.free
            def __init__(self, pointer): self.pointer = pointer
            def __del__(self): self.free(self.pointer)
        kept = cuda.allocate(1)
        late = Late(cuda.allocate(1))
    """
    live = run_python_to_its_end(code).live
    assert live["CUDA memory"] == 1
    assert live["CUDA context"] == 1
