"""The fixtures themselves."""

import pytest
import simulator


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
