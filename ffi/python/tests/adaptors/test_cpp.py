"""`vkgdr_mr.hpp`, compiled against the real headers of RMM and CCCL, in RMM's containers and adaptors."""

import cpp
import pytest
import simulator

RMM = cpp.PACKAGES / "librmm"


@pytest.fixture(scope="module")
def headers():
    cpp.require("RMM", RMM)
    return [RMM / "include/rapids", RMM / "include", cpp.PACKAGES / "rapids_logger/include"]


@pytest.fixture(scope="module")
def program(headers, tmp_path_factory):
    logger = cpp.PACKAGES / "rapids_logger/lib64/librapids_logger.so"
    libraries = {"librmm.so": RMM / "lib64/librmm.so", "librapids_logger.so": logger}
    # RMM needs C++20.
    return cpp.build(tmp_path_factory.mktemp("cpp"), "c++20", "memory_resource.cpp", headers, libraries)


def test_the_header_needs_no_more_than_cpp17(headers, tmp_path):
    (tmp_path / "header.cpp").write_text('#include "vkgdr_mr.hpp"\n')
    cpp.compile_cpp("c++17", headers, "-fsyntax-only", tmp_path / "header.cpp")


@pytest.mark.parametrize("profile", ["none", "non-coherent", "bar256"])
def test_containers_and_adaptors_of_rmm(program, profile):
    cpp.run(program, profile, *([] if simulator.available() else ["gpu"]))
