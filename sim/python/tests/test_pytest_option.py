"""pytest's option, in sessions of their own."""

import os
import sys
from pathlib import Path

import pytest
from programs import Run

# Passes where there is a driver.
TEST = """
import ctypes, os

def test_there_is_a_gpu():
    count = ctypes.c_int()
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    assert count.value == int(os.environ.get("EXPECTED_GPUS", "1"))
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path) -> None:
    """Write a project with tests in two files."""
    for name in ("test_first", "test_second"):
        (tmp_path / f"{name}.py").write_text(TEST)


def test_without_the_option_nothing_is_simulated(session: Run):
    done = session()
    assert "simulated" not in done.stdout
    # On a machine with a GPU its own driver is there.
    if not os.path.exists("/dev/nvidiactl"):
        assert "2 failed" in done.stdout, done.stdout


def test_the_tests_find_a_gpu_and_the_report_says_that_it_is_simulated(session: Run):
    done = session("--vkgdr-sim")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "GPU: simulated by vkgdr-sim" in done.stdout
    assert "no profile" in done.stdout
    assert done.stdout.count("test session starts") == 1


def test_the_report_names_the_profile_and_the_settings(session: Run):
    done = session("--vkgdr-sim=two-gpus", EXPECTED_GPUS="2", SIMCUDA_LATE="1")
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert "profile two-gpus (two GPUs)" in done.stdout
    assert "settings: SIMCUDA_DEVICES=2 SIMCUDA_LATE=1" in done.stdout


def test_the_profile_late_is_one_of_them(session: Run):
    done = session("--vkgdr-sim=late")
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert "profile late (" in done.stdout
    assert "settings: SIMCUDA_DEVICES=1 SIMCUDA_LATE=1" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        (["--vkgdr-sim", "test_first.py"], 1),
        (["--vkgdr-sim", "rebar", "test_first.py"], 1),
        (["-q", "test_first.py", "test_second.py", "--vkgdr-sim"], 2),
        (["--vkgdr-sim=", "-k", "second"], 1),
        (["--vkgdr-sim=no-vulkan", "--vkgdr-sim", "test_first.py"], 1),
        (["--vkgdr-sim", "--", "test_first.py"], 1),
    ],
)
def test_only_a_profile_is_the_options_value(session: Run, arguments: list[str], passed: int):
    done = session(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout


@pytest.mark.parametrize("own", ["--vkgdr-sim", "--vkgdr-sim=rebar", "-q --vkgdr-sim rebar"])
def test_the_option_may_be_in_the_projects_settings(session: Run, tmp_path: Path, own: str):
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {own}\n")
    done = session("test_first.py")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    done = session("test_first.py", "--vkgdr-sim=two-gpus", EXPECTED_GPUS="2")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_option_may_be_in_the_environment(session: Run):
    done = session("test_first.py", PYTEST_ADDOPTS="-k first --vkgdr-sim")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    done = session(PYTEST_ADDOPTS="--vkgdr-sim 'test_first.py'")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_an_unknown_profile_is_refused_with_the_list(session: Run):
    done = session("--vkgdr-sim=gtx")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "there is no profile 'gtx'; the profiles are:" in done.stderr
    assert "non-coherent          the CPU and the GPU see each other's writes only after a flush" in done.stderr


def test_the_workers_of_xdist_are_simulated(session: Run):
    done = session("--vkgdr-sim=two-gpus", "-n", "2", EXPECTED_GPUS="2")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_first_conftest_is_imported_once_and_output_is_shown(session: Run, tmp_path: Path):
    (tmp_path / "conftest.py").write_text("import sys\nopen('imports', 'a').write('x')\nprint('imported')\n")
    done = session("--vkgdr-sim", "-s")
    assert (tmp_path / "imports").read_text() == "x"
    assert done.stdout.count("imported") == 1


def test_the_interpreters_options_and_the_exit_code_stay(session: Run, run: Run, tmp_path: Path):
    (tmp_path / "test_first.py").write_text("import sys\ndef test_it():\n    assert sys.flags.dev_mode\n")
    done = run(sys.executable, "-X", "dev", "-m", "pytest", "--vkgdr-sim", "test_first.py")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert session("--vkgdr-sim", "test_first.py").returncode == pytest.ExitCode.TESTS_FAILED
    assert session("--vkgdr-sim", "-k", "nothing").returncode == pytest.ExitCode.NO_TESTS_COLLECTED


def test_pytest_that_is_simulated_already_is_not_started_again(run: Run, tmp_path: Path):
    (tmp_path / "conftest.py").write_text("import os\nprint('process', os.getpid())\n")
    under = ("vkgdr-sim", "-p", "rebar", "--", sys.executable, "-m", "pytest", "-s", "test_first.py")
    done = run(*under, "--vkgdr-sim")
    assert "profile rebar" in done.stdout, done.stdout + done.stderr
    done = run(*under, "--vkgdr-sim=two-gpus", EXPECTED_GPUS="2")
    assert "profile two-gpus" in done.stdout, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    # Nothing of the outer profile stays.
    late = ("vkgdr-sim", "-p", "late", "--", sys.executable, "-m", "pytest", "test_first.py")
    done = run(*late, "--vkgdr-sim=rebar")
    assert "settings: SIMCUDA_DEVICES=1\n" in done.stdout, done.stdout + done.stderr
    # Without the option the report says it all the same.
    assert "GPU: simulated" in run(*under).stdout


def test_the_plug_in_can_be_turned_off_and_named(session: Run, run: Run):
    off = session("-p", "no:vkgdr_sim", "--vkgdr-sim")
    assert "unrecognized arguments: --vkgdr-sim" in off.stderr
    named = session("-p", "vkgdr_sim", "--vkgdr-sim", "test_first.py", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert "1 passed" in named.stdout, named.stdout + named.stderr
    assert "1 passed" in run("pytest", "--vkgdr-sim", "test_first.py").stdout


def test_a_program_that_calls_pytest_main_is_told_to_start_by_vkgdr_sim(run: Run, tmp_path: Path):
    code = "import pytest; raise SystemExit(pytest.main(['--vkgdr-sim', 'test_first.py']))"
    (tmp_path / "program.py").write_text(code)
    refused = run(sys.executable, "program.py")
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert "start a program that calls pytest.main by `vkgdr-sim -- PROGRAM`" in refused.stderr
    done = run("vkgdr-sim", "--", sys.executable, "program.py")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_an_interpreter_that_drops_the_variables_is_not_started_for_ever(session: Run, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ.pop('LD_LIBRARY_PATH', None)\n")
    refused = session("--vkgdr-sim", PYTHONPATH=str(tmp_path))
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert "drops LD_LIBRARY_PATH" in refused.stderr
