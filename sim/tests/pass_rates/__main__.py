"""Runs the test suites of CUDA libraries on the simulated GPU, and counts passes, skips and failures by cause.

    python tests/pass_rates numba RESULTS.json       # numba-cuda's suite, which its wheel brings
    python tests/pass_rates pytest NAME FOLDER RESULTS.json  # a suite for pytest, such as pycuda's
    python tests/pass_rates rust NAME FOLDER FEATURES RESULTS.json  # the tests of a crate, such as cudarc's
    python tests/pass_rates write FOLDER             # the table of docs/pass-rates.md, from all results in FOLDER

Start it by vkgdr-sim in the environment of the library; `make pass-rates` makes the environments and does all that.
Each file of tests, in Rust each test, runs in a process of its own: one that crashes, or takes more than ten minutes,
is one failure.
"""

import pkgutil
import sys
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import in_process
import runs
import rust
import table


def modules(package: str) -> list[str]:
    """Return the modules of tests in a package and the packages below it."""
    tests = import_module(package)
    found = pkgutil.walk_packages(tests.__path__, f"{package}.")
    return sorted(module.name for module in found if module.name.rpartition(".")[2].startswith("test_"))


def main() -> None:
    """Do what the first argument says."""
    match sys.argv[1:]:
        case ["module", name]:
            in_process.run_module(name)
        case ["write", folder]:
            table.write(Path(folder))
        case ["numba", output]:
            files = modules("numba.cuda.tests")
            runs.run_all(f"numba-cuda {version('numba-cuda')}", files, runs.unittest_module, Path(output))
        case ["rust", name, folder, features, output]:
            binary = rust.build(Path(folder), features)
            runs.run_all(name, rust.tests(binary), partial(rust.run_test, binary), Path(output))
        case ["pytest", name, folder, output]:
            files = sorted(str(file) for file in Path(folder).rglob("test_*.py"))
            runs.run_all(name, files, runs.pytest_file, Path(output))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
