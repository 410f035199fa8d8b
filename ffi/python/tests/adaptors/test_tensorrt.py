"""`examples/cpp/tensorrt_allocator.hpp`, compiled against TensorRT's real headers and called through its interface."""

import os
from pathlib import Path

import cpp
import pytest
import simulator

HEADERS = os.environ.get("VKGDR_TENSORRT_HEADERS")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    headers = cpp.require("TensorRT", Path(HEADERS) if HEADERS else None)
    return cpp.build(tmp_path_factory.mktemp("tensorrt"), "c++17", "tensorrt_allocator.cpp", [headers], {})


@pytest.mark.parametrize("profile", ["none", "non-coherent", "bar256"])
def test_memory_on_streams(program, profile):
    has_small_bar = profile == "bar256" and simulator.available()
    cpp.run(program, profile, *(["beyond-the-bar"] if has_small_bar else []))
