"""`examples/cpp/ort_allocator.hpp`, compiled against ONNX Runtime's real headers, with the library of its wheel."""

import os
from pathlib import Path

import cpp
import pytest

HEADERS = os.environ.get("VKGDR_ONNXRUNTIME_HEADERS")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    headers = cpp.require("ONNX Runtime", Path(HEADERS) if HEADERS else None)
    found = sorted((cpp.PACKAGES / "onnxruntime/capi").glob("libonnxruntime.so.1.*"))
    if not found:
        pytest.skip("ONNX Runtime is not installed")
    libraries = {"libonnxruntime.so.1": found[0]}
    return cpp.build(tmp_path_factory.mktemp("ort"), "c++17", "ort_allocator.cpp", [headers], libraries)


@pytest.mark.parametrize("profile", ["none", "non-coherent", "bar256"])
def test_tensors_in_mapped_memory(program, profile):
    cpp.run(program, profile)
