"""A simulated NVIDIA GPU, for programs and tests on machines without one.

The package brings the command ``vkgdr-sim`` with its libraries, and pytest's option ``--vkgdr-sim``.
"""

from pathlib import Path

__all__ = ["folder", "program"]


def folder() -> Path:
    """Return the folder of the simulated libraries: ``libcuda.so.1``, ``libcudart.so.13`` and the rest."""
    return Path(__file__).resolve().parent / "simulator"


def program() -> Path:
    """Return the path of the program that starts others on the simulated GPU."""
    return folder() / "vkgdr-sim"
