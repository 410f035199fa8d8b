"""Runs the test suites of CUDA libraries on the simulated GPU, and counts passes, skips and failures by cause.

    python scripts/pass_rates numba RESULTS.json       # numba-cuda's suite, which its wheel brings
    python scripts/pass_rates pytest NAME FOLDER RESULTS.json  # a suite for pytest, such as pycuda's or cuda.core's
    python scripts/pass_rates write FOLDER             # the table of sim/README.md, from all results in FOLDER

Start it by vkgdr-sim in the environment of the library; `nox -s pass_rates` makes the environments and does all that.
Each file of tests runs in a process of its own: one that crashes, or takes more than ten minutes, is one failure.
"""

import pkgutil
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import in_process
import runs
import table


def numba_modules() -> list[str]:
    """Return the modules of numba-cuda's suite."""
    tests = import_module("numba.cuda.tests")
    found = pkgutil.walk_packages(tests.__path__, f"{tests.__name__}.")
    return sorted(module.name for module in found if module.name.rpartition(".")[2].startswith("test_"))


def main() -> None:
    """Do what the first argument says."""
    match sys.argv[1:]:
        case ["module", name]:
            in_process.run_module(name)
        case ["write", folder]:
            table.write(Path(folder))
        case ["numba", output]:
            runs.run_all(f"numba-cuda {version('numba-cuda')}", numba_modules(), runs.unittest_module, Path(output))
        case ["pytest", name, folder, output]:
            files = sorted(str(file) for file in Path(folder).rglob("test_*.py"))
            runs.run_all(name, files, runs.pytest_file, Path(output))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
