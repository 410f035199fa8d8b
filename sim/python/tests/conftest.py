"""Programs in processes of their own, outside the simulator that the tests themselves may run under."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from programs import Run

collect_ignore = ["numba_project"]

# What vkgdr-sim and sim/run set.
SET = (
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NODEVICE_SELECT",
    "PYTEST_ADDOPTS",
    "SIMCUDA_DEVICES",
    "SIMCUDA_LATE",
    "VKGDR_SIM_PRELOAD",
    "VKGDR_SIM_PROFILE",
    "VKLAYER_PROFILE",
    "VK_ADD_LAYER_PATH",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_INSTANCE_LAYERS",
)


@pytest.fixture
def environment() -> dict[str, str]:
    """Return the variables of a shell in which the environment is activated, and nothing is simulated."""
    variables = {name: value for name, value in os.environ.items() if name not in SET and "PYTEST" not in name}
    bin_folder = str(Path(sys.executable).parent)
    return variables | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Return a function that runs a command in the test's folder: ``run("vkgdr-sim", "--version", NAME=value)``."""

    def run_command(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            stdin=subprocess.DEVNULL,
            # A shell starts a background program with this signal ignored, and its children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return run_command


@pytest.fixture
def session(run: Run) -> Run:
    """Return a function that runs pytest with arguments in the test's folder."""

    def run_pytest(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, **variables)

    return run_pytest
