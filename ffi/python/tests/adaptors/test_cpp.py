"""`vkgdr_mr.hpp`, compiled against the real headers of RMM and CCCL, in RMM's containers and adaptors."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import simulator

C = Path(__file__).resolve().parents[3] / "c"


@pytest.fixture(scope="module")
def packages():
    """Return the folder of the installed packages, whose headers and libraries the tests use."""
    found = importlib.util.find_spec("librmm")
    if found is None or not found.submodule_search_locations:
        pytest.skip("RMM is not installed")
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    if not os.environ.get("VKGDR_C_LIBRARY"):
        pytest.skip("VKGDR_C_LIBRARY does not name the C library")
    return Path(next(iter(found.submodule_search_locations))).parent


def compile_cpp(packages, standard, *arguments):
    headers = ["librmm/include/rapids", "librmm/include", "rapids_logger/include", "nvidia/cu13/include"]
    includes = [option for folder in headers for option in ("-isystem", str(packages / folder))]
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    command = ["g++", f"-std={standard}", *warnings, "-pthread", f"-I{C}/include", *includes, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def program(packages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpp")
    os.symlink(os.environ["VKGDR_C_LIBRARY"], folder / "libvkgdr.so.1")
    folders = [packages / "librmm/lib64", packages / "rapids_logger/lib64", packages / "nvidia/cu13/lib", folder]
    libraries = ["-lrmm", "-lrapids_logger", "-l:libcudart.so.13", "-l:libvkgdr.so.1"]
    paths = [option for path in folders for option in (f"-L{path}", f"-Wl,-rpath,{path}")]
    # RMM needs C++20.
    compile_cpp(packages, "c++20", C / "tests/memory_resource.cpp", "-o", folder / "program", *paths, *libraries)
    return folder / "program"


def test_the_header_needs_no_more_than_cpp17(packages, tmp_path):
    (tmp_path / "header.cpp").write_text('#include "vkgdr_mr.hpp"\n')
    compile_cpp(packages, "c++17", "-fsyntax-only", tmp_path / "header.cpp")


@pytest.mark.parametrize("profile", ["none", "non-coherent", "bar256"])
def test_containers_and_adaptors_of_rmm(program, profile):
    arguments = [] if simulator.available() else ["gpu"]
    environment = os.environ | {"VKGDR_TEST_PROFILE": profile}
    done = subprocess.run([program, *arguments], capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr
