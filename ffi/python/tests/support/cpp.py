"""C++ programs of the adaptors' tests: compiled against real headers of other libraries, linked to the C library."""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

# Where the environment's packages are, with their headers and libraries.
PACKAGES = Path(sysconfig.get_path("purelib"))
CUDA = PACKAGES / "nvidia/cu13"
ROOT = Path(__file__).resolve().parents[4]


def require(library: str, headers: Path | None) -> Path:
    """Return a library's folder of headers; skip the test where there is none, or nothing to compile and link with."""
    if headers is None or not headers.is_dir():
        pytest.skip(f"there are no headers of {library}: `nox -s adaptors` gets them, where it can")
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    if not os.environ.get("VKGDR_C_LIBRARY"):
        pytest.skip("VKGDR_C_LIBRARY does not name the C library")
    return headers


def compile_cpp(standard: str, headers: Iterable[Path], *arguments: Path | str) -> None:
    """Run the compiler, with warnings of our files as errors."""
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    ours = [f"-I{ROOT}/ffi/c/include", f"-I{ROOT}/examples/cpp"]
    theirs = [option for folder in (*headers, CUDA / "include") for option in ("-isystem", str(folder))]
    command = ["g++", f"-std={standard}", *warnings, "-pthread", *ours, *theirs, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def build(folder: Path, standard: str, source: str, headers: Iterable[Path], libraries: Mapping[str, Path]) -> Path:
    """Build a program of the C library's tests with libraries by their sonames, the C library and the CUDA runtime."""
    ours = {"libvkgdr.so.1": Path(os.environ["VKGDR_C_LIBRARY"]), "libcudart.so.13": CUDA / "lib/libcudart.so.13"}
    linked = {**libraries, **ours}
    for name, path in linked.items():
        (folder / name).symlink_to(path)
    options = [f"-L{folder}", f"-Wl,-rpath,{folder}", *(f"-l:{name}" for name in linked)]
    compile_cpp(standard, headers, ROOT / "ffi/c/tests" / source, "-o", folder / "program", *options)
    return folder / "program"


def run(program: Path, profile: str, *arguments: str) -> None:
    """Run a program on a profile of the simulated GPU; it must say that all is well."""
    environment = os.environ | {"VKGDR_TEST_PROFILE": profile}
    command = [str(ROOT / "sim/run"), str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr
