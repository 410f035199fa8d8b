"""A small numba project on the simulated GPU; needs numba-cuda and vkgdr's package."""

import shutil
from pathlib import Path

import pytest
from programs import Run

pytest.importorskip("numba.cuda", reason="numba-cuda is not installed", exc_type=ImportError)
pytest.importorskip("vkgdr", reason="vkgdr is not installed", exc_type=ImportError)


@pytest.fixture(autouse=True)
def project(tmp_path: Path) -> None:
    """Copy the project to where the test runs."""
    shutil.copytree(Path(__file__).with_name("numba_project"), tmp_path, dirs_exist_ok=True)


def test_the_project_passes(session: Run):
    done = session("--vkgdr-sim")
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_profile_non_coherent_finds_the_forgotten_flush(session: Run):
    done = session("--vkgdr-sim=non-coherent")
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "FAILED test_kernels.py::test_with_a_forgotten_flush" in done.stdout
